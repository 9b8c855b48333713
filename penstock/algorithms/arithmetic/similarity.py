"""Distances between feature vectors of states, by which attentive and elite replay rank segments."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity


class Projection:
    """Fixed random projection of features for comparisons, the same in every process, or the identity.

    Parameters
    ----------
    width
        Width of the projection; 0: features are not projected.
    seed
        Seed of the projection.
    """

    def __init__(self, width: int, seed: int) -> None:
        self.width = width
        self._seed = seed
        self._matrix = torch.empty(0)

    def __call__(self, features: Tensor) -> Tensor:
        """Project features ``[..., F]``."""
        if not self.width:
            return features
        num_features = features.shape[-1]
        if len(self._matrix) != num_features or self._matrix.device != features.device:
            generator = torch.Generator().manual_seed(self._seed)
            drawn = torch.randn(num_features, self.width, generator=generator) / num_features**0.5
            self._matrix = drawn.to(features.device)
        return features @ self._matrix


def change(now: Tensor, then: Tensor, valid: Tensor, distance: str, p: float = 2.0) -> Tensor:
    """Distance between recorded and current features of the same states, one number per segment.

    Parameters
    ----------
    now, then
        Features of the states, float32 ``[T, M, F]``.
    valid
        Real rows, bool ``[T, M]``; others do not count.
    distance
        "ln_norm": the p-norm of all differences; "cosine": 1 minus the cosine of all features as one vector; "kl": the
        sum over rows of ``KL(softmax(now) || softmax(then))``.
    p
        Order of "ln_norm".

    Returns
    -------
    Tensor
        float32 ``[M]``: 0 if nothing has changed; larger is less alike.
    """
    mask = valid.unsqueeze(-1)
    if distance == "kl":
        return (_kl(now, then) * valid).sum(0)
    now, then = (now * mask).transpose(0, 1).flatten(1), (then * mask).transpose(0, 1).flatten(1)
    if distance == "cosine":
        return 1.0 - cosine_similarity(now, then, dim=1)
    return torch.linalg.vector_norm(now - then, ord=p, dim=1)


def remoteness(states: Tensor, valid: Tensor, here: Tensor, distance: str, p: float = 2.0) -> Tensor:
    """Distance between segments and the lanes' current states, averaged over states and lanes.

    Parameters
    ----------
    states
        Features, float32 ``[T, M, F]``.
    valid
        Real rows, bool ``[T, M]``.
    here
        Features of the lanes' current states, float32 ``[K, F]``.
    distance, p
        As for `change`.

    Returns
    -------
    Tensor
        float32 ``[M]``: larger is less alike.
    """
    pairs = states.unsqueeze(2)  # [T, M, 1, F]
    if distance == "kl":
        found = _kl(pairs, here)
    elif distance == "cosine":
        found = 1.0 - cosine_similarity(pairs, here, dim=-1)
    else:
        found = torch.cdist(states.flatten(0, 1), here, p=p).unflatten(0, states.shape[:2])
    return (found.mean(-1) * valid).sum(0) / valid.sum(0).clamp(min=1)


def _kl(one: Tensor, other: Tensor) -> Tensor:
    log_one, log_other = torch.log_softmax(one, -1), torch.log_softmax(other, -1)
    return (log_one.exp() * (log_one - log_other)).sum(-1)
