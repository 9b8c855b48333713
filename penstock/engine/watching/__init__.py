"""Observation of a run: time spent by its roles, progress, hangs."""
