"""The evaluator: plays episodes with the newest weights, scores them, and keeps the best."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
from penstock.play.player import Player, lanes_for
from penstock.play.scoring import EVALUATION_LANES
from penstock.process_state import seed_generators
from penstock.runs.checkpoint import CheckpointError
from penstock.self_play.matches import player_of

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
    games
        Numbers of those environments of an evaluation in which it plays the episodes; None: all.
    """

    ACTIVITIES = ("evaluate", "film", "wait for a request")

    def __init__(
        self, algorithms: Sequence[Algorithm], env: EnvSpec, arena: ExperienceArena, report: Tell,
        games: range | None = None,
    ) -> None:  # fmt: skip
        self._config = config = algorithms[0].config
        self.bell: Doorbell = arena.evaluator_bell
        self._report = report
        self._clock = Clock(arena.gauges_of(RoleKind.EVALUATOR), self.ACTIVITIES)
        self._scores, self._arenas = Scores(algorithms, arena), arena.policies
        seed_generators(lane_seed(config.seed, EVALUATION_LANES, 0))
        self._env = env
        self._games = range(lanes_for(config.eval_episodes)) if games is None else games
        self._players: dict[range, Player] = {}
        self._player(self._games)
        self._films = None
        if config.eval_videos:
            from penstock.engine.roles.filming import Films  # most runs have none

            self._films = Films(algorithms, [policy.model for policy in self._scores.policies], env)
        self._requests: deque[Evaluate] = deque()

    def poll(self) -> bool:
        """Evaluate if requested; return False if not."""
        if not self._requests:
            self._clock.switch("wait for a request")
            return False
        self._clock.switch("evaluate")
        self._evaluate(self._requests.popleft())
        return True

    def handle(self, command: Command) -> None:
        """Execute a command: `Evaluate`, which replaces waiting requests of earlier evaluations."""
        if not isinstance(command, Evaluate):
            raise unknown(RoleKind.EVALUATOR, command, Evaluate)
        while self._requests and self._requests[0].number != command.number:
            self._requests.popleft()
        self._requests.append(command)

    def close(self) -> None:
        """Close the environments."""
        for player in self._players.values():
            player.group.close()

    def _evaluate(self, request: Evaluate) -> None:
        began = time.monotonic()
        self._scores.begin(request)
        meta = request.policies[0].meta
        while (evaluated := self._scores.judge(self._play(self._games, request.deadline, meta))) is None:
            pass
        if self._films is not None:
            evaluated = dataclasses.replace(evaluated, without_film=self._film(self._films, request, evaluated))
        self._report(dataclasses.replace(evaluated, seconds=time.monotonic() - began))

    def _film(self, films: Films, request: Evaluate, evaluated: Evaluated) -> str | None:
        """Film an episode of the evaluated weights, if a film is due; return the reason if that fails."""
        scored, is_last = evaluated.policies, request.is_last or evaluated.has_reached_target
        steps = sum(policy.weights.steps for policy in self._scores.policies)
        best = max(range(len(scored)), key=lambda n: scored[n].evaluation.mean_return)
        player = best if self._env.population > 1 else 0
        if not films.is_due(steps, is_best=scored[player].is_best, is_last=is_last):
            return None
        self._clock.switch("film")
        return films.make(
            request, steps, player, is_best=scored[player].is_best, on_step=lambda: self._clock.switch("film")
        )

    def _play(self, games: range, deadline: float, meta: Mapping[str, Any]) -> tuple[Evaluation, ...]:
        """Play the episodes of some of the evaluation's environments, with the running statistics in `meta`."""
        player, episodes = self._player(games), self._config.eval_episodes
        player.group.statistics.freeze(statistics_of(meta))
        # The clock is switched at every step, so that a view shows the time of a long evaluation while it runs.
        return player.play(
            episodes // lanes_for(episodes) * len(games), max_steps=self._config.eval_max_steps, deadline=deadline,
            on_step=lambda: self._clock.switch("evaluate"),
        )  # fmt: skip

    def _player(self, games: range) -> Player:
        """Return the player for some of the evaluation's environments, made at the first call."""
        if games not in self._players:
            config, policies = self._config, self._scores.policies
            self._players[games] = player_of(
                [policy.model for policy in policies], self._env, config.eval_against, games=games,
                deterministic=not config.eval_exploration, seed=config.seed,
                best=[policy.best_model for policy in policies], first_lane=EVALUATION_LANES, worker_index=EVALUATOR,
            )  # fmt: skip
        return self._players[games]


class Scores:
    """Scores of all policies: decides which weights are the best, and whether the target is reached.

    Parameters
    ----------
    algorithms
        Algorithm of each policy.
    arena
        Arena of the first policy, with the newest weights and the best ones.

    Attributes
    ----------
    policies
        Scoring of each policy.
    """

    def __init__(self, algorithms: Sequence[Algorithm], arena: ExperienceArena) -> None:
        self.policies = [Scoring(*each) for each in zip(algorithms, arena.policies, strict=False)]
        self._is_population = algorithms[0].config.pbt is not None

    def begin(self, request: Evaluate) -> None:
        """Load the newest weights, which are to be evaluated."""
        self._request, self._began = request, time.monotonic()
        self._before: tuple[Evaluation, ...] = ()  # evaluations that have reached the target
        for policy in self.policies:
            policy.weights.refresh()

    def judge(self, played: Sequence[Evaluation]) -> Evaluated | None:
        """Return the result of an evaluation; None: the target is reached, perhaps by luck, so play fresh episodes."""
        evaluations = tuple(
            dataclasses.replace(evaluation, steps=policy.weights.steps, version=policy.weights.version)
            for policy, evaluation in zip(self.policies, played, strict=True)
        )
        has_reached_target = self._reach_target(evaluations)
        if has_reached_target and not self._before:
            self._before = evaluations
            return None
        others: list[tuple[Evaluation, ...]] = [()] * len(evaluations)
        if self._before:
            is_whole = not any(evaluation.unfinished for evaluation in evaluations)
            evaluations, seconds = (evaluations, self._before) if is_whole else (self._before, evaluations)
            others = [(evaluation,) for evaluation in seconds]
        request = self._request
        scored = tuple(
            policy.score(
                candidate, evaluation, more, request.deadline,
                has_reached_target=has_reached_target and policy.reaches_target(evaluation) is not False,
            )
            for policy, candidate, evaluation, more in zip(
                self.policies, request.policies, evaluations, others, strict=True
            )
        )  # fmt: skip
        return Evaluated(request.number, scored, time.monotonic() - self._began, has_reached_target)

    def _reach_target(self, evaluations: Sequence[Evaluation]) -> bool:
        """Return whether all policies that have a target reach it, and one has; in a population, whether any does."""
        reached = [policy.reaches_target(each) for policy, each in zip(self.policies, evaluations, strict=True)]
        return any(reached) and (self._is_population or False not in reached)


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
        return self._best.model(self._algorithm.make_model)

    def reaches_target(self, evaluation: Evaluation) -> bool | None:
        """Return whether complete episodes reach the target; None without a target.

        An unfinished episode does not reach it: its end is unknown.
        """
        if self._target is None:
            return None
        return evaluation.took_part and not evaluation.unfinished and evaluation.mean_return >= self._target

    def score(
        self, candidate: Candidate, evaluation: Evaluation, others: tuple[Evaluation, ...], deadline: float, *,
        has_reached_target: bool,
    ) -> Scored:  # fmt: skip
        """Return the score of an evaluation, and keep the weights if they are the best."""
        best_return = candidate.best_return
        # Games without the policy measure nothing, and an evaluation cut short at the deadline is not comparable. Among
        # equals the later is better, and one that reached the target twice is better than all others.
        is_measure = evaluation.took_part and (not evaluation.unfinished or time.monotonic() < deadline)
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
