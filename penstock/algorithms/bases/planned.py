"""Losses as native plans: a loss is read once as torch computes it, and then computed with its gradient in one call.

Small tensors cost torch more to dispatch than to compute. `planned` marks a loss that is a function of its batch, its
network's outputs and the algorithm's settings alone. Its first call for tensors of these shapes runs in torch and
records each operation, forward and backward; the next ones run the recorded plan. A loss with an operation that plans
do not have, or with a tensor of unknown origin, stays in torch.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields
from enum import IntEnum
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils._python_dispatch import TorchDispatchMode

from penstock._native import Plan
from penstock.experience.batch import Batch
from penstock.nn import Distribution
from penstock.nn.mlp import is_native

Loss = Callable[[Any, Batch, Distribution, Tensor], tuple[Tensor, dict[str, Tensor]]]

MAX_PLANS = 8
"""Plans of one loss; further shapes leave it to torch."""
TOLERANCE = 1e-4
"""Largest relative difference between a new plan and torch."""
KINDS = {torch.float32: 0, torch.bool: 1, torch.int64: 2}


class Unplannable(Exception):
    """The loss cannot be computed by a plan; the message says why."""


Operation = IntEnum(
    "Operation",
    "CONSTANT COPY ADD MUL DIV EXP LOG SQRT POWER CLAMP MINIMUM MAXIMUM WHERE GREATER GREATER_EQUAL EQUAL AND OR NOT "
    "SUM GATHER SCATTER_ADD LOG_SOFTMAX LOG_SOFTMAX_BACKWARD",
    start=0,
)
"""Operations of `Plan`, in the order of src/plan.h."""


class Number(int):
    """Number of a tensor in a plan, as distinct from a constant."""


class Recorder(TorchDispatchMode):
    """Records the operations that torch computes in this context as the steps of a plan.

    Parameters
    ----------
    inputs
        Tensors whose values a plan reads at each run.
    """

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self.shapes: list[list[int]] = []
        self.steps: list[tuple[int, int, int, int, int, float, float]] = []
        self._numbers: dict[Hashable, Number] = {}
        self._kept: list[Tensor] = []  # so that no address is used twice
        for each in inputs:
            self._name(each, self._add(each.shape))

    def number(self, tensor: Tensor) -> Number:
        """Return the number of a tensor in the plan."""
        found = self._numbers.get(_place(tensor))
        if found is None:
            raise Unplannable("a tensor is neither in the batch nor computed from it")
        return found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            self._record(func, out, args, kwargs or {})
        else:
            raise Unplannable(f"{func} does not return a tensor")
        return out

    def _add(self, shape: Sequence[int]) -> Number:
        if len(shape) > 3:
            raise Unplannable("a tensor has more than three dimensions")
        self.shapes.append([1] * (3 - len(shape)) + list(shape))
        return Number(len(self.shapes) - 1)

    def _name(self, tensor: Tensor, number: Number) -> None:
        self._numbers[_place(tensor)] = number
        self._kept.append(tensor)

    def step(self, operation: Operation, shape: Sequence[int], *given: Any, x: float = 0.0, y: float = 0.0) -> Number:
        """Add a step on tensors, numbers of tensors, or constants; return the number of its result."""
        numbers = [each if isinstance(each, Number) else self._of(each) for each in given]
        out = self._add(shape)
        a, b, c = [*numbers, -1, -1, -1][:3]
        self.steps.append((int(operation), out, a, b, c, float(x), float(y)))
        return out

    def _of(self, value: Any) -> Number:
        """Number of a tensor, or of a new constant."""
        if isinstance(value, Tensor):
            return self.number(value)
        return self.step(Operation.CONSTANT, (), x=float(value))

    def _record(self, func: Any, out: Tensor, args: Any, kwargs: Mapping[str, Any]) -> None:
        name = func._schema.name.removeprefix("aten::")
        if out.dtype not in KINDS:
            raise Unplannable(f"{name} gives {out.dtype}")
        find = _RECORDED.get(name)
        if find is None:
            raise Unplannable(f"plans have no operation {name}")
        self._name(out, find(self, out.shape, args, kwargs))


# Torch's wrapper imports torch._dynamo at the first call: one or two seconds.
Recorder.__torch_dispatch__ = inspect.unwrap(Recorder.__torch_dispatch__)  # type: ignore[method-assign]


def _place(tensor: Tensor) -> Hashable:
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


def _plain(operation: Operation) -> Callable[..., Number]:
    def find(r: Recorder, shape: Any, args: Any, kwargs: Any) -> Number:
        if kwargs:
            raise Unplannable(f"an operation has {', '.join(kwargs)}")
        return r.step(operation, shape, *args)

    return find


def _added(sign: float) -> Callable[..., Number]:
    return lambda r, shape, args, kwargs: r.step(Operation.ADD, shape, *args[:2], x=sign * kwargs.get("alpha", 1))


def _filled(value: float | None = None) -> Callable[..., Number]:
    def find(r: Recorder, shape: Any, args: Any, kwargs: Any) -> Number:
        return r.step(Operation.CONSTANT, shape, x=args[0] if value is None else value)

    return find


def _copied(r: Recorder, shape: Any, args: Any, kwargs: Mapping[str, Any]) -> Number:
    return r.step(Operation.COPY, shape, args[0])


def _converted(r: Recorder, shape: Any, args: Any, kwargs: Mapping[str, Any]) -> Number:
    before, after = args[0].dtype, kwargs.get("dtype", args[0].dtype)
    if after == torch.bool:
        return _unequal(r, shape, (args[0], 0.0), {})
    if after == torch.int64 and before == torch.float32:
        raise Unplannable("numbers are truncated to integers")
    return _copied(r, shape, args, kwargs)


def _unequal(r: Recorder, shape: Any, args: Any, kwargs: Any) -> Number:
    return r.step(Operation.NOT, shape, r.step(Operation.EQUAL, shape, *args))


def _filled_where(r: Recorder, shape: Any, args: Any, kwargs: Any) -> Number:
    return r.step(Operation.WHERE, shape, args[1], args[2], args[0])


def _clamped(r: Recorder, shape: Any, args: Any, kwargs: Mapping[str, Any]) -> Number:
    bounds = [*args[1:], None, None]
    low, high = kwargs.get("min", bounds[0]), kwargs.get("max", bounds[1])
    infinity = float("inf")
    low, high = -infinity if low is None else low, infinity if high is None else high
    return r.step(Operation.CLAMP, shape, args[0], x=low, y=high)


def _powered(r: Recorder, shape: Any, args: Any, kwargs: Any) -> Number:
    if args[1] == 2:
        return r.step(Operation.MUL, shape, args[0], args[0])
    return r.step(Operation.POWER, shape, args[0], x=args[1])


def _summed(r: Recorder, shape: Any, args: Any, kwargs: Any) -> Number:
    kept = [1] * args[0].ndim
    if len(args) > 1 and args[1]:
        dims = {dim % args[0].ndim for dim in args[1]}
        kept = [1 if dim in dims else size for dim, size in enumerate(args[0].shape)]
    whole = r.step(Operation.SUM, kept, args[0])
    return whole if tuple(kept) == tuple(shape) else r.step(Operation.COPY, shape, whole)


def _indexed(operation: Operation) -> Callable[..., Number]:
    def find(r: Recorder, shape: Any, args: Any, kwargs: Any) -> Number:
        if args[1] % args[0].ndim != args[0].ndim - 1:
            raise Unplannable("an index is not along the last dimension")
        return r.step(operation, shape, args[0], *args[2:4])

    return find


def _softmax(operation: Operation, count: int) -> Callable[..., Number]:
    def find(r: Recorder, shape: Any, args: Any, kwargs: Any) -> Number:
        if args[count] % len(shape) != len(shape) - 1:
            raise Unplannable("a softmax is not along the last dimension")
        return r.step(operation, shape, *args[:count])

    return find


def _less(operation: Operation) -> Callable[..., Number]:
    return lambda r, shape, args, kwargs: r.step(operation, shape, args[1], args[0])


_RECORDED: dict[str, Callable[..., Number]] = {
    "add": _added(1.0), "sub": _added(-1.0), "rsub": lambda r, s, a, k: _added(-1.0)(r, s, (a[1], a[0]), k),
    "mul": _plain(Operation.MUL), "div": _plain(Operation.DIV), "exp": _plain(Operation.EXP),
    "neg": lambda r, s, a, k: r.step(Operation.MUL, s, a[0], -1.0),
    "log": _plain(Operation.LOG), "sqrt": _plain(Operation.SQRT), "pow": _powered, "clamp": _clamped,
    "clamp_min": _clamped, "minimum": _plain(Operation.MINIMUM), "maximum": _plain(Operation.MAXIMUM),
    "where": _plain(Operation.WHERE), "gt": _plain(Operation.GREATER), "ge": _plain(Operation.GREATER_EQUAL),
    "lt": _less(Operation.GREATER), "le": _less(Operation.GREATER_EQUAL), "eq": _plain(Operation.EQUAL),
    "ne": _unequal, "_to_copy": _converted,
    "logical_and": _plain(Operation.AND), "logical_and_": _plain(Operation.AND), "bitwise_and": _plain(Operation.AND),
    "logical_or": _plain(Operation.OR), "bitwise_or": _plain(Operation.OR), "bitwise_not": _plain(Operation.NOT),
    "masked_fill": _filled_where, "masked_fill_": _filled_where,
    "scalar_tensor": _filled(), "zeros_like": _filled(0.0), "ones_like": _filled(1.0), "new_zeros": _filled(0.0),
    "sum": _summed, "gather": _indexed(Operation.GATHER), "scatter_add": _indexed(Operation.SCATTER_ADD),
    "_log_softmax": _softmax(Operation.LOG_SOFTMAX, 1),
    "_log_softmax_backward_data": _softmax(Operation.LOG_SOFTMAX_BACKWARD, 2),
    **dict.fromkeys(("detach", "view", "unsqueeze", "squeeze", "expand", "alias", "_unsafe_view", "clone"), _copied),
}  # fmt: skip


class PlannedLoss:
    """A loss as a plan, for tensors of the shapes that it was recorded with.

    Parameters
    ----------
    loss
        Function of a batch, a distribution and values; returns the loss and its metrics, 0-dimensional.
    batch, policy, value
        As the loss is called with.

    Raises
    ------
    Unplannable
        Plans cannot compute it.
    """

    def __init__(self, loss: Any, batch: Batch, policy: Distribution, value: Tensor) -> None:
        leaves = [leaf.detach().contiguous().requires_grad_() for leaf in leaves_of(policy, value)]
        given = iter(leaves)
        read = tensors_of(batch)
        usable = [place for place, tensor in read.items() if tensor.dtype in KINDS and tensor.ndim <= 3]
        # Copies, because tensors are known by their memory, and two of a batch may share theirs.
        copies = {id(read[place]): read[place].clone(memory_format=torch.contiguous_format) for place in usable}
        inputs = [*leaves, *(copies[id(read[place])] for place in usable)]
        recorder = Recorder(inputs)
        copied = batch.map(lambda _, tensor: copies.get(id(tensor), tensor))
        with torch.enable_grad(), recorder:
            total, metrics = loss(copied, policy.map(lambda _: next(given)), leaves[-1])
            gradients = torch.autograd.grad(total, leaves, allow_unused=True)
        scalars = [total, *metrics.values()]
        if any(not isinstance(each, Tensor) or each.ndim for each in scalars):
            raise Unplannable("the loss or a metric is no number")
        results = [*scalars, *(each for each in gradients if each is not None)]
        self._names = list(metrics)
        self._has_gradient = [each is not None for each in gradients]
        kinds = [KINDS[each.dtype] for each in inputs]
        self._plan, kept = _pruned(recorder, kinds, [recorder.number(each) for each in results])
        self._leaves = [number for number in kept if number < len(leaves)]
        self._places = [usable[number - len(leaves)] for number in kept if number >= len(leaves)]
        self._shapes = [inputs[number].shape for number in kept]
        self._require_same(results, batch, policy, value)

    def __call__(self, batch: Batch, leaves: Sequence[Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss, its metrics, and the gradient that the loss's ``backward`` returns, from `leaves_of`."""
        scalars = torch.empty(1 + len(self._names))
        loss: Tensor = _Planned.apply(self, batch, scalars, *leaves)
        return loss, dict(zip(self._names, scalars[1:].unbind(), strict=True))

    def run(self, batch: Batch, leaves: Sequence[Tensor], scalars: Tensor) -> list[Tensor | None]:
        """Compute loss and metrics into a row; return the gradient of each leaf, None where there is none."""
        read = [leaves[number] for number in self._leaves] + [_at(batch, *place) for place in self._places]
        if [each.shape for each in read] != self._shapes:
            raise ValueError("a tensor of the batch has another shape than when its plan was recorded")
        read = [each.contiguous() for each in read]
        gradients = [
            torch.empty(leaf.shape) if has else None for leaf, has in zip(leaves, self._has_gradient, strict=True)
        ]
        first = scalars.data_ptr()
        addresses = [first + 4 * number for number in range(len(scalars))]
        addresses += [each.data_ptr() for each in gradients if each is not None]
        self._plan.run([each.data_ptr() for each in read], addresses)
        return gradients

    def _require_same(self, results: Sequence[Tensor], batch: Batch, policy: Distribution, value: Tensor) -> None:
        scalars = torch.empty(1 + len(self._names))
        leaves = [leaf.detach() for leaf in leaves_of(policy, value)]
        gradients = self.run(batch, leaves, scalars)
        found = [*scalars, *(each for each in gradients if each is not None)]
        for one, other in zip(found, results, strict=True):
            scale = other.detach().abs().max().clamp(min=1e-12 if other.ndim else 1.0)
            if not torch.allclose(one / scale, other / scale, rtol=0.0, atol=TOLERANCE, equal_nan=True):
                raise Unplannable("its plan computes other numbers than torch")


class _Planned(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: PlannedLoss, batch: Batch, scalars: Tensor, *leaves: Tensor) -> Tensor:
        ctx.gradients = plan.run(batch, leaves, scalars)
        return scalars[0].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, *(None if each is None else each * gradient for each in ctx.gradients)


def planned(loss: Loss) -> Loss:
    """Mark the loss of an algorithm of segments that plans may compute.

    It must be a function of its batch's tensors, the distributions and values, and the settings alone. It stays in
    torch with an entropy coefficient that changes during the run, and in subclasses of other packages, whose methods
    may depend on more.
    """
    package = loss.__module__.partition(".")[0]
    plans: WeakKeyDictionary[Any, tuple[Any, dict[Hashable, PlannedLoss | None]]] = WeakKeyDictionary()

    @functools.wraps(loss)
    def compute(self: Any, batch: Batch, policy: Distribution, value: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        c = self.config
        changes = c.entropy_coef_final is not None or not isinstance(c.entropy_coef, int | float)
        is_foreign = type(self).__module__.partition(".")[0] != package
        if changes or is_foreign or c.num_learners > 1 or not torch.is_grad_enabled():
            return loss(self, batch, policy, value)
        leaves = leaves_of(policy, value)
        if not is_native(*leaves):
            return loss(self, batch, policy, value)
        config, known = plans.get(self, (None, {}))
        if config is not self.config:
            known = {}
            plans[self] = self.config, known
        shapes = tuple(leaf.shape for leaf in leaves)
        key = type(policy), shapes, tuple(batch.targets)
        if key not in known:
            if len(known) >= MAX_PLANS:
                return loss(self, batch, policy, value)
            try:
                known[key] = PlannedLoss(functools.partial(loss, self), batch, policy, value)
            except Unplannable:
                known[key] = None
        plan = known[key]
        return loss(self, batch, policy, value) if plan is None else plan(batch, leaves)

    return compute


def leaves_of(policy: Distribution, value: Tensor) -> list[Tensor]:
    """Return the parameters of distributions, and the values, which follow them."""
    found: list[Tensor] = []

    def see(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    policy.map(see)
    return [*found, value]


Place = tuple[str, str | None]
"""Field of a batch, and key within it."""


def tensors_of(batch: Batch) -> dict[Place, Tensor]:
    """Return the tensors of a batch by place."""
    found: dict[Place, Tensor] = {}
    for field in fields(batch):
        value = getattr(batch, field.name)
        if isinstance(value, Tensor):
            found[field.name, None] = value
        elif isinstance(value, dict):
            found |= {(field.name, key): tensor for key, tensor in value.items()}
    return found


def _at(batch: Batch, name: str, key: str | None) -> Tensor:
    found = getattr(batch, name)
    tensor: Tensor = found if key is None else found[key]
    return tensor


def _pruned(recorder: Recorder, kinds: list[int], outputs: list[int]) -> tuple[Plan, list[int]]:
    """Return the plan without what its outputs do not need, and the inputs that it reads."""
    needed = set(outputs)
    steps = []
    for step in reversed(recorder.steps):
        if step[1] in needed:
            steps.append(step)
            needed.update(number for number in step[2:5] if number >= 0)
    inputs = [number for number in range(len(kinds)) if number in needed]
    numbers = {-1: -1, **{old: new for new, old in enumerate(inputs)}}
    for step in reversed(steps):
        numbers[step[1]] = len(numbers) - 1
    shapes = [recorder.shapes[number] for number in numbers if number >= 0]
    renumbered = [(o, numbers[t], numbers[a], numbers[b], numbers[c], x, y) for o, t, a, b, c, x, y in reversed(steps)]
    plan = Plan(shapes, [kinds[number] for number in inputs], renumbered, [numbers[number] for number in outputs])
    return plan, inputs
