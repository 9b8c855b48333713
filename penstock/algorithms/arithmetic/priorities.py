"""First priorities: what rollout workers give new transitions. Without torch, which not every rollout worker has."""

from __future__ import annotations

import numpy as np


def absolute_td_error(
    reward: np.ndarray, discount: np.ndarray, value: np.ndarray, next_value: np.ndarray
) -> np.ndarray:
    """Absolute temporal difference under the values of who acted, ``|R + discount * max_a q(o', a) - q(o, a)|``.

    Ape-X (Horgan et al. 2018, arXiv:1803.00933, section 3).

    Parameters
    ----------
    reward
        Sum of n discounted rewards, float32 ``[N]``.
    discount
        Of the value after them; 0 where the episode terminated, float32 ``[N]``.
    value, next_value
        Of the action taken, and of the best one n steps later, float32 ``[N]``. NaN where the latter is not known.

    Returns
    -------
    ndarray
        float32 ``[N]``; not finite where it is not known.
    """
    return np.abs(reward + discount * next_value - value)
