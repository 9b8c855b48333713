"""Rendezvous of the learners of a group, also after the death of one.

A *meeting* is one attempt to connect. The first learner counts meetings in the arena. When the count rises, each member
leaves the earlier meeting, writes on the board that it is ready, and waits for a call. When all are ready, the first
learner calls them. They connect under the meeting's number, so that leftovers of an earlier one have no effect.
"""

from __future__ import annotations

import hmac
import secrets
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from torch.distributed import PrefixStore, ProcessGroupGloo

from penstock.engine.groups.board import ANSWER_SECONDS, NONCE_NBYTES, BoardStore, GroupSpec, broken_by_silence, proof
from penstock.nn import Group, GroupBroken

CALLED = "called"  # on the board: the newest call, and under it a mark for each
CONNECT_SECONDS = 5.0  # for learners that are all ready to connect


class Ready(NamedTuple):
    """A learner that is ready for a meeting."""

    token: str
    """Random text that identifies its process."""
    has_state: bool
    """Whether it has the state of the group."""


class GroupMember:
    """A learner's membership of its group over all meetings.

    Parameters
    ----------
    spec, rank
        Description of the group, and rank of the learner.
    device
        Device of the learner. Learners on GPUs are connected by NCCL, others by gloo.
    """

    def __init__(self, spec: GroupSpec, rank: int, device: torch.device) -> None:
        self._spec, self._rank = spec, rank
        self._device = device if device.type == "cuda" else torch.device("cpu")
        self._store = BoardStore(spec)
        self._token = secrets.token_hex(8)

    def call(self, meeting: int, calls: int, *, is_new: bool) -> None:
        """Copy two words of the run's arena to the board, for learners on other nodes, which wait for the mark.

        Parameters
        ----------
        meeting, calls
            The words, one of which has just been incremented.
        is_new
            Whether that word is `meeting`.
        """
        if not self._spec.is_spread:
            return
        self._store.set(CALLED, f"{meeting} {calls}")
        if is_new:  # a first learner that has died may not have set the previous mark
            self._store.set(mark(meeting + calls - 1), "")
        self._store.set(mark(meeting + calls), "")

    def get_ready(self, meeting: int, has_state: bool) -> None:
        """Write on the board that this learner is ready for a meeting, and whether it has the state of the group."""
        self._store.set(f"{meeting}/ready/{self._rank}", f"{self._token} {int(has_state)}")

    def others_ready(self, meeting: int) -> list[Ready] | None:
        """Return the other learners in the order of ranks; None while not all are ready."""
        names = [f"{meeting}/ready/{rank}" for rank in range(self._spec.size) if rank != self._rank]
        if not self._store.check(names):
            return None
        found = [self._store.get(name).decode().split() for name in names]
        return [Ready(token, has_state == "1") for token, has_state in found]

    def invite(self, meeting: int, others: Sequence[Ready], source: int) -> None:
        """Invite ready learners to a meeting, in which all adopt the state of rank `source`."""
        self._store.set(f"{meeting}/invited", " ".join([str(source), *(other.token for other in others)]))

    def invitation(self, meeting: int) -> int | None:
        """Return the rank whose state all adopt; None: there is no invitation, or not for this process."""
        name = f"{meeting}/invited"
        if not self._store.check([name]):
            return None
        source, *tokens = self._store.get(name).decode().split()
        return int(source) if self._token in tokens else None

    def connect(self, meeting: int) -> Group:
        """Connect with the other learners, which do the same.

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
        """Verify that every member has the group's secret, which connections of torch.distributed do not require."""

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
    """Return the name on the board of the mark for a number of meetings and calls."""
    return f"{CALLED}/{number}"


def _own_address(spec: GroupSpec) -> str:
    """Return the address of this machine on the network of the machine with the board."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((spec.address, spec.port))  # sends nothing
        address: str = probe.getsockname()[0]
        return address
