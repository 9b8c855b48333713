"""From what environments show into the rows of a column, checked on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.envs.spaces import ObservationSpec
from penstock.ipc import all_finite, scatter


class BadObservationError(ValueError):
    """An observation that does not fit its column; ``index`` is its place in the batch, ``None`` for all of it."""

    def __init__(self, index: int | None, problem: str) -> None:
        super().__init__(index, problem)
        self.index = index
        self.problem = problem

    def __str__(self) -> str:
        return self.problem


class ObservationWriter:
    """Copies observations into rows of a column.

    Parameters
    ----------
    spec
        Layout of the column.
    """

    def __init__(self, spec: ObservationSpec) -> None:
        self._spec = spec
        self._dtype = np.dtype(spec.dtype)
        # Dtypes that any assignment to the column converts without loss of meaning.
        self._accepted = {self._dtype}

    def write_each(self, column: np.ndarray, rows: np.ndarray, observations: Sequence[Any]) -> None:
        """Copy ``observations[i]``, each an array or number of its own, into ``column[rows[i]]``.

        Raises
        ------
        BadObservationError
            No array, wrong shape, incompatible dtype, discrete value out of range, NaN or infinity.
        """
        if self._spec.num_values is not None:
            self.write_batch(column, rows, self._stack_numbers(observations))
            return
        shape, accepted = self._spec.shape, self._accepted
        row_numbers = rows.tolist()
        for row, observation in zip(row_numbers, observations, strict=True):
            if type(observation) is not np.ndarray or observation.shape != shape or observation.dtype not in accepted:
                observation = self._admit(observation, shape, row_numbers.index(row))
            column[row] = observation
        self._require_finite(column, rows)

    def write_batch(self, column: np.ndarray, rows: np.ndarray, batch: Any) -> None:
        """Copy ``batch[i]``, a row of one array ``[N, *shape]``, into ``column[rows[i]]``.

        Raises
        ------
        BadObservationError
            As `write_each` does.
        """
        values = self._admit(batch, (len(rows), *self._spec.shape), None)
        if self._spec.num_values is not None:
            values = self._count_from_zero(values, self._spec.num_values)
        scatter(column, rows, np.ascontiguousarray(values, self._dtype))
        self._require_finite(column, rows)

    def _admit(self, observation: Any, shape: tuple[int, ...], index: int | None) -> np.ndarray:
        try:
            array = np.asarray(observation)
        except Exception as error:  # ragged, or an object whose own conversion fails
            found = f"a {type(observation).__name__} that is no array: {error}"
            raise BadObservationError(index, f"expected an observation of shape {shape}, found {found}") from error
        if array.shape != shape:
            raise BadObservationError(index, f"expected an observation of shape {shape}, found {array.shape}")
        if array.dtype not in self._accepted:
            if not self._can_hold(array):
                raise BadObservationError(
                    index,
                    f"expected an observation of dtype {self._dtype}, found {array.dtype} with values that do not fit "
                    f"it: return observation.astype(np.{self._dtype}), or declare its dtype in the observation space",
                )
            if self._dtype.kind == "f" or np.can_cast(array.dtype, self._dtype, "safe"):
                self._accepted.add(array.dtype)
        return array

    def _can_hold(self, array: np.ndarray) -> bool:
        if self._dtype.kind == "f":
            return array.dtype.kind in "biuf"
        limits = np.iinfo(self._dtype) if self._dtype.kind != "b" else None
        low, high = (limits.min, limits.max) if limits else (0, 1)
        return array.dtype.kind in "biu" and bool(low <= array.min() and array.max() <= high)

    def _stack_numbers(self, observations: Sequence[Any]) -> np.ndarray:
        try:
            batch = np.array(observations)
            if batch.ndim == 1 and batch.dtype.kind in "biu":
                return batch
        except ValueError:
            pass
        for index, observation in enumerate(observations):
            self._admit(observation, (), index)
        raise BadObservationError(None, f"expected integers, found {observations!r}")

    def _count_from_zero(self, values: np.ndarray, num_values: int) -> np.ndarray:
        counted = values.astype(np.int64) - self._spec.start
        outside = (counted < 0) | (counted >= num_values)
        if outside.any():
            index = int(outside.argmax())
            legal = f"from {self._spec.start} to {self._spec.start + num_values - 1}"
            raise BadObservationError(index, f"expected a discrete observation {legal}, found {values[index]}")
        return counted

    def _require_finite(self, column: np.ndarray, rows: np.ndarray) -> None:
        if self._dtype.kind != "f":
            return
        if self._dtype == np.float16:
            finite = np.isfinite(column[rows]).reshape(len(rows), -1).all(axis=1)
            index = -1 if finite.all() else int(finite.argmin())
        else:
            index = all_finite(column, rows)
        if index >= 0:
            found = np.array2string(column[rows[index]], threshold=16)
            raise BadObservationError(index, f"expected a finite observation, found NaN or infinity in {found}")
