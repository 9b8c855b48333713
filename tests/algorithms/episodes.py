"""Algorithms with memory, and batches of episodes given by hand."""

import torch

from penstock.algorithms.r2d2 import R2D2
from penstock.experience.batch import SequenceBatch
from tests.algorithms.transitions import VECTOR, begin, make
from tests.nn.plain import CHOICE

SMALL = {"hidden_sizes": (5,), "memory_size": 4, "sequence_length": 6, "sequence_overlap": 0, "burn_in": 0,
         "max_grad_norm": None, "normalize_returns": False}  # fmt: skip
LENGTH = 12


def recurrent(algorithm=R2D2, **settings):
    """An algorithm with memory, and its network; the target network is another one."""
    made = make(algorithm, VECTOR, CHOICE, **{**SMALL, **settings})
    model = begin(made)
    with torch.no_grad():
        for parameter in made.target.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5)))
    return made, model


def episode(gamma, batch=3, last_discount=None):
    """Steps of some episodes, all of the same length, with one observation more."""
    generator = torch.Generator().manual_seed(1)
    discount = torch.full((LENGTH, batch), gamma)
    if last_discount is not None:
        discount[-1] = last_discount
    return SequenceBatch(
        obs=torch.randn(LENGTH + 1, batch, 2, generator=generator),
        first=(torch.arange(LENGTH + 1) == 0).unsqueeze(1).repeat(1, batch),
        action=torch.randint(3, (LENGTH, batch), generator=generator),
        reward=torch.randn(LENGTH, batch, generator=generator) * 3, discount=discount,
        valid=torch.ones(LENGTH, batch, dtype=torch.bool), memory=torch.zeros(batch, 0),
        weights=torch.tensor([0.2, 1.0, 0.5])[:batch], number=1, progress=0.0,
    )  # fmt: skip
