"""Pure simulation: environments stepped with random actions on some cores, and nothing else."""

from __future__ import annotations

import dataclasses
import functools

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.bench.costs import WorkPool, laid_out
from penstock.bench.work import Stepping
from penstock.config import Config
from penstock.experience.arena import ExperienceArena


def simulation_rate(algorithm: type[Algorithm], config: Config, processes: int, *, seconds: float) -> float:
    """Steps per second of the environments of a run, in so many processes at the same time.

    Parameters
    ----------
    algorithm, config
        The run. Each process makes and steps a group of lanes as a rollout worker does.
    processes
        How many.
    seconds
        For how long, beside starting.

    Raises
    ------
    BenchError
        An environment failed.
    """
    env, _, shape = laid_out(algorithm, config)
    arena = ExperienceArena.create(dataclasses.replace(shape, slots_per_lane=1, segment_length=1))  # nothing is kept
    with WorkPool(arena) as yard:
        for number in range(processes):
            yard.add("env", 1, functools.partial(Stepping, env=env, config=config, number=number))
        yard.start()
        rounds = yard.measure("env", seconds)
    return processes * sum(one.steps for one in rounds) / sum(one.wall for one in rounds)
