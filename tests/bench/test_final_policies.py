"""Final and best policies of trainings: what was measured is kept, not measured twice, and shown by seed."""

import json
import runpy
from pathlib import Path

import pytest

from tests.places import BENCH

SCRIPT = BENCH / "final_policies.py"


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    return runpy.run_path(str(SCRIPT), run_name="bench")


def a_record(seed: int, mean: float, library: str = "penstock", training: str = "cartpole-ppo", **machine) -> dict:
    scores = {actions: {"mean": mean, "least": mean - 5.0} for actions in ("deterministic", "sampled")}
    facts = {"cpu": "a CPU", "commit": "abc", **machine}
    return {"training": training, "library": library, "seed": seed, "seconds": 4.0 + seed, "steps": 100,
            "machine": facts, "final": scores, "best": scores}  # fmt: skip


def test_the_table_shows_lowest_and_median_of_the_newest_run_of_each_seed(bench):
    records = [a_record(1, 100.0), a_record(1, 480.0), a_record(2, 500.0), a_record(3, 499.0, commit="def")]
    records.append(a_record(1, 7.0, "sb3"))
    *_, penstock, peer = bench["table"](records).splitlines()
    assert penstock == "| cartpole-ppo | Penstock | 3 |" + " 480.0 / 499.0 |" * 4 + " 6.0 | a CPU | abc, def |"
    assert peer == "| cartpole-ppo | Stable-Baselines3 | 1 |" + " 7.0 / 7.0 |" * 4 + " 5.0 | a CPU | abc |"


def test_what_the_history_holds_of_these_sources_is_not_run_again(bench, tmp_path, monkeypatch):
    measure, facts = bench["measure"], {"cpu": "a CPU", "commit": "abc", "cores": 2, "load": 0.0}
    history = tmp_path / "history.jsonl"
    held = [a_record(1, 500.0), a_record(2, 500.0, commit="older"), a_record(1, 500.0, "sb3", commit="older")]
    history.write_text("".join(json.dumps(each) + "\n" for each in held))
    ran = []

    def outcome(library, seed):
        ran.append((library, seed))
        returns = {"deterministic": [2.0, 4.0], "sampled": [1.0, 2.0]}
        return {"seconds": 1.23, "steps": 100, "final": returns, "best": returns}

    monkeypatch.setitem(measure.__globals__, "machine_facts", lambda: facts)
    monkeypatch.setitem(measure.__globals__, "train", lambda training, seed, folder: outcome("penstock", seed))
    monkeypatch.setitem(measure.__globals__, "train_peer", lambda python, training, seed: outcome("sb3", seed))
    chosen = {"cartpole-ppo": bench["TRAININGS"]["cartpole-ppo"]}
    measure(chosen, 2, Path("python"), measure.__globals__["RunsFile"](history), peer_only=False)
    assert ran == [("penstock", 2), ("sb3", 2)]
    last = json.loads(history.read_text().splitlines()[-1])
    assert last["final"] == {"deterministic": {"mean": 3.0, "least": 2.0}, "sampled": {"mean": 1.5, "least": 1.0}}
