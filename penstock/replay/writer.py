"""Writing steps into a replay buffer."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from penstock._native import ReplayCore, ReplayWriter
from penstock.replay.conversion import convert
from penstock.replay.limiter import RateLimiter


class Writer:
    """Writes the steps of one or several lanes of one process; made by ``ReplayBuffer.writer``.

    A writer copied by a fork goes on as a new one: what was unfinished stays with the parent.
    """

    def __init__(
        self, core: ReplayCore, limiter: RateLimiter | None, lanes: int, timeout: float | None
    ) -> None:
        if lanes < 1:
            raise ValueError(f"lanes={lanes} is not legal: give 1 or more")
        self._limiter = limiter
        self._timeout = timeout
        self._lanes = lanes
        self._native = ReplayWriter(core, lanes, secrets.randbits(64), convert)

    @property
    def lanes(self) -> int:
        """How many lanes step together."""
        return self._lanes

    def add(self, **steps: Any) -> int | None:
        """Write one step of every lane, or with one lane a step or ``[k, ...]`` successive ones.

        Parameters
        ----------
        **steps
            A value for every field: ``[*shape]`` or ``[k, *shape]`` with one lane, else ``[lanes, *shape]``. Also
            ``terminated`` and ``truncated``, which end an episode whether they are fields or not; ``priorities`` (one
            for all or one for each step; the largest given so far by default); ``mask``, bool ``[lanes]``: the lanes
            that take part in this step.

        Returns
        -------
        int or None
            The id of the first row that was finished by these steps; None if none was.

        Raises
        ------
        KeyError, TypeError, ValueError
            If a field is missing, unknown, or its value has the wrong shape, dtype or range; nothing is written.
        NotReady
            If the rate limiter has not let them in within the writer's timeout; nothing is written.
        """
        if self._limiter is None:
            return self._native.add(steps)
        return self._add_in_turn(self._limiter, steps)

    def _add_in_turn(self, limiter: RateLimiter, steps: dict[str, Any]) -> int | None:
        """Add as much at once as the rate limiter may let in."""
        count = self._native.check(steps)
        mask = steps.get("mask")
        most = limiter.largest_insert if self._lanes == 1 else count
        first = None
        for begin in range(0, count, most):
            end = min(begin + most, count)
            taking_part = end - begin if mask is None else int(np.count_nonzero(np.atleast_1d(mask)[begin:end]))
            if taking_part:
                limiter.insert(taking_part, self._timeout)
            added = self._native.add(steps, begin, end)
            first = added if first is None else first
        return first

    def end_episode(self, lane: int | None = None) -> int | None:
        """Cut the episode of a lane, or of all, after its last step, as a truncation does: write what is unfinished.

        Returns
        -------
        int or None
            As ``add``.
        """
        return self._native.end_episode(lane)

    def episode_length(self, lane: int = 0) -> int:
        """Steps of the lane's episode so far."""
        return self._native.episode_length(lane)
