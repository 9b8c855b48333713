"""The roster: which roles a run has, and how many threads each may use."""

from __future__ import annotations

import os

import torch

from penstock.algorithms.segment import SegmentAlgorithm
from penstock.engine.evaluator import Evaluator
from penstock.engine.learner import Learner, LearnerState
from penstock.engine.policy_worker import PolicyWorker
from penstock.engine.roles import EvaluatorRole, LearnerRole, PolicyRole, RoleSpec, RolloutRole
from penstock.engine.rollout_worker import RolloutSpec, RolloutWorker
from penstock.envs.spec import EnvSpec
from penstock.experience.layout import RunShape

ACTIVITIES = {
    "rollout": RolloutWorker.ACTIVITIES,
    "policy": PolicyWorker.ACTIVITIES,
    "learner": Learner.ACTIVITIES,
    "evaluator": Evaluator.ACTIVITIES,
}


def role_specs(
    algorithm: SegmentAlgorithm, env: EnvSpec, shape: RunShape, state: LearnerState, optimizer_state: dict | None
) -> list[RoleSpec]:
    """Decide which roles a run has, in the order in which the serial backend polls them.

    Parameters
    ----------
    algorithm, env
        What is trained, and on what.
    shape
        The run's numbers.
    state, optimizer_state
        Where the learner starts.
    """
    config = algorithm.config
    cores = len(os.sched_getaffinity(0))
    # What rollout workers leave over; on a small machine all share, with one thread each.
    threads = 1 if config.backend == "serial" else max(1, cores - shape.num_workers)
    is_central = infers_centrally(config.inference, algorithm)
    # A resumed run does not play its first episodes again: the incarnation is that of the weights it starts from.
    specs: list[RoleSpec] = [
        RolloutRole(RolloutSpec(i, env, config.seed, state.version, 1), None if is_central else algorithm)
        for i in range(shape.num_workers)
    ]
    if is_central:
        specs.append(PolicyRole(algorithm, shape.num_workers, threads))
    specs.append(LearnerRole(algorithm, state, optimizer_state, shape.num_workers + 1, threads))
    specs.append(EvaluatorRole(algorithm, env, shape.num_workers + 2))
    return specs


def infers_centrally(inference: str, algorithm: SegmentAlgorithm) -> bool:
    """Whether a policy worker infers; "auto": on a GPU, and for images, whose networks are worth a batch."""
    if inference == "auto":
        return torch.device(algorithm.config.device).type != "cpu" or algorithm.observation.is_image
    return inference == "central"
