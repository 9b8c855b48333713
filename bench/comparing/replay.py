"""The replay library next to cpprb 11.0.0 (and TorchRL), in one run.

Both are called by cpprb's interface, with the same fields, dtypes, alpha, beta and eps, and full, warm buffers. Each
library has its own process; they take turns, and the medians of the rounds are compared. Samples are checked before
anything is timed. `copy` is the time to copy the same number of bytes.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from comparing import peers
from comparing.players import Player, started
from comparing.report import Measured, header, line, verdict
from penstock.bench import BenchError, BenchUsageError, require_new
from penstock.ipc import require_memory
from penstock.runs.machine import describe, machine_facts

_ROW_BYTES = {"transitions": 168, "frames": 84 * 84 * 4}
_EXTRA_BYTES = 64
"""Trees and counters, per row and library."""
_LARGEST = 16_000_000
"""Largest number of rows with distinct float32 contents."""


@dataclass(frozen=True)
class Flags:
    """Flags of ``bench/replay.py``, which takes about four minutes."""

    cpprb: Path | None = None
    """Python that has cpprb; None: $PENSTOCK_BENCH_CPPRB, or the environment made by --install-peers."""
    install_peers: bool = False
    """Make that environment, in the user's cache directory."""
    torchrl: Path | None = None
    """Python that has torchrl, whose prioritized buffer is then measured too."""
    rounds: int = 15
    """Number of rounds, whose medians are shown."""
    capacities: tuple[float, ...] = ()
    """Further numbers of rows of uniform and prioritized buffers to measure, e.g. 1e4 1e5 1e7."""
    quick: bool = False
    """Small buffers and two short rounds, to see that everything works."""
    json: Path | None = None
    """File to write every round to, with machine, versions and commit."""


@dataclass(frozen=True)
class Libraries:
    """Measured modules; tests of the bench replace them."""

    penstock: str = "penstock.replay.cpprb"
    native: str | None = "penstock.replay"
    cpprb: str = "cpprb"


@dataclass(frozen=True)
class Scale:
    """Size and duration of a measurement."""

    rounds: int = 15
    seconds: float = 0.2
    """Time of each library in each round."""
    capacity: int = 1_000_000
    frames: int = 30_000
    writers: int = 4
    writer_rounds: int = 5
    writer_seconds: float = 4.0
    judged: bool = True
    """Whether the marks count."""


QUICK = Scale(rounds=2, seconds=0.01, capacity=10_000, frames=300, writer_rounds=1, writer_seconds=0.3, judged=False)


@dataclass(frozen=True)
class Scene:
    """Kind of buffer, and the operations on it."""

    name: str
    kind: str
    capacity: int
    operations: dict[str, str]
    """Titles of the operations, by name."""
    marks: dict[str, float] = field(default_factory=dict)
    workload: str = "transitions"
    cast: tuple[str, ...] = ("penstock", "cpprb", "copy")
    competition: bool = False
    """Whether writer processes add while a learner samples, too."""

    @property
    def title(self) -> str:
        """Line shown while the operation runs."""
        return f"{self.name}, {self.capacity:,} rows"


_SAMPLE = {"add_1": "add 1", "add_100": "add 100", "sample": "sample 256"}
_SAMPLE_UPDATE = {**_SAMPLE, "sample_update": "sample 256 + update 256"}
_SMALL_ROWS = (
    Scene("uniform", "uniform", 0, _SAMPLE, {"add_1": 4, "add_100": 2, "sample": 2}),
    Scene(
        "prioritized", "prioritized", 0, _SAMPLE_UPDATE, {"add_1": 4, "add_100": 2, "sample_update": 4},
        cast=("penstock", "cpprb", "copy", "torchrl"),
    ),
)  # fmt: skip
_SHARED = Scene(
    "multi-process prioritized", "shared", 0, _SAMPLE_UPDATE, {"sample_update": 30, "rows": 5, "batches": 5},
    competition=True,
)  # fmt: skip
_FRAMES = Scene(
    "84x84x4 uint8", "uniform", 0, {"sample": "sample 256"}, {"sample": 1.2, "native": 2}, "frames",
    cast=("penstock", "cpprb", "copy", "native"),
)  # fmt: skip


def run(flags: Flags, libraries: Libraries = Libraries()) -> bool:
    """Measure, print a table, and return whether all comparable marks are met.

    Raises
    ------
    BenchUsageError
        A flag is not legal.
    BenchError
        A peer cannot be run, or a library fails a check and is not timed.
    MemoryError
        The buffers do not fit.
    """
    if flags.rounds < 1:
        raise BenchUsageError(f"--rounds {flags.rounds} is not legal: measure 1 or more")
    wrong = [size for size in flags.capacities if not (1000 <= size <= _LARGEST and size == int(size))]
    if wrong:
        raise BenchUsageError(f"--capacities {wrong[0]:g} is not legal: whole numbers from 1,000 to {_LARGEST:,}")
    require_new(flags.json)
    scale = QUICK if flags.quick else Scale(rounds=flags.rounds)
    cpprb = peers.CPPRB.find(flags.cpprb, flags.install_peers)
    measured: list[Measured] = []
    machine = machine_facts()
    print(describe(machine))
    with started(_libraries(libraries, cpprb, flags)) as players:
        print(_versions(players))
        print(_settings(scale))
        print(header(), flush=True)
        for scene in _scenes(scale):
            _play(scene, scale, players, measured)
        for size in flags.capacities:
            for scene in _SMALL_ROWS:
                sweep = replace(scene, capacity=int(size), marks={})
                try:
                    _play(sweep, replace(scale, rounds=max(1, scale.rounds // 3)), players, measured)
                except MemoryError as error:
                    print(f"skipped: {error}", file=sys.stderr)
        versions = {name: {"library": player.library, **player.versions} for name, player in players.items()}
    _conclude(measured, scale, compared=cpprb is not None)
    if flags.json is not None:
        facts = {"machine": machine, "libraries": versions, "settings": vars(scale)}
        document = {**facts, "measured": [one.facts() for one in measured]}
        flags.json.write_text(json.dumps(document, indent=1) + "\n")
    return all(one.met is not False for one in measured)


def _libraries(names: Libraries, cpprb: object | None, flags: Flags) -> dict[str, tuple[str, str]]:
    found = {"penstock": (sys.executable, names.penstock), "copy": (sys.executable, "copy")}
    if names.native is not None:
        found["native"] = (sys.executable, names.native)
    if cpprb is not None:
        found["cpprb"] = (str(cpprb), names.cpprb)
    if flags.torchrl is not None:
        found["torchrl"] = (str(flags.torchrl), "torchrl")
    return found


def _scenes(scale: Scale) -> list[Scene]:
    scenes = [replace(scene, capacity=scale.capacity) for scene in (*_SMALL_ROWS, _SHARED)]
    scenes.append(replace(_FRAMES, capacity=scale.frames))
    return scenes if scale.judged else [replace(scene, marks={}) for scene in scenes]


def _play(scene: Scene, scale: Scale, players: dict[str, Player], measured: list[Measured]) -> None:
    """Open the scene's buffer in every library, measure, print and close."""
    cast = {name: players[name] for name in scene.cast if name in players}
    need = (_ROW_BYTES[scene.workload] + _EXTRA_BYTES) * scene.capacity * len(cast)
    require_memory(need, f"bench/replay.py ({scene.title}, of {len(cast)} libraries at once)")
    print(f"{scene.title}: filling and checking", file=sys.stderr, flush=True)
    for player in cast.values():
        player.ask("open", kind=scene.kind, workload=scene.workload, capacity=scene.capacity)
    found = [one for key in scene.operations for one in _measure(scene, key, scale, cast)]
    for player in cast.values():
        player.ask("verify")
    if scene.competition:
        found += _compete(scene, scale, cast)
    for player in cast.values():
        player.ask("close")
    print("\n".join(line(one) for one in found), flush=True)
    measured += found


def _measure(scene: Scene, key: str, scale: Scale, cast: dict[str, Player]) -> list[Measured]:
    """Measure rounds in which every library has a turn, in rotating order."""
    counts = {name: player.ask("warm", operation=key, seconds=scale.seconds) for name, player in cast.items()}
    rounds: dict[str, list[float]] = {name: [] for name in cast}
    for name in _turns(list(cast), scale.rounds):
        rounds[name].append(1e6 * cast[name].ask("time", operation=key, count=counts[name]))
    native = rounds.pop("native", None)
    label = f"{scene.name}: {scene.operations[key]}"
    found = [Measured(label, scene.capacity, "us", rounds, scene.marks.get(key))]
    if native is not None:
        rounds = {**rounds, "penstock": native}
        label = f"{label}, 2 threads, out="
        found.append(Measured(label, scene.capacity, "us", rounds, scene.marks.get("native")))
    return found


def _compete(scene: Scene, scale: Scale, cast: dict[str, Player]) -> list[Measured]:
    """Measure rows and batches per second of simultaneous writer processes and a learner."""
    rivals = [name for name in cast if name != "copy"]
    for name in rivals:
        answer = cast[name].ask("compete", writers=scale.writers, seconds=min(1.0, scale.writer_seconds), verify=True)
        _judge_torn(cast[name].library, answer["torn"], tolerated=name != "penstock")
    rounds: dict[str, dict[str, list[float]]] = {key: {name: [] for name in rivals} for key in ("rows", "batches")}
    for name in _turns(rivals, scale.writer_rounds):
        answer = cast[name].ask("compete", writers=scale.writers, seconds=scale.writer_seconds, verify=False)
        for key, figures in rounds.items():
            figures[name].append(answer[key])
    label = f"{scale.writers} writers of 50 and a learner of 256"
    return [
        Measured(f"{label}: {key}/s", scene.capacity, "/s", figures, scene.marks.get(key))
        for key, figures in rounds.items()
    ]


def _judge_torn(library: str, share: float, tolerated: bool) -> None:
    """Report torn rows of a peer; raise `BenchError` for those of Penstock."""
    said = f"{library}: {share:.1e} of the rows sampled while others were written mix the values of several"
    if share and not tolerated:
        raise BenchError(said)
    if share:
        print(f"note: {said}", file=sys.stderr)


def _turns(names: list[str], rounds: int) -> list[str]:
    return [names[(first + turn) % len(names)] for first in range(rounds) for turn in range(len(names))]


def _versions(players: dict[str, Player]) -> str:
    lines = []
    for name, player in players.items():
        versions = " ".join(f"{package} {version}" for package, version in player.versions.items())
        lines.append(f"{name}: {player.library} ({versions})")
    found = players["cpprb"].versions.get("cpprb") if "cpprb" in players else None
    if found not in (None, peers.CPPRB.version):
        lines.append(f"warning: this is cpprb {found}; the marks are meant for {peers.CPPRB.version}")
    return "\n".join(lines)


def _settings(scale: Scale) -> str:
    return (
        "rows: obs and next_obs (17,), act (6,), rew, done, all float32; alpha 0.6, beta 0.4, eps 1e-4; "
        f"frames: one field obs (84, 84, 4) uint8, only {scale.frames:,} rows so that all fit in memory\n"
        f"medians of {scale.rounds} rounds of {scale.seconds:g} s for each library, "
        f"{scale.writer_rounds} of {scale.writer_seconds:g} s with writers"
    )


def _conclude(measured: list[Measured], scale: Scale, compared: bool) -> None:
    if not compared:
        print(peers.CPPRB.how_to_get())
    elif not scale.judged:
        print("--quick shows that everything works; it is too small and too short to judge")
    else:
        print(verdict(measured))
