"""Evaluators on nodes: each plays a part of the episodes, and home decides which weights are the best.

All play the weights that home had at the request. The request carries them, through the nodes' hosts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from penstock.config.nodes import parts_of
from penstock.engine.contracts import Role
from penstock.engine.messages import Command, Evaluate, Evaluated, Scored, Tell
from penstock.engine.roles.evaluator import Evaluator, Scores
from penstock.engine.roles.specs import EvaluatorRole
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RETURN_NBYTES, RoleKind
from penstock.play.evaluation import joined
from penstock.play.player import lanes_for
from penstock.self_play.settings import BEST
from penstock.serialization import leaving_machine, packed

if TYPE_CHECKING:
    from penstock.engine.nodes.node import Node

Block = tuple[bytes, int]
"""The payload of a weights block, and its version."""


@dataclass(frozen=True)
class EvaluatePart(Evaluate):
    """Command to play a part of the episodes of an evaluation.

    Attributes
    ----------
    turn
        1, or 2 if the first episodes have reached the target and fresh ones decide.
    games
        Numbers of this part's environments among those of the evaluation.
    weights, best
        Each policy's weights to play with, and its best weights so far if these are opponents.
    meta
        Metadata with the running statistics of the environment's wrappers.
    seconds
        Time limit, counted from the arrival of the command: clocks differ between machines.
    """

    turn: int = 1
    games: range = range(0)
    weights: tuple[Block, ...] = ()
    best: tuple[Block | None, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = math.inf


@dataclass(frozen=True)
class PartEvaluated(Evaluated):
    """Result of a part of an evaluation; `turn` and `games` are those of the command."""

    turn: int = 1
    games: range = range(0)


@dataclass(frozen=True)
class NodeEvaluatorRole(EvaluatorRole):
    """An evaluator of a run, on a node.

    Attributes
    ----------
    games
        Numbers of the environments that are made with the role; others are made to play another evaluator's part.
    """

    games: range = range(0)

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the evaluator and its lanes."""
        return NodeEvaluator(self.algorithms, self.env, arena, report, self.games)


class NodeEvaluator(Evaluator):
    """Evaluator of a node, which plays the weights of the command and decides nothing."""

    def handle(self, command: Command) -> None:
        """Execute a command: `EvaluatePart`."""
        if isinstance(command, EvaluatePart):
            command = replace(command, deadline=time.monotonic() + command.seconds)
        super().handle(command)

    def _evaluate(self, request: Evaluate) -> None:
        assert isinstance(request, EvaluatePart)
        for policy, (payload, version) in zip(self._scores.policies, request.weights, strict=True):
            policy.weights.take(np.frombuffer(payload, np.uint8), version)
        for arena, best in zip(self._arenas, request.best, strict=False):
            if best is not None and best[1] != arena.best_weights.version:
                payload, version = best
                arena.best_weights.publish(np.frombuffer(payload, np.uint8), version)
        played = tuple(map(Scored, self._play(request.games, request.deadline, request.meta)))
        self._report(PartEvaluated(request.number, played, 0.0, turn=request.turn, games=request.games))


class EvaluationShares:
    """Home's end of the evaluators: shares evaluations among them, and keeps and writes the best weights.

    Used in the supervisor's process. Each part of an evaluation is played by the evaluator with its number, or by
    another while that one is lost.

    Parameters
    ----------
    spec
        The evaluator's role at home.
    arena
        Arena of the run's first policy.
    """

    def __init__(self, spec: EvaluatorRole, arena: ExperienceArena) -> None:
        config = spec.algorithms[0].config
        self._spec = spec
        self._arenas = arena.policies[: len(spec.algorithms)]
        with torch.random.fork_rng(devices=[]):  # the networks are overwritten
            self._scores = Scores(spec.algorithms, arena)
        self._against_best = BEST in config.eval_against
        lanes = lanes_for(config.eval_episodes)
        self.count = config.num_evaluators
        self._parts = parts_of(range(lanes), min(lanes, self.count))
        self._open: set[range] = set()  # parts that are not played yet
        self._sent_to: dict[range, int] = {}  # number of the node that plays each part
        self._played: dict[range, PartEvaluated] = {}
        self._command = EvaluatePart(0, math.inf, ())  # the latest
        self._deadline = math.inf

    @property
    def remark(self) -> str:
        """Warning that some evaluators have nothing to play; empty if each has a part."""
        episodes, lanes = self._spec.algorithms[0].config.eval_episodes, len(self._parts)
        if lanes == self.count:
            return ""
        return (
            f"warning: {self.count - lanes} of num_evaluators={self.count} have nothing to play: eval_episodes="
            f"{episodes} are played in {lanes} environments; use a multiple of {self.count}"
        )

    def role(self, node: int) -> NodeEvaluatorRole:
        """Return the role for a node."""
        return NodeEvaluatorRole(**vars(self._spec), games=self._parts[node % len(self._parts)])

    def command(self, evaluate: Evaluate) -> None:
        """Divide an evaluation, which replaces the one under way, among evaluators; checkpoint stores stay at home."""
        self._scores.begin(evaluate)
        weights = tuple((each.weights.payload.tobytes(), each.weights.version) for each in self._scores.policies)
        best = tuple(map(block_of, self._arenas)) if self._against_best else ()
        meta, self._deadline = evaluate.policies[0].meta, evaluate.deadline
        self._divide(EvaluatePart(evaluate.number, math.inf, (), weights=weights, best=best, meta=meta))

    def send(self, nodes: Sequence[Node]) -> None:
        """Send the parts that no evaluator has to the hosts of present nodes."""
        there = {node.number: node.host for node in nodes[: self.count] if node.host is not None and node.has_begun}
        for number, part in enumerate(self._parts):
            if not there or part not in self._open or part in self._sent_to:
                continue
            self._sent_to[part] = node = number if number in there else [*there][number % len(there)]
            command = replace(self._command, games=part, seconds=self._deadline - time.monotonic())
            with leaving_machine():
                there[node].send(RoleKind.EVALUATOR, packed(command))

    def lose(self, node: int) -> None:
        """Take back the parts that the evaluator of a node has not played."""
        self._sent_to = {part: holder for part, holder in self._sent_to.items() if holder != node}

    def completed(self, report: PartEvaluated) -> Evaluated | None:
        """Store the result of a part; return that of the whole evaluation, None while parts are missing."""
        is_last = (report.number, report.turn) == (self._command.number, self._command.turn)
        if not is_last or report.games not in self._open:
            return None
        self._open.remove(report.games)
        self._played[report.games] = report
        if self._open:
            return None
        by_policy = zip(*(self._played[part].policies for part in self._parts), strict=True)
        evaluated = self._scores.judge([joined([scored.evaluation for scored in each]) for each in by_policy])
        if evaluated is None:
            self._divide(replace(self._command, turn=2))
        return evaluated

    def _divide(self, command: EvaluatePart) -> None:
        """Set the command, and mark all its parts as not played."""
        self._command, self._open = command, set(self._parts)
        self._sent_to.clear()
        self._played.clear()


def block_of(arena: ExperienceArena) -> Block | None:
    """Return a policy's best weights; None before there are any."""
    payload = np.zeros(arena.shape.weights_nbytes + RETURN_NBYTES, np.uint8)
    version = arena.best_weights.read_into(payload)
    return None if version < 0 else (payload.tobytes(), version)
