"""Inspection of a running trainer: its processes, and the slots, queues and versions of each policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.engine.paths.replay import ReplayPath
from penstock.experience.arena import Control
from penstock.ipc import SlotState

if TYPE_CHECKING:
    from penstock.engine.policies import Policy
    from penstock.engine.trainer import Trainer


@dataclass(frozen=True)
class PolicyInspection:
    """State of one policy's experience and weights.

    Attributes
    ----------
    version
        Version of the published weights; 0: the initial weights.
    slots
        Number of slots by their state: "free", "writing", "full", "reading".
    queued
        Entries in the queue of full slots. Some may be outdated; the states in `slots` are authoritative.
    epoch
        Number of the run epoch. Segments begun in an earlier epoch are discarded.
    replay_rows
        Rows in the replay buffer; None for a policy without one.
    """

    version: int
    slots: dict[str, int]
    queued: int
    epoch: int
    replay_rows: int | None


@dataclass(frozen=True)
class Inspection:
    """State of a trainer.

    Attributes
    ----------
    pids
        Process ids by role, such as "learner" and "rollout-0", and of their "launcher". Empty with
        ``backend="serial"``, whose roles share the trainer's process.
    restarts
        Roles that were replaced since training began.
    policies
        State of each policy, by its key in `Trainer.get_parameters`.
    """

    pids: dict[str, int]
    restarts: int
    policies: dict[int | str, PolicyInspection]


def inspect(trainer: Trainer) -> Inspection:
    """Return the processes, slots, queues and versions of a trainer at this moment.

    May be called at any time, also from a callback or another thread: shared memory is read without waiting. During
    training, the numbers are read at slightly different moments.

    Raises
    ------
    RuntimeError
        The trainer is closed.

    Examples
    --------
    >>> with penstock.PPO("CartPole-v1") as algo:
    ...     algo.train(10_000)
    ...     print(penstock.inspect(algo).policies[0].slots)
    """
    policies, supervisor = trainer._policies, trainer._supervisor
    if supervisor.is_closed:
        raise RuntimeError("this trainer is closed: inspect it before its `with` block ends, or before close()")
    return Inspection(
        supervisor.backend.pids, trainer.status.restarts, {policy.id: _inspect_policy(policy) for policy in policies}
    )


def _inspect_policy(policy: Policy) -> PolicyInspection:
    arena, path = policy.arena, policy.path
    return PolicyInspection(
        version=max(0, arena.weights.version),
        slots={state.name.lower(): len(arena.slots.in_state(state)) for state in SlotState},
        queued=len(arena.full),
        epoch=int(arena.control[Control.RUN_EPOCH]),
        replay_rows=len(path.replay.buffer) if isinstance(path, ReplayPath) else None,
    )
