"""Command ``penstock dashboard``: finds a port, prints the address, and serves until it is interrupted."""

from __future__ import annotations

import os
import secrets
import socket
import webbrowser
from dataclasses import dataclass
from pathlib import Path

from penstock.dashboard import DashboardError
from penstock.flags import Places, parse_flags

NICENESS = 10  # behind rollout workers, whose is 5
_RUNS = Path("runs")
_CLOSE_SECONDS = 3  # streams check for the end once or twice a second


@dataclass(frozen=True)
class Flags:
    """Show runs in the browser while they train: learning, speed and what limits it, hardware, log."""

    dirs: Places = (_RUNS,)
    """Runs, or folders that hold runs."""
    port: int = 0
    """Port on 127.0.0.1; 0: any that is free."""
    open: bool = False
    """Open it in the browser."""
    control: bool = False
    """Let the page stop runs."""
    allow_host: str = ""
    """Further names, separated by commas, under which a browser may ask, as through a proxy of yours."""


def command(args: list[str]) -> int:
    """Run the command; return its exit code.

    Raises
    ------
    DashboardError
        The extra "dashboard" is not installed, a folder is not there, or the port is taken.
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
        if not place.is_dir() and (place.exists() or place != _RUNS):  # runs/ is made by the first training
            problem = "is a file" if place.exists() else "is not there"
            raise DashboardError(f"{place} {problem}: give runs, or folders that hold runs")
    if not 0 <= flags.port < 2**16:
        raise DashboardError(f"--port {flags.port} is not legal: use 1 to 65535, or 0 for any that is free")
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", flags.port))
        listening.listen()  # a reader of the address may connect at once
    except OSError as error:
        raise DashboardError(f"--port {flags.port} cannot be had: {error.strerror}; use --port 0 for any") from error
    port, token = listening.getsockname()[1], secrets.token_urlsafe(16)
    more = [name for name in flags.allow_host.split(",") if name]
    # Cookies of one name are of all ports.
    app = make_app(
        Catalogue(flags.dirs), token=token, cookie=f"penstock-{port}", hosts=[*LOCAL, *more], control=flags.control,
        is_ending=lambda: server.should_exit,
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
