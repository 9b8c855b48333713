"""Interface between acting networks and the engine."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from penstock.nn.mlp import Chain
from penstock.nn.modes import following, has_statistics, modules_with_modes
from penstock.nn.observations import CompositeInput, ObservationInput

ENCODERS = ("encoder", "value_encoder", "critic_encoder")
"""Attribute names of the encoders in Penstock's networks."""

CONSTANT = 0.05
"""Largest standard deviation of a constant feature, in units of its root mean square."""


class Choice(Protocol):
    """Choices of action for several observations."""

    def sample(self, noise: Tensor) -> Tensor:
        """Draw actions with the lanes' random numbers ``[..., K]``."""
        ...

    def mode(self) -> Tensor:
        """Return the actions without exploration."""
        ...


class PolicyNetwork(nn.Module):
    """Network that acts. All of its parts, including those only used in learning, belong to the weights.

    Attributes
    ----------
    input : ObservationInput or CompositeInput
        First stage.
    state_size : int
        Width ``S`` of a lane's memory state; 0 without memory.
    """

    input: ObservationInput | CompositeInput
    state_size: int = 0

    def act(self, observation: Tensor, first: Tensor, state: Tensor) -> tuple[Choice, Tensor]:
        """Return choices of action for one row of every lane.

        Parameters
        ----------
        observation : Tensor
            Observations in their column's layout, ``[B, *shape]``.
        first : Tensor
            Rows that begin an episode, before which memory is reset, bool ``[B]``.
        state : Tensor
            Memory before the row, float32 ``[B, S]``.

        Returns
        -------
        choice : Choice
            Choices of ``[B]`` actions.
        state : Tensor
            Memory after the row, float32 ``[B, S]``.
        """
        raise NotImplementedError

    @property
    def chain(self) -> Chain | None:
        """The network from observations to the outputs of a head, as one call; None if it has no such form."""
        return None

    def initial_state(self, batch: int) -> Tensor:
        """Return the memory state of ``batch`` lanes at the start of an episode: zeros, float32 ``[batch, S]``."""
        return torch.zeros(batch, self.state_size, device=next(self.parameters()).device)

    def update_layer_statistics(self, observation: Tensor, mask: Tensor) -> None:
        """Update the running statistics of encoders' layers, such as BatchNorm, with observations.

        Networks with such layers elsewhere override this method.

        Parameters
        ----------
        observation : Tensor
            Observations in their column's layout, ``[..., *shape]``.
        mask : Tensor
            Observations that count, bool ``[...]``; a single one changes nothing.
        """
        encoders = [encoder for name in ENCODERS if (encoder := getattr(self, name, None)) is not None]
        layers = [module for module in modules_with_modes(self) if has_statistics(module)]
        if layers and (rows := observation[mask]).shape[0] > 1:
            x = self.input(rows)
            with following(layers):
                for encoder in encoders:
                    encoder(x)

    @torch.no_grad()
    def constant_features(self, observation: Tensor) -> Tensor | None:
        """Return the share of the encoder's features that hardly differ between observations, 0-dimensional.

        A feature is constant if its standard deviation is at most `CONSTANT` times its root mean square: a relu that
        is always 0, or a saturated tanh. Such a feature has hardly any gradient.

        Parameters
        ----------
        observation : Tensor
            Observations in their column's layout, ``[N, *shape]``.

        Returns
        -------
        Tensor or None
            None: the network has no attribute ``encoder``, or the observations do not differ.
        """
        encoder = getattr(self, "encoder", None)
        if encoder is None or bool((observation == observation[0]).all()):
            return None
        features = encoder(self.input(observation)).float().flatten(1)
        size = features.square().mean(0).sqrt()
        return (features.std(0, correction=0) <= CONSTANT * size).float().mean()

    def update_observation_statistics(self, observation: Tensor, mask: Tensor | None = None) -> None:
        """Update running moments, if any, with observations ``[..., *shape]`` (those in ``mask``, bool ``[...]``)."""
        self.input.update_moments(observation, mask)
