"""Layers with noise on their weights, for exploration (NoisyNets, arXiv:1706.10295).

Noise is an argument of a forward pass, not a part of the network or its weights; without it a network uses its mean
weights.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

TABLE_SIZE = 1 << 18
MANY_ROWS = 512  # that share one noise: few algorithms without implicit quantiles have as many


class NoisyLinear(nn.Linear):
    """A linear layer with factorised Gaussian noise on weights and biases (arXiv:1706.10295, section 3).

        y = (mu_w + sigma_w * eps_w) x + mu_b + sigma_b * eps_b
        eps_w[i, j] = f(e_i) f(e_j),  eps_b[i] = f(e_i),  f(x) = sign(x) sqrt(|x|),  e ~ N(0, 1)

    The mean weights are ``weight`` and ``bias``, initially uniform within 1/sqrt(inputs); all sigmas, including those
    of the biases, start at ``sigma`` / sqrt(inputs).

    Because the noise is a product, no noisy weight matrix has to be formed: the noise multiplies inputs and outputs of
    a second linear map. Each row of a batch may therefore have its own noise. Only if many rows share one noise, as in
    updates of implicit quantiles, is the matrix formed, which saves the second product.

    Parameters
    ----------
    in_features, out_features : int
        Numbers of inputs and outputs.
    sigma : float
        ``sigma_0``; 0.5 in the paper.

    Attributes
    ----------
    noise_size : int
        Random numbers ``f(e)`` per pass: one for each input, then one for each output.
    """

    def __init__(self, in_features: int, out_features: int, sigma: float) -> None:
        super().__init__(in_features, out_features)  # torch's initialisation is the paper's
        start = sigma / math.sqrt(in_features)
        self.sigma_weight = nn.Parameter(torch.full((out_features, in_features), start))
        self.sigma_bias = nn.Parameter(torch.full((out_features,), start))
        self.noise_size = in_features + out_features

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """Map ``[..., in_features]`` to ``[..., out_features]``.

        Parameters
        ----------
        x : Tensor
            Input.
        noise : Tensor, optional
            ``f(e)``, float32 broadcast to ``[..., noise_size]``; default: mean weights.
        """
        if noise is not None and noise.numel() == self.noise_size and x.numel() >= MANY_ROWS * self.in_features:
            into, out_of = noise.flatten().split((self.in_features, self.out_features))
            weight = torch.addcmul(self.weight, torch.outer(out_of, into), self.sigma_weight)
            return linear(x, weight, torch.addcmul(self.bias, out_of, self.sigma_bias))
        y = super().forward(x)
        if noise is None:
            return y
        into, out_of = noise.split((self.in_features, self.out_features), -1)
        return torch.addcmul(y, out_of, linear(into * x, self.sigma_weight, self.sigma_bias))


def draw_noise(size: int, generator: torch.Generator) -> Tensor:
    """Draw ``size`` independent numbers ``f(e)``, float32 ``[size]``, on the generator's device."""
    return _signed_root(torch.randn(size, generator=generator, device=generator.device))


def noise_of_lanes(number: Tensor, size: int) -> Tensor:
    """Return the noise of each lane, selected by its random number: a stretch of a fixed table of normal numbers.

    A number gives the same noise in any role, on any device and in any batch. Evolution strategies take noise from a
    table in the same way (arXiv:1703.03864, section 2.1).

    Parameters
    ----------
    number : Tensor
        Uniform in [0, 1), float32 ``[N, 1]``.
    size : int
        Random numbers ``f(e)`` per lane.

    Returns
    -------
    Tensor
        float32 ``[N, size]``.
    """
    begin = (number * TABLE_SIZE).long()
    return _table(size, number.device)[begin + torch.arange(size, device=number.device)]


@functools.cache
def _table(more: int, device: torch.device) -> Tensor:
    """Return ``f(e)`` of normal numbers: one per starting place, plus `more`."""
    with torch.inference_mode(False):  # cached beyond the first caller's context
        generator = torch.Generator().manual_seed(0)
        return draw_noise(TABLE_SIZE + more, generator).to(device)


def _signed_root(x: Tensor) -> Tensor:
    return x.sign() * x.abs().sqrt()
