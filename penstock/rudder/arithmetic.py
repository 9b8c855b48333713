"""Equations of RUDDER, the redistribution of delayed rewards (Arjona-Medina et al. 2019, arXiv:1806.07857).

A predictor ``g`` predicts the return of an episode after every step. A step's *contribution* is the change that it
makes to the prediction; redistributed rewards are contributions, corrected so that they sum to the episode's return. A
policy that is optimal for them is optimal for the original rewards (theorem 2).

Pure functions of time-major tensors, as in `penstock.algorithms.arithmetic.returns`. No result carries a gradient,
except that of `return_losses`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from penstock import _native
from penstock.nn.mlp import is_native

T = TypeVar("T", Tensor, np.ndarray)

COMPLETE = (0.8, 1.2)  # integrated gradients are used if their completeness is in this range


def as_learned(reward: T, scale: float, clip: float | None) -> T:
    """Return rewards, a tensor or an array, scaled and clipped as for the learner."""
    scaled = reward * scale
    return scaled if clip is None else scaled.clip(-clip, clip)


@torch.no_grad()
def differences(prediction: Tensor, before: Tensor | float = 0.0, first: Tensor | None = None) -> Tensor:
    """Return contributions by differences of predictions, ``h_t = g_t - g_t-1`` (section 3, "reward redistribution").

    Parameters
    ----------
    prediction : Tensor
        ``g_t`` after each step, ``[T, ...]``.
    before : Tensor or float
        ``g_-1``, the prediction before the first row, ``[...]``.
    first : Tensor, optional
        Whether a row begins an episode, bool ``[T, ...]``; the prediction before it is then 0.

    Returns
    -------
    Tensor
        ``h_t``, ``[T, ...]``.
    """
    start = torch.as_tensor(before, dtype=prediction.dtype, device=prediction.device).expand_as(prediction[0])
    previous = torch.cat([start.unsqueeze(0), prediction[:-1]])
    return prediction - (previous if first is None else torch.where(first, 0.0, previous))


def integrated_gradients(function: Callable[[Tensor], Tensor], x: Tensor, num_points: int) -> Tensor:
    """Return contributions of inputs by integrated gradients along the path from zero (arXiv:1703.01365, equation 1).

        h_j = x_j 1/S sum_s d f(alpha_s x) / d x_j,     alpha_s = (s - 1/2) / S,  s = 1 .. S

    Parameters
    ----------
    function : callable
        ``f``, of a tensor like `x`; its result is summed, so that independent sequences can be side by side.
    x : Tensor
        Inputs to explain, floating.
    num_points : int
        S. Midpoints are exact if the gradient is linear along the path.

    Returns
    -------
    Tensor
        ``h``, shaped as `x`. The sum is ``f(x) - f(0)``, up to the error of the midpoints (see `completeness`).
    """
    total = torch.zeros_like(x)
    with torch.enable_grad():
        for point in range(num_points):
            at = ((point + 0.5) / num_points * x.detach()).requires_grad_()
            (gradient,) = torch.autograd.grad(function(at).sum(), at)
            total += gradient
    return x.detach() * total / num_points


@torch.no_grad()
def completeness(contribution: Tensor, change: Tensor) -> Tensor:
    """Return the sum of contributions as a share of the change of the prediction; 1 where both are 0.

    Parameters
    ----------
    contribution : Tensor
        Contribution of each step, ``[T, ...]``.
    change : Tensor
        Change that the contributions explain, ``f(x) - f(0)``, ``[...]``.
    """
    total = contribution.sum(0)
    return torch.where(change == 0, (total == 0).to(change.dtype), total / change)


@torch.no_grad()
def return_equivalent(contribution: Tensor, return_: Tensor) -> Tensor:
    """Return redistributed rewards of a whole episode, ``rr_t = h_t + (G - sum_k h_k) / T`` (section 3).

    Parameters
    ----------
    contribution : Tensor
        ``h_t``, ``[T, ...]``.
    return_ : Tensor
        ``G``, ``[...]``.

    Returns
    -------
    Tensor
        ``rr_t``, ``[T, ...]``, with the sum ``G``.
    """
    return contribution + (return_ - contribution.sum(0)) / len(contribution)


@dataclass(frozen=True)
class Account:
    """Sums over the running episode of each of N lanes.

    Attributes
    ----------
    earned : Tensor
        Sum of the episode's rewards so far, float64 ``[N]``.
    handed_out : Tensor
        Sum of its redistributed rewards so far, float64 ``[N]``.
    quality : Tensor
        Quality of predictions when it began, float32 ``[N]``; 0: it keeps its original rewards.
    """

    earned: Tensor
    handed_out: Tensor
    quality: Tensor

    @classmethod
    def empty(cls, num_lanes: int, device: torch.device | str = "cpu") -> Account:
        """Return the accounts of new lanes, whose running episodes keep their original rewards."""
        zeros = torch.zeros(num_lanes, dtype=torch.float64, device=device)
        return cls(zeros, zeros.clone(), torch.zeros(num_lanes, device=device))

    def of(self, lanes: Tensor) -> Account:
        """Return the accounts of some lanes (int64 ``[K]``)."""
        return Account(self.earned[lanes], self.handed_out[lanes], self.quality[lanes])

    def copy(self) -> Account:
        """Return a copy that shares no memory."""
        return Account(self.earned.clone(), self.handed_out.clone(), self.quality.clone())

    def put(self, lanes: Tensor, new: Account) -> None:
        """Set the accounts of some lanes (int64 ``[K]``)."""
        self.earned[lanes], self.handed_out[lanes], self.quality[lanes] = new.earned, new.handed_out, new.quality

    def close(self, lanes: Tensor) -> None:
        """Keep the original rewards in the rest of some lanes' running episodes, because a part is missing."""
        self.quality[lanes] = 0.0


@torch.no_grad()
def redistribute(
    contribution: Tensor, reward: Tensor, first: Tensor, terminated: Tensor, valid: Tensor, account: Account,
    quality: float,
) -> tuple[Tensor, Tensor, Account]:  # fmt: skip
    """Redistribute the rewards in a chunk of each of B lanes; episodes may extend over any number of chunks.

    The reward of a step is its contribution. In the chunk in which an episode terminates, the rest of its return is
    spread over its steps there:

        rr_t = h_t + (G - sum of rr before the chunk - sum of h in the chunk) / steps in the chunk

    With the whole episode in one chunk, this is `return_equivalent`. In both cases the redistributed rewards of an
    episode that terminates sum to its return. A truncated episode is not corrected: its predictions include rewards
    after the truncation, and the last steps are not to blame for their absence.

    Parameters
    ----------
    contribution, reward : Tensor
        ``h_t``, and the original rewards, floating ``[T, B]``.
    first, terminated, valid : Tensor
        Whether the row begins an episode, whether its step ends one, and whether it is a step: bool ``[T, B]``.
    account : Account
        Accounts of the lanes before the chunk.
    quality : float
        Current quality of predictions, for episodes that begin in this chunk; 0: they keep their rewards.

    Returns
    -------
    redistributed : Tensor
        Redistributed or original rewards, ``[T, B]``.
    quality : Tensor
        Quality behind each step's reward, float32 ``[T, B]``; 0: the reward is original.
    account : Account
        Accounts after the chunk.
    """
    if is_native(contribution, reward):
        return _redistribute_natively(contribution, reward, first, terminated, valid, account, quality)
    number = first.long().cumsum(0)  # of the episode in the chunk; 0: it began before the chunk
    shape = (int(number.max()) + 1, first.shape[1])

    def per_episode(values: Tensor) -> Tensor:
        return torch.zeros(shape, dtype=torch.float64, device=values.device).scatter_add_(0, number, values.double())

    is_new = torch.arange(shape[0], device=first.device).unsqueeze(1) > 0
    steps, ends = per_episode(valid), per_episode(terminated & valid) > 0
    earned = per_episode(reward * valid) + torch.where(is_new, 0.0, account.earned)
    contributed = per_episode(contribution * valid)
    before = torch.where(is_new, 0.0, account.handed_out)
    now = torch.full_like(account.quality, quality)
    qualities = torch.where(is_new, now, account.quality)

    correction = torch.where(ends, (earned - before - contributed) / steps.clamp(min=1.0), 0.0)
    of_step = qualities.gather(0, number)
    handed_out = (contribution.double() + correction.gather(0, number)).to(reward.dtype)
    redistributed = torch.where(of_step > 0, handed_out, reward) * valid

    last = number[-1:]
    given = (before + per_episode(redistributed)).gather(0, last).squeeze(0)
    after = Account(earned.gather(0, last).squeeze(0), given, qualities.gather(0, last).squeeze(0))
    return redistributed, of_step * valid, after


def _redistribute_natively(
    contribution: Tensor, reward: Tensor, first: Tensor, terminated: Tensor, valid: Tensor, before: Account,
    quality: float,
) -> tuple[Tensor, Tensor, Account]:  # fmt: skip
    """Compute in one call, bit for bit, the result of forty small operations of torch."""
    contribution, reward = contribution.contiguous(), reward.contiguous()
    first, terminated, valid = first.contiguous(), terminated.contiguous(), valid.contiguous()
    account, redistributed, of_step = before.copy(), torch.empty_like(reward), torch.empty_like(reward)
    steps, lanes = reward.shape
    _native.redistribute(
        contribution.data_ptr(), reward.data_ptr(), first.data_ptr(), terminated.data_ptr(), valid.data_ptr(), steps,
        lanes, quality, account.earned.data_ptr(), account.handed_out.data_ptr(), account.quality.data_ptr(),
        redistributed.data_ptr(), of_step.data_ptr(),
    )  # fmt: skip
    return redistributed, of_step, account


def loss_weights(valid: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weight of each step's squared error in the predictor's losses.

    Parameters
    ----------
    valid : Tensor
        bool ``[T, N]``: the first T_n rows of episode n are its steps.

    Returns
    -------
    main, auxiliary : Tensor
        float32 ``[T, N]``: 1/N at the last step of each episode, and 1/(N T_n) at every step.
    """
    steps, rows = valid.sum(0), torch.arange(len(valid), device=valid.device).unsqueeze(1)
    return (rows == steps - 1).float() / valid.shape[1], valid.float() / steps / valid.shape[1]


def return_losses(prediction: Tensor, return_: Tensor, main: Tensor, auxiliary: Tensor) -> tuple[Tensor, Tensor]:
    """Return the losses of the predictor: ``(g_T-1 - G)^2``, and the mean over all steps of ``(g_t - G)^2``.

    Both are means over episodes of squared errors, so that errors of opposite sign do not cancel.

    Parameters
    ----------
    prediction : Tensor
        ``g_t`` after each step, or after some of the steps, ``[T, N]``.
    return_ : Tensor
        ``G``, ``[N]``.
    main, auxiliary : Tensor
        Weights of these steps from `loss_weights`.

    Returns
    -------
    main, auxiliary : Tensor
        0-dimensional.
    """
    error = (prediction - return_).square()
    return (main * error).sum(), (auxiliary * error).sum()


def variance_to_explain(recent: float, of_all: float) -> float:
    """Return the variance that predictions have to explain, ``max(Var G, Var of all G / 4)``.

    The returns of a trained policy become similar, and their mean alone predicts them well. A predictor with an error
    of half the deviation of all returns still tells which steps earn them.

    Parameters
    ----------
    recent, of_all
        Variance of the returns of the last episodes, and of all so far.
    """
    return max(recent, of_all / 4.0)


def squared_error(return_: float, prediction: float, mean: float, variance: float) -> float:
    """Return a bounded squared error of a predicted return, ``min((G - g)^2, max((G - mean G)^2, Var G))``.

    The bound is the error of the mean as a prediction, or the variance: in an episode longer than any before, the error
    may be a hundred deviations, which is not representative.

    Parameters
    ----------
    return_, prediction
        ``G`` and ``g``.
    mean, variance
        Mean of ``G``, and `variance_to_explain`.
    """
    return min((return_ - prediction) ** 2, max((return_ - mean) ** 2, variance))


def unexplained(error: float, variance: float) -> float:
    """Return the share of the returns' variance that is unexplained, ``mean (G - g)^2 / Var G``, 1 at most.

    The authors' code uses ``(G - g)^2 / (G^2 + sqrt(mean G))`` of each episode. If nearly all returns are equal, such
    as 1 in one of fifty episodes and 0 in the others, that is small for a prediction of the mean, while this share is
    about 1; for returns near 0 it is large even for good predictions.

    Parameters
    ----------
    error, variance
        Mean `squared_error`, and `variance_to_explain`; 1 is returned for a variance of 0.
    """
    return min(1.0, error / variance) if variance > 0.0 else 1.0


def gate(error: float, complete: float, max_error: float) -> float:
    """Return the quality of predictions, ``1 - error``, or 0 if they are not to be used.

    Parameters
    ----------
    error
        Share that is `unexplained`.
    complete
        Mean of `completeness`, which must be in `COMPLETE`.
    max_error
        Error from which on predictions are not used.
    """
    low, high = COMPLETE
    return 1.0 - error if error < max_error and low <= complete <= high else 0.0


@torch.no_grad()
def trace(reward: Tensor, goes_on: Tensor, lambda_: float) -> Tensor:
    """Return the backward trace ``z_t = rr_t + lambda k_t z_t+1``, which ends with each episode.

    Parameters
    ----------
    reward : Tensor
        ``rr_t``, ``[T, B]``.
    goes_on : Tensor
        ``k_t``, bool ``[T, B]``: whether the episode continues after the step.
    lambda_ : float
        Weight of the next step.

    Returns
    -------
    Tensor
        ``z_t``, ``[T, B]``.
    """
    traced = reward.clone()
    for t in range(len(reward) - 2, -1, -1):
        traced[t] += lambda_ * goes_on[t] * traced[t + 1]
    return traced


@torch.no_grad()
def mixed_advantage(advantage: Tensor, redistributed: Tensor, quality: Tensor | float, share: float) -> Tensor:
    """Return advantages mixed with redistributed rewards by their quality.

        A_mixed = (1 - share) A + share (q rr + (1 - q) A)

    Parameters
    ----------
    advantage : Tensor
        ``A``, of original rewards, with mean 0 and deviation 1.
    redistributed : Tensor
        ``rr``, of the same shape.
    quality : Tensor or float
        ``q``, from 0 (``A`` is unchanged) to 1.
    share : float
        Largest share of redistributed rewards.
    """
    return (1.0 - share) * advantage + share * (quality * redistributed + (1.0 - quality) * advantage)
