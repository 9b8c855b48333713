"""The ideal follows from costs and capacity, and every core-second of a training is accounted for."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.account import Account, bounds, limits, shares_by_cause
from penstock.engine.watching.time_spent import RoleTime
from tests.bench.measured import CAPACITY, COSTS, US, a_run


def changed(**changes):
    """Costs and capacity after changes."""
    costs = replace(COSTS, **{name: value for name, value in changes.items() if hasattr(COSTS, name)})
    capacity = replace(CAPACITY, **{name: value for name, value in changes.items() if hasattr(CAPACITY, name)})
    return costs, capacity


@pytest.mark.parametrize(
    ("changes", "bound", "rate"),
    [
        ({}, "cores", 2 / 11.3),
        ({"cores": 1.5}, "cores", 1.5 / 11.3),
        ({"learn": 20.0 * US, "cores": 8, "workers": 7}, "learner", 1 / 20.0),
        ({"learn": 20.0 * US, "cores": 8, "workers": 7, "learner_threads": 2}, "learner", 2 / 20.0),
        ({"device": 30.0 * US}, "device", 1 / 30.0),
        ({"env_wait": 1000.0 * US}, "waiting environments", 2 / 1007.2),
        ({"env_wait": 1000.0 * US, "workers": 8}, "waiting environments", 8 / 1007.2),
        # what other settings would change is no bound
        ({"env_wait": 0.5 * US, "workers": 1}, "cores", 2 / 11.3),
        ({"infer": 50.0 * US, "cores": 16, "workers": 14, "policy_threads": 1}, "cores", 16 / 59.2),
        ({"takes_turns": True}, "cores", 2 / 11.3),
        ({"learner_threads": 0, "cores": 8}, "cores", 8 / 11.3),
    ],
)
def test_the_ideal_is_the_least_of_what_nothing_can_exceed(changes, bound, rate):
    found = bounds(*changed(**changes))
    assert min(found, key=found.get) == bound and found[bound] * US == pytest.approx(rate)


@pytest.mark.parametrize(
    ("changes", "limit", "rate"),
    [
        ({"workers": 1}, "rollout workers", 1 / 9.3),
        ({"workers": 1, "policy_threads": 1}, "rollout workers", 1 / 7.2),
        ({"env_wait": 1000.0 * US}, "rollout workers", 2 / 1009.3),
        ({"infer": 50.0 * US, "cores": 16, "workers": 14, "policy_threads": 1}, "policy worker", 1 / 50.0),
        ({"learner_threads": 0, "cores": 8}, "rollout workers", 2 / 11.3),  # they learn, too
        # 4.65 us in which two workers step, and 2 us in which one thread learns
        ({"takes_turns": True}, "taking turns", 1 / 6.65),
        ({"takes_turns": True, "learner_threads": 2}, "taking turns", 2 / 11.3),  # nothing is lost by turns
        # a single core: 11.3 us, one thing after another
        ({"takes_turns": True, "cores": 1, "workers": 1}, "taking turns", 1 / 11.3),
    ],
)
def test_settings_allow_as_much_as_the_least_of_their_limits(changes, limit, rate):
    found = limits(*changed(**changes))
    assert min(found, key=found.get) == limit and found[limit] * US == pytest.approx(rate)


def test_what_is_allowed_is_never_more_than_the_ideal():
    of_ideal, of_settings = Account(COSTS, CAPACITY, a_run()), Account(COSTS, replace(CAPACITY, workers=1), a_run())
    assert (of_ideal.allowed_by, of_ideal.allowed) == ("cores", of_ideal.ideal)
    assert of_settings.allowed_by == "rollout workers" and of_settings.ideal == of_ideal.ideal
    assert of_settings.efficiency_of_allowed == pytest.approx(100_000 * 9.3 * US)
    assert of_settings.efficiency == of_ideal.efficiency == of_ideal.efficiency_of_allowed


def test_the_difference_is_explained_by_the_uses_of_the_cores():
    account = Account(COSTS, CAPACITY, a_run())
    assert account.engine.rate == 100_000.0
    assert account.efficiency == pytest.approx(100_000 / (2 / (11.3 * US)))
    assert account.total == pytest.approx(20.0 * US)
    assert {name: seconds / US for name, seconds in account.parts.items()} == pytest.approx({
        "real work: stepping environments": 7.2,
        "real work: choosing actions": 2.1,
        "real work: learning": 2.0,
        "more than alone: stepping environments": 0.8,
        "more than alone: choosing actions": 0.4,
        "more than alone: learning": 1.0,
        "copying: rollout workers writing": 1.5,
        "copying: the learner gathering": 0.5,
        "Python and the rest": 0.5,  # 16 s of CPU time less 15.5 in the activities above
        "other programs": 1.0,
        "idle": 3.0,
    })  # fmt: skip


seconds = st.floats(0.0, 100.0)


@given(seconds, seconds, seconds, seconds, st.integers(1, 10**9), st.floats(0.1, 100.0))
def test_the_parts_add_up_to_all_that_went_by(env, learn, write, cpu, steps, window):
    role = RoleTime("rollout", 1, {"env": env}, {"env": env, "learn": learn, "write": write})
    account = Account(COSTS, CAPACITY, a_run(steps=steps, seconds=window, roles=(role,), cpu_seconds=cpu))
    assert sum(account.parts.values()) == pytest.approx(2 * window / steps)


def test_a_roles_time_is_divided_by_the_causes_of_its_waits():
    shares = shares_by_cause(a_run().roles[0])
    assert shares == {"working": 12 / 20, "held up": pytest.approx(2 / 20), "wait for slots": 6 / 20}


def test_several_threads_are_not_more_than_all_of_the_time():
    role = RoleTime("learner", 1, {"learn": 5.0, "wait for data": 5.0}, {"learn": 18.0, "wait for data": 0.0})
    assert shares_by_cause(role) == {"working": 0.5, "held up": 0.0, "wait for data": 0.5}


def test_the_tables_show_all_of_it():
    text = Account(COSTS, CAPACITY, a_run()).text()
    for words in (
        "stepping environments 7.20", "ideal         176,991 steps/s, bound by cores (learner 500,000)",
        "these settings allow 176,991 steps/s, bound by cores (rollout workers 215,054): 56.5% of it was reached",
        "measured      100,000 steps/s, during 10.0 s", "efficiency      56.5%",
        "limited by learner: rollout workers wait 30% of their time",
        "| idle                                   |        3.00 |  15.0% |",
        "| total                                  |       20.00 | 100.0% |",
        "| rollout x2        |     60% |     10% |            30% |             - |",
    ):  # fmt: skip
        assert words in text, f"{words}\n{text}"
    assert "wait" not in text.splitlines()[0]


def test_where_stepping_and_learning_take_turns_the_ideal_is_that_of_overlapping_and_turns_stand_beside_it():
    text = Account(COSTS, replace(CAPACITY, takes_turns=True), a_run()).text()
    assert "ideal         176,991 steps/s, bound by cores" in text and "efficiency      56.5%" in text
    assert "these settings allow 150,376 steps/s, bound by taking turns (rollout workers 215,054): 66.5% of it" in text


def test_everything_is_written_down():
    facts = json.loads(json.dumps(Account(COSTS, CAPACITY, a_run()).facts()))
    assert facts["measured"] == 100_000.0 and facts["bound_by"] == "cores" and facts["costs"]["env"] == 7.2 * US
    assert sum(facts["parts"].values()) == pytest.approx(facts["total"])
    assert facts["shares"]["learner"]["wait for data"] == 0.5
    assert facts["efficiency"] == facts["efficiency_of_allowed"] and facts["allowed_by"] == "cores"
    assert facts["limits"].keys() == {"rollout workers"} and facts["bounds"].keys() == {"cores", "learner"}
