"""Ape-X DQN: distributed prioritized experience replay (Horgan et al. 2018, arXiv:1803.00933)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from penstock.algorithms.arithmetic.priorities import absolute_td_error, sequence_td_priority
from penstock.algorithms.arithmetic.td import epsilon_ladder
from penstock.algorithms.bases.algorithm import Request
from penstock.algorithms.bases.q_learning import QLearning, QLearningConfig
from penstock.config import Config, ConfigError, require
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.layout import Column
from penstock.experience.run_replay import InitialPriorities
from penstock.nn import QNetwork
from penstock.replay import Prioritized
from penstock.replay.settings import Sampler


@dataclass(frozen=True, kw_only=True)
class ApeXConfig(QLearningConfig):
    """Ape-X: many lanes, each with its own exploration, fill a prioritized replay; one learner draws from it.

    The paper's soft capacity is not needed: the buffer overwrites the oldest rows, and writers do not wait for each
    other. Default sizes and rates suit classic control; the preset "atari" has the paper's.
    """

    num_envs_per_worker: int = 4
    n_step: int = 3
    """Length n of n-step returns, shorter at the end of an episode (section 4.1)."""
    double: bool = True
    dueling: bool = True
    prioritized: bool = True
    priority_beta_final: float = 0.4
    """Exponent of the importance weights at total_steps; by default constant."""
    exploration: float = 0.4
    """Probability of a random action in the first lane (section 4.1)."""
    exploration_exponent: float = 7.0
    """Lane i of N explores with probability exploration ** (1 + exploration_exponent * i / (N - 1)) (section 4.1).
    Nodes take these rates in turn, so that the lanes of each node cover the whole range."""

    def validate(self) -> None:
        super().validate()
        require(self.prioritized, "prioritized", self.prioritized, 'True: Ape-X without priorities is "dqn"')
        require(0.0 < self.exploration <= 1.0, "exploration", self.exploration, "more than 0, at most 1")
        exponent = self.exploration_exponent
        require(exponent >= 0, "exploration_exponent", exponent, "0 or more")

    def _require_hindsight(self) -> None:
        raise ConfigError(
            f"hindsight={self.hindsight!r} is not possible with Ape-X and R2D2: first priorities are computed from the "
            "values of the acting network, which do not exist for relabelled goals; use dqn with prioritized=True"
        )

    def final_rewards(self) -> str | None:
        return (
            "Ape-X and R2D2: first priorities are computed when a step is taken, from its reward and the values of the "
            "acting network; use dqn with prioritized=True"
        )


class ApeX(QLearning):
    """DQN whose lanes explore differently, with first priorities from rollout workers."""

    Config: ClassVar[type[Config]] = ApeXConfig
    config: ApeXConfig
    repeatable_updates = True

    def __init__(self, config: ApeXConfig, observation: ObservationSpec, action: ActionSpec) -> None:
        super().__init__(config, observation, action)
        ladder = torch.tensor(epsilon_ladder(config.num_lanes, config.exploration, config.exploration_exponent))
        self._epsilons = ladder.view(-1, config.num_nodes).T.flatten()  # each node has rates of the whole ladder

    def sampler(self) -> Sampler:
        """Return prioritized sampling; weights are divided by the largest in the buffer, with memory in the batch."""
        of = "batch" if self.state_size else "buffer"
        return Prioritized(self.config.priority_alpha, self.config.priority_beta, normalize=of)

    def initial_priorities(self) -> InitialPriorities:
        """Return the absolute temporal difference, computed from the acting network's values (section 3)."""
        c = self.config
        if not self.state_size:
            return partial(absolute_td_error, rescaled=c.rescale_values)
        return partial(
            sequence_td_priority,
            n_step=c.n_step, burn_in=c.burn_in, eta=c.priority_eta, rescaled=c.rescale_values,
        )  # fmt: skip

    def record_columns(self) -> tuple[Column, ...]:
        """Return also the columns for first priorities: the values of the action taken and of the best action."""
        return *super().record_columns(), Column("value", (), "float32"), Column("max_value", (), "float32")

    def act(self, model: QNetwork, request: Request) -> tuple[dict[str, Tensor], Tensor]:
        """Choose the best action, or a random one with the lane's epsilon; record the values for first priorities."""
        epsilon = 0.0 if self.config.explores_by_noise else self.epsilon(request)
        choice, memory = model.act(request.obs, request.first, request.memory, epsilon)
        policy = choice.drawn(request.noise)
        action = policy.sample(request.noise)
        value = policy.q.gather(1, action.unsqueeze(1)).squeeze(1)
        values = {"value": value, "max_value": policy.q.amax(1)}
        return {"action": action} | values | self.memory_before(request), memory

    @property
    def final_epsilon(self) -> float:
        """Probability of a random action when the trained policy is played with exploration: the last lane's."""
        return self._epsilons[-1].item()

    def epsilon(self, request: Request) -> float | Tensor:
        """Probability of a random action in each lane, constant over the run."""
        self._epsilons = self._epsilons.to(request.obs.device)  # once: CUDA graphs cannot contain copies from the host
        return self._epsilons[request.lane]
