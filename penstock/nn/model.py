"""Actor-critic network: action distributions and values of observations."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn

from penstock.nn.distributions import ContinuousActions, Distribution, distribution_of, legal_values, numbers_of
from penstock.nn.encoders import (
    ENCODER_NAMES,
    PUBLISHED_RESNET,
    EncoderBuilder,
    ResNetShape,
    build_encoder,
    takes_bytes,
)
from penstock.nn.layers import ACTIVATIONS, POLICY_GAIN, VALUE_GAIN, orthogonal
from penstock.nn.memory import MemoryCore
from penstock.nn.mlp import MLP, Chain, Mode, headed, largest, without_autocast
from penstock.nn.observations import RETURN_PRIOR_ROWS, NormalizedReturns, RunningMoments, build_input
from penstock.nn.policy_network import PolicyNetwork
from penstock.nn.sharing import in_shares

if TYPE_CHECKING:
    from penstock.envs.spaces import ActionSpec, ObservationSpec

LOG_STD_RANGE = (-20.0, 2.0)
# Limits of squashed actions before the tanh, within which float32 still distinguishes actions. The farthest mean is
# 0.03 % of the range from a bound, and deviations above 1 would mostly choose the bounds. With deviations below 0.05,
# returns would hardly depend on the action: normalised advantages would be noise, and the mean would stop short of the
# best action or drift away from it.
SQUASHED_MEAN_LIMIT = 4.0
SQUASHED_LOG_STD_RANGE = (-3.0, 0.0)
SQUASHED_LOG_STD = -0.1
MEMORIES = ("none", "gru", "lstm")


@dataclass(frozen=True)
class NetworkConfig:
    """Settings of an :class:`ActorCritic` or another network.

    Attributes
    ----------
    encoder
        "auto" (by observation), "mlp", "nature_cnn", "nature_cnn_mlp" or "impala_resnet"; or a custom ``nn.Module``
        class or callable that takes the observation spec (see :func:`penstock.nn.build_encoder`).
    hidden_sizes, activation
        Widths and activation ("tanh", "relu", "elu", "silu") of the mlp encoder.
    memory, memory_size
        Memory core after the encoder ("none", "gru", "lstm") and its width.
    memory_span
        Rows over which the untrained memory remembers (see :class:`penstock.nn.MemoryCore`), or None.
    burn_in
        First rows of a segment that only warm up the memory, without gradient.
    shared_encoder
        Whether policy and value share one encoder. ``None``: they do, except with mlp and no memory. With memory,
        ``False`` is not legal.
    normalize_observations
        Running normalisation of floating-point observations; others are never normalised.
    normalize_returns
        Whether the value head predicts returns minus their running mean, in units of their running deviation.
    layer_norm
        Whether layers of Penstock's own encoders are normalised before their activation.
    continuous_actions
        Distribution of numbers with two bounds: "squashed" (a normal one through a tanh, with a standard deviation that
        depends on the observation) or "clipped" (a normal one whose actions are clipped by the lanes, with the same
        standard deviation for all observations). If any number lacks a bound, all are clipped.
    initial_log_std
        Logarithm of the initial standard deviation of numbers, in units of half their range, before any tanh. ``None``:
        -0.1 if squashed, 0 if clipped.
    log_std_lr_scale
        Learning rate of the log standard deviation of clipped numbers, relative to other parameters.
    resnet
        Shape of "impala_resnet" in a :class:`penstock.nn.QNetwork`.

    Raises
    ------
    ValueError
        A field is not legal; the message names it.
    """

    encoder: str | EncoderBuilder = "auto"
    hidden_sizes: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    memory: str = "none"
    memory_size: int = 128
    memory_span: int | None = None
    burn_in: int = 0
    shared_encoder: bool | None = None
    normalize_observations: bool = False
    normalize_returns: bool = False
    layer_norm: bool = False
    continuous_actions: ContinuousActions = "clipped"
    initial_log_std: float | None = None
    log_std_lr_scale: float = 1.0
    resnet: ResNetShape = PUBLISHED_RESNET

    def __post_init__(self) -> None:
        if not callable(self.encoder):
            _require_known("encoder", self.encoder, ENCODER_NAMES, ", or a nn.Module class or callable")
        _require_known("activation", self.activation, tuple(ACTIVATIONS))
        _require_known("memory", self.memory, MEMORIES)
        _require_known("continuous_actions", self.continuous_actions, get_args(ContinuousActions))
        if any(size < 1 for size in self.hidden_sizes):
            raise ValueError(f"hidden_sizes={self.hidden_sizes} is not legal: every width must be 1 or more")
        if self.memory_size < 1:
            raise ValueError(f"memory_size={self.memory_size} is not legal: it must be 1 or more")
        if self.memory_span is not None and self.memory_span < 2:
            raise ValueError(f"memory_span={self.memory_span} is not legal: it must be 2 or more, or None")
        if self.memory != "none" and self.shared_encoder is False:
            raise ValueError(
                f"shared_encoder=False cannot be combined with memory={self.memory!r}: policy and value share the "
                "memory core; use shared_encoder=None, or memory='none'"
            )
        low, high = LOG_STD_RANGE
        if self.initial_log_std is not None and not low <= self.initial_log_std <= high:
            raise ValueError(f"initial_log_std={self.initial_log_std} is not legal: it must lie in [{low}, {high}]")
        if not 0.0 < self.log_std_lr_scale < math.inf:
            raise ValueError(f"log_std_lr_scale={self.log_std_lr_scale} must be more than 0, and finite")


class Observed(NamedTuple):
    """Outputs of an :class:`ActorCritic` for one row of each of N lanes.

    Attributes
    ----------
    distribution
        Distribution of the actions.
    value
        Values in units of the head, float32 ``[N]``.
    features
        Inputs of the policy's head, float32 ``[N, F]``; None if not needed.
    state
        Memory after the rows, float32 ``[N, S]``.
    """

    distribution: Distribution
    value: Tensor
    features: Tensor | None
    state: Tensor


class ActorCritic(PolicyNetwork, NormalizedReturns):
    """Policy and value function over one encoder or two, with an optional memory core after a shared one.

    Encoders may run under ``torch.autocast``; memory, heads and distributions compute in float32 regardless.

    Parameters
    ----------
    observation : ObservationSpec
        Spec of the observations.
    action : ActionSpec
        Spec of the actions, of any kind. A mask in the observations restricts the choices.
    config : NetworkConfig
        Settings of the network.

    Attributes
    ----------
    state_size : int
        Width ``S`` of a lane's memory state; 0 without memory.
    num_features : int
        Width ``F`` of the inputs of the policy's head.
    num_squashed : int
        Numbers of an action that are squashed: all or none.
    spread : nn.Parameter or None
        Logarithms of the standard deviations of clipped numbers, divided by ``log_std_lr_scale``: float32 ``[d]``.
        Saved as ``log_std``, undivided.
    """

    def __init__(self, observation: ObservationSpec, action: ActionSpec, config: NetworkConfig) -> None:
        super().__init__()
        self.observation_ndim = len(observation.shape)
        self.action = action
        self.input = build_input(observation, config.normalize_observations, takes_bytes(config.encoder, observation))

        def encoder() -> tuple[nn.Module, int]:
            return build_encoder(config.encoder, observation, config.hidden_sizes, config.activation)

        self.encoder, num_features = encoder()
        shared = config.shared_encoder
        if shared is None:
            shared = config.memory != "none" or not isinstance(self.encoder, MLP)
        self.value_encoder = None if shared else encoder()[0]

        self.burn_in = config.burn_in
        self.memory: MemoryCore | None = None
        if config.memory != "none":
            self.memory = MemoryCore(config.memory, num_features, config.memory_size, config.memory_span)
        self.state_size = 0 if self.memory is None else self.memory.state_size
        num_features = num_features if self.memory is None else self.memory.size

        self.num_features = num_features
        num_numbers = action.num_numbers
        squashes = num_numbers > 0 and numbers_of(action, config.continuous_actions) == "squashed"
        num_outputs = sum(action.choices) + num_numbers * (2 if squashes else 1)
        self.policy_head = orthogonal(nn.Linear(num_features, num_outputs), POLICY_GAIN)
        self.value_head = orthogonal(nn.Linear(num_features, 1), VALUE_GAIN)
        self.spread: nn.Parameter | None = None
        self._log_std_lr_scale = config.log_std_lr_scale
        self.num_squashed = num_numbers if squashes else 0
        if squashes:
            with torch.no_grad():
                self.policy_head.bias[-num_numbers:] = _output_of_squashed_log_std(config.initial_log_std)
        elif num_numbers:
            log_std = torch.full((num_numbers,), config.initial_log_std or 0.0)
            self.spread = nn.Parameter(log_std / self._log_std_lr_scale)
        self.return_moments = RunningMoments((), RETURN_PRIOR_ROWS) if config.normalize_returns else None

    def act(self, observation: Tensor, first: Tensor, state: Tensor) -> tuple[Distribution, Tensor]:
        """Return action distributions for one row of every lane, without values. See :meth:`PolicyNetwork.act`."""
        if self.chain.fits(observation):
            outputs, state = self.chain(observation, first, state)
            return self._distribution(outputs, observation), state
        features = self.encoder(self.input(observation))
        with without_autocast(features.device):
            features = features.float()
            if self.memory is not None:
                features, state = self.memory.step(features, first, state)
            return self._distribution(self.policy_head(features), observation), state

    def observe(self, observation: Tensor, first: Tensor, state: Tensor, *, needs_features: bool = True) -> Observed:
        """Return action distributions as `act` does, with values and, if needed, features of the rows."""
        if self.value_chain is not None and not needs_features and self.chain.fits(observation):
            outputs, state = self.chain(observation, first, state)
            value, _ = self.value_chain(observation)
            return Observed(self._distribution(outputs, observation), value.squeeze(-1), None, state)
        x = self.input(observation)
        features = self.encoder(x)
        value_features = None if self.value_encoder is None else self.value_encoder(x)
        with without_autocast(features.device):
            features = features.float()
            if self.memory is not None:
                features, state = self.memory.step(features, first, state)
            value = self.value_head(features if value_features is None else value_features.float()).squeeze(-1)
            distribution = self._distribution(self.policy_head(features), observation)
            return Observed(distribution, value, features, state)

    def features(self, observation: Tensor, first: Tensor, state: Tensor) -> Tensor:
        """Return the inputs of the policy's head for segments, float32 ``[T, B, F]``; parameters as for `evaluate`."""
        leading = observation.shape[: observation.ndim - self.observation_ndim]
        features = self.encoder(self.input(observation.flatten(0, len(leading) - 1)))
        with without_autocast(features.device):
            features = features.float().unflatten(0, leading)
            if self.memory is not None:
                features, _ = self.memory.unroll(features, first, state, self.burn_in)
            return features

    def evaluate(
        self, observation: Tensor, first: Tensor | None = None, state: Tensor | None = None
    ) -> tuple[Distribution, Tensor]:
        """Return distributions and values of many rows, with gradient.

        Parameters
        ----------
        observation : Tensor
            Observations in their column's layout. With memory time-major, ``[T, B, *shape]``; without, with any leading
            dimensions, including a flat minibatch ``[M, *shape]``.
        first : Tensor, optional
            Rows that begin an episode, bool ``[T, B]``; required with memory.
        state : Tensor, optional
            Memory before row 0, float32 ``[B, S]``; required with memory.

        Returns
        -------
        distribution : Distribution
            Over the leading dimensions of ``observation``.
        value : Tensor
            Values in units of the head (see :meth:`denormalize_value`), float32, one per row.

        Raises
        ------
        ValueError
            With memory, the rows are not time-major, or ``first`` or ``state`` is missing.
        """
        leading = observation.ndim - self.observation_ndim
        evaluate = self._evaluate_segments if leading == 2 else self._evaluate_rows
        return evaluate(observation, first, state)

    @in_shares(1, observation=1, first=1, state=0)
    def _evaluate_segments(
        self, observation: Tensor, first: Tensor | None, state: Tensor | None
    ) -> tuple[Distribution, Tensor]:
        return self._evaluate(observation, first, state)

    @in_shares(0, observation=0)
    def _evaluate_rows(
        self, observation: Tensor, first: Tensor | None, state: Tensor | None
    ) -> tuple[Distribution, Tensor]:
        return self._evaluate(observation, first, state)

    def _evaluate(self, observation: Tensor, first: Tensor | None, state: Tensor | None) -> tuple[Distribution, Tensor]:
        leading = observation.shape[: observation.ndim - self.observation_ndim]
        x = self.input(observation.flatten(0, len(leading) - 1))
        value = None if self.value_encoder is None else headed(self.value_encoder, x, self.value_head)
        if value is not None and self.memory is None:
            outputs = headed(self.encoder, x, self.policy_head).unflatten(0, leading)
            return self._distribution(outputs, observation), value.view(leading)
        features = self.encoder(x)
        with without_autocast(features.device):
            features = features.float().unflatten(0, leading)
            if self.memory is not None:
                if len(leading) != 2 or first is None or state is None:
                    raise ValueError(
                        f"a network with memory evaluates time-major observations [T, B, ...] with first [T, B] and "
                        f"state [B, {self.state_size}]; found leading dimensions {tuple(leading)}, "
                        f"first {'missing' if first is None else tuple(first.shape)}, "
                        f"state {'missing' if state is None else tuple(state.shape)}"
                    )
                features, _ = self.memory.unroll(features, first, state, self.burn_in)
            value = self.value_head(features).squeeze(-1) if value is None else value.view(leading)
            return self._distribution(self.policy_head(features), observation), value

    @cached_property
    def chain(self) -> Chain:
        """The network from observations to the outputs of the policy's head, in one call if it fits."""
        return Chain(self.input, self.encoder, self.memory, self.policy_head, self._mode)

    @cached_property
    def value_chain(self) -> Chain | None:
        """The network from observations to values, in one call if `chain` fits; None: values share an encoder."""
        return None if self.value_encoder is None else Chain(self.input, self.value_encoder, None, self.value_head)

    @property
    def log_std(self) -> Tensor | None:
        """Logarithms of the standard deviations of clipped numbers, float32 ``[d]``; None without such numbers.

        The parameter gets the logarithm's gradient: gradient norms and optimiser moments are the logarithm's, and each
        step of the logarithm is ``log_std_lr_scale`` times as long.
        """
        spread, step = self.spread, self._log_std_lr_scale
        return spread if spread is None or step == 1.0 else spread + (step - 1.0) * spread.detach()

    @torch.no_grad()
    def set_log_std(self, log_std: Tensor) -> None:
        """Set the logarithms of the standard deviations of clipped numbers, float ``[d]``."""
        assert self.spread is not None
        self.spread.copy_(log_std / self._log_std_lr_scale)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.spread is not None:
            destination[f"{prefix}log_std"] = self._log_std_lr_scale * destination.pop(f"{prefix}spread")

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        if f"{prefix}log_std" in state_dict:
            state_dict[f"{prefix}spread"] = state_dict.pop(f"{prefix}log_std") / self._log_std_lr_scale
        super()._load_from_state_dict(state_dict, prefix, *others)

    @property
    def _mode(self) -> Mode | None:
        """Function from the head's outputs to actions without exploration; None: several choices, or also numbers."""
        if self.num_squashed:
            return None if self.action.choices else self._squashed_mode
        if self.action.is_discrete:
            return largest
        return None if self.action.choices else _as_it_is

    def _distribution(self, outputs: Tensor, observation: Tensor) -> Distribution:
        mask = self.input.mask(observation)
        legal = None if mask is None else legal_values(mask, self.action.choices)
        if self.num_squashed:
            outputs, log_std = self._squashed(outputs)
            return distribution_of(self.action, outputs, log_std, legal, "squashed")
        own = self.log_std
        return distribution_of(self.action, outputs, None if own is None else own.clamp(*LOG_STD_RANGE), legal)

    def _squashed(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits of the choices and means of the numbers, and the logarithms of their standard deviations."""
        size = self.num_squashed
        logits, mean, x = outputs.split((outputs.shape[-1] - 2 * size, size, size), -1)
        mean = SQUASHED_MEAN_LIMIT * torch.tanh(mean / SQUASHED_MEAN_LIMIT)
        log_std = SQUASHED_LOG_STD_RANGE[0] * torch.sigmoid(x)
        return torch.cat((logits, mean), -1) if self.action.choices else mean, log_std

    def _squashed_mode(self, outputs: np.ndarray) -> np.ndarray:
        mean = outputs[:, : self.num_squashed]
        return np.tanh(SQUASHED_MEAN_LIMIT * np.tanh(mean / SQUASHED_MEAN_LIMIT))

    def value_layers(self) -> list[tuple[nn.Linear, bool]]:
        return [(self.value_head, True)]


def _as_it_is(outputs: np.ndarray) -> np.ndarray:
    return outputs


def _output_of_squashed_log_std(initial_log_std: float | None) -> float:
    """Return the output of the head that gives the initial standard deviation of squashed actions."""
    log_std, (low, high) = SQUASHED_LOG_STD if initial_log_std is None else initial_log_std, SQUASHED_LOG_STD_RANGE
    if not low < log_std < high:
        raise ValueError(
            f"initial_log_std={log_std} is not legal: with continuous_actions='squashed' it must lie between {low} and "
            f"{high}; or use continuous_actions='clipped'"
        )
    share = log_std / low
    return math.log(share / (1.0 - share))


def _require_known(field: str, found: object, legal: tuple[str, ...], besides: str = "") -> None:
    if found in legal:
        return
    near = difflib.get_close_matches(str(found), legal, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"{field}={found!r} is not legal: it must be one of {', '.join(map(repr, legal))}{besides}{hint}")
