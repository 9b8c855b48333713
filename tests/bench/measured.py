"""Plausible measurements of a training and of its work alone."""

from dataclasses import replace

from penstock.bench.costs import Capacity, Costs
from penstock.bench.engine_run import EngineRun
from penstock.engine.watching.time_spent import RoleTime

US = 1e-6
COSTS = Costs(env=7.2 * US, infer=2.1 * US, learn=2.0 * US)  # of CartPole-v1 in a bare loop
CAPACITY = Capacity(cores=2, workers=2, policy_threads=0, learner_threads=1, takes_turns=False, precision="float32")


def a_run(**changes):
    """Ten seconds of two cores, in which 1,000,000 steps were learned from."""
    rollout = RoleTime(
        "rollout x2", 2,
        {"env": 9.0, "infer": 3.0, "write": 2.0, "learn": 0.0, "wait for slots": 6.0},
        {"env": 8.0, "infer": 2.5, "write": 1.5, "learn": 0.0, "wait for slots": 0.1},
    )  # fmt: skip
    learner = RoleTime(
        "learner", 1, {"learn": 4.0, "gather": 1.0, "wait for data": 5.0},
        {"learn": 3.0, "gather": 0.5, "wait for data": 0.1},
    )  # fmt: skip
    run = EngineRun(1_000_000, 10.0, (rollout, learner), 16.0, 1.0, "learner", "rollout workers wait 30% of their time")
    return replace(run, **changes)
