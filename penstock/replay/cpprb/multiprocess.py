"""cpprb's buffers for many explorer processes and a learner."""

from __future__ import annotations

from typing import Any

from numpy.typing import DTypeLike

from penstock.replay.cpprb.buffers import EnvDict, ReplayBuffer, warn_of_ignored
from penstock.replay.cpprb.prioritized import WithPriorities

BACKENDS = ("sharedctypes", "SharedMemory")


class MPReplayBuffer(ReplayBuffer):
    """A uniform buffer for several processes: hand it to them by fork, or pickled.

    Every buffer of Penstock is that already. Any number of processes may add, and any number may sample.

    Parameters
    ----------
    size, env_dict, default_dtype
        As of ``ReplayBuffer``.
    ctx : multiprocessing context or SyncManager, optional
        Accepted, without effect: nothing here needs a lock or a server of it.
    backend : {"sharedctypes", "SharedMemory"}
        Accepted, without effect: the memory is anonymous and goes with the last process that has it.
    logger : optional
        Accepted, without effect.

    Raises
    ------
    TypeError
        If ``ctx`` is no context.
    ValueError
        If ``backend`` is unknown.
    """

    def __init__(
        self,
        size: float,
        env_dict: EnvDict | None = None,
        *,
        default_dtype: DTypeLike | None = None,
        logger: Any = None,
        ctx: Any = None,
        backend: str = "sharedctypes",
        **ignored: object,
    ) -> None:
        if ctx is not None and not hasattr(ctx, "Value"):
            raise TypeError(
                f"ctx must be a context of multiprocessing.get_context(), a SyncManager or None, found {ctx!r}"
            )
        if backend not in BACKENDS:
            raise ValueError(f"backend={backend!r} is unknown: use one of {', '.join(BACKENDS)}")
        warn_of_ignored(self, ignored)
        super().__init__(size, env_dict, default_dtype=default_dtype)


class MPPrioritizedReplayBuffer(WithPriorities, MPReplayBuffer):
    """A prioritized buffer for several processes.

    ``update_priorities`` passes over rows that were overwritten since this process's last ``sample()``.

    Parameters
    ----------
    size, env_dict, **options
        As of ``MPReplayBuffer``.
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
