"""Columns of lanes: observations written into rows, actions read out of them, and the random numbers of actions."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Any, Literal

import numpy as np

from penstock.envs.spaces import ActionSpec, ObservationPart, ObservationSpec
from penstock.ipc import all_finite, scatter

SMALL = 1024
"""Largest observation, in bytes, for which joining the observations of all lanes is faster than copying each."""

BLOCK = 128  # steps drawn ahead, to loop over lanes only once per block


class BadObservationError(ValueError):
    """Observation that does not fit its column; ``index`` is its place in the batch, ``None`` for the whole batch."""

    def __init__(self, index: int | None, problem: str) -> None:
        super().__init__(index, problem)
        self.index = index
        self.problem = problem

    def __str__(self) -> str:
        return self.problem


class ObservationWriter(ABC):
    """Copies observations into rows of a column."""

    @abstractmethod
    def write_each(self, column: np.ndarray, rows: np.ndarray, observations: Sequence[Any]) -> None:
        """Copy ``observations[i]`` of a single environment into ``column[rows[i]]``.

        Raises
        ------
        BadObservationError
            No array, wrong shape, incompatible dtype, discrete value out of range, NaN or infinity, or a missing leaf.
        """

    @abstractmethod
    def write_batch(self, column: np.ndarray, rows: np.ndarray, batch: Any) -> None:
        """Copy a batch of observations, one array ``[N, *shape]`` or dicts and tuples of such, into their rows.

        Raises
        ------
        BadObservationError
            As for `write_each`.
        """

    @abstractmethod
    def batch_size(self, observation: Any) -> int | None:
        """Return the number of observations in a batch; None for a single observation."""


def observation_writer(spec: ObservationSpec) -> ObservationWriter:
    """Return the writer for observations of this layout.

    If masks are in infos, it takes pairs of an observation and its mask.
    """
    return CompositeWriter(spec) if spec.parts else LeafWriter(spec)


class LeafWriter(ObservationWriter):
    """Writer of observations that are one array or number each.

    Parameters
    ----------
    spec
        Layout of the column, which may be strided: a part of the rows of another one.
    is_mask
        Whether the values are a mask: any numbers, not 0 where legal.
    """

    def __init__(self, spec: ObservationSpec, *, is_mask: bool = False) -> None:
        self._spec = spec
        self._is_mask = is_mask
        self._is_flattened = is_mask or bool(spec.nvec)
        self._dtype = np.dtype(spec.dtype)
        self._is_small = not is_mask and math.prod(spec.shape) * self._dtype.itemsize <= SMALL
        # Dtypes that convert to the column's without loss.
        self._accepted = {self._dtype}

    def write_each(self, column: np.ndarray, rows: np.ndarray, observations: Sequence[Any]) -> None:
        if self._spec.num_values is not None:
            self.write_batch(column, rows, self._stack_numbers(observations))
            return
        shape, accepted = self._spec.shape, self._accepted
        if self._spec.nvec:
            self.write_batch(column, rows, [self._admit(one, shape, i) for i, one in enumerate(observations)])
            return
        if self._is_small and self._write_joined(column, rows, observations):
            return
        row_numbers = rows.tolist()
        for row, observation in zip(row_numbers, observations, strict=True):
            if type(observation) is not np.ndarray or observation.shape != shape or observation.dtype not in accepted:
                observation = self._admit(observation, shape, row_numbers.index(row))
            column[row] = observation
        self._require_finite(column, rows)

    def write_batch(self, column: np.ndarray, rows: np.ndarray, batch: Any) -> None:
        values = self._admit(batch, (len(rows), *self._spec.shape), None)
        if self._spec.num_values is not None or self._spec.nvec:
            values = self._count_from_zero(values)
        if column.flags.c_contiguous:
            scatter(column, rows, np.ascontiguousarray(values, self._dtype))
        else:
            column[rows] = values
        self._require_finite(column, rows)

    def _write_joined(self, column: np.ndarray, rows: np.ndarray, observations: Sequence[Any]) -> bool:
        """Write all observations as one batch; return False, having written nothing, if they do not form one."""
        try:
            batch = np.array(observations)
        except Exception:  # ragged, or a failing conversion; `write_each` finds the observation at fault
            return False
        fits = batch.shape == (len(rows), *self._spec.shape) and batch.dtype in self._accepted
        if fits:
            self.write_batch(column, rows, batch)
        return fits

    def batch_size(self, observation: Any) -> int | None:
        shape = self._spec.shape
        try:
            array = np.asarray(observation)
        except Exception:  # `write_each` reports the problem
            return None
        if self._is_flattened:  # one observation may have any shape
            return len(array) if array.size > shape[0] or array.shape == (1, *shape) else None
        return len(array) if array.ndim == len(shape) + 1 else None

    def _admit(self, observation: Any, shape: tuple[int, ...], index: int | None) -> np.ndarray:
        try:
            array = np.asarray(observation)
        except Exception as error:  # ragged, or a failing conversion
            found = f"a {type(observation).__name__} that is not an array: {error}"
            if isinstance(observation, tuple) and isinstance(observation[-1], dict):
                found = "a tuple that ends in a dict, as reset() and step() return: give the observation alone"
            raise BadObservationError(index, f"expected an observation of shape {shape}, found {found}") from error
        if self._is_flattened and array.size == math.prod(shape):
            array = array.reshape(shape)
        if array.shape != shape:
            kind = f"a {type(observation).__name__}, {observation!r:.60}"
            found = f"{array.shape}" if array.dtype.kind in "biuf" else kind
            raise BadObservationError(index, f"expected an observation of shape {shape}, found {found}")
        if array.dtype not in self._accepted:
            if not self._can_hold(array):
                why = ", which may hold fractions" if array.dtype.kind == "f" else " with values that do not fit it"
                raise BadObservationError(
                    index,
                    f"expected an observation of dtype {self._dtype}, found {array.dtype}{why}: return "
                    f"observation.astype(np.{self._dtype}), or declare its dtype in the observation space",
                )
            if self._dtype.kind == "f" or np.can_cast(array.dtype, self._dtype, "safe"):
                self._accepted.add(array.dtype)
        if self._is_mask and array.dtype.kind == "f" and (unknown := np.isnan(array)).any():
            index = int(unknown.reshape(len(array), -1).any(axis=1).argmax()) if index is None else index
            raise BadObservationError(index, "expected a mask of numbers, not 0 where legal, found NaN among them")
        return array

    def _can_hold(self, array: np.ndarray) -> bool:
        if self._dtype.kind == "f" or self._is_mask:
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

    def _count_from_zero(self, values: np.ndarray) -> np.ndarray:
        spec = self._spec
        starts: Any = spec.start if spec.num_values is not None else np.array(spec.starts)
        counts: Any = spec.num_values if spec.num_values is not None else np.array(spec.nvec)
        counted = values.astype(np.int64) - starts
        outside = (counted < 0) | (counted >= counts)
        if outside.any():
            index = int(outside.reshape(len(values), -1).any(axis=1).argmax())
            legal = f"from {starts} to {starts + counts - 1}"
            raise BadObservationError(index, f"expected a discrete observation {legal}, found {values[index]}")
        return counted

    def _require_finite(self, column: np.ndarray, rows: np.ndarray) -> None:
        if self._dtype.kind != "f":
            return
        if self._dtype == np.float16 or not column.flags.c_contiguous:
            finite = np.isfinite(column[rows]).reshape(len(rows), -1).all(axis=1)
            index = -1 if finite.all() else int(finite.argmin())
        else:
            index = all_finite(column, rows)
        if index >= 0:
            found = np.array2string(column[rows[index]], threshold=16)
            raise BadObservationError(index, f"expected a finite observation, found NaN or infinity in {found}")


class CompositeWriter(ObservationWriter):
    """Writer of observations with several leaves, side by side in rows of bytes.

    Parameters
    ----------
    spec
        Layout of the rows. With the mask in the info, observations come in pairs with their masks.
    """

    def __init__(self, spec: ObservationSpec) -> None:
        beginning = (0,) if spec.mask_is_in_info else ()
        self._leaves = [_Leaf(part, LeafWriter(part.spec), beginning, part.path) for part in spec.parts]
        if spec.mask is not None:
            writer = LeafWriter(spec.mask.spec, is_mask=True)
            within = ((1,), "") if spec.mask_is_in_info else ((), spec.mask.path)
            self._leaves.append(_Leaf(spec.mask, writer, *within))

    def write_each(self, column: np.ndarray, rows: np.ndarray, observations: Sequence[Any]) -> None:
        for leaf in self._leaves:
            try:
                values = [leaf.find(observation, index) for index, observation in enumerate(observations)]
                leaf.writer.write_each(leaf.view(column), rows, values)
            except BadObservationError as bad:
                raise leaf.named(bad) from bad

    def write_batch(self, column: np.ndarray, rows: np.ndarray, batch: Any) -> None:
        for leaf in self._leaves:
            try:
                leaf.writer.write_batch(leaf.view(column), rows, leaf.find(batch, None))
            except BadObservationError as bad:
                raise leaf.named(bad) from bad

    def batch_size(self, observation: Any) -> int | None:
        first = self._leaves[0]
        try:
            return first.writer.batch_size(first.find(observation, None))
        except BadObservationError as bad:
            raise first.named(bad) from bad


class PartView:
    """View of a part in rows of bytes: maps uint8 ``[N, nbytes]`` to a strided view ``[N, *shape]``.

    Parameters
    ----------
    part
        Offset, shape and dtype of the part.
    """

    def __init__(self, part: ObservationPart) -> None:
        self._shape = part.spec.shape
        self._dtype = np.dtype(part.spec.dtype)
        self._bytes = slice(part.offset, part.offset + math.prod(part.spec.shape) * self._dtype.itemsize)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        return rows[:, self._bytes].view(self._dtype).reshape(len(rows), *self._shape)


class _Leaf:
    """Leaf of a composite observation, with its place in the observation and in the row.

    Parameters
    ----------
    part
        Place in the row.
    writer
        Writer of the leaf.
    beginning, path
        Path to the leaf in the observation: first these keys, then those joined in `path`.
    """

    def __init__(self, part: ObservationPart, writer: LeafWriter, beginning: tuple[int, ...], path: str) -> None:
        self.writer = writer
        self.view = PartView(part)
        self._name = part.path
        self._beginning = beginning
        self._path = path
        self._keys: tuple[Any, ...] | None = None

    def find(self, observation: Any, index: int | None) -> Any:
        """Return the leaf of an observation or batch, nested as in the space or flat by path."""
        with contextlib.suppress(KeyError, IndexError, TypeError):
            if self._keys is not None:
                return reduce(getitem, self._keys, observation)
        try:
            inner = reduce(getitem, self._beginning, observation)
            self._keys = (*self._beginning, *_keys_along(self._path, inner))
            return reduce(getitem, self._keys, observation)
        except (KeyError, IndexError, TypeError):
            found = _outline(reduce(getitem, self._beginning, observation))
            raise BadObservationError(index, f"expected an observation that has it, found {found}") from None

    def named(self, bad: BadObservationError) -> BadObservationError:
        """Return the error with the leaf's name added."""
        return BadObservationError(bad.index, f"{self._name}: {bad.problem}" if self._name else bad.problem)


def _keys_along(path: str, observation: Any) -> tuple[Any, ...]:
    """Split a path into the keys and indices of an observation; keys may contain "/"."""
    if not path:
        return ()
    is_sequence = isinstance(observation, (tuple, list))
    for key in observation if isinstance(observation, Mapping) else range(len(observation)) if is_sequence else ():
        if path == str(key):
            return (key,)
        if path.startswith(f"{key}/"):
            with contextlib.suppress(KeyError):
                return (key, *_keys_along(path.removeprefix(f"{key}/"), observation[key]))
    raise KeyError(path)


def _outline(observation: Any) -> str:
    if isinstance(observation, Mapping):
        return f"a {type(observation).__name__} with the keys {', '.join(map(repr, observation))}"
    size = f" of {len(observation)}" if isinstance(observation, (tuple, list)) else ""
    return f"a {type(observation).__name__}{size}"


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


class NoiseStreams:
    """Random numbers for actions, one stream per lane, independent of the device and of the batches of requests.

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
    hold
        Largest number ``M`` of steps for which a lane keeps its numbers. Each time it keeps them for ``n`` steps,
        drawn from the lane's stream with ``P(n)`` in proportion to ``n^-2`` up to ``M`` (arXiv:2604.04539); 1: new
        numbers for every step.
    """

    def __init__(
        self, kind: Literal["uniform", "normal"], size: int, lanes: range, *, seed: int, incarnation: int, hold: int = 1
    ) -> None:
        # The last number separates these streams from the environments' seeds.
        keys = [np.random.SeedSequence([seed, lane, incarnation, 1]) for lane in lanes]
        self._generators = [np.random.Generator(np.random.SFC64(key)) for key in keys]
        self._kind = kind
        self._block = np.empty((BLOCK, len(lanes), size), np.float32)
        self._next = BLOCK
        self._held = np.empty((len(lanes), size), np.float32)
        self._left = np.zeros(len(lanes), np.int64)
        self._lengths = np.ones((BLOCK, len(lanes)), np.int64)
        share = np.arange(1, hold + 1, dtype=np.float64) ** -2
        self._up_to = (share.cumsum() / share.sum())[:-1]  # probability of n or less, for n below M

    def draw(self) -> np.ndarray:
        """Return the next numbers of every lane, float32 ``[N, size]``: a view, valid for one step."""
        if self._next == BLOCK:
            for i, generator in enumerate(self._generators):
                draw = generator.random if self._kind == "uniform" else generator.standard_normal
                self._block[:, i] = draw(self._block[:, i].shape, np.float32)
                if len(self._up_to):
                    self._lengths[:, i] = 1 + np.searchsorted(self._up_to, generator.random(BLOCK), side="right")
            self._next = 0
        self._next += 1
        found: np.ndarray = self._block[self._next - 1]
        if not len(self._up_to):
            return found
        is_due = self._left == 0
        np.copyto(self._held, found, where=is_due[:, np.newaxis])
        np.copyto(self._left, self._lengths[self._next - 1], where=is_due)
        self._left -= 1
        return self._held
