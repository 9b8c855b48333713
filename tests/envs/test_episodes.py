"""Scores are summed exactly, and metrics averaged over the lanes that reported."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from penstock.envs.lanes import EpisodeBook, EpisodeRecord, MetricMeans
from penstock.envs.vector import VectorLanes
from tests.envs.arrangements import ARRANGEMENTS, lanes_of
from tests.envs.counting import CountingEnv, counting_vector

NONE: list[int] = []


def test_returns_are_summed_in_double_precision() -> None:
    book = EpisodeBook(1)
    valid = np.ones(1, np.bool_)
    book.add(np.array([2.0**24]), valid, NONE)
    book.add(np.array([1.0]), valid, [0])
    assert book.take() == [EpisodeRecord(0, 2.0**24 + 1, 2)]


def test_a_reset_row_is_no_step() -> None:
    book = EpisodeBook(2)
    book.add(np.array([1.0, 1.0]), np.array([True, True]), [1])
    book.add(np.array([1.0, 0.0]), np.array([True, False]), NONE)
    book.add(np.array([1.0, 1.0]), np.array([True, True]), [0, 1])
    assert book.take() == [EpisodeRecord(1, 1.0, 1), EpisodeRecord(0, 3.0, 3), EpisodeRecord(1, 1.0, 1)]


def test_vector_environments_that_share_metadata_keep_their_own_modes() -> None:
    """With ALE, and with Gymnasium before 1.4, the metadata of a class names the mode of its last environment."""
    endings = [[(2, "terminated"), (3, "truncated")], [(4, "truncated")]]
    envs = [counting_vector(endings, mode) for mode in AutoresetMode]
    for env in envs:
        env.metadata = envs[-1].metadata
    for env, steps_of_a_reset in zip(envs, (1, 0, 0), strict=True):
        lanes = VectorLanes(env, [0, 1], name="counting")
        lanes.reset()
        # Two episodes of lane 0, and the next ones' first steps.
        for _ in range(2 + 3 + 2 * steps_of_a_reset + 1):
            lanes.step(np.zeros(2, np.int64))
        found = {(episode.lane, episode.length, episode.episode_return) for episode in lanes.take_episodes()}
        assert found == {(0, 2, 1.0 + 2.0), (0, 3, 3 * 1000 + 1.0 + 2.0 + 3.0), (1, 4, 1.0 + 2.0 + 3.0 + 4.0)}
        lanes.close()


class Succeeding(CountingEnv):
    """Reports success in every step, true in every second episode; lane 1 reports nothing."""

    def step(self, action):
        *outcome, info = super().step(action)
        is_last = self.count == self.endings[self.episode % len(self.endings)][0]
        success = np.float32(self.episode % 2 if is_last else 1 - self.episode % 2)
        return *outcome, info if self.tag == 1 else {**info, "is_success": success}


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_an_episodes_success_is_what_its_last_step_says(arrangement: str) -> None:
    endings = [(2, "terminated"), (3, "truncated"), (1, "truncated"), (1, "terminated")]
    makers = [partial(Succeeding, lane, endings) for lane in range(3)]
    lanes = lanes_of(arrangement, makers, name="succeeding")
    lanes.reset()
    for _ in range(14):
        lanes.step(np.zeros(3, np.int64))
    episodes = lanes.take_episodes()
    for lane in range(3):
        successes = [episode.success for episode in episodes if episode.lane == lane]
        assert len(successes) >= 4
        assert successes == [None if lane == 1 else float(number % 2) for number in range(len(successes))]
    lanes.close()


@pytest.mark.parametrize("success", ["yes", None, np.zeros(2), {}])
def test_a_success_that_is_no_number_is_passed_over(success: object) -> None:
    book = EpisodeBook(1)
    book.add(np.array([1.0]), np.ones(1, np.bool_), [0])
    book.add_success(0, success)
    assert book.take() == [EpisodeRecord(0, 1.0, 1, None)]


def test_numbers_of_any_kind_are_averaged_by_name_and_the_rest_is_passed_over() -> None:
    means = MetricMeans()
    means.add({"coins": 3, "won": True, "name": "x", "path": [1, 2]})
    means.add({"coins": np.float32(0.5), "won": np.bool_(False)})
    assert means.take() == {"coins": 1.75, "won": 0.5}


def test_lanes_that_did_not_report_do_not_count() -> None:
    means = MetricMeans()
    mask = np.array([True, False, True])
    means.add_batch({"coins": np.array([1.0, 0.0, 4.0]), "_coins": mask, "names": np.array(["a", None, "b"], object)})
    nobody = np.zeros(3, np.bool_)
    means.add_batch({"coins": np.array([7.0]), "height": 2.5, "grid": np.ones((3, 3))})
    means.add_batch({"idle": np.ones(3), "_idle": nobody})
    assert means.take() == pytest.approx({"coins": 4.0, "height": 2.5})
