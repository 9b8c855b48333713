"""Metrics can be read back, by people, by programs and by TensorBoard."""

import json
import math
import re
import socket
import subprocess
import sys

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer

from penstock.engine.watching.metrics import distribution
from penstock.runs import metrics
from penstock.runs.descriptions import QUANTILES
from penstock.runs.metrics import MetricsLog
from tests.runs.limits import files_no_larger_than


def lines(run_dir):
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def scalars(run_dir, tag):
    events = EventAccumulator(str(run_dir), size_guidance={"scalars": 0})
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


@pytest.fixture
def in_2001(monkeypatch):
    """A time of the calendar."""
    monkeypatch.setattr(metrics.time, "time", lambda: 1e9)


def test_a_distribution_is_told_by_its_quantiles():
    values = [7.0, 1.0, 4.0, 2.0, 9.0, 3.0]
    found = distribution("x/lag", values)
    expected = np.quantile(values, [0.0, 0.25, 0.5, 0.75, 1.0])
    assert list(found) == ["x/lag/min", "x/lag/q25", "x/lag/median", "x/lag/q75", "x/lag/max"]
    np.testing.assert_allclose(list(found.values()), expected)
    assert distribution("x", []) == {} and set(distribution("x", [2])) == {f"x/{name}" for name in QUANTILES}


def test_each_write_is_one_line_and_one_scalar_per_value(tmp_path, in_2001):
    log = MetricsLog(tmp_path, pytest.fail)
    log.write(100, 1.5, {"return": 20.0, "losses/policy": -0.5})
    log.write(200, 2.5, {"return": 40.0})
    log.close()
    assert lines(tmp_path) == [
        {"steps": 100, "seconds": 1.5, "time": 1e9, "return": 20.0, "losses/policy": -0.5},
        {"steps": 200, "seconds": 2.5, "time": 1e9, "return": 40.0},
    ]
    assert scalars(tmp_path, "return") == [(100, 20.0), (200, 40.0)]
    assert scalars(tmp_path, "losses/policy") == [(100, -0.5)]


def test_what_was_written_is_there_before_the_log_is_closed(tmp_path):
    log = MetricsLog(tmp_path, pytest.fail)
    log.write(100, 1.5, {"return": 20.0})
    assert lines(tmp_path)[0]["return"] == 20.0
    assert scalars(tmp_path, "return") == [(100, 20.0)]
    log.close()


def test_what_is_not_finite_is_null_in_the_line_and_itself_in_tensorboard(tmp_path, in_2001):
    log = MetricsLog(tmp_path, pytest.fail)
    log.write(1, 1.0, {"loss": math.nan, "best": -math.inf})
    log.close()
    assert lines(tmp_path) == [{"steps": 1, "seconds": 1.0, "time": 1e9, "loss": None, "best": None}]
    ((_, best),) = scalars(tmp_path, "best")
    assert best == -math.inf


def test_a_resumed_run_goes_on_behind_a_line_that_was_cut_off(tmp_path):
    first = MetricsLog(tmp_path, pytest.fail)
    first.write(100, 1.0, {"return": 20.0})
    first.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"steps": 200, "ret')
    second = MetricsLog(tmp_path, pytest.fail)
    second.write(150, 2.0, {"return": 30.0})
    second.close()
    whole, cut, added = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(whole)["steps"] == 100
    assert cut == '{"steps": 200, "ret'
    assert json.loads(added)["steps"] == 150


def test_a_resumed_run_says_once_from_which_steps_it_goes_on(tmp_path, in_2001):
    log = MetricsLog(tmp_path, pytest.fail, start=(64, 0.5))
    assert not (tmp_path / "metrics.jsonl").exists()
    log.write(100, 1.5, {"return": 20.0})
    log.write(200, 2.5, {"return": 40.0})
    log.close()
    marker, *others = lines(tmp_path)
    assert marker == {"steps": 64, "seconds": 0.5, "time": 1e9, "resumed": True}
    assert [line["steps"] for line in others] == [100, 200]


def test_without_a_run_directory_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = MetricsLog(None, pytest.fail)
    log.write(1, 1.0, {"return": 20.0})
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_warns_once_and_leaves_whole_lines_and_events(tmp_path):
    warnings: list[str] = []
    log = MetricsLog(tmp_path, warn=warnings.append)
    with files_no_larger_than(1000):
        for steps in range(1, 101):
            log.write(steps, 1.0, {"return": 20.0})
    log.write(101, 1.0, {"return": 30.0})
    log.close()
    assert len(warnings) == 1
    assert "File too large" in warnings[0]
    written = [line["steps"] for line in lines(tmp_path)]
    assert written == [*range(1, len(written)), 101]
    assert 5 < len(written) < 50
    assert scalars(tmp_path, "return")[-1] == (101, 30.0)


@pytest.fixture
def followed(monkeypatch):
    """Directories seen by a replacement of TensorBoard's writer, as wandb's sync_tensorboard uses it."""
    directories: list[str] = []

    class TellingWriter(event_file_writer.EventFileWriter):
        def __init__(self, logdir, *args, **kwargs):
            assert re.search("-[0-9]+_host", logdir) is None, "wandb looks into the directory's name, which is text"
            directories.append(logdir)
            super().__init__(logdir, *args, **kwargs)

    monkeypatch.setattr(event_file_writer, "EventFileWriter", TellingWriter)
    return directories


def test_who_follows_tensorboards_files_as_wandb_does_is_told_of_the_runs(tmp_path, followed):
    log = MetricsLog(tmp_path, pytest.fail)
    log.write(100, 1.5, {"return": 20.0})
    assert followed == [str(tmp_path)]
    assert scalars(tmp_path, "return") == [(100, 20.0)], "written at once, though somebody follows"
    log.close()
    (events,) = tmp_path.glob("events.out.tfevents.*")
    created, host = events.name.split(".")[3], ".".join(events.name.split(".")[4:-1])
    assert created.isdigit() and host == socket.gethostname(), "by these wandb knows the files of its own run"


def test_a_full_disk_leaves_whole_events_though_somebody_follows(tmp_path, followed):
    warnings: list[str] = []
    log = MetricsLog(tmp_path, warn=warnings.append)
    with files_no_larger_than(1000):
        for steps in range(1, 101):
            log.write(steps, 1.0, {"return": 20.0})
    log.write(101, 1.0, {"return": 30.0})
    log.close()
    assert len(warnings) == 1 and followed == [str(tmp_path)]
    assert scalars(tmp_path, "return")[-1] == (101, 30.0)


@pytest.mark.timeout(60)
def test_tensorboard_is_loaded_with_the_first_line_and_torch_never(tmp_path):
    program = (
        "import sys; from penstock.runs import MetricsLog; log = MetricsLog(sys.argv[1], print);"
        "loaded = [name in sys.modules for name in ('tensorboard', 'torch')]; log.write(1, 1.0, {'a': 1.0});"
        "print(loaded, [name in sys.modules for name in ('tensorboard', 'torch', 'tensorflow')])"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[False, False] [True, False, False]"
