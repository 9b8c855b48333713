"""Reports of the roles, and the figures of the run derived from them."""

import time

import numpy as np
import pytest

from penstock.config import SegmentConfig
from penstock.engine.messages import Learned, LearnedInWorker
from penstock.engine.roster import ACTIVITIES
from penstock.engine.watching import progress as progress_module
from penstock.engine.watching import time_spent
from penstock.engine.watching.clock import CPU, SINCE, WALL
from penstock.engine.watching.progress import RECENT_EPISODES, RECENT_SECONDS, Progress
from penstock.play.evaluation import Evaluation

ROLES = ("rollout-0", "rollout-1", "policy-0", "learner")
ROWS = {"rollout": [0, 1], "policy": [2], "learner": [3]}


@pytest.fixture
def now(monkeypatch):
    """The time, as a list of one number that the test moves on."""
    time = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: time[0])
    return time


@pytest.fixture
def own_cpu(monkeypatch):
    """The CPU time of the supervisor's process, likewise."""
    spent = [9.0]
    monkeypatch.setattr(progress_module.time, "process_time", lambda: spent[0])
    return spent


def a_progress(rows=ROWS, processes=None, **settings):
    config = SegmentConfig(env="CartPole-v1", **settings)
    gauges = np.zeros((5, 32))
    about = {"algorithm": "ppo", "env": "CartPole-v1", "frame_skip": 4}
    progress = Progress(config, about, gauges, rows, processes=processes)
    progress.gauges = gauges  # for the test to book in
    return progress


def learned(steps, **values):
    return Learned(steps, **values)


def spend(progress, now, seconds, *roles):
    """Let time go by, book what the roles did meanwhile (seconds of wall time, or of wall and CPU), and look."""
    now[0] += seconds
    for row, activities in enumerate(roles):
        names = ACTIVITIES[ROLES[row].split("-")[0]]
        for name, spent in activities.items():
            wall, cpu = spent if isinstance(spent, tuple) else (spent, 0.0)
            progress.gauges[row, WALL][names.index(name)] += wall
            progress.gauges[row, CPU][names.index(name)] += cpu
    progress.refresh_shares()
    return {share.name: share for share in progress.status().roles}


def test_roles_that_share_a_process_share_its_time(now):
    rows = {"rollout": [0, 1]}
    apart = spend(a_progress(rows), now, 10.0, {"env": 4.0}, {"env": 1.0})["rollout x2"]
    assert apart.activities["env"] == pytest.approx(0.25), "of the time of two processes"
    together = spend(a_progress(rows, {"rollout": 1}), now, 10.0, {"env": 4.0}, {"env": 1.0})["rollout x2"]
    assert together.activities["env"] == pytest.approx(0.5)


def test_learners_of_a_group_are_told_apart(now):
    progress = a_progress({"rollout": [0], "learner": [1], "rank": [2, 3]}, num_learners=4)
    now[0] += 10.0
    for row, learned_for in ((1, 4.0), (2, 5.0), (3, 9.0)):
        progress.gauges[row, WALL][ACTIVITIES["learner"].index("learn")] = learned_for
    progress.refresh_shares()
    found = [(one.name, one.activities["learn"], one.busy) for one in progress.status().learners]
    assert found == [("learner", 0.4, 0.4), ("rank-1", 0.5, 0.5), ("rank-2", 0.9, 0.9)]
    assert a_progress().status().learners == ()


def test_before_any_report_there_is_nothing_to_show():
    status = a_progress(target_return=9.0).status()
    assert (status.steps, status.episodes, status.updates, status.steps_per_second) == (0, 0, 0, 0.0)
    assert status.mean_return is status.eval_return is status.best_return is status.mean_length is None
    assert status.target_return == 9.0 and status.frame_skip == 4 and status.limiting_role == ""
    assert (status.algorithm, status.env) == ("ppo", "CartPole-v1")


def test_the_learners_report_is_shown():
    progress = a_progress()
    experience = {"policy_lag/mean": 0.5, "policy_lag/max": 2, "masked_steps": 3}
    progress.take_learned(
        learned(64, version=5, updates=4, skipped_updates=1, losses={"x": 1.0}, experience=experience)
    )
    status = progress.status()
    assert (status.steps, status.version, status.updates) == (64, 5, 4)
    assert (status.masked_steps, status.skipped_updates) == (3, 1)
    assert (status.policy_lag_mean, status.policy_lag_max, status.losses) == (0.5, 2, {"x": 1.0})


def test_updates_of_a_version_are_counted_from_the_weights_that_were_set_last():
    """Weights that are set from outside are a version, but no update: 4 updates and one setting are 5 versions."""
    (policy,) = a_progress().policies
    policy.take_learned(learned(64, version=5, updates=4))
    assert [policy.updates_of(version) for version in (5, 4, 3)] == [4, 3, 2]
    assert policy.updates_of(0) == 0, "of weights before those that were set, never fewer than none"


def test_policy_lag_is_that_of_all_workers_that_learn_and_losses_are_the_last_ones():
    progress = a_progress()
    for worker, lags in ((0, (9,)), (1, (2, 8)), (0, (0, 0, 0, 2))):
        progress.policies[0].take_learned_in_worker(LearnedInWorker(worker, {"x": lags[-1]}, lags, 0.1))
    progress.take_learned(learned(64))
    status = progress.status()
    assert (status.policy_lag_min, status.policy_lag_mean, status.policy_lag_max) == (0, 2.0, 8)
    assert [status.experience[f"policy_lag/{name}"] for name in ("q25", "median", "q75")] == [0, 1.0, 2.0]
    assert status.losses == {"x": 2}


def test_the_rate_is_that_of_the_last_seconds(now):
    progress = a_progress()
    progress.take_learned(learned(0))
    now[0] += 2.0
    progress.take_learned(learned(1000))
    assert progress.steps_per_second == 500.0
    now[0] += RECENT_SECONDS - 1.0  # the first report is too old now
    progress.take_learned(learned(1400))
    assert progress.steps_per_second == 100.0


def test_batches_that_take_longer_than_the_window_have_a_rate_that_falls_while_nothing_is_learned(now):
    progress = a_progress()
    for steps in (0, 4096, 8192):
        progress.take_learned(learned(steps))
        now[0] += 2.0 * RECENT_SECONDS
    assert progress.steps_per_second == 4096 / (4.0 * RECENT_SECONDS)
    now[0] += 1_000.0 * RECENT_SECONDS
    assert 0.0 < progress.steps_per_second < 1.0


def test_a_rest_between_two_trainings_does_not_lower_the_rate(now):
    progress = a_progress()
    progress.take_learned(learned(1000))
    now[0] += 3.0
    progress.restart_rate()
    progress.take_learned(learned(1000))
    assert progress.steps_per_second == 0.0
    now[0] += 1.0
    progress.take_learned(learned(1300))
    assert progress.steps_per_second == 300.0


def test_returns_and_lengths_are_means_of_the_last_hundred_episodes():
    progress = a_progress()
    progress.policies[0].take_episodes([(1000.0, 5)] * 50, [])
    progress.policies[0].take_episodes([(1.0, 10), (3.0, 20)] * (RECENT_EPISODES // 2), [])
    status = progress.status()
    assert (status.episodes, status.mean_return, status.mean_length) == (150, 2.0, 15.0)


def test_a_success_rate_is_of_the_last_hundred_episodes_and_silence_counts_as_none():
    progress = a_progress()
    progress.policies[0].take_episodes([(0.0, 1)] * 3, [None, None, None])
    assert progress.status().success_rate is None
    progress.policies[0].take_episodes([(0.0, 1)] * 2, [1.0, 0.0])
    assert progress.status().success_rate == 0.2
    progress.policies[0].take_episodes([(0.0, 1)] * RECENT_EPISODES, [1.0] * RECENT_EPISODES)
    assert progress.status().success_rate == 1.0
    assert progress.status().eval_success_rate is None
    evaluation = Evaluation((0.0,) * 4, (1,) * 4, successes=(1.0, None, 1.0, 1.0))
    progress.policies[0].take_evaluation(evaluation, is_best=True)
    assert progress.status().eval_success_rate == 0.75


def test_the_best_evaluation_is_remembered_beside_the_last():
    progress = a_progress()
    for value, is_best in ((5.0, True), (9.0, True), (7.0, False)):
        progress.policies[0].take_evaluation(Evaluation((value,), (1,)), is_best=is_best)
    assert (progress.status().eval_return, progress.status().best_return) == (7.0, 9.0)


def test_roles_of_one_kind_share_a_line_with_how_they_spent_the_last_seconds(now):
    progress = a_progress()
    spend(progress, now, RECENT_SECONDS, {"env": RECENT_SECONDS})  # long ago
    shares = spend(
        progress, now, RECENT_SECONDS,
        {"env": 4.0, "write": 1.0}, {"env": 2.0, "wait for slots": 3.0}, {"infer": 1.0, "wait for requests": 4.0},
        {"learn": 5.0},
    )  # fmt: skip
    rollout = shares["rollout x2"]
    spent = {name: share for name, share in rollout.activities.items() if share}
    assert spent == {"env": 6 / 10, "write": 1 / 10, "wait for slots": 3 / 10}
    assert tuple(rollout.activities) == ACTIVITIES["rollout"]
    assert rollout.busy == 7 / 10 and shares["policy"].busy == 1 / 5 and shares["learner"].busy == 1.0


def test_looks_in_between_do_not_shorten_what_the_shares_are_of(now):
    progress = a_progress()
    for _ in range(20):
        spend(progress, now, 0.25, {"env": 0.25}, {"env": 0.25})
    shares = spend(progress, now, 0.25, {"write": 0.25}, {"write": 0.25})["rollout x2"].activities
    assert (shares["env"], shares["write"]) == (pytest.approx(0.95), pytest.approx(0.05))


def test_too_short_a_look_is_put_off_until_there_is_enough_to_share_out(now):
    progress = a_progress()
    progress.gauges[:, SINCE] = 1e6  # not seconds
    assert spend(progress, now, 0.05, {"env": 0.04}) == {}
    assert spend(progress, now, 0.15, {"env": 0.06})["rollout x2"].activities["env"] == pytest.approx(0.25)


def test_a_rest_between_two_trainings_is_booked_to_no_role(now):
    progress = a_progress()
    spend(progress, now, 1.0, {"env": 1.0}, {"env": 1.0})
    progress.gauges[0, WALL][-1] += 60.0
    now[0] += 60.0
    progress.restart_rate()
    assert spend(progress, now, 1.0, {"env": 0.5}, {"env": 0.5})["rollout x2"].activities["env"] == 0.5


def test_time_that_is_booked_only_at_the_end_of_a_long_update_is_not_more_than_all(now):
    progress = a_progress()
    for _ in range(2):
        spend(progress, now, 10.0)  # the learner is in the midst of it
    shares = spend(progress, now, 1.0, {}, {}, {}, {"learn": 21.0})
    assert shares["learner"].activities["learn"] == 1.0


def test_a_role_that_began_anew_meanwhile_takes_nothing_from_the_others_of_its_kind(now):
    progress = a_progress()
    spend(progress, now, RECENT_SECONDS, {"env": 5.0}, {"env": 5.0})
    progress.gauges[0] = 0.0
    shares = spend(progress, now, RECENT_SECONDS, {"wait for slots": 1.0}, {"env": 3.0})["rollout x2"].activities
    assert (shares["env"], shares["wait for slots"]) == (0.3, 0.1)


@pytest.mark.parametrize(
    ("rollout", "role", "reason"),
    [
        (
            {"env": 4.0, "write": 1.0, "wait for slots": 3.0, "wait for actions": 2.0},
            "learner", "rollout workers wait 30% of their time for it",
        ),
        (
            {"env": 4.0, "write": 1.0, "wait for learner": 3.0, "wait for actions": 2.0},
            "learner", "rollout workers wait 30% of their time for it",
        ),
        (
            {"env": 4.0, "write": 1.0, "wait for slots": 2.0, "wait for actions": 3.0},
            "policy", "rollout workers wait 30% of their time for actions",
        ),
        (
            {"env": 5.0, "write": 2.0, "wait for slots": 1.5, "wait for actions": 1.5},
            "rollout x2", "busy 70% of the time, mostly env",
        ),
        (
            {"env": 1.0, "infer": 7.0, "write": 1.0, "wait for slots": 1.0},
            "rollout x2", "busy 90% of the time, mostly infer",
        ),
        ({"env": 2.0, "infer": 1.0, "write": 1.0, "learn": 6.0}, "rollout x2", "busy 100% of the time, mostly learn"),
    ],
)  # fmt: skip
def test_the_role_that_limits_the_run_is_named_with_the_reason(rollout, role, reason, now):
    progress = a_progress()
    spend(progress, now, 10.0, rollout, rollout, {"infer": 5.0}, {"learn": 5.0})
    status = progress.status()
    assert (status.limiting_role, status.limiting_reason) == (role, reason)


@pytest.mark.parametrize("playing", [{"evaluate": 9.0, "wait for a request": 1.0}, {}], ids=["plays", "hangs"])
def test_when_only_the_last_evaluation_goes_on_the_evaluator_is_named(playing, now, monkeypatch):
    monkeypatch.setattr("tests.engine.test_progress.ROLES", (*ROLES[:3], "learner", "evaluator"))
    progress = a_progress({**ROWS, "evaluator": [4]})
    waiting = {"wait for slots": 10.0}
    spend(progress, now, 10.0, waiting, waiting, {}, {"wait for goal": 10.0}, playing)
    status = progress.status()
    assert (status.limiting_role, status.limiting_reason) == (
        "evaluator", "training has ended, its last evaluation is running",
    )  # fmt: skip


def test_where_all_take_turns_in_one_thread_the_one_that_takes_longest_is_named(now):
    progress = a_progress(backend="serial")
    spend(progress, now, 10.0, {"env": 2.0}, {"env": 1.5, "infer": 0.5}, {}, {"learn": 5.0, "gather": 1.0})
    status = progress.status()
    assert (status.limiting_role, status.limiting_reason) == ("learner", "busy 60% of the time, mostly learn")


def test_the_cores_time_is_divided_by_its_uses(now, own_cpu, monkeypatch):
    monkeypatch.setattr(progress_module, "available_cores", lambda: 4.0)
    monkeypatch.setattr(progress_module, "busy_seconds", lambda: 100.0)
    progress = a_progress()
    own_cpu[0] += 0.25
    monkeypatch.setattr(progress_module, "busy_seconds", lambda: 116.0)
    spend(
        progress, now, 5.0,  # of 4 cores
        {"env": (4.0, 3.0), "infer": (1.0, 1.0)}, {"write": (1.0, 0.5), "wait for slots": (4.0, 0.5)},
        {"infer": (4.0, 1.0), "wait for requests": (1.0, 0.25)}, {"learn": (5.0, 7.0), "gather": (1.0, 0.5)},
    )  # fmt: skip
    status = progress.status()
    assert status.cores == {
        "env": 3 / 20, "infer": 2 / 20, "learn": 7 / 20, "evaluate": 0.0, "copying": 1 / 20, "other": 1 / 20,
        "other programs": 2 / 20, "idle": pytest.approx(4 / 20),
    }  # fmt: skip
    assert status.real_work == pytest.approx(12 / 20)


def test_in_one_process_the_supervisors_time_is_not_counted_twice(now, own_cpu):
    progress = a_progress(backend="serial")
    own_cpu[0] += 1.0
    spend(progress, now, 1.0, {"env": (1.0, 1.0)})
    assert progress.status().cores["other"] == 0.0


def test_before_the_first_look_there_is_no_share_of_real_work():
    status = a_progress().status()
    assert status.real_work is None and status.cores == {}


def test_the_moment_of_a_report_holds_what_was_booked_then(now):
    progress = a_progress()
    assert progress.last_report is None
    progress.gauges[0, 0] = 3.0
    progress.take_learned(learned(64))
    progress.gauges[0, 0] = 4.0
    moment = progress.last_report
    assert (moment.time, moment.steps, moment.gauges[0, 0]) == (now[0], 64, 3.0)


def test_other_programs_take_no_more_than_the_run_has_left(now, own_cpu, monkeypatch):
    progress = a_progress()
    monkeypatch.setattr(progress_module, "busy_seconds", lambda: 1e9)
    spend(progress, now, 1.0, {"env": (1.0, 1.0)})
    assert sum(progress.status().cores.values()) == pytest.approx(1.0) and progress.status().cores["idle"] >= 0.0


def test_cores_are_busy_while_something_computes():
    before, began = time_spent.busy_seconds(), time.process_time()
    while time.process_time() < began + 0.1:
        pass
    assert time_spent.busy_seconds() >= before + 0.05
