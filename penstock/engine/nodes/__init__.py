"""Nodes: other machines, or parts of one, that step lanes for a run. Only `cluster` knows Ray."""
