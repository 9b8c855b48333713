"""Faults of each run and their times, drawn from a seed before anything starts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

MOST_KILLS = 4  # of replaceable roles in one life: the sixth within ten minutes ends a run
LIVES = 3
FAULTS = 5  # during each life

USER, LAUNCHER, LEARNER, EVALUATOR = "the user's process", "launcher", "learner", "evaluator"
ROLLOUT, POLICY, TREE = "rollout worker", "policy worker", "all processes"
DIRECTORY = "run directory"
COMMAND, TRAINING, DASHBOARD, COPY = "command", "a training", "dashboard", "a copied run"
CHECKPOINT, REPLAY_FILES, CONFIG, STATUS = "a checkpoint", "the replay files", "config.json", "status.json"


@dataclass(frozen=True)
class DataPath:
    """Data path, and the command that uses it.

    Attributes
    ----------
    algorithm
        Class in `torturing.counted`.
    flags
        Flags besides those of all runs.
    learns
        Where steps are counted as learned from: in "segments" (by the learner), "workers" or "replay".
    is_central
        Whether there is a policy worker.
    """

    algorithm: str
    flags: str
    learns: str
    is_central: bool = False


WORKERS, LANES, SEGMENT_LENGTH = 2, 4, 16
SEGMENTS = f"--segment-length {SEGMENT_LENGTH} --batch-size {LANES * SEGMENT_LENGTH}"
REPLAY = "--learning-starts 200 --batch-size 32 --buffer-size 200000 --n-step 1 --save-replay"
PATHS = {
    "ppo": DataPath("CountedPPO", f"{SEGMENTS} --num-epochs 2", "segments"),
    "appo, central": DataPath("CountedAPPO", f"{SEGMENTS} --max-policy-lag 1000000", "segments", True),
    "dqn": DataPath("CountedDQN", f"{REPLAY} --prioritized", "replay"),
    "a3c": DataPath("CountedA3C", f"--segment-length {SEGMENT_LENGTH}", "workers"),
    "impala": DataPath("CountedIMPALA", f"{SEGMENTS} --max-policy-lag 1000000", "segments"),
    "ppo, central": DataPath("CountedPPO", f"{SEGMENTS} --num-epochs 2", "segments", True),
    "apex, central": DataPath("CountedApeX", REPLAY, "replay", True),
}
SERIAL = ("ppo", "dqn", "a3c", "impala")
"""Data paths that also run in one process, compared with an undisturbed run."""
COMMANDS = ("multirun", "search", "pbt", "dashboard")
"""Commands of several runs that have their own stories, with serial runs of PPO."""


@dataclass(frozen=True)
class Fault:
    """Fault of a run.

    Attributes
    ----------
    kind, target
        Kind of fault and its target, as in the table.
    after
        Seconds of training before it.
    seconds
        Duration, of faults that have one.
    dice
        Random number from 0 to 1 for other choices, such as one of several targets, or a place in a file.
    """

    kind: str
    target: str
    after: float
    seconds: float
    dice: float

    def __str__(self) -> str:
        return f"{self.kind} {self.target}"


@dataclass(frozen=True)
class Life:
    """Time from a start to an end: faults that the run survives, the fault that ends it, and later damage."""

    faults: tuple[Fault, ...]
    ending: Fault
    damage: tuple[Fault, ...]


@dataclass(frozen=True)
class Story:
    """Lives of a run, or of a command of several runs, which afterwards trains to its end without faults."""

    number: int
    path: str
    lives: tuple[Life, ...]
    is_serial: bool = False
    command: str = ""

    @property
    def name(self) -> str:
        """Subject of the story, in words."""
        return self.command or (f"{self.path}, serial" if self.is_serial else self.path)


KILLS = ("SIGKILL", "SIGKILL while stopped")
ENDINGS = [
    *[("SIGKILL", target) for target in (USER, LEARNER, LAUNCHER, TREE)],
    *[("SIGTERM", target) for target in (USER, TREE)],
    ("SIGINT", USER),
    ("SIGTERM twice", USER),
    ("SIGKILL six times", ROLLOUT),
    ("full disk, SIGTERM", USER),
]
SERIAL_ENDINGS = [("SIGKILL", USER), ("SIGKILL", USER), ("SIGTERM", USER)]


COMMAND_ENDINGS = [
    *[("SIGKILL", target) for target in (COMMAND, COMMAND, TREE)],
    *[(kind, COMMAND) for kind in ("SIGTERM", "SIGINT", "SIGHUP")],
]
REFUSED = [
    *[("newer", CHECKPOINT), ("unreadable", CHECKPOINT), ("hostile", CHECKPOINT)],
    *[("unreadable", CONFIG), ("hostile", CONFIG)],
]
"""Faults with which a run cannot be resumed until they are undone."""


def draw(
    seed: int, number: int, *, paths: Sequence[str] = tuple(PATHS), num_lives: int = LIVES, num_faults: int = FAULTS
) -> Story:
    """Draw a story: the same for the same arguments on any machine.

    Of five stories one is of a serial run, and one of a command of several runs.
    """
    dice = random.Random(f"{seed}/{number}")
    number_of_kind, kind_of_story = divmod(number, 5)
    is_serial, command = kind_of_story == 3, ""
    if is_serial:
        paths = [path for path in SERIAL if path in paths] or list(SERIAL)
    elif kind_of_story == 4:
        paths, command = ["ppo"], COMMANDS[number_of_kind % len(COMMANDS)]
    else:
        number_of_kind = 3 * number_of_kind + kind_of_story
    path = paths[number_of_kind % len(paths)]
    endings = endings_of(command) if command else SERIAL_ENDINGS if is_serial else ENDINGS
    between = [] if command == "dashboard" else [*_damage(path), *REFUSED]

    def fault(kind: str, target: str) -> Fault:
        return Fault(kind, target, dice.uniform(0.0, 0.6), dice.uniform(0.2, 2.0), dice.random())

    def life() -> Life:
        faults: list[Fault] = []
        while len(faults) < num_faults:
            kind, target = dice.choice(in_the_midst(path, is_serial, command))
            if kind not in KILLS or sum(f.kind in KILLS for f in faults) < MOST_KILLS:
                faults.append(fault(kind, target))
        ending = fault(*dice.choice(endings))
        num_damages = dice.randrange(min(3, num_faults) + 1) if between else 0
        damage = [fault(*dice.choice(between)) for _ in range(num_damages)]
        return Life(tuple(faults), ending, tuple(damage))

    return Story(number, path, tuple(life() for _ in range(num_lives)), is_serial, command)


def endings_of(command: str) -> list[tuple[str, str]]:
    """Return faults that end a command of several runs."""
    if command == "dashboard":
        return [(kind, DASHBOARD) for kind in ("SIGKILL", "SIGTERM", "SIGINT")]
    return COMMAND_ENDINGS


def in_the_midst(path: str, is_serial: bool, command: str = "") -> list[tuple[str, str]]:
    """Return faults that a run, or a command of several runs, survives."""
    if command == "dashboard":
        return [
            ("SIGSTOP", DASHBOARD), ("SIGSTOP", TRAINING), ("removed", COPY),
            *[(kind, target) for kind in ("hostile", "unreadable") for target in (COPY, STATUS)],
        ]  # fmt: skip
    if command:
        seconds = [] if command == "search" else [("second command", COMMAND)]  # several searches may share a directory
        stops = [("SIGSTOP", target) for target in (COMMAND, TRAINING, TREE)]
        return [*stops, ("hostile", STATUS), ("hostile", COPY), *seconds]
    if is_serial:
        return [("SIGSTOP", USER), ("hostile", STATUS)]
    replaced = [ROLLOUT, EVALUATOR] + ([POLICY] if PATHS[path].is_central else [])
    roles = [*replaced, LEARNER, LAUNCHER]
    return [
        *[(kind, target) for kind in KILLS for target in replaced],
        *[("SIGSTOP", target) for target in (*roles, USER, TREE)],
        *[("SIGTERM", target) for target in roles],
        *_damage(path),
        ("full disk", DIRECTORY),
        ("second training", DIRECTORY),
        ("removed", DIRECTORY),
        ("hostile", STATUS),
    ]


def _damage(path: str) -> list[tuple[str, str]]:
    files = [CHECKPOINT] + ([REPLAY_FILES] if PATHS[path].learns == "replay" else [])
    return [(kind, target) for kind in ("truncated", "bit flipped") for target in files]
