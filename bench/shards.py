"""Batches and bytes per second that a learner draws from shards, and from one buffer in its own process.

    python bench/shards.py [--shards 1 2 8] [--batch 256] [--rounds 5] [--seconds 2]

Each shard is a process of this machine with a gateway's role, over loopback. Rows have CartPole's size, or are stacks
of four frames of 84 x 84 bytes; they are drawn by priority, and after each batch its priorities are set. Buffers take
turns.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from functools import partial
from typing import Any

import numpy as np

from penstock.engine.nodes.shards import ShardRole
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RunShape
from penstock.experience.run_replay import transition_fields
from penstock.experience.shards import ShardAddress, ShardedBuffer
from penstock.replay import Prioritized, ReplayBuffer
from penstock.runs.machine import describe

ROWS = 20_000  # of all shards
WORKS = {"vectors": ObservationSpec((4,), "float32"), "pixels": ObservationSpec((4, 84, 84), "uint8", is_stacked=True)}
TOKEN, RUN = b"t" * 32, 1


def fill(buffer: ReplayBuffer, observation: ObservationSpec, rows: int) -> None:
    """Write steps of one episode."""
    obs = np.random.default_rng(1).integers(0, 255, (rows + 1, *observation.shape)).astype(observation.dtype)
    if observation.is_stacked:
        for frame in range(1, 4):  # a stack's older frames are those of earlier steps
            obs[1:, 3 - frame] = obs[:-1, 4 - frame]
    for row in range(rows):
        buffer.add(obs=obs[row], action=row % 2, reward=1.0, next_obs=obs[row + 1])


def serve(make: Any, observation: ObservationSpec, rows: int, pipe: Any) -> None:
    """Serve a shard in this process."""
    buffer = make()
    fill(buffer, observation, rows)
    shape = RunShape(
        num_workers=1, num_envs_per_worker=1, num_groups=1, segment_length=1, slots_per_lane=1, segments_per_batch=1,
        observation=observation, action=ActionSpec((), "int64", num_actions=2), records=(), state_size=0,
        weights_nbytes=64,
    )  # fmt: skip
    role = ShardRole("127.0.0.1", TOKEN, RUN, make, buffer=buffer)
    served = role.build(ExperienceArena.create(shape), lambda report: pipe.send(report.address))
    while True:
        served.poll()
        time.sleep(1.0)


def received(buffer: Any) -> int:
    """Return the bytes that shards have sent so far."""
    return sum(link.stream.received for link in getattr(buffer, "_links", {}).values())


def rate(buffer: Any, batch: int, seconds: float) -> tuple[float, float]:
    """Return batches per second, and bytes per batch that came from shards."""
    out, random, count = buffer.allocate(batch), np.random.default_rng(2), 0
    began, before = time.monotonic(), received(buffer)
    while time.monotonic() - began < seconds:
        found = buffer.sample(batch, beta=0.4, out=out)
        buffer.update_priorities(found["ids"], random.random(batch).astype(np.float32))
        count += 1
    return count / (time.monotonic() - began), (received(buffer) - before) / count


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2, 8])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    asked = parser.parse_args()
    print(describe())
    for work, observation in WORKS.items():
        fields = transition_fields(observation, ActionSpec((), "int64", num_actions=2), with_values=False)
        sampler = Prioritized(0.6, 0.4, normalize="batch")
        make = partial(ReplayBuffer, capacity=ROWS, fields=fields, sampler=sampler, seed=1)
        one, processes = make(), []
        fill(one, observation, ROWS)
        of_work: dict[int, Any] = {0: one}
        for count in asked.shards:
            of_work[count] = ShardedBuffer(make, count)
            for number in range(count):
                ours, theirs = multiprocessing.Pipe()
                arguments = (of_work[count].maker_of(number), observation, ROWS // count, theirs)
                processes.append(multiprocessing.Process(target=serve, args=arguments, daemon=True))
                processes[-1].start()
                of_work[count].connect(ShardAddress(number, ours.recv(), TOKEN, RUN))
            while len(of_work[count]) < ROWS // count * count:
                time.sleep(0.05)
        found: dict[int, list[tuple[float, float]]] = {count: [] for count in of_work}
        for _ in range(asked.rounds):
            for count, buffer in of_work.items():
                found[count].append(rate(buffer, asked.batch, asked.seconds))
        for count, measured in found.items():
            rates, sizes = zip(*measured, strict=True)
            name = f"{count} shards" if count else "one buffer"
            spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
            size = f", {statistics.median(sizes) / 1e6:,.2f} MB each" if count else ""
            print(f"{work}, {name}: {statistics.median(rates):,.0f} batches/s ({spread}){size}")
        for count in asked.shards:
            of_work[count].close()
        for process in processes:
            process.kill()


if __name__ == "__main__":
    main()
