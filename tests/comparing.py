"""Whether two things are the same bit for bit."""

from typing import Any

import numpy as np
import torch


def identical(one: Any, two: Any) -> bool:
    """Whether two trees of tensors, arrays and plain values are equal bit for bit."""
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(identical(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(identical, one, two))
    if isinstance(one, np.ndarray):
        return np.array_equal(one, two)
    return torch.equal(one, two) if isinstance(one, torch.Tensor) else bool(one == two)
