"""n-step rows (algorithm: R = sum of gamma^i r, discount = gamma^m or 0) against golden numbers and a plain model."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.replay import Field, NStep, Prioritized, ReplayBuffer
from tests.replay.buffers import add_episode, make_buffer

GAMMA = 0.9
THREE = NStep(3, GAMMA)


def step(time: int, reward: float = 1.0, *, ending: str = "", episode: int = 0) -> dict[str, object]:
    """Observations are [lane, episode, time]."""
    return {
        "obs": [0, episode, time],
        "action": 100 * episode + time,
        "reward": reward,
        "next_obs": [0, episode, time + 1],
        "terminated": ending == "terminated",
        "truncated": ending == "truncated",
    }


@pytest.mark.parametrize(
    ("ending", "discounts"),
    [
        ("terminated", [0.729, 0.0, 0.0, 0.0]),
        ("truncated", [0.729, 0.729, 0.81, 0.9]),
        ("cut", [0.729, 0.729, 0.81, 0.9]),
    ],
)
def test_four_rewards_of_one_give_the_worked_table(ending: str, discounts: list[float]) -> None:
    buffer = make_buffer(n_step=THREE)
    add_episode(buffer, step, 4, ending)
    rows = buffer.get_all()
    np.testing.assert_allclose(rows["reward"], [2.71, 2.71, 1.9, 1.0], rtol=1e-6)
    np.testing.assert_allclose(rows["discount"], discounts, rtol=1e-6)
    assert rows["discount"].dtype == np.float32


def test_first_fields_come_from_the_first_step_and_successors_from_the_last() -> None:
    buffer = make_buffer(n_step=THREE)
    add_episode(buffer, step, 4, "terminated")
    rows = buffer.get_all()
    assert rows["obs"][:, 2].tolist() == [0, 1, 2, 3]
    assert rows["action"].tolist() == [0, 1, 2, 3]
    assert rows["next_obs"][:, 2].tolist() == [3, 4, 4, 4]
    assert rows["terminated"].tolist() == [False, True, True, True]


@pytest.mark.parametrize("ending", ["terminated", "truncated", "cut"])
@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_every_step_of_an_episode_starts_one_row(length: int, ending: str) -> None:
    buffer = make_buffer(n_step=THREE)
    add_episode(buffer, step, length, ending)
    add_episode(buffer, step, length, ending)
    rows = buffer.get_all()
    assert rows["obs"][:, 2].tolist() == 2 * list(range(length))
    assert rows["next_obs"][:, 2].tolist() == 2 * [min(time + 3, length) for time in range(length)]


def test_one_step_rows_are_transitions_with_a_discount() -> None:
    buffer = make_buffer(n_step=NStep(1, GAMMA))
    add_episode(buffer, step, 3, "terminated")
    rows = buffer.get_all()
    np.testing.assert_allclose(rows["reward"], [1, 1, 1])
    np.testing.assert_allclose(rows["discount"], [0.9, 0.9, 0.0], rtol=1e-6)


def test_an_episode_that_is_both_terminated_and_truncated_counts_as_terminated() -> None:
    buffer = make_buffer(n_step=NStep(2, GAMMA))
    buffer.add(**{**step(0), "terminated": True, "truncated": True})
    assert buffer.get_all()["discount"].tolist() == [0.0]


def test_add_gives_the_id_of_the_first_row_it_finished_or_none() -> None:
    buffer = make_buffer(n_step=THREE)
    assert buffer.add(**step(0)) is None
    assert buffer.add(**step(1)) is None
    assert buffer.add(**step(2)) == 0
    assert buffer.add(**step(3, ending="truncated")) == 1
    assert buffer.num_added == 4


def test_end_episode_gives_the_id_of_the_first_row_of_the_tail_or_none() -> None:
    buffer = make_buffer(n_step=THREE)
    assert buffer.end_episode() is None
    for time in range(4):
        buffer.add(**step(time))
    assert buffer.end_episode() == 2
    assert buffer.end_episode() is None
    assert len(buffer) == 4


def test_steps_added_together_give_the_rows_of_steps_added_one_by_one() -> None:
    steps = [step(t, 0.5 + t, ending="truncated" if t == 4 else "") for t in range(9)]
    one_by_one = make_buffer(n_step=THREE)
    together = make_buffer(n_step=THREE)
    for each in steps:
        one_by_one.add(**each)
    together.add(**{name: np.array([each[name] for each in steps]) for name in steps[0]})
    expected, found = one_by_one.get_all(), together.get_all()
    for name in ("obs", "action", "reward", "next_obs", "terminated", "discount"):
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def test_several_rewards_of_any_shape_are_summed_in_float64() -> None:
    fields = {"reward": Field((2,), "float64"), "cost": Field((), "float32"), "bonus": Field((), "float32")}
    n_step = NStep(steps=3, gamma=0.5, reward=("reward", "cost"))
    buffer = ReplayBuffer(16, fields, n_step=n_step)
    for time, cost in enumerate([2.0**24, 2.0, 4.0]):
        buffer.add(reward=[time, 1e-9], cost=cost, bonus=time, terminated=False, truncated=False)
    rows = buffer.get_all()
    np.testing.assert_array_equal(rows["reward"], [[1.0, 1e-9 + 0.5 * 1e-9 + 0.25 * 1e-9]])
    # 2^24 + 1 + 1: in float32 each of the two would be lost.
    np.testing.assert_array_equal(rows["cost"], np.float32([2.0**24 + 2.0]))
    assert rows["bonus"].tolist() == [0.0]


def test_a_row_has_the_priority_of_its_first_step() -> None:
    buffer = make_buffer(n_step=NStep(2, GAMMA), sampler=Prioritized(alpha=1.0, eps=0.0), seed=1)
    for time in range(6):
        buffer.add(**step(time, ending="truncated" if time == 5 else ""), priorities=float(time == 4))
    sampled = buffer.sample(32)
    assert set(sampled["action"].tolist()) == {4}


def test_the_newest_rows_stay_when_the_buffer_is_full() -> None:
    buffer = make_buffer(7, n_step=THREE)
    for time in range(50):
        buffer.add(**step(time, ending="terminated" if time == 49 else ""))
    rows = buffer.get_all()
    assert rows["obs"][:, 2].tolist() == list(range(43, 50))
    assert rows["next_obs"][:, 2].tolist() == [46, 47, 48, 49, 50, 50, 50]


def test_clear_forgets_steps_that_wait_for_their_window() -> None:
    buffer = make_buffer(n_step=THREE)
    buffer.add(**step(0))
    buffer.add(**step(1))
    buffer.clear()
    add_episode(buffer, step, 3, "terminated")
    assert buffer.get_all()["action"].tolist() == [0, 1, 2]


def test_steps_before_and_after_a_boundary_are_never_mixed_within_a_batch_of_steps() -> None:
    endings = ["", "terminated", "", "truncated", ""]
    buffer = make_buffer(n_step=THREE)
    steps = [step(t, ending=ending) for t, ending in enumerate(endings)]
    buffer.add(**{name: np.array([each[name] for each in steps]) for name in steps[0]})
    rows = buffer.get_all()
    assert rows["obs"][:, 2].tolist() == [0, 1, 2, 3]
    assert rows["next_obs"][:, 2].tolist() == [2, 2, 4, 4]


# ---- against a plain model


@dataclass
class LaneModel:
    """One lane: its current episode, kept whole, and the rows that are complete."""

    lane: int
    n: int
    episode: int = 0
    rewards: list[float] = field(default_factory=list)

    def step(self, reward: float) -> None:
        self.rewards.append(reward)

    def end(self, terminated: bool) -> list[tuple[object, ...]]:
        rows = self.rows(len(self.rewards), terminated)
        self.episode += 1
        self.rewards = []
        return rows

    def unfinished(self) -> list[tuple[object, ...]]:
        return self.rows(max(len(self.rewards) - self.n + 1, 0), terminated=False)

    def rows(self, starts: int, terminated: bool) -> list[tuple[object, ...]]:
        length = len(self.rewards)
        rows = []
        for t in range(starts):
            m = min(self.n, length - t)
            total = sum(GAMMA**i * self.rewards[t + i] for i in range(m))
            discount = 0.0 if terminated and t + m == length else GAMMA**m
            rows.append((self.lane, self.episode, t, t + m, np.float32(total), np.float32(discount)))
        return rows


Round = list[tuple[bool, float, str]]  # of each lane: whether it steps, its reward, how its episode ends


@st.composite
def rounds(draw: st.DrawFn) -> Sequence[Round]:
    lanes = draw(st.integers(2, 4))
    lane = st.tuples(
        st.booleans(),
        st.integers(-8, 8).map(float),
        st.sampled_from(["", "", "", "", "terminated", "truncated", "cut"]),
    )
    return draw(st.lists(st.lists(lane, min_size=lanes, max_size=lanes), max_size=25))


@settings(max_examples=60)
@given(events=rounds(), n=st.integers(1, 5))
def test_lanes_with_any_episodes_give_the_rows_of_the_model(events: Sequence[Round], n: int) -> None:
    lanes = len(events[0]) if events else 2
    models = [LaneModel(lane, n) for lane in range(lanes)]
    expected: list[tuple[object, ...]] = []
    buffer = make_buffer(100, n_step=NStep(n, GAMMA))
    writer = buffer.writer(lanes=lanes)
    for event in events:
        now = np.array([[model.lane, model.episode, len(model.rewards)] for model in models])
        writer.add(
            mask=np.array([steps for steps, _, _ in event]),
            obs=now,
            action=now[:, 2],
            reward=np.array([reward for _, reward, _ in event]),
            next_obs=now + np.array([0, 0, 1]),
            terminated=np.array([ending == "terminated" for _, _, ending in event]),
            truncated=np.array([ending == "truncated" for _, _, ending in event]),
        )
        for model, (steps, reward, ending) in zip(models, event, strict=True):
            if steps:
                model.step(reward)
            if ending == "cut":
                writer.end_episode(model.lane)
            if ending == "cut" or (ending and steps):
                expected += model.end(terminated=ending == "terminated")
    for model in models:
        expected += model.unfinished()
    rows = buffer.get_all()
    found = [
        (*obs, next_obs[2], reward, discount)
        for obs, next_obs, reward, discount in zip(
            rows["obs"].tolist(), rows["next_obs"].tolist(), rows["reward"], rows["discount"], strict=True
        )
    ]
    assert [row[:4] for row in sorted(found)] == [row[:4] for row in sorted(expected)]
    np.testing.assert_allclose(
        [row[4:] for row in sorted(found)], [row[4:] for row in sorted(expected)], rtol=1e-6, atol=1e-6
    )
