"""Settings: frozen dataclasses, validated when they are made.

A field is defined once, here or in its algorithm's file. It is a keyword argument in Python, a flag on the command
line (its docstring is the flag's help) and a key of ``config.json`` in the run directory.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import os
import re
import tomllib
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from penstock.imports import NoSuchPlaceError, load_module, place_of

C = TypeVar("C", bound="Config")

PRESETS = Path(__file__).parent / "presets"


class ConfigError(ValueError):
    """A setting is unknown, of the wrong type, or outside what is legal. The message names the field."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings shared by every algorithm."""

    env: str | Callable[..., Any]
    """Gymnasium id, "module:Class", "file.py:Class"; in Python also a callable returning an environment, or a class."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments for the environment."""
    vectorize: Literal["make", "vector"] = "make"
    """"make": one environment per lane; "vector": the environment's own vector class."""
    on_env_error: Literal["stop", "restart"] = "stop"
    """An exception or NaN in an environment ends the run, or restarts its worker and is counted."""
    reward_scale: float = 1.0
    """Rewards are multiplied by this for learning; reported returns stay true."""
    reward_clip: float | None = None
    """Scaled rewards are clipped to [-reward_clip, reward_clip] for learning; reported returns stay true."""

    num_workers: int | None = None
    """Rollout workers; None: one per core, at most 16."""
    num_envs_per_worker: int = 16
    """Lanes per rollout worker."""
    num_groups: int | None = None
    """Groups of lanes per worker that step in turn; None: 2 with central inference, 1 with local."""
    inference: Literal["auto", "local", "central"] = "auto"
    """Where actions are chosen: in each rollout worker, or in a policy worker that batches all of them."""
    backend: Literal["local", "serial"] = "local"
    """"local": one process per role; "serial": everything in this process, reproducible bit for bit."""
    device: str = "cpu"
    """Torch device of the learner and of central inference: "cpu", "cuda", "cuda:1", ..."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32."""
    seed: int = 0
    """Seeds weights, environments and exploration."""

    encoder: str | Callable[..., Any] = "auto"
    """"mlp", "nature_cnn", "impala_resnet"; "auto": by observation; your nn.Module as "module:Class" or
    "file.py:Class", in Python also the class itself or a callable."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of the mlp encoder."""
    activation: Literal["tanh", "relu", "elu", "silu"] = "tanh"
    """Activation of the mlp encoder."""
    shared_encoder: bool | None = None
    """One encoder for policy and value; None: shared for images, memory and own modules, separate for mlp."""
    memory: Literal["none", "gru", "lstm"] = "none"
    """Memory core behind the encoder."""
    memory_size: int = 128
    """Width of the memory core."""
    normalize_observations: bool = True
    """Running normalisation of float observations; its statistics travel with the weights."""

    gamma: float = 0.99
    """Discount per step."""
    learning_rate: float = 3e-4
    """Step size of the optimiser."""
    learning_rate_schedule: Literal["constant", "linear"] = "constant"
    """"linear" decays to 0 over total_steps."""
    max_grad_norm: float = 0.5
    """Gradients are scaled down to this global norm."""

    total_steps: int = 1_000_000
    """Budget in steps; schedules run over it."""
    max_seconds: float | None = None
    """Budget in seconds of wall-clock time."""
    target_return: float | None = None
    """The run ends when the evaluator's mean return reaches this."""
    eval_interval: int | None = None
    """Steps between evaluations; None: twenty in total_steps, without pause if there is a target_return; 0: never."""
    eval_episodes: int = 20
    """Episodes per evaluation."""
    checkpoint_interval: int | None = None
    """Steps between checkpoints; None: ten in total_steps; 0: only at the end."""
    keep_checkpoints: int = 3
    """Checkpoints kept besides the best."""
    run_dir: str | None = "auto"
    """Where the run is written; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written at all."""

    def __post_init__(self) -> None:
        for name, hint in _hints(type(self)).items():
            value = _checked(name, getattr(self, name), hint)
            require(not (isinstance(value, float) and math.isnan(value)), name, value, "a number")
            object.__setattr__(self, name, value)
        self.validate()

    def validate(self) -> None:
        """Raise `ConfigError` where a value is outside what is legal."""
        positive = (
            "num_envs_per_worker", "total_steps", "eval_episodes", "keep_checkpoints", "memory_size",
            "learning_rate", "max_grad_norm", "reward_scale",
        )  # fmt: skip
        for name in positive:
            require(getattr(self, name) > 0, name, getattr(self, name), "more than 0")
        for name in ("num_workers", "num_groups", "max_seconds", "reward_clip"):
            value = getattr(self, name)
            require(value is None or value > 0, name, value, "more than 0, or None")
        for name in ("eval_interval", "checkpoint_interval"):
            value = getattr(self, name)
            require(value is None or value >= 0, name, value, "0 or more, or None")
        require(0.0 <= self.gamma <= 1.0, "gamma", self.gamma, "from 0 to 1")
        require(self.seed >= 0, "seed", self.seed, "0 or more")
        require(all(size > 0 for size in self.hidden_sizes), "hidden_sizes", self.hidden_sizes, "all more than 0")
        is_device = re.fullmatch(r"cpu|cuda(:\d+)?", self.device) is not None
        require(is_device, "device", self.device, '"cpu", "cuda" or "cuda:<index>"')
        if self.num_groups is not None and self.num_envs_per_worker % self.num_groups:
            raise ConfigError(
                f"num_envs_per_worker={self.num_envs_per_worker} cannot be split into num_groups={self.num_groups} "
                f"groups: use a multiple of {self.num_groups}, or num_groups=1"
            )

    @property
    def workers(self) -> int:
        """Number of rollout workers, resolved for this machine."""
        return self.num_workers or min(len(os.sched_getaffinity(0)), 16)

    @property
    def num_lanes(self) -> int:
        """Lanes of all rollout workers together."""
        return self.workers * self.num_envs_per_worker

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON values; callables, and what is named by a file, become the place where they are found."""
        return {f.name: _jsonable(getattr(self, f.name)) for f in dataclasses.fields(self)}


@dataclass(frozen=True, kw_only=True)
class SegmentConfig(Config):
    """Settings of algorithms that learn from fresh segments."""

    segment_length: int = 32
    """Steps per segment (T)."""
    batch_size: int = 512
    """Steps per update (one minibatch)."""
    num_epochs: int = 1
    """Passes over each batch."""
    gae_lambda: float = 0.95
    """Lambda of the advantage estimator."""
    entropy_coef: float = 0.01
    """Weight of the entropy bonus."""
    entropy_coef_final: float | None = None
    """The entropy bonus moves linearly to this over total_steps; None: stays."""
    value_coef: float = 0.5
    """Weight of the value loss."""
    normalize_returns: bool = True
    """Running normalisation of value targets; its statistics travel with the weights."""
    max_policy_lag: int = 100
    """Steps chosen by weights this many versions old, or older, are masked out of the loss."""
    target_kl: float | None = None
    """A batch's remaining updates are left out once the loss's approx_kl exceeds 1.5 times this (nats)."""

    def validate(self) -> None:
        """Raise `ConfigError` where a value is outside what is legal."""
        super().validate()
        for name in ("segment_length", "batch_size", "num_epochs", "max_policy_lag"):
            require(getattr(self, name) > 0, name, getattr(self, name), "more than 0")
        require(0.0 <= self.gae_lambda <= 1.0, "gae_lambda", self.gae_lambda, "from 0 to 1")
        is_distance = self.target_kl is None or self.target_kl > 0
        require(is_distance, "target_kl", self.target_kl, "more than 0, or None")
        if self.batch_size % self.segment_length:
            raise ConfigError(
                f"batch_size={self.batch_size} is not a whole number of segments: "
                f"use a multiple of segment_length={self.segment_length}"
            )

    @property
    def segments_per_batch(self) -> int:
        """Segments that the learner takes at once (B): those of one update."""
        return self.batch_size // self.segment_length


def require(condition: bool, name: str, value: object, legal: str) -> None:
    """Raise `ConfigError` naming the field, what was found and what is legal, unless `condition` holds."""
    if not condition:
        raise ConfigError(f"{name}={value!r} is not legal: {name} must be {legal}")


def make_config(config_class: type[C], values: Mapping[str, Any], preset: str | None = None) -> C:
    """Make a config from keyword values on top of an optional preset.

    Raises
    ------
    ConfigError
        A field is unknown (the closest name is shown), ill-typed, or out of range; there is no such preset.
    """
    known = [f.name for f in dataclasses.fields(config_class)]
    merged = {**(load_preset(preset, config_class) if preset else {}), **values}
    for name in merged:
        if name not in known:
            legal = ", ".join(sorted(known))
            raise ConfigError(f"unknown setting {name!r}{closest(name, known)} (legal: {legal})")
    if "env" not in merged:
        raise ConfigError('env is missing: give a Gymnasium id such as "CartPole-v1", a callable or a class')
    return config_class(**merged)


def load_preset(name: str, config_class: type[Config]) -> dict[str, Any]:
    """Read the settings of a preset: a name in ``penstock/presets``, or the path of a TOML file of one's own.

    A preset is a table of settings per algorithm, named as the algorithm is on the command line.

    Raises
    ------
    ConfigError
        There is no such preset, it is not TOML, or it has no table for this algorithm.
    """
    path = Path(name) if name.endswith(".toml") else PRESETS / f"{name}.toml"
    if not path.is_file():
        names = sorted(p.stem for p in PRESETS.glob("*.toml"))
        legal = ", ".join([*names, "or the path of a .toml file"])
        raise ConfigError(f"unknown preset {name!r}{closest(name, names)} (legal: {legal})")
    try:
        contents = tomllib.loads(path.read_text())
    except ValueError as error:
        raise ConfigError(f"preset {name!r} is not TOML: {error}") from error
    tables = {key: value for key, value in contents.items() if isinstance(value, dict)}
    table = config_class.__name__.removesuffix("Config").lower()
    if table not in tables:
        raise ConfigError(f"preset {name!r} has no table [{table}]: it has {', '.join(sorted(tables)) or 'none'}")
    return dict(tables[table])


def find_object(name: str, what: str) -> Any:
    """Import what "module:Class" or "file.py:Class" names.

    Raises
    ------
    ConfigError
        There is no such module, file or attribute; the message begins with `what`.
    """
    place, _, attribute = name.rpartition(":")
    try:
        module = load_module(place)
    except NoSuchPlaceError as error:
        raise ConfigError(f"{what}={name!r}: {error}") from None
    try:
        return functools.reduce(getattr, attribute.split("."), module)
    except AttributeError:
        near = closest(attribute, list(vars(module)))
        raise ConfigError(f"{what}={name!r}: {place} has no {attribute!r}{near}") from None


def closest(name: str, candidates: list[str]) -> str:
    """'; did you mean "x"?' where something is close, else nothing."""
    matches = difflib.get_close_matches(name, candidates, n=1, cutoff=0.5)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def _hints(config_class: type[Config]) -> dict[str, Any]:
    return typing.get_type_hints(config_class)


def _checked(name: str, value: Any, hint: Any) -> Any:
    """Return `value` as `hint` wants it (an int where a float is wanted becomes one), or raise `ConfigError`."""
    for option in typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,):
        origin = typing.get_origin(option) or option
        if origin is Literal and any(value == v and type(value) is type(v) for v in typing.get_args(option)):
            return value
        if origin is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if origin is int and isinstance(value, int) and not isinstance(value, bool):
            return value
        if origin is tuple and isinstance(value, tuple | list):
            return tuple(_checked(name, item, typing.get_args(option)[0]) for item in value)
        if origin is Callable or origin is typing.get_origin(Callable[..., Any]):
            if callable(value):
                return value
        elif origin in (str, bool, dict, types.NoneType) and isinstance(value, origin):
            return value
    legal = _legal(hint)
    near = closest(value, [v for v in typing.get_args(hint) if isinstance(v, str)]) if isinstance(value, str) else ""
    raise ConfigError(f"{name}={value!r} is not legal{near}: {name} must be {legal}, found {type(value).__name__}")


def _legal(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return "one of " + ", ".join(repr(v) for v in typing.get_args(hint))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_legal(option) for option in typing.get_args(hint))
    if hint is types.NoneType:
        return "None"
    return getattr(hint, "__name__", str(hint)) if not typing.get_args(hint) else str(hint).replace("typing.", "")


def _jsonable(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, str) or hasattr(value, "__qualname__"):
        return place_of(value)
    return repr(value) if callable(value) else value
