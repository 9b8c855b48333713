"""Hindsight: every episode written as it was meant, and again as if another goal had been meant."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from penstock.replay import Field, NotReady, Prioritized, ReplayBuffer
from penstock.replay.hindsight import Hindsight
from penstock.replay.limiter import RateLimiter


@dataclass(frozen=True)
class FakeField:
    name: str
    shape: tuple[int, ...] = ()
    dtype: np.dtype = field(default_factory=lambda: np.dtype("float32"))


@dataclass
class FakePlan:
    fields: list[FakeField]
    n_step: int = 0
    length: int = 0
    lenient: bool = False


class FakeBuffer:
    """The part of a replay buffer that hindsight uses, with writes and draws to inspect."""

    def __init__(self, state_shape: tuple[int, ...] = (), goal_shape: tuple[int, ...] = (), *more: FakeField) -> None:
        states = [FakeField("obs", state_shape), FakeField("next_obs", state_shape), FakeField("goal", goal_shape)]
        self._plan = FakePlan([*states, FakeField("action"), FakeField("reward"), *more])
        self.room = 10**9  # rows that may be written before the next one is held
        self.rows: list[dict[str, Any]] = []
        self.episodes: list[int] = []  # rows written when each episode ended
        self._rng = np.random.default_rng(0)

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, **steps: Any) -> None:
        count = len(steps["next_obs"])
        assert all(len(value) == count for value in steps.values())
        written = min(count, self.room)
        self.room -= written
        self.rows += [{name: value[i] for name, value in steps.items()} for i in range(written)]
        if written < count:
            held = NotReady("held")
            held.written = written
            raise held

    def end_episode(self) -> None:
        self.episodes.append(len(self.rows))

    def sample_uniform(self, batch_size: int) -> dict[str, np.ndarray]:
        drawn = self._rng.integers(len(self.rows), size=batch_size)
        return {"next_obs": self.column("next_obs")[drawn]}

    def column(self, name: str) -> np.ndarray:
        return np.array([row[name] for row in self.rows])


def reached(next_obs: np.ndarray, action: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """1 where the goal is reached, of scalar states."""
    assert next_obs.shape == action.shape == goal.shape
    return (next_obs == goal).astype(np.float32)


def walk(hindsight: Hindsight, length: int, start: int = 0) -> None:
    """An episode of scalar states start, start + 1, ..."""
    states = np.arange(start, start + length + 1, dtype=np.float32)
    hindsight.add(obs=states[:-1], action=states[:-1] * 10, next_obs=states[1:])


def relabelled(strategy: str, length: int, goals_per_step: int = 4, **options: Any) -> np.ndarray:
    """Goals [goals_per_step, T] of one walk, less the states that the steps lead to."""
    buffer = FakeBuffer()
    hindsight = Hindsight(buffer, reached, strategy=strategy, goals_per_step=goals_per_step, seed=1, **options)
    walk(hindsight, length)
    hindsight.end_episode(-1.0)
    goals = buffer.column("goal").reshape(-1, length)
    assert (goals[0] == -1.0).all()
    np.testing.assert_array_equal(buffer.column("reward"), buffer.column("goal") == buffer.column("next_obs"))
    return goals[1:] - np.arange(1, length + 1)


def test_the_episode_comes_first_as_it_was_meant_and_then_once_for_each_goal() -> None:
    buffer = FakeBuffer()
    hindsight = Hindsight(buffer, reached, goals_per_step=2)
    walk(hindsight, 5)
    assert len(hindsight) == 5
    assert hindsight.end_episode(3.0) == 15
    assert buffer.episodes == [5, 10, 15]
    assert len(hindsight) == 0
    np.testing.assert_array_equal(buffer.column("goal")[:5], [3.0] * 5)
    np.testing.assert_array_equal(buffer.column("reward")[:5], [0, 0, 1, 0, 0])
    for name, first in [("obs", 0), ("next_obs", 1)]:
        np.testing.assert_array_equal(buffer.column(name), np.tile(np.arange(first, first + 5), 3))
    np.testing.assert_array_equal(buffer.column("action"), buffer.column("obs") * 10)


def test_future_goals_are_achieved_by_the_same_or_a_later_step_each_as_likely() -> None:
    ahead = relabelled("future", 6, 20_000)
    for step in range(6):
        values, counts = np.unique(ahead[:, step], return_counts=True)
        np.testing.assert_array_equal(values, np.arange(6 - step))
        np.testing.assert_allclose(counts, 20_000 / (6 - step), rtol=0.1)


def test_episode_goals_are_achieved_by_any_step_each_as_likely() -> None:
    ahead = relabelled("episode", 6, 20_000)
    for step in range(6):
        values, counts = np.unique(ahead[:, step], return_counts=True)
        np.testing.assert_array_equal(values, np.arange(6) - step)
        np.testing.assert_allclose(counts, 20_000 / 6, rtol=0.1)


def test_the_final_goal_is_the_last_state_and_is_taken_once() -> None:
    np.testing.assert_array_equal(relabelled("final", 6), [[5, 4, 3, 2, 1, 0]])


def test_an_episode_of_one_step_can_only_have_achieved_its_own_state() -> None:
    for strategy in ("future", "episode", "final"):
        assert not relabelled(strategy, 1).any()


def test_random_goals_come_from_all_rows_and_the_episode_each_as_likely() -> None:
    buffer = FakeBuffer()
    hindsight = Hindsight(buffer, reached, strategy="random", goals_per_step=10_000, seed=1)
    buffer.add(obs=[0.0] * 3, action=[0.0] * 3, next_obs=[100.0, 101.0, 102.0], reward=[0.0] * 3, goal=[0.0] * 3)
    walk(hindsight, 2)
    hindsight.end_episode(0.0)
    values, counts = np.unique(buffer.column("goal")[5:], return_counts=True)
    np.testing.assert_array_equal(values, [1.0, 2.0, 100.0, 101.0, 102.0])
    np.testing.assert_allclose(counts, 4000, rtol=0.1)


def test_the_first_episode_finds_its_random_goals_in_itself() -> None:
    buffer = FakeBuffer()
    hindsight = Hindsight(buffer, reached, strategy="random", seed=1)
    walk(hindsight, 3)
    hindsight.end_episode(0.0)
    assert set(buffer.column("goal")[3:]) <= {1.0, 2.0, 3.0}


def test_random_goals_of_whole_numbers_keep_the_fractions_of_the_buffer() -> None:
    buffer = FakeBuffer()
    hindsight = Hindsight(buffer, reached, strategy="random", goals_per_step=10, seed=1)
    buffer.add(obs=[0.0] * 100, action=[0.0] * 100, next_obs=[0.5] * 100, reward=[0.0] * 100, goal=[0.0] * 100)
    hindsight.add(obs=0, action=0, next_obs=1)
    hindsight.end_episode(0)
    assert set(buffer.column("goal")[101:]) <= {0.5, 1.0}
    assert 0.5 in buffer.column("goal")[101:]


def test_goals_are_what_goal_fn_makes_of_achieved_states() -> None:
    buffer = FakeBuffer(state_shape=(3,), goal_shape=(2,))
    hindsight = Hindsight(
        buffer,
        lambda next_obs, action, goal: -np.linalg.norm(next_obs[:, :2] - goal, axis=1),
        goal_fn=lambda states: states[:, :2],
        strategy="final",
    )
    for t in range(3):
        hindsight.add(obs=[t, 0, 9], action=0.0, next_obs=[t + 1, 0, 9])
    hindsight.end_episode([3.0, 4.0])
    np.testing.assert_array_equal(buffer.column("goal"), [[3, 4]] * 3 + [[3, 0]] * 3)
    np.testing.assert_allclose(buffer.column("reward"), [-np.sqrt(20), -np.sqrt(17), -4, -2, -1, 0])


def test_a_goal_may_be_given_for_every_step() -> None:
    buffer = FakeBuffer()
    hindsight = Hindsight(buffer, reached, strategy="final")
    walk(hindsight, 3)
    hindsight.end_episode([1.0, 1.0, 3.0])
    np.testing.assert_array_equal(buffer.column("goal")[:3], [1, 1, 3])
    np.testing.assert_array_equal(buffer.column("reward")[:3], [1, 0, 1])


def test_steps_may_come_one_by_one_or_several_at_once_and_are_copied() -> None:
    buffer = FakeBuffer(state_shape=(2,), goal_shape=(2,))
    hindsight = Hindsight(buffer, lambda next_obs, action, goal: np.zeros(len(goal)), strategy="final")
    state = np.zeros(2)
    hindsight.add(obs=state, action=0, next_obs=state)
    state[:] = 7.0
    hindsight.add(obs=[state, state], action=[1, 2], next_obs=[state, state])
    hindsight.end_episode([0.0, 0.0])
    np.testing.assert_array_equal(buffer.column("obs")[:3], [[0, 0], [7, 7], [7, 7]])
    np.testing.assert_array_equal(buffer.column("action")[:3], [0, 1, 2])


def test_all_other_values_are_written_with_every_goal_as_they_were() -> None:
    buffer = FakeBuffer((), (), FakeField("info", (2,)))
    hindsight = Hindsight(buffer, reached, strategy="final")
    hindsight.add(obs=0, action=0, next_obs=1, info=[5, 6], terminated=False, truncated=False)
    hindsight.add(obs=1, action=0, next_obs=2, info=[7, 8], terminated=True, truncated=False)
    hindsight.end_episode(9)
    np.testing.assert_array_equal(buffer.column("info"), [[5, 6], [7, 8]] * 2)
    np.testing.assert_array_equal(buffer.column("terminated"), [False, True] * 2)


@pytest.mark.parametrize("strategy", ["future", "episode", "random", "final"])
def test_rows_end_where_they_reach_the_goal_written_with_them_if_the_task_ends_there(strategy: str) -> None:
    """Out of a real buffer, whose episodes end there too; a step that reached the goal meant ends no other goal's."""
    kinds = {"terminated": "bool", "action": "int64"}
    names = ("obs", "action", "next_obs", "reward", "goal", "terminated")
    buffer = ReplayBuffer(1000, {name: Field((), kinds.get(name, "float32")) for name in names})
    hindsight = Hindsight(
        buffer,
        lambda next_obs, action, goal: -(next_obs != goal).astype(float),
        terminated_fn=lambda next_obs, action, goal: (next_obs == goal) | (action == 9),  # 9 falls, for any goal
        strategy=strategy,
        goals_per_step=3,
        seed=1,
    )
    for falls in (False, True):
        for t in range(6):
            hindsight.add(obs=t, action=9 if falls and t == 5 else 0, next_obs=t + 1)
        hindsight.end_episode(goal=6.0)
    rows = buffer.get_all()
    expected = [  # by hand: what a loop over single rows says
        bool(reached == goal or action == 9)
        for reached, goal, action in zip(rows["next_obs"], rows["goal"], rows["action"], strict=True)
    ]
    assert rows["terminated"].tolist() == expected
    last = rows["next_obs"] == 6.0
    assert rows["terminated"][:6].tolist() == [False] * 5 + [True]
    if strategy != "final":
        early = rows["terminated"] & ~last
        assert early.any() and (rows["reward"][early] == 0.0).all(), "before the episode's end"
        assert len(list(buffer.episodes())) > 2 * (1 + hindsight.goals_per_step), "they end there in the buffer, too"
    if strategy in ("episode", "random"):
        assert (~rows["terminated"] & last & (rows["goal"] != 6.0)).any(), "at the end, where another goal is meant"


def test_terminations_need_a_field_are_hindsights_own_and_one_for_each_step() -> None:
    with pytest.raises(ValueError, match="the buffer has no field 'terminated' for terminated=: declare it"):
        Hindsight(FakeBuffer(), reached, terminated_fn=reached)
    buffer = FakeBuffer((), (), FakeField("done"))
    hindsight = Hindsight(buffer, reached, terminated_fn=lambda *_: np.zeros(2), terminated="done")
    with pytest.raises(KeyError, match=r"found \['done'\] which hindsight computes itself"):
        hindsight.add(obs=0, action=0, next_obs=1, done=1.0)
    walk(hindsight, 3)
    with pytest.raises(ValueError, match=r"terminated_fn must return one done for each of 3 steps"):
        hindsight.end_episode(1.0)


def test_a_reward_field_of_one_element_takes_one_reward_for_each_step() -> None:
    buffer = FakeBuffer()
    buffer._plan.fields[-1] = FakeField("reward", (1,))
    hindsight = Hindsight(buffer, reached, strategy="final")
    walk(hindsight, 2)
    hindsight.end_episode(2.0)
    assert buffer.column("reward").tolist() == [[0], [1], [0], [1]]


def test_fields_may_have_other_names() -> None:
    buffer = FakeBuffer()
    buffer._plan.fields = [FakeField(name) for name in ("s", "a", "s2", "r", "g")]
    names = {"obs": "s", "action": "a", "next_obs": "s2", "reward": "r", "goal": "g"}
    hindsight = Hindsight(buffer, reached, strategy="final", **names)  # type: ignore[arg-type]
    buffer.add = lambda **steps: buffer.rows.append(steps)  # type: ignore[method-assign]
    hindsight.add(s=0.0, a=0.0, s2=1.0)
    hindsight.end_episode(1.0)
    assert [sorted(row) for row in buffer.rows] == [["a", "g", "r", "s", "s2"]] * 2


def test_an_episode_longer_than_a_rate_limiter_lets_in_at_once_is_written_in_pieces() -> None:
    fields = {name: Field() for name in ("obs", "action", "next_obs", "reward", "goal")}
    buffer = ReplayBuffer(100, fields, rate_limiter=RateLimiter(samples_per_insert=1, min_size=30, tolerance=7))
    hindsight = Hindsight(buffer, reached, strategy="final")
    walk(hindsight, 16)
    assert hindsight.end_episode(16.0) == 32
    assert [len(episode["ids"]) for episode in buffer.episodes()] == [16, 16]
    np.testing.assert_array_equal(buffer.get_all()["obs"], np.tile(np.arange(16), 2))


def test_an_episode_that_the_buffer_holds_is_kept_and_goes_on_where_it_was_held() -> None:
    buffer = FakeBuffer()
    hindsight = Hindsight(buffer, reached, goals_per_step=2)
    walk(hindsight, 5)
    buffer.room = 7
    with pytest.raises(NotReady):
        hindsight.end_episode(3.0)
    assert (len(buffer.rows), buffer.episodes, len(hindsight)) == (7, [5], 5)
    with pytest.raises(ValueError, match=r"not written yet: call end_episode\(goal\) again"):
        walk(hindsight, 1)
    with pytest.raises(NotReady):
        hindsight.end_episode(3.0)
    buffer.room = 100
    assert hindsight.end_episode(3.0) == 15
    assert (buffer.episodes, len(hindsight)) == ([5, 10, 15], 0)
    np.testing.assert_array_equal(buffer.column("obs"), np.tile(np.arange(5), 3))
    np.testing.assert_array_equal(buffer.column("reward"), buffer.column("goal") == buffer.column("next_obs"))


def test_an_episode_that_is_held_can_be_given_up() -> None:
    buffer = FakeBuffer()
    hindsight = Hindsight(buffer, reached)
    walk(hindsight, 5)
    buffer.room = 0
    with pytest.raises(NotReady):
        hindsight.end_episode(3.0)
    hindsight.clear()
    buffer.room = 100
    walk(hindsight, 2)
    assert hindsight.end_episode(9.0) == len(buffer.rows) == 10


def test_an_episode_of_nothing_writes_nothing_and_clear_forgets_the_steps() -> None:
    buffer = FakeBuffer()
    hindsight = Hindsight(buffer, reached)
    assert hindsight.end_episode(0.0) == 0
    walk(hindsight, 3)
    hindsight.clear()
    assert hindsight.end_episode(0.0) == 0
    assert buffer.rows == [] and buffer.episodes == []


def test_a_seed_makes_goals_repeatable() -> None:
    first, second = relabelled("future", 50), relabelled("future", 50)
    np.testing.assert_array_equal(first, second)


def test_an_episode_that_gets_too_long_is_refused_before_anything_is_added() -> None:
    hindsight = Hindsight(FakeBuffer(), reached, max_episode_length=4)
    walk(hindsight, 3)
    with pytest.raises(ValueError, match=r"5 steps, more than max_episode_length=4: call end_episode"):
        walk(hindsight, 2)
    walk(hindsight, 1)
    assert hindsight.end_episode(0.0) == 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "past"}, "strategy='past' is unknown: use one of future, episode, random, final"),
        ({"goals_per_step": 0}, "goals_per_step must be at least 1, found 0"),
        ({"max_episode_length": 0}, "max_episode_length must be at least 1 or None, found 0"),
        ({"goal": "target"}, "the buffer has no field 'target' for goal=: declare it"),
    ],
)
def test_arguments_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Hindsight(FakeBuffer(), reached, **options)


@pytest.mark.parametrize("setting", ["n_step", "length"])
def test_a_buffer_that_puts_steps_together_is_refused(setting: str) -> None:
    buffer = FakeBuffer()
    setattr(buffer._plan, setting, 3)
    with pytest.raises(ValueError, match="needs a buffer of single steps"):
        Hindsight(buffer, reached)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"reward": 0}, KeyError, r"found \['reward'\] which hindsight computes itself"),
        ({"rew": 0}, KeyError, r"found \['rew'\] which are not expected"),
        ({"obs": [[0]]}, ValueError, r"field 'obs' must have shape \[\] .* found \[1, 1\]"),
        ({"obs": [0, 1]}, ValueError, r"same number of steps, found \{'obs': 2, 'action': 1"),
        ({"terminated": [[True]]}, ValueError, r"field 'terminated' must have shape \[\]"),
        ({"terminated": 1}, TypeError, "terminated is int64, but the field holds bool"),
        ({"obs": 1j}, TypeError, "obs is complex128, but the field holds float32"),
        ({"obs": "here"}, TypeError, "obs is a str"),
        ({"obs": 1e39}, ValueError, r"obs holds 1e\+39, which float32 cannot hold"),
    ],
)
def test_a_wrong_step_is_named_and_not_added(wrong: dict[str, Any], error: type[Exception], message: str) -> None:
    hindsight = Hindsight(FakeBuffer(), reached)
    with pytest.raises(error, match=message):
        hindsight.add(**{"obs": 0, "action": 0, "next_obs": 0, **wrong})
    assert len(hindsight) == 0


def test_a_missing_field_is_named() -> None:
    hindsight = Hindsight(FakeBuffer(), reached)
    with pytest.raises(KeyError, match=r"found no \['next_obs'\]"):
        hindsight.add(obs=0, action=0)
    assert len(hindsight) == 0


def test_what_the_first_step_of_an_episode_has_all_have() -> None:
    hindsight = Hindsight(FakeBuffer(), reached)
    hindsight.add(obs=0, action=0, next_obs=0, terminated=False)
    with pytest.raises(KeyError, match=r"found no \['terminated'\]"):
        hindsight.add(obs=0, action=0, next_obs=0)


@pytest.mark.parametrize(
    ("reward_fn", "goal_fn", "goal", "error", "message"),
    [
        (reached, None, [1.0, 2.0], ValueError, r"goal must have shape \[\], or \[3\] with one for .*, found \[2\]"),
        (reached, None, "home", TypeError, "goal is a str"),
        (lambda *_: np.zeros(2), None, 0.0, ValueError, r"one reward for each of 3 steps, .* found shape \[2\]"),
        (lambda *_: 0.0, None, 0.0, ValueError, r"found shape \[\]"),
        (lambda *_: np.zeros(3, complex), None, 0.0, TypeError, "reward is complex128, but the field holds float32"),
        (lambda *_: [0.0, 1e39, 0.0], None, 0.0, ValueError, r"reward holds 1e\+39, which float32 cannot hold"),
        (reached, lambda states: states[:2], 0.0, ValueError, r"of shape \[3\] turned into goals of shape \[2\]"),
        (reached, lambda states: states * 1j, 0.0, TypeError, "goal is complex64, but the field holds float32"),
    ],
)
def test_wrong_goals_and_rewards_are_named_before_anything_is_written(
    reward_fn: Callable[..., Any],
    goal_fn: Callable[..., Any] | None,
    goal: Any,
    error: type[Exception],
    message: str,
) -> None:
    buffer = FakeBuffer()
    hindsight = Hindsight(buffer, reward_fn, goal_fn=goal_fn)
    walk(hindsight, 3)
    with pytest.raises(error, match=message):
        hindsight.end_episode(goal)
    assert buffer.rows == []
    assert len(hindsight) == 3
    walk(hindsight, 1)
    assert len(hindsight) == 4


def test_rewards_are_computed_for_the_values_that_are_written() -> None:
    seen = []
    hindsight = Hindsight(FakeBuffer(), lambda *given: seen.extend(given) or np.zeros(1))  # type: ignore[func-returns-value]
    hindsight.add(obs=0.1, action=1, next_obs=0.1)
    hindsight.end_episode(0.1)
    assert {values.dtype for values in seen} == {np.dtype("float32")}


@pytest.mark.parametrize("strategy", ["future", "episode", "random", "final"])
def test_relabelled_rows_come_back_out_of_a_real_buffer(strategy: str) -> None:
    state, scalar = Field((2,), "float32"), Field((), "float32")
    fields = {"obs": state, "action": scalar, "next_obs": state, "reward": scalar, "goal": state}
    buffer = ReplayBuffer(1000, fields, sampler=Prioritized(), seed=1)
    hindsight = Hindsight(
        buffer,
        lambda next_obs, action, goal: (next_obs == goal).all(axis=1).astype(np.float32),
        strategy=strategy,
        seed=1,
    )
    for episode in range(3):
        for t in range(10):
            hindsight.add(obs=[episode, t], action=t, next_obs=[episode, t + 1])
        written = hindsight.end_episode([-1.0, -1.0])
    assert len(buffer) == 3 * written
    rows = buffer.get_all()
    np.testing.assert_array_equal(rows["next_obs"] - rows["obs"], np.tile([0.0, 1.0], (len(buffer), 1)))
    np.testing.assert_array_equal(rows["reward"], (rows["next_obs"] == rows["goal"]).all(axis=1))
    assert rows["reward"].sum() > 0
    batch = buffer.sample(32)
    assert buffer.update_priorities(batch["ids"], np.ones(32)) == 0
