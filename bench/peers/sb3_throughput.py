"""Stable-Baselines3's throughput with PPO on CartPole-v1, as most users would run it: steps per second learned from.

    X/bin/python bench/peers/sb3_throughput.py SECONDS

256 environments in its DummyVecEnv, batches of 8192 with 32 steps of each, one epoch, MLPs of 64x64, on the CPU. Prints
`SETTINGS` and `STEPS_PER_SECOND n`, counted between two batches, without start-up.
"""

from __future__ import annotations

import sys
import time

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

WARM_UP = 2.0  # seconds
LANES, STEPS = 256, 32


class Meter(BaseCallback):
    """Counts steps over `seconds` after the warm-up, and then ends the training."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.rate: float | None = None
        self._seconds = seconds
        self._warm_at = self._began = 0.0
        self._steps_before = 0

    def _on_training_start(self) -> None:
        self._warm_at = time.monotonic() + WARM_UP

    def _on_rollout_start(self) -> None:  # all steps so far are learned from
        now = time.monotonic()
        if not self._began and now >= self._warm_at:
            self._began, self._steps_before = now, self.num_timesteps
        elif self._began and now >= self._began + self._seconds:
            self.rate = (self.num_timesteps - self._steps_before) / (now - self._began)

    def _on_step(self) -> bool:
        return self.rate is None


def main() -> None:
    """Train and print the rate."""
    meter = Meter(float(sys.argv[1]))
    print(
        f"SETTINGS PPO, {LANES} environments in a DummyVecEnv, n_steps={STEPS}, batch_size={LANES * STEPS}, n_epochs=1"
    )
    envs = make_vec_env("CartPole-v1", n_envs=LANES)
    PPO("MlpPolicy", envs, n_steps=STEPS, batch_size=LANES * STEPS, n_epochs=1, device="cpu").learn(10**10, meter)
    assert meter.rate is not None
    print("STEPS_PER_SECOND", round(meter.rate))


if __name__ == "__main__":
    main()
