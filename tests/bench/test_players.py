"""The processes that are measured: nothing wrong is timed, nothing hangs, and none is left."""

import os
import sys

import pytest
from comparing import players
from comparing.players import Player, started

from penstock.bench import BenchError
from tests.engine.processes import wait_until

TOY = "tests.bench.toy_replay"

pytestmark = pytest.mark.timeout(60)


def opened(kind, workload="transitions", capacity=1000):
    player = Player(sys.executable, TOY)
    try:
        player.ask("open", kind=kind, workload=workload, capacity=capacity)
    except BaseException:
        player.close()
        raise
    return player


@pytest.mark.parametrize(
    ("kind", "workload", "operations"),
    [
        ("uniform", "transitions", ["add_1", "add_100", "sample"]),
        ("prioritized", "transitions", ["add_1", "add_100", "sample", "sample_update"]),
        ("shared", "transitions", ["add_1", "add_100", "sample", "sample_update"]),
        ("uniform", "frames", ["sample"]),
    ],
)
def test_every_operation_of_a_sound_library_is_timed(kind, workload, operations):
    player = opened(kind, workload)
    for operation in operations:
        count = player.ask("warm", operation=operation, seconds=0.001)
        assert count >= 1
        assert player.ask("time", operation=operation, count=count) > 0
    player.ask("verify")
    player.close()


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        ("rows", "uniform", "1 of 256 sampled rows mix the values of several"),
        ("frequencies", "uniform", "not sampled as often as they should"),
        ("indexes", "prioritized", "the indexes of a batch are not those of its rows"),
        ("weights", "prioritized", "weights are off by 1.0e-04 of their value; 1e-5 is allowed"),
        ("max priority", "shared", "the largest priority is 2.0 after an update to 5.0"),
    ],
)
def test_a_library_that_does_something_wrong_is_not_timed(fault, kind, message, monkeypatch):
    monkeypatch.setenv("TOY_FAULT", fault)
    with pytest.raises(BenchError, match="check failed") as caught:
        opened(kind)
    assert message in str(caught.value)


def test_writers_and_a_learner_work_at_the_same_time_and_end():
    player = opened("shared")

    def all_work():
        rates = player.ask("compete", writers=3, seconds=0.2, verify=True)
        assert rates["torn"] == 0
        return rates["rows"] > 0 and rates["batches"] > 0

    wait_until(all_work, "writers and learner have had a turn within one round")
    assert set(player.ask("compete", writers=3, seconds=0.1, verify=False)) == {"rows", "batches"}
    player.close()


def test_rows_torn_by_writers_are_counted(monkeypatch):
    monkeypatch.setenv("TOY_FAULT", "torn")
    player = opened("shared")
    assert player.ask("compete", writers=2, seconds=0.2, verify=True)["torn"] > 0.5
    player.close()


def test_writers_that_die_are_reported(monkeypatch):
    monkeypatch.setenv("TOY_FAULT", "dead writer")
    player = opened("shared")
    with pytest.raises(BenchError, match=r"not all writers began within 0\.5 s"):
        player.ask("compete", writers=2, seconds=0.2, verify=False, patience=0.5)
    player.close()


def test_writers_that_hang_are_killed_and_reported(monkeypatch):
    monkeypatch.setenv("TOY_FAULT", "stuck writer")

    def are_reported():
        """Of a round in which both came to hang: where a writer was late, another round is played."""
        player, told = opened("shared"), ""
        try:
            player.ask("compete", writers=2, seconds=0.3, verify=False, patience=0.5)
        except BenchError as error:
            told = str(error)
        group = player.process.pid
        assert processes_of(group) == [group]
        player.close()
        return "2 writers hung in add" in told

    wait_until(are_reported, "both writers have hung")


def test_the_floor_is_the_copying_of_the_same_bytes():
    player = Player(sys.executable, "copy")
    player.ask("open", kind="prioritized", workload="transitions", capacity=1000)
    for operation in ("add_1", "add_100", "sample", "sample_update"):
        count = player.ask("warm", operation=operation, seconds=0.001)
        assert player.ask("time", operation=operation, count=count) > 0
    assert player.ask("verify") is None
    player.close()


def test_a_library_that_cannot_be_imported_is_named():
    with pytest.raises(BenchError, match=r"no_such_library.*ModuleNotFoundError"):
        Player(sys.executable, "no_such_library")


def test_an_interpreter_that_is_not_there_is_named():
    with pytest.raises(BenchError, match="/no/such/python cannot be run to measure cpprb"):
        Player("/no/such/python", "cpprb")


def test_another_interpreter_is_not_given_the_modules_of_this_one(monkeypatch, tmp_path):
    (tmp_path / "only_here.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    Player(sys.executable, "only_here").close()
    same_by_another_name = os.path.join(os.path.dirname(sys.executable), "..", "bin", "python")
    with pytest.raises(BenchError, match="No module named 'only_here'"):
        Player(same_by_another_name, "only_here")


def test_a_player_that_is_killed_is_reported():
    player = Player(sys.executable, TOY)
    player.process.kill()
    player.process.wait()
    with pytest.raises(BenchError, match=r"ended at 'verify' \(exit -9\)"):
        player.ask("verify")
    player.close()


def test_a_player_that_hangs_ends_the_bench(monkeypatch):
    player = opened("uniform")
    player.ask("warm", operation="sample", seconds=0.001)
    monkeypatch.setattr(players, "_PATIENCE", 0.2)
    with pytest.raises(BenchError, match="gave no answer to 'time' for 0 s: it hangs"):
        player.ask("time", operation="sample", count=10**9)
    player.close()


def test_none_is_left_when_the_bench_ends_or_one_cannot_be_started():
    with started({"a": (sys.executable, TOY), "b": (sys.executable, TOY)}) as both:
        groups = [player.process.pid for player in both.values()]
        assert all(processes_of(group) for group in groups)
    assert [processes_of(group) for group in groups] == [[], []]
    with pytest.raises(BenchError), started({"a": (sys.executable, TOY), "b": ("/no/such/python", TOY)}):
        pass


def processes_of(group):
    """Living members of a process group; zombies do not count."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                state, _, member_of = file.read().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(member_of) == group and state != "Z":
            found.append(int(entry))
    return found
