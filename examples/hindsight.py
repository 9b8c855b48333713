"""Hindsight: a reward only at the goal is enough, because every episode reaches some goal.

    python examples/hindsight.py [STEPS]

A hand must move to a point of the plane and stay there. Each step costs 1 unless the hand is at the goal, so that a
random policy hardly ever sees another reward. With hindsight="future" each episode is also learned from as if points
that the hand reached had been the goals; the environment's own compute_reward returns the rewards for them.
"""

import sys

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict

import penstock

NEAR = 0.05


class Reach(gym.Env):
    """A hand in a square of side 2. It observes its place and its goal, and moves by up to 0.1 in each direction."""

    action_space = Box(-1.0, 1.0, (2,), np.float32)
    observation_space = Dict(
        {name: Box(-1.0, 1.0, (2,), np.float32) for name in ("observation", "achieved_goal", "desired_goal")}
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.hand, self.goal = self.np_random.uniform(-1.0, 1.0, (2, 2)).astype(np.float32)
        self.time = 0
        return self.view(), {}

    def step(self, action):
        self.hand = np.clip(self.hand + 0.1 * action, -1.0, 1.0).astype(np.float32)
        self.time += 1
        reward = float(self.compute_reward(self.hand, self.goal, {}))
        # "is_success" in an episode's last info is shown, logged and evaluated as its success.
        return self.view(), reward, False, self.time == 50, {"is_success": reward == 0.0}

    def compute_reward(self, achieved_goal, desired_goal, info):
        """0 at the goal, else -1; for one goal [2], or for many [N, 2] at once."""
        return -(np.linalg.norm(achieved_goal - desired_goal, axis=-1) > NEAR).astype(np.float32)

    # This task never terminates. For one that does, add compute_terminated(achieved_goal, desired_goal, info).

    def view(self):
        return {"observation": self.hand, "achieved_goal": self.hand, "desired_goal": self.goal}


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
network = {"hidden_sizes": (64, 64), "batch_size": 128}

for hindsight in (None, "future"):
    settings = {"preset": "goals", **network, "hindsight": hindsight, "total_steps": steps, "run_dir": None}
    with penstock.SAC(env=Reach, **settings) as algo:
        algo.train(quiet=True)
        print(f"hindsight={hindsight}: success rate {algo.evaluate(episodes=100).success_rate:.2f}")
