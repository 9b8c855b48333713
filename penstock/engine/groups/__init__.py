"""Learner groups: several learners of one policy, each of which runs the networks on its share of every batch."""
