"""Learners of several policies in one process, where cores are too few for a process each: they learn in turn."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from penstock.engine.backends.process import failure_of
from penstock.engine.contracts import LeavesNothing, OfPolicy, Role, RoleSpec
from penstock.engine.messages import Command, Of, Report, Tell, To
from penstock.engine.roles.device import DeviceRole
from penstock.engine.roles.specs import LearnerRole
from penstock.experience.arena import ExperienceArena


@dataclass(frozen=True)
class LearnersRole(LeavesNothing):
    """Learners in one process, which has the name of the first."""

    learners: tuple[LearnerRole, ...]
    is_vital: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The first learner's."""
        return self.learners[0].name

    @property
    def num_threads(self) -> int:
        """The most of any of them: they learn one after the other."""
        return max(learner.num_threads for learner in self.learners)

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the learners."""

        def tell(name: str, said: Report) -> None:
            report(Of(name, said))

        return InTurn({spec.name: spec.build(arena, partial(tell, spec.name)) for spec in self.learners}, report)


class InTurn:
    """Roles that are polled in turn; they sleep on one bell, which all of them have.

    Parameters
    ----------
    roles
        By name.
    report
        Called with `Of` and the failure of a role, before it is raised.
    """

    def __init__(self, roles: dict[str, Role], report: Tell) -> None:
        self._roles = roles
        self._report = report
        self.bell = next(iter(roles.values())).bell

    def poll(self) -> bool:
        """Let each role do one piece of work; False if none had any."""
        has_worked = False
        for name, role in self._roles.items():
            try:
                has_worked |= role.poll()
            except Exception as error:
                self._report(Of(name, failure_of(error)))
                raise
        return has_worked

    def handle(self, command: Command) -> None:
        """Give a command to the role that it is for."""
        assert isinstance(command, To)
        self._roles[command.role].handle(command.command)

    def close(self) -> None:
        """Close all of them."""
        for role in self._roles.values():
            role.close()


def parts_of(specs: Sequence[RoleSpec]) -> list[RoleSpec]:
    """The roles that these make, each with its own row of the arena's gauges."""
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
    """Policies of the roles that work for only some of a run's policies, in words for `with_policy_names`.

    Parameters
    ----------
    specs
        The roles.
    names
        Of the policies; of a run of one policy nothing is said.
    """
    found = {}
    for spec in specs if len(names) > 1 else ():
        parts = [each for each in parts_of([spec]) if isinstance(each, OfPolicy)]
        its = dict.fromkeys(names[part.policy] for part in parts if part.policy < len(names))
        if its:
            kind = "policy" if len(its) == 1 else "policies"
            found[spec.name] = f"of {kind} {' and '.join(map(repr, its))}"
    return found


def with_policy_names(story: str, policies: Mapping[str, str]) -> str:
    """A story that begins with a role's name, and behind the name says whose it is."""
    role = re.split(r"[ :]", story, maxsplit=1)[0]
    return f"{role} {policies[role]}{story[len(role) :]}" if role in policies else story
