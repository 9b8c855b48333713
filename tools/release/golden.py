"""Write the golden files of this version: small runs and replay buffers that later versions must open.

    python tools/release/golden.py tests/data/golden

The folder gets a folder named after the minor version, such as ``0.1``, with ``runs``, ``replay`` and, in
``expected.json``, the actions of every policy, and the contents and next draws of every buffer. A folder that exists is
refused.
`tests/runs/test_golden.py` opens, plays and resumes them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import penstock
from penstock.replay import Field, NStep, Prioritized, ReplayBuffer, Sequences
from penstock.replay.cpprb import ReplayBuffer as CpprbBuffer

SMALL = {
    "backend": "serial", "num_workers": 1, "hidden_sizes": [8], "eval_interval": 100, "eval_episodes": 2, "seed": 3,
    "keep_checkpoints": 1, "checkpoint_interval": 0,
}  # fmt: skip
REPLAY = {"num_envs_per_worker": 2, "batch_size": 16, "buffer_size": 128, "learning_starts": 32, "save_replay": True}
SOURCES = ("queue:1/2", "uniform:1/2,capacity=20,min_size=2")
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo-gru": ("PPO", {"env": "CartPole-v1", "memory": "gru", "memory_size": 8, "normalize_observations": True}),
    "impala-composite": ("IMPALA", {"env": "Blackjack-v1"}),
    "clear-replay": ("CLEAR", {"env": "CartPole-v1", "save_replay": True, "replay": SOURCES}),
    "ppo-rudder": ("PPO", {"env": "CartPole-v1", "rewards": "rudder"}),
    "ppo-population": ("PPO", {"env": "CartPole-v1", "num_policies": 2}),
    "dqn-replay": ("DQN", {"env": "CartPole-v1", "prioritized": True, "n_step": 2, **REPLAY}),
    "rainbow-replay": ("Rainbow", {"env": "CartPole-v1", **REPLAY}),
    "r2d2-replay": ("R2D2", {"env": "CartPole-v1", **REPLAY, "memory_size": 8}),
    "sac-replay": ("SAC", {"env": "Pendulum-v1", **REPLAY}),
}
"""Trainer and settings of each run."""

VECTORS = {"obs": Field((3,)), "action": Field((), "int64"), "reward": Field(), "next_obs": Field((3,), next_of="obs")}
FRAMES = {"obs": Field((4, 4, 2), "uint8", stack=-1), "reward": Field()}
BUFFERS: dict[str, dict[str, Any]] = {
    "n-step": {"fields": VECTORS, "sampler": Prioritized(alpha=0.6), "n_step": NStep(3, gamma=0.9)},
    "frames": {"fields": FRAMES},
    "sequences": {
        "fields": {"obs": Field((3,)), "memory": Field((2,), first=True)},
        "sequences": Sequences(length=4, period=2),
    },
}
"""Settings of each buffer of 64 rows."""


def make_buffer(name: str) -> ReplayBuffer:
    """Return an empty buffer with the settings of a golden one."""
    return ReplayBuffer(64, **BUFFERS[name], seed=5)


def make_cpprb_buffer() -> CpprbBuffer:
    """Return an empty drop-in buffer for the golden file of transitions."""
    return CpprbBuffer(64, {"obs": {"shape": 3}, "act": {"dtype": np.int64}, "next_obs": {"shape": 3}})


def digests(rows: dict[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of every field's dtype, shape and bytes."""
    return {
        name: hashlib.sha256(f"{values.dtype} {values.shape}".encode() + values.tobytes()).hexdigest()
        for name, values in sorted(rows.items())
    }


def actions(run: Path, settings: dict[str, Any]) -> list[list[Any]]:
    """Return the deterministic actions of each policy of a run for 32 fixed observations of its environment."""
    with gym.make(settings["env"]) as env:
        env.observation_space.seed(7)
        seen = [env.observation_space.sample() for _ in range(32)]
    found = []
    for number in range(settings.get("num_policies", 1)):
        policy = penstock.load_policy(run, number if "num_policies" in settings else None)
        chosen = [policy.act(each) for each in seen]
        found.append([np.asarray(each[0] if policy.has_memory else each).tolist() for each in chosen])
    return found


def write_runs(folder: Path) -> dict[str, Any]:
    """Train every run for 200 steps; return steps, updates and actions of each."""
    expected = {}
    for name, (trainer_name, settings) in RUNS.items():
        trainer = getattr(penstock, trainer_name)(**{**SMALL, **settings}, total_steps=200, run_dir=folder / name)
        with trainer as algo:
            result = algo.train(quiet=True)
        for file in (folder / name).glob("events.out.tfevents.*"):
            file.unlink()
        expected[name] = {"steps": result.steps, "actions": actions(folder / name, settings)}
    return expected


def write_buffers(folder: Path) -> dict[str, Any]:
    """Fill and save every buffer; return the contents and the next draws of each."""
    expected = {}
    for name, settings in BUFFERS.items():
        buffer, random = make_buffer(name), np.random.default_rng(11)
        for step in range(80):
            values = {
                field: random.integers(0, 200, spec.shape).astype(spec.dtype)
                for field, spec in settings["fields"].items()
            }
            buffer.add(**values, terminated=step % 7 == 6)
        if name == "n-step":
            ids = buffer.get_all()["ids"]
            buffer.update_priorities(ids, 1.0 + ids % 5)
        buffer.save(folder / name)
        expected[name] = {"rows": digests(buffer.get_all()), "draws": buffer.sample(16)["ids"].tolist()}
    cpprb = make_cpprb_buffer()
    for step in range(80):
        cpprb.add(obs=np.full(3, step), act=step % 2, next_obs=np.full(3, step + 1))
    cpprb.save_transitions(str(folder / "transitions.npz"))
    expected["transitions"] = {"rows": digests(cpprb.get_all_transitions())}
    return expected


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of all versions: tests/data/golden")
    place = parser.parse_args().folder / ".".join(penstock.__version__.split(".")[:2])
    place.mkdir(parents=True)
    found = {"runs": write_runs(place / "runs"), "replay": write_buffers(place / "replay")}
    (place / "expected.json").write_text(json.dumps(found, indent=1) + "\n")
    print(f"{place}: {sum(file.stat().st_size for file in place.rglob('*') if file.is_file()):,} bytes")
