"""Flags and a file become runs: every combination, named, checked before any of them begins."""

import re

import pytest

from penstock.config import ConfigError
from penstock.envs.failures import EnvironmentUsageError
from penstock.studies import StudyError
from penstock.studies.plan import changes_of, folder_of, plan, read, request

ENV = ["--env", "CartPole-v1"]


def planned(*args):
    return plan(read(args))


def names(*args):
    return [run.name for run in planned(*args)]


def test_every_algorithm_meets_every_value_and_every_seed_and_first_seeds_come_first():
    runs = planned("ppo,a2c", *ENV, "--learning-rate", "1e-3,3e-4", "--seeds", "2", "--total-steps", "100")
    assert [(run.algorithm, run.config.learning_rate, run.config.seed) for run in runs] == [
        (algorithm, rate, seed) for seed in (0, 1) for algorithm in ("ppo", "a2c") for rate in (1e-3, 3e-4)
    ]
    assert {run.config.total_steps for run in runs} == {100}
    assert runs[1].name == "CartPole-v1-ppo-learning_rate-3e-4-seed0"
    assert len({run.name for run in runs}) == 8


def test_flags_are_those_of_training():
    (run,) = planned("ppo", *ENV, "--hidden-sizes", "64", "32", "--no-normalize-observations", "--seed", "7")
    assert run.flags == [
        *ENV, "--hidden-sizes", "64", "32", "--no-normalize-observations", "--seed", "7",
    ]  # fmt: skip
    assert run.config.hidden_sizes == (64, 32) and run.config.seed == 7 and not run.config.normalize_observations
    assert run.given == {"env", "hidden_sizes", "normalize_observations", "seed"}


def test_values_of_several_words_and_values_with_commas():
    runs = planned("ppo", *ENV, "--hidden-sizes", "64 64,256 256")
    assert [run.config.hidden_sizes for run in runs] == [(64, 64), (256, 256)]
    (run,) = planned("ppo", *ENV, "--env-kwargs", "a=1,2")
    assert run.config.env_kwargs == {"a": "1,2"}
    runs = planned("ppo", *ENV, "--normalize-observations=True,False")
    assert [run.config.normalize_observations for run in runs] == [True, False]


def test_zip_pairs_values():
    runs = planned("ppo", "--env", "CartPole-v1,Acrobot-v1", "--gamma", "0.9,0.99", "--batch-size", "256", "--zip")
    assert [(run.config.env, run.config.gamma, run.config.batch_size) for run in runs] == [
        ("CartPole-v1", 0.9, 256), ("Acrobot-v1", 0.99, 256),
    ]  # fmt: skip
    with pytest.raises(StudyError, match="env has 2, gamma has 3"):
        planned("ppo", "--env", "A,B", "--gamma", "0.9,0.99,0.999", "--zip")


FILE = """
algorithms = ["ppo", "a2c"]
seeds = 2
jobs = 2
name = "mine"
[settings]
env = "CartPole-v1"
total_steps = 500
hidden_sizes = [8, 8]
normalize_observations = false
env_kwargs = {max_episode_steps = 9}
[grid]
learning_rate = [1e-3, 3e-4]
[algorithm.ppo]
num_epochs = 3
gamma = 0.5
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(FILE)
    return str(path)


def test_a_file_says_the_same_as_flags(file):
    runs = planned("--file", file)
    assert len(runs) == 8
    ppo = runs[0].config
    assert (ppo.num_epochs, ppo.gamma, ppo.total_steps, ppo.hidden_sizes) == (3, 0.5, 500, (8, 8))
    assert ppo.env_kwargs == {"max_episode_steps": 9} and not ppo.normalize_observations
    a2c = next(run.config for run in runs if run.algorithm == "a2c")
    assert a2c.gamma == 0.99, "another algorithm's settings are not its own"
    asked = read(["--file", file])
    assert (asked.jobs, folder_of(asked).as_posix()) == (2, "runs/mine")


def test_flags_win_over_the_file(file):
    runs = planned("ppo", "--file", file, "--gamma", "0.9", "--learning-rate", "1e-2", "--seeds", "1")
    (run,) = runs
    assert (run.config.gamma, run.config.learning_rate, run.config.num_epochs) == (0.9, 1e-2, 3)
    asked = read(["ppo", "--file", file, "--jobs", "1", "--name", "other", "--seed", "4,5"])
    assert (asked.jobs, asked.name, [run.config.seed for run in plan(asked)][::2]) == (1, "other", [4, 5])


def test_the_folder_is_the_same_for_the_same_settings_and_another_for_others():
    def folder(*args):
        return folder_of(read(["ppo", *ENV, *args]))

    assert folder() == folder("--seeds", "5") == folder("--jobs", "2") == folder("--seed", "3,4")
    assert len({folder(), folder("--gamma", "0.9"), folder("--gamma", "0.9,0.8"), folder("--total-steps", "5")}) == 4
    assert folder("--name", "x").as_posix() == "runs/x"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "the algorithm comes first"),
        (["ppo", "--env", "A,"], "--env 'A,': a value is missing beside a comma"),
        (["ppo", "--seeds", "2", "--seed", "1", *ENV], "both given"),
        (["ppo", *ENV, "--seeds", "0"], "--seeds 0 is not legal"),
        (["ppo", *ENV, "--jobs", "0"], "--jobs 0 is not legal"),
        (["ppo", *ENV, "--run-dir", "x"], "--run-dir is not legal here"),
        (["ppo", *ENV, "--gamma", "0.9,0.9"], "two runs would be called"),
        (["ppo", *ENV, "--gamma", "0.9,0.90"], "gamma-0.9-seed0 and .*gamma-0.90-seed0 would be the same run"),
        (["ppo", *ENV, "--seed", "0,00"], "seed0 and .*seed00 would be the same run"),
        (["ppo", *ENV, "--seed", "1.5"], "not a whole number"),
        (["ppo", "stray", *ENV], "'stray' follows no flag"),
        (["--file", "nowhere.toml"], "nowhere.toml cannot be read"),
    ],
)
def test_what_cannot_be_read_is_told(args, message):
    with pytest.raises((StudyError, ConfigError), match=message):
        planned(*args)


@pytest.mark.parametrize("name", ["..", "a/../b", "/abs", ".", "x" * 300, "a\0b"])
def test_a_name_is_that_of_a_folder_in_runs(name):
    with pytest.raises(StudyError, match="is not legal: give the name of a folder in runs/"):
        folder_of(read(["ppo", *ENV, "--name", name]))


def test_a_name_may_have_several_parts():
    assert folder_of(read(["ppo", *ENV, "--name", "a/b/"])).as_posix() == "runs/a/b"


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"algorithms": ["ppo", 3]}, "algorithms[1] = 3 is not legal"),
        ({"algorithm": {"ppo": 4}}, "algorithm.ppo = 4 is not legal: write a table [algorithm.ppo]"),
        ({"algorithm": {"pppo": {}}}, "[algorithm.pppo] names no algorithm; did you mean 'ppo'"),
        ({"seeds": True}, "seeds = True is not legal: its type is int"),
    ],
)
def test_what_a_file_may_not_hold_is_refused(contents, message):
    with pytest.raises(StudyError, match=re.escape(message)):
        request(contents)


def test_wrong_settings_of_any_run_are_told_before_one_begins():
    with pytest.raises(ConfigError, match="gamma"):
        planned("ppo,a2c", *ENV, "--gamma", "0.9,7")
    with pytest.raises(ConfigError, match="unknown algorithm 'popo'"):
        planned("ppo,popo", *ENV)
    with pytest.raises(SystemExit):
        planned("ppo,a2c", *ENV, "--clip-range", "0.1"), "which A2C does not have"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("algorithm = 3", "algorithm = 3 is not legal: its type is dict"),
        ("seed = 3", "unknown key 'seed'; did you mean 'seeds'?"),
        ("[grid]\ngamma = 0.9", "grid.gamma = 0.9 is not legal: give a list"),
        ("= 3", "is not TOML"),
    ],
)
def test_a_wrong_file_is_told(tmp_path, text, message):
    (tmp_path / "study.toml").write_text(text)
    with pytest.raises((StudyError, ConfigError), match=message):
        read(["ppo", "--file", str(tmp_path / "study.toml")])


def test_only_what_is_given_and_differs_changes_a_run_that_goes_on():
    (run,) = planned("ppo", *ENV, "--gamma", "0.9", "--total-steps", "2000")
    before = run.config.to_json()
    assert changes_of(run, before, 0.0) == []
    assert changes_of(run, {**before, "learning_rate": 1.0, "run_dir": "x"}, 0.0) == [], "not given: it stays"
    assert changes_of(run, {**before, "gamma": 0.5, "total_steps": 1000}, 0.0) == [
        "--gamma", "0.9", "--total-steps", "2000",
    ]  # fmt: skip


def test_max_seconds_are_given_in_addition_and_what_a_resume_made_of_them_is_no_change():
    (run,) = planned("ppo", *ENV, "--max-seconds", "60")
    before = run.config.to_json()
    assert changes_of(run, {**before, "max_seconds": 20.0}, 15.5) == ["--max-seconds", "44.5"]
    assert changes_of(run, {**before, "max_seconds": 60.01}, 15.5) == []
    assert changes_of(run, {**before, "max_seconds": None}, 90.0) == ["--max-seconds", "1.0"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([*ENV, "--learning-rate", "1e-3,abc"], "learning_rate='abc' is not legal"),
        ([*ENV, "--learning-rate", "1e-3,nowhere:rate"], "learning_rate='nowhere:rate'"),
        (["--env", "CartPole-v1,CartPole-v7"], "env='CartPole-v7' is not a registered Gymnasium id"),
        (["--env", "CartPole-v1,nowhere:Class"], "env='nowhere:Class'"),
    ],
)
def test_code_and_environments_of_all_runs_are_looked_up_before_the_first_begins(args, message):
    with pytest.raises((ConfigError, EnvironmentUsageError), match=re.escape(message)):
        planned("ppo", *args)


def test_environments_of_runs_on_a_cluster_are_looked_up_there():
    assert len(plan(read(["ppo", "--env", "OnlyThere-v0"]), is_here=False)) == 1
