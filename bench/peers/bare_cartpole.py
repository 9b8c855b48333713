"""CartPole-v1 in a bare loop without any framework: the speed that Python itself allows on this machine.

    python bench/peers/bare_cartpole.py SECONDS [PROCESSES]

A process has one `gymnasium.make` per lane, an MLP of 64x64 with two heads, and one epoch of PPO's loss over batches of
256 lanes x 32 steps. There is one process for each core; they have separate policies and do not communicate, and their
steps per second are added. Nothing else is done: a truncated episode counts as a terminated one, and nothing is
normalized, reported or saved. Prints `SETTINGS` and `STEPS_PER_SECOND n`, without start-up.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import sys
import time
from typing import Any

LANES, STEPS = 256, 32
WARM_UP, PATIENCE = 2.0, 60.0  # seconds
GAMMA, LAMBDA, CLIP, VALUE_COEF, ENTROPY_COEF, MAX_GRAD_NORM = 0.99, 0.95, 0.2, 0.5, 0.01, 0.5


def loop(seconds: float, together: Any, rates: Any) -> None:
    """Train, and put the steps per second of the time after the warm-up into `rates`."""
    import gymnasium
    import numpy as np
    import torch
    from torch import nn

    torch.set_num_threads(1)
    spec = dataclasses.replace(gymnasium.spec("CartPole-v1"), order_enforce=False, disable_env_checker=True)
    envs = [gymnasium.make(spec) for _ in range(LANES)]
    steps = [env.step for env in envs]
    trunk = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
    heads = nn.Linear(64, 3)  # two logits and a value
    parameters = [*trunk.parameters(), *heads.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=True)
    obs = np.zeros((STEPS + 1, LANES, 4), np.float32)
    reward, going_on = np.zeros((2, STEPS, LANES), np.float32)
    action = torch.zeros(STEPS, LANES, dtype=torch.int64)
    log_prob, value = torch.zeros(STEPS, LANES), torch.zeros(STEPS + 1, LANES)
    seen, rewards, continues = torch.from_numpy(obs), torch.from_numpy(reward), torch.from_numpy(going_on)
    obs[0] = [env.reset(seed=lane)[0] for lane, env in enumerate(envs)]

    @torch.inference_mode()
    def act(t: int) -> torch.Tensor:
        """Return the logits of step `t`, and store its value."""
        out = heads(trunk(seen[t]))
        value[t] = out[:, 2]
        return out[:, :2]

    @torch.inference_mode()
    def collect() -> None:
        for t in range(STEPS):
            logits = act(t).log_softmax(-1)
            chosen = (logits - torch.empty_like(logits).exponential_().log_()).argmax(-1, keepdim=True)
            action[t], log_prob[t] = chosen[:, 0], logits.gather(1, chosen)[:, 0]
            answers = [step(a) for step, a in zip(steps, action[t].tolist(), strict=True)]
            after, reward[t], terminated, truncated, _ = zip(*answers, strict=True)
            obs[t + 1] = after
            ended = np.logical_or(terminated, truncated)
            np.logical_not(ended, out=going_on[t], casting="unsafe")
            for lane in ended.nonzero()[0]:
                obs[t + 1, lane] = envs[lane].reset()[0]
        act(STEPS)

    @torch.no_grad()
    def estimate_advantage() -> torch.Tensor:
        delta = rewards + GAMMA * continues * value[1:] - value[:-1]
        advantage = torch.empty_like(delta)
        ahead = torch.zeros(LANES)
        for t in reversed(range(STEPS)):
            ahead = delta[t] + GAMMA * LAMBDA * continues[t] * ahead
            advantage[t] = ahead
        return advantage

    def learn() -> None:
        advantage = estimate_advantage()
        target = advantage + value[:-1]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        out = heads(trunk(seen[:-1]))
        logits = out[..., :2].log_softmax(-1)
        ratio = (logits.gather(-1, action[..., None])[..., 0] - log_prob).exp()
        objective = torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
        entropy = -(logits.exp() * logits).sum(-1).mean()
        error = 0.5 * (out[..., 2] - target).square().mean()
        loss = -objective + VALUE_COEF * error - ENTROPY_COEF * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, MAX_GRAD_NORM)
        optimizer.step()
        obs[0] = obs[STEPS]

    def train_for(at_least: float) -> float:
        """Return the steps per second between two updates."""
        began, learned, elapsed = time.perf_counter(), 0, 0.0
        while elapsed < at_least:
            collect()
            learn()
            learned, elapsed = learned + LANES * STEPS, time.perf_counter() - began
        return learned / elapsed

    together.wait(PATIENCE)
    train_for(WARM_UP)
    rates.put(train_for(seconds))


def main() -> None:
    """Run the processes and print the sum of their rates."""
    seconds = float(sys.argv[1])
    processes = int(os.environ.get("PENSTOCK_BENCH_WORKERS", len(os.sched_getaffinity(0))))
    print(f"SETTINGS {processes} processes, each with {LANES} lanes and batches of {LANES * STEPS} steps, one epoch")
    context = multiprocessing.get_context("spawn")
    together, rates = context.Barrier(processes), context.SimpleQueue()
    loops = [context.Process(target=loop, args=(seconds, together, rates), daemon=True) for _ in range(processes)]
    for process in loops:
        process.start()
    for process in loops:
        process.join()
    if any(process.exitcode for process in loops):
        sys.exit("a process failed: see above")
    print("STEPS_PER_SECOND", round(sum(rates.get() for _ in loops)))


if __name__ == "__main__":
    main()
