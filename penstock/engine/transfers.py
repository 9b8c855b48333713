"""Weights from elsewhere: a learner goes on with those of another, of a checkpoint, or of the user."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from penstock.config import ConfigError
from penstock.engine.backends.restarts import RoleDied
from penstock.engine.messages import Command, Copied, Copy, Inherit, SetWeights
from penstock.engine.policies import Policy
from penstock.engine.roles.specs import name_of
from penstock.engine.saves import TurnUntil
from penstock.experience.arena import Control
from penstock.experience.layout import RoleKind
from penstock.runs.checkpoint import CheckpointError, load_checkpoint, require_matching
from penstock.runs.lookup import resolve_checkpoint
from penstock.runs.tensors import as_bytes

TRANSFER_SECONDS = 60.0
"""Seconds for a learner to finish a batch and hand over or adopt a state."""


class Transfers:
    """Gives learners other weights, between two batches; what was collected with the old ones is fenced off.

    Parameters
    ----------
    policies
        The run's.
    send
        Commands a role; False: it is gone.
    turn_until
        Hears the roles until something is so, or until so many seconds are over.
    ring
        Wakes all roles.
    """

    def __init__(
        self,
        policies: Sequence[Policy],
        send: Callable[[str, Command], bool],
        turn_until: TurnUntil,
        ring: Callable[[], None],
    ) -> None:
        self._policies, self._send, self._turn_until, self._ring = policies, send, turn_until, ring
        self._copied: Copied | None = None
        self._is_taken = False

    def take(self, report: Copied) -> None:
        """Hear what a learner has learned."""
        self._copied = report

    def taken(self) -> None:
        """Hear that a learner has other weights."""
        self._is_taken = True

    def set_weights(self, policy: int, weights: dict[str, np.ndarray], steps: int | None = None) -> None:
        """Give a policy weights, which have learned from so many steps; None: those of the policy.

        Raises
        ------
        RoleDied
            The learner is gone, or does not answer; the same below.
        """
        if not self._gives(policy, SetWeights(weights, steps)):
            raise RoleDied(f"{self._learner_of(policy)} took no weights within {TRANSFER_SECONDS:.0f} s")
        self._settle(policy, None)

    def copy(self, parent: int, child: int, settings: Mapping[str, float] | None = None) -> Copied:
        """Let a child go on as its parent is now, between two batches of each; return what it copies.

        The child rests meanwhile. It learns again when the supervisor sets its goal: nothing that was collected before
        is learned from, and no batch sees the new weights with the old settings.
        """
        self._copied = None
        is_there = self._send(name_of(RoleKind.LEARNER, parent), Copy())
        self._turn_until(lambda: self._copied is not None or not is_there, TRANSFER_SECONDS)
        copied = self._copied
        if copied is None:
            raise RoleDied(f"{self._learner_of(parent)} handed over no weights within {TRANSFER_SECONDS:.0f} s")
        self.hand_over(copied.learned, child, settings)
        return copied

    def hand_over(self, learned: bytes, child: int, settings: Mapping[str, float] | None = None) -> None:
        """Let a child go on with what was learned elsewhere: see `Copied.learned`, and `copy`."""
        self._policies[child].arena.control[Control.GOAL] = 0
        if not self._gives(child, Inherit(learned)):
            raise RoleDied(f"{self._learner_of(child)} took no weights within {TRANSFER_SECONDS:.0f} s")
        self._settle(child, settings)

    def _learner_of(self, policy: int) -> str:
        name = self._policies[policy].name
        return f"the learner of policy {name!r}" if name else "the learner"

    def _gives(self, policy: int, command: Command) -> bool:
        """Command a policy's learner to take weights; return whether it does."""
        self._is_taken = False
        is_there = self._send(name_of(RoleKind.LEARNER, policy), command)
        self._turn_until(lambda: self._is_taken or not is_there, TRANSFER_SECONDS)
        return self._is_taken

    def _settle(self, policy: int, settings: Mapping[str, float] | None) -> None:
        """Let a policy that has other weights have its settings, and forget what it had collected."""
        if settings is not None:
            self._policies[policy].tune(settings)
        self._policies[policy].arena.control[Control.RUN_EPOCH] += 1
        self._ring()


def require_alike(policies: Sequence[Policy], what: str) -> None:
    """Raise `ConfigError` where policies cannot copy each other; the message begins with `what`."""
    first = policies[0]
    for other in policies[1:]:
        try:
            require_matching(other.model.state_dict(), first.model.state_dict(), f"policy {other.name!r}")
        except CheckpointError as error:
            raise ConfigError(
                f"{what}: the policies {first.name!r} and {other.name!r} cannot copy each other: {error}"
            ) from None


def learned_at(place: str | os.PathLike[str], policy: Policy) -> bytes:
    """State that a checkpoint, or a run's latest, hands over to a policy; raises `CheckpointError`."""
    checkpoint = load_checkpoint(resolve_checkpoint(place, "latest", policy=policy.name or None))
    require_matching(checkpoint.weights, policy.model.state_dict(), str(checkpoint.path))
    if checkpoint.state is None:
        raise CheckpointError(f"{checkpoint.path} holds weights alone, and no optimiser to go on with")
    return as_bytes({"weights": checkpoint.weights, "learning": checkpoint.state})
