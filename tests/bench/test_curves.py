"""Curves and defaults: the tables of kept records, and the trainings that a request stands for."""

import runpy

import pytest

from tests.places import BENCH


@pytest.fixture
def start(monkeypatch):
    """Return the globals of a script of bench/."""
    monkeypatch.syspath_prepend(str(BENCH))
    return lambda name: runpy.run_path(str(BENCH / name), run_name="bench")


def a_run(seed: int, final: float, commit: str = "abc") -> dict:
    return {
        "group": "bipedal", "run": f"BipedalWalker-v3-ppo-seed{seed}", "commit": commit, "algorithm": "ppo",
        "env": "BipedalWalker-v3", "seed": seed, "steps": 100, "seconds": 10.0 * seed, "episodes": 50, "cpu": "a CPU",
        "best": final + 1.0, "deterministic": final, "sampled": final - 10.0,
    }  # fmt: skip


def test_a_row_has_the_interquartile_mean_of_the_newest_record_of_each_run(start):
    table = start("curves.py")["table"]
    records = [a_run(1, -5.0), a_run(1, 100.0), a_run(3, 400.0, "def"), a_run(2, 200.0), a_run(4, 300.0)]
    *_, row = table(records, "bipedal").splitlines()
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:5] == ["BipedalWalker-v3", "ppo", "4", "100", "100"]
    assert cells[5].startswith("250 (")  # the mean of 200 and 300: a quarter is cut off at either end
    assert cells[6:12] == ["100, 200, 400, 300", "240", "401", "25", "a CPU", "abc, def"]
    assert "288" in cells[12]


def test_a_request_becomes_a_command_for_the_chosen_environments(start):
    words = start("curves.py")["command"]("mujoco", "ppo,appo --preset mujoco", 2, 1, ["Hopper-v5"])
    assert words[:2] == ["multirun", "ppo,appo"]
    assert words[words.index("--env") + 1] == "Hopper-v5"
    assert words[words.index("--seed") + 1] == "1,2"
    assert words[words.index("--total-steps") + 1] == "1000000"


def test_every_algorithm_trains_on_tasks_of_its_actions_with_the_budget_of_its_family(start):
    bench = start("defaults.py")
    found = bench["trainings"](["CliffWalking-v1", "MountainCarContinuous-v0"], ["ppo", "dqn", "sac"])
    assert list(found) == [
        "CliffWalking-v1 ppo", "CliffWalking-v1 dqn", "MountainCarContinuous-v0 ppo", "MountainCarContinuous-v0 sac",
    ]  # fmt: skip
    assert [each.settings["total_steps"] for each in found.values()] == [100_000, 50_000, 150_000, 20_000]
    assert found["CliffWalking-v1 dqn"].settings["env_kwargs"] == {"max_episode_steps": 200}


def test_ours_and_the_peer_stand_in_one_row(start):
    def scored(seed: int, mean: float, library: str) -> dict:
        scores = {actions: {"mean": mean, "least": mean} for actions in ("deterministic", "sampled")}
        return {"training": "Acrobot-v1 ppo", "library": library, "seed": seed, "steps": 1000, "final": scores}

    records = [scored(1, -80.0, "penstock"), scored(2, -90.0, "penstock"), scored(3, -82.0, "penstock")]
    *_, row = start("defaults.py")["table"]([*records, scored(1, -100.0, "sb3")]).splitlines()
    assert row == "| Acrobot-v1 | ppo | 1,000 | 3 | -90 / -82 | -90 / -82 | -100 / -100 | -100 / -100 |"
