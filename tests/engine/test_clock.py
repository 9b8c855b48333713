"""A role's clock books its time to what it was doing."""

import numpy as np
import pytest

from penstock.engine import clock as clock_module
from penstock.engine.clock import ACTIVITY, SINCE, Clock


@pytest.fixture
def now(monkeypatch):
    """The time, as a list of one number that the test moves on."""
    time = [100.0]
    monkeypatch.setattr(clock_module.time, "monotonic", lambda: time[0])
    return time


def test_time_is_booked_to_the_activity_that_went_on_before_the_switch(now):
    gauges = np.zeros(16)
    clock = Clock(gauges, ("work", "wait"))
    now[0] += 3.0  # a new role waits
    clock.switch("work")
    now[0] += 0.5
    clock.switch("work")
    now[0] += 0.25
    clock.switch("wait")
    assert gauges[:2].tolist() == [0.75, 3.0]


def test_the_gauges_say_what_goes_on_and_since_when(now):
    gauges = np.zeros(16)
    clock = Clock(gauges, ("work", "rest", "wait"))
    now[0] = 105.0
    clock.switch("rest")
    assert gauges[ACTIVITY] == 1 and gauges[SINCE] == 105.0


def test_a_new_role_begins_with_empty_gauges(now):
    gauges = np.full(16, 9.0)
    Clock(gauges, ("work", "wait"))
    assert not gauges.any()


def test_an_activity_that_was_not_declared_is_an_error(now):
    with pytest.raises(KeyError, match="sleep"):
        Clock(np.zeros(16), ("work", "wait")).switch("sleep")
