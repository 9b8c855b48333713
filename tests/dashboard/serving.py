"""A dashboard in a process of its own, and requests to it as any program may send them."""

import http.client
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Served:
    """A dashboard that was started."""

    process: subprocess.Popen[str]
    port: int
    token: str

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    @property
    def cookie(self) -> str:
        return f"penstock-{self.port}={self.token}"

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str | None
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request with the cookie; a header of None is left out, and underscores are dashes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        given = {name.replace("_", "-"): text for name, text in headers.items()}
        sent: dict[str, str | None] = {"Cookie": self.cookie, **given}
        connection.putrequest(method, path, skip_host="Host" in sent)
        for name, text in sent.items():
            if text is not None:
                connection.putheader(name, text)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        found = answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read()
        connection.close()
        return found

    def stream(self, path: str, **headers: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Open a stream; close the connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = {"Cookie": self.cookie} | {name.replace("_", "-"): text for name, text in headers.items()}
        connection.request("GET", path, headers=sent)
        return connection, connection.getresponse()


def event(stream: http.client.HTTPResponse, name: str) -> dict[str, str]:
    """Wait for the next event of a name; its fields."""
    fields: dict[str, str] = {}
    while True:
        line = stream.readline().decode()
        assert line, "the stream has ended"
        key, _, text = line.rstrip("\n").partition(": ")
        if key:
            fields[key] = text
        elif fields.get("event") == name:
            return fields
        else:
            fields = {}


@contextmanager
def dashboard_of(folder: Path, *flags: str) -> Iterator[Served]:
    """Serve a folder while the block runs."""
    command = [sys.executable, "-m", "penstock.cli", "dashboard", os.fspath(folder), *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        line = process.stdout.readline()
        match = re.search(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]+)", line)
        assert match, line + process.stdout.read()
        yield Served(process, int(match[1]), match[2])
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=20)
        finally:
            process.kill()
