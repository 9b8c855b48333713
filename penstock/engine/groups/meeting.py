"""Rendezvous of the learners of a group, also after the death of one.

A *meeting* is one attempt to come together. The first learner counts them, in the arena: whoever belongs to an earlier
one leaves it, says that it is ready, and waits to be called. When all are ready the first learner calls them. They
connect under the meeting's number, so what is left of an earlier one cannot disturb them.
"""

from __future__ import annotations

import hmac
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from torch.distributed import PrefixStore, ProcessGroupGloo

from penstock.engine.groups.board import NONCE_NBYTES, SECRET_NBYTES, BoardServer, BoardStore, proof
from penstock.engine.groups.silence import broken_by_silence
from penstock.ipc.ownership import Owned, owner_only
from penstock.nn import Group, GroupBroken

HERE = "127.0.0.1"
CALLED = "called"  # on the board: the newest call, and under it a mark for each
CONNECT_SECONDS = 5.0  # what learners that are all ready have to connect
ANSWER_SECONDS = 60.0  # what they have to come to the same point of an update


@dataclass(frozen=True)
class GroupSpec:
    """Description of a learner group; plain data.

    Attributes
    ----------
    size
        Learners.
    port, address
        Where the board is.
    is_spread
        Whether some of them are on other nodes.
    is_successor
        Whether this is the first learner, in the place of one that has died: others have what that one had.
    secret
        What its members prove to have. It goes to them by the pipes of their parent, or by Ray.
    """

    size: int
    port: int
    address: str = HERE
    is_spread: bool = False
    is_successor: bool = False
    secret: bytes = field(default=b"", repr=False)


class Board(Owned):
    """Board on which the learners of a group announce that they are ready. The supervisor's process holds it, so that
    it outlives them.

    Parameters
    ----------
    size
        Learners of the group.
    address
        Of this machine, by which other nodes reach it; None: it is reached from this machine alone.
    """

    def __init__(self, size: int, address: str | None = None) -> None:
        secret = secrets.token_bytes(SECRET_NBYTES)
        self._server = BoardServer(address or HERE, secret)
        self.spec = GroupSpec(size, self._server.port, address or HERE, is_spread=address is not None, secret=secret)

    @owner_only
    def close(self) -> None:
        """Take it away."""
        self._server.close()


def board_for(num_learners: int, address: str | None = None) -> Board | None:
    """Make the board of so many learners of one policy; one alone needs none."""
    return Board(num_learners, address) if num_learners > 1 else None


def store_of(spec: GroupSpec) -> BoardStore:
    """Connect to the board of a group; raises `torch.distributed.DistError` where it cannot be reached."""
    with broken_by_silence(spec.is_spread):
        return BoardStore(spec.address, spec.port, spec.secret, ANSWER_SECONDS)


class Ready(NamedTuple):
    """A learner that can be called."""

    token: str
    """Which process it is."""
    has_state: bool
    """Whether it has learned before."""


class GroupMember:
    """A learner's place in its group, whichever meeting that is.

    Parameters
    ----------
    spec, rank
        The group, and which of its learners this is.
    device
        Where it computes. Learners on GPUs are connected by NCCL, others by gloo.
    """

    def __init__(self, spec: GroupSpec, rank: int, device: torch.device) -> None:
        self._spec, self._rank = spec, rank
        self._device = device if device.type == "cuda" else torch.device("cpu")
        self._store = store_of(spec)
        self._token = secrets.token_hex(8)

    def call(self, meeting: int, calls: int, *, is_new: bool) -> None:
        """Tell learners on other nodes, who do not see the run's arena, what its words say: they listen for the mark.

        Parameters
        ----------
        meeting, calls
            The two words. One of them has just been counted up by one.
        is_new
            Whether it was the meeting.
        """
        if not self._spec.is_spread:
            return
        self._store.set(CALLED, f"{meeting} {calls}")
        if is_new:  # a first learner that has died may have left out the mark before this
            self._store.set(mark(meeting + calls - 1), "")
        self._store.set(mark(meeting + calls), "")

    def get_ready(self, meeting: int, has_state: bool) -> None:
        """Say that this learner can be called to a meeting, and whether it has learned before."""
        self._store.set(f"{meeting}/ready/{self._rank}", f"{self._token} {int(has_state)}")

    def others_ready(self, meeting: int) -> list[Ready] | None:
        """The other learners, in their order; None while not all are ready."""
        names = [f"{meeting}/ready/{rank}" for rank in range(self._spec.size) if rank != self._rank]
        if not self._store.check(names):
            return None
        found = [self._store.get(name).decode().split() for name in names]
        return [Ready(token, has_state == "1") for token, has_state in found]

    def invite(self, meeting: int, others: Sequence[Ready], source: int) -> None:
        """Say who is to come to a meeting, and whose state all go on with there."""
        self._store.set(f"{meeting}/invited", " ".join([str(source), *(other.token for other in others)]))

    def invitation(self, meeting: int) -> int | None:
        """Rank whose state all ranks adopt; None: others are meant, such as one that has died, or nobody has announced
        itself."""
        name = f"{meeting}/invited"
        if not self._store.check([name]):
            return None
        source, *tokens = self._store.get(name).decode().split()
        return int(source) if self._token in tokens else None

    def connect(self, meeting: int) -> Group:
        """Connect with the others, who do the same now.

        Raises
        ------
        RuntimeError
            One of them is gone, or does not have the group's secret.
        """
        store = PrefixStore(f"{meeting}/group", self._store)
        size, patience = self._spec.size, timedelta(seconds=ANSWER_SECONDS)
        if self._device.type == "cuda":
            from torch.distributed import ProcessGroupNCCL

            options = ProcessGroupNCCL.Options()
            options._timeout = patience
            processes = ProcessGroupNCCL(store, self._rank, size, options)
            return self._proven(Group(processes, self._rank, size, self._device))
        of_gloo: Any = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        of_gloo._devices = [ProcessGroupGloo.create_device(hostname=_own_address(self._spec))]
        of_gloo._timeout = timedelta(seconds=CONNECT_SECONDS)
        with broken_by_silence(self._spec.is_spread):
            by_gloo = ProcessGroupGloo(store, self._rank, size, of_gloo)
        by_gloo.set_timeout(patience)
        return self._proven(Group(by_gloo, self._rank, size, self._device))

    def _proven(self, group: Group) -> Group:
        """Have every member prove that it has the group's secret: ports of torch.distributed ask nobody."""

        def gather(data: bytes) -> list[bytes]:
            found = group.gather(torch.frombuffer(bytearray(data), dtype=torch.uint8))
            return [bytes(each.tolist()) for each in found]

        nonces = b"".join(gather(secrets.token_bytes(NONCE_NBYTES)))
        expected = [proof(self._spec.secret, b"member %d" % rank, nonces) for rank in range(group.size)]
        found = gather(expected[group.rank])
        if not all(map(hmac.compare_digest, found, expected)):
            raise GroupBroken("a member of the group does not have its secret")
        return group


def mark(number: int) -> str:
    """Name on the board of what says that so many meetings and calls have been."""
    return f"{CALLED}/{number}"


def _own_address(spec: GroupSpec) -> str:
    """Address of this machine, as the machine with the board sees it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((spec.address, spec.port))  # sends nothing
        address: str = probe.getsockname()[0]
        return address
