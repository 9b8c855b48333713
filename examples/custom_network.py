"""Your own network: an encoder of residual blocks, trained, saved, and loaded again without a trainer.

An encoder is an `nn.Module` class that is constructed with the observation's spec. It maps observations, float32
`[N, *shape]`, to features `[N, F]`; Penstock determines F, and adds the heads for policy and value (and the memory
core, if there is one) after it.

    python examples/custom_network.py [STEPS]
"""

import sys
import tempfile

import gymnasium as gym
from torch import nn

import penstock

WIDTH = 64


class Block(nn.Module):
    """Residual block: its output is added to its input."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x):
        return x + self.layers(x)


class ResidualEncoder(nn.Sequential):
    """One layer to the right width, then two residual blocks."""

    def __init__(self, observation):
        super().__init__(nn.Linear(observation.shape[0], WIDTH), Block(), Block(), nn.LayerNorm(WIDTH))


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000

with (
    tempfile.TemporaryDirectory() as place,
    penstock.APPO(env="CartPole-v1", encoder=ResidualEncoder, total_steps=steps, run_dir=None) as algo,
):
    algo.train()
    algo.save(f"{place}/balanced")
    # The checkpoint has the weights, but only the name of the class, which is therefore given again.
    policy = penstock.load_policy(f"{place}/balanced", encoder=ResidualEncoder)

numbers = sum(parameter.numel() for parameter in policy.model.parameters())
print(f"loaded a network of {numbers:,} numbers, trained for {policy.meta['steps']:,} steps")

env = gym.make("CartPole-v1")
observation, _ = env.reset(seed=7)
balanced, is_over = 0, False
while not is_over:
    observation, _, terminated, truncated, _ = env.step(policy.act(observation))
    balanced, is_over = balanced + 1, terminated or truncated
print(f"it balanced the pole for {balanced} steps")
