"""Your own loop around training: of two trainers, the worse one copies the better one's weights.

`train(n)` returns after n more steps and leaves the processes warm, so that an outer loop can inspect, decide and
continue: population-based training (arXiv:1711.09846), curricula, searches for settings.

    python examples/outside_loop.py [STEPS PER ROUND] [ROUNDS]
"""

import sys

import penstock

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 8_000
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5

population = [
    penstock.APPO(
        env="CartPole-v1", learning_rate=learning_rate, num_workers=1,
        total_steps=steps * rounds, eval_interval=0, run_dir=None,
    )
    for learning_rate in (1e-4, 1e-3)
]  # fmt: skip

for number in range(1, rounds + 1):
    returns = []
    for algo in population:
        algo.train(steps, quiet=True)
        returns.append(algo.evaluate(episodes=20).mean_return)
    winner, loser = sorted(range(2), key=lambda i: returns[i], reverse=True)
    scores = "  ".join(
        f"{mean_return:6.1f} (learning rate {algo.config.learning_rate:g})"
        for mean_return, algo in zip(returns, population, strict=True)
    )
    print(f"round {number}: {scores}")
    # Experience of the loser's old policy that is still under way is discarded: nothing is learned from it.
    population[loser].set_parameters(population[winner].get_parameters())

for algo in population:
    algo.close()
