"""Base class of every algorithm: its network, its choice of actions, its learning rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, get_args

import torch
from torch import Tensor, nn

from penstock.algorithms.registry import names_for
from penstock.config import Config as AnyConfig
from penstock.config import ConfigError, Scheduled, find_object, value_at
from penstock.envs.spaces import ActionKind, ActionSpec, ObservationSpec
from penstock.experience.layout import Column
from penstock.nn import NetworkConfig, PolicyNetwork, share_rows_, training_mode
from penstock.nn.encoders import EncoderError, encodes_images
from penstock.nn.layers import is_bfloat16

N = TypeVar("N")

Metrics = dict[str, Tensor]


@dataclass(frozen=True)
class Request:
    """Request for one action in each of N lanes.

    Attributes
    ----------
    obs
        Observations in their column's layout, ``[N, ...]``.
    first
        bool ``[N]``: the observation begins an episode.
    memory
        float32 ``[N, S]``: memory state before the observation.
    noise
        float32 ``[N, K]``: the lanes' own random numbers; uniform in [0, 1) or standard normal, depending on the
        actions' spec.
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
    """Non-finite loss or gradient. Its step was not taken; steps of earlier losses of the update were."""


class Algorithm:
    """A config, a network, and the choice of actions. Two subclasses add learning: from fresh segments or from replay.

    Parameters
    ----------
    config
        An instance of `Config`.
    observation, action
        Specs of the environment's observations and actions.

    Raises
    ------
    ConfigError
        The algorithm cannot choose such actions; the message names algorithms that can.

    Attributes
    ----------
    remarks
        Notes of updates for the user; the learner reports and removes them.
    """

    Config: ClassVar[type[AnyConfig]]
    data_path: str | type
    """Data path: "segments", "mixture", "circular", "replay", "sequences", "gradients", or a custom class. An
    instance's data path may depend on its settings."""
    synchronous: ClassVar[bool] = False
    """True: rollout workers wait while the learner learns, so that experience has no policy lag."""
    actions: ClassVar[tuple[ActionKind, ...]] = get_args(ActionKind)
    """Kinds of actions that the algorithm can choose."""

    freezes_statistics: ClassVar[bool] = False
    """True: in updates, layers such as BatchNorm normalise by their running statistics, as in acting."""

    repeatable_updates: ClassVar[bool] = False
    """True: every update (from replay, every update of one kind) is the same computation of batch, random numbers and
    networks at fixed addresses, so that a plan, or a graph on a GPU, may repeat it. Not inherited: each subclass sets
    it."""

    noise_hold: int = 1
    """Largest number of steps for which a lane keeps the random numbers of its actions."""

    config: Any

    def __init__(self, config: AnyConfig, observation: ObservationSpec, action: ActionSpec) -> None:
        self.config = config = config.resolved(encodes_images=encodes_images(config.encoder, observation))
        self.data_path = self.data_path_of(config)
        self.observation = observation
        self.action = action
        self._require_fitting(action)
        self.remarks: list[str] = []
        # Imported here: an environment may change the working directory of the process that builds the network.
        own = config.encoder
        self._encoder = find_object(own, "encoder") if isinstance(own, str) and {*":<"} & {*own} else own

    @classmethod
    def data_path_of(cls, config: Any) -> str | type:
        """Return the data path that these settings need."""
        return config.data_path_for(cls.data_path, cls.name())

    @classmethod
    def name(cls) -> str:
        """Return the algorithm's name in run directories, checkpoints and on the command line."""
        return cls.__name__.lower()

    def build_model(self) -> PolicyNetwork:
        """Make the network that acts and learns.

        Raises
        ------
        ConfigError
            A setting of the network is not legal, or the custom encoder is not an encoder.
        """
        raise NotImplementedError

    def make_model(self, device: torch.device | str = "cpu") -> Any:
        """Make the network on a device, in evaluation mode: only updates put it into training mode.

        Its weights are drawn from torch's random numbers, whose state is restored afterwards. With several learners,
        each runs the network on its share of the rows (see `penstock.nn.share_rows_`).
        """
        with torch.random.fork_rng(devices=[]):
            model = self.build_model().to(device).eval()
        return share_rows_(model) if self.config.num_learners > 1 else model

    def training_mode(self, model: torch.nn.Module) -> AbstractContextManager[None]:
        """Return the context in which a network is updated."""
        return training_mode(model, self.config.seed, freezes_statistics=self.freezes_statistics)

    def reason_not_to_repeat(self) -> str | None:
        """Return why neither a plan nor a graph can repeat the updates; None if no reason is known."""
        if not vars(type(self)).get("repeatable_updates", False):
            return f"{type(self).__name__} does not declare its updates repeatable (repeatable_updates)"
        if self.config.num_learners > 1:
            return "several learners average their gradients"
        return None

    def lane_state_size(self, model: Any) -> int:
        """Return the width of a lane's memory state while acting: by default the network's."""
        size: int = model.state_size
        return size

    def record_columns(self) -> tuple[Column, ...]:
        """Return the columns recorded while acting in addition to action, log_prob and version."""
        return ()

    def act(self, model: Any, request: Request) -> tuple[dict[str, Tensor], Tensor]:
        """Choose actions as in training, with exploration.

        Returns
        -------
        columns : dict of str to Tensor
            Values of each lane's row: the action and all further columns.
        memory : Tensor
            Memory state after the observation, ``[N, S]``.
        """
        raise NotImplementedError

    def build_network(self, network: Callable[..., N], settings: Mapping[str, Any] | None = None, **fields: Any) -> N:
        """Make a network for the environment's observations and actions.

        Parameters
        ----------
        network
            Called with the observation's and the action's spec, a `NetworkConfig` and `fields`.
        settings
            Fields of the `NetworkConfig` other than those that every config has.

        Raises
        ------
        ConfigError
            A setting of the network is not legal, or the custom encoder is not an encoder.
        """
        c = self.config
        try:
            network_config = NetworkConfig(
                encoder=self._encoder, hidden_sizes=c.hidden_sizes, activation=c.activation,
                normalize_observations=c.normalize_observations, **(settings or {}),
            )  # fmt: skip
            return network(self.observation, self.action, network_config, **fields)
        except ValueError as error:
            raise ConfigError(str(error)) from (None if isinstance(error, EncoderError) else error)

    def autocast(self, device: torch.device, *, cache: bool = True) -> AbstractContextManager[object]:
        """Return the context in which the network runs on a device: autocast, if the config's precision needs it.

        Parameters
        ----------
        device
            Device of the network.
        cache
            Whether converted weights are kept for the next operation that uses them.
        """
        if not is_bfloat16(self.config.precision, device):
            return nullcontext()
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=cache)

    def apply_settings(self, config: AnyConfig) -> None:
        """Adopt new values of tunable settings."""
        self.config = config

    def set_learning_rate(
        self, optimizer: torch.optim.Optimizer, progress: float, base: Scheduled | None = None
    ) -> None:
        """Set an optimiser's learning rate: when it is made, and once per batch, before the batch's first update.

        Parameters
        ----------
        optimizer
            Optimiser; nothing else sets its learning rate.
        progress
            Share of the run that is over, in [0, 1].
        base
            Learning rate at the start, which the config's ``learning_rate_schedule`` applies to, or a function of
            progress; None: the config's ``learning_rate``.
        """
        rate = self.learning_rate(self.config.learning_rate if base is None else base, progress)
        for group in optimizer.param_groups:
            group["lr"] = rate

    def learning_rate(self, base: Scheduled, progress: float) -> float:
        """Return the learning rate at a point of the run; parameters as for `set_learning_rate`."""
        if not isinstance(base, int | float):
            return value_at("learning_rate", base, progress)
        return base * max(0.0, 1.0 - progress) if self.config.learning_rate_schedule == "linear" else base

    def _require_fitting(self, action: ActionSpec) -> None:
        if action.kind in self.actions:
            return
        fitting = names_for(action.kind)
        raise ConfigError(
            f"{self.name()} chooses {self.actions[0]} actions, but the actions of this environment are {action.kind} "
            f"({_described(action)}): use {' or '.join([', '.join(fitting[:-1]), fitting[-1]])}"
        )


def _described(action: ActionSpec) -> str:
    if action.is_discrete:
        return f"{action.num_actions} of them"
    chosen = f"choices among {', '.join(map(str, action.choices))}" if action.choices else ""
    drawn = f"{action.num_numbers} numbers" if action.num_numbers else ""
    return " and ".join(filter(None, (chosen, drawn)))


def shrink_(gradient: Tensor, norm: Tensor, most: float) -> None:
    """Scale a gradient of this norm, in place, down to a norm of at most `most`."""
    gradient.mul_((most / (norm + 1e-6)).clamp(max=1.0))


def clip_norm_(parameters: Sequence[nn.Parameter], most: float) -> Tensor:
    """Scale gradients down to a global norm of at most `most`; return their norm before that, 0-dimensional."""
    (first, *others) = parameters
    if others or first.grad is None:
        return torch.nn.utils.clip_grad_norm_(parameters, most)
    norm = torch.linalg.vector_norm(first.grad)
    shrink_(first.grad, norm, most)
    return norm
