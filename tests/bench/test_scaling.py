"""The model of runs on nodes: worked rows, and invariants at any cost."""

import dataclasses
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.bench.scaling import Constants, Machines, parts_of, predict, versions_sent
from tests.bench.scaled import CONSTANTS, SETTING, US

MACHINES = Machines(node_cores=2, home_cores=4, bandwidth=1e9)


def bounds(setting=SETTING, machines=MACHINES, constants=CONSTANTS):
    return {part.name: part.bound for part in parts_of(constants, setting, machines)}


def test_each_part_bounds_the_rate_as_worked_by_hand():
    # A step takes 8 + 160/16 = 18 us; sending it 64/512 + 0.05 = 0.175 us, receiving it 128/512 + 0.1 = 0.35 us. A
    # version takes 200 us at home and 100 us at the node: of a step, 0.2 and 0.1 us.
    turn = 32 * 16 * 18 * US + 1e-3 + 200 * US  # of a slot, of which there are 64
    assert bounds() == pytest.approx({
        "rollout workers": 2 / (18 * US), "lanes": 64 * 32 / turn, "nodes' cores": 1.99 / (18.275 * US),
        "senders": 1 / (0.275 * US), "network": 1e9 / 50, "receiver": 1 / (0.55 * US), "learners": 250_000,
        "home's cores": (4 - 0.024) / (4.55 * US), "supervisor": math.inf,
    })  # fmt: skip
    found = predict(CONSTANTS, SETTING, MACHINES)
    assert (found.limit, found.parts[1].name) == ("nodes' cores", "rollout workers")
    assert found.rate == pytest.approx(108_892, abs=1) and found.load("nodes' cores") == pytest.approx(1.0)


def test_slots_that_wait_for_their_batch_to_be_complete_are_not_filled_meanwhile():
    # Of a batch of 9 segments 4 wait on average. Without lag all lanes step at once, and nothing waits for its turn.
    whole, of_9 = bounds()["lanes"], dataclasses.replace(SETTING, batch=9)
    assert bounds(of_9)["lanes"] == pytest.approx(whole * (64 - 4) / 64)
    assert bounds(dataclasses.replace(of_9, takes_turns=True))["lanes"] == whole


def test_parts_of_one_machine_share_its_cores():
    found = predict(CONSTANTS, SETTING, dataclasses.replace(MACHINES, shared_cores=1.5))
    assert (found.limit, found.rate) == ("this machine's cores", pytest.approx((1.5 - 0.034) / (22.825 * US)))


def test_learners_share_a_batch_and_wait_for_each_others_gradients():
    # Two learners: 2 us each for a step, and for 100,000 bytes 100 us for 1,000 steps.
    assert bounds(dataclasses.replace(SETTING, learners=2))["learners"] == pytest.approx(1 / (2.1 * US))


def test_where_stepping_and_learning_take_turns_both_and_a_round_trip_count():
    turns = bounds(dataclasses.replace(SETTING, takes_turns=True))["taking turns"]
    assert 1 / turns == pytest.approx(18.275 * US / 1.99 + 4 * US + 1e-3 / 1_000)


def test_a_supervisor_that_cannot_hear_all_its_nodes_allows_nothing():
    found = predict(CONSTANTS, dataclasses.replace(SETTING, nodes=7_000), MACHINES)
    assert (found.limit, found.rate) == ("supervisor", 0.0)


def test_versions_that_follow_each_other_too_fast_are_left_out_and_experience_comes_first():
    many = dataclasses.replace(SETTING, nodes=8)
    assert bounds(many)["receiver"] == pytest.approx(1 / (0.7 * US)), "telling takes as much as receiving, and no more"
    # 2,000,000 steps/s: 0.7 of a core receives; 16,000 versions a second would take 3.2 cores.
    assert versions_sent(CONSTANTS, many, MACHINES, 2_000_000.0) == pytest.approx(0.3 / 3.2)
    slow = dataclasses.replace(MACHINES, bandwidth=1e8)
    assert versions_sent(CONSTANTS, many, slow, 250_000.0) == pytest.approx(1e8 / (2_000 * 100_000))
    assert versions_sent(CONSTANTS, SETTING, MACHINES, 100_000.0) == 1.0


def test_gateways_send_versions_and_ask_hosts_in_the_place_of_home():
    many = dataclasses.replace(SETTING, nodes=100)  # two gateways of 50
    # Each receives half, 0.04375 of a core, and 12,500 versions a second would take 2.5 cores.
    assert versions_sent(CONSTANTS, many, MACHINES, 250_000.0) == pytest.approx(0.95625 / 2.5)
    # Home sends two copies, which takes no more time than receiving; a host's reports cost a tenth of an answer.
    home = bounds(many)["home's cores"]
    assert home == pytest.approx((4 - 0.02 - 0.004 * (2 + 0.1 * 100)) / ((0.35 + 0.35 + 4.0) * US))


def test_cores_at_home_bear_what_the_receiver_has_time_to_tell():
    # Two nodes: 0.4 us of each step, and eight 1.6 us, 0.4 of a core at the learners' 250,000 steps/s.
    for nodes, told in ((2, 0.4), (8, 1.6)):
        home = bounds(dataclasses.replace(SETTING, nodes=nodes))["home's cores"]
        assert home == pytest.approx((4 - 0.02 - 0.004 * nodes) / ((0.35 + told + 4.0) * US))


POSITIVE = st.floats(1e-9, 1.0)


@given(
    st.builds(Constants, **{field.name: POSITIVE for field in dataclasses.fields(Constants)}),
    st.sampled_from([field.name for field in dataclasses.fields(Constants)]), st.integers(1, 2_000),
    st.floats(1.0, 10.0), st.booleans(),
)  # fmt: skip
@example(dataclasses.replace(CONSTANTS, host=2 * MACHINES.node_cores), "lane", 1, 1.0, True)  # hosts leave no core
def test_the_least_bound_is_the_prediction_and_no_cost_can_raise_it(constants, dearer, nodes, times, takes_turns):
    setting = dataclasses.replace(SETTING, nodes=nodes, takes_turns=takes_turns)
    found = predict(constants, setting, MACHINES)
    assert found.rate == min(bounds(setting, constants=constants).values())
    assert all(part.load(found.rate) <= 1.0 + 1e-9 or not found.rate for part in found.parts)
    if not dearer.startswith("hear"):  # a receiver that is slower tells fewer versions, which spares nodes' cores
        constants = dataclasses.replace(constants, hear=0.0, hear_byte=0.0)
    more = dataclasses.replace(constants, **{dearer: times * getattr(constants, dearer)})
    assert predict(more, setting, MACHINES).rate <= predict(constants, setting, MACHINES).rate * (1 + 1e-9)


@given(st.integers(1, 64), st.integers(1, 64), st.floats(1.0, 10.0))
def test_more_lanes_cores_or_network_lower_nothing_that_they_are_for(lanes, cores, times):
    setting = dataclasses.replace(SETTING, lanes=lanes)
    machines = Machines(cores, cores, bandwidth=1e6)
    more_lanes = bounds(dataclasses.replace(setting, lanes=2 * lanes), machines)
    assert more_lanes["rollout workers"] >= bounds(setting, machines)["rollout workers"]
    more = Machines(times * cores, times * cores, bandwidth=times * 1e6)
    assert predict(CONSTANTS, setting, more).rate >= predict(CONSTANTS, setting, machines).rate
