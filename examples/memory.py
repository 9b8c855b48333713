"""Memory: a maze that cannot be solved without remembering its start.

`memory="gru"` (or "lstm") adds a recurrent core after the encoder. Its state is kept for every environment and reset
where an episode begins; gradients flow through time within a segment.

    python examples/memory.py [STEPS]
"""

import sys

import gymnasium as gym
import numpy as np

import penstock


class TMaze(gym.Env):
    """A corridor that ends at a wall. A sign at its entrance shows where the prize is: left or right of the wall.

    Observations are the sign (-1 or 1; 0 after the entrance) and whether the agent stands at the wall. The way there is
    straight: only the last action counts, and without a memory of the sign no policy has a mean return above 0.
    """

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    length = 10

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.prize = int(self.np_random.integers(2))
        self.place = 0
        return np.array([2 * self.prize - 1, 0], np.float32), {}

    def step(self, action):
        is_at_wall = self.place == self.length
        reward = (1.0 if action == self.prize else -1.0) if is_at_wall else 0.0
        self.place += 1
        return np.array([0, self.place == self.length], np.float32), reward, is_at_wall, False, {}


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000

returns = {}
for memory in ("none", "gru"):
    with penstock.APPO(env=TMaze, memory=memory, total_steps=steps, run_dir=None) as algo:
        algo.train()
        returns[memory] = algo.evaluate(episodes=200).mean_return

for memory, mean_return in returns.items():
    print(f"memory={memory}: mean return {mean_return:.2f}")
