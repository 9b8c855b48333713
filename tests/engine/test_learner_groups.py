"""Runs whose policy has several learners: they find each other, one that is killed comes back, and all goes on."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from penstock.algorithms import load_algorithm
from penstock.algorithms.a3c import A3C
from penstock.algorithms.dqn import DQN
from penstock.algorithms.ppo import PPO
from penstock.config import ConfigError, make_config
from penstock.engine import roster
from penstock.engine.backends.restarts import Restarts, RoleDied
from penstock.engine.groups import leader as leaders
from penstock.engine.groups.board import Board
from penstock.engine.groups.meeting import GroupMember
from penstock.engine.inspection import inspect
from penstock.engine.preparation import require_learners
from penstock.engine.trainer import Trainer
from penstock.experience.arena import Control
from penstock.experience.layout import policy_worker_name
from tests.engine.inside import arena_of, supervisor_of
from tests.engine.processes import FOR_EVER, TINY, Watched, pids_of, roles_of, script, wait_until, without
from tests.variants import only

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("kept_launcher")]

RAY = {"backend": "ray"}
REPLAY = {**without(TINY, "segment_length"), "learning_starts": 64, "buffer_size": 2_000, "updates_per_step": 0.1}


class Kills:
    """Kills learners one after the other, each when all learn together; stops the training when all are back.

    Attributes
    ----------
    updates
        As they were reported: before and after each death.
    """

    def __init__(self, trainer, victims):
        self._backend = supervisor_of(trainer).backend
        self._victims = list(victims)
        self._meetings = trainer.status.experience.get("learners/rendezvous", 0)
        self._meetings -= bool(self._meetings)  # what is together now counts
        self.updates = []

    def __call__(self, status):
        learners = status.experience
        is_new = learners.get("learners/rendezvous", 0) > self._meetings
        if not (is_new and learners["learners/active"] == 2 and status.updates):
            return True
        self.updates.append(status.updates)
        self._meetings = learners["learners/rendezvous"]
        if not self._victims:
            return False
        os.kill(self._backend.pids[self._victims.pop(0)], signal.SIGKILL)
        return True


def killed(trainer, *victims):
    """Train until each of these learners was killed and is back; check that no update was lost."""
    kills, restarts = Kills(trainer, victims), trainer.status.restarts
    trainer.train(quiet=True, on_update=kills)
    assert trainer.status.restarts == restarts + len(victims)
    assert kills.updates == sorted(kills.updates)
    assert len(kills.updates) == len(victims) + 1


def meetings(trainer):
    return int(arena_of(trainer).control[Control.TOGETHER])


def together_again(trainer, times):
    """Wait until the number of meetings of all learners exceeds `times`, while none learns."""
    backend = supervisor_of(trainer).backend
    wait_until(lambda: backend.pump(0.05) or meetings(trainer) > times, "they are together again")


def all_killed(trainer):
    """Kill all learners of a run at rest; check that weights and counts are found where they were published."""
    trainer.train(100, quiet=True)
    before, status, times = trainer.get_parameters()[0], trainer.status, meetings(trainer)
    for role in ("learner", "rank-1"):
        os.kill(pids_of(trainer)[role], signal.SIGKILL)
    together_again(trainer, times)
    for name, tensor in trainer.get_parameters()[0].items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)
    trainer.train(100, quiet=True)
    now = trainer.status
    assert now.experience["learners/active"] == 2
    assert status.steps < now.steps < status.steps + 500 and status.updates < now.updates < status.updates + 500
    log = (Path(status.run_dir) / "log.txt").read_text()
    assert f"published last, of step {status.steps:,}: it is new, and no other has learned yet" in log


@pytest.mark.long
def test_whichever_learner_is_killed_the_run_goes_on_from_what_the_other_has_until_both_are(tmp_path):
    run = {"num_learners": 2, "num_epochs": 1, "run_dir": str(tmp_path / "run"), "total_steps": FOR_EVER}
    trainer = Trainer(PPO, **TINY, **run)
    killed(trainer, "learner", "rank-1")
    log = (tmp_path / "run" / "log.txt").read_text()
    assert log.count("2 learners learn together from step") == 3
    assert "rank-1 is replaced" in log

    # Its successor has nothing but what the other learner has: the same bits, weights that were set since included.
    trainer.set_parameters({0: {name: 1.5 * tensor for name, tensor in trainer.get_parameters()[0].items()}})
    trainer.train(100, quiet=True)
    before, version, times = trainer.get_parameters()[0], trainer.status.version, meetings(trainer)
    os.kill(pids_of(trainer)["learner"], signal.SIGKILL)
    together_again(trainer, times)
    assert inspect(trainer).policies[0].version > version
    for name, tensor in trainer.get_parameters()[0].items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)
    all_killed(trainer)
    family = Watched(roles_of(trainer))
    trainer.close()
    assert family.left_after(0.0) == []


TWO_LEARNERS = """
import ast, sys
import penstock

with penstock.PPO(**ast.literal_eval(sys.argv[1])) as trainer:
    trainer.train(quiet=True, on_update=lambda status: status.experience.get("learners/active") != 2)
    assert trainer.status.experience["learners/active"] == 2
"""


@pytest.mark.long
def test_learners_that_connect_print_nothing(tmp_path):
    settings = {**TINY, "num_learners": 2, "total_steps": FOR_EVER, "run_dir": None}
    with script(TWO_LEARNERS, tmp_path, repr(settings)) as process:
        assert (process.communicate(timeout=90)[0], process.returncode) == ("", 0)


@pytest.mark.long
def test_what_a_group_has_learned_from_replay_outlives_its_learners_and_is_resumed_by_one(tmp_path):
    run = {"num_learners": 2, "run_dir": str(tmp_path / "run"), "total_steps": FOR_EVER}
    with Trainer(DQN, **REPLAY, **run) as trainer:
        killed(trainer, "rank-1", "learner")
        all_killed(trainer)
        updates, weights = trainer.status.updates, trainer.get_parameters()[0]
        family = Watched(roles_of(trainer))
    assert family.left_after(0.0) == []

    with Trainer.resume(tmp_path / "run", num_learners=1) as alone:
        for name, tensor in alone.get_parameters()[0].items():
            torch.testing.assert_close(tensor, weights[name], rtol=0, atol=0)
        alone.train(200, quiet=True)
        assert alone.status.updates > updates
        assert "rank-1" not in pids_of(alone)


@pytest.mark.parametrize(
    ("algorithm", "settings", "message"),
    [
        ("ppo", {"num_learners": 3}, r"3 is no divisor of the 8 segments of a batch, .*: use 2 or 4"),
        ("ppo", {"num_learners": 16}, r"16 is more than the 8 segments of a batch, .*: use 8"),
        ("ppo", {"num_learners": 4, "memory": "gru"}, r"4 is more than the 2 segments of an update .*: use 2"),
        ("dqn", {"num_learners": 7}, r"7 is no divisor of the 128 rows of an update \(batch_size=128\), .*: use 4 or"),
        ("appo", {"num_learners": 0}, "num_learners must be 1 or more"),
        ("appo", {"num_learners": 2, "backend": "serial"}, 'backend="serial" has one: use backend="local"'),
        ("appo", {"num_learners": 2, "num_policies": 2}, "is for one policy, found 2: .*use num_learners=1"),
        ("ppo", {"learner_nodes": 1, "num_learners": 2}, 'learner_nodes=1 is for backend="ray", found backend="local"'),
        ("ppo", {**RAY, "learner_nodes": -1}, "must be a number of nodes, or the number of nodes with a resource"),
        ("ppo", {**RAY, "learner_nodes": {"a": 0}}, "learner_nodes=.* is not legal"),
        ("ppo", {**RAY, "learner_nodes": 2, "num_learners": 2}, "2 of num_learners=2 learners .*: use num_learners=3"),
        ("ppo", {**RAY, "learner_nodes": {"a": 1}}, "puts 1 of num_learners=1 learners on nodes, but the first is at"),
    ],
)
def test_numbers_of_learners_that_cannot_be_are_refused_with_those_that_can(algorithm, settings, message):
    config = {"env": "CartPole-v1", "num_workers": 1, "num_envs_per_worker": 8, **settings}
    with pytest.raises(ConfigError, match=message):
        make_config(load_algorithm(algorithm).Config, config)


def test_algorithms_whose_workers_learn_and_machines_without_a_gpu_for_each_learner_are_refused(monkeypatch):
    some = {"env": "CartPole-v1", "num_learners": 2, "num_workers": 1}
    with pytest.raises(ConfigError, match=r"a3c cannot use num_learners=2: its rollout workers learn"):
        require_learners(A3C, make_config(A3C.Config, some))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    require_learners(PPO, make_config(PPO.Config, {**some, "device": "cuda"}))
    with pytest.raises(ConfigError, match=r"num_learners=2 needs a GPU for each, from cuda:1 on, .* sees 1 there"):
        require_learners(PPO, make_config(PPO.Config, {**some, "device": "cuda:1"}))
    away = {**some, **RAY, "num_learners": 4, "learner_nodes": 2, "device": "cuda"}
    require_learners(PPO, make_config(PPO.Config, away))
    with pytest.raises(ConfigError, match=r"4 needs a GPU for each of the 3 at home, .* 2 there: use num_learners=3"):
        require_learners(PPO, make_config(PPO.Config, {**away, "learner_nodes": 1}))


def test_who_takes_the_place_of_a_learner_that_was_invited_is_not_invited_itself():
    board, cpu = Board(2), torch.device("cpu")
    first, dead, successor = (GroupMember(board.spec, rank, cpu) for rank in (0, 1, 1))
    assert first.others_ready(1) is None
    assert dead.invitation(1) is None
    dead.get_ready(1, has_state=True)
    (ready,) = first.others_ready(1)
    assert ready.has_state
    first.invite(1, [ready], source=0)
    successor.get_ready(1, has_state=False)
    assert dead.invitation(1) == 0
    assert successor.invitation(1) is None
    board.close()


class Successor:
    """A learner that has just been made, and does nothing."""

    bell, device = SimpleNamespace(ring=lambda: None), torch.device("cpu")

    def __init__(self):
        self.heard = []

    def published_state(self):
        return {"standing": {"steps": 7, "version": 3, "updates": 0, "batches": 0}}

    def take_state(self, state):
        self.heard.append(state["standing"])

    def handle(self, command):
        self.heard.append(command)

    def standing(self):
        return self.published_state()["standing"]

    def poll(self):
        return False


@pytest.mark.parametrize("seconds", [-1.0, 60.0])
def test_a_first_learner_that_is_new_does_not_wait_for_ever_for_one_that_could_tell_it_more(monkeypatch, seconds):
    monkeypatch.setattr(leaders, "ANSWER_SECONDS", seconds)
    board, learner, said = Board(2), Successor(), []
    arena = SimpleNamespace(control=np.zeros(len(Control), np.int64))
    before = Successor()
    before.standing = lambda: {"updates": 5, "batches": 4}
    leaders.Leader(before, board.spec, arena, said.append)
    leader = leaders.Leader(learner, replace(board.spec, is_successor=True), arena, said.append)
    leader.handle("a command")
    leader.poll()
    expected = [{"steps": 7, "version": 3, "updates": 5, "batches": 4}, "a command"]
    assert learner.heard == (expected if seconds < 0.0 else [])
    assert len(said) == (seconds < 0.0)
    board.close()


def test_learners_that_are_killed_again_and_again_end_the_run():
    restarts = Restarts(forgive_environments=False)
    pauses = [restarts.after_kill("rank-1 was killed", is_learner=True) for _ in range(20)]
    assert max(pauses) <= 1.0
    with pytest.raises(RoleDied, match=r"rank-1 was killed: 21 learner deaths in 10 minutes, and only 20 are"):
        restarts.after_kill("rank-1 was killed", is_learner=True)


CENTRAL = {"inference": "central", "num_learners": 2, "run_dir": None, "total_steps": FOR_EVER}
ACTING = [
    pytest.param(PPO, {**TINY, **CENTRAL, "num_epochs": 1}, id="ppo"),
    pytest.param(DQN, {**REPLAY, **CENTRAL}, id="dqn"),
]


def acting(trainer):
    """Seconds that each policy worker has spent on choosing actions."""
    arena = arena_of(trainer)
    return [float(arena.gauges_of(policy_worker_name(0, number))[0]) for number in range(2)]


def keeps_learning(trainer):
    """Train on until every group of lanes has been answered, and learners have made updates."""
    requests, groups = arena_of(trainer).requests, range(arena_of(trainer).shape.all_groups)
    before, updates = [requests.num_answered(group) for group in groups], trainer.status.updates

    def has_learned_from_all():
        trainer.train(300, quiet=True)
        now = [requests.num_answered(group) for group in groups]
        return trainer.status.updates > updates and not any(a == b for a, b in zip(now, before, strict=True))

    wait_until(has_learned_from_all, "every group of lanes is answered, and updates are made")


@pytest.mark.parametrize(("algorithm", "settings"), only("ppo", ACTING))
def test_each_learner_has_a_policy_worker_that_is_replaced_when_it_is_killed(algorithm, settings):
    with Trainer(algorithm, **settings) as trainer:
        keeps_learning(trainer)
        assert min(acting(trainer)) > 0.0
        assert {"policy-0", "policy-0.1", "learner", "rank-1"} < set(pids_of(trainer))
        assert "policy x2" in {role.name for role in trainer.status.roles}
        for number, name in enumerate(("policy-0.1", "rollout-1", "rollout-0"), start=1):
            os.kill(pids_of(trainer)[name], signal.SIGKILL)
            wait_until(lambda: trainer.train(300, quiet=True) and trainer.status.restarts == number, "it is replaced")  # noqa: B023
            keeps_learning(trainer)
        assert trainer.status.experience["learners/active"] == 2
        family = Watched(roles_of(trainer))
    assert family.left_after(0.0) == []


@pytest.mark.parametrize(("algorithm", "settings"), only("dqn", ACTING))
def test_learners_with_policy_workers_in_their_processes_are_replaced_with_them(algorithm, settings, monkeypatch):
    monkeypatch.setattr(roster, "shares_device", lambda config: True)
    with Trainer(algorithm, **settings) as trainer:
        keeps_learning(trainer)
        assert min(acting(trainer)) > 0.0
        assert set(pids_of(trainer)) == {"launcher", "rollout-0", "rollout-1", "learner", "rank-1", "evaluator"}
        killed(trainer, "learner", "rank-1")
        keeps_learning(trainer)
        os.kill(pids_of(trainer)["rollout-1"], signal.SIGKILL)
        keeps_learning(trainer)
        family = Watched(roles_of(trainer))
    assert family.left_after(0.0) == []


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_learners_on_gpus_of_their_own_learn_together():
    with Trainer(PPO, **TINY, num_learners=2, device="cuda", run_dir=None, total_steps=2_000) as trainer:
        trainer.train(quiet=True)
        assert trainer.status.experience["learners/active"] == 2
        assert min(acting(trainer)) > 0.0
