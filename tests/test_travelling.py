"""Values that travel to other processes: what is defined in scripts and notebooks, by value."""

import pickle
import threading
import traceback

import pytest

from penstock.travelling import packed

NOTEBOOK = """
def maker(divisor):
    class Env:
        def step(self):
            return [1 / (place - divisor) for place in range(3)]
    return Env
"""


@pytest.fixture
def maker():
    """A function that no process can import, as of a cell of a notebook."""
    names = {"__name__": "__main__"}
    exec(compile(NOTEBOOK, "cell-7.ipynb", "exec"), names)
    return names["maker"]


def test_what_cannot_be_imported_travels_by_value(maker):
    assert pickle.loads(packed(maker(5)))().step() == [-1 / 5, -1 / 4, -1 / 3]


def test_a_traceback_of_what_has_travelled_names_its_file_and_line_in_inner_functions_too(maker):
    env = pickle.loads(packed({"made": maker(1)}))["made"]()
    with pytest.raises(ZeroDivisionError) as raised:
        env.step()
    frames = traceback.extract_tb(raised.value.__traceback__)[1:]
    assert {(frame.filename, frame.lineno) for frame in frames} == {("cell-7.ipynb", 5)}
    assert frames[0].name == "step"


def test_what_cannot_travel_says_so():
    with pytest.raises(TypeError, match="cannot pickle"):
        packed(threading.Lock())
