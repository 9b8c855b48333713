"""Steps that go from a node into the replay buffer at home: how many a node may take, and what home makes of them."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from penstock.engine.nodes.lanes import StepNodeLanes
from penstock.engine.nodes.receiver import Receiver, ReceiverRole
from penstock.engine.nodes.sender import Home, StepSender
from penstock.engine.nodes.transport import transport_of
from penstock.engine.paths.replay import ReplayPath
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.outbox import OutboxReader
from penstock.experience.run_replay import Replay, transition_fields
from penstock.ipc import Occupancy
from penstock.ipc.stream import BlockCounter, Frame, Kind, StreamError, array_views, nbytes_of
from penstock.replay import RateLimiter, ReplayBuffer
from tests.engine.processes import wait_until
from tests.envs.arrangements import counting_lanes
from tests.experience.writing import run_shape

OBSERVATION, ACTION = ObservationSpec((3,), "float32"), ActionSpec((), "int64", num_actions=2)
TOKEN, RUN = b"t" * 32, 11
WORKERS = [range(1), range(1, 2)]  # of two nodes
NUMBERS = {"segment_length": 1, "weights_nbytes": 16}


class Ends:
    """Home of two nodes with a replay buffer, and the lanes of node 1, which has nothing but an outbox."""

    def __init__(self) -> None:
        self.limiter = RateLimiter(samples_per_insert=1.0, min_size=4, tolerance=4.0)
        self.buffer = ReplayBuffer(100, transition_fields(OBSERVATION, ACTION, with_values=False))
        self.transport = transport_of(ReplayPath(Replay(self.buffer, self.limiter, 1, 1.0)))
        self.home = ExperienceArena.create(run_shape(num_workers=2, **NUMBERS))
        self.home.control[Control.GOAL] = 1_000
        self.home.weights.publish(np.zeros(16, np.uint8), 0)
        self.node = ExperienceArena.create(run_shape(first_worker=1, **NUMBERS))
        self.there = self.transport.to_node().path_on_node(self.node)
        self.lanes = counting_lanes("single", [[(3, "terminated")], [(4, "terminated")]])
        self.writer = self.there.writer(self.node, 0, self.lanes, 0, None, None)
        self.lanes.reset()

    def step(self) -> None:
        """Take a step with both lanes."""
        self.lanes.step(np.zeros(2, np.int64))
        self.writer.record()


@pytest.fixture
def ends():
    return Ends()


@pytest.fixture
def seat(ends):
    return StepNodeLanes(1, WORKERS[1], ends.home, ends.transport, False)


class Came:
    """A stream by which calls have come."""

    def __init__(self, calls):
        self.views = array_views(*calls.values())

    def arriving(self, views):
        for view, came in zip(views, self.views, strict=True):
            view[:] = came
        yield from ()


@pytest.mark.parametrize("is_sharded", [False, True])
def test_all_bells_of_a_frame_are_rung_in_the_turn_in_which_it_is_whole(ends, seat, is_sharded):
    seat._transport = SimpleNamespace(is_sharded=is_sharded)
    with pytest.raises(StopIteration) as ended:
        next(seat.receive(None, Frame(Kind.TAKEN, RUN, 1, number=0), None))
    dispatcher, learner = ends.home.rollout_bells[0], ends.home.learner_bell
    assert set(ended.value.value) == {dispatcher, *([learner] if is_sharded else [])}


def test_a_node_may_take_as_many_steps_as_home_lets_in_and_each_is_counted_once(ends, seat):
    limiter = ends.limiter
    # Two of each lane: more the node may not have open.
    assert len(seat.grant(Occupancy(ends.home.slots))) == 4 == limiter.inserts
    assert len(seat.grant(Occupancy(ends.home.slots))) == 0
    list(seat.receive(None, Frame(Kind.TAKEN, RUN, 1, number=3), None))
    assert len(seat.grant(Occupancy(ends.home.slots))) == 2 and limiter.inserts == 6
    seat._reclaim()  # lost, with three steps that it had not taken
    assert len(seat.grant(Occupancy(ends.home.slots))) == 3 and limiter.inserts == 6  # they are counted already


def test_a_receiver_in_a_dead_ones_place_grants_the_steps_that_are_already_counted(ends):
    for _ in range(3):
        seat = StepNodeLanes(1, WORKERS[1], ends.home, ends.transport, False)
        assert len(seat.grant(Occupancy(ends.home.slots))) == 4 == ends.limiter.inserts
    list(seat.receive(None, Frame(Kind.TAKEN, RUN, 1, number=3), None))
    seat = StepNodeLanes(1, WORKERS[1], ends.home, ends.transport, False)
    assert len(seat.grant(Occupancy(ends.home.slots))) == 3 and ends.limiter.inserts == 6


class Silent:
    """A stream by which nothing comes."""

    def __init__(self, sent):
        self.sent, self.is_closed = sent, threading.Event()

    def send(self, frame, views=None):
        self.sent.append(frame)

    def receive(self):
        self.is_closed.wait()
        raise ConnectionError("closed")

    def close(self):
        self.is_closed.set()


def test_more_steps_than_32_bits_count_are_taken_on_one_connection(ends, monkeypatch):
    sent = []
    monkeypatch.setattr("penstock.engine.nodes.sender.connect", lambda *args: Silent(sent))
    sender = StepSender(ends.node, Home(("", 0), TOKEN, RUN, 1, 1), ends.there)
    sender._granted = 2**32 + 5
    sender.poll()
    sender.close()
    (frame,) = [Frame.unpacked(each.packed()) for each in sent if each.kind is Kind.TAKEN]
    seat = StepNodeLanes(1, WORKERS[1], ends.home, ends.transport, False)
    seat._granted = seat._taken = 2**32
    list(seat.receive(None, frame, None))
    assert seat._taken == 2**32 + 5


def test_a_sender_that_is_held_up_loses_no_step_that_lanes_may_take_meanwhile():
    """Sixteen groups, each in a step: that one and two granted ahead are written before the sender looks again."""
    shape = run_shape(num_workers=16, **NUMBERS)
    node = ExperienceArena.create(shape)
    there = Ends().transport.to_node().path_on_node(node)
    reader = OutboxReader(there.replay.buffer)
    writers = [there.replay.buffer.writer() for _ in range(shape.all_groups)]
    fields = transition_fields(OBSERVATION, ACTION, with_values=False)
    step = {name: np.zeros((2, *field.shape), field.dtype) for name, field in fields.items() if name != "discount"}
    for writer in writers * 3:
        writer.add(**step, terminated=np.zeros(2, np.bool_))
    assert len(reader.take()["writer"]) == 3 * len(writers)


def test_steps_go_home_by_a_stream_and_the_node_waits_for_what_it_is_granted(ends):
    spec = ReceiverRole("127.0.0.1", TOKEN, RUN, WORKERS, (ends.transport,), (False,))
    receiver = Receiver(spec, ends.home, lambda report: None)
    sender = StepSender(ends.node, Home(receiver.address, TOKEN, RUN, 1, 1), ends.there)
    steps = 0

    def are_home():
        nonlocal steps
        sender.poll()
        while ends.writer.open():
            ends.step()
            steps += 2
        return steps >= 8 and len(ends.buffer) == steps

    wait_until(are_home, "all steps that are granted have gone home")
    # Four fill the buffer, four more are the tolerance of the limiter: then everything waits for the learner.
    assert steps == len(ends.buffer) == ends.limiter.inserts == 8
    sender.close()
    receiver.close()


def test_policy_lag_of_steps_is_that_of_the_weights_that_the_node_had_when_it_sent_them(ends, seat):
    arrive = arriving(ends, seat)
    for home, node, lag in ((4, 4, 0.0), (9, 6, 3.0), (9, 9, 0.0)):
        ends.home.weights.publish(np.zeros(16, np.uint8), home)
        arrive(version=node)
        assert seat.status().policy_lag == seat.status().policy_lag_max == lag
    assert seat.status().steps == len(ends.buffer) == 6


def test_a_frame_of_more_steps_than_its_bytes_can_hold_is_none(ends, seat):
    with pytest.raises(StreamError, match="4294967295 steps came with 100 bytes, expected "):
        next(seat.receive(None, Frame(Kind.BLOCK, RUN, 1, number=1, count=2**32 - 1, nbytes=100), BlockCounter(RUN, 1)))


def test_a_dismissed_node_has_delivered_when_no_steps_arrive_any_more(ends, seat, monkeypatch):
    arrive = arriving(ends, seat)
    assert not seat.status().has_left
    seat.dismiss()
    later = time.monotonic() + 1.5
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert seat.status().has_left
    arrive()
    assert not seat.status().has_left and len(ends.buffer) == 2


def test_steps_of_an_earlier_epoch_go_into_the_buffer_as_at_home(ends, seat):
    arrive = arriving(ends, seat)
    ends.home.control[Control.RUN_EPOCH] = 1
    arrive(epoch=0)
    assert len(ends.buffer) == 2 and seat.status().stale == 0


def arriving(ends, seat):
    """What takes a step of the node's lanes, and has it arrive at home."""
    outbox, blocks = OutboxReader(ends.there.replay.buffer), BlockCounter(RUN, 1)

    def arrive(**facts):
        ends.node.full.push_many(np.zeros(2, np.int64))  # of each lane a step is granted
        assert ends.writer.open()
        ends.step()
        calls = outbox.take()
        came = Came(calls)
        frame = Frame(Kind.BLOCK, RUN, 1, number=blocks.last + 1, count=1, nbytes=nbytes_of(came.views), **facts)
        list(seat.receive(came, frame, blocks))

    return arrive
