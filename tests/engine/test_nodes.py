"""Runs whose lanes are stepped by the nodes of a Ray cluster: two simulated ones, shared by all tests."""

import contextlib
import json
import os
import signal
import socket
import sys
import urllib.request
from concurrent import futures
from dataclasses import replace
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import psutil
import pytest

from penstock.algorithms import load_algorithm
from penstock.algorithms.a3c import A3C
from penstock.algorithms.appo import APPO
from penstock.algorithms.dqn import DQN
from penstock.algorithms.ppo import PPO
from penstock.config import ConfigError
from penstock.engine.endings import TrainingFailed
from penstock.engine.nodes.joining import gauges_on, on_cluster
from penstock.engine.trainer import Trainer
from penstock.experience.arena import Control
from penstock.runs.machine import about_here
from tests.engine.delayed import Delayed
from tests.engine.inside import arena_of, gateways_of, nodes_of, opponents_of, policy_of, supervisor_of
from tests.engine.processes import Watched, pids_of, started, wait_for_steps, wait_until, without
from tests.envs.goals import Places
from tests.self_play.guests import REPLAY, Turns

cluster_utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")
internal_kv = pytest.importorskip("ray.experimental.internal_kv")
LONG = pytest.mark.long
pytestmark = pytest.mark.timeout(180)
STORE = 100 * 2**20
HOSTS_BEGIN = 90.0  # seconds: Ray starts their processes, which takes long where other tests have the cores
CARTPOLE = {"env": "CartPole-v1", "num_workers": 1, "num_envs_per_worker": 8, "eval_interval": 0, "run_dir": None}


@pytest.fixture(scope="module")
def cluster(kept_launcher):
    """A head without cores, a node of one, and one that has a core to spare."""
    made = cluster_utils.Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False},
    )
    for cores, name in enumerate(("left", "right"), 1):
        made.add_node(num_cpus=cores, object_store_memory=STORE, resources={name: 1})
    yield made
    made.shutdown()


@pytest.fixture
def on_nodes(cluster):
    return {**CARTPOLE, "backend": "ray", "address": cluster.address, "nodes": 2}


def all_there(trainer):
    """Wait until the status shows all nodes, and each gateway with its nodes."""
    backend = supervisor_of(trainer).backend

    def shown():
        nodes = all(node.status.is_connected for node in backend._nodes)
        return nodes and all(gateway.status.nodes_connected == len(gateway.nodes) for gateway in backend._gateways)

    wait_until(lambda: backend.pump(0.05) or shown(), "home has heard of all nodes")


def together(trainer, meetings):
    """Wait until all learners have come together so often; then updates are made by all of them, and all are shown."""
    backend, control = supervisor_of(trainer).backend, arena_of(trainer).control
    wait_until(lambda: backend.pump(0.05) or control[Control.TOGETHER] == meetings, "the learners are together")
    all_there(trainer)


@LONG
def test_two_nodes_behind_a_gateway_bring_what_two_workers_at_home_bring(on_nodes):
    # Without policy lag, and with streams of random numbers by lane, it makes no difference who steps a lane.
    settings = {"segment_length": 32, "batch_size": 256, "num_epochs": 2, "total_steps": 2_048}
    weights = []
    for of_place in ({**CARTPOLE, "num_workers": 2}, {**on_nodes, "nodes_per_gateway": 2}):
        with Trainer(PPO, **of_place, **settings) as trainer:
            trainer.train(quiet=True)
            weights.append(trainer.get_parameters()[0])
            if "nodes_per_gateway" in of_place:
                all_there(trainer)  # the last reports may come after the last update
            status = trainer.status
    assert [node.name for node in status.nodes] == ["node-0", "node-1"]
    (gateway,) = status.gateways
    assert (gateway.name, gateway.state, gateway.share) == ("gateway-0", "connected", "2 of 2 nodes")
    assert gateway.steps > 0 and status.steps == 2_048 and status.policy_lag_max == 0.0
    at_home, there = weights
    for name, tensor in at_home.items():
        np.testing.assert_allclose(tensor, there[name], rtol=1e-5, atol=1e-6, err_msg=name)


@LONG
def test_games_on_nodes_against_the_first_version_are_those_of_two_workers_at_home(on_nodes):
    settings = {"env": Turns, "num_agents": 2, "opponents": "past", "num_envs_per_worker": 4, "segment_length": 8,
                "batch_size": 48, "num_epochs": 1, "hidden_sizes": (8,), "total_steps": 960}  # fmt: skip
    found = []
    for of_place in ({**CARTPOLE, "num_workers": 2}, {**on_nodes, "nodes_per_gateway": 2}):
        with Trainer(PPO, **{**of_place, **settings, "opponent_interval": 10**6}) as trainer:
            trainer.train(quiet=True)
            results, backend = opponents_of(trainer).pools[0].pool.results, supervisor_of(trainer).backend
            # The last games may end after the last update.
            wait_until(lambda: backend.pump(0.05) or results.sum() == 120, "all results are home")  # noqa: B023
            found.append((trainer.get_parameters()[0], results.sum(1).tolist()))
    (at_home, games), (there, their_games) = found
    assert games == their_games and len({tuple(of_game) for of_game in games}) > 1
    for name, tensor in at_home.items():
        np.testing.assert_allclose(tensor, there[name], rtol=1e-5, atol=1e-6, err_msg=name)


@LONG
@pytest.mark.parametrize(
    ("algorithm", "settings"), [(APPO, {"inference": "central"}), (DQN, {**REPLAY, "updates_per_step": 0.02})]
)
def test_policies_on_nodes_play_past_versions_of_each_other(on_nodes, algorithm, settings):
    sides = {"red": {"agents": "player_0"}, "blue": {"agents": "player_1"}}
    games = {"env": Turns, "policies": sides, "opponents": "past", "opponent_pool": 2, "opponent_interval": 1_500}
    with Trainer(algorithm, **{**on_nodes, **games, **settings, "total_steps": 10**9}) as trainer:
        seen = set()

        def go_on(status):
            for number, policy in enumerate(status.policies):
                seen.update((number, each.steps) for each in policy.opponents if each.wins + each.losses)
            have_met = all(sum(policy == number for policy, _ in seen) > 2 for number in range(2))
            return not (have_met and all(node.steps for node in status.nodes))

        assert trainer.train(quiet=True, on_update=go_on).stop_reason == "callback"
        assert not any(node.faults for node in trainer.status.nodes)


def test_a_run_learns_though_a_host_is_killed_and_leaves_nothing_behind(on_nodes):
    killed, stood_at, pids = [], [], set()
    trainer = Trainer(APPO, **on_nodes, total_steps=10**9)

    def kill_one(status):
        at_home = pids_of(trainer)
        pids.update(at_home[role] for role in at_home if role != "launcher")  # which other tests use, too
        brought = [
            node.is_connected and node.steps > was + 5_000 for node, was in zip(status.nodes, began, strict=True)
        ]
        if all(brought) and not killed:
            host = nodes_of(trainer)[1].host
            pids.update(host.pids().values())
            killed.append(host.about(10.0).pid)
            os.kill(killed[0], signal.SIGKILL)
            stood_at.append(status.nodes[0].steps)
        has_gone_on = stood_at and status.nodes[0].steps > stood_at[0] + 5_000 and status.nodes[1].faults
        return not (has_gone_on and status.mean_return > 100.0)

    with trainer:
        while not (trainer.status.nodes and all(node.is_connected for node in trainer.status.nodes)):
            trainer.train(1_000, quiet=True)  # either may be the first that has come
        began = [node.steps for node in trainer.status.nodes]
        result = trainer.train(on_update=kill_one, quiet=True)
        status = trainer.status
        hosts = [node.host for node in nodes_of(trainer) if node.host is not None]
        pids.update(host.about(10.0).pid for host in hosts)
        gone = [node.incarnation - (node.host is not None) for node in nodes_of(trainer)]
        family = Watched([pid for pid in pids if psutil.pid_exists(pid)])
    assert family.left_after() == []
    # One fault of each host that is gone: on a busy machine the successor may be lost, too.
    assert killed and [node.faults for node in status.nodes] == gone and gone[1] > 0
    assert result.stop_reason == "callback", "the other one has brought more steps since, and the run has learned"


@LONG
def test_when_a_gateway_is_killed_its_nodes_connect_to_another_and_the_run_learns_on(on_nodes):
    killed, back_at = [], []
    trainer = Trainer(APPO, **on_nodes, nodes_per_gateway=2, total_steps=10**9)

    def kill_once(status):
        if not killed and status.steps > 5_000 and all(node.is_connected for node in status.nodes):
            killed.append(gateways_of(trainer)[0].host.about(10.0).pid)
            os.kill(killed[0], signal.SIGKILL)
        if killed and status.gateways[0].faults and status.gateways[0].nodes_connected == 2:
            back_at.append(status.steps)
        return not (back_at and status.steps > back_at[0] + 5_000)

    with trainer:
        trainer.train(on_update=kill_once, quiet=True)
        status, hosts = trainer.status, [node.host for node in nodes_of(trainer)]
        family = Watched([pid for host in hosts for pid in (host.about(10.0).pid, *host.pids().values())])
    assert not psutil.pid_exists(killed[0]) and family.left_after() == []
    assert [node.faults for node in status.nodes] == [0, 0]  # their hosts have stayed


@LONG
def test_a_learner_on_another_node_learns_with_the_one_at_home_what_one_learner_would(on_nodes):
    settings = {"segment_length": 32, "batch_size": 256, "num_epochs": 2, "total_steps": 4_096}
    with Trainer(PPO, **CARTPOLE, **settings) as alone:
        alone.train(quiet=True)
        weights = alone.get_parameters()[0]

    apart = {**on_nodes, "nodes": {"left": 1}, "num_learners": 2, "learner_nodes": {"right": 1}}
    with Trainer(PPO, **apart, **settings) as trainer:
        host = lambda: nodes_of(trainer)[1].host  # noqa: E731
        trainer.train(256, quiet=True)
        together(trainer, 1)
        trainer.train(1_024, quiet=True)
        assert trainer.status.experience["learners/active"] == 2
        killed = [host().about(10.0).pid, *host().pids().values()]
        os.kill(killed[0], signal.SIGKILL)
        wait_until(lambda: not any(map(psutil.pid_exists, killed)), "the other learner has ended with its host")
        trainer.train(256, quiet=True)  # in which the first learner sees that the other is gone
        together(trainer, 2)
        trainer.train(quiet=True)
        status, family = trainer.status, Watched([host().about(10.0).pid, *host().pids().values()])
        for name, tensor in trainer.get_parameters()[0].items():
            np.testing.assert_allclose(tensor, weights[name], rtol=1e-5, atol=1e-6, err_msg=name)
    assert status.steps == 4_096 and status.experience["learners/active"] == 2
    shown = [(node.name, node.learner, node.is_connected, node.faults) for node in status.nodes]
    assert shown == [("node-0", 0, True, 0), ("node-1", 1, True, 1)]
    assert family.left_after() == [] and not any(map(psutil.pid_exists, killed))


@LONG
@pytest.mark.parametrize(
    ("settings", "rows_of_a_step"),
    [
        ({"env": Places, "hindsight": "future", "n_step": 1}, 5),  # once more for each of four goals
        ({"env": Delayed, "rewards": "rudder", "redistributor_interval": 10, "updates_per_step": 0.25}, 1),
    ],
)
def test_whole_episodes_of_nodes_are_written_at_home_and_only_steps_count(on_nodes, settings, rows_of_a_step):
    small = {"hidden_sizes": (8,), "batch_size": 4, "learning_starts": 20, "num_envs_per_worker": 2}
    with Trainer(DQN, **{**on_nodes, **small, **settings}, total_steps=600) as trainer:
        trainer.train(quiet=True)
        status, replay = trainer.status, policy_of(trainer).path.replay
    assert sum(node.steps for node in status.nodes) <= replay.steps_taken
    assert 0.8 * rows_of_a_step * 600 < len(replay.buffer) <= rows_of_a_step * replay.steps_taken
    if "rewards" in settings:
        assert status.experience["redistribution/lessons"] > 10


@LONG
def test_a_shard_whose_role_is_killed_has_its_rows_again_and_the_run_learns_on(on_nodes):
    killed, rows = [], []
    small = {"hidden_sizes": (8,), "batch_size": 8, "learning_starts": 100, "updates_per_step": 0.1}
    trainer = Trainer(DQN, **on_nodes, **small, replay_at="gateways", prioritized=True, total_steps=10**9)

    def kill_once(status):
        rows.append((status.steps, status.experience.get("replay/rows", 0)))
        if not killed and status.steps > 3_000:
            killed.append((gateways_of(trainer)[0].host.pids()["shard-0"], status.steps))
            os.kill(killed[0][0], signal.SIGKILL)
        return not (killed and status.steps > killed[0][1] + 3_000)

    with trainer:
        trainer.train(on_update=kill_once, quiet=True)
        status = trainer.status
        assert gateways_of(trainer)[0].host.pids()["shard-0"] != killed[0][0]
    assert rows[-1][1] > killed[0][1] + 2_500 and status.gateways[0].faults == 0


SMALL = {"hidden_sizes": (8,), "num_envs_per_worker": 4, "segment_length": 16, "batch_size": 64}
REPLAYED = {**without(SMALL, "segment_length"), "batch_size": 8, "learning_starts": 100, "updates_per_step": 0.1}
SEQUENCES = {"memory_size": 8, "sequence_length": 4, "sequence_overlap": 2, "burn_in": 2}


@LONG
@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("clear", {**SMALL, "replay": ["queue:1/2", "uniform:1/2,min_size=16"], "memory": "lstm", "memory_size": 8,
                   "inference": "central"}),
        ("r2d2", {**REPLAYED, **SEQUENCES, "replay_at": "gateways", "inference": "central"}),
        ("ppo", {**SMALL, "num_policies": 2, "rewards": "rudder", "redistributor_interval": 100}),
    ],
)  # fmt: skip
def test_every_algorithm_that_learns_at_home_learns_from_nodes(on_nodes, algorithm, settings, monkeypatch):
    """All nodes of the cluster that is found, wherever they choose actions."""

    def not_all_were_heard(status):
        return not (status.steps > 1_500 and status.updates and all(node.steps > 100 for node in status.nodes))

    monkeypatch.setenv("RAY_ADDRESS", on_nodes["address"])
    everywhere = {"address": "auto", "nodes": "all"}
    with Trainer(load_algorithm(algorithm), **{**on_nodes, **everywhere, **settings}, total_steps=10**9) as trainer:
        end = trainer.train(quiet=True, on_update=not_all_were_heard).stop_reason
        status, hosts = trainer.status, [node.host for node in nodes_of(trainer)]
        roles = [name for host in hosts for name in host.pids()]
    assert end == "callback" and len(status.nodes) == 2 and not any(node.faults for node in status.nodes)
    assert ("policy-0" in roles) is (settings.get("inference") == "central")


@LONG
def test_the_first_learner_goes_on_from_what_one_on_another_node_has(on_nodes):
    apart = {**on_nodes, "nodes": {"left": 1}, "num_learners": 2, "learner_nodes": {"right": 1}}
    with Trainer(PPO, **apart, segment_length=32, batch_size=256, num_epochs=2, total_steps=10**9) as trainer:
        trainer.train(256, quiet=True)
        together(trainer, 1)
        trainer.train(1_024, quiet=True)
        before, updates = trainer.get_parameters()[0], trainer.status.updates
        os.kill(pids_of(trainer)["learner"], signal.SIGKILL)
        together(trainer, 2)
        for name, tensor in trainer.get_parameters()[0].items():
            np.testing.assert_array_equal(tensor, before[name], err_msg=name)
        trainer.train(1_024, quiet=True)
        assert trainer.status.updates > updates and trainer.status.experience["learners/active"] == 2


def roles_on_nodes():
    """Process ids of the roles of all runs on nodes: what a raylet has started, and has a name of ours."""
    found = set()
    for process in psutil.process_iter(["pid", "cmdline"]):
        of_ours = (process.info["cmdline"] or [""])[0].startswith("penstock-")
        with contextlib.suppress(psutil.Error):
            if of_ours and any("ray" in parent.name() for parent in process.parents()):
                found.add(process.pid)
    return found


@LONG
@pytest.mark.parametrize(
    "signum", [signal.SIGTERM, signal.SIGKILL], ids=lambda signum: signum.name
)
def test_a_run_that_is_ended_by_a_signal_leaves_nothing_on_its_nodes(on_nodes, tmp_path, signum):
    before = roles_on_nodes()
    flags = {"env": "CartPole-v1", "backend": "ray", "address": on_nodes["address"], "nodes": "2", "num-workers": "1",
             "run-dir": "run", "total-steps": "1000000000"}  # fmt: skip
    given = [word for name, value in flags.items() for word in (f"--{name}", value)]
    with started(["-m", "penstock.cli", "train", "appo", *given], tmp_path) as process:
        wait_for_steps(process, tmp_path / "run", 1_000, HOSTS_BEGIN)
        of_both = lambda: len(roles_on_nodes() - before) >= 6  # noqa: E731 - launcher, rollout worker and sender of each
        wait_until(of_both, "both nodes have their roles", HOSTS_BEGIN)
        family = Watched(list(roles_on_nodes() - before))
        process.send_signal(signum)
        said = process.communicate(timeout=60)[0]
    assert family.left_after() == []
    if signum != signal.SIGKILL:
        assert process.returncode in (130, 143) and "penstock resume" in said


class OnOneNode:
    """Makes environments on the node that asks first, and not on others: what Ray has started knows its raylet."""

    def __init__(self, mark):
        self._mark = mark

    def __call__(self):
        mine = os.environ.get("RAY_RAYLET_PID", "")
        if mine:
            with contextlib.suppress(FileExistsError), open(self._mark, "x") as file:
                file.write(mine)
            if self._mark.read_text() not in ("", mine):
                raise ModuleNotFoundError("there is no such thing here")
        return gym.make("CartPole-v1")


@LONG
def test_an_environment_that_some_nodes_lack_ends_the_run_and_says_which_node(on_nodes, tmp_path):
    trainer = Trainer(APPO, **{**on_nodes, "env": OnOneNode(tmp_path / "mark")}, total_steps=10**9)
    with trainer, pytest.raises(TrainingFailed, match=r"(?s)rollout-0 of node-\d.*there is no such thing here"):
        trainer.train(quiet=True)


def test_too_few_nodes_for_lanes_and_learners_are_an_error(on_nodes):
    asked = "nodes=2 and learner_nodes=1 ask for 3 nodes with 1 cores, for num_workers=1; the cluster"
    with pytest.raises(ConfigError, match=asked):
        Trainer(PPO, **on_nodes, num_learners=2, learner_nodes=1)


def test_too_few_nodes_or_cores_are_an_error_that_says_what_there_is(on_nodes):
    there = r"the cluster at .* has .* \(1 cores\) with left"
    with pytest.raises(ConfigError, match=f"asks for 3 nodes with 1 cores, for num_workers=1; {there}"):
        Trainer(APPO, **{**on_nodes, "nodes": 3})
    with pytest.raises(ConfigError, match=r"asks for 1 nodes with 4 cores, for num_workers=4; the cluster"):
        Trainer(APPO, **{**on_nodes, "nodes": {"left": 1}, "num_workers": 4})


@LONG
def test_an_evaluator_on_a_node_scores_the_final_weights_and_the_best_are_written_at_home(on_nodes, tmp_path):
    run_dir = tmp_path / "run"
    settings = {**on_nodes, "nodes": 1, "evaluator": "node", "eval_interval": 1_000, "run_dir": run_dir}
    with Trainer(APPO, **settings, total_steps=3_000, eval_episodes=2) as trainer:
        assert [str(node.host.machine).endswith("(2 cores)") for node in nodes_of(trainer)] == [True]
        result = trainer.train(quiet=True)
        assert "evaluator" not in pids_of(trainer)
        assert result.eval_return is not None and (run_dir / "checkpoints" / "best").exists()
        assert supervisor_of(trainer).progress.policies[0].evaluation.steps == result.steps


@LONG
def test_two_evaluators_share_evaluations_and_when_one_is_lost_the_other_goes_on(on_nodes, cluster):
    pair = {"num_cpus": 2, "object_store_memory": STORE, "resources": {"pair": 1}}
    added, killed, after = [cluster.add_node(**pair) for _ in range(2)], [], set()
    settings = {**on_nodes, "nodes": {"pair": 2}, "evaluator": "node", "num_evaluators": 2, "eval_episodes": 4,
                "eval_interval": "continuous"}  # fmt: skip

    def kill_one(status):
        evaluation = supervisor_of(trainer).progress.policies[0].evaluation
        if evaluation is not None and not killed:
            assert evaluation.requested == 4
            killed.append(nodes_of(trainer)[1].host.pids()["evaluator"])
            os.kill(killed[0], signal.SIGKILL)
        elif evaluation is not None:
            after.add(evaluation.steps)
        return len(after) < 4

    try:
        with Trainer(APPO, **settings, eval_max_steps=200, total_steps=10**9) as trainer:
            assert trainer.train(quiet=True, on_update=kill_one).stop_reason == "callback"
            assert all("evaluator" in node.host.pids() for node in nodes_of(trainer))
    finally:
        for node in added:
            cluster.remove_node(node)


def test_a_node_without_a_core_for_the_evaluator_is_an_error(on_nodes):
    asked = 'asks for 1 nodes with 1 cores, for num_workers=1, the first with one core more, for evaluator="node"; the'
    with pytest.raises(ConfigError, match=asked):
        Trainer(APPO, **{**on_nodes, "nodes": {"left": 1}, "evaluator": "node"})


@LONG
def test_the_start_of_a_cluster_is_none_of_the_seconds_of_a_run(on_nodes, monkeypatch):
    now, waited = [1_000.0], []
    for module in ("endings", "supervisor", "trainer"):
        monkeypatch.setattr(f"penstock.engine.{module}.time", SimpleNamespace(monotonic=lambda: now[0]))

    def let_time_go_by(status):
        if not supervisor_of(trainer).backend.has_lanes:  # hosts begin
            waited.append(10.0)
            now[0] += waited[-1]
        elif status.steps:
            now[0] += 1.0

    with Trainer(APPO, **on_nodes, total_steps=10**9, max_seconds=2.0) as trainer:
        result = trainer.train(quiet=True, on_update=let_time_go_by)
    assert result.stop_reason == "seconds" and result.steps > 0
    assert result.seconds <= 2.0 < sum(waited)


def metrics_of_ray(cluster, run):
    """Metrics of a run by name and labels, as Prometheus reads them from the agents of a cluster's machines."""
    found = {}
    for node in cluster.list_all_nodes():
        with urllib.request.urlopen(f"http://{node.node_ip_address}:{node.metrics_export_port}/metrics") as page:
            lines = [line.rpartition(" ") for line in page.read().decode().splitlines()]
        of_run = [line for line in lines if line[0].startswith("ray_penstock_") and f'run="{run}"' in line[0]]
        found |= {name: float(value) for name, _, value in of_run}
    return found


@LONG
def test_a_run_on_a_cluster_is_among_the_metrics_of_ray(on_nodes, cluster, tmp_path):
    own = {"env": "CartPole-v1", "backend": "ray"}
    assert gauges_on(APPO.Config(**own)) is gauges_on(APPO.Config(**{**own, "backend": "local"})) is None
    found = {}

    def look(status):
        if status.nodes and status.nodes[0].steps > 1_000:  # an agent gets them within seconds
            found.update(metrics_of_ray(cluster, run="some"))
        return not any(value for name, value in found.items() if "node_steps_per_second" in name)

    settings = {**on_nodes, "run_dir": tmp_path / "some", "nodes": 1}
    with Trainer(APPO, **settings, total_steps=10**9) as trainer:
        assert trainer.train(quiet=True, on_update=look).stop_reason == "callback"
        gauges_on(APPO.Config(**settings))(trainer.status)  # of another run of this process
    of_run = {f"ray_penstock_{name}" for name in ("steps_per_second", "policy_lag", "nodes", "gateways")}
    of_node = {f"ray_penstock_node_{name}" for name in ("steps_per_second", "policy_lag")}
    assert {name.partition("{")[0] for name in found} == of_run | of_node
    assert all('node="node-0"' in name for name in found if "penstock_node_" in name)


@LONG
def test_a_host_that_gets_a_signal_delivers_and_leaves_and_the_run_goes_on_without_it(on_nodes):
    def plot():
        status = yield True
        while len(status.nodes) < 2 or not all(node.steps for node in status.nodes):
            status = yield True
        pids.append(nodes_of(trainer)[1].host.about(10.0).pid)
        pids.extend(nodes_of(trainer)[1].host.pids().values())
        os.kill(pids[0], signal.SIGTERM)
        while status.nodes[1].is_connected:
            status = yield True
        steps = status.nodes[0].steps
        while status.nodes[0].steps < steps + 2_000:
            status = yield True
        # The machine is free, and is left in peace.
        assert [(node.state, node.faults) for node in status.nodes] == [("connected", 0), ("left", 0)]
        assert status.nodes[1].missing == 0 and Watched(pids).left_after() == []
        yield False

    pids, story = [], plot()
    next(story)
    with Trainer(PPO, **{**on_nodes, "nodes": "1:2"}, segment_length=32, total_steps=10**9) as trainer:
        assert trainer.train(on_update=story.send, quiet=True).stop_reason == "callback"


@LONG
def test_runs_take_machines_that_are_free_and_keep_them(on_nodes):
    first = Trainer(APPO, **{**on_nodes, "nodes": {"right": 1}}, total_steps=10**9)
    with first, Trainer(APPO, **{**on_nodes, "nodes": 1}, total_steps=10**9) as second:
        hosts = [nodes_of(each)[0].host for each in (first, second)]
        assert [host.machine.resources for host in hosts] == [{"right"}, {"left"}]
        said = r"asks for 2 nodes; the cluster .* \(1 cores, 0 free\) with left"
        with pytest.raises(ConfigError, match=said):
            Trainer(APPO, **{**on_nodes, "num_workers": None})
        backend = supervisor_of(second).backend
        backend.start()
        os.kill(hosts[1].about(10.0).pid, signal.SIGKILL)
        wait_until(lambda: backend.pump(0.05) or nodes_of(second)[0].incarnation == 2, "a host is in its place", 60.0)
        assert nodes_of(second)[0].host.machine.resources == {"left"}  # which is its own, and not free for others


def test_a_resource_that_no_node_has_is_an_error_that_says_which_there_are(on_nodes):
    there = r"the cluster at \S+ has .* with (left, .* with right|right, .* with left)"
    with pytest.raises(ConfigError, match=rf"nodes=\{{'middle': 1\}} asks for 1 nodes .*{there}"):
        Trainer(APPO, **{**on_nodes, "nodes": {"middle": 1}})


@LONG
def test_a_run_that_is_interrupted_while_its_nodes_are_placed_leaves_the_cluster(on_nodes, monkeypatch):
    from penstock.engine.nodes import cluster
    from penstock.engine.nodes.placing import Placement

    place = Placement.place

    def interrupted(self):
        place(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(Placement, "place", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Trainer(PPO, **on_nodes)
    assert cluster._cluster is None


def test_while_the_head_node_does_not_answer_ray_is_asked_nothing(monkeypatch):
    from penstock.engine.nodes import cluster as module

    def ask(*_, **__):
        pytest.fail("Ray waits a minute for its head, and ends the process")

    asked = ("placement_group", "remove_placement_group", "request_resources", "get_cluster_status")
    for name in asked:
        monkeypatch.setattr(module, name, ask)
    monkeypatch.setattr(module.ray, "nodes", ask)
    monkeypatch.setattr(module.ray._private.state.state, "get_draining_nodes", ask)
    monkeypatch.setattr(module, "_leave_ray", lambda: left.append("without the head"))
    left, cluster = [], object.__new__(module.Cluster)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        cluster._head = f"127.0.0.1:{closed.getsockname()[1]}"
    cluster._next_knock, cluster._wanted = 0.0, []
    assert (cluster.machines(), cluster.reserve([], "nodes"), cluster.draining()) == ([], [], {})
    cluster.release([SimpleNamespace(group=SimpleNamespace(id=1))])
    cluster.want([{"CPU": 1}])
    cluster.close()
    assert left == ["without the head"]


@pytest.fixture
def head_with_token(monkeypatch):
    """Address of a head that requires the token "a" * 32, and that a process of Ray here uses."""
    import grpc
    from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc

    from penstock.engine.nodes import cluster as module

    class Head(gcs_service_pb2_grpc.NodeInfoGcsServiceServicer):
        def CheckAlive(self, request, context):
            if ("authorization", f"Bearer {'a' * 32}") not in context.invocation_metadata():
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "InvalidAuthToken")
            return gcs_service_pb2.CheckAliveReply()

    server = grpc.server(futures.ThreadPoolExecutor(1))
    gcs_service_pb2_grpc.add_NodeInfoGcsServiceServicer_to_server(Head(), server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    monkeypatch.setattr(module, "find_gcs_addresses", lambda: {address})
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # which is undone in the end
        monkeypatch.delenv(name)
    yield address
    server.stop(None)
    monkeypatch.undo()
    module._forget_token()


@pytest.mark.parametrize(("token", "is_admitted"), [("a" * 32, True), ("b" * 32, False), ("", False)])
def test_the_users_token_opens_a_cluster_that_requires_it_and_another_is_named(
    head_with_token, token, is_admitted, tmp_path, monkeypatch
):
    from penstock.engine.nodes import cluster as module

    monkeypatch.setenv("HOME", str(tmp_path))
    if token:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text(token)
    module._forget_token()
    if is_admitted:
        module._require_admission(head_with_token)
        assert os.environ["RAY_AUTH_MODE"] == "token"
    else:
        with pytest.raises(ConfigError, match=r"requires a Ray token.*~/\.ray/auth_token.*RAY_AUTH_MODE=token"):
            module._require_admission(head_with_token)


def test_a_cluster_that_is_started_for_a_run_leaves_no_token(tmp_path, monkeypatch):
    from penstock.engine.nodes import cluster as module

    def init(**_):
        tokens.append(os.environ["RAY_AUTH_TOKEN"])
        os.environ["RAY_AUTH_MODE"] = "token"  # as Ray does
        raise OSError("no cluster of a test")

    tokens = []
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(module.ray, "init", init)
    for _ in range(2):
        with pytest.raises(ConfigError, match="no cluster of a test"):
            object.__new__(module.Cluster)._connect(None, 1, 0)
    assert len({len(token) for token in tokens}) == 1 and len(set(tokens)) == 2
    assert not os.environ.keys() & {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"}


@LONG
def test_versions_that_differ_are_an_error_before_anything_is_trained(on_nodes, monkeypatch):
    other = replace(about_here(), versions={**about_here().versions, "torch": "1.0"})
    monkeypatch.setattr("penstock.engine.nodes.backend.about_here", lambda packages: other)
    said = r"node-\d on .* \(\d cores\) has torch \S+ \(home has 1.0\): install the same versions there"
    with pytest.raises(ConfigError, match=said):
        Trainer(APPO, **{**on_nodes, "nodes": 1})


def test_an_algorithm_whose_workers_share_memory_says_why_it_stays_at_home(on_nodes):
    with pytest.raises(ConfigError, match='a3c cannot use backend="ray": its rollout workers learn on parameters'):
        Trainer(A3C, **on_nodes)


def test_where_there_is_no_cluster_the_error_says_how_to_start_one():
    with pytest.raises(ConfigError, match=r"address='127.0.0.1:1': there is no Ray cluster .*ray start --head"):
        Trainer(APPO, **CARTPOLE, backend="ray", address="127.0.0.1:1")


def test_on_a_machine_without_a_raylet_the_error_says_how_to_add_it():
    with socket.create_server(("", 0)) as head:  # Ray reads 127.0.0.1 as the machine's own address
        port = head.getsockname()[1]
        said = rf"address='[\d.]+:{port}' answers, but this machine is no node .* ray start --address=[\d.]+:{port}"
        with pytest.raises(ConfigError, match=said):
            Trainer(APPO, **CARTPOLE, backend="ray", address=f"127.0.0.1:{port}")


def test_a_head_whose_machine_answers_and_which_does_not_itself_is_said_so(monkeypatch):
    from penstock.engine.nodes import cluster as module

    monkeypatch.setattr(module, "HEAD_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as stopped:  # the kernel accepts, as for a process after SIGSTOP
        address = f"127.0.0.1:{stopped.getsockname()[1]}"
        said = rf"address='{address}': the machine answers, but the head of the cluster has not in \d+ s: its process"
        with pytest.raises(ConfigError, match=said):
            module._require_admission(address)


def test_of_several_clusters_of_a_machine_auto_joins_none_but_the_one_of_ray_address(monkeypatch):
    from penstock.engine.nodes import cluster as module

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(module, "find_gcs_addresses", lambda: {"10.0.0.1:6399", "10.0.0.1:6379"})
    with pytest.raises(ConfigError, match=r"in several clusters, give one of 10\.0\.0\.1:6379, 10\.0\.0\.1:6399"):
        Trainer(APPO, **CARTPOLE, backend="ray", address="auto")
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6399")
    assert module._head_of("auto") == "10.0.0.1:6399"


def test_an_address_without_a_port_is_refused_with_the_form_that_it_has():
    with pytest.raises(ConfigError, match="address='localhost' is not legal: use HOST:PORT of the head node"):
        Trainer(APPO, **CARTPOLE, backend="ray", address="localhost")


def test_addresses_of_ray_client_are_refused_by_name():
    with pytest.raises(ConfigError, match="address='ray://there:10001' is of Ray Client"):
        Trainer(APPO, **CARTPOLE, backend="ray", address="ray://there:10001")


@pytest.mark.parametrize("backend", ["serial", "local"])
def test_nodes_are_for_the_backend_that_has_some(backend):
    with pytest.raises(ConfigError, match=f'nodes=2 is for backend="ray", found backend="{backend}"'):
        Trainer(APPO, **CARTPOLE, backend=backend, nodes=2)


@pytest.mark.parametrize("nodes", [0, -1, "most", {}, {"left": 0}, {"left": "some"}])
def test_nodes_that_cannot_be_counted_are_an_error_that_says_how_to_count(nodes):
    with pytest.raises(ConfigError, match=r"^nodes=.* is not legal: nodes must be (a number of nodes|int or .* 'all')"):
        Trainer(APPO, **CARTPOLE, backend="ray", nodes=nodes)


def test_an_address_is_for_nodes():
    with pytest.raises(ConfigError, match="address='auto' is for backend=\"ray\", found backend=\"local\""):
        Trainer(APPO, **CARTPOLE, address="auto")


def test_where_ray_is_not_installed_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in [name for name in sys.modules if name == "penstock.engine.nodes.cluster"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("penstock.engine.nodes.cluster", raising=False)
    with pytest.raises(ConfigError, match=r'needs Ray, which is not installed: pip install "penstock\[cluster\]"'):
        on_cluster(APPO, APPO.Config(env="CartPole-v1", backend="ray"))


def asked_for():
    """What an autoscaler is asked to make room for."""
    return json.loads(internal_kv._internal_kv_get("autoscaler_resource_request"))


@LONG
def test_a_run_on_a_cluster_that_grows_begins_with_the_nodes_that_are_there_and_takes_others(
    on_nodes, cluster, monkeypatch, tmp_path
):
    monkeypatch.setenv("RAY_NODE_TYPE_NAME", "late")  # as an autoscaler has it on machines that it starts
    late = {"num_cpus": 2, "object_store_memory": STORE, "resources": {"late": 1}}
    added = [cluster.add_node(**late)]
    asked = []

    def grow(status):
        if len(added) == 1 and status.steps > 2_000:
            assert [(node.is_connected, node.steps > 0, bool(node.host)) for node in status.nodes] == [
                (True, True, True), (False, False, False)
            ]  # fmt: skip
            asked.append(asked_for())
            added.append(cluster.add_node(**late))
        return not (len(status.nodes) == 2 and status.nodes[1].steps)

    settings = {**on_nodes, "nodes": {"late": 2}, "run_dir": tmp_path / "run", "segment_length": 32}
    try:
        with Trainer(PPO, **settings, total_steps=10**9) as trainer:
            assert trainer.train(quiet=True, on_update=grow).stop_reason == "callback"
            asked.append(asked_for())
    finally:
        for node in added:
            cluster.remove_node(node)
    assert asked == [[{"CPU": 2}, {"CPU": 1, "late": 0.001}], [{"CPU": 2}, {"CPU": 2}]]
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "1 of 2 nodes are there; requested: 1 node with 1 core and late" in log
