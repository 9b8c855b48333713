"""Scaling of throughput, and its limits: steps per second over five settings, changed one at a time.

    python bench/scaling.py [--only lanes ...] [--seconds 3] [--rounds 1] [--json FILE] [--plot docs/images/scaling.svg]

APPO on CartPole-v1 with a `gymnasium.make` per lane, on the CPU; for observation sizes, an environment that only
returns a vector of that size. Other settings are those of SETTINGS. Each point is one training per round, without
start-up. Output: the median and the range of the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from penstock.algorithms.appo import APPO, APPOConfig
from penstock.bench.engine_run import run_engine
from penstock.engine.backends.launcher import kept
from penstock.runs.machine import describe, machine_facts

SETTINGS: dict[str, Any] = {
    "env": "CartPole-v1",
    "num_workers": 2,
    "num_envs_per_worker": 128,
    "segment_length": 32,
    "batch_size": 8192,
    "num_minibatches": 1,
    "num_epochs": 1,
    "hidden_sizes": (64, 64),
    "shared_encoder": True,
}
EPISODE = 200  # steps


class Numbers(gymnasium.Env):
    """Environment that returns the same `size` numbers at every step, at almost no cost."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size: int) -> None:
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (size,), np.float32)
        self._shown = np.random.default_rng(0).uniform(-1.0, 1.0, size).astype(np.float32)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode."""
        self._steps = 0
        return self._shown, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Count."""
        self._steps += 1
        return self._shown, float(action), False, self._steps >= EPISODE, {}


@dataclass(frozen=True)
class Sweep:
    """Setting, its values, and the config of each value."""

    label: str
    values: tuple[int, ...]
    change: Callable[[int], dict[str, Any]]


SWEEPS = {
    "workers": Sweep("rollout workers", (1, 2, 3, 4), lambda n: {"num_workers": n}),
    "lanes": Sweep("lanes per worker", (8, 16, 32, 64, 128, 256, 512), lambda n: {"num_envs_per_worker": n}),
    "segment": Sweep("segment length", (8, 16, 32, 64, 128), lambda n: {"segment_length": n}),
    "observation": Sweep(
        "numbers in an observation", (4, 16, 64, 256, 1024, 4096),
        lambda n: {"env": Numbers, "env_kwargs": {"size": n}},
    ),
    "network": Sweep("width of both hidden layers", (32, 64, 128, 256, 512, 1024), lambda n: {"hidden_sizes": (n, n)}),
}  # fmt: skip


@dataclass(frozen=True)
class Point:
    """Value of a setting: steps per second and limiting role of each round."""

    sweep: str
    value: int
    rounds: list[float] = field(default_factory=list)
    limits: list[tuple[str, str]] = field(default_factory=list)

    def measure(self, seconds: float) -> None:
        """Train and look: one more round."""
        config = APPOConfig(**{**SETTINGS, **SWEEPS[self.sweep].change(self.value)})
        run = run_engine(APPO, config, seconds=seconds)
        self.rounds.append(run.rate)
        self.limits.append((run.limiting_role, run.limiting_reason))

    @property
    def rate(self) -> float:
        """Median of the rounds."""
        return statistics.median(self.rounds)

    @property
    def limit(self) -> tuple[str, str]:
        """Role that limited most rounds, and the reason in the last of these."""
        role = statistics.mode(role for role, _ in self.limits)
        return role, [reason for one, reason in self.limits if one == role][-1]


def plot(points: list[Point], target: Path) -> None:
    """Draw steps per second over each setting, coloured by limiting role."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, NullLocator

    names = [name for name in SWEEPS if any(point.sweep == name for point in points)]
    roles = sorted({_kind(point) for point in points}, key=lambda role: (role != "rollout", role))
    figure, axes = plt.subplots(1, len(names), figsize=(3.0 * len(names), 3.4), layout="constrained", squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        of_sweep = [point for point in points if point.sweep == name]
        values = [point.value for point in of_sweep]
        axis.plot(values, [point.rate / 1000 for point in of_sweep], color="0.7", zorder=1)
        for point in of_sweep:
            axis.plot([point.value] * 2, [min(point.rounds) / 1000, max(point.rounds) / 1000], color="0.7", zorder=1)
        for number, role in enumerate(roles):
            limited = [point for point in of_sweep if _kind(point) == role]
            label = f"limited by {role}"
            axis.scatter([p.value for p in limited], [p.rate / 1000 for p in limited], color=f"C{number}", label=label)
        if name != "workers":
            axis.set_xscale("log", base=2)
        axis.set(xlabel=SWEEPS[name].label, xticks=values, ylim=(0, None))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.tick_params(axis="x", labelsize=8)
        axis.grid(alpha=0.3)
    axes[0, 0].set(ylabel="thousand steps per second")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(roles), frameon=False)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target)
    print(f"plot: {target}")


def _kind(point: Point) -> str:
    return point.limit[0].split(" ")[0] or "none"


def main() -> None:
    """Measure, print a table, write and draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(SWEEPS), default=list(SWEEPS))
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    machine = machine_facts()
    print(describe(machine))
    print("settings:", ", ".join(f"{name}={value}" for name, value in SETTINGS.items()))
    points = [Point(name, value) for name in arguments.only for value in SWEEPS[name].values]
    with kept():
        for number in range(1, arguments.rounds + 1):
            for point in points:
                point.measure(arguments.seconds)
            print(f"round {number} of {arguments.rounds}, {arguments.seconds:g} s each, is done", flush=True)
    print(f"| {'setting':<28} | {'value':>5} | {'steps/s':>8} | {'spread':>17} | {'limited by':<12} | {'why':<54} |")
    print(f"|{'-' * 30}|{'-' * 6}:|{'-' * 9}:|{'-' * 18}:|{'-' * 14}|{'-' * 56}|")
    for point in points:
        role, reason = point.limit
        spread = f"{min(point.rounds):,.0f}-{max(point.rounds):,.0f}"
        label = SWEEPS[point.sweep].label
        print(f"| {label:<28} | {point.value:>5} | {point.rate:>8,.0f} | {spread:>17} | {role:<12} | {reason:<54} |")
    if arguments.json:
        document = {"machine": machine, "settings": SETTINGS, "points": [asdict(point) for point in points]}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    if arguments.plot:
        plot(points, arguments.plot)


if __name__ == "__main__":
    main()
