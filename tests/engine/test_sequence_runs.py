"""Runs that learn from replayed sequences, as a whole: in order, in processes, resumed, and what they store."""

import os
import signal
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import penstock
from penstock.algorithms.r2d2 import R2D2
from penstock.config import make_config
from penstock.engine.acting.inference import Inference, SharedWeights
from penstock.engine.contracts import Start
from penstock.engine.paths.sequences import SequencePath
from penstock.engine.preparation import run_shape
from penstock.engine.roles.policy_worker import PolicyWorker
from penstock.engine.roles.rollout_worker import RolloutSpec, RolloutWorker
from penstock.engine.trainer import Trainer
from penstock.envs.making import probe
from penstock.envs.spec import EnvSpec
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.batch import SequenceBatch
from penstock.runs.run_directory import RunDirectory
from tests.engine.inside import supervisor_of
from tests.engine.processes import FOR_EVER
from tests.engine.replaying import replay_of
from tests.envs.masked import MaskedEnv, legal_action

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("kept_launcher")]

SERIAL: dict[str, Any] = {
    "env": "CartPole-v1", "num_workers": 1, "num_envs_per_worker": 2, "hidden_sizes": (8,), "memory_size": 6,
    "sequence_length": 6, "burn_in": 3, "sequence_overlap": 3, "batch_size": 4, "learning_starts": 40,
    "buffer_size": 1_000, "updates_per_step": 0.25, "total_steps": 400, "learning_rate": 3e-3, "seed": 3,
    "backend": "serial", "eval_interval": 0, "eval_episodes": 2, "run_dir": None,
}  # fmt: skip
LOCAL = {**SERIAL, "backend": "local", "num_workers": 2}
RUNS = [
    pytest.param(penstock.R2D2, {}, id="r2d2"),
    pytest.param(penstock.R2D2, {"inference": "central", "memory": "gru"}, id="r2d2-central"),
    pytest.param(penstock.ApeX, {"memory": "lstm"}, id="apex"),
    pytest.param(penstock.DQN, {"memory": "gru", "normalize_observations": True}, id="dqn"),
]


class Obeyed(MaskedEnv):
    """Lets one action be legal in each step, and takes no other; its episodes of 4 steps end either way."""

    def __init__(self):
        super().__init__(endings=((4, "terminated"), (4, "truncated")))

    def step(self, action):
        assert action == legal_action(self.episode, self.count)
        return super().step(action)


@pytest.mark.parametrize("inference", ["local", "central"])
def test_illegal_actions_are_neither_taken_nor_valued(inference):
    settings = {"env": Obeyed, "reward_scale": 1e-3, "inference": inference}
    with penstock.R2D2(**{**SERIAL, **settings}) as trainer:
        trainer.train(200, quiet=True)
        assert abs(trainer.status.losses["q"]) < 100, "a bootstrap from an illegal action would be immense"
        assert trainer.evaluate(2).mean_length == 4


def trained(algorithm, *calls, **settings):
    """The weights after some calls of train, for as many steps each."""
    with algorithm(**{**SERIAL, **settings}) as trainer:
        for steps in calls:
            trainer.train(steps, quiet=True)
        return trainer.get_parameters()[0]


def identical(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize(("algorithm", "settings"), RUNS)
def test_in_order_one_seed_gives_one_set_of_weights_in_however_many_calls(algorithm, settings):
    weights = trained(algorithm, 120, **settings)
    assert identical(weights, trained(algorithm, 50, 70, **settings))
    assert not identical(weights, trained(algorithm, 120, **settings, seed=4))
    assert all(torch.isfinite(tensor).all() for tensor in weights.values())


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [RUNS[0], *(pytest.param(*run.values, id=run.id, marks=pytest.mark.long) for run in RUNS[1:])],
)
def test_in_processes_updates_keep_step_with_steps_for_any_batch(algorithm, settings, tmp_path):
    path = tmp_path / "run"
    with algorithm(**{**LOCAL, **settings, "total_steps": 1_000, "run_dir": str(path)}) as trainer:
        result = trainer.train(quiet=True)
        config, updates = trainer.config, trainer.status.updates
        assert result.steps >= 1_000
        assert abs(updates - 0.25 * (result.steps - config.min_steps)) <= config.slack
        assert trainer.status.losses.keys() >= {"loss", "q", "grad_norm"}
        expected = trainer.evaluate(3, seed=5).mean_return
    policy = penstock.load_policy(path)
    assert policy.model.state_size == (12 if config.memory == "lstm" else 6)
    with algorithm(**{**LOCAL, **settings}) as other:
        other.set_parameters(str(path))
        assert other.evaluate(3, seed=5).mean_return == expected


@pytest.mark.long
def test_a_killed_rollout_worker_is_replaced_in_step(tmp_path):
    killed = []
    with penstock.R2D2(**{**LOCAL, "total_steps": FOR_EVER}) as trainer:
        backend = supervisor_of(trainer).backend

        def kill(status):
            if status.steps >= 300 and not killed:
                killed.append(os.kill(backend.pids["rollout-0"], signal.SIGKILL))
            return not (status.restarts and status.steps > 1_000)

        assert trainer.train(quiet=True, on_update=kill).stop_reason == "callback"
        result = trainer.train(200, quiet=True)
        assert killed and trainer.status.restarts == 1
        assert abs(trainer.status.updates - 0.25 * (result.steps - 40)) <= trainer.config.slack


# ---- resuming


def begin(path, **settings):
    with penstock.R2D2(**{**SERIAL, "total_steps": 100, "run_dir": str(path), **settings}) as trainer:
        trainer.train(quiet=True)
        return replay_of(trainer).buffer.get_all(), trainer.status.updates


def test_a_run_with_its_sequences_goes_on_as_if_it_had_not_stopped(tmp_path):
    path = tmp_path / "run"
    rows, updates = begin(path, save_replay=True)
    with Trainer.resume(str(path), total_steps=140) as trainer:
        found = replay_of(trainer).buffer.get_all()
        assert all(np.array_equal(found[name], rows[name], equal_nan=True) for name in rows) and len(rows["ids"]) > 5
        assert trainer.train(quiet=True).steps == 140
        assert abs(trainer.status.updates - updates - 10) <= 1, "it learns at once"
    assert RunDirectory.open(path).checkpoints.latest().meta["steps"] == 140


def test_a_run_without_its_sequences_fills_the_buffer_again_and_says_so(tmp_path):
    path = tmp_path / "run"
    begin(path)
    with Trainer.resume(str(path), total_steps=140) as trainer:
        assert len(replay_of(trainer).buffer) == 0
        assert trainer.train(quiet=True).steps == 140
    assert "the replay buffer is empty" in (path / "log.txt").read_text()


CHANGES = [{"memory": "gru"}, {"burn_in": 1}, {"sequence_overlap": 2}, {"rescale_values": False}]


@pytest.mark.parametrize("change", CHANGES)
def test_what_weights_and_stored_sequences_are_of_cannot_change_within_a_run(change, tmp_path):
    begin(tmp_path / "run")
    with pytest.raises(penstock.config.ConfigError, match=next(iter(change))):
        Trainer.resume(str(tmp_path / "run"), total_steps=140, **change)


# ---- what is stored


class Hidden(gymnasium.ObservationWrapper):
    """CartPole whose velocities are not shown, with short episodes of both ends."""

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1", max_episode_steps=13))
        shown = self.env.observation_space
        self.observation_space = gymnasium.spaces.Box(shown.low[::2], shown.high[::2], dtype=np.float32)

    def observation(self, observation):
        return observation[::2]


def collected(inference="local", **settings):
    """What two lanes store in 120 steps of fixed weights, and the algorithm with its network."""
    given = {**SERIAL, "env": Hidden, "inference": inference, "num_groups": 1, "ratio_slack": 60}
    config = make_config(R2D2.Config, {**given, **settings})
    env = EnvSpec.resolve(config.env, config.env_kwargs, config.vectorize)
    observation, action, *_ = probe(env)
    algorithm = R2D2(config, observation, action)
    torch.manual_seed(0)
    model = algorithm.build_model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)  # away from values that are nearly the same everywhere
    arena = ExperienceArena.create(run_shape(algorithm, model))
    SharedWeights(model, arena.weights).publish(0, 0)
    arena.control[Control.GOAL] = 10**9
    path, _ = SequencePath.create(arena, algorithm, model, Start(), None)
    actor = Inference(arena, algorithm, "cpu", path.steps_taken)
    policy_worker = PolicyWorker(arena, actor) if inference == "central" else None
    spec = RolloutSpec(0, env, (path,), config.seed, 0)
    worker = RolloutWorker(spec, arena, lambda report: None, [] if policy_worker else [actor])
    for _ in range(120):
        worker.poll()
        if policy_worker:
            policy_worker.poll()
    worker.close()
    return path.replay.buffer, algorithm, model


def test_the_buffer_holds_as_many_steps_as_are_asked_for_in_sequences_with_one_row_more_than_steps():
    """Of 3 + 6 steps, and the last one's successor; 100 steps come to 34 sequences that begin 3 steps apart."""
    buffer, _, _ = collected(buffer_size=100)
    assert buffer.capacity == 34
    rows = buffer.get_all()
    assert rows["obs"].shape[1:] == (10, 2) and rows["memory"].shape[1:] == (12,)


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_local_and_central_inference_store_the_same_sequences(memory):
    local, central = (collected(inference, memory=memory)[0].get_all() for inference in ("local", "central"))
    count = min(len(local["ids"]), len(central["ids"]))
    assert count > 20
    for name in local:
        np.testing.assert_array_equal(local[name][:count], central[name][:count], err_msg=name)


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_the_state_that_is_stored_is_the_one_that_the_steps_before_lead_to(memory):
    """Sequences of an episode follow each other: the state before the second is what the first ones' rows lead to."""
    buffer, algorithm, model = collected(memory=memory)
    rows = {name: torch.from_numpy(array) for name, array in buffer.get_all().items()}
    period, checked = algorithm.config.sequence_period, 0
    for i in range(len(rows["ids"])):
        followers = [
            j for j in range(i + 1, len(rows["ids"]))
            if torch.equal(rows["obs"][j][: -period], rows["obs"][i][period:]) and rows["valid"][j][0]
        ]  # fmt: skip
        if not followers:
            continue
        state = rows["memory"][i : i + 1]
        with torch.no_grad():
            for t in range(period):
                _, state = model.act(rows["obs"][i, t : t + 1], rows["first"][i, t : t + 1], state)
        expected = state[0] if not rows["first"][followers[0], 0] else torch.zeros_like(state[0])
        torch.testing.assert_close(rows["memory"][followers[0]], expected, rtol=1e-4, atol=1e-6)
        checked += expected.abs().sum().item() > 0
    assert checked > 5


@pytest.mark.parametrize("vectorize", ["make", "vector"])
@pytest.mark.parametrize("n_step", [1, 3])
def test_a_first_priority_is_what_a_learner_of_the_same_weights_computes(n_step, vectorize):
    """Except for sequences that end with a truncation, whose final observation has no value yet."""
    short = {"env": "CartPole-v1", "env_kwargs": {"max_episode_steps": 13}, "vectorize": vectorize}
    buffer, algorithm, model = collected(n_step=n_step, priority_alpha=1.0, **short)
    algorithm.begin(model)
    rows = buffer.get_all()
    tensors = {name: torch.from_numpy(array) for name, array in rows.items()}
    time_major = {name: tensors[name].transpose(0, 1) for name in ("obs", "first")}
    steps = {name: tensors[name].transpose(0, 1)[:-1] for name in ("action", "reward", "discount", "valid")}
    batch = SequenceBatch(
        **time_major, **steps, memory=tensors["memory"], weights=torch.ones(len(rows["ids"])), number=1, progress=0.0
    )
    expected, _ = algorithm.update(model, batch)
    leaves, ids, _ = buffer._core.read_priorities()
    by_id = dict(zip(ids.tolist(), leaves.tolist(), strict=False))
    found = torch.tensor([by_id[number] - 1e-6 for number in rows["ids"].tolist()])
    known = torch.from_numpy(~np.isnan(rows["max_value"]).any(1))
    assert known.sum() > 15 and (~known).any() and expected[known].std() > 0.01
    torch.testing.assert_close(found[known], expected[known], rtol=1e-3, atol=1e-4)
