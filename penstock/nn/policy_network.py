"""The face of every network that acts: what the engine asks of it."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from penstock.nn.modes import following, has_statistics, modules_with_modes
from penstock.nn.observations import CompositeInput, ObservationInput

ENCODERS = ("encoder", "value_encoder", "critic_encoder")
"""Names of what sees observations in Penstock's networks."""


class Choice(Protocol):
    """Choices of action for each of several observations."""

    def sample(self, noise: Tensor) -> Tensor:
        """Draw actions, with the lanes' own random numbers ``[..., K]``."""
        ...

    def mode(self) -> Tensor:
        """The actions of a policy that does not explore."""
        ...


class PolicyNetwork(nn.Module):
    """A network that acts, with whatever it learns beside that: all of it travels with the weights.

    Attributes
    ----------
    input : ObservationInput or CompositeInput
        Its first stage.
    state_size : int
        Width ``S`` of a lane's memory state; 0 without memory.
    """

    input: ObservationInput | CompositeInput
    state_size: int = 0

    def act(self, observation: Tensor, first: Tensor, state: Tensor) -> tuple[Choice, Tensor]:
        """Choose how to act on one row of every lane.

        Parameters
        ----------
        observation : Tensor
            Observations as they lie in their column, ``[B, *shape]``.
        first : Tensor
            Which of them begin an episode (their memory is forgotten before), bool ``[B]``.
        state : Tensor
            Memory before the row, float32 ``[B, S]``.

        Returns
        -------
        choice : Choice
            Over ``[B]`` actions.
        state : Tensor
            Memory after the row, float32 ``[B, S]``.
        """
        raise NotImplementedError

    def initial_state(self, batch: int) -> Tensor:
        """Memory state of ``batch`` lanes at the start of an episode: zeros, float32 ``[batch, S]``."""
        return torch.zeros(batch, self.state_size, device=next(self.parameters()).device)

    def update_layer_statistics(self, observation: Tensor, mask: Tensor) -> None:
        """Let layers of encoders that keep running statistics, such as BatchNorm, take observations into them.

        A network that has such layers elsewhere overrides it.

        Parameters
        ----------
        observation : Tensor
            Observations as they lie in their column, ``[..., *shape]``.
        mask : Tensor
            Which of them count, bool ``[...]``. One alone has no statistics.
        """
        encoders = [encoder for name in ENCODERS if (encoder := getattr(self, name, None)) is not None]
        layers = [module for module in modules_with_modes(self) if has_statistics(module)]
        if layers and (rows := observation[mask]).shape[0] > 1:
            x = self.input(rows)
            with following(layers):
                for encoder in encoders:
                    encoder(x)

    def update_observation_statistics(self, observation: Tensor, mask: Tensor | None = None) -> None:
        """Take observations ``[..., *shape]`` (of them ``mask``, bool ``[...]``) into their running moments if kept."""
        self.input.update_moments(observation, mask)
