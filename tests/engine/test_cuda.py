"""Behaviour on a GPU: skipped without one."""

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch

from penstock.algorithms.a2c import A2C
from penstock.algorithms.appo import APPO
from penstock.algorithms.bases.algorithm import NonFiniteUpdate
from penstock.algorithms.bases.segment import SegmentUpdater
from penstock.algorithms.btr import BTR
from penstock.algorithms.clear import CLEAR
from penstock.algorithms.crossq import CrossQ
from penstock.algorithms.ddpg import DDPG
from penstock.algorithms.dqn import DQN
from penstock.algorithms.fasttd3 import FastTD3
from penstock.algorithms.flashsac import FlashSAC
from penstock.algorithms.impact import IMPACT
from penstock.algorithms.impala import IMPALA
from penstock.algorithms.laser import LASER
from penstock.algorithms.ppo import PPO
from penstock.algorithms.pqn import PQN
from penstock.algorithms.r2d2 import R2D2
from penstock.algorithms.rainbow import Rainbow
from penstock.algorithms.sac import SAC
from penstock.algorithms.td3 import TD3
from penstock.algorithms.tqc import TQC
from penstock.algorithms.xqc import XQC
from penstock.engine.acting.device_inference import (
    DeviceInference,
    InferenceWeights,
    LearnerWeights,
    Staging,
    WeightsExchange,
)
from penstock.engine.acting.inference import Inference
from penstock.engine.acting.pinned import PinnedMemory
from penstock.engine.messages import Note
from penstock.engine.paths.captured import WARM_UP
from penstock.engine.paths.captured_updates import CapturedGradient, CapturedUpdate
from penstock.engine.paths.segments import SegmentPath
from penstock.engine.roles.policy_worker import PolicyWorker
from penstock.engine.trainer import Trainer
from penstock.envs.spaces import ObservationSpec
from penstock.experience.arena import Pending
from penstock.nn import flatten_
from tests.algorithms import transitions
from tests.algorithms.batches import collect, make, make_model
from tests.engine.collecting import FIRST_VERSION, SHORT, Collecting, Recording
from tests.engine.processes import Watched, pids_of
from tests.envs.pictures import Pictures
from tests.experience.reading import CPU, filled_arena, read, reader
from tests.nn.plain import CHOICE

pytestmark = [pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"), pytest.mark.timeout(300)]

GPU = torch.device("cuda")


class Peeking(APPO):
    """Looks at a value while it acts, which no graph can."""

    def act(self, model, request):
        assert request.obs.sum().item() < float("inf")
        return super().act(model, request)


def moved(asked):
    """A batch or request with its tensors on the GPU."""
    tensors = {name: each.to(GPU) for name, each in vars(asked).items() if isinstance(each, torch.Tensor)}
    return dataclasses.replace(asked, **tensors)


@pytest.fixture
def exact():
    """Products of float32 in full precision."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


def on_gpu(algorithm=Recording, **settings):
    run = Collecting(algorithm, inference="central", **settings)
    inference = DeviceInference(run.arena, run.algorithm, "cuda", SegmentPath().steps_taken, run.reports.append)
    run.policy_worker = PolicyWorker(run.arena, inference)
    return run, inference


@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
def test_graphs_answer_what_the_cpu_answers_to_1e_5(exact, memory):
    layout = {"num_workers": 3, "num_envs_per_worker": 4, "num_groups": 2, "memory": memory, **SHORT}
    plain = Collecting(Recording, inference="central", **layout)
    run, inference = on_gpu(**layout)
    for _ in range(4):
        one, two = plain.take(), run.take()
        for name in ("obs", "first", "action", "valid"):
            assert torch.equal(getattr(one, name), getattr(two, name)), name
        torch.testing.assert_close(one.log_prob, two.log_prob, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(one.records["logits"], two.records["logits"], rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(one.memory, two.memory, rtol=1e-5, atol=1e-5)
    assert all(bucket.graph is not None for bucket in inference._buckets)
    assert len({bucket.graph.pool() for bucket in inference._buckets}) == 1
    assert not [report.text for report in run.reports.of(Note)]
    plain.close()
    run.close()


def test_a_graph_reads_large_observations_in_the_arena():
    layout = {"env": Pictures, "env_kwargs": {}, "num_workers": 3, "num_envs_per_worker": 4, "num_groups": 2}
    plain = Collecting(Recording, inference="central", **layout)
    run, inference = on_gpu(**layout)
    assert inference._in_place is not None
    for _ in range(4):
        one, two = plain.take(), run.take()
        assert torch.equal(one.obs, two.obs) and torch.equal(one.action, two.action)
        # Convolutions in TF32.
        torch.testing.assert_close(one.records["logits"], two.records["logits"], rtol=1e-2, atol=1e-3)
    assert not [report.text for report in run.reports.of(Note)]
    plain.close()
    run.close()


def test_a_graph_answers_with_the_weights_of_now():
    run, inference = on_gpu(APPO, num_groups=1)
    for _ in range(3):
        run.poll()
    (bucket,) = inference._buckets
    assert bucket.graph is not None
    for action in (0, 1, 0):
        with torch.no_grad():
            run.model.policy_head.bias[:] = 0.0
            run.model.policy_head.bias[action] = 1_000.0
        run.weights.publish(run.weights.version + 1, 0)
        run.workers[0].poll()
        assert run.policy_worker.poll()
        assert run.arena.columns["action"][run.arena.requests.rows[0]].tolist() == [action] * 4
    run.close()


def test_bfloat16_graphs_answer_what_bfloat16_answers_operation_by_operation():
    run, inference = on_gpu(Recording, num_groups=1, precision="bfloat16", hidden_sizes=(64, 64))
    plain = Inference(run.arena, run.algorithm, "cuda", SegmentPath().steps_taken)
    run.workers[0].poll()
    rows, answers = run.arena.requests.rows[0], []
    for one in (inference, inference, plain):
        one.answer(Pending(np.array([0]), np.array([1])))
        answers.append(run.arena.columns["logits"][rows].copy())
    assert inference._buckets[0].graph is not None
    assert np.array_equal(answers[0], answers[1])
    np.testing.assert_allclose(answers[1], answers[2], rtol=1e-2, atol=1e-2)
    run.close()


def test_what_no_graph_can_hold_runs_without_and_is_said_once():
    run, inference = on_gpu(Peeking, num_workers=3, num_envs_per_worker=2, num_groups=1)
    for _ in range(5):
        assert run.poll()
    assert all(bucket.graph is None for bucket in inference._buckets)
    (note,) = [report.text for report in run.reports.of(Note)]
    assert note.startswith("inference runs without CUDA graphs: ")
    assert torch.randn(3, device="cuda").sum().isfinite()  # what failed is over
    run.close()


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (APPO, {"num_epochs": 2}), (APPO, {"advantage_estimator": "vtrace"}), (APPO, {"memory": "lstm"}),
        (APPO, {"num_minibatches": 1}), (PPO, {}), (A2C, {}), (IMPALA, {"memory": "gru"}), (CLEAR, {}),
        (LASER, {"replay": ["queue:1/2", "uniform:1/2"]}), (IMPACT, {"target_period": 4}),
        (PQN, {}),
    ],
)  # fmt: skip
def test_captured_updates_learn_what_updates_operation_by_operation_learn(exact, algorithm, settings):
    learned = []
    for captures in (False, True):
        made = make(algorithm, **settings)
        torch.manual_seed(0)
        model = made.build_model().to(GPU)
        updater = SegmentUpdater(made, model)
        if captures:
            updater.gradient = gradient = CapturedGradient(made, model, made.autocast(GPU), pytest.fail)
        actor = make(APPO) if algorithm is PQN else made
        for seed in range(WARM_UP + 6):
            batch = collect(actor, make_model(actor, seed), seed)
            with torch.no_grad():
                policy, value = make_model(actor, seed).evaluate(batch.obs, batch.first, batch.memory)
            batch.records = {"logits": policy[:-1].flat, "value": value[:-1]}
            batch = batch.map(lambda name, tensor: tensor.to(GPU))
            metrics = updater.learn(batch)
            made.after_update(model, seed)
        learned.append((model.state_dict(), metrics))
    assert gradient._graphs._captured, "nothing was captured"
    for name, tensor in learned[0][0].items():
        torch.testing.assert_close(tensor, learned[1][0][name], rtol=1e-4, atol=1e-5)
    for name, number in learned[0][1].items():
        torch.testing.assert_close(number.float(), learned[1][1][name], rtol=1e-3, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (DDPG, {}), (TD3, {}), (FastTD3, {}), (SAC, {}), (SAC, {"alpha": 0.2}), (TQC, {}), (CrossQ, {}), (XQC, {}),
        (FlashSAC, {}), (DQN, {"target_period": 4}), (DQN, {"optimizer": "adamw", "munchausen": True}), (BTR, {}),
        (Rainbow, {}),
    ],
)  # fmt: skip
def test_captured_updates_from_replay_learn_what_updates_operation_by_operation_learn(exact, algorithm, settings):
    action = CHOICE if issubclass(algorithm, DQN) else transitions.TORQUE
    sizes = {"hidden_sizes": (8,), "batch_size": 16, "learning_starts": 16, "learning_rate_schedule": "linear"}
    learned = []
    for captures in (False, True):
        made = transitions.make(algorithm, transitions.VECTOR, action, device="cuda", **sizes, **settings)
        torch.manual_seed(0)
        model = made.make_model(GPU)
        flatten_(model)
        made.begin(model)
        update = partial(made.update, model)
        if captures:
            update = captured = CapturedUpdate(made, model, pytest.fail, waits=False)
        for number in range(1, 5 * WARM_UP):
            batch = transitions.random_transitions(action, seed=number, number=number)
            batch = dataclasses.replace(batch, running_return=batch.reward)
            made.schedule_learning_rates(number / 100)
            batch, _ = made.prepare(model, moved(batch))
            with made.training_mode(model):
                error, metrics = update(batch)
        learned.append((model.state_dict(), error, metrics))
    assert captured._graphs._captured, "nothing was captured"
    (weights, error, metrics), (found, found_error, found_metrics) = learned
    for name, tensor in weights.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=3e-3, msg=name)
    torch.testing.assert_close(found_error, error, rtol=1e-2, atol=1e-2)
    for name, value in metrics.items():
        torch.testing.assert_close(found_metrics[name], value.float().mean(), rtol=1e-2, atol=1e-2, msg=name)


def test_a_captured_update_that_is_not_finite_moves_nothing_and_is_told_by_the_next():
    made = transitions.make(SAC, transitions.VECTOR, transitions.TORQUE, device="cuda", learning_starts=16)
    model = made.make_model(GPU)
    flatten_(model)
    made.begin(model)
    update = CapturedUpdate(made, model, pytest.fail, waits=False)

    def learn(number, **changes):
        batch = transitions.random_transitions(transitions.TORQUE, number=number)
        update(dataclasses.replace(moved(batch), **changes))

    for number in range(1, 2 * WARM_UP):
        learn(number)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    learn(10, reward=torch.full((16,), torch.nan, device="cuda"))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    with pytest.raises(NonFiniteUpdate):
        learn(11)
    learn(12)
    assert not all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("kind", ["none", "c51", "quantile", "iqn"])
@torch.inference_mode()
def test_a_graph_of_a_noisy_network_has_the_noise_of_the_lanes_numbers_of_now(kind):
    settings = {"noisy": True, "distributional": kind, "dueling": True, "hidden_sizes": (8,)}
    algorithm = transitions.make(DQN, transitions.VECTOR, CHOICE, **settings)
    model = algorithm.build_model().to(GPU)
    asked = moved(transitions.request(torch.rand(64, 1)))
    algorithm.act(model, asked)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        columns, _ = algorithm.act(model, asked)
    seen = set()
    for seed in range(3):
        asked.noise.copy_(torch.rand(64, 1, generator=torch.Generator().manual_seed(seed)))
        graph.replay()
        assert torch.equal(columns["action"], algorithm.act(model, asked)[0]["action"])
        seen.add(tuple(columns["action"].tolist()))
    assert len(seen) == 3


def test_staging_memory_is_pinned_and_arrives():
    staging = Staging([("numbers", (1000, 7), torch.float32)], GPU)
    assert staging._on_host.is_pinned()
    staging.arrays["numbers"][:] = np.arange(7)
    staging.send()
    staging.tensors["numbers"].mul_(2.0)
    staging.fetch()
    assert np.array_equal(staging.arrays["numbers"], np.tile(2.0 * np.arange(7), (1000, 1)))


def test_weights_cross_from_one_stream_to_another_whole_and_the_block_gets_what_is_shown():
    run = Collecting(APPO, hidden_sizes=(512, 512))
    exchange = WeightsExchange()
    learns, acts = run.algorithm.build_model().to(GPU), run.algorithm.build_model().to(GPU)
    learner, inference = LearnerWeights(learns, run.arena, exchange), InferenceWeights(acts, run.arena, exchange)
    learner.refresh()
    stream, slow = torch.cuda.Stream(priority=-1), torch.randn(4096, 4096, device=GPU)
    for version in range(FIRST_VERSION + 1, FIRST_VERSION + 40):
        slow = (slow @ slow).clamp(-1.0, 1.0)  # what the copy waits behind
        with torch.no_grad():
            for parameter in learns.parameters():
                parameter.fill_(float(version))
        learner.publish(version, 10 * version)
        with torch.cuda.stream(stream):
            inference.refresh()
            found = {value for parameter in acts.parameters() for value in parameter.unique().tolist()}
        assert found == {float(version)} and (inference.version, inference.steps) == (version, 10 * version)
    learner.show()
    assert run.arena.weights.version == version
    assert set(np.frombuffer(run.published()[:64], np.float32)) == {float(version)}
    run.close()


def test_a_batch_of_large_observations_comes_out_of_registered_memory():
    arena = filled_arena(observation=ObservationSpec((256, 256, 1), "uint8"))
    one = reader(arena, device=GPU)
    other = PinnedMemory.of(arena.columns["obs"], GPU)  # as inference in the same process has it
    assert one._takes_slots and other is one._pinned and torch.from_numpy(arena.columns["obs"]).is_pinned()
    found, _ = one.read(np.array([4, 1]), 50, 0.0)
    expected, _ = read(arena, device=CPU)
    arena.columns["obs"][...] = 0
    assert torch.equal(found.obs.cpu(), expected.obs)
    one.close()
    assert torch.equal(other.on_device()[:8].cpu(), torch.zeros(8, dtype=torch.uint8))
    del other
    assert not torch.from_numpy(arena.columns["obs"]).is_pinned()


def test_memory_that_cuda_refuses_is_used_without_it():
    array = np.zeros(1 << 20, np.uint8)
    first = PinnedMemory(array, GPU)
    second = PinnedMemory(array[1:], GPU)  # a second time is refused
    assert first.is_registered and not second.is_registered
    assert torch.ones(3, device="cuda").sum().item() == 3.0


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_it_learns_to_balance_a_pole(precision):
    settings = {"num_workers": 2, "num_envs_per_worker": 16, "total_steps": 300_000, "target_return": 400.0}
    with Trainer(
        APPO, env="CartPole-v1", device="cuda", precision=precision, seed=1, run_dir=None, **settings
    ) as trainer:
        result = trainer.train(quiet=True)
        family = Watched(list(pids_of(trainer).values()))
        assert set(pids_of(trainer)) == {"launcher", "rollout-0", "rollout-1", "learner", "evaluator"}
        assert result.reached_target and result.eval_return >= 400.0
        before = trainer.get_parameters()
        trainer.set_parameters(before)
        after = trainer.get_parameters()[0]
        assert all(torch.equal(after[name], tensor) for name, tensor in before[0].items())
    assert family.left_after(0.0) == []


@pytest.mark.parametrize(
    ("algorithm", "env", "backend"),
    [
        (DQN, "CartPole-v1", "local"), (DQN, "CartPole-v1", "serial"), (SAC, "Pendulum-v1", "local"),
        (FlashSAC, "Pendulum-v1", "local"), (BTR, "CartPole-v1", "local"),
        (Rainbow, "CartPole-v1", "local"), (R2D2, "CartPole-v1", "local"),
    ],
)  # fmt: skip
def test_replay_learns_on_a_gpu_too(algorithm, env, backend, tmp_path):
    settings = {"learning_starts": 500, "num_workers": 1, "num_envs_per_worker": 4, "eval_interval": 0}
    with Trainer(algorithm, env=env, device="cuda", backend=backend, run_dir=tmp_path / "run", **settings) as trainer:
        trainer.train(2_000, quiet=True)
        assert trainer.status.version > 100 and all(np.isfinite(list(trainer.status.losses.values())))
    assert "without CUDA graphs" not in (tmp_path / "run" / "log.txt").read_text()
