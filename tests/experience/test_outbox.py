"""Steps that go by an outbox end up in the replay buffer as if they had been written there."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.algorithms.arithmetic.priorities import absolute_td_error
from penstock.engine.nodes.transport import transport_of
from penstock.engine.paths.hindsight import HindsightPath
from penstock.engine.paths.replay import ReplayPath
from penstock.engine.paths.sequences import SequencePath
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.layout import Column
from penstock.experience.outbox import WRITER, Inbox, Outbox, OutboxReader, fields_of_call, steps_in
from penstock.experience.run_replay import Replay, transition_fields
from penstock.experience.sequences import sequence_fields
from penstock.replay import Field, NStep, Prioritized, RateLimiter, ReplayBuffer, Sequences
from penstock.rudder.feed import OWN, REDISTRIBUTED, UNTRUSTED, Feed, RedistributedEpisodes
from penstock.rudder.paths import RedistributedInbox, RedistributedReplayPath
from tests.envs.arrangements import counting_lanes
from tests.envs.counting import Ending
from tests.envs.goals import Places
from tests.experience.relabelling import Relabelling
from tests.experience.writing import run_shape
from tests.replay.buffers import priorities_of

OBSERVATION, ACTION = ObservationSpec((3,), "float32"), ActionSpec((), "int64", num_actions=2)
ENDINGS = [[(3, "terminated"), (4, "truncated")], [(2, "truncated"), (5, "terminated")]]
RECORDS = (*(Column(name, (), "float32") for name in ("value", "max_value")), Column("memory", (2,), "float32"))


def transitions() -> ReplayPath:
    fields = transition_fields(OBSERVATION, ACTION, with_values=True)
    buffer = ReplayBuffer(500, fields, sampler=Prioritized(alpha=1.0, eps=0.0), n_step=NStep(3, 0.9))
    first = absolute_td_error
    return ReplayPath(Replay(buffer, RateLimiter(1.0, 10**6), 1, 1.0, reward_scale=0.5, initial_priorities=first))


def sequences() -> SequencePath:
    fields = sequence_fields(OBSERVATION, ACTION, 2, with_values=False)
    buffer = ReplayBuffer(500, fields, sequences=Sequences(5, 2))
    return SequencePath(Replay(buffer, RateLimiter(1.0, 10**6), 1, 1.0), burn_in=2, gamma=0.9)


def play(path: ReplayPath, arena: ExperienceArena, num_steps: int, before_each: Callable[[], object] = int) -> int:
    """Step counting lanes, whose values and actions follow from their positions; return the number of steps."""
    count = 0
    lanes = counting_lanes("single", ENDINGS)
    writer = path.writer(arena, 0, lanes, 0, None, None)
    lanes.reset()
    for _ in range(num_steps):
        before_each()
        assert writer.open()
        rows = writer.rows
        seen = arena.columns["obs"][rows].sum(1)
        arena.columns["action"][rows] = seen.astype(np.int64) % 2
        arena.columns["value"][rows], arena.columns["max_value"][rows] = seen, seen + 2
        arena.columns["memory"][rows] = seen[:, None]
        lanes.step(arena.columns["action"][rows].copy())
        writer.record()
        count += int(lanes.valid.sum())
    lanes.close()
    return count


@pytest.mark.parametrize("make", [transitions, sequences])
def test_what_goes_by_an_outbox_is_written_as_if_it_had_gone_at_once(make):
    at_home, by_outbox = make(), make()
    shape = run_shape(segment_length=1, records=RECORDS, state_size=2)
    direct, node = ExperienceArena.create(shape), ExperienceArena.create(shape)
    direct.control[Control.GOAL] = 10**9
    play(at_home, direct, 40)
    transport = transport_of(by_outbox)
    there = transport.to_node().path_on_node(node)
    reader, inbox = OutboxReader(there.replay.buffer), transport.inbox(direct)
    granted = 0

    def carry() -> None:
        nonlocal granted
        if (calls := reader.take()) is not None:
            inbox.add(calls)
        granted += node.full.push_many(np.zeros(4 - len(node.full), np.int64))

    count = play(there, node, 40, carry)
    carry()
    assert count == granted - len(node.full)  # what is granted is taken once, and resets are no steps
    ours, theirs = at_home.replay.buffer.get_all(), by_outbox.replay.buffer.get_all()
    assert ours.keys() == theirs.keys() and len(ours["reward"]) > 10
    for name, values in ours.items():
        np.testing.assert_array_equal(values, theirs[name], err_msg=name)
    if make is transitions:
        np.testing.assert_array_equal(*map(priorities_of, (at_home.replay.buffer, by_outbox.replay.buffer)))


class Looked:
    """A buffer of calls in which other writers do something while its rows are looked at."""

    def __init__(self, calls):
        self.calls, self.meanwhile = calls, lambda live: live()

    def __getattr__(self, name):
        return getattr(self.calls, name)

    def live(self):
        return self.meanwhile(self.calls.live)


def look_at(calls_of_writers=12):
    outbox = Outbox.make({"reward": Field((), "float32")}, 1, calls_of_writers)
    reader = OutboxReader(outbox)
    reader._calls = Looked(outbox.calls)
    writer = outbox.writer()
    return reader, lambda reward: writer.add(reward=np.array([reward], np.float32))


def rewards_in(calls):
    return [] if calls is None else calls["step_reward"].ravel().tolist()


def test_a_call_whose_row_was_passed_before_it_was_written_comes_before_later_ones():
    reader, add = look_at()
    add(0.0)

    def meanwhile(live):
        rows, ids = live()
        add(1.0)  # in a row that was looked at
        add(2.0)  # in one that was not
        all_rows, all_ids = live()
        return np.append(rows, all_rows[-1]), np.append(ids, all_ids[-1])

    reader._calls.meanwhile = meanwhile
    taken = rewards_in(reader.take())
    reader._calls.meanwhile = lambda live: live()
    assert taken + rewards_in(reader.take()) == [0.0, 1.0, 2.0]


def test_calls_go_on_though_one_was_begun_by_a_process_that_has_died():
    reader, add = look_at()
    calls, dead = reader._calls, 2

    def without_the_dead(live):
        rows, ids = live()
        return rows[ids != dead], ids[ids != dead]

    calls.meanwhile, taken = without_the_dead, []
    for number in range(3 * calls.capacity):
        add(float(number))
        calls.num_added = calls.calls.num_added - (number >= dead)
        taken += rewards_in(reader.take())
    assert taken == [float(number) for number in range(3 * calls.capacity) if number != dead]


def test_calls_that_were_overwritten_unread_are_a_failure():
    reader, add = look_at()
    for _ in range(reader._calls.capacity + 1):
        add(1.0)
    with pytest.raises(RuntimeError, match="overwritten before they were sent home"):
        reader.take()


def test_relabelled_rows_leave_with_the_steps_that_follow_and_are_those_of_home():
    endings: list[Ending] = [(4, "truncated"), (1, "terminated"), (7, "terminated")]
    envs = [[Places(lane, endings) for lane in range(2)] for _ in range(2)]
    at_home, away = (Relabelling(of_place, goals_per_step=3) for of_place in envs)
    transport = transport_of(HindsightPath(away.replay, "future", 3, 0))
    there = transport.to_node().path_on_node(away.arena)
    outbox, inbox = there.replay.buffer, transport.inbox(at_home.arena)
    reader, capacity = OutboxReader(outbox), outbox.calls.capacity
    away.writer, calls = there.writer(away.arena, 0, away.lanes, 0, None, None), 0
    steps = 0
    for _ in range(60):
        away.arena.full.push_many(np.zeros(4 - len(away.arena.full), np.int64))
        away.play(1)
        if (found := reader.take()) is not None:
            calls = max(calls, len(found["writer"]))
            steps += steps_in(found)
            inbox.add(found)
    at_home.play(60)
    ours, theirs = at_home.written(), away.written()
    assert steps == sum(away.num_steps) == sum(at_home.num_steps)
    assert calls <= transport.calls_per_step < capacity
    missing = sum((ours - theirs).values())
    assert not theirs - ours and missing == away.writer._relabelled.num_waiting
    assert missing < 3 * 2 * 7 and sum(theirs.values()) > 3 * steps


def test_episodes_that_home_redistributes_for_a_node_are_those_of_home(monkeypatch):
    def redistributed(obs, action, reward, is_terminated):
        return reward[::-1] + obs.sum(1) + is_terminated if len(reward) > 2 else None

    learner = "penstock.rudder.redistribution"
    monkeypatch.setattr(f"{learner}.EpisodeRedistribution", lambda algorithm, arena: redistributed)
    algorithm: Any = SimpleNamespace(config=SimpleNamespace(redistributor_max_steps=4))
    shape = run_shape(segment_length=1, records=RECORDS)

    def make() -> RedistributedReplayPath:
        fields = transition_fields(OBSERVATION, ACTION, with_values=False) | {"kind": Field((), "int8")}
        buffer = ReplayBuffer(500, fields, n_step=NStep(2, 0.9))
        replay = Replay(buffer, RateLimiter(1.0, 10**6), 1, 1.0, reward_scale=0.5)
        return RedistributedReplayPath(replay, algorithm, Feed.make(replace(shape, records=()), 3))

    at_home, by_outbox = make(), make()
    direct, node = ExperienceArena.create(shape), ExperienceArena.create(replace(shape, first_worker=3))
    direct.control[Control.GOAL] = 10**9
    play(at_home, direct, 40)
    transport = transport_of(by_outbox)
    there, inbox = transport.to_node().path_on_node(node), transport.inbox(direct)
    assert there.feed is None, "it is at home"
    reader = OutboxReader(there.replay.buffer)

    def carry() -> None:
        if (calls := reader.take()) is not None:
            inbox.add(calls)
        node.full.push_many(np.zeros(4 - len(node.full), np.int64))

    play(there, node, 40, carry)
    carry()
    ours, theirs = at_home.replay.buffer.get_all(), by_outbox.replay.buffer.get_all()
    assert set(ours["kind"]) == {UNTRUSTED, REDISTRIBUTED, OWN}
    for name, values in ours.items():
        np.testing.assert_array_equal(values, theirs[name], err_msg=name)
    fed, fed_for_node = (list(path.feed.reader().take()) for path in (at_home, by_outbox))
    assert len(fed) == len(fed_for_node) > 10
    for (lane, number, steps), (lane_of_run, same_number, same_steps) in zip(fed, fed_for_node, strict=True):
        assert (lane + 6, number) == (lane_of_run, same_number)
        for name, values in steps.items():
            np.testing.assert_array_equal(values, same_steps[name], err_msg=name)


def test_what_is_held_is_written_when_learning_waits_for_a_first_row():
    step = {"obs": np.ones((2, 3), np.float32), "action": np.zeros(2, np.int64), "reward": np.ones(2, np.float32)}
    fields = transition_fields(OBSERVATION, ACTION, with_values=False) | {"kind": Field((), "int8")}
    replay = Replay(ReplayBuffer(50, fields), RateLimiter(1.0, 6), 1, 1.0)
    arena = ExperienceArena.create(run_shape(segment_length=1))
    feed = Feed.make(arena.shape, 8)
    inbox = RedistributedInbox(
        replay,
        lambda lanes, first: RedistributedEpisodes(
            replay, lanes, first, feed=feed, bell=arena.bells["redistributor"], redistribute=lambda *_: None,
            max_steps=99,
        ),
    )  # fmt: skip
    signals = {"terminated": np.zeros(2, np.bool_), "truncated": np.zeros(2, np.bool_), "mask": np.ones(2, np.bool_)}
    call = {f"step_{name}": value[None] for name, value in {**step, "next_obs": step["obs"], **signals}.items()}
    for steps_let_in in (2, 4, 6):
        assert len(replay.buffer) == 0
        replay.limiter.insert(2)
        inbox.add({**call, "step_lane": np.arange(2)[None], "writer": np.zeros(1, np.int64)})
        assert replay.limiter.inserts == steps_let_in
    assert replay.buffer.get_all()["kind"].tolist() == [OWN] * 6


def test_a_step_is_taken_only_when_all_of_it_is_granted():
    arena = ExperienceArena.create(run_shape(segment_length=1, slots_per_lane=4))
    replay = transport_of(transitions()).to_node().path.replay
    arena.full.push_many(np.zeros(3, np.int64))
    assert replay.admit(2, arena) and not replay.admit(2, arena)
    assert len(arena.full) == 1 and replay.admit(1, arena) and not replay.admit(1, arena)


def test_calls_that_are_overwritten_before_they_are_read_are_an_error():
    arena = ExperienceArena.create(run_shape(segment_length=1, records=RECORDS))
    there = transport_of(transitions()).to_node().path_on_node(arena)
    reader = OutboxReader(there.replay.buffer)
    arena.full.push_many(np.zeros(8, np.int64))
    play(there, arena, 3)
    assert len(reader.take()["writer"]) == 2  # the last step waits for the value of what it led to
    for _ in range(10):
        arena.reclaim(0)
        arena.full.push_many(np.zeros(8, np.int64))
        play(there, arena, 3)
    with pytest.raises(RuntimeError, match="steps were overwritten before they were sent home"):
        reader.take()


def test_home_repeats_the_calls_of_many_nodes_with_a_writer_for_each_group_of_each():
    path = sequences()
    fields = fields_of_call(sequence_fields(OBSERVATION, ACTION, 2, with_values=False), 1)
    call = {name: np.ones((1, *field.shape), field.dtype) for name, field in fields.items()}
    inboxes = [Inbox(path.replay) for _ in range(65)]
    for node, inbox in enumerate(inboxes):
        for group in range(16):
            inbox.add(call | {WRITER: np.array([16 * node + group])})
    assert path.replay.buffer.num_added == 65 * 16
