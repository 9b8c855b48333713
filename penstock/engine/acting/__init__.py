"""Choosing actions: the model that answers requests, and the transport of weights to it."""
