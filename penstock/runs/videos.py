"""Videos in the directory of a run, named after the steps of the weights that play."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from itertools import count
from pathlib import Path

VIDEOS = "videos"
UNFINISHED = ".video.mp4"
"""Name of a video while it is recorded."""
_NAME = re.compile(r"step-(\d+)(?:-\d+)?\.mp4")


def video_path(run: Path, steps: int) -> Path:
    """Return an unused path for a video of the weights after `steps` steps; the folder is created."""
    folder = run / VIDEOS
    folder.mkdir(exist_ok=True)
    names = (f"step-{steps}{'' if number == 1 else f'-{number}'}.mp4" for number in count(1))
    return next(folder / name for name in names if not os.path.lexists(folder / name))


def videos_of(run: Path) -> list[Path]:
    """Return the finished videos of a run, ordinary files only, ordered by steps; those with other names come last."""
    folder = run / VIDEOS
    if folder.is_symlink() or not folder.is_dir():
        return []
    entries = [Path(entry) for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False)]
    videos = [path for path in entries if path.suffix == ".mp4" and path.name != UNFINISHED]
    return sorted(videos, key=lambda path: (steps_of(path) is None, steps_of(path), path.name))


def steps_of(video: Path) -> int | None:
    """Return the steps of a video's weights; None for a video with another name."""
    found = _NAME.fullmatch(video.name)
    return int(found[1]) if found else None


@dataclass
class _Kept:
    """A video; `identity` distinguishes it from a file that has replaced it."""

    steps: int
    path: Path
    identity: tuple[int, int]
    is_best: bool


class KeptVideos:
    """Videos recorded by one process; a few are kept, spread over the training.

    Parameters
    ----------
    most
        Largest number of videos, at least 2.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._videos: list[_Kept] = []

    def add(self, path: Path, steps: int, *, is_best: bool) -> None:
        """Add a video; if there are too many, remove one, but neither the newest nor the one of the best weights."""
        for each in self._videos if is_best else ():
            each.is_best = False
        self._videos.append(_Kept(steps, path, _identity(path), is_best))
        while len(self._videos) > self._most:
            places = [0, *(each.steps for each in self._videos)]
            gaps = {n: places[n + 2] - places[n] for n, each in enumerate(self._videos[:-1]) if not each.is_best}
            closest = self._videos.pop(min(gaps, key=lambda n: gaps[n]))
            if _identity(closest.path) == closest.identity:
                closest.path.unlink()


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = os.lstat(path)
    except OSError:
        return (0, 0)
    return found.st_dev, found.st_ino
