"""Films: contents of the file, and messages where nothing can be drawn."""

import sys
from pathlib import Path

import gymnasium
import imageio.v3 as imageio
import numpy as np
import pytest
import torch

from penstock.cli import main
from penstock.config import ConfigError
from penstock.envs.spec import EnvSpec
from penstock.play.film import film
from tests.engine.acting import saved, untrained


@pytest.fixture(autouse=True)
def without_garbage_collections(monkeypatch):
    """PyAV collects garbage whenever it opens a file: a second among the objects of all tests, for 10 ms of film."""
    monkeypatch.setattr("gc.collect", lambda *_: 0)


class Painted(gymnasium.Env):
    """Shows how many steps it has made; lasts five; its pictures are of one grey, darker than the step before."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - as Gymnasium has it
    observation_space = gymnasium.spaces.Box(0.0, 10.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    size = (33, 47, 3)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.shown(), {}

    def step(self, action):
        self.steps += 1
        return self.shown(), 0.0, False, self.steps == 5, {}

    def render(self):
        return np.full(self.size, 200 - 30 * self.steps, np.uint8)

    def shown(self):
        return np.array([self.steps], np.float32)


class Silent(Painted):
    def __init__(self):
        super().__init__(None)


class WithoutItsPackage(Painted):
    def render(self):
        raise gymnasium.error.DependencyNotInstalled("pip install crayons")


class Flat(Painted):
    size = (33, 47)


class Masked(Painted):
    """Lets one action be legal, another one after every step, and is taken at its word."""

    def reset(self, *, seed=None, options=None):
        observation, _ = super().reset(seed=seed)
        return observation, self.info()

    def step(self, action):
        assert action == self.steps % 2
        return *super().step(action)[:4], self.info()

    def info(self):
        return {"action_mask": np.arange(2) == self.steps % 2}


def resolved(env, vectorize="make", **env_kwargs):
    return EnvSpec.resolve(env, env_kwargs, vectorize)


def filmed(tmp_path: Path, env: EnvSpec, deterministic=True, seed=0, **settings) -> tuple[np.ndarray, dict]:
    path = str(tmp_path / "episode.mp4")
    film(untrained(env, **settings), env, path, deterministic=deterministic, seed=seed)
    return imageio.imread(path, plugin="pyav"), imageio.immeta(path, plugin="pyav")


def length_of_the_episode_played(env_id: str, seed: int) -> int:
    policy, env = untrained(resolved(env_id)), gymnasium.make(env_id)
    observation, _ = env.reset(seed=seed)
    steps, is_over = 0, False
    while not is_over:
        observation, _, terminated, truncated, _ = env.step(policy.act(observation))
        steps, is_over = steps + 1, terminated or truncated
    env.close()
    return steps


@pytest.mark.parametrize("vectorize", ["make", "vector"])
def test_a_gymnasium_episode_is_filmed_with_a_picture_of_every_observation_at_its_own_pace(tmp_path, vectorize):
    pictures, about = filmed(tmp_path, resolved("CartPole-v1", vectorize), seed=5)
    assert pictures.shape == (length_of_the_episode_played("CartPole-v1", seed=5) + 1, 400, 600, 3)
    assert about["codec"] == "h264"
    assert about["fps"] == gymnasium.make("CartPole-v1").metadata["render_fps"]


def test_pictures_come_in_the_order_of_the_steps_and_odd_sides_are_made_even(tmp_path):
    pictures, _ = filmed(tmp_path, resolved(Painted))
    assert pictures.shape == (6, 34, 48, 3)
    assert np.allclose(pictures.mean((1, 2, 3)), [200, 170, 140, 110, 80, 50], atol=4)


def test_an_environment_that_decides_by_itself_to_draw_is_filmed_too(tmp_path):
    pictures, _ = filmed(tmp_path, resolved(lambda: Painted("rgb_array")))
    assert len(pictures) == 6


@pytest.mark.parametrize("deterministic", [True, False])
def test_only_what_the_info_says_is_legal_is_filmed(tmp_path, deterministic):
    pictures, _ = filmed(tmp_path, resolved(Masked), deterministic)
    assert len(pictures) == 6


def test_a_policy_with_memory_is_filmed(tmp_path):
    pictures, _ = filmed(tmp_path, resolved(Painted), memory="gru", memory_size=4)
    assert len(pictures) == 6


def test_a_film_of_samples_depends_on_its_seed_alone_and_leaves_torch_s_own_stream_as_it_was(tmp_path):
    policy = untrained(resolved("CartPole-v1"))
    films = []
    for stream, seed in ((1, 3), (2, 3), (2, 4)):
        torch.manual_seed(stream)
        before = torch.get_rng_state()
        path = tmp_path / f"{len(films)}.mp4"
        film(policy, resolved("CartPole-v1"), str(path), deterministic=False, seed=seed)
        assert torch.equal(torch.get_rng_state(), before)
        films.append(imageio.imread(path, plugin="pyav").astype(int))
    first, same, other = films
    assert first.shape == same.shape
    assert np.abs(first - same).mean() < 0.1  # encoding in several threads is not exact
    assert first.shape != other.shape or np.abs(first - other).mean() > 0.1


@pytest.mark.parametrize("grayscale", [True, False])
def test_an_atari_film_shows_what_the_policy_sees_four_times_as_large(tmp_path, grayscale):
    env = resolved("ALE/Pong-v5", grayscale=grayscale, max_num_frames_per_episode=200)
    settings = {} if grayscale else {"encoder": "mlp"}
    pictures, about = filmed(tmp_path, env, **settings)
    assert pictures.shape[1:] == (4 * 84, 4 * 84, 3)
    assert about["fps"] == 15  # 60 frames per second, of which the game is shown every fourth
    assert 20 < len(pictures) <= 200 / 4 + 1
    is_grey = np.ptp(pictures.astype(int), axis=3).max() < 8
    assert is_grey == grayscale


@pytest.mark.parametrize(
    ("env", "because"),
    [
        (Silent, "render_mode is None"),
        (WithoutItsPackage, "pip install crayons"),
        (Flat, r"render\(\) must return uint8 \[H, W, 3\], found uint8 of shape \(33, 47\)"),
    ],
)
def test_an_environment_that_cannot_draw_is_refused_with_the_reason_and_leaves_no_file(tmp_path, env, because):
    spec = resolved(env)
    with pytest.raises(ConfigError, match=f"{env.__name__} cannot be filmed: .*{because}"):
        filmed(tmp_path, spec)
    assert not list(tmp_path.iterdir())


def test_a_vector_environment_of_the_user_s_own_is_refused(tmp_path):
    def make(num_envs):
        return gymnasium.make_vec("CartPole-v1", num_envs)

    with pytest.raises(ConfigError, match="vector environments, which cannot be filmed"):
        filmed(tmp_path, resolved(make, "vector"))


@pytest.mark.parametrize("package", ["imageio", "av"])
def test_the_missing_extra_is_named_with_its_remedy(tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.v3", None)
    with pytest.raises(ConfigError, match=r"pip install 'penstock\[video\]'"):
        filmed(tmp_path, resolved(Painted))


@pytest.mark.parametrize(
    ("name", "because"),
    [
        ("film.txt", "must end in one of .mp4, .mkv, .mov"),
        ("nowhere/film.mp4", "there is no directory"),
        ("/proc/film.mp4", "cannot be written: .*/proc"),
    ],
)
def test_a_file_that_could_not_be_written_is_refused_before_anything_is_played(tmp_path, name, because):
    with pytest.raises(ConfigError, match=because):
        film(untrained(resolved(Painted)), resolved(Painted), str(tmp_path / name), deterministic=True, seed=0)
    assert not list(tmp_path.iterdir())


def test_a_file_that_exists_is_refused_before_an_episode_is_played(tmp_path, monkeypatch, capsys):
    saved(tmp_path)
    (tmp_path / "mine.mp4").write_bytes(b"mine")
    (tmp_path / "mine.gif").mkdir()
    monkeypatch.setattr("penstock.play.scoring.evaluate_models", lambda *_, **__: pytest.fail("an episode is played"))
    for name in ("mine.mp4", "mine.gif"):
        assert main(["eval", str(tmp_path / "saved"), "--video", str(tmp_path / name)]) == 2
        assert "it exists; give another name, or remove it first" in capsys.readouterr().err
    assert (tmp_path / "mine.mp4").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["film.mp4", "film.gif"])
def test_an_episode_that_fails_leaves_no_part_of_a_film(tmp_path, name):
    class Falling(Painted):
        def step(self, action):
            if self.steps == 3:
                raise ValueError("fell")
            return super().step(action)

    env = resolved(Falling)
    with pytest.raises(ValueError, match="fell"):
        film(untrained(env), env, str(tmp_path / name), deterministic=True, seed=0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("fps", "stride", "duration"), [(10, 1, 100), (60, 2, 30)])
def test_a_gif_has_the_pictures_at_their_pace_and_leaves_out_what_no_browser_shows(
    tmp_path, monkeypatch, fps, stride, duration
):
    monkeypatch.setitem(Painted.metadata, "render_fps", fps)
    path, env = str(tmp_path / "episode.gif"), resolved(Painted)
    film(untrained(env), env, path, deterministic=True, seed=0)
    pictures, about = imageio.imread(path, index=...), imageio.immeta(path)
    assert np.allclose(pictures.mean((1, 2, 3)), [200, 170, 140, 110, 80, 50][::stride], atol=4)
    assert (about["duration"], about["loop"]) == (duration, 0)
