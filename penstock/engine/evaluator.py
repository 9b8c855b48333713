"""The evaluator: plays the newest weights without exploration, scores them, and keeps the best."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from penstock.algorithms.base import Algorithm
from penstock.engine.clock import Clock
from penstock.engine.evaluation import EVALUATION_LANES, Evaluation, Player, lanes_for
from penstock.engine.rollout_worker import Report
from penstock.engine.weights import SharedWeights
from penstock.envs.factories import EVALUATOR
from penstock.envs.making import make_lanes
from penstock.envs.spec import EnvSpec
from penstock.experience.arena import ExperienceArena
from penstock.ipc import Doorbell
from penstock.runs.checkpoint import CheckpointError
from penstock.runs.store import CheckpointStore


class Evaluator:
    """Plays when it is asked to.

    Parameters
    ----------
    algorithm
        The policy's algorithm.
    env
        The environment.
    arena
        Where the weights are.
    report
        Called with ("evaluation", (number of the request, Evaluation, seconds it took, error in saving or None)) after
        each.
    """

    ACTIVITIES = ("evaluate", "wait for a request")

    def __init__(
        self,
        algorithm: Algorithm,
        env: EnvSpec,
        arena: ExperienceArena,
        report: Report,
    ) -> None:
        config = algorithm.config
        self.bell: Doorbell = arena.evaluator_bell
        self._report = report
        self._clock = Clock(arena.gauges[arena.shape.num_workers + 2], self.ACTIVITIES)
        self._model = algorithm.build_model()
        self._weights = SharedWeights(self._model, arena.weights)
        self._lanes = make_lanes(
            env, lanes_for(config.eval_episodes), seed=config.seed, first_lane=EVALUATION_LANES, worker_index=EVALUATOR
        )
        self._player = Player(self._model, self._lanes, deterministic=True, seed=config.seed)
        self._episodes = config.eval_episodes
        self._target = config.target_return
        self._request: dict[str, Any] | None = None

    def poll(self) -> bool:
        """Play if asked to; False if not."""
        if self._request is None:
            self._clock.switch("wait for a request")
            return False
        request, self._request = self._request, None
        self._clock.switch("evaluate")
        self._evaluate(request)
        return True

    def handle(self, command: str, payload: Any) -> None:
        """Take a command: "evaluate".

        Its payload is {"store": CheckpointStore for the best weights or None, "best_return": mean return they have
        to exceed or None, "meta": dict}.
        """
        if command != "evaluate":
            raise ValueError(f"the evaluator knows no command {command!r}: evaluate")
        self._request = payload

    def close(self) -> None:
        """Close the environments."""
        self._lanes.close()

    def _evaluate(self, request: dict[str, Any]) -> None:
        began = time.monotonic()
        self._weights.refresh()
        evaluation = self._play()
        has_reached_target = False
        if self._target is not None and evaluation.mean_return >= self._target:
            # A policy that came over the target by luck is not one that reaches it: fresh episodes decide.
            evaluation = self._play()
            has_reached_target = evaluation.mean_return >= self._target
        evaluation = dataclasses.replace(evaluation, steps=self._weights.steps)
        store: CheckpointStore | None = request["store"]
        best_return: float | None = request["best_return"]
        error: Exception | None = None
        # Of equals the later one, and before all the one that came over the target twice.
        is_best = best_return is None or evaluation.mean_return >= best_return or has_reached_target
        if store is not None and is_best:
            version = self._weights.version
            meta = {**request["meta"], "version": version, "mean_return": evaluation.mean_return}
            try:
                store.save_best(self._weights.steps, meta=meta, weights=self._model.state_dict())
            except (OSError, CheckpointError) as problem:
                error = problem
        self._report("evaluation", (request["number"], evaluation, time.monotonic() - began, error))

    def _play(self) -> Evaluation:
        # Booked at every step, so that a view sees where the time of a long evaluation goes while it goes on.
        return self._player.play(self._episodes, on_step=lambda: self._clock.switch("evaluate"))
