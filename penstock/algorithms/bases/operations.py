"""Operations of torch as steps of a native plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

KINDS = {
    torch.float32: 0, torch.bool: 1, torch.int64: 2, torch.uint8: 3, torch.int8: 4, torch.int16: 5, torch.int32: 6,
}  # fmt: skip
"""Codes of the dtypes that a plan reads."""
COMPUTED = {*KINDS, torch.bfloat16}
"""Dtypes of results. A plan keeps bfloat16 numbers as float32, rounded to as few digits."""
MAX_DIMENSIONS = 3

Operation = IntEnum(
    "Operation",
    "CONSTANT COPY ADD MUL DIV EXP LOG SQRT POWER CLAMP MINIMUM MAXIMUM WHERE GREATER GREATER_EQUAL EQUAL AND OR NOT "
    "TANH TANH_BACKWARD SIGMOID FLOOR COSINE ROUND RECTIFIER_GRADIENT "
    "SUM GATHER SCATTER_ADD LOG_SOFTMAX LOG_SOFTMAX_BACKWARD PRODUCT TURN SLICE PUT LARGEST PLACE_OF_LARGEST SWAP SORT "
    "PRODUCT_IN_BF16 CALL",
    start=0,
)
"""Operations of `Plan`, in the order of src/operations.h."""


class Unplannable(Exception):
    """The operations cannot be computed by a plan; the message says why."""


class Number(int):
    """Number of a tensor in a plan, as distinct from a constant."""


class Transposed(NamedTuple):
    """Transposed view of the tensor of this number."""

    number: Number


class Steps(Protocol):
    """Steps of a plan so far: the part of `Recorder` that these operations use."""

    def step(self, operation: Operation, shape: Sequence[int], *given: Any, x: float = 0.0, y: float = 0.0) -> Number:
        """Add a step on tensors, numbers of tensors, or constants; return the number of its result."""

    def number(self, tensor: Tensor) -> Number:
        """Return the number of a tensor in the plan."""

    def factor(self, tensor: Tensor) -> tuple[Number, bool]:
        """Return the number of a factor of a product, and whether it is stored transposed."""

    def transposed(self, tensor: Tensor) -> Number | Transposed:
        """Return the transpose of a matrix."""

    def fixed(self, tensor: Tensor) -> Number:
        """Make a tensor that no update changes an input of the plan; return its number."""

    def sum(self, shape: Sequence[int], number: Number) -> Number:
        """Return sums over the dimensions that are 1 in a shape."""

    def swap(self, number: Number) -> Number:
        """Return the tensor with its first two dimensions of three exchanged."""

    def moments(self, x: Tensor) -> Sequence[Number]:
        """Add variance and mean of each column of a matrix, or of several."""

    def normalize(self, given: Sequence[Tensor], epsilon: float) -> Sequence[Number]:
        """Add the normalisation of a matrix's columns; `given`: matrix, scale, shift."""

    def normalize_backward(self, given: Sequence[Tensor]) -> Sequence[Number]:
        """Add the gradient of `normalize`; `given`: gradient, matrix, scale, means, inverse deviations."""


Find = Callable[[Steps, Any, Any, Mapping[str, Any]], Number | Transposed]


def dimension(ndim: int, dim: int) -> int:
    """Return a dimension's place among the three of a plan."""
    return dim % ndim + MAX_DIMENSIONS - ndim


def _plain(operation: Operation, count: int | None = None) -> Find:
    def find(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
        if kwargs:
            raise Unplannable(f"an operation has the arguments {', '.join(kwargs)}")
        return r.step(operation, shape, *args[:count])

    return find


def _added(sign: float) -> Find:
    return lambda r, shape, args, kwargs: r.step(Operation.ADD, shape, *args[:2], x=sign * kwargs.get("alpha", 1))


def _filled(value: float | None = None) -> Find:
    def find(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
        return r.step(Operation.CONSTANT, shape, x=args[0] if value is None else value)

    return find


def _reshaped(r: Steps, number: Number, before: Sequence[int], after: Sequence[int]) -> Number:
    return number if tuple(before) == tuple(after) else r.step(Operation.COPY, after, number)


def _viewed(r: Steps, shape: Any, args: Any, kwargs: Mapping[str, Any]) -> Number:
    if isinstance(args[-1], torch.dtype):
        raise Unplannable("a tensor is viewed as another dtype")
    return _copied(r, shape, args, kwargs)


def _of_truths(operation: Operation) -> Find:
    def find(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
        if any(isinstance(each, Tensor) and each.dtype != torch.bool for each in args):
            raise Unplannable("a bitwise operation is not on booleans")
        return r.step(operation, shape, *args)

    return find


def _copied(r: Steps, shape: Any, args: Any, kwargs: Mapping[str, Any]) -> Number:
    return _reshaped(r, r.number(args[0]), args[0].shape, shape)


def _converted(r: Steps, shape: Any, args: Any, kwargs: Mapping[str, Any]) -> Number:
    before, after = args[0].dtype, kwargs.get("dtype", args[0].dtype)
    if after == torch.bfloat16 != before:
        return r.step(Operation.ROUND, shape, args[0])
    if after == torch.bool:
        return _unequal(r, shape, (args[0], 0.0), {})
    if before.is_floating_point and not after.is_floating_point:
        size = r.step(Operation.FLOOR, shape, _size(r, shape, args, {}))
        return r.step(Operation.MUL, shape, size, _sign(r, shape, args, {}))
    return _copied(r, shape, args, kwargs)


def _unequal(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
    return r.step(Operation.NOT, shape, r.step(Operation.EQUAL, shape, *args))


def _multiplied_and_added(r: Steps, shape: Any, args: Any, kwargs: Mapping[str, Any]) -> Number:
    product = r.step(Operation.MUL, shape, *args[1:3])
    return r.step(Operation.ADD, shape, args[0], product, x=kwargs.get("value", 1))


def _clamped(r: Steps, shape: Any, args: Any, kwargs: Mapping[str, Any]) -> Number:
    bounds = [*args[1:], None, None]
    low, high = kwargs.get("min", bounds[0]), kwargs.get("max", bounds[1])
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        raise Unplannable("a bound is a tensor")
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    return r.step(Operation.CLAMP, shape, args[0], x=low, y=high)


def _sigmoid_backward(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
    gradient, after = args
    slope = r.step(Operation.MUL, shape, after, r.step(Operation.ADD, shape, 1.0, after, x=-1.0))
    return r.step(Operation.MUL, shape, gradient, slope)


def _powered(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
    if isinstance(args[1], Tensor) or not isinstance(args[0], Tensor | Number):
        raise Unplannable("an exponent is a tensor")
    if args[1] in (2, 3, -2):
        square = r.step(Operation.MUL, shape, args[0], args[0])
        if args[1] == -2:
            return r.step(Operation.DIV, shape, 1.0, square)
        return square if args[1] == 2 else r.step(Operation.MUL, shape, square, args[0])
    return r.step(Operation.POWER, shape, args[0], x=args[1])


def _dims_of(args: Any) -> list[int]:
    """Return the dimensions that an operation runs along, counted from the first; empty if none is given."""
    dims = args[1] if len(args) > 1 else None
    return [dim % args[0].ndim for dim in ([dims] if isinstance(dims, int) else dims or ())]


def _summed(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
    kept = [1] * args[0].ndim
    if len(args) > 1 and args[1]:
        dims = {dim % args[0].ndim for dim in args[1]}
        kept = [1 if dim in dims else size for dim, size in enumerate(args[0].shape)]
    return _reshaped(r, r.sum(kept, r.number(args[0])), kept, shape)


def _averaged(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
    whole = _summed(r, shape, args, kwargs)
    return r.step(Operation.MUL, shape, whole, math.prod(shape) / args[0].numel())


def _along_the_last(operation: Operation, otherwise: Find | None = None) -> Find:
    def find(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number | Transposed:
        if _dims_of(args) != [args[0].ndim - 1]:
            if otherwise is not None:
                return otherwise(r, shape, args, kwargs)
            raise Unplannable("an argmax is not along the last dimension")
        kept = [*args[0].shape[:-1], 1]
        return _reshaped(r, r.step(operation, kept, args[0]), kept, shape)

    return find


def _soft_plus(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
    """``max(x, 0) + log(1 + e^-|x|)``."""
    if kwargs or args[1:2] not in ((), (1,)):
        raise Unplannable("a softplus has a slope other than 1, or a threshold")
    size = _size(r, shape, args, {})
    power = r.step(Operation.EXP, shape, r.step(Operation.MUL, shape, size, -1.0))
    logarithm = r.step(Operation.LOG, shape, r.step(Operation.ADD, shape, power, 1.0, x=1.0))
    positive = r.step(Operation.CLAMP, shape, args[0], x=0.0, y=math.inf)
    return r.step(Operation.ADD, shape, positive, logarithm, x=1.0)


def _on_vector(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
    """Matrix times vector."""
    kept = (*shape, 1)
    return _reshaped(r, r.step(Operation.SUM, kept, r.step(Operation.MUL, args[0].shape, *args)), kept, shape)


def _times_logarithm(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
    """``a log b``, and 0 where a is 0."""
    product = r.step(Operation.MUL, shape, args[0], r.step(Operation.LOG, shape, args[1]))
    return r.step(Operation.WHERE, shape, args[0], product, 0.0)


def _without_nan(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
    if kwargs or args[1:] not in ((), (0.0,)):
        raise Unplannable("NaN is replaced by a number other than 0")
    largest = torch.finfo(torch.float32).max
    finite = r.step(Operation.CLAMP, shape, args[0], x=-largest, y=largest)
    return r.step(Operation.WHERE, shape, r.step(Operation.EQUAL, shape, args[0], args[0]), finite, 0.0)


def _dot(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
    kept = [1] * args[0].ndim
    return _reshaped(r, r.step(Operation.SUM, kept, r.step(Operation.MUL, args[0].shape, *args)), kept, shape)


def _along_one(operation: Operation) -> Find:
    """Smallest or largest numbers along one dimension, computed row by row."""

    def find(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
        dims, sizes = _dims_of(args), list(args[0].shape)
        if len(dims) != 1:
            raise Unplannable("a minimum or maximum is not along one dimension")
        (dim,) = dims
        part = [1 if place == dim else size for place, size in enumerate(sizes)]
        at = dimension(len(sizes), dim)
        rows = (r.step(Operation.SLICE, part, args[0], x=at, y=begin) for begin in range(sizes[dim]))
        found = next(rows)
        for row in rows:
            found = r.step(operation, part, found, row)
        return _reshaped(r, found, part, shape)

    return find


def _log_of_sum(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
    """Logarithm of the sum of exponentials along the last dimension."""
    largest = _along_the_last(Operation.LARGEST)(r, kept := [*args[0].shape[:-1], 1], args, {})
    powers = r.step(Operation.EXP, args[0].shape, r.step(Operation.ADD, args[0].shape, args[0], largest, x=-1.0))
    logarithm = r.step(Operation.LOG, kept, r.step(Operation.SUM, kept, powers))
    return _reshaped(r, r.step(Operation.ADD, kept, logarithm, largest, x=1.0), kept, shape)


def _size(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
    return r.step(Operation.MAXIMUM, shape, args[0], r.step(Operation.MUL, shape, args[0], -1.0))


def _sign(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
    above, below = (r.step(Operation.GREATER, shape, *pair) for pair in ((args[0], 0.0), (0.0, args[0])))
    return r.step(Operation.ADD, shape, above, below, x=-1.0)


def _indexed(operation: Operation) -> Find:
    def find(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
        x, dim, index = args[0], args[1] % args[0].ndim, args[2]
        if dim == x.ndim - 1:
            return r.step(operation, shape, x, *args[2:4])
        if dim != 1 or index.shape != (len(x), 1, x.shape[2]):
            raise Unplannable("an index is not along the last dimension")
        # one row of each block, with the same index in all columns
        place = r.step(Operation.SLICE, (len(x), 1, 1), index, x=MAX_DIMENSIONS - 1)
        rows = r.fixed(torch.arange(x.shape[1], dtype=torch.float32).view(1, -1, 1))
        is_chosen = r.step(Operation.EQUAL, (*x.shape[:2], 1), rows, place)
        if operation is Operation.GATHER:
            return r.step(Operation.SUM, shape, r.step(Operation.WHERE, x.shape, is_chosen, x, 0.0))
        return r.step(Operation.ADD, shape, x, r.step(Operation.WHERE, shape, is_chosen, args[3], 0.0), x=1.0)

    return find


def _softmax(operation: Operation, count: int) -> Find:
    def find(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
        if args[count] % len(shape) != len(shape) - 1:
            raise Unplannable("a softmax is not along the last dimension")
        return r.step(operation, shape, *args[:count])

    return find


def _less(operation: Operation) -> Find:
    return lambda r, shape, args, kwargs: r.step(operation, shape, args[1], args[0])


def _multiplied(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
    (a, a_turned), (b, b_turned) = map(r.factor, args[-2:])
    bias = () if len(args) == 2 else (args[0],)
    is_row = all(each.ndim == 1 or tuple(each.shape) == (*shape[:-2], 1, shape[-1]) for each in bias)
    if kwargs or not is_row:
        raise Unplannable("a product is scaled, or added to a matrix")
    operation = Operation.PRODUCT_IN_BF16 if args[-1].dtype == torch.bfloat16 else Operation.PRODUCT
    return r.step(operation, shape, a, b, *bias, x=a_turned, y=b_turned)


def _transposed(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number | Transposed:
    one, other = (dim % len(shape) for dim in args[1:3]) if len(args) > 1 else (0, 1)
    order = list(range(len(shape)))
    order[one], order[other] = other, one
    return _permuted(r, shape, (args[0], order), kwargs)


def _permuted(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number | Transposed:
    before = [dim for dim, size in enumerate(args[0].shape) if size > 1]
    order = [dim % len(shape) for dim in args[1]]
    if [dim for dim in order if dim in before] == before:
        return _copied(r, shape, args, kwargs)
    last = len(shape) - 1
    if order == [*range(last - 1), last, last - 1]:
        return r.transposed(args[0])
    if order == [1, 0, 2]:
        return r.swap(r.number(args[0]))
    raise Unplannable("dimensions are permuted in an order that plans do not have")


def _moments(r: Steps, shape: Any, args: Any, kwargs: Any) -> Sequence[Number]:
    """Variance and mean of rows or columns."""
    x, dims = args[0], [dim % args[0].ndim for dim in args[1]]
    correction = kwargs.get("correction", 1)
    kept = [1 if place in dims else size for place, size in enumerate(x.shape)]
    if not correction and dims == [x.ndim - 2]:
        return [_reshaped(r, number, kept, shape[0]) for number in r.moments(x)]
    count = x.numel() / math.prod(kept)
    mean = r.step(Operation.MUL, kept, r.step(Operation.SUM, kept, x), 1.0 / count)
    squares = _powered(r, x.shape, (r.step(Operation.ADD, x.shape, x, mean, x=-1.0), 2), {})
    var = r.step(Operation.MUL, kept, r.step(Operation.SUM, kept, squares), 1.0 / (count - correction))
    return [_reshaped(r, number, kept, shape[0]) for number in (var, mean)]


def _normalized(r: Steps, shape: Any, args: Any, kwargs: Any) -> Sequence[Number | None]:
    """Columns of a matrix normalised by their moments, scaled and shifted; then means, and inverse deviations."""
    x, scale, shift, mean, var, trains, _, epsilon = args
    if mean is not None or var is not None or not trains or x.ndim != 2:
        raise Unplannable("a batch is not normalised by its own moments, or not a matrix")
    return r.normalize((x, scale, shift), epsilon)


def _normalized_backward(r: Steps, shape: Any, args: Any, kwargs: Any) -> Sequence[Number | None]:
    """Gradients of columns, scale and shift (gradient, input, scale, running moments, moments of the batch, ...)."""
    gradient, x, scale, _, _, mean, inverse, trains, _, mask = args
    if not trains:
        raise Unplannable("a batch is not normalised by its own moments")
    found = r.normalize_backward((gradient, x, scale, mean, inverse))
    return [each if is_wanted else None for each, is_wanted in zip(found, mask, strict=True)]


def _inverse_root(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
    return r.step(Operation.DIV, shape, 1.0, r.step(Operation.SQRT, shape, args[0]))


def _soft_maximum_backward(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
    """Gradient ``y (g - sum g y)`` (gradient, result, dim, dtype)."""
    if args[2] % len(shape) != len(shape) - 1:
        raise Unplannable("a softmax is not along the last dimension")
    product = r.step(Operation.MUL, shape, *args[:2])
    whole = r.step(Operation.SUM, (*shape[:-1], 1), product)
    return r.step(Operation.ADD, shape, product, r.step(Operation.MUL, shape, args[1], whole), x=-1.0)


def _rows_normalized(r: Steps, shape: Any, args: Any, kwargs: Any) -> Sequence[Number]:
    """Rows normalised by their moments (input, shape, scale, shift, epsilon); then means and inverse deviations."""
    x, dims, scale, shift, epsilon = args
    if len(dims) != 1 or (scale is None) != (shift is None):
        raise Unplannable("rows are normalised with a scale alone, or over several dimensions")
    (rows, kept, _), share = shape, 1.0 / dims[0]
    mean = r.step(Operation.MUL, kept, r.sum(kept, r.number(x)), share)
    deviation = r.step(Operation.ADD, rows, x, mean, x=-1.0)
    var = r.step(Operation.MUL, kept, r.sum(kept, r.step(Operation.MUL, rows, deviation, deviation)), share)
    inverse = _inverse_root(r, kept, (r.step(Operation.ADD, kept, var, epsilon, x=1.0),), {})
    found = r.step(Operation.MUL, rows, deviation, inverse)
    if scale is not None:
        found = r.step(Operation.ADD, rows, r.step(Operation.MUL, rows, found, scale), shift, x=1.0)
    return [found, mean, inverse]


def _rows_normalized_backward(r: Steps, shape: Any, args: Any, kwargs: Any) -> Sequence[Number | None]:
    """``(g - mean g - y mean(g y)) / deviation`` of rows, and gradients of scale and shift.

    Arguments: gradient, input, shape, means, inverse deviations, scale, shift, mask of the wanted gradients. ``g`` is
    the gradient times the scale.
    """
    given, x, dims, mean, inverse, scale, _, mask = args
    rows, kept, share = x.shape, mean.shape, 1.0 / dims[0]
    y = r.step(Operation.MUL, rows, r.step(Operation.ADD, rows, x, mean, x=-1.0), inverse)
    gradient = r.number(given) if scale is None else r.step(Operation.MUL, rows, given, scale)
    sums = r.sum(kept, gradient), r.sum(kept, r.step(Operation.MUL, rows, gradient, y))
    of_all, along = (r.step(Operation.MUL, kept, each, share) for each in sums)
    rest = r.step(Operation.ADD, rows, gradient, of_all, x=-1.0)
    rest = r.step(Operation.ADD, rows, rest, r.step(Operation.MUL, rows, y, along), x=-1.0)
    whole = [1] * (len(rows) - 1) + list(dims)
    of_scale = r.sum(whole, r.step(Operation.MUL, rows, given, y)), r.sum(whole, r.number(given))
    found = r.step(Operation.MUL, rows, rest, inverse), *(_reshaped(r, each, whole, dims) for each in of_scale)
    return [each if is_wanted else None for each, is_wanted in zip(found, mask, strict=True)]


def _sorted(r: Steps, shape: Any, args: Any, kwargs: Any) -> Sequence[Number | None]:
    """Numbers in ascending order along the last dimension; indices are not recorded."""
    dim, falls = [*args[1:], False][:2] if len(args) > 1 else (-1, False)
    if kwargs or falls or dim % args[0].ndim != args[0].ndim - 1:
        raise Unplannable("numbers are not sorted along the last dimension in ascending order")
    return [r.step(Operation.SORT, shape[0], args[0]), None]


def _dim_of(args: Any, place: int) -> int:
    return int(args[place]) if len(args) > place else 0


def _slice(args: Any, number: int) -> tuple[Tensor, int, int]:
    if len(args) > 4 and args[4] != 1:
        raise Unplannable("a slice has a step other than 1")
    start, size = (args[2] if len(args) > 2 else 0) or 0, args[0].shape[_dim_of(args, 1)]
    return args[0], _dim_of(args, 1), max(start + size, 0) if start < 0 else min(start, size)


def _put_back(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
    """Gradient of a slice (gradient, sizes, dim, start, end, stride), or of a row (gradient, sizes, dim, index)."""
    gradient, sizes, dim, start, *more = args
    if more[1:] not in ([], [1]):
        raise Unplannable("a slice has a step other than 1")
    kept = list(sizes)
    kept[dim] = gradient.shape[dim] if more else 1
    start = max(start + sizes[dim], 0) if start < 0 else start
    part = r.step(Operation.COPY, kept, gradient)
    zeros = r.step(Operation.CONSTANT, sizes)
    return r.step(Operation.PUT, sizes, zeros, part, x=dimension(len(sizes), dim), y=start)


def _joined(is_new: bool) -> Find:
    """Concatenation along a dimension; `is_new`: along a new dimension."""

    def find(r: Steps, shape: Any, args: Any, kwargs: Any) -> Number:
        tensors, dim = args[0], (args[1] if len(args) > 1 else 0) % len(shape)
        whole, begin = r.step(Operation.CONSTANT, shape), 0
        for each in tensors:
            kept = list(shape)
            kept[dim] = 1 if is_new else each.shape[dim]
            part = r.step(Operation.COPY, kept, each)
            whole = r.step(Operation.PUT, shape, whole, part, x=dimension(len(shape), dim), y=begin)
            begin += kept[dim]
        return whole

    return find


CUTS: dict[str, Callable[[Any, int], tuple[Tensor, int, int]]] = {
    "slice": _slice,
    "select": lambda args, number: args,
    "unbind": lambda args, number: (args[0], _dim_of(args, 1), number),
    "split": lambda args, number: (args[0], _dim_of(args, 2), number * args[1]),
    "unsafe_split": lambda args, number: (args[0], _dim_of(args, 2), number * args[1]),
    "split_with_sizes": lambda args, number: (args[0], _dim_of(args, 2), sum(args[1][:number])),
}
"""Operations whose results are parts of a tensor: that tensor, the dimension, and the start of each part."""

ARITHMETIC = ("add", "sub", "rsub", "mul", "pow", "addcmul", "mm", "addmm", "bmm", "baddbmm")
"""Operations that plans compute in float32, which has too few digits for results of other dtypes."""

VIEWS = ("view", "unsqueeze", "squeeze", "alias", "_unsafe_view", "detach")
"""Operations whose result is a view of a whole tensor."""

EXACT = (*VIEWS, "_to_copy", "clone", "expand", "t", "transpose", "permute", "mm", "addmm", "bmm", "baddbmm")
"""Operations whose results in bfloat16 are rounded by their steps, or have no more digits than their operands."""

RECORDED: dict[str, Find] = {
    "add": _added(1.0), "sub": _added(-1.0), "rsub": lambda r, s, a, k: _added(-1.0)(r, s, (a[1], a[0]), k),
    "mul": _plain(Operation.MUL), "div": _plain(Operation.DIV), "exp": _plain(Operation.EXP),
    "neg": lambda r, s, a, k: r.step(Operation.MUL, s, a[0], -1.0), "addcmul": _multiplied_and_added,
    "log": _plain(Operation.LOG), "sqrt": _plain(Operation.SQRT), "pow": _powered, "clamp": _clamped,
    "clamp_min": _clamped, "minimum": _plain(Operation.MINIMUM), "maximum": _plain(Operation.MAXIMUM),
    "where": _plain(Operation.WHERE), "gt": _plain(Operation.GREATER), "ge": _plain(Operation.GREATER_EQUAL),
    "lt": _less(Operation.GREATER), "le": _less(Operation.GREATER_EQUAL), "eq": _plain(Operation.EQUAL),
    "ne": _unequal, "_to_copy": _converted, "logical_and": _plain(Operation.AND), "logical_or": _plain(Operation.OR),
    "bitwise_and": _of_truths(Operation.AND), "bitwise_or": _of_truths(Operation.OR),
    "bitwise_not": _of_truths(Operation.NOT), "softplus": _soft_plus,
    "masked_fill": lambda r, s, a, k: r.step(Operation.WHERE, s, a[1], a[2], a[0]),
    "softplus_backward": lambda r, s, a, k: r.step(Operation.MUL, s, a[0], r.step(Operation.SIGMOID, s, a[1])),
    "scalar_tensor": _filled(), "full": lambda r, s, a, k: r.step(Operation.CONSTANT, s, x=a[1]),
    "zeros_like": _filled(0.0), "ones_like": _filled(1.0), "new_zeros": _filled(0.0),
    "new_ones": _filled(1.0), "zero": _filled(0.0), "zeros": _filled(0.0), "empty": _filled(0.0),
    "empty_like": _filled(0.0), "new_empty": _filled(0.0), "dot": _dot, "amin": _along_one(Operation.MINIMUM),
    "sum": _summed, "mean": _averaged, "abs": _size, "sgn": _sign, "sign": _sign, "logsumexp": _log_of_sum,
    "amax": _along_the_last(Operation.LARGEST, _along_one(Operation.MAXIMUM)),
    "argmax": _along_the_last(Operation.PLACE_OF_LARGEST),
    "gather": _indexed(Operation.GATHER), "scatter_add": _indexed(Operation.SCATTER_ADD),
    "_log_softmax": _softmax(Operation.LOG_SOFTMAX, 1),
    "_softmax": lambda r, s, a, k: r.step(Operation.EXP, s, _softmax(Operation.LOG_SOFTMAX, 1)(r, s, a, k)),
    "_log_softmax_backward_data": _softmax(Operation.LOG_SOFTMAX_BACKWARD, 2),
    "tanh": _plain(Operation.TANH), "tanh_backward": _plain(Operation.TANH_BACKWARD),
    "sigmoid": _plain(Operation.SIGMOID), "sigmoid_backward": _sigmoid_backward,
    "relu": lambda r, s, a, k: r.step(Operation.CLAMP, s, a[0], x=0.0, y=math.inf),
    "threshold_backward": lambda r, s, a, k: r.step(Operation.RECTIFIER_GRADIENT, s, *a[:2], x=a[2]),
    "rsqrt": _inverse_root, "_softmax_backward_data": _soft_maximum_backward,
    "mm": _multiplied, "addmm": _multiplied, "bmm": _multiplied, "baddbmm": _multiplied, "t": _transposed,
    "transpose": _transposed, "permute": _permuted, "floor": _plain(Operation.FLOOR),
    "cos": _plain(Operation.COSINE), "mv": _on_vector, "xlogy": _times_logarithm, "nan_to_num": _without_nan,
    "slice_backward": _put_back, "select_backward": _put_back, "cat": _joined(False),
    "stack": _joined(True), **dict.fromkeys((*VIEWS, "expand"), _copied), "view": _viewed,
    "clone": lambda r, s, a, k: r.step(Operation.COPY, s, a[0]),  # keeps its values when the tensor changes
}  # fmt: skip
SEVERAL: dict[str, Callable[[Steps, Any, Any, Mapping[str, Any]], Sequence[Number | None]]] = {
    "var_mean": _moments, "native_batch_norm": _normalized, "native_batch_norm_backward": _normalized_backward,
    "native_layer_norm": _rows_normalized, "native_layer_norm_backward": _rows_normalized_backward, "sort": _sorted,
}  # fmt: skip
"""Operations with several results."""
