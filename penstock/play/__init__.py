"""Policies without a trainer: acting, evaluation and videos. Independent of the engine."""
