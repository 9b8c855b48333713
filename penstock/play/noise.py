"""Random numbers behind actions: a stream per lane, keyed by (seed, lane, incarnation)."""

from __future__ import annotations

from typing import Literal

import numpy as np

BLOCK = 128  # steps drawn ahead, to loop over lanes only once per block


class NoiseStreams:
    """Noise for the actions of lanes, independent of where the network runs and how requests are batched.

    Parameters
    ----------
    kind
        "uniform": in [0, 1); "normal": standard normal.
    size
        Random numbers per action.
    lanes
        Numbers of the lanes among all lanes of the run.
    seed, incarnation
        Seed of the run, and number of restarts of these lanes' worker.
    """

    def __init__(
        self, kind: Literal["uniform", "normal"], size: int, lanes: range, *, seed: int, incarnation: int
    ) -> None:
        # The last number separates these streams from the environments' seeds.
        keys = [np.random.SeedSequence([seed, lane, incarnation, 1]) for lane in lanes]
        self._generators = [np.random.Generator(np.random.SFC64(key)) for key in keys]
        self._kind = kind
        self._block = np.empty((BLOCK, len(lanes), size), np.float32)
        self._next = BLOCK

    def draw(self) -> np.ndarray:
        """Return the next numbers of every lane, float32 ``[N, size]``: a view, valid for one step."""
        if self._next == BLOCK:
            for i, generator in enumerate(self._generators):
                draw = generator.random if self._kind == "uniform" else generator.standard_normal
                self._block[:, i] = draw(self._block[:, i].shape, np.float32)
            self._next = 0
        self._next += 1
        return self._block[self._next - 1]
