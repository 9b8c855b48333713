"""Choosing actions: wherever the network runs, the same answers land in the rows that asked."""

import numpy as np
import pytest
import torch

from penstock.algorithms.appo import APPO
from penstock.engine.acting.inference import Inference
from penstock.engine.messages import Episodes, Stop
from penstock.engine.paths.segments import SegmentPath
from penstock.experience.arena import Pending, Requests
from tests.comparing import identical
from tests.engine.collecting import COLUMNS, FIRST_VERSION, SHORT, Collecting, Recording


def batches(count=3, **settings):
    run = Collecting(APPO, **settings)
    taken = [run.take() for _ in range(count)]
    run.close()
    return taken


@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
def test_central_and_local_inference_collect_bitwise_the_same_where_their_batches_have_one_shape(memory):
    local = batches(memory=memory, inference="local", **SHORT)
    central = batches(memory=memory, inference="central", num_groups=1, **SHORT)
    for one, two in zip(local, central, strict=True):
        for name in COLUMNS:
            assert torch.equal(getattr(one, name), getattr(two, name)), name


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("layout", [{"num_groups": 2}, {"num_workers": 2, "num_envs_per_worker": 2, "num_groups": 1}])
def test_however_lanes_are_batched_they_collect_the_same_to_1e_5(env, layout):
    local = batches(env=env, memory="gru", inference="local")
    central = batches(env=env, memory="gru", inference="central", **layout)
    for one, two in zip(local, central, strict=True):
        for name in COLUMNS:
            torch.testing.assert_close(getattr(one, name), getattr(two, name), rtol=1e-5, atol=1e-4, msg=name)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
def test_the_learners_log_probs_at_lag_zero_are_the_recorded_ones(env, memory):
    run = Collecting(Recording, env=env, memory=memory, **(SHORT if env == "CartPole-v1" else {}))
    for _ in range(3):
        batch = run.take()
        policy, _ = run.model.evaluate(batch.obs, batch.first, batch.memory)
        torch.testing.assert_close(policy[:-1].log_prob(batch.action), batch.log_prob, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(policy[:-1].flat, batch.records["logits"], rtol=1e-5, atol=1e-5)
    assert not batch.valid.all() or env == "Pendulum-v1", "episodes were to be truncated within the segments"
    run.close()


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_the_memory_state_of_a_segment_is_what_comes_of_its_lanes_whole_story(memory):
    run = Collecting(APPO, memory=memory, **SHORT)
    state = torch.zeros(4, run.model.state_size)
    for number in range(4):
        batch = run.take()
        torch.testing.assert_close(batch.memory, state, rtol=1e-5, atol=1e-6)
        assert batch.memory.any() == (number > 0)
        with torch.no_grad():
            for obs, first in zip(batch.obs[:-1], batch.first[:-1], strict=True):
                _, state = run.model.act(obs, first, state)
    run.close()


def test_every_step_records_the_version_of_the_weights_that_chose_it_and_new_ones_are_taken_at_once():
    run = Collecting(APPO)
    run.poll()
    rows = run.arena.requests.rows[0].copy()
    assert run.arena.columns["version"][rows].tolist() == [FIRST_VERSION] * 4
    with torch.no_grad():
        run.model.policy_head.bias[:] = torch.tensor([50.0, -50.0])
    run.weights.publish(9, 0)
    run.poll()
    rows = run.arena.requests.rows[0]
    assert run.arena.columns["version"][rows].tolist() == [9] * 4
    assert run.arena.columns["action"][rows].tolist() == [0] * 4
    run.close()


def test_an_answer_touches_no_rows_but_those_that_asked():
    run = Collecting(APPO, inference="central", num_groups=2)
    run.workers[0].poll()
    for name in ("action", "log_prob", "version"):
        run.arena.columns[name][...] = -7
    assert run.policy_worker.poll()
    rows = set(run.arena.requests.rows.ravel().tolist())
    for name in ("action", "log_prob", "version"):
        assert set(np.flatnonzero(run.arena.columns[name] != -7).tolist()) == rows, name
    run.close()


def test_an_answer_that_is_given_again_is_the_same(monkeypatch):
    # A policy worker that died before it could say that it had answered is replaced by one that answers anew.
    run = Collecting(APPO, inference="central", num_groups=1, memory="lstm")
    for _ in range(3):
        run.poll()
    run.workers[0].poll()
    columns, requests = run.arena.columns, run.arena.requests
    pending = requests.pending()

    def answer():
        assert run.policy_worker.poll()
        memories = [requests.memory(Pending(pending.groups, pending.numbers + turn)) for turn in (0, 1)]
        return [columns["action"][requests.rows[0]], columns["log_prob"][requests.rows[0]], *memories]

    with monkeypatch.context() as death:
        death.setattr(Requests, "mark_answered", lambda requests, pending: None)
        first = answer()
    again = answer()
    assert identical(first, again) and again[-1].any()
    run.close()


def test_batches_of_different_sizes_in_turn_are_answered_as_each_by_itself():
    run = Collecting(APPO, inference="central", num_groups=2, memory="gru")
    for _ in range(3):
        run.poll()
    run.workers[0].poll()
    arena, inference = run.arena, Inference(run.arena, run.algorithm, "cpu", SegmentPath().steps_taken)
    (number,) = set(arena.requests.pending().numbers.tolist())
    for groups in ([0, 1], [1], [0, 1], [0], [1], [1, 0]):
        answers = []
        for answering in (inference, Inference(run.arena, run.algorithm, "cpu", SegmentPath().steps_taken)):
            arena.columns["log_prob"].fill(-7.0)
            answering.answer(Pending(np.array(groups), np.full(len(groups), number)))
            answers.append([arena.columns[name].copy() for name in ("action", "log_prob")])
        assert all(np.array_equal(one, two) for one, two in zip(*answers, strict=True)), groups
        assert (answers[0][1] != -7.0).sum() == len(groups) * arena.shape.group_size
    run.close()


def test_a_policy_worker_answers_the_groups_that_wait_and_wakes_their_workers():
    run = Collecting(APPO, inference="central", num_workers=2, num_groups=2)
    assert not run.policy_worker.poll(), "nobody has asked yet"
    run.workers[1].poll()
    assert run.arena.requests.pending().groups.tolist() == [2, 3]
    rung = [bell.value for bell in run.arena.rollout_bells]
    assert run.policy_worker.poll()
    assert [run.arena.requests.num_answered(group) for group in range(4)] == [0, 0, 1, 1]
    assert [bell.value != before for bell, before in zip(run.arena.rollout_bells, rung, strict=True)] == [False, True]
    assert not run.policy_worker.poll()
    run.close()


def test_a_policy_worker_says_which_deaths_it_has_seen_between_two_batches():
    run = Collecting(APPO, inference="central", num_groups=1)
    death = run.arena.requests.withdraw(0)
    assert not run.arena.requests.has_passed(death, 0)
    run.policy_worker.poll()
    assert run.arena.requests.has_passed(death, 0)
    run.close()


@pytest.mark.parametrize("role", ["rollout", "policy"])
def test_roles_that_know_no_commands_say_so(role):
    run = Collecting(APPO, inference="central")
    with pytest.raises(ValueError, match=r"worker takes no command Stop \(legal: none\)"):
        (run.workers[0] if role == "rollout" else run.policy_worker).handle(Stop())
    run.close()


def test_bfloat16_changes_the_networks_body_but_the_records_stay_float32():
    plain, half = batches(1)[0], batches(1, precision="bfloat16")[0]
    assert half.log_prob.dtype == torch.float32
    assert torch.equal(plain.obs[0], half.obs[0]) and not torch.equal(plain.log_prob[0], half.log_prob[0])
    torch.testing.assert_close(plain.log_prob[0], half.log_prob[0], rtol=0.1, atol=0.05)


def test_a_rollout_worker_reports_its_episodes_when_it_is_closed_at_the_latest():
    run = Collecting(APPO, **SHORT)
    for _ in range(4):
        run.take()
    run.close()
    lengths = [length for report in run.reports.of(Episodes) for _, length in report.finished]
    assert lengths and max(lengths) <= 9
    assert sum(lengths) <= 4 * 33  # four segments of 8 steps in each of 4 lanes, and the step that asked for more
