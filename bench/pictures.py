"""Pictures of the dashboard and of the live view, of a run of each kind, for docs/images.

    python bench/pictures.py [--runs FOLDER] [--all FOLDER] [--terminals]

Runs that are missing in the folder are trained first, which takes minutes on two cores. Without ``--all``, the pictures
of the documentation are written to docs/images, in 128 colours. With ``--all``, every whole page at 390, 900 and 1,400
pixels in both themes, and the live view at five sizes, are written to its folder for inspection. A page that is wider
than its window is an error. With ``--terminals``, only the pictures of the live view are made, without a browser.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from dashboard import browser, dashboard
from PIL import Image
from rich.console import Console
from selenium.webdriver import Chrome

sys.path.insert(0, str(Path(__file__).parents[1]))

from penstock.runs.panels import panels
from penstock.runs.reading import RecordedRun
from penstock.runs.state import status_of
from penstock.studies.watch import histories_of
from tests.engine.isolated_nodes import IsolatedCluster, why_not

REPOSITORY = Path(__file__).resolve().parents[1]
IMAGES = REPOSITORY / "docs" / "images"
GAME = os.fspath(REPOSITORY / "bench" / "environments" / "tic_tac_toe.py:TicTacToe")
WATCH = os.fspath(REPOSITORY / "bench" / "environments" / "delayed.py:WatchRepair")
POPULATION = """
[learning_rate]
low = 1e-5
high = 1e-2
log = true

[gamma]
low = 0.9
high = 0.999
complement = true
"""
SPACE = """
[learning_rate]
low = 1e-4
high = 1e-2
log = true

[num_epochs]
values = [2, 5, 10]

[gae_lambda]
low = 0.9
high = 1.0
"""
CARTPOLE = ("--env", "CartPole-v1", "--eval-interval")
RUNS = {
    "appo-1": ("appo", *CARTPOLE, "8000", "--total-steps", "40000", "--seed", "1"),
    "appo-2": ("appo", *CARTPOLE, "8000", "--total-steps", "40000", "--seed", "2"),
    "mixture": ("clear", *CARTPOLE, "6000", "--total-steps", "30000", "--seed", "1"),
    "replay": ("dqn", *CARTPOLE, "4000", "--total-steps", "20000", "--seed", "1"),
    "learners": ("ppo", *CARTPOLE, "8000", "--num-learners", "2", "--total-steps", "40000", "--seed", "1"),
    "rudder": (
        "ppo", "--env", WATCH, "--rewards", "rudder", "--eval-interval", "10000", "--total-steps", "30000",
        "--seed", "1",
    ),
    "self-play": (
        "ppo", "--env", GAME, "--opponents", "past", "--eval-against", "random", "--eval-interval", "6000",
        "--opponent-interval", "6000", "--total-steps", "30000", "--seed", "1",
    ),
    "two-policies": (
        "ppo", "--env", GAME, "--policies", 'crosses={"agents": "crosses"}', 'noughts={"agents": "noughts"}',
        "--opponents", "past", "--eval-against", "random", "others", "best", "--eval-interval", "10000",
        "--opponent-interval", "10000", "--total-steps", "60000", "--seed", "1",
    ),
    "population": (
        "ppo", *CARTPOLE, "15000", "--num-policies", "4", "--num-envs-per-worker", "8", "--num-workers", "1",
        "--segment-length", "32", "--batch-size", "64", "--num-epochs", "2", "--learning-rate-schedule", "constant",
        "--pbt", "truncation", "--pbt-interval", "2500", "--pbt-episodes", "5", "--pbt-space", "SPACE",
        "--total-steps", "60000", "--seed", "1",
    ),
}  # fmt: skip
"""Flags of each run; SPACE is the file of the population's settings."""
ON_NODES = {
    "nodes": ("appo", *CARTPOLE, "0", "--nodes", "2", "--num-workers", "1", "--total-steps", "150000", "--seed", "1"),
}
"""Flags of runs on two machines of a cluster, which namespaces of this machine stand for."""
SEARCH = ("ppo", *CARTPOLE, "4000", "--total-steps", "12000", "--trials", "12", "--num-workers", "1")
SHOWN = {
    "dashboard-overview": ("#/", 620, ""), "dashboard-run": ("#/run/appo-1", 1000, ""),
    "dashboard-curves": ("#/curves", 1000, ""), "dashboard-policies": ("#/run/two-policies", 1000, "Policies"),
    "dashboard-population": ("#/run/population", 1900, ""), "dashboard-search": ("#/search/search", 1300, ""),
    "dashboard-comparison": ("#/compare?words=search&by=num_epochs", 1100, ""),
    "dashboard-delayed": ("#/run/rudder", 1300, ""), "dashboard-nodes": ("#/run/nodes", 1000, ""),
    "dashboard-speed": ("#/run/nodes", 1150, "Speed"),
}  # fmt: skip
"""Page, height and first section of each picture of the documentation."""
WIDTHS = (1400, 900, 390)
"""Widths of the pages for inspection, in pixels."""
TERMINALS = {
    "live-view": ("appo-1", 80, 24), "live-view-policies": ("two-policies", 120, 40),
    "live-view-rudder": ("rudder", 120, 40),
}  # fmt: skip
"""Run, columns and lines of each picture of the live view."""
TALLEST = 12_000


def make_runs(folder: Path) -> None:
    """Train the runs that are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    space = folder / "population.toml"
    space.write_text(POPULATION)
    if not (folder / "search").exists():
        (folder / "search.toml").write_text(SPACE)
        flags = (*SEARCH, "--space", os.fspath(folder / "search.toml"), "--dir", os.fspath(folder / "search"))
        command = [sys.executable, "-m", "penstock.cli", "search", *flags]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    for name, flags in RUNS.items():
        if not (folder / name).exists():
            command = [sys.executable, "-m", "penstock.cli", "train", *flags, "--run-dir", os.fspath(folder / name)]
            command = [os.fspath(space) if word == "SPACE" else word for word in command]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    for name, flags in ON_NODES.items():
        if (folder / name).exists():
            continue
        if reason := why_not():
            print(f"no run on nodes: {reason}", file=sys.stderr)
            continue
        with IsolatedCluster("one", "two") as cluster:
            cluster.start()
            place = ("--backend", "ray", "--address", cluster.address, "--run-dir", os.fspath(folder / name))
            command = [sys.executable, "-m", "penstock.cli", "train", *flags, *place]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


def take(
    chrome: Chrome, address: str, page: str, width: int, height: int | None, theme: str, out: Path, section: str = ""
) -> int:
    """Write a picture of a page from a section on, whole if `height` is None; return the pixels of overflow."""
    size = {"width": width, "height": height or 1000, "deviceScaleFactor": 1, "mobile": False}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    chrome.execute_script("localStorage.setItem('theme', arguments[0])", theme)
    base = address.partition("?")[0]
    chrome.get(f"{base}static/icon.svg")  # another document, so that the page is loaded anew
    chrome.get(f"{base}{page}")
    time.sleep(2.5)
    whole = "return [document.documentElement.scrollHeight, document.body.scrollWidth]"
    tall, wide = chrome.execute_script(whole)
    while height is None and size["height"] < min(tall, TALLEST):  # charts in view become taller as they are drawn
        size["height"] = min(tall, TALLEST)
        chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        time.sleep(2.0)
        tall, wide = chrome.execute_script(whole)
    go = "[...document.querySelectorAll('.index button')].find((one) => one.textContent === arguments[0]).click()"
    for _ in range(3 if section else 0):
        chrome.execute_script(go, section)
        time.sleep(1.0)
    chrome.save_screenshot(os.fspath(out))
    return max(0, int(wide) - width)


def ids_of(chrome: Chrome) -> Mapping[str, str]:
    """Return ids of the runs and searches by name."""
    asked = "const done = arguments[0]; fetch('/api/runs').then((answer) => answer.json()).then(done)"
    found = chrome.execute_async_script(asked)
    return {each[key]: each["id"] for key, kind in (("run", "runs"), ("name", "searches")) for each in found[kind]}


def pages(folder: Path, out: Path, *, is_all: bool) -> list[str]:
    """Write pictures of pages; return the names of those that are too wide."""
    too_wide = []
    with dashboard(folder) as (address, _), browser() as chrome:
        chrome.get(address)
        chrome.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        ids = ids_of(chrome)
        both = ",".join(ids[name] for name in ("appo-1", "replay"))
        wanted: list[tuple[str, str, int, int | None, str, str]]
        if is_all:
            names = {"overview": "#/", "curves": "#/curves", "comparison": "#/compare", "search": "#/search/search"}
            names |= {name: f"#/run/{name}" for name in (*RUNS, *ON_NODES)}
            names |= {"files": f"#/run/{ids['appo-1']}/files", "differences": f"#/differences?runs={both}"}
            wanted = [
                (f"{name}-{width}-{theme}", page, width, None, theme, "")
                for name, page in names.items() for width in WIDTHS for theme in ("light", "dark")
            ]  # fmt: skip
        else:
            wanted = [(name, page, 1400, height, "light", section) for name, (page, height, section) in SHOWN.items()]
        for name, page, width, height, theme, section in wanted:
            head, _, run = page.rpartition("/")
            place = f"{head}/{ids[run]}" if run in ids else page
            if take(chrome, address, place, width, height, theme, out / f"{name}.png", section):
                too_wide.append(name)
            if not is_all:
                in_colors(out / f"{name}.png")
    return too_wide


def in_colors(picture: Path, most: int = 128) -> None:
    """Rewrite a picture in a few colours, a third of its bytes; thin lines keep their colours."""
    with Image.open(picture) as found:
        method = Image.Quantize.MAXCOVERAGE  # others choose colours by area
        found.convert("RGB").quantize(most, method, kmeans=2, dither=Image.Dither.NONE).save(picture, optimize=True)


def terminal(run: Path, columns: int, lines: int, out: Path) -> None:
    """Write a picture of the live view of a run."""
    recorded = RecordedRun.open(run)
    status = status_of({**recorded.status, "run_dir": f"runs/{run.name}"})
    assert status is not None
    with open(os.devnull, "w") as nowhere:
        console = Console(width=columns, height=lines, record=True, file=nowhere, force_terminal=True)
        console.print(panels(status, histories_of(recorded)[0], columns, lines - 1))
        drawn = console.export_svg(title=f"penstock watch runs/{run.name}")
    # rich names fonts of another site: a picture must not request anything.
    drawn = re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)
    # Braille from another font is wider than a space, which would shift the text in between.
    out.write_text(re.sub(r"(?<=>)[^<]*[\u2801-\u28ff][^<]*", lambda text: text[0].replace("&#160;", "\u2800"), drawn))


def main() -> None:
    """Train what is missing, and write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="folder of the runs (a temporary one)")
    parser.add_argument("--all", type=Path, help="folder for every page at every size, instead of docs/images")
    parser.add_argument("--terminals", action="store_true", help="only the pictures of the live view")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder, out = flags.runs or Path(temporary), flags.all or IMAGES
        make_runs(folder)
        out.mkdir(parents=True, exist_ok=True)
        sizes = ((60, 15), (80, 24), (120, 40), (200, 50), (250, 60))
        every = {f"{name}-{w}x{h}": (name, w, h) for name in (*RUNS, *ON_NODES) for w, h in sizes}
        views = every if flags.all else TERMINALS
        for name, (run, columns, lines) in views.items():
            terminal(folder / run, columns, lines, out / f"{name}.svg")
        if flags.terminals:
            return
        if too_wide := pages(folder, out, is_all=flags.all is not None):
            raise SystemExit(f"wider than the window: {', '.join(too_wide)}")


if __name__ == "__main__":
    main()
