"""The launcher: one small process that imports what every role needs, once, and forks the roles.

It is single-threaded whenever it forks and as long as the engine lives, so that roles can follow its death
(PR_SET_PDEATHSIG follows the thread that forked), whatever threads the user's own process has. It watches that process
in turn: when the user's process is gone, however it went, the launcher kills the roles and ends. A role forked here
starts in milliseconds, where a fresh interpreter would import torch for a second, and shares the imported pages with
the others.
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
# What malloc gives back to the kernel after a large batch is faulted in again, page by page, at the next: convolutions
# of a few hundred images take half as long when it keeps its memory. (It refuses a threshold above 32 MiB.)
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**30)}
FORK_DESCRIPTORS = 2  # the arena's, and the role's end of its control connection
END_SECONDS = 5.0  # what the launcher has to end the roles and itself

_prepared: Launcher | None = None
_is_kept = False


def prepare() -> None:
    """Start a launcher for the next run in the background, so that it imports while this process does."""
    global _prepared
    if _prepared is not None and not _prepared.is_alive:
        _prepared.close()
        _prepared = None
    if _prepared is None:
        _prepared = Launcher()


def take() -> Launcher:
    """Return the launcher that was prepared, or a new one if there is none that is alive."""
    global _prepared
    launcher, _prepared = _prepared, None
    if launcher is not None and not launcher.is_alive:
        launcher.close()
        launcher = None
    return launcher or Launcher()


def discard() -> None:
    """End the launcher that was prepared, if there is one and it is not kept: the next run needs none."""
    global _prepared
    if _is_kept:
        return
    launcher, _prepared = _prepared, None
    if launcher is not None:
        launcher.close()


@contextlib.contextmanager
def lent() -> Iterator[Launcher | None]:
    """Within the block the launcher that was prepared is the caller's; None if there is none."""
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
    """Within the block the launcher of a run whose roles are gone is kept for the next, which imports nothing anew."""
    global _is_kept
    was_kept, _is_kept = _is_kept, True
    try:
        yield
    finally:
        _is_kept = was_kept
        discard()


def give_back(launcher: Launcher, *, is_idle: bool) -> None:
    """End a launcher whose run is over, or keep it: only one that has no roles left."""
    global _prepared
    if _is_kept and is_idle and _prepared is None:
        _prepared = launcher
    else:
        launcher.close()


class LauncherDied(RuntimeError):
    """The launcher is gone, and all roles with it."""


class Launcher(Owned):
    """The user's process's end: asks for roles, and hears of their deaths."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._deaths: list[tuple[int, int]] = []
        # What tells of this process's end whoever else holds its descriptors (a child of the user's, for one).
        me = os.pidfd_open(os.getpid())
        serving = f"from {__name__} import serve; serve({theirs.fileno()}, {me})"
        # Threads that a library starts when it is imported would not survive the fork: none may start any.
        threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # the launcher inherits it, and is never without
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
        """The launcher's process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process is there, and is this process's own."""
        return not self.is_foreign and self._process.poll() is None

    def fileno(self) -> int:
        """Descriptor that becomes readable when there is a death to hear of."""
        return self._socket.fileno()

    def fork(self, name: str, arena_fd: int | None, control: Channel) -> int:
        """Fork a role that is told over `control` what it is; return its process id.

        Parameters
        ----------
        name
            Name of the role.
        arena_fd
            Descriptor of the arena; None: a process that answers one call, see `penstock.engine.backends.apart`.
        control
            Its end of the control connection.

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
        """Return (process id, wait status) of the roles that ended since the last call; never waits.

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
        """End the launcher, and every role that is still there; a second call does nothing."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # seen also where a child of this process holds a copy
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
    """Run the launcher: the body of its process. Ends, and all roles with it, when the supervisor is gone.

    Parameters
    ----------
    supervisor_fd
        The socket on which the supervisor asks.
    parent
        The supervisor's pidfd.
    """
    setproctitle.setproctitle("penstock-launcher")
    # Whatever its parent blocks, SIGCHLD for one, it does not; the roles take on these when they begin.
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
    import penstock.engine.groups.following
    import penstock.engine.groups.leading
    import penstock.engine.groups.rank_learner
    import penstock.engine.paths.gradients
    import penstock.engine.paths.hogwild_learner
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
    """End this process at once if the supervisor goes while the block, which cannot look for itself, is busy."""
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
    """Kill a role, dead or alive, and with it whatever processes its environments have started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _fork(name: str, fds: list[int], own_fds: tuple[int, ...]) -> int:
    launcher = os.getpid()
    pid = os.fork()
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.setpgid(pid, pid)  # by both, so that it is done whoever comes first
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
