"""Choosing actions: requests of groups become one batch, and the answers land in the rows that asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from penstock.algorithms.bases.algorithm import Request
from penstock.engine.acting.weights import MakeWeights, through_block
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RunShape
from penstock.experience.requests import NOT_ASKED, Pending
from penstock.ipc import gather, scatter

StepsTaken = Callable[[int, int], int]
"""Steps that exploration is scheduled by, given the steps learned from and the number of actions requested."""


def request_fields(shape: RunShape) -> list[tuple[str, tuple[int, ...], str]]:
    """Name, shape for one lane, and dtype of the tensors of a `Request`."""
    return [
        ("obs", shape.observation.shape, shape.observation.dtype),
        ("first", (), "bool"),
        ("memory", (shape.state_size,), "float32"),
        ("noise", (shape.action.noise_size,), "float32"),
        ("lane", (), "int64"),
    ]


class RequestBuffer:
    """The fields of a `Request`, as arrays and as tensors of the same memory."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.arrays = arrays
        self.tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}


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
    steps_taken
        `DataPath.steps_taken` of the run's data path.
    weights
        By which way the newest ones come.
    """

    def __init__(
        self,
        arena: ExperienceArena,
        algorithm: Any,
        device: str,
        steps_taken: StepsTaken,
        weights: MakeWeights = through_block,
    ) -> None:
        self._arena = arena
        self._algorithm = algorithm
        self._steps_taken = steps_taken
        self._device = torch.device(device)
        self._autocast = algorithm.autocast(self._device)
        self._model = algorithm.make_model(self._device)
        self._weights = weights(self._model, arena)
        self._lanes = np.arange(arena.shape.num_lanes, dtype=np.int64).reshape(-1, arena.shape.group_size)
        count = arena.shape.num_lanes
        self._arrays = {name: np.zeros((count, *shape), dtype) for name, shape, dtype in request_fields(arena.shape)}
        self._request_buffers: dict[int, RequestBuffer] = {}

    @torch.inference_mode()
    def answer(self, pending: Pending) -> None:
        """Choose actions for the lanes of the groups that ask, and write them with what is recorded into their rows."""
        self._weights.refresh()
        arena, shape, requests = self._arena, self._arena.shape, self._arena.requests
        rows, lanes = requests.rows[pending.groups].reshape(-1), self._lanes[pending.groups].reshape(-1)
        is_asked: Any = ...
        if shape.num_agents:  # others wait for their turn
            is_asked = rows != NOT_ASKED
            rows, lanes = rows[is_asked], lanes[is_asked]
            if not len(rows):
                requests.keep_memory(pending, requests.memory(pending))
                return
        fields = self._request_buffer(len(rows)).arrays
        gather(arena.columns["obs"], rows, fields["obs"])
        gather(arena.columns["first"], rows, fields["first"])
        gather(requests.noise.reshape(-1, shape.action.noise_size), lanes, fields["noise"])
        fields["lane"][:] = lanes + shape.first_lane
        if shape.state_size:
            memory = requests.memory(pending)
            fields["memory"][:] = memory[is_asked]
        columns, memory_after = self._act(len(rows), self._steps_taken(self._weights.steps, len(rows)))
        for name, values in columns.items():
            scatter(arena.columns[name], rows, values)
        arena.columns["version"][rows] = self._weights.version
        if shape.state_size:
            slots, row = np.divmod(rows, shape.rows_per_slot)
            begins = row == 0
            arena.slot_memory[slots[begins]] = fields["memory"][begins]
            if shape.num_agents:
                arena.decision_memory[lanes] = fields["memory"]
            memory[is_asked] = memory_after
            requests.keep_memory(pending, memory)

    def _request_buffer(self, count: int) -> RequestBuffer:
        if count not in self._request_buffers:
            arrays = self._arrays_for(count)
            self._request_buffers[count] = RequestBuffer({name: array[:count] for name, array in arrays.items()})
        return self._request_buffers[count]

    def _arrays_for(self, count: int) -> dict[str, np.ndarray]:
        """Arrays with space for the fields of a `Request` of so many lanes or more, by name."""
        return self._arrays

    def _act(self, count: int, steps: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Answer what lies in the buffer of so many lanes: the columns to be written, and the memory state after."""
        tensors = {name: tensor.to(self._device) for name, tensor in self._request_buffer(count).tensors.items()}
        with self._autocast:
            columns, memory_after = self._algorithm.act(self._model, Request(**tensors, steps=steps))
        return {name: values.cpu().numpy() for name, values in columns.items()}, memory_after.cpu().numpy()
