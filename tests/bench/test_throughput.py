"""`penstock bench throughput` and `bench/throughput.py`: contestants take turns, and marks are judged."""

import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from comparing import peers, rivals
from comparing.peers import SAMPLE_FACTORY, STABLE_BASELINES3

from penstock.bench import BenchError, BenchUsageError, engine_run, throughput
from penstock.bench.throughput import WORKLOADS, Flags, Result, command, run
from penstock.config import ConfigError
from penstock.engine import preparation
from penstock.engine.endings import TrainingFailed
from tests.places import BENCH

BOTH = {"sample_factory": Path(sys.executable), "stable_baselines3": Path(sys.executable)}
PROGRAMS = {
    "sample_factory_throughput.py": 'print("SETTINGS --num_workers=2\\nnoise\\nSTEPS_PER_SECOND 20000")',
    "bare_cartpole.py": 'print("STEPS_PER_SECOND 80000")',
    "sb3_throughput.py": 'import sys; print("STEPS_PER_SECOND", 1000 * int(sys.argv[1]))',
}


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for peer in (SAMPLE_FACTORY, STABLE_BASELINES3):
        monkeypatch.delenv(peer.variable, raising=False)
    monkeypatch.setattr(peers, "_PROGRAMS", tmp_path)
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(text)


@pytest.fixture
def penstock(monkeypatch):
    """Penstock learns from 99,000, 100,000, 101,000 ... steps per second; returns the configs that it was run with."""
    configs = []

    def run_engine(algorithm, config, *, seconds):
        configs.append(config)
        rate = 98_000.0 + 1000 * len(configs)
        return SimpleNamespace(rate=rate, limiting_role="rollout x2", limiting_reason="busy 97%, mostly env")

    monkeypatch.setattr(engine_run, "run_engine", run_engine)
    return configs


def at(rate: float):
    """Penstock at a fixed number of steps per second."""
    return lambda *_, **__: SimpleNamespace(rate=rate, limiting_role="learner", limiting_reason="busy 99%")


def compare(flags: Flags, sample_factory: Path | None = None, stable_baselines3: Path | None = None) -> bool:
    """Measure as the script of the source does."""
    script = runpy.run_path(str(BENCH / "throughput.py"), run_name="bench")
    return script["measure"](flags, sample_factory, stable_baselines3, False)


def table(out: str) -> list[list[str]]:
    lines = [line for line in out.splitlines() if line.startswith("| ")]
    assert len({len(line) for line in lines}) == 1
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_penstock_is_compared_with_everybody_who_is_there(penstock, tmp_path, capsys):
    assert compare(Flags(seconds=3, json=tmp_path / "figures.json"), **BOTH) is True
    out, err = capsys.readouterr()
    assert table(out) == [
        ["cartpole", "penstock", "100,000", "-", "99,000-101,000", "-", "-", "-"],
        ["cartpole", "sample-factory", "20,000", "-", "20,000-20,000", "5.00x", "4.5x", "yes"],
        ["cartpole", "bare loop", "80,000", "-", "80,000-80,000", "1.25x", "0.867x", "yes"],
        ["cartpole", "stable-baselines3", "3,000", "-", "3,000-3,000", "33.33x", "-", "-"],
    ]
    assert "2 of 2 marks hold" in out
    assert "cartpole: limited by rollout x2, busy 97%, mostly env" in out
    assert "cartpole, sample-factory: --num_workers=2\ncartpole, bare loop: as it is by default" in out
    turns = [line.split(": ")[1].rpartition(" steps/s")[0].rpartition(" ")[0] for line in err.splitlines()]
    everybody = ["penstock", "sample-factory", "bare loop", "stable-baselines3"]
    assert turns == [*everybody, *everybody[1:], *everybody[:1], *everybody[2:], *everybody[:2]]

    written = json.loads((tmp_path / "figures.json").read_text())
    assert written["machine"]["cores"] >= 1
    assert written["settings"]["cartpole"]["penstock"]["batch_size"] == 8192
    assert written["settings"]["cartpole"]["sample-factory"] == "--num_workers=2"
    (measured,) = written["measured"]
    assert measured["rounds"]["penstock"] == [99_000, 100_000, 101_000]
    assert measured["medians"]["bare loop"] == 80_000
    assert measured["compared"]["sample-factory"] == {"ratio": 5.0, "met": True}


def test_a_missed_mark_is_told(penstock, tmp_path, capsys):
    (tmp_path / "bare_cartpole.py").write_text('print("STEPS_PER_SECOND 125000")')
    assert compare(Flags(), **BOTH) is False
    out = capsys.readouterr().out
    assert "1 of 2 marks hold\n  missed: cartpole, 0.80x of 0.867x bare loop" in out


def test_without_peers_the_own_figure_is_shown_and_how_to_get_more(penstock, capsys):
    assert run(Flags(rounds=1)) is True
    out = capsys.readouterr().out
    assert [row[1] for row in table(out)] == ["penstock"]
    assert "no comparison: --simulation adds pure simulation" in out


def test_peers_that_are_not_installed_are_left_out_and_named(penstock, capsys):
    assert compare(Flags(rounds=1)) is True
    out = capsys.readouterr().out
    assert [row[1] for row in table(out)] == ["penstock", "bare loop"]
    assert "python bench/throughput.py --sample-factory X/bin/python" in out
    assert "python bench/throughput.py --stable-baselines3 X/bin/python" in out


def test_each_work_has_rivals_and_marks_of_its_own(penstock, capsys):
    assert compare(Flags(("cartpole-vector", "pong", "pong-bfloat16"), rounds=1), **BOTH) is True
    assert [(row[0], row[1], row[6]) for row in table(capsys.readouterr().out)] == [
        ("cartpole-vector", "penstock", "-"),
        ("pong", "penstock", "-"), ("pong", "sample-factory", "2x"),
        ("pong-bfloat16", "penstock", "-"), ("pong-bfloat16", "sample-factory", "2.8x"),
    ]  # fmt: skip
    vector, pong, bfloat16 = penstock
    assert (vector.vectorize, pong.precision, bfloat16.precision) == ("vector", "float32", "bfloat16")


def test_the_settings_of_every_work_are_legal():
    from penstock.algorithms.appo import APPOConfig

    configs = [APPOConfig(**work.settings) for work in WORKLOADS.values()]
    assert {config.num_epochs * config.num_minibatches for config in configs} == {1}


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ('raise OSError("no such game")', r"sample-factory could not be measured \(exit 1\):\n(.|\n)*no such game"),
        ('print("nothing")', r"sample-factory could not be measured \(exit 0\):\nnothing"),
        ("import time; time.sleep(60)", r"sample-factory gave no figure for 1 s: it hangs"),
    ],
)
def test_a_peer_that_fails_ends_the_bench_and_says_why(penstock, program, message, tmp_path, monkeypatch):
    (tmp_path / "sample_factory_throughput.py").write_text(program)
    monkeypatch.setattr(rivals, "START_UP", 0.6 if "sleep" in program else 60.0)
    with pytest.raises(BenchError, match=message):
        compare(Flags(seconds=0.4), **BOTH)


def test_an_environment_that_is_not_installed_is_named_with_the_way_to_get_it(penstock, monkeypatch):
    monkeypatch.setitem(WORKLOADS, "pong", replace(WORKLOADS["pong"], module="not_there"))
    with pytest.raises(BenchUsageError, match=r"--workload pong needs more .*: pip install 'penstock\["):
        run(Flags(("cartpole", "pong")))
    assert penstock == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["--workload", "cartpol"],
            "--workload cartpol is unknown; did you mean 'cartpole'? (legal: cartpole, cartpole-vector",
        ),
        (["--workload"], "--workload names nothing to measure (legal: cartpole"),
        (["--rounds", "0"], "--rounds 0 is not legal"),
        (["--seconds", "0"], "--seconds 0 is not legal"),
        (["--json", "/no/such/directory/x.json"], "there is no directory /no/such/directory"),
    ],
)
def test_wrong_flags_are_refused_before_anything_starts(args, message, penstock, capsys):
    with pytest.raises(BenchUsageError) as caught:
        command(args)
    assert message in str(caught.value)
    assert capsys.readouterr().out == ""
    assert penstock == []


def test_the_median_of_the_rounds_counts():
    result = Result("w", {"penstock": [10.0, 500.0, 12.0], "other": [4.0, 6.0, 1.0]}, {"other": 3.0})
    assert (result.median("penstock"), result.ratio("other"), result.met("other")) == (12.0, 3.0, True)
    assert replace(result, marks={"other": 3.1}).met("other") is False
    assert replace(result, marks={}).met("other") is None


@pytest.fixture
def simulation(monkeypatch):
    """Pure simulation takes 30,000 steps per second on 16 cores, and 26,000 in the processes of 12 workers."""
    monkeypatch.setattr(throughput, "available_cores", lambda: 16.0)
    rates = {16: 30_000.0, 12: 26_000.0}
    monkeypatch.setattr(throughput, "_simulation", lambda config, processes, seconds: rates[processes])
    return rates


@pytest.fixture
def pong_of_12_workers(monkeypatch):
    settings = {**WORKLOADS["pong"].settings, "num_workers": 12}
    monkeypatch.setitem(WORKLOADS, "pong", replace(WORKLOADS["pong"], settings=settings, module=None))


def test_on_a_cpu_pure_simulation_is_shown_without_marks(pong_of_12_workers, simulation, monkeypatch, capsys):
    monkeypatch.setattr(engine_run, "run_engine", at(12_000.0))
    assert run(Flags(("pong",), rounds=1, simulation=True)) is True
    out = capsys.readouterr().out
    assert table(out) == [
        ["pong", "penstock", "12,000", "48,000", "12,000-12,000", "-", "-", "-"],
        ["pong", "simulation x16", "30,000", "120,000", "30,000-30,000", "0.40x", "-", "-"],
        ["pong", "simulation x12", "26,000", "104,000", "26,000-26,000", "0.46x", "-", "-"],
    ]
    assert "pong, simulation x12: random actions, 12 processes on 16 cores" in out and "no comparison" not in out


@pytest.mark.parametrize(
    ("rate", "met", "missed"),
    [
        (25_000.0, ["yes", "yes", "yes"], []),
        (24_000.0, ["NO", "yes", "yes"], ["pong, 96,000 of 100,000 frames/s"]),
        (23_000.0, ["NO", "NO", "NO"], [
            "pong, 92,000 of 100,000 frames/s", "pong, 0.77x of 0.8x simulation x16",
            "pong, 0.88x of 0.9x simulation x12",
        ]),
    ],
)  # fmt: skip
def test_on_a_gpu_simulation_and_frames_are_marks(
    pong_of_12_workers, simulation, rate, met, missed, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(engine_run, "run_engine", at(rate))
    monkeypatch.setattr(preparation, "require_device", lambda device: None)
    figures = tmp_path / "figures.json"
    assert run(Flags(("pong",), device="cuda", rounds=1, json=figures)) is (missed == [])
    out = capsys.readouterr().out
    assert [(row[1], row[6], row[7]) for row in table(out)] == [
        ("penstock", "100,000", met[0]), ("simulation x16", "0.8x", met[1]), ("simulation x12", "0.9x", met[2])
    ]  # fmt: skip
    assert f"{3 - len(missed)} of 3 marks hold" in out
    assert [line.removeprefix("  missed: ") for line in out.splitlines() if "missed" in line] == missed
    ran_with = json.loads(figures.read_text())["settings"]["pong"]["penstock"]
    assert [ran_with[name] for name in ("device", "inference", "precision")] == ["cuda", "central", "bfloat16"]


def test_simulation_on_as_many_cores_as_there_are_workers_is_measured_once_for_the_higher_mark(
    pong_of_12_workers, simulation, monkeypatch, capsys
):
    monkeypatch.setattr(throughput, "available_cores", lambda: 12.0)
    monkeypatch.setattr(preparation, "require_device", lambda device: None)
    monkeypatch.setattr(engine_run, "run_engine", at(26_000.0))
    assert run(Flags(("pong",), device="cuda", rounds=1)) is True
    assert [(row[1], row[6]) for row in table(capsys.readouterr().out)][1:] == [("simulation x12", "0.9x")]


def test_a_gpu_that_is_not_there_is_refused_before_anything_starts(penstock, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"device=.cuda:3. is not available"):
        run(Flags(device="cuda:3"))
    with pytest.raises(BenchUsageError, match="other libraries are measured on the CPU only"):
        compare(Flags(device="cuda"))
    assert penstock == []


def test_a_training_that_fails_ends_the_bench_with_its_story(monkeypatch):
    def run_engine(algorithm, config, *, seconds):
        raise TrainingFailed("the simulator is gone")

    monkeypatch.setattr(engine_run, "run_engine", run_engine)
    with pytest.raises(TrainingFailed, match="the simulator is gone"):
        run(Flags(rounds=1))


@pytest.mark.long
@pytest.mark.timeout(200)
def test_a_real_training_is_measured_beside_real_simulation(capsys):
    assert run(Flags(rounds=1, seconds=0.2, simulation=True)) is True
    rates = [int(row[2].replace(",", "")) for row in table(capsys.readouterr().out)]
    assert len(rates) >= 2 and min(rates) > 0
