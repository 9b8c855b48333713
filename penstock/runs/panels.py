"""Views of a `Status`: panels for a terminal, one line for a log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rich import box
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.config.features import FEATURES
from penstock.runs.files import shown_path
from penstock.runs.formatting import clock, evaluated, number
from penstock.runs.status import REAL_WORK, MatchStatus, NodeStatus, PolicyStatus, RoleShare, Status

_SIDE_BY_SIDE, _WIDE = 80, 100
_MOST_NUMBERS = 7
_FACTS = ("segments", "share", "age", "uses", "lost")
_SOURCE = re.compile(rf"replay/(\w+)/({'|'.join(_FACTS)})")
"""Metrics shown for a source of replayed segments."""
_KNOWN = (
    "policy_lag/min", "policy_lag/mean", "policy_lag/max", "masked_steps", "replay/rows", "replay/updates_per_step"
)  # fmt: skip
_LEAST_SHARE = 0.005
_WORK_GLYPHS, _WAIT_GLYPH, _REST_GLYPH = "█▓▒", "░", " "
_WORK_COLORS = ("green", "cyan", "magenta", "yellow", "blue", "red")
_SPARKS = "▁▂▃▄▅▆▇█"
_SPARK_WIDTH = 16


def panels(status: Status, returns: Sequence[float] = (), width: int = 100) -> RenderableType:
    """Return panels with the whole state of a run.

    Parameters
    ----------
    status
        Status to show.
    returns
        Mean returns so far, in order of time, shown as a spark line.
    width
        Columns of the terminal. From 80 on, panels are side by side.
    """
    middle = Table.grid(expand=True)
    throughput, learning = _throughput(status), _learning(status, returns)
    if width < _SIDE_BY_SIDE:
        middle.add_row(_panel(throughput, "throughput"))
        middle.add_row(_panel(learning, "learning"))
    else:
        middle.add_column(ratio=2)
        middle.add_column(ratio=3)
        height = max(throughput.row_count, learning.row_count) + 2
        middle.add_row(_panel(throughput, "throughput", height=height), _panel(learning, "learning", height=height))
    parts: list[RenderableType] = [_header(status, width), middle]
    if status.policies:
        parts.append(_panel(_policies(status.policies), "policies"))
    if any(policy.opponents for policy in _each(status)):
        parts.append(_panel(_opponents(_each(status)), "past versions"))
    if status.nodes:
        parts.append(_panel(_nodes(status.nodes), "nodes"))
    if status.roles:
        parts.append(_roles(status, width))
    return Group(*parts)


def plain_line(status: Status) -> str:
    """Format the state of a run as one line."""
    parts = [
        f"{clock(status.seconds)}",
        f"{status.steps:,} steps ({_progress(status):.0%})",
        f"{status.steps_per_second:,.0f} steps/s",
    ]
    if status.frame_skip > 1:
        parts.append(f"{status.steps_per_second * status.frame_skip:,.0f} frames/s")
    if status.env_steps is not None:
        parts.append(f"{status.env_steps:,} environment steps")
    if status.mean_return is not None:
        parts.append(f"return {number(status.mean_return)}")
    if status.eval_return is not None:
        target = "" if status.target_return is None else f" of {number(status.target_return)}"
        shown = evaluated(status.eval_return, status.eval_unfinished, status.target_return)
        parts.append(f"eval {shown}{target}")
    if status.eval_success_rate is not None:
        parts.append(f"success {status.eval_success_rate:.0%}")
    parts += [f"{about} {results}" for about, results in _matches(status).items()]
    if rated := [policy for policy in _each(status) if policy.rating is not None]:
        parts.append("rating " + ", ".join(f"{policy.name} {policy.rating:.0f}".lstrip() for policy in rated))
    if "policy_lag/mean" in status.experience:
        parts.append(f"lag {status.policy_lag_mean:.1f}")
    if status.updates_per_step is not None:
        parts.append(f"{number(status.updates_per_step)} updates/step")
    for label, count in (
        ("masked", status.masked_steps),
        ("skipped updates", status.skipped_updates),
        ("restarts", status.restarts),
    ):
        if count:
            parts.append(f"{label} {count:,}")
    if status.nodes:
        parts.append(f"nodes {sum(node.is_there for node in status.nodes)} of {len(status.nodes)}")
    if status.real_work is not None:
        parts.append(f"real work {status.real_work:.0%}")
    if status.limiting_role:
        parts.append(f"limited by {status.limiting_role}")
    return "  ".join(parts)


def _progress(status: Status) -> float:
    return min(1.0, status.steps / status.total_steps) if status.total_steps else 1.0


def _header(status: Status, width: int) -> Panel:
    left = (status.total_steps - status.steps) / status.steps_per_second if status.steps_per_second > 0 else None
    remaining = "" if left is None or left <= 0 else f", {clock(left)} left"
    row = Table.grid(expand=True, padding=(0, 2, 0, 0))
    row.add_column(ratio=1)
    row.add_column(justify="right", no_wrap=True)
    row.add_column(justify="right", no_wrap=True)
    row.add_row(
        ProgressBar(total=1.0, completed=_progress(status), complete_style="cyan", finished_style="green"),
        Text.assemble((f"{status.steps:,}", "bold"), (f" of {status.total_steps:,} steps", "dim")),
        Text(f"{clock(status.seconds)}{remaining}"),
    )
    title = Text.assemble(
        ("penstock", "bold cyan"), "  ", (status.algorithm, "bold default"), (" on ", "default"),
        (status.env, "bold default"),
    )  # fmt: skip
    run_dir = shown_path(status.run_dir) if status.run_dir else ""
    if len(run_dir) > width - 8:  # the end of a path is shown
        run_dir = "…" + run_dir[9 - width :]
    return _panel(row, title, subtitle=run_dir)


def _panel(body: RenderableType, title: Text | str, *, subtitle: str = "", height: int | None = None) -> Panel:
    return Panel(
        body, title=title if isinstance(title, Text) else Text(title, "default"), title_align="left",
        subtitle=Text(subtitle, "dim") if subtitle else None, subtitle_align="right",
        box=box.ROUNDED, border_style="bright_black", height=height, padding=(0, 1),
    )  # fmt: skip


def _pairs() -> Table:
    table = Table.grid(expand=True, padding=(0, 1, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(ratio=1, justify="right")
    return table


def _throughput(status: Status) -> Table:
    rows = _pairs()
    rows.add_row("steps/s", Text(f"{status.steps_per_second:,.0f}", "bold green"))
    if status.frame_skip > 1:
        rows.add_row("frames/s", f"{status.steps_per_second * status.frame_skip:,.0f}")
    rows.add_row("learned from", f"{status.steps:,} steps")
    if status.env_steps is not None:
        rows.add_row("environments", f"{status.env_steps:,} steps")
    experience = status.experience
    if "masked_steps" in experience:
        seen = status.steps + status.masked_steps
        share = status.masked_steps / seen if seen else 0.0
        rows.add_row("masked (stale)", Text(f"{status.masked_steps:,} ({share:.1%})", "yellow" if share > 0.01 else ""))
    ratio = status.updates_per_step
    rows.add_row("updates", f"{status.updates:,}" + ("" if ratio is None else f", {number(ratio)} per step"))
    if "policy_lag/mean" in experience:
        rows.add_row("policy lag", f"{status.policy_lag_mean:.1f}, max {status.policy_lag_max:.0f}")
    if status.replay_rows is not None:
        rows.add_row("replay", f"{status.replay_rows:,} rows")
    sources = _sources(experience)
    for kind, facts in sources.items():
        about = f"{facts['segments']:,.0f}, age {facts['age']:,.0f}, x{facts['uses']:.1f}"
        rows.add_row(f"{facts['share']:.0%} {kind}", about)
    for name, value in experience.items():
        source = _SOURCE.fullmatch(name)
        is_known = name in _KNOWN or any(name.startswith(feature.metrics) for feature in FEATURES)
        if not is_known and not (source is not None and source[1] in sources):
            rows.add_row(name.replace("_", " ").replace("/", " "), number(value))
    if status.skipped_updates:
        rows.add_row("skipped updates", Text(f"{status.skipped_updates:,}", "bold yellow"))
    if status.restarts:
        rows.add_row("restarts", Text(f"{status.restarts:,}", "bold yellow"))
    return rows


def _sources(experience: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the metrics of each source of replayed segments, by source and name."""
    found: dict[str, dict[str, float]] = {}
    for name, value in experience.items():
        if (part := _SOURCE.fullmatch(name)) is not None:
            found.setdefault(part[1], {})[part[2]] = value
    return {kind: facts for kind, facts in found.items() if len(facts) == len(_FACTS)}


def _learning(status: Status, returns: Sequence[float]) -> Table:
    rows = _pairs()
    mean_return = "-" if status.mean_return is None else number(status.mean_return)
    rows.add_row("return", Text.assemble((_spark_line(returns), "cyan"), "  ", (mean_return, "bold")))
    if status.mean_length is not None:
        rows.add_row("episodes", f"{status.episodes:,}, {number(status.mean_length)} steps long")
    if status.success_rate is not None:
        in_evaluation = status.eval_success_rate
        evaluated_too = "" if in_evaluation is None else f", {in_evaluation:.0%} in evaluation"
        rows.add_row("success", f"{status.success_rate:.0%}{evaluated_too}")
    for feature in FEATURES:
        prefix = feature.metrics
        its = {n.removeprefix(prefix): value for n, value in status.experience.items() if n.startswith(prefix)}
        for about, fact in feature.rows(its, number) if its else ():
            rows.add_row(about, fact)
    if status.eval_return is not None or status.target_return is not None:
        evaluation, target = status.eval_return, status.target_return
        reached = evaluation is not None and target is not None and evaluation >= target
        reached = reached and not status.eval_unfinished
        value = Text()
        result = "-" if evaluation is None else evaluated(evaluation, status.eval_unfinished, target)
        value.append(result, "bold green" if reached else "bold")
        value.append("" if status.best_return is None else f", best {number(status.best_return)}")
        value.append("" if target is None else f", target {number(target)}")
        rows.add_row("evaluation", value)
    for about, results in _matches(status).items():
        rows.add_row(about, results)
    hidden = 0
    for values in (status.losses, status.metrics):
        for name, shown in list(values.items())[:_MOST_NUMBERS]:
            rows.add_row(name.replace("_", " "), number(shown))
        hidden += max(0, len(values) - _MOST_NUMBERS)
    if hidden:
        rows.add_row(f"and {hidden} more", Text("in metrics.jsonl", "dim"))
    return rows


def _matches(status: Status) -> dict[str, str]:
    """Return texts with the results of an evaluation's games, by opponent."""
    found: dict[str, list[tuple[str, MatchStatus]]] = {}
    for policy in _each(status):
        for match in policy.eval_matches:
            found.setdefault(match.opponent, []).append((policy.name or match.seat, match))
    shown = {}
    for opponent, matches in found.items():
        if any(match.games for _, match in matches):
            won = ((name, f" {match.wins / match.games:.0%}" if match.games else "") for name, match in matches)
            shown[f"wins against {opponent}"] = ", ".join(map("".join, won))
        else:
            shown[f"return against {opponent}"] = ", ".join(f"{n} {number(match.mean_return)}" for n, match in matches)
    return shown


def _opponents(policies: Sequence[PolicyStatus]) -> Table:
    """Return a table with a row per past version in each policy's pool."""
    table = Table(box=None, expand=True, padding=(0, 1), header_style="dim")
    names = ("policy", "against") if len(policies) > 1 else ()
    for title in (*names, "steps", "rating", "score now", "won", "drawn", "lost"):
        table.add_column(title, justify="left" if title in names else "right")
    for policy in policies:
        for one in policy.opponents:
            who = (policy.name, one.policy) if names else ()
            counts = (f"{count:,}" for count in (one.wins, one.draws, one.losses))
            table.add_row(*who, f"{one.steps:,}", f"{one.rating:.0f}", f"{one.score:.2f}", *counts)
        who = (policy.name, "") if names else ()
        table.add_row(*who, "now", f"{policy.rating or 0.0:.0f}", style="bold")
    return table


def _each(status: Status) -> Sequence[PolicyStatus]:
    """Return the policies of a run; the run itself if it has one policy."""
    return status.policies or (status,)


def _policies(policies: Sequence[PolicyStatus]) -> Table:
    """Return a table with a row per policy."""
    table = Table(box=None, expand=True, padding=(0, 1), header_style="dim")
    for title in ("policy", "steps", "return", "evaluation", "updates", "policy lag", "learning rate"):
        table.add_column(title, justify="left" if title == "policy" else "right")
    for policy in policies:
        lag = policy.policy_lag_mean if "policy_lag/mean" in policy.experience else None
        shown = (policy.mean_return, policy.eval_return, lag, policy.learning_rate)
        returns, evaluation, lags, rate = ("-" if value is None else number(value) for value in shown)
        table.add_row(policy.name, f"{policy.steps:,}", returns, evaluation, f"{policy.updates:,}", lags, rate)
    return table


def _nodes(nodes: Sequence[NodeStatus]) -> Table:
    """Return a table with a row per node."""
    table = Table(box=None, expand=True, padding=(0, 1), header_style="dim")
    for title in ("node", "machine", "lanes", "steps/s", "policy lag", "kB/s", "faults"):
        table.add_column(title, justify="left" if title in ("node", "machine") else "right")
    for node in nodes:
        faults = node.faults + node.stale + node.doubled + node.missing
        rates = (f"{node.steps_per_second:,.0f}", number(node.policy_lag), f"{node.bytes_per_second / 1e3:,.0f}")
        rates = rates if node.is_there and not node.learner else ("-", "-", "-")
        lanes = f"rank-{node.learner}" if node.learner else f"{node.lanes:,}"
        name = Text(node.name, "" if node.is_there else "bold red")
        host = node.host if node.is_there else f"{node.host} (not there)" if node.host else "(asked for)"
        table.add_row(name, host, lanes, *rates, f"{faults:,}")
    return table


def _roles(status: Status, width: int) -> Panel:
    looks = _looks(status.roles)
    rows = Table.grid(expand=True, padding=(0, 2, 0, 0))
    rows.add_column(no_wrap=True)
    rows.add_column(no_wrap=True)
    rows.add_column(ratio=1)
    bar_width = 40 if width >= _WIDE else 20
    for role in status.roles:
        name = Text(role.name, "bold yellow" if role.name == status.limiting_role else "bold")
        rows.add_row(name, _bar(role, looks, bar_width), _legend(role, looks))
    body: list[RenderableType] = [rows]
    if status.real_work is not None:
        body.append(_real_work(status.real_work, status.cores))
    if status.limiting_role:
        reason = f"  {status.limiting_reason}" if status.limiting_reason else ""
        body.append(Text.assemble(("limited by: ", "dim"), (status.limiting_role, "bold yellow"), reason))
    return _panel(Group(*body), "roles")


def _real_work(real_work: float, cores: Mapping[str, float]) -> Columns:
    entries = [Text.assemble(("real work: ", "dim"), (f"{real_work:.0%}", "bold green"))]
    for name, share in cores.items():
        if share >= _LEAST_SHARE:
            entries.append(Text(f"{name} {share:.0%}", "" if name in REAL_WORK else "dim"))
    return Columns(entries, padding=(0, 2))


def _looks(roles: Sequence[RoleShare]) -> Mapping[str, tuple[str, str]]:
    """Return glyph and colour of each activity, equal in all roles; kinds of work are distinct without colour."""
    looks: dict[str, tuple[str, str]] = {}
    work = 0
    for activity in (activity for role in roles for activity in role.activities):
        if activity in looks:
            continue
        if activity.startswith("wait"):
            looks[activity] = (_WAIT_GLYPH, "bright_black")
        else:
            looks[activity] = (_WORK_GLYPHS[work % len(_WORK_GLYPHS)], _WORK_COLORS[work % len(_WORK_COLORS)])
            work += 1
    return looks


def _bar(role: RoleShare, looks: Mapping[str, tuple[str, str]], width: int) -> Text:
    bar = Text()
    drawn, total = 0, 0.0
    for activity, share in role.activities.items():  # the running sum is rounded, so that errors do not add up
        total = min(1.0, total + share)
        glyph, color = looks[activity]
        bar.append(glyph * (round(total * width) - drawn), color)
        drawn = round(total * width)
    return bar.append(_REST_GLYPH * (width - drawn))


def _legend(role: RoleShare, looks: Mapping[str, tuple[str, str]]) -> Columns:
    entries = []
    for activity, share in role.activities.items():
        if share >= _LEAST_SHARE:
            glyph, color = looks[activity]
            entries.append(Text.assemble((glyph, color), f" {activity} {share:.0%}"))
    return Columns(entries, padding=(0, 2))  # wraps between entries only


def _spark_line(values: Sequence[float]) -> str:
    if len(values) < 2:
        return ""
    points = min(_SPARK_WIDTH, len(values))
    picked = [values[round(i * (len(values) - 1) / (points - 1))] for i in range(points)]
    low, span = min(picked), (max(picked) - min(picked)) or 1.0
    return "".join(_SPARKS[round((value - low) / span * (len(_SPARKS) - 1))] for value in picked)
