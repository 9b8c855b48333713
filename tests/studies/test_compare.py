"""`penstock compare`: scores, targets, probabilities, and what a reader is warned of."""

import json

import pytest

from penstock.cli import main
from tests.studies.recorded import record


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in range(5):
        record(tmp_path / f"runs/good-{seed}", [(100, 4.0), (200, 10.0 + seed)], algorithm="ppo", seed=seed, gamma=0.9)
        scores = [(100, 20.0), (200, 5.0 + seed)] if seed == 0 else [(100, 1.0), (200, 5.0 + seed)]
        record(tmp_path / f"runs/bad-{seed}", scores, algorithm="dqn", seed=seed, gamma=0.5, buffer_size=7)
    return tmp_path / "runs"


def found(capsys, *args):
    assert main(["compare", *args, "--json"]) == 0
    out, err = capsys.readouterr()
    return json.loads(out), err


def test_scores_are_those_of_last_evaluations(runs, capsys):
    told, err = found(capsys, "--by", "algorithm")
    dqn, ppo = told["scores"]
    assert (ppo["group"], ppo["n"], ppo["each"], ppo["iqm"]) == ("ppo", 5, [10.0, 11.0, 12.0, 13.0, 14.0], 12.0)
    assert 10.0 <= ppo["low"] < 12.0 < ppo["high"] <= 14.0
    assert dqn["each"] == [5.0, 6.0, 7.0, 8.0, 9.0]
    assert err == ""


def test_best_scores_are_those_of_best_evaluations_and_flatter(runs, capsys):
    told, err = found(capsys, "--by", "algorithm", "--score", "best")
    assert told["scores"][0]["each"][0] == 20.0
    assert "the best of many evaluations is biased upwards" in err


def test_runs_lie_on_the_front_of_a_cost_unless_another_one_is_better_for_less(tmp_path, capsys):
    for name, points in (
        ("cheap", [(100, 5.0)]), ("beaten", [(200, 5.0)]), ("equal-cost", [(100, 4.0)]), ("best", [(300, 9.0)]),
    ):  # fmt: skip
        record(tmp_path / name, points, algorithm=name)
    record(tmp_path / "elsewhere", [(900, 1.0)], algorithm="best", env="Acrobot-v1")
    told, _ = found(capsys, str(tmp_path), "--by", "algorithm")
    both = ["seconds", "steps"]
    assert {row["run"]: row["fronts"] for row in told["runs"]} == {
        "cheap": both, "best": both, "elsewhere": both, "beaten": [], "equal-cost": []
    }  # fmt: skip
    assert (told["runs"][0]["seconds"], told["runs"][0]["steps"]) == (20.0, 200.0)


def test_two_dashes_stand_between_groups(runs, capsys):
    sides = [[str(path) for path in sorted(runs.glob(f"{name}-*"))] for name in ("good", "bad")]
    told, _ = found(capsys, *sides[0], "--", *sides[1])
    (row,) = told["improvement"]
    assert (row["probability"], row["low"], row["high"], row["tasks"]) == (1.0, 1.0, 1.0, 1)
    told, _ = found(capsys, *sides[1], "--", *sides[0])
    assert told["improvement"][0]["probability"] == 0.0


def test_a_run_that_misses_the_target_counts(runs, capsys):
    told, _ = found(capsys, "--by", "algorithm", "--target", "9")
    dqn, ppo = told["targets"]
    assert (ppo["reached"], ppo["n"], ppo["steps"], ppo["seconds"]) == (5, 5, 200.0, 20.0)
    assert (dqn["reached"], dqn["n"], dqn["steps"]) == (2, 5, None), "the median of 100, 200 and three misses"
    told, _ = found(capsys, "--by", "algorithm")
    assert told["targets"] == []
    record(runs / "good-5", [(100, 9.0)], target=8.0, seed=5)
    told, _ = found(capsys, "--by", "algorithm")
    assert told["targets"] == [], "some of the group have a target, and some have none"


def test_settings_that_differ_between_groups_are_listed(runs, capsys):
    told, _ = found(capsys, "--by", "algorithm")
    assert told["settings"]["gamma"] == {"dqn": 0.5, "ppo": 0.9}
    assert told["settings"]["buffer_size"] == {"dqn": 7, "ppo": None}
    assert "seed" not in told["settings"] and "total_steps" not in told["settings"]


def test_several_environments_are_added_up_on_one_scale_only(runs, capsys, tmp_path):
    for name, algorithm in (("good", "ppo"), ("bad", "dqn")):
        for seed in range(5):
            record(runs / f"{name}-acrobot-{seed}", [(100, -100.0)], algorithm=algorithm, seed=seed, env="Acrobot-v1")
    told, err = found(capsys, "--by", "algorithm")
    assert [row["env"] for row in told["scores"]] == ["Acrobot-v1", "CartPole-v1"] * 2
    assert "scores of several environments are not combined" in err
    assert told["improvement"][0]["probability"] == pytest.approx(0.25), "dqn: equal on one, worse on the other"

    (tmp_path / "n.toml").write_text('["CartPole-v1"]\nlow = 0\nhigh = 10\n["Acrobot-v1"]\nlow = -500\nhigh = -100\n')
    told, err = found(capsys, "--by", "algorithm", "--normalize", "n.toml")
    over_all = [row for row in told["scores"] if row["env"] == "all, normalized"]
    assert [row["n"] for row in over_all] == [10, 10] and err == ""
    assert over_all[0]["optimality_gap"] == pytest.approx(0.15), "half the runs at 1, half 0.3 below in the mean"
    assert told["profiles"]["ppo"][0] == 1.0 and told["profiles"]["ppo"][-1] == 0.0


def test_few_runs_have_no_interval_and_are_warned_of(runs, capsys):
    told, err = found(capsys, "--by", "algorithm", "--where", "seed<3")
    assert all(row["low"] is None for row in (*told["scores"], *told["improvement"]))
    assert "ppo on CartPole-v1: 3 runs are too few for an interval; use 5 or more" in err


def test_runs_without_a_score_and_runs_that_are_not_done_are_told(runs, capsys):
    record(runs / "none", algorithm="ppo", seed=7)
    record(runs / "dead", [(50, 2.0)], algorithm="ppo", seed=8, state="failed")
    told, err = found(capsys, "--by", "algorithm")
    assert told["scores"][1]["n"] == 6, "a run that failed counts with what it reached"
    assert "1 run without an evaluation, and so without a score: none" in err
    assert "1 run not done" in err and "dead" in err


def test_environments_that_only_one_group_has_are_told(runs, capsys):
    record(runs / "more", [(50, 2.0)], algorithm="ppo", env="Acrobot-v1")
    _, err = found(capsys, "--by", "algorithm")
    assert "not every group has runs on Acrobot-v1" in err


def test_tables_are_for_people_and_for_pages(runs, capsys):
    assert main(["compare", "--by", "algorithm", "--target", "9"]) == 0
    out = capsys.readouterr().out
    assert "dqn over ppo" in out and "2 of 5" in out and "not reached" in out and "| " not in out
    assert main(["compare", "--by", "algorithm", "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| group | environment | runs |") and lines[1] == "|---" * 6 + "|"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "two groups are needed: penstock compare A -- B"),
        (["--by", "env"], "two groups are needed, but there is one: env=CartPole-v1"),
        (["--by", "algo"], "--by 'algo' is neither a column nor a setting of these runs; did you mean 'algorithm'?"),
        (["runs", "--target", "4", "--", "runs"], "flags come after the runs"),
        (["runs", "--", "runs", "--by", "seed"], "groups are given twice"),
        (["--by", "algorithm", "--normalize", "n.toml"], "n.toml cannot be read"),
        (["runs/good-0", "--"], "a group has no runs: give runs on both sides of --"),
        (["runs/good-0", "--", "--by", "seed"], "a group has no runs"),
        (["--", "runs/good-0"], "a group has no runs"),
        (["nowhere", "--", "runs"], "nowhere does not exist"),
    ],
)
def test_wrong_usage_is_told(runs, capsys, args, message):
    assert main(["compare", *args]) == 2
    assert message in capsys.readouterr().err


def test_bounds_must_be_two_numbers_of_every_environment(runs, capsys, tmp_path):
    for text, message in (
        ('["CartPole-v1"]\nlow = 1\nhigh = 1', "is not legal"), ('["CartPole-v1"]\nlow = 1', "is not legal"),
        ("low = 3", "is not legal"), ("[A]\nlow = 0\nhigh = 1", "has no table for 'CartPole-v1'"), ("=", "is not TOML"),
    ):  # fmt: skip
        (tmp_path / "n.toml").write_text(text)
        assert main(["compare", "--by", "algorithm", "--normalize", "n.toml"]) == 2
        assert message in capsys.readouterr().err
