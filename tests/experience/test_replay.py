"""The replay of a run: how steps are counted, also over resumption, and what a transition's fields are."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.run_replay import Replay, transition_fields
from penstock.replay import Field, RateLimiter, ReplayBuffer

BATCH = 4


def make(updates_per_step: float = 1.0, min_size: int = 10, slack: int = 1, **numbers: Any) -> Replay:
    buffer = ReplayBuffer(100, {"obs": Field()})
    limiter = RateLimiter(updates_per_step * BATCH, min_size, slack * BATCH)
    return Replay(buffer, limiter, BATCH, updates_per_step, **numbers)


def play(replay: Replay, steps: int) -> int:
    """Let steps be taken one by one, and each update be made as soon as it may be; return the updates."""
    updates = 0
    while steps:
        steps -= replay.limiter.try_insert(1)
        updates += replay.limiter.try_sample(BATCH)
    while replay.limiter.try_sample(BATCH):
        updates += 1
    return updates


def test_steps_before_the_first_update_count_as_they_are_taken():
    replay = make()
    assert replay.steps_learned(0) == replay.steps_taken == 0
    assert replay.limiter.try_insert(7)
    assert replay.steps_learned(0) == replay.steps_taken == 7


def test_from_then_on_a_step_counts_when_the_updates_that_it_calls_for_are_made():
    replay = make(updates_per_step=0.25, slack=2)
    assert replay.limiter.try_insert(10) and replay.limiter.try_insert(8)
    assert [replay.steps_learned(batches) for batches in (0, 1, 2, 3)] == [10, 14, 18, 18]
    assert replay.steps_taken == 18


@settings(max_examples=60)
@given(
    updates_per_step=st.sampled_from([0.1, 0.25, 0.3, 0.7, 1.0, 1.5, 2.0]),
    steps=st.integers(1, 60),
    slack=st.integers(2, 5),
)
def test_no_step_is_counted_before_it_is_taken_nor_left_out_for_ever(updates_per_step, steps, slack):
    replay = make(updates_per_step, slack=slack)
    updates = play(replay, steps)
    assert replay.steps_learned(updates) == replay.steps_taken == steps, "whoever learns all that is due, has all"
    counts = [replay.steps_learned(batches) for batches in range(updates + 1)]
    assert counts == sorted(counts)


def test_a_replay_that_goes_on_counts_as_if_it_had_never_stopped():
    one = make(0.25)
    updates = play(one, 30)
    two = make(0.25).going_on(one.state(updates), steps=30)
    assert two.steps_taken == 30 and two.batches_before == updates
    assert two.limiter.state() == one.limiter.state()
    for replay in (one, two):
        assert replay.limiter.try_insert(3)
        assert replay.steps_learned(updates + 1) == 33


def test_what_was_let_in_or_drawn_ahead_of_the_checkpoint_is_neither_taken_nor_learned_from():
    one = make(1.0, slack=2)
    updates = play(one, 20)
    drawn_ahead = updates - 2
    two = make(1.0, slack=2).going_on(one.state(drawn_ahead), steps=one.steps_learned(drawn_ahead))
    assert two.limiter.samples == drawn_ahead * BATCH
    # Ten updates are due for twenty steps, and two more are let in: all twenty lie within the band of ten.
    assert (updates, two.limiter.inserts) == (12, 20)
    fewer = make(1.0, slack=2).going_on({"inserts": 20, "batches": 5, "counted_from": 0}, steps=15)
    assert fewer.limiter.inserts == 10 + 5 + 2, "no more than the band allows for"


@pytest.mark.parametrize(("updates_per_step", "min_size"), [(2.0, 10), (0.25, 16)], ids=["more updates", "later start"])
def test_a_replay_that_goes_on_with_another_ratio_keeps_it_from_then_on(updates_per_step, min_size):
    changed = make(updates_per_step, min_size, slack=2)
    one = make(0.25)
    steps = one.steps_learned(play(one, 30))
    two = changed.going_on(one.state(5), steps)
    ratio = two.updates_per_step
    assert two.steps_taken == two.steps_learned(0) == steps
    updates = play(two, 40)
    assert updates == pytest.approx(40 * ratio, abs=2)
    assert two.steps_taken == steps + 40 and two.steps_learned(updates) == steps + 40


def test_a_replay_that_goes_on_with_another_start_before_the_first_update_goes_on_filling():
    state = make().state(0) | {"inserts": 6}
    replay = make(min_size=8).going_on(state, steps=6)
    assert replay.steps_taken == 6 and not replay.limiter.try_sample(BATCH)
    assert replay.limiter.try_insert(2) and replay.steps_learned(0) == 8 and replay.limiter.try_sample(BATCH)


def test_a_replay_saved_before_the_first_update_goes_on_filling():
    replay = make().going_on({"inserts": 6, "batches": 0, "counted_from": 0}, steps=6)
    assert replay.steps_taken == 6 and not replay.limiter.try_sample(BATCH)
    assert replay.limiter.try_insert(4) and replay.steps_learned(0) == 10 and replay.limiter.try_sample(BATCH)


def test_the_steps_of_a_resumed_run_never_fall():
    replay = make(1.0, slack=2).going_on({"inserts": 20, "batches": 5, "counted_from": 0}, steps=19)
    assert replay.steps_taken == replay.steps_learned(5) == 19
    assert replay.limiter.try_sample(BATCH) and replay.limiter.try_insert(1)
    assert replay.steps_learned(6) == 19


def test_an_empty_replay_is_refilled_by_steps_that_do_not_count():
    replay = make().refilled(steps=500)
    counted = []
    for _ in range(10):
        assert replay.limiter.try_insert(1)
        counted.append((replay.steps_taken, replay.steps_learned(0)))
    assert counted == [(500, 500)] * 10
    assert replay.limiter.try_sample(BATCH) and replay.limiter.try_insert(1)
    assert (replay.steps_taken, replay.steps_learned(1)) == (501, 501)


def test_a_run_that_had_not_begun_to_learn_goes_on_counting_where_it_was():
    # Six steps of ten were taken: of the ten that are played now, six stand for those.
    replay = make().refilled(steps=6)
    counted = []
    for _ in range(10):
        assert replay.limiter.try_insert(1)
        counted.append(replay.steps_learned(0))
    assert counted == [6] * 6 + [7, 8, 9, 10]


def test_a_refilled_replay_is_checkpointed_and_goes_on():
    one = make().refilled(steps=500)
    updates = play(one, 15)
    steps = one.steps_learned(updates)
    assert steps == 505
    two = make().going_on(one.state(updates), steps)
    assert two.counted_from == 490 and two.steps_taken == 505
    assert two.limiter.try_insert(1) and two.steps_learned(updates + 1) == 506


def test_the_ratio_measured_is_in_updates_per_step_since_the_first_update():
    replay = make(0.5, slack=2)
    assert replay.measured_ratio == 0.0
    assert play(replay, 50) == 0.5 * 40 + 2, "two updates of slack"
    assert replay.measured_ratio == 22 / 40


def test_steps_are_called_for_when_half_the_band_is_empty():
    replay = make(1.0, slack=4)
    assert replay.limiter.try_insert(10)
    assert replay.limiter.try_insert(4) and not replay.needs_steps
    for _ in range(3):
        assert replay.limiter.try_sample(BATCH) and not replay.needs_steps
    assert replay.limiter.try_sample(BATCH) and replay.needs_steps


def test_a_copy_in_another_process_is_the_same_replay():
    replay = make().refilled(steps=500)
    copy = pickle.loads(pickle.dumps(replay))
    assert copy.limiter.try_insert(3)
    copy.buffer.add(obs=1.0)
    assert replay.limiter.inserts == 3 and len(replay.buffer) == 1
    assert copy.counted_from == replay.counted_from


DISCRETE = ActionSpec((), "int64", num_actions=2)
CONTINUOUS = ActionSpec((2, 3), "float32", low=(0.0,) * 6, high=(1.0,) * 6)


def test_a_transition_holds_an_observation_an_action_a_reward_and_the_next_observation():
    fields = transition_fields(ObservationSpec((3,), "float32"), DISCRETE, with_values=False)
    assert list(fields) == ["obs", "action", "reward", "next_obs"]
    assert fields["next_obs"].next_of == "obs" and not fields["obs"].shared
    assert np.dtype(fields["action"].dtype) == np.int64 and fields["action"].shape == ()
    with_values = transition_fields(ObservationSpec((3,), "float32"), CONTINUOUS, with_values=True)
    assert set(with_values) - set(fields) == {"value", "next_value"}
    assert with_values["action"].shape == (6,) and np.dtype(with_values["action"].dtype) == np.float32
    choices = ActionSpec((2,), "int64", nvec=(3, 4), starts=(0, 0))
    field = transition_fields(ObservationSpec((3,), "float32"), choices, with_values=False)["action"]
    assert field.shape == (2,) and np.dtype(field.dtype) == np.int64


@pytest.mark.parametrize(
    ("shape", "dtype", "is_stacked", "stack", "shared"),
    [
        ((4, 84, 84), "uint8", True, 0, False),
        ((3, 84, 84), "uint8", False, None, True),
        ((84, 84, 3), "uint8", False, None, True),
        ((255,), "float32", False, None, False),
        ((256,), "float32", False, None, True),
        ((4, 8, 8), "uint8", True, None, False),
    ],
)
def test_large_observations_lie_in_memory_once_and_stacks_frame_by_frame(shape, dtype, is_stacked, stack, shared):
    spec = ObservationSpec(shape, dtype, is_stacked=is_stacked)
    obs = transition_fields(spec, DISCRETE, with_values=False)["obs"]
    assert (obs.stack, obs.shared) == (stack, shared)
