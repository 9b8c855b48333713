"""A sender and a receiver over loopback, in one process: what a node writes, home learns from."""

import contextlib
import errno
import gc
import os
import resource
import socket
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from penstock.engine.backends.local import LocalBackend
from penstock.engine.messages import Dismiss, Failed, GoOnWithout, Listening, NodesSeen, Note, Ready
from penstock.engine.nodes import dispatcher
from penstock.engine.nodes.backend import NodesBackend
from penstock.engine.nodes.choosing import Wanted
from penstock.engine.nodes.host import NodeHost, gather_seconds
from penstock.engine.nodes.node import Node
from penstock.engine.nodes.receiver import RECEIVER, Receiver, ReceiverRole
from penstock.engine.nodes.sender import Home, Sender, keep_all_slots
from penstock.engine.nodes.transport import transport_of
from penstock.engine.paths.segments import SegmentPath
from penstock.experience.arena import READER, Control, ExperienceArena
from penstock.ipc import Occupancy, SlotState
from penstock.ipc.stream import HEADER, NONCE_NBYTES, SILENCE, Frame, Kind, _proof, rounded, widened
from penstock.runs.status import NodeStatus
from tests.engine.processes import wait_until
from tests.experience.writing import LOGITS, fill_slots, run_shape

TOKEN, RUN = b"t" * 32, 11
WORKERS = [range(1), range(1, 2)]  # of two nodes


class Ends:
    """Home of two nodes, of which one is there: node 1, whose two lanes are 2 and 3 at home."""

    def __init__(
        self,
        *,
        takes_turns: bool = False,
        slots_per_lane: int = 2,
        pace: int = 0,
        weights_nbytes: int = 16,
        rounded_nbytes: int = 0,
    ) -> None:
        numbers = {"records": (LOGITS,), "state_size": 3, "slots_per_lane": slots_per_lane}
        numbers |= {"weights_nbytes": weights_nbytes, "rounded_nbytes": rounded_nbytes}
        self.home = ExperienceArena.create(run_shape(num_workers=2, segments_per_batch=4, **numbers))
        self.reports: list[NodesSeen] = []
        spec = ReceiverRole("127.0.0.1", TOKEN, RUN, WORKERS, (transport_of(SegmentPath()),), (takes_turns,))
        self.home.weights.publish(np.resize(np.arange(16, dtype=np.uint8), weights_nbytes), 4)
        self.home.control[Control.PACE] = pace
        self.receiver = Receiver(spec, self.home, self.reports.append)
        self.address = self.receiver.address
        assert self.reports == [Listening(self.address)]
        self.numbers = numbers
        self.connect(1)

    def connect(self, incarnation: int) -> None:
        self.node = ExperienceArena.create(run_shape(first_worker=1, segments_per_batch=4, **self.numbers))
        keep_all_slots(self.node)
        self.sender = Sender(self.node, Home(self.address, TOKEN, RUN, 1, incarnation), SegmentPath())

    def until(self, is_done) -> None:
        end = time.monotonic() + 10
        while not is_done():
            self.receiver.poll()
            assert time.monotonic() < end
            time.sleep(0.002)

    def free(self) -> list[int]:
        return self.node.slots.in_state(SlotState.FREE).tolist()

    def fill(self, slots: list[int], seed: int = 0) -> None:
        """Fill granted slots of the node, and have them sent."""
        fill_slots(self.node, slots, seed)
        self.node.columns["version"][:] = self.node.weights.version
        assert self.sender.poll()

    def arrived(self) -> list[int]:
        return sorted(self.home.full.pop_many(self.home.full.capacity).tolist())

    def learn(self) -> None:
        """Release all slots that have arrived, as a learner does."""
        slots = np.array(self.arrived())
        assert self.home.slots.claim(slots, SlotState.FULL, SlotState.READING, READER).all()
        self.home.release(slots)
        self.home.ring_rollout_workers()

    def status(self):
        self.receiver._next_report = 0.0
        self.receiver.poll()
        return self.reports[-1].statuses[1]

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


@pytest.fixture
def ends():
    made = []

    def make(**settings):
        made.append(Ends(**settings))
        return made[-1]

    yield make
    for each in made:
        each.close()
    threads = {"home-receiving", "home-sending", "node-receiving"}
    assert not threads & {thread.name for thread in threading.enumerate()}


def test_a_block_is_byte_for_byte_what_the_node_has_written(ends):
    e = ends()
    e.until(lambda: e.free() == [0, 1, 2, 3])
    e.fill([0, 3, 1])  # of lane 0, lane 1 in its second turn, and lane 1
    e.until(lambda: len(e.home.full) == 3)
    assert e.arrived() == [2, 3, 7]  # lanes 2 and 3 at home, where a turn is four slots
    for there, here in ((0, 2), (1, 3), (3, 7)):
        for name, column in e.node.columns.items():
            theirs, ours = column.reshape(4, -1)[there], e.home.columns[name].reshape(8, -1)[here]
            assert theirs.tobytes() == ours.tobytes(), name
        assert e.node.slot_number[there] == e.home.slot_number[here]
        assert (e.node.slot_memory[there] == e.home.slot_memory[here]).all()
    assert e.home.slots.in_state(SlotState.FULL).tolist() == [2, 3, 7]
    status = e.status()
    assert status.is_connected and status.lanes == 2 and status.policy_lag == 0.0
    assert status.steps == e.node.columns["valid"].reshape(4, -1)[[0, 1, 3], :4].sum()
    columns = sum(column.nbytes for column in e.node.columns.values()) * 3 / 4
    assert columns < status.nbytes < columns + 600  # a hello, a header, and some bytes for each segment


def test_a_status_has_the_mean_and_the_largest_policy_lag_of_the_last_steps(ends):
    e = ends()
    e.until(lambda: e.free() == [0, 1, 2, 3])
    e.home.weights.publish(np.zeros(16, np.uint8), 9)
    fill_slots(e.node, [0], 0)
    e.node.columns["version"][:] = np.arange(e.node.columns["version"].size)
    e.node.columns["valid"][:] = True
    assert e.sender.poll()
    e.until(lambda: len(e.home.full) == 1)
    status = e.status()
    assert (status.policy_lag, status.policy_lag_max) == (7.5, 9.0), "steps of versions 0 to 3"


def test_a_lane_is_granted_a_slot_again_only_when_the_learner_gives_it_back(ends):
    e = ends(slots_per_lane=1, takes_turns=True)
    e.until(lambda: e.free() == [0, 1])
    e.fill([0, 1])
    e.until(lambda: len(e.home.full) == 2)
    e.arrived()
    e.home.slots.claim(np.array([2, 3]), SlotState.FULL, SlotState.READING, READER)
    e.home.weights.publish(np.full(16, 9, np.uint8), 5)
    assert e.free() == []
    e.home.release(np.array([3]))
    e.until(lambda: e.free() == [1])
    # A writer of a freed slot acts with the weights published before.
    weights = np.zeros(16, np.uint8)
    assert e.node.weights.read_into(weights) == 5 and (weights == 9).all()


def test_a_lane_is_granted_its_next_slot_as_soon_as_what_it_has_filled_is_there(ends, monkeypatch):
    monkeypatch.setattr(dispatcher, "ALIVE_INTERVAL", 60.0)
    e = ends(slots_per_lane=3, pace=1)
    e.until(lambda: e.free() == [0, 1, 2, 3])  # the backlog is four segments
    e.fill([0, 2])
    e.until(lambda: e.free() == [1, 3, 4])
    assert e.arrived() == [2, 6]


def test_home_reads_its_slots_once_for_all_nodes_and_not_at_all_while_nothing_happens(ends, monkeypatch):
    monkeypatch.setattr(dispatcher, "ALIVE_INTERVAL", 60.0)
    e = ends()
    other = ExperienceArena.create(run_shape(segments_per_batch=4, **e.numbers))
    keep_all_slots(other)
    second = Sender(other, Home(e.address, TOKEN, RUN, 0, 1), SegmentPath())
    e.until(lambda: e.free() == other.slots.in_state(SlotState.FREE).tolist() == [0, 1, 2, 3])
    reads = []
    monkeypatch.setattr(dispatcher, "Occupancy", lambda table: reads.append(table) or Occupancy(table))

    def is_quiet():
        before, end = len(reads), time.monotonic() + 0.5
        while time.monotonic() < end:
            e.receiver.poll()
            time.sleep(0.01)
        return len(reads) == before

    wait_until(is_quiet, "the search that follows the last grant is over")
    reads.clear()
    sending, _ = e.receiver._serving
    assert not sending.dispatch() and len(reads) == 1
    second.close()


def test_a_busy_home_says_how_late_it_is_and_nodes_wait_for_longer(ends):
    e = ends()
    e.until(lambda: e.free() == [0, 1, 2, 3])
    assert e.sender._stream._socket.gettimeout() == SILENCE
    sending, _ = e.receiver._serving
    sending._delay.observe(1.5)
    sending.dispatch(with_signs=True)
    e.until(lambda: e.sender._stream._socket.gettimeout() > SILENCE)
    assert e.sender._stream._socket.gettimeout() == pytest.approx(SILENCE + 3.0, abs=0.31)  # it fades by a tenth


def test_a_node_that_sends_nothing_for_too_long_is_gone(ends):
    e = ends()
    e.until(lambda: e.free() == [0, 1, 2, 3])
    (link,) = e.receiver._poller._links.values()
    for seconds, is_connected in ((SILENCE, True), (SILENCE + 0.1, False)):
        link.end_if_silent(link._received_at + seconds)
        assert e.status().is_connected == is_connected


@pytest.mark.parametrize("rounds", [False, True])
def test_rounded_weights_are_half_as_large_on_the_way_and_those_of_torch_there(rounds):
    numbers, rest = np.random.default_rng(0).standard_normal(256, np.float32), np.arange(16, dtype=np.uint8)
    e = Ends(weights_nbytes=1_040, rounded_nbytes=1_024 if rounds else 0)
    e.until(lambda: e.status().weights_nbytes)
    before = e.status().weights_nbytes
    e.home.weights.publish(np.concatenate([numbers.view(np.uint8), rest]), 5)
    e.home.ring_rollout_workers()
    e.until(lambda: e.node.weights.version == 5)
    found = np.zeros(1_040, np.uint8)
    e.node.weights.read_into(found)
    expected = torch.from_numpy(numbers).to(torch.bfloat16 if rounds else torch.float32).float().numpy()
    assert np.array_equal(found[:1_024].view(np.float32), expected) and np.array_equal(found[1_024:], rest)
    e.until(lambda: e.status().weights_nbytes > before)
    assert e.status().weights_nbytes - before == HEADER.size + (528 if rounds else 1_040)
    again = rounded(found, 1_024 if rounds else 0)
    assert np.array_equal(widened(again, 1_024 if rounds else 0), found)  # a gateway sends on what came
    e.close()


def test_weights_larger_than_a_connection_takes_at_once_arrive_whole_and_nobody_waits_for_them():
    e = Ends(weights_nbytes=1 << 24)
    stuck = socket.create_connection(e.address)  # a node that takes nothing
    nonce = stuck.recv(NONCE_NBYTES)
    text = b'{"node": 0, "policy": 0}'
    hello = Frame(Kind.HELLO, RUN, 1)
    answer = _proof(TOKEN, nonce, hello, text) + text
    stuck.sendall(Frame(Kind.HELLO, RUN, 1, nbytes=len(answer)).packed() + answer)
    e.until(lambda: e.receiver._lanes[0][0].status().is_connected)
    for version in (5, 6):
        weights = np.random.default_rng(version).integers(0, 256, 1 << 24, np.uint8)
        e.home.weights.publish(weights, version)
        e.home.ring_rollout_workers()
        e.until(lambda: e.node.weights.version == version)  # noqa: B023
        found = np.zeros(1 << 24, np.uint8)
        e.node.weights.read_into(found)
        assert (found == weights).all()
    assert e.receiver._lanes[0][0].status().is_connected
    stuck.close()
    e.until(lambda: not e.receiver._lanes[0][0].status().is_connected)
    e.close()


def test_a_receiver_in_the_place_of_one_that_has_died_fills_in_for_nodes_that_do_not_come_again():
    home = ExperienceArena.create(run_shape(num_workers=2, segments_per_batch=4, slots_per_lane=1))
    spec = ReceiverRole("127.0.0.1", TOKEN, RUN, WORKERS, (transport_of(SegmentPath()),), (True,))
    for each, filled in ((spec, []), (spec.successor(home), [0, 1, 2, 3])):
        receiver = each.build(home, lambda report: None)
        receiver.poll()
        receiver.close()
        assert sorted(home.full.pop_many(home.full.capacity).tolist()) == filled


def test_a_node_that_is_lost_before_it_was_ever_connected_is_waited_for_no_longer(ends):
    e = ends(takes_turns=True)
    e.home.slot_altered[:] = 3  # of segments before
    e.until(lambda: e.free() == [0, 1, 2, 3])
    assert not e.arrived()  # the lanes of node 0, 0 and 1, may be stepped yet
    backend = NodesBackend.__new__(NodesBackend)
    backend._local = SimpleNamespace(send=lambda role, command: told.append((role, command)))
    backend._handle, backend._evaluations, told = lambda role, report: None, None, []
    backend._placement = SimpleNamespace(without=lambda node: "")
    for node in (Node(0, Wanted(1)), Node(2, Wanted(1, learns=True), rank=1)):
        node.host = SimpleNamespace(machine=SimpleNamespace(host="amber"), kill=lambda: None)
        backend._lose(node, "its actor is dead")
    assert told == [(RECEIVER, GoOnWithout(0))]
    e.receiver.handle(told[0][1])
    e.until(lambda: len(e.home.full) == 4)
    assert e.arrived() == [0, 1, 4, 5]
    assert not e.home.slot_altered[[0, 1, 4, 5]].any()


def test_a_lost_node_that_is_there_again_is_reported_once():
    backend = NodesBackend.__new__(NodesBackend)
    backend._local = SimpleNamespace(send=lambda role, command: None)
    backend._handle = lambda role, report: isinstance(report, Note) and told.append(report.text)
    backend._evaluations, backend._config, backend.has_lanes, told = None, SimpleNamespace(least_nodes=1), True, []
    backend._placement = SimpleNamespace(without=lambda node: "its lanes stand still")
    node, host = Node(0, Wanted(1)), SimpleNamespace(machine=SimpleNamespace(host="amber"), kill=lambda: None)
    for has_host, is_connected in ((True, True), (False, False), (True, False), (True, True), (True, True)):
        if node.host is not None and not has_host:
            backend._lose(node, "its actor is dead")
        node.host = host if has_host else None
        backend._take_statuses([node], {0: NodeStatus(is_connected=is_connected)})
    assert len(told) == 2 and told[1].startswith("node-0 is back on ")


def test_a_dismissed_node_delivers_what_it_was_granted_and_is_granted_nothing_more(ends):
    e = ends()
    e.until(lambda: e.free() == [0, 1, 2, 3])
    e.receiver.handle(Dismiss(1))
    e.fill([0, 3])
    e.until(lambda: len(e.home.full) == 2)
    assert (e.status().state, e.status().has_left) == ("leaving", False)
    e.learn()
    e.fill([1, 2])
    e.until(lambda: len(e.home.full) == 2)
    assert e.status().has_left and e.status().state == "left" and e.free() == []
    e.sender.close()
    e.until(lambda: not e.status().is_connected)
    assert not e.status().has_left  # a host in its place is not dismissed
    e.learn()
    e.connect(2)
    e.until(lambda: e.free() == [0, 1, 2, 3])


def test_weights_go_once_for_each_version_and_the_newest_wins(ends):
    e = ends()
    e.until(lambda: e.free() == [0, 1, 2, 3])
    for version in range(5, 40):
        e.home.weights.publish(np.full(16, version, np.uint8), version)
    e.home.ring_rollout_workers()
    e.until(lambda: e.node.weights.version == 39)
    for _ in range(20):
        e.home.ring_rollout_workers()
    e.home.control[Control.GOAL] = 77
    e.home.ring_rollout_workers()
    e.until(lambda: e.node.control[Control.GOAL] == 77)
    assert e.status().weights_nbytes <= 3 * (16 + HEADER.size)  # of versions 4 and 39, and one between at most


def test_a_version_that_no_bell_announces_soon_after_another_is_sent_too(ends, monkeypatch):
    monkeypatch.setattr(dispatcher, "ALIVE_INTERVAL", 60.0)
    monkeypatch.setattr(dispatcher, "WEIGHTS_INTERVAL", 0.3)
    e = ends()
    e.until(lambda: e.free() == [0, 1, 2, 3])
    e.home.weights.publish(np.full(16, 5, np.uint8), 5)
    e.home.ring_rollout_workers()
    e.until(lambda: e.node.weights.version == 5)
    for version in range(6, 20):
        e.home.weights.publish(np.full(16, version, np.uint8), version)
    e.until(lambda: e.node.weights.version == 19)
    assert e.status().weights_nbytes <= 3 * (16 + HEADER.size)


def test_segments_of_an_earlier_epoch_are_counted_and_left_to_the_learner_to_throw_away(ends):
    e = ends()
    e.until(lambda: e.free() == [0, 1, 2, 3])
    e.home.control[Control.RUN_EPOCH] = 1
    e.node.control[Control.RUN_EPOCH] = 0
    e.fill([0])
    e.until(lambda: len(e.home.full) == 1)
    assert e.home.slot_epoch[2] == 0 and e.status().stale == 1
    e.home.ring_rollout_workers()
    e.until(lambda: e.node.control[Control.RUN_EPOCH] == 1)


def test_a_block_that_comes_twice_and_one_for_slots_that_were_not_granted_are_refused(ends):
    e = ends()
    e.until(lambda: e.free() == [0, 1, 2, 3])
    e.fill([0])
    e.until(lambda: len(e.home.full) == 1)
    kept = e.home.columns["obs"].copy()
    e.node.columns["obs"][:] = 55
    e.sender._number = 0
    e.sender._send(np.array([1]))  # by its number it has come already
    e.sender._number = 7
    e.sender._send(np.array([0]))  # its slot is full
    e.until(lambda: e.status().duplicates == 2)
    assert e.arrived() == [2] and (e.home.columns["obs"] == kept).all()
    e.fill([1])  # the stream is still in step
    e.until(lambda: len(e.home.full) == 1)
    assert e.status().missing == 6  # numbers 2 to 7: the sender went on from 7


def test_what_was_counted_of_a_host_that_is_replaced_is_kept(ends):
    e = ends()
    e.until(lambda: e.free() == [0, 1, 2, 3])
    e.sender._number = 2
    e.fill([0])
    e.until(lambda: e.status().missing == 2)
    before = e.status()
    e.sender.close()
    e.connect(2)
    e.until(lambda: e.status().weights_nbytes == 2 * before.weights_nbytes)
    after = e.status()
    assert (after.missing, after.stale, after.duplicates) == (2, 0, 0) and after.nbytes > before.nbytes


@pytest.mark.parametrize("takes_turns", [False, True])
def test_lanes_of_a_node_that_is_gone_stand_still_and_give_nothing_or_empty_segments(ends, takes_turns):
    e = ends(takes_turns=takes_turns)
    e.until(lambda: e.free() == [0, 1, 2, 3])
    assert len(e.home.slots.owned_by(1, SlotState.WRITING)) == 4
    e.home.columns["valid"].reshape(8, -1)[[2, 3, 6, 7]] = takes_turns  # of what the slots held before
    e.sender.close()
    e.until(lambda: not len(e.home.slots.owned_by(1, SlotState.WRITING)))
    e.until(lambda: len(e.home.full) == (4 if takes_turns else 0))
    assert not e.home.columns["valid"].any() and not e.status().is_connected
    assert e.arrived() == ([2, 3, 6, 7] if takes_turns else [])
    if takes_turns:
        e.home.slots.claim(np.arange(8), SlotState.FULL, SlotState.READING, READER)
        e.connect(2)
        e.until(lambda: e.status().is_connected)
        e.home.release(np.array([2, 3, 6, 7]))
    else:
        e.connect(2)
    e.until(lambda: e.free() == [0, 1, 2, 3])


def test_what_is_sent_to_a_node_that_is_lost_meanwhile_goes_nowhere_and_harms_nobody(ends):
    e = ends()
    e.until(lambda: e.free() == [0, 1, 2, 3])
    (link,) = e.receiver._poller._links.values()
    link.end()
    link.send([memoryview(b"a grant")])  # the dispatcher had looked before
    assert not link.is_connected and not link._unsent


def test_a_host_that_was_replaced_is_not_let_in_again(ends):
    e = ends()
    e.until(lambda: e.free() == [0, 1, 2, 3])
    before = e.sender
    e.connect(3)
    e.until(lambda: e.free() == [0, 1, 2, 3])
    late = Sender(ExperienceArena.create(e.node.shape), Home(e.address, TOKEN, RUN, 1, 2), SegmentPath())
    with pytest.raises(ConnectionError, match="the connection to the home node is lost"):
        e.until(late.poll)
    with pytest.raises(ConnectionError, match="the connection to the home node is lost"):
        e.until(before.poll)
    e.fill([2])
    e.until(lambda: len(e.home.full) == 1)
    late.close()
    before.close()


def test_what_no_node_sends_ends_its_connection_alone(ends):
    e = ends()
    e.until(lambda: e.free() == [0, 1, 2, 3])
    e.sender._stream.send(e.sender._frame(Kind.GRANT))
    e.until(lambda: not e.status().is_connected)
    e.connect(2)
    e.until(lambda: e.free() == [0, 1, 2, 3])
    assert e.status().is_connected


@pytest.mark.long
def test_strangers_who_say_nothing_or_a_byte_now_and_then_are_closed_and_take_no_nodes_place(monkeypatch):
    monkeypatch.setattr("penstock.engine.nodes.listening.MOST_UNPROVEN", 4)
    monkeypatch.setattr("penstock.engine.nodes.listening.SILENCE", 0.5)
    ends = Ends()
    strangers = [socket.create_connection(ends.address, timeout=5) for _ in range(12)]
    ends.until(lambda: len(ends.receiver._listener._acceptor.unproven) == 0)
    for stranger in strangers:
        with contextlib.suppress(ConnectionError):
            while stranger.recv(4096):  # closed by the other end, whose random bytes come first
                pass
    ends.connect(2)
    ends.until(lambda: len(ends.free()) > 0)
    assert ends.status().is_connected
    for stranger in strangers:
        stranger.close()
    ends.close()


def test_a_node_whose_home_is_stopped_says_that_its_machine_answers(monkeypatch):
    monkeypatch.setattr("penstock.ipc.stream.SILENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as stopped:  # the kernel accepts, as for a process after SIGSTOP
        home = Home(stopped.getsockname()[:2], TOKEN, RUN, 1, 1)
        with pytest.raises(TimeoutError, match=r"127\.0\.0\.1 answers, but the run there has not in"):
            Sender(ExperienceArena.create(run_shape()), home, SegmentPath())


def test_strangers_who_hold_all_connections_without_a_proof_keep_no_node_out(ends, monkeypatch):
    monkeypatch.setattr("penstock.engine.nodes.listening.MOST_UNPROVEN", 4)
    monkeypatch.setattr("penstock.engine.nodes.listening.SILENCE", 60.0)
    e = ends()
    e.until(lambda: e.free() == [0, 1, 2, 3])
    e.sender.close()
    e.until(lambda: not e.status().is_connected)
    with contextlib.ExitStack() as strangers:
        for _ in range(6):
            stranger = strangers.enter_context(socket.create_connection(e.address, timeout=5))
            assert stranger.recv(1)
        e.connect(2)
        e.until(lambda: e.status().is_connected)
        assert len(e.receiver._listener._acceptor.unproven) == 3, "strangers are still there"
        said = {each.text for each in e.reports if isinstance(each, Note)}
        of_flood = "another came, and 4 had not proven to have the token"
        assert said == {f"warning: a connection to the receiver was refused: {of_flood}"}


def test_nodes_connect_again_after_the_receiver_could_open_no_file(ends):
    e = ends()
    e.until(lambda: e.free() == [0, 1, 2, 3])
    e.sender.close()
    e.until(lambda: not len(e.home.slots.owned_by(1, SlotState.WRITING)))  # its file is closed at home, too
    gc.collect()  # files of what earlier tests have left are not closed below
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    stranger = socket.socket()
    used = [os.open(os.devnull, os.O_RDONLY)]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used[0] + 8, hard))
        with contextlib.suppress(OSError):
            while True:
                used.append(os.open(os.devnull, os.O_RDONLY))
        stranger.connect(e.address)
        e.until(lambda: any("Too many open files" in getattr(each, "text", "") for each in e.reports))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for file in used:
            os.close(file)
        stranger.close()
    e.connect(2)
    e.until(lambda: e.free() == [0, 1, 2, 3])
    assert e.status().is_connected


def test_nodes_connect_again_after_the_receiver_could_start_no_thread(ends, monkeypatch):
    e = ends()
    e.until(lambda: e.free() == [0, 1, 2, 3])
    with monkeypatch.context() as patched, socket.create_connection(e.address, timeout=5) as first:
        assert first.recv(1), "its thread is there"
        patched.setattr(threading.Thread, "start", cannot_start)
        with socket.create_connection(e.address, timeout=5) as stranger:
            assert stranger.recv(1) == b"", "closed at once"
        e.until(lambda: any("can't start new thread" in getattr(each, "text", "") for each in e.reports))
        assert len(e.receiver._listener._acceptor.unproven) <= 1
    e.sender.close()
    e.connect(2)
    e.until(lambda: e.free() == [0, 1, 2, 3])
    assert e.status().is_connected


def test_a_connection_that_cannot_be_watched_is_none_of_its_node(ends, monkeypatch):
    def refuse(fd, events):
        raise OSError(errno.ENOSPC, "too many watches")

    e = ends()
    e.sender.close()
    e.until(lambda: not e.status().is_connected)
    epoll = e.receiver._poller._epoll
    full = SimpleNamespace(poll=epoll.poll, unregister=epoll.unregister, modify=epoll.modify, register=refuse)
    with monkeypatch.context() as patched:
        patched.setattr(e.receiver._poller, "_epoll", full)
        e.connect(2)
        e.until(lambda: any("too many watches" in getattr(each, "text", "") for each in e.reports))
        assert not e.status().is_connected
    e.sender.close()
    e.connect(3)
    e.until(lambda: e.free() == [0, 1, 2, 3])
    assert e.status().is_connected


def cannot_start(thread):
    raise RuntimeError("can't start new thread")


def test_a_thread_of_a_host_reads_process_ids_while_others_begin_and_end():
    class Ending:
        @property
        def pid(self):
            backend._processes.pop("rollout-1", None)
            return 7

    backend = LocalBackend.__new__(LocalBackend)
    backend._launcher, backend._processes = SimpleNamespace(pid=5), {f"rollout-{n}": Ending() for n in range(3)}
    assert backend.pids == {"launcher": 5, "rollout-0": 7, "rollout-1": 7, "rollout-2": 7}


def test_hosts_of_many_nodes_gather_for_longer_and_answer_at_once_where_a_role_has_failed():
    assert [gather_seconds(number) for number in (1, 100, 300, 1_000, 9_000)] == [0.5, 0.5, 1.5, 2.5, 2.5]
    host, pumps = NodeHost.__new__(NodeHost), []
    host._failure, host._going, host._reports, host._has_failed, host._names = "", "", [], False, []
    host._hangs = SimpleNamespace(look=lambda now: [])

    def pump(seconds):
        pumps.append(seconds)
        host._take("rollout-0", Failed(ValueError("of the environment"), "") if len(pumps) == 2 else Ready())

    host._backend = SimpleNamespace(pump=pump)
    assert [role for role, _ in host.gather(60.0).reports] == ["rollout-0", "rollout-0"] and len(pumps) == 2
    assert not host._has_failed  # the next answer has other reports
