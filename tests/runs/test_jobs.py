"""Jobs have cores of their own, all of them are done, and none is left behind."""

import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import ConfigError
from penstock.runs.jobs import Command, Jobs, Training, split_cores
from penstock.runs.vacancy import RunDirectoryError


@pytest.fixture(autouse=True)
def without_rest(monkeypatch):
    monkeypatch.setattr("penstock.runs.jobs.PAUSE", 0.0)


class Counted:
    """Ends at the n-th poll, or when stopped."""

    def __init__(self, cores, looks=3):
        self.cores, self.looks, self.told = cores, looks, []

    def poll(self):
        self.looks -= 1
        return "stopped" if self.told else "done" if self.looks <= 0 else None

    def stop(self):
        self.told.append("stop")

    def kill(self):
        self.told.append("kill")


def worked(left, cores, *, begin=None, **flags):
    """Jobs that were begun, and the result of each, in the order of their ends."""
    jobs, begun, endings = Jobs(cores), [], []

    def begin_all():
        while jobs.free and left:
            job = Counted(jobs.free[0], left.pop(0))
            assert all(not set(job.cores) & set(other.cores) for other in jobs.at_work)
            jobs.add(job)
            begun.append(job)
        if begin is not None:
            begin(jobs)

    run = {"is_over": lambda: False, "is_left": lambda: bool(left), **flags}
    jobs.run(begin_all, lambda job, ending: endings.append((job, ending)), **run)
    assert jobs.at_work == [] and sorted(jobs.free) == sorted(cores)
    return begun, endings, jobs


def test_all_jobs_are_done_and_each_frees_its_cores_for_the_next():
    begun, endings, jobs = worked([5, 1, 1, 2], [[0, 1], [2, 3]])
    assert [begun.index(job) for job, _ in endings] == [1, 2, 3, 0] and not jobs.is_interrupted
    assert [job.cores for job in begun] == [[0, 1], [2, 3], [2, 3], [2, 3]]


def test_when_it_is_over_those_at_work_are_stopped_and_no_other_begins():
    left = [9, 9, 9]
    begun, endings, _ = worked(left, [[0], [1]], is_over=lambda: len(left) == 1)
    assert [ending for _, ending in endings] == ["stopped"] * 2 and len(begun) == 2 and len(left) == 1


def test_it_waits_for_what_others_have_in_hand():
    asked = []
    worked([], [[0]], is_left=lambda: len(asked.append(1) or asked) < 4)
    assert len(asked) == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_jobs_and_is_what_it_was_afterwards(number):
    before = signal.getsignal(number)
    begun, _, jobs = worked([99, 99], [[0]], begin=lambda _: os.kill(os.getpid(), number))
    assert jobs.is_interrupted and set(begun[0].told) == {"stop"} and len(begun) == 1
    assert signal.getsignal(number) is before


def test_a_signal_that_the_program_was_started_to_ignore_stops_no_job():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        _, endings, jobs = worked([2], [[0]], begin=lambda _: os.kill(os.getpid(), signal.SIGHUP))
        assert not jobs.is_interrupted and len(endings) == 1
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_signal_kills(monkeypatch):
    monkeypatch.setattr("penstock.runs.jobs._SAME", -1.0)
    begun, _, _ = worked([99], [[0]], begin=lambda _: os.kill(os.getpid(), signal.SIGINT))
    assert "kill" in begun[0].told


def test_no_job_is_left_behind_by_an_error():
    jobs, job = Jobs([[0]]), Counted([0], 99)

    def begin():
        jobs.add(job)
        raise RuntimeError("of this program")

    with pytest.raises(RuntimeError, match="of this program"):
        jobs.run(begin, lambda *_: None, is_over=lambda: False, is_left=lambda: True)
    assert jobs.at_work == [] and "stop" in job.told


@pytest.mark.parametrize(
    ("jobs", "allowed", "whole", "expected"),
    [
        (1, range(4), 4, [[0, 1, 2, 3]]),
        (2, range(4), 4, [[0, 1], [2, 3]]),
        (3, range(7), 7, [[0, 1], [2, 3], [4, 5]]),
        (2, [1, 3, 5], 3, [[1], [3]]),
        (2, range(64), 5, [[0, 1], [32, 33]]),  # a quota of five cores' time
        (1, range(64), 4, [list(range(64))]),
    ],
)
def test_cores_are_split_evenly_and_without_overlap(jobs, allowed, whole, expected, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(allowed))
    monkeypatch.setattr("penstock.runs.jobs.whole_cores", lambda: whole)
    assert split_cores(jobs) == expected


def test_more_jobs_than_cores_are_refused(monkeypatch):
    monkeypatch.setattr("penstock.runs.jobs.whole_cores", lambda: 2)
    with pytest.raises(ConfigError, match="--jobs 3 is not legal: this process may use 2 cores"):
        split_cores(3)


@given(st.sets(st.integers(0, 200), min_size=1, max_size=40), st.data())
def test_jobs_have_as_many_cores_each_and_none_twice(cores, data):
    jobs = data.draw(st.integers(1, len(cores)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.sched_getaffinity", lambda pid: cores)
        patch.setattr("penstock.runs.jobs.whole_cores", lambda: len(cores))
        shares = split_cores(jobs)
    assert {len(share) for share in shares} == {len(cores) // jobs} and len(shares) == jobs
    assert set().union(*shares) <= cores and len(set().union(*shares)) == sum(map(len, shares))


def test_no_output_goes_to_what_a_link_leads_to(tmp_path):
    mine, output = tmp_path / "mine", tmp_path / "output.txt"
    mine.write_text("mine\n")
    output.symlink_to(mine)
    with pytest.raises(RunDirectoryError, match=r"output\.txt is a link"):
        Training(Command(["echo", "theirs"], output, tmp_path / "run"), [0])
    assert mine.read_text() == "mine\n"
