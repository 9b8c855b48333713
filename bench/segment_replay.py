"""Cost of replayed segments: speed of learning, reading a batch, memory of stored frames.

    python bench/segment_replay.py [speed] [read] [memory] [--rounds 5] [--seconds 6]

speed    Segments learned from per second, IMPALA on CartPole with the learner as the bottleneck: without replay, with
         half of each batch uniform, and with half of it elite, with six candidates per segment taken. In turns.
read     Microseconds for a batch of 16 segments: from slots of the arena alone, and half from rows of a replay buffer.
memory   Bytes of a store of 10,000 segments of 20 steps of stacked frames, and of their distinct frames alone.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

import penstock
from penstock.config.sources import parse_source
from penstock.engine.paths.segment_learner import BatchReader
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RunShape, row_name
from penstock.experience.segment_store import SegmentStore, make_store, segments_in
from penstock.runs.machine import describe

LEARNER_BOUND: dict[str, Any] = {
    "env": "CartPole-v1", "num_workers": 2, "num_envs_per_worker": 64, "segment_length": 20, "batch_size": 1280,
    "hidden_sizes": (256, 256), "eval_interval": 0, "run_dir": None, "total_steps": 10**9,
}  # fmt: skip
SOURCES = {
    "no replay": ["queue:1"],
    "uniform": ["queue:1/2", "uniform:1/2,min_size=100"],
    "elite": ["queue:1/2", "elite:1/2,min_size=100,candidates=6,anneal=1000"],
}
VECTOR, ATARI = ObservationSpec((4,), "float32"), ObservationSpec((4, 84, 84), "uint8", is_stacked=True)


def segments_per_second(sources: list[str], seconds: float) -> float:
    """Return the segments learned from per second, fresh and replayed."""
    with penstock.IMPALA(**LEARNER_BOUND, replay=sources) as algo:
        algo.train(40_000, quiet=True)  # until everything runs and stores are filled
        before, began = algo.status.updates, time.monotonic()
        algo.train(10**8, quiet=True, on_update=lambda _: time.monotonic() - began < seconds)
        updates, took = algo.status.updates - before, time.monotonic() - began
    return updates * 64 / took


def speed(rounds: int, seconds: float) -> None:
    """Print segments per second of each, in turns."""
    found: dict[str, list[float]] = {name: [] for name in SOURCES}
    for _ in range(rounds):
        for name, sources in SOURCES.items():
            found[name].append(segments_per_second(sources, seconds))
    base = statistics.median(found["no replay"])
    for name, rates in found.items():
        rate = statistics.median(rates)
        spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
        print(f"{name:10}: {rate:8,.0f} segments/s ({spread}), {rate / base:.2f} x", flush=True)


def shape_of(observation: ObservationSpec, lanes: int = 32) -> RunShape:
    """Return the shape of a run with segments of 20 steps."""
    return RunShape(
        num_workers=1, num_envs_per_worker=lanes, num_groups=1, segment_length=20, slots_per_lane=2,
        segments_per_batch=16, observation=observation, action=ActionSpec((), "int64", num_actions=6), records=(),
        state_size=0, weights_nbytes=8,
    )  # fmt: skip


def microseconds(do: Callable[[], object], times: int = 200) -> float:
    """Return the time of one call, the shortest of five rounds."""
    rounds = []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(times):
            do()
        rounds.append((time.perf_counter() - began) / times * 1e6)
    return min(rounds)


def half_from_rows(reader: BatchReader, store: SegmentStore) -> None:
    """Read a batch of eight segments from slots and eight from rows."""
    reader.read(np.arange(8), 0, 0.0, [store.sample()])


def read() -> None:
    """Print the time to read a batch of 16 segments."""
    for name, observation in (("vectors", VECTOR), ("stacks of 84 x 84", ATARI)):
        shape = shape_of(observation)
        arena = ExperienceArena.create(shape)
        random = np.random.default_rng(0)
        arena.columns["obs"][:] = random.integers(0, 255, arena.columns["obs"].shape).astype(observation.dtype)
        store = make_store(parse_source("uniform:1/2,capacity=500"), 8, shape, seed=0)
        writer = store.writer(shape.num_lanes)
        for _ in range(16):
            writer.add(segments_in(arena, np.arange(shape.num_lanes)))
        options: dict[str, Any] = {"reward_scale": 1.0, "reward_clip": None, "max_policy_lag": None}
        slots = BatchReader(arena, 16, torch.device("cpu"), **options)
        mixed = BatchReader(arena, 16, torch.device("cpu"), **options, num_replayed=8)
        stay = microseconds(partial(slots.read, np.arange(16), 0, 0.0))
        rows = microseconds(partial(half_from_rows, mixed, store))
        print(f"{name}: all from slots {stay:,.0f} us, half from rows {rows:,.0f} us", flush=True)


def memory() -> None:
    """Print the memory of 10,000 segments of stacked frames, and of their distinct frames."""
    for kind in ("uniform", "reservoir"):
        memory_of(kind)


def memory_of(kind: str) -> None:
    """Print the memory of one kind of store."""
    lanes, count = 10, 10_000
    shape = shape_of(ATARI, lanes)
    store = make_store(parse_source(f"{kind}:1/2,capacity={count}"), 8, shape, seed=0)
    writer, random = store.writer(lanes), np.random.default_rng(0)
    values = {
        row_name(column.name): np.zeros((lanes, 21, *column.shape), column.dtype) for column in shape.step_columns()
    } | {"lane": np.arange(lanes)}
    tails = random.integers(1, 255, (lanes, 4, 84, 84), np.uint8)
    for _ in range(count // lanes):
        frames = np.concatenate([tails, random.integers(1, 255, (lanes, 20, 84, 84), np.uint8)], 1)
        tails = frames[:, -4:]
        values["obs"] = frames[:, np.arange(21)[:, None] + np.arange(4)]
        writer.add(values)
    memory = store.buffer._memory
    taken, distinct = memory.control.nbytes + memory.data.nbytes, (count * 20 + 4 * lanes) * 84 * 84
    _, readable = store.buffer.read(*store.buffer.live(), fields=("reward",))
    drawn = sum(len(store.sample()["ids"]) for _ in range(50))
    stats = store.buffer.stats()
    print(
        f"{kind}, {count:,} segments of 20 steps: {taken / 2**20:,.0f} MiB, distinct frames "
        f"{distinct / 2**20:,.0f} MiB: {taken / distinct:.3f} x; {readable.sum():,} rows are there, "
        f"{stats.rows_without_frames} of {drawn} drawn had lost their frames"
    )


def main() -> None:
    """Measure the requested parts."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("parts", nargs="*", choices=["speed", "read", "memory", []], default=["speed", "read", "memory"])
    flags.add_argument("--rounds", type=int, default=5)
    flags.add_argument("--seconds", type=float, default=6.0)
    given = flags.parse_args()
    print(describe())
    for part in given.parts:
        {"speed": lambda: speed(given.rounds, given.seconds), "read": read, "memory": memory}[part]()


if __name__ == "__main__":
    main()
