"""Numbers of lines as columns: what stands, small enough to draw, and two numbers picked as if all were read."""

import json
import math
import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.runs.series import MOST_NAMES, Columns, numbers_in, picked, points_in, standing_rows


def line(steps, seconds=None, **values):
    return {"steps": steps, "seconds": steps / 10 if seconds is None else seconds} | values


def stand(*lines):
    steps, seconds, marks = np.array([(each["steps"], each["seconds"], "resumed" in each) for each in lines]).T
    return steps[standing_rows(steps, seconds, marks > 0)].tolist()


def test_what_a_resume_undid_is_left_out():
    lines = [line(100), line(200), line(150, 20.1), line(300), line(200, 19.0, resumed=True), line(250), line(350)]
    assert stand(*lines) == [100, 200, 150, 250, 350]


def test_an_evaluation_of_weights_that_stand_stays_though_it_came_after_the_checkpoint():
    assert stand(line(900, 120.0), line(1000, 110.0, resumed=True), line(1100, 121.0)) == [900, 1100]


def test_of_an_earlier_penstock_seconds_that_go_back_say_it():
    assert stand(line(100), line(200), line(300), line(220, 22.0), line(320, 32.0)) == [100, 200, 220, 320]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=30))
def test_what_stands_is_what_is_left_when_lines_are_taken_one_by_one(lines):
    kept, before = [], 0
    for n, (steps, seconds, is_marker) in enumerate(lines):
        if is_marker or seconds < before:
            kept = [other for other in kept if lines[other][0] <= steps]
        before = seconds
        if not is_marker:
            kept.append(n)
    steps, seconds, marks = np.array(lines, float).reshape(-1, 3).T
    assert np.flatnonzero(standing_rows(steps, seconds, marks > 0)).tolist() == kept


NAMES = ["a", "b/c", 'q"', "x, y"]
STRANGE = st.sampled_from([None, True, "", ', "a": 1', '\\", "a": 1', "}\n{", math.nan, math.inf, 10**400])
VALUES = st.dictionaries(st.sampled_from(NAMES), STRANGE | st.floats(-1e9, 1e9) | st.integers(-9, 9), max_size=4)


@given(st.lists(st.tuples(st.integers(0, 99), VALUES, st.booleans()), max_size=20), st.sampled_from([None, (",", ":")]))
def test_two_numbers_are_picked_as_if_all_were_read(rows, separators):
    lines = []
    for n, (steps, values, is_marker) in enumerate(rows):
        what = {"resumed": True} if is_marker else values
        lines.append(json.dumps(line(steps, float(n), time=1e9 + n) | what, separators=separators))
    whole = Columns()
    whole.add(each.encode() for each in lines)
    everything = whole.reduced(10**6)
    for name in NAMES:
        x, y = points_in(picked("\n".join(lines).encode(), "steps", name))
        column = everything.get(name, [None] * len(everything.get("steps", [])))
        rows_of_all = zip(everything.get("steps", []), column, strict=True)
        known = [(at, value) for at, value in rows_of_all if value is not None]
        assert list(zip(x, y, strict=True)) == sorted(known, key=lambda point: point[0])


def test_lines_of_an_earlier_penstock_and_broken_ones_are_picked_too():
    text = b'{"steps": 3, "seconds": 9, "a": 1}\nnothing\n{"steps": 1, "seconds": 2, "a": 4}\n{"a": 5}'
    assert [part.tolist() for part in points_in(picked(text, "steps", "a"))] == [[1.0], [4.0]]
    broken = b'{"steps": 1, "seconds": 2, "time": 3, "a": 4}\n{"steps": 2, "seconds": 3, "time": 4, "a": 55\n, "a": 6'
    assert [part.tolist() for part in points_in(picked(broken, "time", "a"))] == [[3.0], [4.0]]
    assert points_in(picked(b"", "steps", "a"))[0].size == 0
    undone = b'{"steps": 3, "seconds": 9, "a": 1}\n{"steps": 1, "seconds": 1}\n{"steps": 5, "seconds": 2, "a": 4}'
    assert points_in(picked(undone, "steps", "a"))[0].tolist() == [5.0], "a line without it undoes, too"


def test_numbers_are_what_is_finite():
    text = b'{"steps": 1, "seconds": 2, "a": 0.5, "b": null, "c": "x", "d": true, "e": [1], "f": NaN, "g": Infinity}'
    assert numbers_in(text) == {"steps": 1, "seconds": 2, "a": 0.5}
    assert numbers_in(b'{"steps": 1, "seconds": 2, "resumed": true}') == {"steps": 1, "seconds": 2, "resumed": True}
    huge = b"1" * 400
    for wrong in (b"", b"[]", b"{", b'{"a": 1}', b'{"steps": "1", "seconds": 1}', b"\xff", b"[" * 10**5):
        assert numbers_in(wrong) is None
    assert numbers_in(b'{"steps": 1, "seconds": 2, "a": ' + huge + b"}") == {"steps": 1, "seconds": 2}


def columns(*lines):
    made = Columns()
    made.add(json.dumps(each).encode() for each in lines)
    return made.reduced(1000)


def test_a_range_has_most_of_the_rows_and_all_of_its_own_if_there_is_room():
    made = Columns()
    made.add(json.dumps(line(steps, a=steps % 7)).encode() for steps in range(100_000))
    found = made.reduced(1000, ("steps", 50_000, 50_299))
    inside = {steps for steps in found["steps"] if steps is not None and 50_000 <= steps < 50_300}
    assert inside == set(range(50_000, 50_300)) and found["steps"][0] == 0 and found["steps"][-1] == 99_999
    assert len(set(made.reduced(1000)["steps"]) & inside) < 6
    assert made.reduced(1000, ("steps", 200_000, 300_000)) == made.reduced(1000)


def test_columns_have_none_where_a_line_has_no_number():
    found = columns(line(1, a=5), line(2), line(3, b=7, c="text", d=math.inf, e=10**400))
    assert found == {"steps": [1, 2, 3], "seconds": [0.1, 0.2, 0.3], "a": [5, None, None], "b": [None, None, 7]}


def test_columns_are_the_same_whatever_the_pieces_they_come_in():
    lines = [json.dumps(line(n, **({"a": n} if n % 3 else {"b": n}))).encode() for n in range(20)]
    lines.insert(12, json.dumps(line(5, 9.0, resumed=True)).encode())
    at_once, piecewise = Columns(), Columns()
    at_once.add(lines)
    for begin in range(0, len(lines), 4):
        piecewise.add(lines[begin : begin + 4])
    assert at_once.reduced(100) == piecewise.reduced(100)
    assert at_once.reduced(100)["steps"] == [*range(6), *range(12, 20)]


@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), st.floats(-1e6, 1e6)), min_size=1, max_size=200),
    st.integers(2, 40),
    st.none() | st.tuples(st.sampled_from(["steps", "a"]), st.integers(-9, 210), st.integers(-9, 210)),
)
def test_no_spike_is_hidden(rows, most, within):
    made = Columns()
    made.add(json.dumps(line(steps, **values)).encode() for steps, values in enumerate(rows))
    found = made.reduced(most, within)
    assert len({len(column) for column in found.values()}) == 1
    assert len(found["steps"]) <= max(most, 1) and found["steps"] == sorted(found["steps"])
    for name in "abc":
        known = [values[name] for values in rows if name in values]
        if known:
            shown = [value for value in found[name] if value is not None]
            assert (min(shown), max(shown)) == (min(known), max(known))
    json.dumps(found, allow_nan=False)


def test_few_rows_stay_as_they_are():
    assert np.allclose(columns(*(line(n, a=math.sin(n)) for n in range(10)))["a"], np.sin(range(10)))


def test_a_name_costs_the_lines_that_have_it_and_no_others():
    lines = [json.dumps(line(n, **{f"metrics/{n}": n})).encode() for n in range(MOST_NAMES - 2)]
    tracemalloc.start()
    made = Columns()
    made.add(lines)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10_000 * len(lines), "padded to all lines each name has 33 KB"
    found = made.reduced(10**6)
    assert len(found) == MOST_NAMES and made.left_out == 0
    assert [value for value in found["metrics/17"] if value is not None] == [17.0] == [found["metrics/17"][17]]


def test_numbers_of_too_many_names_are_left_out_and_counted():
    made = Columns(most_names=4)
    made.add(json.dumps(line(n, a=n, **{f"b{n}": n, f"c{n}": None})).encode() for n in range(5))
    made.add([json.dumps(line(5, a=5, b0=9, b1=9)).encode()])
    found = made.reduced(100)
    assert set(found) == {"steps", "seconds", "a", "b0"} and made.left_out == 5
    assert found["b0"] == [0, None, None, None, None, 9]
