"""Torture: trainings of every data path, killed, stopped, terminated, short of disk, damaged, and resumed.

    python bench/torture.py [--seed 1] [--faults 300] [--hours H] [--jobs 2] [--patience 180] [--short]

A story is a run with three lives. In each life the run must survive five faults; a sixth ends it, and then its files
may be damaged, or be newer, unreadable or hostile for a while. After the last life the run is resumed once more,
without faults. Of five stories, one is a serial run, whose checkpoints must equal those of a twin without faults bit
for bit, and one is of `penstock multirun`, `search`, `pbt` or `dashboard`. Faults and their victims are drawn from the
seed; their exact times depend on the machine.

Stories are played until the number of faults is reached (several minutes), or with --hours until the time is over.
--short is the form of the test suite: a few stories of one life with one fault. Output: a table. After any violation
the exit code is 1, and the files of the affected runs are kept and named.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count
from pathlib import Path

from torturing.commands import CommandPlayer
from torturing.dashboards import DashboardPlayer
from torturing.plan import Story, draw
from torturing.story import WRONG, Player, Report
from torturing.twins import TwinPlayer

from penstock.ipc import set_parent_death_signal
from penstock.runs.machine import describe

SHORT_STORIES = (0, 1, 3, 4)
SHORT_PATHS = ("appo, central", "dqn", "ppo")  # the last one is the serial run's


def follow(parent: int) -> None:
    """End with the process that plays all stories, however that one ends; a story's run ends with its story."""
    set_parent_death_signal(signal.SIGKILL, parent)


def play(story: Story, folder: Path, patience: float) -> Report:
    """Play one story in this process, which plays no other."""
    folder.mkdir()
    if story.command:
        player = DashboardPlayer if story.command == "dashboard" else CommandPlayer
    else:
        player = TwinPlayer if story.is_serial else Player
    return player(story, folder, patience).play()


def stories(seed: int, is_short: bool) -> Iterator[Story]:
    """Draw stories without end; in the short form, a few small ones."""
    for number in SHORT_STORIES if is_short else count():
        yield draw(seed, number, paths=SHORT_PATHS, num_lives=1, num_faults=1) if is_short else draw(seed, number)


def play_all(arguments: argparse.Namespace, place: Path) -> list[Report]:
    """Play stories in parallel until the number of faults or the time is reached; print a line for each."""
    reports: list[Report] = []
    coming = stories(arguments.seed, arguments.short)
    playing: set[Future[Report]] = set()
    end = time.monotonic() + 3600 * arguments.hours if arguments.hours else None

    def is_enough() -> bool:
        if end is not None:
            return time.monotonic() >= end
        return not arguments.short and sum(r.faults.total() for r in reports) >= arguments.faults

    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.jobs, context, follow, (os.getpid(),), max_tasks_per_child=1) as pool:
        while True:
            while len(playing) < arguments.jobs and not is_enough() and (story := next(coming, None)):
                playing.add(pool.submit(play, story, place / f"story-{story.number}", arguments.patience))
            if not playing:
                return reports
            ended, playing = wait(playing, return_when=FIRST_COMPLETED)
            for report in (future.result() for future in ended):
                reports.append(report)
                print(line(report), flush=True)
                if not report.wrong:
                    shutil.rmtree(place / f"story-{report.story.number}")


def line(report: Report) -> str:
    """Outcome of a story."""
    story = report.story
    text = f"story {story.number:>3}  {story.name:<16} {report.lives} lives, {report.faults.total():>2} faults"
    return text + (f", {report.compared} checkpoints compared" if story.is_serial else "") + "".join(
        f"\n    {what}: {exactly}\n    see {where}" for what, exactly, where in report.wrong
    )


def table(reports: list[Report]) -> str:
    """Return a table of faults of each kind, and all violations."""
    faults, lives = sum((r.faults for r in reports), Counter()), sum(r.lives for r in reports)
    wrong = Counter(what for report in reports for what, _, _ in report.wrong)
    slowest = max((r.slowest_end for r in reports), default=0.0)
    rows = [f"{kind:<22} {target:<20} {times:>5}" for (kind, target), times in sorted(faults.items())]
    return "\n".join(
        [
            f"{'fault':<22} {'done to':<20} {'times':>5}", *rows, f"{'all':<43} {faults.total():>5}", "",
            f"{len(reports)} runs in {lives} lives, {sum(r.steps for r in reports):,} steps followed, "
            f"{sum(r.compared for r in reports):,} checkpoints of serial runs compared",
            f"at most {slowest:.1f} s from the end of a user's process until nothing was left of the run", "",
            *[f"{what:<43} {wrong[what]:>5}" for what in WRONG],
        ]
    )  # fmt: skip


def shared_memory() -> float:
    """MiB of shared memory on this machine, of all programs."""
    meminfo = dict(row.split(":") for row in Path("/proc/meminfo").read_text().splitlines())
    return int(meminfo["Shmem"].split()[0]) / 1024


def main() -> int:
    """Play the stories, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=300, help="stop after this number of faults")
    parser.add_argument("--hours", type=float, help="stop after this time instead")
    parser.add_argument("--jobs", type=int, default=2, help="stories played at once")
    parser.add_argument("--patience", type=float, default=180.0, help="seconds without progress that count as a hang")
    parser.add_argument("--short", action="store_true", help="as in the test suite")
    arguments = parser.parse_args()
    print(describe())
    print(f"seed {arguments.seed}", flush=True)
    began, before = time.monotonic(), shared_memory()
    place = Path(tempfile.mkdtemp(prefix="torture-"))
    reports = play_all(arguments, place)
    print(f"\n{table(reports)}\n")
    print(f"shared memory of this machine, all programs: {before:.0f} MiB before, {shared_memory():.0f} MiB after")
    print(f"{(time.monotonic() - began) / 60:.0f} minutes, seed {arguments.seed}")
    if any(report.wrong for report in reports):
        return 1
    shutil.rmtree(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
