"""Fixtures of the benches' tests: a machine whose rates are a formula."""

import sys
from types import SimpleNamespace

import pytest

from tests.bench.modelled import Machine
from tests.places import BENCH

sys.path.append(str(BENCH))  # for what its scripts share


@pytest.fixture(autouse=True, scope="module")
def in_one_command(kept_launcher):
    """Trainings and pieces of work follow each other as in one command."""


@pytest.fixture
def machine(monkeypatch):
    """A machine on which all settings are alike, until a test says otherwise."""
    modelled = Machine(lambda config: 10_000.0)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr("penstock.ipc.limits.cpu_quota", lambda: None)
    monkeypatch.setattr("penstock.bench.engine_run.run_engine", modelled.run_engine)
    for module in ("search", "autotune"):  # the command says when the search is to be done
        monkeypatch.setattr(f"penstock.bench.{module}.time", SimpleNamespace(monotonic=lambda: modelled.now))
    return modelled
