"""Command ``penstock tag``: tags and a note of a run, and whether tables hide it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from penstock.flags import Places, parse_flags
from penstock.runs.formatting import printable
from penstock.runs.labels import Labels, LabelsError, change_labels, read_labels
from penstock.runs.reading import RecordedRun
from penstock.studies import StudyError


@dataclass(frozen=True)
class Flags:
    """Give runs tags and a note, or archive them; without flags, show what they have.

    `penstock runs --where "tags=*baseline*"` finds runs by a tag. Archived runs are left out of `penstock runs` and of
    the dashboard's table until asked for; no file is moved.
    """

    dirs: Places
    """Runs."""
    add: str = ""
    """Tags to add, separated by commas."""
    remove: str = ""
    """Tags to remove, separated by commas."""
    note: str | None = None
    """Note that replaces the current one; "" removes it."""
    archive: bool = False
    """Hide the runs."""
    unarchive: bool = False
    """Show archived runs again."""


def command(args: list[str]) -> int:
    """Run the command; return its exit code.

    Raises
    ------
    StudyError, RunDirectoryError
        A directory is not a run, or labels are not legal; then no run is changed.
    """
    flags = parse_flags(Flags, args, prog="penstock tag")
    if flags.archive and flags.unarchive:
        raise StudyError("--archive and --unarchive exclude each other")
    runs = [RecordedRun.open(path) for path in flags.dirs]
    if not runs:
        raise StudyError("no run is given: penstock tag RUN... --add baseline")
    try:
        for run in runs:
            _changed(read_labels(run.directory.path), flags).validate()
        for run in runs:
            labels = change_labels(run.directory.path, partial(_changed, flags=flags))
            print(f"{printable(run.name)}: {_words(labels)}")
    except LabelsError as error:
        raise StudyError(str(error)) from error
    return 0


def _changed(labels: Labels, flags: Flags) -> Labels:
    tags = (set(labels.tags) | _listed(flags.add)) - _listed(flags.remove)
    archived = (labels.archived or flags.archive) and not flags.unarchive
    note = labels.note if flags.note is None else flags.note
    return replace(labels, tags=tuple(sorted(tags)), note=note, archived=archived)


def _listed(words: str) -> set[str]:
    return {word.strip() for word in words.split(",") if word.strip()}


def _words(labels: Labels) -> str:
    parts = [", ".join(labels.tags) or "no tags", "archived" if labels.archived else "", printable(labels.note)]
    return "; ".join(part for part in parts if part)
