"""cpprb's loop: act, store, sample, learn."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from penstock.replay.cpprb.buffers import Batch, ReplayBuffer
from penstock.replay.cpprb.prioritized import WithPriorities

Transition = dict[str, Any]

MOST_STEPS = 2**64
_EPISODE = "episode %d: %d steps (%d in all), reward %.2f, %.1f steps/s"


def train(
    buffer: ReplayBuffer, env: Any, get_action: Callable[[Any, int, int, bool], Any],
    update_policy: Callable[[Batch, int, int], ArrayLike | None], *, max_steps: int = int(1e6),
    max_episodes: int | None = None, batch_size: int = 64, n_warmups: int = 0,
    after_step: Callable[[Any, Any, tuple[Any, ...], int, int], Transition] | None = None,
    done_check: Callable[[Transition], bool] | None = None, obs_update: Callable[[Transition], Any] | None = None,
    rew_sum: Callable[[float, Transition], float] | None = None,
    episode_callback: Callable[[int, int, float], Any] | None = None, logger: logging.Logger | None = None,
) -> None:  # fmt: skip
    """Train a policy: after each step, store the transition, then draw a batch and learn from it.

    Parameters
    ----------
    buffer : ReplayBuffer
        Buffer of any class; a prioritized one receives the return value of ``update_policy`` as priorities.
    env
        An environment of Gymnasium, or of the older Gym with four values from ``step`` and one from ``reset``.
    get_action : callable
        ``get_action(obs, step, episode, is_warmup) -> action``.
    update_policy : callable
        ``update_policy(batch, step, episode) -> |TD error| [batch_size]``; not called during warm-up.
    max_steps, max_episodes : int
        Limits on steps and episodes, whichever is reached first.
    batch_size, n_warmups : int
        Rows per batch, and steps before the first batch.
    after_step : callable
        ``after_step(obs, action, result of env.step, step, episode)`` -> the transition to add. Default: ``obs, act,
        rew, next_obs, done``; ``done`` is true after a termination, and with the older Gym after a truncation, too.
    done_check : callable
        ``done_check(transition)`` -> whether the episode is over. Default: whether it was terminated or truncated.
    obs_update : callable
        ``obs_update(transition)`` -> the next observation to act on. Default: ``next_obs``.
    rew_sum : callable
        ``rew_sum(sum so far, transition)`` -> the sum, from 0.0. Default: adds ``rew``.
    episode_callback : callable
        ``episode_callback(episode, last step of the episode, sum)``, both counted from 0.
    logger : logging.Logger
        Receives a line per episode.

    Raises
    ------
    TypeError
        ``buffer`` is of another class, or a prioritized one gets no priorities.
    ValueError
        ``max_steps`` does not fit 64 bits.
    """
    _check(buffer, max_steps)
    log, transition_of = logger or logging.getLogger(__name__), after_step or _transition
    obs, episode, episode_step, reward, start = _reset(env), 0, 0, 0.0, time.perf_counter()
    for step in range(max_steps):
        is_warmup = step < n_warmups
        action = get_action(obs, step, episode, is_warmup)
        outcome = env.step(action)
        transition = transition_of(obs, action, outcome, step, episode)
        buffer.add(**transition)
        if not is_warmup:
            batch = buffer.sample(batch_size)
            _prioritize(buffer, batch, update_policy(batch, step, episode))
        reward = reward + float(transition["rew"]) if rew_sum is None else rew_sum(reward, transition)
        if not (transition["done"] or _truncated(outcome) if done_check is None else done_check(transition)):
            obs = transition["next_obs"] if obs_update is None else obs_update(transition)
            episode_step += 1
            continue
        buffer.on_episode_end()
        rate = (episode_step + 1) / max(time.perf_counter() - start, 1e-9)
        log.info(_EPISODE, episode, episode_step + 1, step + 1, reward, rate)
        if episode_callback is not None:
            episode_callback(episode, episode_step, reward)
        episode += 1
        if max_episodes is not None and episode >= max_episodes:
            return
        obs, episode_step, reward, start = _reset(env), 0, 0.0, time.perf_counter()


def _check(buffer: object, max_steps: int) -> None:
    if not isinstance(buffer, ReplayBuffer):
        raise TypeError(f"buffer must be a ReplayBuffer of penstock.replay.cpprb, found {type(buffer).__name__}")
    if max_steps >= MOST_STEPS:
        raise ValueError(f"max_steps must be below 2**64, found {max_steps}")


def _prioritize(buffer: ReplayBuffer, batch: Batch, priorities: ArrayLike | None) -> None:
    """Update the priorities of a batch, if the buffer has any."""
    if isinstance(buffer, WithPriorities):
        if priorities is None:
            raise TypeError("update_policy must return the priorities of the batch, found None")
        buffer.update_priorities(batch["indexes"], priorities)


def _reset(env: Any) -> Any:
    answer = env.reset()
    has_info = isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)
    return answer[0] if has_info else answer


def _transition(obs: Any, action: Any, outcome: tuple[Any, ...], step: int, episode: int) -> Transition:
    next_obs, reward, done = outcome[:3]
    return {"obs": obs, "act": action, "rew": reward, "next_obs": next_obs, "done": done}


def _truncated(outcome: tuple[Any, ...]) -> bool:
    """Return whether Gymnasium's ``step`` reported a truncation: obs, reward, terminated, truncated, info."""
    return len(outcome) == 5 and bool(outcome[3])
