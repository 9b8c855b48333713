"""The roster: which roles a run has, and how many threads each may use."""

from __future__ import annotations

import torch

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.config import Config
from penstock.engine.paths import DataPath, data_path
from penstock.engine.roles.device import DeviceRole
from penstock.engine.roles.evaluator import Evaluator
from penstock.engine.roles.learner import Learner, Start
from penstock.engine.roles.policy_worker import PolicyWorker
from penstock.engine.roles.redistributor import Redistributor
from penstock.engine.roles.rollout_worker import RolloutSpec, RolloutWorker
from penstock.engine.roles.specs import EvaluatorRole, LearnerRole, PolicyRole, RoleSpec, RolloutRole
from penstock.envs.spec import EnvSpec
from penstock.experience.layout import RoleKind, RunShape
from penstock.ipc import whole_cores

ACTIVITIES = {
    RoleKind.ROLLOUT: RolloutWorker.ACTIVITIES,
    RoleKind.POLICY: PolicyWorker.ACTIVITIES,
    RoleKind.LEARNER: Learner.ACTIVITIES,
    RoleKind.EVALUATOR: Evaluator.ACTIVITIES,
    RoleKind.REDISTRIBUTOR: Redistributor.ACTIVITIES,
}


def role_specs(
    algorithm: Algorithm, env: EnvSpec, shape: RunShape, start: Start, path: DataPath
) -> list[RoleSpec]:
    """Decide which roles a run has, in the order in which the serial backend polls them.

    Parameters
    ----------
    algorithm, env
        What is trained, and on what.
    shape
        The run's numbers.
    start
        Where the run starts.
    path
        The way of its experience.
    """
    config = algorithm.config
    is_central = infers_centrally(config.inference, algorithm)
    policy_threads, learner_threads = share_threads(config, shape.num_workers, is_central)
    # A resumed run does not play its first episodes again: the incarnation is that of the weights it starts from.
    specs: list[RoleSpec] = [
        RolloutRole(RolloutSpec(i, env, path, config.seed, start.state.version, 1), None if is_central else algorithm)
        for i in range(shape.num_workers)
    ]
    policy = PolicyRole(algorithm, path, policy_threads)
    learner = LearnerRole(algorithm, path, start.state, start.learning, learner_threads)
    if is_central and shares_device(config):
        specs.append(DeviceRole(learner, policy))
    else:
        specs += [policy, learner] if is_central else [learner]
    specs += [*path.roles(algorithm), EvaluatorRole(algorithm, env)]
    return specs


def infers_centrally(inference: str, algorithm: Algorithm) -> bool:
    """Whether a policy worker infers; "auto": on a GPU, and on a CPU whoever steps the lanes does."""
    if data_path(algorithm).workers_learn:
        return False
    if inference == "auto":
        return torch.device(algorithm.config.device).type != "cpu"
    return inference == "central"


def shares_device(config: Config) -> bool:
    """Whether policy worker and learner live in one process: on a GPU, whose memory one process has for itself."""
    return config.backend == "local" and torch.device(config.device).type != "cpu"


def share_threads(config: Config, num_workers: int, is_central: bool) -> tuple[int, int]:
    """Threads of policy worker and learner; on a machine with fewer cores than roles every role has one."""
    if config.backend == "serial":
        return 1, 1
    left = whole_cores() - num_workers - 1  # rollout workers and evaluator have one each
    if not is_central:
        policy = 0
    elif torch.device(config.device).type == "cpu":
        policy = left // 2
    else:
        policy = 1  # it only feeds the GPU
    return max(1, policy), max(1, left - policy)
