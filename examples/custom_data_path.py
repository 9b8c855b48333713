"""Your own data path in one file: recent batches of segments are kept, and learned from again after each fresh one.

A data path decides how experience gets from the lanes to the learner. This one uses Penstock's path of fresh segments,
and changes only what the learner does with a batch. V-trace corrects for the age of kept batches.

    python examples/custom_data_path.py [STEPS]
"""

import sys
from collections import deque
from dataclasses import dataclass, replace

import torch

import penstock
from penstock.algorithms.impala import IMPALA, IMPALAConfig
from penstock.engine.paths.segment_learner import SegmentLearner
from penstock.engine.paths.segments import SegmentPath


@dataclass(frozen=True, kw_only=True)
class KeepingIMPALAConfig(IMPALAConfig):
    """IMPALA that uses segments more than once."""

    kept_batches: int = 16
    """Number of batches to keep; a new one replaces the oldest."""
    reuse: int = 2
    """Kept batches to learn from again after each fresh one."""
    max_policy_lag: int = 1_000
    """Kept batches grow old: V-trace corrects for it, so that no step is masked."""


class KeepingLearner(SegmentLearner):
    """Learns from each fresh batch, and then from some that it has kept."""

    def __init__(self, algorithm, *others):
        super().__init__(algorithm, *others)
        self.kept = deque(maxlen=algorithm.config.kept_batches)
        self.choice = torch.Generator().manual_seed(algorithm.config.seed)

    def learn(self, batch):
        """Make the updates of a fresh batch `[T, B]` and of the kept ones drawn; return what the fresh one reports."""
        metrics = super().learn(batch)
        for index in torch.randperm(len(self.kept), generator=self.choice)[: self._config.reuse].tolist():
            super().learn(replace(self.kept[index], progress=batch.progress, targets={}))
        self.kept.append(batch.segments(torch.arange(batch.num_segments)))  # a copy: the reader reuses its memory
        return metrics

    def experience(self):
        """Metrics of the kept batches, for the live view and the files."""
        return {**super().experience(), "kept/batches": len(self.kept)}


class KeptSegments(SegmentPath):
    """Fresh segments, and a learner that keeps them."""

    def learner(self, arena, algorithm, state, learning, report, weights):
        """Make the learner, in the learner's process."""
        return KeepingLearner(algorithm, arena, state, learning, report, weights)


class KeepingIMPALA(IMPALA):
    """IMPALA on this data path."""

    Config = KeepingIMPALAConfig
    data_path = KeptSegments


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000

with penstock.Trainer(KeepingIMPALA, env="CartPole-v1", total_steps=steps, target_return=475, run_dir=None) as algo:
    result = algo.train()
    kept = int(algo.status.experience["kept/batches"])

print(f"mean return {result.eval_return:.1f} after {result.steps:,} steps ({result.stop_reason}), {kept} batches kept")
