"""The role of the learner where rollout workers learn: it publishes, saves and reports what they make of it."""

from __future__ import annotations

import time
from typing import Any

from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.engine.contracts import LearnerState
from penstock.engine.messages import Save, Tell
from penstock.engine.paths.hogwild import SharedParameters, take_squares
from penstock.engine.roles.learner import REPORT_INTERVAL, Learner
from penstock.experience.arena import Contribution, Control, ExperienceArena
from penstock.ipc import fence, taking_turns

LONGEST_UPDATE = 5.0  # seconds


class HogwildLearner(Learner):
    """Shows everyone what the rollout workers have made of the parameters that they share; it learns nothing itself.

    Parameters
    ----------
    algorithm, arena, state, report
        As for `Learner`.
    """

    def __init__(
        self, algorithm: SegmentAlgorithm, arena: ExperienceArena, state: LearnerState, report: Tell
    ) -> None:
        super().__init__(algorithm, arena, state, report)
        self._shared = SharedParameters(algorithm, arena)
        self._masked = 0
        self._next_look = 0.0

    def poll(self) -> bool:
        """Publish what the workers have learned since the last time, at most ten times per second; False if nothing."""
        steps = int(self._arena.contributions[:, Contribution.STEPS].sum())
        is_early = self._uses_clock and time.monotonic() < self._next_look
        is_too_early = self._is_anyone_learning() if steps >= self._arena.control[Control.GOAL] else is_early
        if steps == self._steps or is_too_early:  # at the goal, what is said is to be all there is
            self._send_queued_report()
            self._clock.switch("wait for goal" if self._has_reached_goal else "wait for data")
            return False
        self._clock.switch("gather")
        self._next_look = time.monotonic() + REPORT_INTERVAL
        self._look()
        self._queue_report({})
        return True

    def learning_state(self) -> dict[str, Any]:
        """The optimiser's state."""
        return {"optimizer": self._shared.optimizer.state_dict()}

    def _look(self) -> None:
        """Take over what the workers have made of the shared parameters, and publish it."""
        self._count()
        with taking_turns(self._arena.arena):
            self._model.load_state_dict(self._shared.model.state_dict())
        self._publish()

    def _count(self) -> None:
        """Add up what the workers have brought so far."""
        totals = self._arena.contributions.sum(0)
        self._steps, self._updates = int(totals[Contribution.STEPS]), int(totals[Contribution.UPDATES])
        self._skipped, self._masked = int(totals[Contribution.SKIPPED]), int(totals[Contribution.MASKED])
        self._version = self._updates + int(self._arena.control[Control.WEIGHTS_SET])

    def _save(self, command: Save) -> None:
        if self._has_reached_goal:  # the checkpoint of a run that ends holds all that was learned
            self._wait_for_workers()
        self._look()
        self._report_now()  # the checkpoint holds the steps of now, and so is the status to
        super()._save(command)

    def _weights_set(self) -> None:
        # Who sees this word drops its gradient; who has looked at it before is waited for. What is copied of the old
        # parameters from now on belongs to segments that the next run epoch fences off.
        self._arena.control[Control.WEIGHTS_SET] += 1
        self._wait_for_workers()
        with taking_turns(self._arena.arena):
            self._shared.model.load_state_dict(self._model.state_dict())
        self._count()  # nobody has applied a gradient since: what is published now is of these updates

    def _inherit(self, learning: dict[str, Any]) -> None:
        take_squares(self._shared, learning)

    def _wait_for_workers(self) -> None:
        """Wait until no worker is in the midst of an update; one that was killed in it is not waited for long."""
        end = time.monotonic() + LONGEST_UPDATE
        while self._is_anyone_learning() and time.monotonic() < end:
            time.sleep(0.001)

    def _is_anyone_learning(self) -> bool:
        fence()
        return bool(self._arena.contributions[:, Contribution.IS_LEARNING].any())

    def experience(self) -> dict[str, float]:
        """Number of steps not learned from; workers report policy lag."""
        return {"masked_steps": self._masked}
