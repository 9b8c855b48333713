"""The best weights: which they are, that they can be had, and that a trainer holds those that reached the target."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import penstock
from penstock.envs.making import lane_seed
from penstock.play.scoring import EVALUATION_LANES
from penstock.runs.run_directory import RunDirectory
from tests.comparing import identical
from tests.engine.processes import FOR_EVER, TINY, wait_until, without

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("kept_launcher")]

SEGMENTS = {**TINY, "eval_interval": 1}
REPLAY = {
    **without(SEGMENTS, "segment_length"), "learning_starts": 100, "buffer_size": 1_000, "updates_per_step": 0.25,
}  # fmt: skip
SERIAL: dict[str, Any] = {
    **TINY, "backend": "serial", "num_workers": 1, "eval_interval": 64, "total_steps": 256, "learning_rate": 0.01,
}  # fmt: skip


def waits_beside(file: Path) -> Path:
    """The file that is there from when an evaluation waits for another on."""
    return file.with_name("waits")


class EvaluatedLate(gymnasium.Env):
    """Returns 1 in each episode of two steps. In evaluations it waits, and says so, until a file is there."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, file: str) -> None:
        self.file = Path(file)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed in [lane_seed(0, EVALUATION_LANES + lane, 0) for lane in range(2)]:
            waits_beside(self.file).touch()
            wait_until(self.file.exists, "the learner has gone on")
        self.left = 2
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        self.left -= 1
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), 0.5, self.left == 0, False, {}


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "settings", "run_dir"),
    [
        pytest.param(penstock.APPO, SEGMENTS, False, marks=pytest.mark.long),
        (penstock.APPO, SEGMENTS, True),
        (penstock.DQN, REPLAY, False),
        (penstock.A3C, without(SEGMENTS, "batch_size"), True),
    ],
    ids=["APPO", "APPO with a run_dir", "DQN", "A3C with a run_dir"],
)
def test_after_a_target_the_trainer_holds_the_weights_that_reached_it(algorithm, settings, run_dir, tmp_path):
    file, path, seen = tmp_path / "go on", tmp_path / "run", []

    def on_update(status):
        """Let the evaluation go on 2,000 steps later; what was learned before it began is in its second status."""
        if waits_beside(file).exists():
            seen.append(status.steps)
        if len(seen) > 2 and status.steps >= seen[1] + 2_000:
            file.touch()

    env = {"env": EvaluatedLate, "env_kwargs": {"file": str(file)}, "target_return": 1.0, "total_steps": FOR_EVER}
    with algorithm(**{**settings, **env}, run_dir=str(path) if run_dir else None) as algo:
        result = algo.train(quiet=True, on_update=on_update)
        assert result.reached_target
        best, held = algo.best(), algo.get_parameters()[0]
        assert best.steps < result.steps, "the learner had gone on"
        assert best.mean_return == result.eval_return == algo.status.best_return == 1.0
        assert identical(held, best.parameters[0])
        assert algo.evaluate(4).steps == best.steps
        algo.save(tmp_path / "now")
        algo.save(tmp_path / "best", best=True)
        for name in ("now", "best"):
            assert identical(dict(penstock.load_policy(tmp_path / name).model.state_dict()), held)
        if run_dir:
            store = RunDirectory.open(path).checkpoints
            assert store.latest().meta["steps"] == result.steps
            assert identical(store.latest().weights, held) and identical(store.best().weights, held)
        after = algo.train(quiet=True)  # ends at the target
        assert after.steps >= result.steps and after.reached_target


def test_the_best_weights_are_those_of_the_best_evaluation_whatever_is_learned_later(tmp_path):
    held = {}

    def note(status):
        held[status.version] = algo.get_parameters()[0]

    with penstock.APPO(**SERIAL, run_dir=str(tmp_path / "run")) as algo:
        for _ in range(4):
            algo.train(64, quiet=True, on_update=note)
        best, saved = algo.best(), RunDirectory.open(tmp_path / "run").checkpoints.best()
        assert (best.mean_return, best.steps, best.version) == tuple(
            saved.meta[name] for name in ("mean_return", "steps", "version")
        )
        assert best.mean_return == algo.status.best_return
        assert identical(best.parameters[0], saved.weights)
        if best.version in held:
            assert identical(best.parameters[0], held[best.version])
        algo.save(tmp_path / "best", best=True)
        algo.set_parameters(best.parameters)
        assert identical(algo.get_parameters()[0], best.parameters[0])
    policy = penstock.load_policy(tmp_path / "best")
    assert (policy.meta["mean_return"], policy.meta["steps"]) == (best.mean_return, best.steps)
    assert identical(dict(policy.model.state_dict()), best.parameters[0])


def test_a_run_that_goes_on_knows_its_best_weights(tmp_path):
    path = tmp_path / "run"
    with penstock.APPO(**SERIAL, run_dir=str(path)) as algo:
        algo.train(quiet=True)
        before = algo.best()
    with penstock.Trainer.resume(str(path)) as algo:
        best = algo.best()
        assert (best.mean_return, best.steps, best.version) == (before.mean_return, before.steps, before.version)
        assert identical(best.parameters[0], before.parameters[0])
        assert algo.status.best_return == before.mean_return


def test_before_an_evaluation_there_are_no_best_weights(tmp_path):
    with penstock.APPO(**{**SERIAL, "eval_interval": 0}, run_dir=None) as algo:
        algo.train(64, quiet=True)
        for ask in (algo.best, lambda: algo.save(tmp_path / "best", best=True)):
            with pytest.raises(RuntimeError, match=r"no evaluation has scored any weights yet.*\(now 0\)"):
                ask()
    assert not (tmp_path / "best").exists()
