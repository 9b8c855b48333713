"""Values that travel to other processes: what is defined in scripts and notebooks, by value."""

import gc
import os
import pickle
import subprocess
import sys
import threading
import traceback

import numpy as np
import pytest

from penstock.serialization import Parcel, leaving_machine, packed

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


def test_a_large_value_is_pickled_without_its_memory_and_opened_by_another_process():
    value = {"table": np.arange(300_000.0), "names": ["a", "b"]}
    parcel = Parcel(value)
    assert parcel.nbytes > 2_400_000 and len(pickle.dumps(parcel)) < 1_000
    code = "import pickle, sys; v = pickle.load(sys.stdin.buffer).open(); print(v['table'].sum(), v['names'])"
    found = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(parcel), capture_output=True, check=True)
    assert found.stdout.decode() == f"{value['table'].sum()} ['a', 'b']\n"


def test_who_opens_a_parcel_may_write_into_it_and_no_other_sees_that():
    parcel = Parcel(np.zeros(300_000))
    one, other = parcel.open(), parcel.open()
    one[:] = 7.0
    assert other.sum() == 0.0 and parcel.open().sum() == 0.0


def test_a_parcel_that_leaves_the_machine_takes_its_memory_along():
    parcel = Parcel(np.ones(300_000))
    with leaving_machine():
        whole = pickle.dumps(parcel)
    place = parcel._at
    del parcel
    gc.collect()
    assert not os.path.exists(place), "nothing is left open"
    assert pickle.loads(whole).open().sum() == 300_000


def test_a_small_value_travels_as_bytes():
    parcel = Parcel([1, np.zeros(3)])
    assert parcel.nbytes == 0 and pickle.loads(pickle.dumps(parcel)).open()[0] == 1
