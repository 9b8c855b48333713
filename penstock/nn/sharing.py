"""Learners that compute one update together: each runs the network on its share of the rows, and all have the whole.

What a network says of rows is put together from all shares before a loss sees it. So losses, targets, normalised
advantages and whatever else is computed of a batch are those of one learner, in every learner, to rounding. Backwards
each learner carries on with the rows of its own share; then gradients are averaged, and all make the same step.

Without a group, which is the rule, nothing here does anything.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

from penstock.nn.modes import has_statistics, modules_with_modes

Method = TypeVar("Method", bound=Callable[..., Any])


class GroupBroken(RuntimeError):
    """Another learner of the group has gone, or has not answered in time."""


class Group:
    """Learners that compute together, as one of them sees it.

    Parameters
    ----------
    processes
        Carries tensors between them: a process group of ``torch.distributed``.
    rank, size
        Which of how many it is.
    device
        Where tensors must lie to be carried.

    Attributes
    ----------
    is_broken
        Whether one of them has gone: then nothing is carried any more.
    """

    def __init__(self, processes: Any, rank: int, size: int, device: torch.device) -> None:
        self._processes = processes
        self.rank = rank
        self.size = size
        self.device = device
        self.is_broken = False

    def gather(self, tensor: Tensor) -> Tensor:
        """The tensors that all learners have in this place, float32 ``[size, *shape]``.

        Raises
        ------
        GroupBroken
            As every method does: another learner has gone, now or before.
        """
        mine = tensor.detach().to(self.device).contiguous()
        found = torch.empty((self.size, *mine.shape), dtype=mine.dtype, device=self.device)
        self._wait_for(lambda: self._processes.allgather([list(found.unbind(0))], [mine]))
        return found.to(tensor.device)

    def average_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors, float32, by their means over all learners: the same bits in each of them."""
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).to(self.device)
        self._wait_for(lambda: self._processes.allreduce([flat]))
        flat /= self.size
        means = flat.to(tensors[0].device).split([tensor.numel() for tensor in tensors])
        for tensor, mean in zip(tensors, means, strict=True):
            tensor.detach().copy_(mean.view_as(tensor))

    def send(self, tensor: Tensor, source: int) -> None:
        """Give all learners the tensor of one of them, in place; it lies on `device`."""
        self._wait_for(lambda: self._processes.broadcast(tensor, source))

    def _wait_for(self, begin: Callable[[], Any]) -> None:
        try:
            if self.is_broken:
                raise RuntimeError("it had gone before")
            begin().wait()
        except RuntimeError as error:
            self.is_broken = True
            raise GroupBroken(f"a learner of the group has gone: {error}") from error


class _Here(threading.local):
    """Group of this thread; a policy worker that shares the process has none."""

    group: Group | None = None
    is_in_share = False


_here = _Here()


@contextmanager
def sharing(group: Group) -> Iterator[None]:
    """Within the block the networks of this thread compute with the others of the group, which do the same."""
    before, _here.group = _here.group, group
    try:
        yield
    finally:
        _here.group = before


def leave_group() -> None:
    """Compute alone from now on: after `GroupBroken`, and before the computation at hand is done anew."""
    _here.group = None


def in_shares(out: int, **rows: int) -> Callable[[Method], Method]:
    """Have each learner of a group run a network's method on its share of the rows, and return what comes of all.

    Where the rows cannot be shared out evenly every learner runs it on all of them, and so it does where layers of the
    network normalise by the batch.

    Parameters
    ----------
    out
        Dimension of the rows in the results: a tensor, several, or distributions of actions (their ``map``).
    rows
        Dimension of the rows in each argument that has some; one that is None has none.
    """

    def shared(method: Method) -> Method:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def run(*arguments: Any, **named: Any) -> Any:
            group = _here.group
            if group is None or _here.is_in_share:
                return method(*arguments, **named)
            bound = signature.bind(*arguments, **named).arguments
            split = {name: dim for name, dim in rows.items() if bound.get(name) is not None}
            if _mixes_rows(arguments[0]) or any(bound[name].shape[dim] % group.size for name, dim in split.items()):
                return method(*arguments, **named)
            shares = {name: _Share.apply(group, dim, bound[name]) for name, dim in split.items()}
            _here.is_in_share = True
            try:
                return _together(group, method(**{**bound, **shares}), out)
            finally:
                _here.is_in_share = False

        return run  # type: ignore[return-value]

    return shared


def _mixes_rows(network: Any) -> bool:
    """Whether a layer of a network computes something else of a row when others are beside it."""
    return any(module.training and has_statistics(module) for module in modules_with_modes(network))


def moments_of_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Population variance and mean over the rows of inputs ``[..., N, F]``, ``[..., 1, F]`` each.

    Where the rows are a share, those are meant that all learners of the group have.
    """
    var, mean = torch.var_mean(x, -2, correction=0, keepdim=True)
    group = _here.group
    if group is None or not _here.is_in_share:
        return var, mean
    means, variances = _OfEach.apply(group, torch.stack((mean, var))).unbind(1)
    whole = means.mean(0)
    return variances.mean(0) + (means - whole).square().mean(0), whole


def average_gradients_(parameters: Iterable[Tensor], *decisive: Tensor) -> None:
    """Average the gradients of parameters over the learners of the group, if there is one, in place.

    Parameters
    ----------
    parameters
        Those without a gradient have none in any learner.
    decisive
        What else is decided by, such as the loss, 0-dimensional: averaged too, so that all decide alike. What is not
        float32 stays as it is.

    Raises
    ------
    GroupBroken
        A learner has gone: the gradient is of a share, and is to be computed anew, alone.
    """
    if _here.group is not None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        _here.group.average_([*gradients, *(each for each in decisive if each.dtype == torch.float32)])


def _together(group: Group, result: Any, dim: int) -> Any:
    """Put what came of a share together with what came of the others."""
    mine: list[Tensor] = []

    def take(tensor: Tensor) -> Tensor:
        mine.append(tensor)
        return tensor

    _each_tensor(result, take)
    whole = iter(_Whole.apply(group, dim, *mine))
    return _each_tensor(result, lambda _: next(whole))


def _each_tensor(result: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(result, Tensor):
        return change(result)
    if isinstance(result, tuple):
        return tuple(_each_tensor(part, change) for part in result)
    return result.map(change)


class _Share(torch.autograd.Function):
    """The rows of a tensor that are the own share, from outside of it; backwards the gradients of all rows.

    Within shares gradients are multiplied by the size, as `_Whole` says.
    """

    @staticmethod
    def forward(ctx: Any, group: Group, dim: int, whole: Tensor) -> Tensor:
        ctx.group, ctx.dim = group, dim
        return whole.chunk(group.size, dim)[group.rank]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        everyone = ctx.group.gather(gradients[0]) / ctx.group.size
        return None, None, torch.cat(list(everyone.unbind(0)), ctx.dim)


class _Whole(torch.autograd.Function):
    """Tensors of all learners' rows, of those of each; backwards the gradient of the own rows.

    The loss is computed in every learner, of the whole. When the gradients of the parameters are averaged, that of a
    share counts 1 / size: so it is multiplied by the size here, and what is no share's stays as it is.
    """

    @staticmethod
    def forward(ctx: Any, group: Group, dim: int, *mine: Tensor) -> tuple[Tensor, ...]:
        ctx.group, ctx.dim = group, dim
        everyone = group.gather(torch.cat([tensor.reshape(-1) for tensor in mine]))
        parts = everyone.split([tensor.numel() for tensor in mine], 1)
        return tuple(
            torch.cat([rows.view(tensor.shape) for rows in part], dim)
            for tensor, part in zip(mine, parts, strict=True)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        group = ctx.group
        return None, None, *(g.chunk(group.size, ctx.dim)[group.rank] * group.size for g in gradients)


class _OfEach(torch.autograd.Function):
    """A tensor as each learner has it, ``[size, *shape]``, from within a share: what others make of it moves it, too.

    The gradient of each learner is that of its share times the size, as `_Whole` leaves it.
    """

    @staticmethod
    def forward(ctx: Any, group: Group, mine: Tensor) -> Tensor:
        ctx.group = group
        return group.gather(mine)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        gradient = gradients[0].clone()
        ctx.group.average_([gradient])
        return None, gradient[ctx.group.rank] * ctx.group.size
