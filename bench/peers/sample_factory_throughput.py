"""Sample Factory 2.1.1's throughput: agent steps per second learned from.

    X/bin/python sample_factory_throughput.py cartpole|pong SECONDS [--envs N] [flags of Sample Factory]

CartPole-v1 with an MLP of 64x64, or Pong (84x84x4, frame skip 4, no sticky actions) with the Nature CNN; one epoch, on
the CPU, a rollout worker for each core with N environments (256, or 16 of Pong). The settings are the fastest of those
tried on a machine with two cores. Prints `SETTINGS` with all flags, and `STEPS_PER_SECOND n`: steps are counted in its
main process after each training step, without start-up.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from typing import Any

import gymnasium
import numpy as np
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner

WARM_UP = 5.0  # seconds from the first steps learned from
FRAME_SKIP = 4
EVERY = (
    "--experiment=peer --device=cpu --worker_num_splits=2 --rollout=32 --num_epochs=1 --use_rnn=False "
    "--normalize_input=False --with_wandb=False"
)
ENVS = {"cartpole": 256, "pong": 16}
WORKS = {
    "cartpole": "--batch_size=8192 --encoder_mlp_layers 64 64",
    "pong": "--batch_size=512 --encoder_conv_architecture=convnet_atari "
    f"--encoder_conv_mlp_layers 512 --env_frameskip={FRAME_SKIP} --obs_scale=255.0",
}


class Stacked(gymnasium.ObservationWrapper):
    """Stacked frames as an array."""

    observation_space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)

    def observation(self, observation: Any) -> np.ndarray:
        """Return the frames as an array."""
        return np.asarray(observation)


def make_cartpole(*_: Any, **__: Any) -> gymnasium.Env:
    """Make CartPole-v1, without Gymnasium's checks of every step."""
    return gymnasium.make("CartPole-v1", disable_env_checker=True)


def make_pong(*_: Any, **__: Any) -> gymnasium.Env:
    """Make Pong with Gymnasium's own preprocessing."""
    from ale_py.env import AtariEnv

    env: Any = AtariEnv("pong", frameskip=1, repeat_action_probability=0.0, obs_type="rgb")
    env.spec = None
    env = gymnasium.wrappers.TimeLimit(env, 108_000)
    env = gymnasium.wrappers.AtariPreprocessing(env, frame_skip=FRAME_SKIP, noop_max=30)
    return Stacked(gymnasium.wrappers.FrameStack(env, 4))


class Meter(AlgoObserver):
    """Counts steps over `seconds` after the warm-up, and then ends the training."""

    def __init__(self, seconds: float, frames_per_step: int) -> None:
        self.rate: float | None = None
        self._seconds = seconds
        self._frames_per_step = frames_per_step
        self._warm_at = self._began = 0.0
        self._frames_before = 0

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        """Begin or end the measurement when it is time."""
        now, frames = time.monotonic(), runner.total_env_steps_since_resume
        if not frames:
            return
        self._warm_at = self._warm_at or now + WARM_UP
        if not self._began and now >= self._warm_at:
            self._began, self._frames_before = now, frames
        elif self._began and now >= self._began + self._seconds and self.rate is None:
            self.rate = (frames - self._frames_before) / self._frames_per_step / (now - self._began)
            runner.cfg.train_for_env_steps = 0


def main() -> None:
    """Train and print the rate."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--envs", type=int, help="environments of each worker")
    own, flags = parser.parse_known_args()
    work = own.work
    register_env("cartpole", make_cartpole)
    register_env("pong", make_pong)
    meter = Meter(own.seconds, FRAME_SKIP if work == "pong" else 1)
    with tempfile.TemporaryDirectory() as aside:
        workers = int(os.environ.get("PENSTOCK_BENCH_WORKERS", len(os.sched_getaffinity(0))))
        args = [
            f"--env={work}",
            f"--train_dir={aside}",
            "--train_for_env_steps=10000000000",
        ]
        settings = [f"--num_workers={workers}", f"--num_envs_per_worker={own.envs or ENVS[work]}"]
        settings += [*EVERY.split(), *WORKS[work].split(), *flags]
        print("SETTINGS", *settings)
        args += settings
        sf_parser, _ = parse_sf_args(args)
        _, runner = make_runner(parse_full_cfg(sf_parser, args))
        runner.register_observer(meter)
        runner.init()
        runner.run()
    if meter.rate is None:
        sys.exit("Sample Factory ended before it was measured: see above")
    print("STEPS_PER_SECOND", round(meter.rate))


if __name__ == "__main__":
    main()
