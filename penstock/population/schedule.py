"""Schedules of settings: values of tunable settings, by the steps that weights have learned from.

A lineage holds a schedule for each of its policies. The weights of a copy have learned from the parent's steps up to
the copy, and from the policy's own steps since.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.config import ConfigError, checked, closest
from penstock.config.schedules import is_json
from penstock.population.lineage import LINEAGE, event_in

_LEGAL = "give lineage.jsonl of a population, or the directory that holds it"

Schedule = dict[int, dict[str, float]]
"""Values of settings by the steps from which they hold, in ascending order."""


def load_schedule(path: str | os.PathLike[str], policy: str | None = None) -> Schedule:
    """Read from a lineage the settings with which a policy's weights, ancestors included, were learned.

    Parameters
    ----------
    path
        ``lineage.jsonl`` of a population, or the directory that holds it.
    policy
        Name of the policy in the lineage; None: the policy with the best of the latest scores.

    Returns
    -------
    dict
        ``{steps: {setting: value}}`` in ascending order, by the steps that the weights have learned from: a parent's
        up to the copy, then the copy's own.

    Raises
    ------
    ConfigError
        The file cannot be read or is no lineage, has no such policy (the closest is named), or has no score yet.
    """
    place = Path(path)
    place = place / LINEAGE if place.is_dir() else place
    events = _events(place)
    names = list(dict.fromkeys(event["policy"] for event in events))
    if policy is None:
        policy = _best(place, events, names)
    if policy not in names:
        near = closest(policy, names)
        raise ConfigError(f"{place} has no policy {policy!r}{near}; its policies are {', '.join(names)}")
    lived, holder = [], policy  # events of these weights, the last first, and the policy that held them
    for event in reversed(events):
        if event["policy"] == holder:
            lived.append(event)
            holder = event["parent"] if _is_copy(event) else holder
    schedule: Schedule = {}
    learned = since = 0  # steps of the weights, and of the policy that held them, at the last copy
    for event in reversed(lived):
        if _is_copy(event):
            if "parent_steps" not in event:
                raise ConfigError(
                    f"{place} was written by an older version, without the steps of copied parents: no schedule can be "
                    "read from it"
                )
            learned, since = learned + event["parent_steps"] - since, event["steps"]
        steps = learned + event["steps"] - since
        schedule[steps] = settings_at(schedule, steps) | event["after"]
    return schedule


def settings_at(schedule: Schedule, steps: int) -> dict[str, float]:
    """Return the values that hold at a number of steps; settings keep their last value."""
    found: dict[str, float] = {}
    for moment, values in schedule.items():
        if moment <= steps:
            found |= values
    return found


def schedule_of(given: str | os.PathLike[str] | Mapping[Any, Any], policy: str | None) -> Schedule:
    """Read a schedule from a lineage, or check one given as a mapping or JSON; raises `ConfigError`."""
    try:
        if is_json(given):
            given = _read_json(str(given))
        if not isinstance(given, Mapping):
            return load_schedule(given, policy)
        # Keys of JSON are strings.
        read = {int(key) if isinstance(key, str) and key.isdigit() else key: each for key, each in given.items()}
        if not read:
            raise ConfigError("it is empty: give {steps: {setting: value}}, or schedule=None for no schedule")
        for steps, values in read.items():
            if not isinstance(steps, int) or steps < 0 or not isinstance(values, Mapping):
                raise ConfigError(f"{steps!r}: {values!r} is not legal: give steps and {{setting: value}} from them on")
        return {
            steps: {name: checked(name, value, float) for name, value in read[steps].items()} for steps in sorted(read)
        }
    except ConfigError as error:
        raise ConfigError(f"schedule: {error}") from None


def _read_json(text: str) -> dict[str, Any]:
    """Parse a schedule given as JSON on a command line."""
    try:
        found: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{text!r} is not JSON ({error}): write it as '{{\"0\": {{\"learning_rate\": 1e-3}}}}', or give the path "
            "of a lineage"
        ) from None
    return found


def _events(place: Path) -> list[dict[str, Any]]:
    """Return the events of a lineage, without an unfinished last line."""
    try:
        lines = place.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise ConfigError(f"the lineage {place} cannot be read: {error.strerror}; {_LEGAL}") from None
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    events = []
    for number, line in enumerate(lines, start=1):
        if (event := event_in(line)) is None:
            raise ConfigError(f"{place} is no lineage: line {number} is no event of a policy; {_LEGAL}")
        events.append(event)
    if not events:
        raise ConfigError(f"{place} is no lineage: it is empty; {_LEGAL}")
    return events


def _is_copy(event: Mapping[str, Any]) -> bool:
    """Whether the policy takes its parent's weights; it keeps its own if the parent had none yet."""
    return event.get("parent") is not None and event.get("version") is not None


def _best(place: Path, events: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Return the policy with the best of the latest scores; among equals, the first."""
    for event in reversed(events):
        replaced = event["policy"] if _is_copy(event) else None  # its score is of the weights before the copy
        scores = {
            name: score for name, score in event.get("scores", {}).items() if score is not None and name != replaced
        }
        if scores:
            return max(scores, key=lambda name: scores[name])
    raise ConfigError(f"{place} has no scores yet, so no policy is the best: name one of {', '.join(names)}")
