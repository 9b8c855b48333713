"""``lineage.jsonl``: who copied whom, when, and with which settings it went on; one JSON object a line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock.config import ConfigError
from penstock.population.decisions import Decision

LINEAGE = "lineage.jsonl"


class WeightsOrigin(NamedTuple):
    """Weights that a parent has handed over: their version, and the steps that it had then."""

    version: int
    steps: int


class Lineage:
    """Appends events to a lineage; with None it only counts them.

    Parameters
    ----------
    path
        The file; None: nothing is written.
    names
        Of the members.
    warn
        Takes one line when it cannot be written: the run goes on.

    Attributes
    ----------
    count
        Lines so far.
    """

    def __init__(self, path: Path | None, names: Sequence[str], warn: Callable[[str], object]) -> None:
        self._path, self._names, self._warn = path, tuple(names), warn
        self.count = 0

    def start(self, member: int, settings: Mapping[str, float]) -> None:
        """Write down what a member starts from."""
        self._append({"event": "start", "policy": self._names[member], "steps": 0, "after": dict(settings)})

    def set(self, member: int, steps: int, settings: Mapping[str, float], time: float) -> None:
        """Write down that a member's settings were set from outside."""
        self._append(
            {"time": time, "policy": self._names[member], "steps": steps, "event": "set", "after": dict(settings)}
        )

    def copied(
        self, member: int, steps: int, settings: Mapping[str, float], parent: int, copied: WeightsOrigin, time: float
    ) -> None:
        """Write down that a member was told from outside to go on as another is; its settings stay."""
        self._append(
            {
                "time": time,
                "policy": self._names[member],
                "steps": steps,
                "event": "copy",
                "parent": self._names[parent],
                "version": copied.version,
                "parent_steps": copied.steps,
                "after": dict(settings),
            }
        )

    def go_on(self, count: int) -> dict[str, dict[str, float]]:
        """Keep the first `count` lines: what came later is not what the run goes on from.

        Returns
        -------
        dict
            The settings that each policy has by then, as far as there is a file.
        """
        self.count = count
        if self._path is None or not self._path.is_file():
            return {}
        lines = self._path.read_bytes().splitlines(keepends=True)
        if len(lines) > count:
            os.truncate(self._path, sum(map(len, lines[:count])))
        events = [event_in(line) for line in lines[:count]]
        if None in events:
            number = events.index(None) + 1
            raise ConfigError(f"{self._path} is no lineage: line {number} does not say what became of a policy")
        return {event["policy"]: event["after"] for event in events if event is not None}

    def write(self, decision: Decision, steps: int, copied: WeightsOrigin | None, time: float) -> None:
        """Write down what was decided and carried out.

        Parameters
        ----------
        decision
            What.
        steps
            Of the member.
        copied
            The weights that it copied; None: it kept its own.
        time
            Seconds since 1970.
        """
        self._append(
            {
                "time": time,
                "policy": self._names[decision.member],
                "steps": steps,
                "event": decision.event,
                "parent": None if decision.parent is None else self._names[decision.parent],
                "version": None if copied is None else copied.version,
                "parent_steps": None if copied is None else copied.steps,
                "scores": dict(zip(self._names, decision.scores, strict=True)),
                "before": decision.before,
                "after": decision.after,
                "operation": decision.operations,
            }
        )

    def _append(self, record: Mapping[str, Any]) -> None:
        self.count += 1
        if self._path is None:
            return
        try:
            with open(self._path, "ab") as file:  # one write: a line is there, or it is not
                file.write(f"{json.dumps(record)}\n".encode())
        except OSError as error:
            self._warn(f"warning: {self._path} cannot be written ({error.strerror}); training goes on without it")


def event_in(line: bytes) -> dict[str, Any] | None:
    """One event of a lineage; None: the line is none, or its values are of other types."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not {"event", "policy", "steps", "after"} <= event.keys():
        return None
    is_one = isinstance(event["policy"], str) and type(event["steps"]) is int and isinstance(event["after"], dict)
    numbers = [event.get("parent_steps"), *(event["after"].values() if is_one else ())]
    is_one = is_one and isinstance(event.get("scores", {}), dict) and isinstance(event.get("parent"), str | None)
    numbers += event.get("scores", {}).values() if is_one else ()
    return event if is_one and all(n is None or type(n) in (int, float) for n in numbers) else None
