"""Q-network: values of all discrete actions, and choices by value."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from penstock._native import choose_greedily
from penstock.nn.distributions import ILLEGAL, legal_values
from penstock.nn.encoders import PUBLISHED_RESNET, ImpalaResNet, build_encoder, takes_bytes
from penstock.nn.layers import normalize_layers_
from penstock.nn.memory import MemoryCore
from penstock.nn.mlp import MLP, Chain, computes_natively, largest, without_autocast
from penstock.nn.model import NetworkConfig
from penstock.nn.modes import evaluating
from penstock.nn.noisy import NoisyLinear, noise_of_lanes
from penstock.nn.observations import RETURN_PRIOR_ROWS, NormalizedReturns, RunningMoments, build_input
from penstock.nn.policy_network import PolicyNetwork
from penstock.nn.q_heads import DuelingHead, NoisyDuelingHead
from penstock.nn.return_distributions import CategoricalReturns, ImplicitQuantileReturns, ReturnDistribution
from penstock.nn.sharing import in_shares

if TYPE_CHECKING:
    from penstock.envs.spaces import ActionSpec, ObservationSpec

RETURN_ROWS = 10_000.0  # values that learn from themselves change in size: earlier returns are forgotten


class EpsilonGreedy:
    """Action of the highest value, or with probability ``epsilon`` any legal action.

    Parameters
    ----------
    q : Tensor
        Action values, float32 ``[..., A]``; :data:`ILLEGAL` for illegal actions.
    epsilon : float or Tensor
        Probability of an action drawn uniformly from all legal ones, in [0, 1]; a number, or float32 broadcast to
        ``[...]``.
    legal : Tensor, optional
        Legal actions, bool ``[..., A]``, at least one; default: all.

    Attributes
    ----------
    q, epsilon, legal
        As given.
    """

    __slots__ = ("epsilon", "legal", "q")

    def __init__(self, q: Tensor, epsilon: float | Tensor, legal: Tensor | None = None) -> None:
        self.q = q
        self.epsilon = epsilon
        self.legal = legal

    def sample(self, noise: Tensor) -> Tensor:
        """Choose actions, int64 ``[...]``, by one random number each: noise uniform in [0, 1), float32 ``[..., 1]``.

        Noise below ``epsilon`` is uniform over [0, epsilon): its position in that interval selects the random action
        among the legal ones.
        """
        if self.legal is None and computes_natively(self.q, noise):
            return self._choose_natively(noise)
        noise = noise.squeeze(-1)
        explores = noise < self.epsilon
        # With epsilon 0 the quotient is not a number, but then no lane explores.
        fraction = torch.where(explores, noise / self.epsilon, 0.0)
        # On CUDA, division by a number multiplies by its inverse, which can round to 1.
        if self.legal is None:
            num_actions = self.q.shape[-1]
            action = (fraction * num_actions).long().clamp_(max=num_actions - 1)
        else:
            num_legal = self.legal.cumsum(-1)  # up to and including each action
            number = (fraction * num_legal[..., -1]).long().clamp_(max=num_legal[..., -1] - 1)
            action = (num_legal <= number.unsqueeze(-1)).sum(-1)
        return torch.where(explores, action, self.mode())

    def _choose_natively(self, noise: Tensor) -> Tensor:
        q, noise, epsilon, epsilons = self.q.contiguous(), noise.contiguous(), self.epsilon, None
        if isinstance(epsilon, Tensor):
            epsilons, epsilon = epsilon.float().expand(noise.shape[:-1]).contiguous(), 0.0
        action = torch.empty(noise.shape[:-1], dtype=torch.int64)
        choose_greedily(
            q.data_ptr(), action.numel(), q.shape[-1], epsilon, 0 if epsilons is None else epsilons.data_ptr(),
            noise.data_ptr(), action.data_ptr(),
        )  # fmt: skip
        return action

    def drawn(self, noise: Tensor) -> EpsilonGreedy:
        """Return the values to choose by; the noise is ignored (see :class:`NoisyGreedy`)."""
        return self

    def mode(self) -> Tensor:
        """Return the action of the highest value (the first of several), int64 ``[...]``."""
        return self.q.argmax(-1)


class NoisyGreedy:
    """Like :class:`EpsilonGreedy`, with the values of a noisy network; a lane's random number selects its noise.

    Parameters
    ----------
    values : callable
        Function of random numbers, float32 ``[..., 1]``, or ``None`` for no noise, that returns values ``[..., A]``.
    epsilon, legal
        As for :class:`EpsilonGreedy`.
    """

    __slots__ = ("epsilon", "legal", "values")

    def __init__(
        self, values: Callable[[Tensor | None], Tensor], epsilon: float | Tensor, legal: Tensor | None = None
    ) -> None:
        self.values = values
        self.epsilon = epsilon
        self.legal = legal

    def drawn(self, noise: Tensor) -> EpsilonGreedy:
        """Return the values to choose by, given the noise: uniform in [0, 1), float32 ``[..., 1]``."""
        return EpsilonGreedy(self.values(noise), self.epsilon, self.legal)

    def sample(self, noise: Tensor) -> Tensor:
        """Choose actions by noisy values, int64 ``[...]``; noise as for `drawn`."""
        return self.drawn(noise).sample(noise)

    def mode(self) -> Tensor:
        """Return the action of the highest value without noise, int64 ``[...]``."""
        return self.values(None).argmax(-1)


class QNetwork(PolicyNetwork, NormalizedReturns):
    """Action values over one encoder, with an optional memory core after it, and one stream or two.

    The encoder may run under ``torch.autocast``; memory, heads and values compute in float32 regardless.

    With ``dueling`` (arXiv:1511.06581, equation 9) two streams, each with a hidden layer as wide as the features,
    give a value and advantages:

        Q(o, a) = V(o) + A(o, a) - mean_b A(o, b)

    and the gradient into the encoder is scaled by 1/sqrt(2) (section 4.2 there).

    With ``distribution`` the head gives several numbers per action, which describe the distribution of the return; the
    action's value is the mean return. Dueling streams are then joined number by number (arXiv:1710.02298).

    With ``noisy_sigma`` all layers of the head are noisy (arXiv:1706.10295). A pass without noise uses their mean
    weights.

    Parameters
    ----------
    observation : ObservationSpec
        Spec of the observations.
    action : ActionSpec
        Spec of the discrete actions.
    config : NetworkConfig
        Settings; ``encoder``, ``hidden_sizes``, ``activation``, ``memory``, ``memory_size``,
        ``memory_span``, ``layer_norm``, ``normalize_observations`` and ``normalize_returns`` apply.
    dueling : bool
        Whether to use two streams instead of one linear layer.
    epsilon : float
        Probability of a random choice in :meth:`act`; may be changed at any time, also to one number per lane.
    distribution : callable, optional
        Function of the features' width that makes the distribution of returns; default: action values alone.
    noisy_sigma : float, optional
        ``sigma_0`` of :class:`NoisyLinear`; default: no noisy layers.

    Attributes
    ----------
    epsilon : float or Tensor
        As given.
    distribution : ReturnDistribution or None
        The distribution made by the callable.
    noise_size : int
        Random numbers per pass; 0 without noisy layers.
    state_size : int
        Width ``S`` of a lane's memory state; 0 without memory.

    Raises
    ------
    ValueError
        Actions are not discrete.
    """

    def __init__(
        self, observation: ObservationSpec, action: ActionSpec, config: NetworkConfig, *, dueling: bool, epsilon: float,
        distribution: Callable[[int], ReturnDistribution] | None = None, noisy_sigma: float | None = None,
    ) -> None:  # fmt: skip
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
        self.distribution = None if distribution is None else distribution(num_features)
        num_outputs = 1 if self.distribution is None else self.distribution.num_outputs
        self.head: nn.Module
        if dueling and noisy_sigma is not None:
            self.head = NoisyDuelingHead(num_features, action.num_actions, activation, num_outputs, noisy_sigma)
        elif dueling:
            self.head = DuelingHead(num_features, action.num_actions, activation, num_outputs)
        elif noisy_sigma is not None:
            self.head = NoisyLinear(num_features, action.num_actions * num_outputs, noisy_sigma)
        else:
            self.head = nn.Linear(num_features, action.num_actions * num_outputs)
        self.noise_size = self.head.noise_size if isinstance(self.head, NoisyLinear | NoisyDuelingHead) else 0
        self.return_moments = None
        if config.normalize_returns:
            self.return_moments = RunningMoments((), RETURN_PRIOR_ROWS, RETURN_ROWS)

    def act(
        self, observation: Tensor, first: Tensor, state: Tensor, epsilon: float | Tensor | None = None
    ) -> tuple[EpsilonGreedy | NoisyGreedy, Tensor]:
        """Return choices for one row of every lane. See :meth:`PolicyNetwork.act`.

        Parameters
        ----------
        observation, first, state
            As for :meth:`PolicyNetwork.act`.
        epsilon : float or Tensor, optional
            As for :class:`EpsilonGreedy`; default: the network's.
        """
        legal = self.legal(observation)
        epsilon = self.epsilon if epsilon is None else epsilon
        if self.chain.fits(observation):
            outputs, state = self.chain(observation, first, state)
            return EpsilonGreedy(self._mean(outputs, legal), epsilon, legal), state
        features = self.encoder(self.input(observation))
        with without_autocast(features.device):
            features = features.float()
            if self.memory is not None:
                features, state = self.memory.step(features, first, state)
            if not self.noise_size:
                return EpsilonGreedy(self._masked_q(features, legal), epsilon, legal), state

        def values(number: Tensor | None) -> Tensor:
            with without_autocast(features.device):
                noise = None if number is None else noise_of_lanes(number, self.noise_size)
                return self._masked_q(features, legal, noise)

        return NoisyGreedy(values, epsilon, legal), state

    @cached_property
    def chain(self) -> Chain:
        """The network from observations to the outputs of the head, in one call if it fits."""
        # Quantiles at sampled fractions need the features.
        needs_features = isinstance(self.distribution, ImplicitQuantileReturns)
        head = nn.Identity() if needs_features else self.head
        return Chain(self.input, self.encoder, self.memory, head, largest if self.distribution is None else None)

    def legal(self, observation: Tensor) -> Tensor | None:
        """Return the legal actions, bool ``[..., A]``; ``None`` for observations ``[..., *shape]`` without a mask."""
        mask = self.input.mask(observation)
        return None if mask is None else legal_values(mask, self.choices)

    @in_shares(0, observation=0)
    def q(self, observation: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return the values of all actions, for a network without memory.

        Parameters
        ----------
        observation : Tensor
            Observations in their column's layout, ``[N, *shape]``.
        noise : Tensor, optional
            Noise of noisy layers, the same for all rows, float32 ``[noise_size]``.

        Returns
        -------
        Tensor
            Values, float32 ``[N, A]``; :data:`ILLEGAL` for illegal actions.

        Raises
        ------
        ValueError
            The network has a memory: its values depend on earlier rows, see :meth:`unroll`.
        """
        features = self._features(observation)
        with without_autocast(features.device):
            return self._masked_q(features.float(), self.legal(observation), noise)

    @in_shares(0, observation=0, fractions=0)
    def distributions(
        self, observation: Tensor, noise: Tensor | None = None, fractions: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the distributions of returns for all actions; for a network with distributions and no memory.

        Parameters
        ----------
        observation, noise
            As for :meth:`q`.
        fractions : Tensor, optional
            Fractions of the quantiles of :class:`ImplicitQuantileReturns`, float32 ``[N, K]``; unused by others.

        Returns
        -------
        outputs : Tensor
            Parameters of each return's distribution, float32 ``[N, A, M]``: logits of the atoms, or quantiles.
        q : Tensor
            Mean returns, float32 ``[N, A]``; :data:`ILLEGAL` for illegal actions.

        Raises
        ------
        ValueError
            The network has a memory.
        """
        assert self.distribution is not None
        features = self._features(observation)
        with without_autocast(features.device):
            outputs = self._outputs(features.float(), noise, fractions)
            return outputs, _masked(self.distribution.mean(outputs), self.legal(observation))

    @in_shares(1, observation=1, first=1, state=0)
    def unroll(
        self, observation: Tensor, first: Tensor, state: Tensor, burn_in: int = 0, noise: Tensor | None = None
    ) -> Tensor:
        """Return the values of all actions along sequences, for a network with memory.

        Parameters
        ----------
        observation : Tensor
            Observations in their column's layout, ``[T, B, *shape]``.
        first : Tensor
            Rows that begin an episode, before which memory is reset, bool ``[T, B]``.
        state : Tensor
            Memory before row 0, float32 ``[B, S]``.
        burn_in : int
            First rows that only warm up the memory: no values, no gradient.
        noise : Tensor, optional
            As for :meth:`q`.

        Returns
        -------
        Tensor
            Values of the later rows, float32 ``[T - burn_in, B, A]``; :data:`ILLEGAL` for illegal actions.

        Raises
        ------
        ValueError
            The network has no memory.
        """
        if burn_in:
            with torch.no_grad(), evaluating(self):
                _, state = self._remember(observation[:burn_in], first[:burn_in], state)
            observation, first = observation[burn_in:], first[burn_in:]
        features, _ = self._remember(observation, first, state)
        with without_autocast(features.device):
            return self._masked_q(features, self.legal(observation), noise)

    def _features(self, observation: Tensor) -> Tensor:
        """Return features ``[N, F]`` of a network without memory."""
        if self.memory is not None:
            raise ValueError("a network with memory has no values of single observations: use unroll, or act")
        features: Tensor = self.encoder(self.input(observation))
        return features

    def _remember(self, observation: Tensor, first: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return features ``[T, B, H]`` after the memory, and the state after the last row."""
        if self.memory is None:
            raise ValueError("a network without memory has nothing to unroll: use q")
        features = self.encoder(self.input(observation.flatten(0, 1)))
        with without_autocast(features.device):
            return self.memory.unroll(features.float().unflatten(0, first.shape), first, state)

    def _masked_q(self, features: Tensor, legal: Tensor | None, noise: Tensor | None = None) -> Tensor:
        if isinstance(self.distribution, ImplicitQuantileReturns):
            return _masked(self.distribution.mean(self._outputs(features, noise)), legal)
        return self._mean(self._head(features, noise), legal)

    def _mean(self, outputs: Tensor, legal: Tensor | None) -> Tensor:
        """Return the values of all actions, ``[..., A]``, from the outputs of the head."""
        if self.distribution is None:
            return _masked(self.denormalize_value(outputs), legal)
        return _masked(self.distribution.mean(self._by_action(outputs)), legal)

    def _outputs(self, features: Tensor, noise: Tensor | None, fractions: Tensor | None = None) -> Tensor:
        """Return the parameters of the return distributions, ``[..., A, M]``."""
        if isinstance(self.distribution, ImplicitQuantileReturns):
            features = self.distribution.at(features, fractions)
            noise = None if noise is None else noise.unsqueeze(-2)
            return self.denormalize_value(self._head(features, noise)).transpose(-1, -2)
        return self._by_action(self._head(features, noise))

    def _by_action(self, outputs: Tensor) -> Tensor:
        assert self.distribution is not None
        outputs = outputs.unflatten(-1, (-1, self.distribution.num_outputs))
        return outputs if isinstance(self.distribution, CategoricalReturns) else self.denormalize_value(outputs)

    def value_layers(self) -> list[tuple[nn.Linear, bool]]:
        if isinstance(self.head, DuelingHead | NoisyDuelingHead):
            return [(self.head.value, True), (self.head.advantage, False)]
        assert isinstance(self.head, nn.Linear)
        return [(self.head, True)]

    def _head(self, features: Tensor, noise: Tensor | None) -> Tensor:
        outputs: Tensor = self.head(features) if noise is None else self.head(features, noise)
        return outputs


def _masked(q: Tensor, legal: Tensor | None) -> Tensor:
    return q if legal is None else q.masked_fill(~legal, ILLEGAL)


def feedforward_encoder(observation: ObservationSpec, config: NetworkConfig) -> tuple[nn.Module, int]:
    """Build a config's encoder, for networks that learn from single transitions and have no memory.

    Raises
    ------
    ValueError
        ``config.memory`` is not ``"none"``; also as for :func:`encoder_near_zero`.
    """
    if config.memory != "none":
        raise ValueError(
            f"memory={config.memory!r} is not legal here: single transitions are replayed, but a memory needs "
            "sequences (recurrent Q-learning is R2D2); use memory='none'"
        )
    return encoder_near_zero(observation, config)


def encoder_near_zero(observation: ObservationSpec, config: NetworkConfig) -> tuple[nn.Module, int]:
    """Build a config's encoder for values learned from replay.

    Layers of Penstock's own encoders start with torch's initialisation, uniform within 1/sqrt(inputs), as in the code
    published with DQN, DDPG, TD3 and SAC: initial values lie near 0, while orthogonal layers with relu keep the input's
    scale.

    Parameters
    ----------
    observation : ObservationSpec
        Spec of the observations.
    config : NetworkConfig
        Settings that name the encoder.

    Returns
    -------
    encoder : nn.Module
        Network from the first stage's output to features ``[N, F]``; see :func:`penstock.nn.build_encoder`.
    output_size : int
        ``F``.

    Raises
    ------
    ValueError
        As for :func:`penstock.nn.build_encoder`.
    """
    encoder, num_features = build_encoder(
        config.encoder, observation, config.hidden_sizes, config.activation, config.resnet
    )
    if config.resnet != PUBLISHED_RESNET and not any(isinstance(part, ImpalaResNet) for part in encoder.modules()):
        raise ValueError(
            "resnet_width, resnet_pool and spectral_norm are for impala_resnet, which this run does not have: use "
            "encoder='impala_resnet' with images, or leave them out"
        )
    if not callable(config.encoder):
        for layer in encoder.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                layer.reset_parameters()
    return encoder, num_features
