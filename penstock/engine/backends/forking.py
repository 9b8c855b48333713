"""Main loop of the launcher's process: import the modules of all roles, then fork a role at each request.

The process is single-threaded whenever it forks, so that roles end with it (PR_SET_PDEATHSIG follows the thread that
forked), whatever threads the user's process has. It watches the user's process: when that is gone, the launcher kills
the roles and ends.
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
import threading
from collections.abc import Iterator

import setproctitle

from penstock.engine.backends.launcher import MESSAGE_NBYTES
from penstock.runs.process import ENDING

FORK_DESCRIPTORS = 2  # the arena's, and the role's end of its control connection


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
    import torch.utils._device  # torch would import it in each process when it first reads its default device

    import penstock.engine.acting.inference
    import penstock.engine.backends.process
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
    import penstock.engine.roles.policy_worker
    import penstock.output  # noqa: F401
    from penstock.config import FEATURES

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
    from penstock.engine.backends.channel import Channel
    from penstock.engine.backends.process import run_process
    from penstock.output import lossy_output

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
            status = run_process(name, launcher, control, fds[1] if len(fds) > 1 else None)
    finally:
        os._exit(status)
