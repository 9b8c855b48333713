"""Environments of EnvPool by their ids: a pool for the lanes of a group, with seeds, ends and frame skip of its own."""

from typing import Any

import numpy as np
import pytest

envpool = pytest.importorskip("envpool")

from penstock import PPO  # noqa: E402
from penstock.config import ConfigError  # noqa: E402
from penstock.envs import EnvSpec, UnknownEnvironmentError, make_env, make_lanes, probe  # noqa: E402


def shown(lanes: Any, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Observations ``[steps + 1, N, 4]`` of lanes that always go left, and rows of (terminated, truncated, valid)."""
    column = np.zeros(((steps + 1) * lanes.num_lanes, 4), np.float32)
    rows, flags = np.arange(lanes.num_lanes), []
    lanes.reset()
    lanes.write_observations(column, rows)
    for step in range(1, steps + 1):
        lanes.step(np.zeros(lanes.num_lanes, np.int64))
        lanes.write_observations(column, rows + step * lanes.num_lanes)
        flags.append(np.stack([lanes.terminated, lanes.truncated, lanes.valid]))
    lanes.close()
    return column.reshape(steps + 1, lanes.num_lanes, 4), np.array(flags)


def test_an_id_is_one_of_envpools_and_no_other_packages() -> None:
    spec = EnvSpec.resolve("EnvPool/CartPole-v1")
    assert (spec.name, spec.kind) == ("EnvPool-CartPole-v1", "envpool")
    lanes: Any = make_lanes(spec, 3)
    assert len(lanes._env) == 3 and type(lanes._env).__name__ == "CartPoleGymnasiumEnvPool"
    lanes.close()
    assert EnvSpec.resolve("CartPole-v1").kind == "gymnasium"


def test_games_show_stacks_and_tell_their_frame_skip() -> None:
    observation, action, frame_skip, *_ = probe(EnvSpec.resolve("EnvPool/Pong-v5", {"frame_skip": 3}))
    assert (observation.shape, observation.dtype, observation.is_stacked) == ((4, 84, 84), "uint8", True)
    assert (action.num_actions, frame_skip) == (6, 3)


def test_an_end_by_the_time_limit_is_a_truncation_and_the_next_step_is_the_reset() -> None:
    observations, flags = shown(make_env("EnvPool/CartPole-v1", 1, env_kwargs={"max_episode_steps": 5}), 6)
    assert flags[:, :, 0].tolist() == [[0, 0, 1]] * 4 + [[0, 1, 1], [0, 0, 0]]
    # The final observation is shown, the first of the next episode after it.
    assert observations[5, 0, 3] > 1 > abs(observations[6, 0, 3])


def test_a_fall_is_a_termination() -> None:
    observations, flags = shown(make_env("EnvPool/CartPole-v1", 8), 12)
    steps, lanes = flags[:, 0].nonzero()
    assert len(steps) >= 8 and not flags[:, 1].any()
    assert (np.abs(observations[1:][steps, lanes, 2]) > 0.2094).all()
    assert not flags[1:, 2][steps[steps < 11], lanes[steps < 11]].any()


def test_a_seed_of_the_users_is_kept() -> None:
    spec = EnvSpec.resolve("EnvPool/CartPole-v1", {"seed": 3})
    first, other = (shown(make_lanes(spec, 2, first_lane=lane), 3)[0] for lane in (0, 2))
    assert np.array_equal(first, other)


@pytest.mark.parametrize(
    ("env", "env_kwargs", "message"),
    [
        ("EnvPool/Pong-v5", {"stak_num": 2}, "'stak_num' is not a setting of EnvPool/Pong-v5: did you mean 'stack_nu"),
        ("EnvPool/Pong-v5", {"stack_num": "x"}, r"do not fit EnvPool/Pong-v5, whose defaults are {'stack_num': 4}"),
        ("EnvPool/VizdoomCustom-v1", {}, r"do not fit EnvPool/VizdoomCustom-v1.*\.cfg.*does not exist"),
        ("EnvPool/Pong-v5", {"num_envs": 8}, "num_envs=8 is not legal.*set num_envs_per_worker"),
        ("EnvPool/Pong-v5", {"batch_size": 8}, "batch_size=8 is not legal.*set num_groups=2"),
        ("EnvPool/Pong-v5", {"reward_clip": True}, "it hides the true score"),
        ("EnvPool/Go9x9-v1", {}, "has 2 players, but Penstock trains only EnvPool tasks of one player"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_is_made(env: str, env_kwargs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EnvSpec.resolve(env, env_kwargs)


def test_an_unknown_task_is_refused_with_the_closest_ones() -> None:
    with pytest.raises(UnknownEnvironmentError, match=r"has no task 'pong'.*Did you mean 'EnvPool/Pong-v5'"):
        EnvSpec.resolve("EnvPool/pong")


def test_a_version_whose_pools_gymnasium_does_not_know_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envpool, "__version__", "1.2.0")
    with pytest.raises(UnknownEnvironmentError, match=r"found EnvPool 1\.2\.0, expected 1\.2\.5 or later: pip install"):
        EnvSpec.resolve("EnvPool/CartPole-v1")


def test_it_trains_and_says_nothing_of_its_bounds(recwarn: pytest.WarningsRecorder, tmp_path: Any) -> None:
    settings: Any = {"num_workers": 2, "num_envs_per_worker": 4, "segment_length": 16, "batch_size": 128}
    with PPO(env="EnvPool/CartPole-v1", backend="serial", run_dir=None, eval_interval=0, **settings) as algo:
        assert algo.train(256, quiet=True).steps >= 256
        assert algo.evaluate(episodes=2).mean_return > 0
        algo.save(tmp_path / "policy")
    assert not [warning for warning in recwarn if "precision" in str(warning.message)]
    with pytest.raises(ConfigError, match="vector environments, which cannot be filmed"):
        from penstock.play.scoring import evaluate_run

        evaluate_run(tmp_path / "policy", episodes=1, video=str(tmp_path / "film.mp4"))
