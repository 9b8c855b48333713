"""From the actions a policy chooses to the actions an environment takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.envs.spaces import ActionSpec


class ActionDecoder:
    """Turns a batch of policy actions into fresh environment actions.

    Choices are shifted by what the environment calls value 0. Of the numbers, one with two bounds is scaled from
    [-1, 1] to them and clipped, one with a single bound is clipped at it, one without bounds is passed on.
    """

    def __init__(self, spec: ActionSpec) -> None:
        self._spec = spec
        self._leaves = []
        begins = {"choices": 0, "numbers": len(spec.choices)}  # of the next leaf's columns
        for leaf in spec.leaves:
            what = "choices" if leaf.choices else "numbers"
            begin = begins[what]
            begins[what] = end = begin + leaf.noise_size
            columns = ... if spec.is_discrete else np.s_[:, begin] if leaf.is_discrete else np.s_[:, begin:end]
            self._leaves.append(_LeafDecoder(leaf, columns))

    def __call__(self, actions: np.ndarray) -> Any:
        """Return what a vector environment takes: ``[N, *shape]``, or Dicts and Tuples of such.

        Parameters
        ----------
        actions
            ``[N, *spec.column_shape]`` of the dtype ``spec.column_dtype``.
        """
        return _arranged(self._spec, (leaf(actions) for leaf in self._leaves))

    def each(self, actions: np.ndarray) -> list[Any]:
        """Return what each of N single environments takes, for the same actions."""
        if not self._spec.parts:
            return self._leaves[0].each(actions)
        members = zip(*(leaf.each(actions) for leaf in self._leaves), strict=True)
        return [_arranged(self._spec, iter(member)) for member in members]


class _LeafDecoder:
    """Decodes the columns of a policy's actions that belong to one leaf."""

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
        # Scaling [-1, 1] to itself leaves the other dimensions as they are.
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
    """Arrange the leaves of one action, or of a batch, as the Dicts and Tuples of the space have them."""
    if not spec.parts:
        return next(leaves)
    members = [(key, _arranged(part, leaves)) for key, part in spec.parts]
    return dict(members) if members[0][0] is not None else tuple(member for _, member in members)
