"""Work of `penstock bench throughput`: environments with settings of APPO, and the other libraries that do it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.bench.peers import SAMPLE_FACTORY, STABLE_BASELINES3, Peer

if TYPE_CHECKING:
    from penstock.algorithms.appo import APPOConfig


@dataclass(frozen=True)
class Rival:
    """Somebody who does the same work: a program of `penstock/bench/peer_programs`.

    It takes seconds, and prints `SETTINGS what it runs with` and `STEPS_PER_SECOND n`.
    """

    name: str
    program: str
    arguments: tuple[str, ...] = ()
    """Arguments of the program before the seconds."""
    peer: Peer | None = None
    """Library that it needs; None: nothing that Penstock does not need."""
    mark: float | None = None
    """Required ratio of Penstock's rate."""


@dataclass(frozen=True)
class Work:
    """An environment, the settings of APPO, and who else does the same."""

    settings: dict[str, Any]
    rivals: tuple[Rival, ...] = ()
    module: str | None = None
    """Requirements of the environment besides Penstock."""
    install: str = ""
    """Command that installs them."""
    frame_skip: int = 1
    """Frames to a step."""

    def config(self, device: str) -> APPOConfig:
        """The settings on a device."""
        # what needs torch is imported when it is used: flags are read without it
        from penstock.algorithms.appo import APPOConfig

        return APPOConfig(**self.settings | ({} if device == "cpu" else {"device": device, **_ON_GPU}))


_ON_GPU = {"inference": "central", "precision": "bfloat16"}
_ONE_EPOCH = {"segment_length": 32, "num_minibatches": 1, "num_epochs": 1, "shared_encoder": True}
_CARTPOLE = {
    **_ONE_EPOCH, "env": "CartPole-v1", "num_envs_per_worker": 256, "batch_size": 8192, "hidden_sizes": (64, 64),
    "normalize_observations": False,
}  # fmt: skip
_PONG = {
    **_ONE_EPOCH, "env": "ALE/Pong-v5", "num_envs_per_worker": 32, "batch_size": 512, "encoder": "nature_cnn",
}  # fmt: skip


def _sample_factory(work: str, mark: float) -> Rival:
    return Rival("sample-factory", "sample_factory_throughput.py", (work,), SAMPLE_FACTORY, mark)


WORKS = {
    "cartpole": Work(
        _CARTPOLE,
        (
            _sample_factory("cartpole", mark=4.5),
            Rival("bare loop", "bare_cartpole.py", mark=0.867),
            Rival("stable-baselines3", "sb3_throughput.py", peer=STABLE_BASELINES3),
        ),
    ),
    "cartpole-vector": Work(
        {**_CARTPOLE, "vectorize": "vector", "num_envs_per_worker": 512, "batch_size": 16384}
    ),
    "pong": Work(
        _PONG, (_sample_factory("pong", mark=2.0),), "ale_py", "pip install 'penstock[atari]'", frame_skip=4
    ),
    "pong-bfloat16": Work(
        {**_PONG, "precision": "bfloat16"}, (_sample_factory("pong", mark=2.8),), "ale_py",
        "pip install 'penstock[atari]'", frame_skip=4,
    ),
    "lunarlander": Work(
        {**_CARTPOLE, "env": "LunarLander-v3"}, module="Box2D", install="pip install 'gymnasium[box2d]'"
    ),
    "halfcheetah": Work(
        {**_CARTPOLE, "env": "HalfCheetah-v5", "num_envs_per_worker": 128}, module="mujoco",
        install="pip install 'penstock[mujoco]'",
    ),
    "vizdoom": Work(
        {
            **_PONG, "env": "VizdoomBasic-v1", "batch_size": 2048,
            "env_kwargs": {"frame_skip": 4, "screen_resolution": "RES_160X120"},
        },
        module="vizdoom", install="pip install 'penstock[vizdoom]'", frame_skip=4,
    ),
}  # fmt: skip
"""Measurable work, by its name on the command line."""
