"""A network for connect four: any four in a line lie in a square of four by four, which one convolution covers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from penstock.envs.spaces import ObservationSpec

COLUMNS, ROWS, SIDE = 7, 6, 4


class Fours(nn.Module):
    """Features float32 ``[N, 128]`` of boards ``[N, 84]``.

    Besides both players' discs, the convolution sees the cell where the next disc of each column would land: a line of
    three is a threat if its fourth cell is one of these.
    """

    output_size = 128

    def __init__(self, observation: ObservationSpec) -> None:
        super().__init__()
        channels = 64
        self.layers = nn.Sequential(
            nn.Conv2d(3, channels, SIDE),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(channels * (COLUMNS - SIDE + 1) * (ROWS - SIDE + 1), self.output_size),
            nn.ReLU(),
            nn.Linear(self.output_size, self.output_size),
            nn.ReLU(),
        )

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        """Return the features of the board, the only part of an observation besides the mask."""
        (board,) = observation.values()
        discs = board.unflatten(1, (2, COLUMNS, ROWS))
        taken = discs.sum(1, keepdim=True)
        supported = nn.functional.pad(taken[..., :-1], (1, 0), value=1.0)
        features: Tensor = self.layers(torch.cat((discs, supported - taken), 1))
        return features
