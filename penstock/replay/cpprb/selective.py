"""cpprb's buffer of whole episodes, which can be read and deleted individually."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.replay.cpprb.buffers import warn_of_ignored

Rows = dict[str, NDArray[np.float64]]


class SelectiveReplayBuffer:
    """Consecutive episodes, all in float64 and in this process's memory.

    ``done`` ends an episode. A full buffer drops further rows, with a warning, until an episode is deleted.

    Parameters
    ----------
    episode_len : int
        Steps per episode; the capacity is ``episode_len * Nepisodes`` rows.
    obs_dim, act_dim, rew_dim : int
        Lengths of ``obs`` and ``next_obs``, of ``act``, and of ``rew``.
    Nepisodes : int
        Episodes of that length.
    obs_shape : iterable of int, optional
        Shape of ``obs`` and ``next_obs`` in batches, instead of ``obs_dim``; episodes have them flat.
    is_discrete_action : bool
        Whether an action is one number, regardless of ``act_dim``.
    """

    def __init__(
        self, episode_len: int, obs_dim: int = 1, act_dim: int = 1, *, Nepisodes: int = 10, rew_dim: int = 1,
        obs_shape: Iterable[int] | None = None, is_discrete_action: bool = False, **ignored: object,
    ) -> None:  # fmt: skip
        warn_of_ignored(self, ignored)
        self._obs_shape = None if obs_shape is None else tuple(int(length) for length in obs_shape)
        if self._obs_shape is not None:
            obs_dim = math.prod(self._obs_shape)
        if is_discrete_action:
            act_dim = 1
        widths = {"obs": obs_dim, "act": act_dim, "rew": rew_dim, "next_obs": obs_dim, "done": 1}
        self._size = int(episode_len) * int(Nepisodes)
        self._rows: Rows = {name: np.zeros((self._size, int(width))) for name, width in widths.items()}
        self._stored = 0
        self._ends: list[int] = []  # end of each finished episode

    def add(self, obs: ArrayLike, act: ArrayLike, rew: ArrayLike, next_obs: ArrayLike, done: ArrayLike) -> int:
        """Add one step or several successive ones; return the index of the first."""
        given = {"obs": obs, "act": act, "rew": rew, "next_obs": next_obs, "done": done}
        values = {
            name: np.asarray(value, np.float64).reshape(-1, self._rows[name].shape[1]) for name, value in given.items()
        }
        counts = {name: len(value) for name, value in values.items()}
        if len(set(counts.values())) != 1:
            raise ValueError(f"all values must have the same number of steps, found {counts}")
        first, room = self._stored, self._size - self._stored
        if counts["obs"] > room:
            warnings.warn(
                f"SelectiveReplayBuffer has room for {room} of {counts['obs']} rows and drops the others: make room "
                "with delete_episode()",
                stacklevel=2,
            )
        self._stored += min(counts["obs"], room)
        for name, value in values.items():
            self._rows[name][first : self._stored] = value[:room]
        self._ends += [first + int(i) + 1 for i in np.flatnonzero(values["done"][:room])]
        return first

    def sample(self, batch_size: int) -> Rows:
        """Draw rows with equal probability, with replacement. ValueError if the buffer is empty."""
        if self._stored == 0:
            raise ValueError("the buffer is empty: add rows before you sample")
        drawn = np.random.randint(0, self._stored, batch_size)
        batch = {name: values[drawn] for name, values in self._rows.items()}
        if self._obs_shape is not None:
            for name in ("obs", "next_obs"):
                batch[name] = batch[name].reshape(-1, *self._obs_shape)
        return batch

    def get_episode(self, i: int) -> Rows:
        """Return a copy of the rows of the i-th episode, oldest first; empty if it does not exist."""
        begin, end = self._span(i)
        return {name: values[begin:end].copy() for name, values in self._rows.items()}

    def delete_episode(self, i: int) -> int:
        """Delete the i-th episode and return its number of rows. Later rows move up."""
        begin, end = self._span(i)
        length = end - begin
        if length == 0:
            return 0
        for values in self._rows.values():
            values[begin : self._stored - length] = values[end : self._stored].copy()
        self._stored -= length
        self._ends = [e if e < end else e - length for e in self._ends if e != end]
        return length

    def clear(self) -> None:
        """Forget all episodes."""
        self._stored = 0
        self._ends = []

    def get_stored_size(self) -> int:
        """Return the number of rows."""
        return self._stored

    def get_next_index(self) -> int:
        """Return the index of the next row."""
        return self._stored

    def get_stored_episode_size(self) -> int:
        """Return the number of episodes, including an unfinished one."""
        return len(self._ends) + (self._stored > (self._ends[-1] if self._ends else 0))

    def get_buffer_size(self) -> int:
        """Return the capacity in rows."""
        return self._size

    def get_obs_shape(self) -> tuple[int, ...] | None:
        """Return ``obs_shape`` as given; None if ``obs_dim`` was given."""
        return self._obs_shape

    def get_obs_dim(self) -> int:
        """Return the length of ``obs``."""
        return self._rows["obs"].shape[1]

    def get_act_dim(self) -> int:
        """Return the length of ``act``."""
        return self._rows["act"].shape[1]

    def get_rew_dim(self) -> int:
        """Return the length of ``rew``."""
        return self._rows["rew"].shape[1]

    def _span(self, i: int) -> tuple[int, int]:
        if i < 0:
            raise OverflowError(f"episodes are counted from 0, found {i}")
        bounds = [0, *self._ends, self._stored]
        return (bounds[i], bounds[i + 1]) if i + 1 < len(bounds) else (self._stored, self._stored)
