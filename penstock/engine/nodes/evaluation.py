"""An evaluator on a node: it plays there, and its results and the best weights go home, where they are written.

Its weights are those that the node's rollout workers act with. It waits until these are as new as home's were when the
evaluation was asked for. The two ends of this file talk by the messages of the host: some kilobytes for an evaluation.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.engine.acting.inference import BestWeights
from penstock.engine.contracts import Role
from penstock.engine.messages import Candidate, Command, Died, Evaluate, Evaluated, Scored, Tell
from penstock.engine.roles.evaluator import Evaluator
from penstock.engine.roles.specs import EvaluatorRole
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RETURN_NBYTES, RoleKind
from penstock.runs.checkpoint import CheckpointError
from penstock.travelling import leaving_machine, packed

if TYPE_CHECKING:
    from penstock.engine.nodes.cluster import Hosted

Block = tuple[bytes, int]
"""The payload of a weights block, and its version."""


@dataclass(frozen=True)
class EvaluateThere(Evaluate):
    """Play weights that are as new as these.

    Attributes
    ----------
    versions
        Of the policies' weights at home.
    seconds
        When playing ends, from when this is heard: clocks differ between machines.
    """

    versions: tuple[int, ...] = ()
    seconds: float = math.inf


@dataclass(frozen=True)
class EvaluatedThere(Evaluated):
    """Result of the evaluation.

    Attributes
    ----------
    best
        Of each policy the weights that are the best now; None: they are not others than before.
    """

    best: tuple[Block | None, ...] = ()


@dataclass(frozen=True)
class EvaluatorThereRole(EvaluatorRole):
    """The evaluator of a run, on a node.

    Attributes
    ----------
    best
        The best weights so far of each policy; None: there are none.
    """

    best: tuple[Block | None, ...] = ()

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the evaluator and its lanes. A successor of one that was killed finds the best weights in the arena."""
        for of_policy, best in zip(arena.policies, self.best, strict=False):
            if best is not None and of_policy.best_weights.version < best[1]:
                put(of_policy, best)
        return EvaluatorThere(self, arena, report)


class EvaluatorThere(Evaluator):
    """Plays on a node when it is asked to.

    Parameters
    ----------
    spec
        What it is told.
    arena
        The node's arena of the first policy.
    report
        Called with `EvaluatedThere` after each.
    """

    def __init__(self, spec: EvaluatorRole, arena: ExperienceArena, report: Tell) -> None:
        super().__init__(spec.algorithms, spec.env, arena, self._send_home)
        self._arenas = arena.policies
        self._tell = report
        self._versions: tuple[int, ...] = ()

    def poll(self) -> bool:
        """Play if asked to, and the weights are there; False if not."""
        are_there = all(
            arena.weights.version >= version for arena, version in zip(self._arenas, self._versions, strict=False)
        )
        return are_there and super().poll()

    def handle(self, command: Command) -> None:
        """Take a command: `EvaluateThere`."""
        if isinstance(command, EvaluateThere):
            self._versions = command.versions
            command = replace(command, deadline=time.monotonic() + command.seconds)
        super().handle(command)

    def _send_home(self, said: object) -> None:
        assert isinstance(said, Evaluated)
        best = (
            block_of(arena) if scored.is_best else None
            for arena, scored in zip(self._arenas, said.policies, strict=False)
        )
        self._tell(EvaluatedThere(**vars(said), best=tuple(best)))


class EvaluationsThere:
    """Home's end: asks for evaluations, and keeps and writes the best weights. The supervisor's process has it.

    Parameters
    ----------
    spec
        The evaluator, as it would be at home.
    arena
        The run's arena, of its first policy.
    """

    def __init__(self, spec: EvaluatorRole, arena: ExperienceArena) -> None:
        self._spec = spec
        self._arenas = arena.policies[: len(spec.algorithms)]
        self._asked: Evaluate | None = None
        self._waiting: EvaluateThere | None = None  # that no node has been told yet

    def role(self) -> EvaluatorThereRole:
        """The evaluator, as a node is told."""
        return EvaluatorThereRole(**vars(self._spec), best=tuple(map(block_of, self._arenas)))

    def ask(self, evaluate: Evaluate) -> None:
        """Note what a node is to be asked for; only numbers travel."""
        self._asked = evaluate
        candidates = tuple(replace(candidate, store=None, meta={}) for candidate in evaluate.policies)
        versions = tuple(arena.weights.version for arena in self._arenas)
        seconds = evaluate.deadline - time.monotonic()
        self._waiting = EvaluateThere(evaluate.number, math.inf, candidates, versions, seconds)

    def tell(self, host: Hosted) -> None:
        """Tell a node what is asked for, if no node has been told."""
        if self._waiting is not None:
            with leaving_machine():
                task = packed(self._waiting)
            host.tell(RoleKind.EVALUATOR, task)
            self._waiting = None

    def heard(self, said: Evaluated | Died, where: str) -> Evaluated | Died:
        """Hear what the evaluator says; return what the supervisor is to hear.

        The best weights are kept, and written where the run wants them written.
        """
        if isinstance(said, Died):
            return Died(f"{said.story}, on {where}")
        assert isinstance(said, EvaluatedThere)
        policies = said.policies
        if self._asked is not None and said.number == self._asked.number:
            policies = tuple(map(self._kept, range(len(policies)), policies, said.best, self._asked.policies))
        return Evaluated(said.number, policies, said.seconds, said.has_reached_target)

    def _kept(self, policy: int, scored: Scored, best: Block | None, candidate: Candidate) -> Scored:
        if best is None:
            return scored
        arena = self._arenas[policy]
        put(arena, best)
        if candidate.store is None:
            return scored
        found = BestWeights(arena.best_weights).load(self._spec.algorithms[policy].build_model)
        assert found is not None
        meta = {**candidate.meta, "version": found.version, "mean_return": found.mean_return}
        try:
            candidate.store.save_best(found.steps, meta=meta, weights=found.parameters[0])
        except (OSError, CheckpointError) as problem:
            return replace(scored, error=problem)
        return scored


def block_of(arena: ExperienceArena) -> Block | None:
    """A policy's best weights; None before there are any."""
    payload = np.zeros(arena.shape.weights_nbytes + RETURN_NBYTES, np.uint8)
    version = arena.best_weights.read_into(payload)
    return None if version < 0 else (payload.tobytes(), version)


def put(arena: ExperienceArena, best: Block) -> None:
    """Let these be a policy's best weights."""
    payload, version = best
    arena.best_weights.publish(np.frombuffer(payload, np.uint8), version)
