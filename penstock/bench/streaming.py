"""Costs of the stream between a node and home: blocks, weights, and gradients between learners, each alone.

Sender and receiver are those of a run, over loopback, in one process. Their threads' own CPU clocks are used, so that
other programs have little influence.
"""

from __future__ import annotations

import secrets
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import torch

from penstock.bench import BenchError
from penstock.bench.scaling import StreamCosts
from penstock.engine.nodes.receiver import Receiver, ReceiverRole
from penstock.engine.nodes.sender import Home, Sender, keep_all_slots
from penstock.engine.nodes.transport import transport_of
from penstock.engine.paths.segments import SegmentPath
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RunShape
from penstock.ipc import Doorbell, SlotState

PATIENCE = 20.0  # seconds until a block or a version must arrive
LANES = 16
SMALL, LARGE = ObservationSpec((16,), "float32"), ObservationSpec((84, 84, 4), "uint8")
WEIGHTS = (1 << 16, 1 << 22)  # bytes of a small and of a large network
GRADIENT = 1 << 22  # bytes to average
WARM_UP = 5  # blocks or versions before the measurement
HOME_THREADS, NODE_THREADS = ("home-receiving", "home-sending"), ("node-receiving",)

_SHAPE = RunShape(
    num_workers=1, num_envs_per_worker=LANES, num_groups=1, segment_length=16, slots_per_lane=1,
    segments_per_batch=LANES, observation=SMALL, action=ActionSpec((), "int64", num_actions=4), records=(),
    state_size=0, weights_nbytes=64,
)  # fmt: skip


def stream_costs(blocks: int = 200, versions: int = 60) -> StreamCosts:
    """Measure CPU seconds, with `blocks` of each kind and `versions` of each size.

    Raises
    ------
    BenchError
        A block or version did not arrive.
    """
    sizes, sent, received, trips = [], [], [], []
    for observation in (SMALL, LARGE):
        for segments in (1, LANES):
            with _Ends(replace(_SHAPE, observation=observation)) as ends:
                node, home, trip = ends.measure_blocks(segments, blocks)
            sizes.append(segments * ends.segment_nbytes)
            sent.append(node)
            received.append(home)
            trips.append(trip)
    told, heard = [], []
    for nbytes in WEIGHTS:
        with _Ends(replace(_SHAPE, weights_nbytes=nbytes)) as ends:
            node, home = ends.measure_weights(versions)
        told.append(home)
        heard.append(node)
    return StreamCosts(
        *_line(sizes, sent), *_line(sizes, received), *_line(WEIGHTS, told), *_line(WEIGHTS, heard),
        trip=trips[0], reduce_byte=_reducing(versions) / GRADIENT,
    )  # fmt: skip


def _line(sizes: Sequence[float], costs: Sequence[float]) -> tuple[float, float]:
    """Return fixed cost and cost per byte by least squares of relative errors, neither below 0."""
    found = np.array(costs)
    table = np.stack([np.ones(len(found)), np.array(sizes)], axis=1) / found[:, None]
    nothing, byte = np.linalg.lstsq(table, np.ones(len(found)), rcond=None)[0].tolist()
    return max(0.0, nothing), max(0.0, byte)


class _Ends:
    """A node and its home."""

    def __init__(self, shape: RunShape) -> None:
        self._home, self._node = ExperienceArena.create(shape), ExperienceArena.create(shape)
        keep_all_slots(self._node)
        token = secrets.token_bytes(32)
        self._home.weights.publish(np.zeros(shape.weights_nbytes, np.uint8), 0)
        spec = ReceiverRole("127.0.0.1", token, 1, [range(shape.num_workers)], (transport_of(SegmentPath()),), (False,))
        self._receiver = Receiver(spec, self._home, lambda report: None)
        self._sender = Sender(self._node, Home(self._receiver.address, token, 1, 0, 1), SegmentPath())

    @property
    def segment_nbytes(self) -> float:
        """Bytes of a segment's columns."""
        return sum(column.nbytes for column in self._node.columns.values()) / self._node.shape.num_slots

    def measure_blocks(self, segments: int, count: int) -> tuple[float, float, float]:
        """Return CPU seconds of a block of `segments` at the node and at home, and seconds of its round trip."""
        node, home, slots = self._node, self._home, np.arange(segments)
        sending, trips = 0.0, []
        clocks = dict[str, float]()

        def is_granted() -> bool:
            return len(node.slots.in_state(SlotState.FREE)) == LANES

        self._until(node.rollout_bells[0], is_granted)
        for number in range(-WARM_UP, count):
            if number == 0:
                clocks, sending = _thread_seconds(), 0.0
            node.slots.claim(slots, SlotState.FREE, SlotState.WRITING, 0)
            node.deliver(slots, 0)
            began, cpu = time.monotonic(), time.thread_time()
            self._sender.poll()
            sending += time.thread_time() - cpu
            self._until(home.learner_bell, lambda: len(home.full) == segments)
            home.release(home.take_full())
            self._until(node.rollout_bells[0], is_granted)
            trips.append(time.monotonic() - began)
        spent = {name: seconds - clocks[name] for name, seconds in _thread_seconds().items()}
        at_node = sending + sum(spent[name] for name in NODE_THREADS)
        return at_node / count, sum(spent[name] for name in HOME_THREADS) / count, statistics.median(trips)

    def measure_weights(self, count: int) -> tuple[float, float]:
        """Return CPU seconds of a version at the node and at home."""
        node, home = self._node, self._home
        weights = np.zeros(home.weights.size, np.uint8)
        clocks = dict[str, float]()
        for version in range(1, WARM_UP + count + 1):
            if version == WARM_UP + 1:
                clocks = _thread_seconds()
            home.weights.publish(weights, version)
            home.ring_rollout_workers()
            self._until(node.rollout_bells[0], lambda: node.weights.version == version)  # noqa: B023
        spent = {name: seconds - clocks[name] for name, seconds in _thread_seconds().items()}
        return sum(spent[n] for n in NODE_THREADS) / count, sum(spent[n] for n in HOME_THREADS) / count

    @staticmethod
    def _until(bell: Doorbell, is_done: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            seen = bell.value
            if is_done():
                return
            if time.monotonic() > end:
                raise BenchError(f"nothing arrives over loopback in {PATIENCE:.0f} s: is the machine overloaded?")
            bell.wait(seen, 0.001)

    def __enter__(self) -> _Ends:
        return self

    def __exit__(self, *_: object) -> None:
        self._sender.close()
        self._receiver.close()


def _thread_seconds() -> dict[str, float]:
    """Return the CPU seconds of the stream's threads so far, by name."""
    found = {name: 0.0 for name in (*HOME_THREADS, *NODE_THREADS)}
    for thread in threading.enumerate():
        if thread.name in found and thread.ident is not None:
            found[thread.name] += time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return found


def _reducing(count: int) -> float:
    """Return the median seconds in which two learners average `GRADIENT` bytes."""
    store, seconds = torch.distributed.HashStore(), list[float]()

    def average(rank: int) -> None:
        group: Any = torch.distributed.ProcessGroupGloo(store, rank, 2, timedelta(seconds=PATIENCE))
        gradient = torch.zeros(GRADIENT // 4)
        for _ in range(WARM_UP + count):
            began = time.monotonic()
            group.allreduce([gradient]).wait()
            if rank == 0:
                seconds.append(time.monotonic() - began)

    other = threading.Thread(target=average, args=(1,), daemon=True)
    other.start()
    average(0)
    other.join()
    return statistics.median(seconds[WARM_UP:])
