"""Base class of every algorithm: its network, and how it acts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, get_args

import torch
from torch import Tensor

from penstock.algorithms.registry import names_for
from penstock.config import Config as AnyConfig
from penstock.config import ConfigError, Scheduled, find_object, value_at
from penstock.envs.spaces import ActionKind, ActionSpec, ObservationSpec
from penstock.experience.layout import Column
from penstock.nn import NetworkConfig, PolicyNetwork, TrainingMode
from penstock.nn.layers import is_bfloat16

N = TypeVar("N")

Metrics = dict[str, Tensor]


@dataclass(frozen=True)
class Request:
    """Request for one action in each of N lanes.

    Attributes
    ----------
    obs
        Observations as they lie in their column, ``[N, ...]``.
    first
        bool ``[N]``: the observation begins an episode.
    memory
        float32 ``[N, S]``: memory state before the observation.
    noise
        float32 ``[N, K]``: the lanes' own random numbers; uniform in [0, 1) or standard normal, as the actions' spec
        says.
    lane
        int64 ``[N]``: numbers of the lanes among all lanes of the run.
    steps
        Steps of the run so far, for schedules.
    """

    obs: Tensor
    first: Tensor
    memory: Tensor
    noise: Tensor
    lane: Tensor
    steps: int


class NonFiniteUpdate(ArithmeticError):
    """A loss or gradient was not finite; the step was not taken, those of losses before it in the update were."""


class Algorithm:
    """A config, a network, and how it acts. What it learns from, and how, its two subclasses say.

    Parameters
    ----------
    config
        An instance of `Config`.
    observation, action
        What the environment shows and takes.

    Raises
    ------
    ConfigError
        The algorithm cannot choose such actions; the message names those that can.
    """

    Config: ClassVar[type[AnyConfig]]
    data_path: str | type
    """Data path: "segments", "mixture", "circular", "replay", "sequences", "gradients", or a custom class. An
    instance's data path may depend on its settings."""
    synchronous: ClassVar[bool] = False
    """True: rollout workers wait while the learner learns, so that all experience is of zero policy lag."""
    actions: ClassVar[tuple[ActionKind, ...]] = get_args(ActionKind)
    """The kinds of actions that it can choose."""

    freezes_statistics: ClassVar[bool] = False
    """True: in updates, layers with running statistics such as BatchNorm normalise by these, as in acting."""

    config: Any

    def __init__(self, config: AnyConfig, observation: ObservationSpec, action: ActionSpec) -> None:
        self.config = config
        self.data_path = self.data_path_of(config)
        self.observation = observation
        self.action = action
        self._require_fitting(action)
        # Found here, because an environment may change the working directory of the process that builds the network.
        encoder = config.encoder
        self._encoder = find_object(encoder, "encoder") if isinstance(encoder, str) and ":" in encoder else encoder

    @classmethod
    def data_path_of(cls, config: Any) -> str | type:
        """Return the data path with these settings."""
        return config.data_path_for(cls.data_path, cls.name())

    @classmethod
    def name(cls) -> str:
        """The algorithm's name in run directories, checkpoints and on the command line."""
        return cls.__name__.lower()

    def build_model(self) -> PolicyNetwork:
        """Make the network that acts and learns.

        Raises
        ------
        ConfigError
            A setting of the network is not legal, or the encoder is none.
        """
        raise NotImplementedError

    def make_model(self, device: torch.device | str = "cpu") -> Any:
        """Make the network on a device, in evaluation mode: only updates put it into training mode.

        Its weights are drawn from torch's random numbers, which go on from where they were.
        """
        with torch.random.fork_rng(devices=[]):
            return self.build_model().to(device).eval()

    def training_mode(self, model: torch.nn.Module) -> TrainingMode:
        """Make the context of a network's updates."""
        return TrainingMode(model, self.config.seed, freezes_statistics=self.freezes_statistics)

    def record_columns(self) -> tuple[Column, ...]:
        """Columns for what is recorded while acting, beside action, log_prob and version."""
        return ()

    def act(self, model: Any, request: Request) -> tuple[dict[str, Tensor], Tensor]:
        """Choose actions as in training, with exploration.

        Returns
        -------
        columns : dict of str to Tensor
            What is written into each lane's row: action and what is recorded beside it.
        memory : Tensor
            Memory state after the observation, ``[N, S]``.
        """
        raise NotImplementedError

    def build_network(self, network: Callable[..., N], settings: Mapping[str, Any] | None = None, **fields: Any) -> N:
        """Make a network for what the environment shows and takes.

        Parameters
        ----------
        network
            Called with the observation's and the action's spec, a `NetworkConfig` and `fields`.
        settings
            Fields of the `NetworkConfig` beside those that every config has.

        Raises
        ------
        ConfigError
            A setting of the network is not legal, or the encoder is none.
        """
        try:
            return network(self.observation, self.action, self._network_config(**(settings or {})), **fields)
        except ValueError as error:
            raise ConfigError(str(error)) from error

    def _network_config(self, **fields: Any) -> NetworkConfig:
        c = self.config
        return NetworkConfig(
            encoder=self._encoder,
            hidden_sizes=c.hidden_sizes,
            activation=c.activation,
            normalize_observations=c.normalize_observations,
            **fields,
        )

    def autocast(self, device: torch.device, *, cache: bool = True) -> AbstractContextManager[object]:
        """The arithmetic in which the network runs on a device, by the config's precision.

        Parameters
        ----------
        device
            Where it runs.
        cache
            Whether weights that were converted are kept for the next operation that takes them.
        """
        if not is_bfloat16(self.config.precision, device):
            return nullcontext()
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=cache)

    def take_settings(self, config: AnyConfig) -> None:
        """Go on with other values of tunable settings, in whatever uses this algorithm."""
        self.config = config

    def learning_rate(self, base: Scheduled, progress: float) -> float:
        """A step size at this point of the run: by the function that it is, or by the config's schedule."""
        if not isinstance(base, int | float):
            return value_at("learning_rate", base, progress)
        return base * max(0.0, 1.0 - progress) if self.config.learning_rate_schedule == "linear" else base

    def set_learning_rate(self, optimizer: torch.optim.Optimizer, base: Scheduled, progress: float) -> None:
        """Give all groups of an optimiser the step size at this point of the run."""
        rate = self.learning_rate(base, progress)
        for group in optimizer.param_groups:
            group["lr"] = rate

    def _require_fitting(self, action: ActionSpec) -> None:
        if action.kind in self.actions:
            return
        fitting = names_for(action.kind)
        raise ConfigError(
            f"{self.name()} chooses {self.actions[0]} actions, and the actions of this environment are {action.kind} "
            f"({_described(action)}): use {' or '.join([', '.join(fitting[:-1]), fitting[-1]])}"
        )


def _described(action: ActionSpec) -> str:
    if action.is_discrete:
        return f"{action.num_actions} of them"
    chosen = f"choices among {', '.join(map(str, action.choices))}" if action.choices else ""
    drawn = f"{action.num_numbers} numbers" if action.num_numbers else ""
    return " and ".join(filter(None, (chosen, drawn)))
