"""What is settled before a run starts: its environment, its device, its best so far, and the numbers of its arena."""

from __future__ import annotations

import torch

from penstock.algorithms.segment import SegmentAlgorithm
from penstock.config import Config, ConfigError
from penstock.engine.roster import infers_centrally
from penstock.engine.weights import weights_nbytes
from penstock.envs.failures import UnknownEnvironmentError
from penstock.envs.spec import EnvSpec
from penstock.experience.layout import RunShape
from penstock.nn import ActorCritic
from penstock.runs.checkpoint import CheckpointError, verify_checkpoint
from penstock.runs.run_directory import RunDirectory


def run_shape(algorithm: SegmentAlgorithm, model: ActorCritic) -> RunShape:
    """The numbers of a run's arena, from its algorithm, its config and its network.

    Raises
    ------
    ConfigError
        A synchronous algorithm wants more segments in a batch than there are lanes.
    """
    config = algorithm.config
    if algorithm.synchronous and config.segments_per_batch != config.num_lanes:
        raise ConfigError(
            f"{algorithm.name()} is synchronous, so a batch is one segment of every lane; found segments_per_batch="
            f"{config.segments_per_batch} for {config.num_lanes} lanes (num_workers={config.workers} x "
            f"num_envs_per_worker={config.num_envs_per_worker}): make them equal"
        )
    is_central = infers_centrally(config.inference, algorithm)
    num_groups = config.num_groups or (2 if is_central and config.num_envs_per_worker % 2 == 0 else 1)
    # Every lane writes one segment. Beside these, an asynchronous learner's next batch is collected while it learns;
    # a synchronous one keeps the slot of every lane until it has learned, so that nobody can step meanwhile.
    waiting = 0 if algorithm.synchronous else config.segments_per_batch
    return RunShape(
        num_workers=config.workers,
        num_envs_per_worker=config.num_envs_per_worker,
        num_groups=num_groups,
        segment_length=config.segment_length,
        num_slots=config.num_lanes + waiting,
        observation=algorithm.observation,
        action=algorithm.action,
        records=algorithm.record_columns(),
        state_size=model.state_size,
        weights_nbytes=weights_nbytes(model),
    )


def resolve_env(config: Config) -> EnvSpec:
    """Find the environment of a config; what is wrong with it is a `ConfigError`, if nothing more exact."""
    try:
        return EnvSpec.resolve(config.env, config.env_kwargs, config.vectorize)
    except UnknownEnvironmentError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error


def best_return_of(run: RunDirectory) -> float | None:
    """Mean return of a run's best checkpoint; None if there is no intact one."""
    try:
        best: float | None = verify_checkpoint(run.checkpoints.best_path).get("mean_return")
    except CheckpointError:
        return None
    return best


def require_device(device: str) -> None:
    """Raise `ConfigError` if torch cannot use `device`."""
    kind, _, index = device.partition(":")
    if kind == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(index or 0) >= count:
            found = f"torch {torch.__version__} sees {count} CUDA devices"
            raise ConfigError(f'device={device!r} is not there: {found}; use device="cpu", or see: penstock doctor')
