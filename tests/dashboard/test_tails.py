"""Growing files are read by whole lines, and drawn small without hiding anything."""

import json
import math
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dashboard.tails import Columns, Cursor, new_lines, numbers_in


def line(steps, **values):
    return {"steps": steps, "seconds": steps / 10} | values


def test_only_whole_lines_are_read_and_each_once(tmp_path):
    path = tmp_path / "a"
    assert new_lines(path, Cursor()) == ([], Cursor(), True)
    path.write_bytes(b"one\ntwo\nthr")
    lines, cursor, is_same = new_lines(path, Cursor())
    assert (lines, cursor.offset, is_same) == ([b"one", b"two"], 8, True)
    assert new_lines(path, cursor)[0] == []
    with open(path, "ab") as file:
        file.write(b"ee\n")
    lines, cursor, is_same = new_lines(path, Cursor.read(str(cursor)))
    assert (lines, cursor.offset, is_same) == ([b"three"], 14, True)


def test_a_file_that_was_replaced_or_cut_is_read_anew_and_says_so(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"one\ntwo\n")
    cursor = new_lines(path, Cursor())[1]
    path.write_bytes(b"1\n")
    assert new_lines(path, cursor)[::2] == ([b"1"], False)
    (tmp_path / "b").write_bytes(b"another\nfile\n")
    os.replace(tmp_path / "b", path)
    assert new_lines(path, cursor)[::2] == ([b"another", b"file"], False)
    path.unlink()
    assert new_lines(path, cursor)[::2] == ([], False)


def test_a_large_file_is_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.dashboard.tails.MOST_NBYTES", 10)
    (tmp_path / "a").write_bytes(b"12345\n67890\n")
    first, cursor, _ = new_lines(tmp_path / "a", Cursor())
    second, _, _ = new_lines(tmp_path / "a", cursor)
    assert (first, second) == ([b"12345"], [b"67890"])


@pytest.mark.timeout(30)
def test_what_is_no_ordinary_file_has_no_lines(tmp_path):
    (tmp_path / "secret").write_text("secret\n")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for name in ("link", "fifo", "folder"):
        assert new_lines(tmp_path / name, Cursor())[0] == []


@pytest.mark.parametrize("text", ["", "x:1", "1:x", "1", "1:2:3"])
def test_what_is_no_cursor_is_refused(text):
    with pytest.raises(ValueError):
        Cursor.read(text)


def test_numbers_are_what_is_finite():
    text = b'{"steps": 1, "seconds": 2, "a": 0.5, "b": null, "c": "x", "d": true, "e": [1], "f": NaN, "g": Infinity}'
    assert numbers_in(text) == {"steps": 1, "seconds": 2, "a": 0.5}
    assert numbers_in(b'{"steps": 1, "seconds": 2, "resumed": true}') == {"steps": 1, "seconds": 2, "resumed": True}
    for wrong in (b"", b"[]", b"{", b'{"a": 1}', b'{"steps": "1", "seconds": 1}', b"\xff"):
        assert numbers_in(wrong) is None


def columns(*lines):
    made = Columns()
    for each in lines:
        made.add(each)
    return made.reduced(1000)


def test_columns_have_none_where_a_line_has_no_number():
    found = columns(line(1, a=5), line(2), line(3, b=7))
    assert found == {"steps": [1, 2, 3], "seconds": [0.1, 0.2, 0.3], "a": [5, None, None], "b": [None, None, 7]}


def test_a_resume_removes_what_it_undoes():
    found = columns(line(1, a=1), line(2, a=2), line(3, a=3), line(2) | {"resumed": True}, line(4, a=4))
    assert found["steps"] == [1, 2, 4] and found["a"] == [1, 2, 4]
    of_before = columns(line(1), line(2), line(3), {"steps": 2.5, "seconds": 0.1})
    assert of_before["steps"] == [1, 2, 2.5]


@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), st.floats(-1e6, 1e6)), min_size=1, max_size=200),
    st.integers(2, 40),
)
def test_no_spike_is_hidden(rows, most):
    made = Columns()
    for steps, values in enumerate(rows):
        made.add(line(steps, **values))
    found = made.reduced(most)
    assert len({len(column) for column in found.values()}) == 1
    assert len(found["steps"]) <= max(most, 1) and found["steps"] == sorted(found["steps"])
    for name in "abc":
        known = [values[name] for values in rows if name in values]
        if known:
            shown = [value for value in found[name] if value is not None]
            assert (min(shown), max(shown)) == (min(known), max(known))
    json.dumps(found, allow_nan=False)


def test_few_rows_stay_as_they_are():
    made = Columns()
    for steps in range(10):
        made.add(line(steps, a=math.sin(steps)))
    assert np.allclose(made.reduced(10)["a"], np.sin(range(10)))
