"""What travels between a node and home: headers, blocks, and how the two ends know each other."""

import socket
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.nodes.host import packages_of
from penstock.envs.spec import EnvSpec
from penstock.ipc.stream import (
    HEADER,
    BlockCounter,
    Frame,
    Kind,
    OwnDelay,
    Stream,
    StreamError,
    connect,
    welcome,
)
from penstock.runs import machine
from penstock.runs.machine import About, about_here, differences
from tests.envs.counting import CountingEnv

TOKEN = b"t" * 32
unsigned, signed = st.integers(0, 2**32 - 1), st.integers(-(2**63), 2**63 - 1)


@given(st.sampled_from(Kind), st.integers(0, 2**64 - 1), unsigned, signed, signed, st.integers(0, 2**64 - 1), unsigned)
def test_a_header_says_what_was_put_into_it(kind, run, incarnation, epoch, version, number, count):
    frame = Frame(kind, run, incarnation, epoch, version, number, count, nbytes=count)
    assert len(frame.packed()) == HEADER.size and Frame.unpacked(frame.packed()) == frame


@given(st.binary(min_size=HEADER.size, max_size=HEADER.size))
def test_other_bytes_are_no_header(data):
    with pytest.raises(StreamError, match="expected a frame's header"):
        Frame.unpacked(data)


@given(st.lists(st.tuples(st.sampled_from([1, 1, 1, 2]), st.integers(1, 6))))
def test_every_block_is_taken_once_and_every_other_is_counted(sent):
    counter, taken = BlockCounter(run=7, incarnation=1), []
    for incarnation, number in sent:
        if counter.accepts(Frame(Kind.BLOCK, 7, incarnation, number=number)):
            taken.append(number)
    assert taken == sorted(set(taken))  # each once, in order
    assert counter.stale == sum(incarnation != 1 for incarnation, _ in sent)
    assert len(taken) + counter.stale + counter.duplicates == len(sent)
    assert counter.missing == (taken[-1] - len(taken) if taken else 0)


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
    assert ours.sent == theirs.received == HEADER.size + len(data)
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
                with pytest.raises(StreamError, match="has no proof of the run's token"):
                    welcome(connection, TOKEN, 5)
                connection.close()
            thread.join()
    for stream in streams:
        stream.close()


def test_versions_that_differ_are_named():
    home = About("here", 1, {"python": "3.11", "torch": "2.9", "numpy": "2.1", "ale-py": "0.11"})
    assert differences(home, home) == ""
    node = About("there", 2, {"python": "3.12", "torch": "2.9", "numpy": "2.0"})
    assert differences(home, node) == (
        "python 3.12 (home has 3.11), numpy 2.0 (home has 2.1), ale-py not (home has 0.11)"
    )


def test_checkouts_at_different_commits_differ_unless_one_is_unknown(monkeypatch):
    found = []
    for commit in ("abc1234f-dirty", "abc1234", "0123456", None):
        monkeypatch.setattr(machine, "penstock_commit", lambda commit=commit: commit)
        machine._commit_at_start.cache_clear()
        found.append(about_here())
    machine._commit_at_start.cache_clear()
    home, same, other, unknown = found
    assert differences(home, same) == differences(home, unknown) == differences(unknown, home) == ""
    assert differences(home, other) == "penstock's commit 0123456 (home has abc1234)"


def test_packages_of_the_environment_are_compared_beside_those_of_every_run():
    always = ["torch", "penstock", "numpy", "gymnasium"]
    for env, own in (("CartPole-v1", []), (CountingEnv, []), ("hypothesis:given", ["hypothesis"])):
        found = packages_of(EnvSpec.resolve(env))
        assert found == [*always, *own]
        assert about_here([*found, "nowhere"]).versions.keys() - {"penstock's commit"} == {"python", *found}


def test_limits_of_silence_are_longer_by_the_delay_of_the_end_that_is_busy():
    delay = OwnDelay()
    delay.observe(3.0)
    assert delay.seconds == 3.0
    delay.observe(0.0)
    assert delay.seconds == 2.7  # it fades
    delay.observe(500.0)
    assert delay.seconds == 30.0  # a process that was stopped for minutes
