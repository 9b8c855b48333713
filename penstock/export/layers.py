"""Networks as chains of linear layers with activations between them, if they are such chains when acting.

Batch normalisation, dueling streams, quantiles and the mean weights of noisy layers are linear, and are folded into
the layers beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from penstock.export.program import ExportError
from penstock.nn import (
    ActorCritic,
    BodyActorCritic,
    CategoricalReturns,
    DeterministicActorCritic,
    ImplicitQuantileReturns,
    NormalizedActorCritic,
    PolicyNetwork,
    QNetwork,
    QuantileReturns,
    StochasticActorCritic,
)
from penstock.nn.batch_renorm import NormalizedMLP
from penstock.nn.bodies import BodyEncoder, HiddenLayer, ResidualBlock
from penstock.nn.layers import ACTIVATIONS
from penstock.nn.mlp import MLP, SideBySide
from penstock.nn.norms import BatchNorm
from penstock.nn.q_heads import DuelingHead, NoisyDuelingHead

NETWORKS = (
    ActorCritic, QNetwork, DeterministicActorCritic, StochasticActorCritic, NormalizedActorCritic, BodyActorCritic,
)  # fmt: skip


class NotForC(ExportError):
    """Policy that a C file cannot hold; the message says which part, and which format can."""

    def __init__(self, what: str) -> None:
        super().__init__(f"format 'c' supports only MLPs without memory; {what}: use format 'onnx'")


@dataclass(frozen=True)
class Layer:
    """Linear layer with its normalisation and activation.

    Attributes
    ----------
    weight, bias
        float64 ``[outputs, inputs]`` and ``[outputs]``.
    norm
        Layer normalisation before the activation.
    activation
        Class of the activation: one of `penstock.nn.layers.ACTIVATIONS`.
    """

    weight: np.ndarray
    bias: np.ndarray
    norm: nn.LayerNorm | None = None
    activation: type[nn.Module] | None = None


def chain_of(model: PolicyNetwork) -> tuple[list[Layer], Tensor | None]:
    """Return the layers of a network between its first stage and its actions.

    Returns
    -------
    layers
        Outputs of the last layer: with `atoms`, the logits of each action's returns; otherwise one for each value of
        each choice, then one for each number of the action.
    atoms
        Returns that the logits belong to, float32 ``[n]``; None: no logits.

    Raises
    ------
    NotForC
        The network is not an MLP, or has a part that C files cannot hold.
    """
    kind = type(model)
    if kind not in NETWORKS:
        raise NotForC(f"the network of this policy is {kind.__module__}.{kind.__qualname__}")
    if model.state_size:
        raise NotForC("this policy has a memory")
    encoder = cast("nn.Module", model.encoder)
    if not isinstance(encoder, MLP | NormalizedMLP | BodyEncoder):
        raise NotForC(f"the encoder of this policy is {type(encoder).__module__}.{type(encoder).__qualname__}")
    layers = _chain([*_modules(encoder), *_head_of(model)])
    if not all(np.isfinite(array).all() for layer in layers for array in (layer.weight, layer.bias)):
        raise NotForC("a weight of this policy is infinite or not a number")
    if isinstance(model, StochasticActorCritic):  # the other outputs are deviations
        last, d = layers[-1], len(layers[-1].bias) // 2
        layers[-1] = replace(last, weight=last.weight[:d], bias=last.bias[:d])
    if isinstance(model, QNetwork):
        return _valued(layers, model.distribution)
    return layers, None


def _modules(encoder: nn.Module) -> Iterator[nn.Module | Layer]:
    if isinstance(encoder, BodyEncoder):
        if any(isinstance(part, ResidualBlock) for part in encoder.body):
            raise NotForC("this policy has residual blocks")
        yield from (_layer_of(part) if isinstance(part, HiddenLayer) else part for part in encoder.body)
        return
    if not isinstance(encoder, NormalizedMLP):
        yield from cast("MLP", encoder)
        return
    norms = iter(encoder.norms)
    yield next(norms)
    for layer in encoder.layers:
        yield from (layer, encoder.activation, next(norms))


def _layer_of(hidden: HiddenLayer) -> Layer:
    """Return a hidden layer as a linear one, with its batch normalisation folded into it."""
    linear = hidden.linear
    weight = numbers_of(linear.weight)[0].T
    bias = np.zeros(len(weight)) if linear.bias is None else numbers_of(linear.bias)[0, 0]
    if isinstance(hidden.norm, BatchNorm):
        scale, shift = _scale_and_shift(hidden.norm)
        weight, bias = weight * scale[:, None], bias * scale + shift
    elif not isinstance(hidden.norm, nn.Identity):
        raise NotForC(f"this policy normalises by {type(hidden.norm).__module__}.{type(hidden.norm).__qualname__}")
    return Layer(weight, bias, activation=type(hidden.activation))


def _scale_and_shift(norm: BatchNorm) -> tuple[np.ndarray, np.ndarray]:
    """Return a normalisation by running moments as the scale and the shift of each feature."""
    scale = numbers_of(norm.scale).ravel() / np.sqrt(numbers_of(norm.var).ravel() + norm.epsilon)
    return scale, numbers_of(norm.shift).ravel() - numbers_of(norm.mean).ravel() * scale


def _head_of(model: PolicyNetwork) -> list[nn.Module | Layer]:
    """Return the modules after the encoder; dueling streams are joined into linear layers."""
    if isinstance(model, ActorCritic):
        return [model.policy_head]
    if not isinstance(model, QNetwork):
        return [cast("nn.Module", model.actor_head)]
    head = model.head
    if isinstance(model.distribution, ImplicitQuantileReturns) and not isinstance(head, nn.Linear):
        raise NotForC("its dueling streams run once for each of 32 fractions of the return")
    if isinstance(head, DuelingHead):
        return [*head.hidden, _joined(head.value, head.advantage)]
    if isinstance(head, NoisyDuelingHead):
        (w, b), (v, c) = (_numbers_of(layer) for layer in (head.value_hidden, head.advantage_hidden))
        hidden = Layer(np.concatenate((w, v)), np.concatenate((b, c)))
        return [hidden, head.activation, _joined(head.value, head.advantage)]
    return [head]


def _joined(value: nn.Linear, advantage: nn.Linear) -> Layer:
    """Return the last layers of two streams as one, over the concatenated hidden layers of both."""
    (of_value, constant), (weight, bias) = _numbers_of(value), _numbers_of(advantage)
    outputs, width = of_value.shape
    by_action, biases = weight.reshape(-1, outputs, width), bias.reshape(-1, outputs)
    actions = len(biases)
    advantages = (by_action - by_action.mean(0)).reshape(-1, width)
    return Layer(
        np.concatenate((np.tile(of_value, (actions, 1)), advantages), 1), (constant + biases - biases.mean(0)).ravel()
    )


def _numbers_of(layer: nn.Linear) -> tuple[np.ndarray, np.ndarray]:
    return numbers_of(layer.weight), numbers_of(layer.bias)


def _chain(modules: Iterable[nn.Module | Layer]) -> list[Layer]:
    """Return modules as linear layers; a scale and a shift of inputs are folded into the next layer."""
    layers: list[Layer] = []
    scale: np.ndarray | np.float64 = np.float64(1.0)
    shift: np.ndarray | np.float64 = np.float64(0.0)
    for module in modules:
        if isinstance(module, Layer | nn.Linear):
            layer = module if isinstance(module, Layer) else Layer(*_numbers_of(module))
            weight = layer.weight
            layers.append(replace(layer, weight=weight * scale, bias=layer.bias + (weight * shift).sum(1)))
            scale, shift = np.float64(1.0), np.float64(0.0)
        elif isinstance(module, BatchNorm):
            scale, shift = _scale_and_shift(module)
        elif isinstance(module, nn.LayerNorm) and module.bias is not None:
            layers[-1] = replace(layers[-1], norm=module)
        elif type(module) in ACTIVATIONS.values():
            layers[-1] = replace(layers[-1], activation=type(module))
        elif not isinstance(module, SideBySide | nn.Identity):
            raise NotForC(f"the network of this policy contains {type(module).__module__}.{type(module).__qualname__}")
    return layers


def _valued(layers: list[Layer], distribution: nn.Module | None) -> tuple[list[Layer], Tensor | None]:
    """Return layers whose outputs are values of actions, and atoms, if the outputs are still logits."""
    last = layers[-1]
    if isinstance(distribution, CategoricalReturns):
        return layers, distribution.atoms
    if isinstance(distribution, ImplicitQuantileReturns):
        width = last.weight.shape[1]
        factors = distribution.at(torch.ones(width), None).mean(0)  # mean factor of each feature, over all fractions
        last = replace(last, weight=last.weight * numbers_of(factors))
    elif isinstance(distribution, QuantileReturns):
        n = distribution.num_outputs
        weight = last.weight.reshape(-1, n, last.weight.shape[1]).mean(1)
        last = replace(last, weight=weight, bias=last.bias.reshape(-1, n).mean(1))
    elif distribution is not None:
        raise NotForC(f"its returns are {type(distribution).__module__}.{type(distribution).__qualname__}")
    return [*layers[:-1], last], None


def numbers_of(tensor: Tensor) -> np.ndarray:
    """Return a tensor as a float64 array."""
    return tensor.detach().double().numpy()
