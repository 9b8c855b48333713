"""Nodes with networks, process numbers and shared memory of their own, like separate machines.

pytest runs these tests where it is given this file; `test_isolated_nodes.py` does so.
"""

import re
import time

import numpy as np
import pytest

from penstock.algorithms.appo import APPO
from penstock.algorithms.ppo import PPO
from penstock.engine.trainer import Trainer
from tests.engine.inside import nodes_of
from tests.engine.isolated_nodes import IsolatedCluster
from tests.engine.processes import script, wait_for_line, wait_until

pytestmark = pytest.mark.timeout(600)
CARTPOLE = {"env": "CartPole-v1", "num_workers": 1, "num_envs_per_worker": 8, "eval_interval": 0, "run_dir": None}


@pytest.fixture(scope="module")
def cluster(kept_launcher):
    """A head without cores at home, and two nodes of one core."""
    with IsolatedCluster("left", "right") as made:
        yield made


@pytest.fixture
def apart(cluster):
    """Settings of a run whose lanes are on the two nodes, which have joined."""
    cluster.start()
    return {**CARTPOLE, "backend": "ray", "address": cluster.address, "nodes": len(cluster.nodes)}


def test_nodes_that_share_no_memory_bring_what_two_workers_at_home_bring(apart):
    settings = {"segment_length": 32, "batch_size": 256, "num_epochs": 2, "total_steps": 2_048}
    weights = []
    for of_place in ({**CARTPOLE, "num_workers": 2}, apart):
        with Trainer(PPO, **of_place, **settings) as trainer:
            trainer.train(quiet=True)
            weights.append(trainer.get_parameters()[0])
            status = trainer.status
    assert {node.host for node in status.nodes} == {"left", "right"}
    assert status.steps == 2_048
    for name, tensor in weights[0].items():
        np.testing.assert_allclose(tensor, weights[1][name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_node_that_is_cut_off_ends_its_part_and_takes_its_lanes_again_when_it_is_back(apart, cluster, capsys):
    right = cluster.nodes["right"]
    before = {name: node.shared_nbytes() for name, node in cluster.nodes.items()}

    def plot():
        """Events of the node, in step with the run: each `yield` waits for the run's next status."""
        status = yield True
        while len(status.nodes) < 2 or not all(node.is_connected for node in status.nodes):
            status = yield True
        number = next(n for n, node in enumerate(status.nodes) if node.host == "right")

        right.cut()
        while not status.nodes[number].faults:
            status = yield True
        steps = status.steps
        while right.of_a_run():  # the run goes on with the other node, until nothing of it is left on this one
            status = yield True
        assert status.steps > steps and not status.nodes[number].is_connected
        right.mend()
        while not status.nodes[number].is_connected:
            right.keep_ray(cluster.address)  # where the head took it for dead
            status = yield True

        faults = status.nodes[number].faults
        right.kill_raylet()
        while status.nodes[number].faults == faults:
            status = yield True
        wait_until(lambda: not right.of_a_run(), "the host has ended with its raylet")
        steps = status.nodes[number].steps
        while status.nodes[number].steps < steps + 2_000:
            right.keep_ray(cluster.address)  # as a node that joins later, with another name of Ray's
            status = yield True
        assert status.nodes[number].faults == faults + 1  # no host was sent to where the raylet was
        yield False

    story = plot()
    next(story)
    with Trainer(APPO, **apart, total_steps=10**9) as trainer:
        result = trainer.train(on_update=story.send, quiet=True)
    assert result.stop_reason == "callback" and result.mean_return > 100.0
    assert "raylet" not in capsys.readouterr().out  # Ray would show the end of its log
    for name, node in cluster.nodes.items():
        wait_until(lambda node=node: not node.of_a_run(), f"nothing of the run is left on {name}")
        assert node.shared_nbytes() == before[name]


def test_a_learner_whose_node_is_cut_off_is_missed_until_it_is_back(apart, cluster):
    left, right = cluster.nodes.values()

    def plot():
        """The same of a node that has a learner."""
        status = yield True
        while status.experience.get("learners/active") != 2:
            status = yield True
        assert [(node.host, node.learner) for node in status.nodes] == [(left.name, 0), (right.name, 1)]

        right.cut()
        while status.experience["learners/active"] == 2:
            status = yield True
        updates = status.updates
        while right.of_a_run():  # the first learner goes on alone
            status = yield True
        assert status.updates > updates and not status.nodes[1].is_connected and status.nodes[1].faults == 1
        right.mend()
        while status.experience["learners/active"] != 2:
            right.keep_ray(cluster.address)
            status = yield True
        yield False

    story = plot()
    next(story)
    settings = {**apart, "nodes": {left.name: 1}, "num_learners": 2, "learner_nodes": {right.name: 1}}
    with Trainer(PPO, **settings, segment_length=32, total_steps=10**9) as trainer:
        assert trainer.train(on_update=story.send, quiet=True).stop_reason == "callback"
    for name, node in cluster.nodes.items():
        wait_until(lambda node=node: not node.of_a_run(), f"nothing of the run is left on {name}")


def drained(address, machine):
    """Ray drains a machine, as before a machine of the spot market ends."""
    from ray._raylet import GcsClient
    from ray.core.generated.autoscaler_pb2 import DRAIN_NODE_REASON_PREEMPTION

    deadline = round(1_000 * time.time()) + 60_000
    assert GcsClient(address=address).drain_node(machine, DRAIN_NODE_REASON_PREEMPTION, "of the test", deadline)[0]


def test_a_run_takes_nodes_that_come_and_gives_back_those_that_go(kept_launcher, tmp_path):
    with IsolatedCluster("first", "second") as cluster:
        first, second = cluster.nodes.values()
        first.keep_ray(cluster.address)
        wait_until(lambda: first.address in cluster.alive(), "the first node has joined", 120.0)

        def plot():
            status = yield True
            while not (status.nodes and status.nodes[0].steps > 1_000):
                status = yield True
            assert [node.host for node in status.nodes] == ["first"] and status.nodes_summary == "1 of 1 to 2"
            second.keep_ray(cluster.address)
            while len(status.nodes) < 2 or status.nodes[1].steps < 1_000:
                status = yield True
            assert status.nodes[1].host == "second" and status.nodes_summary == "2 of 1 to 2"
            drained(cluster.address, nodes_of(trainer)[0].host.machine.id)
            while status.nodes[0].is_connected:
                status = yield True
            assert (status.nodes[0].state, status.nodes[0].faults) == ("left", 0)
            others = status.nodes[1].steps
            while first.of_a_run() or status.nodes[1].steps < others + 2_000:
                status = yield True
            first.stop_ray()
            assert first.shared_nbytes() == 0  # what Ray had there ends with it
            while status.nodes[0].state != "connected":
                first.keep_ray(cluster.address)  # as another machine
                status = yield True
            assert [node.faults for node in status.nodes] == [0, 0]
            yield False

        story = plot()
        next(story)
        settings = {**CARTPOLE, "backend": "ray", "address": cluster.address, "nodes": "1:2", "run_dir": tmp_path / "r"}
        with Trainer(APPO, **settings, total_steps=10**9) as trainer:
            assert trainer.train(on_update=story.send, quiet=True).stop_reason == "callback"
        for node in (first, second):
            wait_until(lambda node=node: not node.of_a_run(), f"nothing of the run is left on {node.name}")
    log = (tmp_path / "r" / "log.txt").read_text()
    assert "the run begins with 1 of 1 to 2 nodes" in log
    left = r"node-0 on first .* asked to leave: Ray drains .*\n.*left: everything has arrived\n.*with 1 of 1 to 2"
    assert re.search(left, log)


UNTIL_THE_HEAD_DIES = """
import ast, sys
import penstock

settings, told = ast.literal_eval(sys.argv[1]), []

def tell(status):
    if not told and all(node.steps > 1_000 for node in status.nodes):
        told.append(print("all are there", flush=True))

with penstock.APPO(**settings, total_steps=10**9) as trainer:
    trainer.train(on_update=tell, quiet=True)
"""


def test_the_heads_death_ends_the_run_with_a_checkpoint_and_its_hosts(apart, cluster, tmp_path):  # the last one
    run_dir = tmp_path / "run"
    with script(UNTIL_THE_HEAD_DIES, tmp_path, repr({**apart, "run_dir": str(run_dir)})) as process:
        wait_for_line(process, "all are there")
        cluster.kill_head()
        said, _ = process.communicate()
    assert process.returncode == 1
    assert "the head node of the Ray cluster is gone" in said and "penstock resume run\n" in said
    assert list((run_dir / "checkpoints").iterdir())
    while any(node.of_a_run() for node in cluster.nodes.values()):  # 10 s without home end hosts
        time.sleep(0.1)
