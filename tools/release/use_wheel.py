"""Use an installed wheel as its users do; a part of tools/release/check_wheel.sh.

    python tools/release/use_wheel.py replay|dashboard

replay: Fill a buffer of penstock.replay, and draw from it, in an environment without torch.
dashboard: Serve the runs in the current folder, and read the page and the list of runs, which must have "solved".
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path


def replay() -> None:
    """Use a buffer without torch."""
    import numpy as np

    from penstock.replay import Field, ReplayBuffer

    if importlib.util.find_spec("torch") is not None:
        raise SystemExit("expected an environment without torch")
    buffer = ReplayBuffer(100, {"reward": Field()}, seed=0)
    buffer.add(reward=np.arange(100, dtype=np.float32))
    drawn = buffer.sample(32)["reward"]
    if not (len(drawn) == 32 and set(drawn.tolist()) <= set(range(100))):
        raise SystemExit(f"expected 32 of the rewards that were added, found {drawn}")
    print("penstock.replay drew 32 rows without torch")


def dashboard() -> None:
    """Ask the dashboard for its page and its runs."""
    command = [str(Path(sys.executable).with_name("penstock")), "dashboard", ".", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        address = re.search(r"http://[\d.:]+/\?token=\S+", line)
        if address is None:
            raise SystemExit(f"expected the dashboard's address, found {line!r}")
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(address[0], timeout=30) as answer:
            status, page = answer.status, answer.read().decode()
        with browser.open(address[0].partition("?")[0] + "api/runs", timeout=30) as answer:
            runs = json.load(answer)["runs"]
    finally:
        server.terminate()
        server.wait(30)
    if status != 200 or "<html" not in page or "solved" not in json.dumps(runs):
        raise SystemExit(f"expected a page and the run 'solved', found status {status} and the runs {runs}")
    print(f"the dashboard answered {status} with a page of {len(page)} characters, and listed {len(runs)} run")


PARTS: dict[str, Callable[[], None]] = {"replay": replay, "dashboard": dashboard}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in PARTS:
        raise SystemExit(__doc__)
    PARTS[sys.argv[1]]()
