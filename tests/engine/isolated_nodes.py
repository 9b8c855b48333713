"""Nodes of a Ray cluster on this machine that share nothing with home but its files and a network link.

Each node has a network, process numbers, a host name, /tmp and /dev/shm of its own, in Linux namespaces. Their first
process ends with the process that made them, however that ends; the node's processes, memory and link end with it. Home
is the machine itself.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from penstock.ipc import set_parent_death_signal
from tests.places import ROOT

STORE_NBYTES = 100 * 2**20  # of Ray's object store, which is hardly used
PATIENCE = 120.0  # seconds for Ray to start or to end a node
RAY = f"""
import time
from ray._private import services

ask = services.get_node

def ask_patiently(*arguments):
    end = time.monotonic() + {PATIENCE}
    while True:
        try:
            return ask(*arguments)
        except RuntimeError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)

services.get_node = ask_patiently
from ray.scripts.scripts import main

main()
"""
"""The command `ray`, which would otherwise end a node that takes over half a minute to join, as on a busy machine."""
APART = ("unshare", "--net", "--mount", "--pid", "--uts", "--fork", "--kill-child=KILL", "--mount-proc")
FIRST_PROCESS = """
set -e
hostname "$1"
mount -t tmpfs tmpfs /mnt
shift
for path in "$@"; do mkdir -p "/mnt/${path#/tmp/}"; mount --bind "$path" "/mnt/${path#/tmp/}"; done
mount --rbind /mnt /tmp
umount -l /mnt
mount -t tmpfs tmpfs /dev/shm
ip link set lo up
echo ready
sleep infinity & wait
"""


@functools.cache
def why_not() -> str:
    """Return the requirement of isolated nodes that this machine does not meet; empty if it meets all."""
    if missing := [name for name in ("ip", "unshare", "nsenter", "mount") if shutil.which(name) is None]:
        return f"isolated nodes need the commands {', '.join(missing)}"
    if os.geteuid():
        return "isolated nodes need root"
    made = subprocess.run(
        [*APART, "sh", "-c", "mount -t tmpfs tmpfs /tmp && ip link add name end0 type veth peer name end1"],
        capture_output=True, text=True,
    )  # fmt: skip
    return f"isolated nodes need namespaces and links: {made.stderr.strip()}" if made.returncode else ""


class IsolatedNode:
    """A simulated machine, made of Linux namespaces; `keep_ray` starts Ray there.

    Parameters
    ----------
    name
        Its host name, and the name of a Ray resource that it has.
    link, address, home
        Name of home's end of the link, the node's address, and home's.
    environment
        Environment variables of all processes that are started there.

    Attributes
    ----------
    is_cut
        Whether its link is down.
    """

    def __init__(self, name: str, link: str, address: str, home: str, environment: dict[str, str]) -> None:
        self.name, self.address = name, address
        self.is_cut = True
        self._home, self._environment = home, environment
        self._ray: subprocess.Popen[bytes] | None = None
        me = os.getpid()
        self._unshare = subprocess.Popen(
            [*APART, "bash", "-c", FIRST_PROCESS, "bash", name, *_needed_below_tmp()],
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
            preexec_fn=lambda: set_parent_death_signal(signal.SIGKILL, me),
        )  # fmt: skip
        try:
            assert self._unshare.stdout is not None
            if self._unshare.stdout.readline().strip() != "ready":
                raise OSError(f"the namespaces of {name} could not be made")
            (self._first,) = psutil.Process(self._unshare.pid).children()
            ip("link", "add", "name", link, "type", "veth", "peer", "name", "eth0", "netns", str(self._first.pid))
            ip("address", "add", home, "peer", address, "dev", link)
            ip("link", "set", link, "up")
            self.do("ip", "address", "add", address, "peer", home, "dev", "eth0")
            self.mend()
        except BaseException:
            self.close()
            raise

    def do(self, *command: str) -> None:
        """Run a command there, and wait for its end."""
        subprocess.run([*self._enter(), *command], check=True, env=self._environment)

    # -- faults ----------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Take the link down."""
        self.do("ip", "link", "set", "eth0", "down")
        self.is_cut = True

    def mend(self) -> None:
        """Put the link up."""
        self.do("ip", "link", "set", "eth0", "up")
        self.do("ip", "route", "replace", "default", "via", self._home)
        self.is_cut = False

    def kill_raylet(self) -> None:
        """Kill the raylet of the node; Ray's other processes there end with it."""
        for process in self.processes("raylet/raylet"):
            process.kill()

    # -- Ray -------------------------------------------------------------------------------------------------------

    def keep_ray(self, head: str, cores: int = 1) -> None:
        """Join a cluster, in the background, unless Ray runs there already."""
        if self._ray is not None and self._ray.poll() is None:
            return
        self.stop_ray()
        options = f"--address={head} --node-ip-address={self.address} --num-cpus={cores} --num-gpus=0 --block"
        self._ray = subprocess.Popen(
            [*self._enter(), sys.executable, "-c", RAY, "start", *options.split(), "--disable-usage-stats",
             f"--object-store-memory={STORE_NBYTES}", f'--resources={{"{self.name}": 1}}'],
            env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def stop_ray(self) -> None:
        """End all processes of the node."""
        for process in self.processes():
            if process != self._first and "sleep" not in process.name():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        if self._ray is not None:
            self._ray.wait(PATIENCE)

    # -- what is there ---------------------------------------------------------------------------------------------

    def processes(self, *names: str) -> list[psutil.Process]:
        """Return the node's processes whose command contains one of these names; without names, all."""
        found = []
        for process in psutil.process_iter():
            try:
                if _pid_namespace(process) == _pid_namespace(self._first):
                    words = process.cmdline()[:1] or [process.name()]
                    if not names or any(name in words[0] for name in names):
                        found.append(process)
            except (psutil.Error, OSError):
                continue  # gone meanwhile
        return found

    def of_a_run(self) -> list[psutil.Process]:
        """Return Penstock's processes on the node: hosts, launchers and roles."""
        return self.processes("penstock-", "NodeHost")

    def shared_nbytes(self) -> int:
        """Return the bytes of shared memory in the node's /dev/shm, Ray's included."""
        usage = os.statvfs(f"/proc/{self._first.pid}/root/dev/shm")
        return (usage.f_blocks - usage.f_bfree) * usage.f_frsize

    def close(self) -> None:
        """End the node, with everything on it."""
        self._unshare.kill()
        self._unshare.wait()
        if self._ray is not None:
            self._ray.wait(PATIENCE)
        if self._unshare.stdout is not None:
            self._unshare.stdout.close()

    def _enter(self) -> list[str]:
        there = ["nsenter", "-t", str(self._first.pid), "-n", "-m", "-p", "-u"]
        return [*there, "env", "-C", str(ROOT)]


class IsolatedCluster:
    """A head without cores at home, and isolated nodes. A context manager that leaves nothing of them behind.

    Parameters
    ----------
    names
        Names of the nodes.
    cores
        Number of cores of each node.
    environment
        Additional environment variables of the processes on a node, by its name.

    Attributes
    ----------
    nodes
        Nodes by name.
    address
        Address of the head.

    Raises
    ------
    OSError
        This machine cannot make them; see `why_not`.
    """

    def __init__(self, *names: str, cores: int = 1, environment: dict[str, dict[str, str]] | None = None) -> None:
        if why := why_not():
            raise OSError(why)
        net = _free_net()
        self._cores = cores
        self.home = f"{net}.1"
        self.nodes: dict[str, IsolatedNode] = {}
        self._head: Any = None
        mine = {name: value for name, value in os.environ.items() if name != "TMPDIR"}  # a folder in home's /tmp
        mine["RAY_worker_niceness"] = "0"  # otherwise hosts starve where other programs are busy
        mine["RAY_agent_register_timeout_ms"] = f"{PATIENCE * 1000:.0f}"  # after which a node ends by itself
        try:
            for number, name in enumerate(names):
                there = {**mine, **(environment or {}).get(name, {})}
                link, address = f"pen{os.getpid()}.{number}", f"{net}.{number + 2}"
                self.nodes[name] = IsolatedNode(name, link, address, self.home, there)
            self._head = _start_head(self.home)
            self.address: str = self._head.address
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Start Ray on all nodes, and wait until they have joined."""
        end = time.monotonic() + PATIENCE
        while not {node.address for node in self.nodes.values()} <= self.alive():
            self.keep()
            if time.monotonic() > end:
                raise TimeoutError(f"not all of {', '.join(self.nodes)} have joined within {PATIENCE:.0f} s")
            time.sleep(0.1)

    def keep(self) -> None:
        """Start Ray, in the background, on each node where it has ended."""
        for node in self.nodes.values():
            node.keep_ray(self.address, self._cores)

    def alive(self) -> set[str]:
        """Return the addresses of the nodes that Ray considers alive."""
        table = self._head.global_state.node_table()
        return {node["NodeManagerAddress"] for node in table if node["Alive"]}

    def kill_head(self) -> None:
        """Kill the cluster's control service: the cluster is not usable afterwards."""
        self._head.head_node.kill_gcs_server(check_alive=False)

    def close(self) -> None:
        """End everything."""
        for node in self.nodes.values():
            node.close()
        if self._head is not None:
            self._head.shutdown()

    def __enter__(self) -> IsolatedCluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def ip(*arguments: str) -> str:
    """Run the command `ip` at home; return what it prints."""
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


def _start_head(address: str) -> Any:
    from ray.cluster_utils import Cluster

    logging.getLogger("ray").setLevel(logging.WARNING)
    arguments = {"node_ip_address": address, "num_cpus": 0, "object_store_memory": STORE_NBYTES}
    return Cluster(initialize_head=True, head_node_args={**arguments, "include_dashboard": False})


def _free_net() -> str:
    """Return the first three bytes, as text, of addresses that this machine does not use."""
    taken = ip("-o", "address")
    return next(net for net in (f"10.213.{(os.getpid() + n) % 250}" for n in range(250)) if f" {net}." not in taken)


def _needed_below_tmp() -> list[str]:
    """Return the folders of home's /tmp that Python needs, each once."""
    needed = {Path(path).resolve() for path in (ROOT, sys.prefix, sys.base_prefix, *sys.path) if path}
    below = sorted(path for path in needed if Path("/tmp") in path.parents and path.is_dir())
    return [str(path) for path in below if not any(other in path.parents for other in below)]


def _pid_namespace(process: psutil.Process) -> str:
    return os.readlink(f"/proc/{process.pid}/ns/pid")
