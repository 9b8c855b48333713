"""`penstock bench ideal`: what it takes, and what it answers."""

import json

import pytest

from penstock.algorithms.appo import APPO
from penstock.bench import BenchError, ideal
from penstock.cli import main
from penstock.engine.endings import TrainingFailed
from tests.bench.measured import CAPACITY, COSTS, a_run


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "the algorithm comes first: penstock bench ideal"),
        (["--env", "CartPole-v1"], "the algorithm comes first: penstock bench ideal"),
        (["apo", "--env", "CartPole-v1"], "unknown algorithm 'apo'; did you mean 'appo'?"),
        (["appo"], "--env"),
        (["appo", "--env", "CartPole-v1", "--bench-seconds", "0"], "--bench-seconds 0 is not legal"),
        (["appo", "--env", "CartPole-v1", "--bench-seconds", "soon"], "--bench-seconds"),
        (["appo", "--env", "CartPole-v1", "--rounds", "0"], "--rounds 0 is not legal"),
        (["appo", "--env", "CartPole-v1", "--min-efficiency", "-1"], "--min-efficiency -1 is not legal"),
        (["appo", "--env", "CartPole-v1", "--json", "no/where.json"], "there is no directory"),
        (["appo", "--env", "CartPole-v1", "--num-workrs", "2"], "--num-workers"),
        (["appo", "--env", "CartPole-v1", "--gamma", "2"], "gamma=2.0 is not legal"),
        (["appo", "--env", "CardPole-v1", "--bench-seconds", "0.1"], "CardPole"),
        (["appo", "--env", "CartPole-v1", "--num-learners", "2"], "num_learners=2 share the updates of this run"),
    ],
)
def test_wrong_usage_is_reported_and_exits_with_2(args, message, capsys):
    assert main(["bench", "ideal", *args]) == 2
    assert message in capsys.readouterr().err


def test_help_names_the_algorithms_and_the_flags_of_the_bench(capsys):
    assert main(["bench", "ideal", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("appo", "sac", "--rounds", "--bench-seconds", "--min-efficiency", "--json"))


def test_help_of_an_algorithm_lists_its_flags_beside_those_of_the_bench(capsys):
    assert main(["bench", "ideal", "appo", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("--bench-seconds", "--json", "--segment-length", "--num-workers"))


@pytest.fixture
def measured(monkeypatch):
    """Record requested measurements, which return 100,000, 80,000 and 120,000 steps/s."""
    asked = []

    def answer_costs(*what, seconds):
        asked.append(("costs", *what, seconds))
        return COSTS, CAPACITY

    def answer_run(*what, seconds):
        asked.append(("run", *what, seconds))
        return a_run(steps=[1_000_000, 800_000, 1_200_000][len(asked) // 2 % 3 - 1])

    monkeypatch.setattr("penstock.bench.costs.measure_costs", answer_costs)
    monkeypatch.setattr("penstock.bench.engine_run.run_engine", answer_run)
    return asked


def test_the_flags_of_the_algorithm_count_and_everything_is_printed_and_written(measured, tmp_path, capsys):
    file = tmp_path / "ideal.json"
    flags = ["--segment-length", "16", "--bench-seconds", "3", "--hidden-sizes", "8", "8", "--json", str(file)]
    assert main(["bench", "ideal", "appo", "--env", "CartPole-v1", *flags]) == 0
    assert [(what, algorithm, seconds) for what, algorithm, _, seconds in measured] == [
        ("costs", APPO, 3.0), ("run", APPO, 3.0),
    ] * 3  # fmt: skip
    config = measured[0][2]
    assert (config.segment_length, config.hidden_sizes) == (16, (8, 8)) and measured[1][2] == config
    out = capsys.readouterr().out
    assert "cores, load" in out and "appo on CartPole-v1: 2 cores, 2 rollout workers" in out
    assert "round 2 of 3: 80,000 steps/s, 45.2% of the ideal 176,991" in out
    assert "measured      100,000 steps/s" in out and "efficiency      56.5%" in out
    assert "median efficiency of 3: 56.5%, from 45.2% to 67.8%" in out and "min_efficiency" not in out
    written = json.loads(file.read_text())
    assert written["config"]["segment_length"] == 16 and written["measured"] == 100_000.0
    assert [one["measured"] for one in written["rounds"]] == [100_000.0, 80_000.0, 120_000.0]
    assert written["machine"]["cores"] >= 1 and (written["min_efficiency"], written["is_met"]) == (None, True)


@pytest.mark.parametrize(
    ("least", "code", "said"), [("0.56", 0, "min_efficiency: 56.0%, met"), ("0.57", 3, "57.0%, MISSED")]
)
def test_the_median_efficiency_is_held_against_the_least_one(least, code, said, measured, capsys):
    assert main(["bench", "ideal", "appo", "--env", "CartPole-v1", "--min-efficiency", least]) == code
    assert said in capsys.readouterr().out


def test_replay_is_measured_from_a_buffer_that_is_soon_full_enough_and_that_is_told(measured, capsys):
    assert main(["bench", "ideal", "sac", "--env", "Pendulum-v1", "--rounds", "1"]) == 0
    assert {(config.learning_starts, config.buffer_size) for _, _, config, _ in measured} == {(1_000, 10_000)}
    assert "measured with buffer_size=10000\n" in capsys.readouterr().out


@pytest.mark.parametrize("kind", [BenchError, TrainingFailed])
def test_what_fails_while_it_is_measured_exits_with_1(kind, monkeypatch, capsys):
    def fail(*_, **__):
        raise kind("measuring alone, env-0 failed")

    monkeypatch.setattr("penstock.bench.costs.measure_costs", fail)
    assert main(["bench", "ideal", "appo", "--env", "CartPole-v1"]) == 1
    assert capsys.readouterr().err == "error: measuring alone, env-0 failed\n"


def test_the_default_is_three_rounds_of_eight_seconds(measured):
    assert ideal.command(["appo", "--env", "CartPole-v1"])
    assert [seconds for *_, seconds in measured] == [8.0] * 6
