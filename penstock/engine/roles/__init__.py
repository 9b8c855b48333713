"""Roles: rollout worker, policy worker, learner, evaluator; and their specs."""
