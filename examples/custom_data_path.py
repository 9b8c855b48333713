"""Your own data path in one file: the last batches of segments are kept, and learned from again beside each fresh one.

A data path decides how experience gets from the lanes to the learner. This one takes all of it from Penstock's fresh
segments, and changes only what the learner does with a batch. V-trace corrects for the age of what is kept.

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
    """IMPALA whose segments are used more than once."""

    kept_batches: int = 16
    """So many batches are kept; a new one takes the place of the oldest."""
    reuse: int = 2
    """Kept batches that are learned from again beside each fresh one."""
    max_policy_lag: int = 1_000
    """What is kept grows old: V-trace is to correct for it, not the mask."""


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
        self.kept.append(batch.segments(torch.arange(batch.num_segments)))  # a copy: the reader's memory is used anew
        return metrics

    def experience(self):
        """What the live view and the metrics show of it."""
        return {**super().experience(), "kept/batches": len(self.kept)}


class KeptSegments(SegmentPath):
    """Fresh segments, and a learner that keeps them."""

    def learner(self, arena, algorithm, state, learning, report, weights):
        """Make the learner, in its own process."""
        return KeepingLearner(algorithm, arena, state, learning, report, weights)


class KeepingIMPALA(IMPALA):
    """IMPALA on this data path."""

    Config = KeepingIMPALAConfig
    data_path = KeptSegments


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000

with penstock.Trainer(KeepingIMPALA, env="CartPole-v1", total_steps=steps, target_return=475, run_dir=None) as algo:
    result = algo.train()
    kept = int(algo.status.experience["kept/batches"])

print(f"mean return {result.eval_return:.1f} after {result.steps:,} steps ({result.stopped}), {kept} batches kept")
