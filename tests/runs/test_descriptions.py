"""Each logged number has one description, from which all views draw it."""

import json
import re
import subprocess
import sys

import pytest

from penstock.runs.descriptions import COLUMNS, HARDWARE, METRICS, QUANTILES, WAIT, charts_of, shades_of
from penstock.runs.drawing import games_html
from penstock.runs.status import MatchStatus, PolicyStatus, Status
from penstock.runs.tables import MOST_COLUMNS, games_of, policies_table
from tests.places import DOCS
from tests.studies.recorded import record


def lines_of(chart):
    return [(line["label"], line["color"], line["dash"]) for line in chart["lines"]]


def test_metrics_of_one_title_share_a_chart_and_charts_are_in_the_order_of_the_descriptions():
    names = ["loss/b", "steps", "evaluation/mean_return", "loss/a", "episode/mean_return", "seconds"]
    first, second, third = charts_of(names)
    assert (first["section"], first["title"], first["unit"]) == ("Learning", "Return", "reward")
    assert [(line["name"], line["dots"]) for line in first["lines"]] == [
        ("episode/mean_return", False), ("evaluation/mean_return", True)
    ]  # fmt: skip
    assert [second["title"], third["title"]] == ["B", "A"], "losses are in the order of the file"


def test_policies_are_beside_each_other_with_a_colour_each_and_a_dash_for_each_metric():
    metrics = ("episode/mean_return", "evaluation/mean_return")
    names = [f"policy/{policy}/{metric}" for metric in metrics for policy in ("red", "blue")]
    (chart,) = charts_of([*names, *metrics], ["red", "blue"])
    assert lines_of(chart) == [
        ("red, training episodes", 0, 0), ("red, evaluations", 0, 1),
        ("blue, training episodes", 1, 0), ("blue, evaluations", 1, 1),
    ], "the means over policies are left out"  # fmt: skip
    assert chart["is_return"] and not charts_of(["policy/red/loss/x"], ["red"])[0]["is_return"]


def test_a_policy_may_have_slashes_in_its_name():
    (chart,) = charts_of(["policy/a/b/loss/x", "policy/a/loss/x"], ["a/b", "a"])
    assert [(line["name"], line["label"]) for line in chart["lines"]] == [
        ("policy/a/b/loss/x", "a/b"), ("policy/a/loss/x", "a")
    ]  # fmt: skip


def test_areas_are_a_chart_for_each_policy_and_parts_have_one_colour_in_all_charts_of_a_section():
    names = [f"policy/{policy}/against/random/{end}" for policy in ("red", "blue") for end in ("wins", "losses")]
    first, second = charts_of(names, ["red", "blue"])
    assert (first["title"], second["title"]) == ("Games against random, red", "Games against random, blue")
    assert lines_of(first) == lines_of(second) == [("won", 0, 0), ("lost", 1, 0)]
    rollout, learner = charts_of(
        ["time/rollout/env", "time/rollout/wait for slots", "time/learner/learn", "time/learner/env"]
    )
    assert [color for _, color, _ in lines_of(rollout)] == [0, WAIT]
    assert [color for _, color, _ in lines_of(learner)] == [1, 0]
    assert shades_of(["idle", "env", "other programs", "env", "learn"]) == {
        "idle": WAIT, "env": 0, "other programs": WAIT, "learn": 1
    }  # fmt: skip


def quantiles_of(metric, policy=""):
    return [f"{policy}{metric}/{name}" for name in QUANTILES]


def test_a_distribution_is_the_median_in_nested_bands_which_a_mean_beside_it_does_not_change():
    (chart,) = charts_of(["policy_lag/mean", *quantiles_of("policy_lag")])
    names = [line["name"].removeprefix("policy_lag/") for line in chart["lines"]]
    told = {line["label"]: (line["color"], line["edge"]) for line in chart["lines"]}
    assert told["median"] == (0, False) and told["mean"] == (1, False)
    assert all(told[end] == (0, True) for end in ("min", "q25", "q75", "max"))
    assert [(names[band["low"]], names[band["high"]], names[band["of"]]) for band in chart["bands"]] == [
        ("min", "max", "median"), ("q25", "q75", "median")
    ]  # fmt: skip
    (before,) = charts_of([f"policy_lag/{name}" for name in ("min", "mean", "max")])
    ends = [(band["low"], band["high"], band["of"], band["label"]) for band in before["bands"]]
    assert ends == [(0, 2, 1, "min to max")], "runs of before have no quartiles"


def test_distributions_of_policies_are_medians_with_their_inner_bands_in_one_chart():
    names = [name for policy in ("red", "blue") for name in quantiles_of("evaluation/return", f"policy/{policy}/")]
    (chart,) = charts_of(names, ["red", "blue"])
    lines = [line["name"] for line in chart["lines"]]
    assert [(band["color"], lines[band["low"]], lines[band["high"]], lines[band["of"]]) for band in chart["bands"]] == [
        (color, *(f"policy/{policy}/evaluation/return/{name}" for name in ("q25", "q75", "median")))
        for color, policy in enumerate(("red", "blue"))
    ]
    assert [line["label"] for line in chart["lines"] if not line["edge"]] == ["red, median", "blue, median"]


def test_a_rating_is_a_line_in_the_band_of_its_interval():
    names = [f"policy/{policy}/opponents/rating{end}" for policy in ("red", "blue") for end in ("", "/low", "/high")]
    (chart,) = charts_of(names, ["red", "blue"])
    told = [(band["label"], *(chart["lines"][band[end]]["name"] for end in ("of", "low", "high")))
            for band in chart["bands"]]  # fmt: skip
    assert told == [("95 % interval", *names[:3]), ("95 % interval", *names[3:])]
    assert [line["label"] for line in chart["lines"] if not line["edge"]] == ["red", "blue"]
    (before,) = charts_of(["opponents/rating"])
    assert before["bands"] == [], "early runs have no interval"


def test_a_metric_without_a_description_has_a_chart_of_its_own():
    (chart,) = charts_of(["{0}/<b>"])
    assert (chart["section"], chart["title"], chart["lines"][0]["name"]) == ("Other", "{0}/<b>", "{0}/<b>")
    assert charts_of(["policy/red/steps", "policy/", "policy/red/", "resumed"]) == []


@pytest.mark.parametrize(
    "name", ["cpu/0", "cpu/run", "memory/used", "network/sent", "role/rollout/cpu", "gpu/0/busy", "gpu/1/memory_used"]
)
def test_numbers_of_hardware_are_described(name):
    (chart,) = charts_of([name], known=HARDWARE)
    assert chart["section"] == "Hardware"


def test_every_metric_of_the_page_of_metrics_has_a_description():
    pages = "".join((DOCS / "reference" / name).read_text() for name in ("metrics.md", "metrics-of-learning.md"))
    names = {name for name in re.findall(r"^\| `([a-z_]+/[^`]+|[a-z_]+)` \|", pages, re.MULTILINE) if "/" in name}
    assert len(names) > 40
    assert [chart["title"] for chart in charts_of(names) if chart["section"] == "Other"] == []
    assert len({series.pattern for series in METRICS}) == len(METRICS)


def test_settings_and_opponents_of_a_hostile_status_do_not_make_its_tables_wide():
    matches = [(MatchStatus(f"o{n}", "a", 1, 0, 0, 1.0),) for n in range(100)]
    policies = [PolicyStatus(name="x", steps=1, tuned={f"t{n}": 1.0}, eval_matches=matches[n]) for n in range(100)]
    assert len([heading for heading in policies_table(policies) if heading.startswith("t")]) == MOST_COLUMNS
    status = Status(algorithm="ppo", env="x", steps=1, total_steps=1, seconds=1.0, policies=tuple(policies))
    games = games_html(games_of(status))
    assert games.count('col">against o') == MOST_COLUMNS and "24 of 100 opponents are shown" in games


def test_columns_are_named_once():
    assert len({column.name for column in COLUMNS}) == len(COLUMNS)


ONE_LINE = """
import asyncio, io, json, sys
from penstock.runs import descriptions, tables
from penstock.runs.descriptions import Column, Series

flow = Series("flow/rate", "Experience", "Flow through the pipe", unit="l/s", short="the flow")
descriptions.METRICS = (flow, *descriptions.METRICS)
descriptions.charts_of.__defaults__ = ((), descriptions.METRICS)
descriptions.COLUMNS += (Column("reason", "ended by", "text"),)
tables.POLICIES += (tables.Part("weights", lambda policy: f"version {policy.version}"),)
tables.NODES += (tables.Part("traffic", lambda node: f"{node.nbytes} bytes"),)

from rich.console import Console
from penstock.cli import main
from penstock.dashboard.catalogue import Catalogue
from penstock.dashboard.feed import Feed
from penstock.dashboard.server import Pages
from penstock.runs.panels import panels
from penstock.runs.reading import RecordedRun
from penstock.runs.state import status_of

folder = sys.argv[1]
run = RecordedRun.open(f"{folder}/run")
pages = Pages(Catalogue([folder]), False, lambda: False)
print(json.dumps({
    "page": Feed(run.directory.path).whole(), "overview": asyncio.run(pages.runs(None)).body.decode(),
    "tables": pages.catalogue.about(run)["shown"]["tables"],
}))
print("=")
Console(width=150).print(panels(status_of(run.status), (), 150))
print("=")
main(["runs", folder])
main(["report", f"{folder}/run", "--out", f"{folder}/report.html"])
"""


def test_a_new_number_has_one_line_and_is_in_page_terminal_table_and_report(tmp_path):
    pytest.importorskip("starlette", reason="the extra dashboard is not installed")
    run = record(tmp_path / "run", [(100, 5.0)])
    with open(run.directory.metrics, "a") as file:
        file.writelines(f'{{"steps": {n}, "seconds": {n}, "flow/rate": {n}.5}}\n' for n in (100, 200))
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    policies = [{"name": name, "steps": 9, "version": 77} for name in ("red", "blue")]
    nodes = [{"name": "node-0", "nbytes": 88}]
    changes = {"experience": {"flow/rate": 200.5}, "policies": policies, "nodes": nodes}
    (tmp_path / "run" / "status.json").write_text(json.dumps(status | changes))
    command = [sys.executable, "-c", ONE_LINE, tmp_path]
    page, terminal, table = subprocess.check_output(command, text=True, timeout=100).split("\n=\n")
    shown, report = json.loads(page), (tmp_path / "report.html").read_text()
    (chart,) = [chart for chart in shown["page"]["charts"] if chart["title"] == "Flow through the pipe"]
    assert (chart["section"], chart["unit"], chart["lines"][0]["name"]) == ("Experience", "l/s", "flow/rate")
    assert shown["tables"]["policies"]["weights"] == ["version 77"] * 2
    assert shown["tables"]["nodes"]["traffic"] == ["88 bytes"]
    assert "ended by" in shown["overview"] and "ended by" in table and "ended by" in report
    for words in ("Flow through the pipe", "l/s", "version 77", "88 bytes"):
        assert words in report
    for words in ("the flow", "200.5", "version 77", "88 bytes"):
        assert words in terminal
