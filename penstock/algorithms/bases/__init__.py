"""Base classes of the algorithm families."""
