"""The host of a gateway: a Ray actor that runs its roles, and asks the hosts of its nodes for their reports.

Gateways form a tree between home and its nodes. Each acts as a node towards the end above, and as home towards those
below.
A gateway has an arena with the lanes of its nodes, a receiver and senders (`tasks.relay_roles`). Slots that home grants
become free there, are granted to nodes, arrive full, and are forwarded, segments of several nodes as one block. The
receiving thread of a sender publishes weights in the gateway's arena, and its dispatcher sends them to its nodes.

Home asks a gateway for reports as it asks a node. The answer includes those of the gateway's nodes.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from penstock.engine.messages import Failed, NodesSeen, Report
from penstock.engine.nodes.host import HostReports, NodeHost, NodeLost
from penstock.engine.nodes.hosted import Asked, poll_answers
from penstock.ipc.stream import FRESH_SECONDS, OwnDelay
from penstock.runs.status import NodeStatus

LOOK_SECONDS = 0.1  # between two polls of the hosts of its nodes
SHOW_SECONDS = 2.5  # between two statuses of all nodes


class GatewayHost(NodeHost):
    """Runner of a gateway's roles; calls come one at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.begin_watching()

    def begin_watching(self) -> None:
        """Begin without nodes; `watch` adds them."""
        self._hosts: dict[int, tuple[int, Asked]] = {}  # with their incarnations, by the node's number here
        self._answers: list[tuple[int, int, HostReports]] = []
        self._statuses: dict[int, NodeStatus] = {}
        self._shown: dict[int, NodeStatus] = {}
        self._bytes_at: dict[int, float] = {}
        self._delay = OwnDelay()
        self._looked_at = self._next_show = 0.0

    def watch(self, number: int, incarnation: int, actor: Any, gathers: float) -> None:
        """Ask the host of a node, which has its task, for reports from now on."""
        self._hosts[number] = incarnation, Asked(actor, gathers)

    def gather(self, seconds: float) -> HostReports:
        """Run the roles for some seconds, or until a role of the gateway or of its nodes fails; return all reports."""
        found = super().gather(seconds)
        answers, self._answers = self._answers, []
        return replace(found, below=answers, seen=self._news())

    def _pump(self, seconds: float) -> None:
        super()._pump(min(seconds, LOOK_SECONDS))
        now = time.monotonic()
        if self._looked_at:
            self._delay.observe(max(0.0, now - self._looked_at - seconds))
        self._looked_at = now
        poll_answers(host for _, host in self._hosts.values())
        for number, (incarnation, host) in list(self._hosts.items()):
            bytes_at = self._bytes_at.get(number)  # None: no bytes have shown yet that its machine is alive
            is_connected = bytes_at is None or now - bytes_at < FRESH_SECONDS
            try:
                answer = host.answer(is_connected=is_connected, delay=self._delay.seconds)
            except NodeLost as lost:
                answer = HostReports(failure=str(lost))
                del self._hosts[number]
            if answer is not None:
                self._answers.append((number, incarnation, answer))
                has_failed = any(isinstance(report, Failed) for _, report in answer.reports)
                self._has_failed |= has_failed or bool(answer.failure or answer.going)

    def _take(self, role: str, report: Report) -> None:
        if not isinstance(report, NodesSeen):
            super()._take(role, report)
            return
        for number, status in report.statuses.items():
            if status.nbytes != self._statuses.get(number, NodeStatus()).nbytes:
                self._bytes_at[number] = time.monotonic()
        self._statuses = report.statuses

    def _news(self) -> dict[int, NodeStatus]:
        """Return the statuses of all nodes at intervals, and in between only those whose state has changed."""
        if is_due := time.monotonic() >= self._next_show:
            self._next_show = time.monotonic() + SHOW_SECONDS
        news = {
            number: status for number, status in self._statuses.items()
            if is_due or status.state != self._shown.get(number, NodeStatus()).state
        }  # fmt: skip
        self._shown |= news
        return news
