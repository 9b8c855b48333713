"""Past versions as opponents, in the supervisor: entries of pools, results of games, ratings and the win matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from penstock.config import Config
from penstock.engine.policies import Policy
from penstock.experience.layout import RunShape
from penstock.runs.files import LinesLog
from penstock.runs.status import OpponentStatus
from penstock.self_play.arenas import NOBODY, Pool, pool_in, seats_in
from penstock.self_play.ratings import hard_odds, rating, rating_error, remembered, score
from penstock.self_play.settings import entry_interval, learner_of

MATCHES = "matches.jsonl"


def opponents_of(
    config: Config, policies: Sequence[Policy], lines_log: Callable[[str], LinesLog]
) -> Opponents | None:
    """Make the opponents of a run's policies; None if they do not play past versions.

    Parameters
    ----------
    config, policies
        Settings and policies of the run.
    lines_log
        Returns the log of a file of the run directory.
    """
    return Opponents(config, policies, lines_log(MATCHES)) if config.opponents == "past" else None


@dataclass(eq=False)
class Entry:
    """A past version in the pool of its policy.

    Attributes
    ----------
    number
        Number of earlier entries in the whole run.
    place
        Place of its weights in the pool.
    steps
        Steps of the run at its entry.
    rating
        Elo rating of the policy at the entry.
    results
        Wins, draws and losses of each policy of the run against it, int64 ``[policies, 3]``.
    lately
        Results since the last entry of a version of that policy.
    recent
        Results with decay of older ones, float64 ``[policies, 3]``.
    """

    number: int
    place: int
    steps: int
    rating: float
    results: np.ndarray
    lately: np.ndarray
    recent: np.ndarray


@dataclass(eq=False)
class Versions:
    """Entries of the pool of one policy.

    A version enters a free place, which no game plays against. Then, if there are more than `opponent_pool`, the oldest
    other than the first leaves: it is no longer drawn, and its place is free after the last game against it.

    Attributes
    ----------
    policy
        Policy of the versions; those saved in its checkpoint are restored.
    pool
        Pool in the arena of the guests.
    learners
        Number of the policy that learns in each game with guests, int64 ``[games]``.
    config
        Settings of the run.
    num_policies
        Number of policies of the run.
    entries
        Entries, oldest first.
    """

    policy: Policy
    pool: Pool
    learners: np.ndarray
    config: Config
    num_policies: int
    entries: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pool.playing[:] = NOBODY  # there are no games yet
        self._seen = self.pool.results.copy()
        self._restore()

    @property
    def next_number(self) -> int:
        """Number of the next entry."""
        return self.entries[-1].number + 1 if self.entries else 0

    def take_results(self) -> np.ndarray:
        """Add the results since the last call; return the number of games of each policy, int64 ``[policies]``."""
        now = self.pool.results.copy()
        each, self._seen = now - self._seen, now
        new = np.stack([each[self.learners == policy].sum(0) for policy in range(self.num_policies)], 1)
        for entry in self.entries:
            entry.results += new[entry.place]
            entry.lately += new[entry.place]
            entry.recent = remembered(entry.recent, new[entry.place])
        return new.sum((0, 2))

    def free_place(self) -> int | None:
        """Return a place without an entry that no game plays against; None: there is none."""
        held = {entry.place for entry in self.entries}
        places = range(len(self.pool.places))
        return next((place for place in places if place not in held and self.pool.is_free(place)), None)

    def enter(self, place: int, steps: int, rating: float) -> None:
        """Enter the policy's newest weights into a place."""
        number, weights = self.next_number, self.policy.weights
        weights.refresh()
        self.pool.places[place].publish(weights.payload, number)
        self._seen[:, place] = self.pool.results[:, place]  # nodes may still play against the place's last version
        zeros = partial(np.zeros, (self.num_policies, 3))
        self.entries.append(Entry(number, place, steps, rating, zeros(np.int64), zeros(np.int64), zeros(np.float64)))
        self._evict()

    def set_odds(self) -> None:
        """Set the odds of all entries."""
        odds, places = np.zeros(len(self.pool.places)), [entry.place for entry in self.entries]
        is_hard = self.config.opponent_sampling == "hard"
        odds[places] = hard_odds(score(entry.recent.sum(0)) for entry in self.entries) if is_hard else 1.0
        self.pool.set_odds(odds)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the state of the entries for a checkpoint, without weights."""
        counts = ("results", "lately", "recent")
        return [{**vars(entry), **{name: getattr(entry, name).tolist() for name in counts}} for entry in self.entries]

    def _restore(self) -> None:
        """Enter the versions of the checkpoint that the run resumes from, as many as there are places."""
        start = self.policy.start
        versions = (start.learning or {}).get("opponents", {})
        for saved in start.meta.get("matches", {}).get("entries", ()):
            payload, place = versions.get(str(saved["number"])), self.free_place()
            if payload is None or len(payload) != self.pool.places[0].size or place is None:
                continue
            counts = {name: np.array(saved[name]).reshape(-1, 3) for name in ("results", "lately", "recent")}
            self.pool.places[place].publish(payload.numpy(), saved["number"])
            self.entries.append(Entry(**{**saved, **counts, "place": place}))
            self._evict()

    def _evict(self) -> None:
        """Remove the oldest entry other than the first, if there are too many."""
        if len(self.entries) > self.config.opponent_pool:
            del self.entries[min(1, self.config.opponent_pool - 1)]


class Opponents:
    """Pools of all policies, counts of games, and ratings.

    A run's only policy plays against its own past versions, each of several against those of all others.

    Parameters
    ----------
    config, policies
        Settings and policies of the run.
    log
        Log of the win matrix, to which each entry adds lines.

    Attributes
    ----------
    pools
        Entries of the pool of each policy.
    """

    def __init__(self, config: Config, policies: Sequence[Policy], log: LinesLog) -> None:
        self._log = log
        self._interval = entry_interval(config)
        self._games = np.array([policy.start.meta.get("matches", {}).get("games", 0) for policy in policies])
        self._steps = sum(policy.start.state.steps for policy in policies)
        self.pools = [
            Versions(policy, pool, _learners(config, guests.shape), config, len(policies))
            for policy in policies
            if (guests := policy.arena.unlearned) is not None and (pool := pool_in(guests)) is not None
        ]
        self._enter([versions for versions in self.pools if not versions.entries])
        for versions in self.pools:
            versions.set_odds()

    def rating(self, policy: int) -> float:
        """Return a policy's Elo rating by recent games; each policy's first version is rated 0."""
        return rating(self._played(policy))

    def _played(self, policy: int) -> list[tuple[float, np.ndarray]]:
        """Return the rating of each past version, and a policy's recent games against it."""
        return [(entry.rating, entry.recent[policy]) for each in self.pools for entry in each.entries]

    def schedule(self, steps: int) -> None:
        """Add new results, and enter versions that are due.

        A call without new steps is a no-op, so that a serial run is reproducible.
        """
        if steps == self._steps:
            return
        self._steps = steps
        self._count()
        self._enter([each for each in self.pools if steps >= each.entries[-1].steps + self._interval])
        for versions in self.pools:
            versions.set_odds()

    def status(self, policy: int) -> dict[str, Any]:
        """Return the status of a policy's opponents, by the names of `PolicyStatus`."""
        met, shown = self._met_by(policy), []
        for versions in met:
            for entry in versions.entries:
                wins, draws, losses = entry.results[policy].tolist()
                about = entry.steps, entry.rating, score(entry.recent[policy])
                shown.append(OpponentStatus(*about, wins, draws, losses, versions.policy.name))
        games = int(self._games[policy]) // len(met)  # each game is against a version of every other policy
        played = self._played(policy)
        ratings = {"rating": rating(played), "rating_error": rating_error(played)}
        return {**ratings, "opponent_games": games, "opponents": tuple(shown)}

    def to_json(self, policy: int) -> dict[str, Any]:
        """Return the state of a policy's pool and number of games, for a checkpoint."""
        return {"games": int(self._games[policy]), "entries": self.pools[policy].to_json()}

    def _met_by(self, policy: int) -> list[Versions]:
        """Return the pools that a policy plays against."""
        return [each for number, each in enumerate(self.pools) if number != policy] or self.pools

    def _count(self) -> None:
        """Add the results of games since the last call."""
        for versions in self.pools:
            self._games += versions.take_results()

    def _enter(self, due: Sequence[Versions]) -> None:
        """Enter the newest weights of policies with a free place: games against a version that left may still run."""
        places = [(versions, place) for versions in due if (place := versions.free_place()) is not None]
        if not places:
            return
        self._count()  # results against versions that leave with these entries
        ratings = [self.rating(versions.policy.number) for versions, _ in places]
        for versions, _ in places:
            self._write_matrix(versions)
        for (versions, place), its_rating in zip(places, ratings, strict=True):
            versions.enter(place, self._steps, its_rating)

    def _write_matrix(self, entering: Versions) -> None:
        """Write the entering version's row of the win matrix: results since its policy's last entry."""
        policy, name = entering.policy.number, entering.policy.name
        met = [(versions, entry) for versions in self._met_by(policy) for entry in versions.entries]
        self._log.write(
            {
                "steps": self._steps, "player": entering.next_number, "opponent": entry.number,
                **dict(zip(("wins", "draws", "losses"), entry.lately[policy].tolist(), strict=True)),
                "rating": round(self.rating(policy), 1), "opponent_rating": round(entry.rating, 1),
                **({"policy": name, "opponent_policy": versions.policy.name} if name else {}),
            }
            for versions, entry in met if entry.lately[policy].any()
        )  # fmt: skip
        for _, entry in met:
            entry.lately[policy] = 0


def _learners(config: Config, shape: RunShape) -> np.ndarray:
    """Return the number of the policy that learns in each of the run's games with guests, int64 ``[games]``."""
    of_group = [learner_of(config, game) for game in range(len(seats_in(shape)))]
    return np.tile(np.array(of_group, np.int64), shape.all_groups)
