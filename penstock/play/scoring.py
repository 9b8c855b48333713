"""Scoring of policies: networks, runs and checkpoints play new environments."""

from __future__ import annotations

import dataclasses
import math
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.config import agents_by_policy, require
from penstock.envs.factories import OUTSIDE
from penstock.envs.making import agents_of, lane_seed
from penstock.envs.spec import EnvSpec
from penstock.nn import PolicyNetwork
from penstock.play.evaluation import Evaluation
from penstock.play.film import film
from penstock.play.policy import environment_of, load_policy
from penstock.self_play.fixed_opponents import Load
from penstock.self_play.matches import player_of
from penstock.self_play.settings import with_absolute_paths
from penstock.surroundings import Surroundings, seed_generators

Opponents = Sequence[str | Callable[..., Any]]
"""Fixed opponents, as in ``eval_against``."""

# Lane numbers start at 0 in training, here in a run's evaluations, and there in later scoring: no seed is shared
# between training and evaluation, or between a score and the episodes that selected the best weights.
EVALUATION_LANES, SCORING_LANES = 1_000_000, 2_000_000


def evaluate_models(
    models: Sequence[PolicyNetwork],
    env: EnvSpec,
    *,
    episodes: int,
    deterministic: bool = True,
    seed: int = 0,
    max_steps: float = math.inf,
    opponents: Opponents = (),
    best: Sequence[Load] = (),
) -> tuple[Evaluation, ...]:
    """Play `episodes` of a new environment, different from those of the run's evaluator; return each policy's score.

    Several policies play together in an environment of several agents. With `opponents`, one policy plays `episodes`
    games against each, from each seat (see `penstock.self_play.matches.MatchPlayer`); each of several policies plays
    `episodes` games against each except "others" (see `penstock.play.teams.TeamPlayer`). `best` returns each policy's
    best weights for "best", which is omitted without them.
    """
    require(episodes > 0, "episodes", episodes, "more than 0")
    require(max_steps > 0, "max_steps", max_steps, "more than 0")
    opponents = with_absolute_paths(opponents)
    with Surroundings().inside():
        seed_generators(lane_seed(seed, SCORING_LANES, 0))
        player = player_of(
            models, env, opponents, episodes=episodes, deterministic=deterministic, seed=seed, best=best,
            first_lane=SCORING_LANES, worker_index=OUTSIDE,
        )  # fmt: skip
        try:
            return player.play(episodes, max_steps=max_steps)
        finally:
            player.group.close()


def evaluate_together(
    paths: Mapping[str, str | os.PathLike[str]],
    *,
    episodes: int = 100,
    deterministic: bool = True,
    video: str | None = None,
    seed: int | None = None,
    max_steps: int | None = None,
    **settings: Any,
) -> dict[str, Evaluation]:
    """Score the policies of a run with several, which play together.

    Parameters
    ----------
    paths
        Checkpoint of each policy, by name, in the order of the run.
    episodes, deterministic, video, seed, max_steps, **settings
        As for `evaluate_run`.
    """
    policies = {name: load_policy(path, **settings) for name, path in paths.items()}
    first = next(iter(policies.values()))
    config, env = first.algorithm.config, environment_of(first)
    with Surroundings().inside():
        agents = agents_of(env)
    with first.code():
        teams = tuple(agents_by_policy(config, agents).values()) if agents else ()
    env = dataclasses.replace(env, teams=teams, population=1 if agents else len(policies))
    seed = secrets.randbits(31) if seed is None else seed
    with first.code():  # opponents are code, too
        evaluations = evaluate_models(
            [policy.model for policy in policies.values()], env, episodes=episodes,
            deterministic=deterministic, seed=seed, max_steps=config.eval_max_steps if max_steps is None else max_steps,
            opponents=config.eval_against,
        )  # fmt: skip
    if video is not None:
        played_by = {agent: policy for team, policy in zip(teams, policies.values(), strict=False) for agent in team}
        film(first, env.of_one, video, deterministic=deterministic, seed=seed, teammates=played_by)
    return {
        name: dataclasses.replace(evaluation, steps=policy.meta["steps"])
        for (name, policy), evaluation in zip(policies.items(), evaluations, strict=True)
    }


def evaluate_run(
    path: str | os.PathLike[str],
    *,
    episodes: int = 100,
    deterministic: bool = True,
    video: str | None = None,
    seed: int | None = None,
    max_steps: int | None = None,
    **settings: Any,
) -> Evaluation:
    """Score the policy of a run or checkpoint on its environment.

    Parameters
    ----------
    path
        Path as for `load_policy`.
    episodes
        Number of episodes, the same quota in every lane; of games, number for every agent.
    deterministic
        Whether to take the most probable actions instead of samples.
    video
        File for a film of one more episode (needs the extra "video").
    seed
        Seed of the environments; None: random.
    max_steps
        Steps after which an episode is given up (see `Evaluation.unfinished`); None: the run's ``eval_max_steps``.
    **settings
        Settings that the checkpoint could not store by value, such as ``env=MyEnv``.
    """
    policy = load_policy(path, **settings)
    config = policy.algorithm.config
    env = environment_of(policy)
    seed = secrets.randbits(31) if seed is None else seed
    with policy.code():  # opponents are code, too
        (evaluation,) = evaluate_models(
            [policy.model], env, episodes=episodes, deterministic=deterministic, seed=seed,
            max_steps=config.eval_max_steps if max_steps is None else max_steps, opponents=config.eval_against,
        )  # fmt: skip
    if video is not None:
        film(policy, env, video, deterministic=deterministic, seed=seed)
    return dataclasses.replace(evaluation, steps=policy.meta["steps"])
