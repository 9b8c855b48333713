"""Inference as a GPU does it, on the CPU: padded to buckets, through staging memory, with the same answers."""

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from penstock.algorithms.appo import APPO
from penstock.algorithms.bases.algorithm import Request
from penstock.engine.acting.device_inference import DeviceInference, Staging, WatchedRequest
from penstock.engine.acting.inference import Inference
from penstock.engine.acting.pinned import PinnedMemory
from penstock.engine.messages import Note
from penstock.engine.paths.segments import SegmentPath
from penstock.engine.roles.policy_worker import PolicyWorker
from penstock.experience.arena import Pending
from tests.engine.collecting import COLUMNS, SHORT, Collecting, Recording
from tests.envs.masked import MaskedEnv
from tests.envs.pictures import Pictures
from tests.experience.reading import CPU


class Scheduled(APPO):
    """Acts by the number of steps."""

    def act(self, model, request):
        columns, memory = super().act(model, request)
        return {**columns, "action": columns["action"] * (request.steps % 2)}, memory


def device_inference(run):
    return DeviceInference(run.arena, run.algorithm, "cpu", SegmentPath().steps_taken, run.reports.append)


def capturing(inference):
    """Make it take this for a GPU."""
    inference._captures = True
    inference._buckets = [inference._make_bucket(size) for size in inference._sizes]
    return inference


class Graph:
    """Stands for a CUDA graph: captured operations run again on the same tensors."""

    def __init__(self, inference, bucket, request):
        self.replay = torch.inference_mode()(lambda: inference._run(bucket, request))


@pytest.fixture(params=["operation by operation", "as a graph"])
def infer(request, monkeypatch):
    """Makes the inference of a run."""
    if request.param == "operation by operation":
        return device_inference
    monkeypatch.setattr(DeviceInference, "_capture", lambda self, bucket, asked: Graph(self, bucket, asked))
    return lambda run: capturing(device_inference(run))


@pytest.mark.parametrize("memory", ["none", "lstm"])
@pytest.mark.parametrize("layout", [{"num_groups": 2}, {"num_workers": 3, "num_envs_per_worker": 2, "num_groups": 1}])
def test_lanes_collect_the_same_to_1e_5_as_without_buckets_and_staging(infer, memory, layout):
    plain = Collecting(Recording, inference="central", memory=memory, **layout, **SHORT)
    staged = Collecting(Recording, inference="central", memory=memory, **layout, **SHORT)
    staged.policy_worker = PolicyWorker(staged.arena, infer(staged))
    for _ in range(3):
        one, two = plain.take(), staged.take()
        for name in COLUMNS:
            torch.testing.assert_close(getattr(one, name), getattr(two, name), rtol=1e-5, atol=1e-4, msg=name)
        torch.testing.assert_close(one.records["logits"], two.records["logits"], rtol=1e-5, atol=1e-4)
    plain.close()
    staged.close()


def test_large_observations_are_read_in_the_arena_with_the_same_answers(infer):
    settings = {"env": Pictures, "env_kwargs": {}, "num_workers": 3, "num_envs_per_worker": 2, "num_groups": 1}
    plain, staged = (Collecting(Recording, inference="central", **settings) for _ in range(2))
    inference = infer(staged)
    staged.policy_worker = PolicyWorker(staged.arena, inference)
    assert all("obs" not in bucket.asked.arrays for bucket in inference._buckets)
    for _ in range(2):
        one, two = plain.take(), staged.take()
        assert torch.equal(one.obs, two.obs) and torch.equal(one.action, two.action)
        torch.testing.assert_close(one.records["logits"], two.records["logits"], rtol=1e-5, atol=1e-4)
    plain.close()
    staged.close()


def test_observations_that_the_gpu_does_not_reach_are_copied_by_the_host(monkeypatch):
    run = Collecting(Recording, inference="central", env=Pictures, env_kwargs={})
    monkeypatch.setattr(PinnedMemory, "of", lambda array, device: SimpleNamespace(is_registered=False))
    inference = device_inference(run)
    assert all("obs" in bucket.asked.arrays for bucket in inference._buckets)
    assert "the host copies them to the GPU" in run.reports.of(Note)[0].text
    run.close()


def test_answers_are_those_of_the_weights_of_now(infer):
    run = Collecting(APPO, inference="central", num_groups=1)
    inference = infer(run)
    run.workers[0].poll()
    for action in (0, 1, 0):
        with torch.no_grad():
            run.model.policy_head.bias[:] = 0.0
            run.model.policy_head.bias[action] = 1_000.0
        run.weights.publish(run.weights.version + 1, 0)
        inference.answer(Pending(np.array([0]), np.array([1])))
        assert run.arena.columns["action"][run.arena.requests.rows[0]].tolist() == [action] * 4
    run.close()


def test_lanes_are_padded_to_a_power_of_two_groups_and_at_most_to_all_of_them():
    run = Collecting(APPO, inference="central", num_workers=5, num_envs_per_worker=4, num_groups=2)
    inference = device_inference(run)
    assert [bucket.asked.arrays["obs"].shape[0] for bucket in inference._buckets] == [2, 4, 8, 16, 20]
    sizes = [inference._bucket(2 * count).asked.arrays["obs"].shape[0] for count in range(1, 11)]
    assert sizes == [2, 4, 8, 8, 16, 16, 16, 16, 20, 20]
    run.close()


def test_what_pads_a_bucket_is_answered_and_written_nowhere():
    run = Collecting(APPO, inference="central", num_workers=5, num_envs_per_worker=1)
    inference = device_inference(run)
    for worker in run.workers:
        worker.poll()
    run.arena.columns["action"][...] = -7
    inference.answer(Pending(np.array([1, 2, 4]), np.array([1, 1, 1])))
    rows = run.arena.requests.rows[[1, 2, 4]].reshape(-1)
    assert set(np.flatnonzero(run.arena.columns["action"] != -7)) == set(rows.tolist())
    run.close()


def test_what_pads_a_bucket_has_legal_actions_before_anyone_has_asked():
    run = Collecting(APPO, inference="central", env=MaskedEnv, env_kwargs={"at": "observation"})
    for bucket in device_inference(run)._buckets:
        legal = run.model.input.mask(torch.from_numpy(bucket.asked.arrays["obs"]))
        assert legal.dtype == torch.bool and legal.all()
        assert not np.isnan(bucket.answered.arrays["log_prob"]).any()
    run.close()


def test_a_request_notices_that_its_steps_are_looked_at_and_nothing_else():
    request = WatchedRequest(*[torch.zeros(1)] * 5, steps=3)
    assert request.obs is not None and request.lane is not None and not request.steps_were_read
    assert request.steps == 3 and request.steps_were_read
    assert isinstance(request, Request) and not replace(request).steps_were_read


@pytest.mark.parametrize(("algorithm", "is_captured"), [(APPO, True), (Scheduled, False)])
def test_what_depends_on_the_number_of_steps_is_never_captured(algorithm, is_captured, monkeypatch):
    run = Collecting(algorithm, inference="central", num_groups=1)
    inference, asked_for = device_inference(run), []
    inference._captures = True
    monkeypatch.setattr(inference, "_capture", lambda bucket, request: asked_for.append(bucket))
    inference._make_bucket(4)
    assert bool(asked_for) is is_captured
    run.close()


def test_a_graph_that_cannot_be_captured_is_reported_once_and_answers_come_without_it(monkeypatch):
    run = Collecting(APPO, inference="central", num_workers=2, num_groups=1)

    def capture(*_, **__):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: None)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    inference = capturing(device_inference(run))
    plain = Inference(run.arena, run.algorithm, "cpu", SegmentPath().steps_taken)
    for worker in run.workers:
        worker.poll()
    for groups in ([0], [0, 1]):
        rows = run.arena.requests.rows[groups].reshape(-1)
        answers = []
        for one in (inference, plain):
            one.answer(Pending(np.array(groups), np.array([1] * len(groups))))
            answers.append(run.arena.columns["action"][rows].copy())
        assert np.array_equal(*answers)
    notes = [report.text for report in run.reports.of(Note)]
    assert notes == [
        "inference runs without CUDA graphs: RuntimeError: operation not permitted when stream is capturing"
    ]
    run.close()


def test_all_graphs_have_their_memory_from_one_pool(monkeypatch):
    pools = []

    class Captured:
        def __init__(self):
            self._pool = object()

        def pool(self):
            return self._pool

    @contextmanager
    def capture(graph, pool, stream):
        graph._pool = pool or graph._pool
        pools.append(graph._pool)
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Captured)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    run = Collecting(APPO, inference="central", num_workers=3, num_groups=1)
    capturing(device_inference(run))
    assert len(pools) == 3 and len(set(pools)) == 1
    run.close()


def test_what_is_staged_arrives_on_the_other_side_and_only_when_it_is_sent():
    fields = [("bytes", (3, 5), torch.uint8), ("nothing", (3, 0), torch.float32), ("truth", (3,), torch.bool),
              ("numbers", (3, 2), torch.float64), ("whole", (3,), torch.int64)]  # fmt: skip
    staging = Staging(fields, CPU)
    for name, shape, dtype in fields:
        assert staging.tensors[name].shape == shape and staging.tensors[name].dtype == dtype
    staging.arrays["numbers"][:] = 1.5
    staging.arrays["truth"][:] = [True, False, True]
    assert not staging.tensors["numbers"].any()
    staging.send()
    assert staging.tensors["numbers"].eq(1.5).all() and staging.tensors["truth"].tolist() == [True, False, True]
    staging.tensors["whole"][:] = torch.tensor([1, 2, 3])
    staging.tensors["bytes"][:] = 9
    assert not staging.arrays["whole"].any()
    staging.fetch()
    assert staging.arrays["whole"].tolist() == [1, 2, 3] and (staging.arrays["bytes"] == 9).all()
    assert staging.arrays["numbers"].tolist() == [[1.5, 1.5]] * 3
