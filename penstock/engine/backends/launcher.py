"""Launcher: a process that imports the modules of all roles once, and forks the roles.

It is single-threaded whenever it forks, so that roles end with it (PR_SET_PDEATHSIG follows the thread that forked),
whatever threads the user's process has. It watches the user's process: when that is gone, the launcher kills the roles
and ends. A forked role starts in milliseconds, where a fresh interpreter would import torch for a second, and shares
the imported pages with the others.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from multiprocessing.connection import wait

import setproctitle

from penstock.config import FEATURES
from penstock.engine.backends.channel import Channel
from penstock.engine.backends.process import answer, module_path, run_role
from penstock.ipc.ownership import Owned, owner_only
from penstock.output import lossy_output
from penstock.runs.process import ENDING

MESSAGE_NBYTES = 4096
# Memory that malloc returns to the kernel after a large batch is faulted in again page by page: convolutions of a few
# hundred images take half as long when malloc keeps it. (It refuses a threshold above 32 MiB.)
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**30)}
FORK_DESCRIPTORS = 2  # the arena's, and the role's end of its control connection
END_SECONDS = 5.0  # limit for the launcher to end the roles and itself

_prepared: Launcher | None = None
_is_kept = False


def prepare() -> None:
    """Start a launcher for the next run in the background, which imports while this process does."""
    global _prepared
    if _prepared is not None and not _prepared.is_alive:
        _prepared.close()
        _prepared = None
    if _prepared is None:
        _prepared = Launcher()


def take() -> Launcher:
    """Return the prepared launcher if it is alive, or a new one."""
    global _prepared
    launcher, _prepared = _prepared, None
    if launcher is not None and not launcher.is_alive:
        launcher.close()
        launcher = None
    return launcher or Launcher()


def discard() -> None:
    """End the prepared launcher, unless it is kept: the next run needs none."""
    global _prepared
    if _is_kept:
        return
    launcher, _prepared = _prepared, None
    if launcher is not None:
        launcher.close()


@contextlib.contextmanager
def lent() -> Iterator[Launcher | None]:
    """Lend the prepared launcher to the block; None if there is none."""
    global _prepared
    launcher, _prepared = _prepared, None
    try:
        yield launcher
    finally:
        if launcher is not None:
            if _prepared is None:
                _prepared = launcher
            else:  # another thread has prepared one meanwhile
                launcher.close()


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Within the block, keep the launcher of a finished run for the next run, which imports nothing anew."""
    global _is_kept
    was_kept, _is_kept = _is_kept, True
    try:
        yield
    finally:
        _is_kept = was_kept
        discard()


def give_back(launcher: Launcher, *, is_idle: bool) -> None:
    """End the launcher of a finished run, or keep it, within `kept`, if it has no roles left (`is_idle`)."""
    global _prepared
    if _is_kept and is_idle and _prepared is None:
        _prepared = launcher
    else:
        launcher.close()


class LauncherDied(RuntimeError):
    """The launcher is gone, and all roles with it."""


class Launcher(Owned):
    """Launcher as seen by the user's process: forks roles, and reports their deaths."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._deaths: list[tuple[int, int]] = []
        # A pidfd shows the end of this process even while a child of it holds its other descriptors.
        me = os.pidfd_open(os.getpid())
        serving = f"from {__name__} import serve; serve({theirs.fileno()}, {me})"
        # Threads that libraries start at import would not survive the fork.
        threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # inherited by the launcher from its start
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"import sys; sys.path[:] = {module_path()!r}; {serving}"],
                pass_fds=[theirs.fileno(), me],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is the supervisor's alone
                env={**os.environ, **threads, **KEEP_MEMORY},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        theirs.close()
        os.close(me)

    @property
    def pid(self) -> int:
        """Process id of the launcher."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the launcher runs, and belongs to this process."""
        return not self.is_foreign and self._process.poll() is None

    def fileno(self) -> int:
        """Return the descriptor that is readable when a death is reported."""
        return self._socket.fileno()

    def fork(self, name: str, arena_fd: int | None, control: Channel) -> int:
        """Fork a process for a role, whose setup follows over `control`; return its process id.

        Parameters
        ----------
        name
            Name of the role.
        arena_fd
            Descriptor of the arena; None: a process that answers one call, see `penstock.engine.backends.apart`.
        control
            The role's end of the control connection.

        Raises
        ------
        LauncherDied
            The launcher is gone.
        """
        fds = [control.fileno()] if arena_fd is None else [control.fileno(), arena_fd]
        try:
            socket.send_fds(self._socket, [json.dumps({"fork": name}).encode()], fds)
        except OSError as error:
            raise self._gone() from error
        while "forked" not in (reply := self._receive()):
            self._deaths.append((reply["died"], reply["status"]))
        return reply["forked"]

    def deaths(self) -> list[tuple[int, int]]:
        """Return (process id, wait status) of the roles that ended since the last call, without waiting.

        Raises
        ------
        LauncherDied
            The launcher is gone.
        """
        while wait([self._socket], 0.0):
            report = self._receive()
            self._deaths.append((report["died"], report["status"]))
        deaths, self._deaths = self._deaths, []
        return deaths

    @owner_only
    def close(self) -> None:
        """End the launcher and all remaining roles; a second call does nothing."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # effective even if a child of this process holds a copy
        self._socket.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _receive(self) -> dict[str, int]:
        try:
            data = self._socket.recv(MESSAGE_NBYTES)
        except ConnectionError as error:
            raise self._gone() from error
        if not data:
            raise self._gone()
        message: dict[str, int] = json.loads(data)
        return message

    def _gone(self) -> LauncherDied:
        return LauncherDied(f"the launcher (process {self.pid}) is gone, and all roles with it")


def serve(supervisor_fd: int, parent: int) -> None:
    """Main loop of the launcher's process, which ends, with all roles, when the supervisor is gone.

    Parameters
    ----------
    supervisor_fd
        Socket of the supervisor's requests.
    parent
        Pidfd of the supervisor.
    """
    setproctitle.setproctitle("penstock-launcher")
    # Signals that the parent blocks, such as SIGCHLD, are not blocked here; roles unblock all when they begin.
    signal.pthread_sigmask(signal.SIG_SETMASK, ENDING)
    supervisor = socket.socket(fileno=supervisor_fd)
    with _ending_with(supervisor, parent):
        import_what_roles_need()
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)

    selector = selectors.DefaultSelector()
    for source in (supervisor, parent, wake_read):
        selector.register(source, selectors.EVENT_READ)
    own_fds = (selector.fileno(), supervisor.fileno(), parent, wake_read, wake_write)
    roles: set[int] = set()
    with contextlib.suppress(ConnectionError):
        while parent not in (ready := {key.fileobj for key, _ in selector.select()}):
            if wake_read in ready:
                os.read(wake_read, MESSAGE_NBYTES)
                _report_deaths(supervisor, roles)
            if supervisor in ready:
                request, fds, _, _ = socket.recv_fds(supervisor, MESSAGE_NBYTES, FORK_DESCRIPTORS)
                if not request:
                    break
                pid = _fork(json.loads(request)["fork"], fds, own_fds)
                roles.add(pid)
                supervisor.send(json.dumps({"forked": pid}).encode())
    for pid in roles:
        _kill_group(pid)
    for pid in roles:
        os.waitpid(pid, 0)


def import_what_roles_need() -> None:
    """Import torch and the roles, and keep their pages shared."""
    import torch

    import penstock.engine.acting.inference
    import penstock.engine.groups.follower
    import penstock.engine.groups.leader
    import penstock.engine.groups.rank_learner
    import penstock.engine.paths.gradients
    import penstock.engine.paths.hogwild
    import penstock.engine.paths.replay
    import penstock.engine.paths.replay_learner
    import penstock.engine.paths.segment_learner
    import penstock.engine.paths.segments
    import penstock.engine.roles.evaluator
    import penstock.engine.roles.policy_worker  # noqa: F401

    for module in (module for feature in FEATURES for module in feature.modules):
        importlib.import_module(module)
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def _ending_with(supervisor: socket.socket, parent: int) -> Iterator[None]:
    """End this process at once if the supervisor ends during the block."""
    watch = select.poll()
    watch.register(supervisor, select.POLLRDHUP)
    watch.register(parent, select.POLLIN)
    is_over = threading.Event()

    def look() -> None:
        while not is_over.is_set():
            if watch.poll(20):
                os._exit(0)

    thread = threading.Thread(target=look)  # gone before the first fork
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _report_deaths(supervisor: socket.socket, roles: set[int]) -> None:
    for pid in sorted(roles):
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            _kill_group(pid)
            _, status = os.waitpid(pid, 0)
            roles.remove(pid)
            supervisor.send(json.dumps({"died": pid, "status": status}).encode())


def _kill_group(pid: int) -> None:
    """Kill a role, dead or alive, with all processes that its environments have started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _fork(name: str, fds: list[int], own_fds: tuple[int, ...]) -> int:
    launcher = os.getpid()
    pid = os.fork()
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.setpgid(pid, pid)  # by parent and child, whichever is first
        for fd in fds:
            os.close(fd)
        return pid
    status = 1
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in own_fds:
            os.close(fd)
        control = Channel(socket.socket(fileno=fds[0]))
        with lossy_output():
            status = answer(name, launcher, control) if len(fds) == 1 else run_role(name, launcher, fds[1], control)
    finally:
        os._exit(status)
