"""Scoring of policies: networks, runs and checkpoints play new environments."""

from __future__ import annotations

import dataclasses
import math
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from typing import Any

import numpy as np

from penstock.config import agents_by_policy, require
from penstock.envs.factories import OUTSIDE
from penstock.envs.failures import UnsupportedSpaceError
from penstock.envs.lanes import Lanes
from penstock.envs.making import agents_of, lane_seed, make_group
from penstock.envs.spec import EnvSpec
from penstock.nn import PolicyNetwork
from penstock.play.evaluation import Evaluation
from penstock.play.film import CONTAINERS, film, require_writable
from penstock.play.player import Part, PlaySession, ignored_episode, lanes_for
from penstock.play.policy import Policy, Wrappers, environment_of, load_policy
from penstock.play.recording import EpisodeRecorder
from penstock.process_state import ProcessState, seed_generators
from penstock.self_play.fixed_opponents import Load, RandomOpponent
from penstock.self_play.matches import player_of
from penstock.self_play.settings import with_absolute_paths

Opponents = Sequence[str | Callable[..., Any]]
"""Fixed opponents, as in ``eval_against``."""

# First lane numbers of a run's evaluations and of later scoring; those of training start at 0. No seed is shared
# between training and evaluation, or between a score and the episodes that selected the best weights.
EVALUATION_LANES, SCORING_LANES = 1_000_000, 2_000_000


def evaluate_models(
    models: Sequence[PolicyNetwork], env: EnvSpec, *, episodes: int, deterministic: bool = True, seed: int = 0,
    max_steps: float = math.inf, opponents: Opponents = (), best: Sequence[Load] = (), policies: Sequence[Policy] = (),
    on_episode: Callable[[int, bool], object] = ignored_episode,
) -> tuple[Evaluation, ...]:  # fmt: skip
    """Play `episodes` of a new environment, different from those of the run's evaluator; return each policy's score.

    Several policies play together in an environment of several agents. With `opponents`, one policy plays `episodes`
    games against each, from each seat (see `penstock.self_play.matches.MatchPlayer`); each of several policies plays
    `episodes` games against each except "others" (see `penstock.play.teams.TeamPlayer`). `best` returns each policy's
    best weights for "best", which is omitted without them. `policies` are those of the models, to be checked against
    the environment. `on_episode` is that of `penstock.play.player.Player.play`.
    """
    require(episodes > 0, "episodes", episodes, "more than 0")
    require(max_steps > 0, "max_steps", max_steps, "more than 0")
    require(seed >= 0, "seed", seed, "0 or more")
    opponents = with_absolute_paths(opponents)
    with ProcessState().inside():
        seed_generators(lane_seed(seed, SCORING_LANES, 0))
        player = player_of(
            models, env, opponents, games=range(lanes_for(episodes)), deterministic=deterministic, seed=seed, best=best,
            first_lane=SCORING_LANES, worker_index=OUTSIDE,
        )  # fmt: skip
        try:
            for policy, lanes in zip(policies, player.group.lanes, strict=False):
                _require_fit(policy, env, lanes)
            return player.play(episodes, max_steps=max_steps, on_episode=on_episode)
        finally:
            player.group.close()


def _require_fit(policy: Policy, env: EnvSpec, lanes: Lanes) -> None:
    """Raise `UnsupportedSpaceError` for an environment whose spaces differ from those that a policy was trained on."""
    spaces = policy.algorithm.observation, policy.algorithm.action
    if not (spaces[0].is_fit_for(lanes.observation) and spaces[1] == lanes.action):
        raise UnsupportedSpaceError(
            f"env={env.name!r} does not fit the policy. It was trained on {policy.meta['env']} with observations "
            f"{spaces[0]} and actions {spaces[1]}; found observations {lanes.observation} and actions {lanes.action}. "
            "Give an environment with the same spaces, or translate them with a wrapper"
        )


def evaluate_together(
    paths: Mapping[str, str | os.PathLike[str]], *, episodes: int = 100, deterministic: bool = True,
    video: str | None = None, seed: int | None = None, max_steps: int | None = None, on: EnvSpec | None = None,
    wrappers: Wrappers = (), **settings: Any,
) -> dict[str, Evaluation]:  # fmt: skip
    """Score the policies of a run with several policies, which play together.

    Parameters
    ----------
    paths
        Checkpoint of each policy, by name, in the order of the run.
    episodes, deterministic, video, seed, max_steps, on, wrappers, **settings
        As for `evaluate_run`.
    """
    if video is not None:
        require_writable("video", video, "a video", CONTAINERS)
    policies = {name: load_policy(path, **settings) for name, path in paths.items()}
    first = next(iter(policies.values()))
    config, env = first.algorithm.config, environment_of(first, on, wrappers)
    with ProcessState().inside():
        agents = agents_of(env)
    with first.code():
        teams = tuple(agents_by_policy(config, agents).values()) if agents else ()
    in_info = any(policy.algorithm.observation.mask_is_in_info for policy in policies.values())
    env = dataclasses.replace(env, teams=teams, population=1 if agents else len(policies), mask_is_in_info=in_info)
    seed = secrets.randbits(31) if seed is None else seed
    with first.code():  # opponents are code, too
        evaluations = evaluate_models(
            [policy.model for policy in policies.values()], env, episodes=episodes,
            deterministic=deterministic, seed=seed, max_steps=config.eval_max_steps if max_steps is None else max_steps,
            opponents=config.eval_against, policies=tuple(policies.values()),
        )  # fmt: skip
    if video is not None:
        played_by = {agent: policy for team, policy in zip(teams, policies.values(), strict=False) for agent in team}
        film(first, env.of_one, video, deterministic=deterministic, seed=seed, teammates=played_by)
    return {
        name: dataclasses.replace(evaluation, steps=policy.meta["steps"])
        for (name, policy), evaluation in zip(policies.items(), evaluations, strict=True)
    }


def evaluate_run(
    path: str | os.PathLike[str], *, episodes: int = 100, deterministic: bool = True, video: str | None = None,
    record: str | None = None, seed: int | None = None, max_steps: int | None = None, on: EnvSpec | None = None,
    wrappers: Wrappers = (), **settings: Any,
) -> Evaluation:  # fmt: skip
    """Score the policy of a run or checkpoint.

    Parameters
    ----------
    path
        Path as for `load_policy`.
    episodes
        Number of episodes, the same quota in every lane; for games, number per agent.
    deterministic
        Whether to take the most probable actions instead of samples.
    video
        New file for a video of one more episode (needs the extra "video").
    record
        New directory for a Minari dataset of the episodes (needs the extra "minari"); see
        `penstock.play.recording.EpisodeRecorder`.
    seed
        Seed of the environments; None: random.
    max_steps
        Steps after which an episode is given up (see `Evaluation.unfinished`); None: the run's ``eval_max_steps``.
    on
        Environment to play; None: the run's own.
    wrappers
        Functions or classes that wrap each environment, the last outermost.
    **settings
        Settings that the checkpoint could not store by value, such as ``env=MyEnv``.

    Raises
    ------
    UnsupportedSpaceError
        The environment's spaces differ from those of the training.
    ConfigError
        The dataset or the video exists or cannot be written.
    """
    if video is not None:
        require_writable("video", video, "a video", CONTAINERS)
    policy = load_policy(path, **settings)
    config = policy.algorithm.config
    env = environment_of(policy, on, wrappers)
    seed = secrets.randbits(31) if seed is None else seed
    most = config.eval_max_steps if max_steps is None else max_steps
    recorder = None if record is None else EpisodeRecorder(record)
    with recorder or nullcontext(), policy.code():  # opponents are code, too
        (evaluation,) = evaluate_models(
            [policy.model], env if recorder is None else recorder.around(env), episodes=episodes,
            deterministic=deterministic, seed=seed, max_steps=most, opponents=config.eval_against, policies=[policy],
            on_episode=recorder.keep if recorder else ignored_episode,
        )  # fmt: skip
        if recorder is not None:
            recorder.finish(
                algorithm=policy.meta["algorithm"],
                description=f"{evaluation.episodes} episodes of {policy.meta['algorithm']} on {env.name}, weights of "
                f"step {policy.meta['steps']}, {'most probable' if deterministic else 'sampled'} actions",
                returns=(_random_return(policy, env, episodes, seed, most), evaluation.mean_return),
                episodes=episodes,
            )
    if video is not None:
        film(policy, env, video, deterministic=deterministic, seed=seed)
    return dataclasses.replace(evaluation, steps=policy.meta["steps"])


def _random_return(policy: Policy, env: EnvSpec, episodes: int, seed: int, max_steps: float) -> float:
    """Return the mean return of uniform legal actions, over the same number of episodes and the same seeds."""
    with ProcessState().inside():
        seed_generators(lane_seed(seed, SCORING_LANES, 0))
        group = make_group(env, lanes_for(episodes), seed=seed, first_lane=SCORING_LANES, worker_index=OUTSIDE)
        with closing(group):
            (lanes,) = group.lanes
            part = _RandomPart(policy.model, lanes, deterministic=True, seed=seed)
            part.random = RandomOpponent(lanes, seed)
            PlaySession(group, episodes, max_steps, math.inf).play([part], [part])
            return part.evaluation().mean_return


class _RandomPart(Part):
    """Part that plays uniform legal actions instead of the policy's."""

    random: RandomOpponent

    def act(self) -> np.ndarray:
        return self.random.act()
