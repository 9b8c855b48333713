"""The objective of a training: golden numbers, and evaluations as files have them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.algorithms.appo import APPOConfig
from penstock.runs.episodes import EPISODES, episode_lines
from penstock.runs.files import LinesLog
from penstock.search.objective import Evaluated, read_evaluations, rung, score


def evaluations(*returns: float, every: int = 10) -> list[Evaluated]:
    return [Evaluated(every * (i + 1), 0.1 * i, mean) for i, mean in enumerate(returns)]


def test_the_evaluations_of_the_last_third_count():
    # Steps 10 to 90; more than 60 are 70, 80 and 90: (7 + 8 + 12) / 3.
    assert score(evaluations(1, 2, 3, 4, 500, 6, 7, 8, 12)) == 9.0


def test_a_good_moment_is_no_good_training():
    steady, lucky = evaluations(*[100.0] * 20), evaluations(*[90.0] * 16, 300.0, 0.0, 10.0, 0.0)
    assert score(lucky) < score(steady)


@pytest.mark.parametrize(("returns", "expected"), [((5.0,), 5.0), ((1.0, 5.0), 5.0), ((1.0, 3.0, 5.0), 5.0)])
def test_of_few_evaluations_the_last_one_counts(returns, expected):
    assert score(evaluations(*returns)) == expected


def test_weights_that_learned_nothing_have_a_score():
    assert score([Evaluated(0, 0.0, 20.0)]) == 20.0


def test_without_an_evaluation_there_is_no_score():
    with pytest.raises(ValueError, match="without evaluations"):
        score([])


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(-1e6, 1e6)), min_size=1, max_size=30))
def test_the_score_is_brute_force_over_the_last_third(gaps):
    steps, found = 0, []
    for gap, mean in gaps:
        steps += gap
        found.append(Evaluated(steps, 0.0, mean))
    late = [one.mean_return for one in found if 3 * one.steps > 2 * steps]
    assert score(found) == pytest.approx(sum(late) / len(late), rel=1e-9, abs=1e-6)
    assert min(late) - 1e-6 <= score(found) <= max(late) + 1e-6


def test_evaluations_are_read_as_a_run_writes_them(tmp_path):
    log = LinesLog(tmp_path / EPISODES, warn=pytest.fail)
    log.write(episode_lines(1000, 1.5, 10, [10.0, 20.0], [10, 20]))
    log.write(episode_lines(2000, 2.5, 20, [30.0, 60.0], [30, 60], unfinished=1))
    log.close()
    assert read_evaluations(tmp_path) == [Evaluated(1000, 1.5, 15.0), Evaluated(2000, 2.5, 45.0)]


def test_a_run_that_has_not_been_evaluated_has_none(tmp_path):
    assert read_evaluations(tmp_path) == []


def line(steps: int, seconds: float, value: float | None) -> str:
    return json.dumps({"steps": steps, "seconds": seconds, "return": value}) + "\n"


def test_what_was_evaluated_again_after_a_resume_counts_once(tmp_path):
    told = [line(10, 1.0, 1), line(20, 2.0, 2), line(30, 3.0, 3), line(20, 2.5, 7), line(30, 3.5, 8)]
    (tmp_path / "evaluations.jsonl").write_text("".join(told))
    assert [(one.steps, one.mean_return) for one in read_evaluations(tmp_path)] == [(10, 1), (20, 7), (30, 8)]


def test_a_line_that_is_half_written_does_not_count_yet(tmp_path):
    whole = line(10, 1.0, 1) + line(20, 2.0, 2)
    for cut in range(len(line(10, 1.0, 1)), len(whole)):
        (tmp_path / "evaluations.jsonl").write_text(whole[:cut])
        assert [one.steps for one in read_evaluations(tmp_path)] == [10]
    killed = line(10, 1.0, 1) + '{"steps": 2\n' + line(20, 2.0, 2)  # ended by the process that went on
    (tmp_path / "evaluations.jsonl").write_text(killed)
    assert [one.steps for one in read_evaluations(tmp_path)] == [10, 20]


def test_a_return_that_is_no_number_does_not_count(tmp_path):
    (tmp_path / "evaluations.jsonl").write_text(line(10, 1.0, None) + line(10, 1.0, 4) + line(20, 2.0, None))
    assert read_evaluations(tmp_path) == [Evaluated(10, 1.0, 4.0)]


def test_rungs_are_twentieths_of_the_budget_that_ends_first():
    config = APPOConfig(env="CartPole-v1", total_steps=1000)
    assert [rung(Evaluated(steps, 99.0, 0.0), config) for steps in (0, 49, 50, 250, 999, 1000, 1100)] == [
        0, 0, 1, 5, 19, 20, 20,
    ]  # fmt: skip
    timed = APPOConfig(env="CartPole-v1", total_steps=1000, max_seconds=100.0)
    assert rung(Evaluated(250, 50.0, 0.0), timed) == 10
    assert rung(Evaluated(250, 5.0, 0.0), timed) == 5
