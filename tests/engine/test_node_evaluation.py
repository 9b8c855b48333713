"""An evaluator on a node, and home's end of it: in one process, without Ray."""

import math
import time

import cloudpickle
import numpy as np
import pytest

from penstock.algorithms.appo import APPO
from penstock.algorithms.ppo import PPO
from penstock.config import ConfigError
from penstock.engine.acting.inference import BestWeights
from penstock.engine.evaluations import Evaluations
from penstock.engine.messages import Candidate, Died, Evaluate
from penstock.engine.nodes.evaluation import EvaluationsThere, block_of
from penstock.engine.roles.specs import EvaluatorRole
from penstock.engine.roster import share_threads
from penstock.engine.trainer import Trainer
from penstock.experience.arena import ExperienceArena
from penstock.runs.store import CheckpointStore
from tests.engine.collecting import Collecting
from tests.engine.reports import Reports


class Ends:
    """Home, and a node with an evaluator that is polled by hand."""

    def __init__(self) -> None:
        self.home = Collecting(PPO, eval_episodes=2, eval_max_steps=20)
        spec = EvaluatorRole((self.home.algorithm,), self.home.env)
        self.there = EvaluationsThere(spec, self.home.arena)
        self.node = ExperienceArena.create(self.home.arena.shape)
        self.reports = Reports()
        self.evaluator = self.there.role().build(self.node, self.reports.append)

    def send(self, role: str, command: bytes) -> None:
        """What a host does with a command."""
        assert role == "evaluator"
        self.evaluator.handle(cloudpickle.loads(command))

    def ask(self, number: int = 1, *, deadline: float = math.inf, **candidate) -> None:
        facts = {"store": None, "best_return": None, "meta": {}, **candidate}
        self.there.command(Evaluate(number, deadline, (Candidate(**facts),)))
        self.there.send(self)

    def send_weights(self) -> None:
        """What the stream does."""
        payload = np.zeros(self.home.arena.weights.size, np.uint8)
        self.node.weights.publish(payload, self.home.arena.weights.read_into(payload))

    def hear(self):
        """The supervisor's message for the last report."""
        return self.there.completed(cloudpickle.loads(cloudpickle.dumps(self.reports[-1])), "node-0")


@pytest.fixture
def ends():
    made = Ends()
    yield made
    made.evaluator.close()
    made.home.close()


def test_an_evaluation_waits_until_the_weights_that_home_had_when_it_asked_are_there(ends):
    ends.send_weights()
    ends.home.weights.publish(ends.home.weights.version + 1, 700)
    ends.ask()
    assert not ends.evaluator.poll() and not ends.reports
    ends.send_weights()
    assert ends.evaluator.poll()
    (scored,) = ends.hear().policies
    assert scored.evaluation.steps == 700 and scored.evaluation.episodes == 2


def test_the_best_weights_are_kept_at_home_and_written_there(ends, tmp_path):
    store = CheckpointStore(tmp_path)
    ends.ask(store=store, meta={"env": "CartPole-v1"})
    ends.send_weights()
    ends.evaluator.poll()
    heard = ends.hear()
    assert type(heard).__name__ == "Evaluated" and heard.policies[0].is_best and heard.policies[0].error is None
    best = BestWeights(ends.home.arena.best_weights).load(ends.home.algorithm.build_model)
    assert best.mean_return == heard.policies[0].evaluation.mean_return
    for name, tensor in ends.home.model.state_dict().items():
        assert best.parameters[0][name].equal(tensor), name
    assert store.has_best() and (tmp_path / "best").exists()
    ends.ask(2, best_return=1e9)  # what is worse changes nothing
    ends.evaluator.poll()
    kept = block_of(ends.home.arena)
    assert not ends.hear().policies[0].is_best and block_of(ends.home.arena) == kept


def test_a_successor_on_another_node_has_the_best_weights_of_home_and_gets_undelivered_requests(ends):
    ends.ask()
    ends.send_weights()
    ends.evaluator.poll()
    ends.hear()
    ends.evaluator.close()
    ends.there.command(Evaluate(2, math.inf, (Candidate(None, None, {}),)))  # while no node is there
    ends.node = ExperienceArena.create(ends.home.arena.shape)
    ends.evaluator = ends.there.role().build(ends.node, ends.reports.append)
    assert block_of(ends.node) == block_of(ends.home.arena) is not None
    ends.send_weights()
    ends.there.send(ends)
    assert ends.evaluator.poll() and ends.hear().number == 2
    ends.there.send(ends)
    assert not ends.evaluator.poll(), "it is told once"


def test_a_deadline_is_the_same_number_of_seconds_ahead_by_any_clock_of_a_node(ends, monkeypatch):
    ends.send_weights()
    clock = time.monotonic
    ends.there.command(Evaluate(1, clock() + 50.0, (Candidate(None, None, {}),)))
    monkeypatch.setattr("penstock.engine.nodes.evaluation.time.monotonic", lambda: clock() + 1e6)
    ends.there.send(ends)
    assert 1e6 + 20.0 < ends.evaluator._request.deadline - clock() < 1e6 + 51.0


def test_a_death_says_on_which_node(ends):
    assert ends.there.completed(Died("evaluator was killed"), "node-0") == Died("evaluator was killed, on node-0")


def test_an_evaluator_on_a_node_takes_no_core_and_no_rest_at_home(monkeypatch):
    monkeypatch.setattr("penstock.engine.roster.whole_cores", lambda: 8)
    settings = {"env": "CartPole-v1", "backend": "ray", "address": "auto", "target_return": 100.0}
    home, node = (APPO.Config(**settings, evaluator=where) for where in ("home", "node"))
    assert [share_threads(config, 4, False) for config in (home, node)] == [(1, 7), (1, 8)]
    progress = type("Progress", (), {"steps": 0})()
    assert [Evaluations(config, progress, None, None)._rests for config in (home, node)] == [True, False]


@pytest.mark.parametrize("backend", ["serial", "local"])
def test_only_a_run_on_nodes_has_a_place_for_it(backend):
    match = f"evaluator='node' is for backend=\"ray\", found backend=\"{backend}\""
    with pytest.raises(ConfigError, match=match):
        Trainer(APPO, "CartPole-v1", backend=backend, evaluator="node")
