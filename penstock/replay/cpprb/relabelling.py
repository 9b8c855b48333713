"""cpprb's hindsight buffer and its LaBER classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.replay import Hindsight, LaBER
from penstock.replay.cpprb.buffers import Batch, EnvDict, ReplayBuffer
from penstock.replay.cpprb.prioritized import PrioritizedReplayBuffer

Array = NDArray[Any]


class HindsightReplayBuffer:
    """Hindsight experience replay (Andrychowicz et al. 2017, arXiv:1707.01495): ``penstock.replay.Hindsight``.

    Parameters
    ----------
    size : int
        Capacity in rows.
    env_dict : dict of dict
        As for ``ReplayBuffer``, without ``"rew"`` and ``"goal"``, which are added.
    max_episode_len : int
        Largest number of steps per episode.
    reward_func : callable
        ``reward_func(next_state [T, ...], action [T, ...], goal [T, ...]) -> [T]``.
    goal_func : callable, optional
        ``goal_func(next_state [T, ...]) -> goal [T, ...]``; default: the state itself.
    goal_shape : int or tuple of int, optional
        Default: the state's shape.
    state, action, next_state : str
        Names of the fields.
    strategy : {"future", "episode", "random", "final"}
        Source of achieved goals.
    additional_goals : int
        Achieved goals per step; "final" has one.
    prioritized : bool
        Whether the buffer is prioritized.
    **options
        As for that buffer's class.

    Raises
    ------
    ValueError
        An argument is out of range.
    """

    def __init__(
        self, size: float, env_dict: EnvDict, max_episode_len: int,
        reward_func: Callable[[Array, Array, Array], ArrayLike], *,
        goal_func: Callable[[Array], ArrayLike] | None = None, goal_shape: int | Iterable[int] | None = None,
        state: str = "obs", action: str = "act", next_state: str = "next_obs", strategy: str = "future",
        additional_goals: int = 4, prioritized: bool = True, **options: Any,
    ) -> None:  # fmt: skip
        goal = dict(env_dict[state])
        if goal_shape:
            goal["shape"] = goal_shape
        self.prioritized = prioritized
        self.rb = (PrioritizedReplayBuffer if prioritized else ReplayBuffer)(
            size, {**env_dict, "rew": {}, "goal": goal}, **options
        )
        self._storage = self.rb._storage
        self._hindsight = Hindsight(
            self._storage,
            reward_func,
            goal_fn=goal_func,
            strategy=strategy,
            goals_per_step=additional_goals,
            obs=state,
            action=action,
            next_obs=next_state,
            reward="rew",
            goal="goal",
            max_episode_length=max_episode_len,
            seed=int(np.random.randint(2**63)),
        )

    def add(self, **steps: ArrayLike) -> None:
        """Collect one step of the episode, or several successive ones.

        Raises
        ------
        KeyError
            A field is missing.
        ValueError
            A value does not fit, or the episode exceeds ``max_episode_len``.
        """
        values = {}
        for name in self._storage.fields:
            if name in {"rew", "goal"}:
                continue
            if name not in steps:
                raise KeyError(f"a step needs a value of {name!r}, found only {sorted(steps)}")
            values[name] = self._as_field(name, steps[name]).reshape(-1, *self._storage.shapes[name])
        self._hindsight.add(**values)

    def on_episode_end(self, goal: ArrayLike) -> None:
        """Store the episode with its original goal, and again with achieved goals."""
        shape = (len(self._hindsight), *self._storage.shapes["goal"])
        self._hindsight.end_episode(np.broadcast_to(self._as_field("goal", goal), shape))
        self.rb.on_episode_end()

    def sample(self, batch_size: int, **options: Any) -> Batch:
        """Draw rows, as the buffer's class does."""
        return self.rb.sample(batch_size, **options)

    def clear(self) -> None:
        """Remove all rows and the collected steps."""
        self.rb.clear()
        self._hindsight.clear()

    def get_stored_size(self) -> int:
        """Return the number of rows."""
        return self.rb.get_stored_size()

    def get_buffer_size(self) -> int:
        """Return the capacity in rows."""
        return self.rb.get_buffer_size()

    def get_all_transitions(self, shuffle: bool = False) -> Batch:
        """Return copies of all rows, in index order or shuffled."""
        return self.rb.get_all_transitions(shuffle)

    def update_priorities(self, indexes: ArrayLike, priorities: ArrayLike) -> None:
        """Set the priorities of rows. ValueError if the buffer has none."""
        self._with_priorities().update_priorities(indexes, priorities)

    def get_max_priority(self) -> float:
        """Return the largest priority so far. ValueError if the buffer has none."""
        return self._with_priorities().get_max_priority()

    def _as_field(self, name: str, value: ArrayLike) -> Array:
        return np.asarray(value).astype(self._storage.dtypes[name], casting="unsafe")

    def _with_priorities(self) -> PrioritizedReplayBuffer:
        if not isinstance(self.rb, PrioritizedReplayBuffer):
            raise ValueError("this buffer was made with prioritized=False and has no priorities")
        return self.rb


class _LaBER:
    """Selection of the most important rows of a large batch (Lahire et al. 2022, arXiv:2110.01528).

    Parameters
    ----------
    batch_size : int
        Rows to keep.
    m : int
        Ratio of the large batch's size to `batch_size`.
    eps : float
        Added to every priority.
    """

    _variant: str

    def __init__(self, batch_size: int, m: int = 4, *, eps: float = 1e-6) -> None:
        self._laber = LaBER(
            int(batch_size), int(m), variant=self._variant, eps=float(eps), seed=int(np.random.randint(2**63))
        )
        self.batch_size = self._laber.batch_size
        self.eps = self._laber.eps

    def __call__(self, *, priorities: ArrayLike, **batch: ArrayLike) -> Batch:
        """Draw ``batch_size`` rows of the large batch, with ``"weights"`` and their ``"indexes"`` in it.

        Existing weights and indexes of the large batch are replaced.
        """
        return self._laber({k: v for k, v in batch.items() if k not in {"weights", "indexes"}}, priorities)


class LaBERmean(_LaBER):
    """LaBER with weights divided by their mean over the large batch: the paper's recommendation."""

    _variant = "mean"


class LaBERlazy(_LaBER):
    """LaBER with weights ``1 / P(i)``, not normalised."""

    _variant = "lazy"


class LaBERmax(_LaBER):
    """LaBER with weights divided by the largest among the drawn rows."""

    _variant = "max"
