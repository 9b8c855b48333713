"""A gateway over loopback, in one process: its nodes are to home as if they were one, and home is nearer to them."""

import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.nodes import FAN_OUT, NODES_PER_GATEWAY, levels_of
from penstock.engine.messages import Failed, Listening, NodesSeen, Ready
from penstock.engine.nodes import dispatcher
from penstock.engine.nodes.choosing import Wanted
from penstock.engine.nodes.host import HostReports, NodeLost
from penstock.engine.nodes.node import Gateway, Node, gateways_between
from penstock.engine.nodes.transport import transport_of
from penstock.engine.paths.replay import ReplayPath
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.run_replay import Replay, transition_fields
from penstock.experience.shards import ID_BITS, ShardAddress, ShardedBuffer, ShardedReplay
from penstock.ipc import SlotState
from penstock.ipc.stream import HEADER
from penstock.replay import RateLimiter, ReplayBuffer
from penstock.runs.status import NodeStatus
from tests.engine.trees import LARGE, OTHER, RUN, SMALL, TOKEN, End, trees
from tests.envs.arrangements import counting_lanes

pytest.importorskip("ray", reason="Ray is not installed")


@pytest.fixture
def tree():
    yield from trees()


@pytest.fixture
def below(tree):
    """Home with a gateway of a small and a large node."""

    def make(**numbers):
        t = tree([range(3)], **numbers)
        gateway = t.add(range(3), [SMALL, LARGE], (t.home, 0, 1))
        return t, gateway, t.add(SMALL, (), (gateway, 0, 1)), t.add(LARGE, (), (gateway, 1, 1))

    return make


def of_node(home: ExperienceArena, node: ExperienceArena, slot: int) -> int:
    """Slot at home of a slot of a node: the same turn of the same lane of the run."""
    turn, lane = divmod(slot, node.shape.num_lanes)
    return turn * home.shape.num_lanes + node.shape.first_worker * 2 + lane


def require_same_segment(home: ExperienceArena, node: ExperienceArena, slot: int) -> None:
    at = of_node(home, node, slot)
    for name, column in node.columns.items():
        theirs, ours = column.reshape(node.shape.num_slots, -1), home.columns[name].reshape(home.shape.num_slots, -1)
        assert theirs[slot].tobytes() == ours[at].tobytes(), name
    assert node.slot_number[slot] == home.slot_number[at]
    assert (node.slot_memory[slot] == home.slot_memory[at]).all()


def test_segments_pass_a_gateway_byte_for_byte_into_the_lanes_that_they_are_of(below):
    t, gateway, small, large = below()
    t.until(lambda: len(small.free()) == 4 and len(large.free()) == 8)
    small.fill([0, 3], seed=1)
    large.fill([2, 7, 1], seed=2)
    t.until(lambda: len(t.home.full()) == 5)
    for node, slots in ((small.arena, [0, 3]), (large.arena, [2, 7, 1])):
        for slot in slots:
            require_same_segment(t.home.arena, node, slot)
    t.until(lambda: t.home.seen()[0].steps == sum(node.steps for node in gateway.seen().values()) > 0)
    t.home.learn()
    t.until(lambda: len(small.free()) == 4 and len(large.free()) == 8)  # granted again, and no sooner


def test_home_sends_a_gateway_each_version_once_however_many_nodes_it_has(below, monkeypatch):
    monkeypatch.setattr(dispatcher, "ALIVE_INTERVAL", 60.0)  # what is sent is sent because it is there
    t, _, small, large = below()
    t.until(lambda: small.arena.weights.version == large.arena.weights.version == 4)
    for version in (5, 6):
        t.publish(version)
        t.until(lambda: small.arena.weights.version == large.arena.weights.version == version)  # noqa: B023
    found = np.zeros(1 << 12, np.uint8)
    large.arena.weights.read_into(found)
    assert (found == 6).all()
    t.home.arena.control[Control.GOAL] = 77
    t.home.arena.ring_rollout_workers()
    t.until(lambda: small.arena.control[Control.GOAL] == large.arena.control[Control.GOAL] == 77)
    t.until(lambda: t.home.seen()[0].weights_nbytes == 3 * ((1 << 12) + HEADER.size))


def test_gateways_have_gateways_and_nodes_of_home_beside_them(tree):
    t = tree([range(3), OTHER])
    upper = t.add(range(3), [range(3)], (t.home, 0, 1))
    lower = t.add(range(3), [SMALL, LARGE], (upper, 0, 1))
    nodes = [t.add(SMALL, (), (lower, 0, 1)), t.add(LARGE, (), (lower, 1, 1)), t.add(OTHER, (), (t.home, 1, 1))]
    t.until(lambda: [len(node.free()) for node in nodes] == [4, 8, 4])
    for node in nodes:
        node.fill([1])
    t.until(lambda: t.home.full() == sorted(of_node(t.home.arena, node.arena, 1) for node in nodes))
    assert all(node.arena.weights.version == 4 for node in nodes)


@pytest.mark.parametrize("takes_turns", [False, True])
def test_a_lost_node_of_a_gateway_is_made_up_for_there_and_its_successor_goes_on(below, takes_turns):
    t, gateway, small, large = below(takes_turns=takes_turns)
    t.until(lambda: len(small.free()) == 4 and len(large.free()) == 8)
    t.ends.remove(large)
    large.close()
    own = [of_node(t.home.arena, large.arena, slot) for slot in range(8)]
    if takes_turns:  # a batch has a segment of every lane
        t.until(lambda: t.home.full() == sorted(own))
        assert not t.home.arena.columns["valid"].any()
        t.home.learn()
    else:
        t.until(lambda: gateway.seen()[1].is_connected is False)
        assert t.home.full() == []
    small.fill([0])  # the other goes on
    t.until(lambda: of_node(t.home.arena, small.arena, 0) in t.home.full())
    if takes_turns:
        t.until(lambda: set(own) <= set(t.home.full()))  # granted again, while nobody is there
    again = t.add(LARGE, (), (gateway, 1, 2))

    def has_all() -> bool:
        if takes_turns:
            t.home.learn()
        return len(again.free()) == 8

    t.until(has_all)
    again.fill([5])
    t.until(lambda: of_node(t.home.arena, again.arena, 5) in t.home.full())


@pytest.mark.parametrize("takes_turns", [False, True])
def test_a_lost_gateway_frees_what_its_nodes_were_granted_and_another_takes_its_place(below, takes_turns):
    t, gateway, small, large = below(takes_turns=takes_turns)
    t.until(lambda: len(small.free()) == 4 and len(large.free()) == 8)
    for end in (gateway, small, large):
        t.ends.remove(end)
    gateway.close()
    for node in (small, large):
        wait_for_loss(node)
        node.close()
    t.until(lambda: not t.home.seen()[0].is_connected)
    t.until(lambda: not len(t.home.arena.slots.owned_by(0, SlotState.WRITING)))
    t.until(lambda: len(t.home.full()) == (12 if takes_turns else 0))
    assert not t.home.arena.columns["valid"].any()
    gateway = t.add(range(3), [SMALL, LARGE], (t.home, 0, 2))
    small = t.add(SMALL, (), (gateway, 0, 2))
    if takes_turns:
        t.home.learn()
    t.until(lambda: len(small.free()) == 4)
    small.fill([2])
    t.until(lambda: of_node(t.home.arena, small.arena, 2) in t.home.full() and t.home.seen()[0].is_connected)
    require_same_segment(t.home.arena, small.arena, 2)


def wait_for_loss(node: End) -> None:
    """Wait until a node has seen that its connection is lost."""
    end = time.monotonic() + 10
    with pytest.raises(ConnectionError):
        while time.monotonic() < end:
            node.poll()
            time.sleep(0.01)


class Player:
    """Lanes of a node that write into its outbox what they are granted."""

    def __init__(self, end: End) -> None:
        self.end = end
        path = end.specs[0].path
        self.lanes = counting_lanes("single", [[(3, "terminated")]] * end.arena.shape.num_lanes)
        self.writer = path.writer(end.arena, 0, self.lanes, 0, None, None)
        self.lanes.reset()
        self.steps = 0

    def step(self) -> None:
        if self.writer.open():
            self.lanes.step(np.zeros(self.lanes.num_lanes, np.int64))
            self.writer.record()
            self.steps += self.lanes.num_lanes


def replay(min_size: int = 4, tolerance: float = 4.0, num_shards: int = 0):
    observation, action = ObservationSpec((3,), "float32"), ActionSpec((), "int64", num_actions=2)
    limiter = RateLimiter(samples_per_insert=1.0, min_size=min_size, tolerance=tolerance)
    fields = transition_fields(observation, action, with_values=False)
    make = partial(ReplayBuffer, capacity=100, fields=fields, sampler=None, seed=1)
    buffer = ShardedBuffer(make, num_shards) if num_shards else make()
    kind = ShardedReplay if num_shards else Replay
    return buffer, limiter, transport_of(ReplayPath(kind(buffer, limiter, 1, 1.0)))


def test_steps_pass_a_gateway_and_home_counts_those_that_lanes_have_taken(tree):
    buffer, limiter, transport = replay(min_size=20, tolerance=20.0)
    pair = [range(1), range(1, 2)]
    numbers = {"segment_length": 1, "weights_nbytes": 1 << 12, "records": (), "state_size": 0, "slots_per_lane": 1}
    t = tree([range(2)], transport, **numbers)
    t.home.arena.control[Control.GOAL] = 1_000
    gateway = t.add(range(2), pair, (t.home, 0, 1))
    idle, busy = (t.add(part, (), (gateway, number, 1)) for number, part in enumerate(pair))
    player = Player(busy)

    def plays(steps: int) -> bool:
        player.step()
        return player.steps == len(buffer) == steps and limiter.inserts == 40

    # The limiter has room for 40; 4 are granted to the idle node, which takes none of them.
    t.until(lambda: plays(36))
    assert len(idle.arena.full) == 4
    t.ends.remove(idle)
    idle.close()
    t.until(lambda: plays(40))  # they are granted to the other, and not counted again


def test_steps_stay_in_the_shards_of_gateways_and_home_counts_those_that_lanes_have_taken(tree):
    buffer, limiter, transport = replay(min_size=20, tolerance=20.0, num_shards=2)
    numbers = {"segment_length": 1, "weights_nbytes": 1 << 12, "records": (), "state_size": 0, "slots_per_lane": 1}
    halves = [range(1), range(1, 2)]
    t = tree(halves, transport, **numbers)
    t.home.arena.control[Control.GOAL] = 1_000
    gateways = [t.add(half, [half], (t.home, number, 1)) for number, half in enumerate(halves)]
    players = [Player(t.add(half, (), (gateway, 0, 1))) for half, gateway in zip(halves, gateways, strict=True)]
    for number, gateway in enumerate(gateways):
        (shard,) = (report for report in gateway.reports[1:] if isinstance(report, Listening))
        buffer.connect(ShardAddress(number, shard.address, TOKEN, RUN))

    def plays() -> bool:
        for player in players:
            player.step()
        held = [len(gateway.specs[0].transports[0].path.replay.buffer) for gateway in gateways]
        return held == [player.steps for player in players] and sum(held) == len(buffer) == limiter.inserts == 40

    t.until(plays)
    t.until(lambda: [t.home.seen()[number].steps for number in range(2)] == [player.steps for player in players])
    batch = buffer.sample(200, out=buffer.allocate(200))
    assert set((batch["ids"] >> ID_BITS).tolist()) == {1, 2} and (batch["next_obs"] == batch["obs"] + 1).any()
    buffer.close()


def test_ends_above_a_shard_count_taken_steps_and_those_with_a_shard_the_steps_that_arrive():
    _, _, home = replay(num_shards=2)
    below = home.to_node()
    buffer = home.path.replay.buffer.maker_of(0)()
    assert home.is_sharded and below.is_sharded and below.relaying(below.path).is_sharded
    assert not below.relaying(below.path, buffer).is_sharded
    assert not replay()[2].to_node().is_sharded


@given(st.integers(1, 3_000), st.one_of(st.none(), st.integers(2, 200)))
def test_every_node_is_below_one_gateway_of_each_level_and_no_end_has_too_many(num_nodes, most):
    levels = levels_of(num_nodes, most)
    if most is None and num_nodes <= FAN_OUT:
        assert levels == []
        return
    nodes = [Node(number, Wanted(1)) for number in range(num_nodes)]
    gateways = gateways_between(levels, nodes)
    assert [gateway.number for gateway in gateways] == list(range(len(gateways)))
    assert len(levels[0]) <= FAN_OUT and max(map(len, levels[-1])) <= (most or NODES_PER_GATEWAY)
    for level in levels:
        assert [number for part in level for number in part] == list(range(num_nodes))
    for each in (*gateways, *nodes):
        if each.gateway is not None:
            assert each.gateway.below[each.number_there] is each
            assert set(each.nodes) <= set(each.gateway.nodes)
        if isinstance(each, Gateway):
            assert not each.is_of_gateways or len(each.below) <= FAN_OUT
            assert [number for below in each.below for number in below.nodes] == list(each.nodes)
    assert all(node.gateway in gateways[-len(levels[-1]) :] for node in nodes)


class Answering:
    """A host as a gateway sees it: it gives answers, one at a time, and is lost after them."""

    def __init__(self, *answers: HostReports) -> None:
        self.answers = list(answers)

    def answer(self, **facts) -> HostReports | None:
        if not self.answers:
            raise NodeLost("its actor is dead")
        return self.answers.pop(0)


def test_a_gateway_answers_for_its_nodes_at_once_where_one_has_failed_and_says_which_are_lost(monkeypatch):
    from penstock.engine.nodes import gateway_host

    monkeypatch.setattr(gateway_host, "poll_answers", lambda hosts: list(hosts))
    host, pumps = gateway_host.GatewayHost.__new__(gateway_host.GatewayHost), []
    host._failure, host._going, host._reports, host._has_failed, host._names = "", "", [], False, []
    host._hangs = SimpleNamespace(look=lambda now: [])
    host._backend = SimpleNamespace(pump=pumps.append)
    gateway_host.GatewayHost.begin_watching(host)
    good, bad = HostReports([("rollout-0", Ready())]), HostReports([("rollout-1", Failed(ValueError("x"), ""))])
    host._hosts = {0: (1, Answering(good, good, good, good)), 5: (3, Answering(good, bad))}
    found = host.gather(60.0)
    assert len(pumps) == 2 and found.below == [(0, 1, good), (5, 3, good), (0, 1, good), (5, 3, bad)]
    found = host.gather(60.0)
    assert found.below[1] == (5, 3, HostReports(failure="its actor is dead")) and list(host._hosts) == [0]


def test_of_nodes_whose_state_has_not_changed_a_gateway_shows_figures_at_intervals(monkeypatch):
    from penstock.engine.nodes import gateway_host

    host, clock = gateway_host.GatewayHost.__new__(gateway_host.GatewayHost), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    gateway_host.GatewayHost.begin_watching(host)

    def news(seconds: float, **there: bool) -> list[int]:
        clock[0] += seconds
        statuses = {int(name[1:]): NodeStatus(host="a", is_connected=is_in) for name, is_in in there.items()}
        host._take("receiver", NodesSeen(statuses))
        return list(host._news())

    assert news(0.0, _0=True, _1=False) == [0, 1]
    assert news(0.5, _0=True, _1=False) == []
    assert news(0.5, _0=True, _1=True) == [1]
    assert news(2.0, _0=True, _1=True) == [0, 1]
