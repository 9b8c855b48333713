"""Values of worker and lanes that a factory of environments gets, wherever the engine makes environments."""

import pytest

from penstock import APPO, load_policy
from penstock.envs import EnvSpec, lane_seed
from penstock.play.film import film
from tests.envs.counting import CountingEnv

TINY = {
    "num_workers": 2, "num_envs_per_worker": 4, "num_groups": 2, "segment_length": 4, "batch_size": 16,
    "eval_episodes": 2, "total_steps": 64, "backend": "serial", "seed": 5,
}  # fmt: skip


def noting(notes, worker_index, lane, seed):
    """Make an environment, and note the values received, in a file because factories travel by value."""
    with open(notes, "a") as file:
        file.write(f"{worker_index} {lane} {seed}\n")
    return CountingEnv()


def taken(notes):
    told = [tuple(map(int, line.split())) for line in notes.read_text().splitlines()]
    notes.unlink()
    return told


def test_workers_evaluator_and_scores_get_different_values(tmp_path):
    notes = tmp_path / "notes"
    with APPO(env=noting, env_kwargs={"notes": str(notes)}, run_dir=None, **TINY) as algo:
        algo.train(quiet=True)
        told = taken(notes)
        assert [lane for worker, lane, _ in told if worker >= 0] == list(range(8))
        assert [worker for worker, _, _ in told if worker >= 0] == [0] * 4 + [1] * 4
        assert all(seed == lane_seed(5, lane, 0) for worker, lane, seed in told if worker > -2)
        # One was made to look at its spaces.
        assert {(worker, lane) for worker, lane, _ in told if worker < 0} == {
            (-2, 3_000_000), (-1, 1_000_000), (-1, 1_000_001),
        }  # fmt: skip
        algo.evaluate(episodes=2)
        assert [told[:2] for told in taken(notes)] == [(-2, 2_000_000), (-2, 2_000_001)]


def test_the_environment_of_a_film_gets_values_too(tmp_path):
    pytest.importorskip("imageio")
    notes = tmp_path / "notes"
    with APPO(env="CartPole-v1", run_dir=None, **TINY) as algo:
        algo.save(tmp_path / "policy")
    env = EnvSpec.resolve(drawn, {"notes": str(notes)})
    film(load_policy(tmp_path / "policy"), env, str(tmp_path / "film.mp4"), deterministic=True, seed=9)
    assert taken(notes) == [(-2, 4_000_000, 9)]


def drawn(notes, worker_index, lane, seed, render_mode=None):
    import gymnasium

    noting(notes, worker_index, lane, seed)
    return gymnasium.make("CartPole-v1", render_mode=render_mode)
