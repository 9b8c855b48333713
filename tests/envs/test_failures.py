"""Failures name the environment, the lane, the step and the cause, and travel between processes."""

from __future__ import annotations

import pickle
import re
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorWrapper

from penstock.envs import EnvironmentFailure, Lanes, UnsupportedSpaceError
from penstock.envs.single import SingleLanes
from penstock.envs.vector import VectorLanes
from tests.envs.altered import AlteredVector, altered_lanes
from tests.envs.faulty import GOOD, FaultyEnv

NO_ACTION = np.zeros(3, np.int64)


def lanes_with(faulty: FaultyEnv) -> SingleLanes:
    """Three lanes of a run, numbers 10 to 12, of which the last is faulty."""
    return SingleLanes([FaultyEnv(), FaultyEnv(), faulty], [0, 1, 2], name="faulty", first_lane=10)


def play(lanes: Lanes, num_steps: int = 5) -> None:
    column = np.zeros((lanes.num_lanes, *lanes.observation.shape), lanes.observation.dtype)
    lanes.reset()
    lanes.write_observations(column, np.arange(lanes.num_lanes))
    for _ in range(num_steps):
        lanes.step(NO_ACTION[: lanes.num_lanes])
        lanes.write_observations(column, np.arange(lanes.num_lanes))


def failure_of(lanes: Lanes) -> EnvironmentFailure:
    with pytest.raises(EnvironmentFailure) as caught:
        play(lanes)
    return caught.value


def where(failure: EnvironmentFailure) -> tuple[str, int | None, int]:
    return failure.phase, failure.lane, failure.step


def test_an_exception_in_step_names_lane_and_step_and_keeps_its_traceback_across_processes() -> None:
    failure = failure_of(lanes_with(FaultyEnv(step_answers={4: KeyError("no such joint")})))
    assert where(failure) == ("step", 12, 4)
    assert isinstance(failure.__cause__, KeyError)
    copy = pickle.loads(pickle.dumps(failure))
    assert str(copy) == str(failure) and where(copy) == where(failure) and copy.env == "faulty"
    for part in ("environment faulty", "lane 12", "step 4", "no such joint", "faulty.py", "Traceback"):
        assert part in str(copy)


def test_an_exception_in_the_first_reset_is_at_step_zero() -> None:
    assert where(failure_of(lanes_with(FaultyEnv(reset_answers={1: OSError("no display")})))) == ("reset", 12, 0)


def test_an_exception_in_the_reset_after_a_termination_names_the_step() -> None:
    ended = (GOOD, 0.0, True, False, {})
    faulty = FaultyEnv(step_answers={2: ended}, reset_answers={2: OSError("gone")})
    assert where(failure_of(lanes_with(faulty))) == ("reset", 12, 2)


def test_an_exception_in_the_reset_after_a_truncation_names_the_step_that_was_to_resume() -> None:
    ended = (GOOD, 0.0, False, True, {})
    faulty = FaultyEnv(step_answers={2: ended}, reset_answers={2: OSError("gone")})
    assert where(failure_of(lanes_with(faulty))) == ("reset", 12, 3)


def test_an_interrupt_is_no_environment_failure() -> None:
    with pytest.raises(KeyboardInterrupt):
        play(lanes_with(FaultyEnv(step_answers={1: KeyboardInterrupt()})))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((GOOD, 0.0, False, {}), r"must return \(observation, reward, terminated, truncated, info\), found a tuple"),
        (None, "found a NoneType: None"),
        ((GOOD, np.zeros(1), False, False, {}), "a single number as reward, found a ndarray"),
        ((GOOD, None, False, False, {}), "a single number as reward, found a NoneType"),
        ((GOOD, "1.0", False, False, {}), "a single number as reward, found a str"),
        ((GOOD, 1j, False, False, {}), "a single number as reward, found a complex"),
        ((GOOD, 0.0, None, False, {}), "a single number as terminated, found a NoneType"),
        ((GOOD, 0.0, False, np.zeros(2, bool), {}), "a single number as truncated, found a ndarray"),
        ((GOOD, float("nan"), False, False, {}), "expected a finite float32 reward, found nan"),
        ((GOOD, -np.inf, False, False, {}), "expected a finite float32 reward, found -inf"),
        ((GOOD, 1e300, False, False, {}), "expected a finite float32 reward, found 1e\\+300"),
        ((GOOD, 1e39, False, False, {}), r"expected a finite float32 reward, found 1e\+39"),
        ((np.zeros(3, np.float32), 0.0, False, False, {}), r"observation of shape \(2,\), found \(3,\)"),
        ((np.float32(0.0), 0.0, False, False, {}), r"observation of shape \(2,\), found \(\)"),
        ((np.array(["a", "b"]), 0.0, False, False, {}), "observation of dtype float32, found <U1"),
        ((np.array([0.0, np.nan]), 0.0, False, False, {}), "expected a finite observation"),
        (([0.0, np.inf], 0.0, False, False, {}), "expected a finite observation"),
        (([1, [2, 3]], 0.0, False, False, {}), r"observation of shape \(2,\), found a list that is not an array"),
        ((GOOD, 0.0, False, False, "won"), r"step\(\) must return a dict as info, found a str: 'won'"),
        ((GOOD, 0.0, False, False, np.ones(2)), "a dict as info, found a ndarray"),
        ((GOOD, 0.0, False, False, {"metrics": 3}), r"info\['metrics'\] to be a dict of numbers .*, found a int: 3"),
        ((GOOD, 0.0, False, False, {"metrics": None}), r"info\['metrics'\] to be a dict .*, found a NoneType"),
    ],
)
def test_a_malformed_step_is_refused_with_what_was_found_and_what_is_legal(answer: Any, message: str) -> None:
    failure = failure_of(lanes_with(FaultyEnv(step_answers={3: answer})))
    assert where(failure) == ("step", 12, 3)
    assert re.search(message, str(failure))


def test_rewards_may_be_any_kind_of_number() -> None:
    answers = [1, True, np.float32(0.5), np.int8(2), np.array(0.25), np.float64(3.0)]
    faulty = FaultyEnv(step_answers={n + 1: (GOOD, reward, False, False, {}) for n, reward in enumerate(answers)})
    lanes = SingleLanes([faulty], [0], name="numbers")
    lanes.reset()
    rewards = []
    for _ in answers:
        lanes.step(NO_ACTION[:1])
        rewards.append(lanes.reward[0])
    assert rewards == [1.0, 1.0, 0.5, 2.0, 0.25, 3.0]


def test_a_large_finite_reward_is_no_failure() -> None:
    lanes = SingleLanes([FaultyEnv(step_answers={1: (GOOD, 1e38, False, False, {})})], [0], name="large")
    play(lanes, 1)
    assert lanes.reward[0] == np.float32(1e38)


@pytest.mark.parametrize("answer", [GOOD, (GOOD, {}, {}), None])
def test_a_reset_that_does_not_return_observation_and_info_is_refused(answer: Any) -> None:
    failure = failure_of(lanes_with(FaultyEnv(reset_answers={1: answer})))
    assert where(failure) == ("reset", 12, 0)
    assert "reset() must return (observation, info)" in str(failure)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (([1, [2, 3]], {}), "found a list that is not an array"),
        ((GOOD, [1]), r"reset\(\) must return a dict as info, found a list"),
        ((GOOD, {"metrics": [1]}), r"info\['metrics'\] to be a dict of numbers by name, found a list"),
    ],
)
def test_a_malformed_answer_of_a_reset_is_refused(answer: Any, message: str) -> None:
    failure = failure_of(lanes_with(FaultyEnv(reset_answers={1: answer})))
    assert where(failure) == ("reset", 12, 0)
    assert re.search(message, str(failure))


def test_a_bad_observation_of_a_reset_is_the_resets_failure() -> None:
    failure = failure_of(lanes_with(FaultyEnv(reset_answers={1: (np.array([np.nan, 0.0], np.float32), {})})))
    assert where(failure) == ("reset", 12, 0)


def test_lanes_with_different_spaces_are_refused() -> None:
    wide = FaultyEnv(gymnasium.spaces.Box(-1, 1, (5,), np.float32))
    with pytest.raises(EnvironmentFailure, match=r"lane 1.*float32 \(2,\).*found float32 \(5,\)"):
        SingleLanes([FaultyEnv(), wide], [0, 1], name="mixed")


def test_close_closes_every_environment_even_after_one_failed_to() -> None:
    closed = []
    envs = [FaultyEnv(close_error=OSError("stuck")), FaultyEnv()]
    envs[1].close = lambda: closed.append(1)  # type: ignore[method-assign]
    lanes = SingleLanes(envs, [0, 1], name="faulty")
    with pytest.raises(EnvironmentFailure, match="stuck") as caught:
        lanes.close()
    assert where(caught.value) == ("close", 0, 0) and closed == [1]
    lanes.close()
    assert closed == [1]


def test_actions_of_the_wrong_number_are_the_callers_mistake() -> None:
    for lanes in (lanes_with(FaultyEnv()), altered_lanes()):
        with pytest.raises(ValueError, match=r"expected .*3 .* after a reset"):
            lanes.step(NO_ACTION)
        lanes.reset()
        with pytest.raises(ValueError, match="found 2 actions"):
            lanes.step(NO_ACTION[:2])


@pytest.mark.parametrize(
    ("alter", "lane", "message"),
    [
        (lambda o, r, te, tr, i: (o, r, te, i), None, "must return"),
        (lambda o, r, te, tr, i: (o, r[:2], te, tr, i), None, r"expected rewards.*found float64 of shape \(2,\)"),
        (lambda o, r, te, tr, i: (o, r, te.astype(object), tr, i), None, "expected terminations.*found object"),
        (lambda o, r, te, tr, i: (o, r, te, tr[:, None], i), None, r"expected truncations.*shape \(3, 1\)"),
        (lambda o, r, te, tr, i: (o, r * [1, np.nan, 1], te, tr, i), 11, "finite float32 reward, found nan"),
        (lambda o, r, te, tr, i: (o[:, :1], r, te, tr, i), None, r"shape \(3, 2\), found \(3, 1\)"),
        (lambda o, r, te, tr, i: ([[1, 2], [1, [2, 3]], [1, 2]], r, te, tr, i), None, "found a list that is not"),
        (lambda o, r, te, tr, i: (o, r, te, tr, [{}, {}, {}]), None, "must return a dict as infos, found a list"),
        (lambda o, r, te, tr, i: (o, r, te, tr, {"metrics": r}), None, "to be a dict of numbers by name, found a nd"),
        (lambda o, r, te, tr, i: (o.astype(complex), r, te, tr, i), None, "dtype float32, found complex"),
        (lambda o, r, te, tr, i: (o + np.array([[0], [0], [np.inf]]), r, te, tr, i), 12, "finite observation"),
    ],
)
def test_a_vector_environments_malformed_step_is_refused(alter: Any, lane: int | None, message: str) -> None:
    failure = failure_of(altered_lanes(alter))
    assert where(failure) == ("step", lane, 1)
    assert re.search(message, str(failure))


def test_an_exception_in_a_vector_environment_names_the_step() -> None:
    failure = failure_of(altered_lanes(step_answers={3: KeyError("no such joint")}))
    assert where(failure) == ("step", None, 3)
    assert "every lane" in str(failure) and "no such joint" in str(failure)


def test_an_exception_in_a_masked_reset_is_the_resets_failure() -> None:
    ended = (GOOD, 0.0, True, False, {})
    lanes = altered_lanes(None, AutoresetMode.DISABLED, step_answers={2: ended}, reset_answers={2: OSError("gone")})
    assert where(failure_of(lanes)) == ("reset", None, 2)


def test_a_final_observation_that_is_missing_or_bad_is_refused() -> None:
    ended = (np.array([0.0, np.nan], np.float32), 0.0, False, True, {})
    for mode in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED):
        lanes = altered_lanes(None, mode, step_answers={2: ended})
        play(lanes, 2)
        assert lanes.finals.tolist() == [2]
        with pytest.raises(EnvironmentFailure, match="finite observation") as caught:
            lanes.write_finals(np.zeros((1, 2), np.float32), np.zeros(1, np.int64))
        assert where(caught.value) == ("step", 12, 2)
        assert ("info['final_obs']: expected" in str(caught.value)) == (mode is AutoresetMode.SAME_STEP)

    lanes = altered_lanes(lambda o, r, te, tr, i: (o, r, te, tr, {}), AutoresetMode.SAME_STEP, step_answers={2: ended})
    failure = failure_of(lanes)
    assert where(failure) == ("step", 12, 2) and "info['final_obs']" in str(failure)


def test_final_observations_that_numpy_has_joined_in_an_array_of_objects_are_written() -> None:
    def joined(o: Any, r: Any, te: Any, tr: Any, i: Any) -> Any:
        return o, r, te, tr, {"final_obs": np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], object)}

    ended = (GOOD, 0.0, False, True, {})
    lanes = altered_lanes(joined, AutoresetMode.SAME_STEP, step_answers={1: ended})
    play(lanes, 1)
    finals = np.zeros((1, 2), np.float32)
    lanes.write_finals(finals, np.zeros(1, np.int64))
    assert finals.tolist() == [[5.0, 6.0]]


def test_a_ragged_observation_before_a_masked_reset_is_refused() -> None:
    ended = (GOOD, 0.0, False, True, {})

    def ragged(o: Any, r: Any, te: Any, tr: Any, i: Any) -> Any:
        return [GOOD, GOOD, [1, [2, 3]]], r, te, tr, i

    lanes = altered_lanes(ragged, AutoresetMode.DISABLED, step_answers={1: ended})
    lanes.reset()
    lanes.step(NO_ACTION)
    with pytest.raises(EnvironmentFailure, match="found a list that is not an array") as caught:
        lanes.write_finals(np.zeros((1, 2), np.float32), np.zeros(1, np.int64))
    assert where(caught.value) == ("step", 12, 1)


def test_a_vector_environment_must_say_how_it_resets() -> None:
    env = VectorWrapper(AlteredVector())
    env.metadata = {}  # overrules that of the environment inside
    with pytest.raises(EnvironmentFailure, match=r"found None, legal are .*NEXT_STEP.*SAME_STEP.*DISABLED"):
        VectorLanes(env, [0, 1, 2], name="silent")


def test_unsupported_spaces_are_refused_when_lanes_are_made() -> None:
    with pytest.raises(UnsupportedSpaceError, match="observation space"):
        SingleLanes([FaultyEnv(gymnasium.spaces.Text(3))], [0], name="words")


class Copied(FaultyEnv):
    """Pickles in its reset what its process cannot find by name, as `multiprocessing` with "spawn" does."""

    def reset(self, **given: Any) -> Any:
        work = type("Work", (), {"__module__": "__main__"})
        return pickle.dumps(work)


@pytest.mark.parametrize("is_full", [True, False])
def test_an_environment_that_finds_no_room_in_dev_shm_says_so(is_full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "no multiprocessing.Lock can be made in /dev/shm" if is_full else None
    monkeypatch.setattr("penstock.envs.failures.problem_of_locks", lambda: reason)
    failure = EnvironmentFailure.of("Async", "make", None, 0, OSError(28, "No space left on device"))
    assert ("--shm-size=1g" in str(failure)) == is_full


def test_of_what_pickle_does_not_find_by_its_name_the_failure_says_that_it_is_a_copy_and_what_to_do() -> None:
    failure = failure_of(SingleLanes([Copied()], [0], name="copied"))
    assert "PicklingError" in str(failure) and "code of a script, a notebook or a loose file is a copy" in str(failure)
    assert "env='module:Class'" in str(failure)
