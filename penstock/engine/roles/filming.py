"""Films of evaluations, each of one additional episode; a run keeps a few, spread over the training."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.engine.messages import Evaluate
from penstock.envs.making import lane_seed
from penstock.envs.spec import EnvSpec
from penstock.envs.statistics import statistics_of
from penstock.nn import PolicyNetwork
from penstock.play.film import FILMED_LANE, film
from penstock.play.policy import Policy
from penstock.runs.videos import UNFINISHED, KeptVideos, video_path

MOST_STEPS = 2_000
"""Largest number of steps of a film."""


class Films:
    """Writer of films of the evaluator's policies.

    Parameters
    ----------
    algorithms, models
        Algorithm and network of each policy.
    env
        Environment, in which the policies play together.
    """

    def __init__(self, algorithms: Sequence[Algorithm], models: Sequence[PolicyNetwork], env: EnvSpec) -> None:
        self._config = algorithms[0].config
        self._policies = [Policy(algorithm, model, {}) for algorithm, model in zip(algorithms, models, strict=True)]
        self._env = env
        self._kept = KeptVideos(self._config.eval_videos)
        self._last = -math.inf  # steps of the last film

    def is_due(self, steps: int, *, is_best: bool, is_last: bool) -> bool:
        """Return whether to film an evaluation: films are evenly spaced, at half the distance for best weights."""
        spacing = self._config.total_steps / self._config.eval_videos
        is_end = is_last or steps >= self._config.total_steps
        return is_end or steps - self._last >= (spacing / 2 if is_best else spacing)

    def make(
        self, request: Evaluate, steps: int, player: int, *, is_best: bool, on_step: Callable[[], object]
    ) -> str | None:
        """Film an episode with the current weights; return the reason if that fails, else None.

        Parameters
        ----------
        request
            Request of the evaluation.
        steps
            Steps that name the film.
        player
            Number of the policy that plays, where policies do not play together.
        is_best
            Whether the weights are the best so far.
        on_step
            Called before each picture.
        """
        run, store = request.run, request.policies[0].store
        if run is None or store is None or time.monotonic() >= request.deadline:
            return None
        self._last, left = steps, iter(range(MOST_STEPS))

        def goes_on() -> bool:
            on_step()
            return time.monotonic() < request.deadline and next(left, None) is not None

        try:
            store.require_run()
            path = video_path(run, steps)
            unfinished = path.with_name(UNFINISHED)
            unfinished.unlink(missing_ok=True)  # of a process that was killed
            self._film(unfinished, request.policies[0].meta, player, goes_on)
            os.rename(unfinished, path)
            self._kept.add(path, steps, is_best=is_best)
        except Exception as error:  # a failed film must not end the training
            return f"{type(error).__name__}: {error}"
        return None

    def _film(self, path: Path, meta: Mapping[str, Any], player: int, goes_on: Callable[[], bool]) -> None:
        env = dataclasses.replace(self._env.of_one, statistics=statistics_of(meta))
        pairs = zip(env.teams, self._policies, strict=False)
        played_by = {agent: policy for team, policy in pairs for agent in team}
        film(
            self._policies[player], env, os.fspath(path), deterministic=not self._config.eval_exploration,
            seed=lane_seed(self._config.seed, FILMED_LANE, 0), teammates=played_by, goes_on=goes_on, is_quick=True,
        )  # fmt: skip
