"""Files of runs that are copied, old, damaged, or made to harm their reader."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.runs.checkpoint import META

DEEP = '{"a":' * 20_000 + "1" + "}" * 20_000
VALUES: tuple[Any, ...] = (None, 10**400, "\ud800", ["a"], {"a": 1})


def configs(config: dict[str, Any]) -> Iterator[str]:
    """Texts of ``config.json``, each with one thing that is wrong, or merely odd."""
    yield from ("", "[]", "null", '"text"', "\0", DEEP, "[" * 100_000, json.dumps(config)[:-2], "{}")
    for name in (*config, "keep_checkpoints", "device", "policies"):
        yield from (json.dumps({**config, name: value}) for value in VALUES)
    for name in (*config["run"], "resumed", "policies"):
        yield from (json.dumps({**config, "run": {**config["run"], name: value}}) for value in VALUES)
    for name in ("env_name", "created"):
        yield json.dumps({**config, "run": {**config["run"], name: "0001-01-01"}})


def statuses(status: dict[str, Any]) -> Iterator[str]:
    """Texts of ``status.json``, each with one thing that is wrong, or merely odd."""
    yield from ("", "[]", "null", DEEP, '{"steps": 1e999}', '{"steps": NaN}')
    for name in status:
        yield from (json.dumps({**status, name: value}) for value in ("\ud800", [{}]))


def write_all(place: Path, name: str, texts: Iterator[str], of: Path) -> int:
    """Copy a run as often as there are texts, each with another file of this name; return how many."""
    count = 0
    for count, text in enumerate(texts, start=1):
        run = place / f"{name}-{count}"
        run.mkdir(parents=True)
        for file in ("config.json", "status.json", "metrics.jsonl"):
            (run / file).write_bytes((of / file).read_bytes())
        (run / name).write_text(text)
    return count


def described(path: Path, **changes: Any) -> Path:
    """Change a checkpoint's description, with a valid seal."""
    meta = {**json.loads((path / META).read_bytes()), **changes}
    del meta["sha256"]
    meta["sha256"] = hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()
    (path / META).write_text(json.dumps(meta))
    return path
