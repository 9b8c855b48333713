"""The writer with hindsight puts each step into the buffer as it was, and again for goals that its episode achieved."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit, TransformReward
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.envs import EnvironmentFailure
from penstock.experience.open_episodes import FIRST_LENGTH
from penstock.replay import Prioritized
from tests.envs.arrangements import episodes
from tests.envs.counting import Ending
from tests.envs.goals import (
    COST,
    NOWHERE,
    SPACES,
    ManyGoalsAtOnce,
    MixedUp,
    OneGoalAtATime,
    Places,
    WithoutTermination,
    place_at,
)
from tests.envs.masked import NUM_ACTIONS, legal_action
from tests.experience.relabelling import GAMMA, Key, Relabelling
from tests.replay.buffers import priorities_of

ENDINGS: list[Ending] = [(4, "truncated"), (1, "terminated"), (5, "terminated"), (3, "both"), (1, "truncated")]

def true_steps(lane: int, endings: Sequence[Ending], num_steps: int) -> list[list[tuple[int, int, bool]]]:
    """Episodes, the last one perhaps unfinished, of steps: number, place reached and whether the episode terminated."""
    found: list[list[tuple[int, int, bool]]] = []
    while num_steps:
        length, kind = endings[len(found) % len(endings)]
        played = min(length, num_steps)
        num_steps -= played
        found.append([
            (step, place_at(lane, len(found), step + 1), step + 1 == length and kind != "truncated")
            for step in range(played)
        ])  # fmt: skip
        if played < length:
            break
        if not num_steps:
            found.append([])
    return found


def key(lane: int, episode: int, step: int, reached: int, fell: bool, meant: int) -> Key:
    """The transition that it is where this place is meant."""
    reward = -float(reached != meant) - COST * ((step + 1) % 2)
    discount = 0.0 if fell or reached == meant else GAMMA
    return lane, episode, step, Relabelling.action_at(lane, episode, step), reward, discount, meant


def assert_true(playing: Relabelling, endings_of_lanes: Sequence[Sequence[Ending]], strategy: str, k: int) -> None:
    """Each step is there once as it was, and if its episode is over k times for goals that the strategy allows."""
    found = playing.written()
    for lane, endings in enumerate(endings_of_lanes):
        *over, running = true_steps(lane, endings, playing.num_steps[lane])
        for episode, steps in enumerate([*over, running]):
            for step, reached, fell in steps:
                assert found[key(lane, episode, step, reached, fell, NOWHERE)] == 1
                earliest = {"future": step, "episode": 0, "final": len(steps) - 1}[strategy]
                legal = {key(lane, episode, step, reached, fell, place) for _, place, _ in steps[earliest:]}
                relabelled = {
                    one: times
                    for one, times in found.items()
                    if one[:3] == (lane, episode, step) and one[-1] != NOWHERE
                }
                assert relabelled.keys() <= legal
                assert sum(relabelled.values()) == (0 if steps is running else k)
    assert sum(found.values()) == len(playing.replay.buffer)


@pytest.mark.parametrize(("strategy", "rows_per_step"), [("future", 3), ("episode", 3), ("final", 1)])
@given(st.lists(st.lists(episodes, min_size=1, max_size=4), min_size=1, max_size=3), st.integers(1, 30))
@settings(max_examples=30)
def test_each_step_is_written_as_it_was_and_for_goals_of_its_episode(strategy, rows_per_step, endings, num_rows):
    envs = [Places(lane, each) for lane, each in enumerate(endings)]
    playing = Relabelling(envs, strategy=strategy, goals_per_step=3).play(num_rows)
    assert_true(playing, endings, strategy, rows_per_step)


@pytest.mark.parametrize("make", [Places, OneGoalAtATime, ManyGoalsAtOnce, MixedUp])
def test_rewards_are_the_environments_own_however_many_goals_it_takes_at_once(make):
    assert_true(Relabelling([make(0, ENDINGS)]).play(40), [ENDINGS], "future", 4)


def test_a_function_that_takes_many_goals_is_called_once_for_an_episode():
    asked = []

    class Asked(Places):
        def compute_reward(self, achieved_goal, desired_goal, info):
            asked.append(len(info) if isinstance(info, np.ndarray) else 1)
            return super().compute_reward(achieved_goal, desired_goal, info)

    playing = Relabelling([Asked(0, [(5, "truncated")])]).play(6)
    asked.clear()
    playing.play(6)
    assert asked == [20]


def test_goals_are_drawn_from_all_steps_that_the_strategy_allows():
    """Over many episodes of four steps, each place that is still reached is meant for the first step."""
    endings: list[Ending] = [(6, "truncated")]
    found = Relabelling([Places(0, endings)]).play(210).written()
    for step in range(6):
        meant = {one[-1] - place_at(0, one[1], 0) for one in found if one[2] == step and one[-1] != NOWHERE}
        assert {difference % 4 for difference in meant} == {(3 * (t // 2)) % 4 for t in range(step + 1, 7)}


def test_one_seed_draws_the_same_goals_and_another_seed_others():
    def drawn(seed):
        return Relabelling([Places(0, ENDINGS)], seed=seed).play(60).written()

    assert drawn(3) == drawn(3) != drawn(4)


@pytest.mark.parametrize("goals", SPACES)
def test_goals_of_any_space_come_back_as_the_environment_shows_them(goals):
    """It asserts so itself, and would reward no goal that is not shown as it shows its own."""
    playing = Relabelling([Places(0, [(4, "truncated")], goals)], strategy="final").play(5)
    batch = playing.replay.buffer.get_all()
    relabelled = batch["reward"][4:]
    last = place_at(0, 0, 4)
    expected = [-float(place_at(0, 0, step + 1) != last) - COST * ((step + 1) % 2) for step in range(4)]
    assert relabelled.tolist() == pytest.approx(expected) and 0.0 in relabelled
    assert np.array_equal(
        playing.goals.desired(batch["next_obs"][4:]), np.repeat(playing.goals.achieved(batch["next_obs"][3:4]), 4, 0)
    )


def test_where_the_environment_says_nothing_of_terminations_they_are_as_they_were():
    endings: list[Ending] = [(3, "terminated"), (3, "truncated")]
    found = Relabelling([WithoutTermination(0, endings)]).play(20).written()
    assert {(one[1] % 2, one[2]) for one in found if one[5] == 0.0} == {(0, 2)}
    assert {one[5] for one in found if (one[1] % 2, one[2]) == (0, 2)} == {0.0}, "those that are relabelled, too"


def test_the_final_observation_of_a_terminated_episode_is_a_goal():
    playing = Relabelling([Places(0, [(1, "terminated")])], strategy="final").play(2)
    assert playing.written()[key(0, 0, 0, place_at(0, 0, 1), True, place_at(0, 0, 1))] == 1


def test_rewards_of_other_goals_are_scaled_and_clipped_as_all_are():
    batch = Relabelling([Places()], reward_scale=2.0, reward_clip=1.5).play(5).replay.buffer.get_all()
    assert set(batch["reward"].tolist()) == {0.0, -0.5, -1.5}


def test_relabelled_rows_begin_with_the_largest_priority():
    playing = Relabelling([Places()], sampler=Prioritized(alpha=1.0, eps=0.0)).play(4)
    buffer = playing.replay.buffer
    buffer.update_priorities(buffer.get_all()["ids"], np.full(4, 7.0))
    playing.play(1)
    assert priorities_of(buffer)[5:].tolist() == pytest.approx([7.0] * 20)


def test_only_steps_are_let_in_by_the_rate_limiter():
    playing = Relabelling([Places(), Places(1)]).play(30)
    assert playing.replay.limiter.inserts == sum(playing.num_steps) == 50
    assert len(playing.replay.buffer) == 50 * 5


def test_an_episode_may_be_longer_than_any_before():
    endings: list[Ending] = [(2, "truncated"), (2 * FIRST_LENGTH + 5, "truncated")]
    shorter: list[Ending] = [(7, "terminated")]
    playing = Relabelling([Places(0, endings), Places(1, shorter)]).play(2 * FIRST_LENGTH + 9)
    assert_true(playing, [endings, shorter], "future", 4)


def test_what_a_wrapper_says_of_rewards_counts_and_the_environment_is_asked_through_the_others():
    class Doubled(gymnasium.Wrapper):
        def step(self, action):
            obs, reward, *rest = self.env.step(action)
            return obs, 2.0 * reward, *rest

        def compute_reward(self, *question):
            return 2.0 * self.env.get_wrapper_attr("compute_reward")(*question)

    playing = Relabelling([TimeLimit(Doubled(TimeLimit(Places(0, [(9, "truncated")]), 4)), 7)]).play(5)
    batch = playing.replay.buffer.get_all()
    assert len(batch["reward"]) == 20 and set(batch["reward"].tolist()) == {0.0, -2 * COST, -2.0, -2.0 - 2 * COST}


def test_a_wrapper_that_changes_rewards_and_not_what_is_computed_is_refused():
    playing = Relabelling([TransformReward(Places(), lambda reward: reward / 2)])
    message = (
        r"environment places failed in compute_reward \(lane 10, step 5\): expected the reward that step\(\) gave for "
        r"the same goals, -0.625, found -1.25 \(step 1 of the episode\)"
    )
    with pytest.raises(EnvironmentFailure, match=message):
        playing.play(5)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda *_: 1 / 0, "ZeroDivisionError"),
        (lambda *_: [1.0, 2.0], r"expected one number for one goal, found shape \(2,\)"),
        (lambda *_: np.nan, "expected a finite float32 reward, found nan"),
    ],
)
def test_what_is_wrong_with_a_reward_names_environment_and_lane(answer, message):
    wrong = type("Wrong", (Places,), {"compute_reward": answer})
    playing = Relabelling([wrong()]).play(4)
    with pytest.raises(EnvironmentFailure, match=rf"failed in compute_reward \(lane 10(.|\n)*{message}"):
        playing.play(1)


@pytest.mark.parametrize("at", ["info", "observation"])
def test_masks_of_legal_actions_stay_with_their_observations(at):
    class Masked(Places):
        def __init__(self):
            super().__init__(0, [(4, "terminated"), (4, "truncated")])
            self.action_space = gymnasium.spaces.Discrete(NUM_ACTIONS)
            if at == "observation":
                mask = gymnasium.spaces.MultiBinary(NUM_ACTIONS)
                self.observation_space = gymnasium.spaces.Dict({**self.observation_space.spaces, "action_mask": mask})

        def mask(self):
            mask = np.zeros(NUM_ACTIONS, np.int8)
            if self.count < 4:  # when the episode is over nothing is legal
                mask[legal_action(self.episode, self.count)] = 1
            return {"action_mask": mask}

        def view(self):
            return super().view() | (self.mask() if at == "observation" else {})

        def reset(self, **arguments):
            obs, info = super().reset(**arguments)
            return obs, self.mask() if at == "info" else info

        def step(self, action):
            *outcome, info = super().step(action)
            return *outcome, {**info, **(self.mask() if at == "info" and self.count < 4 else {})}

    class Playing(Relabelling):
        @staticmethod
        def action_at(tag, episode, count):
            return legal_action(episode, count)

    playing = Playing([Masked()], mask_is_in_info=at == "info").play(20)
    batch = playing.replay.buffer.get_all()
    mask = playing.lanes.observation.mask
    assert mask is not None and len(batch["action"]) == 16 * 5
    for name, offset in (("obs", 0), ("next_obs", 1)):
        for row, (_, episode, count) in zip(batch[name], playing.seen(batch["obs"]), strict=True):
            legal = row[mask.offset : mask.offset + NUM_ACTIONS].nonzero()[0].tolist()
            is_over = count + offset == 4
            assert legal == (list(range(NUM_ACTIONS)) if is_over else [legal_action(episode, count + offset)])
