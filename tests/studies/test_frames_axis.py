"""Frames are steps times the declared frame skip, and are absent where nothing declares one."""

import json

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import MaxAndSkipObservation, TimeLimit

import penstock
from penstock.cli import main
from penstock.envs.single import frames_per_step
from penstock.runs.reading import RecordedRun
from penstock.studies.compare_page import comparison_page, sides_of
from penstock.studies.report import report_html


class Declared(gymnasium.Wrapper):
    """Four frames per step, declared as simulators declare them."""

    frame_skip = 4


def skipping(env_id="CartPole-v1"):
    return Declared(gymnasium.make(env_id, max_episode_steps=4))


class Simulator(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, frame_skip):
        self.frame_skip = frame_skip


@pytest.mark.parametrize(
    ("env", "frames"),
    [
        (lambda: gymnasium.make("CartPole-v1"), None),
        (skipping, 4),
        (lambda: TimeLimit(MaxAndSkipObservation(Simulator(5), 3), 10), 15),
        (lambda: Simulator((2, 5)), None),
        (lambda: MaxAndSkipObservation(Simulator((2, 5)), 3), None),
        (lambda: Simulator(True), None),
        (lambda: gymnasium.make_vec("CartPole-v1", num_envs=2), None),
    ],
)
def test_wrappers_multiply_and_a_random_skip_is_no_number(env, frames):
    assert frames_per_step(env()) == frames


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folder with a run whose environment declares a frame skip, and one whose environment does not."""
    folder = tmp_path_factory.mktemp("runs")
    how = {"num_workers": 1, "num_envs_per_worker": 2, "backend": "serial", "total_steps": 256, "eval_interval": 64}
    how |= {"hidden_sizes": (8,), "eval_episodes": 2, "batch_size": 64, "segment_length": 32}
    for name, env in (("with", skipping), ("without", "CartPole-v1")):
        with penstock.PPO(env, run_dir=folder / name, **how) as algo:
            algo.train()
    return folder


def test_training_and_evaluations_have_frames_and_updates(runs):
    lines = [json.loads(line) for line in (runs / "with" / "metrics.jsonl").read_text().splitlines()]
    evaluations = [line for line in lines if "evaluation/mean_return" in line]
    assert len(evaluations) > 1 and len(lines) > len(evaluations)
    assert all(line["frames"] == 4 * line["steps"] for line in lines)
    assert [line["updates"] for line in evaluations] == sorted(line["updates"] for line in evaluations)
    assert evaluations[-1]["updates"] == lines[-1]["updates"] > 0, "the last evaluation is of the last weights"
    assert "frames" not in (runs / "without" / "metrics.jsonl").read_text()


def test_all_that_draws_offers_frames_and_says_which_run_has_none(runs, tmp_path, capsys):
    assert main(["plot", str(runs), "--x", "frames", "--csv", str(tmp_path / "a.csv")]) == 0
    told = capsys.readouterr()
    assert "1 run without frames (an environment that declares no frame skip has no frames)" in told.err
    assert "evaluation/mean_return over frames" in told.out and "at 1,024" in told.out
    assert main(["plot", str(runs / "without"), "--x", "frames"]) == 2
    assert "over 'frames': an environment that declares no frame skip has no frames" in capsys.readouterr().err

    both = [RecordedRun.open(runs / name) for name in ("with", "without")]
    assert main(["report", str(runs), "--x", "frames", "--out", str(tmp_path / "report.html")]) == 2
    assert "without logged no frames" in capsys.readouterr().err
    assert "Return over frames" in report_html(both[:1], "frames").decode()

    (parts, _), (mixed, _) = (comparison_page(sides_of(those, ["algorithm"])) for those in (both[:1], both))
    assert [part["runs"][0].get("frames") for part in parts] == [1024.0]
    assert "frames" in "".join(parts[0]["figures"])
    assert all("frames" not in "".join(part["figures"]) for part in mixed if part["env"] == "CartPole-v1")
