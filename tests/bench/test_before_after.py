"""Curves of two states of the code are read, kept, drawn, and compared update by update where that is possible."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from tests.places import BENCH

SCRIPT = BENCH / "before_after.py"


def a_run(path: Path, rows: list[dict], backend: str = "local") -> None:
    path.mkdir(parents=True)
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (path / "config.json").write_text(json.dumps({"backend": backend, "run_dir": str(path), "env": "x", "seed": 3}))


def climbing(slope: float) -> list[dict]:
    rows = [{"steps": at, "episode/mean_return": slope * at, "policy_lag/mean": 4.0} for at in range(0, 5000, 10)]
    return [{"steps": 0, "episode/mean_return": None}, *rows]


def updates(losses: list[float]) -> list[dict]:
    return [
        {"steps": 64 * at, "updates": at, "loss/value_loss": loss, "loss/entropy": 1.0, "loss/grad_norm": 0.5}
        for at, loss in enumerate(losses, 1)
    ]


def rows_of(table: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ")[1:] for line in table.splitlines() if line.startswith("| Task")]


@pytest.fixture
def printed(monkeypatch, tmp_path, capsys):
    def start(runs: Path, *flags: str) -> str:
        monkeypatch.setattr(sys, "argv", ["before_after.py", str(runs), "--plot", str(tmp_path / "plot.svg"), *flags])
        runpy.run_path(str(SCRIPT), run_name="__main__")
        return capsys.readouterr().out

    pytest.importorskip("matplotlib")
    return start


def test_states_are_told_apart_seed_by_seed_and_kept_curves_stand_for_the_runs(printed, tmp_path):
    runs, kept = tmp_path / "runs", tmp_path / "kept"
    a_run(runs / "after-Task-1", climbing(2.0))
    a_run(runs / "before-Task-1", climbing(1.0))
    a_run(runs / "before-Task-2", climbing(3.0)[:250])
    a_run(runs / "central-Task-1", climbing(1.0))
    (runs / "notes").mkdir()
    told = rows_of(printed(runs, "--keep", str(kept)))
    last = 2480  # as far as all have come
    assert [row[:4] for row in told] == [
        ["before", "2", f"{last:,}", f"{2.0 * last:.3g} ({1.0 * last:.3g} {3.0 * last:.3g})"],
        ["after", "1", f"{last:,}", f"{2.0 * last:.3g} ({2.0 * last:.3g})"],
        ["central", "1", f"{last:,}", f"{1.0 * last:.3g} ({1.0 * last:.3g})"],
    ]
    assert told[0][5:] == ["4.99e+03 7.44e+03", "4.0"], "each run's own end, and the lag"
    assert (tmp_path / "plot.svg").stat().st_size > 1000
    assert [row[3] for row in rows_of(printed(kept))] == [row[3] for row in told]
    assert len((kept / "after-Task-1" / "metrics.jsonl").read_text().splitlines()) == 200
    assert json.loads((kept / "after-Task-1" / "config.json").read_text()) == {"backend": "local", "seed": 3}


def test_serial_runs_are_the_same_up_to_the_first_update_that_differs(printed, tmp_path):
    a_run(tmp_path / "before-Game-5", updates([1.0, 0.9, 0.8, 0.7]), "serial")
    a_run(tmp_path / "after-Game-5", updates([1.0, 0.905, 0.8, 0.5]), "serial")
    a_run(tmp_path / "before-Game-6", updates([1.0]), "serial")  # its partner is still to be made
    assert printed(tmp_path) == "Game, seed 5, serial: the same to 1% for 3 updates\n"
