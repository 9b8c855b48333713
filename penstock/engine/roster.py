"""The roster: which roles a run has, and how many threads each may use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

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


class Learnt(Protocol):
    """A policy of a run, as far as the roster asks."""

    @property
    def algorithm(self) -> Algorithm: ...

    @property
    def start(self) -> Start: ...

    @property
    def path(self) -> DataPath: ...


def role_specs(policies: Sequence[Learnt], env: EnvSpec, shape: RunShape) -> list[RoleSpec]:
    """Decide which roles a run has, in the order in which the serial backend polls them.

    Parameters
    ----------
    policies
        What learns each policy, where it starts, and the way of its experience.
    env
        The environment.
    shape
        The run's numbers.
    """
    algorithms = tuple(policy.algorithm for policy in policies)
    config = algorithms[0].config
    is_central = infers_centrally(config.inference, algorithms[0])
    policy_threads, learner_threads = share_threads(config, shape.num_workers, is_central, len(policies))
    paths = tuple(policy.path for policy in policies)
    # A resumed run does not play its first episodes again: the incarnation is that of the weights it starts from.
    incarnation = policies[0].start.state.version
    lanes_per_worker = tuple(each.lanes_per_worker for each in (shape, *shape.others))
    specs: list[RoleSpec] = [
        RolloutRole(
            RolloutSpec(i, env, paths, config.seed, incarnation, 1, lanes_per_worker, config.backend != "serial"),
            () if is_central else algorithms,
        )
        for i in range(shape.num_workers)
    ]
    for number, policy in enumerate(policies):
        acts = PolicyRole(policy.algorithm, policy.path, policy_threads, number)
        state, learning = policy.start.state, policy.start.learning
        learner = LearnerRole(policy.algorithm, policy.path, state, learning, learner_threads, number)
        if is_central and shares_device(config):
            specs.append(DeviceRole(learner, acts))
        else:
            specs += [acts, learner] if is_central else [learner]
        specs += policy.path.roles(policy.algorithm, number)
    return [*specs, EvaluatorRole(algorithms, env)]


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


def share_threads(config: Config, num_workers: int, is_central: bool, num_policies: int = 1) -> tuple[int, int]:
    """Threads of each policy worker and learner; on a machine with fewer cores than roles every role has one."""
    if config.backend == "serial":
        return 1, 1
    left = (whole_cores() - num_workers - 1) // num_policies  # rollout workers and evaluator have one each
    if not is_central:
        policy = 0
    elif torch.device(config.device).type == "cpu":
        policy = left // 2
    else:
        policy = 1  # it only feeds the GPU
    return max(1, policy), max(1, left - policy)
