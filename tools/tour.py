"""Tour of the source: the files and functions that one observation, one replayed transition or one setting enters.

    python tools/tour.py                      all three tours
    python tools/tour.py --of appo            one observation of APPO, from env.step to the gradient
    python tools/tour.py --of dqn             one transition of DQN, from env.step to the gradient
    python tools/tour.py --of learning_rate   one setting of APPO, from the keyword to the optimiser
    python tools/tour.py --write              write them into docs/internals/tour.md
    python tools/tour.py --check              exit with 1 if docs/internals/tour.md differs

A short serial training on the CPU runs under a profile function. The environment ends no episode within the tour.

Observation and transition: entered are the functions on the stack when the environment's ``step`` returns the
observation, and every function called from then on in the turns of rollout worker and learner, until the optimiser is
about to step for the first time after the next ``step`` of the environment, which answers the observation's action.
Functions in ``REPORTING`` and ``SUPERVISION``, clocks and reports to the supervisor, are left out with all their calls.

Setting: entered are the functions that read the setting from a config, or that have its value as an argument, a local
variable, or a direct item of one that is a dict, list or tuple, from the trainer's constructor until the optimiser
steps with it. ``REPORTING`` is left out here, too.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
HOUSE = REPOSITORY / "penstock"
PAGE = REPOSITORY / "docs" / "internals" / "tour.md"
BEGIN, END = "<!-- tour: written by `python tools/tour.py --write` -->", "<!-- end of the tour -->"

REPORTING = ("engine/watching/", "engine/messages.py")
"""Files that show, log and report."""

SUPERVISION = "engine/backends/"
"""Files that give roles their turns, and take their reports."""

PLANNED = ("PlannedGradient.__call__", "Planned.run", "RecordedUpdate.run")
"""Functions of the house that compute a gradient."""

WARM_UP = 3  # optimiser steps before an observation is followed, so that nothing is made for the first time
RATE = 1.2345678e-3  # a learning rate that is no other number of the training


@dataclass
class Tour:
    """Tour of the source.

    Attributes
    ----------
    files
        Functions by file, both in the order of their first entry.
    way
        Functions on the stack when torch or a plan is asked for the gradient, from the learner's turn on, each with its
        file.
    """

    files: dict[str, list[str]] = field(default_factory=dict)
    way: list[tuple[str, str]] = field(default_factory=list)


SETTINGS: dict[str, dict[str, Any]] = {
    "appo": {"segment_length": 8, "batch_size": 16},
    "dqn": {"learning_starts": 16, "buffer_size": 1_000, "batch_size": 16},
}
SHARED: dict[str, Any] = {
    "backend": "serial", "device": "cpu", "num_workers": 1, "num_envs_per_worker": 2, "hidden_sizes": (8, 8),
    "eval_interval": 0, "run_dir": None, "seed": 0,
}  # fmt: skip


def name_of(code: CodeType) -> str:
    """Return the name of a function within its module."""
    return code.co_qualname.replace(".<locals>", "")


class Place:
    """Place of code objects in the package; `left_out` are beginnings of paths that tours leave out."""

    def __init__(self, *left_out: str) -> None:
        self._left_out = left_out
        self._found: dict[CodeType, str | None] = {}

    def file_of(self, code: CodeType) -> str | None:
        """Return the path of code within the package; None for code outside it, and for generated code."""
        if code not in self._found:
            path = Path(code.co_filename)
            self._found[code] = path.relative_to(HOUSE).as_posix() if path.is_relative_to(HOUSE) else None
        return self._found[code]

    def is_left_out(self, code: CodeType) -> bool:
        """Return whether a function is left out with all its calls: reporting, and the bodies of imported modules."""
        file = self.file_of(code)
        return code.co_name == "<module>" or (file is not None and file.startswith(self._left_out))

    def enter(self, code: CodeType, tour: Tour) -> None:
        """Add a function of the package to a tour."""
        file = self.file_of(code)
        if file is not None and not code.co_qualname.endswith(">"):  # a comprehension is part of its function
            functions, name = tour.files.setdefault(file, []), name_of(code)
            if name not in functions:
                functions.append(name)


def observation_tour(algorithm: str) -> Tour:
    """Follow one observation, or one transition, from env.step to the gradient."""
    import penstock
    from penstock.engine.roles.learner import Learner
    from penstock.engine.roles.rollout_worker import RolloutWorker

    environment = a_walk()
    place, tour = Place(*REPORTING, SUPERVISION), Tour()
    steps_made, steps_followed, is_over = 0, 0, False  # the optimiser's; the environments'
    turn: FrameType | None = None  # of a role
    hidden: FrameType | None = None  # a function that is left out

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal steps_made, steps_followed, is_over, turn, hidden
        code = frame.f_code
        if event == "return":
            turn = None if frame is turn else turn
            hidden = None if frame is hidden else hidden
        elif event != "call" or hidden is not None:
            return
        elif turn is None:
            is_turn = code.co_name == "poll" and isinstance(frame.f_locals.get("self"), RolloutWorker | Learner)
            turn = frame if is_turn else None
            if turn is not None and steps_followed and not is_over:
                place.enter(code, tour)
        elif place.is_left_out(code):
            hidden = frame
        elif steps_followed > SHARED["num_envs_per_worker"] and not is_over and asks_for_gradient(code):
            outer_frames = [outer.f_code for outer in stack_of(frame.f_back, turn)]
            inside = [(name_of(c), file) for c in outer_frames if (file := place.file_of(c)) is not None]
            tour.way = tour.way or inside
        elif optimiser_of(frame) is not None:
            steps_made += 1
            is_over |= steps_followed > SHARED["num_envs_per_worker"]  # each environment's first, and one more
        elif code == environment.step.__code__ and steps_made >= WARM_UP:
            if not steps_followed:
                for outer in stack_of(frame, turn):
                    place.enter(outer.f_code, tour)
            steps_followed += 1
        elif steps_followed and not is_over:
            place.enter(code, tour)

    settings = {**SHARED, **SETTINGS[algorithm], "total_steps": 10_000}
    make = {"appo": penstock.APPO, "dqn": penstock.DQN}[algorithm]
    with make(environment, **settings) as trainer:
        sys.setprofile(profile)
        try:
            while not is_over:
                trainer.train(16, quiet=True)
        finally:
            sys.setprofile(None)
    return tour


def setting_tour(setting: str) -> Tour:
    """Follow the value of a setting from the keyword to the optimiser."""
    import penstock
    from penstock.config import Config

    place, tour = Place(*REPORTING), Tour()
    hidden: FrameType | None = None  # a function that is left out
    is_over = False

    def is_value(value: Any) -> bool:
        return type(value) is float and value == RATE

    def holds(value: Any) -> bool:
        if isinstance(value, dict):
            return any(map(is_value, value.values()))
        return any(map(is_value, value)) if isinstance(value, list | tuple) else is_value(value)

    def profile(frame: FrameType, event: str, returned: Any) -> None:
        nonlocal hidden, is_over
        code = frame.f_code
        if event == "call" and hidden is None:
            optimiser = optimiser_of(frame)
            is_over |= optimiser is not None and any(is_value(group["lr"]) for group in optimiser.param_groups)
            hidden = frame if place.is_left_out(code) else None
        is_seen = event in ("call", "return") and hidden is None and not is_over and place.file_of(code) is not None
        if is_seen and any(map(holds, [*frame.f_locals.values(), returned])):
            place.enter(code, tour)
        if event == "return" and frame is hidden:
            hidden = None

    def read(config: Config, name: str) -> Any:
        reader = sys._getframe(1).f_code
        if name == setting and hidden is None and not is_over:
            place.enter(reader, tour)
        return object.__getattribute__(config, name)

    Config.__getattribute__ = read  # type: ignore[method-assign]
    sys.setprofile(profile)
    try:
        settings = {**SHARED, **SETTINGS["appo"], "total_steps": 10_000, setting: RATE}
        with penstock.APPO(a_walk(), **settings) as trainer:
            while not is_over:
                trainer.train(16, quiet=True)
    finally:
        sys.setprofile(None)
        del Config.__getattribute__
    return tour


TOURS: dict[str, tuple[str, Callable[[], Tour]]] = {
    "appo": ("One observation of APPO, from `env.step` to the gradient", lambda: observation_tour("appo")),
    "dqn": ("One transition of DQN, from `env.step` to the gradient", lambda: observation_tour("dqn")),
    "learning_rate": ("`learning_rate` of APPO, to the optimiser", lambda: setting_tour("learning_rate")),
}
"""Title and maker of each tour."""


def a_walk() -> Any:
    """Return the class of a small environment whose episodes do not end."""
    import gymnasium
    import numpy as np

    class Walk(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return self.observation_space.low * 0.0, {}

        def step(self, action: Any) -> Any:
            observation = self.np_random.uniform(-1.0, 1.0, 4).astype(np.float32)
            return observation, float(action), False, False, {}

    return Walk


def stack_of(inner: FrameType | None, outer: FrameType) -> list[FrameType]:
    """Return the frames from `outer` down to `inner`."""
    stack: list[FrameType] = []
    while inner is not None and (not stack or stack[-1] is not outer):
        stack.append(inner)
        inner = inner.f_back
    return stack[::-1]


def asks_for_gradient(code: CodeType) -> bool:
    """Return whether a function is that of torch, or of a plan, which computes the gradient."""
    of_torch = code.co_filename.endswith(("torch/_tensor.py", "torch/autograd/__init__.py"))
    return (of_torch and code.co_name in ("backward", "grad")) or name_of(code) in PLANNED


def optimiser_of(frame: FrameType) -> Any:
    """Return the optimiser of torch whose step a frame is; None for another frame."""
    from torch.optim import Optimizer

    found = frame.f_locals.get("self") if frame.f_code.co_name == "step" else None
    return found if isinstance(found, Optimizer) else None


def table(name: str, tour: Tour) -> str:
    """Return a tour as a Markdown table under its title."""
    rows = [f"| `{file}` | {', '.join(f'`{function}`' for function in names)} |" for file, names in tour.files.items()]
    head = f"**{TOURS[name][0]}**: {len(tour.files)} files, {sum(map(len, tour.files.values()))} functions."
    parts = [head, "", "| file in `penstock/` | functions |", "|---|---|", *rows]
    if tour.way:
        calls = ", ".join(f"`{function}`" for function, _ in tour.way)
        files = len({file for _, file in tour.way})
        parts += ["", f"From the learner's turn to the gradient: {len(tour.way)} calls in {files} files: {calls}."]
    return "\n".join(parts)


def section() -> str:
    """Return all tours, as between the marks of the page."""
    return "\n\n".join([BEGIN, *(table(name, make()) for name, (_, make) in TOURS.items()), END])


def main(args: list[str] | None = None) -> int:
    """Parse the command; print, write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", choices=list(TOURS), help="one tour (all when left out)")
    parser.add_argument("--write", action="store_true", help=f"write all tours into {PAGE.relative_to(REPOSITORY)}")
    parser.add_argument("--check", action="store_true", help="exit with 1 if the page differs")
    flags = parser.parse_args(args)
    if flags.of is not None:
        print(table(flags.of, TOURS[flags.of][1]()))
        return 0
    text = section()
    if not flags.write and not flags.check:
        print(text)
        return 0
    page = PAGE.read_text()
    new = re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: text, page, flags=re.DOTALL)
    if flags.write:
        PAGE.write_text(new)
    elif new != page:
        print("docs/internals/tour.md differs from the tours: python tools/tour.py --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
