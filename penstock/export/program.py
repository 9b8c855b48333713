"""Policies as programs: one pure function from raw observations and memory to the environment's actions."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from penstock.algorithms.arithmetic.rescaling import inverse_rescale
from penstock.config import ConfigError
from penstock.envs.masks import offers_nothing
from penstock.envs.spaces import ActionSpec, ObservationPart, ObservationSpec
from penstock.nn import ActorCritic, PolicyNetwork, QNetwork, TanhGaussian
from penstock.nn.continuous import ContinuousActorCritic

if TYPE_CHECKING:
    from penstock.play.policy import Policy

OBSERVATION, STATE, FIRST, MASK, NOISE = "obs", "state_in", "first", "mask", "noise"
ACTION, NEXT_STATE, LOG_PROB, VALUE = "action", "state_out", "log_prob", "value"

_FAR = 100.0  # numbers with wider bounds are drawn near 0


class ExportError(ConfigError):
    """A policy cannot be exported, or a file does not do what its contract says; the message says why."""


@dataclass(frozen=True)
class Port:
    """Input or output of a program.

    Attributes
    ----------
    name
        Name in files: "obs" or "obs/PATH", "state_in", "first", "mask", "noise"; "action" or "action/PATH",
        "state_out", "log_prob", "value".
    dtype
        NumPy dtype name.
    shape
        Shape of one row. Arrays of the port are ``[N, *shape]``.
    spec
        Spec of an observation's or action's leaf; None for other ports.
    path
        Path of the leaf in the environment's observation or action; "" for a plain one.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    spec: ObservationSpec | ActionSpec | None = None
    path: str = ""


class PolicyProgram(nn.Module):
    """Policy as one function from named input arrays of N rows to named output arrays.

    It has everything between the environment's raw observations and its actions: preprocessing, running
    normalisation, network, memory, mask, choice of action, and the conversion into the action space. The network is
    the policy's own. `torch.export` traces the program with any number of rows.

    Parameters
    ----------
    policy
        Loaded policy.
    sampled
        Whether actions are sampled with the input ``noise`` instead of being the most probable ones.
    everything
        Whether outputs include ``log_prob`` and ``value`` where the network has them.

    Attributes
    ----------
    inputs, outputs : tuple of Port
        Ports, in the order of the files.
    """

    def __init__(self, policy: Policy, *, sampled: bool = False, everything: bool = False) -> None:
        super().__init__()
        self.model: PolicyNetwork = policy.model
        self.observation: ObservationSpec = policy.algorithm.observation
        self.action: ActionSpec = policy.algorithm.action
        self.sampled = sampled
        self.everything = everything
        self._is_rescaled = bool(getattr(policy.algorithm.config, "rescale_values", False))
        self.inputs = tuple(self._inputs())
        with torch.no_grad():
            found = self(self.examples(2))  # also fills caches of constants, which tracing must find
        self.outputs = tuple(self._outputs(found))

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Choose actions.

        Parameters
        ----------
        inputs
            Arrays ``[N, *shape]`` of all of `inputs`.

        Returns
        -------
        dict
            Arrays ``[N, *shape]`` of all of `outputs`, in that order. ``log_prob`` is the log-probability of the
            action, or the log-density of its numbers before their scaling. ``value`` is in units of the rewards that
            the policy learned from: the value of the observation, the largest of the action values, or the smallest
            of the critics' values of the action.
        """
        rows = self._rows(inputs)
        count = next(iter(inputs.values())).shape[0]
        first = inputs.get(FIRST, torch.ones(count, dtype=torch.bool))
        state = inputs.get(STATE, torch.zeros(count, 0))
        noise = inputs.get(NOISE)
        further = {}
        choice: Any
        if self.everything and isinstance(self.model, ActorCritic):
            choice, value, _, after = self.model.observe(rows, first, state)
            further[VALUE] = self.model.denormalize_value(value)
        else:
            choice, after = self.model.act(rows, first, state)
        chosen = choice.mode() if noise is None else choice.sample(noise)
        outputs = {_name(ACTION, path): leaf for path, leaf in environment_action(self.action, chosen)}
        if STATE in inputs:
            outputs[NEXT_STATE] = after
        return outputs | (self._further(choice, rows, chosen, noise, further) if self.everything else {})

    def exported(self) -> torch.export.ExportedProgram:
        """Return the program as traced by `torch.export`, with any number of rows.

        Raises
        ------
        ExportError
            The network cannot be traced.
        """
        inputs = self.examples(2)
        rows = {name: {0: torch.export.Dim("batch")} for name in inputs}
        needs_gradient = [parameter for parameter in self.parameters() if parameter.requires_grad]
        try:
            for parameter in needs_gradient:
                parameter.requires_grad_(False)
            with torch.no_grad():
                return torch.export.export(self, (inputs,), dynamic_shapes=(rows,), strict=False)
        except Exception as error:  # of any type, from any module of the network
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise ExportError(
                f"torch.export cannot trace this network with any number of rows: {reason}. The modules of a custom "
                "encoder must be made of tensor operations, without branches on values and without NumPy"
            ) from error
        finally:
            for parameter in needs_gradient:
                parameter.requires_grad_(True)

    def examples(self, count: int, seed: int = 0) -> dict[str, Tensor]:
        """Return random inputs of `count` rows: observations within their bounds, memory, resets, masks and noise."""
        random = np.random.default_rng(seed)
        return {port.name: torch.from_numpy(self._drawn(port, count, random)) for port in self.inputs}

    def _inputs(self) -> Iterator[Port]:
        observation, action = self.observation, self.action
        for path, spec in observation_leaves(observation):
            yield Port(_name(OBSERVATION, path), spec.dtype, spec.shape, spec, path)
        if self.model.state_size:
            yield Port(STATE, "float32", (self.model.state_size,))
            yield Port(FIRST, "bool", ())
        if observation.mask is not None:
            yield Port(MASK, "bool", (sum(action.choices),))
        if self.sampled:
            yield Port(NOISE, "float32", (action.noise_size,))

    def _outputs(self, found: dict[str, Tensor]) -> Iterator[Port]:
        leaves = {_name(ACTION, path): (path, leaf) for path, leaf in action_leaves(self.action)}
        for name, tensor in found.items():
            path, spec = leaves.get(name, ("", None))
            yield Port(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape[1:]), spec, path)

    def _rows(self, inputs: dict[str, Tensor]) -> Any:
        """Return observations as networks take them: a tensor, or the leaves of a composite by path."""
        leaves = {
            path: _from_zero(inputs[_name(OBSERVATION, path)], spec)
            for path, spec in observation_leaves(self.observation)
        }
        if not self.observation.parts:
            return leaves[""]
        mask = self.observation.mask
        return leaves if mask is None else {**leaves, mask.path: inputs[MASK]}

    def _further(
        self, choice: Any, rows: Any, chosen: Tensor, noise: Tensor | None, found: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return log-probability and value of the chosen actions, if the network has them."""
        model = self.model
        if isinstance(choice, TanhGaussian):
            found[LOG_PROB] = choice.sample_with_log_prob(torch.zeros_like(chosen) if noise is None else noise)[1]
        elif hasattr(choice, LOG_PROB):
            found[LOG_PROB] = choice.log_prob(chosen)
        if isinstance(model, QNetwork):
            if noise is not None:
                choice = choice.drawn(noise)
            q = choice.q if hasattr(choice, "q") else choice.values(None)
            value = q.amax(-1)
            found[VALUE] = cast("Tensor", inverse_rescale(value)) if self._is_rescaled else value
        elif isinstance(model, ContinuousActorCritic):
            q = model.q(rows, chosen)
            found[VALUE] = (q if q.ndim == 2 else q.mean(-1)).amin(0)
        return {name: found[name] for name in (LOG_PROB, VALUE) if name in found}

    def _drawn(self, port: Port, count: int, random: np.random.Generator) -> np.ndarray:
        """Return random values of an input."""
        shape = (count, *port.shape)
        if isinstance(port.spec, ObservationSpec):
            return _observed(port.spec, shape, random)
        if port.dtype == "bool":
            drawn = random.random(shape) < 0.5
            return drawn if port.name != MASK else drawn | offers_nothing(drawn, self.action.choices)[:, np.newaxis]
        if port.name == NOISE and self.action.noise == "uniform":
            return random.random(shape, np.float32)
        return random.standard_normal(shape, np.float32)


@contextmanager
def in_silence(name: str) -> Iterator[None]:
    """Hide warnings, and messages of the logger of this name, within the block."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def observation_leaves(observation: ObservationSpec) -> list[tuple[str, ObservationSpec]]:
    """Return path and spec of every leaf that the network sees; a plain observation has the path ""."""
    parts = observation.parts or (ObservationPart("", observation, 0),)
    return [(part.path, part.spec) for part in parts]


def action_leaves(action: ActionSpec, path: str = "") -> Iterator[tuple[str, ActionSpec]]:
    """Yield path and spec of every leaf of an action; a plain action has the path ""."""
    if not action.parts:
        yield path, action
    for number, (key, part) in enumerate(action.parts):
        yield from action_leaves(part, f"{path}/{number if key is None else key}".lstrip("/"))


def environment_action(action: ActionSpec, chosen: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield path and values of every leaf of the environment's actions, like `penstock.envs.columns.ActionDecoder`.

    Parameters
    ----------
    action
        Spec of the actions.
    chosen
        Actions of the policy, ``[N, *action.column_shape]``.
    """
    begins = {True: 0, False: len(action.choices)}  # columns of the next leaf with and without choices
    for path, leaf in action_leaves(action):
        begin = begins[bool(leaf.choices)]
        begins[bool(leaf.choices)] = end = begin + leaf.noise_size
        columns = chosen if action.is_discrete else chosen[:, begin] if leaf.is_discrete else chosen[:, begin:end]
        yield path, _leaf_action(leaf, columns)


def _leaf_action(leaf: ActionSpec, chosen: Tensor) -> Tensor:
    dtype: torch.dtype = getattr(torch, leaf.dtype)
    if leaf.is_discrete:
        return (chosen.to(torch.int64) + leaf.start).to(dtype)
    if leaf.nvec:
        chosen = chosen.to(torch.int64) + torch.tensor(leaf.starts)
    else:
        is_exact = dtype.itemsize <= (4 if dtype.is_floating_point else 2)  # in float32
        chosen = _scaled(leaf, chosen.to(torch.float32 if is_exact else torch.float64))
        chosen = chosen if dtype.is_floating_point else chosen.round()
    return chosen.to(dtype).reshape(-1, *leaf.shape)


def _scaled(leaf: ActionSpec, numbers: Tensor) -> Tensor:
    """Scale numbers with two bounds from [-1, 1] to these, and clip numbers with any bound."""
    assert leaf.low is not None and leaf.high is not None
    low, high = np.array(leaf.low), np.array(leaf.high)
    has_low, has_high = np.isfinite(low), np.isfinite(high)
    if not (has_low | has_high).any():
        return numbers
    is_bounded = has_low & has_high
    below, above = np.where(is_bounded, low, -1.0), np.where(is_bounded, high, 1.0)
    scale, centre, least, most = (
        torch.tensor(values, dtype=numbers.dtype) for values in ((above - below) / 2, (above + below) / 2, low, high)
    )
    return torch.minimum(torch.maximum(numbers * scale + centre, least), most)


def _from_zero(observed: Tensor, spec: ObservationSpec) -> Tensor:
    """Return raw values of a leaf as its column has them: choices counted from 0."""
    if spec.num_values is not None:
        return observed - spec.start if spec.start else observed
    return observed - torch.tensor(spec.starts) if any(spec.starts) else observed


def _observed(spec: ObservationSpec, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Return random raw values of a leaf within its bounds."""
    if spec.num_values is not None or spec.nvec:
        counts, starts = (spec.num_values, spec.start) if spec.num_values is not None else (spec.nvec, spec.starts)
        return random.integers(starts, np.add(starts, counts), shape)
    dtype = np.dtype(spec.dtype)
    limits = (0, 255) if dtype == np.uint8 else (-math.inf, math.inf)
    low, high = (
        np.resize(np.array(default if bounds is None else bounds, np.float64), shape[1:])
        for bounds, default in zip((spec.low, spec.high), limits, strict=True)
    )
    is_near = np.isfinite(low) & np.isfinite(high) & (high / 2 - low / 2 <= (_FAR if dtype.kind == "f" else math.inf))
    at, width = np.where(is_near, low, 0.0), np.where(is_near, high - np.where(is_near, low, 0.0), 1.0)
    values = np.where(is_near, at + width * random.random(shape), 3.0 * random.standard_normal(shape))
    if dtype.kind == "b":
        return random.random(shape) < 0.5
    if dtype.kind in "iu":
        values = np.clip(np.rint(values), np.iinfo(dtype).min, np.iinfo(dtype).max)
    return np.clip(values, low, high).astype(dtype)


def _name(kind: str, path: str) -> str:
    return f"{kind}/{path}" if path else kind
