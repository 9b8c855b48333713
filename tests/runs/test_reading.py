"""Runs are found, and their files read, whatever state they are in."""

import json
from pathlib import Path

import pytest

from penstock.runs.reading import RecordedRun, column, find_runs, lines_of, standing
from penstock.runs.run_directory import RunDirectoryError
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
    with pytest.raises(RunDirectoryError, match="nowhere is not there"):
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


def test_lines_that_are_no_objects_are_left_out(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"steps": 1}\n{"ste\n\xff\xfe\n[1]\n3\n\n{"steps": 2}\n{"steps": 3')
    assert list(lines_of(tmp_path / "metrics.jsonl")) == [{"steps": 1}, {"steps": 2}]
    assert list(lines_of(tmp_path / "nothing.jsonl")) == []


def test_what_a_resume_undid_is_left_out():
    lines = [line(100), line(200), line(150, 20.1), line(300), line(200, 19.0, resumed=True), line(250), line(350)]
    assert [each["steps"] for each in standing(iter(lines))] == [100, 200, 150, 250, 350]


def test_an_evaluation_of_weights_that_stand_stays_though_it_came_after_the_checkpoint():
    lines = [line(900, 120.0), line(1000, 110.0, resumed=True), line(1100, 121.0)]
    assert [each["steps"] for each in standing(iter(lines))] == [900, 1100]


def test_of_an_earlier_penstock_seconds_that_go_back_say_it():
    lines = [line(100), line(200), line(300), line(220, 22.0), line(320, 32.0)]
    assert [each["steps"] for each in standing(iter(lines))] == [100, 200, 220, 320]


def test_a_column_has_the_points_where_both_numbers_are_known():
    lines = [line(200, a=2.0), line(100, a=1.0), line(300), line(400, a=None), line(500, b=1.0)]
    assert column(lines, "steps", "a") == ([100.0, 200.0], [1.0, 2.0])
    assert column(lines, "seconds", "b") == ([50.0], [1.0])
