"""Segments are redistributed where they are written: in place, across gaps and deaths, and at home for nodes."""

from typing import Any

import numpy as np
import pytest

from penstock.algorithms.appo import APPO
from penstock.engine.acting.inference import SharedWeights
from penstock.engine.nodes.transport import transport_of
from penstock.engine.paths.segments import SegmentPath
from penstock.engine.preparation import run_shape
from penstock.engine.roles.rollout_worker import RolloutSpec, RolloutWorker
from penstock.experience.arena import Control
from penstock.ipc import SlotState
from penstock.rudder.feed import Feed
from penstock.rudder.paths import RedistributedSegmentPath
from penstock.rudder.predictor import TOLD, build_predictor
from penstock.rudder.redistribution import SegmentRedistribution, each_lane_once
from tests.engine.collecting import Collecting
from tests.engine.delayed import Delayed

QUALITY = 0.75
SETTINGS: dict[str, Any] = {"env": Delayed, "env_kwargs": {"length": 11}, "num_envs_per_worker": 2, "segment_length": 4,
                            "batch_size": 16, "rewards": "rudder"}  # fmt: skip


class Redistributing(Collecting):
    """A run whose rewards are redistributed by a trusted, constant predictor."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(APPO, **{**SETTINGS, **settings})
        predictor = build_predictor(self.algorithm)
        predictor.told[TOLD.index("quality")] = QUALITY
        for parameter in predictor.output.parameters():
            parameter.data.fill_(0.3)
        SharedWeights(predictor, self.arena.blocks["predictor"]).publish(0, 0)
        self.rows: list[tuple[bool, bool, bool, float]] = []

    def begin(self) -> SegmentPath:
        super().begin()
        self.path = RedistributedSegmentPath(self.algorithm, Feed.make(run_shape(self.algorithm, self.model)))
        return self.path

    def see(self, lane: int = 0) -> None:
        """Take a segment of each lane, and remember the steps of one: first, terminated, reward."""
        batch = self.take()
        names = (batch.first[:-1], batch.terminated, batch.valid, batch.reward)
        rows = zip(*(each[:, lane].tolist() for each in names), strict=True)
        self.rows += [row for row in rows if row[2]]

    def totals(self) -> list[float]:
        """Sums of the rewards of the whole episodes among the remembered steps."""
        found, total = [], None
        for first, terminated, _, reward in self.rows:
            total = 0.0 if first else total
            total = None if total is None else total + reward
            if terminated and total is not None:
                found.append(total)
        return found


@pytest.fixture
def make():
    """Makes runs, and closes them."""
    made = []

    def make_one(kind=Redistributing, **settings):
        made.append(kind(**settings))
        return made[-1]

    yield make_one
    for run in made:
        run.close()


def are_whole(numbers):
    return np.allclose(numbers, np.round(numbers), atol=1e-4)


def is_redistributed(row):
    return row[-1] != round(row[-1])


def test_a_full_slot_holds_redistributed_rewards_that_add_up_to_returns(make):
    run = make()
    for _ in range(20):
        run.see()
        assert (run.arena.slot_altered[:2] == 4).all()
    assert len(run.totals()) == 7 and are_whole(run.totals())
    assert np.mean([is_redistributed(row) for row in run.rows]) > 0.9


def test_what_is_fed_are_the_rewards_of_the_environment(make):
    run = make()
    reader = run.path.feed.reader()
    for _ in range(6):
        run.see()
    fed = [segment["reward"] for lane, _, segment in reader.take() if lane == 0]
    assert are_whole(np.concatenate(fed)) and any(is_redistributed(row) for row in run.rows)


def test_an_episode_of_which_a_fence_has_begun_a_segment_anew_keeps_its_rewards_from_there(make):
    run = make()
    run.see()
    for _ in range(2):
        run.poll()  # two of the four steps of the next segment
    run.arena.control[Control.RUN_EPOCH] += 1
    run.rows.clear()
    for _ in range(12):
        run.see()
    begins = next(n for n, row in enumerate(run.rows) if row[0])
    assert begins == 5 and not any(is_redistributed(row) for row in run.rows[:begins])
    assert all(is_redistributed(row) for row in run.rows[begins : begins + 10])
    assert len(run.totals()) == 3 and are_whole(run.totals())


def test_an_episode_goes_on_where_the_learner_throws_a_full_segment_away(make):
    run = make()
    run.see()
    run.take()  # of an earlier epoch
    run.arena.control[Control.RUN_EPOCH] += 1
    run.rows.clear()
    for _ in range(12):
        run.see()
    assert all(is_redistributed(row) for row in run.rows[:2])
    assert len(run.totals()) > 3 and are_whole(run.totals())


def test_the_successor_of_a_worker_that_died_in_the_middle_of_an_episode_begins_its_own(make):
    run = make()
    for _ in range(4):
        run.see()
    for _ in range(2):
        run.poll()
    run.arena.requests.reset(0)
    run.arena.reclaim(0)
    spec = RolloutSpec(0, run.env, (run.path,), run.algorithm.config.seed, 1)
    actor = run.path.actor(run.arena, run.algorithm, "cpu", 0, run.reports.append)
    run.workers[0].close()
    run.workers[0] = RolloutWorker(spec, run.arena, run.reports.append, [actor])
    run.rows.clear()
    for _ in range(12):
        run.see()
    assert run.rows[0][0] and all(is_redistributed(row) for row in run.rows[:10])
    assert len(run.totals()) == 4 and are_whole(run.totals())


def test_columns_beside_are_there_where_values_learn_from_original_rewards_alone(make):
    names = {"redistributed_reward", "redistributed_quality"}
    assert not names & set(make().arena.columns)
    run = make(redistribution_value="original")
    batch = run.take()
    assert names <= set(run.arena.columns) and (batch.reward == 0.0).all()
    assert (batch.altered["redistributed_reward"] != 0.0).all()
    assert (batch.altered["redistributed_quality"] == QUALITY).all()


class AsOnANode(Redistributing):
    """What a node writes: nothing of it is redistributed."""

    def begin(self) -> SegmentPath:
        path: SegmentPath = transport_of(super().begin()).to_node().path
        return path


@pytest.mark.parametrize("value", ["redistributed", "original"])
def test_what_home_redistributes_for_a_node_is_what_its_own_workers_do(make, value):
    """Also where several segments of a lane come together, as they lie in their slots."""
    ours, theirs = make(redistribution_value=value), make(AsOnANode, redistribution_value=value)
    home = RedistributedSegmentPath(theirs.algorithm, Feed.make(theirs.arena.shape))
    arrived, reader = transport_of(home).on_arrival(theirs.arena), home.feed.reader()
    fed = []
    names = ("reward", "redistributed_reward", "redistributed_quality")[: 3 if value == "original" else 1]
    for _ in range(8):
        for run in (ours, theirs):
            while len(run.arena.full) < 6:
                assert run.poll()
        slots = np.sort(theirs.arena.full.pop_many(99))
        assert (slots == np.sort(ours.arena.full.pop_many(99))).all()
        arrived(slots[::-1].copy())  # three of each lane, the last one first
        for name in names:
            shape = (theirs.arena.shape.num_slots, -1)
            a, b = (run.arena.columns[name].reshape(shape)[slots, :4] for run in (ours, theirs))
            assert (a == b).all() and a.any()
        assert (theirs.arena.slot_altered[slots] == 4).all()
        fed += reader.take()
        for run in (ours, theirs):
            run.arena.slots.claim(slots, SlotState.FULL, SlotState.FREE, 0)
    assert [number for lane, number, _ in fed if lane == 1] == list(range(1, 25))


def test_a_lane_comes_once_in_each_turn_and_in_its_order():
    turns = [turn.tolist() for turn in each_lane_once(np.array([3, 1, 3, 2, 1, 3]))]
    assert turns == [[0, 1, 3], [2, 4], [5]] and list(each_lane_once(np.empty(0, np.int64))) == []


def test_what_lies_in_rows_of_no_step_ends_no_episode(make):
    run = make()
    arena, slots = run.arena, np.array([0])
    redistribute = SegmentRedistribution(run.algorithm, arena, range(2))
    total = 0.0
    for number, (first, valid, terminated) in enumerate([("1001", "1110", "0000"), ("0001", "1100", "0101")]):
        columns = {"first": first, "valid": valid, "terminated": terminated}
        for name, flags in columns.items():
            arena.columns[name][:4] = [flag == "1" for flag in flags]
        arena.columns["reward"][:4] = [4 * number + step for step in range(4)]
        arena.slot_number[0] = number
        redistribute(slots)
        total += float(arena.columns["reward"][:4][arena.columns["valid"][:4]].sum())
        assert (arena.columns["reward"][:4] % 1.0 != 0.0).any()
    assert total == pytest.approx(0 + 1 + 2 + 4 + 5, abs=1e-4)
