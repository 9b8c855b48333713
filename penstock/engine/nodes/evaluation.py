"""An evaluator on a node: results and best weights go home, where they are written.

It plays with the weights of the node's rollout workers, once these are as new as home's at the request. Commands and
reports go through the node's host: some kilobytes per evaluation.
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
    """Command to evaluate weights that are at least as new as those at home.

    Attributes
    ----------
    versions
        Versions of the policies' weights at home.
    seconds
        Time limit, counted from the arrival of the command: clocks differ between machines.
    """

    versions: tuple[int, ...] = ()
    seconds: float = math.inf


@dataclass(frozen=True)
class EvaluatedThere(Evaluated):
    """Result of an evaluation on a node.

    Attributes
    ----------
    best
        New best weights of each policy; None: they are unchanged.
    """

    best: tuple[Block | None, ...] = ()


@dataclass(frozen=True)
class EvaluatorThereRole(EvaluatorRole):
    """The evaluator of a run, on a node.

    Attributes
    ----------
    best
        Best weights so far of each policy; None: there are none.
    """

    best: tuple[Block | None, ...] = ()

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the evaluator and its lanes; newer best weights in the arena, of a killed evaluator, are kept."""
        for of_policy, best in zip(arena.policies, self.best, strict=False):
            if best is not None and of_policy.best_weights.version < best[1]:
                put(of_policy, best)
        return EvaluatorThere(self, arena, report)


class EvaluatorThere(Evaluator):
    """Evaluator of a node.

    Parameters
    ----------
    spec
        Description of the role.
    arena
        Arena of the first policy on the node.
    report
        Called with an `EvaluatedThere` after each evaluation.
    """

    def __init__(self, spec: EvaluatorRole, arena: ExperienceArena, report: Tell) -> None:
        super().__init__(spec.algorithms, spec.env, arena, self._report_home)
        self._arenas = arena.policies
        self._report_to_host = report
        self._versions: tuple[int, ...] = ()

    def poll(self) -> bool:
        """Evaluate as commanded once the weights are there; False while there is nothing to do."""
        are_there = all(
            arena.weights.version >= version for arena, version in zip(self._arenas, self._versions, strict=False)
        )
        return are_there and super().poll()

    def handle(self, command: Command) -> None:
        """Execute a command: `EvaluateThere`."""
        if isinstance(command, EvaluateThere):
            self._versions = command.versions
            command = replace(command, deadline=time.monotonic() + command.seconds)
        super().handle(command)

    def _report_home(self, result: object) -> None:
        """Report a result with new best weights."""
        assert isinstance(result, Evaluated)
        best = (
            block_of(arena) if scored.is_best else None
            for arena, scored in zip(self._arenas, result.policies, strict=False)
        )
        self._report_to_host(EvaluatedThere(**vars(result), best=tuple(best)))


class EvaluationsThere:
    """Home's end of the evaluator: sends commands, keeps and writes the best weights, in the supervisor's process.

    Parameters
    ----------
    spec
        The evaluator's role at home.
    arena
        Arena of the run's first policy.
    """

    def __init__(self, spec: EvaluatorRole, arena: ExperienceArena) -> None:
        self._spec = spec
        self._arenas = arena.policies[: len(spec.algorithms)]
        self._last: Evaluate | None = None  # command
        self._unsent: EvaluateThere | None = None

    def role(self) -> EvaluatorThereRole:
        """Return the role for the node."""
        return EvaluatorThereRole(**vars(self._spec), best=tuple(map(block_of, self._arenas)))

    def command(self, evaluate: Evaluate) -> None:
        """Hold a command until a node is there; its stores and metadata stay at home."""
        self._last = evaluate
        candidates = tuple(replace(candidate, store=None, meta={}) for candidate in evaluate.policies)
        versions = tuple(arena.weights.version for arena in self._arenas)
        seconds = evaluate.deadline - time.monotonic()
        self._unsent = EvaluateThere(
            evaluate.number, math.inf, candidates, versions=versions, seconds=seconds
        )

    def send(self, host: Hosted) -> None:
        """Send the command to a node's host, unless it was sent."""
        if self._unsent is not None:
            with leaving_machine():
                command = packed(self._unsent)
            host.send(RoleKind.EVALUATOR, command)
            self._unsent = None

    def completed(self, report: Evaluated | Died, where: str) -> Evaluated | Died:
        """Return a report of the evaluator in its form for the supervisor; keep and write new best weights."""
        if isinstance(report, Died):
            return Died(f"{report.story}, on {where}")
        assert isinstance(report, EvaluatedThere)
        policies = report.policies
        if self._last is not None and report.number == self._last.number:
            policies = tuple(map(self._kept, range(len(policies)), policies, report.best, self._last.policies))
        return Evaluated(report.number, policies, report.seconds, report.has_reached_target)

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
    """Return a policy's best weights; None before there are any."""
    payload = np.zeros(arena.shape.weights_nbytes + RETURN_NBYTES, np.uint8)
    version = arena.best_weights.read_into(payload)
    return None if version < 0 else (payload.tobytes(), version)


def put(arena: ExperienceArena, best: Block) -> None:
    """Publish a policy's best weights."""
    payload, version = best
    arena.best_weights.publish(np.frombuffer(payload, np.uint8), version)
