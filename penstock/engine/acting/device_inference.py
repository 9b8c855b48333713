"""Choosing actions on a GPU: pinned memory, one copy to the device and one back for each batch, and CUDA graphs.

Large observations are not copied by the host: the device reads them in the arena, where rollout workers wrote them.

A learner in the same process passes on its weights without copying them off the device.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.bases.algorithm import Algorithm, Request
from penstock.engine.acting.inference import (
    Inference,
    MakeWeights,
    SharedWeights,
    StepsTaken,
    request_fields,
    through_block,
)
from penstock.engine.acting.pinned import PinnedMemory, RowsInPlace
from penstock.engine.messages import Note, Tell
from penstock.experience.arena import ExperienceArena, Pending
from penstock.experience.layout import RunShape

ALIGNMENT = 64
MEMORY = "memory after"  # no column has this name
ROWS = "rows"  # no field of a request has this name


class Staging:
    """Tensors of a device and their images in pinned host memory, copied all at once.

    Parameters
    ----------
    fields
        Name, shape and dtype of each.
    device
        Device of the tensors.

    Attributes
    ----------
    arrays, tensors
        Arrays on the host and tensors on the device, by name.
    """

    def __init__(self, fields: Iterable[tuple[str, tuple[int, ...], torch.dtype]], device: torch.device) -> None:
        places, end = [], 0
        for name, shape, dtype in fields:
            nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            places.append((name, shape, dtype, slice(end, end + nbytes)))
            end += -(-nbytes // ALIGNMENT) * ALIGNMENT
        self._on_host = torch.zeros(end, dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._on_device = torch.zeros(end, dtype=torch.uint8, device=device)
        self._copied = torch.cuda.Event(blocking=True) if device.type == "cuda" else None

        def views(memory: Tensor) -> dict[str, Tensor]:
            return {name: memory[place].view(dtype).view(shape) for name, shape, dtype, place in places}

        self.arrays = {name: tensor.numpy() for name, tensor in views(self._on_host).items()}
        self.tensors = views(self._on_device)

    def send(self) -> None:
        """Copy the arrays to the device, on the current stream, without waiting."""
        self._on_device.copy_(self._on_host, non_blocking=True)

    def fetch(self) -> None:
        """Copy the tensors to the host, and wait for them without holding the interpreter's lock or a core."""
        self._on_host.copy_(self._on_device, non_blocking=True)
        if self._copied is not None:
            self._copied.record()
            self._copied.synchronize()


class WatchedRequest(Request):
    """Request that records whether its steps are read: an answer that depends on them cannot be captured."""

    steps_were_read = False

    def __getattribute__(self, name: str) -> Any:
        if name == "steps":
            object.__setattr__(self, "steps_were_read", True)
        return super().__getattribute__(name)


class Bucket:
    """Memory of requests and answers for batches of up to `size` lanes, and the graph that computes the answers.

    Parameters
    ----------
    size, shape, device
        Lanes, shape of the run, and device.
    in_place
        Observations that the device reads in the arena; None: they are fields of the request.

    Attributes
    ----------
    asked, answered
        Data copied to the device: fields of a `Request`, with row numbers in place of observations that the device
        reads in the arena. Data copied back: columns and memory states.
    request
        Fields of a `Request`, tensors of the device.
    graph
        Captured computation; None: it runs operation by operation.
    """

    answered: Staging
    graph: torch.cuda.CUDAGraph | None = None

    def __init__(self, size: int, shape: RunShape, device: torch.device, in_place: RowsInPlace | None) -> None:
        fields = {name: ((size, *one), getattr(torch, dtype)) for name, one, dtype in request_fields(shape)}
        self._in_place, self.request = in_place, {}
        if in_place is not None:
            obs_shape, dtype = fields.pop("obs")
            self.request["obs"] = torch.zeros(obs_shape, dtype=dtype, device=device)
            fields[ROWS] = (size,), torch.int64
        self.asked = Staging([(name, *field) for name, field in fields.items()], device)
        self.request.update((name, tensor) for name, tensor in self.asked.tensors.items() if name != ROWS)
        if (mask := shape.observation.mask) is not None:  # padding needs legal actions, too
            self.asked.arrays["obs"][:, mask.offset : mask.offset + math.prod(mask.spec.shape)] = 1

    def read_observations(self) -> None:
        """Read the observations in the arena, on the device."""
        if self._in_place is not None:
            self._in_place.read(self.asked.tensors[ROWS], self.request["obs"])


def bucket_sizes(shape: RunShape) -> list[int]:
    """Return the number of lanes of each bucket of a policy worker: of 1, 2, 4, ... groups, and of all its groups."""
    most = shape.groups_per_policy_worker
    powers = [1 << power for power in range((most - 1).bit_length())]
    return [num_groups * shape.group_size for num_groups in [*powers, most]]


def after_failed_capture(error: Exception, generators: Iterable[torch.Generator] = ()) -> str:
    """Make random numbers, the GPU's and those of generators, usable after a failed capture; return its cause."""
    bound = [each for each in (*torch.cuda.default_generators, *generators) if each.device.type == "cuda"]
    for generator in bound:  # its state is still bound to the capture; a copy is not
        generator.graphsafe_set_state(generator.clone_state())
    cause = error.__context__ or error  # the end of a failed capture raises, too
    return f"{type(cause).__name__}: {cause}"


class DeviceInference(Inference):
    """Inference on a GPU, on a stream of its own with precedence over the learner's.

    Requests are padded to a bucket. A bucket's memory is the same for every batch, so that its computation can be
    captured as a CUDA graph: an answer is then one launch instead of one for each operation. A computation that cannot
    be captured (it depends on the number of steps, or on values) runs operation by operation.

    Parameters
    ----------
    arena, algorithm, device, steps_taken, weights
        As for `Inference`. On a CPU nothing is captured.
    report
        Function for reports: a `Note` if a graph cannot be captured.
    """

    def __init__(
        self, arena: ExperienceArena, algorithm: Algorithm, device: str, steps_taken: StepsTaken | None, report: Tell,
        weights: MakeWeights = through_block,
    ) -> None:  # fmt: skip
        self._captures = torch.device(device).type == "cuda"
        self._stream = torch.cuda.Stream(device, priority=-1) if self._captures else None
        self._pool: Any = None  # memory shared by all graphs: no two of them run at once
        self._report = report
        with self._on_stream():
            super().__init__(arena, algorithm, device, steps_taken, weights)
            # Without the cache: a graph would not update cached bfloat16 copies of weights.
            self._autocast = algorithm.autocast(self._device, cache=False)
            self._in_place = self._observations_in_place()
            self._sizes = bucket_sizes(arena.shape)
            self._buckets = [self._make_bucket(size) for size in self._sizes]

    def answer(self, pending: Pending) -> None:
        with self._on_stream():
            super().answer(pending)

    def _on_stream(self) -> AbstractContextManager[object]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def _bucket(self, count: int) -> Bucket:
        """Return the smallest bucket for `count` lanes."""
        return self._buckets[bisect_left(self._sizes, count)]

    def _arrays_for(self, count: int) -> dict[str, np.ndarray]:
        return self._bucket(count).asked.arrays

    def _observations_in_place(self) -> RowsInPlace | None:
        """Return the arena's observations as the device reads them; None if they are small, or CUDA refuses."""
        column = self._arena.columns["obs"]
        if not RowsInPlace.serves(column) or self._arena.shape.observation.mask is not None:
            return None
        memory = PinnedMemory.of(column, self._device)
        if not memory.is_registered:
            self._report(Note("CUDA does not register the observations' memory: the host copies them to the GPU"))
            return None
        return RowsInPlace(memory, column[0].nbytes)

    def _read_observations(self, rows: np.ndarray, fields: dict[str, np.ndarray]) -> None:
        if self._in_place is None:
            super()._read_observations(rows, fields)
        else:
            fields[ROWS][:] = rows

    def _act(self, count: int, steps: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        bucket = self._bucket(count)
        bucket.asked.send()
        if bucket.graph is not None:
            bucket.graph.replay()
        else:
            self._run(bucket, Request(**bucket.request, steps=steps))
        bucket.answered.fetch()
        columns = {name: array[:count] for name, array in bucket.answered.arrays.items()}
        return columns, columns.pop(MEMORY)

    @torch.inference_mode()
    def _make_bucket(self, size: int) -> Bucket:
        """Make a bucket, with memory for the answer's fields, and capture its graph if possible."""
        bucket = Bucket(size, self._arena.shape, self._device, self._in_place)
        bucket.asked.send()
        request = WatchedRequest(**bucket.request, steps=0)
        answer = self._answer(request)
        fields = [(name, tuple(tensor.shape), tensor.dtype) for name, tensor in answer.items()]
        bucket.answered = Staging(fields, self._device)
        if self._captures and not request.steps_were_read:
            bucket.graph = self._capture(bucket, request)
        return bucket

    def _answer(self, request: Request) -> dict[str, Tensor]:
        with self._autocast:
            columns, memory_after = self._algorithm.act(self._model, request)
        return {**columns, MEMORY: memory_after}

    def _run(self, bucket: Bucket, request: Request) -> None:
        """Compute the answer into the bucket's tensors, operation by operation."""
        bucket.read_observations()
        for name, tensor in self._answer(request).items():
            bucket.answered.tensors[name].copy_(tensor)

    def _capture(self, bucket: Bucket, request: Request) -> torch.cuda.CUDAGraph | None:
        """Capture the answer's computation as a graph; return None if that fails."""
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                self._run(bucket, request)
        except Exception as error:
            self._captures = False
            self._report(Note(f"inference runs without CUDA graphs: {after_failed_capture(error)}"))
            return None
        self._pool = graph.pool()
        return graph


class WeightsExchange:
    """The newest weights on the device: one thread leaves them, another takes them, each on a stream of its own.

    Neither thread waits on the host. The streams wait on the device, for the length of a copy: copies are whole, and
    weights that are being taken are not overwritten.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held while copies are enqueued, not while they run
        self._left: tuple[Tensor, int, int] | None = None
        self._copied_in: torch.cuda.Event | None = None
        self._copied_out: torch.cuda.Event | None = None

    @property
    def version(self) -> int:
        """Version of the weights; -1: none."""
        return -1 if self._left is None else self._left[1]

    def leave(self, model_bytes: Tensor, version: int, steps: int) -> None:
        """Replace the weights with a copy of `model_bytes`, uint8 ``[nbytes]``, on the current stream."""
        with self._lock:
            place = torch.empty_like(model_bytes) if self._left is None else self._left[0]
            if self._copied_out is not None:
                self._copied_out.wait()
            place.copy_(model_bytes)
            self._left = place, version, steps
            self._copied_in = _event_after(place)

    def take(self, model_bytes: Tensor) -> tuple[int, int]:
        """Copy the weights into `model_bytes`, on the current stream; return their version and steps learned from."""
        with self._lock:
            assert self._left is not None, "weights are left before they are taken"
            place, version, steps = self._left
            if self._copied_in is not None:
                self._copied_in.wait()
            model_bytes.copy_(place)
            self._copied_out = _event_after(place)
        return version, steps


def _event_after(tensor: Tensor) -> torch.cuda.Event | None:
    """Return an event after the current stream's work; None for a tensor without streams."""
    if not tensor.is_cuda:
        return None
    event = torch.cuda.Event()
    event.record()
    return event


class LearnerWeights(SharedWeights):
    """The learner's end: every version goes to the exchange, reported versions also to the weights block.

    Parameters
    ----------
    model
        Model that learns.
    arena
        Arena of the policy, whose block the evaluator and the user read.
    exchange
        Exchange from which the inference takes weights.
    """

    def __init__(self, model: torch.nn.Module, arena: ExperienceArena, exchange: WeightsExchange) -> None:
        super().__init__(model, arena.weights)
        self._exchange = exchange
        self._is_shown = True

    def publish(self, version: int, steps: int) -> None:
        """Leave the model's weights for the inference."""
        self._exchange.leave(self._model_bytes, version, steps)
        self.version, self._steps[0] = version, steps
        self._is_shown = False

    def show(self) -> None:
        """Copy the last published weights into the block, unless they are there already."""
        if not self._is_shown:
            super().publish(self.version, self.steps)
            self._is_shown = True

    def refresh(self) -> None:
        """Load the block's weights, and leave them for the inference."""
        super().refresh()
        self.publish(self.version, self.steps)
        self._is_shown = True


class InferenceWeights(SharedWeights):
    """The inference's end of the exchange.

    Parameters
    ----------
    model
        Model that acts, on the learner's device.
    arena
        Arena of the policy.
    exchange
        Exchange in which the learner leaves weights.
    """

    def __init__(self, model: torch.nn.Module, arena: ExperienceArena, exchange: WeightsExchange) -> None:
        super().__init__(model, arena.weights)
        self._exchange = exchange

    def refresh(self) -> None:
        if self._exchange.version != self.version:
            self.version, self._steps[0] = self._exchange.take(self._model_bytes)
