"""Choosing actions: the published weights, and the model that answers requests with them in batches.

Weights are stored in blocks of the arena: a model's bytes, followed by the number of steps that it has learned from.
One block holds the newest weights, another those of the best evaluation so far, with their mean return.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.bases.algorithm import Algorithm, Request
from penstock.experience.arena import NOT_ASKED, ExperienceArena, Pending
from penstock.experience.layout import RETURN_NBYTES, RunShape
from penstock.ipc import WeightsBlock, gather, scatter
from penstock.nn import WeightsLayout, buffer_in, flatten_, foreign_buffers, place_, places_in, put_buffer

STEPS_NBYTES = 8
AnyModel = TypeVar("AnyModel", bound=torch.nn.Module)


def weights_nbytes(model: torch.nn.Module) -> int:
    """Return the payload size of the weights block for a model, in bytes."""
    return WeightsLayout(model).nbytes + STEPS_NBYTES


class SharedWeights:
    """A model at one end of a weights block: the learner publishes, all other roles refresh.

    Parameters
    ----------
    model
        Model whose tensors are sent or overwritten. They are moved into contiguous memory, and must stay there.
    block
        Weights block of the arena.

    Attributes
    ----------
    version : int
        Version of the weights held; -1: none.
    """

    def __init__(self, model: torch.nn.Module, block: WeightsBlock) -> None:
        self._block = block
        memory = flatten_(model, STEPS_NBYTES)
        self._model_bytes = memory[:-STEPS_NBYTES]
        # Tensors on a CPU are sent in place; those on a GPU go through pinned memory.
        self._is_apart = memory.is_cuda
        payload = torch.zeros(len(memory), dtype=torch.uint8, pin_memory=True) if self._is_apart else memory
        self._weights = payload[:-STEPS_NBYTES]
        self._payload = payload.numpy()
        self._steps = self._payload[-STEPS_NBYTES:].view(np.int64)
        self._buffers = [(place, buffer_in(place)) for place in foreign_buffers(model)]
        self.version = -1

    @property
    def steps(self) -> int:
        """Steps that the held weights have learned from."""
        return int(self._steps[0])

    @property
    def payload(self) -> np.ndarray:
        """The held weights and their steps as stored in the block, uint8 ``[weights_nbytes]``."""
        return self._payload

    def publish(self, version: int, steps: int) -> None:
        """Copy the model's weights into the block, as this version that has learned from `steps` steps."""
        for place, memory in self._buffers:
            if (buffer := buffer_in(place)) is not memory:  # the module has replaced the tensor
                memory.copy_(buffer)
                put_buffer(place, memory)
        if self._is_apart:
            self._weights.copy_(self._model_bytes)
        self._steps[0] = steps
        self._block.publish(self._payload, version)
        self.version = version

    def show(self) -> None:
        """Do nothing: published weights are visible in the block already."""

    def refresh(self) -> None:
        """Load the newest weights into the model, unless it holds them."""
        if self._block.version != self.version:
            self.version = self._block.read_into(self._payload)
            if self._is_apart:
                self._model_bytes.copy_(self._weights)

    def take(self, payload: np.ndarray, version: int) -> None:
        """Load weights from elsewhere into the model, uint8 ``[weights_nbytes]``, instead of the newest ones."""
        self._payload[:] = payload
        self.version = version
        if self._is_apart:
            self._model_bytes.copy_(self._weights)


@dataclass(frozen=True)
class Best:
    """Weights of the best evaluation of a run.

    Attributes
    ----------
    parameters
        ``{policy_id: state dict on the CPU}``, copies, in the form that `Trainer.set_parameters` accepts.
    mean_return
        Mean return of the evaluation.
    steps, version
        Steps that the weights have learned from, and their version.
    """

    parameters: dict[int | str, dict[str, Tensor]]
    mean_return: float
    steps: int
    version: int


class BestWeights:
    """Weights of the best evaluation, in a block of their own: the evaluator writes, the trainer reads.

    Before the evaluator starts, the trainer writes the best weights of a resumed run.
    """

    def __init__(self, block: WeightsBlock) -> None:
        self._block = block
        self._payload = np.zeros(block.size, np.uint8)
        self._version = -1
        held, mean_return = np.split(self._payload, [-RETURN_NBYTES])
        weights, steps = np.split(held, [-STEPS_NBYTES])
        self._held, self._weights = held, torch.from_numpy(weights)
        self._steps, self._mean_return = steps.view(np.int64), mean_return.view(np.float64)

    def keep(self, weights: SharedWeights, mean_return: float) -> None:
        """Replace the best weights with those that `weights` holds."""
        self._held[:] = weights.payload
        self._mean_return[0] = mean_return
        self._block.publish(self._payload, weights.version)

    def put(self, model: torch.nn.Module, version: int, steps: int, mean_return: float) -> None:
        """Replace the best weights with those of a model, restored from a checkpoint."""
        state = [*model.parameters(), *model.buffers()]
        for place, tensor in zip(places_in(model, self._weights), state, strict=True):
            place.copy_(tensor.detach())
        self._steps[0] = steps
        self._mean_return[0] = mean_return
        self._block.publish(self._payload, version)

    def model(self, make_model: Callable[[], AnyModel]) -> AnyModel | None:
        """Return a new network with the best weights; None before there are any."""
        self._version = self._block.read_into(self._payload)
        if self._version < 0:
            return None
        model = make_model()
        place_(model, self._weights.clone())
        return model

    def load(self, make_model: Callable[[], torch.nn.Module], policy: int | str = 0) -> Best | None:
        """Return the best weights, as parameters of this policy id; None before there are any."""
        if (model := self.model(make_model)) is None:
            return None
        weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        return Best({policy: weights}, float(self._mean_return[0]), int(self._steps[0]), self._version)


MakeWeights = Callable[[Any, ExperienceArena], Any]
"""Constructor of one end of the weights' transport, from a model and the arena; the result is like `SharedWeights`."""


def through_block(model: torch.nn.Module, arena: ExperienceArena) -> SharedWeights:
    """Return an end of the arena's weights block, the transport between processes."""
    return SharedWeights(model, arena.weights)


StepsTaken = Callable[[int, int], int]
"""Function that returns the steps that exploration is scheduled by, from steps learned from and actions requested."""


def request_fields(shape: RunShape) -> list[tuple[str, tuple[int, ...], str]]:
    """Return name, shape for one lane, and dtype of the tensors of a `Request`."""
    return [
        ("obs", shape.observation.shape, shape.observation.dtype),
        ("first", (), "bool"),
        ("memory", (shape.state_size,), "float32"),
        ("noise", (shape.action.noise_size,), "float32"),
        ("lane", (), "int64"),
    ]


class RequestBuffer:
    """Fields of a `Request`, as arrays and as tensors of the same memory."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.arrays = arrays
        self.tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}


class Inference:
    """A model that answers requests, in a policy worker, or in a rollout worker with local inference.

    Parameters
    ----------
    arena
        Arena of the policy.
    algorithm
        Algorithm, whose `act` chooses actions and records columns.
    device
        Device of the model.
    steps_taken
        `DataPath.steps_taken` of the data path; None: exploration is scheduled by the steps learned from.
    weights
        Transport of the newest weights.
    """

    def __init__(
        self, arena: ExperienceArena, algorithm: Algorithm, device: str, steps_taken: StepsTaken | None = None,
        weights: MakeWeights = through_block,
    ) -> None:  # fmt: skip
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
        """Choose actions for the requesting lanes, and write them and the recorded columns into their rows."""
        self._weights.refresh()
        arena, shape, requests = self._arena, self._arena.shape, self._arena.requests
        rows, lanes = requests.rows[pending.groups].reshape(-1), self._lanes[pending.groups].reshape(-1)
        is_asked: Any = ...
        if shape.num_agents:  # some lanes may be waiting for their turn
            is_asked = rows != NOT_ASKED
            rows, lanes = rows[is_asked], lanes[is_asked]
            if not len(rows):
                requests.keep_memory(pending, requests.memory(pending))
                return
        fields = self._request_buffer(len(rows)).arrays
        self._read_observations(rows, fields)
        gather(arena.columns["first"], rows, fields["first"])
        gather(requests.noise.reshape(-1, shape.action.noise_size), lanes, fields["noise"])
        fields["lane"][:] = lanes + shape.first_lane
        if shape.state_size:
            memory = requests.memory(pending)
            fields["memory"][:] = memory[is_asked]
        steps = self._weights.steps
        if self._steps_taken is not None:
            steps = self._steps_taken(steps, len(rows))
        columns, memory_after = self._act(len(rows), steps)
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

    def _read_observations(self, rows: np.ndarray, fields: dict[str, np.ndarray]) -> None:
        gather(self._arena.columns["obs"], rows, fields["obs"])

    def _request_buffer(self, count: int) -> RequestBuffer:
        if count not in self._request_buffers:
            arrays = self._arrays_for(count)
            self._request_buffers[count] = RequestBuffer({name: array[:count] for name, array in arrays.items()})
        return self._request_buffers[count]

    def _arrays_for(self, count: int) -> dict[str, np.ndarray]:
        """Return arrays for the fields of a `Request` of `count` lanes or more, by name."""
        return self._arrays

    def _act(self, count: int, steps: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Answer the request in the buffer of `count` lanes: return columns to write, and memory states after."""
        tensors = self._request_buffer(count).tensors
        if self._device.type != "cpu":
            tensors = {name: tensor.to(self._device) for name, tensor in tensors.items()}
        with self._autocast:
            columns, memory_after = self._algorithm.act(self._model, Request(**tensors, steps=steps))
        return {name: values.cpu().numpy() for name, values in columns.items()}, memory_after.cpu().numpy()
