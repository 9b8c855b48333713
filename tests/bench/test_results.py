"""The pages show the stored results, and each stored result states correctly whether its target is met."""

import operator
import re
import runpy
import shlex

import pytest

from tests.commands import read as read_command
from tests.places import BENCH

FIELDS = {"group", "mark", "what", "value", "unit", "spread", "against", "target", "met", "machine", "commit", "rounds",
          "seeds", "date", "command"}  # fmt: skip

DRAWN_WITH = "3.11.2"


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    return runpy.run_path(str(BENCH / "results.py"), run_name="bench")


def holds(record: dict) -> bool | None:
    """Whether a record reaches its target, such as ">= 4.5 x", which is about the ratio, or "<= 4"."""
    if record["target"] is None:
        return None
    sign, bound, is_ratio = re.fullmatch(r"(>=|<=) (-?[\d.,]+)( x)?", record["target"]).groups()
    found = record["against"]["ratio"] if is_ratio else record["value"]
    return {">=": operator.ge, "<=": operator.le}[sign](found, float(bound.replace(",", "")))


def a_record(**changes) -> dict:
    record = {
        "group": "Rates", "what": "Pong", "value": 1642, "unit": "steps/s", "spread": {"lowest": 1605, "highest": None},
        "against": {"what": "a peer", "value": 687, "ratio": 2.39}, "target": ">= 2 x", "met": True, "rounds": 3,
        "seeds": None, "machine": "a CPU", "commit": "b0e3f48", "command": "penstock bench throughput",
    }  # fmt: skip
    return record | changes


def test_the_pages_show_what_is_stored(bench):
    stale = [page.name for page, text in bench["pages"]().items() if page.read_text() != text]
    assert stale == [], "out of date: run python bench/results.py --write"


def test_pictures_of_stored_runs_are_those_that_their_commands_draw(bench):
    matplotlib = pytest.importorskip("matplotlib")
    found = bench["pictures"]()
    assert [picture.name for picture in found] == ["cartpole-study.svg"]
    if matplotlib.__version__ != DRAWN_WITH:
        pytest.skip(f"they were drawn with matplotlib {DRAWN_WITH}: another one places text otherwise")
    stale = [picture.name for picture, drawn in found.items() if picture.read_bytes() != drawn]
    assert stale == [], "out of date: run python bench/results.py --write"


def test_a_command_that_fails_makes_no_page(bench):
    with pytest.raises(ValueError, match="exit code 2: penstock compare nowhere"):
        bench["printed"](("penstock", "compare", "nowhere", "--by", "algorithm"))


def test_a_row_shows_figure_spread_peer_target_and_where_it_comes_from(bench):
    missed = a_record(against=None, target="<= 4", met=False, commit=None, reported="dfc7a9f", seeds=5, rounds=None)
    _, _, group, *rows = bench["table"]([a_record(), missed]).splitlines()
    assert group.split("|")[1] == " **Rates** "
    assert rows == [
        "| Pong | 1,642 steps/s | from 1,605 | a peer: 687; **2.39 x** | >= 2 x | yes | 3 rounds | a CPU | b0e3f48 "
        "| <details><summary>command</summary>`penstock bench throughput`</details> |",
        "| Pong | 1,642 steps/s | from 1,605 |  | <= 4 | **no** | 5 seeds | a CPU | not kept, up to dfc7a9f "
        "| <details><summary>command</summary>`penstock bench throughput`</details> |",
    ]


def test_a_spread_has_the_interval_of_its_median_where_there_is_one(bench):
    spread = {"lowest": 264, "highest": 1208, "interval": [264, 408]}
    assert "| from 264 to 1,208; median within 264 to 408 (95 %) |" in bench["table"]([a_record(spread=spread)])


def test_a_page_without_a_place_for_the_table_is_refused(bench):
    with pytest.raises(ValueError, match="needs the lines"):
        bench["with_table"](f"# Page\n\n{bench['BEGIN']}\n", "| table |")


@pytest.mark.parametrize("name", ["current", "older"])
def test_stored_results_are_whole_and_true_to_their_targets(bench, name):
    for record in bench["read"](name):
        assert record.keys() >= FIELDS
        assert record["commit"] or record["reported"], record["mark"]
        assert record["met"] == holds(record), record["mark"]


def test_one_figure_stands_for_each_mark(bench):
    marks = [record["mark"] for record in bench["read"]("current")]
    assert len(set(marks)) == len(marks)


@pytest.mark.long
def test_the_penstock_commands_can_be_read(bench):
    shown = {record["command"] for name in ("current", "older") for record in bench["read"](name)}
    commands = sorted(each for each in shown if each.startswith("penstock "))
    assert any(command.startswith("penstock bench ideal ") for command in commands)
    for command in commands:
        read_command(shlex.split(command))
