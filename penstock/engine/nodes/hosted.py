"""Handles of hosts, at home or at a gateway: Ray actors that are asked for their reports."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from penstock.engine.nodes.choosing import GPU, SHARE, Place, Resources
from penstock.engine.nodes.host import HostReports, NodeHost, NodeLost
from penstock.runs.machine import About

BEGIN_SECONDS = 120.0  # for a host to start, which takes seconds on an idle machine
HOST_SILENCE = 3.5  # seconds without an answer, beyond those in which it gathers reports, after which a host is lost
HOST_SILENCE_CONNECTED = 30.0  # the same while its senders are connected: then it is slow, or stuck
WAIT_SECONDS = 0.5  # for which a host waits for another task before it is asked again


def poll_answers(hosts: Iterable[Asked]) -> None:
    """Update `Asked.has_answered` of all hosts, with one call of Ray."""
    awaited = {host.awaited: host for host in hosts}
    ready = ray.wait(list(awaited), num_returns=len(awaited), timeout=0)[0] if awaited else []
    for answer, host in awaited.items():
        host.has_answered = answer in ready


class Asked:
    """A host that home, or a gateway, asks for its reports again and again.

    Parameters
    ----------
    actor
        Ray's handle of the host.
    gathers
        Seconds for which the host gathers reports before each answer.

    Attributes
    ----------
    awaited
        Ray's reference of the next answer.
    has_answered
        Whether the answer was there at the last `poll_answers`.
    """

    def __init__(self, actor: Any, gathers: float) -> None:
        self._actor, self._gathers = actor, gathers
        self._has_begun = True
        self._await(self._ask())

    def is_late(self, delay: float) -> bool:
        """Whether the host has not answered for so long that it is lost, unless its machine can be reached.

        Parameters
        ----------
        delay
            Recent delay of this process in seconds, which lengthens the time limit.
        """
        return not self.has_answered and time.monotonic() - self._asked_at > HOST_SILENCE + self._gathers + delay

    def answer(self, *, is_connected: bool, delay: float) -> HostReports | None:
        """Return the host's answer, and request the next; None: there is none yet, or only that of `begin`.

        Parameters
        ----------
        is_connected
            Whether the host's senders are connected: then the time limit is longer.
        delay
            Recent delay of this process in seconds, which lengthens the time limit, too.

        Raises
        ------
        NodeLost
            The host is gone, or has been silent for too long.
        """
        if not self.has_answered:
            silence = time.monotonic() - self._asked_at
            patience = (HOST_SILENCE_CONNECTED if is_connected else HOST_SILENCE) + self._gathers + delay
            if silence > (patience if self._has_begun else BEGIN_SECONDS):
                raise NodeLost(f"has not answered for {silence:.0f} s")
            return None
        answer: HostReports | None = self._result(self.awaited)
        self._has_begun = True
        self._await(self._ask())
        return answer

    def _ask(self) -> Any:
        return self._actor.gather.remote(self._gathers)

    def _result(self, answer: Any, patience: float | None = None) -> Any:
        try:
            return ray.get(answer, timeout=patience)
        except GetTimeoutError:
            raise NodeLost(f"no host has started there in {patience:.0f} s: other programs may use its cores") from None
        except RayError as error:
            raise NodeLost(briefly(error)) from error

    def _await(self, answer: Any) -> None:
        self.awaited, self.has_answered = answer, False
        self._asked_at = time.monotonic()


class Hosted(Asked):
    """Home's handle of a host that it starts. Methods return at once, except `about`, `pids` and `cpu`.

    Parameters
    ----------
    kind
        Class of the host.
    place
        Reservation of the host's machine.
    cores
        Number of reserved cores that the host takes.
    resources
        Named resources that the host takes: a whole GPU, a share of any other.
    name
        Name of the host in Ray's lists.
    packages
        Packages whose versions `about` returns.
    gathers
        As for `Asked`.

    Attributes
    ----------
    machine, cores
        Machine of the host, and number of cores reserved for it.
    """

    def __init__(
        self, kind: type[NodeHost], place: Place, cores: int, resources: Resources, name: str,
        packages: Sequence[str], gathers: float,
    ) -> None:  # fmt: skip
        self.machine, self.cores = place.machine, cores
        self._gathers = gathers
        actor: Any = ray.remote(kind)
        self._actor = actor.options(
            name=name,
            num_cpus=cores,
            num_gpus=resources.count(GPU),
            resources={name: SHARE for name in resources if name != GPU},
            scheduling_strategy=PlacementGroupSchedulingStrategy(place.group, place.bundle),
            max_restarts=0,
            max_task_retries=0,
        ).remote()
        self._has_begun = False
        self._about: Any = self._actor.about.remote(packages)
        self._await(self._about)

    def about(self, patience: float) -> About:
        """Return software and place of the host.

        Raises
        ------
        NodeLost
            The host has not started within `patience` seconds, or cannot start.
        """
        found: About = self._result(self._about, patience)
        return found

    def is_begun(self) -> bool:
        """Whether the host has started, or finished its last command; raises `NodeLost` if that takes too long."""
        if self.has_answered:
            return True
        if time.monotonic() - self._asked_at > BEGIN_SECONDS:
            raise NodeLost(f"no host has started there in {BEGIN_SECONDS:.0f} s")
        return False

    def begin(self, task: bytes) -> None:
        """Send a pickled `HostTask`."""
        self._await(self._actor.begin.remote(task))

    def wait_for_gateway(self) -> None:
        """Command the host to stop its roles, and to wait; raises `NodeLost` if it is gone."""
        if self.has_answered:
            self._result(self.awaited)
        self._await(self._actor.wait_for_gateway.remote(WAIT_SECONDS))

    def watch(self, number: int, incarnation: int, host: Hosted) -> None:
        """Have this gateway ask a host of its nodes for reports; raises `NodeLost` if that host could not begin.

        Parameters
        ----------
        number, incarnation
            Number of the node at the gateway, and incarnation of its host.
        host
            The host, which has answered.
        """
        host._result(host.awaited)
        self._actor.watch.remote(number, incarnation, host._actor, host._gathers)

    def send(self, role: str, command: bytes) -> None:
        """Send a pickled command to a role."""
        self._actor.send.remote(role, command)

    def stop(self, patience: float) -> None:
        """Command the host to stop its roles."""
        with contextlib.suppress(RayError):
            self._await(self._actor.stop.remote(patience))

    def kill(self, patience: float = 0.0) -> None:
        """End the host, after up to `patience` seconds for an answer to `stop`."""
        with contextlib.suppress(Exception):
            if patience:
                ray.wait([self.awaited], timeout=patience)
            ray.kill(self._actor)

    def pids(self) -> dict[str, int]:
        """Return process ids of the host's roles, by name; waits for the answer."""
        found: dict[str, int] = ray.get(self._actor.pids.remote(), timeout=BEGIN_SECONDS)
        return found

    def cpu(self) -> tuple[float, dict[str, float]]:
        """Return the result of `NodeHost.cpu`; waits for the answer."""
        found: tuple[float, dict[str, float]] = ray.get(self._actor.cpu.remote(), timeout=BEGIN_SECONDS)
        return found


def briefly(error: BaseException) -> str:
    """Return the last line of a Ray error, without its advice."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].partition(" Some common causes")[0] if lines else type(error).__name__
