"""Runs are found, and their files read, in any state."""

import json
from pathlib import Path

import pytest

from penstock.runs.reading import RecordedRun, find_runs
from penstock.runs.vacancy import RunDirectoryError
from tests.studies.recorded import record

OF_BEFORE = Path(__file__).parents[1] / "data" / "runs"


def line(steps, seconds=None, **values):
    return {"steps": steps, "seconds": steps / 10 if seconds is None else seconds, **values}


def test_runs_are_found_below_a_folder_and_called_by_their_place_in_it(tmp_path):
    record(tmp_path / "b" / "deep" / "run", seed=1)
    record(tmp_path / "a", seed=2)
    (tmp_path / "a" / "checkpoints" / "best").mkdir(parents=True)
    (tmp_path / "a" / "checkpoints" / "best" / "config.json").write_text("{}")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"of": "something else"}')
    found = find_runs([tmp_path])
    assert sorted(run.name for run in found) == ["a", "b/deep/run"]
    assert [run.name for run in find_runs([tmp_path / "a"])] == [str(tmp_path / "a")]
    assert len(find_runs([tmp_path, tmp_path / "a"])) == 2, "a run is found once"


def test_no_link_leads_out_of_the_folder(tmp_path):
    record(tmp_path / "elsewhere" / "run")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    assert find_runs([tmp_path / "runs"]) == []


def test_a_place_that_is_not_there_is_said(tmp_path):
    with pytest.raises(RunDirectoryError, match="nowhere does not exist"):
        find_runs([tmp_path / "nowhere"])
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RunDirectoryError, match=r"is not the config\.json of a run"):
        find_runs([tmp_path])


def test_every_run_of_an_earlier_penstock_has_a_row():
    runs = find_runs([OF_BEFORE])
    assert {run.summary["algorithm"] for run in runs} == {path.name for path in OF_BEFORE.iterdir()}
    assert all(run.state == "unknown" and run.summary["steps"] >= 80 for run in runs)


def test_a_row_tells_what_the_status_does(tmp_path):
    row = record(tmp_path / "run", [(100, 5.0), (200, 4.0)], seed=3, target=9.0, reason="seconds").summary
    told = {
        "state": "done", "reason": "seconds", "algorithm": "ppo", "env": "CartPole-v1", "seed": 3, "steps": 200,
        "total_steps": 1000, "seconds": 20.0, "eval_return": 4.0, "best_return": 5.0, "target_return": 9.0,
        "limiting_role": "learner",
    }  # fmt: skip
    assert told.items() <= row.items()
    assert row["updated"] >= row["created"] > 1.7e9


def test_without_a_status_the_end_of_the_metrics_tells(tmp_path):
    run = record(tmp_path / "run")
    (tmp_path / "run" / "status.json").unlink()
    lines = [line(10 * n, steps_per_second=7.0, **{"episode/mean_return": float(n)}) for n in range(2000)]
    lines.append(line(19_000, 1999.5, **{"evaluation/mean_return": 3.5}))
    run.directory.metrics.write_text("".join(f"{json.dumps(each)}\n" for each in lines) + '{"steps": 9')
    row = RecordedRun.open(tmp_path / "run").summary
    assert (row["state"], row["steps"], row["mean_return"], row["eval_return"]) == ("unknown", 19_990, 1999.0, 3.5)


def test_a_runs_points_are_those_of_its_whole_file(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.runs.growing._MOST_NBYTES", 200)
    run = record(tmp_path / "run", [(100, 1.0), (200, 2.0), (300, 3.0)])
    with open(run.directory.metrics, "a") as file:
        for each in (line(200, 20.0, time=1, resumed=True), line(250, time=2, **{"evaluation/mean_return": 9.0})):
            file.write(f"{json.dumps(each)}\n")
    x, y = run.points("steps", "evaluation/mean_return")
    assert (x.tolist(), y.tolist()) == ([100.0, 200.0, 250.0], [1.0, 2.0, 9.0])
    assert run.points("time", "evaluation/mean_return")[0].tolist()[0] == 2.0
    assert run.metric_names == ["evaluation/mean_return", "seconds", "steps", "time"]


def test_a_run_without_metrics_has_no_points(tmp_path):
    run = record(tmp_path / "run")
    run.directory.metrics.unlink()
    assert run.points("steps", "a")[0].size == 0 and run.metric_names == []
