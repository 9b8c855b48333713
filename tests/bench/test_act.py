"""Microseconds of one action: every way to act is measured."""

import re

import pytest

from tests.places import BENCH
from tests.scripts import run_script

WAYS = ("policy.act", "plain torch", "onnxruntime", "C through ctypes", "C within C", "NumPy by hand")


@pytest.mark.long
def test_every_way_to_act_has_a_row(tmp_path):
    printed = run_script(BENCH / "act.py", "--rounds", "1", "--calls", "2", folder=tmp_path)
    rows = re.findall(r"^(MLP 64x64(?: and GRU 128)?) +(\S.*?\S) +[\d.]+ +[\d.]+$", printed, re.MULTILINE)
    assert {way for network, way in rows if network == "MLP 64x64"} >= set(WAYS)
    assert [way for network, way in rows if network != "MLP 64x64"] == list(WAYS[:3])
    assert not list(tmp_path.iterdir())
