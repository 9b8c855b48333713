"""The opponents of a run, as the supervisor sees them: which past versions are in the pool, how games with them end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.config import Config, entry_interval
from penstock.engine.policies import Policy
from penstock.experience.pool import NOBODY, Pool
from penstock.play.ratings import hard_odds, rating, remembered, score
from penstock.runs.lines import LinesLog
from penstock.runs.run_directory import RunDirectory
from penstock.runs.status import OpponentStatus

MATCHES = "matches.jsonl"


def opponents_of(
    config: Config, policy: Policy, run: RunDirectory | None, warn: Callable[[str], None]
) -> Opponents | None:
    """The opponents of a run's only policy; None where no guests play.

    Parameters
    ----------
    config, policy
        The run's settings, and its policy.
    run
        Where the run is written; None: nowhere.
    warn
        Takes one line when the disk is full.
    """
    guests = policy.arena.guests
    if guests is None or guests.pool is None:
        return None
    return Opponents(config, policy, guests.pool, LinesLog(None if run is None else run.path / MATCHES, warn))


@dataclass(eq=False)
class Entry:
    """A past version in the pool.

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
        Wins, draws and losses of the policy against it, int64 ``[3]``.
    lately
        Those of them since the last version entered.
    recent
        The same, older ones faded: float64 ``[3]``.
    """

    number: int
    place: int
    steps: int
    rating: float = 0.0
    results: np.ndarray = field(default_factory=lambda: np.zeros(3, np.int64))
    lately: np.ndarray = field(default_factory=lambda: np.zeros(3, np.int64))
    recent: np.ndarray = field(default_factory=lambda: np.zeros(3))


class Opponents:
    """Lets versions of the policy into the pool and out of it, sets their odds, and keeps count of games and ratings.

    Whoever enters does so into a free place: one that no game plays. Then, if there are more than the pool holds, the
    oldest but the very first leaves: it is drawn no more, and its place is free when the last game against it is over.

    Parameters
    ----------
    config
        The run's settings.
    policy
        Whose past versions they are; where its run goes on from a checkpoint, they are those saved in it.
    pool
        The words that they are shared by.
    log
        Where the win matrix is written, whenever a version enters.
    """

    def __init__(self, config: Config, policy: Policy, pool: Pool, log: LinesLog) -> None:
        self._config = config
        self._policy = policy
        self._pool = pool
        self._log = log
        self._interval = entry_interval(config)
        pool.playing[:] = NOBODY  # there are no games yet
        self._seen = pool.results.sum(0)
        self._games = int((policy.start.matches or {}).get("games", 0))
        self._steps = policy.start.state.steps
        self.entries = self._restored()
        if not self.entries:
            self._enter()
        self._set_odds()

    @property
    def rating(self) -> float:
        """The policy's Elo rating, by recent games; that of the run's first version is 0."""
        return rating([(entry.rating, entry.recent) for entry in self.entries])

    def schedule(self, steps: int) -> None:
        """Take in what the games have brought, and let a version enter if one is due.

        In a serial run that depends on what was learned alone, not on when it is asked for.
        """
        if steps == self._steps:
            return
        self._steps = steps
        self._count()
        if steps >= self.entries[-1].steps + self._interval:
            self._enter()
        self._set_odds()

    def status(self) -> dict[str, Any]:
        """What is shown of them, by the names of the status."""
        return {
            "rating": self.rating,
            "opponent_games": self._games,
            "opponents": tuple(
                OpponentStatus(entry.steps, entry.rating, score(entry.recent), *entry.results.tolist())
                for entry in self.entries
            ),
        }

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint says of them; their weights lie beside."""
        return {
            "games": self._games,
            "entries": [
                {**vars(entry), **{name: getattr(entry, name).tolist() for name in ("results", "lately", "recent")}}
                for entry in self.entries
            ],
        }

    def close(self) -> None:
        """Close the file."""
        self._log.close()

    def _restored(self) -> list[Entry]:
        """The entries of the checkpoint that the run goes on from, as many as there is room for."""
        start = self._policy.start
        versions = (start.learning or {}).get("opponents", {})
        entries: list[Entry] = []
        for saved in (start.matches or {}).get("entries", ()):
            payload = versions.get(str(saved["number"]))
            if payload is None or len(payload) != self._pool.places[0].size:
                continue
            counts = {name: np.array(saved[name]) for name in ("results", "lately", "recent")}
            entry = Entry(**{**saved, **counts, "place": self._free_place(entries)})
            self._pool.places[entry.place].publish(payload.numpy(), entry.number)
            entries.append(entry)
            self._evict(entries)
        return entries

    def _count(self) -> None:
        """Take in the results of games since the last time."""
        now = self._pool.results.sum(0)
        new, self._seen = now - self._seen, now
        self._games += int(new.sum())
        for entry in self.entries:
            entry.results += new[entry.place]
            entry.lately += new[entry.place]
            entry.recent = remembered(entry.recent, new[entry.place])

    def _enter(self) -> None:
        """Let the newest weights enter; not while no place is free: games against who has left it still go on."""
        place = self._free_place(self.entries)
        if place is None:
            return
        self._count()  # what games against who was there have told before they left it
        number = self.entries[-1].number + 1 if self.entries else 0
        weights = self._policy.weights
        weights.refresh()
        self._pool.places[place].publish(weights.payload, number)
        self._write_matrix(number)
        self.entries.append(Entry(number, place, self._steps, self.rating))
        self._evict(self.entries)

    def _evict(self, entries: list[Entry]) -> None:
        """Let the oldest but the very first go, if there are more than the pool holds."""
        if len(entries) > self._config.opponent_pool:
            del entries[min(1, self._config.opponent_pool - 1)]

    def _free_place(self, entries: list[Entry]) -> int | None:
        held = {entry.place for entry in entries}
        places = range(len(self._pool.places))
        return next((place for place in places if place not in held and self._pool.is_free(place)), None)

    def _set_odds(self) -> None:
        odds, places = np.zeros(len(self._pool.places)), [entry.place for entry in self.entries]
        is_hard = self._config.opponent_sampling == "hard"
        odds[places] = hard_odds(score(entry.recent) for entry in self.entries) if is_hard else 1.0
        self._pool.set_odds(odds)

    def _write_matrix(self, number: int) -> None:
        """Write how games have ended on the way from the last version to this one: its row of the win matrix."""
        self._log.write(
            {
                "steps": self._steps, "player": number, "opponent": entry.number,
                **dict(zip(("wins", "draws", "losses"), entry.lately.tolist(), strict=True)),
                "rating": round(self.rating, 1), "opponent_rating": round(entry.rating, 1),
            }
            for entry in self.entries if entry.lately.any()
        )  # fmt: skip
        for entry in self.entries:
            entry.lately[:] = 0
