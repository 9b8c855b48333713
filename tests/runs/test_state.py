"""status.json shows the progress of a run, and whether its process is alive."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from penstock.runs.process import is_alive, this_process
from penstock.runs.state import SILENT_SECONDS, StateFile, read_state, state_of
from penstock.runs.status import RoleShare, Status

STATUS = Status(
    algorithm="ppo", env="CartPole-v1", steps=100, total_steps=200, seconds=1.5, best_return=float("nan"),
    roles=(RoleShare(name="rollout x2", activities={"env": 0.5}, busy=0.5),), limiting_role="learner",
)  # fmt: skip


def test_the_whole_status_can_be_read_back(tmp_path):
    StateFile(tmp_path).write(STATUS, "done", "steps")
    record = read_state(tmp_path)
    assert (record["state"], record["reason"], record["steps"], record["limiting_role"]) == (
        "done", "steps", 100, "learner",
    )  # fmt: skip
    assert {field.name for field in dataclasses.fields(Status)} < record.keys()
    assert record["best_return"] is None and record["roles"][0]["activities"] == {"env": 0.5}
    assert abs(record["time"] - time.time()) < 60
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_a_run_whose_process_lives_is_what_it_says(tmp_path):
    for state in ("running", "paused", "done", "interrupted", "failed"):
        StateFile(tmp_path).write(STATUS, state)
        assert state_of(read_state(tmp_path)) == state


def test_a_run_whose_process_was_killed_has_died(tmp_path):
    program = (
        "import sys, time; from tests.runs.test_state import STATUS, StateFile\n"
        "StateFile(sys.argv[1]).write(STATUS, 'running'); print('written', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "written\n"
        assert state_of(read_state(tmp_path)) == "running"
    finally:
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, but not yet buried
    assert state_of(read_state(tmp_path)) == "died"
    process.wait()
    assert state_of(read_state(tmp_path)) == "died"
    process.stdout.close()


def test_a_process_that_was_given_the_same_id_is_another():
    assert is_alive(this_process()) is True
    assert is_alive({**this_process(), "start": 1}) is False


@pytest.mark.parametrize("elsewhere", [{"boot": "another"}, {"namespace": "pid:[1]"}])
def test_a_run_of_another_machine_or_container_is_taken_to_run_until_it_is_silent(tmp_path, elsewhere):
    StateFile(tmp_path).write(STATUS, "running")
    record = read_state(tmp_path)
    record["process"] |= elsewhere
    assert state_of(record) == "running"
    record["time"] -= SILENT_SECONDS + 1
    assert state_of(record) == "silent"
    assert state_of({**record, "state": "done"}) == "done"


def test_of_a_run_without_a_state_nothing_is_known(tmp_path):
    assert read_state(tmp_path) == {}
    assert state_of(read_state(tmp_path)) == "unknown"


@pytest.mark.parametrize(
    "content",
    [
        "", '{"state": "run', "[]", "\x00\x00", "[" * 10**5, '{"a": ' * 500 + "1" + "}" * 500, '{"state": ["running"]}',
        '{"state": "flying"}', '{"state": "running", "time": "noon"}', '{"steps": [1]}', '{"steps": 1e999}',
        f'{{"steps": {10**400}}}', '{"process": 3}', '{"losses": {"a": "b"}}', '{"nodes": [1]}', '{"reason": {}}',
    ],
)  # fmt: skip
def test_a_state_that_cannot_be_read_says_why(tmp_path, content):
    (tmp_path / "status.json").write_text(content)
    found = read_state(tmp_path)
    assert state_of(found) == "unreadable" and "status.json cannot be read: " in found["reason"]
    assert len(found["reason"]) < 300 + len(str(tmp_path))


def test_a_state_that_is_a_link_or_too_large_is_not_read(tmp_path):
    (tmp_path / "elsewhere").write_text("{}")
    (tmp_path / "status.json").symlink_to(tmp_path / "elsewhere")
    assert "is not an ordinary file" in read_state(tmp_path)["reason"]
    (tmp_path / "status.json").unlink()
    os.mkfifo(tmp_path / "status.json")
    assert "is not an ordinary file" in read_state(tmp_path)["reason"]
    (tmp_path / "status.json").unlink()
    with open(tmp_path / "status.json", "wb") as file:
        file.truncate(10**12)
    assert "more than 8,388,608 bytes" in read_state(tmp_path)["reason"]


def test_readers_never_find_a_part(tmp_path, fork):
    def write():
        file = StateFile(tmp_path)
        while True:
            file.write(STATUS, "running")

    StateFile(tmp_path).write(STATUS, "running")
    fork(write)
    for _ in range(500):
        assert json.loads((tmp_path / "status.json").read_bytes())["steps"] == 100


def test_what_a_killed_process_had_begun_to_write_is_removed(tmp_path):
    (tmp_path / ".status.json.4194305-abcd.aside").touch()
    StateFile(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_gone_stops_nobody(tmp_path):
    StateFile(tmp_path / "gone").write(STATUS, "running")
    StateFile(None).write(STATUS, "running")
    assert list(tmp_path.iterdir()) == []
