"""From the actions a policy chooses to the actions an environment takes."""

from __future__ import annotations

import numpy as np

from penstock.envs.spaces import ActionSpec


class ActionDecoder:
    """Turns a batch of policy actions into a fresh batch of environment actions.

    Discrete actions are shifted by ``start``. Of a continuous action, a dimension with two bounds is scaled from
    [-1, 1] to them and clipped, one with a single bound is clipped at it, one without bounds is passed on.
    """

    def __init__(self, spec: ActionSpec) -> None:
        self._spec = spec
        self._dtype = np.dtype(spec.dtype)
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
        """Return ``[N, *spec.shape]`` of the environment's dtype for ``[N]`` int64 or ``[N, d]`` float32 actions."""
        spec = self._spec
        if spec.is_discrete:
            return actions.astype(self._dtype) + spec.start if spec.start else actions.astype(self._dtype)
        if self._is_bounded:
            actions = np.minimum(np.maximum(actions * self._scale + self._centre, self._low), self._high)
        if self._dtype.kind != "f":
            actions = np.rint(actions)
        return actions.astype(self._dtype).reshape(len(actions), *spec.shape)
