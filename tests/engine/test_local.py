"""The local engine: one process per role, warm between calls, and the same numbers as the serial engine."""

import json
import math
import os
import threading
import time
from types import SimpleNamespace

import psutil
import pytest
import torch

from penstock.algorithms.appo import APPO
from penstock.algorithms.ppo import PPO
from penstock.engine.backends.process import NICENESS
from penstock.engine.endings import TrainingInterrupted
from penstock.engine.evaluations import Evaluations, rest_ratio
from penstock.engine.messages import Scored
from penstock.engine.roles.evaluator import Evaluated
from penstock.engine.trainer import Trainer
from penstock.engine.watching.progress import PolicyProgress
from penstock.experience.arena import Control
from penstock.ipc import available_cores
from penstock.play.evaluation import Evaluation
from tests.engine.inside import arena_of, supervisor_of
from tests.engine.processes import FOR_EVER, PATIENCE, TINY, Watched, pids_of, roles_of
from tests.engine.stubborn import STAY, Stubborn, always

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("kept_launcher")]


@pytest.mark.parametrize("inference", ["central", "local"])
def test_processes_stay_warm_and_weights_that_are_set_fence_off_what_older_ones_chose(inference):
    settings = {**TINY, **STAY, "num_envs_per_worker": 4, "inference": inference}
    with Trainer(Stubborn, **settings, run_dir=None) as trainer:
        first = trainer.train(500, quiet=True)
        assert first.steps >= 500
        pids = pids_of(trainer)
        for action in (0, 1, 0):
            trainer.set_parameters(always(action, trainer.get_parameters()))
            before = trainer.status.steps
            assert trainer.train(500, quiet=True).steps >= before + 500
            kept = trainer.get_parameters()[0]["policy_head.bias"]
            assert kept.argmax() == action
            assert trainer.evaluate(2).mean_length < 12  # a pole pushed one way only falls soon
        assert pids_of(trainer) == pids
        assert trainer.status.version > first.steps // settings["batch_size"]
        worker = psutil.Process(pids["rollout-0"]).memory_full_info().uss
        if inference == "central":
            assert worker < 120e6
        family = Watched(roles_of(trainer))
    assert family.left_after(0.0) == []
    trainer.close()
    with pytest.raises(RuntimeError, match="this trainer is closed: make a new one"):
        trainer.get_parameters()


def test_an_action_that_older_weights_chose_would_have_been_noticed(monkeypatch):
    # Without the fence the test above fails: what is collected before the weights are set is learned from after it.
    from penstock.engine.endings import TrainingFailed
    from penstock.engine.transfers import Transfers

    monkeypatch.setattr(Transfers, "_settle", lambda self, policy, settings: None)
    with Trainer(Stubborn, **TINY, **STAY, run_dir=None) as trainer:
        trainer.train(500, quiet=True)
        trainer.set_parameters(always(1, trainer.get_parameters()))
        with pytest.raises(TrainingFailed, match="an action of older weights was learned from"):
            trainer.train(500, quiet=True)


def test_a_run_that_cannot_be_watched_makes_no_roles(monkeypatch):
    def fail(*_):
        raise RuntimeError("no watch")

    made = []
    monkeypatch.setattr("penstock.engine.supervisor.HangWatch", fail)
    monkeypatch.setattr("penstock.engine.supervisor._backend", lambda name: lambda *_: made.append(name))
    with pytest.raises(RuntimeError, match="no watch"):
        Trainer(PPO, **TINY, run_dir=None)
    assert not made


def learn(backend, folder):
    """Train PPO for five batches; return the weights and the losses that were written down."""
    settings = {**TINY, "num_envs_per_worker": 4, "num_epochs": 2, "seed": 5, "backend": backend}
    with Trainer(PPO, **settings, total_steps=5 * 8 * 16, run_dir=str(folder)) as trainer:
        result = trainer.train(quiet=True)
        return trainer.get_parameters()[0], trainer.status.losses, (trainer.status.updates, result.steps)


def test_ppo_in_processes_computes_what_it_computes_in_one_every_time(tmp_path):
    weights, losses, counts = learn("serial", tmp_path / "serial")
    assert all(math.isfinite(loss) for loss in losses.values())
    for again in ("local", "local again"):
        others, other_losses, other_counts = learn("local", tmp_path / again)
        assert other_counts == counts
        for name, tensor in weights.items():
            assert torch.equal(others[name], tensor), name
        assert other_losses == losses


def test_rollout_workers_yield_to_all_other_roles():
    with Trainer(APPO, **{**TINY, "inference": "central"}, run_dir=None) as trainer:
        trainer.train(64, quiet=True)
        pids = pids_of(trainer)
        niceness = {name: psutil.Process(pid).nice() - os.nice(0) for name, pid in pids.items()}
    assert {"rollout-0", "policy-0", "learner"} <= niceness.keys()
    assert {name: nice for name, nice in niceness.items() if nice} == {
        name: NICENESS for name in niceness if name.startswith("rollout")
    }


def test_a_pinned_rollout_worker_keeps_to_one_core_of_those_that_the_run_may_use():
    cores = sorted(os.sched_getaffinity(0))
    with Trainer(APPO, **{**TINY, "num_workers": 2, "pin_workers": True}, run_dir=None) as trainer:
        trainer.train(64, quiet=True)
        found = {name: sorted(os.sched_getaffinity(pid)) for name, pid in pids_of(trainer).items()}
    assert [found[f"rollout-{number}"] for number in range(2)] == [[cores[0]], [cores[1 % len(cores)]]]
    assert found["learner"] == cores


def test_the_learner_says_what_its_last_batch_took():
    began = time.monotonic_ns()
    with Trainer(APPO, **TINY, run_dir=None) as trainer:
        trainer.train(200, quiet=True)
        assert 0 < arena_of(trainer).control[Control.PACE] < time.monotonic_ns() - began


def test_two_trainers_train_at_once_in_threads_of_one_process():
    results = {}

    def train(number):
        settings = {**TINY, "num_workers": 1, "run_dir": None, "seed": number}
        with Trainer(PPO, **settings) as trainer:
            trainer.train(64, quiet=True)
            results[number] = trainer.train(64, quiet=True).steps, pids_of(trainer)

    threads = [threading.Thread(target=train, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (steps_1, pids_1), (steps_2, pids_2) = results[1], results[2]
    assert min(steps_1, steps_2) >= 128
    roles_1, roles_2 = ({pid for role, pid in pids.items() if role != "launcher"} for pids in (pids_1, pids_2))
    assert roles_1 and not roles_1 & roles_2  # the launcher may have served one after the other


def test_a_trainer_closed_by_another_thread_ends_as_an_interrupted_one(tmp_path):
    has_begun, ended, messages = threading.Event(), [], []
    settings = {**TINY, "total_steps": 10_000_000, "run_dir": str(tmp_path / "run")}
    with Trainer(APPO, **settings) as trainer:

        def train():
            with pytest.raises(TrainingInterrupted) as interruption:
                trainer.train(on_update=lambda status: has_begun.set() if status.steps else None, quiet=True)
            ended.append(interruption.value.result)
            messages.append(str(interruption.value))

        thread = threading.Thread(target=train)
        thread.start()
        assert has_begun.wait(60)
        trainer.close()
        thread.join()
    assert ended[0].stop_reason == "interrupted"
    assert f"at step {ended[0].steps:,}: go on with train(), or after close() with Trainer.resume(" in messages[0]
    with Trainer.resume(tmp_path / "run") as trainer:
        assert trainer.status.steps == ended[0].steps


def test_a_run_shows_its_events_and_numbers_to_its_user_and_its_directory(tmp_path):
    seen = []

    def note(status):
        seen.append(status)
        return {"answer": 42.0}

    settings = {**TINY, "eval_interval": 200, "total_steps": 2_000, "run_dir": str(tmp_path / "run")}
    with Trainer(APPO, **settings) as trainer:
        result = trainer.train(on_update=note, quiet=True)
    assert seen[-1].steps == result.steps >= 2_000
    assert seen[-1].mean_return == result.mean_return
    assert {role.name for role in seen[-1].roles} == {"rollout x2", "learner", "evaluator"}
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["steps"] == result.steps
    assert lines[-1]["metrics/answer"] == 42.0
    evaluations = [line["evaluation/mean_return"] for line in lines if "evaluation/mean_return" in line]
    assert evaluations[-1] == result.eval_return
    assert max(evaluations) == trainer.status.best_return


def train_until(trainer, condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came about"
        trainer.train(100, quiet=True)


def test_who_waits_for_a_target_leaves_the_cores_to_training_between_evaluations(monkeypatch):
    # Times milliseconds: longer than this test.
    monkeypatch.setattr("penstock.engine.evaluations.rest_ratio", lambda cores, has_target: 1e6)
    settings = {**TINY, "target_return": 501.0, "eval_interval": None, "total_steps": FOR_EVER}
    with Trainer(APPO, **settings, run_dir=None) as trainer:
        evaluations = supervisor_of(trainer).evaluations
        train_until(trainer, lambda: evaluations.answered == 1)
        for _ in range(50):
            trainer.train(100, quiet=True)
        assert evaluations.requested == 1
        trainer.set_parameters(trainer.get_parameters())
        train_until(trainer, lambda: evaluations.requested > 1)  # weights that were set are looked at anew


def test_an_interval_that_is_given_is_kept_for_any_duration_of_evaluations(monkeypatch):
    monkeypatch.setattr("penstock.engine.evaluations.rest_ratio", lambda cores, has_target: 1e6)
    settings = {**TINY, "target_return": 501.0, "eval_interval": 1, "total_steps": FOR_EVER}
    with Trainer(APPO, **settings, run_dir=None) as trainer:
        train_until(trainer, lambda: supervisor_of(trainer).evaluations.requested > 2)
        assert supervisor_of(trainer).evaluations._rests_until == 0.0


def test_the_rest_is_as_long_as_was_played_and_not_as_was_waited_for_the_score():
    settings = {**TINY, "target_return": 501.0, "eval_interval": None}
    with Trainer(APPO, **settings, run_dir=None) as trainer:
        evaluations = supervisor_of(trainer).evaluations
        evaluations.request([{}])
        time.sleep(0.5)  # the user does something else: more than ten times the rest that follows
        before = time.monotonic()
        evaluations.take(Evaluated(1, (Scored(Evaluation((1.0,), (1,))),), 0.01))
        pause = 0.01 * rest_ratio(available_cores(), has_target=True)
        assert before + pause <= evaluations._rests_until <= time.monotonic() + pause


def test_without_a_target_evaluations_have_a_second_and_then_three_percent_of_the_cores(monkeypatch):
    assert rest_ratio(2, has_target=False) == pytest.approx(1 / 0.06 - 1)
    assert rest_ratio(2, has_target=True) == pytest.approx(4.0)
    assert rest_ratio(40, has_target=False) == 0.0 == rest_ratio(10, has_target=True)
    monkeypatch.setattr("penstock.engine.evaluations.time", SimpleNamespace(monotonic=lambda: 1_000.0))
    progress = SimpleNamespace(steps=0, policies=[PolicyProgress()])
    chronicle = SimpleNamespace(evaluated=lambda policies: None)
    evaluations, rests = Evaluations(APPO.Config(env="CartPole-v1"), progress, chronicle, None), []
    for number, played in enumerate((0.75, 0.75, 2.0), 1):
        evaluations.take(Evaluated(number, (Scored(Evaluation((1.0,), (1,))),), played))
        rests.append(evaluations._rests_until - 1_000.0)
    ratio = rest_ratio(available_cores(), has_target=False)
    assert rests == pytest.approx([0.0, 0.5 * ratio, 2.0 * ratio])


@pytest.mark.parametrize(
    ("settings", "rests"),
    [
        ({}, True), ({"target_return": 500.0}, True), ({"eval_interval": 100}, False), ({"backend": "serial"}, False),
        ({"eval_interval": "continuous"}, False),
    ],
)  # fmt: skip
def test_evaluations_have_a_share_of_the_cores_unless_an_interval_is_given(settings, rests):
    config = APPO.Config(env="CartPole-v1", **settings)
    assert Evaluations(config, SimpleNamespace(steps=0), None, None)._rests is rests


def test_the_evaluator_rests_the_longer_the_fewer_cores_there_are():
    assert [rest_ratio(cores, has_target=True) for cores in (1.0, 2.0, 4.0, 10.0, 64.0)] == [9.0, 4.0, 1.5, 0.0, 0.0]
