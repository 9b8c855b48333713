"""Settings of algorithms that learn from replay."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from penstock.config.base import STORED
from penstock.config.checking import ConfigError, require
from penstock.config.features import DelayedRewardConfig
from penstock.config.nodes import NODES_PER_GATEWAY, levels_of, require_shards

LEAST_SLACK = 32  # updates: enough that neither side waits for single steps of the other


@dataclass(frozen=True, kw_only=True)
class ReplayConfig(DelayedRewardConfig):
    """Settings of algorithms that learn from replay."""

    fixed: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("gamma", "n_step", "reward_scale", "reward_clip", "buffer_size"), STORED
    )

    num_envs_per_worker: int = 1
    hidden_sizes: tuple[int, ...] = (256, 256)
    activation: Literal["tanh", "relu", "elu", "silu"] = "relu"
    normalize_observations: bool = False

    batch_size: int = 256
    """Transitions per update, drawn from the replay buffer."""
    buffer_size: int = 1_000_000
    """Capacity of the replay buffer in transitions; the oldest is overwritten."""
    learning_starts: int = 1_000
    """Steps before the first update; continuous actions are uniformly random until then."""
    updates_per_step: float = 1.0
    """Updates per step; the rate limiter holds back learner or rollout workers to keep this ratio."""
    ratio_slack: int | None = None
    """Updates by which learner or rollout workers may be ahead of updates_per_step; None: those due for two steps of
    all lanes, at least 32; with backend="serial", those due for one step."""
    n_step: int = 1
    """Length n of n-step returns, shorter at the end of an episode."""
    publish_interval: int = 1
    """Updates between publications of the weights to the acting roles."""
    hindsight: Literal["future", "episode", "final"] | None = None
    """Hindsight experience replay (arXiv:1707.01495): store ended episodes again, with desired goals that they
    achieved: at the same or a later step ("future"), at any step ("episode"), or at the last step ("final"). None: off.
    """
    goals_per_step: int = 4
    """Relabelled goals per step, with hindsight="future" or "episode" (section 4.5: k)."""
    save_replay: bool = False
    """Store the replay buffer in checkpoints, incrementally; learning pauses meanwhile. A run resumed without it
    refills the buffer before it learns."""
    replay_at: Literal["home", "gateways"] = "home"
    """With backend="ray", place of the replay buffer: home, or a shard at each gateway, which stores the steps of its
    nodes; batches are drawn from all shards. There is one gateway per `nodes_per_gateway` nodes, by default per 64."""

    def validate(self) -> None:
        super().validate()
        for name in ("batch_size", "buffer_size", "learning_starts", "n_step", "publish_interval"):
            require(getattr(self, name) > 0, name, getattr(self, name), "1 or more")
        is_ratio = 0.0 < self.updates_per_step < math.inf
        require(is_ratio, "updates_per_step", self.updates_per_step, "more than 0, and finite")
        if self.batch_size > self.learning_starts:
            raise ConfigError(
                f"batch_size={self.batch_size} is more than the steps stored before the first update: use at most "
                f"learning_starts={self.learning_starts}, or start later"
            )
        if self.min_steps >= self.total_steps:
            raise ConfigError(
                f"nothing would be learned: learning starts after {self.min_steps} steps (learning_starts="
                f"{self.learning_starts}, and {self.steps_of_a_row} in each of {self.num_lanes} lanes), but "
                f"total_steps={self.total_steps}: use more total_steps, or start earlier"
            )
        if self.learning_starts > self.buffer_size:
            raise ConfigError(
                f"learning_starts={self.learning_starts} can never be reached: the buffer keeps buffer_size="
                f"{self.buffer_size} transitions; use a larger buffer_size, or start earlier"
            )
        if self.buffer_size < self.num_lanes * self.n_step:
            raise ConfigError(
                f"buffer_size={self.buffer_size} is too small for {self.num_lanes} lanes (num_workers={self.workers} x "
                f"num_envs_per_worker={self.num_envs_per_worker}) of n_step={self.n_step}: use at least "
                f"{self.num_lanes * self.n_step}"
            )
        if self.ratio_slack is not None and self.ratio_slack < self._least_slack:
            raise ConfigError(
                f"updates_per_step={self.updates_per_step:g} cannot be kept within ratio_slack={self.ratio_slack}: the "
                f"{self.num_envs_per_worker} lanes of a worker step together, which calls for {self._least_slack} "
                f"updates at once; use ratio_slack={self._least_slack} or more, fewer updates_per_step or lanes"
            )
        require(self.goals_per_step > 0, "goals_per_step", self.goals_per_step, "1 or more")
        if self.hindsight is not None:
            self._require_hindsight()
        if self.replay_at == "gateways":
            require_shards(self.backend, saves=self.save_replay)

    @property
    def gateway_levels(self) -> list[list[range]]:
        """As in the base class; shards need gateways, however few nodes there are."""
        if self.replay_at == "home":
            return super().gateway_levels
        return levels_of(self.num_nodes, self.nodes_per_gateway or NODES_PER_GATEWAY)

    @property
    def num_shards(self) -> int:
        """Number of shards of the replay buffer at gateways; 0: the buffer is at home."""
        return len(self.gateway_levels[-1]) if self.replay_at == "gateways" else 0

    def _require_hindsight(self) -> None:
        """Raise `ConfigError` if rows cannot be relabelled with other goals."""
        if self.n_step > 1:
            raise ConfigError(
                f"n_step={self.n_step} is not possible with hindsight={self.hindsight!r}: successive steps are "
                "relabelled with different goals, whose rewards must not be summed; use n_step=1"
            )

    def final_rewards(self) -> str | None:
        if self.replay_at == "gateways":
            return 'replay_at="gateways": rows are stored before their episode is over; use one of the two'
        if self.hindsight is None:
            return super().final_rewards()
        return (
            f"hindsight={self.hindsight!r}: relabelled steps have the rewards that the environment computes for "
            "another goal; use one of the two"
        )

    def data_path_for(self, usual: str | type, algorithm: str) -> str | type:
        """Return "hindsight" with hindsight, else the data path of the base class."""
        if self.hindsight is None:
            return super().data_path_for(usual, algorithm)
        if usual != "replay":
            raise ConfigError(
                f"hindsight={self.hindsight!r} is not possible with the data path of {algorithm}, which does not "
                "relabel; use hindsight=None"
            )
        return "hindsight"

    @property
    def _least_slack(self) -> int:
        """Number of updates due for one step of a worker's lanes."""
        return max(1, math.ceil(self.num_envs_per_worker * self.updates_per_step))

    @property
    def shared_by_learners(self) -> dict[str, int]:
        """Return the rows of an update."""
        return {f"rows of an update (batch_size={self.batch_size})": self.batch_size}

    @property
    def min_steps(self) -> int:
        """Steps before the first update: learning_starts, or enough to finish a row of the buffer in every lane."""
        return max(self.learning_starts, self.num_lanes * self.steps_of_a_row)

    @property
    def steps_of_a_row(self) -> int:
        """Largest number of steps that a lane needs to finish a row of the replay buffer."""
        return self.n_step + 1

    @property
    def slack(self) -> int:
        """Value of ratio_slack, with None resolved."""
        if self.ratio_slack is not None:
            return self.ratio_slack
        if self.backend == "serial":  # one step of every lane
            return max(1, math.ceil(self.num_lanes * self.updates_per_step))
        return max(LEAST_SLACK, math.ceil(2 * self.num_lanes * self.updates_per_step))


@dataclass(frozen=True, kw_only=True)
class PrioritizedReplayConfig(ReplayConfig):
    """Settings of algorithms that can replay by priority: updates return errors and weight the loss."""

    fixed: ClassVar[Mapping[str, str]] = dict.fromkeys(("prioritized", "priority_alpha"), STORED)

    prioritized: bool = False
    """Prioritized replay (arXiv:1511.05952): transitions with large errors are drawn more often."""
    priority_alpha: float = 0.6
    """Exponent of the priorities: 0, uniform; 1, proportional (arXiv:1511.05952)."""
    priority_beta: float = 0.4
    """Exponent of the importance weights at the start (arXiv:1511.05952)."""
    priority_beta_final: float = 1.0
    """Exponent of the importance weights at total_steps (arXiv:1511.05952)."""

    def validate(self) -> None:
        super().validate()
        for name in ("priority_beta", "priority_beta_final"):
            require(0.0 <= getattr(self, name) <= 1.0, name, getattr(self, name), "from 0 to 1")
        require(0.0 <= self.priority_alpha < math.inf, "priority_alpha", self.priority_alpha, "0 or more, and finite")
