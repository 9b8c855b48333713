"""Return estimators: targets of values and advantages of actions along segments.

Pure functions of time-major tensors. Row ``t`` of ``reward``, ``terminated`` and ``truncated`` belongs to the
transition that leaves observation ``t``; ``value`` has one more row, so ``value[t + 1]`` is the value of the true
successor of observation ``t`` (after a truncation the final row). There are two switches:

    d_t = gamma * (1 - terminated_t)        bootstrap: zero only where no future exists
    k_t = (1 - boundary_t) * valid_t+1      trace: zero at every boundary and before an invalid row

An invalid row is a final row or padding: its observation is the bootstrap of the row before it, but it is not a step.
Invalid rows have advantage 0 and their own value as target. No result has a gradient.
"""

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0


@torch.no_grad()
def gae(
    reward: Tensor, value: Tensor, terminated: Tensor, truncated: Tensor, *, gamma: float, lambda_: float,
    valid: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Generalised advantage estimation, arXiv:1506.02438 equation 16; truncation is not termination.

        delta_t = r_t + d_t V_t+1 - V_t
        A_t     = delta_t + gamma lambda k_t A_t+1

    Parameters
    ----------
    reward : Tensor
        Rewards, floating ``[T, B]``.
    value : Tensor
        Values of all observations, including the one after the last step, floating ``[T + 1, B]``.
    terminated, truncated : Tensor
        Boundary flags of each step, bool ``[T, B]``.
    gamma, lambda_ : float
        Discount, and the weight of longer returns (0: one-step errors, 1: Monte-Carlo advantages).
    valid : Tensor, optional
        Rows that are steps, bool ``[T, B]``; default: all.

    Returns
    -------
    advantage : Tensor
        ``A_t``, ``[T, B]``.
    target : Tensor
        Target of the value, ``A_t + V_t``, ``[T, B]``.

    Raises
    ------
    ValueError
        The shapes do not match.
    """
    _check_shapes(reward, value, terminated=terminated, truncated=truncated, valid=valid)
    error, decay = _errors_and_decay(reward, value, terminated, truncated, valid, gamma, lambda_)
    advantage = _accumulate(error, decay)
    return advantage, advantage + value[:-1]


@torch.no_grad()
def lambda_return(
    reward: Tensor, value: Tensor, terminated: Tensor, truncated: Tensor, *, gamma: float, lambda_: float,
    valid: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Lambda-returns, arXiv:2407.04811 equation 6; truncation is not termination.

        G_t = r_t + d_t (lambda G_t+1 + (1 - lambda) V_t+1)    where the trace continues (k_t)
        G_t = r_t + d_t V_t+1                                  elsewhere

    With ``V = max_a Q`` these are the returns of Peng's Q(lambda): traces are not cut at actions that are not the best.
    Parameters and errors are those of `gae`; the result is its ``target``.
    """
    return gae(reward, value, terminated, truncated, gamma=gamma, lambda_=lambda_, valid=valid)[1]


@torch.no_grad()
def vtrace(
    reward: Tensor, value: Tensor, terminated: Tensor, truncated: Tensor, log_ratio: Tensor, *, gamma: float,
    lambda_: float = 1.0, rho_bar: float = 1.0, c_bar: float = 1.0, rho_pg_bar: float | None = 1.0,
    valid: Tensor | None = None, relevant: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """V-trace targets and advantages, arXiv:1802.01561 equation 1, remarks 1 and 2, section 4.2.

        e_t    = rho_t (r_t + d_t V_t+1 - V_t) + gamma lambda c_t k_t e_t+1
        v_t    = V_t + e_t
        pg_t   = rho_pg_t (r_t + d_t next_t - V_t)
        next_t = lambda v_t+1 + (1 - lambda) V_t+1  where the trace continues (k_t), else V_t+1

    with ``rho``, ``c`` and ``rho_pg`` the ratio pi/mu, truncated at ``rho_bar``, ``c_bar`` and ``rho_pg_bar``.
    On-policy ``pg`` is ``gae`` with the same lambda, and with lambda 1 ``v`` is the n-step return.

    Parameters
    ----------
    reward, value, terminated, truncated, valid
        As for :func:`gae`.
    log_ratio : Tensor
        ``log pi(a_t) - log mu(a_t)``, floating ``[T, B]``; clipped to [-20, 20] before its exponential.
    gamma, lambda_ : float
        Discount, and the weight of longer returns in both results.
    rho_bar : float
        Bound on the ratio in the temporal difference. It determines *which* policy's value is learned (1: between mu
        and pi, infinity: pi's). Convergence is proven for ``rho_bar >= c_bar``.
    c_bar : float
        Bound on the ratio in the trace. It affects only the speed of convergence.
    rho_pg_bar : float, optional
        Bound on the ratio in the advantage; None: the advantage is not multiplied by the ratio.
    relevant : Tensor, optional
        Relevant states, bool ``[T, B]``; default: all. Traces and advantages end at the value of a state that is not
        relevant (LASER, arXiv:1909.11583, section 4). Results at such a state itself are meaningless.

    Returns
    -------
    target : Tensor
        ``v_t``, ``[T, B]``.
    advantage : Tensor
        ``pg_t``, ``[T, B]``.

    Raises
    ------
    ValueError
        The shapes do not match.
    """
    _check_shapes(
        reward, value, terminated=terminated, truncated=truncated, log_ratio=log_ratio, valid=valid, relevant=relevant
    )
    error, decay = _errors_and_decay(reward, value, terminated, truncated, valid, gamma, lambda_)
    if relevant is not None:
        decay = decay.masked_fill(~torch.cat((relevant[1:], relevant.new_ones(1, relevant.shape[1]))), 0.0)
    ratio = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp_()
    if valid is not None:
        ratio.masked_fill_(~valid, 1.0)
    correction = _accumulate(ratio.clamp(max=rho_bar) * error, ratio.clamp(max=c_bar) * decay)
    # next_t differs from V_t+1 by lambda e_t+1 where the trace continues, and gamma lambda k_t is `decay`.
    advantage = torch.cat((torch.addcmul(error[:-1], decay[:-1], correction[1:]), error[-1:]))
    if rho_pg_bar is not None:
        advantage.mul_(ratio.clamp_(max=rho_pg_bar))
    return correction + value[:-1], advantage


@torch.no_grad()
def explained_variance(value: Tensor, target: Tensor, valid: Tensor | None = None) -> Tensor:
    """Share of the targets' variance that the values predict: ``1 - Var(target - value) / Var(target)``.

    Parameters
    ----------
    value, target : Tensor
        Floating, of one shape.
    valid : Tensor, optional
        Entries that count, bool of the same shape; default: all.

    Returns
    -------
    Tensor
        0-dimensional: 1 is perfect, 0 no better than a constant; NaN if the targets do not vary or no entry counts.
    """
    valid = torch.ones_like(target, dtype=torch.bool) if valid is None else valid
    variance = _variance(target, valid)
    unexplained = _variance(target - value, valid)
    return torch.where(variance > 0, 1 - unexplained / variance, torch.nan)


def _variance(x: Tensor, valid: Tensor) -> Tensor:
    """Return the population variance of valid entries; NaN without any, and without the warning of ``Tensor.var``."""
    count = valid.sum()
    mean = torch.where(valid, x, 0.0).sum() / count
    return torch.where(valid, x - mean, 0.0).square().sum() / count


def _errors_and_decay(
    reward: Tensor, value: Tensor, terminated: Tensor, truncated: Tensor, valid: Tensor | None, gamma: float,
    lambda_: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Temporal differences ``r_t + d_t V_t+1 - V_t`` and trace decays ``gamma lambda k_t``; zero in invalid rows."""
    error = torch.addcmul(reward, value[1:], (~terminated).to(value.dtype), value=gamma).sub_(value[:-1])
    decay = (~(terminated | truncated)).to(value.dtype).mul_(gamma * lambda_)
    if valid is not None:
        # The trace of an invalid row is then zero and adds nothing to the row before it.
        # Filled, not multiplied by zero: NaN in a padding row stays there.
        error.masked_fill_(~valid, 0.0)
        decay.masked_fill_(~valid, 0.0)
    return error, decay


def _accumulate(error: Tensor, decay: Tensor) -> Tensor:
    """Return the backward sum ``e_t = error_t + decay_t e_t+1``, with nothing after the end."""
    rows, decays = list(error.unbind()), decay.unbind()
    for t in range(len(rows) - 2, -1, -1):
        rows[t] = torch.addcmul(rows[t], decays[t], rows[t + 1])
    return torch.stack(rows)


def _check_shapes(reward: Tensor, value: Tensor, **others: Tensor | None) -> None:
    if reward.ndim != 2:
        raise ValueError(f"reward has shape {tuple(reward.shape)}; returns are computed on time-major [T, B] tensors")
    steps, batch = reward.shape
    if value.shape != (steps + 1, batch):
        raise ValueError(
            f"value has shape {tuple(value.shape)} but reward {(steps, batch)}: value needs one more row than reward, "
            f"({steps + 1}, {batch}), because its last row is the bootstrap"
        )
    for name, tensor in others.items():
        if tensor is not None and tensor.shape != reward.shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; it must have reward's, {(steps, batch)}")
