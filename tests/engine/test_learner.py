"""The learner takes batches, counts their steps, frees slots, and saves checkpoints on request."""

import numpy as np
import pytest

from penstock import Trainer
from penstock.algorithms.appo import APPO
from penstock.algorithms.dqn import DQN
from penstock.algorithms.ppo import PPO
from penstock.algorithms.pqn import PQN
from penstock.engine.contracts import LearnerState
from penstock.engine.messages import Save, Saved, SetWeights, Stop, WeightsSet
from penstock.experience.arena import READER, Control
from penstock.ipc import SlotState
from penstock.runs.checkpoint import load_checkpoint
from tests.comparing import identical
from tests.engine.collecting import FIRST_VERSION, Collecting, Watching, Witnessed, a_run, saved


class WatchingInStep(Watching):
    """The same, while the rollout workers wait."""

    synchronous = True


def test_the_steps_learned_from_are_exactly_those_that_the_environments_made():
    Witnessed.made.clear()
    run, learner = a_run(env=Witnessed, batch_size=32, num_minibatches=1, reward_scale=1e-3)
    for _ in range(3):
        run.fill()
        report = run.learn_once(learner)
        assert report.steps == Witnessed.steps() and report.experience["masked_steps"] == 0
    assert report.steps < 3 * 32, "final rows were to be among them"
    run.close()


def test_a_batch_that_is_stale_as_a_whole_leaves_weights_optimiser_and_version_alone(tmp_path):
    run, learner = a_run(max_policy_lag=4)
    run.learn_once(learner)  # so that the optimiser has momentum
    weights, version = run.published(), run.arena.weights.version
    before, pace = run.learned[-1], int(run.arena.control[Control.PACE])
    kept = saved(learner, tmp_path / "before")
    run.arena.columns["version"].reshape(-1, 9)[run.fill()] -= 1000
    run.arena.control[Control.GOAL] = 1000
    assert learner.poll()
    assert run.published() == weights and run.arena.weights.version == version
    assert run.arena.control[Control.PACE] == pace > 0, "no work tells nothing of the pace"
    after = saved(learner, tmp_path / "after")
    assert identical(kept.weights, after.weights) and identical(kept.state["optimizer"], after.state["optimizer"])
    report = run.learn_once(learner)
    assert report.experience["masked_steps"] == 32 and report.steps == before.steps + 32
    run.close()


def test_the_policy_lag_of_the_batch_is_reported_from_the_version_before_it():
    run, learner = a_run(num_epochs=2, inference="central")  # four updates per batch
    assert run.learn_once(learner).experience["policy_lag/max"] == 0.0
    run.fill()
    reports = [run.learn_once(learner).experience for _ in range(4)]
    assert all(0 <= report["policy_lag/mean"] <= report["policy_lag/max"] for report in reports)
    assert max(report["policy_lag/max"] for report in reports) >= 4.0
    run.close()


@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.parametrize("inference", ["local", "central"])
def test_ppo_never_learns_from_a_step_of_another_version(memory, inference):
    run, learner = a_run(PPO, memory=memory, inference=inference, num_epochs=2)
    for _ in range(4):
        report = run.learn_once(learner)
        assert report.experience["policy_lag/max"] == report.experience["masked_steps"] == 0
    run.close()


def test_a_synchronous_learner_takes_the_lanes_in_their_order():
    run, learner = a_run(PPO)
    run.fill()
    run.arena.full.push_many(run.arena.full.pop_many(9)[::-1].copy())
    seen = []
    prepare = run.algorithm.prepare
    run.algorithm.prepare = lambda model, batch: seen.append(batch.lane.tolist()) or prepare(model, batch)
    run.learn_once(learner)
    assert seen == [[0, 1, 2, 3]]
    run.close()


def test_a_batch_that_has_waited_long_enough_is_closed_and_late_segments_are_in_the_next(monkeypatch):
    run, learner = a_run(PPO, batch_timeout=2.0, num_epochs=1, batch_size=8)
    clock = [100.0]
    monkeypatch.setattr("penstock.engine.paths.segment_learner.time.monotonic", lambda: clock[0])
    batches = []
    prepare = run.algorithm.prepare
    run.algorithm.prepare = lambda model, batch: batches.append(batch) or prepare(model, batch)
    run.arena.control[Control.GOAL] = 1_000

    slots = run.fill()
    assert sorted(slots) == [0, 1, 2, 3]
    late = np.array([1, 3])
    run.arena.full.pop_many(9)
    run.arena.slots.claim(late, SlotState.FULL, SlotState.WRITING, 0)  # two lanes are still stepping
    run.arena.full.push_many(np.array([2, 0]))
    assert not learner.poll()
    clock[0] += 1.9
    assert not learner.poll() and not batches
    clock[0] += 0.1
    assert learner.poll()
    (batch,) = batches
    steps = run.arena.columns["valid"].reshape(4, -1)[:, :-1].T
    assert batch.valid[:, [0, 2]].tolist() == steps[:, [0, 2]].tolist() and batch.valid[:, [0, 2]].any()
    assert not batch.valid[:, late].any() and not batch.obs[:, late].any() and not batch.log_prob[:, late].any()
    assert run.arena.slots.in_state(SlotState.WRITING).tolist() == [1, 3]  # theirs, as before
    assert run.arena.slots.in_state(SlotState.FREE).tolist() == [0, 2]

    run.arena.slots.claim(np.array([0, 2]), SlotState.FREE, SlotState.WRITING, 0)
    everything = np.arange(4)
    run.arena.columns["version"].reshape(4, -1)[[0, 2]] = run.arena.weights.version
    run.arena.slots.claim(everything, SlotState.WRITING, SlotState.FULL, 0)
    run.arena.full.push_many(everything)
    assert learner.poll()  # at once: all are there
    assert batches[1].valid[:, late].tolist() == steps[:, late].tolist()
    experience = learner.experience()
    assert experience["late_segments"] == 2 and experience["policy_lag/min"] == 0 < experience["policy_lag/max"]
    run.close()


def test_an_asynchronous_learner_gives_slots_back_before_it_learns_and_publishes_in_between():
    run, learner = a_run(Watching, batch_size=8, num_epochs=3)
    seen = []
    run.algorithm.watch = lambda: seen.append(
        (run.arena.weights.version, len(run.arena.slots.in_state(SlotState.READING)))
    )
    run.fill()
    run.learn_once(learner)
    assert [version for version, _ in seen] == [FIRST_VERSION, FIRST_VERSION + 1, FIRST_VERSION + 2]
    assert {reading for _, reading in seen} == {3}, "three more were taken hold of, none of them is of this batch"
    assert run.arena.weights.version == FIRST_VERSION + 3
    run.close()


def test_a_synchronous_learner_keeps_all_slots_and_its_weights_until_it_has_learned():
    run, learner = a_run(WatchingInStep, batch_size=32, num_epochs=3)
    seen = []
    run.algorithm.watch = lambda: seen.append(
        (run.arena.weights.version, len(run.arena.slots.in_state(SlotState.READING)))
    )
    run.learn_once(learner)
    assert seen == [(FIRST_VERSION, 4)] * 3
    assert run.arena.weights.version == FIRST_VERSION + 3 and not len(run.arena.slots.in_state(SlotState.READING))
    run.close()


def test_doubled_hints_of_full_slots_are_learned_from_once():
    run, learner = a_run(batch_size=32, num_minibatches=1)
    slots = run.fill()
    run.arena.full.push_many(slots)
    run.arena.full.push_many(slots)
    assert run.learn_once(learner).steps == 32
    run.arena.control[Control.GOAL] = 1000
    assert not learner.poll()
    run.close()


def test_segments_of_an_earlier_epoch_are_given_back_even_if_they_were_in_hand():
    run, learner = a_run(batch_size=8, num_minibatches=1)
    run.fill()
    assert run.learn_once(learner).steps == 8
    held = run.arena.slots.owned_by(READER, SlotState.READING)
    assert len(held) == 3
    run.arena.control[Control.RUN_EPOCH] += 1
    run.arena.control[Control.GOAL] = 1000
    assert not learner.poll() and not len(run.arena.slots.in_state(SlotState.READING))
    run.close()


def test_segments_of_an_earlier_epoch_that_wait_are_never_learned_from():
    run, learner = a_run(batch_size=32, num_minibatches=1)
    run.fill()
    run.arena.control[Control.RUN_EPOCH] += 1
    run.arena.control[Control.GOAL] = 1000
    assert not learner.poll()
    assert not len(run.arena.slots.in_state(SlotState.FULL)) and not len(run.arena.slots.in_state(SlotState.READING))
    assert run.learn_once(learner).steps == 32, "new segments are"
    run.close()


def test_at_its_goal_the_learner_rests():
    run, learner = a_run(batch_size=8, num_minibatches=1)
    run.fill()
    run.arena.control[Control.GOAL] = 9
    assert [learner.poll() for _ in range(3)] == [True, True, False]
    assert run.learned[-1].steps == 16
    run.close()


def test_a_learner_whose_goal_is_drawn_nearer_says_what_it_has_learned_before_it_rests(monkeypatch):
    run, learner = a_run(batch_size=8, num_minibatches=1, backend="local")
    monkeypatch.setattr("penstock.engine.roles.learner.REPORT_INTERVAL", 3600.0)
    run.fill()
    run.arena.control[Control.GOAL] = 1000
    assert learner.poll() and learner.poll()
    assert run.learned[-1].steps == 8, "the second batch was to be too soon for a report"
    run.arena.control[Control.GOAL] = 0  # as an interruption does
    assert not learner.poll()
    assert run.learned[-1].steps == 16
    assert not learner.poll() and len(run.learned) == 2, "it is said once"
    run.close()


def test_weights_that_are_set_are_published_under_a_new_version_and_reported():
    run, learner = a_run()
    weights = {name: np.full(tensor.shape, 0.5, np.float32) for name, tensor in run.model.state_dict().items()}
    learner.handle(SetWeights(weights, None))
    assert run.reports[-1] == WeightsSet(FIRST_VERSION + 1)
    run.weights.refresh()
    assert run.weights.version == FIRST_VERSION + 1
    assert all((tensor == 0.5).all() for tensor in run.model.state_dict().values())
    run.close()


def test_a_checkpoint_holds_weights_optimiser_and_counters_to_go_on_from(tmp_path):
    run, learner = a_run()
    report = run.learn_once(learner)
    learner.handle(Save(7, str(tmp_path / "saved"), {"env": "CartPole-v1"}))
    assert run.reports[-1] == Saved(7, None)
    checkpoint = load_checkpoint(tmp_path / "saved")
    counters = {"steps": report.steps, "version": report.version, "updates": report.updates}
    assert counters.items() <= checkpoint.meta.items() and checkpoint.meta["env"] == "CartPole-v1"
    run.weights.refresh()
    assert identical(checkpoint.weights, dict(run.model.state_dict()))
    other = run.learner(LearnerState(**counters), checkpoint.state)
    assert identical(other.learning_state()["optimizer"], checkpoint.state["optimizer"])
    run.close()


def test_a_checkpoint_that_cannot_be_written_is_reported_and_nothing_else_happens(tmp_path):
    run, learner = a_run()
    (tmp_path / "mine.txt").write_text("mine")
    learner.handle(Save(8, str(tmp_path), {}))
    assert run.reports[-1].number == 8 and "is not replaced" in str(run.reports[-1].error)
    run.learn_once(learner)
    run.close()


def test_a_learner_goes_on_with_the_state_it_is_given():
    run = Collecting(APPO, num_minibatches=1, batch_size=32)
    run.weights.publish(70, 500)
    learner = run.learner(LearnerState(steps=500, version=70, updates=60))
    run.arena.control[Control.GOAL] = 501
    while not learner.poll():
        run.poll()
    report = run.learned[-1]
    assert (report.steps, report.version, report.updates) == (532, 71, 61)
    run.close()


def test_an_unknown_command_is_named():
    run, learner = a_run()
    with pytest.raises(ValueError, match=r"the learner takes no command Stop \(legal: Save or SetWeights or Copy"):
        learner.handle(Stop())
    run.close()


@pytest.mark.parametrize(
    ("algorithm", "settings", "remark"),
    [
        (PQN, {"segment_length": 16, "batch_size": 64, "reward_scale": 1e4}, "use reward_scale=0.0001 in a new run"),
        (DQN, {"noisy": True, "exploration": 0.5, "learning_starts": 128}, "noisy=True: no action is drawn at random"),
    ],
    ids=["segments", "replay"],
)
def test_remarks_of_an_algorithm_are_shown_once(algorithm, settings, remark, tmp_path):
    small = {"env": "CartPole-v1", "backend": "serial", "num_workers": 1, "num_envs_per_worker": 4}
    with Trainer(algorithm, **small, **settings, eval_interval=0, total_steps=512, run_dir=str(tmp_path / "r")) as run:
        run.train(quiet=True)
    assert (tmp_path / "r" / "log.txt").read_text().count(remark) == 1
