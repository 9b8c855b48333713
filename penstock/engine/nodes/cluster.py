"""The Ray cluster of a run: its machines, and the reservations on them.

Ray lists machines, starts one host on each (`hosted`), carries commands to hosts and their reports, and reports their
deaths. Experience and weights use separate streams.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import math
import os
import re
import secrets
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ray
from ray._private.services import canonicalize_bootstrap_address, find_gcs_addresses
from ray.autoscaler.sdk import request_resources
from ray.autoscaler.v2.sdk import get_cluster_status
from ray.exceptions import RayError
from ray.util.metrics import Gauge
from ray.util.placement_group import placement_group, remove_placement_group

from penstock.config import Config, ConfigError
from penstock.engine.nodes.choosing import GPU, SHARE, Bundle, Machine, Place, Wanted, nodes_wanted
from penstock.ipc import whole_cores
from penstock.runs.status import Status

try:
    from grpc import RpcError
    from ray._private.authentication import authentication_token_setup as tokens
    from ray._private.grpc_utils import init_grpc_channel
    from ray.core.generated.gcs_service_pb2 import CheckAliveRequest  # type: ignore[attr-defined]
    from ray.core.generated.gcs_service_pb2_grpc import NodeInfoGcsServiceStub
    from ray.exceptions import AuthenticationError
except ImportError:  # a version of Ray without tokens
    tokens = None  # type: ignore[assignment]

STORE_NBYTES = 100 * 2**20  # of Ray's object store, which is hardly used
KNOCK_SECONDS, LOOK_SECONDS = 5.0, 1.0  # for the head's machine to answer: at first, and during a run
HEAD_SECONDS = 30.0  # for the head itself, which may be busy, to answer at first
GLANCE_SECONDS = 0.25  # for a raylet to answer
RESERVE_SECONDS = 3.0  # for machines to be reserved, which takes some milliseconds where they are free
NOT_NICED = {"worker_niceness": 0}  # Ray's default of 15 would starve hosts next to other programs of the machine
OF_EVERY_NODE = {"CPU", "memory", "object_store_memory"}
LOOPBACK = "127.0.0.1"
NODE_LABEL = "ray.io/node-id"  # with which a reservation selects its machine


_cluster: Cluster | None = None  # a process has one connection to Ray


def open_cluster(config: Config) -> Cluster:
    """Connect to the cluster of a config, or return this process's connection to it.

    Raises
    ------
    ConfigError
        There is no such cluster, or this process is connected to another one.
    """
    global _cluster
    if _cluster is None:
        wanted = nodes_wanted(config, config.num_workers or 1)
        _cluster = Cluster(config.address, max(each.cores for each in wanted))
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
        cluster.close(head_is_gone=head_is_gone)


class Cluster:
    """Connection to Ray. While the head does not answer, Ray is not called: it would wait, and then end the process.

    Parameters
    ----------
    address
        Address of the cluster, as in a config; a connection to Ray that this process has already is used instead.
    cores, gpus
        Smallest number of cores of a cluster that is started, and its number of GPUs; None: those of this machine.

    Attributes
    ----------
    address, name
        Address as given, and the cluster in words, with the address of its head.
    num_users
        Number of runs that use the connection.

    Raises
    ------
    ConfigError
        There is no such cluster.
    """

    def __init__(self, address: str | None, cores: int, gpus: int | None = 0) -> None:
        self.address = address
        self.num_users = 0
        self._is_ours = not ray.is_initialized()
        self._is_of_this_machine = self._is_ours and address is None
        if self._is_ours:
            self._connect(address, cores, gpus)
        context = ray.get_runtime_context()
        self._head: str = context.gcs_address
        self.name = f"at {self._head}" if address is not None else "of this machine"
        self._home: str = context.get_node_id()
        self._wanted: list[Bundle] = []
        self._reservations = itertools.count(1)
        self._next_knock = 0.0  # set after an unanswered check of the head

    def _connect(self, address: str | None, cores: int, gpus: int | None) -> None:
        quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if address is not None and address.startswith("ray://"):
            raise ConfigError(
                f"address={address!r} is of Ray Client, through which a run cannot reach its nodes: run on a machine "
                "of the cluster, with the address HOST:PORT of its head, or submit the command: ray job submit"
            )
        try:
            _forget_token()
            if address is None:
                with _own_token():
                    ray.init(
                        address="local", num_cpus=max(whole_cores(), cores), num_gpus=gpus, include_dashboard=False,
                        object_store_memory=STORE_NBYTES, _system_config=NOT_NICED, **quiet,
                    )  # fmt: skip
            else:
                head = _head_of(address)
                _knock_at(head, KNOCK_SECONDS)
                _require_raylet(head)
                _require_admission(head)
                ray.init(address=head, **quiet)
            _let_ray_print(False)
        except ConfigError:
            raise
        except (OSError, ValueError, RuntimeError) as error:
            problem = str(error).strip().partition("\n")[0]
            raise ConfigError(
                f"address={address!r}: there is no Ray cluster there ({problem}); start one "
                "with: ray start --head, or leave the address out for a cluster of this machine"
            ) from error

    def machines(self) -> list[Machine]:
        """Return the live nodes of the cluster, in a fixed order, with what is reserved on each up to a second ago."""
        if not self.has_head:
            return []
        usage = {
            node.node_id: {each.resource_name: (each.total, each.used) for each in node.resource_usage.usage}
            for node in self._nodes()
        }
        found = []
        for node in ray.nodes():
            if node["Alive"]:
                resources = frozenset(name for name in node["Resources"] if ":" not in name) - OF_EVERY_NODE
                used = usage.get(node["NodeID"], {})
                full = {name for name in resources & used.keys() if not _has_free(name, *used[name])}
                found.append(Machine(
                    node["NodeID"], node["NodeManagerHostname"], int(node["Resources"].get("CPU", 0)), resources,
                    f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}", node["NodeID"] == self._home,
                    math.ceil(used.get("CPU", (0, 0))[1]), frozenset(full),
                ))  # fmt: skip
        return sorted(found, key=lambda machine: machine.id)

    def reserve(self, wanted: Sequence[tuple[Wanted, Machine]], name: str) -> list[Place]:
        """Reserve a machine for each of several nodes: all of them, or none.

        Parameters
        ----------
        wanted
            Requirements of each node, with a machine of its own.
        name
            Name in Ray's lists, to which the number of the reservation is added.

        Returns
        -------
        list of Place
            Empty if something is no longer free, or the head node does not answer.
        """
        if not self.has_head:
            return []
        bundles = [each.bundle(machine) for each, machine in wanted]
        on_each = [{NODE_LABEL: machine.id} for _, machine in wanted]
        name += f", reservation {next(self._reservations)}"
        group = placement_group(bundles, "STRICT_SPREAD", name=name, bundle_label_selector=on_each)
        if not group.wait(RESERVE_SECONDS):
            remove_placement_group(group)
            return []
        return [
            Place(machine, int(bundle["CPU"]), group, number)
            for number, ((_, machine), bundle) in enumerate(zip(wanted, bundles, strict=True))
        ]

    def release(self, places: Iterable[Place]) -> None:
        """End reservations, and all hosts there."""
        for group in {place.group.id: place.group for place in places}.values():
            if self.has_head:
                with contextlib.suppress(RayError):
                    remove_placement_group(group)

    def draining(self) -> dict[str, float]:
        """Return the ids of nodes that will end soon, such as spot instances, with the seconds they have left."""
        if not self.has_head:
            return {}
        try:
            deadlines: dict[str, int] = ray._private.state.state.get_draining_nodes()
        except Exception:  # a private interface of Ray
            return {}
        return {name: at / 1_000 - time.time() if at else math.inf for name, at in deadlines.items()}

    def reaches(self, machine: Machine) -> bool:
        """Whether the raylet of a machine answers; Ray reports a dead node only after many seconds."""
        with contextlib.suppress(OSError):
            _knock_at(machine.address, GLANCE_SECONDS)
            return True
        return False

    @property
    def grows(self) -> bool:
        """Whether an autoscaler may add machines: only an autoscaler gives nodes a kind other than their name."""
        return any(node.ray_node_type_name not in ("", f"node_{node.node_id}") for node in self._nodes())

    def _nodes(self) -> list[Any]:
        """Return the autoscaler's view of the nodes; empty where this version of Ray has none."""
        try:
            status: Any = get_cluster_status(self._head)
        except Exception:  # a developer API of Ray
            return []
        return [*status.active_nodes, *status.idle_nodes]

    def want(self, bundles: list[Bundle]) -> None:
        """Request room for bundles from an autoscaler, if they have changed, instead of those requested before."""
        if bundles != self._wanted and self.has_head:
            self._wanted = bundles
            with contextlib.suppress(RayError):
                request_resources(bundles=bundles)

    @property
    def has_head(self) -> bool:
        """Whether the head node answers; an unanswered check holds for the next second, too."""
        if time.monotonic() < self._next_knock:
            return False
        with contextlib.suppress(OSError):
            _knock_at(self._head, LOOK_SECONDS)
            return True
        self._next_knock = time.monotonic() + LOOK_SECONDS
        return False

    @property
    def home(self) -> str:
        """Address at which nodes reach this machine."""
        return LOOPBACK if self._is_of_this_machine else str(ray.util.get_node_ip_address())

    def close(self, *, head_is_gone: bool = False) -> None:
        """End the connection, and with it a cluster that was started for the run."""
        if head_is_gone or not self.has_head:
            _leave_ray()
            return
        self.want([])
        if self._is_ours:
            with contextlib.suppress(Exception):
                ray.shutdown()
            _let_ray_print(True)


class Gauges:
    """Gauges of a run among Ray's own metrics, which its dashboard and Prometheus read. Each has the run as a tag."""

    def __init__(self) -> None:
        of_run, of_node = ("run",), ("run", "node", "machine")
        self._rate = Gauge("penstock_steps_per_second", "Steps that a run learns from per second", of_run)
        self._lag = Gauge("penstock_policy_lag", "Mean policy lag of recent batches in updates", of_run)
        self._nodes = Gauge("penstock_nodes", "Connected nodes of a run", of_run)
        self._gateways = Gauge("penstock_gateways", "Connected gateways of a run", of_run)
        self._rate_of_node = Gauge("penstock_node_steps_per_second", "Steps per second from a node or gateway", of_node)
        self._lag_of_node = Gauge("penstock_node_policy_lag", "Mean policy lag of a node's last steps", of_node)

    def __call__(self, status: Status) -> None:
        """Set the gauges."""
        run = {"run": Path(status.run_dir).name if status.run_dir else f"process {os.getpid()}"}
        self._rate.set(status.steps_per_second, run)
        self._lag.set(status.policy_lag_mean, run)
        self._nodes.set(sum(node.is_connected for node in status.nodes), run)
        self._gateways.set(sum(gateway.is_connected for gateway in status.gateways), run)
        for node in status.gateways or status.nodes:
            if not node.learner:
                tags = {**run, "node": node.name, "machine": node.host}
                self._rate_of_node.set(node.steps_per_second, tags)
                self._lag_of_node.set(node.policy_lag, tags)


@contextlib.contextmanager
def simulated(num_nodes: int, cores: int) -> Iterator[str]:
    """Run a cluster of nodes on this machine, with a head without cores, within the block; yield its address."""
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


def _has_free(name: str, total: float, used: float) -> bool:
    """Whether enough of a resource is free for a node: a whole GPU, or a share of a named resource."""
    return total - used >= (1 if name == GPU else SHARE)


def _head_of(address: str) -> str:
    """Return HOST:PORT of the head node; raise `ConfigError` for another form, or where "auto" means several."""
    getattr(find_gcs_addresses, "cache_clear", int)()  # clusters come and go
    if address == "auto":
        here = sorted(find_gcs_addresses())
        if len(here) > 1 and not os.environ.get("RAY_ADDRESS"):
            raise ConfigError(f"address='auto': this machine is in several clusters, give one of {', '.join(here)}")
    elif not re.fullmatch(r".+:\d+", address):
        raise ConfigError(f'address={address!r} is not legal: use HOST:PORT of the head node, or "auto"')
    return str(canonicalize_bootstrap_address(address))


def _knock_at(address: str, timeout: float) -> None:
    """Raise OSError where nothing listens: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=timeout).close()


def _require_raylet(address: str) -> None:
    """Raise `ConfigError` if no process of Ray here uses the head: `ray.init` would look for half a minute.

    Only ports are compared, because processes may name the head by different addresses.
    """
    port = address.rpartition(":")[2]
    if not any(each.endswith(f":{port}") for each in find_gcs_addresses()):
        raise ConfigError(
            f"address={address!r} answers, but this machine is no node of a cluster there: add it with: "
            f"ray start --address={address}, or run on a machine of the cluster"
        )


def _require_admission(address: str) -> None:
    """Use the user's token if the head requires one; raise `ConfigError` if it is wrong, which `ray.init` hides.

    `ray start --head` requires a token if it finds one, but `ray.init` with an address does not use it by itself.
    """
    if not _is_admitted(address):
        has_token = tokens.AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True)
        if has_token and tokens.AUTH_MODE_ENV_VAR not in os.environ:
            tokens._enable_token_auth()
        if not _is_admitted(address):
            raise ConfigError(
                f"address={address!r} requires a Ray token, and this process has none, or another one: copy "
                "~/.ray/auth_token from the head node to this machine, and set RAY_AUTH_MODE=token"
            )


def _is_admitted(address: str) -> bool:
    """Whether the head accepts the token of this process, or requires none; raises `ConfigError` if it is stopped."""
    if tokens is None:
        return True
    try:
        with init_grpc_channel(address) as channel:
            NodeInfoGcsServiceStub(channel).CheckAlive(CheckAliveRequest(), timeout=HEAD_SECONDS)
    except AuthenticationError:
        return False
    except RpcError as error:
        if "DEADLINE_EXCEEDED" in str(error):  # `ray.init` would wait for minutes
            raise ConfigError(
                f"address={address!r}: the machine answers, but the head of the cluster has not in {HEAD_SECONDS:.0f} "
                "s: its process, gcs_server, is stopped; continue it, or start anew: ray stop; ray start --head"
            ) from None
        return "UNAUTHENTICATED" not in str(error)
    return True


@contextlib.contextmanager
def _own_token() -> Iterator[None]:
    """Give a cluster that is started in the block a random token: Ray would leave one in the user's home directory."""
    before = set(os.environ)
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        yield
    finally:
        for name in {"RAY_AUTH_TOKEN", "RAY_AUTH_MODE"} - before:  # Ray sets the mode
            os.environ.pop(name, None)


def _forget_token() -> None:
    """Forget the token of an earlier cluster of this process."""
    if tokens is not None:
        tokens.AuthenticationTokenLoader.instance().reset_cache()
        tokens.Config.initialize("")


def _leave_ray() -> None:
    """Disconnect from Ray without its head, for which `ray.shutdown` and Ray's exception hook would wait a minute."""
    worker: Any = ray._private.worker
    sys.excepthook = worker.normal_excepthook
    atexit.unregister(ray.shutdown)
    worker.global_worker.core_worker.shutdown_driver()


def _let_ray_print(is_allowed: bool) -> None:
    """Set whether Ray prints lines of a dead node's log; `log_to_driver` does not control this."""
    ray._private.worker._worker_logs_enabled = is_allowed
