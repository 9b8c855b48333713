"""Rescaling of values ``h`` and its inverse, for NumPy arrays and tensors: this module imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    Array = TypeVar("Array", np.ndarray, Tensor)

EPSILON = 1e-3


def rescale(x: Array) -> Array:
    """Compress values, element by element (arXiv:1805.11593, section 3.2; R2D2, OpenReview r1lyTjAqYX, section 2.3).

        h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x

    It is computed as ``x / (sqrt(|x| + 1) + 1) + epsilon x``, without cancellation near 0.

    Parameters
    ----------
    x : ndarray or Tensor
        Returns or values, floating point, ``[...]``.

    Returns
    -------
    ndarray or Tensor
        Of the same shape and dtype.
    """
    return x / ((abs(x) + 1.0) ** 0.5 + 1.0) + EPSILON * x


def inverse_rescale(x: Array) -> Array:
    """Inverse of :func:`rescale` (arXiv:1805.11593, proposition A.2).

        h^-1(x) = sign(x) (z^2 - 1)    with    z = (sqrt(1 + 4 epsilon (|x| + 1 + epsilon)) - 1) / (2 epsilon)

    ``z`` solves ``epsilon (z^2 - 1) + (z - 1) = |x|``, so ``z^2 - 1`` is ``|x| (z + 1) / (1 + epsilon (z + 1))``. Both
    are computed in forms without cancellation.

    Parameters
    ----------
    x : ndarray or Tensor
        Rescaled values, floating point, ``[...]``.

    Returns
    -------
    ndarray or Tensor
        Of the same shape and dtype.
    """
    sum_ = abs(x) + (1.0 + EPSILON)
    z = 2.0 * sum_ / (1.0 + (1.0 + 4.0 * EPSILON * sum_) ** 0.5)
    return x * (z + 1.0) / (1.0 + EPSILON * (z + 1.0))
