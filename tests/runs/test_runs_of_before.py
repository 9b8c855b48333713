"""Runs that an earlier version has written open, play and go on: one of each algorithm is kept in tests/data."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.algorithms import ALGORITHMS

RUNS = Path(__file__).parents[1] / "data" / "runs"


def test_there_is_one_of_every_algorithm():
    assert {run.name for run in RUNS.iterdir()} == set(ALGORITHMS)


@pytest.mark.long
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_of_before_is_played_and_goes_on(name, tmp_path):
    run = tmp_path / name
    shutil.copytree(RUNS / name, run)
    policy = penstock.load_policy(run)
    observation = np.zeros(policy.algorithm.observation.shape, np.float32)
    before = policy.act(observation)
    with penstock.Trainer.resume(run, total_steps=160) as trainer:
        steps = trainer.status.steps
        assert 80 <= steps <= 128
        result = trainer.train(quiet=True)
        assert result.steps >= 160 and trainer.status.updates > 0
    after = penstock.load_policy(RUNS / name).act(observation)
    assert np.array_equal(after[0], before[0]) if policy.has_memory else np.array_equal(after, before)
