"""Warnings of environments that hang: a rollout worker or the evaluator has been inside them for HANG_SECONDS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.engine.contracts import RoleSpec
from penstock.engine.roles.evaluator import Evaluator
from penstock.engine.roles.rollout_worker import RolloutWorker
from penstock.engine.roles.specs import EvaluatorRole, RolloutRole
from penstock.engine.watching.clock import ACTIVITY, SINCE
from penstock.experience.arena import ExperienceArena
from penstock.play.player import lanes_for

HANG_SECONDS = 30.0


@dataclass(frozen=True)
class Watched:
    """A role that steps environments.

    Attributes
    ----------
    name
        Name of the role.
    gauges
        Gauges of the role, float64 ``[32]``.
    env
        Name of the environment.
    in_env
        Number of the role's activity within its environments.
    lanes
        Lanes of the role, in words.
    """

    name: str
    gauges: np.ndarray
    env: str
    in_env: int
    lanes: str

    @property
    def is_in_env(self) -> bool:
        """Whether the role is in its environments, or was when it died."""
        return int(self.gauges[ACTIVITY]) == self.in_env


class HangWatch:
    """Watches for rollout workers and evaluators that do not return from their environments.

    Parameters
    ----------
    specs, arena
        Roles and arena of the run.
    """

    def __init__(self, specs: Sequence[RoleSpec], arena: ExperienceArena) -> None:
        self._watched = [role for spec in specs if (role := watched(spec, arena))]
        self._named: dict[str, float] = {}

    def look(self, now: float) -> list[str]:
        """Return a warning for each role that hangs at a moment (monotonic seconds), once for each hang."""
        warnings = []
        for role in self._watched:
            since = float(role.gauges[SINCE])
            hangs = since and role.is_in_env and now - since > HANG_SECONDS
            if hangs and self._named.get(role.name) != since:
                self._named[role.name] = since
                waited = f"{role.name} has waited {now - since:.0f} s for {role.lanes}"
                warnings.append(f"warning: environment {role.env} hangs: {waited}")
        return warnings


def watched(spec: RoleSpec, arena: ExperienceArena) -> Watched | None:
    """Return the watched state of a role; None if it steps no environments."""
    if isinstance(spec, RolloutRole):
        is_shared = spec.rollout.env.population > 1
        count = sum(each.shape.lanes_per_worker for each in (arena.policies if is_shared else (arena,)))
        first = spec.rollout.worker * count
        last = first + count - 1
        lanes = f"lane {first}" if first == last else f"one of lanes {first} to {last}"
        in_env = RolloutWorker.ACTIVITIES.index("env")
        return Watched(spec.name, arena.gauges_of(spec.name), spec.rollout.env.name, in_env, lanes)
    if isinstance(spec, EvaluatorRole):
        count = lanes_for(spec.algorithms[0].config.eval_episodes)
        lanes = "its lane" if count == 1 else f"one of its {count} lanes"
        in_env = Evaluator.ACTIVITIES.index("evaluate")
        return Watched(spec.name, arena.gauges_of(spec.name), spec.env.name, in_env, lanes)
    return None
