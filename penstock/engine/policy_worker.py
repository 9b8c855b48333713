"""The policy worker: turns the observations of all groups that wait into actions, in one batch."""

from __future__ import annotations

from penstock.engine.clock import Clock
from penstock.engine.inference import Inference
from penstock.engine.messages import Command, unknown
from penstock.experience.arena import Control, ExperienceArena
from penstock.ipc import fence


class PolicyWorker:
    """Answers whichever groups wait. It holds nothing but weights: a restarted one finds the same groups waiting."""

    ACTIVITIES = ("infer", "wait for requests")

    def __init__(self, arena: ExperienceArena, inference: Inference) -> None:
        self.bell = arena.policy_bell
        self._arena = arena
        self._inference = inference
        self._clock = Clock(arena.gauges_of("policy-0"), self.ACTIVITIES)

    def poll(self) -> bool:
        """Answer all requests there are; False if there were none."""
        arena = self._arena
        # Whoever has died by now has had its last answer, and its requests are read as withdrawn.
        deaths = arena.control[Control.DEATHS]
        fence()
        arena.control[Control.POLICY_PASSED] = deaths
        requests = arena.asked.copy()
        fence()
        groups = (requests > arena.answered).nonzero()[0]
        if not len(groups):
            self._clock.switch("wait for requests")
            return False
        self._clock.switch("infer")
        self._inference.answer(groups, requests[groups])
        fence()
        arena.answered[groups] = requests[groups]
        for worker in set((groups // arena.shape.num_groups).tolist()):
            arena.rollout_bells[worker].ring()
        return True

    def handle(self, command: Command) -> None:
        """Take a command of the supervisor; a policy worker knows none."""
        raise unknown("policy worker", command)

    def close(self) -> None:
        """Nothing is held open."""
