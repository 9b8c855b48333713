"""Choosing actions on a GPU: pinned memory, one copy to the device and one back for each batch, and CUDA graphs."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.bases.algorithm import Request
from penstock.engine.acting.inference import Inference, StepsTaken, request_fields
from penstock.engine.acting.weights import MakeWeights, through_block
from penstock.engine.messages import Note, Tell
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RunShape
from penstock.experience.requests import Pending

ALIGNMENT = 64
MEMORY = "memory after"  # no column of an algorithm's goes by this name


class Staging:
    """Tensors of a device and their images in pinned host memory, all of them copied at once.

    Parameters
    ----------
    fields
        Name, shape and dtype of each.
    device
        Where the tensors are.

    Attributes
    ----------
    arrays, tensors
        By name: those on the host, and those on the device.
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
        """Copy the arrays to the device, in the order of the current stream; nothing is waited for."""
        self._on_device.copy_(self._on_host, non_blocking=True)

    def fetch(self) -> None:
        """Copy the tensors to the host, and wait for them; the interpreter's lock and the core are free meanwhile."""
        self._on_host.copy_(self._on_device, non_blocking=True)
        if self._copied is not None:
            self._copied.record()
            self._copied.synchronize()


class WatchedRequest(Request):
    """A request that notices whether its steps are looked at: an answer that depends on them differs every time."""

    steps_were_read = False

    def __getattribute__(self, name: str) -> Any:
        if name == "steps":
            object.__setattr__(self, "steps_were_read", True)
        return super().__getattribute__(name)


class Bucket:
    """Batches of up to so many lanes: what is asked, what is answered, and the graph that leads from one to the other.

    Attributes
    ----------
    asked, answered
        The fields of a `Request`; columns and memory state, once it is known what they are.
    graph
        The answer's computation, captured; None: it is run operation by operation.
    """

    answered: Staging
    graph: torch.cuda.CUDAGraph | None = None

    def __init__(self, size: int, shape: RunShape, device: torch.device) -> None:
        fields = [(name, (size, *one), getattr(torch, dtype)) for name, one, dtype in request_fields(shape)]
        self.asked = Staging(fields, device)
        if (mask := shape.observation.mask) is not None:  # what pads a batch has legal actions, too
            self.asked.arrays["obs"][:, mask.offset : mask.offset + math.prod(mask.spec.shape)] = 1


def bucket_sizes(shape: RunShape) -> list[int]:
    """Lanes of the buckets that a policy worker needs: of as many groups as a power of two, and of all its groups."""
    most = shape.groups_per_policy_worker
    powers = [1 << power for power in range((most - 1).bit_length())]
    return [num_groups * shape.group_size for num_groups in [*powers, most]]


def after_failed_capture(error: Exception) -> str:
    """Leave random numbers of the GPU usable after a capture that failed with this; return why it failed."""
    for generator in torch.cuda.default_generators:  # it would go on counting for the capture; a copy does not
        generator.graphsafe_set_state(generator.clone_state())
    cause = error.__context__ or error  # the end of a capture that failed fails, too
    return f"{type(cause).__name__}: {cause}"


class DeviceInference(Inference):
    """Inference on a GPU, on a stream of its own that goes before the learner's.

    The lanes that wait are padded to a bucket. What a bucket asks and what it is answered lies in the same places every
    time, so that its computation can be captured as a CUDA graph: then an answer is one launch instead of one for each
    operation. What cannot be captured (an algorithm that looks at the number of steps, an encoder that looks at values)
    is run as it is written.

    Parameters
    ----------
    arena, algorithm, device, steps_taken, weights
        As for `Inference`. On a CPU nothing is captured; everything else is the same.
    report
        Called with a `Note` if graphs were to be captured and cannot.
    """

    def __init__(
        self,
        arena: ExperienceArena,
        algorithm: Any,
        device: str,
        steps_taken: StepsTaken,
        report: Tell,
        weights: MakeWeights = through_block,
    ) -> None:
        self._captures = torch.device(device).type == "cuda"
        self._stream = torch.cuda.Stream(device, priority=-1) if self._captures else None
        self._pool: Any = None  # memory of the first graph, which the others share: no two of them run at once
        self._report = report
        with self._on_stream():
            super().__init__(arena, algorithm, device, steps_taken, weights)
            # Copies of weights in bfloat16 that outlive an operation would not be made anew by a graph.
            self._autocast = algorithm.autocast(self._device, cache=False)
            self._sizes = bucket_sizes(arena.shape)
            self._buckets = [self._make_bucket(size) for size in self._sizes]

    def answer(self, pending: Pending) -> None:
        """Choose actions, as `Inference` does."""
        with self._on_stream():
            super().answer(pending)

    def _on_stream(self) -> AbstractContextManager[object]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def _bucket(self, count: int) -> Bucket:
        """The smallest bucket for so many lanes."""
        return self._buckets[bisect_left(self._sizes, count)]

    def _arrays_for(self, count: int) -> dict[str, np.ndarray]:
        return self._bucket(count).asked.arrays

    def _act(self, count: int, steps: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        bucket = self._bucket(count)
        bucket.asked.send()
        if bucket.graph is not None:
            bucket.graph.replay()
        else:
            self._run(bucket, Request(**bucket.asked.tensors, steps=steps))
        bucket.answered.fetch()
        columns = {name: array[:count] for name, array in bucket.answered.arrays.items()}
        return columns, columns.pop(MEMORY)

    @torch.inference_mode()
    def _make_bucket(self, size: int) -> Bucket:
        """Make a bucket, and find out what is answered, and whether a graph can."""
        bucket = Bucket(size, self._arena.shape, self._device)
        bucket.asked.send()
        request = WatchedRequest(**bucket.asked.tensors, steps=0)
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
        """Leave the answer on the device, operation by operation."""
        for name, tensor in self._answer(request).items():
            bucket.answered.tensors[name].copy_(tensor)

    def _capture(self, bucket: Bucket, request: Request) -> torch.cuda.CUDAGraph | None:
        """Capture the answer's computation as a graph; None if that cannot be done."""
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
