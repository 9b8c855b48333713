"""Rollout workers, policy workers and the learner from replay, polled by hand: in step, and exact."""

from __future__ import annotations

import copy
import itertools
import random
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from penstock.algorithms.apex import ApeX
from penstock.algorithms.apex_dpg import ApeXDPG
from penstock.algorithms.bases.algorithm import NonFiniteUpdate
from penstock.algorithms.dqn import DQN
from penstock.algorithms.td3 import TD3
from penstock.engine.contracts import LearnerState
from penstock.engine.messages import Saved, SetWeights, WeightsSet
from penstock.engine.paths.replay_learner import ReplayLearner
from penstock.engine.roles.learner import MAX_SKIPPED_IN_A_ROW, LearningDiverged
from penstock.experience.arena import Control
from penstock.runs.descriptions import QUANTILES
from tests.comparing import identical
from tests.engine.collecting import FIRST_VERSION, SHORT, saved
from tests.engine.replaying import Replaying

# ---- what is collected


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (DQN, {"num_envs_per_worker": 4, "n_step": 3, "exploration": 0.5, **SHORT}),
        (ApeX, {"num_envs_per_worker": 4, **SHORT}),
        (TD3, {"env": "Pendulum-v1", "num_envs_per_worker": 2}),
    ],
)
def test_local_and_central_inference_write_the_same_transitions_and_priorities(algorithm, settings):
    collected = []
    for inference in ({"inference": "local"}, {"inference": "central", "num_groups": 1}):
        run = Replaying(algorithm, **settings, **inference, ratio_slack=100)
        while run.poll():
            pass
        collected.append(run.rows() | ({"priorities": run.priorities()} if run.replay.initial_priorities else {}))
        run.close()
    local, central = collected
    assert len(local["ids"]) > 80
    for name, array in local.items():
        count = min(len(array), len(central[name]))  # central inference may be asked about one step more
        assert len(local["ids"]) - count <= 4
        np.testing.assert_array_equal(array[:count], central[name][:count], err_msg=name)


@pytest.mark.parametrize("inference", ["local", "central"])
@pytest.mark.parametrize("vectorize", ["make", "vector"])
@pytest.mark.parametrize("n_step", [1, 3])
def test_first_priorities_are_the_temporal_differences_under_the_published_weights(n_step, vectorize, inference):
    run = Replaying(
        ApeX, num_envs_per_worker=4, n_step=n_step, gamma=0.9, priority_alpha=1.0, ratio_slack=60, vectorize=vectorize,
        inference=inference, **SHORT,
    )  # fmt: skip
    while run.poll():
        pass
    rows = {name: torch.from_numpy(array) for name, array in run.rows().items()}
    with torch.no_grad():
        q = run.model.q(rows["obs"]).gather(1, rows["action"][:, None])[:, 0]
        best = run.model.q(rows["next_obs"]).amax(1)
    expected = (rows["reward"] + rows["discount"] * best - q).abs().numpy()
    assert (rows["discount"] == 0).any() and len(expected) > 40
    assert expected.std() > 0.01
    np.testing.assert_allclose(run.priorities(), expected + 1e-6, rtol=1e-4)
    run.close()


def test_actions_are_random_for_the_steps_before_learning_starts_and_the_policys_from_then_on():
    run = Replaying(TD3, env="Pendulum-v1", exploration_noise=0.0, ratio_slack=10)
    with torch.no_grad():
        for parameter in run.model.actor_parameters():
            parameter.zero_()  # a policy that does nothing
    run.weights.publish(FIRST_VERSION + 1, 0)
    while run.poll():
        pass
    is_random = (run.rows()["action"] != 0.0).any(1)
    assert is_random.tolist() == [True] * 10 + [False] * 10
    run.close()


def test_exploration_falls_with_the_steps_that_are_taken_also_before_anything_is_learned():
    run = Replaying(exploration=1.0, exploration_final=0.0, exploration_steps=30, ratio_slack=60)
    while run.poll():
        pass
    rows = run.rows()
    with torch.no_grad():
        best = run.model.q(torch.from_numpy(rows["obs"])).argmax(1).numpy()
    assert len(rows["ids"]) == 70 and (rows["action"] == best)[30:].all()
    assert not (rows["action"] == best)[:20].all()
    run.close()


# ---- in step


@pytest.mark.parametrize(
    ("num_workers", "num_envs_per_worker", "backend"),
    [(1, 1, "serial"), (1, 4, "serial"), (3, 2, "serial"), (3, 2, "local")],
)
@pytest.mark.parametrize("updates_per_step", [0.25, 1.0, 2.0])
def test_steps_and_updates_stay_within_the_band_for_any_order_of_polls(
    updates_per_step, num_workers, num_envs_per_worker, backend
):
    run = Replaying(
        num_workers=num_workers, num_envs_per_worker=num_envs_per_worker, updates_per_step=updates_per_step,
        backend=backend,
    )  # fmt: skip
    order, limiter = random.Random(5), run.replay.limiter
    slack = run.algorithm.config.slack
    while run.batches < 25:
        for _ in range(order.choice([1, 1, 2, 20])):
            worker = order.choice(run.workers)
            worker.poll()
        for _ in range(order.choice([1, 1, 2, 20])):
            run.learner.poll()
        updates_due = updates_per_step * (limiter.inserts - limiter.min_size)
        if limiter.inserts >= limiter.min_size:
            assert abs(updates_due - limiter.samples / 4) <= slack
        else:
            assert limiter.samples == 0
        assert run.steps == run.replay.steps_learned(run.batches) <= limiter.inserts
    run.close()


@pytest.mark.parametrize(("updates_per_step", "cycle"), [(0.25, "ssssu"), (1.0, "su"), (2.0, "suu")])
def test_in_the_serial_backend_steps_and_updates_come_in_turn(updates_per_step, cycle):
    run = Replaying(updates_per_step=updates_per_step)
    story = ""
    while story.count("u") < 30:
        story += "s" * run.poll() + "u" * run.learner.poll()
    assert story.startswith("s" * 10 + "u"), "the first update comes when there is enough to draw from"
    tail = story[20:]
    begin = next(i for i in range(len(cycle)) if tail[i:].startswith(cycle * 3))
    whole = tail[begin : begin + len(cycle) * 5]
    assert whole == cycle * 5
    run.close()


def test_the_steps_of_all_lanes_count_and_the_goal_is_reached_exactly():
    run = Replaying(num_envs_per_worker=4)
    run.arena.control[Control.GOAL] = 33
    for _ in range(50):
        run.poll()
        run.learner.poll()
    assert run.learned[-1].steps == 33 == run.steps
    assert run.learned[-1].updates == 33 - 10
    assert not run.learner.poll() and not run.learner.poll()
    run.close()


def test_the_count_stands_still_at_a_goal_that_an_interruption_draws_near_though_workers_go_on(tmp_path):
    # They may take as many more steps as the limiter lets them. What is said last is what the checkpoint says.
    run = Replaying(ratio_slack=20)
    run.learn(7)
    while run.poll():  # the updates due for these steps ...
        pass
    while run.learner.poll():  # ... are made
        pass
    assert run.replay.steps_learned(run.batches) == run.steps
    run.arena.control[Control.GOAL] = 0
    checkpoint = saved(run.learner, tmp_path / "saved")
    while run.poll():
        run.learner.poll()
    run.learner.poll()
    assert run.replay.limiter.inserts > run.steps == checkpoint.meta["steps"]
    run.close()


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (DQN, {"n_step": 5, "learning_starts": 1, "batch_size": 1}),
        (ApeX, {"num_envs_per_worker": 4, "learning_starts": 4}),
    ],
)
def test_steps_that_wait_for_their_n_step_rows_never_hold_up_the_first_batch(algorithm, settings):
    run = Replaying(algorithm, **settings)
    for _ in range(60):
        run.poll()
        run.learner.poll()
    assert run.batches > 20 and run.replay.limiter.inserts > 20
    run.close()


def test_a_goal_before_learning_starts_is_reached_without_an_update():
    run = Replaying()
    run.arena.control[Control.GOAL] = 7
    while run.steps < 7:
        assert run.poll()
        run.learner.poll()
    assert run.learned[-1].steps == 7 and run.learned[-1].updates == 0
    run.close()


def test_rollout_workers_that_wait_are_woken_when_half_the_band_is_empty():
    run = Replaying(ratio_slack=8)
    while run.poll():
        pass
    bell = run.arena.rollout_bells[0]
    rung = []
    for _ in range(9):
        before = bell.value
        assert run.learner.poll()
        rung.append(bell.value != before)
    assert rung == [False] * 7 + [True] * 2
    run.close()


# ---- updates


class Keeping:
    """Keeps what every update was given and found."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.seen: list[tuple[Any, torch.Tensor]] = []

    def update(self, model, batch):
        td_error, metrics = super().update(model, batch)  # type: ignore[misc]
        self.seen.append((batch, td_error))
        return td_error, metrics


class Watching(Keeping, DQN):
    """Watches one critic."""


class WatchingPair(Keeping, TD3):
    """Watches two critics."""


def test_updates_are_numbered_and_know_how_far_the_run_is():
    run = Replaying(Watching, total_steps=100)
    run.learn(21)
    seen = [batch for batch, _ in run.algorithm.seen]
    assert [batch.number for batch in seen] == list(range(1, 22))
    # The n-th comes after 10 steps and n - 1 more.
    assert [batch.progress for batch in seen] == [pytest.approx((10 + n) / 100) for n in range(21)]
    assert run.learned[-1].updates == 21 and run.learned[-1].version == FIRST_VERSION + 21
    assert all((batch.weights == 1.0).all() for batch in seen)
    run.close()


def test_a_learner_that_takes_the_state_of_another_goes_on_with_its_counts():
    """As it does for a first learner of a group that has died: it draws on as the rate limiter has counted."""
    run, successor = Replaying(), Replaying()
    run.learn(7)
    successor.learner.take_state(run.learner.whole_state())
    there, here = run.learner.standing(), successor.learner.standing()
    assert here == there | {"version": there["version"] + 1} and there["batches"] == 7, "a version that policies take"
    for each in (run, successor):
        each.close()


def test_learning_rate_and_importance_exponent_follow_their_schedules():
    betas = []
    run = Replaying(
        Watching, total_steps=40, learning_rate=0.01, learning_rate_schedule="linear", prioritized=True,
        priority_beta=0.4, priority_beta_final=1.0,
    )  # fmt: skip
    draw = run.replay.buffer.sample

    def sample(size, **options):
        betas.append(options["beta"])
        return draw(size, **options)

    run.replay.buffer.sample = sample  # type: ignore[method-assign]
    run.learn(11)
    assert betas == [pytest.approx(0.4 + 0.6 * (10 + n) / 40) for n in range(11)]
    assert run.learned[-1].learning_rate == pytest.approx(0.01 * (1 - 20 / 40))
    run.close()


@pytest.mark.parametrize(("algorithm", "env"), [(Watching, "CartPole-v1"), (WatchingPair, "Pendulum-v1")])
def test_the_rows_of_a_batch_get_the_temporal_differences_that_were_found_as_priorities_the_largest_of_several_critics(
    algorithm, env
):
    run = Replaying(algorithm, env=env, prioritized=True, priority_alpha=1.0)
    run.learn(1)
    batch, td_error = run.algorithm.seen[0]
    largest = td_error.abs().view(-1, len(batch.obs)).amax(0)
    by_obs = {tuple(obs): float(error) for obs, error in zip(batch.obs.tolist(), largest, strict=True)}
    priorities = {
        tuple(obs): priority for obs, priority in zip(run.rows()["obs"].tolist(), run.priorities(), strict=True)
    }
    assert by_obs.keys() <= priorities.keys()
    for obs, priority in priorities.items():
        assert priority == pytest.approx(by_obs.get(obs, 1.0) + 1e-6, rel=1e-5)
    run.close()


@pytest.mark.parametrize("interval", [1, 5])
def test_weights_are_published_at_an_interval_of_updates(interval):
    run = Replaying(publish_interval=interval)
    versions = []
    for _ in range(12):
        run.learn(1)
        versions.append(run.arena.weights.version - FIRST_VERSION)
    assert versions == [n // interval * interval for n in range(1, 13)]
    run.close()


def test_observation_statistics_grow_by_every_batch_and_travel_with_the_weights():
    run = Replaying(normalize_observations=True)
    before = run.model.input.state_dict()
    before = {name: tensor.clone() for name, tensor in before.items()}
    run.learn(1)
    run.weights.refresh()
    after = run.model.input.state_dict()
    assert before.keys() == after.keys() and any(not torch.equal(before[name], after[name]) for name in after)
    run.close()


class Failing(DQN):
    """Its updates fail where `story` has True; after its end always."""

    story: ClassVar[list[bool]] = []

    def update(self, model, batch):
        if not self.story or self.story.pop(0):
            raise NonFiniteUpdate("q loss nan, gradient norm 1.0")
        return super().update(model, batch)


def test_an_update_that_is_not_finite_is_left_out_and_counted_and_the_run_goes_on():
    Failing.story = [False, True, True, False]
    run = Replaying(Failing)
    run.learn(4)
    assert run.learned[-1].skipped_updates == 2 and run.learned[-1].updates == 2
    assert run.arena.weights.version == FIRST_VERSION + 2
    assert run.steps == 13, "the steps of the batches left out do not come back"
    run.close()


def test_updates_that_stay_not_finite_end_the_run_with_a_diagnosis():
    Failing.story = [False]
    run = Replaying(Failing)
    with pytest.raises(LearningDiverged, match=r"were not finite \(q loss nan, gradient norm 1.0\)"):
        run.learn(MAX_SKIPPED_IN_A_ROW + 1)
    run.close()


def test_weights_that_are_set_are_published_and_the_target_is_set_with_them(tmp_path):
    run = Replaying(TD3, env="Pendulum-v1")
    run.learn(5)
    weights = {name: np.full(tensor.shape, 0.25, np.float32) for name, tensor in run.model.state_dict().items()}
    run.learner.handle(SetWeights(weights, None))
    assert run.reports[-1] == WeightsSet(FIRST_VERSION + 6)
    run.weights.refresh()
    assert run.weights.version == FIRST_VERSION + 6
    kept = saved(run.learner, tmp_path / "saved").weights
    for state in (run.model.state_dict(), run.algorithm.target.state_dict(), kept):
        assert all((tensor == 0.25).all() for tensor in state.values())
    run.close()


def test_a_checkpoint_holds_what_the_learner_alone_has_and_how_far_the_replay_is(tmp_path):
    run = Replaying(TD3, env="Pendulum-v1")
    run.learn(7)
    checkpoint = saved(run.learner, tmp_path / "saved")
    assert run.reports[-1] == Saved(1, None)
    state = checkpoint.state
    kept = {"updates_per_step": 1.0, "min_size": 10}
    assert state["replay"] == {"inserts": 16, "batches": 7, "counted_from": 0, **kept}
    assert (state["steps"], state["updates"], state["version"]) == (16, 7, FIRST_VERSION + 7)
    assert torch.equal(state["generator"], run.algorithm.generator.get_state())
    target = run.algorithm.target.state_dict()
    assert all(torch.equal(state["target"][name], tensor) for name, tensor in target.items())
    assert any(not torch.equal(checkpoint.weights[name], tensor) for name, tensor in target.items())
    run.close()


def test_a_learner_made_of_a_saved_state_makes_the_same_next_updates_bit_for_bit(tmp_path):
    one, two = (Replaying(TD3, env="Pendulum-v1", learning_rate_schedule="linear") for _ in range(2))
    one.learn(7)
    learning = copy.deepcopy(one.learner.learning_state())
    two.learn(7)
    two.learner.close()
    state = LearnerState(steps=16, version=FIRST_VERSION + 7, updates=7)
    two.replay = two.replay.going_on(learning["replay"], 16)
    two.learner = ReplayLearner(two.algorithm, two.arena, state, learning, two.reports.append, two.replay)
    for run in (one, two):
        run.learn(3)
    assert identical(*(saved(run.learner, tmp_path / name).weights for name, run in (("1", one), ("2", two))))
    for run in (one, two):
        run.close()


def test_reports_tell_how_old_the_rows_of_the_last_batch_were_and_the_priorities_they_got():
    run = Replaying(Watching, prioritized=True, buffer_size=40, batch_size=8)
    run.learn(60)
    batch, td_error = run.algorithm.seen[-1]
    rows = [tuple(obs) for obs in run.rows()["obs"].tolist()]  # oldest first
    ages = [len(rows) - 1 - rows.index(tuple(obs)) for obs in batch.obs.tolist()]
    told = run.learned[-1].experience
    found = {name: [told[f"replay/{name}/{each}"] for each in QUANTILES] for name in ("age", "priority")}
    np.testing.assert_array_equal(found["age"], np.quantile(ages, list(QUANTILES.values())))
    np.testing.assert_allclose(found["priority"], np.quantile(td_error.abs(), list(QUANTILES.values())), rtol=1e-6)
    assert told["replay/fill"] == 1.0 and max(ages) > min(ages)
    run.close()


def test_rows_that_are_evicted_by_priority_have_no_age():
    run = Replaying(ApeXDPG, env="Pendulum-v1", num_workers=1, updates_per_step=1.0)
    run.learn(2)
    names = run.learned[-1].experience.keys()
    assert "replay/priority/median" in names and "replay/age/median" not in names
    run.close()


def test_reports_name_the_fill_of_the_buffer_and_the_measured_ratio():
    run = Replaying(updates_per_step=2.0)
    run.learn(40)
    report = run.learned[-1]
    inserts = run.replay.limiter.inserts
    assert report.experience["replay/rows"] == inserts == len(run.rows()["ids"])
    assert report.experience["replay/updates_per_step"] == 40 / (inserts - 10) == pytest.approx(2.0, abs=0.15)
    assert set(report.losses) == {"loss", "q", "grad_norm"}
    pairs = itertools.pairwise(run.learned)
    assert all(one.steps <= two.steps and one.updates < two.updates for one, two in pairs)
    run.close()
