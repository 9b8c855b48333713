"""Facts about a run and tables of its parts, described once for the terminal, web pages and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.runs.formatting import clock, number
from penstock.runs.status import MatchStatus, NodeStatus, OpponentStatus, PolicyStatus, RoleShare, Status

Cells = dict[str, list[str]]
"""Cells of a table by heading, a cell per row."""
Games = dict[str, dict[str, tuple[int, int, int]]]
"""Games won, drawn and lost of each policy, by opponent."""
MOST_COLUMNS = 24
"""Largest number of tuned settings, or of opponents, in a table: a hostile file may name any number of them."""
WORDS = ("policy", "against", "node", "machine", "state", "learner")
"""Headings of columns of words, aligned left."""
LEAST_SHARE = 0.005
"""Smallest share of time that is shown."""


@dataclass(frozen=True)
class Part:
    """Column of a table of parts of a run, or fact about a run.

    Attributes
    ----------
    heading
        Title shown.
    text
        Function that returns the text for a policy, a node or a run; "" for a missing value.
    """

    heading: str
    text: Callable[[Any], str]


FACTS = (
    Part("steps", lambda run: _said(run, "steps", of="total_steps")),
    Part("time trained", lambda run: _said(run, "seconds", clock)),
    Part("steps/s", lambda run: _said(run, "steps_per_second")),
    Part("return", lambda run: _range_of(run, "mean_return")),
    Part("evaluation", lambda run: _said(run, "eval_return", number, of="target_return")),
    Part("best", lambda run: _said(run, "best_return", number)), Part("updates", lambda run: _said(run, "updates")),
    Part("skipped updates", lambda run: _said(run, "skipped_updates")),
    Part("restarts", lambda run: _said(run, "restarts")), Part("ended by", lambda run: run.get("reason") or ""),
)  # fmt: skip
"""Facts about a run."""

POLICIES = (
    Part("policy", lambda policy: policy.name), Part("steps", lambda policy: f"{policy.steps:,}"),
    Part("return", lambda policy: _number(policy.mean_return)),
    Part("evaluation", lambda policy: _number(policy.eval_return)),
    Part("best", lambda policy: _number(policy.best_return)), Part("rating", lambda policy: rating_of(policy)),
    Part("copies", lambda policy: "" if policy.exploits is None else f"{policy.exploits:,}"),
    Part("updates", lambda policy: f"{policy.updates:,}"),
    Part("policy lag", lambda policy: lag_of_batch(policy) if "policy_lag/mean" in policy.experience else ""),
    Part("replay age", lambda policy: _number(policy.experience.get("replay/age/median"))),
    Part("learning rate", lambda policy: _number(policy.learning_rate)),
)  # fmt: skip
"""Columns of a table of policies; tuned settings follow the copies."""

NODES = (
    Part("node", lambda node: node.name), Part("machine", lambda node: node.host),
    Part("state", lambda node: node.state), Part("lanes", lambda node: node.share),
    Part("steps/s", lambda node: f"{node.steps_per_second:,.0f}" if _steps(node) else ""),
    Part("policy lag", lambda node: lag_of(node.policy_lag, node.policy_lag_max) if _steps(node) else ""),
    Part("kB/s", lambda node: f"{node.bytes_per_second / 1e3:,.0f}" if _steps(node) else ""),
    Part("restarts", lambda node: f"{node.faults:,}"),
    Part("dropped", lambda node: f"{node.stale + node.duplicates + node.missing:,}"),
)  # fmt: skip
"""Columns of a table of nodes."""

_VERSIONS = ("policy", "against", "steps", "rating", "score now", "won", "drawn", "lost")


def about_of(summary: Mapping[str, Any]) -> str:
    """Return algorithm, environment and seed of a run from its summary."""
    seed = "unknown" if summary["seed"] is None else summary["seed"]
    return f"{summary['algorithm']} on {summary['env']}, seed {seed}"


def facts_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the known facts about a run by heading, from its summary or its status."""
    return {part.heading: text for part in FACTS if (text := part.text(record))}


def limit_of(status: Mapping[str, Any]) -> str:
    """Return the limiting role and the reason from a status; "" without one."""
    known = filter(None, (status.get("limiting_role"), status.get("limiting_reason")))
    return f"Limited by {': '.join(known)}" if status.get("limiting_role") else ""


def policies_table(policies: Sequence[PolicyStatus]) -> Cells:
    """Return the table of policies, with a column for each setting that was tuned."""
    tuned = list(dict.fromkeys(name for policy in policies for name in policy.tuned))[:MOST_COLUMNS]
    settings = [Part(name.replace("_", " "), lambda policy, name=name: _number(policy.tuned.get(name)))  # type: ignore[misc]
                for name in tuned]  # fmt: skip
    place = [part.heading for part in POLICIES].index("copies") + 1
    known = {part.heading for part in settings}
    parts = [part for part in POLICIES[place:] if part.heading not in known]
    return _filled((*POLICIES[:place], *settings, *parts), policies)


def nodes_table(nodes: Sequence[NodeStatus]) -> Cells:
    """Return the table of gateways and nodes."""
    return _filled(NODES, nodes)


def learners_table(learners: Sequence[RoleShare]) -> Cells:
    """Return the table of a group's learners: the share of time of each activity."""
    names = dict.fromkeys(name for one in learners for name, share in one.activities.items() if share >= LEAST_SHARE)
    parts = [Part("learner", lambda one: one.name), Part("busy", lambda one: f"{one.busy:.0%}")]
    parts += [Part(name, lambda one, name=name: f"{one.activities.get(name, 0.0):.0%}") for name in names]  # type: ignore[misc]
    return _filled(parts, learners)


def versions_table(policies: Sequence[PolicyStatus]) -> Cells:
    """Return the table of the past versions in each policy's pool, each pool followed by the policy itself."""
    rows = list[Sequence[str]]()
    for policy in policies:
        rows += (_version(policy, one) for one in policy.opponents)
        if policy.opponents:
            rows.append((policy.name, "", "now", rating_of(policy) or "0", *[""] * 4))
    return _columns(_VERSIONS, rows, missing="")


def tables_of(status: Status | None) -> dict[str, Cells]:
    """Return the tables of a run by name: "policies", "nodes", "learners", "past versions", each empty without rows."""
    if status is None:
        return {"policies": {}, "nodes": {}, "learners": {}, "past versions": {}}
    return {
        "policies": policies_table(status.policies),
        "nodes": nodes_table(status.gateways + status.nodes),
        "learners": learners_table(status.learners),
        "past versions": versions_table(each_of(status)),
    }


def games_of(status: Status | None) -> Games:
    """Return the games of each policy: of the last evaluation by opponent, and all games against past versions."""
    found: Games = {}
    for policy in () if status is None else each_of(status):
        its = found.setdefault(policy.name or "policy", {})
        results: list[tuple[str, MatchStatus | OpponentStatus]] = [(one.opponent, one) for one in policy.eval_matches]
        results += ((f"past versions of {one.policy}".removesuffix(" of "), one) for one in policy.opponents)
        for opponent, one in results:
            won, drawn, lost = its.get(opponent, (0, 0, 0))
            its[opponent] = won + one.wins, drawn + one.draws, lost + one.losses
    return found


def each_of(status: Status) -> Sequence[PolicyStatus]:
    """Return the policies of a run; the run itself if it has one policy."""
    return status.policies or (status,)


def rating_of(policy: PolicyStatus) -> str:
    """Return a policy's rating with half its 95 % interval: "274 ± 37"."""
    if policy.rating is None:
        return ""
    return f"{policy.rating:.0f}" + ("" if policy.rating_error is None else f" ± {policy.rating_error:.0f}")


def lag_of_batch(policy: PolicyStatus) -> str:
    """Return mean and largest policy lag of a policy's last batch."""
    return lag_of(policy.policy_lag_mean, policy.policy_lag_max)


def lag_of(mean: float, largest: float) -> str:
    """Return mean and largest policy lag: "1.5, max 7"; early runs have no largest lag of nodes."""
    return f"{mean:.1f}" + (f", max {largest:.0f}" if largest >= mean else "")


def _version(policy: PolicyStatus, one: OpponentStatus) -> Sequence[str]:
    counts = (f"{count:,}" for count in (one.wins, one.draws, one.losses))
    return policy.name, one.policy, f"{one.steps:,}", f"{one.rating:.0f}", f"{one.score:.2f}", *counts


def _filled(parts: Sequence[Part], rows: Sequence[Any]) -> Cells:
    return _columns([part.heading for part in parts], [[part.text(row) for part in parts] for row in rows])


def _columns(headings: Iterable[str], rows: Sequence[Sequence[str]], missing: str = "-") -> Cells:
    """Return the columns that have any text, with `missing` for each missing value."""
    found = zip(headings, zip(*rows, strict=True), strict=bool(rows))
    return {heading: [cell or missing for cell in cells] for heading, cells in found if any(cells)}


def _said(run: Mapping[str, Any], name: str, form: Callable[[Any], str] = "{:,.0f}".format, of: str = "") -> str:
    """Return a number of a run, with its limit if it has one: "100 of 1,000"."""
    value, limit = run.get(name), run.get(of)
    return "" if value is None else form(value) + ("" if limit is None else f" of {form(limit)}")


def return_of(status: Status) -> str:
    """Return the mean return in training; of several policies the lowest and the highest: "-0.3 to 0.3"."""
    return _range([policy.mean_return for policy in each_of(status)])


def _range_of(run: Mapping[str, Any], name: str) -> str:
    policies = run.get("policies")
    its = [one.get(name) for one in policies if isinstance(one, Mapping)] if isinstance(policies, list) else []
    return _range(its or [run.get(name)])


def _range(values: Sequence[Any]) -> str:
    known = [value for value in values if isinstance(value, int | float)]
    ends = [number(end(known)) for end in (min, max)] if known else []
    return " to ".join(dict.fromkeys(ends))


def _number(value: float | None) -> str:
    return "" if value is None else number(value)


def _steps(node: NodeStatus) -> bool:
    """Return whether a node steps lanes now."""
    return node.is_connected and not node.learner
