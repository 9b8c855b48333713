"""Ape-X by hand (Horgan et al. 2018, arXiv:1803.00933): plain multiprocessing around one shared replay buffer.

Only `penstock.replay` of Penstock is used. Explorers act with different epsilons and write 3-step transitions with
first priorities; the learner samples by priority, learns with double Q-learning and a target network, writes new
priorities back and publishes its weights. Half-way, one explorer is killed, to show that training continues.

    python examples/apex_replay.py [UPDATES]
"""

import multiprocessing
import os
import sys

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from penstock.replay import Field, NStep, Prioritized, RateLimiter, ReplayBuffer

ENV, GAMMA, STEPS, EXPLORERS = "CartPole-v1", 0.99, 3, 2
BATCH, CHUNK = 64, 32  # rows learned from at once, steps written at once


def make_network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))


def make_buffer() -> ReplayBuffer:
    return ReplayBuffer(
        capacity=50_000,
        fields={
            "obs": Field((4,)),
            "action": Field((), "int64"),
            "reward": Field(),
            "next_obs": Field((4,), next_of="obs"),
        },
        sampler=Prioritized(alpha=0.6, beta=0.4),
        n_step=NStep(STEPS, GAMMA),
        # Every step is learned from 16 times, however fast either side is; learning starts after 1,000 steps.
        rate_limiter=RateLimiter(samples_per_insert=16, min_size=1_000, tolerance=2_048),
    )


class SharedWeights:
    """The learner's parameters, shared by all. There is no lock, because a killed explorer could keep holding it;
    reading a mixture of two versions does no harm to exploration."""

    def __init__(self, network: nn.Module) -> None:
        self._memory = multiprocessing.RawArray("f", sum(p.numel() for p in network.parameters()))
        self.publish(network)

    def publish(self, network: nn.Module) -> None:
        torch.frombuffer(self._memory, dtype=torch.float32).copy_(nn.utils.parameters_to_vector(network.parameters()))

    @torch.no_grad()
    def load_into(self, network: nn.Module) -> None:
        nn.utils.vector_to_parameters(torch.frombuffer(self._memory, dtype=torch.float32).clone(), network.parameters())


@torch.no_grad()
def act(network: nn.Module, obs: np.ndarray) -> int:
    return int(network(torch.from_numpy(obs)).argmax())


@torch.no_grad()
def initial_priorities(network: nn.Module, chunk: dict[str, np.ndarray]) -> np.ndarray:
    """Absolute one-step TD errors [CHUNK]: the later steps of the 3-step errors are not taken yet."""
    q = network(torch.from_numpy(chunk["obs"])).numpy()[np.arange(CHUNK), chunk["action"]]
    q_next = network(torch.from_numpy(chunk["next_obs"])).numpy().max(axis=1)
    return np.abs(chunk["reward"] + GAMMA * ~chunk["terminated"] * q_next - q)


def explore(number: int, buffer: ReplayBuffer, weights: SharedWeights) -> None:
    torch.set_num_threads(1)
    learner = os.getppid()
    epsilon = 0.4 ** (1 + 7 * number / max(1, EXPLORERS - 1))  # section 4.1 of the paper
    chance = np.random.default_rng()
    env, network = gym.make(ENV), make_network()
    writer = buffer.writer(timeout=30.0)  # longer than any update takes
    obs, _ = env.reset(seed=int(chance.integers(2**31)))
    while os.getppid() == learner:  # ends with the learner
        weights.load_into(network)
        steps = []
        for _ in range(CHUNK):
            action = int(chance.integers(2)) if chance.random() < epsilon else act(network, obs)
            next_obs, reward, terminated, truncated, _ = env.step(action)
            steps.append((obs, action, np.float32(reward), next_obs, terminated, truncated))
            obs = env.reset()[0] if terminated or truncated else next_obs
        names = ("obs", "action", "reward", "next_obs", "terminated", "truncated")
        chunk = {name: np.array(values) for name, values in zip(names, zip(*steps, strict=True), strict=True)}
        writer.add(**chunk, priorities=initial_priorities(network, chunk))


class Learner:
    def __init__(self) -> None:
        self.network, self.target = make_network(), make_network()
        self.target.load_state_dict(self.network.state_dict())
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=1e-3)

    def update(self, batch: dict[str, np.ndarray]) -> np.ndarray:
        """One step of double Q-learning; returns absolute TD errors [BATCH]."""
        obs, action, reward, next_obs, discount, weight = (
            torch.from_numpy(batch[name]) for name in ("obs", "action", "reward", "next_obs", "discount", "weights")
        )
        with torch.no_grad():
            best = self.network(next_obs).argmax(dim=1, keepdim=True)
            # discount is gamma**m, and 0 after a termination: a truncated episode bootstraps, as it should.
            aim = reward + discount * self.target(next_obs).gather(1, best).squeeze(1)
        td_error = aim - self.network(obs).gather(1, action[:, None]).squeeze(1)
        loss = (weight * nn.functional.smooth_l1_loss(td_error, torch.zeros_like(td_error), reduction="none")).mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 10.0)
        self.optimizer.step()
        return td_error.detach().abs().numpy()


def mean_return(network: nn.Module, episodes: int = 10) -> float:
    env, total = gym.make(ENV), 0.0
    for seed in range(episodes):
        (obs, _), over = env.reset(seed=seed), False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(act(network, obs))
            total += float(reward)
            over = terminated or truncated
    return total / episodes


def main(updates: int) -> None:
    context = multiprocessing.get_context("fork")  # "spawn" works as well, and imports torch anew in every process
    torch.set_num_threads(1)
    learner, buffer = Learner(), make_buffer()
    weights = SharedWeights(learner.network)

    def start(number: int) -> multiprocessing.process.BaseProcess:
        explorer = context.Process(target=explore, args=(number, buffer, weights), daemon=True)
        explorer.start()
        return explorer

    explorers = [start(number) for number in range(EXPLORERS)]
    batch = buffer.allocate(BATCH)
    for update in range(1, updates + 1):
        buffer.sample(BATCH, out=batch, timeout=60.0)
        buffer.update_priorities(batch["ids"], learner.update(batch))
        if update % 10 == 0:
            weights.publish(learner.network)
        if update % 100 == 0:
            learner.target.load_state_dict(learner.network.state_dict())
        if update == updates // 2:
            explorers[0].kill()
            explorers[0].join()
        for number, explorer in enumerate(explorers):
            if not explorer.is_alive():
                print(f"explorer {number} died after {buffer.num_added:,} rows: a new one takes its place", flush=True)
                explorers[number] = start(number)
    for explorer in explorers:
        explorer.kill()
        explorer.join()
    print(f"{updates:,} updates on {buffer.num_added:,} rows: mean return {mean_return(learner.network):.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4_000)
