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
        Rows that the buffer holds.
    env_dict : dict of dict
        As of ``ReplayBuffer``, without ``"rew"`` and ``"goal"``, which are added.
    max_episode_len : int
        Steps of an episode at most.
    reward_func : callable
        ``reward_func(next_state [T, ...], action [T, ...], goal [T, ...]) -> [T]``.
    goal_func : callable, optional
        ``goal_func(next_state [T, ...]) -> goal [T, ...]``, the state itself by default.
    goal_shape : int or tuple of int, optional
        The state's shape by default.
    state, action, next_state : str
        Names of the fields.
    strategy : {"future", "episode", "random", "final"}
        Where achieved goals come from.
    additional_goals : int
        Achieved goals for each step; "final" has one.
    prioritized : bool
        Whether the rows lie in a prioritized buffer.
    **options
        As of that buffer's class.

    Raises
    ------
    ValueError
        If an argument is out of range.
    """

    def __init__(
        self,
        size: float,
        env_dict: EnvDict,
        max_episode_len: int,
        reward_func: Callable[[Array, Array, Array], ArrayLike],
        *,
        goal_func: Callable[[Array], ArrayLike] | None = None,
        goal_shape: int | Iterable[int] | None = None,
        state: str = "obs",
        action: str = "act",
        next_state: str = "next_obs",
        strategy: str = "future",
        additional_goals: int = 4,
        prioritized: bool = True,
        **options: Any,
    ) -> None:
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
            If a field is missing.
        ValueError
            If a value does not fit, or the episode gets longer than ``max_episode_len``.
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
        """Store the episode with the goal that was meant, and again with goals that were achieved."""
        shape = (len(self._hindsight), *self._storage.shapes["goal"])
        self._hindsight.end_episode(np.broadcast_to(self._as_field("goal", goal), shape))
        self.rb.on_episode_end()

    def sample(self, batch_size: int, **options: Any) -> Batch:
        """Draw rows, as the buffer's class does."""
        return self.rb.sample(batch_size, **options)

    def clear(self) -> None:
        """Forget all rows and the collected steps."""
        self.rb.clear()
        self._hindsight.clear()

    def get_stored_size(self) -> int:
        """Rows that are stored."""
        return self.rb.get_stored_size()

    def get_buffer_size(self) -> int:
        """Rows that can be stored."""
        return self.rb.get_buffer_size()

    def get_all_transitions(self, shuffle: bool = False) -> Batch:
        """Copy all rows, in the order of their indexes or a random one."""
        return self.rb.get_all_transitions(shuffle)

    def update_priorities(self, indexes: ArrayLike, priorities: ArrayLike) -> None:
        """Set the priorities of rows. ValueError if the buffer has none."""
        self._with_priorities().update_priorities(indexes, priorities)

    def get_max_priority(self) -> float:
        """The largest priority given so far. ValueError if the buffer has none."""
        return self._with_priorities().get_max_priority()

    def _as_field(self, name: str, value: ArrayLike) -> Array:
        return np.asarray(value).astype(self._storage.dtypes[name], casting="unsafe")

    def _with_priorities(self) -> PrioritizedReplayBuffer:
        if not isinstance(self.rb, PrioritizedReplayBuffer):
            raise ValueError("this buffer was made with prioritized=False and has no priorities")
        return self.rb


class _LaBER:
    """Cuts a large batch down to the rows that matter most (Lahire et al. 2022, arXiv:2110.01528).

    Parameters
    ----------
    batch_size : int
        Rows to keep.
    m : int
        How many times larger the large batch is.
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

        Weights and indexes that the large batch has itself are replaced.
        """
        return self._laber({k: v for k, v in batch.items() if k not in {"weights", "indexes"}}, priorities)


class LaBERmean(_LaBER):
    """LaBER with weights divided by their mean over the large batch: the paper's recommendation."""

    _variant = "mean"


class LaBERlazy(_LaBER):
    """LaBER with weights as they are, ``1 / P(i)``."""

    _variant = "lazy"


class LaBERmax(_LaBER):
    """LaBER with weights divided by the largest of the rows that are kept."""

    _variant = "max"
