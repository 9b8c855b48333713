"""Transfers of weights: a learner continues with the weights of another learner, a checkpoint, or the user."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np

from penstock.config import ConfigError
from penstock.engine.backends.restarts import RoleDied
from penstock.engine.messages import Copied, Copy, Inherit, SetWeights
from penstock.engine.policies import Policy
from penstock.engine.polling import Roles
from penstock.engine.roles.specs import name_of
from penstock.experience.arena import Control
from penstock.experience.layout import RoleKind
from penstock.runs.checkpoint import Checkpoint, CheckpointError, load_checkpoint, require_matching
from penstock.runs.lookup import resolve_checkpoint
from penstock.runs.tensors import as_bytes

TRANSFER_SECONDS = 60.0
"""Seconds for a learner to finish a batch and return or adopt a state."""


class Transfers:
    """Replaces the weights of learners, between two batches; experience of the old weights is fenced off."""

    def __init__(self, policies: Sequence[Policy], roles: Roles) -> None:
        self._policies, self._roles = policies, roles

    def set_weights(self, policy: int, weights: dict[str, np.ndarray], steps: int | None = None) -> None:
        """Set a policy's weights, learned from `steps` steps; None: as many as the policy has learned from.

        Raises
        ------
        RoleDied
            The learner is gone, or does not answer; also in `copy` and `hand_over`.
        """
        self._replace(policy, SetWeights(weights, steps), None)

    def copy(self, parent: int, child: int, settings: Mapping[str, float] | None = None) -> Copied:
        """Continue a child as a copy of its parent, between two batches of each; return the copied state.

        The child rests until the supervisor sets its goal: nothing that was collected before is learned from, and no
        batch combines the new weights with the old settings.
        """
        copied = self._roles.request(name_of(RoleKind.LEARNER, parent), Copy(), TRANSFER_SECONDS)
        if not isinstance(copied, Copied):
            raise RoleDied(f"{self._learner_of(parent)} did not return its weights within {TRANSFER_SECONDS:.0f} s")
        self.hand_over(copied.learned, child, settings)
        return copied

    def hand_over(self, learned: bytes, child: int, settings: Mapping[str, float] | None = None) -> None:
        """Continue a child with a state learned elsewhere: see `Copied.learned`, and `copy`."""
        self._policies[child].arena.control[Control.GOAL] = 0
        self._replace(child, Inherit(learned), settings)

    def _learner_of(self, policy: int) -> str:
        name = self._policies[policy].name
        return f"the learner of policy {name!r}" if name else "the learner"

    def _replace(self, policy: int, command: SetWeights | Inherit, settings: Mapping[str, float] | None) -> None:
        if self._roles.request(name_of(RoleKind.LEARNER, policy), command, TRANSFER_SECONDS) is None:
            raise RoleDied(f"{self._learner_of(policy)} did not adopt weights within {TRANSFER_SECONDS:.0f} s")
        self._settle(policy, settings)

    def _settle(self, policy: int, settings: Mapping[str, float] | None) -> None:
        """Apply settings to a policy whose weights were replaced, and fence off its older experience."""
        if settings is not None:
            self._policies[policy].tune(settings)
        self._policies[policy].arena.control[Control.RUN_EPOCH] += 1
        self._policies[0].arena.ring_all()


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


def learned_at(place: str | os.PathLike[str], policy: Policy) -> tuple[bytes, Checkpoint]:
    """Return the state to inherit from a checkpoint or a run's latest, and the checkpoint; raises `CheckpointError`."""
    checkpoint = load_checkpoint(resolve_checkpoint(place, "latest", policy=policy.name or None, is_any_legal=True))
    require_matching(checkpoint.weights, policy.model.state_dict(), str(checkpoint.path))
    if checkpoint.state is None:
        raise CheckpointError(f"{checkpoint.path} holds only weights, and no optimiser to continue with")
    return as_bytes({"weights": checkpoint.weights, "learning": checkpoint.state}), checkpoint
