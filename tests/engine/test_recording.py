"""Recorded episodes: a Minari dataset holds what was played, and nothing is overwritten."""

import json
from pathlib import Path

import gymnasium
import minari
import numpy as np
import pytest
from gymnasium import spaces

from penstock.config import ConfigError
from penstock.envs.failures import UnsupportedSpaceError
from penstock.envs.spec import EnvSpec
from penstock.play.recording import EpisodeRecorder
from penstock.play.scoring import evaluate_models, evaluate_run
from tests.engine.acting import saved, untrained
from tests.envs.two_sides import TwoSides


class Album(gymnasium.Env):
    """Shows noise in an image that it overwrites in every step, and a number; takes a choice and numbers."""

    observation_space = spaces.Dict(
        {"image": spaces.Box(0, 255, (36, 36, 3), np.uint8), "place": spaces.Box(-9.0, 9.0, (1,), np.float64)}
    )
    action_space = spaces.Tuple((spaces.Discrete(3, start=4), spaces.Box(-2.0, 2.0, (2,), np.float32)))

    def __init__(self):
        self.image = np.zeros((36, 36, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.shown(), {}

    def step(self, action):
        assert action[0] in (4, 5, 6)
        self.steps += 1
        return self.shown(), 0.1 * self.steps, self.steps == 7, False, {}

    def shown(self):
        self.image[:] = self.np_random.integers(0, 256, self.image.shape)
        return {"image": self.image, "place": np.array([self.steps / 3])}


def test_a_dataset_holds_the_episodes_that_were_scored_and_replays_them(tmp_path, monkeypatch):
    saved(tmp_path)
    place = tmp_path / "new" / "cartpole-v3"
    evaluation = evaluate_run(tmp_path / "saved", episodes=6, seed=3, deterministic=False, record=str(place))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(place.parent))
    dataset = minari.load_dataset("cartpole-v3")
    found = [(episode.rewards.sum(), len(episode.rewards)) for episode in dataset]
    assert sorted(found) == sorted(zip(evaluation.returns, evaluation.lengths, strict=True))
    env = dataset.recover_environment()
    assert env.spec is not None and env.spec.id == "CartPole-v1"
    for episode, about in zip(dataset, dataset.storage.get_episode_metadata(range(6)), strict=True):
        shown = [env.reset(seed=about["seed"])[0], *(env.step(action)[0] for action in episode.actions)]
        assert np.array_equal(episode.observations, shown)
        assert episode.terminations[-1] and not episode.terminations[:-1].any() and not episode.truncations.any()
    metadata = dataset.storage.metadata
    assert metadata["algorithm_name"] == "ppo" and "sampled actions" in metadata["description"]
    if evaluation.mean_return > metadata.get("ref_min_score", np.inf):
        assert metadata["ref_max_score"] == evaluation.mean_return
        assert minari.get_normalized_score(dataset, np.array([evaluation.mean_return])) == 1.0
    assert [path.name for path in place.parent.iterdir()] == ["cartpole-v3"]


def test_images_stay_as_they_were_and_an_episode_given_up_is_truncated(tmp_path):
    env = EnvSpec.resolve(Album)
    policy = untrained(env)
    with EpisodeRecorder(str(tmp_path / "album-v0")) as recorder:
        how = {"episodes": 4, "policies": [policy], "on_episode": recorder.keep}
        (whole,) = evaluate_models([policy.model], recorder.around(env), **how)
        recorder.finish(algorithm="ppo", description="", returns=(0.0, whole.mean_return), episodes=4)
    dataset = minari.MinariDataset(tmp_path / "album-v0" / "data")
    assert dataset.observation_space == Album.observation_space and dataset.action_space == Album.action_space
    assert json.loads((tmp_path / "album-v0/data/metadata.json").read_text())["jpeg_encoding"] is False
    for episode, about in zip(dataset, dataset.storage.get_episode_metadata(range(4)), strict=True):
        album = Album()
        shown = [album.reset(seed=about["seed"])[0]["image"].copy()]
        for action in zip(*episode.actions, strict=True):
            shown.append(album.step(action)[0]["image"].copy())
        assert np.array_equal(episode.observations["image"], shown)
        assert np.array_equal(episode.observations["place"].ravel(), np.arange(8) / 3)
    with EpisodeRecorder(str(tmp_path / "album-v1")) as recorder:
        evaluate_models([policy.model], recorder.around(env), max_steps=3, **{**how, "on_episode": recorder.keep})
        recorder.finish(algorithm="ppo", description="", returns=(0.0, 0.0), episodes=4)
    short = minari.MinariDataset(tmp_path / "album-v1" / "data")
    assert [episode.truncations.tolist() for episode in short] == [[False, False, True]] * 4
    assert "ref_max_score" not in short.storage.metadata


def many(num_envs):
    return gymnasium.make_vec("CartPole-v1", num_envs)


def test_a_dataset_that_cannot_be_written_is_refused_and_leaves_nothing(tmp_path):
    saved(tmp_path)
    (tmp_path / "old-v0").mkdir()
    for name, message in (
        ("old-v0", "exists"), ("old", "NAME-vNUMBER"), ("saved/meta.json/new-v0", "cannot be written: Not a directory"),
        ("/proc/new-v0", "cannot be written: .*/proc"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            evaluate_run(tmp_path / "saved", record=str(tmp_path / name))
    recorder = EpisodeRecorder(str(tmp_path / "new-v0"))
    with pytest.raises(ConfigError, match="vector environments"):
        recorder.around(EnvSpec.resolve(many, vectorize="vector"))
    with pytest.raises(UnsupportedSpaceError, match="several agents cannot be recorded"):
        evaluate_run(tmp_path / "saved", on=EnvSpec.resolve(TwoSides), record=str(tmp_path / "new-v0"))
    with pytest.raises(RuntimeError, match="in the middle"), EpisodeRecorder(str(tmp_path / "new-v0")) as recorder:
        policy, env = untrained(EnvSpec.resolve(Album)), EnvSpec.resolve(Album)

        def keep(lane: int, is_whole: bool) -> None:
            recorder.keep(lane, is_whole)
            raise RuntimeError("in the middle")

        evaluate_models([policy.model], recorder.around(env), episodes=2, on_episode=keep)
    assert sorted(path.name for path in Path(tmp_path).iterdir()) == ["old-v0", "saved"]


class Short(gymnasium.Wrapper):
    """Ends an episode after five steps, of which no pole falls."""

    def step(self, action):
        self.steps = getattr(self, "steps", 0) + 1
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, self.steps % 5 == 0, info


def test_a_policy_is_scored_on_another_environment_and_inside_wrappers_and_refused_where_spaces_differ(tmp_path):
    saved(tmp_path)
    other = EnvSpec.resolve("CartPole-v0")
    assert evaluate_run(tmp_path / "saved", on=other, episodes=2, seed=1, wrappers=[Short]).lengths == (5, 5)
    with pytest.raises(UnsupportedSpaceError) as refused:
        evaluate_run(tmp_path / "saved", on=EnvSpec.resolve("Pendulum-v1"), episodes=2)
    for words in ("float32 (4,)", "one of 2 values", "float32 (3,)", "float32 (1,) within [-2, 2]", "CartPole-v1"):
        assert words in str(refused.value)
