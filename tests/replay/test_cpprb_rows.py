"""The drop-in's rows of several steps and shared storage, against what cpprb 11.0.0 gave for the same steps."""

import errno
import os

import numpy as np
import pytest

from penstock.replay import cpprb
from tests.replay.drop_in import columns, rows_of, stack

TRANSITION = {"obs": {}, "rew": {}, "next_obs": {}, "done": {}}
THREE_STEPS = {"size": 3, "rew": "rew", "gamma": 0.5, "next": "next_obs"}


def n_step(**changes):
    return cpprb.ReplayBuffer(20, TRANSITION, Nstep={**THREE_STEPS, **changes})


def step(i, start=0, done=False):
    """Step i of an episode: rewards are 1, 2, 4, ... so that a sum identifies its steps."""
    return {"obs": start + i, "rew": 2.0**i, "next_obs": start + i + 1, "done": done}


# ---- n-step


def test_a_row_is_stored_when_its_steps_are_complete():
    buffer = n_step()
    assert buffer.is_Nstep()
    assert not cpprb.ReplayBuffer(20, TRANSITION).is_Nstep()
    assert [buffer.add(**step(i)) for i in range(5)] == [None, None, 0, 1, 2]
    assert (buffer.get_stored_size(), buffer.get_next_index(), buffer.get_current_episode_len()) == (3, 3, 3)
    assert columns(buffer) == {
        "obs": [0, 1, 2],
        "rew": [3, 6, 12],
        "next_obs": [3, 4, 5],
        "done": [0, 0, 0],
        "discount": [0.125, 0.125, 0.125],
    }


def test_steps_may_come_in_batches():
    buffer = n_step()
    assert buffer.add(obs=[0, 1], rew=[1, 2], next_obs=[1, 2], done=[0, 0]) is None
    assert buffer.add(obs=[2, 3, 4], rew=[4, 8, 16], next_obs=[3, 4, 5], done=[0, 0, 0]) == 0
    assert columns(buffer)["rew"] == [3, 6, 12]


def test_an_episode_that_is_cut_keeps_its_tail_with_the_true_last_observation():
    # cpprb: next_obs 3, 4, 5, 1, 1.
    buffer = n_step()
    for i in range(5):
        buffer.add(**step(i))
    buffer.on_episode_end()
    assert columns(buffer) == {
        "obs": [0, 1, 2, 3, 4],
        "rew": [3, 6, 12, 16, 16],
        "next_obs": [3, 4, 5, 5, 5],
        "done": [0, 0, 0, 0, 0],
        "discount": [0.125, 0.125, 0.125, 0.25, 0.5],
    }


def test_every_row_that_reaches_the_end_of_an_episode_is_done():
    # cpprb: done 0, 0, 1, 1 and next_obs 3, 4, 1, 1.
    buffer = n_step()
    for i in range(4):
        buffer.add(**step(i, done=i == 3))
    buffer.on_episode_end()
    assert columns(buffer) == {
        "obs": [0, 1, 2, 3],
        "rew": [3, 6, 8, 8],
        "next_obs": [3, 4, 4, 4],
        "done": [0, 1, 1, 1],
        "discount": [0.125, 0, 0, 0],
    }


def test_no_row_runs_on_into_the_next_episode_when_its_end_was_not_called():
    # cpprb: next_obs 3, 4, 5, 6, 7 and done 0, 1, 1, 0, 0.
    buffer = n_step()
    for i in range(7):
        buffer.add(**step(i, done=i == 2))
    assert columns(buffer) == {
        "obs": [0, 1, 2, 3, 4],
        "rew": [3, 4, 4, 24, 48],
        "next_obs": [3, 3, 3, 6, 7],
        "done": [1, 1, 1, 0, 0],
        "discount": [0, 0, 0, 0.125, 0.125],
    }


def test_an_episode_of_one_step_is_one_row():
    buffer = n_step()
    buffer.add(**step(0, done=True))
    buffer.on_episode_end()
    assert columns(buffer) == {"obs": [0], "rew": [1], "next_obs": [1], "done": [1], "discount": [0]}


def test_rewards_of_several_numbers_and_names_are_summed():
    fields = {**TRANSITION, "rew": {"shape": 2}, "cost": {"dtype": "f8"}}
    buffer = cpprb.ReplayBuffer(20, fields, Nstep={**THREE_STEPS, "rew": ["rew", "cost"]})
    for i in range(3):
        buffer.add(**{**step(i), "rew": [1, 2.0**i]}, cost=4.0**i)
    assert rows_of(buffer, "rew") == [[1.75, 3.0]]
    assert rows_of(buffer, "cost") == [[1 + 2 + 4]]


def test_fields_that_are_not_named_are_those_of_the_first_step():
    assert list(n_step(next=()).get_all_transitions()) == ["obs", "rew", "next_obs", "done", "discount"]
    buffer = n_step(next=(), rew=None)
    for i in range(5):
        buffer.add(**step(i))
    assert columns(buffer)["next_obs"] == [1, 2, 3]
    assert columns(buffer)["rew"] == [1, 2, 4]


def test_any_field_can_be_moved_to_the_last_step():
    buffer = cpprb.ReplayBuffer(20, {**TRANSITION, "later": {}}, Nstep={**THREE_STEPS, "next": ["next_obs", "later"]})
    for i in range(3):
        buffer.add(**step(i), later=10 * i)
    assert columns(buffer)["later"] == [20]


def test_next_of_goes_together_with_n_step():
    fields = {name: spec for name, spec in TRANSITION.items() if name != "next_obs"}
    buffer = cpprb.ReplayBuffer(20, fields, Nstep=THREE_STEPS, next_of="obs")
    for i in range(5):
        buffer.add(**step(i))
    assert columns(buffer)["next_obs"] == [3, 4, 5]


def test_the_discount_has_the_shape_of_the_reward():
    buffer = n_step()
    buffer.add(obs=range(5), rew=range(5), next_obs=range(5), done=np.zeros(5))
    batch = buffer.sample(6)
    assert batch["discount"].shape == batch["rew"].shape == (6, 1)
    assert batch["discount"].dtype == np.float32


def test_a_row_has_the_priority_of_its_first_step():
    buffer = cpprb.PrioritizedReplayBuffer(20, TRANSITION, Nstep=THREE_STEPS)
    given = [buffer.add(**step(i), priorities=i + 1.0) for i in range(5)]
    assert given == [None, None, 0, 1, 2]
    assert buffer.get_max_priority() == 3.0
    buffer.on_episode_end()
    batch = buffer.sample(500, beta=1.0)
    weights = np.array([batch["weights"][batch["indexes"] == i][0] for i in range(5)])
    np.testing.assert_allclose(weights, [1.0, 0.6597737, 0.51730245, 0.43529487, 0.380749], rtol=1e-5)


def test_clearing_forgets_the_steps_that_wait():
    buffer = n_step()
    buffer.add(**step(0))
    buffer.add(**step(1))
    buffer.clear()
    for i in range(3):
        buffer.add(**step(i, start=10))
    assert columns(buffer)["obs"] == [10]


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        (TRANSITION, {"rew": "rew"}, "size"),
        (TRANSITION, {"size": 0, "rew": "rew"}, "steps"),
        (TRANSITION, {"size": 2, "rew": "x"}, "x"),
        (TRANSITION, {"size": 2, "rew": "rew", "next": "x"}, "x"),
        ({"obs": {}, "rew": {}}, {"size": 2, "rew": "rew"}, "done"),
    ],
)
def test_wrong_options_are_named(fields, options, message):
    with pytest.raises(ValueError, match=message):
        cpprb.ReplayBuffer(20, fields, Nstep=options)


# ---- shared storage


def pixels(i):
    """An image, large enough to be stored once for two rows."""
    return np.full((20, 20), i)


@pytest.mark.parametrize("shape", [(1,), (20, 20)], ids=["small", "large"])
def test_next_of_adds_the_successor_and_rows_keep_it_round_the_ring(shape):
    def add(i):
        return buffer.add(obs=np.full(shape, i), next_obs=np.full(shape, i + 1), rew=i)

    buffer = cpprb.ReplayBuffer(5, {"obs": {"shape": shape}, "rew": {}}, next_of="obs")
    assert list(buffer.get_all_transitions()) == ["obs", "rew", "next_obs"]
    assert [add(i) for i in range(3)] == [0, 1, 2]
    buffer.on_episode_end()
    assert [add(i) for i in range(10, 13)] == [3, 4, 0]
    rows = buffer.get_all_transitions()
    assert rows["obs"].reshape(5, -1)[:, 0].tolist() == [12, 1, 2, 10, 11]
    assert rows["next_obs"].reshape(5, -1)[:, 0].tolist() == [13, 2, 3, 11, 12]
    assert rows["obs"].dtype == rows["next_obs"].dtype == np.float32


def test_next_of_stores_what_two_rows_share_once_if_it_is_large():
    def frames_of(shape):
        buffer = cpprb.ReplayBuffer(50, {"obs": {"shape": shape}}, next_of="obs")
        for i in range(1, 41):
            buffer.add(obs=np.full(shape, i), next_obs=np.full(shape, i + 1))
        return buffer._storage.stats().frames_stored

    assert frames_of((20, 20)) == 41
    assert frames_of((1,)) == 0


def test_a_successor_that_is_declared_too_is_as_what_it_follows():
    fields = {"obs": {"dtype": "u1"}, "next_obs": {"dtype": "i4", "shape": 2}, "rew": {}}
    rows = cpprb.ReplayBuffer(5, fields, next_of="obs").get_all_transitions()
    assert {name: (array.shape, array.dtype.name) for name, array in rows.items()} == {
        "obs": ((0, 1), "uint8"), "next_obs": ((0, 1), "uint8"), "rew": ((0, 1), "float32"),
    }  # fmt: skip


def test_next_of_is_right_without_the_end_of_the_episode():
    # cpprb: next_obs of the first row is 10, the observation that was added next.
    buffer = cpprb.ReplayBuffer(5, {"obs": {"shape": (20, 20)}}, next_of=["obs"])
    buffer.add(obs=pixels(0), next_obs=pixels(1))
    buffer.add(obs=pixels(10), next_obs=pixels(11))
    assert [int(row[0][0]) for row in rows_of(buffer, "next_obs")] == [1, 11]


def test_next_of_takes_several_names_and_batches():
    buffer = cpprb.ReplayBuffer(6, {"obs": {}, "rew": {}}, next_of=("obs", "rew"))
    assert buffer.add(obs=[0, 1, 2], next_obs=[1, 2, 3], rew=[5, 6, 7], next_rew=[6, 7, 8]) == 0
    added = {"obs": [10, 11, 12, 13], "next_obs": [11, 12, 13, 14], "rew": [5, 6, 7, 8], "next_rew": [6, 7, 8, 9]}
    assert buffer.add(**added) == 3
    assert columns(buffer) == {
        "obs": [13, 1, 2, 10, 11, 12],
        "rew": [8, 6, 7, 5, 6, 7],
        "next_obs": [14, 2, 3, 11, 12, 13],
        "next_rew": [9, 7, 8, 6, 7, 8],
    }


def test_next_of_needs_the_successor_with_every_step():
    buffer = cpprb.ReplayBuffer(5, {"obs": {}}, next_of="obs")
    with pytest.raises(KeyError, match="next_obs"):
        buffer.add(obs=1)
    assert buffer.get_stored_size() == 0


def test_stacks_come_back_as_they_were_round_the_ring():
    buffer = cpprb.ReplayBuffer(5, {"obs": {"shape": (2, 3)}}, stack_compress="obs")
    assert [buffer.add(obs=stack(i)) for i in range(4)] == [0, 1, 2, 3]
    buffer.on_episode_end()
    for i in range(20, 24):
        buffer.add(obs=stack(i))
    assert np.array_equal(rows_of(buffer), [stack(i) for i in (21, 22, 23, 3, 20)])
    batch = buffer.sample(3)["obs"]
    assert (batch.shape, batch.flags.c_contiguous) == ((3, 2, 3), True)


def test_stacks_and_their_successors_share_frames():
    buffer = cpprb.ReplayBuffer(5, {"obs": {"shape": (2, 3)}}, stack_compress="obs", next_of="obs")
    for i in [0, 1, 2, 3, 20, 21, 22]:
        if i == 20:
            buffer.on_episode_end()
        buffer.add(obs=stack(i), next_obs=stack(i + 1))
    assert np.array_equal(rows_of(buffer), [stack(i) for i in (21, 22, 2, 3, 20)])
    assert np.array_equal(rows_of(buffer, "next_obs"), [stack(i) for i in (22, 23, 3, 4, 21)])


def test_stacks_that_do_not_slide_are_kept_too():
    frames = [[0, 0, 0], [0, 0, 1], [7, 7, 7], [1, 2, 3]]
    buffer = cpprb.ReplayBuffer(8, {"obs": {"shape": 3}}, stack_compress="obs")
    for each in frames:
        buffer.add(obs=each)
    assert rows_of(buffer) == frames


@pytest.mark.parametrize("option", ["next_of", "stack_compress"])
def test_names_that_are_not_declared_are_refused(option):
    with pytest.raises(ValueError, match=rf"{option} names \['x'\]"):
        cpprb.ReplayBuffer(5, {"obs": {}}, **{option: "x"})


def test_the_data_may_lie_on_disk(tmp_path):
    try:
        buffer = cpprb.ReplayBuffer(5, {"obs": {"shape": 3}}, mmap_prefix=str(tmp_path / "rows"))
    except OSError as error:
        assert error.errno == errno.EOPNOTSUPP  # a file system without files that have no name
        return
    buffer.add(obs=[1, 2, 3])
    assert rows_of(buffer) == [[1, 2, 3]]
    assert os.listdir(tmp_path) == []


def test_rewards_of_whole_numbers_are_not_summed():
    with pytest.raises(ValueError, match=r"'rew'.*: give a field of dtype float32 or float64, found int32"):
        cpprb.ReplayBuffer(4, {"rew": {"dtype": np.int32}, "done": {}}, Nstep={"size": 2, "rew": "rew"})
