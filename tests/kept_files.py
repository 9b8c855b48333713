"""Files of a folder by their contents, so that a test sees which of them a command has changed or deleted."""

import hashlib
import os
from collections import Counter
from pathlib import Path

from penstock.runs.documents import read_ordinary

NOTES = "notes.txt"


def with_notes(run: Path) -> Path:
    """A run with a file of the user's own, in the directory and among its checkpoints."""
    for folder in (run, run / "checkpoints"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / NOTES).write_text(f"what I have seen in {folder.name}\n")
    return run


def contents(folder: Path) -> Counter[tuple[str, str]]:
    """Name and checksum of every file below a folder, wherever it lies there, and how often."""
    return Counter(
        (path.name, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in map(Path, _files(folder))
        if path.is_file()
    )


def _files(folder: Path) -> list[str]:
    return [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names]


def make_newer(checkpoint: Path) -> None:
    """Turn a checkpoint into one of a format that is not there yet."""
    import json

    from penstock.runs.checkpoint import FORMAT_VERSION, META, _digest

    meta = json.loads((checkpoint / META).read_text())
    meta["format_version"] = FORMAT_VERSION + 1
    del meta["sha256"]
    (checkpoint / META).write_text(json.dumps({**meta, "sha256": _digest(meta)}))


def make_damaged(checkpoint: Path) -> None:
    """Cut the weights of a checkpoint short."""
    weights = checkpoint / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])


def make_unreadable(checkpoint: Path, monkeypatch) -> None:
    """Let the disk fail under a checkpoint's weights: permissions would not stop root."""
    weights = checkpoint / "weights.safetensors"

    def fails(path: Path, most_nbytes: int) -> bytes:
        if path == weights:
            raise OSError(5, "Input/output error", str(path))
        return read_ordinary(path, most_nbytes)

    monkeypatch.setattr("penstock.runs.checkpoint.read_ordinary", fails)
