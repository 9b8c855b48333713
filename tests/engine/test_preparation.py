"""Slots that each lane has: enough for the learner to go on whenever lanes wait, and no more."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algorithms.a2c import A2C
from penstock.algorithms.a3c import A3C
from penstock.algorithms.appo import APPO
from penstock.algorithms.dqn import DQN
from penstock.algorithms.impala import IMPALA
from penstock.algorithms.ppo import PPO
from penstock.config import ConfigError, make_config
from penstock.engine.preparation import note_of_flattening, note_of_workers, run_shape
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RunShape
from penstock.ipc import SlotState
from tests.nn.composites import composite


def shape_of(algorithm: type, **numbers: Any) -> RunShape:
    """The shape of a run with a tiny network; by default batches are segments of one step."""
    config = make_config(algorithm.Config, {"env": "none", "hidden_sizes": (2,), **numbers})
    observation, action = ObservationSpec((1,), "float32"), ActionSpec((), "int64", num_actions=2)
    algorithm = algorithm(config, observation, action)
    return run_shape(algorithm, algorithm.build_model())


LANES = {"num_workers": 3, "num_envs_per_worker": 4}


@pytest.mark.parametrize(
    ("algorithm", "settings", "expected"),
    [
        (PPO, {"segment_length": 5, "batch_size": 60}, 1),
        (A2C, {}, 1),
        (A3C, {}, 1),
        (DQN, {}, 1),
        (IMPALA, {"segment_length": 5, "batch_size": 5}, 2),
        (IMPALA, {"segment_length": 5, "batch_size": 40}, 2),  # a segment of each lane of two workers of three
        (IMPALA, {"segment_length": 5, "batch_size": 45}, 3),
        (IMPALA, {"segment_length": 5, "batch_size": 20, "num_workers": 1}, 2),
        (APPO, {"segment_length": 5, "batch_size": 60, "num_minibatches": 3}, 6),
    ],
)
def test_a_lane_has_a_slot_to_write_and_of_an_asynchronous_run_its_share_of_a_batch_beside(
    algorithm, settings, expected
):
    shape = shape_of(algorithm, **{**LANES, **settings})
    assert shape.slots_per_lane == expected and shape.num_slots == shape.num_lanes * expected


def test_a_synchronous_algorithm_whose_batch_is_not_a_segment_of_every_lane_is_refused():
    class InStep(IMPALA):
        synchronous = True

    with pytest.raises(ConfigError, match=r"segments_per_batch=3 for 12 lanes \(num_workers=3 x num_envs_per_worker=4"):
        shape_of(InStep, **LANES, segment_length=5, batch_size=15)


class Traffic:
    """Slots between groups, which write whenever they can, and a learner that takes a number of them in order."""

    def __init__(
        self, num_workers: int, num_groups: int, group_size: int, segments_per_batch: int, backlog: float = 1.0
    ) -> None:
        shape = shape_of(
            APPO, num_workers=num_workers, num_groups=num_groups, num_envs_per_worker=num_groups * group_size,
            segment_length=1, num_minibatches=1, batch_size=segments_per_batch,
        )  # fmt: skip
        self.arena = ExperienceArena.create(shape)
        self.segments_per_batch = segments_per_batch
        self.backlog = backlog * segments_per_batch
        self.lanes = np.arange(shape.num_lanes).reshape(-1, group_size)
        self.slots = np.full_like(self.lanes, -1)
        self.num_segments = np.zeros(len(self.lanes), np.int64)
        """Segments that each lane of a group has made."""
        self._held = np.empty(0, np.int64)

    def write(self, group: int) -> bool:
        """Open the group's segments if they are not, else hand them over; False while it waits for slots."""
        worker, slots = group // self.arena.shape.num_groups, self.slots[group]
        if (slots < 0).any():
            return self.arena.take(self.lanes[group], slots, worker, self.backlog)
        assert self.arena.slots.claim(slots, SlotState.WRITING, SlotState.FULL, worker).all()
        self.arena.full.push_many(slots)
        slots.fill(-1)
        self.num_segments[group] += 1
        return True

    def restart(self, worker: int) -> None:
        """Kill a worker; its successor holds nothing."""
        num_groups = self.arena.shape.num_groups
        self.slots[worker * num_groups : (worker + 1) * num_groups] = -1
        self.arena.reclaim(worker)

    def learn(self) -> bool:
        """Take a batch and give it back; False while there is none."""
        self._held = np.concatenate([self._held, self.arena.take_full()])
        batch, rest = np.split(self._held, [self.segments_per_batch])
        if len(batch) < self.segments_per_batch:
            return False
        self._held = rest
        self.arena.release(batch)
        return True

    def write_until_all_wait(self, order: list[int]) -> None:
        """Let the first write all it can, then the next, until none can."""
        while any([self.write(group) for group in order]):
            pass


runs = st.builds(
    Traffic, st.integers(1, 3), st.integers(1, 2), st.integers(1, 4), st.integers(1, 40),
    st.sampled_from([1.0, 1.5, 3.0, math.inf]),
)  # fmt: skip


@settings(max_examples=60)
@given(traffic=runs, moves=st.lists(st.integers(0, 9), max_size=120))
def test_lanes_that_wait_always_leave_the_learner_a_full_batch(traffic, moves):
    num_groups, num_workers = len(traffic.lanes), traffic.arena.shape.num_workers
    for move in moves:
        if move >= 8:
            traffic.restart(move % num_workers)
        elif move >= 6:
            traffic.learn()
        else:
            traffic.write(move % num_groups)
    for _ in range(8):
        traffic.write_until_all_wait(list(range(num_groups)))
        assert traffic.learn()


@settings(max_examples=60)
@given(traffic=runs, data=st.data(), num_batches=st.integers(1, 25))
def test_where_the_learner_limits_the_run_who_always_comes_first_takes_no_more_than_twice_as_much(
    traffic, data, num_batches
):
    order = data.draw(st.permutations(range(len(traffic.lanes))), label="order")
    for _ in range(num_batches):
        traffic.write_until_all_wait(order)
        least, most = traffic.num_segments.min(), traffic.num_segments.max()
        assert most <= 2 * least + traffic.arena.shape.slots_per_lane
        assert traffic.learn()


@settings(max_examples=30)
@given(data=st.data(), num_groups=st.integers(2, 6), group_size=st.integers(1, 4), share=st.integers(1, 4))
def test_where_a_batch_is_as_much_of_every_lane_all_have_just_that_much_on_its_way(data, num_groups, group_size, share):
    traffic = Traffic(num_groups, 1, group_size, share * num_groups * group_size)
    order = data.draw(st.permutations(range(num_groups)), label="order")
    for count in range(1, 20):
        traffic.write_until_all_wait(order)
        assert set(traffic.num_segments) == {count * share}
        assert traffic.learn()


def test_a_group_of_more_lanes_than_a_batch_writes_on_while_the_learner_is_the_faster():
    slow, fast = Traffic(1, 1, 16, 4, backlog=1.0), Traffic(1, 1, 16, 4, backlog=4.5)
    for traffic, goes_ahead in ((slow, False), (fast, True)):
        assert traffic.write(0) and traffic.write(0) and len(traffic.arena.waiting()) == 16
        assert traffic.write(0) is goes_ahead


@settings(max_examples=40)
@given(num_groups=st.integers(2, 6), group_size=st.integers(1, 4), data=st.data())
def test_where_lanes_are_two_batches_or_more_and_the_learner_limits_the_run_each_has_one_segment_on_its_way(
    num_groups, group_size, data
):
    size = group_size * data.draw(st.integers(1, num_groups // 2), label="groups that make a batch")
    traffic = Traffic(num_groups, 1, group_size, size)
    order = data.draw(st.permutations(range(len(traffic.lanes))), label="order")
    for _ in range(12):
        traffic.write_until_all_wait(order)
        assert sorted(traffic.arena.lane_of(traffic.arena.waiting())) == list(range(num_groups * group_size))
        assert traffic.learn()


@settings(max_examples=60)
@given(traffic=runs, moves=st.lists(st.integers(0, 9), max_size=120))
def test_beside_the_backlog_no_more_segments_wait_than_there_are_lanes(traffic, moves):
    for move in moves:
        if move >= 7:
            traffic.learn()
        else:
            traffic.write(move % len(traffic.lanes))
        assert len(traffic.arena.waiting()) < traffic.arena.shape.num_lanes + traffic.backlog


@settings(max_examples=40)
@given(
    num_workers=st.integers(2, 4), num_groups=st.integers(1, 2), group_size=st.integers(1, 4), size=st.integers(1, 40),
    data=st.data(),
)  # fmt: skip
def test_the_learner_goes_on_while_one_worker_delivers_nothing(num_workers, num_groups, group_size, size, data):
    traffic = Traffic(num_workers, num_groups, group_size, size)
    slow = data.draw(st.integers(0, num_workers - 1), label="slow")
    others = [group for group in range(len(traffic.lanes)) if group // num_groups != slow]
    for _ in range(6):
        traffic.write_until_all_wait(others)
        assert traffic.learn()


@pytest.mark.parametrize(("num_workers", "warned"), [(None, False), (8, False), (9, True), (500, True)])
def test_many_more_workers_than_cores_are_warned_of_with_both_numbers(num_workers, warned, monkeypatch):
    monkeypatch.setattr("penstock.engine.preparation.whole_cores", lambda: 2)
    monkeypatch.setattr("penstock.ipc.whole_cores", lambda: 2)
    note = note_of_workers(make_config(PPO.Config, {"env": "none", "num_workers": num_workers}))
    assert (note is not None) is warned
    assert note is None or f"num_workers={num_workers} on 2 cores: each is a process" in note


@pytest.mark.parametrize(
    ("shape", "dtype", "is_noted"),
    [
        ((4, 40, 40, 3), "uint8", True), ((40, 40), "uint8", True), ((3, 40, 40), "float32", True),
        ((3, 40, 40), "uint8", False), ((4, 1080), "float32", False), ((9, 9), "float32", False),
    ],
)  # fmt: skip
def test_what_may_be_an_image_and_is_flattened_is_noted(shape: tuple[int, ...], dtype: str, is_noted: bool) -> None:
    spec = ObservationSpec(shape, dtype)
    for seen in (spec, composite({"camera": spec, "arm": ObservationSpec((2,), "float32")})):
        note = note_of_flattening("auto", seen)
        assert (note is not None) == is_noted and (note is None or f"flattens {dtype} {shape} for an mlp" in note)
        assert note_of_flattening("mlp", seen) is None
