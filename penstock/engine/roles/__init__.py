"""What each role does: rollout worker, policy worker, learner, evaluator; and the specs they are made of."""
