"""The feed: what lanes write comes out once and in order, and what is not read in time is noticed."""

import numpy as np
import pytest

from penstock.algorithms.ppo import PPO
from penstock.engine.messages import Note
from penstock.engine.preparation import run_shape
from penstock.experience.arena import Control
from penstock.rudder import redistributor
from penstock.rudder.feed import ROUNDS, Feed
from penstock.rudder.paths import RedistributedSegmentPath
from penstock.rudder.redistributor import Assembly, Redistributor
from tests.engine.collecting import Collecting
from tests.engine.reports import Reports
from tests.envs.counting import CountingEnv

ENDINGS = ((5, "terminated"), (3, "truncated"), (11, "terminated"))
SETTINGS = {"env": CountingEnv, "env_kwargs": {"endings": ENDINGS}, "num_envs_per_worker": 2, "segment_length": 4,
            "batch_size": 8, "rewards": "rudder"}  # fmt: skip


class Feeding(Collecting):
    """A run whose lanes feed what they write."""

    def begin(self):
        self.feed = Feed.make(run_shape(self.algorithm, self.model))
        return RedistributedSegmentPath(self.algorithm, self.feed)


@pytest.fixture
def run():
    """Two lanes that count."""
    feeding = Feeding(PPO, **SETTINGS)
    yield feeding
    feeding.close()


def numbers_of(found):
    return {lane: [number for of, number, _ in found if of == lane] for lane in (0, 1)}


def test_each_segment_comes_out_once_and_in_order(run):
    reader, found = run.feed.reader(), []
    for rounds in (1, 3, 2):
        for _ in range(rounds):
            run.take()
        found += reader.take()
        assert list(reader.take()) == []
    assert numbers_of(found) == {0: [1, 2, 3, 4, 5, 6], 1: [1, 2, 3, 4, 5, 6]}


def test_what_comes_out_is_what_the_learner_reads(run):
    reader = run.feed.reader()
    for _ in range(3):
        batch, found = run.take(), {lane: segment for lane, _, segment in reader.take()}
        for lane, segment in found.items():
            for name in ("obs", "first"):
                assert (getattr(batch, name)[:-1, lane].numpy() == segment[name]).all()
            for name in ("action", "reward", "valid"):
                assert (getattr(batch, name)[:, lane].numpy() == segment[name]).all()
            assert ((batch.terminated | batch.truncated)[:, lane].numpy() == segment["ended"]).all()


def test_episodes_are_those_that_the_environment_played(run):
    reader, assembly, episodes = run.feed.reader(), Assembly(100), []
    for _ in range(16):
        run.take()
        for lane, number, segment in reader.take():
            episodes += [episode for episode in assembly.add(lane, number, segment) if lane == 0]
    assert [episode.length for episode in episodes[:6]] == [5, 3, 11, 5, 3, 11]
    for number, episode in enumerate(episodes):
        length = episode.length
        assert episode.obs[:, 1:].tolist() == [[number, step] for step in range(length)]
        assert episode.return_ == sum(1000 * number + step for step in range(1, length + 1))


def test_where_values_learn_from_original_rewards_a_truncated_episode_counts_what_was_expected_in_its_last_step():
    feeding = Feeding(PPO, **SETTINGS, redistribution_value="original")
    try:
        reader, assembly, episodes, expected = feeding.feed.reader(), Assembly(100), [], []
        for _ in range(16):
            batch = feeding.take()
            is_cut = batch.truncated[:, 0] & batch.valid[:, 0]
            expected += batch.records["value"][:, 0][is_cut].tolist()
            for lane, number, segment in reader.take():
                episodes += [episode for episode in assembly.add(lane, number, segment) if lane == 0]
    finally:
        feeding.close()
    whole = [sum(1000 * number + step for step in range(1, e.length + 1)) for number, e in enumerate(episodes)]
    cut = [number for number, episode in enumerate(episodes) if episode.length == 3]
    assert len(cut) > 2 and [e.return_ for e in episodes if e.length != 3] == [
        return_ for number, return_ in enumerate(whole) if number not in cut
    ]
    for number, value in zip(cut, expected, strict=False):
        assert episodes[number].return_ == pytest.approx(whole[number] - (1000 * number + 3) + value, abs=1e-3)
        assert value != 0.0


def test_what_is_overwritten_before_it_is_read_is_missing_in_the_numbers(run):
    reader = run.feed.reader()
    for _ in range(ROUNDS + 5):
        run.take()
    found = list(reader.take())
    assert numbers_of(found) == {lane: list(range(6, ROUNDS + 6)) for lane in (0, 1)}


def test_a_segment_that_a_fence_begins_anew_has_a_new_number(run):
    run.take()
    run.poll()  # the next segments are open
    run.arena.control[Control.RUN_EPOCH] += 1
    slots = run.fill()
    assert run.arena.slot_number[slots].tolist() == [3, 3]
    assert numbers_of(list(run.feed.reader().take())) == {0: [1, 3], 1: [1, 3]}


def test_a_redistributor_that_falls_behind_gives_updates_up_and_says_so_once(monkeypatch):
    monkeypatch.setattr(redistributor, "MOST_DUE", 10)
    feeding = Feeding(PPO, **SETTINGS, backend="local", redistributor_interval=1, redistributor_batch_size=1)
    try:
        reports = Reports()
        role = Redistributor(feeding.algorithm, feeding.feed, feeding.arena, reports.append, None)
        for _ in range(6):
            for _ in range(ROUNDS):
                feeding.take()
            made = role._rudder.updates
            assert role.poll() and role._rudder.updates - made <= redistributor.UPDATES_AT_ONCE
            assert role._due_steps <= 10
        (note,) = reports.of(Note)
        assert "less than half of its updates, one for each redistributor_interval=1 steps" in note.text
    finally:
        feeding.close()


def test_flags_are_what_is_written_and_a_padded_row_is_no_step(run):
    reader = run.feed.reader()
    for _ in range(6):
        run.take()
    valid = np.concatenate([segment["valid"] for lane, _, segment in reader.take() if lane == 0])
    assert not valid.all(), "a final row is no step"
