"""Time spent by the roles of a run, from their gauges at two moments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.engine.contracts import RoleSpec
from penstock.engine.roster import ACTIVITIES
from penstock.engine.watching.clock import CPU, WALL
from penstock.experience.layout import RoleKind, RunShape
from penstock.ipc import busy_by_core
from penstock.runs.status import REAL_WORK

PURPOSES = {name: name for name in (*REAL_WORK, "evaluate")} | {
    "write": "copying", "gather": "copying", "film": "evaluate"
}  # fmt: skip
"""Purpose that the CPU time of each activity counts as; activities that are not listed count as "other"."""


@dataclass(frozen=True)
class Moment:
    """Gauges at one moment of a run.

    Attributes
    ----------
    time
        Monotonic seconds.
    steps
        Steps learned from so far.
    gauges
        float64 ``[roles, 32]``: a copy of the arena's gauges.
    own_cpu
        CPU seconds that the supervisor's process has spent other than in roles.
    busy
        Result of `busy_seconds`, or 0.
    """

    time: float
    steps: int
    gauges: np.ndarray
    own_cpu: float
    busy: float = 0.0


@dataclass(frozen=True)
class RoleTime:
    """Time spent by one role, over all its processes.

    Attributes
    ----------
    name
        Shown name: "rollout x2", "policy", "learner".
    processes
        Number of processes.
    wall, cpu
        Seconds per activity, of wall time and of CPU time, summed over the processes.
    """

    name: str
    processes: int
    wall: dict[str, float]
    cpu: dict[str, float]

    @property
    def busy(self) -> float:
        """Seconds of wall time in activities that are work."""
        return sum(seconds for name, seconds in self.wall.items() if is_work(name))

    def share(self, *activities: str) -> float:
        """Share of the role's wall time spent on these activities."""
        return sum(self.wall[name] for name in activities) / sum(self.wall.values())


def busy_seconds() -> float:
    """Return the busy seconds of this run's cores so far, over all programs."""
    return sum(busy_by_core().values())


def is_work(activity: str) -> bool:
    """Whether an activity is work rather than waiting."""
    return not activity.startswith("wait")


def rows_by_kind(specs: Sequence[RoleSpec], shape: RunShape) -> dict[str, list[int]]:
    """Return the rows of the gauges that belong to each kind of role."""
    rows: dict[str, list[int]] = {}
    for spec in specs:
        rows.setdefault(spec.name.split("-")[0], []).append(shape.gauge_row(spec.name))
    return rows


def processes_by_kind(specs: Sequence[RoleSpec]) -> dict[str, int]:
    """Return the number of processes of each kind of role: learners of several policies may share one."""
    return dict(Counter(spec.name.split("-")[0] for spec in specs))


def role_times(
    rows: Mapping[str, list[int]], before: Moment, after: Moment, processes: Mapping[str, int] | None = None
) -> dict[str, RoleTime]:
    """Return the booked time of every role between two moments, by kind.

    Parameters
    ----------
    rows
        Rows of the gauges by kind of role.
    before, after
        The moments.
    processes
        Number of processes by kind; a kind that is missing has a process for each row.
    """
    spent = np.maximum(after.gauges - before.gauges, 0.0)  # the clock of a replaced role began at zero
    times = {}
    for kind, of_kind in rows.items():
        seconds = spent[of_kind].sum(0)
        times[kind] = RoleTime(
            name=kind if len(of_kind) == 1 else f"{kind} x{len(of_kind)}",
            processes=(processes or {}).get(kind, len(of_kind)),
            wall=dict(zip(ACTIVITIES[kind], seconds[WALL].tolist(), strict=False)),
            cpu=dict(zip(ACTIVITIES[kind], seconds[CPU].tolist(), strict=False)),
        )
    return times


def cpu_by_purpose(times: Mapping[str, RoleTime], own_cpu: float) -> dict[str, float]:
    """Return CPU seconds by purpose: real work, evaluation, copying, and "other", which is waiting and the supervisor.

    Parameters
    ----------
    times
        Time of the roles.
    own_cpu
        CPU seconds of the supervisor's process.
    """
    spent = dict.fromkeys((*PURPOSES.values(), "other"), 0.0)
    spent["other"] = own_cpu
    for role in times.values():
        for activity, seconds in role.cpu.items():
            spent[PURPOSES.get(activity, "other")] += seconds
    return spent


def limiting_role(times: Mapping[str, RoleTime]) -> tuple[str, str]:
    """Return the role that limits a run of several processes, and why; empty without times of rollout and learner."""
    rollout, learner, policy = map(times.get, (RoleKind.ROLLOUT, RoleKind.LEARNER, RoleKind.POLICY))
    if rollout is None or learner is None or not sum(rollout.wall.values()):
        return "", ""
    evaluator, seconds = times.get(RoleKind.EVALUATOR), sum(learner.wall.values())
    if evaluator is not None and learner.wall["wait for goal"] > 0.5 * seconds:
        # An evaluator whose environment hangs books no time, so it counts as playing unless it waits.
        is_playing = evaluator.wall["wait for a request"] < 0.5 * seconds
        if is_playing:
            return evaluator.name, "training has ended, its last evaluation is running"
    for_learner = rollout.share("wait for slots", "wait for learner")
    for_actions = rollout.share("wait for actions")
    if for_learner > 0.2 and for_learner >= for_actions:
        return learner.name, f"rollout workers wait {for_learner:.0%} of their time for it"
    if for_actions > 0.2 and policy is not None:
        return policy.name, f"rollout workers wait {for_actions:.0%} of their time for actions"
    return rollout.name, _how_busy(rollout, sum(rollout.wall.values()))


def busiest_role(times: Mapping[str, RoleTime]) -> tuple[str, str]:
    """Return the role that spent most of the time, and its share, for roles that take turns in one thread."""
    total = sum(sum(times[kind].wall.values()) for kind in times)
    busiest = max(times.values(), key=lambda role: role.busy, default=None)
    return ("", "") if busiest is None or not total else (busiest.name, _how_busy(busiest, total))


def _how_busy(role: RoleTime, total: float) -> str:
    most = max(filter(is_work, role.wall), key=lambda name: role.wall[name])
    return f"busy {role.busy / total:.0%} of the time, mostly {most}"
