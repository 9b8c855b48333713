"""Recurrent Q-learning: sequences are replayed, and networks are unrolled from the stored memory state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from penstock.algorithms.arithmetic.rescaling import inverse_rescale, rescale
from penstock.algorithms.arithmetic.td import double_q_value, huber, max_q_value, n_step_targets, sequence_priority
from penstock.algorithms.bases.algorithm import Metrics, Request
from penstock.algorithms.bases.distributional_q import DistributionalQLearning
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.batch import SequenceBatch
from penstock.experience.layout import Column
from penstock.nn import QNetwork
from penstock.nn.memory import state_size_of


class RecurrentQLearning(DistributionalQLearning):
    """Q-learning from sequences, where ``memory`` names a memory core; else from transitions.

    Attributes
    ----------
    state_size
        Width ``S`` of a lane's memory state; 0 without memory.
    """

    def __init__(self, config: Any, observation: ObservationSpec, action: ActionSpec) -> None:
        super().__init__(config, observation, action)
        self.state_size = state_size_of(config.memory, config.memory_size)

    @classmethod
    def data_path_of(cls, config: Any) -> str | type:
        """Return "sequences" with memory, else as `ReplayAlgorithm`."""
        is_recurrent = config.memory != "none" and cls.data_path == "replay"
        return "sequences" if is_recurrent else super().data_path_of(config)

    def record_columns(self) -> tuple[Column, ...]:
        """With memory, a column for the state before each step, from which sequences are unrolled."""
        return (Column("memory", (self.state_size,), "float32"),) if self.state_size else ()

    def act(self, model: QNetwork, request: Request) -> tuple[dict[str, Tensor], Tensor]:
        """Choose actions as `QLearning.act` does; recorded is the memory state before the step."""
        columns, memory = super().act(model, request)
        return columns | self.memory_before(request), memory

    def memory_before(self, request: Request) -> dict[str, Tensor]:
        """Memory state recorded before a step: zeros where an episode begins."""
        return {"memory": request.memory.masked_fill(request.first.unsqueeze(1), 0.0)} if self.state_size else {}

    def evaluate(self, model: QNetwork, batch: Any) -> tuple[Tensor, Tensor, Metrics]:
        """Return priorities ``[B]``, loss and mean value "q" of a `SequenceBatch` (R2D2, section 2.3).

            L   = mean_b w_b sum_t Huber(Q(o_t, a_t; theta) - y_t)
            y_t = sum_{k<m} gamma^k r_{t+k} + gamma^m max_a Q(o_{t+m}, a; theta^-)    with m = min(n, steps that follow)

        Both networks are unrolled from the stored state, through the burn-in without gradient.
        """
        if not isinstance(batch, SequenceBatch):
            return super().evaluate(model, batch)
        c = self.config
        sequence = batch.obs, batch.first, batch.memory, c.burn_in
        all_q = model.unroll(*sequence, noise=self.draw_noise())
        action, reward, discount, valid = (
            rows[c.burn_in :] for rows in (batch.action, batch.reward, batch.discount, batch.valid)
        )
        with torch.no_grad():
            target_q = self.target.unroll(*sequence, noise=self.draw_noise())
            value = double_q_value(all_q, target_q) if c.double else max_q_value(target_q)
            if c.rescale_values:
                y = rescale(n_step_targets(reward, discount, inverse_rescale(value), valid, c.n_step))
            else:
                y = n_step_targets(reward, discount, value, valid, c.n_step)

        q = all_q[:-1].gather(2, action.unsqueeze(2)).squeeze(2)
        td_error = torch.where(valid, q - y, 0.0)
        loss = (batch.weights * huber(td_error).sum(0)).mean()
        priority = sequence_priority(td_error.detach(), valid, c.priority_eta)
        return priority, loss, {"q": torch.where(valid, q, 0.0).sum() / valid.sum()}
