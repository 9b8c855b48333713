"""A policy without a trainer: it acts, is evaluated, and is filmed. None of it needs the engine."""
