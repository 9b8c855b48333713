"""The evaluator: plays the newest weights without exploration, scores them, and keeps the best."""

from __future__ import annotations

import dataclasses
import time

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.engine.acting.weights import BestWeights, SharedWeights
from penstock.engine.messages import Command, Evaluate, Evaluated, Tell, unknown
from penstock.engine.watching.clock import Clock
from penstock.envs.factories import EVALUATOR
from penstock.envs.making import make_lanes
from penstock.envs.spec import EnvSpec
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RoleKind
from penstock.ipc import Doorbell
from penstock.play.evaluation import EVALUATION_LANES, Evaluation, Player, lanes_for
from penstock.runs.checkpoint import CheckpointError


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
        Called with `Evaluated` after each.
    """

    ACTIVITIES = ("evaluate", "wait for a request")

    def __init__(
        self,
        algorithm: Algorithm,
        env: EnvSpec,
        arena: ExperienceArena,
        report: Tell,
    ) -> None:
        config = algorithm.config
        self.bell: Doorbell = arena.evaluator_bell
        self._report = report
        self._clock = Clock(arena.gauges_of(RoleKind.EVALUATOR), self.ACTIVITIES)
        self._model = algorithm.build_model()
        self._weights = SharedWeights(self._model, arena.weights)
        self._best = BestWeights(arena.best_weights)
        self._lanes = make_lanes(
            env, lanes_for(config.eval_episodes), seed=config.seed, first_lane=EVALUATION_LANES, worker_index=EVALUATOR
        )
        self._player = Player(self._model, self._lanes, deterministic=not config.eval_exploration, seed=config.seed)
        self._episodes, self._max_steps = config.eval_episodes, config.eval_max_steps
        self._target = config.target_return
        self._request: Evaluate | None = None

    def poll(self) -> bool:
        """Play if asked to; False if not."""
        if self._request is None:
            self._clock.switch("wait for a request")
            return False
        request, self._request = self._request, None
        self._clock.switch("evaluate")
        self._evaluate(request)
        return True

    def handle(self, command: Command) -> None:
        """Take a command: `Evaluate`."""
        if not isinstance(command, Evaluate):
            raise unknown(RoleKind.EVALUATOR, command, Evaluate)
        self._request = command

    def close(self) -> None:
        """Close the environments."""
        self._lanes.close()

    def _evaluate(self, request: Evaluate) -> None:
        began, deadline = time.monotonic(), request.deadline
        self._weights.refresh()
        evaluation = self._play(deadline)
        others: tuple[Evaluation, ...] = ()
        has_reached_target = False
        if self._reaches_target(evaluation):
            # A policy that came over the target by luck is not one that reaches it: fresh episodes decide.
            again = self._play(deadline)
            evaluation, others = (evaluation, (again,)) if again.unfinished else (again, (evaluation,))
            has_reached_target = self._reaches_target(again)
        best_return = request.best_return
        # What was broken off at the deadline is no measure beside others. Of equals the later one, and before all the
        # one that came over the target twice.
        is_measure = not evaluation.unfinished or time.monotonic() < deadline
        is_better = best_return is None or evaluation.mean_return >= best_return or has_reached_target
        is_best, error = is_measure and is_better, None
        if is_best:
            self._best.keep(self._weights, evaluation.mean_return)
            error = self._save_best(request, evaluation)
        seconds = time.monotonic() - began
        self._report(Evaluated(request.number, evaluation, seconds, is_best, has_reached_target, error, others))

    def _reaches_target(self, evaluation: Evaluation) -> bool:
        """Whether whole episodes reach the target: of one that was given up nobody knows how it would have ended."""
        return self._target is not None and not evaluation.unfinished and evaluation.mean_return >= self._target

    def _save_best(self, request: Evaluate, evaluation: Evaluation) -> Exception | None:
        store = request.store
        if store is None:
            return None
        meta = {**request.meta, "version": self._weights.version, "mean_return": evaluation.mean_return}
        try:
            store.save_best(self._weights.steps, meta=meta, weights=self._model.state_dict())
        except (OSError, CheckpointError) as problem:
            return problem
        return None

    def _play(self, deadline: float) -> Evaluation:
        # Booked at every step, so that a view sees where the time of a long evaluation goes while it goes on.
        evaluation = self._player.play(
            self._episodes, max_steps=self._max_steps, deadline=deadline,
            on_step=lambda: self._clock.switch("evaluate"),
        )  # fmt: skip
        return dataclasses.replace(evaluation, steps=self._weights.steps, version=self._weights.version)
