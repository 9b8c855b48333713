"""The tests on isolated nodes run in a process of their own: Ray leaves threads, among which nothing forks safely."""

import os
import subprocess
import sys

import pytest

from tests.engine.isolated_nodes import why_not
from tests.places import ROOT

pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")
ASKED = "PENSTOCK_ISOLATED_NODES"
WHY_NOT = why_not() if ASKED in os.environ else f"they take some minutes: set {ASKED}=1"
TESTS = "tests/engine/on_isolated_nodes.py"


@pytest.mark.timeout(1_800)
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_what_is_true_of_two_machines_is_true_of_nodes_that_share_nothing_but_files_and_a_network_link():
    pytest_alone = [sys.executable, "-m", "pytest", "-v", "-p", "no:xdist", "-p", "no:cacheprovider", TESTS]
    done = subprocess.run(pytest_alone, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
