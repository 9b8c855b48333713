"""Benefit of a population for the same number of steps.

    python bench/population.py toy [--seeds 5]
    python bench/population.py lunarlander [--population 4] [--target 200] [--steps 1500000] [--seed 0]

`toy` is figure 2 of the paper (arXiv:1711.09846): members maximise ``1.2 - sum h theta^2`` and are ranked by
``Q = 1.2 - sum theta^2``; with its initial settings ``h``, each member can improve only one of two parameters. The
mark: a population of two reaches Q >= 1.19, and a grid of the same size does not.

`lunarlander` trains LunarLander-v3 with PPO, learning rates spread over 1e-5 to 1e-2. Output: the steps of all members
together until one reaches the target twice, and the steps of each member alone with its initial settings, within the
same budget. The mark: fewer steps than the median of the single members; a member that misses the target counts as
more.
"""

from __future__ import annotations

import argparse
import math
import statistics

import numpy as np

from penstock.algorithms.ppo import PPOConfig
from penstock.population.decisions import Population, Rules
from penstock.population.space import population_space

TOY_STEPS, TOY_INTERVAL, TOY_RATE = 2_000, 10, 0.01
H = ("entropy_coef", "value_coef")
"""Two tunable settings that stand for the toy's ``h``; only the numbers matter."""
START = [{H[0]: 1.0, H[1]: 0.0}, {H[0]: 0.0, H[1]: 0.9}]  # not the paper's: with equal scores, no member copies
SPACE = {"learning_rate": {"low": 1e-5, "high": 1e-2, "log": True}}


def toy_score(theta: np.ndarray) -> float:
    """Q of the toy: 1.2 at best."""
    return float(1.2 - np.square(theta).sum())


def toy(seed: int, *, pbt: bool) -> float:
    """Return the best Q of two members, as a population or separately."""
    theta = [np.array([0.9, 0.9]), np.array([0.9, 0.9])]
    space = population_space({name: {"low": 0.0, "high": 1.0} for name in H}, PPOConfig(env="none"))
    rules = Rules("truncation", interval=TOY_INTERVAL, start=TOY_INTERVAL, fraction=0.5, episodes=1)
    population = Population(rules, space, START, seed)
    for step in range(1, TOY_STEPS + 1):
        for number, member in enumerate(population.members):
            h = np.array([member.settings[name] for name in H])
            theta[number] = theta[number] - TOY_RATE * 2.0 * h * theta[number]
            population.add_scores(number, [toy_score(theta[number])])
        for decision in population.decide([step, step]) if pbt else []:
            if decision.parent is not None:
                theta[decision.member] = theta[decision.parent].copy()
            population.carried_out(decision)
    return max(map(toy_score, theta))


def lunarlander(population: int, target: float, steps: int, seed: int) -> None:
    """Train a population, and each of its members alone; print the steps to the target."""
    import penstock

    settings = {
        "env": "LunarLander-v3", "num_workers": 1, "gamma": 0.999, "gae_lambda": 0.98, "segment_length": 256,
        "batch_size": 512, "num_epochs": 4, "learning_rate_schedule": "constant", "target_return": target,
        "eval_interval": 25_000, "run_dir": None, "seed": seed,
    }  # fmt: skip
    with penstock.PPO(
        **settings, num_policies=population, num_envs_per_worker=8 * population, total_steps=steps, pbt="truncation",
        pbt_space=SPACE, pbt_interval=25_000, pbt_fraction=0.25,
    ) as algo:  # fmt: skip
        rates = [policy.tuned["learning_rate"] for policy in algo.status.policies]
        result = algo.train(quiet=True)
        exploits = sum(policy.exploits or 0 for policy in algo.status.policies)
    together = result.steps if result.reached_target else math.inf
    print(f"population of {population}: {together:,.0f} steps of all members, {exploits} exploits", flush=True)
    alone, budget = [], min(steps, result.steps)
    for number, rate in enumerate(rates):
        own = {**settings, "seed": seed + number, "learning_rate": rate}
        with penstock.PPO(**own, num_envs_per_worker=8, total_steps=budget) as algo:
            result = algo.train(quiet=True)
        alone.append(result.steps if result.reached_target else math.inf)
        print(f"alone, learning rate {rate:.2g}: {alone[-1]:,.0f} steps", flush=True)
    median = statistics.median(alone)
    print(f"population {together:,.0f}, median of its members alone {median:,.0f} (mark: fewer)")


def main() -> None:
    """Measure, and print."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("what", choices=("toy", "lunarlander"))
    flags.add_argument("--seeds", type=int, default=5)
    flags.add_argument("--population", type=int, default=4)
    flags.add_argument("--target", type=float, default=200.0)
    flags.add_argument("--steps", type=int, default=1_500_000)
    flags.add_argument("--seed", type=int, default=0)
    given = flags.parse_args()
    if given.what == "toy":
        for seed in range(given.seeds):
            print(f"seed {seed}: population {toy(seed, pbt=True):.4f}, grid {toy(seed, pbt=False):.4f} (mark: 1.19)")
    else:
        lunarlander(given.population, given.target, given.steps, given.seed)


if __name__ == "__main__":
    main()
