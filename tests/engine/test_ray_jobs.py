"""A run that is submitted as a job to a Ray cluster, by Ray's own command."""

import contextlib
import socket
import subprocess
import sys

import pytest

cluster_utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")
pytest.importorskip("aiohttp_cors", reason='Ray is not installed with its dashboard: pip install "ray[default]"')
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
STORE = 100 * 2**20


@pytest.fixture
def dashboard():
    """Address of the dashboard of a cluster: a head without cores, and a node of one.

    Agents listen on ports of their own: on the usual one, those of another test's cluster may listen.
    """
    with contextlib.ExitStack() as probes:
        held = [probes.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        port, *agents = [probe.getsockname()[1] for probe in held]
    head = {"num_cpus": 0, "include_dashboard": True, "dashboard_port": port, "dashboard_agent_listen_port": agents[0]}
    made = cluster_utils.Cluster(initialize_head=True, head_node_args=head | {"object_store_memory": STORE})
    made.add_node(num_cpus=1, object_store_memory=STORE, dashboard_agent_listen_port=agents[1])
    yield f"http://127.0.0.1:{port}"
    made.shutdown()


def test_a_submitted_job_trains_on_the_cluster_and_its_output_comes_back(dashboard, tmp_path):
    train = [
        sys.executable, "-m", "penstock.cli", "train", "ppo", "--env", "CartPole-v1", "--backend", "ray",
        "--address", "auto", "--nodes", "all", "--total-steps", "2048", "--run-dir", str(tmp_path / "run"),
    ]  # fmt: skip
    submit = [sys.executable, "-m", "ray.scripts.scripts", "job", "submit", "--address", dashboard, "--"]
    while True:  # the dashboard answers before its agents are there
        done = subprocess.run([*submit, *train], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if "No available agent to submit job" not in done.stdout:
            break
    assert done.returncode == 0, done.stdout
    assert "nodes='all': 1 node of the cluster" in done.stdout and "succeeded" in done.stdout
    assert list((tmp_path / "run" / "checkpoints").iterdir())
