"""Recording of torch's operations as the steps of a native plan."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from penstock._native import Plan
from penstock.algorithms.bases.operations import (
    ARITHMETIC,
    CUTS,
    KINDS,
    MAX_DIMENSIONS,
    RECORDED,
    VIEWS,
    Number,
    Operation,
    Turned,
    Unplannable,
    dimension,
)


class View(NamedTuple):
    """Relation of a view to the tensor that it is a view of.

    Attributes
    ----------
    of, shape
        That tensor, and its shape.
    part
        Shape of the view with all dimensions of that tensor; None: a view of the whole.
    dim, start
        Dimension of a plan along which it is a part, and the part's beginning.
    """

    of: Hashable
    shape: Sequence[int]
    part: Sequence[int] | None = None
    dim: int = 0
    start: int = 0


class Recorder(TorchDispatchMode):
    """Records the operations that torch computes in this context as the steps of a plan.

    Parameters
    ----------
    inputs
        Tensors whose values a plan reads at each run, contiguous.
    """

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self.shapes: list[list[int]] = []
        self.steps: list[tuple[int, int, int, int, int, float, float]] = []
        self._kinds = [KINDS[each.dtype] for each in inputs]
        self._numbers: dict[Hashable, Number | Turned] = {}
        self._places: dict[int, set[Hashable]] = {}  # by the address of a storage
        self._views: dict[Hashable, View] = {}
        self._turned: set[Hashable] = set()
        self._stale: set[Hashable] = set()  # places that were changed through another tensor of their storage
        self._kept: list[Tensor] = []  # so that no address is used twice
        for each in inputs:
            self.name(each, self._add(each.shape))

    def plan(self, outputs: Sequence[Tensor]) -> tuple[Plan, list[int]]:
        """Return the plan of these results, without the steps that they do not need, and the inputs that it reads."""
        results = [self.number(each) for each in outputs]
        needed, steps = set(results), []
        for step in reversed(self.steps):
            if step[1] in needed:
                steps.append(step)
                needed.update(Number(number) for number in step[2:5] if number >= 0)
        inputs = [number for number in range(len(self._kinds)) if number in needed]
        numbers = {-1: -1, **{old: new for new, old in enumerate(inputs)}}
        for step in reversed(steps):
            numbers[step[1]] = len(numbers) - 1
        shapes = [self.shapes[number] for number in numbers if number >= 0]
        renumbered = [
            (o, numbers[t], numbers[a], numbers[b], numbers[c], x, y) for o, t, a, b, c, x, y in reversed(steps)
        ]
        kinds = [self._kinds[number] for number in inputs]
        return Plan(shapes, kinds, renumbered, [numbers[number] for number in results]), inputs

    def number(self, tensor: Tensor) -> Number:
        """Return the number of a tensor in the plan."""
        self._found(tensor)
        return self._number_at(_place(tensor))

    def factor(self, tensor: Tensor) -> tuple[Number, bool]:
        """Return the number of a factor of a product, and whether it lies transposed."""
        found = self._found(tensor)
        return (found.number, True) if isinstance(found, Turned) else (found, False)

    def turned(self, tensor: Tensor) -> Number | Turned:
        """Return the transpose of a matrix."""
        found = self._found(tensor)
        return found.number if isinstance(found, Turned) else Turned(found)

    def step(self, operation: Operation, shape: Sequence[int], *given: Any, x: float = 0.0, y: float = 0.0) -> Number:
        """Add a step on tensors, numbers of tensors, or constants; return the number of its result."""
        numbers = [self._of(each) for each in given]
        out = self._add(shape)
        a, b, c = [*numbers, -1, -1, -1][:3]
        self.steps.append((int(operation), out, a, b, c, float(x), float(y)))
        return out

    def cut(self, out: Tensor, of: Tensor, dim: int, start: int) -> None:
        """Name a view: the part of a tensor that begins at `start`, or without that dimension the row there."""
        dim, sizes = dim % of.ndim, list(of.shape)
        part = list(out.shape) if out.ndim == of.ndim else [*out.shape[:dim], 1, *out.shape[dim:]]
        view = View(_place(of), sizes, part, dimension(of.ndim, dim), start % sizes[dim] if sizes[dim] else 0)
        self.name(out, self._seen_through(view, out.shape))
        self._views[_place(out)] = view

    def name(self, tensor: Tensor, found: Number | Turned) -> None:
        """Give a tensor the number of a result."""
        place = _place(tensor)
        self._numbers[place] = found
        self._stale.discard(place)
        if isinstance(found, Turned):
            self._turned.add(place)
        self._places.setdefault(tensor.untyped_storage().data_ptr(), set()).add(place)
        self._kept.append(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        changes = name.endswith("_") and not name.startswith("_")
        name = name.removesuffix("_") if changes else name
        if name in CUTS:
            for number, part in enumerate(out if isinstance(out, list | tuple) else [out]):
                self.cut(part, *CUTS[name](args, number))
            return out
        find = RECORDED.get(name)
        if find is None:
            raise Unplannable(f"plans have no operation {name}")
        if not isinstance(out, Tensor) or out.dtype not in KINDS:
            raise Unplannable(f"{name} gives {out.dtype if isinstance(out, Tensor) else type(out).__name__}")
        if name in ARITHMETIC and not out.dtype.is_floating_point:
            raise Unplannable(f"{name} gives {out.dtype}, and plans compute in float32")
        found = find(self, out.shape, args, kwargs or {})
        if changes:
            self._change(out, found)
            return out
        self.name(out, found)
        if name in VIEWS and _place(out) != _place(args[0]):
            self._views[_place(out)] = View(_place(args[0]), list(args[0].shape))
        return out

    def _change(self, tensor: Tensor, found: Number | Turned) -> None:
        """Give a tensor, and what it is a view of, another number; other views of its memory follow when they are read.
        """
        place = _place(tensor)
        if place in self._turned:
            raise Unplannable("a tensor has changed that lies transposed")
        fresh = {place: found}
        while place in self._views:
            view, part = self._views[place], fresh[place]
            whole = self.step(Operation.COPY, view.part or view.shape, part)
            if view.part is not None:
                whole = self.step(Operation.PUT, view.shape, self._number_at(view.of), whole, x=view.dim, y=view.start)
            place = view.of
            fresh[place] = whole
        self._numbers |= fresh
        self._stale |= self._places.get(tensor.untyped_storage().data_ptr(), set())
        self._stale -= fresh.keys()

    def _seen_through(self, view: View, shape: Sequence[int]) -> Number:
        part = self._number_at(view.of)
        if view.part is not None:
            part = self.step(Operation.SLICE, view.part, part, x=view.dim, y=view.start)
        return part if view.part is not None and list(shape) == view.part else self.step(Operation.COPY, shape, part)

    def _found(self, tensor: Tensor) -> Number | Turned:
        place = _place(tensor)
        if place not in self._numbers:
            raise Unplannable("a tensor is neither an input nor computed from one")
        return self._fresh(place, tensor.shape)

    def _fresh(self, place: Hashable, shape: Sequence[int]) -> Number | Turned:
        if place in self._stale:
            if place not in self._views or place in self._turned:
                raise Unplannable("a tensor has changed of which this one is no simple view")
            self._numbers[place] = self._seen_through(self._views[place], shape)
            self._stale.discard(place)
        return self._numbers[place]

    def _number_at(self, place: Hashable) -> Number:
        found = self._fresh(place, place[1])  # type: ignore[index]
        if isinstance(found, Turned):
            found = self.step(Operation.TURN, place[1], found.number)  # type: ignore[index]
            self._numbers[place] = found
        return found

    def _add(self, shape: Sequence[int]) -> Number:
        if len(shape) > MAX_DIMENSIONS:
            raise Unplannable("a tensor has more than three dimensions")
        self.shapes.append([1] * (MAX_DIMENSIONS - len(shape)) + list(shape))
        return Number(len(self.shapes) - 1)

    def _of(self, value: Any) -> Number:
        """Return a number as it is, that of a tensor, or of a new constant."""
        if isinstance(value, Number):
            return value
        if isinstance(value, Tensor):
            return self.number(value)
        return self.step(Operation.CONSTANT, (), x=float(value))


# Torch's wrapper imports torch._dynamo at the first call: one or two seconds.
Recorder.__torch_dispatch__ = inspect.unwrap(Recorder.__torch_dispatch__)  # type: ignore[method-assign]


def _place(tensor: Tensor) -> Hashable:
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()
