"""Several policies in one run: each with its own settings, spaces, arena, learner, weights and checkpoints."""

import json
import os
import re
import signal
from collections import defaultdict

import numpy as np
import pytest
import torch
from gymnasium import spaces

import penstock
from penstock.algorithms.appo import APPO
from penstock.commands.evaluation import info
from penstock.config import ConfigError
from penstock.engine.endings import TrainingFailed
from penstock.engine.messages import Note
from penstock.engine.paths.segment_learner import SegmentLearner
from penstock.engine.policies import checkpoints_to_resume
from penstock.envs.failures import UnsupportedSpaceError
from penstock.play.scoring import evaluate_together
from penstock.runs.checkpoint import CheckpointError
from penstock.runs.lookup import resolve_checkpoint
from penstock.runs.reading import RecordedRun
from penstock.runs.run_directory import RunDirectory
from penstock.runs.vacancy import RunDirectoryError
from tests.comparing import identical
from tests.engine.inside import learner_of, policies_of, role_of, supervisor_of
from tests.engine.processes import Watched, pids_of, roles_of, wait_until
from tests.envs.playing import AtOnce, InTurn, Part
from tests.envs.two_sides import TwoSides

LONG = pytest.mark.long
pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("kept_launcher")]

SIDES = {"hunters": {"agents": "hunter_*", "learning_rate": 0.01}, "prey": {"agents": "prey", "entropy_coef": 0.0}}
SMALL = {
    "env": TwoSides, "policies": SIDES, "num_workers": 1, "num_envs_per_worker": 4, "segment_length": 8,
    "batch_size": 64, "hidden_sizes": (16,), "learning_rate": 0.003, "learning_rate_schedule": "constant",
    "eval_interval": 0, "eval_episodes": 4,
}  # fmt: skip
SERIAL = {**SMALL, "backend": "serial", "run_dir": None}


def test_both_sides_learn_each_from_its_own():
    with penstock.APPO(**SERIAL, total_steps=9_000) as trainer:
        trainer.train(quiet=True)
        hunters, prey = trainer.status.policies
        found = trainer.evaluate(8)
        assert (hunters.name, prey.name) == ("hunters", "prey")
        assert hunters.steps == pytest.approx(6_000, abs=200) and prey.steps == pytest.approx(3_000, abs=200)
        assert trainer.status.steps == hunters.steps + prey.steps >= 9_000
        assert (hunters.learning_rate, prey.learning_rate) == (0.01, 0.003)
        assert found["hunters"].mean_return >= 7.0 and found["prey"].mean_return >= 7.0
        assert (found["hunters"].episodes, found["prey"].episodes) == (16, 8)


def test_one_seed_gives_one_set_of_weights_in_one_call_or_in_several():
    def trained(*calls):
        with penstock.APPO(**SERIAL, total_steps=10_000) as trainer:
            for steps in calls:
                trainer.train(steps, quiet=True)
            return trainer.get_parameters(), trainer.status.steps

    (weights, steps), (again, same) = trained(1_200), trained(1_200)
    assert steps == same and weights.keys() == {"hunters", "prey"}
    assert all(identical(weights[name], again[name]) for name in weights)


def test_weights_of_one_policy_are_set_and_the_other_goes_on_as_it_was():
    with penstock.APPO(**SERIAL, total_steps=10_000) as trainer:
        trainer.train(600, quiet=True)
        before = trainer.get_parameters()
        epochs = [policy.arena.control[0] for policy in policies_of(trainer)]
        zeros = {name: torch.zeros_like(tensor) for name, tensor in before["prey"].items()}
        trainer.set_parameters({"prey": zeros})
        after = trainer.get_parameters()
        assert identical(after["prey"], zeros) and identical(after["hunters"], before["hunters"])
        assert [policy.arena.control[0] for policy in policies_of(trainer)] == [epochs[0], epochs[1] + 1]
        with pytest.raises(ConfigError, match=r"policies \['fox'\]; this run has \['hunters', 'prey'\]"):
            trainer.set_parameters({"fox": zeros})
        with pytest.raises(CheckpointError, match="another architecture"):
            trainer.set_parameters({"hunters": zeros})


@pytest.mark.parametrize(("inference", "cores"), [("local", 2), ("central", 4)])
def test_in_processes_a_run_is_saved_resumed_and_played(tmp_path, inference, cores, monkeypatch):
    monkeypatch.setattr("penstock.ipc.limits.available_cores", lambda: cores)
    settings = {**SMALL, "inference": inference, "run_dir": str(tmp_path / "run")}
    with penstock.APPO(**settings, total_steps=6_000) as trainer:
        trainer.train(2_000, quiet=True)  # up to 3,000: a goal of each until the supervisor sees both
        roles = set(pids_of(trainer))
        weights, steps = trainer.get_parameters(), trainer.status.steps
    policy_workers = {"policy-0", "policy-1"} if inference == "central" else set()
    learners = {"learner"} if cores == 2 else {"learner", "learner-1"}  # both in one process, or each in its own
    assert roles == {"launcher", "rollout-0", "evaluator"} | learners | policy_workers
    run = RunDirectory.open(tmp_path / "run")
    assert run.policies == ["hunters", "prey"]
    with penstock.APPO.resume(tmp_path / "run") as resumed:
        assert resumed.status.steps == steps
        assert all(identical(resumed.get_parameters()[name], weights[name]) for name in weights)
        result = resumed.train(quiet=True)
    assert result.steps >= 6_000
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert {"policy/hunters/loss/value_loss", "policy/prey/learning_rate"} <= lines[-1].keys()
    policy = penstock.load_policy(tmp_path / "run", policy="prey")
    assert policy.act([0.0, 0.0]) in (0, 1, 2)
    with pytest.raises(CheckpointError, match="a run of the policies hunters, prey: say which"):
        penstock.load_policy(tmp_path / "run")


def test_checkpoints_of_one_moment_are_gone_on_from(tmp_path):
    settings = {**SERIAL, "run_dir": str(tmp_path / "run"), "checkpoint_interval": 500}
    with penstock.APPO(**settings, total_steps=2_000) as trainer:
        trainer.train(quiet=True)
    run = RunDirectory.open(tmp_path / "run")
    stores = [run.of_policy(name).checkpoints for name in run.policies]
    assert stores[0].steps() == stores[1].steps() and len(stores[0].steps()) == 3
    newest = stores[1].path_of(stores[1].steps()[-1])
    (newest / "weights.safetensors").write_bytes(b"damaged")
    told = []
    found = checkpoints_to_resume(run, told.append)
    assert {checkpoint.path.name for checkpoint in found} == {str(stores[0].steps()[-2])} and len(told) == 1


def test_policies_of_the_same_settings_play_the_agents_in_turn():
    settings = {**SERIAL, "env": TwoAlike, "policies": {}, "num_policies": 2, "num_agents": 4, "total_steps": 2_000}
    with penstock.PPO(**settings) as trainer:
        trainer.train(512, quiet=True)
        assert trainer.get_parameters().keys() == {0, 1}
        assert [policy.name for policy in trainer.status.policies] == ["0", "1"]
        assert [policy.config.num_agents for policy in (p.algorithm for p in policies_of(trainer))] == [2, 2]
        first, second = role_of(trainer, "rollout-0")._policy_lanes
        numbers = [set(lanes._noise.draw().ravel().tolist()) for lanes in (first, second)]
        assert len(numbers[0]) == len(numbers[1]) == 8, "each lane has random numbers of its own"
        assert not numbers[0] & numbers[1], "and no policy has those of another"


class TwoAlike(TwoSides):
    """Four of a kind."""

    possible_agents = ("a", "b", "c", "d")


class EitherFirst(InTurn):
    """Five moves; in the environments of the second worker the second agent has three of them."""

    def __init__(self, lane: int) -> None:
        super().__init__(2, 5, ("terminated", "terminated"))
        self.first = lane // 4 % 2

    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        self.agent_selection = self.agents[self.first]

    def step(self, action):
        super().step(action)
        if not self._is_over:
            self.agent_selection = self.agents[(self.tick + self.first) % 2]


@pytest.mark.timeout(30)
def test_workers_of_a_synchronous_run_do_not_wait_for_each_other_by_way_of_different_policies():
    own = {"env": EitherFirst, "num_policies": 2, "policies": {}, "num_workers": 2, "num_envs_per_worker": 2}
    with penstock.PPO(**{**SERIAL, **own, "batch_size": 8, "total_steps": 400}) as trainer:
        trainer.train(quiet=True)
        first, second = trainer.status.policies
    assert first.steps == pytest.approx(second.steps, rel=0.1)


@LONG
def test_replay_driven_policies_learn_side_by_side():
    settings = {
        name: SERIAL[name] for name in ("env", "policies", "backend", "run_dir", "eval_interval", "num_workers")
    }
    settings["policies"] = {name: {"agents": each["agents"]} for name, each in SIDES.items()}
    more = {"learning_starts": 200, "exploration_steps": 2_000, "learning_rate": 0.003, "total_steps": 4_500}
    with penstock.DQN(**settings, **more, num_envs_per_worker=4, batch_size=64, hidden_sizes=(16,)) as trainer:
        trainer.train(quiet=True)
        assert all(evaluation.mean_return >= 6.0 for evaluation in trainer.evaluate(8).values())


@pytest.mark.parametrize(
    ("settings", "whose"), [({}, "learner-1 of policy 'prey': "), ({"env": "CartPole-v1", "policies": {}}, "")]
)
def test_what_a_learner_notes_says_whose_it_is_where_there_are_several(tmp_path, settings, whose):
    run = tmp_path / "run"
    with penstock.APPO(**{**SERIAL, **settings, "run_dir": str(run)}, total_steps=400) as trainer:
        trainer.train(100, quiet=True)
        policy = int(bool(whose))
        learner = learner_of(trainer, policy)
        learner._report(Note("updates run without CUDA graphs"))
        learner._report(Note("warning: steps are lost"))
        supervisor_of(trainer).saves.take(supervisor_of(trainer).saves._number, OSError("no space left"), policy)
        trainer.train(100, quiet=True)
    log = (run / "log.txt").read_text()
    assert f" {whose}updates run without CUDA graphs\n" in log and f" warning: {whose}steps are lost\n" in log
    of_prey = " of policy 'prey'" if whose else ""
    assert f"warning: no checkpoint{of_prey} could be written: no space left" in log


def test_the_memory_of_every_arena_is_said_before_the_run(tmp_path, capfd):
    with penstock.APPO(**{**SERIAL, "run_dir": str(tmp_path / "run")}, total_steps=64) as trainer:
        arenas = [policy.arena.shape.nbytes() / 2**20 for policy in policies_of(trainer)]
        trainer.train()
    shown = f"2 policies: 2 arenas, {sum(arenas):.1f} MiB of shared memory (hunters {arenas[0]:.1f} MiB, "
    assert shown in (tmp_path / "run" / "log.txt").read_text()
    out = "".join(capfd.readouterr())
    assert shown in out and out.index(shown) < out.index(" steps")
    alone = {**SERIAL, "env": TwoAlike, "policies": {}, "run_dir": str(tmp_path / "alone")}
    with penstock.APPO(**alone, total_steps=64) as trainer:
        trainer.train(quiet=True)
    log = (tmp_path / "alone" / "log.txt").read_text()
    assert "arena" not in log, "one policy has one arena, and nothing is said of it"


def test_a_run_records_the_runs_that_its_weights_came_from(tmp_path, capsys):
    run, child = tmp_path / "base", tmp_path / "child"
    with penstock.APPO(**{**SERIAL, "run_dir": str(run)}, total_steps=600) as trainer:
        trainer.train(quiet=True)
        steps = trainer.status.steps
    with penstock.APPO(**{**SERIAL, "run_dir": str(child)}, total_steps=600) as trainer:
        trainer.set_parameters({"prey": run})
        trainer.train(quiet=True)
        trainer.copy_policy(run / "policies" / "hunters" / "checkpoints" / str(steps), "hunters")
        trainer.set_parameters({"prey": trainer.get_parameters()["prey"]})
        now = trainer.status.steps
    id_ = RunDirectory.open(run).info["id"]
    same = {"path": str(run), "run": id_, "steps": steps}
    recorded = RecordedRun.open(child)
    assert recorded.made["parents"] == [same | {"at": 0}, same | {"at": now}]
    assert recorded.summary["parent"] == f"base at step {steps:,}" and RecordedRun.open(run).summary["parent"] == ""
    assert info([str(child)]) == 0 and f"weights from base at step {steps:,}" in capsys.readouterr().out


def test_weights_are_set_from_every_place_that_holds_them(tmp_path):
    run = tmp_path / "run"
    with penstock.APPO(**{**SERIAL, "run_dir": str(run)}, total_steps=600) as trainer:
        trainer.train(quiet=True)
        trainer.save(tmp_path / "saved")
        trained, steps = trainer.get_parameters(), trainer.status.steps
    newest = run / "policies" / "prey" / "checkpoints" / str(steps)
    with penstock.APPO(**{**SERIAL, "seed": 1}, total_steps=600) as other:
        began = other.get_parameters()
        zeros = {name: torch.zeros_like(tensor) for name, tensor in trained["prey"].items()}
        for place in (run, run / "policies" / "prey", newest.parent, newest, tmp_path / "saved", str(run)):
            other.set_parameters({"prey": zeros})
            other.set_parameters({"prey": place})
            assert identical(other.get_parameters()["prey"], trained["prey"]), place
            assert identical(other.get_parameters()["hunters"], began["hunters"])
        other.copy_policy(run, "hunters")
        assert identical(other.get_parameters()["hunters"], trained["hunters"])
        with pytest.raises(CheckpointError, match="another architecture"):
            other.set_parameters({"hunters": run / "policies" / "prey"})
        with pytest.raises(CheckpointError, match="fox does not exist"):
            other.set_parameters({"hunters": run / "policies" / "fox"})
    with pytest.raises(CheckpointError, match="a run of the policies hunters, prey: say which"):
        penstock.load_policy(run)
    assert penstock.load_policy(newest.parent).meta["steps"] == steps


def test_a_killed_rollout_worker_takes_its_place_in_every_arena_again():
    settings = {**SMALL, "run_dir": None, "inference": "central", "num_workers": 2}
    with penstock.APPO(**settings, total_steps=10**9) as trainer:
        trainer.train(300, quiet=True)
        killed = pids_of(trainer)["rollout-0"]
        os.kill(killed, signal.SIGKILL)
        while pids_of(trainer).get("rollout-0", killed) == killed:
            trainer.train(1_000, quiet=True)
        while not all(policy.steps > 300 for policy in trainer.status.policies):
            trainer.train(300, quiet=True)
        status, watched = trainer.status, Watched(roles_of(trainer))
        assert status.restarts == 1
    assert not watched.left_after()


class FailingForPrey(APPO):
    def loss(self, batch, policy, value):
        if self.config.entropy_coef == 0.0:
            raise ArithmeticError("the prey is lost")
        return super().loss(batch, policy, value)


def test_of_learners_in_one_process_the_one_that_fails_is_named(monkeypatch):
    monkeypatch.setattr("penstock.ipc.limits.available_cores", lambda: 2)
    settings = {**SMALL, "run_dir": None, "total_steps": 10**9}
    lost = pytest.raises(TrainingFailed, match=r"^learner-1 of policy 'prey' failed:(.|\n)*the prey is lost")
    with penstock.Trainer(FailingForPrey, **settings) as trainer, lost:
        trainer.train(quiet=True)


@pytest.mark.parametrize(
    ("cores", "victim", "whose"),
    [(4, "learner-1", "of policy 'prey'"), (2, "learner", "of policies 'hunters' and 'prey'")],
    ids=["a learner of its own", "a process of all learners"],
)
def test_a_killed_learner_ends_the_run_which_says_whose_it_was_and_goes_on_from_its_last_checkpoint(
    cores, victim, whose, tmp_path, monkeypatch
):
    monkeypatch.setattr("penstock.ipc.limits.available_cores", lambda: cores)
    run = tmp_path / "run"
    trainer = penstock.APPO(**SMALL, run_dir=str(run), total_steps=10**9)
    trainer.train(300, quiet=True)
    family = Watched(roles_of(trainer))
    os.kill(pids_of(trainer)[victim], signal.SIGKILL)
    story = rf"^{victim} {whose} \(process \d+\) was killed by SIGKILL\n.*penstock resume {run}$"
    with pytest.raises(TrainingFailed, match=story):
        trainer.train(10**9, quiet=True)
    assert family.left_after() == []
    assert f"{victim} {whose}" in json.loads((run / "status.json").read_text())["reason"]
    with penstock.APPO.resume(run, total_steps=1_000) as resumed:
        assert resumed.train(quiet=True).steps >= 1_000


def test_a_killed_policy_worker_of_the_second_policy_is_replaced(tmp_path):
    run = tmp_path / "run"
    with penstock.APPO(**SMALL, inference="central", run_dir=str(run), total_steps=10**9) as trainer:
        trainer.train(300, quiet=True)
        killed = pids_of(trainer)["policy-1"]
        before = [policy.steps for policy in trainer.status.policies]
        os.kill(killed, signal.SIGKILL)

        def have_learned_on():
            trainer.train(300, quiet=True)
            return all(policy.steps > was + 200 for policy, was in zip(trainer.status.policies, before, strict=True))

        wait_until(have_learned_on, "both policies have learned on")
        assert pids_of(trainer)["policy-1"] != killed and trainer.status.restarts == 1
    log = (run / "log.txt").read_text()
    assert re.search(r"policy-1 of policy 'prey' \(process \d+\) was killed by SIGKILL\n +policy-1 is replaced", log)


class DivergingForPrey(APPO):
    def loss(self, batch, policy, value):
        loss, metrics = super().loss(batch, policy, value)
        return loss * (torch.nan if self.config.entropy_coef == 0.0 else 1.0), metrics


@LONG
@pytest.mark.parametrize("backend", ["serial", "local"])
def test_a_policy_that_diverges_ends_the_run_which_says_which_one(backend):
    settings = {**SMALL, "backend": backend, "run_dir": None, "total_steps": 10**9}
    story = r"^learner-1 of policy 'prey': .* updates in a row were not finite"
    with penstock.Trainer(DivergingForPrey, **settings) as trainer, pytest.raises(TrainingFailed, match=story):
        trainer.train(quiet=True)


def policies(**of_each):
    return {**SERIAL, "policies": of_each}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (policies(a={"agents": "hunted_*"}), r"policies\['a'\]: no agent matches 'hunted_\*'.*hunter_0, hunter_1"),
        (policies(a={"agents": "hunter_*"}), "agent 'prey' needs one policy, and no policy plays it"),
        (policies(a={"agents": "*"}, b={"agents": "prey"}), "'prey' needs one policy, and the policies a and b play"),
        (policies(a={"agents": "*", "num_workers": 3}), r"policies\['a'\]: num_workers belongs to the whole run"),
        (policies(a={"agents": "*", "learning_rat": 0.1}), r"policies\['a'\]: unknown setting 'learning_rat'"),
        (policies(a="hunter_*"), r"policies\['a'\]='hunter_\*' is not legal: give its settings by name"),
        (policies(**{"": {"agents": "*"}}), r"policies: '' is not legal as the name of a policy"),
        ({**SERIAL, "policies": {5: {"agents": "*"}}}, r"policies: 5 is not legal as the name of a policy"),
        (policies(a={}), r"policies\['a'\]: agents=None is not legal"),
        ({**SERIAL, "policies": {}, "num_policies": 9}, "num_policies=9 is more than the 3 agents"),
        ({**SERIAL, "policy_of": lambda agent, env: "fox"}, r"policy_of and agents both assign agents to policies"),
        ({**SERIAL, "policies": {"a": {}, "b": {}}, "policy_of": lambda agent, env: "ab"[env % 2]},
         "policy_of gives agent 'hunter_0' to 'a' in environment 0 and to others elsewhere"),
    ],
)
def test_policies_that_do_not_fit_the_agents_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        penstock.APPO(**settings)


def test_policies_with_the_same_place_in_the_run_directory_are_refused(tmp_path):
    sides = {"a/b": SIDES["hunters"], "a b": SIDES["prey"]}
    run = {**SMALL, "backend": "serial", "policies": sides, "run_dir": tmp_path / "run"}
    message = "policies 'a/b', 'a b' would share a directory within the run, policies/a-b"
    with pytest.raises(RunDirectoryError, match=message):
        penstock.APPO(**run)


class OddlyNamed(AtOnce):
    """Agents named by a number, and by text with wildcards."""

    def __init__(self):
        super().__init__([Part(0, 4, "terminated")] * 2)
        self.possible_agents = [7, "b[0]"]
        self.parts = dict(zip(self.possible_agents, self.parts.values(), strict=True))


def test_agents_may_have_any_names():
    sides = {"numbered": {"agents": "7"}, "other": {"agents": ["b[0]"]}}
    with penstock.APPO(**{**SERIAL, "env": OddlyNamed, "policies": sides, "eval_against": ("random",)}) as trainer:
        trainer.train(64, quiet=True)
        assert {name: found.matches[0].seat for name, found in trainer.evaluate(2).items()} == {
            "numbered": "7", "other": "b[0]",
        }  # fmt: skip


class ChoicesAndNumbers(AtOnce):
    """An agent of real numbers, and one of choices, whose mask is in infos."""

    def __init__(self):
        super().__init__([Part(0, 4, "terminated")] * 2)

    def action_space(self, agent):
        return spaces.Box(-1.0, 1.0, (2,)) if agent == "player_0" else spaces.Discrete(2)

    def reset(self, **given):
        return super().reset(**given)[0], self.masks()

    def step(self, actions):
        assert actions["player_1"] == 1
        return (*super().step(actions)[:-1], self.masks())

    def masks(self):
        return {"player_1": {"action_mask": np.array([0, 1], np.int8)}}


def test_a_run_whose_second_policy_alone_has_masks_in_infos_is_scored_with_them(tmp_path):
    sides = {"numbers": {"agents": "player_0"}, "choices": {"agents": "player_1"}}
    run = {**SMALL, "backend": "serial", "env": ChoicesAndNumbers, "policies": sides, "run_dir": tmp_path / "run"}
    with penstock.APPO(**run) as trainer:
        trainer.train(64, quiet=True)
    paths = {name: resolve_checkpoint(tmp_path / "run", policy=name) for name in sides}
    assert {name: found.lengths for name, found in evaluate_together(paths, episodes=1).items()} == {
        "numbers": (4,), "choices": (4,),
    }  # fmt: skip


def test_agents_of_one_policy_with_different_spaces_are_refused_with_the_advice_of_separate_policies():
    with pytest.raises(UnsupportedSpaceError, match="give them policies of their own"):
        penstock.APPO(**{**SERIAL, "policies": {}})


class Numbered(AtOnce):
    """Two agents, for three steps each; what is observed is the agent's number, the game's and the step's."""

    def __init__(self):
        super().__init__([Part(0, 3, "terminated"), Part(0, 3, "terminated")])


@LONG
@pytest.mark.parametrize(
    ("algorithm", "more"),
    [
        pytest.param(penstock.APPO, {}, id="both learn"),
        pytest.param(penstock.APPO, {"opponents": "past", "opponent_share": 1.0}, id="past"),
        pytest.param(penstock.PPO, {"opponents": "1"}, id="guest", marks=LONG),
    ],
)
def test_with_shuffled_seats_each_policy_learns_from_every_agent(algorithm, more, monkeypatch):
    seen = defaultdict(set)
    learn = SegmentLearner.learn

    def watched(self, batch):
        seen[self._arena.policy] |= set(batch.obs[:-1][batch.valid][:, 0].tolist())
        return learn(self, batch)

    monkeypatch.setattr(SegmentLearner, "learn", watched)
    found = []
    for _ in range(2):
        with algorithm(
            **{**SERIAL, "env": Numbered, "policies": {}, "num_policies": 2, "batch_size": 8, **more},
            seats="shuffled", total_steps=1_000,
        ) as trainer:  # fmt: skip
            trainer.train(quiet=True)
            found.append(trainer.get_parameters())
    assert all(identical(found[0][policy], found[1][policy]) for policy in (0, 1)), "one seed, one set of weights"
    assert seen == {0: {0.0, 1.0}, 1: {0.0, 1.0}}


@pytest.mark.parametrize(
    ("env", "policies"), [("CartPole-v1", {}), (Numbered, {}), (Numbered, {"only": {"agents": "*"}})]
)
def test_one_policy_has_no_seats_to_shuffle(env, policies):
    with pytest.raises(ConfigError, match=r"seats='shuffled' .*(has one agent|one policy plays all agents): leave"):
        penstock.PPO(env, seats="shuffled", policies=policies, run_dir=None)
