"""Runs that learn from replay, as a whole: reproducible in order, in step in processes, and resumed where they were."""

import gc
import os
import shutil
import signal
import time
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import penstock
from penstock.engine.backends import restarts
from penstock.engine.endings import TrainingFailed, TrainingInterrupted
from penstock.engine.trainer import Trainer
from penstock.runs.checkpoint import UnreadableCheckpointError, load_checkpoint
from penstock.runs.run_directory import RunDirectory
from tests.comparing import identical
from tests.engine.collecting import Witnessed
from tests.engine.inside import policy_of
from tests.engine.processes import FOR_EVER, Watched, pids_of, roles_of
from tests.engine.replaying import TINY, replay_of
from tests.envs.faulty import FaultyEnv
from tests.kept_files import contents
from tests.variants import only

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("kept_launcher")]

SERIAL: dict[str, Any] = {
    **TINY, "learning_starts": 20, "total_steps": 400, "learning_rate": 3e-3, "seed": 3, "eval_interval": 0,
    "eval_episodes": 2, "run_dir": None,
}  # fmt: skip
LOCAL = {**SERIAL, "backend": "local", "num_workers": 2, "num_envs_per_worker": 2, "learning_starts": 100}
EVERYTHING = {"double": True, "dueling": True, "prioritized": True, "n_step": 3}
PENDULUM = {"env": "Pendulum-v1"}
FLASH = {"critic_hidden_sizes": (8,)}


def trained(algorithm, *calls, **settings):
    """The weights after some calls of train, for as many steps each, and what the last one returned."""
    with algorithm(**{**SERIAL, **settings}) as trainer:
        for steps in calls:
            result = trainer.train(steps, quiet=True)
        return trainer.get_parameters()[0], result


# ---- in order


RUNS = [
    pytest.param(penstock.DQN, {}, id="dqn"),
    pytest.param(penstock.DQN, {**EVERYTHING, "updates_per_step": 0.25, "num_envs_per_worker": 2}, id="dqn-everything"),
    pytest.param(penstock.ApeX, {"num_envs_per_worker": 4, "inference": "central"}, id="apex-central"),
    pytest.param(penstock.Rainbow, {"num_envs_per_worker": 2, "updates_per_step": 0.5}, id="rainbow"),
    pytest.param(penstock.BTR, {"num_envs_per_worker": 4, "updates_per_step": 0.25}, id="btr"),
    pytest.param(
        penstock.ApeX, {"distributional": "iqn", "num_quantiles": 4, "noisy": True, "inference": "central"},
        id="apex-noisy-iqn-central",
    ),
    pytest.param(penstock.TD3, {**PENDULUM, "updates_per_step": 2.0}, id="td3"),
    pytest.param(penstock.TD3, {**PENDULUM, "prioritized": True, "n_step": 3}, id="td3-prioritized"),
    pytest.param(penstock.SAC, PENDULUM, id="sac"),
    pytest.param(penstock.TQC, PENDULUM, id="tqc"),
    pytest.param(penstock.CrossQ, PENDULUM, id="crossq"),
    pytest.param(penstock.FlashSAC, PENDULUM | FLASH, id="flashsac"),
    pytest.param(penstock.FastTD3, PENDULUM | {"num_envs_per_worker": 2, "inference": "central"}, id="fasttd3"),
    pytest.param(penstock.XQC, PENDULUM, id="xqc"),
    pytest.param(penstock.ApeXDPG, {**PENDULUM, "num_envs_per_worker": 2, "inference": "central"}, id="apexdpg"),
]


@pytest.mark.parametrize(("algorithm", "settings"), only("dqn-everything apex-noisy-iqn-central sac", RUNS))
def test_one_seed_gives_one_set_of_weights_bit_for_bit_in_however_many_calls_and_another_seed_others(
    algorithm, settings
):
    at_once, result = trained(algorithm, 72, **settings)
    in_parts, same = trained(algorithm, 12, 28, 32, **settings)
    other, _ = trained(algorithm, 72, **settings, seed=4)
    assert identical(at_once, in_parts) and result.steps == same.steps == 72
    assert all(torch.isfinite(tensor).all() for tensor in at_once.values())
    assert not identical(at_once, other)


def test_what_the_supervisor_does_between_calls_changes_nothing(tmp_path):
    in_parts, _ = trained(penstock.TD3, 40, 20, **PENDULUM)
    with penstock.TD3(**{**SERIAL, **PENDULUM}) as trainer:
        trainer.train(40, quiet=True)
        trainer.evaluate(2)
        trainer.save(str(tmp_path / "saved"))
        trainer.train(20, quiet=True)
        assert identical(in_parts, trainer.get_parameters()[0])


def test_evaluations_on_the_way_change_nothing():
    assert identical(trained(penstock.DQN, 60)[0], trained(penstock.DQN, 60, eval_interval=16)[0])


@pytest.mark.parametrize("updates_per_step", [0.25, 1.0, 2.0])
@pytest.mark.parametrize("goal", [15, 20, 21, 50])
def test_a_goal_is_reached_exactly_and_no_more_steps_are_played_than_the_slack_allows_for(goal, updates_per_step):
    Witnessed.made.clear()
    settings = {"env": Witnessed, "reward_scale": 1e-3, "updates_per_step": updates_per_step}
    with penstock.DQN(**{**SERIAL, **settings}) as trainer:
        assert trainer.train(goal, quiet=True).steps == goal
        updates = trainer.status.updates
        slack = trainer.config.slack
    # A step counts when it is admitted: the autoreset before it may still be due.
    assert -1 <= Witnessed.steps() - goal <= slack / updates_per_step
    assert abs(updates - updates_per_step * max(0, goal - 20)) <= slack


@pytest.mark.parametrize(("num_workers", "num_envs_per_worker"), [(2, 1), (3, 2)])
def test_all_rollout_workers_play_alike(num_workers, num_envs_per_worker):
    Witnessed.made.clear()
    settings = {"num_workers": num_workers, "num_envs_per_worker": num_envs_per_worker, "reward_scale": 1e-3}
    trained(penstock.DQN, 200, env=Witnessed, **settings)
    played = [len(env.actions) for env in Witnessed.made if env.actions]
    assert len(played) == num_workers * num_envs_per_worker
    assert max(played) <= 1.5 * min(played)


def test_the_policy_that_is_trained_is_a_good_one_for_what_its_rewards_say():
    class Guess(gymnasium.Env):
        """Rewards the action that the observation names."""

        observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.right = int(self.np_random.integers(2))
            return np.array([self.right], np.float32), {}

        def step(self, action):
            reward = float(action == self.right)
            self.right = int(self.np_random.integers(2))
            return np.array([self.right], np.float32), reward, False, bool(self.np_random.random() < 0.1), {}

    settings = {"env": Guess, "gamma": 0.5, "batch_size": 32, "learning_starts": 32, "learning_rate": 1e-2}
    with penstock.DQN(**{**SERIAL, **settings}) as trainer:
        trainer.train(300, quiet=True)
        evaluation = trainer.evaluate(5)
        assert evaluation.mean_return == evaluation.mean_length


def test_environments_that_fail_now_and_then_are_made_anew_and_the_run_reaches_its_goal(monkeypatch):
    monkeypatch.setattr(restarts, "LONGEST_BACK_OFF", 0.01)
    fails = {"env": FaultyEnv, "env_kwargs": {"step_answers": {40: ArithmeticError("it broke")}}}
    with penstock.DQN(**{**SERIAL, **fails, "on_env_error": "restart"}) as trainer:
        assert trainer.train(150, quiet=True).steps == 150
        assert trainer.status.restarts >= 3


# ---- weights given and taken


@pytest.mark.parametrize("publish_interval", [1, 7])
def test_the_weights_that_are_got_are_those_that_are_saved(publish_interval, tmp_path):
    path = tmp_path / "run"
    with penstock.DQN(**{**SERIAL, "run_dir": str(path), "publish_interval": publish_interval}) as trainer:
        trainer.train(60, quiet=True)
        assert identical(RunDirectory.open(path).checkpoints.latest().weights, trainer.get_parameters()[0])


def test_weights_that_are_set_are_got_back_and_learned_on_from():
    given, _ = trained(penstock.TD3, 60, **PENDULUM, seed=9)
    with penstock.TD3(**{**SERIAL, **PENDULUM}) as trainer:
        trainer.train(40, quiet=True)
        trainer.set_parameters({0: given})
        assert identical(trainer.get_parameters()[0], given)
        assert identical(policy_of(trainer).algorithm.target.state_dict(), given)
        trainer.train(10, quiet=True)
        assert not identical(trainer.get_parameters()[0], given)


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (penstock.DQN, EVERYTHING), (penstock.Rainbow, {}),
        *((a, PENDULUM) for a in (penstock.TD3, penstock.SAC, penstock.TQC, penstock.CrossQ, penstock.XQC)),
        (penstock.FlashSAC, PENDULUM | FLASH), (penstock.FastTD3, PENDULUM),
    ],
)
def test_a_policy_of_replay_is_loaded_and_acts_as_its_trainer_evaluates(algorithm, settings, tmp_path):
    with algorithm(**{**SERIAL, **settings, "run_dir": str(tmp_path / "run")}) as trainer:
        trainer.train(60, quiet=True)
        weights = trainer.get_parameters()[0]
        mean_return = trainer.evaluate(2, seed=5).mean_return
    policy = penstock.load_policy(tmp_path / "run")
    assert identical(policy.model.state_dict(), weights)
    env = gymnasium.make({**SERIAL, **settings}["env"])
    observation, _ = env.reset(seed=1)
    actions = [policy.act(observation) for _ in range(3)]
    assert all(env.action_space.contains(action) for action in actions)
    assert identical(actions[0], actions[1]) and identical(actions[1], actions[2])
    # Of 2,000 actions one in forty differs where one in twenty is random: at 64 of them one run in five saw none.
    batch = policy.act(np.stack([observation] * 2_000), deterministic=False)
    assert len({tuple(np.ravel(action)) for action in batch}) > 1, "exploration was to be among them"
    with algorithm(**{**SERIAL, **settings}) as other:
        other.set_parameters(str(tmp_path / "run"))
        assert other.evaluate(2, seed=5).mean_return == mean_return


# ---- resuming


def begin(path, algorithm=penstock.TD3, **settings):
    """A run of 60 steps that is over; returns its replay's rows, newest checkpoint and number of updates."""
    shared = {**SERIAL, **PENDULUM, "save_replay": True, "total_steps": 60, "run_dir": str(path)}
    with algorithm(**{**shared, **settings}) as trainer:
        trainer.train(quiet=True)
        rows = replay_of(trainer).buffer.get_all()
    return rows, RunDirectory.open(path).checkpoints.latest()


def log_of(path):
    return (path / "log.txt").read_text() if (path / "log.txt").exists() else ""


PRIORITIZED = {"env": "CartPole-v1", "num_envs_per_worker": 2, **EVERYTHING}


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (penstock.TD3, {}),
        (penstock.TD3, {"prioritized": True, "n_step": 3}),
        (penstock.DQN, {**PRIORITIZED, "learning_rate_schedule": "constant"}),
        (penstock.Rainbow, PRIORITIZED),
        (penstock.TQC, {}),
        (penstock.CrossQ, {}),
        (penstock.FlashSAC, FLASH | {"learning_rate_decay": 1.0}),
        (penstock.XQC, {"learning_rate_schedule": "constant"}),
        (penstock.ApeXDPG, {"num_envs_per_worker": 1}),
    ],
)
def test_a_run_with_its_replay_goes_on_as_if_it_had_not_stopped(algorithm, settings, tmp_path):
    path = tmp_path / "run"
    rows, checkpoint = begin(path, algorithm, **settings)
    with Trainer.resume(str(path), total_steps=100) as trainer:
        replay = replay_of(trainer)
        assert identical(replay.buffer.get_all(), rows)
        assert replay.limiter.samples == 4 * checkpoint.meta["updates"]
        assert replay.steps_taken >= 60
        trainer.save(str(tmp_path / "copy"))
        copy = load_checkpoint(tmp_path / "copy")
        assert identical(copy.weights, checkpoint.weights)
        assert ("target" in copy.state) == (algorithm is not penstock.CrossQ)
        for name in {"target", "optimizers", "generator"} & copy.state.keys():
            assert identical(copy.state[name], checkpoint.state[name]), name
        trainer.train(4, quiet=True)
        assert trainer.status.steps == 64
        assert abs(trainer.status.updates - checkpoint.meta["updates"] - 4) <= 1, "it learns at once"
        assert trainer.train(quiet=True).steps == 100
        assert replay.limiter.inserts <= 100 + trainer.config.slack
    assert "replay buffer" not in log_of(path)


def test_two_runs_resumed_from_one_checkpoint_learn_the_same_bit_for_bit(tmp_path):
    begin(tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    weights = []
    for name in ("run", "copy"):
        with Trainer.resume(str(tmp_path / name), total_steps=90) as trainer:
            trainer.train(quiet=True)
            weights.append(trainer.get_parameters()[0])
    assert identical(*weights)


def test_a_run_without_its_replay_fills_it_first_says_so_and_does_not_count_that(tmp_path):
    path = tmp_path / "run"
    _, checkpoint = begin(path, penstock.DQN, env=Witnessed, reward_scale=1e-3, save_replay=False)
    assert not (path / "replay").exists()
    Witnessed.made.clear()
    with Trainer.resume(str(path), total_steps=100) as trainer:
        assert len(replay_of(trainer).buffer) == 0
        result = trainer.train(10, quiet=True)
        assert result.steps == 70
        assert abs(trainer.status.updates - checkpoint.meta["updates"] - 10) <= 1
    assert 30 <= Witnessed.steps() <= 31, "20 to fill it, 10 that count, and the slack"
    assert "the replay buffer is empty: its contents were not saved (save_replay=False). 20 steps" in log_of(path)


def test_a_replay_that_cannot_be_read_now_ends_the_resume_because_the_next_save_would_replace_it(tmp_path, monkeypatch):
    begin(tmp_path / "run")

    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error", "rows-0-0.bin")

    before = contents(tmp_path)
    monkeypatch.setattr("numpy.fromfile", fails)
    with pytest.raises(UnreadableCheckpointError, match=r"replay cannot be read: Input/output error \(rows-0-0.bin\)"):
        Trainer.resume(str(tmp_path / "run"))
    assert not before - contents(tmp_path)


@pytest.mark.parametrize("how", ["truncated", "overwritten", "missing file", "empty", "missing"])
def test_a_damaged_replay_is_named_and_filled_again(how, tmp_path):
    path = tmp_path / "run"
    begin(path)
    files = sorted((file for file in (path / "replay").rglob("*") if file.is_file()), key=lambda f: f.stat().st_size)
    largest = files[-1]
    if how == "truncated":
        largest.write_bytes(largest.read_bytes()[:-8])
    elif how == "overwritten":
        content = bytearray(largest.read_bytes())
        content[len(content) // 2] ^= 0xFF
        largest.write_bytes(content)
    elif how == "missing":  # as after a kill between the first checkpoint and its replay
        shutil.rmtree(path / "replay")
    else:
        for file in files if how == "empty" else [largest]:
            file.unlink()
    with Trainer.resume(str(path), total_steps=100) as trainer:
        assert len(replay_of(trainer).buffer) == 0
        assert trainer.train(10, quiet=True).steps == 70
    note = log_of(path)
    assert "the replay buffer is empty: " in note and "20 steps are played before learning continues" in note
    assert "save_replay=False" not in note, "it says what is wrong"


@pytest.mark.parametrize(
    ("before", "after", "is_saved_anew"),
    [
        (b'"begin"', b'"begun"', True),
        (b"{", b"[", True),
        (b"penstock", b"penstoke", True),
        (b'"version": 1', b'"version": 9', False),
    ],
    ids=["content", "no JSON", "format", "another version"],
)
def test_a_run_whose_replay_has_a_damaged_manifest_ends_well_and_says_what_became_of_it(
    before, after, is_saved_anew, tmp_path
):
    path = tmp_path / "run"
    begin(path)
    manifest = path / "replay" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(before, after, 1))
    damaged = manifest.read_bytes()
    with Trainer.resume(str(path), total_steps=100) as trainer:
        assert trainer.train(quiet=True).steps == 100
    with Trainer.resume(str(path), total_steps=110) as trainer:
        assert bool(len(replay_of(trainer).buffer)) == is_saved_anew
        assert trainer.train(quiet=True).steps == 110
    if is_saved_anew:
        assert (path / "replay" / "manifest.json.damaged").read_bytes() == damaged
        assert log_of(path).count("the whole buffer is saved anew") == 1
    else:
        assert manifest.read_bytes() == damaged
        assert "warning: the replay buffer could not be saved, although the weights were: " in log_of(path)


def test_a_run_that_was_refilled_can_be_resumed_again(tmp_path):
    path = tmp_path / "run"
    begin(path, save_replay=False)
    for steps in (70, 80):
        with Trainer.resume(str(path), total_steps=steps) as trainer:
            assert trainer.train(quiet=True).steps == steps
    state = RunDirectory.open(path).checkpoints.latest().state
    assert state["replay"]["counted_from"] == 70 - 20


# ---- in processes


class At:
    """Callback for every status that calls a function once, at a number of steps learned from."""

    def __init__(self, steps, action):
        self._steps, self._action = steps, action
        self.is_done = False

    def __call__(self, status):
        if status.steps >= self._steps and not self.is_done:
            self.is_done = True
            self._action()


def test_a_killed_rollout_worker_is_replaced_in_step_and_the_learners_death_ends_the_run(tmp_path):
    path = tmp_path / "run"
    settings = {**LOCAL, "updates_per_step": 0.5, "total_steps": FOR_EVER, "run_dir": str(path)}
    trainer = penstock.DQN(**settings)
    kill = At(300, lambda: os.kill(pids_of(trainer)["rollout-0"], signal.SIGKILL))

    def go_on(status):
        kill(status)
        return not (status.restarts and status.steps > 1_300)  # more than the buffer holds

    assert trainer.train(quiet=True, on_update=go_on).stop_reason == "callback"
    result = trainer.train(200, quiet=True)
    assert kill.is_done and trainer.status.restarts == 1
    assert result.stop_reason == "steps" and result.steps >= 1_500
    limiter, slack = replay_of(trainer).limiter, trainer.config.slack
    assert abs(trainer.status.updates - 0.5 * (result.steps - 100)) <= slack
    assert abs(limiter.samples / 4 - 0.5 * (limiter.inserts - 100)) <= slack
    assert len(replay_of(trainer).buffer) == 1_000

    processes = Watched(roles_of(trainer))
    os.kill(pids_of(trainer)["learner"], signal.SIGKILL)
    with pytest.raises(TrainingFailed, match=rf"(?s)learner .* was killed by SIGKILL.*\n.*penstock resume {path}"):
        trainer.train(10**6, quiet=True)
    assert processes.left_after() == []


def test_an_interrupted_run_leaves_a_checkpoint_with_its_replay_and_goes_on_from_it(tmp_path):
    path = tmp_path / "run"
    settings = {**LOCAL, **PENDULUM, "num_workers": 1, "save_replay": True, "total_steps": 10**6}
    trainer = penstock.TD3(**{**settings, "run_dir": str(path)})
    with trainer:
        with pytest.raises(TrainingInterrupted) as interruption:
            trainer.train(quiet=True, on_update=At(300, lambda: os.kill(os.getpid(), signal.SIGINT)))
        steps, updates = interruption.value.result.steps, trainer.status.updates
        assert abs(updates - (steps - 100)) <= trainer.config.slack
        processes = Watched(roles_of(trainer))
    assert processes.left_after() == []
    checkpoint = RunDirectory.open(path).checkpoints.latest()
    assert checkpoint.meta["steps"] >= 300 and checkpoint.state["replay"]["batches"] == checkpoint.meta["updates"]
    with Trainer.resume(str(path), total_steps=checkpoint.meta["steps"] + 100) as trainer:
        assert len(replay_of(trainer).buffer) >= 300
        result = trainer.train(quiet=True)
        assert result.steps >= checkpoint.meta["steps"] + 100
        assert trainer.status.updates >= checkpoint.meta["updates"] + 100 - 2 * trainer.config.slack
    assert "replay buffer is empty" not in log_of(path)


# ---- what is left behind


def shared_memory() -> set[tuple[int, int]]:
    """The memfds that this process has open, by device and inode."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("/memfd:"):
                status = os.stat(f"/proc/self/fd/{name}")
                found.add((status.st_dev, status.st_ino))
        except FileNotFoundError:  # the directory's own
            continue
    return found


@pytest.mark.parametrize("backend", ["serial", "local"])
def test_closing_a_trainer_gives_the_replay_buffer_back(backend):
    before = shared_memory()
    trainer = penstock.DQN(**{**LOCAL, "backend": backend})
    trainer.train(150, quiet=True)
    open_meanwhile = shared_memory() - before
    trainer.close()
    gc.collect()
    left = shared_memory() - before
    assert len(open_meanwhile) >= 4, "arena, limiter, and both of the buffer"
    assert len(left) <= 1, "the arena of the gauges, of a few pages, may stay with the trainer"
    assert trainer.status.steps >= 150


# ---- the edges of what is legal


@pytest.mark.parametrize("slack", [None, 34])
def test_a_band_that_rounding_makes_a_little_narrow_still_lets_all_lanes_in(slack):
    # 30 lanes at 1.1 updates call for 33.000000000000004 updates at once.
    settings = {"num_envs_per_worker": 30, "updates_per_step": 1.1, "batch_size": 32, "learning_starts": 100}
    _, result = trained(penstock.DQN, 160, **settings, ratio_slack=slack)
    assert 160 <= result.steps < 160 + 30


def test_an_encoder_with_frozen_layers_is_trained_around_them():
    with penstock.DQN(**{**SERIAL, "encoder": HalfFrozen}) as trainer:
        before = trainer.get_parameters()[0]
        trainer.train(60, quiet=True)
        after = trainer.get_parameters()[0]
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == set(before) - {"encoder.0.weight", "encoder.0.bias"}


class HalfFrozen(torch.nn.Sequential):
    """Two layers, of which the first does not learn."""

    def __init__(self, observation):
        relu = torch.nn.ReLU()
        super().__init__(torch.nn.Linear(*observation.shape, 8), relu, torch.nn.Linear(8, 8), relu)
        self[0].requires_grad_(False)
        self.output_size = 8


def test_losses_that_only_some_updates_report_stay_in_view():
    with penstock.TD3(**{**SERIAL, **PENDULUM, "policy_delay": 3}) as trainer:
        trainer.train(80, quiet=True)
        assert {"critic_loss", "q", "actor_loss"} <= set(trainer.status.losses)


def test_while_the_buffer_fills_no_worker_plays_beyond_the_goal_in_processes():
    settings = {**LOCAL, **PENDULUM, "learning_starts": 5_000, "buffer_size": 10_000, "total_steps": 10_000}
    with penstock.TD3(**settings) as trainer:
        trainer.train(200, quiet=True)
        time.sleep(0.5)  # in which thousands of steps would be played, if playing continued
        result = trainer.train(1, quiet=True)
    assert 201 <= result.steps <= 200 + 1 + 2 * 4, "at most a step of every lane more"
