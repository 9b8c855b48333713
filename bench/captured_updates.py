"""Milliseconds of an update on a GPU, run operation by operation and captured as a CUDA graph.

    python bench/captured_updates.py [--batches 30]

APPO with the Nature CNN on batches of Pong: its defaults, those of ``penstock bench throughput --workload pong``,
and those with an LSTM.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # for tests.engine.collecting

from penstock.algorithms.appo import APPO
from penstock.algorithms.bases.segment import SegmentUpdater
from penstock.engine.paths.captured_updates import CapturedGradient
from penstock.runs.machine import describe
from tests.engine.collecting import Collecting

COMMON: dict[str, Any] = {"env": "ALE/Pong-v5", "encoder": "nature_cnn", "inference": "central", "device": "cuda"}
ONE_UPDATE = {"segment_length": 32, "batch_size": 512, "num_minibatches": 1, "num_epochs": 1, "precision": "bfloat16"}
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults, float32": {"segment_length": 32, "batch_size": 256, "num_minibatches": 2, "num_epochs": 2},
    "throughput, bfloat16": ONE_UPDATE | {"shared_encoder": True},
    "LSTM, bfloat16": ONE_UPDATE | {"memory": "lstm"},
}


def milliseconds(run: Collecting, batch: Any, captures: bool, batches: int) -> float:
    """Return the milliseconds of all updates of a batch."""
    algorithm, device = run.algorithm, torch.device("cuda")
    model = algorithm.build_model().to(device)
    updater = SegmentUpdater(algorithm, model)
    if captures:
        updater.gradient = CapturedGradient(algorithm, model, updater.autocast, print)

    def learn(times: int) -> None:
        for _ in range(times):
            fresh = dataclasses.replace(batch, targets={})
            updater.learn(fresh)
        torch.cuda.synchronize()

    learn(8)
    began = time.perf_counter()
    learn(batches)
    return (time.perf_counter() - began) / batches * 1e3


def main() -> None:
    """Measure and print."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--batches", type=int, default=30)
    given = flags.parse_args()
    if not torch.cuda.is_available():
        sys.exit("captured updates need a GPU: torch finds none")
    torch.set_float32_matmul_precision("high")
    print(f"{describe()} | {torch.cuda.get_device_name()}")
    for name, settings in SETTINGS.items():
        run = Collecting(APPO, **COMMON, **settings, num_workers=1, num_envs_per_worker=16, num_groups=1)
        batch = run.take().map(lambda _, tensor: tensor.cuda())
        updates = run.algorithm.config.num_epochs * run.algorithm.config.num_minibatches
        plain, captured = (milliseconds(run, batch, captures, given.batches) for captures in (False, True))
        print(
            f"{name}: {plain / updates:.2f} ms an update, captured {captured / updates:.2f} ms, "
            f"{plain / captured:.2f} x, {updates} updates of {run.algorithm.config.batch_size} steps", flush=True,
        )  # fmt: skip
        run.close()


if __name__ == "__main__":
    main()
