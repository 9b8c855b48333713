"""The arena of a run: the same in all processes, and repaired after a death."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from penstock.envs.spaces import ObservationSpec
from penstock.experience.arena import READER, Control, ExperienceArena
from penstock.experience.segments import SegmentWriter
from penstock.ipc import SlotState
from tests.envs.arrangements import counting_lanes
from tests.experience.writing import LOGITS, run_shape

LONG = [(99, "terminated")]
FOREVER = 2**60  # nanoseconds


def two_workers(**numbers):
    """An arena with two workers of two lanes, and a writer for each."""
    arena = ExperienceArena.create(run_shape(**{"num_workers": 2, "slots_per_lane": 2, "segment_length": 2, **numbers}))
    writers = []
    for worker in range(2):
        lanes = counting_lanes("single", [LONG, LONG])
        lanes.reset()
        writers.append(SegmentWriter(arena, worker, lanes, first_lane=2 * worker))
    return arena, writers


def fill(writer):
    """Write one segment in each of the writer's lanes."""
    assert writer.is_open or writer.open()
    while writer.is_open:
        writer.lanes.step(np.zeros(2, np.int64))
        writer.record()


def states(arena):
    return [SlotState(arena.slots.state(slot)) for slot in range(arena.shape.num_slots)]


def test_in_a_fresh_arena_every_slot_is_free_and_no_role_is_waited_for():
    arena = ExperienceArena.create(run_shape(slots_per_lane=3))
    assert len(arena.full) == 0 and states(arena) == [SlotState.FREE] * 6
    assert not arena.control.any() and arena.requests.pending() is None


def test_attached_processes_see_the_same_columns_words_and_slots():
    shape = run_shape(slots_per_lane=2, state_size=2, records=(LOGITS,))
    creator = ExperienceArena.create(shape)
    other = ExperienceArena.attach(shape, os.dup(creator.arena.fd))
    for number, (name, column) in enumerate(creator.columns.items()):
        column[...] = number % 2
        assert (other.columns[name] == number % 2).all() and other.columns[name].shape == column.shape
    for name in ("control", "slot_epoch", "slot_memory"):
        getattr(creator, name)[...] = 3
        assert (getattr(other, name) == 3).all(), name
    other.slots.claim(np.array([1]), SlotState.FREE, SlotState.WRITING, 0)
    assert creator.slots.state(1) == SlotState.WRITING


def test_attached_processes_can_wake_every_role():
    shape = run_shape(num_workers=2)
    creator = ExperienceArena.create(shape)
    bells = [creator.learner_bell, *creator.policy_bells, creator.evaluator_bell, *creator.rollout_bells]
    before = [bell.value for bell in bells]
    ExperienceArena.attach(shape, os.dup(creator.arena.fd)).ring_all()
    assert all(bell.value != value for bell, value in zip(bells, before, strict=True))


@pytest.mark.timeout(60)
def test_another_process_writes_a_segment_that_this_one_reads_and_it_needs_no_torch():
    shape = run_shape(segment_length=2)
    arena = ExperienceArena.create(shape)
    program = (
        "import pickle, sys, numpy as np\n"
        "from penstock.experience import ExperienceArena, SegmentWriter\n"
        "import penstock.engine.roles.rollout_worker\n"
        "from tests.envs.arrangements import counting_lanes\n"
        "shape, fd = pickle.loads(sys.stdin.buffer.read())\n"
        "arena = ExperienceArena.attach(shape, fd)\n"
        "lanes = counting_lanes('single', [[(9, 'terminated')]] * 2); lanes.reset()\n"
        "writer = SegmentWriter(arena, 0, lanes, 0)\n"
        "assert writer.open()\n"
        "for _ in range(2): lanes.step(np.zeros(2, np.int64)); writer.record()\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps((shape, arena.arena.fd)), check=True,
        pass_fds=[arena.arena.fd],
    )  # fmt: skip
    slots = arena.full.pop_many(9)
    assert states(arena) == [SlotState.FULL] * 2
    for slot in slots.tolist():
        rows = slice(3 * slot, 3 * slot + 3)
        assert arena.columns["obs"][rows].tolist() == [[arena.lane_of(slot), 0, t] for t in range(3)]
        assert arena.columns["reward"][rows][:2].tolist() == [1.0, 2.0]


def test_reclaiming_frees_exactly_what_the_dead_worker_was_writing():
    arena, (dead, alive) = two_workers()
    fill(dead)  # its finished segments stay
    assert dead.open() and alive.open()
    being_written = dead.slots.tolist()
    finished = arena.slots.in_state(SlotState.FULL).tolist()
    reading = arena.full.pop_many(1)
    arena.slots.claim(reading, SlotState.FULL, SlotState.READING, READER)
    arena.reclaim(0)
    assert arena.slots.owned_by(0, SlotState.WRITING).tolist() == []
    assert arena.slots.owned_by(1, SlotState.WRITING).tolist() == sorted(alive.slots.tolist())
    assert arena.slots.state(int(reading[0])) == SlotState.READING
    assert arena.slots.in_state(SlotState.FULL).tolist() == sorted(set(finished) - set(reading.tolist()))
    assert all(arena.slots.state(slot) == SlotState.FREE for slot in being_written)


def test_reclaiming_announces_the_segments_that_the_worker_had_no_time_to():
    arena, (dead, alive) = two_workers()
    fill(dead)
    arena.full.clear()  # it died between filling its slots and saying so
    fill(alive)
    rung = arena.learner_bell.value, arena.rollout_bells[1].value
    arena.reclaim(0)
    assert arena.full.pop_many(9).tolist() == [2, 3, 0, 1]
    assert arena.learner_bell.value != rung[0] and arena.rollout_bells[1].value != rung[1]


def test_reclaiming_leaves_the_segments_that_wait_in_the_order_in_which_they_became_full():
    arena, writers = two_workers()
    for writer in (writers[1], writers[0], writers[0]):
        fill(writer)
    for _ in range(3):
        arena.reclaim(1)
        assert len(arena.full) == 6
    assert arena.full.pop_many(9).tolist() == [2, 3, 0, 1, 4, 5]


def test_slots_won_by_a_worker_that_died_before_it_could_open_are_taken_back():
    arena, (dead, alive) = two_workers(slots_per_lane=1)
    arena.slots.claim(np.array([0]), SlotState.FREE, SlotState.READING, READER)
    assert not dead.open() and dead.slots.tolist() == [-1, 1]
    assert alive.open()
    arena.reclaim(0)
    assert arena.slots.owned_by(0, SlotState.WRITING).tolist() == []
    assert arena.slots.owned_by(1, SlotState.WRITING).tolist() == [2, 3]


def test_a_restarted_worker_takes_whichever_slots_of_its_lanes_are_free():
    arena, (dead, _) = two_workers()
    fill(dead)  # slots 0 and 1 wait for the learner
    assert dead.open() and dead.slots.tolist() == [4, 5]
    arena.reclaim(0)
    arena.slots.claim(np.array([0]), SlotState.FULL, SlotState.READING, READER)
    arena.release(np.array([0]))
    successor = SegmentWriter(arena, 0, dead.lanes, first_lane=0)
    assert successor.open() and successor.slots.tolist() == [0, 5]


def test_a_fast_worker_takes_no_slot_of_a_slow_one():
    arena, (fast, slow) = two_workers(slots_per_lane=3)
    for _ in range(3):
        fill(fast)
    assert not fast.open() and fast.slots.tolist() == [-1, -1]
    assert arena.slots.in_state(SlotState.FREE).tolist() == [2, 3, 6, 7, 10, 11]
    for _ in range(3):
        fill(slow)
    assert not slow.open() and not len(arena.slots.in_state(SlotState.FREE))


def test_a_lane_goes_ahead_of_the_learner_only_while_fewer_segments_wait_than_the_backlog():
    arena, (writer, other) = two_workers(slots_per_lane=3, segments_per_batch=3)
    arena.control[Control.PACE] = FOREVER

    def learn(count):
        taken = arena.full.pop_many(count)
        arena.slots.claim(taken, SlotState.FULL, SlotState.READING, READER)
        assert not other.open()  # what is being read waits still
        arena.release(taken)

    fill(writer)
    fill(writer)  # two segments waited, and the backlog of so slow a learner is a batch of three
    assert not writer.open()
    fill(other)  # none of its own waits, however many of others do
    assert not other.open()
    learn(3)
    assert not writer.open() and (writer.slots >= 0).tolist() == [True, False]  # the first lane's are learned, both
    assert not other.open()
    learn(1)
    assert writer.open() and other.open()


def test_what_the_learner_takes_hold_of_while_it_is_counted_does_not_count_twice():
    arena, (writer, _) = two_workers(segments_per_batch=3)
    arena.control[Control.PACE] = FOREVER
    fill(writer)
    slots = arena.slots

    class TakenMeanwhile:
        """The table, with a learner that takes all full slots between two looks at it."""

        claim = slots.claim

        @staticmethod
        def in_state(state):
            found = slots.in_state(state)
            slots.claim(arena.full.pop_many(9), SlotState.FULL, SlotState.READING, READER)
            return found

    arena.slots = TakenMeanwhile()
    assert writer.open()


def test_released_slots_are_free_again_and_the_workers_are_woken():
    arena, (writer, _) = two_workers()
    fill(writer)
    slots = arena.full.pop_many(9)
    arena.slots.claim(slots, SlotState.FULL, SlotState.READING, READER)
    rung = [bell.value for bell in arena.rollout_bells]
    arena.release(slots)
    assert set(states(arena)) == {SlotState.FREE}
    assert all(bell.value != before for bell, before in zip(arena.rollout_bells, rung, strict=True))


def test_releasing_never_frees_a_slot_that_is_not_being_read():
    arena, (writer, _) = two_workers()
    assert writer.open()
    arena.release(writer.slots)
    assert arena.slots.owned_by(0, SlotState.WRITING).tolist() == writer.slots.tolist()


def test_too_large_an_arena_is_refused_with_the_arithmetic_and_what_to_change():
    shape = run_shape(slots_per_lane=10**6 // 2, segment_length=999, observation=ObservationSpec((84, 84, 4), "uint8"))
    with pytest.raises(MemoryError) as refusal:
        ExperienceArena.create(shape)
    message = str(refusal.value)
    assert "1000000 slots of 1000 rows for 2 lanes" in message
    assert f"obs {10**9 * 84 * 84 * 4 / 2**20:.1f} MiB" in message
    assert "available" in message and "use fewer lanes, or a smaller segment_length or batch_size" in message
