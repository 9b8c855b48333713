"""Population-based training within a run: what a copy has, what it does not learn from, and what a killed run has."""

import json
import os

import pytest
import torch

import penstock
from penstock.algorithms.ppo import PPO, PPOConfig
from penstock.config import ConfigError
from penstock.engine.exploits import Exploits
from penstock.engine.transfers import Transfers
from penstock.experience.arena import Control
from penstock.population.lineage import Lineage
from tests.comparing import identical
from tests.engine.inside import learner_of, policies_of, population_of, role_of
from tests.engine.processes import FOR_EVER
from tests.envs.told_lane import ToldItsLane

LONG = pytest.mark.long
pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("kept_launcher")]

SPACE = {
    "learning_rate": {"low": 1e-5, "high": 1e-2, "log": True},
    "adam_beta1": {"low": 0.5, "high": 0.95},
    "clip_range": {"low": 0.1, "high": 0.4},
    "entropy_coef": {"low": 0.0, "high": 0.1},
    "gamma": {"low": 0.9, "high": 0.999, "complement": True},
}
SMALL = {
    "env": "CartPole-v1", "num_policies": 2, "num_workers": 1, "num_envs_per_worker": 4, "segment_length": 32,
    "batch_size": 64, "num_epochs": 1, "hidden_sizes": (8,), "total_steps": 8_000, "eval_interval": 0,
    "learning_rate_schedule": "constant", "backend": "serial", "run_dir": None,
}  # fmt: skip
PBT = {**SMALL, "pbt": "truncation", "pbt_space": SPACE, "pbt_interval": 512, "pbt_fraction": 0.5, "pbt_episodes": 2}


def lineage_of(run):
    return [json.loads(line) for line in (run / "lineage.jsonl").read_text().splitlines()]


def without_time(lineage):
    return [{name: value for name, value in line.items() if name != "time"} for line in lineage]


def test_after_an_exploit_the_live_groups_and_the_loss_have_the_mutated_settings(tmp_path):
    with penstock.PPO(**{**PBT, "run_dir": str(tmp_path / "run")}) as trainer:
        while not any(policy.exploits for policy in trainer.status.policies):
            trainer.train(256, quiet=True)
        exploit = next(line for line in lineage_of(tmp_path / "run") if line["event"] == "exploit")
        child = int(exploit["policy"])
        trainer.train(256, quiet=True)
        learner = learner_of(trainer, child)
        now, config = trainer.get_hyperparameters()[child], learner._algorithm.config
        decided = [line["after"] for line in lineage_of(tmp_path / "run") if line["policy"] == exploit["policy"]][-1]
        assert {name: now[name] for name in SPACE} == trainer.status.policies[child].tuned == decided
        for group in learner._updater.optimizer.param_groups:
            assert (group["lr"], group["betas"][0]) == (now["learning_rate"], now["adam_beta1"])
        for name in ("clip_range", "entropy_coef", "gamma"):
            assert getattr(config, name) == now[name]


def test_adam_moves_a_copys_weights_by_its_own_rate_with_its_parents_moments():
    with penstock.PPO(**SMALL, learning_rate=0.01, normalize_returns=False) as trainer:
        trainer.train(512, quiet=True)
        trainer.set_hyperparameters({1: {"learning_rate": 1e-6}})
        trainer.copy_policy(0, 1)
        learner = learner_of(trainer, 1)
        before, updates = trainer.get_parameters()[1], learner._updates
        trainer.train(256, quiet=True)
        after = dict(learner._model.named_parameters())
        moved = max((after[name] - before[name]).abs().max().item() for name in after)
        assert 0 < moved <= 10 * 1e-6 * (learner._updates - updates)  # the parent's rate is 10,000 times as large


def test_a_copy_has_weights_statistics_and_optimiser_of_its_own():
    with penstock.PPO(**SMALL) as trainer:
        trainer.train(512, quiet=True)
        trainer.copy_policy(0, 1)
        weights = trainer.get_parameters()
        assert identical(weights[0], weights[1])
        theirs, ours = (learner_of(trainer, policy) for policy in (0, 1))
        states = [each._updater.optimizer.state_dict()["state"] for each in (theirs, ours)]
        assert all(torch.equal(states[0][n][name], states[1][n][name]) for n in states[0] for name in states[0][n])
        places = [{tensor.data_ptr() for n in state for tensor in state[n].values()} for state in states]
        places += [{tensor.data_ptr() for tensor in each._model.state_dict().values()} for each in (theirs, ours)]
        assert not places[0] & places[1] and not places[2] & places[3]
        assert trainer.status.policies[0].steps == pytest.approx(trainer.status.policies[1].steps, abs=64)
        trainer.train(256, quiet=True)
        assert not identical(trainer.get_parameters()[0], trainer.get_parameters()[1])


@pytest.mark.parametrize("face", [penstock.TD3, penstock.IMPACT, penstock.A3C])
def test_targets_and_shared_statistics_are_copied_too(face):
    settings = {name: SMALL[name] for name in ("num_policies", "num_workers", "backend", "run_dir", "eval_interval")}
    env = "Pendulum-v1" if face is penstock.TD3 else "CartPole-v1"
    of_face = {"batch_size": 8, "learning_starts": 16} if face is penstock.TD3 else {"segment_length": 8}
    with face(env, **settings, **of_face, num_envs_per_worker=2, hidden_sizes=(8,), total_steps=8_000) as trainer:
        trainer.train(1_200 if face is penstock.IMPACT else 120, quiet=True)
        trainer.copy_policy(0, 1)
        theirs, ours = (learner_of(trainer, policy) for policy in (0, 1))
        assert identical(theirs._model.state_dict(), ours._model.state_dict())
        theirs, ours = theirs.transferable_state(), ours.transferable_state()
        if "target" in theirs:
            assert identical(theirs["target"], ours["target"])
        optimizers = [each.get("optimizers", each).values() for each in (theirs, ours)]
        for one, other in zip(*optimizers, strict=True):
            for number in one.get("state", ()):
                assert identical(one["state"][number], other["state"][number])
        trainer.train(64, quiet=True)


def test_nothing_in_flight_is_learned_from_and_no_batch_sees_new_weights_with_old_settings():
    # Three lanes fill batches of eight segments: there is always one in flight.
    settings = {**SMALL, "batch_size": 32, "segment_length": 8, "num_envs_per_worker": 6}
    with penstock.APPO(**{name: value for name, value in settings.items() if name != "num_epochs"}) as trainer:
        trainer.train(500, quiet=True)
        trainer.copy_policy(0, 1)
        learner, lags = learner_of(trainer, 1), []
        version = learner._version
        read = learner._read

        def watched(slots):
            batch, lag = read(slots)
            lags.append(int(lag.max()) <= learner._version - version)
            return batch, lag

        learner._read = watched
        trainer.train(500, quiet=True)
        assert len(lags) > 2 and all(lags)


def test_episodes_that_began_with_other_weights_are_not_scored():
    with penstock.PPO(**{**PBT, "pbt_interval": 10**9}) as trainer:
        trainer.train(256, quiet=True)
        population = population_of(trainer)
        team = next(team for team in role_of(trainer, "rollout-0")._policy_lanes if team.policy == 1)
        running = int((team.lanes.running_lengths > 0).sum())
        ended = trainer.status.policies[1].episodes
        assert population.members[1].episodes > 0
        trainer.copy_policy(0, 1)
        assert population.members[1].episodes == 0
        trainer.train(1_024, quiet=True)
        ended, scored = trainer.status.policies[1].episodes - ended, population.members[1].episodes
        assert running > 0 and ended - scored == running


@LONG
def test_one_seed_gives_one_lineage_and_one_set_of_weights(tmp_path):
    found = []
    for name in ("a", "b"):
        settings = {**PBT, "num_policies": 4, "num_envs_per_worker": 8, "total_steps": 2_500}
        with penstock.PPO(**{**settings, "run_dir": str(tmp_path / name)}) as trainer:
            trainer.train(quiet=True)
            found.append(trainer.get_parameters())
    lineage = without_time(lineage_of(tmp_path / "a"))
    assert lineage == without_time(lineage_of(tmp_path / "b"))
    assert [line["event"] for line in lineage[:4]] == ["start"] * 4
    exploits = [line for line in lineage if line["event"] == "exploit"]
    assert exploits and all(line["scores"][line["parent"]] > line["scores"][line["policy"]] for line in exploits)
    assert all(identical(found[0][policy], found[1][policy]) for policy in range(4))


STAGES = {
    "before": (Transfers, "copy", "before"),
    "with the new weights, before the settings": (Transfers, "_settle", "before"),
    "before the lineage": (Lineage, "write", "before"),
    "after the lineage": (Lineage, "write", "after"),
    "after the next checkpoint": (Exploits, "state", "after"),
}


def train_until_killed(run, stage):
    """Train in a process of its own that ends without a word at this stage of its second exploit."""
    owner, method, when = STAGES[stage]
    original, calls = getattr(owner, method), []

    def deadly(self, *arguments, **named):
        exploits = sum(p.exploits for p in self._progress.policies) if owner is Exploits else len(calls)
        if when == "before" and exploits == 1:
            os._exit(9)
        calls.append(method)
        result = original(self, *arguments, **named)
        if when == "after" and exploits == 2:
            os._exit(9)
        return result

    child = os.fork()
    if child == 0:
        setattr(owner, method, deadly)
        with penstock.PPO(**{**PBT, "run_dir": str(run), "checkpoint_interval": 300}) as trainer:
            trainer.train(quiet=True)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


BY_DEFAULT = "with the new weights, before the settings", "after the lineage"


@LONG
@pytest.mark.parametrize("stage", [name if name in BY_DEFAULT else pytest.param(name, marks=LONG) for name in STAGES])
def test_a_run_that_is_killed_anywhere_in_an_exploit_goes_on_from_before_it_or_after(tmp_path, stage):
    run = tmp_path / "run"
    assert train_until_killed(run, stage) == 9
    with open(run / "lineage.jsonl", "a") as file:
        file.write('{"policy": "0", "eve')  # a line that was not finished
    with penstock.PPO.resume(run) as trainer:
        lineage = lineage_of(run)
        members = population_of(trainer).members
        for number, member in enumerate(members):
            of_member = [line for line in lineage if line["policy"] == str(number)]
            assert member.settings == of_member[-1]["after"] == trainer.status.policies[number].tuned
            assert member.exploits == sum(line["event"] == "exploit" for line in of_member)
        trainer.train(2_000, quiet=True)
        assert len(lineage_of(run)) > len(lineage)


def test_settings_given_when_a_run_goes_on_win_over_restored_ones(tmp_path):
    with penstock.PPO(**{**PBT, "run_dir": str(tmp_path / "run")}) as trainer:
        trainer.train(1_000, quiet=True)
        kept = [each["gamma"] for each in trainer.get_hyperparameters().values()]
    with penstock.PPO.resume(tmp_path / "run", learning_rate=2e-3, pbt_interval=10**9) as trainer:
        found = trainer.get_hyperparameters().values()
        assert [(each["learning_rate"], each["gamma"]) for each in found] == [(2e-3, gamma) for gamma in kept]
        trainer.train(256, quiet=True)
        assert learner_of(trainer, 1)._updater.optimizer.param_groups[0]["lr"] == 2e-3


def test_what_is_set_from_outside_is_what_copies_are_made_of(tmp_path):
    run = tmp_path / "run"
    with penstock.PPO(**{**PBT, "run_dir": str(run), "pbt_interval": 10**9}) as trainer:
        trainer.train(256, quiet=True)
        trainer.set_hyperparameters({0: {"learning_rate": 5e-3, "value_coef": 1.0}})
        population = population_of(trainer)
        assert population.members[0].settings["learning_rate"] == 5e-3
        assert "value_coef" not in population.members[0].settings  # it is not in the space
        told = lineage_of(run)[-1]
        assert (told["event"], told["policy"], told["after"]["learning_rate"]) == ("set", "0", 5e-3)


@LONG
def test_a_copy_from_outside_and_what_a_resume_gives_are_in_the_lineage(tmp_path):
    run = tmp_path / "run"
    with penstock.PPO(**{**PBT, "run_dir": str(run), "pbt_interval": 10**9}) as trainer:
        trainer.train(512, quiet=True)
        steps = [policy.steps for policy in trainer.status.policies]
        trainer.copy_policy(0, 1)
        trainer.train(128, quiet=True)
        rate = trainer.get_hyperparameters()[1]["learning_rate"]
    told = lineage_of(run)[-1]
    assert (told["event"], told["parent"], told["policy"]) == ("copy", "0", "1")
    assert [told["parent_steps"], told["steps"]] == steps and told["after"]["learning_rate"] == rate
    # The weights began as policy 0's, and have had policy 1's settings from the copy on.
    schedule = penstock.load_schedule(run, "1")
    assert list(schedule) == [0, steps[0]] and schedule[steps[0]]["learning_rate"] == rate
    assert schedule[0] == lineage_of(run)[0]["after"]
    with penstock.PPO.resume(run, learning_rate=2e-3) as trainer:
        now = [policy.steps for policy in trainer.status.policies]
        trainer.train(64, quiet=True)
    assert [(line["event"], line["steps"], line["after"]["learning_rate"]) for line in lineage_of(run)[-2:]] == [
        ("set", now[0], 2e-3), ("set", now[1], 2e-3),
    ]  # fmt: skip
    count = len(lineage_of(run))
    penstock.PPO.resume(run).close()
    assert len(lineage_of(run)) == count


class Fragile(PPO):
    """PPO whose loss is NaN at large learning rates."""

    Config = PPOConfig

    def loss(self, batch, policy, value):
        loss, metrics = super().loss(batch, policy, value)
        return (loss * torch.nan if self.config.learning_rate > 5e-3 else loss), metrics


@LONG
def test_a_policy_that_diverges_copies_another_and_the_run_goes_on(tmp_path):
    space = {"learning_rate": {"low": 1e-4, "high": 9e-3, "resample": 0.0}}
    policies = {"good": {"learning_rate": 1e-3}, "bad": {"learning_rate": 8e-3}}
    settings = {**PBT, "pbt_space": space, "pbt_interval": 10**6, "policies": policies, "num_policies": 1}
    with penstock.Trainer(Fragile, **{**settings, "run_dir": str(tmp_path / "run")}) as trainer:
        result = trainer.train(quiet=True)
        assert result.stop_reason == "steps" and trainer.status.policies[1].updates > 5
    (rescue,) = [line for line in lineage_of(tmp_path / "run") if line["event"] != "start"]
    assert (rescue["event"], rescue["policy"], rescue["parent"]) == ("diverged", "bad", "good")
    assert rescue["after"]["learning_rate"] in (pytest.approx(8e-4), pytest.approx(1.2e-3))


def test_a_population_may_be_ranked_by_what_environments_report(tmp_path):
    run = tmp_path / "run"
    with penstock.PPO(**{**PBT, "env": ToldItsLane, "pbt_metric": "wealth", "run_dir": str(run)}) as trainer:
        trainer.train(2_000, quiet=True)
    exploits = [line for line in lineage_of(run) if line["event"] == "exploit"]
    assert exploits and all((line["policy"], line["parent"]) == ("1", "0") for line in exploits)
    assert exploits[0]["scores"] == {"0": pytest.approx(-0.5), "1": pytest.approx(-2.5)}


@LONG
def test_in_processes_a_population_copies_too(tmp_path):
    run = tmp_path / "run"
    with penstock.PPO(**{**PBT, "backend": "local", "run_dir": str(run), "total_steps": FOR_EVER}) as trainer:
        epochs = [policy.arena.control[Control.RUN_EPOCH] for policy in policies_of(trainer)]
        result = trainer.train(4_000, quiet=True)
        while not any(policy.exploits for policy in trainer.status.policies):
            result = trainer.train(1_000, quiet=True)
        exploits = [policy.exploits for policy in trainer.status.policies]
        now = [policy.arena.control[Control.RUN_EPOCH] for policy in policies_of(trainer)]
        rates = [policy.learning_rate for policy in trainer.status.policies]
        assert result.stop_reason == "steps"
        assert [after - before for after, before in zip(now, epochs, strict=True)] == exploits
        # A policy that copied after its last update shows the rate of that update.
        had = {policy: [line["after"]["learning_rate"] for line in lineage_of(run) if line["policy"] == policy]
               for policy in ("0", "1")}  # fmt: skip
        assert all(rate in had[str(number)] for number, rate in enumerate(rates))
    assert sum(line["event"] == "exploit" for line in lineage_of(run)) == sum(exploits)
    metrics = (run / "metrics.jsonl").read_text()
    assert '"policy/1/exploits"' in metrics and '"policy/0/tuned/learning_rate"' in metrics
    assert json.loads(next(run.glob("policies/0/checkpoints/*/population.json")).read_text())["members"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_policies": 1}, "pbt='truncation' needs a population, and there is one policy"),
        ({"pbt_space": None}, "pbt='truncation' needs a pbt_space"),
        ({"pbt": None}, "pbt_space is given, but pbt is None"),
        ({"pbt": "truncate"}, "did you mean 'truncation'?"),
        ({"pbt_space": {"gama": {"low": 0.0, "high": 1.0}}}, "unknown setting 'gama'; did you mean 'gamma'?"),
        ({"pbt_space": "nowhere.toml"}, "the space 'nowhere.toml' cannot be read"),
        ({"pbt_fraction": 0.7}, "pbt_fraction=0.7 is not legal"),
        ({"policies": {"a": {"gamma": 0.5}, "b": {}}, "num_policies": 1}, "gamma=0.5 is outside the bounds"),
        ({"policies": {"a": {}, "b": {"hidden_sizes": (4,)}}, "num_policies": 1}, "'a' and 'b' cannot copy each other"),
        ({"policies": {"a": {}, "b": {"pbt_episodes": 4}}, "num_policies": 1}, "pbt_episodes belongs to the whole run"),
    ],
)
def test_a_population_that_cannot_be_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        penstock.PPO(**{**PBT, **settings})


def test_only_policies_and_paths_that_exist_are_copied():
    with penstock.PPO(**SMALL) as trainer:
        with pytest.raises(ConfigError, match=r"there is no policy 7: this run has \[0, 1\]"):
            trainer.copy_policy(0, 7)
        with pytest.raises(ConfigError, match=r"no policy 'runs/mistyped', and no such path: this run has \[0, 1\]"):
            trainer.copy_policy("runs/mistyped")
