"""Batches become tensors without a copy, and tensors become the memory that a batch is written to."""

import numpy as np
import torch

from penstock.replay import Field, NStep, Prioritized, ReplayBuffer


def fifty_rows() -> ReplayBuffer:
    fields = {"obs": Field((3,)), "action": Field((), "int64"), "reward": Field(), "picture": Field((4, 4), "uint8")}
    buffer = ReplayBuffer(100, fields, sampler=Prioritized(), n_step=NStep(2), seed=0)
    buffer.add(
        obs=np.arange(150.0).reshape(50, 3),
        action=np.arange(50),
        reward=np.ones(50),
        picture=np.arange(800).reshape(50, 4, 4) % 255,
        terminated=np.arange(50) == 49,
    )
    return buffer


def test_dlpack_and_from_numpy_share_the_memory_of_the_batch() -> None:
    for convert in (torch.from_dlpack, torch.from_numpy):
        batch = fifty_rows().sample(16)
        for name, array in batch.items():
            tensor = convert(array)
            assert tensor.data_ptr() == array.ctypes.data, name
            assert (tensor.shape, str(tensor.dtype)) == (array.shape, f"torch.{array.dtype}"), name
        obs = convert(batch["obs"])
        obs[3, 1] = -7.0
        assert batch["obs"][3, 1] == -7.0


def test_a_batch_is_written_straight_into_tensors() -> None:
    buffer, twin = fifty_rows(), fifty_rows()
    tensors = {
        name: torch.zeros(array.shape, dtype=torch.from_numpy(array).dtype)
        for name, array in buffer.allocate(16).items()
    }
    out = {name: tensor.numpy() for name, tensor in tensors.items()}
    for _ in range(2):
        places = {name: tensor.data_ptr() for name, tensor in tensors.items()}
        buffer.sample(16, out=out)
        expected = twin.sample(16)
        assert places == {name: tensor.data_ptr() for name, tensor in tensors.items()}
        assert tensors.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_array_equal(tensors[name].numpy(), array, err_msg=name)
