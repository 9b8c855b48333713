"""cpprb's buffers without priorities: uniform and reverse."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from penstock.replay import NotReady, Reverse, Uniform
from penstock.replay.cpprb import transitions
from penstock.replay.cpprb.declaration import fields_of, n_step_of
from penstock.replay.cpprb.storage import Storage
from penstock.replay.settings import Sampler

Batch = dict[str, NDArray[Any]]
EnvDict = Mapping[str, Mapping[str, Any]]

EMPTY = "the buffer has no row to sample: add some first"


class ReplayBuffer:
    """Buffer of rows drawn with equal probability, with replacement.

    Parameters
    ----------
    size : int
        Capacity in rows. A float such as 1e6 is truncated.
    env_dict : dict of dict
        ``{name: {"shape": int or tuple (default 1), "dtype": (default default_dtype)}}``. A number is ``[1]``.
    next_of : str or iterable of str, optional
        Fields stored with their successors: ``next_of="obs"`` declares ``"next_obs"``, and stores values common to two
        rows once if they are large enough.
    stack_compress : str or iterable of str, optional
        Fields whose last dimension is a stack of frames. Each frame is stored once.
    default_dtype : dtype, optional
        Default: float32.
    Nstep : dict, optional
        ``{"size": steps, "gamma": 0.99, "rew": names to sum, "next": names to take from the last step}``. Requires a
        field ``"done"``, and float32 or float64 for summed fields.
    mmap_prefix : str, optional
        Store the data on disk, in the directory of this prefix.

    Raises
    ------
    ValueError
        An argument is out of range or names an undeclared field.
    """

    def __init__(
        self, size: float, env_dict: EnvDict | None = None, *, next_of: str | Iterable[str] | None = None,
        stack_compress: str | Iterable[str] | None = None, default_dtype: DTypeLike | None = None,
        Nstep: Mapping[str, Any] | None = None, mmap_prefix: str | None = None, **ignored: object,
    ) -> None:  # fmt: skip
        warn_of_ignored(self, ignored)
        fields = fields_of(env_dict, next_of=next_of, stack_compress=stack_compress, default_dtype=default_dtype)
        n_step, moved = n_step_of(Nstep, fields)
        self._attach(
            Storage(
                int(size),
                fields,
                sampler=self._sampler(),
                n_step=n_step,
                moved=moved,
                disk=transitions.directory(mmap_prefix),
                seed=int(np.random.randint(2**63)),
            )
        )

    def add(self, **steps: Any) -> int | None:
        """Add one step or several successive ones.

        Parameters
        ----------
        **steps
            A value for every field, ``[*shape]`` or ``[k, *shape]``: any value of the size of k rows. Other names are
            ignored.

        Returns
        -------
        int or None
            Index of the first row stored; None if none is complete, as for unfinished n-step rows.

        Raises
        ------
        KeyError
            A field is missing.
        ValueError
            Values do not fit the shape, or differ in k.
        """
        row = self._writer.add(steps)
        return row if row is None else row % self._size

    def sample(self, batch_size: int) -> Batch:
        """Draw rows: for every field a new array ``[batch_size, *shape]``.

        Raises
        ------
        NotReady
            The buffer is empty.
        """
        batch = self._core.sample(batch_size, 0.0)
        if batch is None:
            raise NotReady(EMPTY)
        del batch["ids"]
        return with_column(batch) if self._is_nstep else batch

    def on_episode_end(self) -> None:
        """End the episode after the last step added: unfinished n-step rows are stored shortened."""
        self._writer.end_episode()
        self._episode_start = self._core.num_claimed

    def clear(self) -> None:
        """Remove all rows, and steps that have not become rows yet."""
        self._storage.clear()
        self._episode_start = self._core.num_claimed

    def get_all_transitions(self, shuffle: bool = False) -> Batch:
        """Return copies of all rows, in index order or shuffled."""
        rows = self._storage.get_all()
        ids = rows.pop("ids")
        if self._is_nstep:
            rows = with_column(rows)
        if shuffle:
            order = np.random.permutation(len(ids))
            return {name: values[order] for name, values in rows.items()}
        # Rows come oldest first; those written before the last wrap-around have the higher indexes.
        older = int(np.count_nonzero(ids // self._size < ids[-1] // self._size)) if len(ids) else 0
        return {name: np.roll(values, -older, axis=0) if older else values for name, values in rows.items()}

    def save_transitions(self, file: str | IO[bytes], *, safe: bool = True) -> None:
        """Write all rows to an ``.npz`` file, without priorities and without pickle.

        Parameters
        ----------
        file
            Path, replaced once everything is written, or an open binary file.
        safe
            Accepted, without effect: every file is safe.
        """
        transitions.save(file, self.get_all_transitions(), is_nstep=self.is_Nstep())

    def load_transitions(self, file: str | IO[bytes]) -> None:
        """Add the rows of a file written by ``save_transitions``.

        Raises
        ------
        ValueError
            The file is damaged or of another kind, lacks a field, or holds n-step rows while this buffer does not
            (or the reverse). Nothing was added. Files written by cpprb contain pickled objects and are not loaded; the
            message says how to convert them.
        """
        rows = transitions.load(file, self._storage.shapes, is_nstep=self.is_Nstep())
        self.on_episode_end()
        self._storage.add_rows(rows)
        self.on_episode_end()

    def get_stored_size(self) -> int:
        """Return the number of rows."""
        return len(self._storage)

    def get_buffer_size(self) -> int:
        """Return the capacity in rows."""
        return self._size

    def get_next_index(self) -> int:
        """Return the index of the next row."""
        return self._core.num_claimed % self._size

    def get_current_episode_len(self) -> int:
        """Return the number of rows stored since the last ``on_episode_end()``."""
        return self._core.num_claimed - self._episode_start

    def is_Nstep(self) -> bool:
        """Return whether rows are n-step transitions."""
        return self._is_nstep

    def _sampler(self) -> Sampler:
        return Uniform()

    def _attach(self, storage: Storage) -> None:
        self._storage = storage
        self._core = storage._core
        self._writer = storage.writer_of_steps()
        self._size = storage.capacity
        self._is_nstep = storage.is_nstep
        self._episode_start = self._core.num_claimed

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in {"_core", "_writer"}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._attach(self._storage)


class ReverseReplayBuffer(ReplayBuffer):
    """Reverse experience replay (Rotinov 2019, arXiv:1910.08780): from the newest row backwards.

    A batch is the rows ``start, start - stride, start - 2 stride, ...``, wrapping around. Each batch starts one row
    earlier than the last; when it would start more than ``2 * stride`` rows back, or at a row that is not stored, it
    restarts at the newest.

    Parameters
    ----------
    size, env_dict, **options
        As for ``ReplayBuffer``.
    stride : int
        Distance between successive rows of a batch.
    """

    def __init__(self, size: float, env_dict: EnvDict | None = None, *, stride: int = 300, **options: Any) -> None:
        self._stride = int(stride)
        super().__init__(size, env_dict, **options)

    def sample(self, batch_size: int) -> Batch:
        """Draw the rows of the next batch, backwards. NotReady if the buffer is empty."""
        batch = self._storage.sample(batch_size)
        del batch["ids"]
        return with_column(batch) if self._is_nstep else batch

    def _sampler(self) -> Reverse:
        return Reverse(stride=self._stride)


def with_column(batch: Batch) -> Batch:
    """Give the discount the second dimension that all fields have."""
    batch["discount"] = batch["discount"].reshape(-1, 1)
    return batch


def warn_of_ignored(buffer: object, ignored: Iterable[str]) -> None:
    """Warn of arguments that the class ignores; cpprb ignores them silently."""
    if found := sorted(ignored):
        warnings.warn(f"{type(buffer).__name__} ignores {', '.join(found)}, as cpprb does", stacklevel=3)
