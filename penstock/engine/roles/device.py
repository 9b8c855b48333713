"""Process that owns a GPU: a learner, and a policy worker in a thread.

One process has one CUDA context, and a single learner passes its weights to the policy worker without their leaving the
device. The weights of a group go through the arena's weights block, because its first learner publishes for all policy
workers. Each role has its own loop, bell and clock.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from penstock.engine.backends.process import SLEEP, SPIN
from penstock.engine.contracts import Role
from penstock.engine.groups.follower import RankRole
from penstock.engine.messages import Command, Tell
from penstock.engine.roles.specs import LearnerRole, PolicyRole
from penstock.engine.watching.clock import count_as_companion
from penstock.experience.arena import ExperienceArena
from penstock.ipc import Doorbell


@dataclass(frozen=True)
class DeviceRole:
    """Learner and policy worker in one process, which the supervisor treats as the learner."""

    learner: LearnerRole | RankRole
    policy: PolicyRole

    @property
    def is_vital(self) -> bool:
        """As of the learner."""
        return self.learner.is_vital

    @property
    def name(self) -> str:
        """Name of the learner."""
        return self.learner.name

    @property
    def num_threads(self) -> int:
        """Native threads of the learner."""
        return self.learner.num_threads

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the learner, and start the policy worker."""
        from penstock.engine.acting.device_inference import (
            DeviceInference,
            InferenceWeights,
            LearnerWeights,
            WeightsExchange,
        )
        from penstock.engine.acting.inference import MakeWeights, through_block
        from penstock.engine.roles.policy_worker import PolicyWorker

        of_policy = arena.policies[self.policy.policy]
        # An algorithm's own state belongs to one role, as in two processes.
        policy = replace(self.policy, algorithm=copy.deepcopy(self.policy.algorithm))
        weights: MakeWeights = through_block
        if self.learner.group is None:
            exchange = WeightsExchange()
            learner = self.learner.build(arena, report, partial(LearnerWeights, exchange=exchange))
            weights = partial(InferenceWeights, exchange=exchange)
        else:
            learner = self.learner.build(arena, report)

        def build_policy_worker() -> Role:
            device = policy.algorithm.config.device
            inference = DeviceInference(of_policy, policy.algorithm, device, policy.path.steps_taken, report, weights)
            return PolicyWorker(of_policy, inference, policy.number)

        return PairedRole(learner, ThreadedRole(build_policy_worker, wake=learner.bell.ring))

    def successor(self, arena: ExperienceArena) -> DeviceRole:
        """Return the learner's successor, with a policy worker like this one."""
        return replace(self, learner=self.learner.successor(arena))


class ThreadedRole:
    """A role that is made and polled in a thread; the constructor waits until it is made.

    Parameters
    ----------
    build
        Constructor of the role, whose exceptions are raised.
    wake
        Function to call when the role has failed.
    """

    def __init__(self, build: Callable[[], Role], wake: Callable[[], object]) -> None:
        self._build = build
        self._wake = wake
        self._bell: Doorbell | None = None
        self._is_built, self._is_over = threading.Event(), threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="companion", daemon=True)
        self._thread.start()
        self._is_built.wait()
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise the exception of the role, if it has failed."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Close the role when its poll returns, and end the thread."""
        self._is_over.set()
        if self._bell is not None:
            self._bell.ring()
        self._thread.join()

    def _run(self) -> None:
        count_as_companion()
        try:
            role = self._build()
            self._bell = role.bell
            self._is_built.set()
            while not self._is_over.is_set():
                seen = role.bell.value
                if not role.poll():
                    role.bell.wait(seen, SLEEP, SPIN)
            role.close()
        except BaseException as error:
            self._failure = error
            self._is_built.set()
            self._wake()


class PairedRole:
    """A role with a companion in a thread, whose failure is the role's."""

    def __init__(self, role: Role, companion: ThreadedRole) -> None:
        self.bell = role.bell
        self._role = role
        self._companion = companion

    def poll(self) -> bool:
        """Poll the role."""
        self._companion.raise_failure()
        return self._role.poll()

    def handle(self, command: Command) -> None:
        """Pass a command to the role; its companion takes none."""
        self._role.handle(command)

    def close(self) -> None:
        """Close both roles."""
        self._companion.close()
        self._role.close()
