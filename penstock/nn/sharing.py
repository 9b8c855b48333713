"""Learners that compute one update together, each on its share of the rows.

A network's outputs are gathered from all shares before the loss. Losses, targets and normalised advantages are
therefore those of the whole batch in every learner, up to rounding. In the backward pass, each learner continues with
the rows of its own share; then gradients are averaged, and all learners take the same step.

A run with one learner uses nothing in this module.
"""

from __future__ import annotations

import functools
import inspect
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from penstock.nn.modes import has_statistics, modules_with_modes

Method = TypeVar("Method", bound=Callable[..., Any])
Network = TypeVar("Network", bound=nn.Module)


class GroupBroken(RuntimeError):
    """Another learner of the group has died, or has not answered in time."""


class Group:
    """Group of learners that compute together, as seen by one of them.

    Parameters
    ----------
    processes
        Process group of ``torch.distributed`` that carries tensors.
    rank, size
        Index of this learner, and number of learners.
    device
        Device of tensors that the process group can carry.

    Attributes
    ----------
    is_broken
        Whether another learner has died; then no more tensors are sent.
    """

    def __init__(self, processes: Any, rank: int, size: int, device: torch.device) -> None:
        self._processes = processes
        self.rank = rank
        self.size = size
        self.device = device
        self.is_broken = False

    def gather(self, tensor: Tensor) -> Tensor:
        """Return all learners' tensors for this call, float32 ``[size, *shape]``.

        Raises
        ------
        GroupBroken
            Another learner has died, now or earlier; other methods raise it, too.
        """
        mine = tensor.detach().to(self.device).contiguous()
        found = torch.empty((self.size, *mine.shape), dtype=mine.dtype, device=self.device)
        self._wait_for(lambda: self._processes.allgather([list(found.unbind(0))], [mine]))
        return found.to(tensor.device)

    def average_(self, tensors: Sequence[Tensor]) -> None:
        """Replace float32 tensors by their means over all learners, with identical bits in each."""
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).to(self.device)
        self._wait_for(lambda: self._processes.allreduce([flat]))
        flat /= self.size
        means = flat.to(tensors[0].device).split([tensor.numel() for tensor in tensors])
        for tensor, mean in zip(tensors, means, strict=True):
            tensor.detach().copy_(mean.view_as(tensor))

    def send(self, tensor: Tensor, source: int) -> None:
        """Broadcast the tensor of learner `source`, on `device`, to all learners, in place."""
        self._wait_for(lambda: self._processes.broadcast(tensor, source))

    def _wait_for(self, begin: Callable[[], Any]) -> None:
        try:
            if self.is_broken:
                raise RuntimeError("it had died earlier")
            begin().wait()
        except RuntimeError as error:
            self.is_broken = True
            raise GroupBroken(f"a learner of the group has died: {error}") from error


class _Here(threading.local):
    """Group of this thread; a policy worker's thread in the same process has none."""

    group: Group | None = None
    is_in_share = False


_here = _Here()


@contextmanager
def sharing(group: Group) -> Iterator[None]:
    """Within the block, the networks of this thread compute together with those of the group."""
    before, _here.group = _here.group, group
    try:
        yield
    finally:
        _here.group = before


def leave_group() -> None:
    """Compute alone from now on. Called after `GroupBroken`, before the computation is repeated."""
    _here.group = None


def in_shares(out: int, **rows: int) -> Callable[[Method], Method]:
    """Mark a network's method as one that computes each row independently; `share_rows_` splits its rows.

    Parameters
    ----------
    out
        Dimension of the rows in the results: tensors, or action distributions (by their ``map``).
    rows
        Dimension of the rows in each argument that has rows; arguments that are None are skipped.
    """

    def mark(method: Method) -> Method:
        vars(method)["split_rows"] = out, rows
        return method

    return mark


def share_rows_(network: Network) -> Network:
    """Let each learner of a group run a network's marked methods on its share of the rows; they return all results.

    If the rows cannot be split evenly, or a layer of the network normalises by the batch, every learner runs a method
    on all rows, as outside of `sharing`. Return the network.
    """
    for name in dir(type(network)):
        if hasattr(method := getattr(type(network), name), "split_rows"):
            setattr(network, name, types.MethodType(_in_shares(method, *method.split_rows), network))
    return network


def _in_shares(method: Callable[..., Any], out: int, rows: dict[str, int]) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @functools.wraps(method)
    def run(network: nn.Module, *arguments: Any, **named: Any) -> Any:
        group = _here.group
        if group is None or _here.is_in_share:
            return method(network, *arguments, **named)
        bound = signature.bind(network, *arguments, **named).arguments
        split = {name: dim for name, dim in rows.items() if bound.get(name) is not None}
        mixes_rows = any(module.training and has_statistics(module) for module in modules_with_modes(network))
        if mixes_rows or any(bound[name].shape[dim] % group.size for name, dim in split.items()):
            return method(network, *arguments, **named)
        shares = {name: _Share.apply(group, dim, bound[name]) for name, dim in split.items()}
        _here.is_in_share = True
        try:
            return _together(group, method(**{**bound, **shares}), out)
        finally:
            _here.is_in_share = False

    return run


def is_in_share() -> bool:
    """Return whether this thread computes a share of the rows; see `share_rows_`."""
    return _here.group is not None and _here.is_in_share


def moments_of_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return population variance and mean over the rows of inputs ``[..., N, F]``, ``[..., 1, F]`` each.

    Within a share, the moments are those of all learners' rows.
    """
    var, mean = torch.var_mean(x, -2, correction=0, keepdim=True)
    group = _here.group
    if group is None or not _here.is_in_share:
        return var, mean
    means, variances = _OfEach.apply(group, torch.stack((mean, var))).unbind(1)
    whole = means.mean(0)
    return variances.mean(0) + (means - whole).square().mean(0), whole


def average_gradients_(parameters: Iterable[Tensor], *decisive: Tensor) -> None:
    """Average the gradients of parameters over the learners of the group, if any, in place.

    Parameters
    ----------
    parameters
        Parameters; one without a gradient has none in any learner.
    decisive
        0-dimensional values on which decisions depend, such as the loss; float32 ones are averaged too, so that all
        learners decide alike.

    Raises
    ------
    GroupBroken
        A learner has died: the gradient covers a share only and must be computed again, alone.
    """
    if _here.group is not None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        _here.group.average_([*gradients, *(each for each in decisive if each.dtype == torch.float32)])


def _together(group: Group, result: Any, dim: int) -> Any:
    """Join the results of all shares."""
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
    """This learner's share of a whole tensor's rows; the backward pass gathers the gradients of all rows.

    Within shares gradients are multiplied by the size; see `_Whole`.
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
    """Rows of all learners, joined from each learner's; the backward pass takes the gradient of this learner's rows.

    Every learner computes the loss of the whole batch. Averaging the parameters' gradients scales a share's by 1 /
    size; multiplying by the size here compensates, and leaves gradients outside shares unchanged.
    """

    @staticmethod
    def forward(ctx: Any, group: Group, dim: int, *mine: Tensor) -> tuple[Tensor, ...]:
        ctx.group, ctx.dim = group, dim
        everyone = group.gather(torch.cat([tensor.reshape(-1) for tensor in mine]))
        parts = everyone.split([tensor.numel() for tensor in mine], 1)
        return tuple(
            torch.cat([rows.view(tensor.shape) for rows in part], dim) for tensor, part in zip(mine, parts, strict=True)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        group = ctx.group
        return None, None, *(g.chunk(group.size, ctx.dim)[group.rank] * group.size for g in gradients)


class _OfEach(torch.autograd.Function):
    """Every learner's version of a tensor, ``[size, *shape]``, from within a share, with gradients from all learners.

    Each learner's gradient is that of its share times the size, as in `_Whole`.
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
