"""Hindsight: a reward for the goal alone is enough, because every episode reaches some goal.

    python examples/hindsight.py [STEPS]

A hand is to come to a point of the plane and stay there. Each step costs 1 unless the hand is at the goal, so that a
random policy is hardly ever told anything. With hindsight="future" each episode is learned from again as if points
where the hand came to had been the goals; the environment's own compute_reward says what that would have brought.
"""

import sys

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict

import penstock

NEAR = 0.05


class Reach(gym.Env):
    """A hand in a square of side 2. It sees where it is and where to go, and moves by up to 0.1 in each direction."""

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
        # What the last info of an episode says is shown, logged and evaluated as its success.
        return self.view(), reward, False, self.time == 50, {"is_success": reward == 0.0}

    def compute_reward(self, achieved_goal, desired_goal, info):
        """0 at the goal, else -1; of one goal [2], or of many [N, 2] at once."""
        return -(np.linalg.norm(achieved_goal - desired_goal, axis=-1) > NEAR).astype(np.float32)

    # No step of this task is final. Where one is, compute_terminated(achieved_goal, desired_goal, info) says which.

    def view(self):
        return {"observation": self.hand, "achieved_goal": self.hand, "desired_goal": self.goal}


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
network = {"hidden_sizes": (64, 64), "batch_size": 128}

for hindsight in (None, "future"):
    settings = {"preset": "goals", **network, "hindsight": hindsight, "total_steps": steps, "run_dir": None}
    with penstock.SAC(env=Reach, **settings) as algo:
        algo.train(quiet=True)
        print(f"hindsight={hindsight}: success rate {algo.evaluate(episodes=100).success_rate:.2f}")
