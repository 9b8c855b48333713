"""A learner on a node, without the node: its messages on the group's board, and how it notices the loss of home."""

import socket
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from penstock.engine.groups.board import SILENCE_SECONDS, Board, broken_by_silence
from penstock.engine.groups.meeting import CALLED, GroupMember
from penstock.engine.nodes.learning import BoardFollower, HomeLost, NodeRank
from penstock.experience.arena import Control
from tests.engine.processes import wait_until

LOOPBACK = "127.0.0.1"
BELL = SimpleNamespace(ring=lambda: None)


@pytest.fixture
def board():
    made = Board(2, LOOPBACK)
    yield made
    made.close()


def listening_to(board):
    """The words of a node's arena, and what writes them."""
    control = np.zeros(len(Control), np.int64)
    return control, BoardFollower(board.spec, SimpleNamespace(control=control, learner_bell=BELL))


def hears(control, meeting, calls):
    wait_until(lambda: (control[Control.MEETING], control[Control.CALLS]) == (meeting, calls), f"{meeting}, {calls}")


def test_a_node_gets_every_call_although_the_first_learner_may_die_during_one(board):
    first = GroupMember(board.spec, 0, torch.device("cpu"))
    control, listening = listening_to(board)
    listening.start()
    first.call(1, 0, is_new=True)
    hears(control, 1, 0)
    first.call(1, 1, is_new=False)
    hears(control, 1, 1)
    first._store.set(CALLED, "1 2")  # and here it dies: the mark is missing
    GroupMember(board.spec, 0, torch.device("cpu")).call(2, 2, is_new=True)
    hears(control, 2, 2)
    late, of_late = listening_to(board)
    of_late.start()
    hears(late, 2, 2)
    assert (control[Control.MEETING], control[Control.CALLS]) == (2, 2)


def test_a_learner_on_a_node_ends_when_home_is_gone(board):
    control, gauges = np.zeros(len(Control), np.int64), np.zeros(32)
    arena = SimpleNamespace(control=control, learner_bell=BELL, gauges_of=lambda name: gauges)
    learner = NodeRank(SimpleNamespace(device=torch.device("cpu")), board.spec, 1, arena)
    assert not learner.poll()
    board.close()
    wait_until(lambda: not learner._calls_of_home.is_alive(), "the connection is broken")
    with pytest.raises(HomeLost, match="the connection to the board of the learner group is broken"):
        learner.poll()


def test_connections_that_are_made_between_machines_break_by_silence_and_no_others():
    def patience(connection):
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)

    with socket.create_server((LOOPBACK, 0)) as listener:
        address = listener.getsockname()
        before = socket.create_connection(address)
        with broken_by_silence():
            within = socket.create_connection(address)
        with broken_by_silence(False):
            not_wanted = socket.create_connection(address)
        after = socket.create_connection(address)
        assert [patience(each) for each in (before, within, not_wanted, after)] == [0, 1_000 * SILENCE_SECONDS, 0, 0]
        for each in (before, within, not_wanted, after):
            each.close()
