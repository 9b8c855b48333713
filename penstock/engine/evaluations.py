"""Evaluations of a run: when one is due, requests to the evaluator, and their results."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from penstock.config import Config
from penstock.engine.messages import Candidate, Evaluate, Evaluated
from penstock.engine.polling import Roles
from penstock.engine.watching.chronicle import Chronicle
from penstock.engine.watching.progress import Progress
from penstock.experience.layout import RoleKind
from penstock.ipc import available_cores
from penstock.play.evaluation import Evaluation
from penstock.runs.formatting import number
from penstock.runs.store import CheckpointStore

# Largest share of the machine's time for the evaluator if no eval_interval is given:
SHARE, SHARE_WITH_TARGET = 0.03, 0.1
FREE_SECONDS = 1.0  # of playing without a target before that share applies
LEAST_GRACE = 10.0  # seconds by which an evaluation may exceed max_seconds,
GRACE = 0.1  # or this share of max_seconds if that is longer


def rest_ratio(cores: float, *, has_target: bool) -> float:
    """Return the ratio of the evaluator's rest to its playing time; with a target, 4 on two cores and 0 on ten."""
    return max(0.0, 1.0 / ((SHARE_WITH_TARGET if has_target else SHARE) * cores) - 1.0)


class Evaluations:
    """Requests evaluations, and records their results.

    Parameters
    ----------
    config
        Settings of the run.
    progress
        Progress of the run, to which results are added.
    chronicle
        Checkpoint stores of the run, and its log.
    roles
        Roles of the run.

    Attributes
    ----------
    has_reached_target
        Whether weights have reached the target since the last `begin`.
    """

    def __init__(self, config: Config, progress: Progress, chronicle: Chronicle, roles: Roles) -> None:
        self._config, self._progress, self._chronicle, self._roles = config, progress, chronicle, roles
        self._interval = _interval(config)
        self._next = progress.steps + self._interval
        self._rests_until = 0.0  # monotonic seconds
        self._free = FREE_SECONDS if config.target_return is None else 0.0
        # In a serial run nothing depends on time; an evaluator on a node does not load the learner's machine.
        has_share = config.backend != "serial" and config.evaluator == "home"
        self._rests = config.eval_interval is None and has_share
        # Requests are numbered so that a late answer to an earlier one is recognised.
        self.requested = self.answered = 0
        self.has_reached_target = False
        self.deadline = math.inf
        self._has_shown_unfinished = self._has_shown_film = False

    def begin(self, deadline: float | None) -> None:
        """Prepare for training until a deadline, in monotonic seconds."""
        self.has_reached_target = False
        self.deadline = math.inf
        if deadline is not None and self._config.max_seconds is not None:
            self.deadline = deadline + max(LEAST_GRACE, GRACE * self._config.max_seconds)

    @property
    def are_wanted(self) -> bool:
        """Whether the run is evaluated at all."""
        return self._interval > 0

    @property
    def is_under_way(self) -> bool:
        """Whether a request is not answered yet."""
        return self.answered < self.requested

    @property
    def is_overdue(self) -> bool:
        """Whether the deadline, which the evaluator checks between steps, has long passed without an answer."""
        return self.is_under_way and time.monotonic() >= self.deadline + LEAST_GRACE

    def schedule(self, meta: Callable[[], Sequence[dict[str, Any]]]) -> None:
        """Request an evaluation if one is due; `meta` returns the metadata of each policy's best checkpoint."""
        steps = self._progress.steps
        is_due = self._interval and steps >= self._next and time.monotonic() >= self._rests_until
        if is_due and not self.is_under_way and not self.has_reached_target:
            self._next = steps + self._interval
            self.request(meta())

    def request(self, meta: Sequence[dict[str, Any]], *, is_last: bool = False) -> None:
        """Request an evaluation of the newest weights."""
        self.requested += 1
        policies = self._progress.policies
        stores: Sequence[CheckpointStore | None] = self._chronicle.stores or [None] * len(policies)
        candidates = (
            Candidate(store, policy.best_return, of_policy)
            for store, policy, of_policy in zip(stores, policies, meta, strict=True)
        )
        run = self._chronicle.run_path
        self._roles.send(RoleKind.EVALUATOR, Evaluate(self.requested, self.deadline, tuple(candidates), run, is_last))

    def score_final(self, turn: Callable[[], object], meta: Callable[[], Sequence[dict[str, Any]]]) -> None:
        """Score the final weights unless the last evaluation was of them; stop waiting when a signal ends the run.

        Parameters
        ----------
        turn
            Polls the roles and shows the status.
        meta
            As for `schedule`.
        """

        def is_over() -> bool:
            return self._roles.interrupted.has_come or self.has_reached_target or self.is_overdue

        while self.is_under_way and not is_over():
            turn()
        first = self._progress.policies[0]
        last = first.evaluation
        if last is None or last.steps < first.steps:
            while first.evaluation is last and not is_over():
                if not self.is_under_way:  # at first, and when the evaluator has died
                    self.request(meta(), is_last=True)
                turn()
        if self.is_overdue:
            self.forget()
            self._chronicle.event(
                "warning: the final weights were not evaluated: the evaluator has not answered, and time is up"
            )

    def take(self, evaluated: Evaluated) -> None:
        """Record the result of an evaluation."""
        if evaluated.number <= self.answered:  # its weights have been replaced
            return
        self.answered = evaluated.number
        if self._rests:
            charged, self._free = max(0.0, evaluated.seconds - self._free), max(0.0, self._free - evaluated.seconds)
            ratio = rest_ratio(available_cores(), has_target=self._config.target_return is not None)
            self._rests_until = time.monotonic() + ratio * charged
        self.has_reached_target |= evaluated.has_reached_target
        for policy, scored in zip(self._progress.policies, evaluated.policies, strict=True):
            policy.take_evaluation(scored.evaluation, is_best=scored.is_best)
        self._chronicle.evaluated(evaluated.policies)
        for policy, scored in zip(self._progress.policies, evaluated.policies, strict=True):
            if scored.evaluation.unfinished and not self._has_shown_unfinished:
                self._has_shown_unfinished = True
                self._chronicle.event(self._about_unfinished(scored.evaluation))
            if scored.error is not None:
                of_policy = f" of policy {policy.name!r}" if policy.name else ""
                problem = f"the best weights{of_policy} could not be written, training continues: {scored.error}"
                self._chronicle.event(f"warning: {problem}")
        if evaluated.without_film is not None and not self._has_shown_film:
            self._has_shown_film = True
            steps = evaluated.policies[0].evaluation.steps
            self._chronicle.event(
                f"warning: no video of the evaluation at step {steps:,}: {evaluated.without_film}; further missing "
                "videos are not reported"
            )

    def forget(self) -> None:
        """Drop an open request: the weights were replaced, or the evaluator died."""
        self.answered = self.requested

    def forget_all(self) -> None:
        """Drop the last evaluation too, because its weights were replaced."""
        self.forget()
        for policy in self._progress.policies:
            policy.evaluation = None
        self._rests_until = 0.0

    def _about_unfinished(self, evaluation: Evaluation) -> str:
        config = self._config
        longest = max(evaluation.lengths[-evaluation.unfinished :])
        why = f"eval_max_steps={config.eval_max_steps}" if longest >= config.eval_max_steps else "max_seconds"
        target = "" if config.target_return is None else ", and the target does not count as reached"
        return (
            f"warning: an evaluation was asked for {evaluation.requested} episodes: {evaluation.finished} ended, and "
            f"{evaluation.unfinished} were cut short after at most {longest:,} steps ({why}). The mean return of "
            f"{number(evaluation.mean_return)} includes their returns up to that point{target}"
        )


def _interval(config: Config) -> int:
    """Return the number of steps between two evaluations; 0: no evaluations."""
    interval = config.eval_interval
    if interval == "continuous":
        return 1
    if interval is None:
        return 1 if config.target_return is not None else max(1, config.total_steps // 20)
    return int(interval) if not 0 < interval < 1 else max(1, int(interval * config.total_steps))
