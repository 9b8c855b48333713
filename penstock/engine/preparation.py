"""What is settled before a run starts: its environment, its device, its best so far, its arena and its replay."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from penstock.algorithms.base import Algorithm
from penstock.algorithms.replay import ReplayAlgorithm
from penstock.algorithms.segment import SegmentAlgorithm
from penstock.config import Config, ConfigError
from penstock.engine.learner import Start
from penstock.engine.roster import infers_centrally
from penstock.engine.weights import BestWeights, weights_nbytes
from penstock.envs.failures import UnknownEnvironmentError
from penstock.envs.spec import EnvSpec
from penstock.experience.layout import RunShape
from penstock.experience.replay import Replay, transition_fields
from penstock.nn import PolicyNetwork, WeightsLayout
from penstock.nn.precision import is_bfloat16, is_faster_in_bfloat16
from penstock.replay import NStep, RateLimiter, ReplayBuffer, ReplayFileError
from penstock.runs.checkpoint import CheckpointError
from penstock.runs.run_directory import RunDirectory

ROUNDING = 1e-9  # a band of exactly so many samples would, rounded, be one insert too narrow


def run_shape(algorithm: Algorithm, model: PolicyNetwork) -> RunShape:
    """The numbers of a run's arena, from its algorithm, its config and its network.

    Raises
    ------
    ConfigError
        A synchronous algorithm wants more segments in a batch than there are lanes.
    """
    config = algorithm.config
    is_central = infers_centrally(config.inference, algorithm)
    num_groups = config.num_groups or (2 if is_central and config.num_envs_per_worker % 2 == 0 else 1)
    segment_length, slots_per_lane, segments_per_batch, shared_nbytes = 1, 1, 1, 0
    if isinstance(algorithm, SegmentAlgorithm):
        shared_nbytes = WeightsLayout(model).nbytes if algorithm.learns_in_workers else 0
        segment_length, slots_per_lane = algorithm.config.segment_length, _slots_per_lane(algorithm)
        segments_per_batch = algorithm.config.segments_per_batch
    return RunShape(
        num_workers=config.workers,
        num_envs_per_worker=config.num_envs_per_worker,
        num_groups=num_groups,
        segment_length=segment_length,
        slots_per_lane=slots_per_lane,
        segments_per_batch=segments_per_batch,
        observation=algorithm.observation,
        action=algorithm.action,
        records=algorithm.record_columns(),
        state_size=model.state_size,
        weights_nbytes=weights_nbytes(model),
        shared_nbytes=shared_nbytes,
    )


def _slots_per_lane(algorithm: SegmentAlgorithm) -> int:
    """Segments that there is room for, of each lane.

    While an asynchronous learner collects a batch, every lane may have its share of it waiting, and a slot to write
    beside: lanes that wait for slots then always leave the learner enough to go on, and none takes the room of another.
    The share is such that a batch can come of all rollout workers but one, which may be slow. A synchronous learner
    keeps the slot of every lane until it has learned, so that nobody can step meanwhile. Who learns from its own
    segments needs no others.
    """
    config = algorithm.config
    if algorithm.learns_in_workers:
        return 1
    if not algorithm.synchronous:
        lanes_of_others = config.num_lanes - config.num_envs_per_worker or config.num_lanes
        return 1 + math.ceil(config.segments_per_batch / lanes_of_others)
    if config.segments_per_batch != config.num_lanes:
        raise ConfigError(
            f"{algorithm.name()} is synchronous, so a batch is one segment of every lane; found segments_per_batch="
            f"{config.segments_per_batch} for {config.num_lanes} lanes (num_workers={config.workers} x "
            f"num_envs_per_worker={config.num_envs_per_worker}): make them equal"
        )
    return 1


def make_replay(algorithm: ReplayAlgorithm, start: Start, saved: Path | None) -> tuple[Replay, str | None]:
    """Make the replay of a run, or go on with what is saved of it.

    Parameters
    ----------
    algorithm
        Says what is stored, and how it is drawn.
    start
        Where the run starts.
    saved
        Directory of the buffer's contents, if they may have been saved.

    Returns
    -------
    replay : Replay
    note : str or None
        What the user is to be told: the buffer has to be filled again.

    Raises
    ------
    MemoryError
        The buffer does not fit in memory; the message shows the arithmetic.
    """
    config, state = algorithm.config, (start.learning or {}).get("replay")
    buffer = ReplayBuffer(
        config.buffer_size,
        transition_fields(algorithm.observation, algorithm.action, td_priorities=algorithm.td_priorities),
        sampler=algorithm.sampler(),
        n_step=NStep(config.n_step, config.gamma),
        seed=config.seed,
    )
    limiter = RateLimiter(
        samples_per_insert=config.updates_per_step * config.batch_size,
        min_size=config.min_steps,
        tolerance=config.slack * config.batch_size * (1.0 + ROUNDING),
    )
    replay = Replay(
        buffer, limiter, config.batch_size, config.updates_per_step,
        reward_scale=config.reward_scale, reward_clip=config.reward_clip, td_priorities=algorithm.td_priorities,
    )  # fmt: skip
    if state is None:
        return replay, None
    why = "its contents were not saved (save_replay=False)"
    if config.save_replay and saved is not None:
        why = f"there is none in {saved}"
    if config.save_replay and saved is not None and saved.exists():
        try:
            buffer.load(saved)
        except (OSError, ReplayFileError) as error:
            why = str(error)
        else:
            if len(buffer):
                return replay.going_on(state, start.state.steps), None
            why = f"what was saved in {saved} holds no transition"
    note = (
        f"the replay buffer is empty: {why}. {config.min_steps:,} steps are played before learning goes on, "
        f"{min(config.min_steps, start.state.steps):,} of them uncounted"
    )
    return replay.refilled(start.state.steps), note


def resolve_env(config: Config) -> EnvSpec:
    """Find the environment of a config; what is wrong with it is a `ConfigError`, if nothing more exact."""
    try:
        return EnvSpec.resolve(config.env, config.env_kwargs, config.vectorize)
    except UnknownEnvironmentError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error


def go_on_from_best(run: RunDirectory, best_weights: BestWeights, model: PolicyNetwork) -> None:
    """Keep the best weights of a run that goes on, unless it has none intact; `model` is a network for them."""
    try:
        checkpoint = run.checkpoints.best()
    except CheckpointError:
        return
    model.load_state_dict(checkpoint.weights)
    meta = checkpoint.meta
    best_weights.put(model, meta.get("version", 0), meta["steps"], meta["mean_return"])


def settled_precision(algorithm: Algorithm) -> str:
    """What the network's body computes in, with nothing left open: "float32", "bfloat16", or which role in which."""
    precision = algorithm.config.precision
    chosen, learned = ("bfloat16" if is_bfloat16(precision, device) else "float32" for device in _devices(algorithm))
    return learned if chosen == learned else f"{chosen} in the rollout workers, {learned} in the learner"


def note_of_precision(algorithm: Algorithm) -> str | None:
    """What the user is to be told: what "auto" has become, or that the precision asked for is slow on the CPU."""
    precision = algorithm.config.precision
    if precision == "auto":
        return f"precision='auto' is {settled_precision(algorithm)} here"
    is_on_cpu = any(device.type == "cpu" for device in _devices(algorithm))
    if precision == "bfloat16" and is_on_cpu and not is_faster_in_bfloat16("cpu"):
        return (
            "precision='bfloat16': this CPU is faster in float32, many times so where it has to emulate bfloat16; "
            "precision='auto' takes what is fast"
        )
    return None


def _devices(algorithm: Algorithm) -> tuple[torch.device, torch.device]:
    """Where actions are chosen, and where the learner learns."""
    learner = torch.device(algorithm.config.device)
    return learner if infers_centrally(algorithm.config.inference, algorithm) else torch.device("cpu"), learner


def require_device(device: str) -> None:
    """Raise `ConfigError` if torch cannot use `device`."""
    kind, _, index = device.partition(":")
    if kind == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(index or 0) >= count:
            found = f"torch {torch.__version__} sees {count} CUDA devices"
            raise ConfigError(f'device={device!r} is not there: {found}; use device="cpu", or see: penstock doctor')
