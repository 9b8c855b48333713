"""A population's result, repeated by one policy: the schedule of the best member and its ancestors.

`lineage.jsonl` records the settings of each policy over its steps, and the policies that it copied. `load_schedule`
turns it into a schedule over the steps that the weights have learned from; `schedule=` makes a run follow it from its
first batch on.

    python examples/replayed_schedule.py [STEPS OF EACH POLICY]
"""

import sys
import tempfile
from pathlib import Path

import penstock

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
settings = {
    "env": "CartPole-v1", "num_workers": 1, "backend": "serial", "eval_interval": 0,
    "learning_rate_schedule": "constant",
}  # fmt: skip
space = {"learning_rate": {"low": 1e-5, "high": 1e-2, "log": True}, "clip_range": {"low": 0.1, "high": 0.4}}

with tempfile.TemporaryDirectory() as directory:
    run = Path(directory) / "population"
    with penstock.PPO(
        **settings, num_policies=4, num_envs_per_worker=16, total_steps=4 * steps, run_dir=run,
        pbt="truncation", pbt_space=space, pbt_interval=steps // 10, pbt_episodes=5,
    ) as population:  # fmt: skip
        population.train(quiet=True)
    schedule = penstock.load_schedule(run)  # of the policy with the best score

for moment, values in schedule.items():
    print(f"from step {moment:6,} on:", ", ".join(f"{name}={value:.3g}" for name, value in values.items()))

with penstock.PPO(
    **settings, num_envs_per_worker=4, total_steps=steps, seed=7, run_dir=None, schedule=schedule
) as algo:  # fmt: skip
    algo.train(quiet=True)
    print(f"repeated with another seed: mean return {algo.evaluate(episodes=20).mean_return:.1f}")
