"""What an encoder sees: observations as float32, whatever they are in their column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from penstock.nn.normalization import RunningMoments

if TYPE_CHECKING:
    from penstock.envs.spaces import ObservationSpec


def encoder_input_shape(observation: ObservationSpec) -> tuple[int, ...]:
    """Shape of one observation as an encoder sees it: one-hot if discrete, a vector of one if a scalar."""
    if observation.num_values is not None:
        return (observation.num_values,)
    return observation.shape or (1,)


class ObservationInput(nn.Module):
    """First stage of every network: bytes become [0, 1], discrete values one-hot, floats normalised if asked.

    Parameters
    ----------
    observation : ObservationSpec
        What the column holds.
    normalize : bool
        Subtract the running mean from each element and divide by its running standard deviation, where
        observations are floating point in their column; others have a known range already.
    """

    def __init__(self, observation: ObservationSpec, normalize: bool) -> None:
        super().__init__()
        is_float = observation.dtype.startswith("float")
        self.num_values = observation.num_values
        self.is_bytes = observation.dtype == "uint8"
        self.is_scalar = not observation.shape and observation.num_values is None
        self.moments = RunningMoments(encoder_input_shape(observation)) if normalize and is_float else None

    def forward(self, observation: Tensor) -> Tensor:
        """Turn observations ``[N, *shape]`` as they lie in their column into float32 ``[N, *encoder_input_shape]``."""
        if self.num_values is not None:
            one_hot = torch.zeros(observation.shape[0], self.num_values, device=observation.device)
            return one_hot.scatter_(1, observation.unsqueeze(-1), 1.0)
        x = observation / 255.0 if self.is_bytes else observation.float()
        if self.is_scalar:
            x = x.unsqueeze(-1)
        return x if self.moments is None else self.moments.normalize(x)
