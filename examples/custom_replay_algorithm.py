"""Your own replay algorithm: Munchausen DQN (Vieillard et al. 2020, arXiv:2007.14430), DQN with another target.

A replay algorithm is a config, a network and a loss. Rollout workers, replay buffer, rate limiter, target network,
checkpoints and the live view work for yours as for Penstock's own.

    python examples/custom_replay_algorithm.py [STEPS]
"""

import sys
from dataclasses import dataclass

import torch

import penstock
from penstock.algorithms.arithmetic.td import huber, td_target
from penstock.algorithms.dqn import DQN, DQNConfig
from penstock.config import require


@dataclass(frozen=True, kw_only=True)
class MunchausenConfig(DQNConfig):
    """DQN that rewards an agent for being sure of its action."""

    temperature: float = 0.03
    """Temperature of the policy softmax(q / temperature) (section 3)."""
    bonus: float = 0.9
    """Weight of the action's log-probability in the reward (section 3)."""
    least_log_prob: float = -1.0
    """Lower clipping bound of the log-probability times the temperature (section 3)."""
    normalize_returns: bool = False

    def validate(self):
        """Refuse DQN's switches that the loss below would ignore."""
        super().validate()
        switches = "double", "noisy", "munchausen", "rescale_values", "normalize_returns", "distributional", "memory"
        for name in switches:
            require(getattr(self, name) in (False, "none"), name, getattr(self, name), "left out: this loss ignores it")


class MunchausenDQN(DQN):
    """Adds the scaled log-policy to the reward, and uses the soft value of the next observation."""

    Config = MunchausenConfig

    def evaluate(self, model, batch):
        """`y = r + bonus * [t log pi(a|o)]_clipped + discount * sum_a' pi (q' - t log pi)`, by the target network."""
        c = self.config
        action = batch.action.unsqueeze(1)
        with torch.no_grad():
            log_pi = torch.log_softmax(self.target.q(batch.obs) / c.temperature, 1).gather(1, action).squeeze(1)
            reward = batch.reward + c.bonus * (c.temperature * log_pi).clamp(c.least_log_prob, 0.0)
            next_q = self.target.q(batch.next_obs)
            soft_value = c.temperature * torch.logsumexp(next_q / c.temperature, 1)  # = sum_a' pi (q' - t log pi)
            y = td_target(reward, batch.discount, soft_value)

        td_error = model.q(batch.obs).gather(1, action).squeeze(1) - y
        loss = (batch.weights * huber(td_error)).mean()
        return td_error, loss, {"log_pi": log_pi.mean()}


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60_000

with penstock.Trainer(MunchausenDQN, env="CartPole-v1", total_steps=steps, target_return=475, run_dir=None) as algo:
    result = algo.train()

print(f"mean return {result.eval_return:.1f} after {result.steps:,} steps ({result.stop_reason})")
