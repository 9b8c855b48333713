"""Trainings on two nodes that share nothing with home but a network link, and where a test says so a folder."""

import json
import os
import re
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.runs.lookup import checkpoint_to_resume
from penstock.runs.reading import find_runs
from tests.engine.isolated_nodes import IsolatedCluster, why_not
from tests.engine.processes import started, wait_until
from tests.places import ROOT

pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")
pytest.importorskip("optuna")
pytestmark = [pytest.mark.timeout(300), pytest.mark.skipif(bool(why_not()), reason=why_not())]
TINY = [
    "--env", "CartPole-v1", "--num-workers", "1", "--num-envs-per-worker", "2", "--segment-length", "32",
    "--batch-size", "64", "--hidden-sizes", "8", "--num-epochs", "1", "--eval-episodes", "2",
]  # fmt: skip
BEGUN = 120.0  # seconds: Ray starts a process, which imports torch, on a machine that others use


@pytest.fixture(scope="module")
def nodes():
    """A head without cores at home, and two nodes of one core."""
    with IsolatedCluster("left", "right") as made:
        yield made


@pytest.fixture
def cluster(nodes):
    """The cluster with all nodes; at the end nothing of a training is left on any."""
    nodes.start()
    yield nodes
    wait_until(lambda: not any(left_on(node) for node in nodes.nodes.values()), "nothing of a training is left")


def left_on(node) -> list[str]:
    """Processes and folders of trainings on a node."""
    return [str(each) for each in node.of_a_run()] + [
        name for name in os.listdir(f"/proc/{node._first.pid}/root/tmp") if name.startswith("penstock-")
    ]


def multirun(cluster, *args):
    command = ["-m", "penstock.cli", "multirun", "ppo", *TINY, "--name", "n", *args]
    return [*command, "--backend", "ray", "--address", cluster.address]


def wait_for_runs(cluster, process, condition, what):
    """Wait until a condition holds for the runs of a command; show the command's output if it does not.

    A busy machine may cost a node its Ray, which is then started anew.
    """
    try:
        wait_until(lambda: cluster.keep() or process.poll() is not None or condition(), what, BEGUN)
        assert process.poll() is None, f"the command has ended before {what}"
    except AssertionError as error:
        process.kill()
        raise AssertionError(f"{error}:\n{process.communicate()[0]}") from None


def saved_steps(run: Path) -> int:
    """Steps of the newest checkpoint that is at home."""
    found = checkpoint_to_resume(run) if (run / "config.json").exists() else None
    return 0 if found is None else found["steps"]


@pytest.mark.long
def test_ctrl_c_saves_all_runs_in_a_folder_that_is_shared(cluster):
    folder = Path(tempfile.mkdtemp(dir=ROOT, prefix=".shared-"))
    try:
        args = ["--seeds", "2", "--total-steps", "100000000", "--eval-interval", "0"]
        with started(multirun(cluster, *args), folder) as process:
            runs = [folder / "runs" / "n" / f"CartPole-v1-ppo-seed{seed}" for seed in range(2)]
            learn = lambda: all((run / "metrics.jsonl").exists() for run in runs)  # noqa: E731
            wait_for_runs(cluster, process, learn, "both runs learn")
            assert not any("trial" in name for node in cluster.nodes.values() for name in left_on(node))
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=BEGUN)[0]
        assert process.returncode == 130 and said.strip().endswith("2 interrupted\nthe same command resumes"), said
        assert all(saved_steps(run) for run in runs)
    finally:
        shutil.rmtree(folder)


@pytest.mark.long
def test_a_search_on_the_cluster_is_the_same_search_as_here(cluster, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("space.toml").write_text("[learning_rate]\nlow = 1e-4\nhigh = 1e-2\nlog = true\n")
    search = ["search", "ppo", *TINY, "--space", "space.toml", "--trials", "2", "--total-steps", "256", "--dir", "s"]
    ours = ["--backend", "ray", "--address", cluster.address]
    with started(["-m", "penstock.cli", *search, *ours], tmp_path) as process:
        said = process.communicate(timeout=2 * BEGUN)[0]
    assert process.returncode == 0 and "2 trials: 2 done" in said, said
    assert main(search) == 0  # as many trials as wanted are there: none is trained here
    shown = capsys.readouterr().out
    assert "trial 0: " not in shown and shown.partition("\n")[2] in said
    assert {path.name for path in Path("s").iterdir() if path.is_dir()} >= {f"trial-{n}-seed-0" for n in range(2)}


@pytest.mark.long
def test_members_of_a_population_copy_each_other_from_node_to_node(cluster, tmp_path):
    (tmp_path / "space.toml").write_text("[learning_rate]\nlow = 1e-5\nhigh = 1e-2\nlog = true\n")
    pbt = ["pbt", "ppo", *TINY, "--space", "space.toml", "--population", "2", "--total-steps", "4096", "--dir", "p"]
    settings = ["--pbt-interval", "2048", "--pbt-fraction", "0.5", "--pbt-episodes", "2", "--eval-interval", "0"]
    ours = ["--backend", "ray", "--address", cluster.address]
    with started(["-m", "penstock.cli", *pbt, *settings, *ours], tmp_path) as process:
        said = process.communicate(timeout=2 * BEGUN)[0]
    assert process.returncode == 0 and "best: p/member-" in said, said
    lines = [json.loads(line) for line in (tmp_path / "p" / "lineage.jsonl").read_text().splitlines()]
    assert any(line["event"] == "exploit" for line in lines), said
    assert all(saved_steps(tmp_path / "p" / f"member-{number}") >= 4096 for number in range(2))


@pytest.mark.long
def test_what_no_node_has_and_where_no_cluster_is_are_said_at_once(cluster, tmp_path):
    def said(*more):
        with started([*multirun(cluster, "--total-steps", "64"), *more], tmp_path) as process:
            return process.communicate(timeout=BEGUN)[0], process.returncode

    out, code = said("--num-workers", "64", "--device", "cuda")
    assert code == 2 and "asks for 64 cores and 1 GPU of one node, but no node of the cluster" in out
    assert "left (1 cores)" in out and "right (1 cores)" in out and "home" not in out
    out, code = said("--address", "127.0.0.1:1")
    assert code == 2 and "there is no Ray cluster there" in out
    assert not (tmp_path / "runs" / "n" / "output").exists()


@pytest.mark.long
def test_a_node_with_other_versions_is_refused_by_name(cluster, tmp_path):
    other = (
        "import sys; from dataclasses import replace; from penstock.trials import cluster\n"
        "from penstock.cli import main\n"
        "found = cluster.about_here(); versions = {**found.versions, 'torch': '1.0'}\n"
        "cluster.about_here = lambda: replace(found, versions=versions)\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    args = multirun(cluster, "--total-steps", "64")[2:]
    with started(["-c", other, *args], tmp_path) as process:
        said = process.communicate(timeout=BEGUN)[0]
    assert process.returncode == 2 and re.search(r"the node (left|right) has torch \S+ \(home has 1\.0\)", said), said


@pytest.mark.long
def test_runs_use_both_nodes_and_a_killed_node_costs_none_of_them(cluster, tmp_path):
    args = ["--seeds", "2", "--total-steps", "30000", "--checkpoint-interval", "1000", "--eval-interval", "0"]
    runs = [tmp_path / "runs" / "n" / f"CartPole-v1-ppo-seed{seed}" for seed in range(2)]
    with started(multirun(cluster, *args), tmp_path) as process:
        is_saved = lambda: all(saved_steps(run) for run in runs)  # noqa: E731
        wait_for_runs(cluster, process, is_saved, "checkpoints of both runs are at home")
        (lost,) = [run for run in runs if json.loads((run / "status.json").read_text())["process"]["host"] == "right"]
        before = saved_steps(lost)
        cluster.nodes["right"].kill_raylet()
        said = process.communicate(timeout=BEGUN)[0]
    assert process.returncode == 0 and said.strip().endswith("2 done"), said
    assert {*re.findall(r"on node (\w+)", said)} == {"left", "right"}
    assert f"{lost.name}: its node was lost" in said and f"{lost.name}: resumes" in said
    found = {run.directory.path.name: run for run in find_runs([tmp_path / "runs"])}
    assert [found[run.name].state for run in runs] == ["done", "done"]
    (again,) = found[lost.name].directory.info["resumed"]
    assert before <= again["steps"] < 30_000
    assert found[lost.name].directory.config["run_dir"] == str(lost)
    assert not list(tmp_path.rglob(".*.aside")) and not list(tmp_path.rglob(".*.shared"))
