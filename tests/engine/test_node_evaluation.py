"""Evaluators on nodes, and home's end of them: in one process, without Ray."""

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
from penstock.engine.messages import Candidate, Evaluate
from penstock.engine.nodes.evaluation import EvaluationShares, block_of
from penstock.engine.roles.specs import EvaluatorRole
from penstock.engine.roster import share_threads
from penstock.engine.trainer import Trainer
from penstock.experience.arena import ExperienceArena
from penstock.runs.store import CheckpointStore
from tests.engine.collecting import Collecting
from tests.engine.reports import Reports
from tests.self_play.guests import Turns


class Host:
    """A node whose evaluator is polled by hand."""

    has_begun = True

    def __init__(self, ends, number: int) -> None:
        self.number, self.host, self.reports, self.heard = number, self, Reports(), 0
        self.arena = ExperienceArena.create(ends.home.arena.shape)
        self.evaluator = ends.there.role(number).build(self.arena, self.reports.append)

    def send(self, role: str, command: bytes) -> None:
        """What a host does with a command."""
        assert role == "evaluator"
        self.evaluator.handle(cloudpickle.loads(command))

    def new_reports(self):
        new, self.heard = self.reports[self.heard :], len(self.reports)
        return [cloudpickle.loads(cloudpickle.dumps(report)) for report in new]


class Ends:
    """Home, and nodes with an evaluator each."""

    def __init__(self, **settings) -> None:
        number = settings.get("num_evaluators", 1)
        on_nodes = {"backend": "ray", "evaluator": "node", "nodes": number, "num_workers": 1}
        self.home = Collecting(PPO, **{"eval_episodes": 4, "eval_max_steps": 20, **on_nodes, **settings})
        spec = EvaluatorRole((self.home.algorithm,), self.home.env)
        self.there = EvaluationShares(spec, self.home.arena)
        self.nodes = [Host(self, place) for place in range(number)]

    def ask(self, number: int = 1, *, deadline: float = math.inf, **candidate) -> None:
        facts = {"store": None, "best_return": None, "meta": {}, **candidate}
        self.there.command(Evaluate(number, deadline, (Candidate(**facts),)))
        self.there.send(self.nodes)

    def lose(self, number: int) -> None:
        """Lose a node, and send its part to another, as the backend."""
        self.nodes[number].has_begun = False
        self.there.lose(number)
        self.there.send(self.nodes)

    def play(self, *numbers: int):
        """Have the evaluators of these nodes, by default of all, play all that they have; return the results."""
        found = []
        for node in [self.nodes[number] for number in numbers or range(len(self.nodes))]:
            while node.evaluator.poll():
                found += [result for each in node.new_reports() if (result := self.there.completed(each))]
        return found


@pytest.fixture
def make():
    made = []

    def ends(**settings):
        made.append(Ends(**settings))
        return made[-1]

    yield ends
    for each in made:
        for node in each.nodes:
            node.evaluator.close()
        each.home.close()


def alone(ends):
    """The first evaluation of an evaluator at home, with the environments that those on nodes share."""
    arena, reports = ExperienceArena.create(ends.home.arena.shape), Reports()
    payload = np.zeros(arena.weights.size, np.uint8)
    arena.weights.publish(payload, ends.home.arena.weights.read_into(payload))
    evaluator = EvaluatorRole((ends.home.algorithm,), ends.home.env).build(arena, reports.append)
    evaluator.handle(Evaluate(1, math.inf, (Candidate(None, None, {}),)))
    evaluator.poll()
    evaluator.close()
    return reports[0].policies[0].evaluation


@pytest.mark.parametrize("number", [1, 3])
def test_evaluators_on_nodes_play_the_episodes_that_one_at_home_would_play_each_once(make, number):
    settings = {"eval_episodes": 8, "eval_max_steps": 10_000, "eval_exploration": True}
    ends = make(**settings, num_evaluators=number)
    expected, found = alone(ends), []
    for turn in (1, 2):
        ends.ask(turn)
        (result,) = ends.play()
        assert result.number == turn
        found.append(result.policies[0].evaluation)
    assert found[0] == expected and len(set(expected.returns)) > 2
    assert found[1].returns != expected.returns and found[1].requested == 8
    assert all(len(node.reports) == 2 for node in ends.nodes)


def test_a_request_replaces_one_of_an_earlier_evaluation_that_waits(make):
    ends, reports = make(), Reports()
    evaluator = EvaluatorRole((ends.home.algorithm,), ends.home.env).build(ends.home.arena, reports.append)
    for number in (1, 2):
        evaluator.handle(Evaluate(number, math.inf, (Candidate(None, None, {}),)))
    assert evaluator.poll() and not evaluator.poll()
    assert [report.number for report in reports] == [2]
    evaluator.close()


@pytest.mark.parametrize(("episodes", "idle"), [(8, 0), (29, 1)])
def test_an_evaluator_without_a_part_is_said(make, episodes, idle):
    remark = make(eval_episodes=episodes, num_evaluators=2).there.remark
    assert bool(remark) == bool(idle) and ("1 of num_evaluators=2 have nothing to play" in remark) == bool(idle)


def test_games_are_shared_and_their_results_are_joined_for_every_opponent_and_seat(make):
    games = {"env": Turns, "num_agents": 2, "segment_length": 4, "batch_size": 32}
    ends = make(**games, eval_against=("random", "best"), num_evaluators=2)
    for turn, opponents in ((1, ["random"]), (2, ["random", "best"])):  # the first are the best
        ends.ask(turn)
        (result,) = ends.play()
        (evaluation,) = (scored.evaluation for scored in result.policies)
        assert [match.opponent for match in evaluation.matches[::2]] == opponents
        assert all(len(match.returns) == match.requested == 4 for match in evaluation.matches)
        assert [match.outcomes for match in evaluation.matches[:2]] == [(-1,) * 4, (1,) * 4]
        assert evaluation.episodes == evaluation.requested == 8


def test_all_play_the_weights_of_the_request_whatever_newer_ones_their_nodes_have(make):
    ends = make(num_evaluators=2)
    ends.home.weights.publish(ends.home.weights.version + 1, 700)
    ends.ask()
    ends.home.weights.publish(ends.home.weights.version + 1, 900)
    (result,) = ends.play()
    assert result.policies[0].evaluation.steps == 700


def test_a_part_of_a_lost_node_is_played_by_another_and_late_results_count_once(make):
    ends = make(num_evaluators=2, eval_episodes=8, eval_max_steps=10_000)
    expected = alone(ends)
    ends.ask()
    ends.nodes[1].evaluator.poll()  # and its answer is lost with it
    ends.lose(1)
    (result,) = ends.play(0)
    assert result.policies[0].evaluation == expected
    assert not [each for each in ends.nodes[1].new_reports() if ends.there.completed(each)]
    ends.nodes[1] = Host(ends, 1)
    ends.ask(2)
    (result,) = ends.play()
    assert result.number == 2 and len(ends.nodes[1].reports) == 1


def test_an_evaluation_waits_for_a_node_and_one_that_is_asked_for_anew_replaces_it(make):
    ends = make()
    ends.nodes[0].has_begun = False
    ends.ask(1)
    ends.ask(2)
    assert ends.play() == []
    ends.nodes[0].has_begun = True
    ends.there.send(ends.nodes)
    ends.there.send(ends.nodes)
    assert [result.number for result in ends.play()] == [2] and len(ends.nodes[0].reports) == 1


def test_the_target_is_reached_when_fresh_episodes_of_all_evaluators_reach_it_too(make):
    ends = make(num_evaluators=2, target_return=5.0, eval_max_steps=10_000)
    ends.ask()
    assert ends.play() == []
    ends.there.send(ends.nodes)  # as the backend does after each report
    (result,) = ends.play()
    (scored,) = result.policies
    assert result.has_reached_target and len(scored.others) == 1 and scored.evaluation.requested == 4
    assert scored.evaluation.returns != scored.others[0].returns


def test_the_best_weights_are_kept_at_home_and_written_there(make, tmp_path):
    ends, store = make(num_evaluators=2), CheckpointStore(tmp_path)
    ends.ask(store=store, meta={"env": "CartPole-v1"})
    (result,) = ends.play()
    assert type(result).__name__ == "Evaluated" and result.policies[0].is_best and result.policies[0].error is None
    best = BestWeights(ends.home.arena.best_weights).load(ends.home.algorithm.build_model)
    assert best.mean_return == result.policies[0].evaluation.mean_return
    for name, tensor in ends.home.model.state_dict().items():
        assert best.parameters[0][name].equal(tensor), name
    assert store.has_best() and (tmp_path / "best").exists()
    kept = block_of(ends.home.arena)
    ends.ask(2, best_return=1e9)  # what is worse changes nothing
    (result,) = ends.play()
    assert not result.policies[0].is_best and block_of(ends.home.arena) == kept


def test_a_deadline_is_the_same_number_of_seconds_ahead_by_any_clock_of_a_node(make, monkeypatch):
    ends, clock, far = make(), time.monotonic, [0.0]
    monkeypatch.setattr("penstock.engine.nodes.evaluation.time.monotonic", lambda: clock() + far[0])
    node = ends.nodes[0]
    send = node.send

    def elsewhere(role, command):
        far[0] = 1e6
        send(role, command)
        far[0] = 0.0

    node.send = elsewhere
    ends.ask(deadline=clock() + 50.0)
    assert 1e6 + 20.0 < node.evaluator._requests[0].deadline - clock() < 1e6 + 51.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"evaluator": "home", "num_evaluators": 2}, 'num_evaluators=2 need a node each, but evaluator="home" is'),
        ({"num_evaluators": 3}, "num_evaluators=3 need a node each .* nodes=2 and .*: use num_evaluators=2 or fewer"),
        ({"num_evaluators": 2, "eval_episodes": 1}, "num_evaluators=2 need .* eval_episodes=1: use num_evaluators=1"),
        ({"num_evaluators": 0}, "num_evaluators=0 is not legal"),
        ({"num_evaluators": 2, "backend": "local", "nodes": 1, "evaluator": "home"}, "num_evaluators=2 is for backend"),
    ],
)
def test_evaluators_without_a_node_or_an_episode_of_their_own_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        APPO.Config(**{"env": "CartPole-v1", "backend": "ray", "nodes": 2, "evaluator": "node", **settings})


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
