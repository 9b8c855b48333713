"""The settings of a buffer: what the steps hold, what the rows are made of, and how they are drawn."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import DTypeLike


@dataclass(frozen=True)
class Field:
    """One named value of every step.

    Parameters
    ----------
    shape : tuple of int
        Of one step; ``()`` for a number.
    dtype : DTypeLike
        Any plain NumPy dtype.
    stack : int or None
        The axis along which successive frames are stacked (an Atari observation of shape ``(4, 84, 84)`` has
        ``stack=0``). Each frame is then stored once, however many stacks it is part of.
    shared : bool
        Store a value once that several rows repeat, compared byte by byte: worth it from about 1 KiB on.
    next_of : str or None
        The field whose successor this is: the observation after the step. It shares its frames (with ``stack`` and
        ``shared`` of that field), and in n-step rows it is taken from the last step.
    first : bool
        With ``sequences``: keep the first step's value only, such as the state of a memory core.
    """

    shape: tuple[int, ...] = ()
    dtype: DTypeLike = "float32"
    stack: int | None = None
    shared: bool = False
    next_of: str | None = None
    first: bool = False


@dataclass(frozen=True)
class NStep:
    """Rows of ``steps`` steps each, or fewer at the end of an episode (Sutton 1988; as in Rainbow, arXiv:1710.02298).

    A row holds the first step's values, the sum of ``gamma**i`` times the rewards, the last step's ``next_of`` fields
    and boundary signals, and ``discount``: ``gamma**m``, or 0 if the last of its ``m`` steps terminated the episode.
    A truncated episode keeps its discount: bootstrap from the true final observation.

    Parameters
    ----------
    steps : int
    gamma : float
    reward : str or tuple of str
        Floating-point fields to be summed.
    """

    steps: int = 3
    gamma: float = 0.99
    reward: str | tuple[str, ...] = "reward"


@dataclass(frozen=True)
class Sequences:
    """Rows of ``length`` successive steps of one episode, for recurrent learners (R2D2, OpenReview r1lyTjAqYX).

    One starts every ``period`` steps. The last one of an episode is padded with zeros; ``mask`` says which steps are
    real.
    """

    length: int = 80
    period: int = 40


@dataclass(frozen=True)
class Uniform:
    """Every row with equal probability."""


@dataclass(frozen=True)
class Prioritized:
    """Rows in proportion to ``(priority + eps)**alpha`` (Schaul et al. 2016, arXiv:1511.05952).

    Parameters
    ----------
    alpha : float
        0: uniform, 1: in proportion.
    beta : float
        Exponent of the importance weights ``(N P(i))**-beta``; ``sample(beta=...)`` overrides it.
    eps : float
        Added to every priority, so that none is never sampled.
    normalize : {"buffer", "batch"}
        Divide weights by the largest in the whole buffer, or in the batch.
    stratified : bool
        One draw from each of ``batch_size`` equal parts of the total, as in the paper, or independent draws.
    """

    alpha: float = 0.6
    beta: float = 0.4
    eps: float = 1e-6
    normalize: str = "buffer"
    stratified: bool = True


@dataclass(frozen=True)
class Reverse:
    """Backwards in time (Rotinov 2019, arXiv:1910.08780): rows ``t, t - stride, ...``, the next batch one step earlier.

    After ``2 * stride`` batches, or when it would fall behind that far, it starts again from the newest row.
    """

    stride: int = 300


@dataclass(frozen=True)
class Reservoir:
    """Keep a uniform sample of all rows ever added (Vitter 1985), instead of the newest; sample it uniformly."""


Sampler = Uniform | Prioritized | Reverse | Reservoir
