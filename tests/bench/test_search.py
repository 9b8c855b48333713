"""The search for the fastest settings finds them on machines that are formulas, and measures no more than it has to."""

from math import log2

import pytest

from penstock.algorithms import load_algorithm
from penstock.bench import search as search_
from penstock.bench.search import MARGIN, PATIENCE, WINDOW, Search
from penstock.config import make_config
from penstock.engine.endings import TrainingFailed
from tests.bench.modelled import TOOK, role

KEPT = {"inference", "num_groups"}
BOTH = ("num_workers", "num_envs_per_worker")


def make(
    name: str, *, seconds: float = 10_000.0, fixed=(), tune_batch=False, now=1_000.0, report=print, **settings
) -> Search:
    algorithm = load_algorithm(name)
    config = make_config(algorithm.Config, {"env": "CartPole-v1", **settings})
    return Search(algorithm, config, fixed=fixed, end=now + seconds, tune_batch=tune_batch, report=report)


def hill(lanes: int, workers: int, rate: float = 1e6):
    """A rate that falls by a tenth with each doubling of the lanes, and with each worker, away from the best."""

    def height(config):
        away = abs(log2(config.num_envs_per_worker / lanes)) + abs(config.workers - workers)
        return rate * 0.9**away

    return height


@pytest.mark.parametrize("lanes", [1, 8, 16, 32, 512])
@pytest.mark.parametrize("workers", [1, 2, 4, 5])
def test_the_top_of_a_hill_is_found_from_the_defaults(lanes, workers, machine):
    # workers of four cores: 1, 2, 3, 4 and 5 are candidates
    machine.rate = hill(lanes, workers)
    search = make("appo", fixed=KEPT)
    search.run()
    assert search.found() == {"num_workers": workers, "num_envs_per_worker": lanes}
    assert len(search.trials) <= 18
    assert search.ended == "no remaining candidate can be faster"


def test_a_ridge_where_one_setting_changes_the_best_of_another_is_climbed_in_rounds(machine):
    # lanes * workers = 256 is best, and more workers are better
    machine.rate = lambda config: 1e5 * 0.95 ** abs(log2(config.num_lanes / 256)) * 1.1**config.workers
    search = make("appo", fixed=KEPT, num_workers=1, num_envs_per_worker=64)
    search.run()
    best = search.best.config
    assert best.workers == 5 and best.num_envs_per_worker == 64


@pytest.mark.parametrize(("central", "groups"), [(1.2, 1.1), (1.2, 0.9), (0.8, 1.1)])
def test_the_place_of_inference_and_the_groups_are_chosen(central, groups, machine):
    def rate(config):
        is_central = config.inference == "central"
        return 1e5 * (central if is_central else 1.0) * (groups if is_central and config.num_groups == 1 else 1.0)

    machine.rate = rate
    search = make("appo", fixed={"num_workers", "num_envs_per_worker"}, num_workers=2)
    search.run()
    place = "central" if central > 1.0 else "local"
    assert search.found() == {"inference": place} | ({"num_groups": 1} if central > 1.0 < groups else {})


def test_what_auto_means_is_seen_in_the_first_trial_and_is_not_measured_again(machine):
    search = make("appo", fixed={"num_workers", "num_envs_per_worker", "num_groups"})
    search.run()
    assert search.first.settings["inference"] == "local"
    assert [trial.settings["inference"] for trial in search.trials[:2]] == ["local", "central"]
    assert [config.inference for config in machine.configs[:2]] == ["auto", "central"]


def test_fixed_settings_stay(machine):
    machine.rate = hill(128, 1)
    search = make("appo", fixed={"num_workers", "inference"}, num_workers=3)
    search.run()
    assert machine.tried("num_workers") == {(3,)}
    assert ("central",) not in machine.tried("inference")
    assert search.found() == {"num_envs_per_worker": 128}


def test_with_everything_fixed_one_measurement_is_all(machine):
    search = make("appo", fixed={"num_workers", "num_envs_per_worker", "inference", "num_groups"})
    search.run()
    assert len(search.trials) == 1 and search.found() == {}


def test_what_is_faster_by_less_than_the_margin_changes_nothing(machine):
    machine.rate = lambda config: 10_000.0 * (1.0 if config.num_envs_per_worker == 16 else 0.99 * MARGIN)
    search = make("appo", fixed=KEPT | {"num_workers"})
    search.run()
    assert search.found() == {"num_envs_per_worker": 16}


def test_a_lucky_measurement_does_not_survive_the_second_one(machine):
    lanes_64 = iter([15_000.0, 1_000.0])
    machine.rate = lambda config: next(lanes_64) if config.num_envs_per_worker == 64 else 10_000.0
    search = make("appo", fixed=KEPT | {"num_workers"})
    search.run()
    assert search.found()["num_envs_per_worker"] != 64
    assert search.rate(search.best) == pytest.approx(10_000.0)


def test_of_the_two_measured_again_the_faster_before_stays_if_they_are_alike(machine):
    lanes_64 = iter([12_000.0, 9_900.0])
    machine.rate = lambda config: next(lanes_64) if config.num_envs_per_worker == 64 else 10_000.0
    search = make("appo", fixed=KEPT | {"num_workers"})
    search.run()
    assert search.found() == {"num_envs_per_worker": 64}
    assert search.rate(search.best) == pytest.approx(9_900.0)


@pytest.mark.parametrize("seconds", [5.0, 17.0, 18.0, 23.9, 24.0, 50.0])
def test_nothing_is_begun_that_would_not_be_done_in_time(seconds, machine):
    machine.rate = hill(256, 1)
    search = make("appo", seconds=seconds, fixed=KEPT)
    search.run()
    # the first is measured in any case; then as many as fit, two of them at the end
    assert len(search.trials) == max(1, int(seconds // TOOK) if seconds >= 4 * TOOK else 1)
    assert machine.now <= 1_000.0 + max(seconds, TOOK)
    assert search.ended == "no time for more"


def test_the_last_two_trials_are_the_best_two_again(machine):
    machine.rate = hill(64, 4)
    search = make("appo", seconds=50.0, fixed=KEPT)
    search.run()
    *_, best, second = (trial.settings["num_envs_per_worker"] for trial in search.trials)
    assert best == 64 and second in (16, 32, 128, 256)


@pytest.mark.parametrize(("name", "lanes"), [("ppo", 8), ("a2c", 16)])
def test_where_the_lanes_are_the_batch_there_are_always_as_many_of_them(name, lanes, machine):
    machine.rate = hill(64, 1)
    search = make(name, fixed=KEPT)
    search.run()
    tried = {(4, lanes) if workers is None else (workers, n) for workers, n in machine.tried(*BOTH)}
    assert tried == {(4, lanes), (2, 2 * lanes), (1, 4 * lanes)}  # not 3 and 5, which do not divide
    assert search.found() == {"num_workers": 1, "num_envs_per_worker": 4 * lanes}
    assert f"num_workers * num_envs_per_worker = {4 * lanes}" in search.kept()


def test_where_the_lanes_are_the_batch_and_fixed_the_workers_stay_too(machine):
    machine.rate = hill(64, 1)
    search = make("ppo", fixed=KEPT | {"num_envs_per_worker"})
    search.run()
    assert len(search.trials) == 1 and search.found() == {"num_workers": 4}


def test_a_worker_that_learns_itself_keeps_its_lanes(machine):
    machine.rate = hill(64, 2)
    search = make("a3c")
    search.run()
    assert search.found() == {"num_workers": 2, "num_envs_per_worker": 8, "inference": "local"}
    assert machine.tried("num_envs_per_worker") == {(8,)}
    assert search.kept() == "num_envs_per_worker=8"


@pytest.mark.parametrize("name", ["ppo", "a2c", "a3c"])
def test_the_batch_is_tuned_if_that_is_asked_for(name, machine):
    machine.rate = hill(64, 2)
    search = make(name, fixed=KEPT, tune_batch=True)
    search.run()
    found = search.found()
    assert (found["num_workers"], found["num_envs_per_worker"]) == (2, 64)
    assert search.kept() == ""


def test_the_size_of_a_batch_is_tuned_in_whole_segments_and_only_if_that_is_asked_for(machine):
    machine.rate = lambda config: 1e5 * 0.9 ** abs(log2(config.batch_size / 1024))
    search = make("appo", fixed=KEPT | {"num_workers", "num_envs_per_worker"}, tune_batch=True, segment_length=128)
    search.run()
    assert search.found() == {"batch_size": 1024}
    assert all(config.batch_size % 128 == 0 for config in machine.configs)
    machine.configs.clear()
    search = make("appo", fixed=KEPT, now=machine.now)
    search.run()
    assert machine.tried("batch_size") == {(256,)} and search.kept() == "batch_size=256"


def limits(learner_on_core: float, **rollout: float):
    """Roles of a run that the learner limits."""
    learner = role("learner", on_core=learner_on_core, learn=1.0)
    return lambda config: ((role("rollout x4", on_core=0.7, **rollout), learner), "learner")


WAITING = {"env": 0.4, "infer": 0.2, "wait_for_actions": 0.0, "wait_for_slots": 0.4}


def test_where_the_learner_does_all_that_it_can_only_fewer_workers_are_tried(machine):
    machine.roles = limits(1.0, **WAITING)
    make("appo").run()
    assert machine.tried(*BOTH, "inference") == {(None, 16, "auto"), (3, 16, "local"), (4, 16, "local")}


def test_where_the_learner_wants_more_of_the_cores_there_are_no_more_workers_but_all_else_is_tried(machine):
    machine.roles = limits(0.7, **WAITING)
    make("appo").run()
    assert {workers for (workers,) in machine.tried("num_workers")} == {None, 3, 4}
    assert machine.tried("num_envs_per_worker") > {(16,)} and ("central",) in machine.tried("inference")


def test_workers_with_a_core_each_are_not_made_fewer(machine):
    rollout = role("rollout x4", on_core=1.0, env=0.7, infer=0.3, wait_for_actions=0.0)
    machine.roles = lambda config: ((rollout, role("learner", learn=0.5, wait_for_data=0.5)), rollout.name)
    make("appo").run()
    assert {workers for (workers,) in machine.tried("num_workers")} == {None, 4, 5}


def test_a_policy_worker_is_not_tried_where_choosing_actions_takes_no_time(machine):
    rollout = role("rollout x4", env=0.99, infer=0.01, wait_for_actions=0.0)
    machine.roles = lambda config: ((rollout, role("learner", learn=0.5, wait_for_data=0.5)), rollout.name)
    make("appo").run()
    assert ("central",) not in machine.tried("inference")


def test_groups_are_not_tried_where_nobody_waits_for_actions(machine):
    make("appo", inference="local", fixed={"inference"}).run()
    assert machine.tried("num_groups") == {(None,)}
    machine.roles = lambda config: (
        (role("rollout x4", env=1.0, wait_for_actions=0.01), role("policy", infer=1.0), role("learner", learn=1.0)),
        "rollout x4",
    )
    make("appo", inference="central", fixed={"inference"}, now=machine.now).run()
    assert machine.tried("num_groups") == {(None,)}


def test_where_roles_take_turns_everything_is_tried(machine):
    machine.roles = limits(1.0, **WAITING)
    make("ppo").run()
    assert {2, 1} & {workers for (workers,) in machine.tried("num_workers")}
    assert ("central",) in machine.tried("inference")


def test_lanes_whose_segments_would_not_be_full_within_the_window_are_not_tried(machine):
    machine.rate = lambda config: 300.0 + config.num_envs_per_worker
    search = make("appo", fixed=KEPT, num_workers=1, num_envs_per_worker=4)
    search.run()
    most = max(config.num_lanes for config in machine.configs)
    assert most > 4 and most * 32 <= search.rate(search.best) * WINDOW / 2


def test_replay_begins_at_once_in_a_small_buffer_while_it_is_measured_and_only_then(machine):
    machine.rate = hill(8, 2)
    search = make("sac", env="Pendulum-v1", learning_starts=10_000)
    search.run()
    assert machine.tried("learning_starts", "buffer_size") == {(1_000, 10_000)}
    assert (search.best.config.learning_starts, search.best.config.buffer_size) == (10_000, 1_000_000)
    assert (search.found()["num_workers"], search.found()["num_envs_per_worker"]) == (2, 8)
    assert search.kept() == ""


def test_what_the_config_refuses_is_not_measured(machine):
    machine.rate = hill(512, 4)
    search = make("dqn", ratio_slack=3, updates_per_step=0.5, fixed=KEPT)  # at most 6 lanes per worker
    search.run()
    assert max(config.num_envs_per_worker for config in machine.configs) == 4
    assert search.found()["num_envs_per_worker"] == 4


def failing(machine, does_fail, error):
    """Let a machine fail with some configs."""
    measure = machine.run_engine

    def run_engine(algorithm, config, **how):
        run = measure(algorithm, config, **how)
        if does_fail(config):
            raise error
        return run

    return run_engine


def test_a_candidate_that_fails_is_remembered_with_its_reason_and_never_the_best(machine, monkeypatch):
    machine.rate = hill(512, 4)
    measure = failing(machine, lambda c: c.num_envs_per_worker > 64, MemoryError("9 GiB needed"))
    monkeypatch.setattr("penstock.bench.engine_run.run_engine", measure)
    search = make("appo", fixed=KEPT)
    search.run()
    assert search.found()["num_envs_per_worker"] == 64
    failed = [trial for trial in search.trials if trial.run is None]
    assert {trial.error for trial in failed} == {"9 GiB needed"} and {trial.rate for trial in failed} == {0.0}


def test_what_fails_when_it_is_measured_again_is_not_the_best(machine, monkeypatch):
    machine.rate = lambda config: 90_000.0 if config.num_envs_per_worker == 64 else 10_000.0
    seen = []
    fails_later = failing(
        machine, lambda c: c.num_envs_per_worker == 64 and (seen.append(c) or len(seen) > 1), OSError()
    )
    monkeypatch.setattr("penstock.bench.engine_run.run_engine", fails_later)
    search = make("appo", fixed=KEPT)
    search.run()
    assert search.trials[-2].error == "OSError" and search.found()["num_envs_per_worker"] != 64


def test_nothing_is_measured_twice_but_the_best_two(machine):
    machine.rate = hill(128, 2)
    search = make("appo", tune_batch=True)
    search.run()
    *search_trials, best, second = [trial.settings for trial in search.trials]
    assert all(settings not in search_trials[:i] for i, settings in enumerate(search_trials))
    assert best in search_trials and second in search_trials and best != second


def test_if_the_settings_to_begin_with_fail_the_search_does(machine, monkeypatch):
    monkeypatch.setattr(
        "penstock.bench.engine_run.run_engine", failing(machine, lambda c: True, TrainingFailed("worker 1, step 3"))
    )
    search = make("appo")
    with pytest.raises(TrainingFailed, match="worker 1, step 3"):
        search.run()
    assert search.best is None and search.trials == []


def test_the_first_trial_may_take_all_the_time_and_no_other_what_the_rest_needs(machine):
    machine.rate = hill(512, 4)
    make("appo", fixed=KEPT, seconds=60.0).run()
    assert machine.patience[0] == 60.0 and set(machine.patience[1:]) == {PATIENCE}


def test_each_trial_is_reported_when_it_is_done(machine):
    reported = []
    search = make("appo", report=reported.append)
    search.run()
    assert reported == search.trials


def test_the_share_of_real_work_is_of_all_cores(machine):
    search = make("appo", fixed=search_._values(make("appo")._config, False))
    search.run()
    # rollout 0.7 * (0.7 + 0.3), learner 0.7 * 0.5, of 4 cores during 3 s
    assert search.first.real_work == pytest.approx((0.7 + 0.35) / 12)
