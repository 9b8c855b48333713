"""Whether the returns that C51 can say hold the returns that there are."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

UPDATES_BETWEEN_LOOKS = 100
WORTH_A_REMARK = 0.01  # of the targets


class SupportWatch:
    """Measures how many targets lie outside of the support, and remarks it once if they are many.

    A target outside is cut off: what it is beyond the bound is never learned.

    Parameters
    ----------
    v_min, v_max
        The support.
    remark
        Called with the remark.

    Attributes
    ----------
    last
        Share of the last batch's targets that lie outside, 0-dimensional.
    """

    last: Tensor

    def __init__(self, v_min: float, v_max: float, remark: Callable[[str], object]) -> None:
        self._bounds = v_min, v_max
        self._remark = remark
        self._seen: list[Tensor] = []
        self._has_remarked = False

    def see(self, target: Tensor, number: int) -> None:
        """Take in the mean targets of a batch, ``[B]``, before they are projected; `number` is the update's."""
        low, high = self._bounds
        rounding = 1e-5 * (high - low)
        outside = (target < low - rounding) | (target > high + rounding)
        self.last = outside.float().mean()
        if self._has_remarked:
            return
        self._seen.append(torch.stack((self.last, target.min(), target.max())))
        if number % UPDATES_BETWEEN_LOOKS == 0:
            self._look()

    def _look(self) -> None:
        low, high = self._bounds
        shares, least, largest = torch.stack(self._seen).unbind(1)
        share = shares.mean().item()
        self._seen.clear()
        if share < WORTH_A_REMARK:
            return
        self._has_remarked = True
        self._remark(
            f"{share:.0%} of the targets lie outside the support, v_min={low:g} to v_max={high:g}, and are cut off: "
            f"they go from {least.min().item():.4g} to {largest.max().item():.4g}; widen the support, or lower "
            "reward_scale or gamma"
        )
