"""Plots of an episode with its original and redistributed rewards, and predicted returns."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from penstock.config import ConfigError
from penstock.envs.masks import MASK
from penstock.play.film import MAX_STEPS, make_stage, picture_of, require_writable
from penstock.play.policy import Policy, environment_of, load_policy
from penstock.process_state import ProcessState, plain_torch, seed_generators
from penstock.rudder.arithmetic import as_learned, return_equivalent
from penstock.rudder.learning import Episode, LessonBatch, contributions_in
from penstock.rudder.predictor import ReturnPredictor, build_predictor
from penstock.rudder.settings import ROLE
from penstock.runs.checkpoint import load_checkpoint, require_matching

FORMATS = (".png", ".svg", ".pdf")
PICTURES = 8  # of the episode, above the curves


@dataclass
class Played:
    """One episode.

    Attributes
    ----------
    obs, action
        Observations and actions as in their columns, ``[T, ...]``.
    reward
        Rewards, scaled and clipped, float32 ``[T]``.
    terminated
        Whether the episode terminated.
    pictures
        Pictures of some steps, each with the number of its step.
    """

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    terminated: bool
    pictures: list[tuple[int, np.ndarray]] = field(default_factory=list)


@plain_torch()
def explain_run(path: Path, file: str, *, deterministic: bool = True, seed: int = 0, trust_code: bool = False) -> None:
    """Play one episode with a run's policy, and plot the redistribution of its rewards.

    Parameters
    ----------
    path
        A checkpoint of the run.
    file
        File of the plot, in the format of its suffix: .png, .svg or .pdf.
    deterministic
        Whether to play the most probable actions instead of samples.
    seed
        Seed of the environment and the samples.
    trust_code
        As for `load_policy`.

    Raises
    ------
    ConfigError
        The extra "plot" is not installed, the run has no redistributor, or `file` cannot be written.
    CheckpointError
        The redistributor's saved state is damaged.
    """
    require_writable("explain", file, "a plot", FORMATS)
    saved_at = path.resolve().parent.parent / ROLE
    if not saved_at.is_dir():
        raise ConfigError(
            f"there is nothing to explain: {path} belongs to no run with a redistributor ({saved_at} does not exist). "
            "Train with rewards='rudder', and give the run's directory"
        )
    policy = load_policy(path, trust_code=trust_code)
    predictor, saved = build_predictor(policy.algorithm), load_checkpoint(saved_at)
    require_matching(saved.weights, predictor.state_dict(), str(saved_at))
    predictor.load_state_dict(saved.weights)
    with ProcessState().inside():
        seed_generators(seed)
        played = play(policy, deterministic=deterministic, seed=seed)
    draw(played, *explained(policy, predictor, played), file)


def play(policy: Policy, *, deterministic: bool, seed: int) -> Played:
    """Play one episode of at most `MAX_STEPS` steps, with pictures if the environment can draw them."""
    env = environment_of(policy)
    if policy.algorithm.config.num_agents is not None:
        raise ConfigError(f"{env.name} has several agents: only episodes of environments with one can be explained")
    try:
        with closing(make_stage(env, seed)) as stage:
            return _play(policy, stage, True, deterministic=deterministic, seed=seed)
    except ConfigError:  # the environment cannot draw
        with closing(make_stage(env, seed, draws=False)) as stage:
            return _play(policy, stage, False, deterministic=deterministic, seed=seed)


def _play(policy: Policy, stage: gymnasium.Env, draws: bool, *, deterministic: bool, seed: int) -> Played:
    config = policy.algorithm.config
    observation, info = stage.reset(seed=seed)
    state, has_mask = None, policy.algorithm.observation.mask_is_in_info
    rows: list[tuple[np.ndarray, np.ndarray, float]] = []
    pictures: list[tuple[int, np.ndarray]] = []
    stride, terminated = 1, False
    while len(rows) < MAX_STEPS:
        if draws and len(rows) % stride == 0:
            pictures.append((len(rows), picture_of(stage, config.env)))
            if len(pictures) == 2 * PICTURES:  # a longer episode keeps every other one
                pictures, stride = pictures[::2], 2 * stride
        obs, chosen, _, state = policy.choose(observation, state, deterministic, info[MASK] if has_mask else None)
        observation, reward, terminated, truncated, info = stage.step(policy.decoded(chosen))
        rows.append((obs[0], chosen[0], float(reward)))
        if terminated or truncated:
            break
    all_obs, action, rewards = zip(*rows, strict=True)
    reward = as_learned(np.array(rewards), config.reward_scale, config.reward_clip).astype(np.float32)
    return Played(np.array(all_obs), np.array(action), reward, bool(terminated), pictures)


@torch.no_grad()
def explained(policy: Policy, predictor: ReturnPredictor, played: Played) -> tuple[np.ndarray, np.ndarray]:
    """Return redistributed rewards and predicted returns of an episode, float32 ``[T]`` each."""
    config: Any = policy.algorithm.config
    obs = policy.algorithm.observation.newest_of(played.obs)
    batch = LessonBatch([Episode(obs, played.action, float(played.reward.sum()))])
    found = contributions_in(predictor, batch, config.points_of_attribution, config.redistributor_chunk)
    inputs, start = batch.inputs(predictor, slice(0, len(obs))), predictor.initial_memory(1)
    predicted = predictor.as_return(predictor.unroll(inputs, batch.first, batch.valid, start)[0])
    if played.terminated:
        found = return_equivalent(found, batch.returns)
    return found.flatten().numpy(), predicted.flatten().numpy()


def draw(played: Played, redistributed: np.ndarray, predicted: np.ndarray, file: str) -> None:
    """Plot an episode's pictures, its original and redistributed rewards, and its predicted returns."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("a plot needs the package matplotlib: pip install 'penstock[plot]'") from None
    pictures = _evenly(played.pictures)
    figure = Figure(figsize=(10, 7 if pictures else 5), layout="constrained")
    curves: Any = figure
    if pictures:
        halves: Any = figure.subfigures(2, 1, height_ratios=(1, 3))
        strip, curves = halves
        for panel, (step, picture) in zip(np.ravel(strip.subplots(1, len(pictures))), pictures, strict=False):
            panel.imshow(picture)
            panel.set(title=f"step {step}", xticks=[], yticks=[])
    steps = np.arange(len(played.reward))
    rewards, returns = curves.subplots(2, 1, sharex=True)
    rewards.plot(steps, played.reward, color="C7", label="reward")
    rewards.plot(steps, redistributed, color="C0", label="redistributed reward")
    returns.plot(steps, predicted, color="C1", label="predicted return")
    returns.plot(steps, played.reward.cumsum(), color="C7", label="received so far")
    returns.set(xlabel="step")
    for panel in (rewards, returns):
        panel.legend(loc="upper left")
    figure.savefig(file)


def _evenly(pictures: list[tuple[int, np.ndarray]]) -> list[tuple[int, np.ndarray]]:
    if len(pictures) <= PICTURES:
        return pictures
    return [pictures[round(i * (len(pictures) - 1) / (PICTURES - 1))] for i in range(PICTURES)]
