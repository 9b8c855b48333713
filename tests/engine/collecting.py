"""The roles of a small run, polled by hand: rollout workers, policy workers, and optionally a learner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.appo import APPO
from penstock.algorithms.bases.algorithm import Algorithm
from penstock.algorithms.bases.segment import Metrics, SegmentAlgorithm
from penstock.algorithms.ppo import ProximalAlgorithm, ProximalConfig
from penstock.config import AsynchronousConfig, make_config
from penstock.engine.acting.inference import Inference, SharedWeights
from penstock.engine.contracts import LearnerState, Start
from penstock.engine.messages import Learned, Save
from penstock.engine.paths.segment_learner import BatchReader, SegmentLearner
from penstock.engine.paths.segments import SegmentPath
from penstock.engine.preparation import resolve, run_shape
from penstock.engine.roles.learner import Learner
from penstock.engine.roles.policy_worker import PolicyWorker
from penstock.engine.roles.rollout_worker import RolloutSpec, RolloutWorker
from penstock.engine.roster import infers_centrally
from penstock.experience.arena import READER, Control, ExperienceArena
from penstock.experience.batch import Batch
from penstock.ipc import SlotState
from penstock.nn import Distribution
from penstock.runs.checkpoint import Checkpoint, load_checkpoint
from tests.engine.reports import Reports
from tests.envs.counting import CountingEnv

FIRST_VERSION = 3  # of the weights to start from, so that it is not 0 by chance

COLUMNS = ("obs", "first", "action", "reward", "terminated", "truncated", "valid", "log_prob", "memory")
SHORT = {"env_kwargs": {"max_episode_steps": 9}}  # truncates CartPole's episodes

TINY: dict[str, Any] = {
    "env": "CartPole-v1", "num_workers": 1, "num_envs_per_worker": 4, "segment_length": 8, "batch_size": 16,
    "num_epochs": 1, "hidden_sizes": (8,), "memory_size": 6, "learning_rate": 3e-4, "total_steps": 10_000,
}  # fmt: skip


@dataclass
class Learns:
    """A policy that starts from nothing, as the roster knows it."""

    algorithm: Any
    start: Start = field(default_factory=Start)
    path: SegmentPath = field(default_factory=SegmentPath)


class Polled:
    """A run without supervisor.

    Attributes
    ----------
    reports
        Everything that a role has reported.
    model
        The network whose weights were published.
    """

    def __init__(self, algorithm: type[Algorithm], settings: dict[str, Any]) -> None:
        found = resolve(make_config(algorithm.Config, settings))
        config, self.env, (seen,) = found.policies[0].config, found.env, found.seen
        self.algorithm: Any = algorithm(config, seen.observation, seen.action)
        torch.manual_seed(config.seed)
        self.model: Any = self.algorithm.build_model()
        path = self.begin()
        self.arena = ExperienceArena.create(run_shape(self.algorithm, self.model))
        self.weights = SharedWeights(self.model, self.arena.weights)
        self.weights.publish(FIRST_VERSION, 0)
        self.reports = Reports()
        is_central = infers_centrally(config.inference, self.algorithm)
        inference = Inference(self.arena, self.algorithm, "cpu", path.steps_taken)
        self.policy_worker = PolicyWorker(self.arena, inference) if is_central else None
        self.workers = [
            RolloutWorker(
                RolloutSpec(i, self.env, (path,), config.seed, 0), self.arena, self.reports.append,
                [] if is_central else [inference],
            )
            for i in range(config.workers)
        ]  # fmt: skip

    def begin(self) -> Any:
        """Prepare the model of the first weights; return the data path."""
        raise NotImplementedError

    def poll(self) -> bool:
        """Poll the rollout workers and policy workers, once each."""
        moved = [worker.poll() for worker in self.workers]
        return any([*moved, self.policy_worker is not None and self.policy_worker.poll()])

    @property
    def learned(self) -> list[Learned]:
        """The learner's reports of what it learned."""
        return self.reports.of(Learned)

    def close(self) -> None:
        """Close the environments."""
        for worker in self.workers:
            worker.close()


class Collecting(Polled):
    """A run whose learner, if there is one, learns from segments."""

    def __init__(self, algorithm: type[SegmentAlgorithm], **settings: Any) -> None:
        tiny = {name: value for name, value in TINY.items() if name in algorithm.Config.__dataclass_fields__}
        super().__init__(algorithm, {**tiny, **settings})
        self.reader = BatchReader(
            self.arena, self.algorithm.config.num_lanes, torch.device("cpu"), reward_scale=1.0, reward_clip=None,
            max_policy_lag=100,
        )  # fmt: skip

    def begin(self) -> SegmentPath:
        with torch.no_grad():
            if hasattr(self.model, "policy_head"):
                self.model.policy_head.weight.mul_(50.0)  # away from the nearly uniform start
        return SegmentPath()

    def fill(self) -> np.ndarray:
        """Go on until every lane has filled a slot; return them in the order of the lanes, not yet taken."""
        num_lanes = self.arena.shape.num_lanes
        while len(slots := self.arena.slots.in_state(SlotState.FULL)) < num_lanes:
            assert self.poll()
        return slots[np.argsort(self.arena.lane_of(slots), kind="stable")][:num_lanes]

    def take(self) -> Batch:
        """One segment of every lane, as a learner would read them; their slots are free again."""
        slots = self.fill()
        self.arena.full.clear()
        assert self.arena.slots.claim(slots, SlotState.FULL, SlotState.READING, READER).all()
        batch, _ = self.reader.read(slots, FIRST_VERSION, 0.0)
        self.arena.release(slots)
        return batch.segments(torch.arange(len(slots)))

    def learner(self, state: LearnerState | None = None, learning: dict[str, Any] | None = None) -> SegmentLearner:
        """A learner of this run."""
        state = state or LearnerState(version=FIRST_VERSION)
        return SegmentLearner(self.algorithm, self.arena, state, learning, self.reports.append)

    def learn_once(self, learner: SegmentLearner) -> Learned:
        """Let the learner learn one batch, collecting what it needs; return its report."""
        self.arena.control[Control.GOAL] = 0 if not self.learned else self.learned[-1].steps
        self.arena.control[Control.GOAL] += 1  # at a goal the learner always reports
        count = len(self.learned)
        while not learner.poll():
            assert self.poll()
        assert len(self.learned) == count + 1
        return self.learned[-1]

    def published(self) -> bytes:
        """The weights block's bytes now, without the number of steps behind them."""
        payload = np.zeros(self.arena.weights.size, np.uint8)
        self.arena.weights.read_into(payload)
        return payload[:-8].tobytes()


def saved(learner: Learner, path: Path) -> Checkpoint:
    """The checkpoint that a learner makes at this moment."""
    learner.handle(Save(1, str(path), {}))
    return load_checkpoint(path)


def a_run(algorithm: type[SegmentAlgorithm] = APPO, **settings: Any) -> tuple[Collecting, SegmentLearner]:
    """A run with its learner; with APPO a batch is two minibatches."""
    run = Collecting(algorithm, **{**({"num_minibatches": 2} if algorithm is APPO else {}), **settings})
    return run, run.learner()


@dataclass(frozen=True, kw_only=True)
class RepeatingConfig(ProximalConfig, AsynchronousConfig):
    """Passes over batches of segments of any lanes."""


class Repeating(ProximalAlgorithm):
    """An algorithm of several passes over each batch, with any loss."""

    Config = RepeatingConfig


class Recording(Repeating):
    """Records the distribution's parameters."""

    records = ("logits",)


class Watching(Repeating):
    """Calls ``watch`` in the midst of every update."""

    watch: Callable[[], None]

    def loss(self, batch: Batch, policy: Distribution, value: Tensor) -> tuple[Tensor, Metrics]:
        self.watch()
        return policy.flat.sum(), {}


class Witnessed(CountingEnv):
    """Counting environments that are all remembered."""

    made: ClassVar[list[CountingEnv]] = []

    def __init__(self) -> None:
        super().__init__(0, [(3, "terminated"), (5, "truncated"), (1, "both"), (1, "truncated")])
        self.made.append(self)

    @classmethod
    def steps(cls) -> int:
        """Steps that all of them have made."""
        return sum(len(env.actions) for env in cls.made)
