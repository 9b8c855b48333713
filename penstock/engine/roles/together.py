"""Learners of several policies in one process, polled in turn, where there are too few cores for a process each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from penstock.engine.backends.process import failure_of
from penstock.engine.contracts import LeavesNothing, OfPolicy, Role, RoleSpec
from penstock.engine.messages import Command, FromRole, Report, Tell, ToRole
from penstock.engine.roles.device import DeviceRole
from penstock.engine.roles.specs import LearnerRole
from penstock.experience.arena import ExperienceArena


@dataclass(frozen=True)
class LearnersRole(LeavesNothing):
    """Learners in one process, which has the name of the first learner."""

    learners: tuple[LearnerRole, ...]
    is_vital: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Name of the first learner."""
        return self.learners[0].name

    @property
    def num_threads(self) -> int:
        """Largest number of native threads of a learner: they learn one after another."""
        return max(learner.num_threads for learner in self.learners)

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the learners."""

        def report_of(name: str, said: Report) -> None:
            report(FromRole(name, said))

        return InTurn({spec.name: spec.build(arena, partial(report_of, spec.name)) for spec in self.learners}, report)


class InTurn:
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
                self._report(FromRole(name, failure_of(error)))
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
        Names of the policies; nothing is returned for a single one.
    """
    found = {}
    for spec in specs if len(names) > 1 else ():
        parts = [each for each in parts_of([spec]) if isinstance(each, OfPolicy)]
        named = dict.fromkeys(names[part.policy] for part in parts if part.policy < len(names))
        if named:
            kind = "policy" if len(named) == 1 else "policies"
            found[spec.name] = f"of {kind} {' and '.join(map(repr, named))}"
    return found


def with_policy_names(story: str, policies: Mapping[str, str]) -> str:
    """Insert the role's policies into a message that begins with the role's name."""
    role = re.split(r"[ :]", story, maxsplit=1)[0]
    return f"{role} {policies[role]}{story[len(role) :]}" if role in policies else story
