"""Values of normalised returns: a running mean and deviation of returns, which head layers follow."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from penstock.nn.noisy import NoisyLinear
from penstock.nn.observations import RunningMoments

# With rare rewards the first returns hardly vary: in units of their deviation the first reward would be immense.
RETURN_PRIOR_ROWS = 1_000.0


class NormalizedReturns(nn.Module):
    """Base of networks whose value head may predict returns minus their running mean, in units of their deviation.

    Attributes
    ----------
    return_moments : RunningMoments or None
        Moments of returns, part of the weights; None: the head predicts returns.
    """

    return_moments: RunningMoments | None

    def value_layers(self) -> Iterable[tuple[nn.Linear, bool]]:
        """Return the layers whose sum is the value, each with whether its bias has a part in the value's mean."""
        raise NotImplementedError

    def denormalize_value(self, value: Tensor) -> Tensor:
        """Convert values of the head into returns; unchanged without normalisation of returns."""
        return value if self.return_moments is None else self.return_moments.denormalize(value)

    def normalize_return(self, target: Tensor) -> Tensor:
        """Convert returns into targets for the head, without clipping: the inverse of :meth:`denormalize_value`."""
        return target if self.return_moments is None else self.return_moments.normalize(target, clip=math.inf)

    def normalize_difference(self, difference: Tensor) -> Tensor:
        """Convert differences of returns, such as advantages, into units of the head."""
        return difference if self.return_moments is None else difference / self.return_moments.std

    @torch.no_grad()
    def update_return_statistics(
        self, target: Tensor, mask: Tensor | None = None, copies: Iterable[NormalizedReturns] = ()
    ) -> None:
        """Update the running moments with returns, and keep the value head's predictions.

        When the moments ``(m, s)`` change to ``(m', s')``, the head becomes ``W' = s / s' W`` and
        ``b' = (s b + m - m') / s'``: denormalised values stay the same (PopArt, arXiv:1602.07714, proposition 1).
        Otherwise every update of the moments would shift bootstrapped targets, which feed back into the moments.

        Parameters
        ----------
        target : Tensor
            Returns, ``[...]``, in the units of :meth:`denormalize_value`.
        mask : Tensor, optional
            Returns that count, bool ``[...]``; default: all.
        copies : iterable of NormalizedReturns
            Networks that share these moments, such as a target network: their predictions are kept, too.
        """
        moments = self.return_moments
        if moments is None:
            return
        mean, std = moments.mean.clone(), moments.std.clone()
        moments.update(target, mask)
        for network in (self, *copies):
            for layer, has_mean in network.value_layers():
                layer.bias.mul_(std).add_(mean - moments.mean if has_mean else 0.0).div_(moments.std)
                noise = (layer.sigma_weight, layer.sigma_bias) if isinstance(layer, NoisyLinear) else ()
                for weight in (layer.weight, *noise):
                    weight.mul_(std / moments.std)
