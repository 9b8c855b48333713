"""`bench/replay.py`: everything is measured on both sides, in turn, and judged by the marks."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from comparing import peers, replay
from comparing.replay import QUICK, Libraries, run

from penstock.bench import BenchError, BenchUsageError
from tests.bench.tables import table

TOY = "tests.bench.toy_replay"
TOYS = Libraries(penstock=TOY, native=None, cpprb=TOY)
OPERATIONS = [
    "uniform: add 1", "uniform: add 100", "uniform: sample 256",
    "prioritized: add 1", "prioritized: add 100", "prioritized: sample 256", "prioritized: sample 256 + update 256",
    "multi-process prioritized: add 1", "multi-process prioritized: add 100",
    "multi-process prioritized: sample 256", "multi-process prioritized: sample 256 + update 256",
    "4 writers of 50 and a learner of 256: rows/s", "4 writers of 50 and a learner of 256: batches/s",
    "84x84x4 uint8: sample 256",
]  # fmt: skip

pytestmark = pytest.mark.timeout(110)


@pytest.fixture(autouse=True)
def small_and_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(peers.CPPRB.variable, raising=False)
    small = {"seconds": 0.001, "capacity": 2000, "frames": 64, "writers": 1, "writer_seconds": 0.1}
    monkeypatch.setattr(replay, "QUICK", replace(QUICK, **small))


def flags(**changes) -> replay.Flags:
    return replay.Flags(**{"quick": True, "cpprb": Path(sys.executable), **changes})


@pytest.mark.long
def test_every_operation_is_measured_on_both_sides_and_written_down(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(replay, "QUICK", replace(replay.QUICK, writers=4))
    assert run(flags(json=tmp_path / "figures.json", capacities=(1000.0,)), TOYS) is True
    out, err = capsys.readouterr()
    head, *rows = table(out)
    assert head[:5] == ["operation", "rows", "penstock", "cpprb", "ratio"]
    assert [row[0].removesuffix(", us") for row in rows] == [*OPERATIONS, *OPERATIONS[:7]]
    assert {row[1] for row in rows} == {"2k", "64", "1k"}
    assert all(float(cell.replace(",", "")) > 0 for row in rows for cell in row[2:4])
    assert "too small and too short to judge" in out
    assert "filling and checking" in err

    written = json.loads((tmp_path / "figures.json").read_text())
    assert written["machine"]["cores"] >= 1
    assert written["libraries"]["cpprb"]["library"] == TOY
    assert [len(one["rounds"]["cpprb"]) for one in written["measured"][:3]] == [2, 2, 2]
    assert written["measured"][0]["medians"].keys() == {"penstock", "cpprb", "copy"}


@pytest.mark.long
def test_a_missed_mark_is_told(monkeypatch, capsys):
    monkeypatch.setattr(replay, "QUICK", replace(replay.QUICK, judged=True))
    assert run(flags(), TOYS) is False  # nothing is thirty times faster than itself
    out = capsys.readouterr().out
    assert "of 10 marks hold" in out
    assert "missed: multi-process prioritized: sample 256 + update 256" in out


def test_without_a_peer_the_own_figures_are_shown_and_how_to_get_it(capsys):
    assert run(flags(cpprb=None), TOYS) is True
    out = capsys.readouterr().out
    assert len(table(out)) == 1 + len(OPERATIONS)
    assert {row[3] for row in table(out)[1:]} == {"-"}
    assert "pip install cpprb==11.0.0" in out
    assert "--install-peers" in out


@pytest.mark.long
def test_the_replay_library_passes_all_checks_of_the_bench(capsys):
    assert run(flags(cpprb=None), Libraries()) is True
    assert [row[0] for row in table(capsys.readouterr().out)][-1] == "84x84x4 uint8: sample 256, 2 threads, out=, us"


def test_the_own_library_may_not_tear_rows_but_the_peer_is_measured_all_the_same(monkeypatch, capsys):
    with pytest.raises(BenchError, match=r"ours: 1\.0e-03 of the rows sampled while others were written mix"):
        replay._judge_torn("ours", 0.001, tolerated=False)
    replay._judge_torn("theirs", 0.001, tolerated=True)
    assert "note: theirs: 1.0e-03" in capsys.readouterr().err


def test_capacities_that_do_not_fit_are_skipped_and_the_rest_is_too_much(monkeypatch, capsys):
    def refuse(nbytes, what):
        if nbytes > 10**9:
            raise MemoryError(f"{what} needs {nbytes}")

    monkeypatch.setattr(replay, "require_memory", refuse)
    assert run(flags(cpprb=None, capacities=(1e7,)), TOYS) is True
    assert "skipped: bench/replay.py (uniform, 10,000,000 rows, of 2 libraries" in capsys.readouterr().err
    monkeypatch.setattr(replay, "QUICK", replace(replay.QUICK, capacity=10**7))
    with pytest.raises(MemoryError):
        run(flags(cpprb=None), TOYS)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rounds": 0}, "--rounds 0 is not legal"),
        ({"capacities": (1e4, 10.5)}, "--capacities 10.5 is not legal: whole numbers from 1,000 to 16,000,000"),
        ({"json": Path("/no/such/directory/x.json")}, "there is no directory /no/such/directory"),
    ],
)
def test_wrong_flags_are_refused_before_anything_starts(wrong, message, capsys):
    with pytest.raises(BenchUsageError) as caught:
        run(flags(**wrong), TOYS)
    assert message in str(caught.value)
    assert capsys.readouterr().out == ""


def test_libraries_take_turns_and_another_one_is_first_each_time():
    assert replay._turns(["a", "b", "c"], 3) == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
