"""Descriptions of the numbers that runs show: columns of tables of runs, and charts of logged metrics.

The terminal, the dashboard, reports and ``penstock runs`` read names, units and kinds of charts from here, so that one
line makes a new number appear in all of them. A metric without a description has a chart of its own under "Other".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from penstock.config.features import FEATURES

POLICY = "policy/"
"""Prefix of the metrics of one policy: "policy/red/loss/entropy"."""
AXES = {
    "steps": "steps", "seconds": "seconds trained", "updates": "updates", "frames": "frames", "time": "time of day"
}  # fmt: skip
"""Metrics for the horizontal axes of charts, with their titles."""
NO_FRAMES = "an environment that declares no frame skip has no frames"
"""Message for a run that has no values over "frames"."""
_UNDRAWN = frozenset((
    *AXES, "resumed", "env_steps", "real_work", "evaluation/std_return", "evaluation/finished", "evaluation/unfinished",
))  # fmt: skip

Cell = Literal["state", "text", "number", "count", "share", "clock", "ago"]
Kind = Literal["line", "dots", "area", "band"]
QUANTILES = {"min": 0.0, "q25": 0.25, "median": 0.5, "q75": 0.75, "max": 1.0}
"""Quantiles of a distribution, by the last part of the names of its metrics."""
_NESTED = {("min", "max"): "min to max", ("q25", "q75"): "25 to 75 %", ("low", "high"): "95 % interval"}


@dataclass(frozen=True)
class Column:
    """Column of a table of runs.

    Attributes
    ----------
    name
        Name of the value in `RecordedRun.summary`.
    heading
        Title shown.
    cell
        Kind of value: "share" is shown as a percentage, "clock" is a time span, "ago" a date, shown as the time since.
    least_width
        Width of the page in pixels from which the column is shown; None: never.
    is_printed
        Whether ``penstock runs`` shows the column by default.
    """

    name: str
    heading: str
    cell: Cell
    least_width: int | None = 0
    is_printed: bool = True

    @property
    def is_text(self) -> bool:
        """Whether values are words, aligned left."""
        return self.cell in ("state", "text")


COLUMNS = (
    Column("run", "run", "text"), Column("state", "state", "state"), Column("algorithm", "algorithm", "text", 600),
    Column("env", "env", "text", 800), Column("seed", "seed", "count", 1100), Column("steps", "steps", "count", 800),
    Column("progress", "done", "share", 500, is_printed=False), Column("seconds", "time", "clock", 1100),
    Column("mean_return", "return", "number", 500), Column("eval_return", "eval", "number"),
    Column("best_return", "best", "number", 1100),
    Column("target_return", "target", "number", 1300, is_printed=False),
    Column("steps_per_second", "steps/s", "count", 1300), Column("limiting_role", "limited by", "text", 1000),
    Column("tags", "tags", "text", None), Column("videos", "videos", "count", None),
    Column("parent", "parent", "text", None), Column("updated", "ago", "ago", 1400),
    Column("created", "created", "ago", None, is_printed=False),
    Column("total_steps", "total_steps", "count", None, is_printed=False),
    Column("updates", "updates", "count", None, is_printed=False),
)  # fmt: skip
"""Columns of tables of runs, in order."""


@dataclass(frozen=True)
class Series:
    """Description of the metrics whose names match a pattern.

    Attributes
    ----------
    pattern
        Name of a metric; ``*`` stands for one part between slashes, and at the end for the rest.
    section
        Heading of the charts.
    title
        Title of the chart, shared by all metrics with that title. "{0}" is the part that the first ``*`` matches.
    label
        Name of the line within the chart; empty: the chart has one line, named by its title.
    unit
        Unit of the values; "share" is from 0 to 1.
    kind
        "line"; "dots": a line with marked points, for few values; "area": stacked areas, for shares of one whole;
        "band": nested bands between `QUANTILES`, or between the "low" and "high" ends of an interval, as matched by a
        final ``*``, with a line for the median or for the metric that the interval belongs to.
    short
        Label in a terminal; empty: the metric's name.
    """

    pattern: str
    section: str
    title: str = "{0}"
    label: str = ""
    unit: str = ""
    kind: Kind = "line"
    short: str = ""


RETURN = "Return"
"""Title of the chart of returns."""
_OWN, _OTHER = "Metrics of your own", Series("*", "Other")

METRICS = (
    Series("episode/mean_return", "Learning", RETURN, "training episodes", "reward"),
    Series("evaluation/mean_return", "Learning", RETURN, "evaluations", "reward", "dots"),
    Series("episode/success_rate", "Learning", "Success rate", "training episodes", "share"),
    Series("evaluation/success_rate", "Learning", "Success rate", "evaluations", "share", "dots"),
    Series("episode/mean_length", "Learning", "Episode length", unit="steps"),
    Series("evaluation/return/*", "Learning", "Returns within an evaluation", "{0}", "reward", "band"),
    Series("evaluation/length/*", "Learning", "Lengths within an evaluation", "{0}", "steps", "band"),
    Series("opponents/rating", "Opponents", "Rating", unit="Elo points"),
    Series("opponents/rating/*", "Opponents", "Rating", "{0}", "Elo points", "band"),
    Series("opponents/mean_score", "Opponents", "Score against past versions", "mean", "share"),
    Series("opponents/min_score", "Opponents", "Score against past versions", "hardest", "share"),
    Series("opponents/games", "Opponents", "Games against past versions"),
    Series("opponents/pool", "Opponents", "Past versions"),
    Series("against/*/wins", "Opponents", "Games against {0}", "won", "share", "area"),
    Series("against/*/draws", "Opponents", "Games against {0}", "drawn", "share", "area"),
    Series("against/*/losses", "Opponents", "Games against {0}", "lost", "share", "area"),
    Series("against/*/mean_return", "Opponents", "Return against {0}", unit="reward", kind="dots"),
    Series("tuned/*", "Population", "Setting {0}"),
    Series("exploits", "Population", "Copies taken from others", unit="copies"),
    Series("loss/*", "Losses", short="{0}"),
    Series("learning_rate", "Losses", "Learning rate"),
    Series("constant_features", "Losses", "Constant features", unit="share", short="const features"),
    Series("policy_lag/*", "Experience", "Policy lag", "{0}", "updates", "band"),
    Series("masked_steps", "Experience", "Masked steps", unit="steps"),
    Series("late_segments", "Experience", "Segments late for their batch", unit="segments"),
    Series("replay/rows", "Experience", "Replay buffer", unit="rows"),
    Series("replay/fill", "Experience", "Replay buffer filled", unit="share"),
    Series("replay/updates_per_step", "Experience", "Updates per step"),
    Series("replay/age/*", "Experience", "Age of what is drawn", "{0}", "rows", "band"),
    Series("replay/priority/*", "Experience", "Priorities of what is drawn", "{0}", kind="band"),
    Series("replay/*/share", "Experience", "Replayed part of batches", "{0}", "share", "area"),
    Series("replay/*/segments", "Experience", "Segments by source", "{0}", "segments"),
    Series("replay/*/age", "Experience", "Age by source", "{0}", "updates"),
    Series("replay/*/age/*", "Experience", "Age of what is drawn, {0}", "{1}", "updates", "band"),
    Series("replay/*/uses", "Experience", "Uses by source", "{0}", "draws"),
    Series("replay/*/lost", "Experience", "Lost segments by source", "{0}", "segments"),
    Series("replay/prefetched", "Experience", "Prefetched batches", unit="batches"),
    Series("replay/*", "Experience", "Replay: {0}"),
    *(Series(f"{feature.metrics}*", feature.group.capitalize()) for feature in FEATURES),
    Series("nodes/connected", "Nodes", "Number of connected nodes", unit="nodes", short="nodes"),
    Series("node/*/steps_per_second", "Nodes", "Steps per second of nodes", "{0}", "steps/s"),
    Series("node/*/policy_lag", "Nodes", "Policy lag of nodes", "{0}", "updates"),
    Series("node/*/policy_lag_max", "Nodes", "Largest policy lag of nodes", "{0}", "updates"),
    Series("node/*/bytes_per_second", "Nodes", "Bytes received per second", "{0}", "bytes/s"),
    Series("node/*/is_connected", "Nodes", "Connected nodes", "{0}"),
    Series("node/*/steps", "Nodes", "Steps received", "{0}", "steps"),
    Series("node/*/weights_nbytes", "Nodes", "Weights sent", "{0}", "bytes"),
    Series("node/*/stale", "Nodes", "Blocks of earlier epochs", "{0}", "blocks"),
    Series("node/*/duplicates", "Nodes", "Blocks received twice", "{0}", "blocks"),
    Series("node/*/missing", "Nodes", "Missing blocks", "{0}", "blocks"),
    Series("node/*/faults", "Nodes", "Losses of nodes", "{0}", "times"),
    Series("node/*/*", "Nodes", "{1} of nodes", "{0}"),
    Series("storage/unsent_files", "Speed", "Files not sent yet", unit="files"),
    Series("storage/unsent_bytes", "Speed", "Bytes not sent yet", unit="bytes"),
    Series("learners/active", "Learners", "Active learners", unit="learners"),
    Series("learners/rendezvous", "Learners", "Rendezvous of learners", unit="times"),
    Series("steps_per_second", "Speed", "Steps per second", unit="steps/s"),
    Series("cores/*", "Speed", "Time of all cores", "{0}", "share", "area"),
    Series("time/*/*", "Speed", "Time of {0}", "{1}", "share", "area"),
    Series("restarts", "Speed", "Restarts and skipped updates", "restarts"),
    Series("skipped_updates", "Speed", "Restarts and skipped updates", "skipped updates"),
    Series("metrics/*", _OWN, short="{0}"),
)
"""Metrics of ``metrics.jsonl``; the first description that matches is used."""

HARDWARE = (
    Series("cpu/run", "Hardware", "Cores used by roles", "all", "cores"),
    Series("cpu/*", "Hardware", "Busy cores", "core {0}", "share"),
    Series("memory/*", "Hardware", "Memory", "{0}", "bytes"),
    Series("network/*", "Hardware", "Network", "{0}", "bytes/s"),
    Series("role/*/cpu", "Hardware", "Cores used by roles", "{0}", "cores"),
    Series("role/*/memory", "Hardware", "Memory of roles", "{0}", "bytes"),
    Series("gpu/*/busy", "Hardware", "Busy GPUs", "GPU {0}", "share"),
    Series("gpu/*/memory_*", "Hardware", "Memory of GPUs", "GPU {0} {1}", "bytes"),
    Series("gpu/*/*", "Hardware", "{1} of GPUs", "GPU {0}"),
)
"""Numbers of ``hardware.jsonl``."""

EPISODE = (
    Series("reward/*", "Recent episode", "Rewards of a recent episode", "{0}", "reward"),
    Series("return/*", "Recent episode", "Return of a recent episode", "{0}", "reward"),
)
"""Numbers of the steps of ``episode.jsonl``."""

_OF_ALL = "all policies"
_NO_WORK = ("other", "other programs", "idle", "drawn")
WAIT = -1
"""Colour of time without work."""


def charts_of(
    names: Iterable[str], policies: Sequence[str] = (), known: Sequence[Series] = METRICS
) -> list[dict[str, Any]]:
    """Return the charts of a run's metrics, in the order of the descriptions.

    Metrics of several policies have a line per policy and none for the run; stacked areas have a chart per policy.

    Parameters
    ----------
    names
        Names of the logged metrics.
    policies
        Names of the policies of a run with several, in order.
    known
        Descriptions to use.

    Returns
    -------
    list
        ``section``, ``title``, ``unit``, ``kind``, ``is_return`` (whether the target and videos are marked), ``lines``
        and ``bands`` of each chart. A line has ``name`` (of its metric), ``label``, ``color`` (a number, the same for
        all lines of a policy and for the same part in all areas of a section; or `WAIT`), ``dash`` (a number),
        ``dots`` (whether its points are marked) and ``edge`` (whether it bounds a band). A band has ``label``,
        ``color``, and indices of lines: its bounds ``low`` and ``high``, and the line within, ``of``.
    """
    places: dict[tuple[str, str], int] = {}
    for place, series in enumerate((*known, _OTHER)):
        places.setdefault((series.section, series.title), place)
    charts: dict[tuple[str, str], dict[str, Any]] = {}
    for _, series, words, policy, name in sorted(_described(names, policies, known), key=lambda found: found[0]):
        title = series.title.format(*words)
        if series.title == "{0}" and series.section not in (_OWN, _OTHER.section):
            title = title[:1].upper() + title[1:].replace("_", " ")
        is_of_one = policy and series.kind == "area"
        whole = f"{title}, {policy}" if is_of_one else title
        chart: dict[str, Any] = {"section": series.section, "title": whole, "unit": series.unit, "lines": []}
        chart["kind"] = "area" if series.kind == "area" else "line"
        chart["is_return"] = series.title == RETURN
        order = (places[series.section, series.title], title if is_of_one else "")  # policies beside each other
        chart = charts.setdefault((series.section, whole), {"place": order, **chart})
        line = {"name": name, "label": series.label.format(*words), "policy": "" if is_of_one else policy}
        quantile = words[-1] if series.kind == "band" else ""
        chart["lines"].append(line | {"dots": series.kind == "dots", "quantile": quantile})
    made = [charts[key] for key in sorted(charts, key=lambda key: charts[key]["place"])]
    parts: dict[str, list[str]] = {}
    for chart in made:
        if chart["kind"] == "area":
            parts.setdefault(chart["section"], []).extend(line["label"] for line in chart["lines"])
    shades = {section: shades_of(labels) for section, labels in parts.items()}
    return [_finished(chart, policies, shades.get(chart["section"], {})) for chart in made]


def label_of(name: str) -> str:
    """Return the label of a metric in a terminal."""
    for series in METRICS:
        if series.short and (found := _regex(series.pattern).fullmatch(name)):
            name = series.short.format(*found.groups())
            break
    return name.replace("_", " ").replace("/", " ")


def shades_of(parts: Iterable[str]) -> dict[str, int]:
    """Return a colour number for each part of a whole, such as an activity: `WAIT` for time without work."""
    found: dict[str, int] = {}
    work = 0
    for part in parts:
        if part not in found:
            is_wait = part in _NO_WORK or part.startswith("wait")
            found[part] = WAIT if is_wait else work
            work += not is_wait
    return found


def _described(
    names: Iterable[str], policies: Sequence[str], known: Sequence[Series]
) -> Iterator[tuple[int, Series, Sequence[str], str, str]]:
    """Yield index and description of each drawn metric, the parts that ``*`` matches, its policy, and its name."""
    parts = [(name, *_parts(name, policies)) for name in names]
    of_policies = {metric for _, policy, metric in parts if policy}
    for name, policy, metric in parts:  # metrics with the same description keep the file's order
        if metric in _UNDRAWN or (not policy and metric in of_policies):
            continue
        for place, series in enumerate((*known, _OTHER)):
            if found := _regex(series.pattern).fullmatch(metric):
                yield place, series, found.groups(), policy, name
                break


def _parts(name: str, policies: Sequence[str]) -> tuple[str, str]:
    """Return policy and metric of a name; the policy is empty for metrics of the whole run."""
    if not name.startswith(POLICY):
        return "", name
    rest = name.removeprefix(POLICY)
    policy = next((one for one in policies if rest.startswith(f"{one}/")), rest.partition("/")[0])
    return policy, rest[len(policy) + 1 :]


def _finished(chart: dict[str, Any], policies: Sequence[str], shades: Mapping[str, int]) -> dict[str, Any]:
    """Return a chart with labels and styles of its lines: colours distinguish policies, dashes their metrics."""
    lines = sorted(chart["lines"], key=lambda line: line["quantile"] not in ("", "median"))
    of_policies = list(dict.fromkeys((*policies, *(line["policy"] for line in lines if line["policy"]))))
    has_policies = any(line["policy"] for line in lines)
    edges = {end for ends in _NESTED for end in ends}
    of_lines = [line for line in lines if line["quantile"] not in edges] or lines[:1]
    labels = list(dict.fromkeys(line["label"] for line in of_lines))
    drawn = []
    for number, line in enumerate(lines):
        is_edge = line not in of_lines
        place = 0 if is_edge else labels.index(line["label"])
        if has_policies:
            policy = line["policy"] or _OF_ALL
            color = of_policies.index(policy) if line["policy"] else len(of_policies)
            dash = place
        else:
            policy, dash = "", 0
            color = shades[line["label"]] if chart["kind"] == "area" else place if line["quantile"] else number
        label = ", ".join(words for words in (policy, line["label"]) if words)
        looks = {"color": color, "dash": dash, "dots": line["dots"], "edge": is_edge, "quantile": line["quantile"]}
        drawn.append({"name": line["name"], "label": label or chart["title"], **looks})
    if has_policies:
        drawn.sort(key=lambda line: (line["color"], line["dash"]))
    bands = _bands(drawn, 1 if has_policies else len(_NESTED))
    shown = [{name: value for name, value in line.items() if name != "quantile"} for line in drawn]
    about = {key: chart[key] for key in ("section", "title", "unit", "kind", "is_return")}
    return about | {"lines": shown, "bands": bands}


def _bands(lines: Sequence[Mapping[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return, outermost first, up to `most` of the innermost bands of each colour that has lines for both edges."""
    found = []
    for color in dict.fromkeys(line["color"] for line in lines if line["edge"]):
        its = {line["quantile"]: n for n, line in enumerate(lines) if line["color"] == color}
        of = next((n for n, line in enumerate(lines) if line["color"] == color and not line["edge"]), 0)
        pairs = [(label, its[low], its[high]) for (low, high), label in _NESTED.items() if low in its and high in its]
        looks = {"color": color, "of": of}
        found += [{"label": label, "low": low, "high": high, **looks} for label, low, high in pairs[-most:]]
    return found


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern: a final ``*`` stands for the rest, others for one part."""
    parts = [re.escape(part) for part in pattern.removesuffix("*").split("*")]
    return re.compile("([^/]+?)".join(parts) + ("(.+)" if pattern.endswith("*") else ""), re.DOTALL)
