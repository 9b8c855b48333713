"""The slot table: a slot has one owner at a time, and moves only from the state it is in."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.ipc import Arena, Doorbell, Ring, SlotState, SlotTable
from tests.ipc.sharing import Sent, finished
from tests.starting import Start

FREE, WRITING, FULL, READING = SlotState


def slots(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


@pytest.fixture
def table(arena: Arena) -> SlotTable:
    return SlotTable.create(arena, 128, 5)


def test_all_slots_start_free_and_nobodys(table: SlotTable) -> None:
    assert len(table) == 5
    assert table.in_state(FREE).tolist() == [0, 1, 2, 3, 4]
    assert [(table.state(i), table.owner(i), table.generation(i)) for i in range(5)] == [(FREE, -1, 0)] * 5


def test_a_claim_moves_the_slots_that_are_in_the_state_asked_for(table: SlotTable) -> None:
    claimed = table.claim(slots(1, 3), FREE, WRITING, owner=7)
    assert claimed.dtype == np.bool_ and claimed.tolist() == [True, True]
    assert table.claim(slots(3, 4, 1), FREE, WRITING, owner=8).tolist() == [False, True, False]
    assert table.owned_by(7, WRITING).tolist() == [1, 3]
    assert table.owned_by(8, WRITING).tolist() == [4]
    assert table.owned_by(7, FREE).tolist() == []
    assert table.in_state(WRITING).tolist() == [1, 3, 4]
    assert table.in_state(READING).dtype == np.int64


def test_a_slot_named_twice_is_claimed_once(table: SlotTable) -> None:
    assert table.claim(slots(2, 2, 2), FREE, WRITING, owner=1).tolist() == [True, False, False]


def test_a_claim_from_an_owner_leaves_the_slots_of_others_alone(table: SlotTable) -> None:
    table.claim(slots(0, 1), FREE, WRITING, owner=1)
    table.claim(slots(2), FREE, WRITING, owner=2)
    assert table.claim(slots(0, 1, 2), WRITING, FULL, owner=-1, from_owner=1).tolist() == [True, True, False]
    assert table.owned_by(2, WRITING).tolist() == [2]
    assert table.owned_by(-1, FULL).tolist() == [0, 1]


def test_only_becoming_free_raises_the_generation(table: SlotTable) -> None:
    way = [FREE, WRITING, FULL, READING, FREE]
    for generation in range(3):
        for before, after in pairwise(way):
            assert table.generation(4) == generation
            assert table.claim(slots(4), before, after, owner=3).all()
    assert table.generation(4) == 3
    assert table.generation(0) == 0


def test_two_attachments_are_one_table(arena: Arena, table: SlotTable) -> None:
    SlotTable.attach(arena, 128).claim(slots(0), FREE, WRITING, owner=2**24 - 2)
    assert table.owner(0) == 2**24 - 2
    assert table.state(0) == WRITING


def test_claiming_nothing_gives_nothing(table: SlotTable) -> None:
    assert table.claim(slots(), FREE, WRITING, owner=0).shape == (0,)


@pytest.mark.parametrize("slot", [-1, 5, 2**40])
def test_a_slot_outside_the_table_is_named_and_nothing_is_claimed(table: SlotTable, slot: int) -> None:
    with pytest.raises(IndexError, match=f"slot {slot} is outside the table of 5 slots"):
        table.claim(slots(0, slot), FREE, WRITING, owner=1)
    assert table.state(0) == FREE
    for question in (table.state, table.owner, table.generation):
        with pytest.raises(IndexError, match="is outside the table"):
            question(slot)


def test_states_and_owners_out_of_range_are_refused(table: SlotTable) -> None:
    with pytest.raises(ValueError, match=r"to_state must be a SlotState \(0 to 3\), found 4"):
        table.claim(slots(0), FREE, 4, owner=1)
    with pytest.raises(ValueError, match=r"owner must be from -1 \(nobody\) to 16777214, found 16777215"):
        table.claim(slots(0), FREE, WRITING, owner=2**24 - 1)
    with pytest.raises(ValueError, match="from_owner must be from -1"):
        table.claim(slots(0), FREE, WRITING, owner=0, from_owner=-2)
    with pytest.raises(ValueError, match="slots must be an int64 array"):
        table.claim(np.zeros(1, np.int32), FREE, WRITING, owner=0)


def test_attaching_where_there_is_no_table_says_so(arena: Arena) -> None:
    Ring.create(arena, 0, 4)
    with pytest.raises(ValueError, match="there is no SlotTable at offset 0"):
        SlotTable.attach(arena, 0)


class SlotTableBehavesLikeAList(RuleBasedStateMachine):
    states = st.sampled_from(list(SlotState))
    owners = st.integers(-1, 3)

    def __init__(self) -> None:
        super().__init__()
        self.table = SlotTable.create(Arena.create(4096), 0, 6)
        self.model = [(FREE, -1, 0)] * 6

    @rule(
        chosen=st.lists(st.integers(0, 5)),
        before=states,
        after=states,
        owner=owners,
        from_owner=st.none() | owners,
    )
    def claim(self, chosen: list[int], before: SlotState, after: SlotState, owner: int, from_owner: int | None) -> None:
        expected = []
        for slot in chosen:
            state, current, generation = self.model[slot]
            moves = state == before and from_owner in (None, current)
            if moves:
                self.model[slot] = (after, owner, generation + (after == FREE))
            expected.append(moves)
        assert self.table.claim(slots(*chosen), before, after, owner, from_owner).tolist() == expected

    @invariant()
    def agrees(self) -> None:
        words = [(self.table.state(i), self.table.owner(i), self.table.generation(i)) for i in range(6)]
        assert words == self.model
        for state in SlotState:
            assert self.table.in_state(state).tolist() == [i for i in range(6) if words[i][0] == state]
            assert self.table.owned_by(1, state).tolist() == [i for i in range(6) if words[i][:2] == (state, 1)]


TestSlotTableBehavesLikeAList = SlotTableBehavesLikeAList.TestCase
TestSlotTableBehavesLikeAList.settings = settings(max_examples=60, stateful_step_count=30)

RACERS, ROUNDS, NUM_SLOTS = 3, 60_000, 2
READY, GO = 1 << 14, (1 << 14) + 64


def _race(sent: Sent, racer: int) -> None:
    """Take slots, mark them in memory that is exclusive meanwhile, and give them back."""
    table = SlotTable.attach(sent.arena, 0)
    marks = sent.arena.array(1 << 12, NUM_SLOTS, np.int64)
    wins = sent.arena.array(1 << 13, (RACERS, NUM_SLOTS), np.int64)[racer]
    every = np.arange(NUM_SLOTS)
    Doorbell.attach(sent.arena, READY).ring()
    Doorbell.attach(sent.arena, GO).wait(0, timeout=None)
    for _ in range(ROUNDS):
        mine = every[table.claim(every, FREE, WRITING, racer)]
        marks[mine] = racer
        wins[mine] += 1
        assert (marks[mine] == racer).all(), "two processes owned a slot at the same time"
        assert table.claim(mine, WRITING, FREE, -1, from_owner=racer).all()


@pytest.mark.timeout(60)
def test_of_racing_processes_exactly_one_gets_each_slot(arena: Arena, spawn: Start) -> None:
    table = SlotTable.create(arena, 0, NUM_SLOTS)
    ready, go = Doorbell.create(arena, READY), Doorbell.create(arena, GO)
    racers = [spawn(_race, Sent(arena), racer) for racer in range(RACERS)]
    while ready.value < RACERS:
        ready.wait(ready.value, timeout=0.1)
    go.ring()
    assert all([finished(racer) for racer in racers])
    wins = arena.array(1 << 13, (RACERS, NUM_SLOTS), np.int64)
    assert table.in_state(FREE).tolist() == list(range(NUM_SLOTS))
    assert [table.generation(slot) for slot in range(NUM_SLOTS)] == wins.sum(axis=0).tolist()
