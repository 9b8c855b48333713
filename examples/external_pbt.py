"""Population-based training decided from outside: two policies of one run, and your own rule that copies them.

`train(n)` leaves the processes warm. Between two calls a rule reads scores, copies the better policy to the worse one
with `copy_policy`, and changes the copy's settings with `set_hyperparameters`: they hold from the next batch on.

    python examples/external_pbt.py [STEPS PER ROUND] [ROUNDS]
"""

import random
import sys

import penstock

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
draw = random.Random(0)

with penstock.PPO(
    env="CartPole-v1", num_policies=2, num_workers=1, num_envs_per_worker=8, total_steps=steps * rounds,
    eval_interval=0, run_dir=None, learning_rate_schedule="constant",
) as algo:  # fmt: skip
    algo.set_hyperparameters({0: {"learning_rate": 1e-5}, 1: {"learning_rate": 1e-3}})
    for number in range(1, rounds + 1):
        algo.train(steps, quiet=True)
        scores = {name: evaluation.mean_return for name, evaluation in algo.evaluate(episodes=10).items()}
        settings = algo.get_hyperparameters()
        print(f"round {number}:", "  ".join(
            f"policy {name} {score:.1f} (learning rate {settings[name]['learning_rate']:.2g})"
            for name, score in scores.items()
        ))  # fmt: skip
        worse, better = sorted(scores, key=scores.get)
        if scores[better] > scores[worse]:
            algo.copy_policy(better, worse)  # weights, normalisation and optimiser, but not the settings
            factor = draw.choice((0.8, 1.2))
            names = ("learning_rate", "entropy_coef", "clip_range")
            algo.set_hyperparameters({worse: {name: settings[better][name] * factor for name in names}})
