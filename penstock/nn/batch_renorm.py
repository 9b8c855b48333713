"""Batch renormalisation, and the networks of CrossQ that are normalised by it (arXiv:1902.05605)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from penstock.nn.continuous import Critics, StackedLinear, StochasticActorCritic
from penstock.nn.mlp import MLP, SideBySide
from penstock.nn.model import NetworkConfig
from penstock.nn.norms import BatchNorm, normalized
from penstock.nn.observations import encoder_input_size
from penstock.nn.sharing import is_in_share, moments_of_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.envs.spaces import ActionSpec, ObservationSpec
    from penstock.nn.encoders import Seen

EPSILON = 1e-3
WARM_UP = 100_000  # batches normalised by their own moments alone
R_MAX, D_MAX = 3.0, 5.0


class BatchRenorm(BatchNorm):
    """Normalises each feature by a batch's moments, corrected towards running ones (arXiv:1702.03275, algorithm 1).

        y = (x - mean_B) / std_B * r + d
        r = clip(std_B / std, 1 / 3, 3),    d = clip((mean_B - mean) / std, -5, 5)

    No gradient passes through ``r`` and ``d``. For the first 100,000 batches they are 1 and 0, which is plain batch
    normalisation. Outside updates the running moments are used: ``y = (x - mean) / std``. A learned scale and shift
    follow.

    Parameters
    ----------
    shape : tuple of int
        Shape of the moments: ``(1, F)`` for inputs ``[N, F]``, or ``(C, 1, F)`` for those of ``C`` networks.

    Attributes
    ----------
    batches : Tensor
        Number of batches in the moments, int64 ``[]``.
    """

    epsilon = EPSILON
    batches: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.register_buffer("batches", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        std = (self.var + EPSILON).sqrt()
        if not self.training:
            scale = self.scale / std
            return torch.addcmul(self.shift - self.mean * scale, x, scale)
        var, mean = moments_of_rows(x)
        batch_std = (var + EPSILON).sqrt()
        self.seen = mean.detach(), var.detach()
        is_warm = self.batches >= WARM_UP  # stays a tensor, to avoid synchronisation
        r = torch.where(is_warm, (batch_std.detach() / std).clamp(1.0 / R_MAX, R_MAX), 1.0)
        d = torch.where(is_warm, ((mean.detach() - self.mean) / std).clamp(-D_MAX, D_MAX), 0.0)
        scale, shift = self.scale * r, torch.addcmul(self.shift, self.scale, d)
        if is_in_share():
            return torch.addcmul(shift, (x - mean) / batch_std, scale)
        return normalized(x, scale, shift, EPSILON)[0]

    @torch.no_grad()
    def update_moments(self, nonfinite: Tensor | None = None) -> None:
        """Update the running moments with those of the last batch, after an update, and count it. See `BatchNorm`."""
        super().update_moments(nonfinite)
        self.batches.add_(1 if nonfinite is None else (nonfinite == 0.0).long())


class NormalizedMLP(nn.Module):
    """Layers of an mlp encoder, with normalised input and hidden layers.

    Parameters
    ----------
    mlp : MLP
        Encoder that provides the layers.
    input_size : int
        Number of inputs.
    """

    def __init__(self, mlp: MLP, input_size: int) -> None:
        super().__init__()
        layers = [layer for layer in mlp if isinstance(layer, nn.Linear)]
        self.side_by_side = SideBySide()
        self.layers = nn.ModuleList(layers)
        self.activation = next((layer for layer in mlp if not isinstance(layer, nn.Linear | SideBySide)), nn.Identity())
        self.norms = nn.ModuleList(BatchRenorm((1, size)) for size in (input_size, *(x.out_features for x in layers)))

    def forward(self, x: Seen) -> Tensor:
        """Convert the first stage's output into features ``[N, F]``."""
        features: Tensor = self.norms[0](self.side_by_side(x))
        for layer, norm in zip(self.layers, self.norms[1:], strict=True):
            features = norm(self.activation(layer(features)).float())
        return features


class NormalizedCritics(Critics):
    """Critics with normalised input and hidden layers, each with its own moments. See :class:`Critics`."""

    def __init__(
        self, input_size: int, hidden_sizes: tuple[int, ...], activation: str, num_critics: int, num_quantiles: int = 1
    ) -> None:
        super().__init__(input_size, hidden_sizes, activation, num_critics, num_quantiles)
        self.norms = nn.ModuleList(BatchRenorm((num_critics, 1, size)) for size in (input_size, *hidden_sizes))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norms[0](x.expand(self.num_critics, *x.shape))
        for layer, norm in zip(cast("Iterable[StackedLinear]", self.hidden), self.norms[1:], strict=True):
            x = norm(self.activation(layer(x)).float())
        return self.values(x)

    def first(self, x: Tensor) -> Tensor:
        """Return the first critic's values ``[N]`` of inputs ``[N, I]``; all critics run."""
        return self(x)[0]


class NormalizedActorCritic(StochasticActorCritic):
    """SAC's network with batch renormalisation in the critics and, for vectors, in the actor, for CrossQ.

    Encoders of images and custom encoders stay unchanged; the critics' layers over their features are normalised.

    Parameters
    ----------
    observation, action, config, **settings
        As for :class:`StochasticActorCritic`.
    """

    def __init__(
        self, observation: ObservationSpec, action: ActionSpec, config: NetworkConfig, **settings: Any
    ) -> None:
        super().__init__(observation, action, config, make_critics=NormalizedCritics, **settings)
        if isinstance(self.encoder, MLP):
            self.encoder = NormalizedMLP(self.encoder, encoder_input_size(observation))
