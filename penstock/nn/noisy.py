"""Layers with noise on their weights: a network that explores by itself (NoisyNets, arXiv:1706.10295).

Noise is an argument of a pass, never a part of the network: it does not travel with the weights, and without it a
network gives what its mean weights give.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

TABLE_SIZE = 1 << 18


class NoisyLinear(nn.Linear):
    """A linear layer with factorised Gaussian noise on weights and biases (arXiv:1706.10295, section 3).

        y = (mu_w + sigma_w * eps_w) x + mu_b + sigma_b * eps_b
        eps_w[i, j] = f(e_i) f(e_j),  eps_b[i] = f(e_i),  f(x) = sign(x) sqrt(|x|),  e ~ N(0, 1)

    The mean weights are ``weight`` and ``bias``. They start uniform within 1/sqrt(inputs), and all sigmas, those of the
    biases too, at ``sigma`` / sqrt(inputs).

    Because the noise is a product, no noisy weight is ever made: the noise multiplies what goes in and what comes out
    of a second linear map. So each row of a batch may have noise of its own.

    Parameters
    ----------
    in_features, out_features : int
        Widths of what goes in and what comes out.
    sigma : float
        ``sigma_0``; published is 0.5.

    Attributes
    ----------
    noise_size : int
        How many numbers ``f(e)`` one pass takes: one for each input, then one for each output.
    """

    def __init__(self, in_features: int, out_features: int, sigma: float) -> None:
        super().__init__(in_features, out_features)  # torch's own beginning is the paper's
        start = sigma / math.sqrt(in_features)
        self.sigma_weight = nn.Parameter(torch.full((out_features, in_features), start))
        self.sigma_bias = nn.Parameter(torch.full((out_features,), start))
        self.noise_size = in_features + out_features

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """Turn ``[..., in_features]`` into ``[..., out_features]``.

        Parameters
        ----------
        x : Tensor
            What goes in.
        noise : Tensor, optional
            ``f(e)``, float32 broadcast to ``[..., noise_size]``; the mean weights are taken when left out.
        """
        y = super().forward(x)
        if noise is None:
            return y
        into, out_of = noise.split((self.in_features, self.out_features), -1)
        return torch.addcmul(y, out_of, linear(into * x, self.sigma_weight, self.sigma_bias))


def draw_noise(size: int, generator: torch.Generator) -> Tensor:
    """Draw ``size`` independent numbers ``f(e)``, float32 ``[size]``, on the generator's device."""
    return _signed_root(torch.randn(size, generator=generator, device=generator.device))


def noise_of_lanes(number: Tensor, size: int) -> Tensor:
    """Noise of each lane by its own random number: a stretch of one fixed table of normal numbers.

    The same number gives the same noise, in any role, on any device and in any batch. Evolution strategies take noise
    from a table in the same way (arXiv:1703.03864, section 2.1).

    Parameters
    ----------
    number : Tensor
        Uniform in [0, 1), float32 ``[N, 1]``.
    size : int
        How many numbers ``f(e)`` each lane needs.

    Returns
    -------
    Tensor
        float32 ``[N, size]``.
    """
    begin = (number * TABLE_SIZE).long()
    return _table(size, number.device)[begin + torch.arange(size, device=number.device)]


@functools.cache
def _table(more: int, device: torch.device) -> Tensor:
    """``f(e)`` of as many normal numbers as there are places to begin at, and of ``more``."""
    with torch.inference_mode(False):  # it outlives who asks for it first
        generator = torch.Generator().manual_seed(0)
        return draw_noise(TABLE_SIZE + more, generator).to(device)


def _signed_root(x: Tensor) -> Tensor:
    return x.sign() * x.abs().sqrt()
