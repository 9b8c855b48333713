"""Roles of a run, and the number of threads of each."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import torch

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.config import FEATURES, Config
from penstock.engine.contracts import RoleSpec, Start
from penstock.engine.groups.board import GroupSpec
from penstock.engine.groups.follower import Follower, RankRole
from penstock.engine.paths import DataPath, data_path
from penstock.engine.roles.evaluator import Evaluator
from penstock.engine.roles.learner import Learner
from penstock.engine.roles.policy_worker import PolicyWorker
from penstock.engine.roles.rollout_worker import RolloutSpec, RolloutWorker
from penstock.engine.roles.shared_process import DeviceRole, LearnersRole
from penstock.engine.roles.specs import EvaluatorRole, LearnerRole, PolicyRole, RolloutRole
from penstock.envs.spec import EnvSpec
from penstock.experience.layout import RoleKind, RunShape
from penstock.ipc import whole_cores
from penstock.self_play.path import ActingPath

ACTIVITIES: dict[str, tuple[str, ...]] = {
    RoleKind.ROLLOUT: RolloutWorker.ACTIVITIES,
    RoleKind.POLICY: PolicyWorker.ACTIVITIES,
    RoleKind.LEARNER: Learner.ACTIVITIES,
    RoleKind.RANK: Follower.ACTIVITIES,
    RoleKind.EVALUATOR: Evaluator.ACTIVITIES,
    **{kind: activities for feature in FEATURES for kind, activities in feature.roles.items()},
}


class LearnedPolicy(Protocol):
    """Attributes of a policy that its roles are made from."""

    @property
    def algorithm(self) -> Algorithm: ...

    @property
    def start(self) -> Start: ...

    @property
    def path(self) -> DataPath: ...


def role_specs(
    policies: Sequence[LearnedPolicy], env: EnvSpec, shape: RunShape, group: GroupSpec | None = None,
    cores_of_nodes: int = 0,
) -> list[RoleSpec]:  # fmt: skip
    """Return the roles of a run, in the order in which the serial backend polls them.

    Parameters
    ----------
    policies
        Policies of the run.
    env
        The environment.
    shape
        Shape of the first policy's arena.
    group
        Learner group of a policy with several learners.
    cores_of_nodes
        Cores of this machine that belong to nodes of the run.
    """
    algorithms = tuple(policy.algorithm for policy in policies)
    config = algorithms[0].config
    is_central = infers_centrally(config.inference, algorithms[0])
    is_shared = learners_share_a_process(policies, shape.num_workers)
    num_learners = 1 if is_shared else len(policies) * config.learners_at_home
    policy_threads, learner_threads = share_threads(
        config, shape.num_workers, is_central, num_learners, len(policies) * shape.num_policy_workers, cores_of_nodes
    )
    acting = (*algorithms, *(algorithms[other.plays] for other in shape.others if other.plays is not None))
    workers = [_rollout_spec(worker, policies, env, shape, acting) for worker in range(shape.num_workers)]
    specs: list[RoleSpec] = [RolloutRole(worker, () if is_central else acting) for worker in workers]
    learners = []
    for number, policy in enumerate(policies):
        acts = PolicyRole(policy.algorithm, policy.path, policy_threads, number)
        state, learning = policy.start.state, policy.start.learning
        learner = LearnerRole(policy.algorithm, policy.path, state, learning, learner_threads, number, group)
        if is_central and shares_device(config):
            specs.append(DeviceRole(learner, acts))
        else:
            specs += [acts] if is_central else []
            learners.append(learner)
        for rank in range(1, group.size if group is not None else 1):
            assert group is not None
            there = on_device(policy.algorithm, device_of(rank, policy.algorithm.config))
            follower = RankRole(there, group, rank, learner_threads)
            if not is_central or rank >= shape.num_policy_workers:
                specs.append(follower)
            elif shares_device(config):
                specs.append(DeviceRole(follower, replace(acts, algorithm=there, number=rank)))
            else:
                specs += [replace(acts, number=rank), follower]
        specs += policy.path.roles(policy.algorithm, number)
    specs += [LearnersRole(tuple(learners))] if is_shared else learners
    for number in range(len(policies), len(acting)) if is_central else ():
        specs.append(PolicyRole(acting[number], ActingPath(), policy_threads, number))
    return [*specs, EvaluatorRole(algorithms, env)]


def _rollout_spec(
    worker: int, policies: Sequence[LearnedPolicy], env: EnvSpec, shape: RunShape, acting: Sequence[Algorithm]
) -> RolloutSpec:
    """Return the spec of a rollout worker; algorithms of `acting` beyond those of the policies are not learned from."""
    config = policies[0].algorithm.config
    only_acting = (ActingPath() for _ in range(len(policies), len(acting)))
    return RolloutSpec(
        worker, env, (*(policy.path for policy in policies), *only_acting), config.seed,
        # The version of the initial weights, so that a resumed run does not repeat its first episodes.
        incarnation=policies[0].start.state.version,
        lanes_per_worker=tuple(each.lanes_per_worker for each in (shape, *shape.others)),
        uses_clock=config.backend != "serial",
        is_pinned=pins_workers(config, shape.num_workers),
        noise_hold=tuple(algorithm.noise_hold for algorithm in acting),
    )  # fmt: skip


def on_device(algorithm: Algorithm, device: str) -> Algorithm:
    """Return a copy of an algorithm for another device."""
    there = copy.copy(algorithm)
    there.config = replace(algorithm.config, device=device)
    return there


def device_of(rank: int, config: Config) -> str:
    """Return the device of another learner: `rank` GPUs after the first learner's, or the same CPU."""
    first = torch.device(config.device)
    return f"cuda:{(first.index or 0) + rank}" if first.type == "cuda" else config.device


def learners_share_a_process(policies: Sequence[LearnedPolicy], num_workers: int) -> bool:
    """Whether all learners of a run share one process, because there are too few cores for one each."""
    config = policies[0].algorithm.config
    is_possible = config.backend == "local" and torch.device(config.device).type == "cpu"
    return is_possible and len(policies) > 1 and whole_cores() < num_workers + len(policies)


def infers_centrally(inference: str, algorithm: Algorithm) -> bool:
    """Whether policy workers infer, rather than rollout workers; "auto": on a GPU only."""
    if data_path(algorithm).workers_learn:
        return False
    if inference == "auto" and algorithm.config.backend == "ray":
        return False  # the learner's device is not the nodes'
    if inference == "auto":
        return torch.device(algorithm.config.device).type != "cpu"
    return inference == "central"


def shares_device(config: Config) -> bool:
    """Whether policy worker and learner share one process: on a GPU, so that one process owns its memory."""
    return config.backend == "local" and torch.device(config.device).type != "cpu"


def pins_workers(config: Config, num_workers: int) -> bool:
    """Whether each rollout worker is pinned to a core: as set, or by default with a GPU and one worker per core."""
    if config.pin_workers is not None:
        return config.pin_workers
    return shares_device(config) and num_workers == whole_cores() == len(os.sched_getaffinity(0))


def share_threads(
    config: Config, num_workers: int, is_central: bool, num_learners: int = 1, num_policy_workers: int = 1,
    cores_of_nodes: int = 0,
) -> tuple[int, int]:  # fmt: skip
    """Return the threads of each policy worker and each learner; one each where there are fewer cores than roles."""
    if config.backend == "serial":
        return 1, 1
    if config.backend == "ray":  # rollout workers run on nodes
        evaluator = 1 if config.evaluator == "home" else 0
        return 1, max(1, (whole_cores() - cores_of_nodes - evaluator) // num_learners)
    left = whole_cores() - num_workers - 1  # rollout workers and evaluator have one each
    if not is_central:
        policy = 0
    elif torch.device(config.device).type == "cpu":
        policy = left // num_learners // 2
    else:
        policy = 1  # it only feeds the GPU
    return max(1, policy), max(1, (left - policy * num_policy_workers) // num_learners)
