"""What is written of a run's hardware, and of its state, while it trains."""

import json
import os
import time

import pytest

import penstock
from penstock.engine.endings import TrainingFailed
from penstock.engine.watching import chronicle, hardware
from penstock.engine.watching.hardware import Hardware
from penstock.runs.state import read_state, state_of
from tests.engine.broken_environment import ResetBreaksInLaneThree

TINY = {
    "hidden_sizes": (8,), "num_workers": 2, "num_envs_per_worker": 2, "segment_length": 8, "batch_size": 32,
    "backend": "serial", "eval_interval": 0, "total_steps": 512,
}  # fmt: skip


def spin(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def spin_for_ever():
    while True:
        pass


def test_the_first_look_tells_nothing_and_the_second_what_was_between():
    watched = Hardware(dict, has_gpu=False)
    assert watched.sample() == {}
    spin(0.3)
    sample = watched.sample()
    assert {f"cpu/{core}" for core in os.sched_getaffinity(0)} < sample.keys()
    assert all(0.0 <= sample[f"cpu/{core}"] <= 1.0 for core in os.sched_getaffinity(0))
    assert sample["cpu/run"] == sample["role/supervisor/cpu"] > 0.0
    assert 0 < sample["memory/used"] <= sample["memory/limit"]
    assert 2**20 < sample["role/supervisor/memory"] < sample["memory/limit"]


INTERFACES = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier
    lo: {received} 9 0 0 0 0 0 0 {sent} 9 0 0 0 0 0 0
  eth0:{received} 7 0 0 0 0 0 0 50 3 0 0 0 0 0 0
  eth1: 1000 7 0 0 0 0 0 0 {sent} 3 0 0 0 0 0 0
"""


def test_the_network_is_all_interfaces_but_the_loopback(tmp_path, monkeypatch):
    table, now = tmp_path / "dev", iter((10.0, 12.0, 14.0))
    monkeypatch.setattr(hardware, "_INTERFACES", table)
    monkeypatch.setattr(hardware.time, "monotonic", lambda: next(now))
    watched, found = Hardware(dict, has_gpu=False), []
    for received, sent in ((5_000, 100), (9_000, 300), (0, 300)):
        table.write_text(INTERFACES.format(received=received, sent=sent))
        found.append(watched.sample())
    rates = [(sample["network/received"], sample["network/sent"]) for sample in found[1:]]
    assert rates == [(2_000.0, 100.0), (0.0, 0.0)], "an interface that is gone received nothing"
    table.unlink()
    assert hardware.network_nbytes() == {}


def test_roles_of_a_kind_are_added_up_and_one_that_is_gone_counts_nothing(fork):
    roles = [fork(spin_for_ever) for _ in range(2)]
    pids = {f"rollout-{number}": role.pid for number, role in enumerate(roles)} | {"learner": 2**22 + 1}
    watched = Hardware(lambda: pids, has_gpu=False)
    watched.sample()
    before = [hardware.cpu_seconds(role.pid) for role in roles]
    while min(hardware.cpu_seconds(role.pid) for role in roles) < max(before) + 0.2:
        time.sleep(0.05)
    sample = watched.sample()
    assert sample["role/rollout/cpu"] > sample["role/supervisor/cpu"]
    assert sample["role/learner/cpu"] == sample["role/learner/memory"] == 0
    assert sample["cpu/run"] == pytest.approx(sum(sample[f"role/{kind}/cpu"] for kind in ("rollout", "supervisor")))


def test_a_role_made_anew_is_not_counted_from_its_birth(fork):
    pids = {"rollout-0": 2**22 + 1}
    watched = Hardware(lambda: pids, has_gpu=False)
    watched.sample()
    pids["rollout-0"] = fork(spin_for_ever).pid
    while hardware.cpu_seconds(pids["rollout-0"]) < 0.2:
        time.sleep(0.05)
    assert watched.sample()["role/rollout/cpu"] == 0.0


@pytest.fixture
def every_refresh(monkeypatch):
    """What is written every second or two is written at every look, of which there is one at least per 0.1 s."""
    for name in ("REFRESH_INTERVAL", "METRICS_INTERVAL", "HARDWARE_INTERVAL"):
        monkeypatch.setattr(chronicle, name, 0.0)


def lines(run, name):
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


def test_a_run_writes_its_state_and_its_hardware(tmp_path, every_refresh):
    run, seen = tmp_path / "run", []
    with penstock.APPO("CartPole-v1", run_dir=run, **TINY) as algo:
        algo.train(128, quiet=True, on_update=lambda status: seen.append(state_of(read_state(run))))
        assert state_of(read_state(run)) == "paused"
        algo.train(quiet=True, on_update=lambda status: seen.append(state_of(read_state(run))))
    assert "running" in seen
    record = read_state(run)
    assert (state_of(record), record["reason"]) == ("done", "steps") and record["steps"] >= 512
    sampled = lines(run, "hardware.jsonl")
    assert sampled and {"time", "seconds", "steps", "cpu/run", "role/supervisor/memory"} < sampled[-1].keys()


def test_names_of_metrics_do_not_depend_on_the_number_of_workers(tmp_path, every_refresh):
    names = []
    for workers in (1, 2):
        run = tmp_path / f"{workers}"
        with penstock.APPO("CartPole-v1", run_dir=run, **{**TINY, "num_workers": workers}) as algo:
            algo.train(quiet=True)
        names.append(set().union(*lines(run, "metrics.jsonl")))
    assert names[0] == names[1] and "time/rollout/env" in names[0]


def test_a_run_that_goes_on_says_from_where(tmp_path, every_refresh):
    run = tmp_path / "run"
    with penstock.APPO("CartPole-v1", run_dir=run, **TINY) as algo:
        saved = algo.train(quiet=True).steps
    with penstock.Trainer.resume(run, total_steps=1024) as algo:
        algo.train(quiet=True)
    markers = [line for line in lines(run, "metrics.jsonl") if "resumed" in line]
    assert [(marker["steps"], marker["resumed"]) for marker in markers] == [(saved, True)]
    (again,) = json.loads((run / "config.json").read_text())["run"]["resumed"]
    assert again["steps"] == saved and again["command"] and {"time", "commit", "penstock_commit"} < again.keys()


def test_a_run_that_fails_says_why(tmp_path):
    def leave(status):
        raise ValueError("enough")

    run = tmp_path / "run"
    with penstock.APPO("CartPole-v1", run_dir=run, **TINY) as algo, pytest.raises(ValueError, match="enough"):
        algo.train(quiet=True, on_update=leave)
    assert (state_of(read_state(run)), read_state(run)["reason"]) == ("failed", "ValueError('enough')")

    run = tmp_path / "broken"
    with penstock.APPO(ResetBreaksInLaneThree, run_dir=run, **TINY) as algo, pytest.raises(TrainingFailed):
        algo.train(quiet=True)
    assert state_of(read_state(run)) == "failed" and "rollout-1" in read_state(run)["reason"]
