"""A role's clock books its time to the role's activities."""

import gc
import threading
import weakref

import numpy as np
import pytest

from penstock.engine.watching import clock as clock_module
from penstock.engine.watching.clock import ACTIVITY, CPU, SINCE, WALL, Clock, count_as_companion


@pytest.fixture
def now(monkeypatch):
    """The time, as a list of one number that the test moves on."""
    time = [100.0]
    monkeypatch.setattr(clock_module.time, "monotonic", lambda: time[0])
    return time


@pytest.fixture
def cpu(monkeypatch):
    """The CPU time that the process has spent, likewise."""
    spent = [7.0]
    monkeypatch.setattr(clock_module.time, "process_time", lambda: spent[0])
    monkeypatch.setattr(clock_module, "_companion_cpu", 0.0)  # what tests before had one spend
    return spent


def test_time_is_booked_to_the_activity_that_went_on_before_the_switch(now):
    gauges = np.zeros(32)
    clock = Clock(gauges, ("work", "wait"))
    now[0] += 3.0  # a new role waits
    clock.switch("work")
    now[0] += 0.5
    clock.switch("work")
    now[0] += 0.25
    clock.switch("wait")
    assert gauges[WALL][:2].tolist() == [0.75, 3.0]


def test_cpu_time_is_booked_beside_it_as_far_as_the_process_was_on_a_core(now, cpu):
    gauges = np.zeros(32)
    clock = Clock(gauges, ("work", "wait"))
    clock.switch("work")
    now[0], cpu[0] = now[0] + 3.0, cpu[0] + 2.0
    clock.switch("wait")
    now[0], cpu[0] = now[0] + 5.0, cpu[0] + 0.25
    clock.switch("wait")
    assert gauges[WALL][:2].tolist() == [3.0, 5.0]
    assert gauges[CPU][:2].tolist() == [2.0, 0.25]


def test_cpu_time_of_short_activities_is_asked_for_together_and_goes_to_work_first(now, cpu):
    gauges = np.zeros(32)
    clock = Clock(gauges, ("env", "infer", "wait"))
    clock.switch("env")
    now[0], cpu[0] = now[0] + 0.0006, cpu[0] + 0.0006
    clock.switch("infer")
    assert not gauges[CPU].any()
    now[0], cpu[0] = now[0] + 0.0002, cpu[0] + 0.0002
    clock.switch("wait")
    now[0], cpu[0] = now[0] + 0.0010, cpu[0] + 0.0001
    clock.switch("env")
    assert gauges[CPU][:3] == pytest.approx([0.0006, 0.0002, 0.0001])
    assert gauges[WALL][:3] == pytest.approx([0.0006, 0.0002, 0.0010])


def test_more_cpu_time_than_time_is_that_of_several_threads_at_work(now, cpu):
    gauges = np.zeros(32)
    clock = Clock(gauges, ("learn", "wait"))
    now[0] += 0.0004
    clock.switch("learn")
    now[0], cpu[0] = now[0] + 0.0100, cpu[0] + 0.0200
    clock.switch("wait")
    assert gauges[CPU][:2] == pytest.approx([0.0196, 0.0004])


def test_of_roles_that_share_a_thread_one_clock_stands_still_while_another_runs(now, cpu):
    gauges = np.zeros((2, 32))
    actor, learner = (Clock(row, ("work", "wait")) for row in gauges)
    actor.switch("work")
    now[0], cpu[0] = now[0] + 1.0, cpu[0] + 1.0
    learner.switch("work")  # the actor has had its turn
    now[0], cpu[0] = now[0] + 4.0, cpu[0] + 3.0
    actor.switch("wait")
    now[0] += 0.5
    learner.switch("wait")
    assert gauges[:, WALL][:, :2].tolist() == [[1.0, 0.5], [4.0, 0.0]]
    assert gauges[:, CPU][:, :2].tolist() == [[1.0, 0.0], [3.0, 0.0]]


def test_clocks_in_two_threads_run_at_the_same_time(now):
    first, second = np.zeros(32), np.zeros(32)
    clock = Clock(first, ("work", "wait"))
    clock.switch("work")
    now[0] += 1.0
    thread = threading.Thread(target=lambda: Clock(second, ("work", "wait")).switch("work"))
    thread.start()
    thread.join()
    now[0] += 1.0
    clock.switch("wait")
    assert first[WALL][0] == 2.0


def test_the_cpu_time_of_a_companion_is_its_own_and_both_make_up_the_processs(now, cpu, monkeypatch):
    of_thread = [0.5]  # before it had a clock
    monkeypatch.setattr(clock_module.time, "thread_time", lambda: of_thread[0])
    rows = np.zeros((2, 32))
    learner = Clock(rows[0], ("work", "wait"))
    learner.switch("work")

    def accompany():
        count_as_companion()
        policy = Clock(rows[1], ("work", "wait"))
        policy.switch("work")
        now[0], cpu[0], of_thread[0] = now[0] + 4.0, cpu[0] + 5.0, of_thread[0] + 2.0
        policy.switch("wait")

    thread = threading.Thread(target=accompany)
    thread.start()
    thread.join()
    learner.switch("wait")
    assert rows[:, CPU].sum(1).tolist() == [3.0, 2.0]
    now[0], cpu[0] = now[0] + 1.0, cpu[0] + 0.5
    learner.switch("work")
    assert rows[:, CPU].sum(1).tolist() == [3.5, 2.0]


def test_a_clock_that_is_gone_keeps_no_gauges_alive():
    gauges = np.zeros(32)
    gone = weakref.ref(gauges)
    clock = Clock(gauges, ("work", "wait"))
    clock.switch("work")
    del clock, gauges
    gc.collect()
    assert gone() is None
    Clock(np.zeros(32), ("work", "wait")).switch("work")  # and the next one is not troubled by it


def test_the_gauges_say_what_goes_on_and_since_when(now):
    gauges = np.zeros(32)
    clock = Clock(gauges, ("work", "rest", "wait"))
    now[0] = 105.0
    clock.switch("rest")
    assert gauges[ACTIVITY] == 1 and gauges[SINCE] == 105.0


def test_a_new_role_begins_with_empty_gauges(now):
    gauges = np.full(32, 9.0)
    Clock(gauges, ("work", "wait"))
    assert not gauges.any()


def test_an_activity_that_was_not_declared_is_an_error(now):
    with pytest.raises(KeyError, match="sleep"):
        Clock(np.zeros(32), ("work", "wait")).switch("sleep")
