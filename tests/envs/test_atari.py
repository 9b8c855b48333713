"""Atari games: true scores, whole games, 84x84 grey frames in stacks of four."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.envs import EnvSpec, Lanes, ObservationSpec, make_env, probe
from penstock.envs.vector import VectorLanes


def settings_of(spec: EnvSpec) -> dict[str, Any]:
    return spec.unpack()[1]


def test_a_game_shows_stacks_of_four_grey_frames_and_skips_four() -> None:
    observation, action, frame_skip, *_ = probe(EnvSpec.resolve("ALE/Pong-v5"))
    assert observation == ObservationSpec((4, 84, 84), "uint8", is_stacked=True) and observation.is_image
    assert (action.num_actions, frame_skip) == (6, 4)


def test_nothing_sticks_or_hides_unless_env_kwargs_say_so() -> None:
    spec = EnvSpec.resolve("ALE/SpaceInvaders-v5")
    assert (spec.kind, spec.name) == ("atari", "ALE-SpaceInvaders-v5")
    settings = settings_of(spec)
    assert settings["game"] == "space_invaders" and settings["repeat_action_probability"] == 0.0
    assert not settings["reward_clipping"] and not settings["episodic_life"] and not settings["life_loss_info"]
    assert settings["max_num_frames_per_episode"] == 108_000 and settings["noop_max"] == 30
    changed = EnvSpec.resolve("ALE/Pong-v5", {"frameskip": 2, "stack_num": 1, "repeat_action_probability": 0.25})
    assert settings_of(changed)["repeat_action_probability"] == 0.25
    observation, _, frame_skip, *_ = probe(changed)
    assert (observation.shape, frame_skip) == ((1, 84, 84), 2)


@pytest.mark.parametrize("name", ["reward_clipping", "episodic_life", "life_loss_info"])
def test_settings_that_make_scores_or_ends_untrue_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"env_kwargs: {name}=True is not supported: .*leave it False"):
        EnvSpec.resolve("ALE/Pong-v5", {name: True})
    EnvSpec.resolve("ALE/Pong-v5", {name: False})


@pytest.mark.parametrize("name", ["frame_skip", "num_envs", "batch_size", "num_threads"])
def test_unknown_settings_are_refused_and_those_of_the_workers_too(name: str) -> None:
    with pytest.raises(ValueError, match=f"env_kwargs: '{name}' is not a setting of an ALE game") as caught:
        EnvSpec.resolve("ALE/Pong-v5", {name: 2})
    assert ("did you mean 'frameskip'?" in str(caught.value)) == (name == "frame_skip")


def test_a_game_plays_and_reports_its_unclipped_score_after_a_boundary_and_a_reset_row() -> None:
    # Pong with no action but waiting: the opponent scores now and then; 1000 frames are 250 steps.
    lanes = make_env("ALE/Pong-v5", 2, env_kwargs={"max_num_frames_per_episode": 1000}, seed=3)
    column = np.zeros((8, 4, 84, 84), np.uint8)
    lanes.reset()
    total = np.zeros(2)
    boundaries = 0
    while boundaries < 1:
        lanes.step(np.zeros(2, np.int64))
        total += lanes.reward
        boundaries += int(lanes.truncated[0])
        assert lanes.valid.all() and not lanes.first.any()
    lanes.write_observations(column, np.array([5, 1]))
    assert column[5].any() and column[1].any() and not column[[0, 2, 3, 4, 6, 7]].any()
    episodes = lanes.take_episodes()
    assert episodes[0][:2] == (0, total[0]) and total[0] <= -3
    lanes.step(np.zeros(2, np.int64))
    assert lanes.first[0] and not lanes.valid[0] and lanes.reward[0] == 0 and not lanes.truncated[0]
    lanes.close()


def test_same_step_games_deliver_their_final_observation_beside_the_new_one() -> None:
    lanes = make_env("ALE/Pong-v5", 1, env_kwargs={"autoreset_mode": "SameStep", "max_num_frames_per_episode": 400})
    column = np.zeros((3, 4, 84, 84), np.uint8)
    lanes.reset()
    while not lanes.truncated[0]:
        lanes.write_observations(column, np.array([0]))
        lanes.step(np.ones(1, np.int64))
    assert lanes.finals.tolist() == [0] and lanes.first[0]
    lanes.write_observations(column, np.array([1]))
    lanes.write_finals(column, np.array([2]))
    # The stack of the final observation goes on from the one before it; the new episode's does not.
    assert np.array_equal(column[2, :3], column[0, 1:])
    assert not np.array_equal(column[1, :3], column[0, 1:])
    lanes.close()


def test_an_atari_environment_does_not_change_how_other_vector_environments_are_understood() -> None:
    def make(env: str, **env_kwargs: Any) -> Lanes:
        return make_env(env, 1, vectorize="vector", env_kwargs=env_kwargs)

    next_step = make("ALE/Pong-v5", max_num_frames_per_episode=400)
    same_step = make("ALE/Pong-v5", max_num_frames_per_episode=400, autoreset_mode="SameStep")
    for lanes, resets_at_once in ((next_step, False), (same_step, True)):
        assert isinstance(lanes, VectorLanes)
        lanes.reset()
        while not lanes.truncated[0]:
            lanes.step(np.zeros(1, np.int64))
        assert bool(lanes.first[0]) == resets_at_once
        lanes.close()
