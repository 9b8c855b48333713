"""Decisions about copies and settings: golden ones, contracts, and the toy problem of the paper."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.population import toy
from penstock.algorithms.ppo import PPOConfig
from penstock.population.decisions import Population, Rules
from penstock.population.space import population_space

CONFIG = PPOConfig(env="none")
TABLES = {
    "learning_rate": {"low": 1e-5, "high": 1e-2, "log": True, "resample": 0.0},
    "gamma": {"low": 0.9, "high": 0.999, "complement": True, "resample": 0.0},
}
SPACE = population_space(TABLES, CONFIG)
START = {"learning_rate": 1e-3, "gamma": 0.99}


def scored(rule, scores, fraction=0.2, seed=0, space=SPACE):
    """A population of which each member has one episode of this return; None: it has none."""
    population = Population(Rules(rule, 10, 10, fraction, 1), space, [START] * len(scores), seed)
    for member, score in enumerate(scores):
        population.add_scores(member, [] if score is None else [score])
    return population


def test_of_five_the_worst_copies_the_best_and_nobody_else_does_anything():
    (decision,) = scored("truncation", [1.0, 2.0, 3.0, 4.0, 5.0]).decide([10] * 5)
    assert (decision.event, decision.member, decision.parent) == ("exploit", 0, 4)
    assert decision.scores == (1.0, 2.0, 3.0, 4.0, 5.0)


def test_a_share_is_rounded_up_and_the_worst_are_never_the_best():
    decisions = scored("truncation", [1.0, 2.0, 3.0, 4.0], fraction=0.3).decide([10] * 4)  # ceil(1.2) = 2
    assert [decision.member for decision in decisions] == [0, 1] and all(d.parent in (2, 3) for d in decisions)
    (decision,) = scored("truncation", [2.0, 1.0], fraction=0.5).decide([10, 10])
    assert (decision.member, decision.parent) == (1, 0)
    assert scored("truncation", [1.0, 1.0, 1.0]).decide([10] * 3) == []  # equals are not copied


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9), st.integers(0, 99))
def test_ranks_alone_count_so_negative_returns_rank_as_positive_ones_do(scores, seed):
    shifted = [score + 3e6 for score in scores]
    if len(set(scores)) == len(set(shifted)) == len(scores):
        ours, theirs = scored("truncation", scores, seed=seed), scored("truncation", shifted, seed=seed)
        found, same = ([(d.member, d.parent) for d in each.decide([10] * len(scores))] for each in (ours, theirs))
        assert found == same


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9, unique=True), st.integers(0, 99))
def test_in_a_tournament_whoever_copies_copies_a_better_one_and_before_that_one_is_replaced(scores, seed):
    decisions = scored("tournament", scores, seed=seed).decide([10] * len(scores))
    replaced = set()
    for decision in decisions:
        assert scores[decision.parent] > scores[decision.member] and decision.parent not in replaced
        replaced.add(decision.member)


def test_sample_factory_leaves_the_best_alone_changes_the_others_and_never_its_reference():
    population = scored("sample-factory", [2.0, 1.0, 3.0, 4.0], fraction=0.3)
    by_member = {decision.member: decision for decision in population.decide([10] * 4)}
    assert by_member.keys() == {0, 1} and all(by_member[number].parent in (2, 3) for number in (0, 1))
    assert by_member[0].after == START and set(by_member[0].operations.values()) == {"kept"}
    near = scored("sample-factory", [99.0, 95.0, 100.0, 98.0], fraction=0.3).decide([10] * 4)  # gaps below a tenth
    assert all(decision.event == "explore" and decision.parent is None for decision in near)


def test_settings_of_a_copy_are_its_parents_multiplied_by_a_factor_and_gamma_by_its_complement():
    found = {"learning_rate": set(), "gamma": set()}
    for seed in range(20):
        (decision,) = scored("truncation", [1.0, 2.0], fraction=0.5, seed=seed).decide([10, 10])
        for name, value in decision.after.items():
            found[name].add(round(value, 9))
    assert found == {"learning_rate": {0.0008, 0.0012}, "gamma": {0.992, 0.988}}  # 1 - 0.01 * 0.8, 1 - 0.01 * 1.2


def test_gamma_divided_by_a_factor():
    (_, gamma) = SPACE.dimensions
    assert gamma.multiplied(0.99, 1.2) == pytest.approx(0.988)
    assert gamma.multiplied(0.99, 1 / 1.2) == pytest.approx(0.991667, abs=1e-6)


@pytest.mark.long
@given(st.integers(0, 10_000), st.sampled_from(["truncation", "tournament", "sample-factory"]))
def test_no_setting_ever_leaves_its_bounds(seed, rule):
    population = scored(rule, [1.0, 2.0, 3.0], seed=seed, space=population_space(
        {"learning_rate": {"low": 9e-4, "high": 1.1e-3, "log": True, "perturb": [1e-9, 1e9]},
         "gamma": {"low": 0.98, "high": 0.995, "complement": True, "log": True}}, CONFIG))  # fmt: skip
    for turn in range(1, 6):
        for decision in population.decide([10 * turn] * 3):
            population.carried_out(decision)
            assert 9e-4 <= decision.after["learning_rate"] <= 1.1e-3 and 0.98 <= decision.after["gamma"] <= 0.995
        for member in range(3):
            population.add_scores(member, [float(member)])


def test_a_member_is_ready_after_the_start_and_an_interval_since_its_last_decision():
    population = Population(Rules("truncation", 10, 25, 0.5, 1), SPACE, [START] * 2, 0)
    population.add_scores(0, [1.0])
    population.add_scores(1, [2.0])
    assert population.decide([24, 24]) == [] and len(population.decide([25, 24])) == 1
    assert population.decide([34, 24]) == [] and len(population.decide([35, 24])) == 1


def test_scores_are_of_episodes_since_the_last_exploit_and_too_few_are_none():
    population = scored("truncation", [1.0, 2.0], fraction=0.5)
    (decision,) = population.decide([10, 10])
    assert population.score(0) == 1.0
    population.carried_out(decision)
    assert population.score(0) is None and population.members[0].settings == decision.after
    population.add_scores(0, [5.0])
    assert population.score(0) == 5.0
    needy = Population(Rules("truncation", 10, 10, 0.5, 3), SPACE, [START] * 2, 0)
    needy.add_scores(0, [1.0, 2.0])
    assert needy.score(0) is None
    needy.add_scores(0, [6.0])
    assert needy.score(0) == 3.0 and needy.decide([10, 10]) == []  # the other has none


def test_whoever_diverges_copies_one_of_the_best_and_not_for_ever():
    population = scored("truncation", [9.0, 1.0, 5.0])
    decision = population.rescue(0, 3)
    assert (decision.event, decision.member, decision.parent) == ("diverged", 0, 2)
    fresh = scored("truncation", [None, None])
    found = [fresh.rescue(number % 2, 3) for number in range(7)]
    assert [decision.parent for decision in found[:6]] == [1, 0] * 3 and found[6] is None


def test_copies_that_were_carried_out_do_not_make_the_failing_of_all_last_for_ever():
    population = scored("truncation", [None, None])
    for number in range(6):
        population.carried_out(population.rescue(number % 2, 3))
    assert population.rescue(0, 3) is None
    for member, score in enumerate((1.0, 2.0)):
        population.add_scores(member, [score])
    (exploit,) = population.decide([20, 20])
    population.carried_out(exploit)
    assert population.rescue(0, 30) is not None, "members that play on may fail anew"


def test_a_population_goes_on_from_its_state_as_if_nothing_had_been():
    def later(population):
        population.add_scores(0, [0.0])
        return [vars(decision) for decision in population.decide([20, 20, 20])]

    population = scored("truncation", [1.0, 2.0, 3.0])
    for decision in population.decide([10, 10, 10]):
        population.carried_out(decision)
    again = scored("truncation", [None, None, None])
    again.restore(json.loads(json.dumps(population.state())))
    assert (ours := later(population)) == later(again) and ours


def test_members_start_from_what_they_are_given_and_from_drawn_values_else():
    members = Population(Rules("truncation", 1, 1, 0.2, 1), SPACE, [{"gamma": 0.95}, {}, {}], 3).members
    assert members[0].settings["gamma"] == 0.95
    rates = [member.settings["learning_rate"] for member in members]
    assert len(set(rates)) == 3 and all(1e-5 <= rate <= 1e-2 for rate in rates)


@pytest.mark.parametrize("count", [1, 4, 7])
@pytest.mark.parametrize("seed", [0, 1])
def test_members_start_far_apart_in_each_setting(count, seed):
    members = Population(Rules("truncation", 1, 1, 0.2, 1), SPACE, [{}] * count, seed).members
    for dimension in SPACE.dimensions:
        values = np.array([member.settings[dimension.name] for member in members])
        ends = np.array([dimension.range.low, dimension.range.high])
        if dimension.complement:
            values, ends = 1.0 - values, 1.0 - ends[::-1]
        if dimension.range.log:
            values, ends = np.log(values), np.log(ends)
        shares = (values - ends[0]) / (ends[1] - ends[0])
        assert sorted(np.floor(shares * count).astype(int)) == list(range(count)), "one in each Nth of the range"


def test_a_logarithmic_range_is_drawn_in_orders_of_magnitude():
    rate = SPACE.dimensions[0]
    drawn = np.log10([rate.drawn(np.random.default_rng(seed)) for seed in range(300)])
    assert np.mean(drawn < -4) == pytest.approx(1 / 3, abs=0.1) and math.isclose(np.mean(drawn), -3.5, abs_tol=0.2)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_toy_of_the_paper_is_solved_by_a_population_and_not_by_a_grid_of_its_size(seed):
    assert toy(seed, pbt=True) >= 1.19 > toy(seed, pbt=False)
