"""What the roles have reported, and what it says about the run."""

from types import SimpleNamespace

import numpy as np
import pytest

from penstock.config import SegmentConfig
from penstock.engine import progress as progress_module
from penstock.engine.clock import ACTIVITY, SINCE
from penstock.engine.evaluation import Evaluation
from penstock.engine.progress import RATE_SECONDS, RECENT_EPISODES, Progress

ROLLOUT = ("env", "infer", "write", "wait for slots", "wait for actions", "wait for learner", "learn")
ACTIVITIES = {"rollout": ROLLOUT, "policy": ("infer", "wait for requests"), "learner": ("learn", "wait for data")}
ROLES = ("rollout-0", "rollout-1", "policy-0", "learner")
SPECS = [SimpleNamespace(name=name, index=index) for index, name in enumerate(ROLES)]


@pytest.fixture
def now(monkeypatch):
    """The time, as a list of one number that the test moves on."""
    time = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: time[0])
    return time


def a_progress(**settings):
    config = SegmentConfig(env="CartPole-v1", **settings)
    return Progress(config, "ppo", "CartPole-v1", 4, np.zeros((4, 16)))


def learned(steps, **values):
    return {"steps": steps, **values}


def spend(progress, *roles):
    """Book seconds to the roles' activities, and look."""
    for row, seconds in enumerate(roles):
        progress._gauges[row, : len(seconds)] += seconds
    progress.refresh_shares(SPECS, ACTIVITIES)
    return {share.name: share for share in progress.status().roles}


def test_before_any_report_there_is_nothing_to_show():
    status = a_progress(target_return=9.0).status()
    assert (status.steps, status.episodes, status.updates, status.steps_per_second) == (0, 0, 0, 0.0)
    assert status.mean_return is status.eval_return is status.best_return is status.mean_length is None
    assert status.target_return == 9.0 and status.frame_skip == 4 and status.limiting_role == ""
    assert (status.algorithm, status.env) == ("ppo", "CartPole-v1")


def test_the_learners_report_is_shown():
    progress = a_progress()
    progress.take_learned(
        learned(64, version=5, updates=4, masked_steps=3, skipped_updates=1, lag_mean=0.5, lag_max=2, losses={"x": 1.0})
    )
    status = progress.status()
    assert (status.steps, status.version, status.updates) == (64, 5, 4)
    assert (status.masked_steps, status.skipped_updates) == (3, 1)
    assert (status.policy_lag_mean, status.policy_lag_max, status.losses) == (0.5, 2, {"x": 1.0})


def test_policy_lag_is_that_of_all_workers_that_learn_and_losses_are_the_last_ones():
    progress = a_progress()
    for worker, lags in ((0, (9, 9.0, 9)), (1, (2, 3.0, 8)), (0, (0, 1.0, 4))):
        of_worker = dict(zip(("lag_min", "lag_mean", "lag_max"), lags, strict=True))
        progress.take_learned_in_worker({"worker": worker, "losses": {"x": lags[1]}, "learning_rate": 0.1, **of_worker})
    progress.take_learned(learned(64))
    status = progress.status()
    assert (status.policy_lag_min, status.policy_lag_mean, status.policy_lag_max) == (0, 2.0, 8)
    assert status.losses == {"x": 1.0}


def test_the_rate_is_that_of_the_last_seconds(now):
    progress = a_progress()
    progress.take_learned(learned(0))
    now[0] += 2.0
    progress.take_learned(learned(1000))
    assert progress.steps_per_second == 500.0
    now[0] += RATE_SECONDS - 1.0  # the first report is too old now
    progress.take_learned(learned(1400))
    assert progress.steps_per_second == 100.0


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
    progress.take_episodes([(1000.0, 5)] * 50)
    progress.take_episodes([(1.0, 10), (3.0, 20)] * (RECENT_EPISODES // 2))
    status = progress.status()
    assert (status.episodes, status.mean_return, status.mean_length) == (150, 2.0, 15.0)


def test_the_best_evaluation_is_remembered_beside_the_last():
    progress = a_progress()
    for value in (5.0, 9.0, 7.0):
        progress.take_evaluation(Evaluation((value,), (1,)))
    assert (progress.status().eval_return, progress.status().best_return) == (7.0, 9.0)


def test_roles_of_one_kind_share_a_line_with_how_they_spent_the_time_since_the_last_look():
    progress = a_progress()
    spend(progress, [50.0])  # long ago
    shares = spend(progress, [3.0, 0.0, 1.0], [2.0, 0.0, 0.0, 2.0], [1.0, 3.0], [4.0])
    rollout = shares["rollout x2"]
    assert list(rollout.activities.items()) == list(zip(ROLLOUT, (5 / 8, 0, 1 / 8, 2 / 8, 0, 0, 0), strict=True))
    assert rollout.busy == 6 / 8 and shares["policy"].busy == 1 / 4 and shares["learner"].busy == 1.0


def test_too_short_a_look_is_put_off_until_there_is_enough_to_share_out():
    progress = a_progress()
    progress._gauges[:, ACTIVITY], progress._gauges[:, SINCE] = 3, 1e6  # not seconds
    assert spend(progress, [0.04], [], [], [0.02]) == {}
    assert spend(progress, [0.04, 0.12], [], [], [0.02])["rollout x2"].activities["env"] == pytest.approx(0.4)


def test_a_role_that_began_anew_meanwhile_takes_nothing_from_the_others_of_its_kind():
    progress = a_progress()
    spend(progress, [5.0], [5.0])
    progress._gauges[0] = 0.0
    shares = spend(progress, [0.0, 0.0, 0.0, 1.0], [3.0])["rollout x2"].activities
    assert (shares["env"], shares["wait for slots"]) == (0.75, 0.25)


@pytest.mark.parametrize(
    ("rollout", "role", "reason"),
    [
        ([4.0, 0.0, 1.0, 3.0, 2.0], "learner", "rollout workers wait 30% of their time for it"),
        ([4.0, 0.0, 1.0, 2.0, 3.0], "policy", "rollout workers wait 30% of their time for actions"),
        ([5.0, 0.0, 2.0, 1.5, 1.5], "rollout x2", "busy 70% of the time, mostly env"),
        ([1.0, 7.0, 1.0, 1.0, 0.0], "rollout x2", "busy 90% of the time, mostly infer"),
        ([2.0, 1.0, 1.0, 0.0, 0.0, 0.0, 6.0], "rollout x2", "busy 100% of the time, mostly learn"),
    ],
)
def test_the_role_that_limits_the_run_is_named_with_the_reason(rollout, role, reason):
    progress = a_progress()
    spend(progress, rollout, rollout, [1.0, 1.0], [1.0, 1.0])
    status = progress.status()
    assert (status.limiting_role, status.limiting_reason) == (role, reason)
