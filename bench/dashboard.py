"""Cost and speed of the dashboard in Chromium.

    python bench/dashboard.py [--only overview curves ...] [--runs 100] [--lines 100000] [--minutes 10]

Runs are generated: each line of metrics has the numbers of a real one, with an evaluation at every twentieth line.
``--files`` files are written; the runs share them as hard links, so that they fit on the disk and in memory.

| measurement | meaning |
|---|---|
| overview | time from the request to a row of every run on the page: with a new dashboard, and again |
| page | the same, to the charts of one run |
| curves | the same, to the drawn curves of all runs: read for the first time, and again |
| many | the same with a band per algorithm and a line per run: first drawn, then with all lines read, and again |
| smoothing, log, zoom, pan | time from an action on these curves to the drawn canvas |
| delay | time from a line appended to a run's metrics to its number on the page |
| cpu | share of a core of dashboard and browser, with a run's page open, hidden and closed, at a line per second |
| heap | of the page after garbage collection, at up to fifty lines per second (a run writes one) |
| training | steps per second of a training with its page open and without, in turns; cores of dashboard and browser |
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

from penstock.runs.machine import describe
from penstock.runs.run_directory import RunDirectory
from penstock.runs.state import StateFile
from penstock.runs.status import Status

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1400,1000",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)  # fmt: skip
EVALUATION = "evaluation/mean_return"
ROWS = "return document.querySelectorAll('tbody tr').length"
DRAWN = (
    "return document.querySelectorAll('.charts canvas').length > 0"
    " && document.querySelector('main').textContent.includes('runs have this metric')"
)
READ = "return document.querySelector('.charts canvas') && document.querySelector('progress').hidden"
INTERACTIONS = {
    "smoothing": "choose('smooth', smooth = smooth === '0.9' ? '0.97' : '0.9')",
    "log": "document.getElementById('logY').click()",
    "zoom": "end += 1000; choose('from', 5e6); choose('to', 1e7 + end)",
    "pan": "document.querySelector(`[data-pan=${end++ % 2 ? 'earlier' : 'later'}]`).click()",
}
"""Actions of the page by name."""
INTERACT = """
const [action, rounds, done] = arguments;
const choose = (id, value) => {
  const control = document.getElementById(id);
  control.value = value;
  control.dispatchEvent(new Event("change"));
};
let end = 0, smooth = "0";
const act = new Function("choose", "end", "smooth", `return () => { ${action} }`)(choose, end, smooth);
(async () => {
  const found = [];
  for (let round = 0; round < rounds; round++) {
    const began = performance.now();
    act();
    await new Promise((resolve) => setTimeout(resolve, 300));
    found.push(performance.getEntriesByName("drawn")[0].startTime - began);
  }
  done(found);
})();
"""
TRAINING = ("appo", "--env", "CartPole-v1", "--total-steps", "100000000", "--eval-interval", "0")


def metrics_line(number: int, rate: int = 512) -> dict[str, float]:
    """Return a line of metrics like PPO's, about 1.6 kB, `rate` steps after the last one."""
    when = {"steps": rate * number, "seconds": round(1.001 * number, 3), "time": round(1.79e9 + 1.001 * number, 3)}
    learned = 500.0 * (1.0 - math.exp(-number / 20_000))
    shares = {f"time/{role}/{what} {n}": math.sin(number + n) ** 2 for role in ("rollout", "learner") for n in range(8)
              for what in ("part",)}  # fmt: skip
    losses = {f"loss/part_{n}": math.cos(number + n) / (n + 1) for n in range(24)}
    return when | {"steps_per_second": 5e3, "episode/mean_return": learned} | losses | shares


def write_metrics(path: Path, lines: int, rate: int) -> None:
    """Write a file of metrics, with an evaluation at every twentieth line."""
    with path.open("w") as file:
        for number in range(lines):
            line = metrics_line(number, rate)
            file.write(f"{json.dumps(line)}\n")
            if number % 20 == 0:
                score = {name: line[name] for name in ("steps", "seconds", "time")}
                file.write(f"{json.dumps(score | {EVALUATION: line['episode/mean_return']})}\n")


def make_run(path: Path, number: int, metrics: Path | None, state: str = "done") -> Path:
    """Make a run directory; its metrics are a hard link to a file."""
    algorithm = ("ppo", "appo", "a2c", "dqn")[number // 5 % 4]
    config: dict[str, Any] = {"env": "CartPole-v1", "seed": number, "total_steps": 10**8, "target_return": None}
    run = RunDirectory.create(path, env_name="CartPole-v1", algorithm=algorithm, config=config)
    if metrics is None:
        run.metrics.touch()
    else:
        os.link(metrics, run.metrics)
    status = Status(algorithm=algorithm, env="CartPole-v1", steps=1, total_steps=10**8, seconds=1.0)
    StateFile(path).write(status, state, "steps")
    return run.metrics


@contextmanager
def dashboard(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Serve a folder."""
    command = [sys.executable, "-m", "penstock.cli", "dashboard", os.fspath(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        yield found[0], psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


@contextmanager
def browser() -> Iterator[Chrome]:
    """Start Debian's Chromium for the block."""
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in FLAGS:
        options.add_argument(flag)
    chrome = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    chrome.set_script_timeout(600)
    try:
        yield chrome
    finally:
        chrome.quit()


def seconds_until(chrome: Chrome, is_there: Callable[[], Any], begin: Callable[[], Any]) -> float:
    """Return the seconds from an action until something is on the page."""
    began = time.monotonic()
    begin()
    while not is_there():
        if time.monotonic() > began + 900.0:
            raise TimeoutError("it did not appear within 900 s")
        time.sleep(0.01)
    return time.monotonic() - began


def seconds_to_open(chrome: Chrome, is_there: Callable[[], Any], address: str, page: str) -> float:
    """Return the seconds from an empty page until something is on a page of the dashboard."""
    chrome.get("about:blank")
    return seconds_until(chrome, is_there, lambda: page_of(chrome, address, page))


def page_of(chrome: Chrome, address: str, page: str) -> None:
    """Open a page of the dashboard; the cookie is there already."""
    chrome.get(f"{address.partition('?')[0]}{page}")


def overview(chrome: Chrome, folder: Path, runs: int) -> None:
    """Measure the overview."""
    with dashboard(folder) as (address, _):
        cold = seconds_until(chrome, lambda: chrome.execute_script(ROWS) == runs, lambda: chrome.get(address))
        is_there = lambda: chrome.execute_script(ROWS) == runs  # noqa: E731
        warm = [seconds_to_open(chrome, is_there, address, "") for _ in range(10)]
    told("overview", f"{runs} runs: first {cold:.2f} s; again {spread(warm)} s", first=cold, again=warm)


def page(chrome: Chrome, folder: Path) -> None:
    """Measure the page of a run: all of its numbers."""
    with dashboard(folder) as (address, process):
        chrome.get(address)
        first = "return document.querySelector('tbody a').getAttribute('href')"
        seconds_until(chrome, lambda: chrome.execute_script(ROWS), lambda: None)
        of_run = chrome.execute_script(first)
        is_drawn = lambda: chrome.execute_script("return document.querySelector('.charts canvas')")  # noqa: E731
        cold = seconds_to_open(chrome, is_drawn, address, of_run)
        used = sum(process.cpu_times()[:2])
        warm = [seconds_to_open(chrome, is_drawn, address, of_run) for _ in range(10)]
    told("page", f"cold {cold:.1f} s ({used:.1f} s of a core), warm {spread(warm)} s", cold=cold, cpu=used, warm=warm)


def curves(chrome: Chrome, folder: Path) -> None:
    """Measure the curves of all runs: of the few lines that are evaluations, and of all lines."""
    for metric in (EVALUATION, "episode/mean_return"):
        with dashboard(folder) as (address, process):
            chrome.get(address)
            place = f"#/curves?y={metric}&by=algorithm"
            shown: list[float] = []

            def is_drawn(shown: list[float] = shown) -> bool:
                if not shown and chrome.execute_script("return document.querySelector('progress:not([hidden])')"):
                    shown.append(time.monotonic())
                return bool(chrome.execute_script(DRAWN))

            began = time.monotonic()
            cold = seconds_to_open(chrome, is_drawn, address, place)
            first = shown[0] - began if shown else math.nan
            used = sum(process.cpu_times()[:2])
            memory = process.memory_info().rss / 1e6
            is_there = lambda: chrome.execute_script(DRAWN)  # noqa: E731
            warm = [seconds_to_open(chrome, is_there, address, place) for _ in range(10)]
        told(
            "curves",
            f"{metric}: cold {cold:.1f} s ({used:.1f} s of a core; progress after {first:.1f} s), dashboard then "
            f"{memory:.0f} MB; warm {spread(warm)} s",
            metric=metric, cold=cold, cpu=used, progress=first, warm=warm, megabytes=memory,
        )  # fmt: skip


def many_curves(chrome: Chrome, folder: Path, runs: int) -> None:
    """Measure curves of all lines of many runs, in groups and one by one, and the interactions with them."""
    is_drawn = lambda: chrome.execute_script("return performance.getEntriesByName('drawn').length")  # noqa: E731
    is_read = lambda: is_drawn() and chrome.execute_script(READ)  # noqa: E731
    for by in ("algorithm", "algorithm,seed"):
        place = f"#/curves?y=episode/mean_return&by={by}"
        with dashboard(folder) as (address, process):
            chrome.get(address)
            first = seconds_to_open(chrome, is_drawn, address, place)
            first_used = sum(process.cpu_times()[:2])
            whole = first + seconds_until(chrome, lambda: chrome.execute_script(READ), lambda: None)
            used = sum(process.cpu_times()[:2])
            again = [seconds_to_open(chrome, is_read, address, place) for _ in range(10)]
            words = f"first {first:.2f} s ({first_used:.1f} s of a core), of all lines {whole:.1f} s ({used:.1f} s)"
            told("many", f"{runs} runs by {by}: {words}; again {spread(again)} s", by=by, first=first,
                 first_cpu=first_used, whole=whole, cpu=used, again=again)  # fmt: skip
            for name, action in INTERACTIONS.items():
                found = chrome.execute_async_script(INTERACT, action, 20)
                told("many", f"by {by}, {name}: {spread(found)} ms", by=by, interaction=name, milliseconds=found)


def run_page(chrome: Chrome, address: str, name: str) -> None:
    """Open the page of a run, with the table of its returns."""
    chrome.get(address)
    link = f"return [...document.querySelectorAll('tbody a')].find((link) => link.textContent === '{name}')"
    seconds_until(chrome, lambda: chrome.execute_script(link), lambda: None)
    chrome.execute_script(f"{link}.click()")
    canvas = "return document.querySelector('.charts canvas')"
    seconds_until(chrome, lambda: chrome.execute_script(canvas), lambda: None)


def append(path: Path, number: int) -> None:
    """Append a line of metrics."""
    with path.open("a") as file:
        file.write(f"{json.dumps(metrics_line(number))}\n")


def live_run(folder: Path) -> Path:
    """Make a running run with a hundred lines; return the path of its metrics."""
    path = make_run(folder / "live", 0, None, "running")
    for number in range(100):
        append(path, number)
    return path


def delay(chrome: Chrome, folder: Path) -> None:
    """Measure how long a line takes to reach the page."""
    path = live_run(folder)
    with dashboard(folder) as (address, _):
        run_page(chrome, address, "live")
        chrome.execute_script("document.querySelector('figure [aria-pressed]').click()")
        last = "return document.querySelector('figure .wide tbody tr:last-child td')?.textContent"
        found = []
        for number in range(200, 220):
            steps = f"{512 * number:,}"
            is_shown = lambda steps=steps: chrome.execute_script(last) == steps  # noqa: E731
            found.append(seconds_until(chrome, is_shown, lambda number=number: append(path, number)))
            time.sleep(0.37)
    told("delay", f"line to page: {spread(found)} s", seconds=found)


@contextmanager
def growing(path: Path, interval: float, begin: int = 1000) -> Iterator[None]:
    """Append lines at a rate."""
    is_over = threading.Event()

    def grow() -> None:
        number = begin
        while not is_over.wait(interval):
            append(path, number)
            number += 1

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def cpu_of(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and its descendants."""
    return sum(sum(each.cpu_times()[:2]) for each in [process, *process.children(recursive=True)])


def cpu(chrome: Chrome, folder: Path, seconds: float = 60.0) -> None:
    """Measure the cost of an open page and of a hidden one."""
    path = live_run(folder)
    chromium = psutil.Process(chrome.service.process.pid)
    with dashboard(folder) as (address, process), growing(path, 1.0):
        run_page(chrome, address, "live")
        of_page = chrome.current_window_handle
        for what in ("open", "hidden", "none"):
            if what == "none":
                chrome.get("about:blank")
            elif what == "hidden":
                chrome.switch_to.new_window("window")
                chrome.minimize_window()
                chrome.switch_to.window(of_page)
                chrome.minimize_window()
            is_hidden = chrome.execute_script("return document.hidden")
            time.sleep(3.0)
            before = cpu_of(process), cpu_of(chromium)
            time.sleep(seconds)
            after = cpu_of(process), cpu_of(chromium)
            ours, its = (100.0 * (now - then) / seconds for now, then in zip(after, before, strict=True))
            words = f"{what} page (hidden: {is_hidden}): dashboard {ours:.2f} %, browser {its:.2f} % of a core"
            told("cpu", words, page=what, hidden=is_hidden, dashboard=ours, browser=its)


def heap(chrome: Chrome, folder: Path, minutes: float) -> None:
    """Measure the heap of a page that stays open."""
    path = live_run(folder)
    with dashboard(folder) as (address, process), growing(path, 0.02):
        run_page(chrome, address, "live")
        found = list[float]()
        end = time.monotonic() + 60.0 * minutes
        while time.monotonic() < end:
            time.sleep(min(30.0, 60.0 * minutes / 4))
            chrome.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
            found.append(chrome.execute_cdp_cmd("Runtime.getHeapUsage", {})["usedSize"] / 1e6)
        memory = process.memory_info().rss / 1e6
        with path.open() as file:
            lines = sum(1 for _ in file)
    middle = len(found) // 2
    halves = f"first half {spread(found[:middle])} MB, second half {spread(found[middle:])} MB"
    words = f"{lines:,} lines: {halves}; dashboard {memory:.0f} MB"
    told("heap", words, megabytes=found, lines=lines, dashboard=memory)


def training(chrome: Chrome, folder: Path, turns: int, seconds: float) -> None:
    """Measure what an open page costs a training: the page of one training is opened and left in turns."""
    rates: dict[str, list[float]] = {"open": [], "none": []}
    spent: dict[str, list[float]] = {"open": [], "none": []}
    chromium = psutil.Process(chrome.service.process.pid)
    run = folder / "training"
    command = [sys.executable, "-m", "penstock.cli", "train", *TRAINING, "--run-dir", os.fspath(run)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while not (run / "metrics.jsonl").exists():
            time.sleep(0.1)
        with dashboard(folder) as (address, server):
            for turn in range(2 * turns):
                what = "open" if turn % 4 in (0, 3) else "none"
                if what == "open":
                    run_page(chrome, address, run.name)
                else:
                    chrome.get("about:blank")
                time.sleep(6.0)  # drawing the page for the first time, which takes less, is not measured
                begin, before = steps_of(run), cpu_of(server) + cpu_of(chromium)
                time.sleep(seconds)
                steps, at = (now - then for now, then in zip(steps_of(run), begin, strict=True))
                rates[what].append(steps / at)
                spent[what].append((cpu_of(server) + cpu_of(chromium) - before) / at)
    finally:
        process.terminate()
        process.wait()
    medians = {what: statistics.median(found) for what, found in rates.items()}
    ratios = [with_page / without for with_page, without in zip(rates["open"], rates["none"], strict=True)]
    told(
        "training",
        f"steps/s with a page {medians['open']:,.0f} ({spread(rates['open'])}), without {medians['none']:,.0f} "
        f"({spread(rates['none'])}); quotients of neighbours {spread(ratios)}; dashboard and browser take "
        f"{spread(spent['open'])} of a core with it, {spread(spent['none'])} without",
        rates=rates, cores=spent,
    )


def steps_of(run: Path) -> tuple[float, float]:
    """Return the steps and seconds of a run so far."""
    status = json.loads((run / "status.json").read_text())
    return status["steps"], status["seconds"]


def spread(values: list[float]) -> str:
    """Return median, lowest and highest as text."""
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def told(name: str, words: str, **numbers: Any) -> None:
    """Print a measurement, in words and as JSON."""
    print(f"{name}: {words}", flush=True)
    print(json.dumps({"measurement": name, **numbers}), flush=True)


def main() -> None:
    """Measure and print."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    everything = ("overview", "page", "curves", "many", "delay", "cpu", "heap", "training")
    flags.add_argument("--only", nargs="+", choices=everything, default=everything)
    flags.add_argument("--runs", type=int, default=100)
    flags.add_argument("--lines", type=int, default=100_000)
    flags.add_argument("--files", type=int, default=4, help="files of metrics that differ")
    flags.add_argument("--minutes", type=float, default=10.0, help="of the heap")
    flags.add_argument("--turns", type=int, default=20, help="of the training")
    flags.add_argument("--seconds", type=float, default=8.0, help="of a turn of the training")
    flags.add_argument("--scratch", type=Path, help="folder to work in; default: a temporary one")
    given = flags.parse_args()
    print(describe())
    with tempfile.TemporaryDirectory(dir=given.scratch) as name:
        folder = Path(name)
        many = folder / "many"
        if {"overview", "page", "curves", "many"} & set(given.only):
            (folder / "metrics").mkdir()
            for number in range(given.files):
                write_metrics(folder / "metrics" / str(number), given.lines, 512 + 7 * number)
            for number in range(given.runs):
                make_run(many / f"run-{number}", number, folder / "metrics" / str(number % given.files))
        measure: dict[str, Callable[[Chrome], None]] = {
            "overview": lambda chrome: overview(chrome, many, given.runs),
            "page": lambda chrome: page(chrome, many),
            "curves": lambda chrome: curves(chrome, many),
            "many": lambda chrome: many_curves(chrome, many, given.runs),
            "delay": lambda chrome: delay(chrome, folder / "delay"),
            "cpu": lambda chrome: cpu(chrome, folder / "cpu"),
            "heap": lambda chrome: heap(chrome, folder / "heap", given.minutes),
            "training": lambda chrome: training(chrome, folder / "training", given.turns, given.seconds),
        }
        for what in given.only:
            (folder / what).mkdir(exist_ok=True)
            with browser() as chrome:
                measure[what](chrome)


if __name__ == "__main__":
    main()
