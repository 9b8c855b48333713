"""Runs and replay files of the last minor versions, written by tools/release/golden.py, open, play and go on."""

import json
import shutil

import numpy as np
import pytest

import penstock
from penstock.runs.reading import find_runs
from tests.places import ROOT
from tools.release.golden import BUFFERS, RUNS, actions, digests, make_buffer, make_cpprb_buffer

VERSIONS = sorted((ROOT / "tests" / "data" / "golden").iterdir())
EXPECTED = {version: json.loads((version / "expected.json").read_text()) for version in VERSIONS}

pytestmark = pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)


def test_every_kind_of_run_and_buffer_is_kept(version):
    assert EXPECTED[version]["runs"].keys() == {path.name for path in (version / "runs").iterdir()}
    assert EXPECTED[version]["replay"].keys() == {path.stem for path in (version / "replay").iterdir()}
    if version.name == ".".join(penstock.__version__.split(".")[:2]):
        assert EXPECTED[version]["runs"].keys() == RUNS.keys()
        assert EXPECTED[version]["replay"].keys() == {*BUFFERS, "transitions"}


def test_the_files_of_runs_are_read(version):
    found = {run.name: run for run in find_runs([version / "runs"])}
    assert found.keys() == EXPECTED[version]["runs"].keys()
    for name, expected in EXPECTED[version]["runs"].items():
        assert (found[name].state, found[name].summary["steps"]) == ("done", expected["steps"]), name


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", RUNS)
def test_a_golden_run_plays_as_it_did_and_goes_on(version, name, tmp_path):
    expected = EXPECTED[version]["runs"][name]
    run = tmp_path / name
    shutil.copytree(version / "runs" / name, run)
    for found, before in zip(actions(run, RUNS[name][1]), expected["actions"], strict=True):
        np.testing.assert_allclose(found, before, atol=1e-5)
    with penstock.Trainer.resume(run, total_steps=expected["steps"] + 100) as trainer:
        assert trainer.status.steps == expected["steps"]
        result = trainer.train(quiet=True)
        assert trainer.status.updates > 0
    assert result.steps >= expected["steps"] + 100
    if "replay" in name:
        log = (run / "log.txt").read_text()
        assert "buffer is empty" not in log and "replay are empty" not in log


@pytest.mark.parametrize("name", BUFFERS)
def test_a_golden_buffer_has_its_rows_and_draws_as_it_would_have(version, name):
    expected, buffer = EXPECTED[version]["replay"][name], make_buffer(name)
    buffer.load(version / "replay" / name)
    assert digests(buffer.get_all()) == expected["rows"]
    assert buffer.sample(16)["ids"].tolist() == expected["draws"]


def test_golden_transitions_of_the_drop_in_are_read(version):
    buffer = make_cpprb_buffer()
    buffer.load_transitions(str(version / "replay" / "transitions.npz"))
    assert digests(buffer.get_all_transitions()) == EXPECTED[version]["replay"]["transitions"]["rows"]
