"""What travels between a node and home: headers, blocks, and how the two ends know each other."""

import socket
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import Config
from penstock.engine.nodes.blocks import Frame, Kind, Sequence, StreamError, views_of
from penstock.engine.nodes.choosing import Machine, choose, cores_wanted, resources_wanted
from penstock.engine.nodes.host import About, differences
from penstock.engine.nodes.stream import Stream, connect, welcome

TOKEN = b"t" * 32
unsigned, signed = st.integers(0, 2**32 - 1), st.integers(-(2**63), 2**63 - 1)


@given(st.sampled_from(Kind), st.integers(0, 2**64 - 1), unsigned, signed, signed, st.integers(0, 2**64 - 1), unsigned)
def test_a_header_says_what_was_put_into_it(kind, run, incarnation, epoch, version, number, count):
    frame = Frame(kind, run, incarnation, epoch, version, number, count, nbytes=count)
    assert len(frame.packed()) == Frame.NBYTES and Frame.unpacked(frame.packed()) == frame


@given(st.binary(min_size=Frame.NBYTES, max_size=Frame.NBYTES))
def test_other_bytes_are_no_header(data):
    with pytest.raises(StreamError, match="expected a frame's header"):
        Frame.unpacked(data)


@given(st.lists(st.tuples(st.sampled_from([1, 1, 1, 2]), st.integers(1, 6))))
def test_every_block_is_taken_once_and_every_other_is_counted(sent):
    sequence, taken = Sequence(run=7, incarnation=1), []
    for incarnation, number in sent:
        if sequence.takes(Frame(Kind.BLOCK, 7, incarnation, number=number)):
            taken.append(number)
    assert taken == sorted(set(taken))  # each once, in order
    assert sequence.stale == sum(incarnation != 1 for incarnation, _ in sent)
    assert len(taken) + sequence.stale + sequence.doubled == len(sent)
    assert sequence.missing == (taken[-1] - len(taken) if taken else 0)


@given(st.integers(1, 5), st.lists(st.integers(0, 7), min_size=1, max_size=8, unique=True), st.integers(0, 2))
def test_views_of_slots_are_their_bytes_column_by_column_in_the_order_asked(rows, slots, width):
    numbers = np.random.default_rng(len(slots))
    columns = [
        numbers.normal(size=(8 * rows, width)).astype(np.float32), numbers.integers(0, 2, 8 * rows).astype(bool)
    ]  # fmt: skip
    joined = b"".join(bytes(view) for view in views_of(columns, 8, np.array(slots)))
    expected = b"".join(column.reshape(8, -1)[slots].tobytes() for column in columns)
    assert joined == expected


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(1, 50), min_size=1, max_size=6))
def test_bytes_arrive_as_they_were_sent_however_the_ends_cut_them(sent, sizes):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours, theirs = Stream(socket.create_connection(listener.getsockname())), Stream(listener.accept()[0])
    data = b"".join(sent)
    ours.send(Frame(Kind.BLOCK, 1, 1, nbytes=len(data)), [memoryview(part) for part in sent])
    assert theirs.receive().nbytes == len(data)
    places = np.cumsum([0, *sizes]).clip(0, len(data))
    parts = [bytearray(int(end - begin)) for begin, end in zip(places, [*places[1:], len(data)], strict=True)]
    theirs.receive_into([memoryview(part) for part in parts])
    assert b"".join(parts) == data
    assert ours.sent == theirs.received == Frame.NBYTES + len(data)
    ours.close()
    with pytest.raises(OSError):
        theirs.receive()
    theirs.close()


@pytest.mark.parametrize(("token", "run"), [(b"u" * 32, 5), (TOKEN, 6)], ids=["another token", "another run"])
def test_who_does_not_know_the_token_of_the_run_is_not_let_in(token, run):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address, streams = listener.getsockname(), []

        def knock(token, run):
            streams.append(connect(address, token, Frame(Kind.HELLO, run, 3), {"node": 1}))

        for said in ((token, run), (TOKEN, 5)):
            thread = threading.Thread(target=knock, args=said)
            thread.start()
            connection, _ = listener.accept()
            if said == (TOKEN, 5):
                stream, hello, who = welcome(connection, TOKEN, 5)
                assert (hello.incarnation, who) == (3, {"node": 1})
                streams.append(stream)
            else:
                with pytest.raises(StreamError, match="does not know the run's token"):
                    welcome(connection, TOKEN, 5)
                connection.close()
            thread.join()
    for stream in streams:
        stream.close()


MACHINES = [Machine("a", "one", 4, frozenset()), Machine("b", "two", 8, {"gpu_box"}), Machine("c", "three", 2, set())]


def test_a_machine_is_chosen_for_its_resource_first_and_has_the_cores():
    chosen = choose(MACHINES[::-1], [(), ("gpu_box",)], [4, 4])
    assert {place: machine.id for place, machine in chosen.items()} == {0: "a", 1: "b"}
    assert len(choose(MACHINES, [()] * 3, [4] * 3)) == 2
    assert choose(MACHINES, [("gpu_box",)], [4], taken={"b"}) == {}
    both = Machine("d", "four", 4, {"gpu_box", "GPU"})
    chosen = choose([*MACHINES, both], [("gpu_box",), ("gpu_box", "GPU")], [4, 4])
    assert {place: machine.id for place, machine in chosen.items()} == {0: "b", 1: "d"}
    assert choose(MACHINES, [("gpu_box", "GPU")], [4]) == {}


def test_the_first_node_has_a_core_more_where_the_evaluator_is_on_it():
    settings = {"env": "CartPole-v1", "backend": "ray", "nodes": 2}
    assert cores_wanted(Config(**settings), 4) == [4, 4]
    cores = cores_wanted(Config(**settings, evaluator="node"), 4)
    assert cores == [5, 4]
    assert {place: machine.id for place, machine in choose(MACHINES, [(), ()], cores).items()} == {0: "b", 1: "a"}


def test_nodes_with_a_learner_come_after_those_with_lanes_and_need_a_gpu_where_the_run_has_some():
    settings = {"env": "CartPole-v1", "backend": "ray", "nodes": {"a": 2}, "num_learners": 4}
    assert resources_wanted(Config(**settings, learner_nodes=2)) == [("a",), ("a",), (), ()]
    assert resources_wanted(Config(**settings, learner_nodes=2, device="cuda")) == [("a",), ("a",), ("GPU",), ("GPU",)]
    some = Config(**settings, learner_nodes={"b": 1}, device="cuda", evaluator="node")
    assert resources_wanted(some) == [("a",), ("a",), ("b", "GPU")]
    of_gpus = Config(**settings, learner_nodes={"GPU": 1}, device="cuda")
    assert resources_wanted(of_gpus)[-1] == ("GPU",)
    assert cores_wanted(some, 8) == [9, 8, 1]


def test_versions_that_differ_are_named():
    home = About("here", 1, {"python": "3.11", "torch": "2.9", "penstock": "0.1"})
    assert differences(home, home) == ""
    node = About("there", 2, {"python": "3.12", "torch": "2.9", "penstock": "0.1"})
    assert differences(home, node) == "python 3.12 (home has 3.11)"
