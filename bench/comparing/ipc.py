"""Ring and doorbell: messages per second, also of another library, and round trips between two roles of the engine."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from comparing.messages import CAPACITY, messages_per_second
from penstock.bench import BenchUsageError, require_new
from penstock.runs.machine import describe, machine_facts

Player = Callable[[int, int, float], float]
"""Function of producers, messages per call and seconds that returns messages per second."""


@dataclass(frozen=True)
class Flags:
    """Flags of ``bench/ipc.py``, which takes about a minute."""

    rounds: int = 5
    """Number of rounds, whose medians are shown."""
    quick: bool = False
    """Two short rounds, to check that everything works."""
    json: Path | None = None
    """File for all rounds, with machine, versions and commit."""


@dataclass(frozen=True)
class Scale:
    """Size of a measurement: repetitions, duration, and whether its marks count."""

    rounds: int = 5
    seconds: float = 0.5
    """Time of messages through one library, and twice that of round trips, in each round."""
    judged: bool = True


QUICK = Scale(rounds=2, seconds=0.05, judged=False)


@dataclass(frozen=True)
class Traffic:
    """Messages to one consumer, in all rounds."""

    producers: int
    together: int
    """Messages in one call of a producer."""
    mark: float | None = None
    """Required ratio to the other library's messages per second."""
    rounds: dict[str, list[float]] = field(default_factory=dict)
    """Messages per second in each round, by "penstock" or the name of the other library."""

    @property
    def name(self) -> str:
        """Name of the operation."""
        how = "one by one" if self.together == 1 else f"{self.together} at once"
        return f"{self.producers} producer{'s' if self.producers > 1 else ''}, {how}"

    def median(self, name: str) -> float | None:
        """Return the median of the rounds; None: not measured."""
        return statistics.median(self.rounds[name]) if self.rounds.get(name) else None

    @property
    def ratio(self) -> float | None:
        """Ratio to the other library's messages per second; None: no comparison."""
        others = [name for name in self.rounds if name != "penstock"]
        ours, theirs = self.median("penstock"), self.median(others[0]) if others else None
        return None if ours is None or theirs is None else ours / theirs

    @property
    def met(self) -> bool | None:
        """Whether the mark is met; None without a mark or a comparison."""
        return None if self.mark is None or self.ratio is None else self.ratio >= self.mark


@dataclass(frozen=True)
class RoundTrip:
    """Round trip of a rollout worker's request, answered by a policy worker, in all rounds."""

    name: str
    burners: int
    """Processes that compute all the time meanwhile."""
    mark: float | None = None
    """Largest legal median, in microseconds."""
    rounds: dict[int, list[float]] = field(default_factory=dict)
    """Microseconds in each round, by percentile."""

    def median(self, percentile: int) -> float:
        """Return the median of the rounds."""
        return statistics.median(self.rounds[percentile])

    @property
    def met(self) -> bool | None:
        """Whether the mark is met; None without a mark."""
        return None if self.mark is None else self.median(50) < self.mark


class Library(Protocol):
    """Another library that sends messages."""

    name: str
    version: str

    def messages_per_second(self, producers: int, together: int, seconds: float) -> float:
        """Measure as `messages.messages_per_second` does."""
        ...


_TRAFFICS = (Traffic(1, 1, mark=5), Traffic(4, 1), Traffic(1, 100), Traffic(2, 100), Traffic(4, 100))
_PERCENTILES = (50, 90, 99)


def run(flags: Flags, library: Library | None = None) -> bool:
    """Measure, print two tables, and return whether all comparable marks are met.

    Parameters
    ----------
    flags
        Flags of the command.
    library
        Another library to compare with; None: no comparison.

    Raises
    ------
    BenchUsageError
        A flag is not legal.
    BenchError
        The other library cannot be run.
    """
    check(flags)
    scale = QUICK if flags.quick else Scale(rounds=flags.rounds)
    machine = machine_facts()
    print(describe(machine))
    print(_settings(scale, math.ceil(machine["cores"]), library))

    players: dict[str, Player] = {"penstock": messages_per_second}
    if library is not None:
        players[library.name] = library.messages_per_second
    print(_head("messages per second", *players, *(("ratio",) if library is not None else ())))
    traffics = [_measure_traffic(traffic, scale, players) for traffic in _TRAFFICS]
    print("\n" + _head("round trip of a request, us", *(f"p{percentile}" for percentile in _PERCENTILES)))
    # On a single core one role waits while the other works, so that none is idle.
    at_rest = RoundTrip("a core idle", 0, mark=20 if machine["cores"] > 1 else None)
    trips = [_measure_trips(trip, scale) for trip in (at_rest, RoundTrip("none idle", math.ceil(machine["cores"])))]
    measured: list[Traffic | RoundTrip] = [*traffics, *trips]
    _conclude(measured, scale)
    if flags.json is not None:
        facts: dict[str, Any] = {"machine": machine, "settings": vars(scale)}
        if library is not None:
            facts[library.name] = library.version
        tables = {"messages": [asdict(one) for one in traffics], "round_trips": [asdict(one) for one in trips]}
        flags.json.write_text(json.dumps({**facts, **tables}, indent=1) + "\n")
    return all(one.met is not False for one in measured)


def check(flags: Flags) -> None:
    """Raise `BenchUsageError` if a flag is not legal."""
    if flags.rounds < 1:
        raise BenchUsageError(f"--rounds {flags.rounds} is not legal: measure 1 or more")
    require_new(flags.json)


def _measure_traffic(traffic: Traffic, scale: Scale, players: dict[str, Player]) -> Traffic:
    """Measure rounds of both libraries, in alternating order."""
    rounds: dict[str, list[float]] = {name: [] for name in players}
    for turn in range(scale.rounds):
        for name in sorted(players, reverse=turn % 2 == 0):
            rounds[name].append(players[name](traffic.producers, traffic.together, scale.seconds))
    measured = replace(traffic, rounds=rounds, mark=traffic.mark if scale.judged and len(players) > 1 else None)
    figures = [f"{statistics.median(found):,.0f}" for found in rounds.values()]
    if measured.ratio is not None:
        figures.append(f"{measured.ratio:.1f}x")
    mark = "-" if measured.mark is None else f"{measured.mark:g}x"
    print(_line(measured.name, *figures, mark, _MET[measured.met]), flush=True)
    return measured


def _measure_trips(trip: RoundTrip, scale: Scale) -> RoundTrip:
    from comparing.round_trips import round_trips  # imports torch, for the policy worker

    rounds: dict[int, list[float]] = {percentile: [] for percentile in _PERCENTILES}
    for _ in range(scale.rounds):
        microseconds = round_trips(2 * scale.seconds, trip.burners)
        for percentile, found in rounds.items():
            found.append(float(np.percentile(microseconds, percentile)))
    measured = replace(trip, rounds=rounds, mark=trip.mark if scale.judged else None)
    figures = [f"{measured.median(percentile):.1f}" for percentile in _PERCENTILES]
    mark = "-" if measured.mark is None else f"< {measured.mark:g}"
    print(_line(measured.name, *figures, mark, _MET[measured.met]), flush=True)
    return measured


def _settings(scale: Scale, cores: int, library: Library | None) -> str:
    queue = "" if library is None else f", and {library.name}'s default queue of 1 MB"
    lines = [
        "messages: small integers to one consumer, in separate processes, through a ring of "
        f"{CAPACITY:,} numbers{queue}",
        "round trip: asked by a rollout worker, answered by a policy worker that has no network; none idle: while "
        f"{cores} processes compute",
        f"medians of {scale.rounds} rounds of {scale.seconds:g} s of messages for each library, "
        f"{2 * scale.seconds:g} s of round trips",
    ]
    return "\n".join(lines)


def _conclude(measured: list[Traffic | RoundTrip], scale: Scale) -> None:
    if not scale.judged:
        print("--quick shows that everything works; it is too short to judge")
        return
    judged = [one for one in measured if one.met is not None]
    missed = [f"  missed: {one.name}" for one in judged if not one.met]
    print("\n".join([f"{len(judged) - len(missed)} of {len(judged)} marks hold", *missed]))


_MET = {None: "-", True: "yes", False: "NO"}


def _head(name: str, *cells: str) -> str:
    return f"{_line(name, *cells, 'mark', 'met')}\n|{'-' * 30}|{'-------------:|' * len(cells)}------:|-----:|"


def _line(name: str, *cells: str) -> str:
    *figures, mark, met = cells
    aligned = [f"{name:<28}", *(f"{figure:>12}" for figure in figures), f"{mark:>5}", f"{met:>4}"]
    return f"| {' | '.join(aligned)} |"
