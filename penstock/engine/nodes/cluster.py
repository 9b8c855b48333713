"""The Ray cluster of a run. No other file of Penstock imports Ray.

Ray says which machines there are, starts one host on each, carries what is said to hosts and what they report, and
tells of their deaths. Experience and weights go by streams of their own.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import ray
from ray.autoscaler.sdk import request_resources
from ray.autoscaler.v2.sdk import get_cluster_status
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from penstock.config import Config, ConfigError
from penstock.engine.nodes.choosing import GPU, SHARE, Bundle, Machine, Resources, nodes_wanted
from penstock.engine.nodes.host import About, Heard, NodeHost
from penstock.engine.nodes.stream import free_address
from penstock.ipc import whole_cores

STORE_NBYTES = 100 * 2**20  # of Ray's object store, through which next to nothing goes
KNOCK_SECONDS, LOOK_SECONDS = 5.0, 1.0  # what the head node has to answer: at first, and while a run goes on
GLANCE_SECONDS = 0.25  # what a raylet has
BEGIN_SECONDS = 120.0  # what a host has to begin: it is seconds on a machine with nothing else to do
LATE_SECONDS = 300.0  # what one has that is to stand for a lost one: its machine may be busy, and Ray tells of deaths
HOST_SILENCE = 4.0  # seconds without an answer after which a host is lost
HOST_STUPOR = 30.0  # the same while its senders are connected: then it is slow, or stuck
NOT_NICED = {"worker_niceness": 0}  # Ray's own 15 would starve hosts beside other programs of the machine
OF_EVERY_NODE = {"CPU", "memory", "object_store_memory"}
LOOPBACK = "127.0.0.1"


class NodeLost(RuntimeError):
    """A host is gone, or does not answer."""


_cluster: Cluster | None = None  # a process has one connection to Ray


def open_cluster(config: Config) -> Cluster:
    """Connect to the cluster of a config, or return the connection that there is.

    Raises
    ------
    ConfigError
        There is no such cluster, or this process is connected to another one.
    """
    global _cluster
    if _cluster is None:
        _cluster = Cluster(config)
    elif _cluster.address != config.address:
        raise ConfigError(
            f"address={config.address!r}: another run of this process uses the cluster {_cluster.name}, and a process "
            "has one connection to Ray: close that run first, or use a process for each"
        )
    return _cluster


def close_cluster(*, head_is_gone: bool = False) -> None:
    """End the connection, unless another run uses it, and the cluster if it was started for the run."""
    global _cluster
    if _cluster is not None and not _cluster.num_users:
        cluster, _cluster = _cluster, None
        if head_is_gone:
            _leave_ray()
        else:
            cluster.close()


class Cluster:
    """The connection to Ray.

    Parameters
    ----------
    config
        Says which cluster: the one that this process is connected to already, if it is.

    Attributes
    ----------
    address, name
        As it is asked for, and in words.
    num_users
        Runs that use the connection.

    Raises
    ------
    ConfigError
        There is none.
    """

    def __init__(self, config: Config) -> None:
        self.address = config.address
        self.num_users = 0
        self._is_ours = not ray.is_initialized()
        self._is_of_this_machine = self._is_ours and config.address is None
        self.name = f"at {config.address}" if config.address is not None else "of this machine"
        if self._is_ours:
            self._connect(config)
        context = ray.get_runtime_context()
        self._head: str = context.gcs_address
        self._home: str = context.get_node_id()
        self._wanted: list[Bundle] = []

    def _connect(self, config: Config) -> None:
        quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        try:
            if config.address is None:
                cores = max(whole_cores(), *(each.cores for each in nodes_wanted(config, config.num_workers or 1)))
                ray.init(
                    address="local", num_cpus=cores, num_gpus=0, object_store_memory=STORE_NBYTES,
                    include_dashboard=False, _system_config=NOT_NICED, **quiet,
                )  # fmt: skip
            else:
                _knock_at(config.address, KNOCK_SECONDS)
                ray.init(address=config.address, **quiet)
            _let_ray_print(False)
        except (OSError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"address={config.address!r}: there is no Ray cluster there ({_first_line(error)}); start one "
                "with: ray start --head, or leave the address out for a cluster of this machine"
            ) from error

    def machines(self) -> list[Machine]:
        """The nodes that are alive, in a fixed order."""
        found = [
            Machine(
                node["NodeID"], node["NodeManagerHostname"], int(node["Resources"].get("CPU", 0)),
                frozenset(name for name in node["Resources"] if ":" not in name) - OF_EVERY_NODE,
                f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}", node["NodeID"] == self._home,
            )
            for node in ray.nodes()
            if node["Alive"]
        ]  # fmt: skip
        return sorted(found, key=lambda machine: machine.id)

    def reaches(self, machine: Machine) -> bool:
        """Whether a raylet answers there: Ray takes a node for alive until it has been silent for many seconds."""
        try:
            _knock_at(machine.address, GLANCE_SECONDS)
        except OSError:
            return False
        return True

    @property
    def grows(self) -> bool:
        """Whether an autoscaler may add machines: it gives kinds to those that it knows. Others have their own name."""
        try:
            status: Any = get_cluster_status(self._head)
        except Exception:  # what Ray calls a developers' interface
            return False
        kinds = [(node.ray_node_type_name, node.node_id) for node in (*status.active_nodes, *status.idle_nodes)]
        return any(kind not in ("", f"node_{number}") for kind, number in kinds)

    def want(self, bundles: list[Bundle]) -> None:
        """Let an autoscaler see to it that there is room for these; it is asked anew when they are others than before.

        Ray keeps one such request of a cluster, the last.
        """
        if bundles != self._wanted:
            self._wanted = bundles
            with contextlib.suppress(RayError):
                request_resources(bundles=bundles)

    @property
    def has_head(self) -> bool:
        """Whether the head node answers."""
        try:
            _knock_at(self._head, LOOK_SECONDS)
        except OSError:
            return False
        return True

    @property
    def home(self) -> str:
        """Address of this machine, as nodes see it."""
        return LOOPBACK if self._is_of_this_machine else str(ray.util.get_node_ip_address())

    def free_address(self) -> tuple[str, int]:
        """Address of this machine, as nodes see it, and a port that is free."""
        return free_address(self.home)

    def close(self) -> None:
        """End the connection; a cluster that was started for the run ends with it."""
        self.want([])
        if self._is_ours:
            with contextlib.suppress(Exception):
                ray.shutdown()
            _let_ray_print(True)


def look_at(hosts: Iterable[Hosted]) -> None:
    """Note which hosts have answered: Ray is asked once for all of them."""
    asked = {host.asked: host for host in hosts}
    ready = ray.wait(list(asked), num_returns=len(asked), timeout=0)[0] if asked else []
    for answer, host in asked.items():
        host.has_answered = answer in ready


class Hosted:
    """A host, as home knows it. No call waits, but for `about`.

    Parameters
    ----------
    machine
        Where it is to be.
    cores
        That it is to have for itself.
    resources
        Which it must have. A GPU it has for itself.

    Attributes
    ----------
    asked
        The answer that it owes, as Ray knows it.
    has_answered
        Whether that was there when `look_at` looked last.
    """

    def __init__(self, machine: Machine, cores: int, resources: Resources) -> None:
        self.machine = machine
        actor: Any = ray.remote(NodeHost)
        self._actor = actor.options(
            num_cpus=cores,
            num_gpus=resources.count(GPU),
            resources={name: SHARE for name in resources if name != GPU},
            scheduling_strategy=NodeAffinitySchedulingStrategy(machine.id, soft=False),
            max_restarts=0,
            max_task_retries=0,
        ).remote()
        self._about: Any = self._actor.about.remote()
        self.asked: Any = self._about
        self.has_answered = self._has_begun = False
        self._asked_at = time.monotonic()

    def about(self, patience: float) -> About:
        """Software installed on the node.

        Raises
        ------
        NodeLost
            It has not begun in so many seconds, or cannot.
        """
        try:
            found: About = ray.get(self._about, timeout=patience)
        except GetTimeoutError:
            raise NodeLost(f"no host began there in {patience:.0f} s: other programs may have its cores") from None
        except RayError as error:
            raise NodeLost(_briefly(error)) from error
        return found

    @property
    def is_late(self) -> bool:
        """Whether it has not answered for as long as makes it lost, if nothing else says that its machine is there."""
        return not self.has_answered and time.monotonic() - self._asked_at > HOST_SILENCE

    def is_begun(self) -> bool:
        """Whether it can say what is installed there; raises `NodeLost` if it takes too long."""
        if self.has_answered:
            return True
        if time.monotonic() - self._asked_at > LATE_SECONDS:
            raise NodeLost(f"no host began there in {LATE_SECONDS:.0f} s")
        return False

    def begin(self, task: bytes) -> None:
        """Tell it what its roles are."""
        self._ask(self._actor.begin.remote(task))

    def tell(self, role: str, command: bytes) -> None:
        """Give a role a pickled command, without waiting until it has it."""
        self._actor.tell.remote(role, command)

    def heard(self, *, is_connected: bool) -> Heard | None:
        """Its answer; None: not yet. The time limit is longer while its senders are connected.

        Raises
        ------
        NodeLost
            It is gone, or has been silent for too long.
        """
        try:
            if not self.has_answered:
                silence = time.monotonic() - self._asked_at
                patience = HOST_STUPOR if is_connected else HOST_SILENCE
                if silence > (patience if self._has_begun else BEGIN_SECONDS):
                    raise NodeLost(f"has not answered for {silence:.0f} s")
                return None
            answer: Heard | None = ray.get(self.asked)
        except RayError as error:
            raise NodeLost(_briefly(error)) from error
        self._has_begun = True
        self._ask(self._actor.hear.remote())
        return answer

    def stop(self, patience: float) -> None:
        """Ask it to stop its roles."""
        with contextlib.suppress(RayError):
            self._ask(self._actor.stop.remote(patience))

    def kill(self, patience: float = 0.0) -> None:
        """End it, at the latest in so many seconds if it was asked to stop."""
        with contextlib.suppress(Exception):
            if patience:
                ray.wait([self.asked], timeout=patience)
            ray.kill(self._actor)

    def _ask(self, answer: Any) -> None:
        self.asked, self.has_answered = answer, False
        self._asked_at = time.monotonic()

    def pids(self) -> dict[str, int]:
        """Process ids of its roles, by name: waits for the answer."""
        found: dict[str, int] = ray.get(self._actor.pids.remote(), timeout=BEGIN_SECONDS)
        return found

    def cpu(self) -> tuple[float, dict[str, float]]:
        """Result of `NodeHost.cpu`; waits for the answer."""
        found: tuple[float, dict[str, float]] = ray.get(self._actor.cpu.remote(), timeout=BEGIN_SECONDS)
        return found


@contextlib.contextmanager
def simulated(num_nodes: int, cores: int) -> Iterator[str]:
    """A cluster of nodes that are parts of this machine, beside a head without cores; give its address."""
    from ray.cluster_utils import Cluster as Simulated

    logging.getLogger("ray").setLevel(logging.ERROR)
    each = {"object_store_memory": STORE_NBYTES}
    cluster: Any = Simulated(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "include_dashboard": False, "_system_config": NOT_NICED, **each},
    )
    try:
        for _ in range(num_nodes):
            cluster.add_node(num_cpus=cores, **each)
        yield cluster.address
    finally:
        cluster.shutdown()


def _knock_at(address: str, timeout: float) -> None:
    """Raise OSError where nobody listens: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=timeout).close()


def _leave_ray() -> None:
    """Let go of Ray without the head node: `ray.shutdown` and Ray's hook for errors would wait a minute for it."""
    worker: Any = ray._private.worker
    sys.excepthook = worker.normal_excepthook
    atexit.unregister(ray.shutdown)
    worker.global_worker.core_worker.shutdown_driver()


def _let_ray_print(does: bool) -> None:
    """Say whether Ray may print the last lines of a raylet's log when a node dies: `log_to_driver` does not say it."""
    ray._private.worker._worker_logs_enabled = does


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def _briefly(error: BaseException) -> str:
    """The last line of what Ray says, without its advice."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].partition(" Some common causes")[0] if lines else type(error).__name__
