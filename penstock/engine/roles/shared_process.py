"""Roles that share a process: learner and policy worker on a GPU, and learners of several policies on few cores.

A process has one CUDA context, and a single learner passes its weights to the policy worker on the device. The weights
of a group go through the arena's weights block, because its first learner publishes for all policy workers. Learner and
policy worker have a loop, bell and clock each; learners of several policies are polled in turn.
"""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from penstock.engine.contracts import SLEEP, SPIN, LeavesNothing, Role, RoleSpec
from penstock.engine.groups.follower import RankRole
from penstock.engine.messages import Command, Failed, FromRole, Report, Tell, ToRole
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
        """Whether the learner is vital."""
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
        # Each role has its own copy of the algorithm, which may have state, as in two processes.
        policy = replace(self.policy, algorithm=copy.deepcopy(self.policy.algorithm))
        spec = self.learner
        weights: MakeWeights = through_block
        if isinstance(spec, LearnerRole) and spec.group is None:
            exchange = WeightsExchange()
            spec = replace(spec, weights=partial(LearnerWeights, exchange=exchange))
            weights = partial(InferenceWeights, exchange=exchange)
        learner = spec.build(arena, report)

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
    """A role with a companion in a thread; a failure of the companion is raised as the role's."""

    def __init__(self, role: Role, companion: ThreadedRole) -> None:
        self.bell = role.bell
        self._role = role
        self._companion = companion

    def poll(self) -> bool:
        """Poll the role."""
        self._companion.raise_failure()
        return self._role.poll()

    def handle(self, command: Command) -> None:
        """Pass a command to the role; its companion accepts none."""
        self._role.handle(command)

    def close(self) -> None:
        """Close both roles."""
        self._companion.close()
        self._role.close()


@dataclass(frozen=True)
class LearnersRole(LeavesNothing):
    """Learners of several policies in one process, which has the name of the first learner."""

    learners: tuple[LearnerRole, ...]
    is_vital: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Name of the first learner."""
        return self.learners[0].name

    @property
    def num_threads(self) -> int:
        """Largest number of native threads of any learner, because they learn one after another."""
        return max(learner.num_threads for learner in self.learners)

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the learners."""

        def report_of(name: str, message: Report) -> None:
            report(FromRole(name, message))

        roles = {spec.name: spec.build(arena, partial(report_of, spec.name)) for spec in self.learners}
        return RolesInTurn(roles, report)


class RolesInTurn:
    """Roles with the same bell, polled in turn.

    Parameters
    ----------
    roles
        Roles by name.
    report
        Function for reports: `FromRole` with the failure of a role, before it is raised.
    """

    def __init__(self, roles: dict[str, Role], report: Tell) -> None:
        self._roles = roles
        self._report = report
        self.bell = next(iter(roles.values())).bell

    def poll(self) -> bool:
        """Poll each role; return False if all were idle."""
        has_worked = False
        for name, role in self._roles.items():
            try:
                has_worked |= role.poll()
            except Exception as error:
                self._report(FromRole(name, Failed.of(error)))
                raise
        return has_worked

    def handle(self, command: Command) -> None:
        """Pass a command to the role that it is addressed to."""
        assert isinstance(command, ToRole)
        self._roles[command.role].handle(command.command)

    def close(self) -> None:
        """Close all roles."""
        for role in self._roles.values():
            role.close()


def parts_of(specs: Sequence[RoleSpec]) -> list[RoleSpec]:
    """Return the specs of all single roles, each with its own row of the arena's gauges."""
    parts: list[RoleSpec] = []
    for spec in specs:
        if isinstance(spec, DeviceRole):
            parts += [spec.policy, spec.learner]
        elif isinstance(spec, LearnersRole):
            parts += spec.learners
        else:
            parts.append(spec)
    return parts


def policies_by_role(specs: Sequence[RoleSpec], names: Sequence[str]) -> dict[str, str]:
    """Return descriptions of the policies of each role, for `with_policy_names`.

    Parameters
    ----------
    specs
        Specs of the roles.
    names
        Names of the policies; for a single one the result is empty.
    """
    found = {}
    for spec in specs if len(names) > 1 else ():
        policies = (getattr(part, "policy", None) for part in parts_of([spec]))  # None: the role serves all
        named = dict.fromkeys(names[policy] for policy in policies if policy is not None and policy < len(names))
        if named:
            kind = "policy" if len(named) == 1 else "policies"
            found[spec.name] = f"of {kind} {' and '.join(map(repr, named))}"
    return found


def with_policy_names(story: str, policies: Mapping[str, str]) -> str:
    """Insert the role's policies into a message that begins with the role's name."""
    role = re.split(r"[ :]", story, maxsplit=1)[0]
    return f"{role} {policies[role]}{story[len(role) :]}" if role in policies else story
