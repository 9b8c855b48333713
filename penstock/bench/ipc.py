"""Ring and doorbell: messages per second beside faster-fifo 1.5.2, and round trips between two roles of the engine."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from penstock.bench import BenchError, BenchUsageError, require_directory_of
from penstock.bench.machine import describe, machine_facts
from penstock.bench.messages import CAPACITY, messages_per_second
from penstock.bench.peers import FASTER_FIFO, program
from penstock.flags import parse_flags

Player = Callable[[int, int, float], float]
"""Messages per second, by producers, messages together and seconds."""
_PATIENCE = 60.0
"""Seconds that a peer may take beyond those it is told to measure."""


@dataclass(frozen=True)
class Flags:
    """Measure ring and doorbell beside faster-fifo 1.5.2, and how soon a request is answered: about a minute."""

    faster_fifo: Path | None = None
    """Python of a virtual environment that has it; None: $PENSTOCK_BENCH_FASTER_FIFO, or what --install-peers made."""
    install_peers: bool = False
    """Make that environment, in the user's cache directory."""
    rounds: int = 5
    """Rounds to take the medians of."""
    quick: bool = False
    """Two short rounds, to see that all of it works."""
    json: Path | None = None
    """File to write every round to, with machine, versions and commit."""


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
    """Messages to one consumer, as often as they were measured."""

    producers: int
    together: int
    """Messages in one call of a producer."""
    mark: float | None = None
    """Required ratio to faster-fifo's messages per second."""
    rounds: dict[str, list[float]] = field(default_factory=dict)
    """Messages per second in each round, by "penstock" or "faster-fifo"."""

    @property
    def name(self) -> str:
        """Name of the operation."""
        how = "one by one" if self.together == 1 else f"{self.together} at once"
        return f"{self.producers} producer{'s' if self.producers > 1 else ''}, {how}"

    def median(self, who: str) -> float | None:
        """The middle of the rounds; None: was not measured."""
        return statistics.median(self.rounds[who]) if self.rounds.get(who) else None

    @property
    def ratio(self) -> float | None:
        """Ratio to faster-fifo's messages per second; None: no comparison."""
        ours, theirs = self.median("penstock"), self.median("faster-fifo")
        return None if ours is None or theirs is None else ours / theirs

    @property
    def met(self) -> bool | None:
        """Whether the mark holds; None: there is none, or nothing to compare with."""
        return None if self.mark is None or self.ratio is None else self.ratio >= self.mark


@dataclass(frozen=True)
class RoundTrip:
    """A request of a rollout worker, answered by a policy worker: how long that takes, as often as it was measured."""

    name: str
    burners: int
    """Processes beside that want to compute all the time."""
    mark: float | None = None
    """Microseconds that the median trip has to stay under."""
    rounds: dict[int, list[float]] = field(default_factory=dict)
    """Microseconds in each round, by percentile."""

    def median(self, percentile: int) -> float:
        """The middle of the rounds."""
        return statistics.median(self.rounds[percentile])

    @property
    def met(self) -> bool | None:
        """Whether the mark holds; None: there is none."""
        return None if self.mark is None else self.median(50) < self.mark


class FasterFifo:
    """The peer, in processes of another Python.

    Parameters
    ----------
    python
        Interpreter that has faster-fifo.

    Raises
    ------
    BenchError
        It has not, or the program that measures it is not there.
    """

    def __init__(self, python: Path) -> None:
        self._command = [str(python), str(program("faster_fifo_messages.py"))]
        self.version: str = self._measured(1, 1, 0.0)["version"]

    def messages_per_second(self, producers: int, together: int, seconds: float) -> float:
        """As of `messages.messages_per_second`."""
        return self._measured(producers, together, seconds)["messages_per_second"]

    def _measured(self, producers: int, together: int, seconds: float) -> dict:
        command = [*self._command, str(producers), str(together), str(seconds)]
        elsewhere = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, env=elsewhere, timeout=seconds + _PATIENCE, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BenchError(f"faster-fifo cannot be measured: {error}") from None
        if done.returncode:
            raise BenchError(f"faster-fifo cannot be measured ({' '.join(command)}):\n{done.stderr.strip()}")
        return json.loads(done.stdout)


_TRAFFICS = (Traffic(1, 1, mark=5), Traffic(4, 1), Traffic(1, 100), Traffic(2, 100), Traffic(4, 100))
_PERCENTILES = (50, 90, 99)


def command(args: list[str]) -> bool:
    """`run` with the flags of a command line."""
    return run(parse_flags(Flags, args, prog="penstock bench ipc"))


def run(flags: Flags) -> bool:
    """Measure, print two tables, and return whether all marks hold that could be judged.

    Raises
    ------
    BenchUsageError
        A flag is not legal.
    BenchError
        The peer cannot be run.
    """
    if flags.rounds < 1:
        raise BenchUsageError(f"--rounds {flags.rounds} is not legal: measure 1 or more")
    require_directory_of(flags.json)
    scale = QUICK if flags.quick else Scale(rounds=flags.rounds)
    python = FASTER_FIFO.find(flags.faster_fifo, flags.install_peers)
    peer = FasterFifo(python) if python is not None else None
    machine = machine_facts()
    print(describe(machine))
    print(_settings(scale, math.ceil(machine["cores"]), peer))

    players: dict[str, Player] = {"penstock": messages_per_second}
    if peer is not None:
        players["faster-fifo"] = peer.messages_per_second
    print(_head("messages per second", "penstock", "faster-fifo", "ratio"))
    traffics = [_measure_traffic(traffic, scale, players) for traffic in _TRAFFICS]
    print("\n" + _head("round trip of a request, us", *(f"p{percentile}" for percentile in _PERCENTILES)))
    # With a single core one role waits while the other works: none is ever idle.
    at_rest = RoundTrip("a core idle", 0, mark=20 if machine["cores"] > 1 else None)
    trips = [_measure_trips(trip, scale) for trip in (at_rest, RoundTrip("none idle", math.ceil(machine["cores"])))]
    measured: list[Traffic | RoundTrip] = [*traffics, *trips]
    _conclude(measured, scale, compared=peer is not None)
    if flags.json is not None:
        facts = {"machine": machine, "faster-fifo": peer and peer.version, "settings": vars(scale)}
        tables = {"messages": [asdict(one) for one in traffics], "round_trips": [asdict(one) for one in trips]}
        flags.json.write_text(json.dumps({**facts, **tables}, indent=1) + "\n")
    return all(one.met is not False for one in measured)


def _measure_traffic(traffic: Traffic, scale: Scale, players: dict[str, Player]) -> Traffic:
    """Rounds in which both libraries have their turn, the other one first each time."""
    rounds: dict[str, list[float]] = {who: [] for who in players}
    for turn in range(scale.rounds):
        for who in sorted(players, reverse=turn % 2 == 0):
            rounds[who].append(players[who](traffic.producers, traffic.together, scale.seconds))
    measured = replace(traffic, rounds=rounds, mark=traffic.mark if scale.judged else None)
    figures = [
        "-" if median is None else f"{median:,.0f}" for median in map(measured.median, ("penstock", "faster-fifo"))
    ]
    mark = "-" if measured.mark is None else f"{measured.mark:g}x"
    print(_line(measured.name, *figures, _times(measured.ratio), mark, _MET[measured.met]), flush=True)
    return measured


def _measure_trips(trip: RoundTrip, scale: Scale) -> RoundTrip:
    from penstock.bench.round_trips import round_trips  # brings the policy worker, and with it torch

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


def _settings(scale: Scale, cores: int, peer: FasterFifo | None) -> str:
    lines = [
        "messages: small integers to one consumer, each process on its own, through a ring of "
        f"{CAPACITY:,} numbers and faster-fifo's default queue of 1 MB",
        "round trip: asked by a rollout worker, answered by a policy worker that has no network; none idle: beside "
        f"{cores} processes that compute",
        f"medians of {scale.rounds} rounds of {scale.seconds:g} s of messages for each library, "
        f"{2 * scale.seconds:g} s of round trips",
    ]
    if peer is not None and peer.version != FASTER_FIFO.version:
        lines.append(f"warning: this is faster-fifo {peer.version}; the marks are meant for {FASTER_FIFO.version}")
    return "\n".join(lines)


def _conclude(measured: list[Traffic | RoundTrip], scale: Scale, compared: bool) -> None:
    if not compared:
        print(FASTER_FIFO.how_to_get())
    if not scale.judged:
        print("--quick shows that everything works; it is too short to judge by")
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


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.1f}x"
