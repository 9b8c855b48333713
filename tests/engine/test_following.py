"""A schedule of settings that a run follows: that of a population, repeated, or one that is given as it is."""

import json

import pytest

import penstock
from penstock.algorithms.ppo import PPOConfig
from penstock.config import ConfigError
from penstock.flags import parse_config
from penstock.population.schedule import settings_at
from tests.comparing import identical
from tests.engine.inside import learner_of, supervisor_of

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("kept_launcher")]

SMALL = {
    "env": "CartPole-v1", "num_workers": 1, "num_envs_per_worker": 2, "segment_length": 32, "batch_size": 64,
    "num_epochs": 1, "hidden_sizes": (8,), "total_steps": 4_000, "eval_interval": 0,
    "learning_rate_schedule": "constant", "backend": "serial", "run_dir": None,
}  # fmt: skip
SPACE = {"learning_rate": {"low": 1e-5, "high": 1e-2, "log": True}, "clip_range": {"low": 0.1, "high": 0.4}}
POPULATION = {
    **SMALL, "num_policies": 2, "num_envs_per_worker": 4, "total_steps": 8_000, "pbt": "truncation",
    "pbt_space": SPACE, "pbt_interval": 512, "pbt_fraction": 0.5, "pbt_episodes": 2,
}  # fmt: skip
BY_HAND = {0: {"learning_rate": 1e-3}, 256: {"learning_rate": 2e-3}, 512: {"learning_rate": 3e-3, "gamma": 0.9}}


def watch(learner, learned):
    """Note before every update of how many steps the learner is, and with which rate and clip range it learns."""
    apply = learner._apply_settings

    def watched():
        apply()
        now = learner._config
        learned.append((learner._steps, now.learning_rate, now.clip_range))

    learner._apply_settings = watched


def trained(**settings):
    """Train with these settings; return the weights, and what `watch` has noted."""
    learned = []
    with penstock.PPO(**{**SMALL, **settings}) as trainer:
        build = supervisor_of(trainer).backend.start

        def start():
            build()
            watch(learner_of(trainer), learned)

        supervisor_of(trainer).backend.start = start
        trainer.train(quiet=True)
        return trainer.get_parameters()[0], learned


def test_a_run_repeats_the_schedule_of_a_policy_and_its_ancestors_batch_for_batch(tmp_path):
    run, lived = tmp_path / "run", {0: [], 1: []}  # the batches that each policy's weights were learned from
    with penstock.PPO(**{**POPULATION, "run_dir": str(run)}) as trainer:
        transfers = supervisor_of(trainer)._transfers
        start, copy = supervisor_of(trainer).backend.start, transfers.copy

        def watched_start():
            start()
            for policy, learned in lived.items():
                watch(learner_of(trainer, policy), learned)

        def watched_copy(parent, child, settings=None):
            copied = copy(parent, child, settings)
            lived[child][:] = lived[parent]
            return copied

        supervisor_of(trainer).backend.start, transfers.copy = watched_start, watched_copy
        trainer.train(quiet=True)
    lineage = [json.loads(line) for line in (run / "lineage.jsonl").read_text().splitlines()]
    child = next(line["policy"] for line in reversed(lineage) if line["event"] == "exploit")
    schedule = penstock.load_schedule(run, child)
    assert len(schedule) > 2 and 0 in schedule
    total = 64 * len(lived[int(child)])
    _, learned = trained(schedule=str(run / "lineage.jsonl"), schedule_policy=child, total_steps=total)
    assert [each[1:] for each in learned] == [each[1:] for each in lived[int(child)]]
    assert len({rate for _, rate, _ in learned}) > 2


def test_a_replay_gives_the_same_weights_again_and_others_than_without_it():
    (weights, learned), (again, _), (without, _) = (
        trained(schedule=BY_HAND, total_steps=1_024), trained(schedule=BY_HAND, total_steps=1_024),
        trained(total_steps=1_024),
    )  # fmt: skip
    assert identical(weights, again) and not identical(weights, without)
    assert [(steps, rate) for steps, rate, _ in learned if steps in (0, 192, 256, 448, 512)] == [
        (0, 1e-3), (192, 1e-3), (256, 2e-3), (448, 2e-3), (512, 3e-3),
    ]  # fmt: skip


def test_a_replay_that_goes_on_needs_the_lineage_no_more(tmp_path):
    lineage, run = tmp_path / "lineage.jsonl", tmp_path / "run"
    events = [{"event": "set", "policy": "0", "steps": steps, "after": after} for steps, after in BY_HAND.items()]
    lineage.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    with penstock.PPO(**{**SMALL, "run_dir": str(run)}, schedule=lineage, schedule_policy="0") as trainer:
        trainer.train(300, quiet=True)
    lineage.unlink()
    with pytest.raises(ConfigError, match=r"learning_rate is set by the schedule of this run: .*schedule=None"):
        penstock.PPO.resume(run, learning_rate=1e-3)
    with penstock.PPO.resume(run) as trainer:
        assert trainer.get_hyperparameters()["learning_rate"] == trainer.status.tuned["learning_rate"] == 2e-3
        trainer.train(64, quiet=True)
        assert learner_of(trainer)._updater.optimizer.param_groups[0]["lr"] == 2e-3
        trainer.train(256, quiet=True)
        assert learner_of(trainer)._updater.optimizer.param_groups[0]["lr"] == 3e-3
        assert trainer.get_hyperparameters()["gamma"] == settings_at(BY_HAND, 10**6)["gamma"] == 0.9
    with penstock.PPO.resume(run, schedule=None, learning_rate=1e-4) as trainer:
        assert {"learning_rate": 1e-4, "gamma": 0.9}.items() <= trainer.get_hyperparameters().items()


def test_a_resume_has_the_values_of_its_steps_even_where_the_checkpoint_is_of_just_before_the_change(tmp_path):
    run = tmp_path / "run"
    with penstock.PPO(**{**SMALL, "run_dir": str(run)}, schedule=BY_HAND) as trainer:
        supervisor_of(trainer)._schedule_runner.schedule = lambda: None  # the last batch is not reported yet
        trainer.train(256, quiet=True)
        assert trainer.get_hyperparameters()["learning_rate"] == 1e-3
    with penstock.PPO.resume(run) as trainer:
        assert trainer.get_hyperparameters()["learning_rate"] == 2e-3


def test_what_was_set_in_a_run_holds_in_its_resume_until_the_next_moment(tmp_path):
    run = tmp_path / "run"
    with penstock.PPO(**{**SMALL, "run_dir": str(run)}, schedule=BY_HAND) as trainer:
        trainer.train(300, quiet=True)
        trainer.set_hyperparameters({"learning_rate": 5e-4})
        trainer.train(64, quiet=True)
        assert trainer.get_hyperparameters()["learning_rate"] == 5e-4
    with penstock.PPO.resume(run) as trainer:
        assert trainer.get_hyperparameters()["learning_rate"] == trainer.status.tuned["learning_rate"] == 5e-4
        trainer.train(64, quiet=True)
        assert learner_of(trainer)._updater.optimizer.param_groups[0]["lr"] == 5e-4
    with penstock.PPO.resume(run) as trainer:  # this run was given no moment: it knows that of the first
        assert trainer.get_hyperparameters()["learning_rate"] == 5e-4
        trainer.train(128, quiet=True)
        assert learner_of(trainer)._updater.optimizer.param_groups[0]["lr"] == 3e-3


@pytest.mark.parametrize("other", [{0: {"learning_rate": 7e-3}}, {256: {"learning_rate": 7e-3}}])
def test_a_resume_that_gives_another_schedule_begins_with_its_values(tmp_path, other):
    run = tmp_path / "run"
    with penstock.PPO(**{**SMALL, "run_dir": str(run)}, schedule=BY_HAND) as trainer:
        trainer.train(300, quiet=True)
        trainer.set_hyperparameters({"learning_rate": 5e-4})
        trainer.train(64, quiet=True)
    with penstock.PPO.resume(run, schedule=other):
        pass  # it ends before it has saved
    with penstock.PPO.resume(run) as trainer:
        assert trainer.get_hyperparameters()["learning_rate"] == 7e-3


def test_each_of_several_policies_follows_it_by_its_own_steps():
    settings = {**SMALL, "policies": {"often": {}, "seldom": {}}, "num_envs_per_worker": 4, "batch_size": 32}
    with penstock.PPO(**settings, policy_of=lambda _, env: "often" if env else "seldom", schedule=BY_HAND) as trainer:
        for total, often, seldom in ((500, 2e-3, 1e-3), (800, 3e-3, 1e-3), (1_200, 3e-3, 2e-3)):
            trainer.train(total - trainer.status.steps, quiet=True)
            steps = {policy.name: policy.steps for policy in trainer.status.policies}
            found = {name: each["learning_rate"] for name, each in trainer.get_hyperparameters().items()}
            assert steps["often"] >= 2 * steps["seldom"] and found == {"often": often, "seldom": seldom}
            assert found == {name: settings_at(BY_HAND, each)["learning_rate"] for name, each in steps.items()}


def test_in_processes_a_replay_changes_settings_too():
    with penstock.PPO(**{**SMALL, "backend": "local"}, schedule=BY_HAND) as trainer:
        trainer.train(64, quiet=True)
        assert trainer.status.learning_rate == 1e-3
        while trainer.status.learning_rate != 3e-3:  # the last one by hand
            trainer.train(200, quiet=True)


def test_the_command_line_takes_a_lineage():
    config = parse_config(
        PPOConfig, ["--env", "CartPole-v1", "--schedule", "runs/x", "--schedule-policy", "3"], "penstock"
    )
    assert (config.schedule, config.schedule_policy) == ("runs/x", "3")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedule": "nowhere"}, "schedule: the lineage nowhere cannot be read"),
        ({"schedule": {0: {"gama": 0.9}}}, "schedule, from step 0 on: unknown setting 'gama'; did you mean 'gamma'"),
        ({"schedule": {0: {}, 5_000: {"clip_range": -1.0}}}, "schedule, from step 5,000 on: clip_range=-1.0 is not"),
        ({"schedule": {0: {"batch_size": 8}}}, "from step 0 on: batch_size cannot change during a run"),
        ({"schedule": {0: {"target_kl": 0.1}}}, "target_kl cannot be tuned in a run with target_kl=None"),
        ({"schedule_policy": "3"}, "schedule_policy='3' chooses a policy of a lineage: give schedule"),
        ({"schedule": BY_HAND, "schedule_policy": "3"}, "schedule is of one policy: leave schedule_policy out"),
        ({"schedule": json.dumps(BY_HAND), "schedule_policy": "3"}, "is of one policy: leave schedule_policy out"),
        ({**POPULATION, "schedule": BY_HAND}, "schedule and pbt='truncation' both change the settings"),
        ({"policies": {"a": {"schedule": BY_HAND}, "b": {}}}, "schedule belongs to the whole run"),
    ],
)  # fmt: skip
def test_a_schedule_that_cannot_be_followed_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        penstock.PPO(**{**SMALL, **settings})
