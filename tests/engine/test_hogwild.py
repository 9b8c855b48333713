"""Rollout workers that learn: what they share, what each does by itself, and what becomes of it."""

from __future__ import annotations

import contextlib
import itertools
import math
import multiprocessing
import os
import signal
import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from penstock.algorithms.a3c import A3C
from penstock.algorithms.arithmetic.returns import gae
from penstock.config import make_config
from penstock.engine.backends import restarts
from penstock.engine.contracts import LearnerState
from penstock.engine.endings import TrainingFailed
from penstock.engine.paths import hogwild
from penstock.engine.paths.hogwild import ActorLearner, Contribution, SharedParameters, begin
from penstock.engine.preparation import run_shape
from penstock.engine.roles.learner import MAX_SKIPPED_IN_A_ROW
from penstock.engine.roles.rollout_worker import RolloutWorker
from penstock.engine.trainer import Trainer
from penstock.engine.watching.clock import ACTIVITY
from penstock.envs.columns import NoiseStreams
from penstock.envs.making import lane_seed
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import Control, ExperienceArena
from penstock.ipc import taking_turns
from penstock.nn import mlp
from penstock.nn.layers import Tanh
from penstock.nn.observations import RETURN_PRIOR_ROWS
from penstock.runs.checkpoint import load_checkpoint
from penstock.runs.run_directory import RunDirectory
from tests.comparing import identical
from tests.engine.inside import arena_of, policy_of
from tests.engine.processes import FOR_EVER, TINY, Watched, pids_of, roles_of, wait_until, without
from tests.engine.stubborn import STAY, StubbornWorker, always

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("one_thread", "kept_launcher")]

LOCAL: dict[str, Any] = {**without(TINY, "batch_size"), "run_dir": None}
SERIAL: dict[str, Any] = {**LOCAL, "backend": "serial", "segment_length": 5, "seed": 5}
ONE_LANE = {**SERIAL, "num_workers": 1, "num_envs_per_worker": 1}


@pytest.fixture
def segments(monkeypatch):
    """What serial workers have learned from, in order: (first lane, versions of its rows, memory, batch)."""
    seen: list[dict[str, Any]] = []
    learn = ActorLearner.learn

    def remembered(self, slots):
        arena = self._arena
        rows = slots[:, None] * arena.shape.rows_per_slot + np.arange(arena.shape.segment_length)
        batch, _ = self._reader.read(slots, 0, 0.0)
        segment = {"lane": arena.lane_of(slots[0]).item(), "versions": arena.columns["version"][rows].tolist(),
                   "obs": batch.obs.clone(), "first": batch.first.clone(), "memory": batch.memory.clone(),
                   "model": self._model}  # fmt: skip
        is_done = learn(self, slots)
        seen.extend([segment] if is_done else [])
        return is_done

    monkeypatch.setattr(ActorLearner, "learn", remembered)
    return seen


def weights_of(trainer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in trainer.get_parameters()[0].items()}


def shared(trainer) -> SharedParameters:
    """What the workers share, as the supervisor's process sees it."""
    return SharedParameters(policy_of(trainer).algorithm, arena_of(trainer))


def squares(trainer) -> list[Tensor]:
    optimizer = shared(trainer).optimizer
    return [state["square_average"].clone() for state in optimizer.state.values()]


# --- one worker is the textbook --------------------------------------------------------------------------------------


class Textbook:
    """A3C of one worker with one lane: a loop that shares with the engine what is drawn at random, and returns."""

    names = ("encoder.0", "value_encoder.0", "policy_head", "value_head")

    def __init__(self, weights: dict[str, Tensor], config: Any) -> None:
        self.config = config
        self.layers = []
        for name in self.names:
            layer = nn.Linear(*reversed(weights[f"{name}.weight"].shape))
            layer.load_state_dict({"weight": weights[f"{name}.weight"], "bias": weights[f"{name}.bias"]})
            self.layers.append(layer)
        self.parameters = [parameter for layer in self.layers for parameter in layer.parameters()]
        self.squares = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.steps = self.updates = 0

    def log_probs(self, obs: Tensor) -> Tensor:
        return self.layers[2](Tanh()(self.layers[0](obs))).log_softmax(-1)

    def values(self, obs: Tensor) -> Tensor:
        return self.layers[3](Tanh()(self.layers[1](obs))).squeeze(-1)

    def play(self, env: gymnasium.Env, num_updates: int) -> None:
        noise = NoiseStreams("uniform", 1, range(1), seed=self.config.seed, incarnation=0)
        obs, _ = env.reset(seed=lane_seed(self.config.seed, 0, 0))
        ends_before = False  # the row shows the final observation of an episode that was cut off
        for _ in range(num_updates):
            observations, rows = [obs], []
            for _ in range(self.config.segment_length):
                with torch.no_grad():
                    probabilities = self.log_probs(torch.from_numpy(obs)[None]).exp()[0]
                action = int(noise.draw()[0].item() * probabilities.sum() >= probabilities[0])
                if ends_before:
                    obs, _ = env.reset()
                    rows.append((0, 0.0, False, False, False))
                    ends_before = False
                else:
                    obs, reward, terminated, truncated, _ = env.step(action)
                    rows.append((action, float(reward), terminated, truncated and not terminated, True))
                    ends_before = truncated and not terminated
                    if terminated:
                        obs, _ = env.reset()
                observations.append(obs)
            self.learn(torch.from_numpy(np.stack(observations)), rows)

    def learn(self, obs: Tensor, rows: list[tuple[int, float, bool, bool, bool]]) -> None:
        c = self.config
        action, reward, terminated, truncated, valid = (torch.tensor(column) for column in zip(*rows, strict=True))
        log_probs, values = self.log_probs(obs)[:-1], self.values(obs)
        advantage, target = (
            estimate[:, 0]
            for estimate in gae(
                reward[:, None], values.detach()[:, None], terminated[:, None], truncated[:, None],
                gamma=c.gamma, lambda_=1.0, valid=valid[:, None],
            )
        )  # fmt: skip
        mask = valid.float()
        policy_loss = -(log_probs.gather(1, action[:, None])[:, 0] * advantage * mask).sum()
        value_loss = (0.5 * (values[:-1] - target).square() * mask).sum()
        entropy = (c.entropy_coef * -(log_probs.exp() * log_probs).sum(-1) * mask).sum()
        for parameter in self.parameters:
            parameter.grad = None
        (policy_loss + c.value_coef * value_loss - entropy).backward()
        nn.utils.clip_grad_norm_(self.parameters, c.max_grad_norm)
        rate = c.learning_rate * (1.0 - self.steps / c.total_steps)
        with torch.no_grad():
            for parameter, square in zip(self.parameters, self.squares, strict=True):
                square.mul_(c.rmsprop_decay).addcmul_(parameter.grad, parameter.grad, value=1.0 - c.rmsprop_decay)
                parameter.addcdiv_(parameter.grad, (square + c.rmsprop_eps).sqrt(), value=-rate)
        self.steps += int(valid.sum())
        self.updates += 1


@pytest.mark.parametrize("episode", [500, 13], ids=["terminated", "truncated"])
def test_one_worker_is_the_plain_sequential_loop_bit_for_bit(episode, monkeypatch):
    monkeypatch.setattr(mlp, "is_available", lambda: False)  # the textbook's layers are torch's
    settings = {
        **ONE_LANE, "env_kwargs": {"max_episode_steps": episode}, "normalize_observations": False,
        "normalize_returns": False, "total_steps": 400, "max_grad_norm": 5.0, "learning_rate": 0.01,
    }  # fmt: skip
    with Trainer(A3C, **settings) as trainer:
        first = weights_of(trainer)
        trainer.train(200, quiet=True)
        found, average = weights_of(trainer), squares(trainer)
        config, status = trainer.config, trainer.status
    textbook = Textbook(first, config)
    textbook.play(gymnasium.make("CartPole-v1", max_episode_steps=episode), status.updates)
    assert status.steps == textbook.steps and 200 <= status.steps < 205
    for name, layer in zip(textbook.names, textbook.layers, strict=True):
        for part, parameter in layer.named_parameters():
            assert torch.equal(found[f"{name}.{part}"], parameter), f"{name}.{part}"
            assert (parameter - first[f"{name}.{part}"]).abs().max() > 0.01, "there was something to learn"
    assert all(torch.equal(one, two) for one, two in zip(average, textbook.squares, strict=True))


# --- what is shared --------------------------------------------------------------------------------------------------


def an_arena(**settings: Any) -> tuple[A3C, ExperienceArena]:
    """An arena that holds the parameters of a new network, as before the workers start."""
    config = make_config(A3C.Config, {**SERIAL, **settings})
    algorithm = A3C(config, ObservationSpec((4,), "float32"), ActionSpec((), "int64", num_actions=2))
    torch.manual_seed(0)
    model = algorithm.build_model()
    arena = ExperienceArena.create(run_shape(algorithm, model))
    begin(algorithm, arena, model, LearnerState(), None)
    return algorithm, arena


def hammer(algorithm: A3C, arena: ExperienceArena, part: int, times: int) -> None:
    """Make many steps along a constant gradient, of every second parameter only."""
    parameters = SharedParameters(algorithm, arena)
    for number, parameter in enumerate(parameters.model.parameters()):
        parameter.grad = torch.ones_like(parameter) if number % 2 == part else None
    for _ in range(times):
        parameters.optimizer.step()


def test_two_processes_that_move_different_parameters_at_once_lose_no_step():
    algorithm, arena = an_arena()
    _, alone = an_arena()
    times = 3000
    for part in (0, 1):
        hammer(algorithm, alone, part, times)
    fork = multiprocessing.get_context("fork")
    start = fork.Barrier(2)

    def body(part):
        attached = ExperienceArena.attach(arena.shape, os.dup(arena.arena.fd))
        start.wait()
        hammer(algorithm, attached, part, times)

    processes = [fork.Process(target=body, args=(part,)) for part in (0, 1)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert np.array_equal(arena.shared_weights, alone.shared_weights)
    assert np.array_equal(arena.square_averages, alone.square_averages)
    assert not np.array_equal(arena.shared_weights, an_arena()[1].shared_weights), "they were to move"


@pytest.mark.long
def test_workers_take_turns_at_the_statistics_so_that_no_row_and_no_value_is_lost():
    """With a learning rate of nothing only the moments move, and the value head with them: values stay."""
    settings = {**LOCAL, "num_envs_per_worker": 1, "segment_length": 5, "normalize_observations": False}
    obs = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    with Trainer(A3C, **settings, learning_rate=1e-20, total_steps=4_000) as trainer:
        model = policy_of(trainer).algorithm.build_model()

        def values(weights: dict[str, Tensor]) -> Tensor:
            model.load_state_dict(weights)
            with torch.no_grad():
                return model.denormalize_value(model.evaluate(obs)[1])

        before = weights_of(trainer)
        result = trainer.train(quiet=True)
        after = weights_of(trainer)
    assert after["return_moments.count"].item() == RETURN_PRIOR_ROWS + result.steps
    assert after["return_moments.mean"] > 0.5  # they did move
    torch.testing.assert_close(values(after), values(before), rtol=1e-4, atol=1e-4)


def test_the_value_head_changes_only_within_a_turn_so_that_no_step_overwrites_a_rescaling(monkeypatch):
    """Without a turn, the step of a worker that loaded the head before another's rescaling would undo the rescaling."""
    heads: list[list[Tensor]] = []
    with Trainer(A3C, **ONE_LANE, total_steps=200) as trainer:
        head = shared(trainer).model.value_head

        @contextlib.contextmanager
        def watched(arena):
            assert not heads or identical(list(head.parameters()), heads[-1])
            with taking_turns(arena):
                yield
            heads.append([parameter.detach().clone() for parameter in head.parameters()])

        monkeypatch.setattr(hogwild, "taking_turns", watched)
        trainer.train(quiet=True)
    assert len(heads) > 20 and not identical(heads[0], heads[-1])


def test_parameters_and_the_optimisers_state_lie_in_the_arena_before_there_is_a_worker():
    algorithm, arena = an_arena()
    one, two = SharedParameters(algorithm, arena), SharedParameters(algorithm, arena)

    def lies_in(tensor, memory):
        return memory.ctypes.data <= tensor.data_ptr() < memory.ctypes.data + memory.nbytes

    for parameter in one.model.parameters():
        assert lies_in(parameter, arena.shared_weights)
        assert lies_in(one.optimizer.state[parameter]["square_average"], arena.square_averages)
        parameter.grad = torch.ones_like(parameter)
    one.optimizer.step()
    for own, other in zip(one.model.parameters(), two.model.parameters(), strict=True):
        assert torch.equal(own, other)
        assert (two.optimizer.state[other]["square_average"] > 0.0).all()


def test_a_run_begins_with_the_weights_and_statistics_that_were_saved():
    algorithm, arena = an_arena()
    model = algorithm.build_model()
    saved = {"state": {i: {"square_average": torch.full_like(p, i + 1.0)} for i, p in enumerate(model.parameters())}}
    begin(algorithm, arena, model, LearnerState(steps=500, version=70, updates=60), {"optimizer": saved})
    parameters = SharedParameters(algorithm, arena)
    for number, (own, parameter) in enumerate(zip(model.parameters(), parameters.model.parameters(), strict=True)):
        assert torch.equal(own, parameter)
        assert (parameters.optimizer.state[parameter]["square_average"] == number + 1.0).all()
    assert arena.contributions[:, Contribution.STEPS].sum() == 500
    assert arena.contributions[:, Contribution.UPDATES].sum() + arena.control[Control.WEIGHTS_SET] == 70


class OwnEncoder(nn.Module):
    """Has buffers that every batch moves."""

    def __init__(self, observation: ObservationSpec) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(observation.shape[0], 6), nn.BatchNorm1d(6)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.layer(x)).relu()


def test_buffers_of_an_encoder_of_ones_own_move_with_what_is_learned():
    with Trainer(A3C, **{**SERIAL, "num_workers": 2}, encoder=OwnEncoder) as trainer:
        trainer.train(40, quiet=True)
        weights, updates = weights_of(trainer), trainer.status.updates
        found = shared(trainer).model.state_dict()
    (counted,) = (tensor for name, tensor in found.items() if name.endswith("num_batches_tracked"))
    assert 0 < counted.item() <= updates, "each worker counts on from the parameters that it has copied"
    for name, tensor in found.items():
        assert torch.equal(weights[name], tensor)
        if name.endswith("running_mean"):
            assert tensor.any() and torch.isfinite(tensor).all()


def test_an_optimiser_whose_state_is_not_shared_is_refused():
    algorithm, arena = an_arena()
    algorithm.build_optimizer = lambda model: torch.optim.Adam(model.parameters())
    story = r"a3c learns in its rollout workers.*a penstock\.algorithms\.arithmetic\.rmsprop\.RMSProp, found a Adam"
    with pytest.raises(TypeError, match=story):
        SharedParameters(algorithm, arena)


# --- segments --------------------------------------------------------------------------------------------------------


def test_parameters_are_copied_where_segments_begin_and_nowhere_else(segments, monkeypatch):
    # Two workers in turn: each begins anew after its own gradient, and while it acts one of the other's is applied.
    monkeypatch.setattr("penstock.engine.paths.hogwild.REPORT_INTERVAL", 0.0)
    with Trainer(A3C, **{**SERIAL, "num_workers": 2, "env_kwargs": {"max_episode_steps": 500}}) as trainer:
        trainer.train(4 * 2 * 2 * 5, quiet=True)
        assert trainer.status.steps == 80 and trainer.status.updates == 8
        assert (trainer.status.policy_lag_min, trainer.status.policy_lag_max) == (1, 1)
    for lane, versions in ((0, (0, 1, 3, 5)), (2, (0, 2, 4, 6))):
        assert [s["versions"] for s in segments if s["lane"] == lane] == [[[v] * 5] * 2 for v in versions]


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_memory_travels_from_segment_to_segment_and_begins_anew_with_episodes(segments, memory):
    frozen = {"learning_rate": 1e-30, "normalize_observations": False, "memory": memory, "memory_size": 6}
    with Trainer(A3C, **{**ONE_LANE, **frozen, "env_kwargs": {"max_episode_steps": 500}}) as trainer:
        trainer.train(100, quiet=True)
    assert any(s["first"][1:-1].any() for s in segments), "an episode was to end within a segment"
    assert not segments[0]["memory"].any()
    for segment, after in itertools.pairwise(segments):
        state = segment["memory"]
        with torch.no_grad():
            for row in range(5):
                _, state = segment["model"].act(segment["obs"][row], segment["first"][row], state)
        torch.testing.assert_close(after["memory"], state)
        assert after["memory"].any()


def test_an_lstm_learns_through_time_from_the_memory_its_segments_began_with():
    with Trainer(A3C, **SERIAL, memory="lstm", memory_size=6) as trainer:
        before = weights_of(trainer)
        trainer.train(100, quiet=True)
        after = weights_of(trainer)
    for name in ("memory.cell.weight_hh", "memory.cell.weight_ih"):
        assert not torch.equal(before[name], after[name])


# --- runs ------------------------------------------------------------------------------------------------------------


def rest(trainer, folder):
    """Wait until the workers have ended the segments that were open at the goal, and let the learner look at it."""
    goal = RolloutWorker.ACTIVITIES.index("wait for goal")
    wait_until(lambda: (arena_of(trainer).gauges[:2, ACTIVITY] == goal).all(), "both workers rest")
    trainer.save(str(folder / "copy"))
    return load_checkpoint(folder / "copy")


def test_two_workers_both_contribute_and_their_steps_add_up(tmp_path):
    with Trainer(A3C, **LOCAL, total_steps=100_000) as trainer:
        for _ in range(2):
            before = trainer.status.steps
            assert trainer.train(1_500, quiet=True).steps >= before + 1_500
            meta, status = rest(trainer, tmp_path).meta, trainer.status
            brought = arena_of(trainer).contributions
            assert status.steps == meta["steps"] == brought[:, Contribution.STEPS].sum()
            assert status.updates == meta["updates"] == status.version == brought[:, Contribution.UPDATES].sum()
            assert before + 1_500 <= status.steps < before + 1_500 + 4 * 16, "less than a segment of every lane"
            assert status.steps == 2 * 16 * status.updates, "CartPole's episodes end without a final row"
        wait_until(lambda: (brought[:2] > 0).any(1).all() or not trainer.train(500, quiet=True), "both contribute")
        assert not brought[2].any()
        status = trainer.status
        assert 0 <= status.policy_lag_min <= status.policy_lag_mean <= status.policy_lag_max
        assert math.isfinite(status.losses["policy_loss"])
        family = Watched(roles_of(trainer))
    assert family.left_after(0.0) == []


def test_what_others_have_full_when_the_goal_is_reached_is_learned_from_in_the_next_call():
    with Trainer(A3C, **SERIAL) as trainer:
        assert trainer.train(1, quiet=True).steps == 2 * 5, "one worker's segments reach the goal"
        before = weights_of(trainer)
        trainer.train(21, quiet=True)
        assert trainer.status.steps == 40 and trainer.status.masked_steps == 0
        assert any(not torch.equal(before[name], tensor) for name, tensor in weights_of(trainer).items())


def test_a_checkpoint_is_gone_on_from_with_its_counters_and_statistics(tmp_path):
    path = tmp_path / "run"
    with Trainer(A3C, **{**LOCAL, "run_dir": str(path)}, total_steps=1_000) as trainer:
        assert trainer.train(quiet=True).steps >= 1_000
        saved = rest(trainer, tmp_path)
        assert all(
            torch.equal(saved.weights[name], tensor) for name, tensor in shared(trainer).model.state_dict().items()
        )
        kept = [state["square_average"] for state in saved.state["optimizer"]["state"].values()]
        assert all(torch.equal(one, two) for one, two in zip(squares(trainer), kept, strict=True))
    last = RunDirectory.open(path).checkpoints.latest()
    kept = [state["square_average"] for state in last.state["optimizer"]["state"].values()]
    with Trainer.resume(str(path), total_steps=2_000) as trainer:
        assert trainer.status.steps == last.meta["steps"]
        assert all(torch.equal(one, two) and one.any() for one, two in zip(squares(trainer), kept, strict=True))
        found = shared(trainer).model.state_dict()
        assert all(torch.equal(found[name], tensor) for name, tensor in last.weights.items())
        trainer.save(str(tmp_path / "copy"))
        again = load_checkpoint(tmp_path / "copy")
        assert identical(again.weights, last.weights) and identical(again.state, last.state)
        assert trainer.train(quiet=True).steps >= 2_000
        rest(trainer, tmp_path)
        assert trainer.status.steps == arena_of(trainer).contributions[:, Contribution.STEPS].sum()
        assert trainer.status.updates > last.meta["updates"]


def test_a_checkpoint_of_a_run_that_ends_waits_for_updates_under_way(tmp_path):
    with Trainer(A3C, **SERIAL) as trainer:
        trainer.train(100, quiet=True)
        steps, brought = trainer.status.steps, arena_of(trainer).contributions[0]
        brought[Contribution.IS_LEARNING] = 1

        def end_the_update():
            brought[Contribution.STEPS] += 64
            brought[Contribution.IS_LEARNING] = 0

        timer = threading.Timer(0.2, end_the_update)
        timer.start()
        trainer.save(tmp_path / "saved")
        timer.join()
    assert load_checkpoint(tmp_path / "saved").meta["steps"] == steps + 64


def test_weights_that_are_set_take_the_place_of_the_shared_ones(segments):
    with Trainer(A3C, **SERIAL) as trainer:
        trainer.train(40, quiet=True)
        version, seen = trainer.status.version, len(segments)
        average = squares(trainer)
        others = {name: torch.full_like(tensor, 0.25) for name, tensor in weights_of(trainer).items()}
        trainer.set_parameters({0: others})
        found = shared(trainer).model.state_dict()
        assert all(torch.equal(found[name], tensor) for name, tensor in others.items())
        assert all(torch.equal(one, two) for one, two in zip(squares(trainer), average, strict=True))
        trainer.train(20, quiet=True)
        assert trainer.status.version == version + 1 + 2
        assert min(min(map(min, s["versions"])) for s in segments[seen:]) == version + 1


@pytest.mark.parametrize("backend", ["serial", "local"])
def test_segments_that_were_begun_with_older_weights_are_fenced_off(backend):
    # Episodes that are cut off take rows of their own: lanes and workers are not in step, segments are open at goals.
    settings = {**LOCAL, "backend": backend, "env_kwargs": {"max_episode_steps": 9}, **STAY}
    with Trainer(StubbornWorker, **settings, total_steps=FOR_EVER) as trainer:
        trainer.train(200, quiet=True)
        for action in (0, 1, 0):
            trainer.set_parameters(always(action, trainer.get_parameters()))
            before = trainer.status.steps
            assert trainer.train(200, quiet=True).steps >= before + 200
            assert trainer.get_parameters()[0]["policy_head.bias"].argmax() == action


class Watching(A3C):
    """Calls ``watch`` in the midst of its third gradient and of its fourth."""

    watch: Any
    count = 0

    def loss(self, batch, policy, value):
        self.count += 1
        if self.count in (3, 4):
            self.watch()
        return super().loss(batch, policy, value)


def test_a_segment_that_a_new_epoch_finds_full_is_masked(monkeypatch):
    learn, slots_seen = ActorLearner.learn, []

    def learn_the_third_too_late(self, slots):
        slots_seen.append(slots)
        self._arena.control[Control.RUN_EPOCH] += len(slots_seen) == 3
        return learn(self, slots)

    monkeypatch.setattr(ActorLearner, "learn", learn_the_third_too_late)
    with Trainer(A3C, **ONE_LANE) as trainer:
        trainer.train(25, quiet=True)
        assert len(slots_seen) == 6
        assert (trainer.status.steps, trainer.status.masked_steps, trainer.status.updates) == (25, 5, 5)


def test_a_gradient_of_parameters_that_were_replaced_meanwhile_is_not_applied():
    with Trainer(Watching, **ONE_LANE) as trainer:
        seen = []

        def replaced():
            arena_of(trainer).control[Control.WEIGHTS_SET] += not seen
            seen.append(squares(trainer))

        policy_of(trainer).algorithm.watch = replaced
        trainer.train(15, quiet=True)
        assert all(torch.equal(one, two) for one, two in zip(*seen, strict=True))
        status = trainer.status
        assert (status.steps, status.masked_steps, status.updates, status.version) == (15, 5, 3, 4)


class Killing:
    """Called with every status: kills a worker, once, and is content when much was learned after that."""

    def __init__(self, trainer, victim):
        self._pids = pids_of(trainer)
        self._victim = victim
        self.steps = None

    def __call__(self, status):
        if self.steps is None and status.steps > 0:
            self.steps = status.steps
            os.kill(self._pids[self._victim], signal.SIGKILL)


def test_a_killed_worker_is_replaced_and_training_goes_on_to_its_end(monkeypatch):
    monkeypatch.setattr(restarts, "LONGEST_BACK_OFF", 0.05)
    with Trainer(A3C, **LOCAL, total_steps=FOR_EVER) as trainer:
        trainer.train(200, quiet=True)
        killing = Killing(trainer, "rollout-0")
        trainer.train(500, quiet=True, on_update=killing)
        while trainer.status.restarts == 0:
            trainer.train(200, quiet=True)
        brought = arena_of(trainer).contributions[0].copy()
        while (arena_of(trainer).contributions[0] == brought).all():  # its successor learns, too
            result = trainer.train(1_000, quiet=True)
        assert trainer.status.restarts == 1 and killing.steps is not None
        assert result.steps <= arena_of(trainer).contributions[:, Contribution.STEPS].sum()
        assert all(torch.isfinite(tensor).all() for tensor in weights_of(trainer).values())


class Poisoned(A3C):
    """A loss that is multiplied by what ``factors`` say, in turn."""

    factors: tuple[float, ...] = (1.0, 1.0, math.nan, 1.0, 1.0)
    count = 0

    def loss(self, batch, policy, value):
        loss, metrics = super().loss(batch, policy, value)
        self.count += 1
        return loss * self.factors[(self.count - 1) % len(self.factors)], metrics


class Ruined(Poisoned):
    """Never finite."""

    factors = (math.nan,)


class Forgiven(Poisoned):
    """Finite just in time."""

    factors = (*[math.nan] * (MAX_SKIPPED_IN_A_ROW - 1), 1.0)


def test_a_gradient_that_is_not_finite_is_left_out_and_counted():
    with Trainer(Poisoned, **ONE_LANE) as trainer:
        trainer.train(25, quiet=True)
        status = trainer.status
        assert (status.steps, status.updates, status.skipped_updates) == (25, 4, 1)
        assert all(torch.isfinite(tensor).all() for tensor in weights_of(trainer).values())
        assert all(torch.isfinite(square).all() for square in squares(trainer))


def test_a_finite_gradient_in_between_forgives_those_before():
    with Trainer(Forgiven, **ONE_LANE) as trainer:
        trainer.train(3 * MAX_SKIPPED_IN_A_ROW * 5, quiet=True)
        assert (trainer.status.updates, trainer.status.skipped_updates) == (3, 3 * (MAX_SKIPPED_IN_A_ROW - 1))


@pytest.mark.parametrize("settings", [ONE_LANE, LOCAL], ids=["serial", "local"])
def test_gradients_that_are_never_finite_end_the_run_with_a_diagnosis(settings):
    story = rf"{MAX_SKIPPED_IN_A_ROW} updates in a row were not finite \(loss nan, .* lower learning_rate"
    with Trainer(Ruined, **settings, total_steps=FOR_EVER) as trainer:
        brought = arena_of(trainer).contributions
        with pytest.raises(TrainingFailed, match=story):
            trainer.train(quiet=True)
    assert brought[:, Contribution.SKIPPED].max() == MAX_SKIPPED_IN_A_ROW
