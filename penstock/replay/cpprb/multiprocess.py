"""cpprb's buffers for many explorer processes and a learner."""

from __future__ import annotations

from typing import Any

from numpy.typing import DTypeLike

from penstock.replay.cpprb.buffers import EnvDict, ReplayBuffer, warn_of_ignored
from penstock.replay.cpprb.prioritized import WithPriorities

BACKENDS = ("sharedctypes", "SharedMemory")


class MPReplayBuffer(ReplayBuffer):
    """Uniform buffer for several processes, passed by fork or pickled.

    Every buffer of Penstock has this ability: any number of processes may add and sample.

    Parameters
    ----------
    size, env_dict, default_dtype
        As for ``ReplayBuffer``.
    ctx : multiprocessing context or SyncManager, optional
        Accepted, without effect: no lock or server is needed.
    backend : {"sharedctypes", "SharedMemory"}
        Accepted, without effect: the memory is anonymous and freed with the last process that has it.
    logger : optional
        Accepted, without effect.

    Raises
    ------
    TypeError
        ``ctx`` is not a context.
    ValueError
        ``backend`` is unknown.
    """

    def __init__(
        self, size: float, env_dict: EnvDict | None = None, *, default_dtype: DTypeLike | None = None,
        logger: Any = None, ctx: Any = None, backend: str = "sharedctypes", **ignored: object,
    ) -> None:  # fmt: skip
        if ctx is not None and not hasattr(ctx, "Value"):
            raise TypeError(
                f"ctx must be a context of multiprocessing.get_context(), a SyncManager or None, found {ctx!r}"
            )
        if backend not in BACKENDS:
            raise ValueError(f"backend={backend!r} is unknown: use one of {', '.join(BACKENDS)}")
        warn_of_ignored(self, ignored)
        super().__init__(size, env_dict, default_dtype=default_dtype)


class MPPrioritizedReplayBuffer(WithPriorities, MPReplayBuffer):
    """Prioritized buffer for several processes.

    ``update_priorities`` skips rows overwritten since this process's last ``sample()``.

    Parameters
    ----------
    size, env_dict, **options
        As for ``MPReplayBuffer``.
    alpha : float
        Exponent of the priorities.
    eps : float
        Added to every priority.
    """

    def __init__(
        self, size: float, env_dict: EnvDict | None = None, *, alpha: float = 0.6, eps: float = 1e-4, **options: Any
    ) -> None:
        self._alpha, self._eps, self._ignores_overwritten = float(alpha), float(eps), True
        super().__init__(size, env_dict, **options)
