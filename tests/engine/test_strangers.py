"""Strangers at the ports of a run: nothing that they send is read as anything but a proof, and learning goes on."""

import contextlib
import os
import pickle
import re
import socket
import struct
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch.distributed import DistNetworkError, DistStoreError, TCPStore

from penstock.algorithms.ppo import PPO
from penstock.engine.groups import board as boards
from penstock.engine.groups.board import Board, BoardStore
from penstock.engine.groups.meeting import GroupMember
from penstock.engine.trainer import Trainer
from tests.engine.inside import supervisor_of
from tests.engine.processes import FOR_EVER, TINY

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("kept_launcher")]


class Bomb:
    """Makes a file where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


def messages(bomb):
    """Texts of strangers, each for a connection of its own."""
    pickled = pickle.dumps(Bomb(bomb))
    request = struct.pack("<4I", 3, 3, 9, 7) + b"set1/invitedgarbage"
    wrong = bytes(boards.NONCE_NBYTES) + bytes(boards.PROOF_NBYTES)
    http = b"GET / HTTP/1.1\r\n\r\n"
    return [b"", http, pickled, os.urandom(100), request, wrong + request, b"\xff" * 4096, b"\0" * 7]


def said(address, texts):
    """Connections on which these messages were sent, kept open."""
    connections = []
    for text in texts:
        connection = socket.create_connection(address, timeout=5)
        connection.sendall(text)
        connections.append(connection)
    return connections


@pytest.fixture
def board(monkeypatch):
    monkeypatch.setattr(boards, "PROOF_SECONDS", 0.5)
    made = Board(2)
    yield made
    made.close()


def is_closed(connection):
    """Whether the other end closes a connection; earlier messages are skipped."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass
    return True


def test_the_board_closes_the_connections_of_strangers_and_takes_nothing_from_them(board, tmp_path):
    address = (board.spec.address, board.spec.port)
    strangers = said(address, messages(tmp_path / "bomb") * 4)  # more than may be unproven at a time
    assert all(map(is_closed, strangers))
    first, second = (GroupMember(board.spec, rank, torch.device("cpu")) for rank in (0, 1))
    second.get_ready(1, has_state=True)
    (ready,) = first.others_ready(1)
    assert ready.has_state and first.invitation(1) is None
    assert not (tmp_path / "bomb").exists()


def test_only_who_has_the_secret_is_answered_and_only_by_who_has_it(board):
    with pytest.raises(DistNetworkError, match="cannot be reached"):
        BoardStore(replace(board.spec, secret=bytes(boards.SECRET_NBYTES)))
    with pytest.raises(RuntimeError):
        TCPStore(board.spec.address, board.spec.port, is_master=False, timeout=timedelta(seconds=2)).set("a", "b")
    with socket.create_server(("127.0.0.1", 0)) as impostor:
        boards_port = impostor.getsockname()[1]
        with pytest.raises(DistNetworkError):
            BoardStore(replace(board.spec, port=boards_port))
    assert "secret" not in repr(board.spec)


def test_strangers_who_connect_without_pause_keep_no_learner_out(board):
    is_over = threading.Event()

    def flood():
        while not is_over.is_set():
            with contextlib.suppress(OSError), socket.create_connection((board.spec.address, board.spec.port)) as mine:
                mine.settimeout(2 * boards.PROOF_SECONDS)
                is_closed(mine)

    strangers = [threading.Thread(target=flood) for _ in range(2 * boards.MOST_UNPROVEN)]
    for each in strangers:
        each.start()
    try:
        for number in range(5):
            store = BoardStore(board.spec)
            store.set("a", str(number))
            assert store.get("a") == str(number).encode()
    finally:
        is_over.set()
        board.close()
        for each in strangers:
            each.join()


def test_the_board_answers_again_after_it_could_start_no_thread(board, monkeypatch):
    def cannot_start(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cannot_start)
        assert all(map(is_closed, said((board.spec.address, board.spec.port), [b""] * boards.MOST_UNPROVEN)))
    BoardStore(board.spec).set("a", "b")


def test_what_a_proof_says_is_of_no_use_for_another_connection(board):
    with socket.create_connection((board.spec.address, board.spec.port), timeout=5) as connection:
        nonce = connection.recv(boards.NONCE_NBYTES)
        connection.sendall(nonce + boards.proof(board.spec.secret, b"board", nonce, nonce))
        assert is_closed(connection), "the board's own proof is none of a learner"


def test_a_store_keeps_what_torch_asks_of_it(board):
    store, other = BoardStore(board.spec), BoardStore(board.spec)
    store.set("a", b"\0\xff")
    assert other.get("a") == b"\0\xff" and other.check(["a"]) and not other.check(["a", "b"])
    assert (store.add("n", 2), other.add("n", 3), other.get("n")) == (2, 5, b"5")
    assert other.compare_set("c", "", "x") == b"x" and store.compare_set("c", "y", "z") == b"x"
    assert store.num_keys() == 3 and store.delete_key("c") and not store.delete_key("c")
    with pytest.raises(DistStoreError, match="were not set on the board"):
        other.wait(["b"], timedelta(seconds=0.05))
    board.close()
    with pytest.raises(DistNetworkError):
        store.get("a")


class Harassed:
    """Lets strangers come to every port of a run while it learns, and stops it when it has learned on."""

    def __init__(self, trainer, bomb):
        self.trainer, self.bomb, self.enough, self.connections, self.ports = trainer, bomb, None, [], set()

    def __call__(self, status):
        if status.experience.get("learners/active") != 2:
            return True
        if self.enough is None:
            server = supervisor_of(self.trainer)._board
            # Learners tell each other on the board where gloo listens, as the kernel writes addresses.
            found = b"\n".join(server._values.values())
            at = re.findall(rb"(?s)\x02\0(..)\x7f\0\0\x01", found)
            self.ports = {server.spec.port, *(int.from_bytes(port, "big") for port in at)}
            for port in self.ports:
                self.connections += said(("127.0.0.1", port), messages(self.bomb))
            self.enough = status.updates + 40
        return status.updates < self.enough


def test_two_learners_continue_with_any_input_of_strangers_at_their_ports(tmp_path):
    settings = {"num_learners": 2, "num_epochs": 1, "run_dir": str(tmp_path / "run"), "total_steps": FOR_EVER}
    with Trainer(PPO, **{**TINY, **settings}) as trainer:
        harassed = Harassed(trainer, tmp_path / "bomb")
        trainer.train(quiet=True, on_update=harassed)
        assert len(harassed.ports) >= 3, "the board, and gloo in both learners"
        assert (trainer.status.restarts, trainer.status.experience["learners/active"]) == (0, 2)
        for connection in harassed.connections:
            connection.close()
    assert not (tmp_path / "bomb").exists()
    log = (tmp_path / "run" / "log.txt").read_text()
    assert log.count("2 learners learn together from step") == 1
