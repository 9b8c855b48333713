"""The opponents of a run, as the supervisor sees them: which past versions are in pools, how games with them end."""

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
from penstock.self_play.ratings import hard_odds, rating, remembered, score
from penstock.self_play.settings import entry_interval, learner_of

MATCHES = "matches.jsonl"


def opponents_of(
    config: Config, policies: Sequence[Policy], lines_log: Callable[[str], LinesLog]
) -> Opponents | None:
    """Make the opponents of a run's policies; None where they play no past versions.

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
        How many entered before it, in the whole run.
    place
        Where its weights lie.
    steps
        Of the run when it entered.
    rating
        Its Elo rating: the policy's when it entered.
    results
        Wins, draws and losses against it of each policy of the run, int64 ``[policies, 3]``.
    lately
        Those of them since a version of that policy entered last.
    recent
        The same as `results`, older ones faded: float64 ``[policies, 3]``.
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
    """The pool of one policy, as the supervisor sees it: who is in it, and where.

    Whoever enters does so into a free place: one that no game plays. Then, if there are more than the pool holds, the
    oldest but the very first leaves: it is drawn no more, and its place is free when the last game against it is over.

    Attributes
    ----------
    policy
        Whose past versions they are; where its run goes on from a checkpoint, they are those saved in it.
    pool
        The words that they are shared by.
    learners
        Number of the policy that learns in each game with guests, int64 ``[games]``.
    config
        The run's settings.
    num_policies
        Of the run.
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
        """Number of the version that enters next."""
        return self.entries[-1].number + 1 if self.entries else 0

    def take_results(self) -> np.ndarray:
        """Take in how games against them have ended since the last time: those of each policy, int64 ``[policies]``."""
        now = self.pool.results.copy()
        each, self._seen = now - self._seen, now
        new = np.stack([each[self.learners == policy].sum(0) for policy in range(self.num_policies)], 1)
        for entry in self.entries:
            entry.results += new[entry.place]
            entry.lately += new[entry.place]
            entry.recent = remembered(entry.recent, new[entry.place])
        return new.sum((0, 2))

    def free_place(self) -> int | None:
        """A place that nobody has, and no game plays; None while there is none."""
        held = {entry.place for entry in self.entries}
        places = range(len(self.pool.places))
        return next((place for place in places if place not in held and self.pool.is_free(place)), None)

    def enter(self, place: int, steps: int, rating: float) -> None:
        """Let the policy's newest weights enter."""
        number, weights = self.next_number, self.policy.weights
        weights.refresh()
        self.pool.places[place].publish(weights.payload, number)
        zeros = partial(np.zeros, (self.num_policies, 3))
        self.entries.append(Entry(number, place, steps, rating, zeros(np.int64), zeros(np.int64), zeros(np.float64)))
        self._evict()

    def set_odds(self) -> None:
        """Set by what chance each is drawn."""
        odds, places = np.zeros(len(self.pool.places)), [entry.place for entry in self.entries]
        is_hard = self.config.opponent_sampling == "hard"
        odds[places] = hard_odds(score(entry.recent.sum(0)) for entry in self.entries) if is_hard else 1.0
        self.pool.set_odds(odds)

    def to_json(self) -> list[dict[str, Any]]:
        """State for a checkpoint; the weights are saved beside it."""
        counts = ("results", "lately", "recent")
        return [{**vars(entry), **{name: getattr(entry, name).tolist() for name in counts}} for entry in self.entries]

    def _restore(self) -> None:
        """Let the versions of the checkpoint that the run goes on from enter, as many as there is room for."""
        start = self.policy.start
        versions = (start.learning or {}).get("opponents", {})
        for saved in (start.matches or {}).get("entries", ()):
            payload, place = versions.get(str(saved["number"])), self.free_place()
            if payload is None or len(payload) != self.pool.places[0].size or place is None:
                continue
            counts = {name: np.array(saved[name]).reshape(-1, 3) for name in ("results", "lately", "recent")}
            self.pool.places[place].publish(payload.numpy(), saved["number"])
            self.entries.append(Entry(**{**saved, **counts, "place": place}))
            self._evict()

    def _evict(self) -> None:
        """Let the oldest but the very first go, if there are more than the pool holds."""
        if len(self.entries) > self.config.opponent_pool:
            del self.entries[min(1, self.config.opponent_pool - 1)]


class Opponents:
    """Lets versions of each policy into its pool, and keeps count of games and ratings.

    A policy plays its own past versions where it is alone, and else those of all others.

    Parameters
    ----------
    config
        The run's settings.
    policies
        The run's policies.
    log
        Where the win matrix is written, whenever a version enters.

    Attributes
    ----------
    pools
        The pool of each policy.
    """

    def __init__(self, config: Config, policies: Sequence[Policy], log: LinesLog) -> None:
        self._log = log
        self._interval = entry_interval(config)
        self._games = np.array([(policy.start.matches or {}).get("games", 0) for policy in policies])
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
        """A policy's Elo rating, by recent games; that of each policy's first version is 0."""
        return rating([(entry.rating, entry.recent[policy]) for each in self.pools for entry in each.entries])

    def schedule(self, steps: int) -> None:
        """Take in what the games have brought, and let versions enter if they are due.

        In a serial run that depends on what was learned alone, not on when it is asked for.
        """
        if steps == self._steps:
            return
        self._steps = steps
        self._count()
        self._enter([each for each in self.pools if steps >= each.entries[-1].steps + self._interval])
        for versions in self.pools:
            versions.set_odds()

    def status(self, policy: int) -> dict[str, Any]:
        """Status of a policy's opponents, by the names of its status."""
        met, shown = self._met_by(policy), []
        for versions in met:
            for entry in versions.entries:
                wins, draws, losses = entry.results[policy].tolist()
                about = entry.steps, entry.rating, score(entry.recent[policy])
                shown.append(OpponentStatus(*about, wins, draws, losses, versions.policy.name))
        games = int(self._games[policy]) // len(met)  # each is against a version of every other policy
        return {"rating": self.rating(policy), "opponent_games": games, "opponents": tuple(shown)}

    def to_json(self, policy: int) -> dict[str, Any]:
        """State of a policy's pool and of its game results, for a checkpoint."""
        return {"games": int(self._games[policy]), "entries": self.pools[policy].to_json()}

    def _met_by(self, policy: int) -> list[Versions]:
        """The pools of those that a policy plays."""
        return [each for number, each in enumerate(self.pools) if number != policy] or self.pools

    def _count(self) -> None:
        """Take in the results of games since the last time."""
        for versions in self.pools:
            self._games += versions.take_results()

    def _enter(self, due: Sequence[Versions]) -> None:
        """Let the newest weights enter; not while no place is free: games against who has left it still go on."""
        places = [(versions, place) for versions in due if (place := versions.free_place()) is not None]
        if not places:
            return
        self._count()  # what games against who was there have told before they left it
        ratings = [self.rating(versions.policy.number) for versions, _ in places]
        for versions, _ in places:
            self._write_matrix(versions)
        for (versions, place), its_rating in zip(places, ratings, strict=True):
            versions.enter(place, self._steps, its_rating)

    def _write_matrix(self, entering: Versions) -> None:
        """Write how games have ended on the way from the last version to this one: its row of the win matrix."""
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
    """Number of the policy that learns in each game with guests of the run, int64 ``[games]``."""
    of_group = [learner_of(config, game) for game in range(len(seats_in(shape)))]
    return np.tile(np.array(of_group, np.int64), shape.all_groups)
