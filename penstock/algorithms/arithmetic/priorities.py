"""First priorities of new rows, computed by rollout workers: this module imports no torch."""

from __future__ import annotations

import numpy as np

from penstock.algorithms.arithmetic.rescaling import inverse_rescale, rescale


def absolute_td_error(
    reward: np.ndarray, discount: np.ndarray, value: np.ndarray, next_value: np.ndarray, *, rescaled: bool = False
) -> np.ndarray:
    """Absolute temporal difference by the acting network's values, ``|R + discount * max_a q(o', a) - q(o, a)|``.

    Ape-X (Horgan et al. 2018, arXiv:1803.00933, section 3).

    Parameters
    ----------
    reward
        Sum of n discounted rewards, float32 ``[N]``.
    discount
        Discount of the value after these rewards; 0 after a termination, float32 ``[N]``.
    value, next_value
        Values of the action taken, and of the best one n steps later, float32 ``[N]``; NaN if unknown.
    rescaled
        Whether values are rescaled returns.

    Returns
    -------
    ndarray
        float32 ``[N]``; not finite where a value is unknown.
    """
    if rescaled:
        return np.abs(rescale(reward + discount * inverse_rescale(next_value)) - value)
    return np.abs(reward + discount * next_value - value)


def sequence_td_priority(
    reward: np.ndarray, discount: np.ndarray, value: np.ndarray, max_value: np.ndarray, valid: np.ndarray,
    *, n_step: int, burn_in: int, eta: float, rescaled: bool,
) -> np.ndarray:  # fmt: skip
    """Priority of sequences from the acting network's values; the learner later uses its own.

    R2D2 (OpenReview r1lyTjAqYX, section 2.3): see `td.n_step_targets` and `td.sequence_priority`.

    Parameters
    ----------
    reward, discount, value, max_value
        Reward, discount, value of the action taken and of the best one, of each row, float32 ``[N, T + 1]``. An unknown
        maximum is NaN; errors that need it do not count.
    valid
        Rows that are steps, bool ``[N, T + 1]``.
    n_step, burn_in, eta
        Steps of a target; first rows that do not count; share of the maximum.
    rescaled
        Whether values are rescaled returns.

    Returns
    -------
    ndarray
        float32 ``[N]``; NaN for sequences without a known error.
    """
    bootstrap = inverse_rescale(max_value) if rescaled else max_value
    y = bootstrap.copy()
    for _ in range(n_step):
        y[:, :-1] = np.where(valid[:, :-1], reward[:, :-1] + discount[:, :-1] * y[:, 1:], bootstrap[:, :-1])
    error = np.abs((rescale(y) if rescaled else y) - value)[:, burn_in:-1]
    counts = valid[:, burn_in:-1] & np.isfinite(error)
    error = np.where(counts, error, 0.0)
    number = counts.sum(1)
    priority = eta * error.max(1) + (1.0 - eta) * error.sum(1) / np.maximum(number, 1)
    return np.where(number > 0, priority, np.nan).astype(np.float32)
