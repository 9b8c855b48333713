"""Views of a `Status`: panels for a terminal, one line for a log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.config.features import FEATURES
from penstock.runs.descriptions import QUANTILES, WAIT, label_of, shades_of
from penstock.runs.files import shown_path
from penstock.runs.formatting import clock, evaluated, number, spark_line
from penstock.runs.panes import (
    Pane,
    Point,
    Row,
    beside,
    chart_of,
    columns_table,
    fitted,
    learners_pane,
    nodes_pane,
    of_table,
    packed,
    panel,
    versions_pane,
)
from penstock.runs.status import REAL_WORK, MatchStatus, PolicyStatus, RoleShare, Status
from penstock.runs.tables import LEAST_SHARE, POLICIES, each_of, lag_of_batch, policies_table, return_of, versions_table

_SIDE_BY_SIDE, _WIDE, _WIDE_ENOUGH_FOR_THREE = 80, 100, 140
_MOST_NUMBERS = 7
_SPARK_WIDTH = 16
_FACTS = ("segments", "share", "age", "uses", "lost")
_SOURCE = re.compile(rf"replay/(\w+)/({'|'.join(_FACTS)})")
"""Metrics shown for a source of replayed segments."""
_KNOWN = (
    "policy_lag/mean", "policy_lag/median", "masked_steps", "replay/rows", "replay/fill", "replay/updates_per_step"
)  # fmt: skip
_LEAST_REST = 0.05
_WORK_GLYPHS, _WAIT_GLYPH, _REST_GLYPH = "█▓▒", "░", " "
_NOTED = "bold magenta"
"""Style of limits and losses, legible on black and on white."""
_WORK_COLORS = ("green", "cyan", "magenta", "yellow", "blue", "red")


def panels(
    status: Status, history: Sequence[Point] = (), width: int = 100, height: int | None = None, chosen: int = 0
) -> RenderableType:
    """Return panels with the whole state of a run.

    Parameters
    ----------
    status
        Status to show.
    history
        Returns of the chosen policy so far, in order of steps, shown as a spark line, and in tall terminals as a chart.
    width
        Columns of the terminal. From 80 on, panels are side by side.
    height
        Lines of the terminal. If they do not suffice, the least important rows are left out first; the limiting role
        and returns stay. None: no limit.
    chosen
        Index of the policy whose returns and losses are shown, if there are several.
    """
    panes = _panes(status, [value for _, value, _ in history if value is not None], width, chosen)
    if height is None:
        return Group(*(pane.draw(pane.rows) for pane in panes))
    if len(history) > 1 and width >= _SIDE_BY_SIDE:
        panes.append(chart_of(history, width, f"return{_whose(status, chosen)} over steps"))
    return fitted(panes, height)


def _panes(status: Status, returns: Sequence[float], width: int, chosen: int) -> list[Pane]:
    """Return the panes of a run, from top to bottom."""
    each = each_of(status)
    policy = each[min(chosen, len(each) - 1)]
    whose = _whose(status, chosen)
    throughput, losses = _throughput(status), _losses(status, policy, whose)
    reached, learning = _returns(status, policy, whose, returns), _learning(status)
    learned = reached + learning
    both = reached + losses + learning if whose else learned + losses  # the losses of one policy follow its returns
    least = len(reached)
    limit = _limit(status, width - 4)
    heading = _header(status, width, limit)
    panes = [Pane(0, 0, 0, 0, 3 + len(limit), lambda _: heading)]
    if width >= _WIDE_ENOUGH_FOR_THREE:
        panes.append(beside(1, [("throughput", throughput), ("learning", learned), ("losses", losses)], width, least))
    elif width >= _SIDE_BY_SIDE:
        panes.append(beside(1, [("throughput", throughput), ("learning", both)], width, least))
    else:
        panes.append(beside(5, [("throughput", throughput)], width, 1))
        panes.append(beside(1, [("learning", both)], width, least))
    if status.policies:
        table = partial(_policies, status.policies, width, chosen)
        panes.append(of_table(2, "policies", 1, table, len(status.policies)))
    if status.nodes:
        title, nodes = f"nodes: {status.nodes_summary}", partial(nodes_pane, status.gateways + status.nodes, width)
        panes.append(of_table(3, title, 2, nodes, len(status.gateways + status.nodes)))
    if status.roles:
        panes.append(_roles(status, width))
    if status.learners:
        table = partial(learners_pane, status.learners, width)
        panes.append(of_table(5, "learners", 1, table, len(status.learners)))
    if versions := versions_table(each):
        panes.append(of_table(6, "past versions", 2, partial(versions_pane, versions, width), len(versions["steps"])))
    return panes


def _whose(status: Status, chosen: int) -> str:
    """Return " of red" for the chosen one of several policies; "" otherwise."""
    return f" of {status.policies[min(chosen, len(status.policies) - 1)].name}" if status.policies else ""


def plain_line(status: Status) -> str:
    """Format the state of a run as one line."""
    parts = [
        f"{clock(status.seconds)}",
        f"{status.steps:,} steps ({_progress(status):.0%})",
        f"{status.steps_per_second:,.0f} steps/s",
    ]
    if status.frame_skip and status.frame_skip > 1:
        parts.append(f"{status.steps_per_second * status.frame_skip:,.0f} frames/s")
    if status.env_steps is not None:
        parts.append(f"{status.env_steps:,} environment steps")
    if shown := return_of(status):
        parts.append(f"return {shown}")
    if status.eval_return is not None:
        target = "" if status.target_return is None else f" of {number(status.target_return)}"
        shown = evaluated(status.eval_return, status.eval_unfinished, status.target_return)
        parts.append(f"eval {shown}{target}")
    if status.eval_success_rate is not None:
        parts.append(f"success {status.eval_success_rate:.0%}")
    parts += [f"{about} {results}" for about, results in _matches(status).items()]
    if rated := [policy for policy in each_of(status) if policy.rating is not None]:
        parts.append("rating " + ", ".join(f"{policy.name} {policy.rating:.0f}".lstrip() for policy in rated))
    if "policy_lag/mean" in status.experience:
        parts.append(f"lag {lag_of_batch(status)}")
    if status.updates_per_step is not None:
        parts.append(f"{number(status.updates_per_step)} updates/step")
    for label, count in (
        ("masked", status.masked_steps),
        ("skipped updates", status.skipped_updates),
        ("restarts", status.restarts),
        ("files not sent", (status.unsent_files or 0) if status.upload_error else 0),
    ):
        if count:
            parts.append(f"{label} {count:,}")
    if status.nodes:
        parts.append(f"nodes {status.nodes_summary}")
    if status.real_work is not None:
        parts.append(f"real work {status.real_work:.0%}")
    if status.limiting_role:
        parts.append(f"limited by {status.limiting_role}")
    return "  ".join(parts)


def _progress(status: Status) -> float:
    return min(1.0, status.steps / status.total_steps) if status.total_steps else 1.0


def _limit(status: Status, width: int) -> list[Text]:
    """Return lines with the limiting role, the reason (in a second line if it does not fit), and unsent files."""
    count, problem = status.unsent_files or 0, status.upload_error
    files = f"{count:,} file{'s' * (count != 1)}, {status.unsent_nbytes / 1e6:,.1f} MB{problem and ': '}{problem}"
    unsent = [Text.assemble(("not sent yet: ", "dim"), (files, _NOTED if problem else ""))] if count else []
    if not status.limiting_role:
        return unsent
    role = Text.assemble(("limited by: ", "dim"), (status.limiting_role, _NOTED))
    return packed([role, *([Text(status.limiting_reason)] if status.limiting_reason else [])], width) + unsent


def _header(status: Status, width: int, limit: Sequence[Text]) -> Panel:
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
    for line in limit:
        line.no_wrap, line.overflow = True, "ellipsis"
    title = Text.assemble(
        ("penstock", "bold cyan"), "  ", (status.algorithm, "bold default"), (" on ", "default"),
        (status.env, "bold default"),
    )  # fmt: skip
    run_dir = shown_path(status.run_dir) if status.run_dir else ""
    if len(run_dir) > width - 8:  # show the end of the path
        run_dir = "…" + run_dir[9 - width :]
    return panel(Group(row, *limit), title, subtitle=run_dir)


def _throughput(status: Status) -> list[Row]:
    rows: list[Row] = [("steps/s", Text(f"{status.steps_per_second:,.0f}", "bold green"))]
    if status.frame_skip and status.frame_skip > 1:
        rows.append(("frames/s", f"{status.steps_per_second * status.frame_skip:,.0f}"))
    experience = status.experience
    if "masked_steps" in experience:
        seen = status.steps + status.masked_steps
        share = status.masked_steps / seen if seen else 0.0
        masked = Text(f"{status.masked_steps:,} ({share:.1%})", _NOTED if share > 0.01 else "")
        rows.append(("masked (stale)", masked))
    ratio = status.updates_per_step
    rows.append(("updates", f"{status.updates:,}" + ("" if ratio is None else f", {number(ratio)} per step")))
    if "policy_lag/mean" in experience:
        rows.append(("policy lag", lag_of_batch(status)))
    rows.append(("learned from", f"{status.steps:,} steps"))
    if status.env_steps is not None:
        rows.append(("environments", f"{status.env_steps:,} steps"))
    if status.replay_rows is not None:
        fill = experience.get("replay/fill")
        rows.append(("replay", f"{status.replay_rows:,} rows" + ("" if fill is None else f" ({fill:.0%})")))
    sources = _sources(experience)
    for kind, facts in sources.items():
        about = f"{facts['segments']:,.0f}, age {facts['age']:,.0f}, x{facts['uses']:.1f}"
        rows.append((f"{facts['share']:.0%} {kind}", about))
    for name, value in experience.items():
        source = _SOURCE.match(name)
        is_known = name in _KNOWN or any(name.startswith(feature.metrics) for feature in FEATURES)
        of, _, quantile = name.rpartition("/")
        if is_known or (source is not None and source[1] in sources) or quantile in QUANTILES.keys() - {"median"}:
            continue
        about, shown = name, number(value)
        if quantile == "median":
            about, shown = of, f"{shown} ({number(experience[f'{of}/min'])} to {number(experience[f'{of}/max'])})"
        rows.append((label_of(about), shown))
    noted = (("skipped updates", status.skipped_updates), ("restarts", status.restarts))
    return rows + [(about, Text(f"{count:,}", _NOTED)) for about, count in noted if count]


def _sources(experience: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the metrics of each source of replayed segments, by source and name."""
    found: dict[str, dict[str, float]] = {}
    for name, value in experience.items():
        if (part := _SOURCE.fullmatch(name)) is not None:
            found.setdefault(part[1], {})[part[2]] = value
    return {kind: facts for kind, facts in found.items() if len(facts) == len(_FACTS)}


def _returns(status: Status, policy: PolicyStatus, whose: str, returns: Sequence[float]) -> list[Row]:
    """Return rows of a policy's returns, and of the range over several."""
    mean_return = "-" if policy.mean_return is None else number(policy.mean_return)
    line = spark_line(returns, _SPARK_WIDTH) if len(returns) > 1 else ""
    shown = Text.assemble((line, "cyan"), "  ", (mean_return, "bold"))
    rows: list[Row] = [(f"return{whose}", shown)]
    returns_of = {policy.name: policy.mean_return for policy in status.policies if policy.mean_return is not None}
    if len(returns_of) > 2:
        best, worst = max(returns_of.values()), min(returns_of.values())
        names = ", ".join(name for name, value in returns_of.items() if value == best)
        rows.append(("policies", f"{number(worst)} to {number(best)} by {names}"))
    if policy.eval_return is not None or status.target_return is not None:
        rows.append((f"evaluation{whose}", _evaluation(policy, status.target_return)))
    return rows


def _learning(status: Status) -> list[Row]:
    rows = list[Row]()
    if status.mean_length is not None:
        rows.append(("episodes", f"{status.episodes:,}, {number(status.mean_length)} steps long"))
    if status.success_rate is not None:
        in_evaluation = status.eval_success_rate
        evaluated_too = "" if in_evaluation is None else f", {in_evaluation:.0%} in evaluation"
        rows.append(("success", f"{status.success_rate:.0%}{evaluated_too}"))
    for feature in FEATURES:
        prefix = feature.metrics
        its = {n.removeprefix(prefix): value for n, value in status.experience.items() if n.startswith(prefix)}
        rows += feature.rows(its, number) if its else ()
    return [*rows, *_matches(status).items()]


def _evaluation(policy: PolicyStatus, target: float | None) -> Text:
    """Return the last evaluation, the best one, and the target."""
    evaluation = policy.eval_return
    reached = evaluation is not None and target is not None and evaluation >= target and not policy.eval_unfinished
    result = "-" if evaluation is None else evaluated(evaluation, policy.eval_unfinished, target)
    return Text.assemble(
        (result, "bold green" if reached else "bold"),
        "" if policy.best_return is None else f", best {number(policy.best_return)}",
        "" if target is None else f", target {number(target)}",
    )


def _losses(status: Status, policy: PolicyStatus, whose: str) -> list[Row]:
    """Return rows of a policy's losses, and of the metrics of the run."""
    rows: list[Row] = []
    hidden = 0
    for values, prefix, of in ((policy.losses, "loss/", whose), (status.metrics, "metrics/", "")):
        shown = list(values.items())[:_MOST_NUMBERS]
        rows += [(f"{label_of(prefix + name)}{of}", number(value)) for name, value in shown]
        hidden += max(0, len(values) - _MOST_NUMBERS)
    return rows + ([(f"and {hidden} more", Text("in metrics.jsonl", "dim"))] if hidden else [])


def _matches(status: Status) -> dict[str, str]:
    """Return texts with the results of an evaluation's games, by opponent."""
    found: dict[str, list[tuple[str, MatchStatus]]] = {}
    for policy in each_of(status):
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


def _policies(policies: Sequence[PolicyStatus], width: int, chosen: int, most: int) -> Table:
    """Return a table of `most` policies, with the chosen one in bold among them, and columns that fit."""
    first = max(0, min(chosen, len(policies) - 1) - most + 1)
    policies, chosen = policies[first : first + most], min(chosen, len(policies) - 1) - first
    columns = policies_table(policies)
    known = {part.heading for part in POLICIES}
    tuned = [title for title in columns if title not in known or title == "learning rate"]
    others = [title for title in columns if title != "best"]
    order = ("policy", "return", "evaluation", "steps", *tuned, "rating", "copies", *others)
    return columns_table(columns, width - 4, order, {chosen: "bold"})


def _roles(status: Status, width: int) -> Pane:
    """Return the pane of the roles: the shares of time of each, and those of all cores together."""
    looks = _looks(status.roles)
    bar_width = 40 if width >= _WIDE else min(20, width // 4)
    name_width = max(len(role.name) for role in status.roles)
    left = max(10, width - 8 - name_width - bar_width)
    in_order = sorted(status.roles, key=lambda role: role.name != status.limiting_role)
    legends = {role.name: packed(_legend(role, looks), left) for role in status.roles}
    work = [] if status.real_work is None else packed(_real_work(status.real_work, status.cores), width - 4)
    count, roles = sum(map(len, legends.values())) + len(work), len(status.roles)

    def draw(rows: int) -> RenderableType:
        table = Table.grid(padding=(0, 2, 0, 0))
        shown = status.roles if rows >= roles else in_order[:rows]
        for role in shown:
            name = Text(role.name, _NOTED if role.name == status.limiting_role else "bold")
            lines = legends[role.name] if rows >= count else packed(_legend(role, looks, largest_first=True), left)[:1]
            for place, line in enumerate(lines or [Text("")]):
                line.no_wrap, line.overflow = True, "ellipsis"
                table.add_row(*((name, _bar(role, looks, bar_width)) if place == 0 else ("", "")), line)
        more = work if rows >= count else work[: max(0, rows - roles)]
        return panel(Group(table, *more), "roles")

    return Pane(4, max(count, roles), roles, min(2, roles), 2, draw)


def _real_work(real_work: float, cores: Mapping[str, float]) -> list[Text]:
    shown = ((name, share) for name, share in cores.items() if share >= LEAST_SHARE)
    others = [Text(f"{name} {share:.0%}", "" if name in REAL_WORK else "dim") for name, share in shown]
    return [Text.assemble(("real work: ", "dim"), (f"{real_work:.0%}", "bold green")), *others]


def _looks(roles: Sequence[RoleShare]) -> Mapping[str, tuple[str, str]]:
    """Return glyph and colour of each activity, the same in all roles; glyphs distinguish work without colour."""
    shades = shades_of(activity for role in roles for activity in role.activities)
    return {
        activity: (_WAIT_GLYPH, "bright_black") if shade == WAIT
        else (_WORK_GLYPHS[shade % len(_WORK_GLYPHS)], _WORK_COLORS[shade % len(_WORK_COLORS)])
        for activity, shade in shades.items()
    }  # fmt: skip


def _bar(role: RoleShare, looks: Mapping[str, tuple[str, str]], width: int) -> Text:
    bar = Text()
    drawn, total = 0, 0.0
    for activity, share in role.activities.items():  # the running sum is rounded, so that errors do not add up
        total = min(1.0, total + share)
        glyph, color = looks[activity]
        bar.append(glyph * (round(total * width) - drawn), color)
        drawn = round(total * width)
    return bar.append(_REST_GLYPH * (width - drawn))


def _legend(role: RoleShare, looks: Mapping[str, tuple[str, str]], *, largest_first: bool = False) -> list[Text]:
    shares = [(activity, share) for activity, share in role.activities.items() if share >= LEAST_SHARE]
    if largest_first:
        shares.sort(key=lambda one: -one[1])
    entries = [Text.assemble(looks[name], f" {name} {share:.0%}") for name, share in shares]
    rest = 1.0 - sum(role.activities.values())
    return [*entries, Text(f"other {rest:.0%}", "dim")] if rest >= _LEAST_REST else entries
