"""Hindsight relabelling: episodes are stored again with other goals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.replay.limiter import NotReady
from penstock.replay.writer import convert

if TYPE_CHECKING:
    from penstock.replay.buffer import ReplayBuffer

Array = NDArray[Any]

STRATEGIES = ("future", "episode", "random", "final")
OPTIONAL = frozenset({"terminated", "truncated"})  # accepted with every step, declared or not


def achieving_steps(
    rng: np.random.Generator, strategy: str, length: int, goals_per_step: int
) -> NDArray[np.int64]:
    """Draw the steps of an episode whose next states serve as achieved goals.

    Parameters
    ----------
    rng
        Random generator.
    strategy : {"future", "episode", "final"}
        As for `Hindsight`.
    length
        T, number of steps of the episode.
    goals_per_step
        k; "final" has only one.

    Returns
    -------
    ndarray
        int64 ``[k, T]``: for each step of the episode, k steps from 0 to T - 1.
    """
    if strategy == "final":
        return np.full((1, length), length - 1)
    earliest = np.arange(length) if strategy == "future" else 0
    return rng.integers(earliest, length, size=(goals_per_step, length))


class Hindsight:
    """Hindsight experience replay (Andrychowicz et al. 2017, arXiv:1707.01495, algorithm 1), in front of a buffer.

    Collects one episode at a time. At its end, the episode is written to the buffer with its original goal, then again
    with achieved goals; each row's reward is computed for the goal written with it. Sample and set priorities with
    ``buffer`` itself.

    Agents must see the goal: feed them ``goal`` beside ``obs``. All other values of a step are written unchanged;
    ``terminated`` too, unless there is a `terminated_fn`.

    Parameters
    ----------
    buffer : ReplayBuffer
        Destination of the rows; declares all the fields named below. It must write one row per step: rows of several
        steps (``n_step``, ``sequences``) would mix rewards of different goals.
    reward_fn : callable
        ``reward_fn(next_obs [T, ...], action [T, ...], goal [T, ...]) -> reward [T]``: reward of each step under that
        goal.
    terminated_fn : callable, optional
        ``terminated_fn(next_obs [T, ...], action [T, ...], goal [T, ...]) -> terminated [T]``: whether each step ends
        the episode under that goal, by reaching it or for any other reason. Required for tasks that end at their goal:
        otherwise the value of later states is added to the reward of a step that reaches a relabelled goal, and a step
        that reached the original goal ends the episodes of all other goals too.
    goal_fn : callable, optional
        ``goal_fn(next_obs [T, ...]) -> goal [T, ...]``: goal achieved in each state. Default: the state itself.
    strategy : {"future", "episode", "random", "final"}
        Source of achieved goals (section 4.5 of the paper): a state reached by the same or a later step of the
        episode, by any step of the episode, by any row of the buffer or the episode, or by the episode's last step.
    goals_per_step : int
        Achieved goals per step, the paper's k; "final" has only one.
    obs, action, next_obs, reward, goal, terminated : str
        Names of the buffer's fields. Hindsight writes the reward and the goal; with a `terminated_fn`, also
        terminations, and only then is that field needed.
    max_episode_length : int, optional
        Longest legal episode, because an endless one would fill the memory.
    seed : int, optional
        Seed of the draw of goals. Rows for "random" are drawn by the buffer's own generator.

    Raises
    ------
    ValueError
        An argument is out of range, or the buffer lacks a field or has rows of several steps.

    Examples
    --------
    >>> hindsight = Hindsight(buffer, lambda next_obs, action, goal: (next_obs == goal).all(axis=1))
    >>> hindsight.add(obs=obs, action=action, next_obs=next_obs)  # for every step
    >>> hindsight.end_episode(goal)
    >>> batch = buffer.sample(256)
    """

    def __init__(
        self, buffer: ReplayBuffer, reward_fn: Callable[[Array, Array, Array], ArrayLike], *,
        terminated_fn: Callable[[Array, Array, Array], ArrayLike] | None = None,
        goal_fn: Callable[[Array], ArrayLike] | None = None, strategy: str = "future", goals_per_step: int = 4,
        obs: str = "obs", action: str = "action", next_obs: str = "next_obs", reward: str = "reward",
        goal: str = "goal", terminated: str = "terminated", max_episode_length: int | None = None,
        seed: int | None = None,
    ) -> None:  # fmt: skip
        if strategy not in STRATEGIES:
            raise ValueError(f"strategy={strategy!r} is unknown: use one of {', '.join(STRATEGIES)}")
        if goals_per_step < 1:
            raise ValueError(f"goals_per_step must be at least 1, found {goals_per_step}")
        if max_episode_length is not None and max_episode_length < 1:
            raise ValueError(f"max_episode_length must be at least 1 or None, found {max_episode_length}")
        plan = buffer._plan
        self._fields = {field.name: field for field in plan.fields}
        roles = {"obs": obs, "action": action, "next_obs": next_obs, "reward": reward, "goal": goal}
        for role, name in (roles | ({"terminated": terminated} if terminated_fn is not None else {})).items():
            if name not in self._fields:
                raise ValueError(
                    f"the buffer has no field {name!r} for {role}=: declare it, or name one of {sorted(self._fields)}"
                )
        if plan.n_step or plan.length:
            raise ValueError(
                "hindsight needs a buffer of single steps: n_step= and sequences= put steps together that are "
                "relabelled with different goals; make the buffer without them"
            )
        self.buffer = buffer
        self.strategy = strategy
        self.goals_per_step = 1 if strategy == "final" else goals_per_step
        self.max_episode_length = max_episode_length
        self._is_lenient = plan.lenient
        self._functions = {reward: reward_fn} | ({} if terminated_fn is None else {terminated: terminated_fn})
        self._arguments = {reward: "reward_fn", terminated: "terminated_fn"}
        self._goal_fn = goal_fn
        self._action, self._next_obs, self._goal = action, next_obs, goal
        self._computed = frozenset({*self._functions, goal})
        self._required = frozenset(self._fields) - self._computed
        self._rng = np.random.default_rng(seed)
        self._episode: dict[str, list[Array]] = {}
        self._unwritten: list[dict[str, Array]] = []  # rows of the finished episode, one goal after another
        self._length = 0

    def add(self, **steps: ArrayLike) -> None:
        """Collect one step of the episode, or k successive ones.

        Parameters
        ----------
        **steps
            A value ``[...]`` or ``[k, ...]`` for every field of the buffer except the reward, the goal, and with a
            `terminated_fn` terminations; optionally ``terminated`` and ``truncated``. Values are copied.

        Raises
        ------
        KeyError
            A field is missing or unknown. Nothing was added.
        TypeError, ValueError
            A value has a wrong shape, dtype or range, the episode is too long, or the last one is not written yet.
            Nothing was added.
        """
        if self._unwritten:
            raise ValueError(
                "the last episode is not written yet: call end_episode(goal) again to write the rest, or clear() to "
                "drop it"
            )
        self._check_names(frozenset(steps))
        values = {name: self._as_steps(name, value) for name, value in steps.items()}
        lengths = {name: len(value) for name, value in values.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"all fields must have the same number of steps, found {lengths}")
        length = len(self) + lengths[self._next_obs]
        if self.max_episode_length is not None and length > self.max_episode_length:
            raise ValueError(
                f"the episode would have {length} steps, more than max_episode_length={self.max_episode_length}: call "
                "end_episode(goal) when an episode is over, or raise max_episode_length"
            )
        for name, value in values.items():
            self._episode.setdefault(name, []).append(value)
        self._length = length

    def end_episode(self, goal: ArrayLike) -> int:
        """Write the collected episode to the buffer, then once more for every achieved goal.

        Parameters
        ----------
        goal
            Original goal: one ``[...]``, or one per step ``[T, ...]``.

        Returns
        -------
        int
            Rows of the episode, ``T * (1 + goals_per_step)``; 0 if nothing was collected.

        Raises
        ------
        TypeError, ValueError
            The goal, or a return value of ``reward_fn``, ``terminated_fn`` or ``goal_fn``, has a wrong shape, dtype or
            range. Nothing was written, and the steps are kept.
        NotReady
            The buffer's rate limiter blocked a row too long. Unwritten rows are kept: the next call writes them,
            whatever goal it is given.
        """
        if len(self) == 0:
            return 0
        if not self._unwritten:
            steps = {name: np.concatenate(values) for name, values in self._episode.items()}
            goals = [self._original_goal(goal), *self._achieved_goals(steps[self._next_obs])]
            self._unwritten = [self._with_goal(steps, each) for each in goals]
        while self._unwritten:
            self._write_next()
        rows = len(self) * (1 + self.goals_per_step)
        self.clear()
        return rows

    def clear(self) -> None:
        """Forget the steps collected since the last episode ended; the buffer is unchanged."""
        self._episode = {}
        self._unwritten = []
        self._length = 0

    def __len__(self) -> int:
        """Steps collected since the last episode ended."""
        return self._length

    def _check_names(self, given: frozenset[str]) -> None:
        # The first step decides whether this episode has terminated and truncated.
        expected = frozenset(self._episode) or self._required | (given & OPTIONAL) - self._computed
        if given == expected:
            return
        found = []
        if given & self._computed:
            found.append(f"{sorted(given & self._computed)} which hindsight computes itself")
        if unknown := given - expected - self._computed:
            found.append(f"{sorted(unknown)} which are not expected")
        if missing := expected - given:
            found.append(f"no {sorted(missing)}")
        raise KeyError(f"a step must have the fields {sorted(expected)}, found {', and '.join(found)}")

    def _as_steps(self, name: str, value: ArrayLike) -> Array:
        shape = self._fields[name].shape if name in self._fields else ()
        steps = np.array(self._convert(name, value))
        if steps.shape == shape:
            return steps[np.newaxis]
        if steps.shape[1:] == shape and steps.ndim == len(shape) + 1:
            return steps
        raise ValueError(
            f"field {name!r} must have shape {list(shape)} for one step or {['k', *shape]} for k steps, "
            f"found {list(steps.shape)}"
        )

    def _convert(self, name: str, value: ArrayLike) -> Array:
        dtype = self._fields[name].dtype if name in self._fields else np.dtype(bool)
        return convert(value, name, dtype, self._is_lenient)

    def _original_goal(self, goal: ArrayLike) -> Array:
        shape = self._fields[self._goal].shape
        given = self._convert(self._goal, goal)
        if given.shape not in (shape, (len(self), *shape)):
            raise ValueError(
                f"goal must have shape {list(shape)}, or {[len(self), *shape]} with one for each step, "
                f"found {list(given.shape)}"
            )
        return np.array(np.broadcast_to(given, (len(self), *shape)))

    def _achieved_goals(self, states: Array) -> Iterator[Array]:
        """Yield goals [T, ...], one array for each relabelled copy of the episode."""
        length = len(states)
        if self.strategy == "random":
            chosen = self._random_states(states, self.goals_per_step * length)
            chosen = chosen.reshape(self.goals_per_step, *states.shape)
        else:
            chosen = states[achieving_steps(self._rng, self.strategy, length, self.goals_per_step)]
        for achieved in chosen:
            goals = self._convert(self._goal, achieved if self._goal_fn is None else self._goal_fn(achieved))
            expected = (length, *self._fields[self._goal].shape)
            if goals.shape != expected:
                raise ValueError(
                    f"states of shape {list(states.shape)} turned into goals of shape {list(goals.shape)}, but the "
                    f"buffer's field {self._goal!r} needs {list(expected)}: pass a goal_fn that makes such goals"
                )
            yield goals

    def _random_states(self, states: Array, count: int) -> Array:
        """Draw next states from the buffer's rows and this episode, uniformly, regardless of priorities."""
        stored = len(self.buffer)
        drawn = self._rng.integers(stored + len(states), size=count)
        chosen = states[np.maximum(drawn - stored, 0)]
        from_buffer = drawn < stored
        if from_buffer.any():
            chosen[from_buffer] = self.buffer.sample_uniform(int(from_buffer.sum()))[self._next_obs]
        return chosen

    def _with_goal(self, steps: dict[str, Array], goals: Array) -> dict[str, Array]:
        rows, length = {**steps, self._goal: goals}, len(goals)
        for name, function in self._functions.items():
            values = self._convert(name, function(steps[self._next_obs], steps[self._action], goals))
            shape = self._fields[name].shape
            if values.shape[:1] != (length,) or values.size != length * math.prod(shape):
                raise ValueError(
                    f"{self._arguments[name]} must return one {name} for each of {length} steps, shape "
                    f"{[length, *shape]}, found shape {list(values.shape)}"
                )
            rows[name] = values.reshape(length, *shape)
        return rows

    def _write_next(self) -> None:
        rows = self._unwritten[0]
        try:
            self.buffer.add(**rows)
        except NotReady as error:
            self._unwritten[0] = {name: values[error.written :] for name, values in rows.items()}
            raise
        self.buffer.end_episode()
        del self._unwritten[0]
