"""The schedule that a lineage holds: with which settings weights were learned, wherever they were learned."""

import json

import pytest

from penstock.config import ConfigError
from penstock.population.schedule import load_schedule, schedule_of, settings_at


def event(policy, steps, rate, what="set", **more):
    return {"event": what, "policy": policy, "steps": steps, "after": {"learning_rate": rate}, **more}


def copy(policy, steps, rate, parent, parent_steps, **more):
    return event(policy, steps, rate, "exploit", parent=parent, parent_steps=parent_steps, version=7, **more)


def written(path, *events):
    path.write_text("".join(f"{json.dumps(each)}\n" for each in events))
    return path


@pytest.fixture
def lineage(tmp_path):
    return written(
        tmp_path / "lineage.jsonl",
        event("a", 0, 1.0, "start"),
        event("b", 0, 2.0, "start"),
        event("a", 100, 3.0),
        event("b", 60, 2.5, "explore", parent=None, version=None),
        copy("b", 80, 4.0, "a", 120, scores={"a": 9.0, "b": 1.0}),
        event("a", 150, 9.0),
        event("b", 180, 5.0, "explore", parent=None, version=None),
        copy("a", 300, 6.0, "b", 200, scores={"a": 2.0, "b": 3.0}),
        event("b", 400, 7.0, scores={"a": None, "b": None}),
    )


def rates(schedule):
    return {steps: values["learning_rate"] for steps, values in schedule.items()}


def test_a_schedule_goes_by_the_steps_of_the_weights_and_begins_with_the_first_ancestor(lineage):
    # b had 80 steps of its own when it copied a, which had 120: its step 180 is step 120 + 100 of these weights.
    of_b = {0: 1.0, 100: 3.0, 120: 4.0, 220: 5.0, 440: 7.0}
    assert rates(load_schedule(lineage, "b")) == of_b
    # a copied b at b's step 200, which is step 240 of the weights; what b did later is no concern of a's.
    assert rates(load_schedule(lineage, "a")) == {0: 1.0, 100: 3.0, 120: 4.0, 220: 5.0, 240: 6.0}


def test_without_a_name_it_is_the_policy_with_the_best_of_the_last_scores(lineage):
    assert load_schedule(lineage) == load_schedule(lineage, "b")
    with lineage.open("a") as file:  # a policy that is replaced in spite of its score is not what was scored
        file.write(json.dumps(copy("b", 500, 8.0, "a", 600, scores={"a": 2.0, "b": 3.0})) + "\n")
    assert load_schedule(lineage.parent) == load_schedule(lineage, "a")


def test_who_was_to_copy_weights_that_were_not_there_yet_keeps_its_own(tmp_path):
    rescued = event("b", 40, 3.0, "diverged", parent="a", parent_steps=None, version=None, scores={})
    path = written(tmp_path / "l", event("a", 0, 1.0, "start"), event("b", 0, 2.0, "start"), rescued)
    assert rates(load_schedule(path, "b")) == {0: 2.0, 40: 3.0}


def test_a_line_that_is_not_finished_is_none(lineage):
    whole = load_schedule(lineage)
    with lineage.open("a") as file:
        file.write('{"policy": "b", "eve')
    assert load_schedule(lineage) == whole


def test_settings_hold_from_their_step_on_until_another_names_them():
    schedule = {0: {"gamma": 0.9, "learning_rate": 1.0}, 10: {"learning_rate": 2.0}}
    assert settings_at(schedule, 9) == {"gamma": 0.9, "learning_rate": 1.0}
    assert settings_at(schedule, 10) == {"gamma": 0.9, "learning_rate": 2.0}


def test_a_schedule_that_is_given_may_have_the_keys_of_json_and_is_put_in_order():
    given = {"10": {"gamma": 1}, "9": {"gamma": 0.5}}
    for each in (given, f" {json.dumps(given)}"):  # a command line gives text
        assert list(schedule_of(each, None).items()) == [(9, {"gamma": 0.5}), (10, {"gamma": 1.0})]


@pytest.mark.parametrize(
    ("content", "policy", "message"),
    [
        ("", None, r"lineage.jsonl is no lineage: it is empty; give lineage.jsonl of a population, or the directory"),
        ('{"steps": 0}\n', None, "is no lineage: line 1 is no event of a policy; give lineage.jsonl"),
        (json.dumps(event("prey", 0, 1.0, "start")) + "\nsteps\n", None, "is no lineage: line 2"),
        (json.dumps(event("prey", 0, 1.0, "start")) + "\n", "pray", "no policy 'pray'; did you mean 'prey'.*are prey"),
        (json.dumps(event("prey", 0, 1.0, "start")) + "\n", None, "no scores yet.*name one of prey"),
        (json.dumps(event("b", 9, 1.0, "exploit", parent="a", version=1)) + "\n", "b", "written by an older version"),
    ],
)  # fmt: skip
def test_what_is_no_lineage_is_refused(tmp_path, content, policy, message):
    (tmp_path / "lineage.jsonl").write_text(content)
    with pytest.raises(ConfigError, match=message):
        load_schedule(tmp_path, policy)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nowhere", "schedule: the lineage nowhere cannot be read: No such file .*; give lineage.jsonl of a popul"),
        ({}, r"schedule: it is empty: give {steps: {setting: value}}, or schedule=None for no schedule"),
        ("{}", "schedule: it is empty"),
        ('{"0": {"gamma": 0.9}', r"schedule: '{\"0.*' is not JSON \(Expecting .*\): write it as '{\"0\": .*, or"),
        ("{0: {}}", "schedule: '{0: {}}' is not JSON"),
        ('{"0": 0.9}', "schedule: 0: 0.9 is not legal"),
        ({"soon": {"gamma": 0.9}}, "schedule: 'soon': .* give steps and"),
        ({-1: {"gamma": 0.9}}, "schedule: -1: .* is not legal"),
        ({0: 0.9}, "schedule: 0: 0.9 is not legal"),
        ({0: {"gamma": "high"}}, "schedule: gamma='high' is not legal"),
    ],
)
def test_what_is_no_schedule_is_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        schedule_of(given, None)
