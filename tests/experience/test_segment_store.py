"""Stored segments: equal to the slots' contents, frames stored once, and dead processes do no harm."""

import multiprocessing
import os
import signal

import numpy as np
import pytest

from penstock.config.sources import parse_source
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import Column, RunShape
from penstock.experience.segment_store import keep_segments, make_store

T = 5


def a_shape(observation=None, lanes=3, length=T, state_size=2):
    return RunShape(
        num_workers=1, num_envs_per_worker=lanes, num_groups=1, segment_length=length, slots_per_lane=2,
        segments_per_batch=2, observation=observation or ObservationSpec((4,), "float32"),
        action=ActionSpec((), "int64", num_actions=3), records=(Column("logits", (3,), "float32"),),
        state_size=state_size, weights_nbytes=8,
    )  # fmt: skip


def segments(shape, count, seed=0):
    """Columns of random segments ``[count, T + 1, ...]``, as they lie in slots."""
    random, rows = np.random.default_rng(seed), shape.rows_per_slot
    found = {}
    for column in shape.step_columns():
        values = random.integers(0, 2 if column.dtype == "bool" else 100, (count, rows, *column.shape))
        name = f"is_{column.name}" if column.name in ("terminated", "truncated") else column.name
        found[name] = values.astype(column.dtype)
    if shape.observation.is_stacked:
        depth, *inner = shape.observation.shape
        frames = random.integers(1, 255, (count, rows + depth - 1, *inner), np.uint8)
        found["obs"] = frames[:, np.arange(rows)[:, None] + np.arange(depth)]
    return found | {"lane": np.arange(count), "memory": random.random((count, shape.state_size), np.float32)}


def write(store, columns, writer=None):
    """Write segments as lanes that step together do."""
    (writer or store.writer(len(columns["lane"]))).add(columns)


@pytest.mark.parametrize("kind", ["uniform", "reservoir", "prioritized", "attentive", "elite,insertion=elite"])
@pytest.mark.parametrize(
    "observation", [None, ObservationSpec((4, 20, 20), "uint8", is_stacked=True), ObservationSpec((3, 24, 24), "uint8")]
)
def test_a_segment_comes_back_as_it_was_from_every_kind_of_store(kind, observation, tmp_path):
    shape = a_shape(observation)
    name, _, rest = kind.partition(",")
    text = f"{name}:1/2,capacity=20,disk={tmp_path}" + (f",{rest}" if rest else "")
    store = make_store(parse_source(text), 4, shape, seed=1)
    columns = segments(shape, 3)
    write(store, columns)
    drawn, is_there = store.read(*store.buffer.live())
    assert is_there.all() and sorted(drawn["lane"]) == [0, 1, 2]
    sampled = store.sample()
    for name, values in columns.items():
        assert (drawn[name] == values[drawn["lane"]]).all(), name
        assert (sampled[name] == values[sampled["lane"]]).all(), name
    some, _ = store.read(*store.buffer.live(), fields=("obs", "lane"))
    assert set(some) == {"obs", "lane", "ids"} and (some["obs"] == columns["obs"][some["lane"]]).all()


def test_frames_of_stacks_lie_in_memory_once():
    shape = a_shape(ObservationSpec((4, 42, 42), "uint8", is_stacked=True), lanes=2, length=20, state_size=0)
    store = make_store(parse_source("uniform:1/2,capacity=200"), 4, shape, seed=1)
    writer = store.writer(2)
    frames = np.random.default_rng(0).integers(1, 255, (2, 24 + 20 * 99, 42, 42), np.uint8)
    for number in range(100):
        columns = segments(shape, 2)
        starts = number * 20 + np.arange(21)
        columns["obs"] = np.stack([frames[lane][starts[:, None] + np.arange(4)] for lane in range(2)])
        write(store, columns, writer)
    distinct = 2 * frames.shape[1]
    assert len(store.buffer) == 200 and store.buffer.stats().frames_stored <= 1.01 * distinct
    assert store.buffer.stats().rows_without_frames == 0
    oldest = store.buffer.get([0])
    assert (oldest["obs"].reshape(21, 4, 42, 42) == frames[0][np.arange(21)[:, None] + np.arange(4)]).all()


def test_a_store_is_ready_when_it_holds_its_least():
    shape = a_shape()
    store = make_store(parse_source("uniform:1/2,capacity=20,min_size=5"), 4, shape, seed=1)
    write(store, segments(shape, 3))
    assert not store.is_ready
    write(store, segments(shape, 3))
    assert store.is_ready


def write_for_ever(store, columns, has_begun):
    while True:
        write(store, columns)
        has_begun.set()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["uniform", "reservoir", "prioritized"])
@pytest.mark.parametrize(
    "observation", [ObservationSpec((2_000,), "float32"), ObservationSpec((4, 20, 20), "uint8", is_stacked=True)]
)
def test_a_worker_that_is_killed_while_it_writes_leaves_whole_segments(kind, observation):
    shape = a_shape(observation, lanes=8)
    store = make_store(parse_source(f"{kind}:1/2,capacity=64"), 4, shape, seed=1)
    columns = segments(shape, 8)
    number = np.arange(8).reshape(8, *[1] * (columns["obs"].ndim - 1))
    columns["obs"][:] = number
    columns["reward"][:] = np.arange(8).reshape(8, 1)
    context = multiprocessing.get_context("fork")
    for _ in range(5):
        has_begun = context.Event()
        worker = context.Process(target=write_for_ever, args=(store, columns, has_begun))
        worker.start()
        assert has_begun.wait(20)
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()
        drawn, is_there = store.read(*store.buffer.live())
        assert is_there.sum() >= 8
        lane = drawn["lane"][is_there]
        assert (drawn["obs"][is_there] == number[lane]).all()
        assert (drawn["reward"][is_there] == lane[:, None]).all()


def test_every_segment_of_a_store_is_drawn_as_often_as_any_other():
    shape = a_shape(state_size=0)
    for kind in ("uniform", "reservoir"):
        store = make_store(parse_source(f"{kind}:1/2,capacity=16"), 4, shape, seed=3)
        for _ in range(8):
            columns = segments(shape, 2)
            columns["lane"] = columns["lane"] + len(store.buffer)
            write(store, columns)
        counts = np.bincount(np.concatenate([store.sample()["lane"] for _ in range(2_000)]), minlength=16)
        assert ((counts - 500) ** 2 / 500).sum() < 45, f"{kind}: chi-square of 15 degrees, one in 10,000"


def test_prioritized_segments_are_drawn_in_proportion_to_their_priorities():
    shape = a_shape(state_size=0)
    store = make_store(parse_source("prioritized:1/2,capacity=16,alpha=1"), 4, shape, seed=3)
    for begin in range(0, 16, 2):
        write(store, segments(shape, 2) | {"lane": np.arange(begin, begin + 2)})
    _, ids = store.buffer.live()
    priorities = np.arange(1.0, 17.0)
    store.buffer.update_priorities(ids, priorities)
    counts = np.bincount(np.concatenate([store.sample()["lane"] for _ in range(4_000)]), minlength=16)
    expected = 16_000 * priorities / priorities.sum()
    assert ((counts - expected) ** 2 / expected).sum() < 45, "chi-square of 15 degrees, one in 10,000"


def test_segments_of_many_lanes_of_nodes_are_kept_with_a_writer_for_each_lane():
    arena = ExperienceArena.create(a_shape(lanes=1152, length=1))
    store = make_store(parse_source("reservoir:1/2,capacity=2000"), 4, arena.shape, seed=1)
    keep_segments(arena, [store], {}, np.arange(arena.shape.num_lanes))
    assert len(store.buffer) == 1152
