"""`penstock bench ideal`: what it takes, and what it answers."""

import json

import pytest

from penstock.algorithms.appo import APPO
from penstock.bench import BenchError, ideal
from penstock.cli import main
from tests.bench.test_account import COSTS, CREW, a_run


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "the algorithm comes first: penstock bench ideal"),
        (["--env", "CartPole-v1"], "the algorithm comes first: penstock bench ideal"),
        (["apo", "--env", "CartPole-v1"], "unknown algorithm 'apo'; did you mean 'appo'?"),
        (["appo"], "--env"),
        (["appo", "--env", "CartPole-v1", "--bench-seconds", "0"], "--bench-seconds 0 is not legal"),
        (["appo", "--env", "CartPole-v1", "--bench-seconds", "soon"], "--bench-seconds"),
        (["appo", "--env", "CartPole-v1", "--json", "no/where.json"], "there is no directory"),
        (["appo", "--env", "CartPole-v1", "--num-workrs", "2"], "--num-workers"),
        (["appo", "--env", "CartPole-v1", "--gamma", "2"], "gamma=2.0 is not legal"),
        (["appo", "--env", "CardPole-v1", "--bench-seconds", "0.1"], "CardPole"),
    ],
)
def test_wrong_usage_is_told_and_exits_with_2(args, message, capsys):
    assert main(["bench", "ideal", *args]) == 2
    assert message in capsys.readouterr().err


def test_help_names_the_algorithms_and_the_flags_of_the_bench(capsys):
    assert main(["bench", "ideal", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("appo", "sac", "--bench-seconds", "--json"))


def test_help_of_an_algorithm_lists_its_flags_beside_those_of_the_bench(capsys):
    assert main(["bench", "ideal", "appo", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("--bench-seconds", "--json", "--segment-length", "--num-workers"))


@pytest.fixture
def measured(monkeypatch):
    """What was asked to be measured; the answers are given."""
    asked = []
    monkeypatch.setattr(
        "penstock.bench.costs.measure_costs", lambda *what, seconds: (asked.append((*what, seconds)), (COSTS, CREW))[1]
    )
    monkeypatch.setattr(
        "penstock.bench.engine_run.run_engine", lambda *what, seconds: (asked.append((*what, seconds)), a_run())[1]
    )
    return asked


def test_the_flags_of_the_algorithm_count_and_everything_is_printed_and_written(measured, tmp_path, capsys):
    file = tmp_path / "ideal.json"
    flags = ["--segment-length", "16", "--bench-seconds", "3", "--hidden-sizes", "8", "8", "--json", str(file)]
    assert main(["bench", "ideal", "appo", "--env", "CartPole-v1", *flags]) == 0
    assert [(algorithm, seconds) for algorithm, _, seconds in measured] == [(APPO, 3.0)] * 2
    config = measured[0][1]
    assert (config.segment_length, config.hidden_sizes) == (16, (8, 8)) and measured[1][1] == config
    out = capsys.readouterr().out
    assert "cores, load" in out and "appo on CartPole-v1: 2 cores, 2 rollout workers" in out and "efficiency" in out
    written = json.loads(file.read_text())
    assert written["config"]["segment_length"] == 16 and written["measured"] == 100_000.0
    assert written["machine"]["cores"] >= 1


def test_what_fails_while_it_is_measured_exits_with_1(monkeypatch, capsys):
    def fail(*_, **__):
        raise BenchError("measuring alone, env-0 failed")

    monkeypatch.setattr("penstock.bench.costs.measure_costs", fail)
    assert main(["bench", "ideal", "appo", "--env", "CartPole-v1"]) == 1
    assert "measuring alone, env-0 failed" in capsys.readouterr().err


def test_the_default_is_ten_seconds(measured):
    assert ideal.command(["appo", "--env", "CartPole-v1"])
    assert measured[0][2] == 10.0
