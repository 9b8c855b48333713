"""Environments that hang: a rollout worker that does nothing else for long is named."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.engine.clock import ACTIVITY, SINCE
from penstock.engine.roles import RoleSpec, RolloutRole
from penstock.engine.rollout_worker import RolloutWorker

HANG_SECONDS = 30.0


class HangWatch:
    """Looks at how long each rollout worker has been in its environments without a break.

    Parameters
    ----------
    specs
        The roles of the run.
    gauges
        float64 ``[roles, 32]``: the arena's gauges.
    num_envs_per_worker
        Lanes per rollout worker.
    """

    def __init__(self, specs: Sequence[RoleSpec], gauges: np.ndarray, num_envs_per_worker: int) -> None:
        self._watched = [
            (spec.index, spec.name, spec.rollout.worker, spec.rollout.env.name)
            for spec in specs
            if isinstance(spec, RolloutRole)
        ]
        self._gauges = gauges
        self._num_lanes = num_envs_per_worker
        self._named: dict[str, float] = {}

    def look(self, now: float) -> list[str]:
        """Return a warning for each worker that hangs at this moment (monotonic seconds), once for each hang."""
        warnings = []
        for index, name, worker, env in self._watched:
            gauges = self._gauges[index]
            since = float(gauges[SINCE])
            is_in_env = RolloutWorker.ACTIVITIES[int(gauges[ACTIVITY])] == "env"
            if since and is_in_env and now - since > HANG_SECONDS and self._named.get(name) != since:
                self._named[name] = since
                first = worker * self._num_lanes
                last = first + self._num_lanes - 1
                lanes = f"lane {first}" if first == last else f"one of lanes {first} to {last}"
                warnings.append(f"warning: environment {env} hangs: {name} has waited {now - since:.0f} s for {lanes}")
        return warnings
