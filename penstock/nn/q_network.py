"""The Q-network: observations in, the value of every discrete action out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from penstock.nn.activations import ACTIVATIONS
from penstock.nn.distributions import ILLEGAL, legal_values
from penstock.nn.encoders import MLP, build_encoder, takes_bytes
from penstock.nn.exploration import EpsilonGreedy
from penstock.nn.layer_norm import normalize_layers_
from penstock.nn.memory import MemoryCore
from penstock.nn.model import NetworkConfig, without_autocast
from penstock.nn.observations import build_input
from penstock.nn.policy_network import PolicyNetwork

if TYPE_CHECKING:
    from penstock.envs.spaces import ActionSpec, ObservationSpec

TRUNK_GRADIENT_SCALE = math.sqrt(0.5)


class QNetwork(PolicyNetwork):
    """Action values over one encoder, with an optional memory core behind it, and one stream or two.

    The encoder may run under ``torch.autocast``; memory, heads and values compute in float32 regardless.

    With ``dueling`` (arXiv:1511.06581, equation 9) two streams, each of a hidden layer as wide as the features,
    end in a value and in advantages:

        Q(o, a) = V(o) + A(o, a) - mean_b A(o, b)

    and the gradient that enters the encoder is scaled by 1/sqrt(2) (section 4.2 there).

    Parameters
    ----------
    observation : ObservationSpec
        What the network sees.
    action : ActionSpec
        The discrete actions it values.
    config : NetworkConfig
        What it is made of; of it ``encoder``, ``hidden_sizes``, ``activation``, ``memory``, ``memory_size``,
        ``memory_span``, ``layer_norm`` and ``normalize_observations`` apply.
    dueling : bool
        Two streams instead of one linear layer.
    epsilon : float
        How often :meth:`act` chooses at random; may be set anew at any time, also to one number for each lane.

    Attributes
    ----------
    epsilon : float or Tensor
        As given.
    state_size : int
        Width ``S`` of a lane's memory state; 0 without memory.

    Raises
    ------
    ValueError
        When actions are not discrete.
    """

    def __init__(
        self, observation: ObservationSpec, action: ActionSpec, config: NetworkConfig, *, dueling: bool, epsilon: float
    ) -> None:
        super().__init__()
        if action.num_actions is None:
            raise ValueError(
                f"a Q-network values discrete actions; found {action.kind} ones: use an algorithm for those"
            )
        self.epsilon: float | Tensor = epsilon
        self.choices = action.choices
        self.input = build_input(observation, config.normalize_observations, takes_bytes(config.encoder, observation))
        self.encoder, num_features = encoder_near_zero(observation, config)
        if config.layer_norm and not callable(config.encoder):
            normalize_layers_(self.encoder)
        self.memory: MemoryCore | None = None
        if config.memory != "none":
            self.memory = MemoryCore(config.memory, num_features, config.memory_size, config.memory_span)
            self.state_size, num_features = self.memory.state_size, self.memory.size
        activation = config.activation if isinstance(self.encoder, MLP) else "relu"
        self.head = (
            DuelingHead(num_features, action.num_actions, activation)
            if dueling
            else nn.Linear(num_features, action.num_actions)
        )

    def act(
        self, observation: Tensor, first: Tensor, state: Tensor, epsilon: float | Tensor | None = None
    ) -> tuple[EpsilonGreedy, Tensor]:
        """Choose how to act on one row of every lane. See :meth:`PolicyNetwork.act`.

        Parameters
        ----------
        observation, first, state
            As there.
        epsilon : float or Tensor, optional
            As :class:`EpsilonGreedy` takes it; that of the network when left out.
        """
        legal = self.legal(observation)
        features = self.encoder(self.input(observation))
        with without_autocast(features.device):
            features = features.float()
            if self.memory is not None:
                features, state = self.memory.step(features, first, state)
            q = self._masked_q(features, legal)
        return EpsilonGreedy(q, self.epsilon if epsilon is None else epsilon, legal), state

    def legal(self, observation: Tensor) -> Tensor | None:
        """Which actions are legal, bool ``[..., A]``; ``None`` where observations ``[..., *shape]`` do not say."""
        mask = self.input.mask(observation)
        return None if mask is None else legal_values(mask, self.choices)

    def q(self, observation: Tensor) -> Tensor:
        """Values of all actions, of a network without memory.

        Parameters
        ----------
        observation : Tensor
            Observations as they lie in their column, ``[N, *shape]``.

        Returns
        -------
        Tensor
            Values, float32 ``[N, A]``; :data:`ILLEGAL` for illegal actions.

        Raises
        ------
        ValueError
            When the network has a memory: its values depend on what came before, see :meth:`unroll`.
        """
        if self.memory is not None:
            raise ValueError("a network with memory has no values of single observations: use unroll, or act")
        features = self.encoder(self.input(observation))
        with without_autocast(features.device):
            return self._masked_q(features.float(), self.legal(observation))

    def unroll(self, observation: Tensor, first: Tensor, state: Tensor, burn_in: int = 0) -> Tensor:
        """Values of all actions along sequences, of a network with memory.

        Parameters
        ----------
        observation : Tensor
            Observations as they lie in their column, ``[T, B, *shape]``.
        first : Tensor
            Which of them begin an episode (memory is forgotten before), bool ``[T, B]``.
        state : Tensor
            Memory before row 0, float32 ``[B, S]``.
        burn_in : int
            First rows that only bring the memory up to date: no values, no gradient.

        Returns
        -------
        Tensor
            Values of the rows after these, float32 ``[T - burn_in, B, A]``; :data:`ILLEGAL` for illegal actions.

        Raises
        ------
        ValueError
            When the network has no memory.
        """
        if burn_in:
            with torch.no_grad():
                _, state = self._remember(observation[:burn_in], first[:burn_in], state)
            observation, first = observation[burn_in:], first[burn_in:]
        features, _ = self._remember(observation, first, state)
        with without_autocast(features.device):
            return self._masked_q(features, self.legal(observation))

    def _remember(self, observation: Tensor, first: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Features ``[T, B, H]`` behind the memory, and the state after the last row."""
        if self.memory is None:
            raise ValueError("a network without memory has nothing to unroll: use q")
        features = self.encoder(self.input(observation.flatten(0, 1)))
        with without_autocast(features.device):
            return self.memory.unroll(features.float().unflatten(0, first.shape), first, state)

    def _masked_q(self, features: Tensor, legal: Tensor | None) -> Tensor:
        q: Tensor = self.head(features)
        return q if legal is None else q.masked_fill(~legal, ILLEGAL)


class DuelingHead(nn.Module):
    """Values of all actions from features, ``Q = V + A - mean A``, over two hidden layers as wide as the features.

    Parameters
    ----------
    num_features : int
        Width ``F`` of the features.
    num_actions : int
        Number ``A`` of actions.
    activation : str
        Activation of the hidden layers.
    """

    def __init__(self, num_features: int, num_actions: int, activation: str) -> None:
        super().__init__()
        # Both streams' hidden layers as one, the value's first: one product of matrices instead of two.
        self.hidden = nn.Sequential(nn.Linear(num_features, 2 * num_features), ACTIVATIONS[activation]())
        self.value = nn.Linear(num_features, 1)
        self.advantage = nn.Linear(num_features, num_actions)

    def forward(self, features: Tensor) -> Tensor:
        """Turn features ``[..., F]`` into values ``[..., A]``; the gradient on its way back to them is scaled."""
        if features.requires_grad:
            # A view of its own, so that the hook scales only what comes from here.
            features = features.view_as(features)
            features.register_hook(_scale_trunk_gradient)
        value_features, advantage_features = self.hidden(features).chunk(2, -1)
        advantage = self.advantage(advantage_features)
        return self.value(value_features) + advantage - advantage.mean(-1, keepdim=True)


def _scale_trunk_gradient(gradient: Tensor) -> Tensor:
    return gradient * TRUNK_GRADIENT_SCALE


def feedforward_encoder(observation: ObservationSpec, config: NetworkConfig) -> tuple[nn.Module, int]:
    """Build the encoder that a config names, for networks that learn from single transitions and have no memory.

    Raises
    ------
    ValueError
        When ``config.memory`` is not ``"none"``, or as :func:`encoder_near_zero` says.
    """
    if config.memory != "none":
        raise ValueError(
            f"memory={config.memory!r} is not legal here: single transitions are replayed, and a memory needs "
            "sequences (recurrent Q-learning is R2D2); use memory='none'"
        )
    return encoder_near_zero(observation, config)


def encoder_near_zero(observation: ObservationSpec, config: NetworkConfig) -> tuple[nn.Module, int]:
    """Build the encoder that a config names, for values that are learned from replay.

    Layers of Penstock's own encoders start as torch's do, uniform within 1/sqrt(inputs), as in the code published with
    DQN, DDPG, TD3 and SAC: first values then lie near 0, where orthogonal ones with relu keep the input's scale.

    Parameters
    ----------
    observation : ObservationSpec
        What is encoded.
    config : NetworkConfig
        Names the encoder.

    Returns
    -------
    encoder : nn.Module
        Network of what the first stage gives into features ``[N, F]``, as :func:`penstock.nn.build_encoder` says.
    output_size : int
        ``F``.

    Raises
    ------
    ValueError
        As :func:`penstock.nn.build_encoder` says.
    """
    encoder, num_features = build_encoder(config.encoder, observation, config.hidden_sizes, config.activation)
    if not callable(config.encoder):
        for layer in encoder.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                layer.reset_parameters()
    return encoder, num_features
