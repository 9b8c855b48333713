"""The lineage of a population counts the lines that it holds, whatever the disk takes."""

from penstock.population.lineage import Lineage
from penstock.runs.files import LinesLog
from tests.runs.limits import files_no_larger_than


def test_a_full_disk_is_warned_of_once_and_lines_that_are_missing_are_not_counted(tmp_path):
    warnings: list[str] = []
    lineage = Lineage(LinesLog(tmp_path / "lineage.jsonl", warnings.append), ["a", "b"])
    lineage.start(0, {"gamma": 0.9})
    with files_no_larger_than((tmp_path / "lineage.jsonl").stat().st_size + 10):
        for steps in range(3):
            lineage.set(1, steps, {"gamma": 0.5})
    assert lineage.count == 1 and len(warnings) == 1 and "lineage.jsonl cannot be written" in warnings[0]
    lineage.set(1, 7, {"gamma": 0.7})
    assert lineage.truncate(lineage.count) == {"a": {"gamma": 0.9}, "b": {"gamma": 0.7}}
    assert len((tmp_path / "lineage.jsonl").read_text().splitlines()) == 2


def test_without_a_file_events_are_counted():
    lineage = Lineage(LinesLog(None, print), ["a"])
    lineage.start(0, {})
    assert lineage.count == 1
