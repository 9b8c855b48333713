"""The policy worker: chooses actions for all waiting groups in one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.messages import Command, unknown
from penstock.engine.watching.clock import Clock
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import policy_worker_name

if TYPE_CHECKING:
    from penstock.engine.contracts import Actor


class PolicyWorker:
    """Answers the requests of its groups. It holds nothing but weights: its replacement answers the same requests.

    Parameters
    ----------
    arena
        Arena of the policy.
    inference
        Actor that chooses actions.
    number
        Number among the policy's policy workers.
    """

    ACTIVITIES = ("infer", "wait for requests")

    def __init__(self, arena: ExperienceArena, inference: Actor, number: int = 0) -> None:
        self.bell = arena.policy_bells[number]
        self._number = number
        self._requests = arena.requests
        self._inference = inference
        self._clock = Clock(arena.gauges_of(policy_worker_name(arena.policy, number)), self.ACTIVITIES)

    def poll(self) -> bool:
        """Answer all open requests; return False if there are none."""
        pending = self._requests.pending(self._number)
        if pending is None:
            self._clock.switch("wait for requests")
            return False
        self._clock.switch("infer")
        self._inference.answer(pending)
        self._requests.mark_answered(pending)
        return True

    def handle(self, command: Command) -> None:
        """Refuse the command: a policy worker accepts none."""
        raise unknown("policy worker", command)

    def close(self) -> None:
        """Do nothing: nothing is held open."""
