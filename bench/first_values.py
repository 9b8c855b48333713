"""Values of Rainbow on MinAtar in its first updates, by the support of C51.

    python bench/first_values.py [--games Seaquest ...] [--supports -10,50 -20,20] [--updates 2000]

Rainbow learns from transitions of a random policy, 4,000 steps of each game, with the preset minatar and one hidden
layer of 64. Output: return and length of the random policy's episodes, and for each support the mean value of the batch
at some updates. Untrained probabilities are nearly equal, so that the first value is the centre of the support.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np
import torch

from penstock.algorithms import load_algorithm
from penstock.config import make_config
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.batch import TransitionBatch
from penstock.nn import flatten_

GAMMA, N_STEP, STEPS = 0.99, 3, 4_000
SHOWN = (1, 250, 500, 1_000, 1_500, 2_000)


def collect(game: str) -> tuple[list[torch.Tensor], int, float, float]:
    """Return n-step transitions of a random policy, the number of actions, and mean return and length of episodes."""
    env: Any = gymnasium.make(f"MinAtar/{game}-v1")
    random, num_actions = np.random.default_rng(0), int(env.action_space.n)
    rows: list[Any] = []
    returns, lengths = [], []
    seen, actions, rewards = [env.reset(seed=1000)[0]], [], []
    for _ in range(STEPS):
        actions.append(int(random.integers(num_actions)))
        observation, reward, terminated, truncated, _ = env.step(actions[-1])
        seen.append(observation)
        rewards.append(reward)
        if not (terminated or truncated):
            continue
        length = len(rewards)
        for t in range(length):
            end = min(t + N_STEP, length)
            total = sum(GAMMA**i * r for i, r in enumerate(rewards[t:end]))
            rows.append((seen[t], actions[t], total, 0.0 if end == length else GAMMA ** (end - t), seen[end]))
        returns.append(sum(rewards))
        lengths.append(length)
        seen, actions, rewards = [env.reset()[0]], [], []
    columns = [torch.from_numpy(np.array(column)) for column in zip(*rows, strict=True)]
    return columns, num_actions, float(np.mean(returns)), float(np.mean(lengths))


def values(
    columns: list[torch.Tensor], num_actions: int, support: tuple[float, float], updates: int
) -> dict[int, float]:
    """Return the mean value of the batch at some updates."""
    obs, action, reward, discount, next_obs = columns
    algorithm_class = load_algorithm("rainbow")
    config: Any = make_config(
        algorithm_class.Config,
        {"env": "none", "num_workers": 1, "hidden_sizes": (64,), "v_min": support[0], "v_max": support[1]},
        preset="minatar",
    )
    spec = ObservationSpec(tuple(obs.shape[1:]), "bool")
    algorithm: Any = algorithm_class(config, spec, ActionSpec((), "int64", num_actions=num_actions))
    torch.manual_seed(0)
    model = algorithm.build_model()
    flatten_(model)
    algorithm.begin(model)
    generator, found = torch.Generator().manual_seed(0), {}
    for number in range(1, updates + 1):
        rows = torch.randint(len(reward), (config.batch_size,), generator=generator)
        batch = TransitionBatch(
            obs=obs[rows], next_obs=next_obs[rows], action=action[rows], reward=reward[rows].float(),
            discount=discount[rows].float(), weights=torch.ones(config.batch_size), number=number, progress=0.0,
        )  # fmt: skip
        _, metrics = algorithm.update(model, batch)
        if number in SHOWN:
            found[number] = metrics["q"].mean().item()
    return found


def main() -> None:
    """Parse the command, learn, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="*", default=["Seaquest"])
    parser.add_argument("--supports", nargs="*", default=["-10,50", "-20,20"])
    parser.add_argument("--updates", type=int, default=2_000)
    arguments = parser.parse_args()
    import minatar.gym

    minatar.gym.register_envs()
    for game in arguments.games:
        columns, num_actions, mean_return, length = collect(game)
        print(f"{game}: a random policy has a return of {mean_return:.2f} in {length:.0f} steps")
        for support in arguments.supports:
            low, high = map(float, support.split(","))
            found = values(columns, num_actions, (low, high), arguments.updates)
            shown = ", ".join(f"{number}: {value:.2f}" for number, value in found.items())
            print(f"  {support:>8}  {shown}", flush=True)


if __name__ == "__main__":
    main()
