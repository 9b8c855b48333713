"""Weights of Stable-Baselines3 in Penstock's networks, with differences of units folded into the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.exchange import ExchangeError
from penstock.exchange.sb3_files import Normalization
from penstock.nn.continuous import ContinuousActorCritic, StochasticActorCritic
from penstock.nn.model import LOG_STD_RANGE, ActorCritic
from penstock.nn.observations import ObservationInput, unmasked
from penstock.nn.q_network import QNetwork

Layer = tuple[Tensor, Tensor]
"""Weight and bias."""

CLIP = 10.0
"""Bound of normalised observations, that of `RunningMoments.normalize`."""


@dataclass(frozen=True)
class Network:
    """Layers between an observation and a head: those of a Nature CNN, if any, and fully connected ones."""

    convolutions: list[Layer]
    hidden: list[Layer]

    @property
    def layers(self) -> list[Layer]:
        return [*self.convolutions, *self.hidden]

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(len(bias) for _, bias in self.hidden)


class Inputs:
    """Differences between the inputs of a saved network and of Penstock's, folded into the first layer.

    Parameters
    ----------
    space
        Observation space of the model.
    observation
        Observations of the run.
    divides_images
        Whether the model divides images by 255.
    """

    def __init__(self, space: spaces.Space, observation: ObservationSpec, divides_images: bool) -> None:
        self._spec = spec = unmasked(observation)
        is_image = isinstance(space, spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8
        is_full = is_image and bool((space.low == 0).all() and (space.high == 255).all())  # type: ignore[attr-defined]
        self._factor = 1.0 / 255.0 if is_full and divides_images else 1.0
        self._is_turned = is_image and space.shape != spec.shape  # here channels are last

    def through_convolution(self, layer: Layer) -> Layer:
        """Return the first convolution, adapted to the run's images of bytes or floating-point numbers."""
        if self._spec.brightest is None and self._spec.dtype == "uint8":
            raise ExchangeError("the bytes of its images have different bounds")
        factor = self._factor * (self._spec.brightest or 1.0)
        return (layer[0] * factor if abs(factor - 1.0) > 1e-12 else layer[0]), layer[1]

    def through_layer(self, layer: Layer) -> Layer:
        """Return the first fully connected layer, adapted to the run's observations, which are its first columns."""
        (weight, bias), scaling, shape = layer, self._spec.scaling, self._spec.shape
        if self._is_turned:
            order = torch.arange(math.prod(shape)).view(shape[2], *shape[:2]).permute(1, 2, 0).flatten()
            weight = torch.cat((weight[:, order], weight[:, len(order) :]), 1)
        if scaling is None and self._factor == 1.0:
            return weight, bias
        size = math.prod(shape)
        origin, unit = (
            torch.tensor(values, dtype=torch.float64).expand(size)
            for values in (scaling or ((0,), (1.0,)))
        )  # fmt: skip
        own = weight[:, :size].double()
        bias = (bias.double() + (own * (origin * self._factor)).sum(1)).float()
        factor = unit * self._factor
        factor = torch.where((factor - 1.0).abs() < 1e-12, 1.0, factor)
        return torch.cat(((own * factor).float(), weight[:, size:]), 1), bias


@torch.no_grad()
def fill(
    model: Any, algorithm: Algorithm, networks: Mapping[str, Any], inputs: Inputs, variables: Mapping[str, Tensor]
) -> None:
    """Set the parameters of a network to those of a saved one."""
    for parameter in model.parameters():
        parameter.fill_(math.nan)
    _fill_encoder(model.encoder, networks["actor"], inputs)
    if isinstance(model, ActorCritic):
        if model.value_encoder is not None:
            _fill_encoder(model.value_encoder, networks["critic"], inputs)
        head, log_std = _own_units(networks["head"], networks["log_std"], algorithm.action)
        _set(model.policy_head, head)
        _set(model.value_head, networks["value"])
        if model.spread is not None:
            if log_std is None or not bool(((log_std >= LOG_STD_RANGE[0]) & (log_std <= LOG_STD_RANGE[1])).all()):
                raise ExchangeError(f"log_std={log_std} in units of [-1, 1] is not in {list(LOG_STD_RANGE)}")
            model.set_log_std(log_std)
    elif isinstance(model, QNetwork):
        _set(cast("nn.Linear", model.head), networks["head"])
    elif isinstance(model, ContinuousActorCritic):
        _set(model.actor_head, networks["head"])
        _fill_critics(model, networks, inputs)
        if isinstance(model, StochasticActorCritic):
            model.log_alpha.copy_(variables.get("log_ent_coef", torch.zeros(1)).reshape(()))
    if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
        raise ExchangeError("its weights hold NaN or infinity")


def _fill_encoder(encoder: nn.Module, network: Network, inputs: Inputs) -> None:
    modules = [module for module in encoder.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    layers = network.layers
    if layers:
        first = inputs.through_convolution if network.convolutions else inputs.through_layer
        layers = [first(layers[0]), *layers[1:]]
    for module, layer in zip(modules, layers, strict=True):
        _set(module, layer)


def _fill_critics(model: ContinuousActorCritic, networks: Mapping[str, Any], inputs: Inputs) -> None:
    if networks["encoder"].convolutions:
        _fill_encoder(model.critic_encoder, networks["encoder"], inputs)
    stacks = [*model.critics.hidden, model.critics.head]
    for number, layers in enumerate(networks["critics"]):
        if not networks["encoder"].convolutions:
            layers = [inputs.through_layer(layers[0]), *layers[1:]]
        if len(layers) != len(stacks):
            raise ExchangeError("its critics have different numbers of layers")
        for stack, (weight, bias) in zip(stacks, layers, strict=True):
            _copy(cast("Tensor", stack.weight)[number], weight.T)
            _copy(cast("Tensor", stack.bias)[number, 0], bias)


def _own_units(head: Layer, log_std: Tensor | None, action: ActionSpec) -> tuple[Layer, Tensor | None]:
    """Return PPO's last layer, and log standard deviations, in the units of Penstock's actions."""
    weight, bias = head
    if action.nvec and len(bias) * 2 == sum(action.nvec):  # MultiBinary: one logit for each value
        paired = torch.stack((torch.zeros_like(weight), weight), 1), torch.stack((torch.zeros_like(bias), bias), 1)
        return (paired[0].flatten(0, 1), paired[1].flatten()), None
    if log_std is None or action.low is None or action.high is None:
        return head, log_std
    low, high = (torch.tensor(bounds, dtype=torch.float64) for bounds in (action.low, action.high))
    is_bounded = low.isfinite() & high.isfinite()
    scale = torch.where(is_bounded, (high - low) / 2, 1.0)
    centre = torch.where(is_bounded, (high + low) / 2, 0.0)
    weight, bias = (weight.double() / scale.unsqueeze(1)).float(), ((bias.double() - centre) / scale).float()
    return (weight, bias), (log_std.double() - scale.log()).float()


def normalize(stage: Any, moments: Normalization) -> None:
    """Set the running moments of observations."""
    stages = [module for module in stage.modules() if isinstance(module, ObservationInput)]
    own = stages[0].moments if len(stages) == 1 else None
    assert moments.mean is not None and moments.std is not None
    if own is None or own.mean.numel() != moments.mean.size:
        raise ExchangeError(
            f"the VecNormalize normalises observations of shape {moments.mean.shape}, but here only floating-point "
            f"numbers are normalised; found {stages[0].describe()['']}"
        )
    mean, std = (torch.from_numpy(values).float().view_as(own.mean) for values in (moments.mean, moments.std))
    own.mean.copy_(mean)
    own.std.copy_(std)
    own.var.copy_(std.square())
    own.count.fill_(moments.count)


def _set(module: nn.Linear | nn.Conv2d, layer: Layer) -> None:
    _copy(module.weight, layer[0])
    assert module.bias is not None
    _copy(module.bias, layer[1])


def _copy(own: Tensor, its: Tensor) -> None:
    if own.shape != its.shape:
        raise ExchangeError(f"a layer has the shape {tuple(its.shape)}, but {tuple(own.shape)} is needed")
    own.copy_(its)
