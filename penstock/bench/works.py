"""Work of `penstock bench throughput`: environments with settings of APPO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.algorithms.appo import APPOConfig


@dataclass(frozen=True)
class Work:
    """Environment and settings of APPO."""

    settings: dict[str, Any]
    module: str | None = None
    """Required packages besides Penstock."""
    install: str = ""
    """Command that installs the requirements."""
    frame_skip: int = 1
    """Frames per step."""

    def config(self, device: str) -> APPOConfig:
        """Return the settings for a device."""
        # Imported here, because it needs torch, and flags are read without it.
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


WORKS = {
    "cartpole": Work(_CARTPOLE),
    "cartpole-vector": Work(
        {**_CARTPOLE, "vectorize": "vector", "num_envs_per_worker": 512, "batch_size": 16384}
    ),
    "pong": Work(
        _PONG, "ale_py", "pip install 'penstock[atari]'", frame_skip=4
    ),
    "pong-bfloat16": Work(
        {**_PONG, "precision": "bfloat16"}, "ale_py",
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
