"""Recording of torch's operations as the steps of a native plan."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from penstock._native import Layers, Plan
from penstock.algorithms.bases.operations import (
    ARITHMETIC,
    COMPUTED,
    CUTS,
    EXACT,
    KINDS,
    MAX_DIMENSIONS,
    RECORDED,
    SEVERAL,
    VIEWS,
    Number,
    Operation,
    Transposed,
    Unplannable,
    dimension,
)
from penstock.nn.mlp import is_available, seen_by

FORWARD, BACKWARD, SAMPLE, SAMPLE_GRADIENT, MOMENTS, NORMALIZE, NORMALIZE_GRADIENT, QUANTILE_HUBER = range(8)
"""Kinds of calls, in the order of src/record.h."""
DRAWN: dict[str, Callable[..., Any]] = {"randn": Tensor.normal_, "rand": Tensor.uniform_}
"""In-place functions that draw like these operations."""
FIXED = ("arange",)
"""Operations that give the same numbers each time."""
NO_LAYERS, NO_SAMPLE = (-1, 0, False), (0, 0.0, 0.0)


class Step(NamedTuple):
    """Step of a plan.

    Attributes
    ----------
    operation
        Operation that the step computes.
    writes, reads
        Numbers of tensors; -1: none.
    x, y
        Constants of the operation.
    call
        For a call: its kind, number of rows, layers as the plan knows them, and the distribution of actions.
    """

    operation: Operation
    writes: Sequence[int]
    reads: Sequence[int]
    x: float = 0.0
    y: float = 0.0
    call: tuple[int, int, tuple[int, int, bool], tuple[int, float, float]] | None = None


class View(NamedTuple):
    """Relation of a view to its base tensor.

    Attributes
    ----------
    of, shape
        Place of the base tensor, and its shape.
    part
        Shape of the view with all dimensions of the base tensor; None: a view of all of it.
    dim, start
        Dimension, among a plan's three, along which the view is a part, and the start of the part.
    """

    of: Hashable
    shape: Sequence[int]
    part: Sequence[int] | None = None
    dim: int = 0
    start: int = 0


class Recorder(TorchDispatchMode):
    """Records operations of torch and calls of the native core, made in this context, as the steps of a plan.

    Parameters
    ----------
    inputs
        Tensors whose values a plan reads at each run, contiguous.
    has_generator
        Whether random numbers may be drawn from a generator; they are further inputs of the plan.

    Attributes
    ----------
    inputs
        All inputs of the plan so far.
    drawn
        Inputs drawn in each part, in order, each with the function that draws it again.
    """

    def __init__(self, inputs: Sequence[Tensor], *, has_generator: bool = False) -> None:
        super().__init__()
        is_available()  # finds torch's library of products
        self.shapes: list[list[int]] = []
        self.steps: list[Step] = []
        self.inputs: list[Tensor] = []
        self.drawn: list[list[tuple[Tensor, Callable[..., Any]]]] = [[]]
        self._has_generator = has_generator
        self._is_paused = False
        self._inputs: dict[Number, int] = {}  # kinds by number
        self._layers: list[Layers] = []
        self._results: list[Number] = []
        self._ends: list[int] = []
        self._zeros: set[Number] = set()
        self._wrote: dict[Number, Step] = {}
        self._rounded: dict[Number, Number] = {}  # in this part: numbers before they were rounded
        self._changed: dict[int, int] = {}  # results that change from a step on, and the step's place
        self._numbers: dict[Hashable, Number | Transposed] = {}
        self._places: dict[int, set[Hashable]] = {}  # by the address of a storage
        self._storages: dict[Hashable, int] = {}  # by place
        self._views: dict[Hashable, View] = {}
        self._transposed: set[Hashable] = set()
        self._stale: set[Hashable] = set()  # places that were changed through another tensor of their storage
        self._kept: list[Tensor] = []  # so that no address is used twice
        for each in inputs:
            self.add_input(each)

    def __enter__(self) -> Any:
        self._seen = seen_by(self)
        self._seen.__enter__()
        return super().__enter__()

    def __exit__(self, *problem: Any) -> None:
        super().__exit__(*problem)
        self._seen.__exit__(*problem)

    def add_input(self, tensor: Tensor) -> None:
        """Make a tensor the next input of the plan."""
        number = self._add(tensor.shape)
        self._inputs[number] = KINDS[tensor.dtype]
        self.inputs.append(tensor)
        self.name(tensor, number)

    def fixed(self, tensor: Tensor) -> Number:
        """Make a tensor that no update changes an input of the plan; return its number."""
        self.add_input(tensor)
        return self.number(tensor)

    def add_outputs(self, tensors: Iterable[Tensor], *, change: bool = False) -> None:
        """Mark tensors as the next results of the plan; `change`: later parts overwrite them."""
        for tensor in tensors:
            number = self.number(tensor)
            if number in self._results or number in self._inputs:
                number = self.step(Operation.COPY, self.shapes[number], number)
            self._results.append(number)
            if change:
                self._changed[number] = len(self.steps)

    def set_zero(self, tensors: Iterable[Tensor]) -> None:
        """Set tensors to 0, here and in the plan."""
        self._is_paused = True
        for tensor in tensors:
            self.name(tensor.zero_(), self.step(Operation.CONSTANT, tensor.shape))
        self._is_paused = False

    @contextmanager
    def between_parts(self, tensors: Iterable[Tensor]) -> Iterator[None]:
        """End a part of the plan, and record nothing within the block, which may change these tensors."""
        self._ends.append(len(self.steps))
        self._rounded.clear()  # parameters may have changed since
        self.drawn.append([])
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False
        for tensor in tensors:
            place = _place(tensor)
            self._stale |= {each for each in self._overlapping(place) if each != place and each not in self._transposed}

    def plan(self) -> tuple[Plan, list[int]]:
        """Return the plan of the results, without the steps that they do not need, and the inputs that it reads."""
        needed, kept = set(self._results), list[tuple[int, Step]]()
        for place in reversed(range(len(self.steps))):
            step = self.steps[place]
            if needed.intersection(step.writes):
                if any(place >= self._changed.get(number, len(self.steps)) for number in step.reads):
                    raise Unplannable("a gradient is read after the step of its optimiser")
                kept.append((place, step))
                needed.update(Number(number) for number in step.reads if number >= 0)
        kept.reverse()
        inputs = list(self._inputs)
        read = [place for place, number in enumerate(inputs) if number in needed]
        old: list[int] = [inputs[place] for place in read]
        for _, step in kept:
            old += [number for number in step.writes if number >= 0]
        numbers: dict[int, int] = {-1: -1, **{number: new for new, number in enumerate(old)}}
        steps, calls = list[tuple[int, int, int, int, int, float, float]](), list[Any]()
        for _, step in kept:
            reads, writes = ([numbers[number] for number in each] for each in (step.reads, step.writes))
            if step.call is None:
                a, b, c = [*reads, -1, -1, -1][:3]
                steps.append((int(step.operation), writes[0], a, b, c, step.x, step.y))
            else:
                kind, rows, of_layers, of_sample = step.call
                steps.append((int(step.operation), -1, -1, -1, -1, float(len(calls)), 0.0))
                calls.append((kind, reads, writes, rows, of_layers, of_sample))
        ends = [sum(place < end for place, _ in kept) for end in self._ends]
        shapes, kinds = [self.shapes[number] for number in old], [self._inputs[inputs[place]] for place in read]
        results = [numbers[number] for number in self._results]
        try:
            return Plan(shapes, kinds, steps, results, calls, self._layers, ends), read
        except ValueError as error:
            raise Unplannable(str(error)) from error

    # -- calls of the native core: protocol `penstock.nn.mlp.Watcher` --------------------------------------------------

    def layers_forward(
        self, layers: Layers, x: Tensor, parameters: Sequence[Tensor], kept: Tensor, out: Tensor, *, count: int,
        in_bf16: bool,
    ) -> None:  # fmt: skip
        """Record a forward pass of layers."""
        reads = [self.number(x), *map(self.number, parameters)]
        numbers = self._add([math.ceil(kept.numel() / 4)]), self._add(out.shape)
        self._call(FORWARD, reads, numbers, len(x), (self._number_of(layers), count, in_bf16))
        self.name(kept, numbers[0])
        self.name(out, numbers[1])

    def layers_backward(
        self, layers: Layers, x: Tensor, parameters: Sequence[Tensor], kept: Tensor, out: Tensor, gradient: Tensor,
        d_x: Tensor | None, added_to: Sequence[Tensor], *, count: int, in_bf16: bool,
    ) -> None:  # fmt: skip
        """Record a backward pass of layers."""
        reads = [self.number(each) for each in (x, kept, out, gradient, *parameters)]
        before = [self.number(each) for each in added_to]
        numbers = [Number(-1) if d_x is None else self._add(d_x.shape), *(self._add(each.shape) for each in added_to)]
        self._call(BACKWARD, reads, numbers, len(x), (self._number_of(layers), count, in_bf16))
        if d_x is not None:
            self.name(d_x, numbers[0])
        for tensor, earlier, number in zip(added_to, before, numbers[1:], strict=True):
            is_first = earlier in self._zeros
            self.name(tensor, number if is_first else self.step(Operation.ADD, tensor.shape, earlier, number, x=1.0))

    def squashed_sample(
        self, outputs: Tensor, noise: Tensor, action: Tensor, log_prob: Tensor, *, centre: float, reach: float
    ) -> None:
        """Record drawing of squashed normal actions."""
        numbers = self._add(action.shape), self._add(log_prob.shape)
        reads, shape = [self.number(outputs), self.number(noise)], (noise.shape[-1], centre, reach)
        self._call(SAMPLE, reads, numbers, log_prob.numel(), of_sample=shape)
        self.name(action, numbers[0])
        self.name(log_prob, numbers[1])

    def squashed_gradient(
        self, outputs: Tensor, noise: Tensor, action: Tensor, d_action: Tensor, d_log_prob: Tensor, d_outputs: Tensor,
        *, centre: float, reach: float,
    ) -> None:  # fmt: skip
        """Record the gradient of squashed normal actions and their log-densities."""
        reads = [self.number(each) for each in (outputs, noise, action, d_action, d_log_prob)]
        number, shape = self._add(d_outputs.shape), (noise.shape[-1], centre, reach)
        self._call(SAMPLE_GRADIENT, reads, [number], d_log_prob.numel(), of_sample=shape)
        self.name(d_outputs, number)

    def quantile_huber(
        self, quantile: Tensor, fraction: Tensor, target: Tensor, loss: Tensor, slope: Tensor
    ) -> None:
        """Record losses of quantiles, and their derivatives."""
        numbers = self._add(loss.shape), self._add(slope.shape)
        self._call(QUANTILE_HUBER, [self.number(each) for each in (quantile, fraction, target)], numbers)
        self.name(loss, numbers[0])
        self.name(slope, numbers[1])

    # -- steps for operations of torch: protocol `Steps` ---------------------------------------------------------------

    def sum(self, shape: Sequence[int], number: Number) -> Number:
        """Return sums over the dimensions that are 1 in a shape; a weighted sum is a product of matrices."""
        out, made, (count, rows, width) = _all_dimensions(shape), self._wrote.get(number), self.shapes[number]
        if made is not None and made.operation is Operation.MUL and rows > 1 and width > 1:
            for x, y in (made.reads, made.reads[::-1]):
                if self.shapes[x] != self.shapes[number] or self._inputs.keys() & {x, y}:
                    continue
                if out == [count, rows, 1] and self.shapes[y] == [count, 1, width]:
                    return self.step(Operation.PRODUCT, shape, Number(x), Number(y), y=1.0)
                if out == [count, 1, width] and self.shapes[y] == [count, rows, 1]:
                    return self.step(Operation.PRODUCT, shape, Number(y), Number(x), x=1.0)
        return self.step(Operation.SUM, shape, number)

    def swap(self, number: Number) -> Number:
        """Return the tensor with its first two dimensions of three exchanged."""
        a, b, c = self.shapes[number]
        before = self._swapped(number)
        return self.step(Operation.SWAP, (b, a, c), number) if before is None else before

    def moments(self, x: Tensor) -> Sequence[Number]:
        """Add variance and mean of each column of a matrix, or of several."""
        number = self.number(x)
        matrices, _, columns = self.shapes[number]
        numbers = [self._add((matrices, 1, columns)) for _ in range(2)]
        self._call(MOMENTS, [number], numbers)
        return numbers

    def normalize(self, given: Sequence[Tensor], epsilon: float) -> Sequence[Number]:
        """Add the normalisation of a matrix's columns; `given`: matrix, scale, shift."""
        x, scale, shift = map(self.number, given)
        matrices = self._matrices(x)
        y, *moments = self._add(self.shapes[matrices]), self._add(given[1].shape), self._add(given[1].shape)
        self._call(NORMALIZE, [matrices, scale, shift], [y, *moments], of_sample=(0, epsilon, 0.0))
        return [self._side_by_side(y), *moments]

    def normalize_backward(self, given: Sequence[Tensor]) -> Sequence[Number]:
        """Add the gradient of `normalize`; `given`: gradient, matrix, scale, means, inverse deviations."""
        gradient, x, *rest = map(self.number, given)
        matrices = self._matrices(x)
        if matrices != x:
            of_result = self._matrices(gradient)
            if self.shapes[of_result] != self.shapes[matrices]:
                rows, width = self.shapes[matrices][1:]
                of_result = self.swap(self.step(Operation.COPY, (rows, len(given[0][0]) // width, width), gradient))
            gradient = of_result
        d_x, *others = self._add(self.shapes[matrices]), self._add(given[2].shape), self._add(given[2].shape)
        self._call(NORMALIZE_GRADIENT, [gradient, matrices, *rest], [d_x, *others])
        return [self._side_by_side(d_x), *others]

    def _matrices(self, number: Number) -> Number:
        """Return the stacked matrices ``[C, N, F]`` that a matrix holds side by side; if there are none, the matrix."""
        found = self._swapped(number, self.shapes[number][1])
        return number if found is None else found

    def _side_by_side(self, matrices: Number) -> Number:
        """Return stacked matrices ``[C, N, F]`` as one, ``[N, C F]``."""
        count, rows, width = self.shapes[matrices]
        return matrices if count == 1 else self.step(Operation.COPY, (rows, count * width), self.swap(matrices))

    def _swapped(self, number: Number, rows: int | None = None) -> Number | None:
        """Return the tensor of which this one is a SWAP, up to reshaping; None if there is none.

        The result of the SWAP must have the shape of this tensor or, if given, a first dimension of size `rows`.
        """
        wanted, found = self.shapes[number], self._wrote.get(number)
        while found is not None and found.operation in (Operation.COPY, Operation.SWAP):
            source = Number(found.reads[0])
            if source in self._inputs or math.prod(self.shapes[source]) != math.prod(wanted):
                return None
            if found.operation is Operation.SWAP:
                shape = self.shapes[found.writes[0]]
                return source if (shape == wanted if rows is None else shape[0] == rows) else None
            found = self._wrote.get(source)
        return None

    def _call(
        self, kind: int, reads: Sequence[int], writes: Sequence[int], rows: int = 0,
        of_layers: tuple[int, int, bool] = NO_LAYERS, of_sample: tuple[int, float, float] = NO_SAMPLE,
    ) -> None:  # fmt: skip
        self.steps.append(Step(Operation.CALL, writes, reads, call=(kind, rows, of_layers, of_sample)))

    def _number_of(self, layers: Layers) -> int:
        if layers not in self._layers:
            self._layers.append(layers)
        return self._layers.index(layers)

    # -- operations of torch -------------------------------------------------------------------------------------------

    def number(self, tensor: Tensor) -> Number:
        """Return the number of a tensor in the plan."""
        self._found(tensor)
        return self._number_at(_place(tensor))

    def factor(self, tensor: Tensor) -> tuple[Number, bool]:
        """Return the number of a factor of a product, and whether it is stored transposed."""
        found = self._found(tensor)
        number = found.number if isinstance(found, Transposed) else found
        if tensor.dtype == torch.bfloat16:  # the product rounds its factors
            number = self._rounded.get(number, number)
        return number, isinstance(found, Transposed)

    def transposed(self, tensor: Tensor) -> Number | Transposed:
        """Return the transpose of a matrix."""
        found = self._found(tensor)
        return found.number if isinstance(found, Transposed) else Transposed(found)

    def step(self, operation: Operation, shape: Sequence[int], *given: Any, x: float = 0.0, y: float = 0.0) -> Number:
        """Add a step on tensors, numbers of tensors, or constants; return the number of its result."""
        numbers = [self._of(each) for each in given]
        to_zeros = operation is Operation.ADD and x == 1.0 and numbers[0] in self._zeros
        if to_zeros and numbers[1] not in self._inputs and self.shapes[numbers[1]] == _all_dimensions(shape):
            return numbers[1]
        if Operation.ADD <= operation <= Operation.RECTIFIER_GRADIENT:  # elementwise: smaller operands are repeated
            numbers = [self._before_repetition(each) for each in numbers]
        out = self._add(shape)
        self.steps.append(Step(operation, [out], numbers, float(x), float(y)))
        self._wrote[out] = self.steps[-1]
        if operation is Operation.CONSTANT and not x:
            self._zeros.add(out)
        if operation is Operation.ROUND:
            self._rounded[out] = numbers[0]
        return out

    def _before_repetition(self, number: Number) -> Number:
        """Return the smaller tensor that this one repeats, if any; else the tensor itself."""
        made = self._wrote.get(number)
        if made is None or made.operation is not Operation.COPY or made.reads[0] in self._inputs:
            return number
        before, after = self.shapes[made.reads[0]], self.shapes[number]
        is_repeated = before != after and all(one in (1, other) for one, other in zip(before, after, strict=True))
        return Number(made.reads[0]) if is_repeated else number

    def cut(self, out: Tensor, of: Tensor, dim: int, start: int) -> None:
        """Register a view: the part of a tensor from `start` on, or the row there if the view lacks the dimension."""
        dim, sizes = dim % of.ndim, list(of.shape)
        part = list(out.shape) if out.ndim == of.ndim else [*out.shape[:dim], 1, *out.shape[dim:]]
        view = View(_place(of), sizes, part, dimension(of.ndim, dim), start % sizes[dim] if sizes[dim] else 0)
        self.name(out, self._seen_through(view, out.shape))
        self._views[_place(out)] = view

    def name(self, tensor: Tensor, found: Number | Transposed) -> None:
        """Give a tensor the number of a result."""
        place = _place(tensor)
        self._numbers[place] = found
        self._stale.discard(place)
        if isinstance(found, Transposed):
            self._transposed.add(place)
        storage = tensor.untyped_storage().data_ptr()
        self._storages[place] = storage
        self._places.setdefault(storage, set()).add(place)
        self._kept.append(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self._is_paused:
            return out
        try:
            self._record(func, out, args, kwargs or {})
        except Unplannable:
            raise
        except Exception as error:  # a form of the operation that its step does not cover
            raise Unplannable(f"plans do not cover this use of {func._schema.name}: {error}") from error
        return out

    def _record(self, func: Any, out: Any, args: Any, kwargs: Any) -> None:
        """Add the steps of an operation, and name its results."""
        name = func._schema.name.removeprefix("aten::")
        changes = name.endswith("_") and not name.startswith("_")
        if func._schema.is_mutable and not changes:
            raise Unplannable(f"{name} writes its result to a given tensor")
        name = name.removesuffix("_") if changes else name
        if name in CUTS:
            for number, part in enumerate(out if isinstance(out, list | tuple) else [out]):
                self.cut(part, *CUTS[name](args, number))
            return
        if name in DRAWN and self._has_generator and kwargs.get("generator") is not None:
            self.drawn[-1].append((out, DRAWN[name]))
            self.add_input(out)
            return
        if name in FIXED and out.dtype in KINDS:
            self.add_input(out)
            return
        if name in SEVERAL:
            shapes = [each.shape for each in out if each is not None]
            for part, result in zip(out, SEVERAL[name](self, shapes, args, kwargs), strict=True):
                if result is not None:
                    self.name(part, result)
            return
        find = RECORDED.get(name)
        if find is None:
            raise Unplannable(f"plans have no operation {name}")
        if not isinstance(out, Tensor) or out.dtype not in COMPUTED:
            raise Unplannable(f"{name} gives {out.dtype if isinstance(out, Tensor) else type(out).__name__}")
        if name in ARITHMETIC and not out.dtype.is_floating_point:
            raise Unplannable(f"{name} gives {out.dtype}, and plans compute in float32")
        found = find(self, out.shape, args, kwargs)
        if out.dtype == torch.bfloat16 and name not in EXACT:
            found = self.step(Operation.ROUND, out.shape, found)
        if changes:
            self._change(out, found)
            return
        self.name(out, found)
        if name in VIEWS and _place(out) != _place(args[0]):
            self._views[_place(out)] = View(_place(args[0]), list(args[0].shape))

    def _change(self, tensor: Tensor, found: Number | Transposed) -> None:
        """Give a tensor and its bases new numbers; other views of the same memory are renewed when they are read."""
        place = _place(tensor)
        if place in self._transposed:
            raise Unplannable("a transposed tensor was changed in place")
        fresh = {place: found}
        while place in self._views:
            view, part = self._views[place], fresh[place]
            whole = self.step(Operation.COPY, view.part or view.shape, part)
            if view.part is not None:
                whole = self.step(Operation.PUT, view.shape, self._number_at(view.of), whole, x=view.dim, y=view.start)
            place = view.of
            fresh[place] = whole
        if any(self._numbers[each] in self._inputs for each in fresh):
            raise Unplannable("an operation changes an input of the plan")
        self._numbers |= fresh
        self._stale |= self._overlapping(_place(tensor)) - fresh.keys()

    def _overlapping(self, place: Hashable) -> set[Hashable]:
        """Return the places that share memory with a place, including itself."""
        begin, end = _span(place)
        spans = {each: _span(each) for each in self._places.get(self._storages.get(place, -1), ())}
        return {each for each, (first, last) in spans.items() if first < end and begin < last}

    def _seen_through(self, view: View, shape: Sequence[int]) -> Number:
        part = self._number_at(view.of)
        if view.part is not None:
            part = self.step(Operation.SLICE, view.part, part, x=view.dim, y=view.start)
        return part if view.part is not None and list(shape) == view.part else self.step(Operation.COPY, shape, part)

    def _found(self, tensor: Tensor) -> Number | Transposed:
        place = _place(tensor)
        if place not in self._numbers:
            raise Unplannable("a tensor is neither an input nor computed from one")
        return self._fresh(place, tensor.shape)

    def _fresh(self, place: Hashable, shape: Sequence[int]) -> Number | Transposed:
        if place in self._stale:
            if place not in self._views or place in self._transposed:
                raise Unplannable("the memory of a tensor has changed, and it is no simple view of what changed")
            self._numbers[place] = self._seen_through(self._views[place], shape)
            self._stale.discard(place)
        return self._numbers[place]

    def _number_at(self, place: Hashable) -> Number:
        found = self._fresh(place, place[1])  # type: ignore[index]
        if isinstance(found, Transposed):
            found = self.step(Operation.TURN, place[1], found.number)  # type: ignore[index]
            self._numbers[place] = found
        return found

    def _add(self, shape: Sequence[int]) -> Number:
        if len(shape) > MAX_DIMENSIONS:
            raise Unplannable("a tensor has more than three dimensions")
        self.shapes.append(_all_dimensions(shape))
        return Number(len(self.shapes) - 1)

    def _of(self, value: Any) -> Number:
        """Return a number as it is, a tensor's number, or that of a new constant."""
        if isinstance(value, Number):
            return value
        if isinstance(value, Tensor):
            return self.number(value)
        return self.step(Operation.CONSTANT, (), x=float(value))


# Torch's wrapper imports torch._dynamo at the first call: one or two seconds.
Recorder.__torch_dispatch__ = inspect.unwrap(Recorder.__torch_dispatch__)  # type: ignore[method-assign]


def _all_dimensions(shape: Sequence[int]) -> list[int]:
    return [1] * (MAX_DIMENSIONS - len(shape)) + list(shape)


def _place(tensor: Tensor) -> Hashable:
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.itemsize


def _span(place: Any) -> tuple[int, int]:
    """Return the address of a place's first byte, and the address after its last byte."""
    begin, shape, strides, nbytes = place
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return begin, begin + nbytes * (last + 1)
