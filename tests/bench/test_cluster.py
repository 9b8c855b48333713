"""`penstock bench cluster`: what it takes, how constants follow from what was measured, and what it prints."""

import dataclasses
import json
from contextlib import contextmanager

import pytest

from penstock.bench import cluster
from penstock.bench.nodes_run import NodesRun
from penstock.bench.scaling import Machines, StreamCosts, parts_of, predict, versions_sent
from penstock.bench.streaming import _line, stream_costs
from penstock.cli import main
from tests.bench.scaled import CONSTANTS, SETTING

COSTS = StreamCosts(**{field.name: getattr(CONSTANTS, field.name) for field in dataclasses.fields(StreamCosts)})


def a_run(nodes: int = 1, lanes: int = SETTING.lanes, share: float = 1.0) -> NodesRun:
    """Return the run that the model predicts on two cores, with a share of the predicted rate."""
    setting = dataclasses.replace(SETTING, nodes=nodes, lanes=lanes)
    rate = share * predict(CONSTANTS, setting, Machines(2, 2, shared_cores=2.0)).rate
    parts = {part.name: part for part in parts_of(CONSTANTS, setting, Machines(2, 2))}
    costs = {"rollout": "rollout workers", "sender": "senders", "learner": "learners"}
    cpu = {kind: rate * parts[name].per_step for kind, name in costs.items()}
    cpu["receiver"] = rate * (parts["home's cores"].per_step - parts["learners"].per_step)
    cpu |= {"host": nodes * 0.006, "ray": nodes * 0.004, "supervisor": 0.02 + nodes * 0.004}
    sent = versions_sent(CONSTANTS, setting, Machines(2, 2), rate)
    return NodesRun(nodes, lanes, 2, 32, 1, rate, 1_000.0, 50.0, 100_000, 51.0, sent, 2.0, cpu, 2.0)


def test_constants_are_found_again_in_runs_of_which_the_model_is_true():
    runs = {str(n): [a_run(n)] for n in (1, 2)} | {"fewer lanes": [a_run(lanes=4)]}
    small = dataclasses.replace(COSTS, tell=1e-9, hear=1e-9)  # that of versions follows from the runs
    found = dataclasses.asdict(cluster.constants_of(runs, small))
    assert found == pytest.approx(dataclasses.asdict(CONSTANTS), rel=1e-6)


def test_without_fewer_lanes_all_of_a_step_is_a_lanes():
    found = cluster.constants_of({"1": [a_run()]}, COSTS)
    assert (found.call, found.lane) == (0.0, pytest.approx(18e-6))
    assert (found.supervisor, found.supervise) == (0.0, pytest.approx(0.024))


@pytest.mark.parametrize(
    ("points", "line"),
    [
        ([(1, 3.0), (2, 5.0)], (1.0, 2.0)),
        ([(1, 3.0), (2, 2.0), (3, 2.5)], (2.5, 0.0)),  # falling: the middle, and no slope
        ([(1, 1.0), (3, 5.0)], (0.0, 1.6)),  # through 0: (1 + 15) / (1 + 9)
    ],
)
def test_a_line_has_neither_a_negative_height_nor_slope(points, line):
    assert cluster._line(points) == pytest.approx(line)


def test_what_streams_cost_is_measured_over_loopback():
    assert _line([100, 1_100], [5.0, 15.0]) == pytest.approx((4.0, 0.01))
    found = dataclasses.asdict(stream_costs(blocks=5, versions=5))
    assert min(found.values()) >= 0.0 and found["trip"] > 0.0 and found["reduce_byte"] > 0.0
    assert found["send_block"] + found["send_byte"] > 0.0 and found["tell"] + found["tell_byte"] > 0.0


@pytest.fixture
def measured(monkeypatch):
    """Record requested measurements; their rates are a tenth off the model."""
    asked = []

    def run(algorithm, config, *, seconds):
        asked.append((config.nodes, config.num_envs_per_worker, config.address, seconds))
        return a_run(config.nodes, config.num_envs_per_worker, share=0.9)

    @contextmanager
    def simulated(num_nodes, cores):
        asked.append((num_nodes, cores))
        yield "here:1"

    monkeypatch.setattr("penstock.bench.nodes_run.run_on_nodes", run)
    monkeypatch.setattr("penstock.bench.streaming.stream_costs", lambda: COSTS)
    monkeypatch.setattr("penstock.engine.nodes.cluster.simulated", simulated)
    return asked


def test_trainings_take_turns_on_simulated_nodes_and_everything_is_printed_and_written(measured, tmp_path, capsys):
    pytest.importorskip("ray")
    file = tmp_path / "cluster.json"
    flags = ["--num-workers", "2", "--max-nodes", "2", "--rounds", "2", "--bench-seconds", "3", "--json", str(file)]
    assert main(["bench", "cluster", "appo", "--env", "CartPole-v1", *flags]) == 0
    one, two, fewer = (1, 16, "here:1", 3.0), (2, 16, "here:1", 3.0), (1, 4, "here:1", 3.0)
    assert measured == [(2, 2), one, two, fewer, two, fewer, one]
    facts = json.loads(file.read_text())
    assert facts["config"]["address"] is None and [*facts["runs"]] == ["1", "2", "fewer lanes"]
    out = capsys.readouterr().out
    assert cluster.text(facts) in out
    rows = {cells[1].strip(): cells for line in out.splitlines() if len(cells := line.split("|")) > 8}
    assert [rows[name][7].strip() for name in ("1", "2", "1, 4 lanes")] == ["0.90"] * 3
    assert "| learn | learner, per step | 4 us |" in out
    assert "Nodes of 16 cores, a home node of 16, 10 Gbit/s at home, 1 learner of one core:" in out
    assert "| 10 ms more | 1,000 | 250,000 | learners | " in out


def test_a_cluster_that_is_there_is_used_and_the_flags_of_prediction_count(measured, capsys):
    pytest.importorskip("ray")
    flags = ["--address", "10.0.0.1:6379", "--backend", "ray", "--num-workers", "2", "--max-nodes", "1"]
    assert main(["bench", "cluster", "appo", "--env", "CartPole-v1", *flags, "--rounds", "1", "--learners", "2"]) == 0
    assert {address for _, _, address, _ in measured} == {"10.0.0.1:6379"}
    out = capsys.readouterr().out
    assert "nodes of a cluster, each with 2 rollout workers of 16 lanes" in out and "2 learners of one core:" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "the algorithm comes first: penstock bench cluster"),
        (["appo", "--env", "CartPole-v1", "--max-nodes", "0"], "--max-nodes 0 is not legal: give 1 or more"),
        (["appo", "--env", "CartPole-v1", "--gigabits", "0"], "--gigabits 0 is not legal: give a finite number"),
        (["appo", "--env", "CartPole-v1", "--json", "no/where.json"], "there is no directory"),
        (["a3c", "--env", "CartPole-v1"], "a3c cannot use nodes: its rollout workers learn on parameters"),
        (["sac", "--env", "Pendulum-v1"], "sac sends steps from its nodes, but the model describes segments"),
    ],
)
def test_wrong_usage_is_reported_and_exits_with_2(args, message, capsys):
    assert main(["bench", "cluster", *args]) == 2
    assert message in capsys.readouterr().err
