"""`bench/ipc.py`: messages in turn, round trips, and their marks."""

import json
import multiprocessing
import os
import runpy
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from comparing import fifo, ipc, peers, round_trips
from comparing.fifo import FasterFifo
from comparing.ipc import QUICK
from comparing.messages import messages_per_second

from penstock.bench import BenchError, BenchUsageError
from penstock.engine.backends.process import poll_until_stopped
from tests.bench.tables import table
from tests.places import BENCH

TRAFFICS = [
    "1 producer, one by one", "4 producers, one by one",
    "1 producer, 100 at once", "2 producers, 100 at once", "4 producers, 100 at once",
]  # fmt: skip
MACHINE = {"cpu": "?", "load": 0.0, "python": "3.11", "packages": {}, "commit": None}

pytestmark = pytest.mark.timeout(110)


@pytest.fixture(autouse=True)
def short_and_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(peers.FASTER_FIFO.variable, raising=False)
    monkeypatch.setattr(ipc, "QUICK", replace(QUICK, seconds=0.002))


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """Replaces the program that measures the peer by one of these lines."""

    def replace_by(program: str) -> None:
        (tmp_path / "toy.py").write_text(program)
        monkeypatch.setattr(fifo, "program", lambda name: tmp_path / "toy.py")

    return replace_by


@pytest.fixture
def known_figures(monkeypatch):
    """Penstock's own figures, without a measurement."""
    monkeypatch.setattr(ipc, "messages_per_second", lambda producers, together, seconds: 1000.0)
    monkeypatch.setattr(round_trips, "round_trips", lambda seconds, burners: np.full(9, 1000.0))


def says(version: str, messages_per_second: float) -> str:
    return f"print('{json.dumps({'version': version, 'messages_per_second': messages_per_second})}')"


def run(faster_fifo: Path | None = Path(sys.executable), **changes) -> bool:
    """Measure as the script of the source does."""
    script = runpy.run_path(str(BENCH / "ipc.py"), run_name="bench")
    return script["measure"](ipc.Flags(**{"quick": True, **changes}), faster_fifo, False)


def test_all_is_measured_shown_and_written_down(toy, tmp_path, capsys):
    toy(says("1.5.2", 1000.0))
    assert run(json=tmp_path / "figures.json") is True
    out = capsys.readouterr().out
    head, *messages = table(out)[:6]
    trips_head, *trips = table(out)[6:]
    assert head == ["messages per second", "penstock", "faster-fifo", "ratio", "mark", "met"]
    assert [row[0] for row in messages] == TRAFFICS
    assert all(float(row[1].replace(",", "")) > 0 and row[2] == "1,000" for row in messages)
    assert trips_head == ["round trip of a request, us", "p50", "p90", "p99", "mark", "met"]
    assert [row[0] for row in trips] == ["a core idle", "none idle"]
    assert all(0 < float(row[1]) <= float(row[2]) <= float(row[3]) for row in trips)
    assert "too short to judge" in out and "warning" not in out

    written = json.loads((tmp_path / "figures.json").read_text())
    assert written["machine"]["cores"] >= 1
    assert [len(one["rounds"]["penstock"]) for one in written["messages"]] == [2] * 5
    assert [one["burners"] for one in written["round_trips"]] == [0, written["machine"]["cores"]]
    assert written["round_trips"][0]["rounds"].keys() == {"50", "90", "99"}


@pytest.mark.parametrize(
    ("theirs", "microseconds", "missed"),
    [
        (1.0, 19.9, []),
        (1e15, 19.9, ["1 producer, one by one"]),
        (1.0, 20.0, ["a core idle"]),
    ],
)
@pytest.mark.usefixtures("known_figures")
def test_marks_are_judged(toy, monkeypatch, capsys, theirs, microseconds, missed):
    toy(says("1.5.2", theirs))
    monkeypatch.setattr(ipc, "QUICK", replace(ipc.QUICK, judged=True))
    monkeypatch.setattr(ipc, "machine_facts", lambda: {**MACHINE, "cores": 2})
    monkeypatch.setattr(round_trips, "round_trips", lambda seconds, burners: np.full(9, microseconds))
    assert run() is (not missed)
    out = capsys.readouterr().out
    assert f"{2 - len(missed)} of 2 marks hold" in out
    assert [line.removeprefix("  missed: ") for line in out.splitlines() if "missed: " in line] == missed


@pytest.mark.usefixtures("known_figures")
def test_where_there_is_one_core_none_can_be_idle_and_nothing_is_judged_by_it(monkeypatch, capsys):
    monkeypatch.setattr(ipc, "QUICK", replace(ipc.QUICK, judged=True))
    monkeypatch.setattr(ipc, "machine_facts", lambda: {**MACHINE, "cores": 1})
    assert run(faster_fifo=None) is True
    assert "0 of 0 marks hold" in capsys.readouterr().out


@pytest.mark.usefixtures("known_figures")
def test_trips_are_shown_by_percentiles(monkeypatch, capsys):
    monkeypatch.setattr(round_trips, "round_trips", lambda seconds, burners: np.arange(101.0))
    run(faster_fifo=None)
    assert table(capsys.readouterr().out)[-1][1:4] == ["50.0", "90.0", "99.0"]


@pytest.mark.usefixtures("known_figures")
def test_without_a_peer_the_own_figures_are_shown_and_how_to_get_it(tmp_path, capsys):
    assert run(faster_fifo=None, json=tmp_path / "figures.json") is True
    out = capsys.readouterr().out
    assert table(out)[0] == ["messages per second", "penstock", "mark", "met"]
    assert [row[0] for row in table(out)[1:6]] == TRAFFICS and {row[2] for row in table(out)[1:6]} == {"-"}
    assert "pip install faster-fifo==1.5.2" in out and "python bench/ipc.py --install-peers" in out
    written = json.loads((tmp_path / "figures.json").read_text())
    assert "faster-fifo" not in written
    assert [one["mark"] for one in written["messages"]] == [None] * 5


@pytest.mark.usefixtures("known_figures")
def test_another_version_of_the_peer_is_told(toy, capsys):
    toy(says("1.4.0", 1000.0))
    run()
    assert "this is faster-fifo 1.4.0; the marks are meant for 1.5.2" in capsys.readouterr().out


def test_a_peer_that_cannot_be_measured_says_why(toy, monkeypatch):
    toy("raise SystemExit('no module named faster_fifo')")
    with pytest.raises(BenchError, match=r"(?s)faster-fifo cannot be measured.*no module named faster_fifo"):
        FasterFifo(Path(sys.executable))
    with pytest.raises(BenchError, match="No such file"):
        FasterFifo(Path("/no/such/python"))
    monkeypatch.setattr(fifo, "PATIENCE", 0.1)
    toy("import time; time.sleep(60)")
    with pytest.raises(BenchError, match="timed out"):
        FasterFifo(Path(sys.executable))


def test_the_peer_gets_nothing_that_was_made_for_this_python(toy, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    toy(f"import os\nassert 'PYTHONPATH' not in os.environ\n{says('1.5.2', 1.0)}")
    assert FasterFifo(Path(sys.executable)).version == "1.5.2"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rounds": 0}, "--rounds 0 is not legal"),
        ({"json": Path("/no/such/directory/x.json")}, "there is no directory /no/such/directory"),
    ],
)
def test_wrong_flags_are_refused_before_anything_starts(wrong, message, capsys):
    with pytest.raises(BenchUsageError, match=message):
        run(**wrong)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("ends", "message"),
    [(lambda *_: None, "has died"), (lambda *_: time.sleep(60), "has not reported its times in 0.3 s")],
)
def test_an_asking_role_that_never_reports_its_times_ends_the_bench(ends, message, monkeypatch):
    def poll_and_end(role, control):
        poll_until_stopped(role, control)
        ends()
        os._exit(0)

    monkeypatch.setattr(round_trips, "poll_until_stopped", poll_and_end)
    monkeypatch.setattr(round_trips, "_WARM_UP", 1)
    monkeypatch.setattr(round_trips, "_PATIENCE", 0.3 if "0.3" in message else 60.0)
    with pytest.raises(BenchError, match=message):
        round_trips.round_trips(0.05, burners=0)
    assert multiprocessing.active_children() == []


def test_no_process_is_left():
    assert messages_per_second(2, 1, 0.01) > 0
    assert messages_per_second(1, 100, 0.01) > 0
    assert (round_trips.round_trips(0.05, burners=1) > 0).all()
    assert multiprocessing.active_children() == []
