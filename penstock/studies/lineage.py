"""Lineage of a population for pages and reports, limited in size: as data and as a picture."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from penstock.population.lineage import LINEAGE, event_in
from penstock.runs.documents import is_finite
from penstock.runs.drawing import COLORS, short, ticks
from penstock.runs.files import json_values
from penstock.runs.formatting import number
from penstock.runs.growing import Cursor, stretches

MOST_EVENTS = 1000
"""Largest number of events."""
_MOST_POLICIES = 64
_OF_EVENT = ("event", "policy", "steps", "parent", "parent_steps", "scores", "before", "after")
_MOST_LETTERS = 14  # of a policy's name in the picture
_WIDTH, _LANE, _LEFT, _RIGHT, _TOP, _FOOT = 900, 44, 110, 20, 14, 30


def has_lineage(run_path: Path) -> bool:
    """Return whether a run has a lineage file, which is no link."""
    path = run_path / LINEAGE
    return path.is_file() and not path.is_symlink()


def lineage_of(run_path: Path) -> dict[str, Any]:
    """Return the last `MOST_EVENTS` events of a population's lineage.

    Returns
    -------
    dict
        ``policies``, name and last known steps of each; ``events``, with the fields of ``lineage.jsonl`` that are
        drawn; ``left_out``, the number of earlier events. Lines that are not events are skipped.
    """
    events: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
    steps: dict[str, int] = {}
    count = 0
    for stretch in stretches(run_path / LINEAGE, Cursor()):
        for event in filter(None, map(event_in, stretch.lines)):
            policy, parent = event["policy"], event.get("parent")
            if not _is_drawn(event) or (policy not in steps and len(steps) >= _MOST_POLICIES):
                continue
            steps[policy] = max(steps.get(policy, 0), event["steps"])
            known = {"parent": parent if parent in steps else None}
            events.append({name: event.get(name) for name in _OF_EVENT} | known)
            count += 1
    policies = [{"name": name, "steps": most_steps} for name, most_steps in steps.items()]
    return json_values({"policies": policies, "events": list(events), "left_out": count - len(events)})


def _is_drawn(event: Mapping[str, Any]) -> bool:
    """Return whether the drawn values of an event are finite numbers, and its kind a text."""
    before = event.get("before") or {}
    is_legal = isinstance(before, dict) and isinstance(event["event"], str)
    numbers = [event["steps"], event.get("parent_steps"), *event["after"].values(), *event.get("scores", {}).values()]
    numbers += before.values() if is_legal else ()
    return is_legal and all(n is None or (type(n) in (int, float) and is_finite(n)) for n in numbers)


def lineage_page(run_path: Path, steps: Mapping[str, int]) -> dict[str, Any]:
    """Return `lineage_of` for a page, with its ``picture`` as SVG and the ``change`` of settings in each event."""
    found = lineage_of(run_path)
    events = [event | {"change": _change(event)} for event in found["events"]]
    return found | {"events": events, "picture": lineage_picture(found, steps)}


def steps_of(status: Mapping[str, Any]) -> dict[str, int]:
    """Return the steps of each policy by name."""
    known = [policy for policy in status.get("policies") or [] if {"name", "steps"} <= policy.keys()]
    return {policy["name"]: policy["steps"] for policy in known}


def lineage_picture(lineage: Mapping[str, Any], steps: Mapping[str, int]) -> str:
    """Return a picture of a lineage as SVG: a lane for each policy, an arrow for each copy; "" without events.

    Parameters
    ----------
    lineage
        Result of `lineage_of`.
    steps
        Last known steps of policies by name; lanes end there.
    """
    ends = {one["name"]: max(one["steps"], steps.get(one["name"], 0)) for one in lineage["policies"]}
    if not ends:
        return ""
    most, lanes = max(1, *ends.values()), {name: number for number, name in enumerate(ends)}

    def right(at: float) -> str:
        return f"{_LEFT + (_WIDTH - _LEFT - _RIGHT) * min(at, most) / most:.1f}"

    def down(name: str) -> float:
        return _TOP + _LANE * (lanes[name] + 0.5)

    height = _TOP + _LANE * len(lanes) + _FOOT
    parts = []
    for name, end in ends.items():
        parts.append(f'<text x="4" y="{down(name) + 4}">{escape(_cut(name))}</text>')
        line = f'x1="{right(0)}" x2="{right(end)}" y1="{down(name)}" y2="{down(name)}" stroke-width="3"'
        parts.append(f'<line class="line c{lanes[name] % COLORS}" {line}/>')
    for event in lineage["events"]:
        told = f"<title>{escape(_words(event))}</title>"
        at, y = right(event["steps"]), down(event["policy"])
        if event["parent"] is None:
            place = f'cx="{at}" cy="{y}" r="3.5"'
            parts.append(f'<circle class="dot c{lanes[event["policy"]] % COLORS}" {place}>{told}</circle>')
            continue
        begin, color = down(event["parent"]), f"c{lanes[event['parent']] % COLORS}"
        side = -9 if y > begin else 9
        left = right(event["steps"] if event["parent_steps"] is None else event["parent_steps"])
        ends_at = f'x1="{left}" y1="{begin}" x2="{at}" y2="{y + side}"'
        parts.append(f'<line class="line {color}" {ends_at} stroke-dasharray="4 3"/>')
        parts.append(f'<path class="dot {color}" d="M {at} {y} l -5 {side} l 10 0 z">{told}</path>')
    for tick in ticks(0.0, most):
        parts.append(f'<text x="{right(tick)}" y="{height - 8}" text-anchor="middle">{short(tick)}</text>')
    label = f"Lineage of {len(ends)} policies over their steps"
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _cut(name: str) -> str:
    return name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 1]}…"


def _words(event: Mapping[str, Any]) -> str:
    copied = "" if event["parent"] is None else f" copies {event['parent']}"
    parts = [f"{event['policy']} at {event['steps']:,.0f} steps: {event['event']}{copied}", _change(event)]
    return "; ".join(filter(None, parts))


def _change(event: Mapping[str, Any]) -> str:
    """Return the settings of an event with the values before it: "gamma 0.950 → 0.970"."""
    before = event["before"] or {}
    known = [(name, before.get(name), value) for name, value in event["after"].items() if value is not None]
    pairs = ((name, "" if old in (None, value) else f"{number(old)} → ", value) for name, old, value in known)
    return ", ".join(f"{name} {old}{number(value)}" for name, old, value in pairs)
