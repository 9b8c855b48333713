"""Choosing actions: requests of groups become one batch, and the answers land in the rows that asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from penstock.algorithms.base import Request
from penstock.engine.weights import MakeWeights, through_block
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RunShape
from penstock.ipc import gather, scatter

if TYPE_CHECKING:
    from penstock.engine.paths.base import DataPath


def request_fields(shape: RunShape) -> list[tuple[str, tuple[int, ...], str]]:
    """Name, shape for one lane, and dtype of the tensors of a `Request`."""
    return [
        ("obs", shape.observation.shape, shape.observation.dtype),
        ("first", (), "bool"),
        ("memory", (shape.state_size,), "float32"),
        ("noise", (shape.action.noise_size,), "float32"),
        ("lane", (), "int64"),
    ]


class Room:
    """Where what is asked is gathered: the fields of a `Request`, as arrays and as tensors of the same memory."""

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
    path
        The run's data path: it counts the steps that exploration is scheduled by.
    weights
        By which way the newest ones come.
    """

    def __init__(
        self,
        arena: ExperienceArena,
        algorithm: Any,
        device: str,
        path: DataPath,
        weights: MakeWeights = through_block,
    ) -> None:
        self._arena = arena
        self._algorithm = algorithm
        self._path = path
        self._device = torch.device(device)
        self._autocast = algorithm.autocast(self._device)
        self._model = algorithm.build_model().to(self._device)
        self._weights = weights(self._model, arena)
        self._lanes = np.arange(arena.shape.num_lanes, dtype=np.int64).reshape(-1, arena.shape.group_size)
        count = arena.shape.num_lanes
        self._arrays = {name: np.zeros((count, *shape), dtype) for name, shape, dtype in request_fields(arena.shape)}
        self._rooms: dict[int, Room] = {}

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
        asked = self._room_for(len(rows)).arrays
        gather(arena.columns["obs"], rows, asked["obs"])
        gather(arena.columns["first"], rows, asked["first"])
        for name, of_groups in (("noise", arena.noise), ("lane", self._lanes)):
            gather(of_groups, groups, asked[name].reshape(len(groups), *of_groups.shape[1:]))
        if shape.state_size:
            turns = np.repeat(requests & 1, shape.group_size)
            asked["memory"][:] = arena.lane_memory[turns, asked["lane"]]
        columns, memory_after = self._act(len(rows), self._path.steps_taken(self._weights.steps, len(rows)))
        for name, values in columns.items():
            scatter(arena.columns[name], rows, values)
        arena.columns["version"][rows] = self._weights.version
        if shape.state_size:
            slots, row = np.divmod(rows, shape.rows_per_slot)
            begins = row == 0
            arena.slot_memory[slots[begins]] = asked["memory"][begins]
            # The other buffer: an answer that is never finished leaves the state it started from as it was.
            arena.lane_memory[1 - turns, asked["lane"]] = memory_after

    def _room_for(self, count: int) -> Room:
        if count not in self._rooms:
            self._rooms[count] = Room({name: array[:count] for name, array in self._arrays_for(count).items()})
        return self._rooms[count]

    def _arrays_for(self, count: int) -> dict[str, np.ndarray]:
        """Arrays with room for the fields of a `Request` of so many lanes or more, by name."""
        return self._arrays

    def _act(self, count: int, steps: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Answer what lies in the room of so many lanes: the columns to be written, and the memory state after."""
        tensors = {name: tensor.to(self._device) for name, tensor in self._room_for(count).tensors.items()}
        with self._autocast:
            columns, memory_after = self._algorithm.act(self._model, Request(**tensors, steps=steps))
        return {name: values.cpu().numpy() for name, values in columns.items()}, memory_after.cpu().numpy()
