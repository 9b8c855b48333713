"""Each observation, reward, boundary and final observation lands in its row, with every kind of lanes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.envs import EpisodeRecord, Lanes
from penstock.envs.single import SingleLanes
from tests.envs.altered import altered_lanes
from tests.envs.arrangements import ARRANGEMENTS, counting_lanes, episodes
from tests.envs.counting import Ending
from tests.envs.recorder import Recorder, Segment

ENDINGS: list[Ending] = [(2, "terminated"), (1, "truncated"), (1, "both"), (2, "truncated")]

# What one lane does in each step with the endings above:
# (episode, step) shown after it; is it an episode's first; reward; ending; was the step real; final observation
FIRST = True
LATER = False
REAL = True
RESET = False

EXPECTED = {
    "single": [
        ((0, 1), LATER, 1.0, "", REAL, None),
        ((1, 0), FIRST, 2.0, "terminated", REAL, None),
        ((1, 1), LATER, 1001.0, "truncated", REAL, None),
        ((2, 0), FIRST, 0.0, "", RESET, None),
        ((3, 0), FIRST, 2001.0, "terminated", REAL, None),
        ((3, 1), LATER, 3001.0, "", REAL, None),
        ((3, 2), LATER, 3002.0, "truncated", REAL, None),
        ((4, 0), FIRST, 0.0, "", RESET, None),
        ((4, 1), LATER, 4001.0, "", REAL, None),
    ],
    "next_step": [
        ((0, 1), LATER, 1.0, "", REAL, None),
        ((0, 2), LATER, 2.0, "terminated", REAL, None),
        ((1, 0), FIRST, 0.0, "", RESET, None),
        ((1, 1), LATER, 1001.0, "truncated", REAL, None),
        ((2, 0), FIRST, 0.0, "", RESET, None),
        ((2, 1), LATER, 2001.0, "terminated", REAL, None),
        ((3, 0), FIRST, 0.0, "", RESET, None),
        ((3, 1), LATER, 3001.0, "", REAL, None),
        ((3, 2), LATER, 3002.0, "truncated", REAL, None),
    ],
    "same_step": [
        ((0, 1), LATER, 1.0, "", REAL, None),
        ((1, 0), FIRST, 2.0, "terminated", REAL, None),
        ((2, 0), FIRST, 1001.0, "truncated", REAL, (1, 1)),
        ((3, 0), FIRST, 2001.0, "terminated", REAL, None),
        ((3, 1), LATER, 3001.0, "", REAL, None),
        ((4, 0), FIRST, 3002.0, "truncated", REAL, (3, 2)),
        ((4, 1), LATER, 4001.0, "", REAL, None),
        ((5, 0), FIRST, 4002.0, "terminated", REAL, None),
        ((6, 0), FIRST, 5001.0, "truncated", REAL, (5, 1)),
    ],
}
EXPECTED["disabled"] = EXPECTED["same_step"]


def one_step(lanes: Lanes, lane: int) -> tuple:
    lanes.step(np.zeros(lanes.num_lanes, np.int64))
    column = np.zeros((2 * lanes.num_lanes, 3), np.float32)
    lanes.write_observations(column, np.arange(lanes.num_lanes))
    lanes.write_finals(column, lanes.num_lanes + lanes.finals)
    final = tuple(column[lanes.num_lanes + lane, 1:].astype(int).tolist()) if lane in lanes.finals else None
    assert not (lanes.terminated & lanes.truncated).any()
    ending = "terminated" if lanes.terminated[lane] else "truncated" if lanes.truncated[lane] else ""
    shown = tuple(column[lane, 1:].astype(int).tolist())
    return shown, bool(lanes.first[lane]), float(lanes.reward[lane]), ending, bool(lanes.valid[lane]), final


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize("lane", [0, 1])
def test_every_step_reports_exactly_what_happened(arrangement: str, lane: int) -> None:
    others: list[Ending] = [(3, "truncated")]
    lanes = counting_lanes(arrangement, [ENDINGS, others] if lane == 0 else [others, ENDINGS])
    lanes.reset()
    assert [one_step(lanes, lane) for _ in range(9)] == EXPECTED[arrangement]
    lanes.close()


def test_single_environments_show_final_observations_of_terminated_episodes_too_on_request() -> None:
    lanes = counting_lanes("single", [ENDINGS])
    assert isinstance(lanes, SingleLanes)
    lanes.show_finals()
    lanes.reset()
    assert [one_step(lanes, 0) for _ in range(9)] == EXPECTED["next_step"]
    lanes.close()


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_after_a_reset_all_lanes_show_a_first_observation_and_nothing_was_stepped(arrangement: str) -> None:
    lanes = counting_lanes(arrangement, [[(1, "truncated")], [(1, "terminated")]])
    column = np.zeros((5, 3), np.float32)
    for _ in range(2):
        lanes.reset()
        assert lanes.first.all() and not lanes.valid.any() and not lanes.finals.size
        assert not lanes.terminated.any() and not lanes.truncated.any() and not lanes.reward.any()
        lanes.write_observations(column, np.array([3, 1]))
        assert column[[3, 1]][:, [0, 2]].tolist() == [[0, 0], [1, 0]] and not column[[0, 2, 4]].any()
        lanes.step(np.zeros(2, np.int64))
        assert lanes.truncated[0] and lanes.terminated[1]
    lanes.close()


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_a_reset_in_the_midst_forgets_boundaries_and_running_episodes(arrangement: str) -> None:
    lanes = counting_lanes(arrangement, [[(1, "truncated"), (2, "terminated")], [(3, "terminated")]])
    lanes.reset()
    lanes.step(np.zeros(2, np.int64))
    lanes.reset()
    lanes.take_episodes()
    lanes.step(np.zeros(2, np.int64))
    assert lanes.valid.all()
    for _ in range(2):
        lanes.step(np.zeros(2, np.int64))
    assert lanes.terminated[1]
    # Lane 1's second episode: rewards 1001, 1002 and 1003.
    assert EpisodeRecord(1, 3006.0, 3) in lanes.take_episodes()
    lanes.close()


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_episode_records_hold_true_returns_and_count_only_real_steps(arrangement: str) -> None:
    lanes = counting_lanes(arrangement, [ENDINGS])
    lanes.reset()
    for _ in range(9):
        lanes.step(np.zeros(1, np.int64))
    told = [(0, 3.0, 2), (0, 1001.0, 1), (0, 2001.0, 1)]
    assert lanes.take_episodes()[:3] == [EpisodeRecord(*episode) for episode in told]
    assert lanes.take_episodes() == []
    lanes.close()


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_metrics_are_averaged_over_all_real_steps_even_the_last_ones_of_episodes(arrangement: str) -> None:
    lanes = counting_lanes(arrangement, [[(3, "terminated")], [(3, "truncated")]])
    lanes.reset()
    assert lanes.take_metrics() == {}
    for _ in range(3):
        lanes.step(np.zeros(2, np.int64))
    assert lanes.take_metrics() == {"progress": 2.0}
    assert lanes.take_metrics() == {}
    lanes.close()


def test_what_a_vector_environment_says_of_its_reset_rows_is_not_believed() -> None:
    lanes = altered_lanes(lambda obs, reward, terminated, *rest: (obs, reward + 5, ~terminated, *rest))
    lanes.reset()
    lanes.step(np.zeros(3, np.int64))
    assert lanes.terminated.all() and lanes.reward.tolist() == [5, 5, 5]
    lanes.step(np.zeros(3, np.int64))
    assert not lanes.terminated.any() and not lanes.valid.any() and lanes.reward.tolist() == [0, 0, 0]
    lanes.step(np.zeros(3, np.int64))
    assert lanes.take_episodes() == [EpisodeRecord(lane, 5.0, 1) for lane in (0, 1, 2, 0, 1, 2)]


@pytest.mark.filterwarnings("error")
def test_returns_of_single_precision_rewards_are_summed_in_double_precision() -> None:
    rewards = iter([2.0**24, 1.0])
    lanes = altered_lanes(lambda obs, reward, *rest: (obs, np.full(3, next(rewards), np.float32), *rest),
                          step_answers={2: (np.zeros(2, np.float32), 0.0, True, False, {})})  # fmt: skip
    lanes.reset()
    for _ in range(2):
        lanes.step(np.zeros(3, np.int64))
    assert lanes.take_episodes() == [EpisodeRecord(2, 2.0**24 + 1, 2)]


@settings(max_examples=150)
@given(
    arrangement=st.sampled_from(ARRANGEMENTS),
    length=st.integers(1, 6),
    endings_of_lanes=st.lists(st.lists(episodes, min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_segments_hold_every_step_once_and_in_order_with_true_successors(
    arrangement: str, length: int, endings_of_lanes: list[list[Ending]]
) -> None:
    lanes = counting_lanes(arrangement, endings_of_lanes)
    recorder = Recorder(lanes, length)
    recorder.play(24)
    lanes.close()
    for lane, endings in enumerate(endings_of_lanes):
        assert len(recorder.finished[lane]) >= 24 // length
        require_faithful(recorder.finished[lane], lane, endings)


def test_an_episode_that_ends_with_its_segment_has_its_final_observation_in_the_last_row() -> None:
    for arrangement in ARRANGEMENTS:
        lanes = counting_lanes(arrangement, [[(2, "truncated")]])
        recorder = Recorder(lanes, length=2)
        recorder.play(2)
        segment = recorder.finished[0][0]
        assert segment.observation.tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 2]]
        assert segment.first.tolist() == [True, False, False]
        assert segment.truncated.tolist() == [False, True]
        lanes.close()


def require_faithful(segments: list[Segment], lane: int, endings: list[Ending]) -> None:
    """Walk through a lane's segments beside what its environment is known to do."""
    episode, count = 0, 0
    for segment in segments:
        for t in range(len(segment.reward)):
            assert segment.first[t] == (segment.observation[t, 2] == 0)
            if not segment.valid[t]:
                # A final row: it shows the end of the episode before, and the next row the new episode.
                assert segment.observation[t].tolist() == [lane, episode - 1, endings[(episode - 1) % len(endings)][0]]
                assert segment.observation[t + 1].tolist() == [lane, episode, 0] and segment.first[t + 1]
                assert segment.reward[t] == 0 and not segment.terminated[t] and not segment.truncated[t]
                continue
            assert segment.observation[t].tolist() == [lane, episode, count]
            count += 1
            assert segment.reward[t] == 1000 * episode + count
            ending = endings[episode % len(endings)]
            is_over = count == ending[0]
            assert segment.terminated[t] == (is_over and ending[1] != "truncated")
            assert segment.truncated[t] == (is_over and ending[1] == "truncated")
            if not segment.terminated[t]:
                assert segment.observation[t + 1].tolist() == [lane, episode, count] and not segment.first[t + 1]
            if is_over:
                episode, count = episode + 1, 0
