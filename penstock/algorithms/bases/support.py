"""Whether the returns that C51 can say hold the returns that there are."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from penstock.algorithms.arithmetic.rescaling import rescale

UPDATES_BETWEEN_LOOKS = 100
WORTH_A_REMARK = 0.01  # of the targets


class SupportWatch:
    """Measures how many targets lie outside of the support, and remarks it once if they are many.

    A target outside is cut off: what it is beyond the bound is never learned. Targets lie one step beyond the support
    at most, as they are made of values that were cut off. The remark therefore says a support that is wide enough, too:
    from the least to the largest return that there would be if one of the transitions seen came for ever,
    ``R / (1 - disc)``. No return of these transitions, in whatever order, lies outside.

    Parameters
    ----------
    v_min, v_max
        The support.
    remark
        Called with the remark.
    rescaled
        Whether targets, and so the support, are of rescaled returns.

    Attributes
    ----------
    last
        Share of the last batch's targets that lie outside, 0-dimensional.
    """

    last: Tensor

    def __init__(self, v_min: float, v_max: float, remark: Callable[[str], object], *, rescaled: bool = False) -> None:
        self._bounds = v_min, v_max
        self._remark = remark
        self._rescaled = rescaled
        self._shares: list[Tensor] = []
        self._least = torch.full((3,), math.inf)
        self._largest = -self._least
        self._has_remarked = False

    def see(self, target: Tensor, reward: Tensor, discount: Tensor, number: int) -> None:
        """Take in a batch before its targets are projected.

        Parameters
        ----------
        target
            Their means, float32 ``[B]``.
        reward, discount
            ``R`` and ``disc`` of the transitions, float32 ``[B]``.
        number
            That of the update.
        """
        low, high = self._bounds
        rounding = 1e-5 * (high - low)
        outside = (target < low - rounding) | (target > high + rounding)
        self.last = outside.float().mean()
        if self._has_remarked:
            return
        for_ever = torch.where(reward == 0.0, 0.0, reward / (1.0 - discount))
        of_batch = torch.stack((target, reward, rescale(for_ever) if self._rescaled else for_ever))
        self._least = torch.minimum(self._least.to(of_batch.device), of_batch.amin(1))
        self._largest = torch.maximum(self._largest.to(of_batch.device), of_batch.amax(1))
        self._shares.append(self.last)
        if number % UPDATES_BETWEEN_LOOKS == 0:
            self._look()

    def _look(self) -> None:
        share = torch.stack(self._shares).mean().item()
        self._shares.clear()
        if share < WORTH_A_REMARK:
            return
        self._has_remarked = True
        (low, high), least, largest = self._bounds, self._least.tolist(), self._largest.tolist()
        targets, rewards, returns = (f"{a:.4g} to {b:.4g}" for a, b in zip(least, largest, strict=True))
        if math.isfinite(largest[2] - least[2]):
            advice = f"no return of such rewards lies outside {returns}; give that"
        else:
            advice = "undiscounted, such rewards bound no return; widen the support"
        self._remark(
            f"{share:.0%} of the targets lie outside the support, v_min={low:g} to v_max={high:g}, and are cut off: "
            f"they go from {targets}, and rewards, summed over n_step, from {rewards}; {advice}, or lower "
            "reward_scale or gamma"
        )
