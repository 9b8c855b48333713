"""Networks for continuous actions: a deterministic or a stochastic actor, and critics of its actions."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from penstock.nn.encoders import NatureCNNAndMLP, takes_bytes
from penstock.nn.exploration import Deterministic, TanhGaussian
from penstock.nn.layers import ACTIVATIONS, require_memory_of_layers
from penstock.nn.mlp import FUSED_ACTIVATIONS, MLP, Chain, SideBySide, fits, fused_layers, headed, without_autocast
from penstock.nn.model import NetworkConfig
from penstock.nn.observations import build_input, encoder_input_size
from penstock.nn.policy_network import PolicyNetwork
from penstock.nn.q_network import feedforward_encoder
from penstock.nn.sharing import in_shares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.envs.spaces import ActionSpec, ObservationSpec
    from penstock.nn.return_distributions import CategoricalReturns

IMAGE_CRITIC_SIZES = (256,)
"""Default widths of the critics' own layers over a shared encoder."""


class ContinuousActorCritic(PolicyNetwork):
    """Base of the networks for continuous actions: observations, actor trunk and critics.

    For vectors, actor and critics have separate layers (``config.hidden_sizes``), and critics take observation and
    action side by side. With images or a custom encoder, the actor has one encoder and the critics share another; its
    features and the action are the input of each critic's own layers, by default 256 units. With
    ``encoder="nature_cnn_mlp"``, the critics share only the convolutions, and by default have the actor's widths.

    Encoders and the critics' hidden layers may run under ``torch.autocast``; all else computes in float32 regardless.

    Parameters
    ----------
    observation : ObservationSpec
        Spec of the observations.
    action : ActionSpec
        Spec of the actions: vectors of ``d`` numbers in [-1, 1].
    config : NetworkConfig
        Settings; ``encoder``, ``hidden_sizes``, ``activation`` and ``normalize_observations`` apply.
    num_critics : int
        Number ``C`` of critics.
    num_quantiles : int
        Number ``M`` of quantiles per critic; 1: the mean return.
    critic_sizes : tuple of int, optional
        Widths of the critics' own hidden layers; default: as above.
    outputs_per_dimension : int
        Outputs of the actor for each of the ``d`` numbers.
    make_critics : callable, optional
        Function that makes the critics, with the parameters and calls of :class:`Critics`, the default.

    Attributes
    ----------
    state_size : int
        Width of a lane's memory state: 0.
    returns : CategoricalReturns or None
        Support of the distributions whose logits the critics give; None: values or quantiles.

    Raises
    ------
    ValueError
        The actions contain a choice, or ``config.memory`` is not ``"none"``.
    """

    def __init__(
        self, observation: ObservationSpec, action: ActionSpec, config: NetworkConfig, *, num_critics: int,
        outputs_per_dimension: int, num_quantiles: int = 1, critic_sizes: tuple[int, ...] | None = None,
        make_critics: Callable[..., nn.Module] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if action.choices:
            raise ValueError(
                f"this network chooses continuous actions; found {action.kind} ones: use an algorithm for those"
            )
        self.returns: CategoricalReturns | None = None
        self._outputs_per_dimension = outputs_per_dimension
        self.input = build_input(observation, config.normalize_observations, takes_bytes(config.encoder, observation))
        self.encoder, num_features = feedforward_encoder(observation, config)
        self.actor_head = nn.Linear(num_features, outputs_per_dimension * action.noise_size)
        default_sizes = config.hidden_sizes
        if isinstance(self.encoder, MLP):
            self.critic_encoder: nn.Module = SideBySide()
            num_features = encoder_input_size(observation)
        elif isinstance(self.encoder, NatureCNNAndMLP):
            self.critic_encoder, num_features = feedforward_encoder(observation, replace(config, encoder="nature_cnn"))
        else:
            self.critic_encoder, _ = feedforward_encoder(observation, config)
            default_sizes = IMAGE_CRITIC_SIZES
        sizes, num_inputs = default_sizes if critic_sizes is None else critic_sizes, num_features + action.noise_size
        self.critics: Any = (make_critics or Critics)(num_inputs, sizes, config.activation, num_critics, num_quantiles)

    def actor(self, observation: Tensor) -> Tensor:
        """Return the actor's outputs for observations ``[N, *shape]`` of the column, float32 ``[N, numbers]``."""
        if self.chain.fits(observation):
            return self.chain(observation)[0]
        x = self.input(observation)
        return headed(self.encoder, x, self.actor_head)

    @cached_property
    def chain(self) -> Chain:
        """The actor from observations to its outputs, in one call if it fits."""
        return Chain(self.input, self.encoder, None, self.actor_head, self._mode)

    def _mode(self, outputs: np.ndarray) -> np.ndarray:
        """Return the actions without exploration, from the outputs of the actor: means come first."""
        return np.tanh(outputs[:, : outputs.shape[1] // self._outputs_per_dimension])

    @in_shares(1, observation=0, action=0)
    def q(self, observation: Tensor, action: Tensor) -> Tensor:
        """Return values by all critics, float32 ``[C, N]``; with several quantiles ``[C, N, M]``.

        Parameters
        ----------
        observation : Tensor
            Observations in their column's layout, ``[N, *shape]``.
        action : Tensor
            Actions in [-1, 1], float32 ``[N, d]``.
        """
        features = self.critic_encoder(self.input(observation))
        q: Tensor = self.critics(torch.cat((features.float(), action), -1))
        return q

    def values(self, observation: Tensor, action: Tensor) -> Tensor:
        """Return values by all critics, float32 ``[C, N]``: means of distributions. Parameters as for :meth:`q`."""
        q = self.q(observation, action)
        return q if self.returns is None else self.returns.mean(q)

    @in_shares(0, observation=0, action=0)
    def q1(self, observation: Tensor, action: Tensor) -> Tensor:
        """Return values by the first critic only, float32 ``[N]``; the others do not run. Parameters as for :meth:`q`.

        For critics without quantiles.
        """
        features = self.critic_encoder(self.input(observation))
        q: Tensor = self.critics.first(torch.cat((features.float(), action), -1))
        return q

    @in_shares(1, observation=0, action=0, next_observation=0, next_action=0)
    def joint_q(
        self, observation: Tensor, action: Tensor, next_observation: Tensor, next_action: Tensor, end: int | None = None
    ) -> tuple[Tensor, ...]:
        """Return the values of both ends of transitions by all critics, for critics that normalise by the batch.

        Separate batches would be normalised by different moments: the policy's actions are distributed differently from
        replayed ones (arXiv:1902.05605, section 3.2).

        Parameters
        ----------
        observation, next_observation : Tensor
            Observations in their column's layout, ``[N, *shape]``.
        action, next_action : Tensor
            Actions in [-1, 1], float32 ``[N, d]``.
        end : int, optional
            Return only the values of this end, 0 or 1; the last layer of `BodyCritics` then runs on its rows only.

        Returns
        -------
        q, next_q : Tensor
            Values, float32 ``[C, N]``; with several quantiles ``[C, N, M]``.
        """
        features = self.critic_encoder(self.input(torch.cat((observation, next_observation))))
        x = torch.cat((features.float(), torch.cat((action, next_action))), -1)
        count = len(observation)
        if end is None:
            return tuple(self.critics(x).split(count, 1))
        return (self.critics(x, slice(end * count, (end + 1) * count)),)

    def actor_parameters(self) -> list[nn.Parameter]:
        """Return the parameters trained by the actor's loss, in a fixed order."""
        return [*self.encoder.parameters(), *self.actor_head.parameters()]

    def critic_parameters(self) -> list[nn.Parameter]:
        """Return the parameters trained by the critics' loss, in a fixed order."""
        return [*self.critic_encoder.parameters(), *self.critics.parameters()]


class DeterministicActorCritic(ContinuousActorCritic):
    """Deterministic policy with critics, for DDPG (arXiv:1509.02971) and TD3 (arXiv:1802.09477).

    Parameters
    ----------
    observation, action, config, num_critics
        As for :class:`ContinuousActorCritic`.
    exploration_std : float
        Standard deviation of :meth:`act`'s exploration noise, in units of actions in [-1, 1].
    critic_sizes
        As for :class:`ContinuousActorCritic`.
    returns : CategoricalReturns, optional
        Support of the distributions whose logits the critics give; default: values.
    """

    def __init__(
        self, observation: ObservationSpec, action: ActionSpec, config: NetworkConfig, *, num_critics: int,
        exploration_std: float, critic_sizes: tuple[int, ...] | None = None, returns: CategoricalReturns | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            observation, action, config, num_critics=num_critics, outputs_per_dimension=1, critic_sizes=critic_sizes,
            num_quantiles=1 if returns is None else returns.num_outputs,
        )  # fmt: skip
        self.exploration_std = exploration_std
        self.returns = returns

    @in_shares(0, observation=0)
    def policy(self, observation: Tensor) -> Tensor:
        """Return actions in [-1, 1], float32 ``[N, d]``, for observations ``[N, *shape]`` of the column."""
        return self.actor(observation).tanh()

    def act(self, observation: Tensor, first: Tensor, state: Tensor) -> tuple[Deterministic, Tensor]:
        """Return choices for one row of every lane, without critics. See :meth:`PolicyNetwork.act`."""
        return Deterministic(self.policy(observation), self.exploration_std), state


class StochasticActorCritic(ContinuousActorCritic):
    """Squashed normal policy with critics and a temperature, for SAC (arXiv:1812.05905).

    Parameters
    ----------
    observation, action, config, num_critics, num_quantiles, critic_sizes, make_critics
        As for :class:`ContinuousActorCritic`.
    initial_alpha : float
        Initial temperature.
    clips_log_std : bool
        As for :class:`TanhGaussian`.

    Attributes
    ----------
    log_alpha : nn.Parameter
        Logarithm of the temperature, float32 ``[]``; in neither the actor's nor the critics' parameters.
    """

    def __init__(
        self, observation: ObservationSpec, action: ActionSpec, config: NetworkConfig, *, num_critics: int,
        initial_alpha: float = 1.0, num_quantiles: int = 1, critic_sizes: tuple[int, ...] | None = None,
        clips_log_std: bool = False, make_critics: Callable[..., nn.Module] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            observation, action, config,
            num_critics=num_critics, outputs_per_dimension=2, num_quantiles=num_quantiles, critic_sizes=critic_sizes,
            make_critics=make_critics,
        )  # fmt: skip
        self.clips_log_std = clips_log_std
        self.log_alpha = nn.Parameter(torch.tensor(math.log(initial_alpha)))

    @in_shares(0, observation=0)
    def policy(self, observation: Tensor) -> TanhGaussian:
        """Return distributions over ``[N, d]`` actions for observations ``[N, *shape]`` of the column."""
        return TanhGaussian(self.actor(observation), self.clips_log_std)

    def act(self, observation: Tensor, first: Tensor, state: Tensor) -> tuple[TanhGaussian, Tensor]:
        """Return choices for one row of every lane, without critics. See :meth:`PolicyNetwork.act`."""
        return self.policy(observation), state


class Critics(nn.Module):
    """Several networks of the same sizes over the same input; one tensor holds a layer of all of them.

    Hidden layers may run under ``torch.autocast``; values are computed in float32 regardless.

    Layers start like ``nn.Linear``, uniform within 1/sqrt(inputs), independently for each critic.

    Parameters
    ----------
    input_size : int
        Width ``I`` of the input: features and action side by side.
    hidden_sizes : tuple of int
        Widths of each critic's hidden layers.
    activation : str
        Activation of the hidden layers.
    num_critics : int
        Number ``C`` of critics.
    num_quantiles : int
        Number ``M`` of quantiles per critic.
    """

    def __init__(
        self, input_size: int, hidden_sizes: tuple[int, ...], activation: str, num_critics: int, num_quantiles: int = 1
    ) -> None:
        super().__init__()
        self.num_critics = num_critics
        self.sizes = sizes = (input_size, *hidden_sizes)
        require_memory_of_layers(sizes, num_critics)
        self.activation_name = activation
        self.can_be_fused = activation in FUSED_ACTIVATIONS and len(hidden_sizes) > 0
        self.hidden = nn.ModuleList(StackedLinear(num_critics, *layer) for layer in pairwise(sizes))
        self.head = StackedLinear(num_critics, sizes[-1], num_quantiles)
        # In place if possible: nothing else uses a layer's output, and memory traffic costs time.
        self.activation = nn.ReLU(inplace=True) if activation == "relu" else ACTIVATIONS[activation]()

    def forward(self, x: Tensor) -> Tensor:
        """Return values ``[C, N]`` of inputs ``[N, I]``; with several quantiles ``[C, N, M]``."""
        if self.can_be_fused and fits(x):
            return self._fused(x, self.num_critics)
        x = x.expand(self.num_critics, *x.shape)
        for layer in cast("Iterable[StackedLinear]", self.hidden):
            x = self.activation(layer(x))
        return self.values(x)

    def values(self, x: Tensor) -> Tensor:
        """Return values, as `forward` does, from the last hidden layer ``[C, N, H]``."""
        with without_autocast(x.device):
            if self.head.weight.shape[-1] > 1:
                quantiles: Tensor = self.head(x.float())
                return quantiles
            # For a single output a sum is several times as fast as a matrix product.
            return (x.float() * self.head.weight.mT).sum(-1) + self.head.bias.squeeze(-1)

    def first(self, x: Tensor) -> Tensor:
        """Return the first critic's values ``[N]`` of inputs ``[N, I]``."""
        if self.can_be_fused and fits(x):
            return self._fused(x, 1).view(-1)
        for layer in cast("Iterable[StackedLinear]", self.hidden):
            x = self.activation(torch.addmm(layer.bias[0], x, layer.weight[0]))
        with without_autocast(x.device):
            return (x.float() * self.head.weight[0].mT).sum(-1) + self.head.bias[0, 0]

    def _fused(self, x: Tensor, count: int) -> Tensor:
        layers = cast("list[StackedLinear]", [*self.hidden, self.head])
        parameters = [each for layer in layers for each in (layer.weight, layer.bias)]
        return fused_layers(
            x, parameters, self.sizes, num_networks=self.num_critics, count=count,
            num_outputs=self.head.weight.shape[-1], activation=self.activation_name,
        )  # fmt: skip


class StackedLinear(nn.Module):
    """Weights and biases of one linear layer in each of several networks.

    Parameters
    ----------
    num_networks, input_size, output_size : int
        Numbers ``C`` of networks, ``I`` of inputs and ``O`` of outputs.

    Attributes
    ----------
    weight, bias : nn.Parameter
        float32 ``[C, I, O]`` and ``[C, 1, O]``.
    """

    def __init__(self, num_networks: int, input_size: int, output_size: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(input_size)
        self.weight = nn.Parameter(torch.empty(num_networks, input_size, output_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(num_networks, 1, output_size).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs ``[C, N, O]`` of inputs ``[C, N, I]``."""
        return torch.baddbmm(self.bias, x, self.weight)
