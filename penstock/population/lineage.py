"""``lineage.jsonl``: copies between members of a population, and their settings; one JSON object per line."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.config import ConfigError
from penstock.population.decisions import Decision
from penstock.runs.files import LinesLog

LINEAGE = "lineage.jsonl"


class WeightsOrigin(NamedTuple):
    """Version of weights that a member copied, and the steps of their parent at that time."""

    version: int
    steps: int


class Lineage:
    """Writer of a lineage; without a file it only counts events.

    Parameters
    ----------
    log
        The file.
    names
        Names of the members.
    """

    def __init__(self, log: LinesLog, names: Sequence[str]) -> None:
        self._log, self._names = log, tuple(names)
        self._count = 0

    @property
    def count(self) -> int:
        """Number of lines in the file, 0 if it was lost with its directory; without a file, number of events."""
        return self._count if self._log.path is None or self._log.path.exists() else 0

    def start(self, member: int, settings: Mapping[str, float]) -> None:
        """Record the initial settings of a member."""
        self._append("start", member, 0, after=dict(settings))

    def set(self, member: int, steps: int, settings: Mapping[str, float]) -> None:
        """Record settings that the user has set."""
        self._append("set", member, steps, time=_now(), after=dict(settings))

    def copied(
        self, member: int, steps: int, settings: Mapping[str, float], parent: int, copied: WeightsOrigin
    ) -> None:
        """Record a policy copy that the user requested; the member keeps its settings."""
        origin = {"parent": self._names[parent], "version": copied.version, "parent_steps": copied.steps}
        self._append("copy", member, steps, time=_now(), **origin, after=dict(settings))

    def truncate(self, count: int) -> dict[str, dict[str, float]]:
        """Keep the first `count` lines: later events are undone by the resume.

        Returns
        -------
        dict
            Settings of each policy after these lines; empty without a file.
        """
        self._count = count
        if self._log.path is None or not self._log.path.is_file():
            return {}
        lines = self._log.path.read_bytes().splitlines(keepends=True)[:count]
        self._count = len(lines)
        os.truncate(self._log.path, sum(map(len, lines)))
        events = [event_in(line) for line in lines]
        if None in events:
            number = events.index(None) + 1
            raise ConfigError(f"{self._log.path} is no lineage: line {number} is no event of a policy")
        return {event["policy"]: event["after"] for event in events if event is not None}

    def write(self, decision: Decision, steps: int, copied: WeightsOrigin | None) -> None:
        """Record a decision that was carried out.

        Parameters
        ----------
        decision
            The decision.
        steps
            Steps of the member.
        copied
            Weights that the member copied; None: it kept its own.
        """
        self._append(
            decision.event, decision.member, steps, time=_now(),
            parent=None if decision.parent is None else self._names[decision.parent],
            version=None if copied is None else copied.version, parent_steps=None if copied is None else copied.steps,
            scores=dict(zip(self._names, decision.scores, strict=True)), before=decision.before, after=decision.after,
            operation=decision.operations,
        )  # fmt: skip

    def _append(self, event: str, member: int, steps: int, **values: Any) -> None:
        count = self.count
        record = {"event": event, "policy": self._names[member], "steps": steps, **values}
        if self._log.write([record]) or self._log.path is None:
            self._count = count + 1


def _now() -> float:
    """Return the time of an event, in seconds since 1970."""
    return round(time.time(), 3)


def event_in(line: bytes) -> dict[str, Any] | None:
    """Parse an event of a lineage; None: the line is no event, or its values have other types."""
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
