"""Parts of the drop-in beside its buffers: a whole program, hindsight, LaBER and episodes."""

import sys

import numpy as np
import pytest

from penstock.replay import cpprb

# ---- a program that moves over by its import


PROGRAM = """
import numpy as np
from cpprb import PrioritizedReplayBuffer

# A corridor of 6 places: right is action 1, and only its end gives a reward.
np.random.seed(3)
rng = np.random.default_rng(3)
buffer = PrioritizedReplayBuffer(
    256,
    {"obs": {"dtype": np.int32}, "act": {"dtype": np.int32}, "rew": {}, "next_obs": {"dtype": np.int32}, "done": {}},
    alpha=0.7,
)
q = np.zeros((6, 2))
beta = 0.4
for episode in range(60):
    place = 0
    for t in range(50):
        best = np.flatnonzero(q[place] == q[place].max())
        action = int(rng.integers(2) if rng.random() < 0.3 else rng.choice(best))
        successor = min(place + 1, 5) if action else max(place - 1, 0)
        done = successor == 5
        buffer.add(obs=place, act=action, rew=float(done), next_obs=successor, done=done)
        place = successor
        if buffer.get_stored_size() >= 32:
            batch = buffer.sample(32, beta=beta)
            s, a, n = (batch[k].ravel() for k in ("obs", "act", "next_obs"))
            target = batch["rew"].ravel() + 0.9 * (1.0 - batch["done"].ravel()) * q[n].max(axis=1)
            error = target - q[s, a]
            np.add.at(q, (s, a), 0.2 * batch["weights"] * error)
            buffer.update_priorities(batch["indexes"], np.abs(error))
        if done:
            break
    buffer.on_episode_end()
    beta = min(1.0, beta + 0.01)
"""


@pytest.mark.timeout(60)
def test_a_program_moves_over_by_changing_its_import(monkeypatch):
    monkeypatch.setitem(sys.modules, "cpprb", cpprb)
    outcome: dict = {}
    exec(PROGRAM, outcome)
    assert outcome["q"][:5].argmax(axis=1).tolist() == [1] * 5
    np.testing.assert_allclose(outcome["q"][:5, 1], 0.9 ** np.arange(4, -1, -1), atol=0.02)


# ---- hindsight


def reward(next_obs, act, goal):
    return -(np.abs(next_obs - goal).sum(axis=1) > 0).astype(np.float32)


PLACES = {"obs": {"shape": 2}, "act": {}, "next_obs": {"shape": 2}}


def hindsight(size=200, length=5, steps=3, **options):
    buffer = cpprb.HindsightReplayBuffer(size, PLACES, length, reward, **options)
    for i in range(steps):
        assert buffer.add(obs=[i, i], act=i, next_obs=[i + 1, i + 1]) is None
    return buffer


def test_an_episode_is_stored_when_it_ends_with_the_goal_that_was_meant_and_the_last():
    buffer = hindsight(strategy="final", prioritized=False)
    assert buffer.get_stored_size() == 0
    assert buffer.on_episode_end([3, 0]) is None
    rows = {name: array.tolist() for name, array in buffer.get_all_transitions().items()}
    assert rows == {
        "obs": [[0, 0], [1, 1], [2, 2]] * 2,
        "act": [[0], [1], [2]] * 2,
        "next_obs": [[1, 1], [2, 2], [3, 3]] * 2,
        "rew": [[-1], [-1], [-1], [-1], [-1], [0]],
        "goal": [[3, 0]] * 3 + [[3, 3]] * 3,
    }
    assert (buffer.get_stored_size(), buffer.get_buffer_size()) == (6, 200)


@pytest.mark.parametrize("strategy", ["future", "episode", "random"])
def test_achieved_goals_are_states_of_the_episode(strategy):
    buffer = hindsight(strategy=strategy)
    buffer.on_episode_end([3, 0])
    goals = buffer.get_all_transitions()["goal"][:, 0].reshape(5, 3)
    assert goals[0].tolist() == [3, 3, 3]
    assert set(goals[1:].ravel()) <= {1, 2, 3}
    if strategy == "future":
        assert (goals[1:] >= [1, 2, 3]).all()


def test_goals_may_be_something_else_than_states():
    buffer = cpprb.HindsightReplayBuffer(
        200,
        {"o": {"shape": 2}, "a": {}, "n": {"shape": 2}},
        5,
        lambda states, actions, goals: states[:, 0] - goals[:, 0],
        state="o",
        action="a",
        next_state="n",
        goal_func=lambda states: states[:, :1],
        goal_shape=1,
        strategy="final",
        alpha=0.3,
    )
    for i in range(3):
        buffer.add(o=[i, i], a=i, n=[i + 1, i + 1])
    buffer.on_episode_end(7.0)
    rows = buffer.get_all_transitions()
    assert rows["goal"].ravel().tolist() == [7, 7, 7, 3, 3, 3]
    assert rows["rew"].ravel().tolist() == [-6, -5, -4, -2, -1, 0]


def test_hindsight_rows_have_priorities_unless_told_otherwise():
    buffer = hindsight()
    buffer.on_episode_end([3, 0])
    batch = buffer.sample(8, beta=0.5)
    buffer.update_priorities(batch["indexes"], np.full(8, 3.0))
    assert buffer.get_max_priority() == 3.0
    without = hindsight(prioritized=False)
    with pytest.raises(ValueError, match="prioritized=False"):
        without.update_priorities([0], [1])
    with pytest.raises(ValueError, match="prioritized=False"):
        without.get_max_priority()


def test_an_episode_longer_than_declared_is_refused():
    buffer = hindsight(length=3)
    with pytest.raises(ValueError, match="max_episode_length=3"):
        buffer.add(obs=[0, 0], act=0, next_obs=[1, 1])
    with pytest.raises(KeyError, match="next_obs"):
        buffer.add(obs=[0, 0], act=0)


def test_hindsight_takes_no_rows_of_several_steps():
    with pytest.raises(ValueError, match="single steps"):
        cpprb.HindsightReplayBuffer(
            200, {**PLACES, "done": {}}, 5, lambda *_: np.zeros(1), Nstep={"size": 2, "rew": "rew"}, prioritized=False
        )


def test_clearing_forgets_rows_and_the_episode():
    buffer = hindsight()
    buffer.on_episode_end([1, 1])
    buffer.add(obs=[0, 0], act=0, next_obs=[1, 1])
    buffer.clear()
    buffer.on_episode_end([1, 1])
    assert buffer.get_stored_size() == 0
    with pytest.raises(ValueError, match="strategy"):
        hindsight(strategy="nonsense")


# ---- LaBER


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # M = 600 rows, P(i) = 0.001, 0.002, 0.003, 0.004 or 0: 1 / (M P(i)), 1 / P(i), min P / P(i)
        (cpprb.LaBERmean, [5 / 3, 5 / 6, 5 / 9, 5 / 12]),
        (cpprb.LaBERlazy, [1000, 500, 1000 / 3, 250]),
        (cpprb.LaBERmax, [1, 1 / 2, 1 / 3, 1 / 4]),
    ],
)
def test_laber_draws_by_priority_and_weighs_as_its_variant_says(kind, expected):
    laber = kind(200, m=3, eps=0.0)
    batch = laber(priorities=np.tile([1, 2, 3, 4, 0, 0], 100), a=np.tile(np.arange(6), 100), weights=np.zeros(600))
    assert set(batch) == {"a", "weights", "indexes"}
    assert set(batch["a"]) == {0, 1, 2, 3}
    assert np.array_equal(batch["indexes"] % 6, batch["a"])
    np.testing.assert_allclose(batch["weights"], np.array(expected)[batch["a"]], rtol=1e-5)


def test_laber_says_what_is_wrong():
    with pytest.raises(ValueError, match="batch_size"):
        cpprb.LaBERmean(0)
    with pytest.raises(ValueError, match="m must"):
        cpprb.LaBERmean(1, 0)
    with pytest.raises(ValueError, match="eps"):
        cpprb.LaBERmean(1, eps=-1)
    with pytest.raises(ValueError, match="priorities"):
        cpprb.LaBERmean(2)(priorities=[1])


# ---- whole episodes


def steps(*rewards, done=True):
    count = len(rewards)
    ends = np.zeros(count)
    ends[-1] = done
    return {
        "obs": np.zeros((count, 2)), "act": np.zeros(count), "rew": rewards, "next_obs": np.zeros((count, 2)),
        "done": ends,
    }  # fmt: skip


def episodes(buffer):
    count = buffer.get_stored_episode_size()
    return [buffer.get_episode(i)["rew"].ravel().tolist() for i in range(count)]


def test_episodes_can_be_read_and_deleted_one_by_one():
    buffer = cpprb.SelectiveReplayBuffer(4, 2, 1, Nepisodes=3)
    assert [buffer.add(**steps(*rewards)) for rewards in [(0, 1, 2), (10, 11, 12), (20, 21)]] == [0, 3, 6]
    assert buffer.add(**steps(30, done=False)) == 8
    assert episodes(buffer) == [[0, 1, 2], [10, 11, 12], [20, 21], [30]]
    assert (buffer.get_stored_size(), buffer.get_next_index(), buffer.get_buffer_size()) == (9, 9, 12)
    assert buffer.delete_episode(1) == 3
    assert buffer.delete_episode(9) == 0
    assert episodes(buffer) == [[0, 1, 2], [20, 21], [30]]
    assert buffer.add(**steps(31, 32)) == 6
    assert episodes(buffer) == [[0, 1, 2], [20, 21], [30, 31, 32]]
    assert {name: array.shape for name, array in buffer.get_episode(7).items()} == {
        "obs": (0, 2), "act": (0, 1), "rew": (0, 1), "next_obs": (0, 2), "done": (0, 1),
    }  # fmt: skip
    buffer.clear()
    assert (episodes(buffer), buffer.get_stored_size()) == ([], 0)


def test_done_ends_an_episode_in_the_middle_of_a_batch():
    buffer = cpprb.SelectiveReplayBuffer(2, 2, 1, Nepisodes=2)
    buffer.add(**{**steps(90, 91, 92, done=False), "done": [0, 1, 0]})
    assert episodes(buffer) == [[90, 91], [92]]


def test_a_full_buffer_of_episodes_warns_of_what_it_drops():
    buffer = cpprb.SelectiveReplayBuffer(2, 2, 1, Nepisodes=2)
    buffer.add(**steps(1, 2, 3))
    with pytest.warns(UserWarning, match="room for 1 of 2 rows"):
        assert buffer.add(**steps(10, 11)) == 3
    assert episodes(buffer) == [[1, 2, 3], [10]]


def test_rows_of_episodes_are_sampled_in_float64():
    buffer = cpprb.SelectiveReplayBuffer(4, 3, 2, Nepisodes=2, rew_dim=2)
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1)
    assert buffer.add(np.zeros(3), [1, 2], [3, 4], np.ones(3), 1) == 0
    batch = buffer.sample(2)
    assert {name: array.shape for name, array in batch.items()} == {
        "obs": (2, 3), "act": (2, 2), "rew": (2, 2), "next_obs": (2, 3), "done": (2, 1),
    }  # fmt: skip
    assert {array.dtype for array in batch.values()} == {np.dtype(np.float64)}
    assert (buffer.get_obs_dim(), buffer.get_act_dim(), buffer.get_rew_dim()) == (3, 2, 2)
    assert buffer.get_obs_shape() is None
    with pytest.raises(ValueError, match="same number of steps"):
        buffer.add(np.zeros(3), [1, 2, 3, 4], [3, 4], np.ones(3), 1)
    assert buffer.get_stored_size() == 1


def test_observations_of_a_shape_have_it_in_batches_and_are_flat_in_episodes():
    buffer = cpprb.SelectiveReplayBuffer(4, obs_shape=[3, 2], act_dim=5, is_discrete_action=True)
    assert (buffer.get_obs_shape(), buffer.get_obs_dim(), buffer.get_act_dim()) == ((3, 2), 6, 1)
    pictures = np.arange(12.0).reshape(2, 3, 2)
    buffer.add(pictures, [0, 1], [0, 1], pictures + 1, [0, 1])
    batch = buffer.sample(5)
    assert batch["obs"].shape == batch["next_obs"].shape == (5, 3, 2)
    np.testing.assert_array_equal(batch["obs"], pictures[batch["act"].ravel().astype(int)])
    np.testing.assert_array_equal(buffer.get_episode(0)["obs"], pictures.reshape(2, 6))
    with pytest.warns(UserWarning, match="SelectiveReplayBuffer ignores nonsense"):
        cpprb.SelectiveReplayBuffer(4, nonsense=1)
