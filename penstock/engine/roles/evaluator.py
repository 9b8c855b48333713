"""The evaluator: plays episodes with the newest weights, scores them, and keeps the best."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.engine.acting.inference import BestWeights, SharedWeights
from penstock.engine.messages import Candidate, Command, Evaluate, Evaluated, Scored, Tell, unknown
from penstock.engine.watching.clock import Clock
from penstock.envs.factories import EVALUATOR
from penstock.envs.making import lane_seed
from penstock.envs.spec import EnvSpec
from penstock.envs.statistics import statistics_of
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RoleKind
from penstock.ipc import Doorbell
from penstock.nn import PolicyNetwork
from penstock.play.evaluation import Evaluation
from penstock.play.scoring import EVALUATION_LANES
from penstock.runs.checkpoint import CheckpointError
from penstock.self_play.matches import player_of
from penstock.surroundings import seed_generators

if TYPE_CHECKING:
    from penstock.engine.roles.filming import Films


class Evaluator:
    """Evaluates the policies on request.

    Parameters
    ----------
    algorithms
        Algorithm of each policy.
    env
        Environment, in which the policies play together.
    arena
        Arena of the first policy.
    report
        Function for reports: `Evaluated` after each evaluation.
    """

    ACTIVITIES = ("evaluate", "film", "wait for a request")

    def __init__(self, algorithms: Sequence[Algorithm], env: EnvSpec, arena: ExperienceArena, report: Tell) -> None:
        config = algorithms[0].config
        self.bell: Doorbell = arena.evaluator_bell
        self._report = report
        self._clock = Clock(arena.gauges_of(RoleKind.EVALUATOR), self.ACTIVITIES)
        self._policies = [
            Scoring(algorithm, of_policy) for algorithm, of_policy in zip(algorithms, arena.policies, strict=False)
        ]
        seed_generators(lane_seed(config.seed, EVALUATION_LANES, 0))
        self._player = player_of(
            [policy.model for policy in self._policies], env, config.eval_against, episodes=config.eval_episodes,
            deterministic=not config.eval_exploration, seed=config.seed,
            best=[policy.best_model for policy in self._policies], first_lane=EVALUATION_LANES, worker_index=EVALUATOR,
        )  # fmt: skip
        self._episodes, self._max_steps = config.eval_episodes, config.eval_max_steps
        self._is_population = config.pbt is not None
        self._env = env
        self._films = None
        if config.eval_films:
            from penstock.engine.roles.filming import Films  # most runs have none

            self._films = Films(algorithms, [policy.model for policy in self._policies], env)
        self._request: Evaluate | None = None

    def poll(self) -> bool:
        """Evaluate if requested; return False if not."""
        if self._request is None:
            self._clock.switch("wait for a request")
            return False
        request, self._request = self._request, None
        self._clock.switch("evaluate")
        self._evaluate(request)
        return True

    def handle(self, command: Command) -> None:
        """Execute a command: `Evaluate`."""
        if not isinstance(command, Evaluate):
            raise unknown(RoleKind.EVALUATOR, command, Evaluate)
        self._request = command

    def close(self) -> None:
        """Close the environments."""
        self._player.group.close()

    def _evaluate(self, request: Evaluate) -> None:
        began, deadline = time.monotonic(), request.deadline
        self._player.group.statistics.freeze(statistics_of(request.policies[0].meta))
        for policy in self._policies:
            policy.weights.refresh()
        evaluations = self._play(deadline)
        others: list[tuple[Evaluation, ...]] = [()] * len(evaluations)
        has_reached_target = False
        if self._reach_target(evaluations):
            # The target may have been reached by luck: fresh episodes decide.
            again = self._play(deadline)
            is_whole = not any(evaluation.unfinished for evaluation in again)
            evaluations, seconds = (again, evaluations) if is_whole else (evaluations, again)
            others = [(evaluation,) for evaluation in seconds]
            has_reached_target = self._reach_target(again)
        scored = tuple(
            policy.score(
                candidate,
                evaluation,
                more,
                deadline,
                has_reached_target=has_reached_target and policy.reaches_target(evaluation) is not False,
            )
            for policy, candidate, evaluation, more in zip(
                self._policies, request.policies, evaluations, others, strict=True
            )
        )
        is_last = request.is_last or has_reached_target
        problem = None if self._films is None else self._film(self._films, request, scored, is_last=is_last)
        self._report(Evaluated(request.number, scored, time.monotonic() - began, has_reached_target, problem))

    def _film(self, films: Films, request: Evaluate, scored: Sequence[Scored], *, is_last: bool) -> str | None:
        """Film an episode of the evaluated weights, if that is due; return the reason where it failed."""
        steps = sum(policy.weights.steps for policy in self._policies)
        best = max(range(len(scored)), key=lambda n: scored[n].evaluation.mean_return)
        player = best if self._env.population > 1 else 0
        if not films.is_due(steps, is_best=scored[player].is_best, is_last=is_last):
            return None
        self._clock.switch("film")
        return films.make(
            request, steps, player, is_best=scored[player].is_best, on_step=lambda: self._clock.switch("film")
        )

    def _reach_target(self, evaluations: Sequence[Evaluation]) -> bool:
        """Return whether all policies with a target reach it, and there is one; of a population, any policy."""
        reached = [policy.reaches_target(each) for policy, each in zip(self._policies, evaluations, strict=True)]
        return any(reached) and (self._is_population or False not in reached)

    def _play(self, deadline: float) -> tuple[Evaluation, ...]:
        # The clock is switched at every step, so that a view shows the time of a long evaluation during it.
        evaluations = self._player.play(
            self._episodes, max_steps=self._max_steps, deadline=deadline,
            on_step=lambda: self._clock.switch("evaluate"),
        )  # fmt: skip
        return tuple(
            dataclasses.replace(evaluation, steps=policy.weights.steps, version=policy.weights.version)
            for policy, evaluation in zip(self._policies, evaluations, strict=True)
        )


class Scoring:
    """Evaluation of one policy: its network, its newest weights, and its best weights."""

    def __init__(self, algorithm: Algorithm, arena: ExperienceArena) -> None:
        self._algorithm = algorithm
        self.model = algorithm.make_model()
        self.weights = SharedWeights(self.model, arena.weights)
        self._best = BestWeights(arena.best_weights)
        self._target = algorithm.config.target_return

    def best_model(self) -> PolicyNetwork | None:
        """Return a network with the best weights; None before there are any."""
        best = self._best.load(self._algorithm.build_model)
        if best is None:
            return None
        model = self._algorithm.make_model()
        model.load_state_dict(best.parameters[0])
        return model

    def reaches_target(self, evaluation: Evaluation) -> bool | None:
        """Return whether complete episodes reach the target; None without a target.

        An unfinished episode does not reach it: its end is unknown.
        """
        if self._target is None:
            return None
        return not evaluation.unfinished and evaluation.mean_return >= self._target

    def score(
        self,
        candidate: Candidate,
        evaluation: Evaluation,
        others: tuple[Evaluation, ...],
        deadline: float,
        *,
        has_reached_target: bool,
    ) -> Scored:
        """Return the score of an evaluation, and keep the weights if they are the best."""
        best_return = candidate.best_return
        # An evaluation broken off at the deadline is not comparable. Of equal ones the later is better, and one that
        # reached the target twice is better than all.
        is_measure = not evaluation.unfinished or time.monotonic() < deadline
        is_better = best_return is None or evaluation.mean_return >= best_return or has_reached_target
        is_best, error = is_measure and is_better, None
        if is_best:
            self._best.keep(self.weights, evaluation.mean_return)
            error = self._save_best(candidate, evaluation)
        return Scored(evaluation, is_best, error, others)

    def _save_best(self, candidate: Candidate, evaluation: Evaluation) -> Exception | None:
        if candidate.store is None:
            return None
        meta = {**candidate.meta, "version": self.weights.version, "mean_return": evaluation.mean_return}
        try:
            candidate.store.save_best(self.weights.steps, meta=meta, weights=self.model.state_dict())
        except (OSError, CheckpointError) as problem:
            return problem
        return None
