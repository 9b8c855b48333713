"""Account of a measured training: the ideal, the share reached, and the causes of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from penstock.bench.costs import Capacity, Costs
from penstock.bench.engine_run import EngineRun
from penstock.engine.watching.time_spent import RoleTime, is_work
from penstock.runs.formatting import counted
from penstock.runs.status import REAL_WORK

NAMES = {"env": "stepping environments", "infer": "choosing actions", "learn": "learning"}
COPYING = {"write": "rollout workers writing", "gather": "the learner gathering"}
_LEAST_SHARE = 0.005


def bounds(costs: Costs, capacity: Capacity) -> dict[str, float]:
    """Return upper bounds of steps per second by their cause; the smallest is the ideal.

    ``cores / (c_env + c_infer + c_learn)`` and ``learner_threads / c_learn``; a device does one thing at a time;
    waiting environments take their time even when cores are idle.
    """
    found = {"cores": capacity.cores / costs.all}
    if capacity.learner_threads:
        found["learner"] = capacity.learner_threads / costs.learn
    if costs.device:
        found["device"] = 1.0 / costs.device
    if costs.env_waits:
        found["waiting environments"] = capacity.workers / (costs.env + costs.env_wait)
    return found


def limits(costs: Costs, capacity: Capacity) -> dict[str, float]:
    """Return the steps per second that these settings allow, by cause; other settings may allow more.

    Rollout workers step one group after another, and a policy worker has a fixed number of threads. If learning and
    stepping take turns, a step takes its share of both: ``1 / (1 / stepping + c_learn / learner_threads)``, where
    stepping is limited by cores, rollout workers and policy worker.
    """
    in_worker = costs.env + costs.env_wait
    if not capacity.policy_threads:
        in_worker += costs.infer
    if not capacity.learner_threads:
        in_worker += costs.learn
    workers = capacity.workers / in_worker
    found = {"rollout workers": workers}
    if capacity.policy_threads:
        found["policy worker"] = capacity.policy_threads / costs.infer
    if capacity.takes_turns and capacity.learner_threads:
        stepping = min(workers, found.get("policy worker", workers), capacity.cores / (costs.env + costs.infer))
        found["taking turns"] = 1.0 / (1.0 / stepping + costs.learn / capacity.learner_threads)
    return found


@dataclass(frozen=True)
class Account:
    """Measurements, and the ideal computed from them.

    Attributes
    ----------
    costs, capacity
        Costs of a step's work alone, and the roles available for it.
    engine
        The measured training.
    """

    costs: Costs
    capacity: Capacity
    engine: EngineRun

    @cached_property
    def bounds(self) -> dict[str, float]:
        """Upper bounds of steps per second."""
        return bounds(self.costs, self.capacity)

    @cached_property
    def limits(self) -> dict[str, float]:
        """Steps per second allowed by these settings."""
        return limits(self.costs, self.capacity)

    @property
    def bound_by(self) -> str:
        """Cause of the ideal's bound."""
        return min(self.bounds, key=self.bounds.__getitem__)

    @property
    def ideal(self) -> float:
        """Steps per second."""
        return self.bounds[self.bound_by]

    @property
    def efficiency(self) -> float:
        """Share of the ideal that was reached."""
        return self.engine.rate / self.ideal

    @property
    def allowed_by(self) -> str:
        """Cause that bounds these settings: one of their own limits, or the ideal's."""
        most = {**self.bounds, **self.limits}
        return min(most, key=most.__getitem__)

    @property
    def allowed(self) -> float:
        """Largest steps per second with these settings."""
        return min(self.ideal, *self.limits.values())

    @property
    def efficiency_of_allowed(self) -> float:
        """Reached share of the steps per second that these settings allow."""
        return self.engine.rate / self.allowed

    @cached_property
    def parts(self) -> dict[str, float]:
        """Core-seconds per step by activity, which sum to ``cores / measured rate``."""
        steps = self.engine.steps
        spent = {
            activity: sum(role.cpu.get(activity, 0.0) for role in self.engine.roles) / steps
            for activity in (*REAL_WORK, *COPYING)
        }
        parts = {f"real work: {NAMES[work]}": getattr(self.costs, work) for work in REAL_WORK}
        parts |= {f"more than alone: {NAMES[work]}": spent[work] - getattr(self.costs, work) for work in REAL_WORK}
        parts |= {f"copying: {name}": spent[activity] for activity, name in COPYING.items()}
        parts["Python and the rest"] = self.engine.cpu_seconds / steps - sum(spent.values())
        parts["other programs"] = min(self.engine.other_programs / steps, max(0.0, self.total - sum(parts.values())))
        parts["idle"] = self.total - sum(parts.values())
        return parts

    @property
    def total(self) -> float:
        """Core-seconds of wall-clock time per step."""
        return self.capacity.cores / self.engine.rate

    def facts(self) -> dict[str, Any]:
        """Return all results, for a JSON file."""
        return {
            "costs": asdict(self.costs),
            "crew": asdict(self.capacity),
            "bounds": self.bounds,
            "ideal": self.ideal,
            "bound_by": self.bound_by,
            "measured": self.engine.rate,
            "efficiency": self.efficiency,
            "limits": self.limits,
            "allowed": self.allowed,
            "allowed_by": self.allowed_by,
            "efficiency_of_allowed": self.efficiency_of_allowed,
            "parts": self.parts,
            "total": self.total,
            "engine": asdict(self.engine),
            "shares": {role.name: shares_by_cause(role) for role in self.engine.roles},
        }

    def summary(self) -> str:
        """Return the result in one line."""
        return f"{self.engine.rate:,.0f} steps/s, {self.efficiency:.1%} of the ideal {self.ideal:,.0f}"

    def setting(self) -> str:
        """Describe the roles that did the work."""
        found = self.capacity
        actions, learner = "chosen in the workers", "learned in the workers"
        if found.policy_threads:
            actions = f"policy worker with {counted(found.policy_threads, 'thread')}"
        if found.learner_threads:
            learner = f"learner with {counted(found.learner_threads, 'thread')}"
        turns = ", stepping and learning take turns" if found.takes_turns else ""
        workers = counted(found.workers, "rollout worker")
        return f"{found.cores:g} cores, {workers}, actions: {actions}, {learner}{turns}; {found.precision}"

    def text(self) -> str:
        """Return tables for a terminal, in Markdown."""
        costs, engine = self.costs, self.engine
        alone = [f"{NAMES[work]} {_us(getattr(costs, work))}" for work in REAL_WORK]
        alone += [f"environments wait {_us(costs.env_wait)}"] if costs.env_waits else []
        alone += [f"device {_us(costs.device)}"] if costs.device else []
        lines = [
            f"alone, us per step: {', '.join(alone)}",
            "",
            f"ideal      {self.ideal:>10,.0f} steps/s, bound by {_binding(self.bounds, self.bound_by)}",
            f"measured   {engine.rate:>10,.0f} steps/s, during {engine.seconds:.1f} s",
            f"efficiency {self.efficiency:>10.1%}",
            f"these settings allow {self.allowed:,.0f} steps/s, bound by {_binding(self.limits, self.allowed_by)}: "
            f"{self.efficiency_of_allowed:.1%} of it was reached",
        ]
        if engine.limiting_role:
            lines.append(f"limited by {engine.limiting_role}: {engine.limiting_reason}")
        parts = [(name, _us(seconds), f"{seconds / self.total:.1%}") for name, seconds in self.parts.items()]
        parts.append(("total", _us(self.total), "100.0%"))
        lines += ["", *_table(("where the cores' time went", "us per step", "share"), parts), ""]
        return "\n".join([*lines, *self._roles()])

    def _roles(self) -> list[str]:
        by_role = {role.name: shares_by_cause(role) for role in self.engine.roles}
        causes = list(dict.fromkeys(cause for shares in by_role.values() for cause in shares))
        causes = [cause for cause in causes if any(s.get(cause, 0.0) >= _LEAST_SHARE for s in by_role.values())]
        cells = [(name, *(_share(shares.get(cause)) for cause in causes)) for name, shares in by_role.items()]
        return _table(("wall time by role", *causes), cells)


def shares_by_cause(role: RoleTime) -> dict[str, float]:
    """Return the shares of a role's wall time, which sum to 1.

    "working" is on a core; "held up" is work off a core: ready to run, or blocked. Waits have names.
    """
    total = sum(role.wall.values()) or 1.0
    working = sum(min(role.cpu[name], wall) for name, wall in role.wall.items() if is_work(name))
    waits = {name: wall / total for name, wall in role.wall.items() if not is_work(name)}
    return {"working": working / total, "held up": (role.busy - working) / total, **waits}


def _binding(bounds: dict[str, float], by: str) -> str:
    others = ", ".join(f"{name} {rate:,.0f}" for name, rate in bounds.items() if name != by)
    return f"{by} ({others})" if others else by


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:,.2f}"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table with aligned columns, only the first to the left."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first, *others = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        return f"| {' | '.join([f'{cells[0]:<{len(first)}}', *others])} |"

    rule = "|".join([f"{'-' * (widths[0] + 2)}", *(f"{'-' * (width + 1)}:" for width in widths[1:])])
    return [line(head), f"|{rule}|", *map(line, rows)]
