"""Actions of lanes: the random numbers behind them, and their conversion into an environment's actions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from penstock.envs.spaces import ActionSpec


class ActionDecoder:
    """Converts batches of policy actions into new environment actions.

    Choices are shifted by the environment's number for value 0. A number with two bounds is scaled from [-1, 1] to them
    and clipped; with one bound it is clipped there; without bounds it is unchanged.
    """

    def __init__(self, spec: ActionSpec) -> None:
        self._spec = spec
        self._leaves = []
        begins = {"choices": 0, "numbers": len(spec.choices)}  # columns of the next leaf
        for leaf in spec.leaves:
            what = "choices" if leaf.choices else "numbers"
            begin = begins[what]
            begins[what] = end = begin + leaf.noise_size
            columns = ... if spec.is_discrete else np.s_[:, begin] if leaf.is_discrete else np.s_[:, begin:end]
            self._leaves.append(_LeafDecoder(leaf, columns))

    def __call__(self, actions: np.ndarray) -> Any:
        """Return the actions for a vector environment: ``[N, *shape]``, or Dicts and Tuples of such.

        Parameters
        ----------
        actions
            ``[N, *spec.column_shape]`` of the dtype ``spec.column_dtype``.
        """
        return _arranged(self._spec, (leaf(actions) for leaf in self._leaves))

    def each(self, actions: np.ndarray) -> list[Any]:
        """Return the same actions for N single environments."""
        if not self._spec.parts:
            return self._leaves[0].each(actions)
        members = zip(*(leaf.each(actions) for leaf in self._leaves), strict=True)
        return [_arranged(self._spec, iter(member)) for member in members]


class _LeafDecoder:
    """Decoder of the columns of a policy's actions that belong to one leaf."""

    def __init__(self, spec: ActionSpec, columns: Any) -> None:
        self._spec = spec
        self._is_discrete = spec.is_discrete
        self._columns = columns
        self._dtype = np.dtype(spec.dtype)
        self._starts = np.array(spec.starts, np.int64)
        if spec.low is None or spec.high is None:
            return
        self._low, self._high = np.array(spec.low), np.array(spec.high)
        has_low, has_high = np.isfinite(self._low), np.isfinite(self._high)
        self._is_bounded = bool((has_low | has_high).any())
        bounded = has_low & has_high
        # Scaling [-1, 1] to itself leaves the other dimensions unchanged.
        low, high = np.where(bounded, self._low, -1.0), np.where(bounded, self._high, 1.0)
        self._scale, self._centre = (high - low) / 2, (high + low) / 2

    def __call__(self, actions: np.ndarray) -> np.ndarray:
        spec, chosen = self._spec, actions[self._columns]
        if self._is_discrete:
            return chosen.astype(self._dtype) + spec.start if spec.start else chosen.astype(self._dtype)
        if spec.nvec:
            chosen = chosen.astype(np.int64) + self._starts
        else:
            if self._is_bounded:
                chosen = np.minimum(np.maximum(chosen * self._scale + self._centre, self._low), self._high)
            if self._dtype.kind != "f":
                chosen = np.rint(chosen)
        return chosen.astype(self._dtype).reshape(len(actions), *spec.shape)

    def each(self, actions: np.ndarray) -> list[Any]:
        decoded = self(actions)
        return decoded.tolist() if self._is_discrete else list(decoded)


def _arranged(spec: ActionSpec, leaves: Iterator[Any]) -> Any:
    """Arrange the leaves of one action, or of a batch, in the space's Dicts and Tuples."""
    if not spec.parts:
        return next(leaves)
    members = [(key, _arranged(part, leaves)) for key, part in spec.parts]
    return dict(members) if members[0][0] is not None else tuple(member for _, member in members)


BLOCK = 128  # steps drawn ahead, to loop over lanes only once per block


class NoiseStreams:
    """Random numbers for the actions of lanes, a stream per lane, whatever the device and the batches of requests.

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
