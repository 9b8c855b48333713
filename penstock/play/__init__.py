"""Policies without a trainer: acting, evaluation and films. Independent of the engine."""
