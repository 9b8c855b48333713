"""Return estimators: what a segment says its values and its actions were worth.

Pure functions of time-major tensors. Row ``t`` of ``reward``, ``terminated`` and ``truncated`` belongs to
the transition that leaves observation ``t``; ``value`` has one row more, so ``value[t + 1]`` is the value
of the true successor of observation ``t`` (after a truncation that is the final row). Two switches, not one:

    d_t = gamma * (1 - terminated_t)        bootstrap: zero only where no future exists
    k_t = (1 - boundary_t) * valid_t+1      trace: zero at every boundary and before an invalid row

An invalid row is a final row or padding: its observation is still the right bootstrap for the row before
it, but it is no step. Invalid rows themselves come back with advantage 0 and their own value as target.
No result carries a gradient.
"""

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0


@torch.no_grad()
def gae(
    reward: Tensor,
    value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: float,
    lambda_: float,
    valid: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation, arXiv:1506.02438 equation 16, with truncation kept apart.

        delta_t = r_t + d_t V_t+1 - V_t
        A_t     = delta_t + gamma lambda k_t A_t+1

    Parameters
    ----------
    reward : Tensor
        Rewards, floating ``[T, B]``.
    value : Tensor
        Values of all observations, the one after the last step included, floating ``[T + 1, B]``.
    terminated, truncated : Tensor
        Boundary flags of each step, bool ``[T, B]``.
    gamma, lambda_ : float
        Discount, and the weight of longer returns (0: one-step errors, 1: Monte-Carlo advantages).
    valid : Tensor, optional
        Which rows are steps, bool ``[T, B]``; all of them when left out.

    Returns
    -------
    advantage : Tensor
        ``A_t``, ``[T, B]``.
    target : Tensor
        ``A_t + V_t``, what the value of row ``t`` should become, ``[T, B]``.

    Raises
    ------
    ValueError
        When the shapes do not belong together.
    """
    _check_shapes(reward, value, terminated=terminated, truncated=truncated, valid=valid)
    error, decay = _errors_and_decay(reward, value, terminated, truncated, valid, gamma, lambda_)
    advantage = _accumulate(error, decay)
    return advantage, advantage + value[:-1]


@torch.no_grad()
def lambda_return(
    reward: Tensor,
    value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: float,
    lambda_: float,
    valid: Tensor | None = None,
) -> Tensor:
    """Lambda-returns, arXiv:2407.04811 equation 6, with truncation kept apart.

        G_t = r_t + d_t (lambda G_t+1 + (1 - lambda) V_t+1)    where the trace goes on (k_t)
        G_t = r_t + d_t V_t+1                                  elsewhere

    With ``V = max_a Q`` they are those of Peng's Q(lambda): traces are not cut at actions that are not the best. They
    are `gae`'s second result.

    Parameters
    ----------
    reward, value, terminated, truncated, gamma, lambda_, valid
        As for :func:`gae`.

    Returns
    -------
    Tensor
        ``G_t``, ``[T, B]``.

    Raises
    ------
    ValueError
        When the shapes do not belong together.
    """
    return gae(reward, value, terminated, truncated, gamma=gamma, lambda_=lambda_, valid=valid)[1]


@torch.no_grad()
def vtrace(
    reward: Tensor,
    value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    log_ratio: Tensor,
    *,
    gamma: float,
    lambda_: float = 1.0,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    rho_pg_bar: float = 1.0,
    valid: Tensor | None = None,
    relevant: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """V-trace targets and advantages, arXiv:1802.01561 equation 1, remarks 1 and 2, section 4.2.

        e_t    = rho_t (r_t + d_t V_t+1 - V_t) + gamma lambda c_t k_t e_t+1
        v_t    = V_t + e_t
        pg_t   = rho_pg_t (r_t + d_t next_t - V_t)
        next_t = lambda v_t+1 + (1 - lambda) V_t+1  where the trace goes on (k_t), else V_t+1

    with ``rho``, ``c`` and ``rho_pg`` the ratio pi/mu cut from above at ``rho_bar``, ``c_bar`` and
    ``rho_pg_bar``. On-policy ``pg`` is ``gae`` with the same lambda, and with lambda 1 ``v`` is the n-step return.

    Parameters
    ----------
    reward, value, terminated, truncated, valid
        As for :func:`gae`.
    log_ratio : Tensor
        ``log pi(a_t) - log mu(a_t)``, floating ``[T, B]``; clipped to [-20, 20] before its exponential.
    gamma, lambda_ : float
        Discount, and the weight of longer returns in both results.
    rho_bar : float
        Cut of the ratio in the temporal difference: decides *which* policy's value is learned
        (1: between mu and pi, infinity: pi's). Convergence is proven for ``rho_bar >= c_bar``.
    c_bar : float
        Cut of the ratio in the trace: decides only the speed of convergence.
    rho_pg_bar : float
        Cut of the ratio in the advantage.
    relevant : Tensor, optional
        bool ``[T, B]``: traces and advantages go no further than to the value of a state that is not (LASER,
        arXiv:1909.11583, section 4); all are when left out. What is computed of such a state itself means nothing.

    Returns
    -------
    target : Tensor
        ``v_t``, ``[T, B]``.
    advantage : Tensor
        ``pg_t``, ``[T, B]``.

    Raises
    ------
    ValueError
        When the shapes do not belong together.
    """
    _check_shapes(
        reward, value, terminated=terminated, truncated=truncated, log_ratio=log_ratio, valid=valid, relevant=relevant
    )
    error, decay = _errors_and_decay(reward, value, terminated, truncated, valid, gamma, lambda_)
    if relevant is not None:
        decay[:-1].masked_fill_(~relevant[1:], 0.0)
    ratio = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp_()
    if valid is not None:
        ratio.masked_fill_(~valid, 1.0)
    correction = _accumulate(ratio.clamp(max=rho_bar) * error, ratio.clamp(max=c_bar) * decay)
    # next_t differs from V_t+1 by lambda e_t+1 where the trace goes on, and gamma lambda k_t is `decay`.
    advantage = error
    advantage[:-1].addcmul_(decay[:-1], correction[1:])
    return correction + value[:-1], advantage.mul_(ratio.clamp_(max=rho_pg_bar))


@torch.no_grad()
def explained_variance(value: Tensor, target: Tensor, valid: Tensor | None = None) -> Tensor:
    """Share of the targets' variance that the values foretell: ``1 - Var(target - value) / Var(target)``.

    Parameters
    ----------
    value, target : Tensor
        Floating, of one shape.
    valid : Tensor, optional
        Which entries count, bool of the same shape.

    Returns
    -------
    Tensor
        0-dimensional. 1 is perfect, 0 no better than a constant; NaN where the targets do not vary (or
        nothing counts), because there is nothing to explain.
    """
    valid = torch.ones_like(target, dtype=torch.bool) if valid is None else valid
    variance = _variance(target, valid)
    unexplained = _variance(target - value, valid)
    return torch.where(variance > 0, 1 - unexplained / variance, torch.nan)


def _variance(x: Tensor, valid: Tensor) -> Tensor:
    """Population variance of what is valid; unlike ``Tensor.var`` it is NaN without a warning where nothing is."""
    count = valid.sum()
    mean = torch.where(valid, x, 0.0).sum() / count
    return torch.where(valid, x - mean, 0.0).square().sum() / count


def _errors_and_decay(
    reward: Tensor,
    value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    valid: Tensor | None,
    gamma: float,
    lambda_: float,
) -> tuple[Tensor, Tensor]:
    """Temporal differences ``r_t + d_t V_t+1 - V_t`` and trace decays ``gamma lambda k_t``; zero in invalid rows."""
    error = torch.addcmul(reward, value[1:], (~terminated).to(value.dtype), value=gamma).sub_(value[:-1])
    decay = (~(terminated | truncated)).to(value.dtype).mul_(gamma * lambda_)
    if valid is not None:
        # The sum over the trace is then zero in an invalid row, so it passes nothing on to the row before it.
        # Filled, not multiplied by zero: whatever lies in a padding row, NaN included, stays there.
        error.masked_fill_(~valid, 0.0)
        decay.masked_fill_(~valid, 0.0)
    return error, decay


def _accumulate(error: Tensor, decay: Tensor) -> Tensor:
    """Turn ``error`` in place into the backward sum ``e_t = error_t + decay_t e_t+1``, with nothing after the end."""
    rows, decays = error.unbind(), decay.unbind()
    for t in range(len(rows) - 2, -1, -1):
        rows[t].addcmul_(decays[t], rows[t + 1])
    return error


def _check_shapes(reward: Tensor, value: Tensor, **others: Tensor | None) -> None:
    if reward.ndim != 2:
        raise ValueError(f"reward has shape {tuple(reward.shape)}; returns are computed on time-major [T, B] tensors")
    steps, batch = reward.shape
    if value.shape != (steps + 1, batch):
        raise ValueError(
            f"value has shape {tuple(value.shape)} but reward {(steps, batch)}: value needs one row more than reward, "
            f"({steps + 1}, {batch}), because its last row is the bootstrap"
        )
    for name, tensor in others.items():
        if tensor is not None and tensor.shape != reward.shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; it must have reward's, {(steps, batch)}")
