"""Tables of the policies and nodes of a run, described once: terminal, pages and reports show the same columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.runs.formatting import number
from penstock.runs.status import NodeStatus, PolicyStatus, Status

Cells = dict[str, list[str]]
"""Cells of a table by heading, a cell per row."""
WORDS = ("policy", "node", "machine", "state")
"""Headings of columns of words, aligned left."""
_MISSING = "-"


@dataclass(frozen=True)
class Part:
    """Column of a table of parts of a run.

    Attributes
    ----------
    heading
        Title shown.
    text
        Function that returns the cell of a policy or node; "" for a missing value.
    """

    heading: str
    text: Callable[[Any], str]


POLICIES = (
    Part("policy", lambda policy: policy.name),
    Part("steps", lambda policy: f"{policy.steps:,}"),
    Part("return", lambda policy: _number(policy.mean_return)),
    Part("evaluation", lambda policy: _number(policy.eval_return)),
    Part("best", lambda policy: _number(policy.best_return)),
    Part("rating", lambda policy: rating_of(policy)),
    Part("copies", lambda policy: "" if policy.exploits is None else f"{policy.exploits:,}"),
    Part("updates", lambda policy: f"{policy.updates:,}"),
    Part("policy lag", lambda policy: lag_of(policy) if "policy_lag/mean" in policy.experience else ""),
    Part("replay age", lambda policy: _number(policy.experience.get("replay/age/median"))),
    Part("learning rate", lambda policy: _number(policy.learning_rate)),
)
"""Columns of a table of policies; tuned settings follow the copies."""

NODES = (
    Part("node", lambda node: node.name),
    Part("machine", lambda node: node.host),
    Part("state", lambda node: node.state),
    Part("lanes", lambda node: node.share),
    Part("steps/s", lambda node: f"{node.steps_per_second:,.0f}" if _steps(node) else ""),
    Part("policy lag", lambda node: number(node.policy_lag) if _steps(node) else ""),
    Part("kB/s", lambda node: f"{node.bytes_per_second / 1e3:,.0f}" if _steps(node) else ""),
    Part("restarts", lambda node: f"{node.faults:,}"),
    Part("dropped", lambda node: f"{node.stale + node.doubled + node.missing:,}"),
)
"""Columns of a table of nodes."""


def policies_table(policies: Sequence[PolicyStatus]) -> Cells:
    """Return the table of policies, with a column for each setting that was tuned."""
    tuned = list(dict.fromkeys(name for policy in policies for name in policy.tuned))
    settings = [Part(name.replace("_", " "), lambda policy, name=name: _number(policy.tuned.get(name)))  # type: ignore[misc]
                for name in tuned]  # fmt: skip
    place = [part.heading for part in POLICIES].index("copies") + 1
    known = {part.heading for part in settings}
    parts = [part for part in POLICIES[place:] if part.heading not in known]
    return _filled((*POLICIES[:place], *settings, *parts), policies)


def nodes_table(nodes: Sequence[NodeStatus]) -> Cells:
    """Return the table of gateways and nodes."""
    return _filled(NODES, nodes)


def tables_of(status: Status | None) -> dict[str, Cells]:
    """Return the tables of a run by name, "policies" and "nodes", each empty without rows."""
    if status is None:
        return {"policies": {}, "nodes": {}}
    return {"policies": policies_table(status.policies), "nodes": nodes_table(status.gateways + status.nodes)}


def rating_of(policy: PolicyStatus) -> str:
    """Return a policy's rating with half its 95 % interval: "274 ± 37"."""
    if policy.rating is None:
        return ""
    return f"{policy.rating:.0f}" + ("" if policy.rating_error is None else f" ± {policy.rating_error:.0f}")


def lag_of(policy: PolicyStatus) -> str:
    """Return mean and largest policy lag of a policy's last batch."""
    return f"{policy.policy_lag_mean:.1f}, max {policy.policy_lag_max:.0f}"


def _filled(parts: Sequence[Part], rows: Sequence[Any]) -> Cells:
    """Return the columns that have any text, with a dash for each missing value."""
    found = {part.heading: [part.text(row) for row in rows] for part in parts}
    return {heading: [cell or _MISSING for cell in cells] for heading, cells in found.items() if any(cells)}


def _number(value: float | None) -> str:
    return "" if value is None else number(value)


def _steps(node: NodeStatus) -> bool:
    """Return whether a node steps lanes now."""
    return node.is_there and not node.learner
