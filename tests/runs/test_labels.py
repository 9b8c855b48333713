"""Tags and notes are the user's: kept with the run, read with limits, and written over nothing else."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError

import pytest

from penstock.cli import main
from penstock.runs.labels import LABELS, Labels, LabelsError, change_labels, read_labels
from tests.studies.recorded import record


def test_labels_are_read_as_they_were_written(tmp_path):
    assert read_labels(tmp_path) == Labels()
    labels = Labels(("a", "b/c:1"), "first\nsecond", archived=True)
    change_labels(tmp_path, lambda _: labels)
    assert read_labels(tmp_path) == labels


@pytest.mark.parametrize("tag", ["", "two words", "a,b", "-x", "a\x1b[2J", "x" * 41, "<b>"])
def test_words_that_are_no_tags_are_refused(tmp_path, tag):
    with pytest.raises(LabelsError, match="is not a tag"):
        change_labels(tmp_path, lambda _: Labels((tag,)))
    assert not (tmp_path / LABELS).exists()


OTHER = '{"format": "other", "tags": [], "note": "", "archived": false}'


@pytest.mark.parametrize("text", ["mine", '{"tags": ["mine"]}', OTHER])
def test_a_file_of_another_program_stays_as_it_is(tmp_path, text):
    (tmp_path / LABELS).write_text(text)
    with pytest.raises(LabelsError, match="is left as it is"):
        change_labels(tmp_path, lambda _: Labels(("a",)))
    assert (tmp_path / LABELS).read_text() == text and read_labels(tmp_path) == Labels()


@pytest.mark.parametrize(
    "change", [{"tags": "a"}, {"tags": ["<b>"]}, {"note": 3}, {"note": "x" * 4001}, {"tags": ["a"] * 30_000}]
)
def test_labels_of_a_hostile_copy_are_empty(tmp_path, change):
    found = {"format": "penstock labels", "tags": ["a"], "note": "", "archived": False, **change}
    (tmp_path / LABELS).write_text(json.dumps(found))
    assert read_labels(tmp_path) == Labels()


def test_a_link_is_neither_read_nor_replaced(tmp_path):
    aim, run = tmp_path / "aim.json", tmp_path / "run"
    run.mkdir()
    change_labels(tmp_path, lambda _: Labels(("a",)))
    (tmp_path / LABELS).rename(aim)
    (run / LABELS).symlink_to(aim)
    assert read_labels(run) == Labels()
    with pytest.raises(LabelsError, match="not an ordinary file"):
        change_labels(run, lambda _: Labels(("b",)))
    assert (run / LABELS).is_symlink() and json.loads(aim.read_text())["tags"] == ["a"]


def test_no_tag_is_lost_where_several_are_given_at_once(tmp_path):
    everyone_has_read = Barrier(4)

    def add(tag: str) -> None:
        def changed(labels: Labels) -> Labels:
            with suppress(BrokenBarrierError):
                everyone_has_read.wait(0.2)
            return Labels((*labels.tags, tag))

        change_labels(tmp_path, changed)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, "abcd"))
    assert set(read_labels(tmp_path).tags) == set("abcd")


def test_the_command_tags_finds_and_hides(tmp_path, capsys):
    one, two = (record(tmp_path / name, [(1, 1.0)]) for name in ("one", "two"))
    paths = [str(run.directory.path) for run in (one, two)]
    assert main(["tag", *paths, "--add", "baseline,old", "--note", "ran on Monday"]) == 0
    assert main(["tag", paths[0], "--remove", "old", "--archive"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == f"{paths[0]}: baseline; archived; ran on Monday"
    assert main(["runs", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert " two " in out and " one " not in out and "baseline,old" in out
    assert out.splitlines()[-1] == "1 run, 1 other not shown, 1 of them archived"
    assert main(["runs", str(tmp_path), "--archived", "--where", "tags=*baseline*"]) == 0
    assert " one " in capsys.readouterr().out
    assert main(["tag", paths[0], "--unarchive"]) == 0
    assert main(["tag", *paths, "--add", "two words"]) == 2
    assert main(["tag", paths[0], "--archive", "--unarchive"]) == 2 and main(["tag"]) == 2
    assert read_labels(one.directory.path) == Labels(("baseline",), "ran on Monday")
