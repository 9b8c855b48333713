"""The settings that every algorithm shares."""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.config.checking import ConfigError, checked, require
from penstock.imports import place_of


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings shared by every algorithm."""

    env: str | Callable[..., Any]
    """Gymnasium id, "EnvPool/Id", "module:Class", "file.py:Class"; in Python also a callable returning an environment,
    or a class."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments for the environment."""
    vectorize: Literal["make", "vector"] = "make"
    """"make": one environment per lane; "vector": one vector environment per group of lanes."""
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
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """Arithmetic of the network's body (bfloat16 through autocast); heads, losses and weights stay float32. "auto":
    bfloat16 where the GPU or CPU that a role computes on is faster in it, else float32."""
    seed: int = 0
    """Seeds weights, environments and exploration."""

    encoder: str | Callable[..., Any] = "auto"
    """"mlp", "nature_cnn", "impala_resnet"; "auto": by observation; your nn.Module as "module:Class" or
    "file.py:Class", in Python also the class itself or a callable."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of the mlp encoder."""
    activation: Literal["tanh", "relu", "elu", "silu"] = "tanh"
    """Activation of the mlp encoder."""
    normalize_observations: bool = True
    """Running normalisation of float observations; its statistics travel with the weights."""

    gamma: float = 0.99
    """Discount per step."""
    learning_rate: float = 3e-4
    """Step size of the optimiser."""
    learning_rate_schedule: Literal["constant", "linear"] = "constant"
    """"linear" decays to 0 over total_steps."""

    total_steps: int = 1_000_000
    """Budget in steps; schedules run over it."""
    max_seconds: float | None = None
    """Budget in seconds of wall-clock time."""
    target_return: float | None = None
    """The run ends when the evaluator's mean return reaches this."""
    eval_interval: int | None = None
    """Steps between evaluations; None: twenty in total_steps, or with a target_return at most a fifth of the time
    is spent on them (serial: after each batch); 0: never."""
    eval_episodes: int = 20
    """Episodes per evaluation."""
    checkpoint_interval: int | None = None
    """Steps between checkpoints; None: ten in total_steps; 0: only at the end."""
    keep_checkpoints: int = 3
    """Checkpoints kept besides the best."""
    run_dir: str | None = "auto"
    """Where the run is written; "auto": runs/<env>-<algorithm>-<time>; None: nothing is written at all."""

    def __post_init__(self) -> None:
        for name, hint in typing.get_type_hints(type(self)).items():
            value = checked(name, getattr(self, name), hint)
            require(not (isinstance(value, float) and math.isnan(value)), name, value, "a number")
            object.__setattr__(self, name, value)
        self.validate()

    def validate(self) -> None:
        """Raise `ConfigError` where a value is outside what is legal."""
        positive = (
            "num_envs_per_worker", "total_steps", "eval_episodes", "keep_checkpoints", "learning_rate", "reward_scale",
        )  # fmt: skip
        for name in positive:
            require(getattr(self, name) > 0, name, getattr(self, name), "more than 0")
        for name in ("num_workers", "num_groups", "max_seconds", "reward_clip"):
            value = getattr(self, name)
            require(value is None or value > 0, name, value, "more than 0, or None")
        for name in ("eval_interval", "checkpoint_interval"):
            value = getattr(self, name)
            require(value is None or value >= 0, name, value, "0 or more, or None")
        require(self.learning_rate < math.inf, "learning_rate", self.learning_rate, "finite")
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
        """Number of rollout workers, resolved for this machine: one for each core, at most 16."""
        from penstock.ipc import whole_cores  # here, because settings are read without anything native

        return self.num_workers or min(whole_cores(), 16)

    @property
    def num_lanes(self) -> int:
        """Lanes of all rollout workers together."""
        return self.workers * self.num_envs_per_worker

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON values; callables, and what is named by a file, become the place where they are found."""
        return {f.name: _jsonable(getattr(self, f.name)) for f in dataclasses.fields(self)}


def _jsonable(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, str) or hasattr(value, "__qualname__"):
        return place_of(value)
    return repr(value) if callable(value) else value
