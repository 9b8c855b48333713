"""Algorithms that notice when they learn from actions of weights before their own."""

import torch

from penstock.algorithms.a3c import A3C
from penstock.algorithms.appo import APPO

STAY = {"learning_rate": 1e-30}
"""Setting under which weights stay where they are put."""


class Refusing:
    """Refuses to learn from an action that its policy would not choose, once that is sure of itself."""

    def prepare(self, model, batch):
        super().prepare(model, batch)
        bias = model.policy_head.bias
        if bias.abs().max() > 100 and not (batch.action[batch.valid] == bias.argmax()).all():
            raise RuntimeError("an action of older weights was learned from")


class Stubborn(Refusing, APPO):
    """Of a learner."""


class StubbornWorker(Refusing, A3C):
    """Of workers that learn themselves."""


def always(action: int, parameters: dict[int, dict[str, torch.Tensor]]) -> dict[int, dict[str, torch.Tensor]]:
    """Weights under which the policy always chooses this action."""
    weights = {name: tensor.clone() for name, tensor in parameters[0].items()}
    weights["policy_head.bias"][:] = 0.0
    weights["policy_head.bias"][action] = 1_000.0
    return {0: weights}
