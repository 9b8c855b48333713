"""Temporal-difference learning from replay: targets, errors, schedules and target networks.

Pure functions of a batch of transitions ``(o, a, reward, discount, o')`` from the replay buffer: ``reward`` is the
n-step return, ``discount`` the factor of the bootstrap, ``gamma^m``, or 0 after a termination. Functions of sequences
take single steps: ``discount`` is ``gamma``, or 0 after a termination.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from penstock.algorithms.arithmetic.rescaling import inverse_rescale, rescale


def td_target(reward: Tensor, discount: Tensor, next_value: Tensor, *, rescaled: bool = False) -> Tensor:
    """One-step target, ``y = r + discount * next_value``; for rescaled values ``h(r + discount * h^-1(next_value))``.

    Parameters
    ----------
    reward : Tensor
        Rewards, or n-step returns ``sum_i gamma^i r_{t+i}`` of ``m`` steps, float32 ``[N]``.
    discount : Tensor
        ``gamma^m``, or 0 where the last step terminated the episode, float32 ``[N]``.
    next_value : Tensor
        Value of the observation ``m`` steps later, float32 ``[N]``, or ``[..., N]`` for several at once.
    rescaled : bool
        Whether values and targets are rescaled returns (see `rescale`).

    Returns
    -------
    Tensor
        Targets, float32, the shape of ``next_value``.
    """
    if rescaled:
        return rescale(torch.addcmul(reward, discount, inverse_rescale(next_value)))
    return torch.addcmul(reward, discount, next_value)


def max_q_value(q_next_target: Tensor) -> Tensor:
    """Value of the best action by the target network, ``max_a Q(o', a; theta^-)`` (doi:10.1038/nature14236).

    Parameters
    ----------
    q_next_target : Tensor
        Action values of the target network, float32 ``[N, A]``.

    Returns
    -------
    Tensor
        Values, float32 ``[N]``.
    """
    return q_next_target.amax(-1)


def double_q_value(q_next_online: Tensor, q_next_target: Tensor) -> Tensor:
    """Value, by the target network, of the online network's best action (arXiv:1509.06461, equation 4).

        Q(o', argmax_a Q(o', a; theta); theta^-)

    Parameters
    ----------
    q_next_online : Tensor
        Action values of the online network, float32 ``[N, A]``.
    q_next_target : Tensor
        Action values of the target network, float32 ``[N, A]``.

    Returns
    -------
    Tensor
        Values, float32 ``[N]``.
    """
    return q_next_target.gather(-1, q_next_online.argmax(-1, keepdim=True)).squeeze(-1)


def scaled_log_policy(q: Tensor, temperature: float) -> Tensor:
    """Logarithm of a soft policy, times its temperature: ``tau log pi(a|o)`` with ``pi = softmax(Q / tau)``.

    Parameters
    ----------
    q : Tensor
        Action values, float32 ``[..., A]``.
    temperature : float
        ``tau``, in units of returns; towards 0 the policy is greedy.

    Returns
    -------
    Tensor
        0 or less, in units of returns, float32 ``[..., A]``.
    """
    return temperature * (q / temperature).log_softmax(-1)


def munchausen_bonus(q_target: Tensor, action: Tensor, alpha: float, temperature: float, floor: float) -> Tensor:
    """Term that Munchausen reinforcement learning adds to a step's reward (M-DQN, arXiv:2007.14430, equation 2).

        alpha clip( tau log pi(a|o), l_0, 0 )    with pi = softmax(Q(o, .; theta^-) / tau)

    Parameters
    ----------
    q_target : Tensor
        Action values of the target network, float32 ``[..., A]``.
    action : Tensor
        Action taken, int64 ``[...]``.
    alpha : float
        Weight of the term.
    temperature : float
        ``tau``.
    floor : float
        ``l_0``, less than 0: the logarithm of a policy has no lower bound.

    Returns
    -------
    Tensor
        From ``alpha * floor`` to 0, float32 ``[...]``.
    """
    log_policy = scaled_log_policy(q_target, temperature).gather(-1, action.unsqueeze(-1)).squeeze(-1)
    return alpha * log_policy.clamp(floor, 0.0)


def soft_q_value(q_next_target: Tensor, temperature: float) -> Tensor:
    """Value of a soft policy with its entropy, ``sum_a pi(a|o') (Q(o', a) - tau log pi(a|o'))`` (arXiv:2007.14430).

    With ``pi = softmax(Q / tau)`` this is ``tau log sum_a exp(Q(o', a) / tau)``.

    Parameters
    ----------
    q_next_target : Tensor
        Action values of the target network, float32 ``[..., A]``.
    temperature : float
        ``tau``.

    Returns
    -------
    Tensor
        Values, float32 ``[...]``: the largest action value, or up to ``tau log A`` more.
    """
    return temperature * (q_next_target / temperature).logsumexp(-1)


def n_step_targets(
    reward: Tensor, discount: Tensor, value: Tensor, valid: Tensor, n_step: int, *, rescaled: bool = False
) -> Tensor:
    """n-step targets along sequences (R2D2, OpenReview r1lyTjAqYX, section 2.3).

        y_t = sum_{k<m} d_t ... d_{t+k-1} r_{t+k} + d_t ... d_{t+m-1} v_{t+m}

    with ``m = min(n, steps from t to the end of the sequence or its episode)``: targets near the end have fewer steps.

    Parameters
    ----------
    reward, discount : Tensor
        Reward and discount of each step, float32 ``[T, B]``; the discount is ``gamma``, or 0 after a termination.
    value : Tensor
        Values of all observations, including the one after the last step, float32 ``[T + 1, B]``.
    valid : Tensor
        Rows that are steps, bool ``[T, B]``. The row after an episode's last step is not: it holds the final
        observation.
    n_step : int
        ``n``, 1 or more.
    rescaled : bool
        Whether values and targets are rescaled returns: ``h(y_t)`` of ``h^-1(v)`` (see `rescale`).

    Returns
    -------
    Tensor
        Targets, float32 ``[T, B]``; meaningless in rows that are not steps.
    """
    y = value = inverse_rescale(value) if rescaled else value
    for _ in range(n_step):
        y = torch.cat((torch.where(valid, torch.addcmul(reward, discount, y[1:]), value[:-1]), value[-1:]))
    return rescale(y[:-1]) if rescaled else y[:-1]


def sequence_priority(td_error: Tensor, mask: Tensor, eta: float) -> Tensor:
    """Priority of sequences, ``eta max_t |delta_t| + (1 - eta) mean_t |delta_t|`` (OpenReview r1lyTjAqYX, section 2.3).

    Parameters
    ----------
    td_error : Tensor
        Temporal differences ``delta``, float32 ``[T, B]``.
    mask : Tensor
        Steps that count, bool ``[T, B]``.
    eta : float
        Share of the maximum, in [0, 1].

    Returns
    -------
    Tensor
        Priorities, float32 ``[B]``; 0 for sequences without a step that counts.
    """
    error = td_error.abs().masked_fill(~mask, 0.0)
    return eta * error.amax(0) + (1.0 - eta) * error.sum(0) / mask.sum(0).clamp(min=1)


def half_squared(error: Tensor) -> Tensor:
    """Half the squared error, element by element."""
    return 0.5 * error * error


def huber(error: Tensor) -> Tensor:
    """Huber loss with threshold 1, element by element: ``e^2 / 2`` within [-1, 1], ``|e| - 1/2`` outside.

    Its gradient is the error clipped to [-1, 1] (doi:10.1038/nature14236, methods).
    """
    magnitude = error.abs()
    near = magnitude.clamp(max=1.0)
    return near * (magnitude - 0.5 * near)


def squared_td_error(q: Tensor, y: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Loss of the critics, ``sum_i mean_n w_n (q_in - y_n)^2``, computed together with its gradient.

    Parameters
    ----------
    q : Tensor
        Values of one critic or of several, float32 ``[N]`` or ``[C, N]``.
    y : Tensor
        Targets, float32 ``[N]``, without gradient.
    weights : Tensor
        Weights of the transitions, float32 ``[N]``.

    Returns
    -------
    loss : Tensor
        0-dimensional, with gradient to ``q``.
    td_error : Tensor
        ``q - y``, float32, the shape of ``q``, without gradient.
    """
    loss, td_error = _SquaredError.apply(q, y, weights)
    return loss, td_error


class _SquaredError(torch.autograd.Function):
    """One backward step instead of five, whose overhead would exceed their arithmetic."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, y: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        error = q - y
        weighted = weights * error
        ctx.save_for_backward(weighted)
        ctx.mark_non_differentiable(error)
        return torch.dot(weighted.flatten(), error.flatten()) / weights.numel(), error

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (weighted,) = ctx.saved_tensors
        return weighted * (gradients[0] * (2.0 / weighted.shape[-1])), None, None


def largest_error(td_error: Tensor) -> Tensor:
    """Largest magnitude over critics of errors ``[C, N]``, or magnitude of one critic's ``[N]``; float32 ``[N]``."""
    size = td_error.detach().abs()
    return size.amax(0) if size.ndim > 1 else size


def target_policy_noise(noise: Tensor, std: float, clip: float) -> Tensor:
    """Noise that smooths the target policy, ``clip(std * noise, -clip, clip)`` (arXiv:1802.09477, equation 14).

    Parameters
    ----------
    noise : Tensor
        Standard normal, float32 ``[N, d]``; new for every update.
    std, clip : float
        Standard deviation and bound, in units of actions in [-1, 1].

    Returns
    -------
    Tensor
        Noise of the target action, float32 ``[N, d]``; their sum is then clipped to [-1, 1].
    """
    return (noise * std).clamp_(-clip, clip)


def epsilon_ladder(num_lanes: int, base: float = 0.4, exponent: float = 7.0) -> list[float]:
    """Exploration rate of each lane, from ``base`` down (arXiv:1803.00933, section 4.1).

        epsilon_i = base ^ (1 + exponent * i / (N - 1))

    Parameters
    ----------
    num_lanes : int
        Number ``N`` of lanes; a single one gets ``base``.
    base : float
        Rate of the first lane, in (0, 1].
    exponent : float
        The last lane's rate is ``base ^ (1 + exponent)``.

    Returns
    -------
    list of float
        ``N`` rates, lane by lane.
    """
    return [base ** (1.0 + exponent * lane / max(num_lanes - 1, 1)) for lane in range(num_lanes)]


def linear_schedule(start: float, end: float, step: float, duration: float) -> float:
    """Value at ``step`` of the line from ``start`` at 0 to ``end`` at ``duration``; ``end`` from there on."""
    return end if step >= duration else start + (end - start) * step / duration


@torch.no_grad()
def polyak_(targets: Sequence[Tensor], parameters: Sequence[Tensor], tau: float | Tensor) -> None:
    """Move target parameters towards the online ones, in place: ``theta^- <- tau theta + (1 - tau) theta^-``.

    Parameters
    ----------
    targets, parameters : sequence of Tensor
        Parameters of equal shapes in the same order (arXiv:1509.02971, algorithm 1).
    tau : float or Tensor
        Fraction of the distance, in [0, 1]; as a tensor float32 ``[]``.
    """
    if isinstance(tau, Tensor):  # a named overload: otherwise torch waits for the number
        torch.ops.aten._foreach_lerp_.List(list(targets), list(parameters), [tau] * len(targets))
    else:
        torch._foreach_lerp_(list(targets), list(parameters), tau)
