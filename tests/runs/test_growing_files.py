"""Growing files are read by whole lines, each once."""

import os

import pytest

from penstock.runs.growing import Cursor, read_on, stretches


def lines_behind(path, cursor):
    found = read_on(path, cursor)
    return found.lines, found.cursor, found.is_same


def test_only_whole_lines_are_read_and_each_once(tmp_path):
    path = tmp_path / "a"
    assert lines_behind(path, Cursor()) == ([], Cursor(), True)
    path.write_bytes(b"one\ntwo\nthr")
    lines, cursor, is_same = lines_behind(path, Cursor())
    assert (lines, cursor.offset, is_same) == ([b"one", b"two"], 8, True)
    assert lines_behind(path, cursor)[0] == []
    with open(path, "ab") as file:
        file.write(b"ee\n")
    lines, cursor, is_same = lines_behind(path, Cursor.read(str(cursor)))
    assert (lines, cursor.offset, is_same) == ([b"three"], 14, True)


def test_a_file_that_was_replaced_or_cut_is_read_anew_and_says_so(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"one\ntwo\n")
    cursor = lines_behind(path, Cursor())[1]
    path.write_bytes(b"1\n")
    assert lines_behind(path, cursor)[::2] == ([b"1"], False)
    (tmp_path / "b").write_bytes(b"another\nfile\n")
    os.replace(tmp_path / "b", path)
    assert lines_behind(path, cursor)[::2] == ([b"another", b"file"], False)
    path.unlink()
    assert lines_behind(path, cursor)[::2] == ([], False)


def test_a_large_file_is_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.runs.growing._MOST_NBYTES", 10)
    (tmp_path / "a").write_bytes(b"12345\n67890\n")
    found = list(stretches(tmp_path / "a", Cursor()))
    assert [stretch.lines for stretch in found] == [[b"12345"], [b"67890"], []]
    assert [stretch.lines for stretch in stretches(tmp_path / "a", found[-1].cursor)] == [[]]


def test_of_a_file_that_was_replaced_everything_is_read_again(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"one\ntwo\n")
    cursor = read_on(path, Cursor()).cursor
    path.write_bytes(b"1\n")
    found = list(stretches(path, cursor))
    assert [(stretch.lines, stretch.is_same) for stretch in found] == [([b"1"], False), ([], True)]


@pytest.mark.timeout(30)
def test_what_is_no_ordinary_file_has_no_lines(tmp_path):
    (tmp_path / "secret").write_text("secret\n")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for name in ("link", "fifo", "folder"):
        assert lines_behind(tmp_path / name, Cursor())[0] == []


@pytest.mark.parametrize("text", ["", "x:1", "1:x", "1", "1:2:3"])
def test_what_is_no_cursor_is_refused(text):
    with pytest.raises(ValueError):
        Cursor.read(text)
