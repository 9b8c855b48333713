"""Command ``penstock dashboard``: chooses a port, prints the address, and serves until interrupted."""

from __future__ import annotations

import os
import secrets
import socket
import webbrowser
from dataclasses import dataclass
from pathlib import Path

from penstock.dashboard import DashboardError
from penstock.flags import Places, parse_flags

NICENESS = 10  # lower priority than rollout workers, which have 5
_RUNS = Path("runs")
_CLOSE_SECONDS = 3  # streams check for the end once or twice a second


@dataclass(frozen=True)
class Flags:
    """Show runs in the browser while they train: learning, speed and what limits it, hardware, log."""

    dirs: Places = (_RUNS,)
    """Runs, or folders that hold runs."""
    port: int = 0
    """Port on 127.0.0.1; 0: any free one."""
    open: bool = False
    """Open the dashboard in the browser. The token is then in the list of processes, which all users can read."""
    control: bool = False
    """Allow the page to stop runs, and to change their tags and notes."""
    allow_host: str = ""
    """Further legal host names of requests, separated by commas, for example of a proxy."""


def command(args: list[str]) -> int:
    """Run the command; return its exit code.

    Raises
    ------
    DashboardError
        The extra "dashboard" is not installed, a folder does not exist, or the port is in use.
    """
    flags = parse_flags(Flags, args, prog="penstock dashboard")
    try:
        import uvicorn

        from penstock.dashboard.catalogue import Catalogue
        from penstock.dashboard.guard import LOCAL
        from penstock.dashboard.server import make_app
    except ImportError as error:
        raise DashboardError(f"the dashboard needs {error.name}: pip install 'penstock[dashboard]'") from None
    for place in flags.dirs:
        if not place.is_dir() and (place.exists() or place != _RUNS):  # the first training creates runs/
            problem = "is a file" if place.exists() else "does not exist"
            raise DashboardError(f"{place} {problem}: give runs, or folders that hold runs")
    if not 0 <= flags.port < 2**16:
        raise DashboardError(f"--port {flags.port} is not legal: use 1 to 65535, or 0 for any free one")
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", flags.port))
        listening.listen()  # before the address is printed
    except OSError as error:
        raise DashboardError(f"--port {flags.port} is not available: {error.strerror}; use --port 0 for any") from error
    port, token = listening.getsockname()[1], secrets.token_urlsafe(16)
    # Browsers share cookies of one name between ports.
    app = make_app(
        Catalogue(flags.dirs), token=token, cookie=f"penstock-{port}", control=flags.control,
        hosts=[*LOCAL, *filter(None, flags.allow_host.split(","))], is_ending=lambda: server.should_exit,
    )  # fmt: skip
    os.nice(NICENESS)
    address = f"http://127.0.0.1:{port}/?token={token}"
    print(f"dashboard of {', '.join(map(str, flags.dirs))}: {address}\nCtrl-C ends it", flush=True)
    if flags.open:
        webbrowser.open(address)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, proxy_headers=False,
        timeout_graceful_shutdown=_CLOSE_SECONDS,
    )  # fmt: skip
    server = uvicorn.Server(config)
    server.run(sockets=[listening])
    return 0
