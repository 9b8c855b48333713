"""Slots of the arena become time-major tensors; what the learner sees of rewards and stale steps is decided here."""

import numpy as np
import pytest
import torch

from penstock.envs.spaces import ActionSpec, ObservationSpec
from tests.experience.reading import SLOTS, VERSION, T, filled_arena, read, reader
from tests.nn.plain import TORQUE


@pytest.mark.parametrize("action", [ActionSpec((), "int64", num_actions=2), TORQUE], ids=["discrete", "continuous"])
@pytest.mark.parametrize(
    "observation",
    [ObservationSpec((3,), "float32"), ObservationSpec((4, 4, 1), "uint8"), ObservationSpec((), "int64", 5)],
)
def test_every_column_becomes_a_time_major_tensor_of_its_own_dtype(observation, action):
    arena = filled_arena(observation=observation, action=action)
    batch, _ = read(arena, progress=0.25)
    for segment, slot in enumerate((4, 1)):
        rows, steps = slice(slot * (T + 1), (slot + 1) * (T + 1)), slice(slot * (T + 1), slot * (T + 1) + T)
        for name in ("obs", "first"):
            assert np.array_equal(getattr(batch, name)[:, segment].numpy(), arena.columns[name][rows]), name
        for name in ("action", "reward", "terminated", "truncated", "valid", "log_prob"):
            assert np.array_equal(getattr(batch, name)[:, segment].numpy(), arena.columns[name][steps]), name
        assert np.array_equal(batch.records["logits"][:, segment].numpy(), arena.columns["logits"][steps])
        assert np.array_equal(batch.memory[segment].numpy(), arena.slot_memory[slot])
        assert batch.lane[segment] == slot % 2
    assert batch.obs.dtype == getattr(torch, observation.dtype) and batch.obs.shape == (T + 1, 2, *observation.shape)
    assert batch.action.dtype == (torch.int64 if action.is_discrete else torch.float32)
    assert batch.reward.dtype == batch.log_prob.dtype == batch.learn.dtype == batch.memory.dtype == torch.float32
    assert batch.valid.dtype == batch.terminated.dtype == batch.truncated.dtype == batch.first.dtype == torch.bool
    assert batch.memory.shape == (2, 3) and batch.num_segments == 2 and batch.progress == 0.25


def test_rewards_are_scaled_and_then_clipped_in_the_batch_and_true_in_the_arena():
    arena = filled_arena()
    arena.columns["reward"][:] = np.tile([-30.0, -1.0, 2.0, 40.0, 0.0], SLOTS)
    assert read(arena, (3,))[0].reward[:, 0].tolist() == [-30, -1, 2, 40]
    assert read(arena, (3,), reward_scale=0.1)[0].reward[:, 0].tolist() == pytest.approx([-3, -0.1, 0.2, 4])
    assert read(arena, (3,), reward_clip=5.0)[0].reward[:, 0].tolist() == [-5, -1, 2, 5]
    both = read(arena, (3,), reward_scale=0.1, reward_clip=1.0)[0].reward[:, 0].tolist()
    assert both == pytest.approx([-1, -0.1, 0.2, 1])
    assert arena.columns["reward"][15:19].tolist() == [-30, -1, 2, 40]


def test_steps_whose_lag_reaches_the_limit_are_valid_but_not_learned_from():
    arena = filled_arena()
    arena.columns["valid"][:] = True
    arena.columns["valid"][5] = False
    arena.columns["version"][5:10] = [44, 46, 47, 48, 0]
    batch, lag = read(arena, (1,), version=50, max_policy_lag=4)
    assert batch.valid[:, 0].tolist() == [False, True, True, True]
    assert batch.learn[:, 0].tolist() == [0.0, 0.0, 1.0, 1.0]  # lags 6 (and invalid), 4, 3, 2
    assert lag.tolist() == [4, 3, 2] and lag.dtype == torch.int64


def test_a_batch_of_zero_lag_is_learned_from_wherever_it_is_valid():
    arena = filled_arena()
    batch, lag = read(arena, max_policy_lag=1)
    assert torch.equal(batch.learn.bool(), batch.valid) and not lag.any()


def test_a_batch_stays_as_it_is_when_its_slots_are_written_again():
    arena = filled_arena()
    batch, _ = read(arena)
    before = {name: getattr(batch, name).clone() for name in ("obs", "action", "reward", "valid", "learn", "memory")}
    for column in arena.columns.values():
        column[...] = 0
    arena.slot_memory[...] = 0
    for name, tensor in before.items():
        assert torch.equal(getattr(batch, name), tensor), name


def test_segments_flatten_and_transitions_agree_on_every_column():
    batch, _ = read(filled_arena(), (4, 1, 3))
    batch.targets = {"advantage": torch.arange(T * 3.0).view(T, 3)}
    index = torch.tensor([2, 0])
    some = batch.segments(index)
    flat = batch.flatten()
    picked = torch.tensor([7, 0, 11])  # rows of [T * B]: t * 3 + b
    transitions = flat.transitions(picked)
    for name in ("obs", "first", "action", "reward", "terminated", "truncated", "valid", "learn", "log_prob"):
        whole = getattr(batch, name)
        assert torch.equal(getattr(some, name), whole[:, index]), name
        assert torch.equal(getattr(flat, name), whole[:T].reshape(T * 3, *whole.shape[2:])), name
        assert torch.equal(getattr(transitions, name), whole[picked // 3, picked % 3]), name
    for whole, part in ((batch.records["logits"], transitions.records["logits"]),
                        (batch.targets["advantage"], transitions.targets["advantage"])):  # fmt: skip
        assert torch.equal(part, whole[picked // 3, picked % 3])
    assert torch.equal(some.memory, batch.memory[index]) and torch.equal(flat.memory, batch.memory)
    assert some.num_segments == 2 and some.targets["advantage"].shape == (T, 2)


def test_a_reader_is_used_again_for_the_next_slots():
    arena = filled_arena()
    one = reader(arena)
    one.read(np.array([0, 1]), VERSION, 0.0)
    batch, _ = one.read(np.array([5, 2]), VERSION, 0.0)
    assert np.array_equal(batch.obs[:, 0].numpy(), arena.columns["obs"][25:30])


def test_observations_that_are_taken_slot_by_slot_are_those_that_are_gathered():
    arena = filled_arena(observation=ObservationSpec((4, 4, 1), "uint8"))
    gathered, _ = read(arena)
    one = reader(arena)
    one._takes_slots = True
    taken, _ = one.read(np.array([4, 1]), VERSION, 0.0)
    assert torch.equal(taken.obs, gathered.obs) and taken.obs.shape == (T + 1, 2, 4, 4, 1)
    before = taken.obs.clone()
    arena.columns["obs"][...] = 0
    assert torch.equal(taken.obs, before), "a batch stays as it is"


@pytest.mark.parametrize(("side", "is_accepted"), [(4, True), (256, True), (256, False)])
def test_large_observations_are_registered_for_cuda_and_gathered_where_it_refuses(monkeypatch, side, is_accepted):
    registered, unregistered, pinned, asked, notes = [], [], [], [], []

    class Cudart:
        def cudaHostRegister(self, address, nbytes, flags):
            registered.append((address, nbytes, flags))
            return 0 if is_accepted else 712

        def cudaHostUnregister(self, address):
            unregistered.append(address)
            return 0

    def zeros(*_, device):
        asked.append(str(device))
        raise RuntimeError("CUDA error: already mapped")  # as CUDA tells of an error once more

    monkeypatch.setattr(torch.cuda, "cudart", Cudart)
    monkeypatch.setattr(torch, "zeros", zeros)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: pinned.append(self) or self)
    arena = filled_arena(observation=ObservationSpec((side, side, 1), "uint8"))
    one = reader(arena, device=torch.device("cuda:1"), note=notes.append)
    column = arena.columns["obs"]
    is_large = side == 256
    assert registered == ([(column.ctypes.data, column.nbytes, 1 | 2)] if is_large else [])
    assert len(pinned) == len(arena.columns) - (is_large and is_accepted)
    assert asked == ([] if is_accepted else ["cuda:1"])
    assert ["gathered on the host" in note for note in notes] == ([] if is_accepted else [True])
    one.close()
    one.close()
    assert unregistered == ([column.ctypes.data] if is_large and is_accepted else [])


def test_pinned_memory_is_written_again_only_behind_the_copies_of_the_batch_before(monkeypatch):
    arena = filled_arena()
    waited_for = []

    class Event:
        def __init__(self, blocking):
            assert blocking

        def record(self, stream):
            self.stream = stream

        def synchronize(self):
            waited_for.append((self.stream, one._arrays["obs"][:, 0].copy()))

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    one = reader(arena, device=torch.device("cuda:1"))
    monkeypatch.setattr(one, "_to_device", lambda tensor: tensor)
    one.read(np.array([0, 1]), VERSION, 0.0)
    assert waited_for == []
    one.read(np.array([5, 2]), VERSION, 0.0)
    ((stream, there),) = waited_for
    assert stream == "stream of cuda:1" and np.array_equal(there, arena.columns["obs"][: T + 1])


def test_memory_is_pinned_only_for_cuda(monkeypatch):
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: pinned.append(self) or self)
    arena = filled_arena()
    reader(arena)
    assert not pinned
    reader(arena, device=torch.device("cuda"))
    assert len(pinned) == len(arena.columns)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_cuda_a_batch_holds_the_same_numbers():
    arena = filled_arena()
    on_gpu, _ = read(arena, device=torch.device("cuda"))
    on_cpu, _ = read(arena)
    for name in ("obs", "first", "action", "reward", "valid", "learn", "log_prob", "memory"):
        found = getattr(on_gpu, name)
        assert found.is_cuda and torch.equal(found.cpu(), getattr(on_cpu, name)), name
