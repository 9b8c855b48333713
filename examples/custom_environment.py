"""Your own environment: a ferry that has to stop at its pier.

Any `gymnasium.Env` trains with one call. No `if __name__ == "__main__"` is needed: workers do not run this script
again, and a class defined in it is sent to them by value.

    python examples/custom_environment.py [STEPS]
"""

import sys

import gymnasium as gym
import numpy as np

import penstock


class Ferry(gym.Env):
    """A ferry on a line. It observes its place and speed, and may thrust backward, not at all, or forward."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1.0, 1.0)
        self.speed = 0.0
        self.time = 0
        return self.view(), {}

    def step(self, action):
        self.time += 1
        self.speed += 0.005 * (action - 1)
        self.place = np.clip(self.place + self.speed, -1.0, 1.0)
        distance = abs(self.place)
        has_moored = distance < 0.05 and abs(self.speed) < 0.01  # terminated: no rewards follow
        is_late = self.time == 200  # truncated: the episode could have continued, and learning accounts for that
        reward = 1.0 if has_moored else -0.1 * distance
        # Numbers in info["metrics"] reach the live view, metrics.jsonl and TensorBoard.
        return self.view(), reward, has_moored, is_late, {"metrics": {"distance": distance}}

    def view(self):
        return np.array([self.place, self.speed], np.float32)


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000

with penstock.PPO(env=Ferry, total_steps=steps, run_dir=None) as algo:
    before = algo.evaluate(episodes=20)
    algo.train()
    after = algo.evaluate(episodes=20)

print(f"before: mean return {before.mean_return:6.2f}, {before.mean_length:3.0f} steps to the pier")
print(f"after:  mean return {after.mean_return:6.2f}, {after.mean_length:3.0f} steps to the pier")
