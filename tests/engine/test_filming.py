"""Films of evaluations: a few are kept, none disturbs what is learned, and a run that cannot film says so at once."""

import json
import os
import sys

import gymnasium
import numpy as np
import pytest
import torch

import penstock
from penstock.config import ConfigError

pytest.importorskip("av", reason="the extra video is not installed")
pytest.importorskip("imageio", reason="the extra video is not installed")


class Drawn(gymnasium.Env):
    """Episodes of five steps; pictures count the steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        self.count += 1
        seen = np.random.uniform(-1, 1, 2).astype(np.float32)
        return seen, float(action), self.count == 5, False, {}

    def render(self):
        return np.full((15, 20, 3), 40 * self.count, np.uint8)


class Failing(Drawn):
    """Draws when the run begins, and never again."""

    drawn = 0

    def render(self):
        Failing.drawn += 1
        if Failing.drawn > 1:
            raise OSError("the screen is gone")
        return super().render()


class Undrawn(Drawn):
    def __init__(self):
        super().__init__()


def trained(path, env=Drawn, on_update=None, **settings):
    how = {
        "num_workers": 1, "num_envs_per_worker": 2, "backend": "serial", "total_steps": 512, "eval_interval": 64,
        "hidden_sizes": (8,), "eval_episodes": 2, "batch_size": 64, "segment_length": 32, "seed": 3,
    }  # fmt: skip
    with penstock.PPO(env, run_dir=path, **how | settings) as algo:
        algo.train(on_update=on_update)
        weights = torch.cat([value.reshape(-1) for value in algo.get_parameters()[0].values()])
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return weights, [line["steps"] for line in lines if "evaluation/mean_return" in line]


def films(path):
    return sorted(os.listdir(path / "videos"), key=lambda name: int(name.split("-")[1].split(".")[0]))


def test_few_films_spread_over_the_training_and_the_weights_are_those_without(tmp_path):
    import av

    found, steps = trained(tmp_path / "filmed", eval_videos=3)
    made = films(tmp_path / "filmed")
    assert len(steps) > 5 and len(made) == 3 and made[-1] == f"step-{steps[-1]}.mp4"
    kept = [int(name[5:-4]) for name in made]
    assert set(kept) <= set(steps) and kept[0] < steps[len(steps) // 2]
    with av.open(str(tmp_path / "filmed" / "videos" / made[0])) as film:
        pictures = [picture.to_ndarray(format="gray").mean() for picture in film.decode(video=0)]
    assert len(pictures) == 6 and np.allclose(pictures, np.arange(6) * 40, atol=6), "a whole episode"
    without, _ = trained(tmp_path / "plain")
    assert torch.equal(found, without) and not (tmp_path / "plain" / "videos").exists()


def test_a_file_that_took_the_place_of_a_film_and_films_of_others_stay(tmp_path):
    run = tmp_path / "run"

    def replace(status):
        made = films(run) if (run / "videos").is_dir() else []
        if made and not (run / "videos" / "step-9.mp4").exists():
            for name in (made[0], "step-9.mp4"):
                (tmp_path / "mine").write_text("mine")
                os.replace(tmp_path / "mine", run / "videos" / name)

    trained(run, eval_videos=2, on_update=replace)
    mine = [name for name in films(run) if (run / "videos" / name).read_bytes() == b"mine"]
    assert len(mine) == 2 and "step-9.mp4" in mine and len(films(run)) in (3, 4)


def test_a_film_that_fails_ends_no_training_and_leaves_no_file(tmp_path):
    _, steps = trained(tmp_path / "run", Failing, eval_videos=2)
    log = (tmp_path / "run" / "log.txt").read_text()
    assert len(steps) > 5 and log.count("warning: no video of the evaluation") == 1 and "the screen is gone" in log
    assert os.listdir(tmp_path / "run" / "videos") == []
    assert 2 <= Failing.drawn - 1 <= 5 < len(steps), "one at the start, then films are spaced, not of each evaluation"


def test_what_cannot_be_filmed_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"Undrawn cannot be filmed: its render_mode is None"):
        trained(tmp_path / "run", Undrawn, eval_videos=2)
    with pytest.raises(ConfigError, match="eval_videos=1 is not legal"):
        trained(tmp_path / "run", eval_videos=1)
    with pytest.raises(ConfigError, match="eval_videos=2 is not legal with run_dir=None, eval_interval=0"):
        trained(tmp_path / "run", eval_videos=2, eval_interval=0)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ConfigError, match=r"pip install 'penstock\[video\]'"):
        trained(tmp_path / "run", eval_videos=2)
    assert not (tmp_path / "run").exists()
