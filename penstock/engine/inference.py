"""Choosing actions: requests of groups become one batch, and the answers land in the rows that asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from penstock.algorithms.base import Request
from penstock.engine.weights import SharedWeights
from penstock.experience.arena import ExperienceArena
from penstock.experience.replay import Replay
from penstock.ipc import gather, scatter


class Inference:
    """A model that answers requests, held by a policy worker or by a rollout worker that infers for itself.

    Parameters
    ----------
    arena
        The run's arena.
    algorithm
        Says how to act and what to record.
    device
        Where the model runs.
    replay
        The run's replay, if it has one: it counts the steps that exploration is scheduled by.
    weights
        Made of the model and the arena: keeps the one as new as what the other holds.
    """

    def __init__(
        self,
        arena: ExperienceArena,
        algorithm: Any,
        device: str,
        replay: Replay | None = None,
        weights: Callable[[Any, ExperienceArena], Any] = lambda model, arena: SharedWeights(model, arena.weights),
    ) -> None:
        self._arena = arena
        self._algorithm = algorithm
        self._replay = replay
        self._device = torch.device(device)
        self._autocast = torch.autocast(
            self._device.type, torch.bfloat16, enabled=algorithm.config.precision == "bfloat16"
        )
        self._model = algorithm.build_model().to(self._device)
        self._weights = weights(self._model, arena)
        self._obs = np.empty((arena.shape.num_lanes, *arena.shape.observation.shape), arena.shape.observation.dtype)

    @torch.inference_mode()
    def answer(self, groups: np.ndarray, requests: np.ndarray) -> None:
        """Choose actions for the lanes of these groups, and write them with what is recorded into their rows.

        Parameters
        ----------
        groups
            int64 ``[G]``: numbers of the groups.
        requests
            int64 ``[G]``: number of each group's request, whose parity says where its memory state lies.
        """
        self._weights.refresh()
        arena, shape = self._arena, self._arena.shape
        rows = arena.request_rows[groups].reshape(-1)
        obs = self._obs[: len(rows)]
        gather(arena.columns["obs"], rows, obs)
        first = arena.columns["first"][rows]
        noise = arena.noise[groups].reshape(len(rows), -1)
        lanes = (groups[:, None] * shape.group_size + np.arange(shape.group_size)).reshape(-1)
        turns = np.repeat(requests & 1, shape.group_size)
        memory = arena.lane_memory[turns, lanes]

        with self._autocast:
            columns, memory_after = self._algorithm.act(
                self._model,
                Request(
                    obs=self._tensor(obs),
                    first=self._tensor(first),
                    memory=self._tensor(memory),
                    noise=self._tensor(noise),
                    lane=self._tensor(lanes),
                    # The steps that are asked for have been let in already.
                    steps=self._weights.steps if self._replay is None else max(0, self._replay.steps_taken - len(rows)),
                ),
            )
        for name, values in columns.items():
            scatter(arena.columns[name], rows, values.cpu().numpy())
        arena.columns["version"][rows] = self._weights.version
        if shape.state_size:
            slots, row = np.divmod(rows, shape.rows_per_slot)
            begins = row == 0
            arena.slot_memory[slots[begins]] = memory[begins]
            # The other buffer: an answer that is never finished leaves the state it started from as it was.
            arena.lane_memory[1 - turns, lanes] = memory_after.cpu().numpy()

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)
