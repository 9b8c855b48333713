"""Your own algorithm: asynchronous advantage actor-critic in one file.

An algorithm is a config and a loss. Environments, the place of the network, the transport of experience, checkpoints
and the live view are the engine's work, and serve your algorithm like Penstock's own.

    python examples/custom_algorithm.py [STEPS]
"""

import sys
from dataclasses import dataclass

import penstock
from penstock.algorithms.arithmetic.losses import masked_mean, normalize_advantage, value_error


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(penstock.AsynchronousConfig):
    """Actor-critic: one update from each batch of segments."""

    segment_length: int = 64
    """Steps per segment (T)."""
    gae_lambda: float = 1.0
    """Lambda of the advantage estimator; with 1, an action is judged by all later rewards of its segment."""
    learning_rate: float = 1e-3
    """Step size of the optimiser."""
    max_weight: float = 1.0
    """Largest weight of a step: its weight is the ratio of the action's probability now and when it was chosen."""


class ActorCritic(penstock.SegmentAlgorithm):
    """Policy gradient with a learned baseline; rollout workers never wait for the learner."""

    Config = ActorCriticConfig

    def targets(self, model, batch, policy, values):
        """Advantages and value targets `[T, B]` by name, from the learner's own values `[T + 1, B]`."""
        return self.estimate_advantages(model, batch, values, self.config.gae_lambda)

    def loss(self, batch, policy, value):
        """`-E[w A log pi(a)] + c_v L_v - c_e H`, with means over the steps to learn from (`batch.learn`)."""
        c, learn = self.config, batch.learn
        log_prob = policy.log_prob(batch.action)
        weight = (log_prob.detach() - batch.log_prob).exp().clamp(max=c.max_weight)
        advantage = normalize_advantage(batch.targets["advantage"], learn)

        policy_loss = -masked_mean(weight * advantage * log_prob, learn)
        value_loss = masked_mean(value_error(value, batch.targets["return"]), learn)
        entropy = masked_mean(policy.entropy(), learn)
        loss = policy_loss + c.value_coef * value_loss - c.entropy_coef * entropy
        return loss, {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000

with penstock.Trainer(ActorCritic, env="CartPole-v1", total_steps=steps, target_return=475, run_dir=None) as algo:
    result = algo.train()

print(f"mean return {result.eval_return:.1f} after {result.steps:,} steps ({result.stop_reason})")
