"""`penstock autotune`: what it takes, the table that it prints, and the command that it ends with."""

import json
import re
import shlex
import signal
import subprocess
import sys

import pytest

from penstock.algorithms import load_algorithm
from penstock.cli import main
from penstock.engine.endings import TrainingFailed
from penstock.engine.trainer import Trainer
from penstock.envs.failures import EnvironmentFailure
from penstock.flags import parse_config
from tests.engine.processes import PATIENCE, Watched, family

APPO = ["appo", "--env", "CartPole-v1"]


def config_of(command: str):
    """Return the settings of the printed command."""
    program, verb, name, *flags = shlex.split(command)
    assert (program, verb) == ("penstock", "train")
    algorithm = load_algorithm(name)
    return algorithm, parse_config(algorithm.Config, flags, prog="penstock train")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "the algorithm comes first: penstock autotune"),
        (["--env", "CartPole-v1"], "the algorithm comes first: penstock autotune"),
        (["apo", "--env", "CartPole-v1"], "unknown algorithm 'apo'; did you mean 'appo'?"),
        (["appo"], "--env"),
        ([*APPO, "--seconds", "0"], "--seconds 0 is not legal"),
        ([*APPO, "--seconds", "soon"], "--seconds"),
        ([*APPO, "--json", "no/where.json"], "there is no directory"),
        ([*APPO, "--num-workrs", "2"], "--num-workers"),
        ([*APPO, "--gamma", "2"], "gamma=2.0 is not legal"),
        (["dqn", "--env", "CartPole-v1", "--tune-batch"], "because the smallest batch is always the fastest"),
    ],
)
def test_wrong_usage_is_reported_and_exits_with_2(args, message, machine, capsys):
    assert main(["autotune", *args]) == 2
    out, err = capsys.readouterr()
    assert message in err and out == ""
    assert machine.configs == []


def test_help_names_the_algorithms_and_the_flags_of_its_own(capsys):
    assert main(["autotune", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("appo", "sac", "--seconds", "--tune-batch", "--json"))


def test_help_of_an_algorithm_lists_its_flags_beside_them(capsys):
    assert main(["autotune", "appo", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("--seconds", "--tune-batch", "--segment-length", "--num-workers"))


def test_it_prints_what_was_tried_and_the_command_to_train_with(machine, tmp_path, capsys):
    machine.rate = lambda config: 50_000.0 if config.num_envs_per_worker == 64 else 40_000.0
    file = tmp_path / "tuned.json"
    flags = ["--num_workers=2", "--env-kwargs", "name=it's a name", "--hidden-sizes", "8", "8"]
    assert main(["autotune", *APPO, *flags, "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "cores, load" in lines[0]
    assert lines[1].split() == [
        "workers", "lanes", "inference", "groups", "batch", "steps/s", "real", "work", "limited", "by",
    ]  # fmt: skip
    assert lines[2].split()[:8] == ["2", "16", "local", "1", "256", "40,000", "9%", "rollout"]
    assert lines[3].split()[:6] == ["2", "64", "local", "1", "256", "50,000"]
    out = "\n".join(lines)
    assert "fastest: 50,000 steps/s, 1.25 times the 40,000 of the initial settings" in out
    assert "not tuned, because it changes what is learned (--tune-batch tunes it): batch_size=256" in out
    assert "with more lanes, steps are older" in out and "other programs" not in out

    _, config = config_of(lines[-1])
    assert (config.num_workers, config.num_envs_per_worker, config.inference) == (2, 64, "local")
    assert config.env_kwargs == {"name": "it's a name"} and config.hidden_sizes == (8, 8)
    assert lines[-1].startswith("penstock train appo --env CartPole-v1 --num_workers=2 ")
    assert "--num-workers" not in lines[-1]

    written = json.loads(file.read_text())
    assert written["command"] == lines[-1] and written["machine"]["cores"] == 4
    assert written["found"] == {"num_envs_per_worker": 64, "inference": "local"}
    assert [trial["rate"] for trial in written["trials"][:2]] == [40_000, 50_000]
    assert written["trials"][0]["run"]["limiting_role"] == "rollout x2"
    assert written["rate"] == 50_000 and len(written["trials"]) == len(machine.configs)


def test_a_preset_is_part_of_the_command_and_its_settings_are_tuned(machine, tmp_path, capsys):
    preset = tmp_path / "mine.toml"
    preset.write_text("[appo]\nnum_envs_per_worker = 32\nsegment_length = 16\nnum_workers = 1\n")
    machine.rate = lambda config: 1e4 * config.workers / config.num_envs_per_worker**0.5
    assert main(["autotune", *APPO, "--preset", str(preset)]) == 0
    _, config = config_of(capsys.readouterr().out.splitlines()[-1])
    assert (config.segment_length, config.num_workers, config.num_envs_per_worker) == (16, 5, 1)


def test_the_batch_that_was_found_is_a_flag_if_it_was_to_be_tuned(machine, capsys):
    machine.rate = lambda config: 100.0 * config.batch_size
    assert main(["autotune", *APPO, "--tune-batch"]) == 0
    out = capsys.readouterr().out
    assert config_of(out.splitlines()[-1])[1].batch_size == 16 * 256 and "not tuned" not in out


def test_it_says_when_other_programs_used_the_machine(machine, capsys):
    machine.other_programs = 1.0
    assert main(["autotune", *APPO]) == 0
    assert "other programs took 25% of the cores' time" in capsys.readouterr().out


def test_it_says_how_replay_was_measured(machine, capsys):
    assert main(["autotune", "sac", "--env", "Pendulum-v1", "--learning-starts", "10000"]) == 0
    out = capsys.readouterr().out
    assert "measured with buffer_size=10000 and learning_starts=1000" in out and "not tuned" not in out
    _, config = config_of(out.splitlines()[-1])
    assert (config.learning_starts, config.buffer_size) == (10_000, 1_000_000)


def test_it_says_that_there_was_no_time_for_more(machine, capsys):
    assert main(["autotune", *APPO, "--seconds", "30"]) == 0
    assert "5 measurements in 30 s: no time for more" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TrainingFailed("worker 1, lane 3, step 17"), 1),
        (EnvironmentFailure("Broken-v0", "make", None, 0, "ValueError: worker 1, lane 3, step 17"), 1),
        (MemoryError("worker 1, lane 3, step 17"), 2),
    ],
)
def test_failures_at_the_start_are_reported_as_by_train(error, code, monkeypatch, capsys):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("penstock.bench.engine_run.run_engine", fail)
    assert main(["autotune", *APPO]) == code
    out, err = capsys.readouterr()
    assert err.startswith("error: ") and "worker 1, lane 3, step 17" in err
    assert "penstock train" not in out


def test_a_candidate_that_fails_later_is_shown_as_such(machine, monkeypatch, capsys):
    def measure(algorithm, config, **how):
        if config.num_envs_per_worker != 16:
            raise TrainingFailed("rollout-0 failed:\nTraceback:\n  line 3\nOSError: no more\n")
        return machine.run_engine(algorithm, config, **how)

    monkeypatch.setattr("penstock.bench.engine_run.run_engine", measure)
    assert main(["autotune", *APPO]) == 0
    out = capsys.readouterr().out
    assert "failed: rollout-0 failed: ... OSError: no more\n" in out
    assert config_of(out.splitlines()[-1])[1].num_envs_per_worker == 16


def test_an_interruption_ends_with_the_best_so_far_and_130(machine, monkeypatch, capsys, tmp_path):
    machine.rate = lambda config: 1e4 * config.num_envs_per_worker

    def measure(algorithm, config, **how):
        if len(machine.configs) == 2:
            raise KeyboardInterrupt
        return machine.run_engine(algorithm, config, **how)

    monkeypatch.setattr("penstock.bench.engine_run.run_engine", measure)
    assert main(["autotune", *APPO, "--json", str(tmp_path / "tuned.json")]) == 130
    out = capsys.readouterr().out
    assert re.search(r"2 measurements in \d+ s: interrupted", out)
    assert config_of(out.splitlines()[-1])[1].num_envs_per_worker == 64
    assert json.loads((tmp_path / "tuned.json").read_text())["ended"] == "interrupted"


@pytest.mark.parametrize("rate", [1e4, 9e3, 1.01e4])
def test_an_interruption_recommends_nothing_that_was_not_seen_faster(rate, machine, monkeypatch, capsys, tmp_path):
    machine.rate = lambda config: 1e4 if config.num_envs_per_worker == 16 else rate

    def measure(algorithm, config, **how):
        if len(machine.configs) == 2:
            raise KeyboardInterrupt
        return machine.run_engine(algorithm, config, **how)

    monkeypatch.setattr("penstock.bench.engine_run.run_engine", measure)
    assert main(["autotune", *APPO, "--json", str(tmp_path / "tuned.json")]) == 130
    out = capsys.readouterr().out
    assert out.endswith("no settings were measured to be faster than the initial ones: none are recommended\n")
    assert "penstock train" not in out
    written = json.loads((tmp_path / "tuned.json").read_text())
    assert (written["command"], written["found"]) == (None, {})


def test_an_interruption_of_the_first_measurement_has_nothing_to_show(monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.bench.engine_run.run_engine", interrupt)
    assert main(["autotune", *APPO]) == 130
    assert "penstock train" not in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.timeout(120)
def test_real_trainings_are_measured_and_the_command_trains(monkeypatch, capsys):
    monkeypatch.setattr("penstock.bench.search.WARMUP", 0.1)
    monkeypatch.setattr("penstock.bench.search.WINDOW", 0.3)
    small = ["--num-workers", "1", "--hidden-sizes", "8", "--run-dir", "None", "--eval-interval", "0"]
    assert main(["autotune", *APPO, *small, "--seconds", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert int(lines[2].split()[5].replace(",", "")) > 0
    algorithm, config = config_of(lines[-1])
    with Trainer(algorithm, config) as trainer:
        assert trainer.train(1_000, quiet=True).steps >= 1_000


@pytest.mark.long
@pytest.mark.timeout(120)
def test_ctrl_c_leaves_no_process():
    autotune = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "autotune", *APPO, "--num-workers", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        shown = [autotune.stdout.readline() for _ in range(3)]  # machine, head, first trial
        processes = Watched([*family(autotune.pid).values(), autotune.pid])
        autotune.send_signal(signal.SIGINT)
        out, err = autotune.communicate(timeout=PATIENCE)
    finally:
        autotune.kill()
    assert autotune.returncode == 130, err
    assert shown[2].split()[0] == "1" and "interrupted" in out
    assert "none are recommended" in out or "penstock train appo --env CartPole-v1 --num-workers 1 --" in out
    assert processes.left_after(PATIENCE) == []
