"""What tests of guests share: small games, settings of a small replay buffer, and weights of known actions."""

from __future__ import annotations

from typing import Any

import penstock
from tests.envs.playing import AtOnce, InTurn, Part

REPLAY = {"learning_starts": 40, "buffer_size": 1_000, "batch_size": 8, "updates_per_step": 0.25}


class Turns(InTurn):
    """Two agents that move in turn; with any actions the second one always gets more."""

    def __init__(self, moves: int = 6) -> None:
        super().__init__(2, moves, ("terminated", "truncated"))


class Three(AtOnce):
    """Three agents at once, that all get the same."""

    def __init__(self) -> None:
        super().__init__([Part(0, 4, "terminated")] * 3)


def always(trainer: penstock.Trainer, policy: int | str, action: int) -> dict[str, Any]:
    """Weights of a policy that takes this action wherever it is."""
    weights = trainer.get_parameters()[policy]
    weights["policy_head.weight"].zero_()
    weights["policy_head.bias"].zero_()[action] = 1_000.0
    return weights
