"""Replayed transitions with hindsight: each episode is written again for goals that it achieved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from penstock.config import ConfigError, ReplayConfig
from penstock.engine.contracts import ExperienceWriter
from penstock.engine.paths.replay import ReplayPath, make_replay, transition_buffer
from penstock.experience.hindsight import HindsightWriter
from penstock.replay import Field

if TYPE_CHECKING:
    from penstock.engine.contracts import Start
    from penstock.experience.arena import ExperienceArena
    from penstock.nn import PolicyNetwork


@dataclass(frozen=True)
class HindsightPath(ReplayPath):
    """Data path of transitions that rollout workers relabel; the rate limiter counts steps, not rows."""

    strategy: str
    goals_per_step: int
    seed: int

    @classmethod
    def numbers(cls, algorithm: Any, model: PolicyNetwork) -> dict[str, int]:
        """As `ReplayPath.numbers`.

        Raises
        ------
        ConfigError
            The environment has no goals for which rewards can be computed, or the algorithm sets first priorities.
        """
        from penstock.engine.preparation import require_goal_rules_of
        from penstock.envs.goals import Goals

        config = algorithm.config
        if algorithm.initial_priorities() is not None:
            raise _refused(config, f"{algorithm.name()} computes first priorities from values of the chosen actions")
        if config.num_agents is not None:
            raise _refused(config, "goals belong to a single agent, and the environment has several")
        try:
            Goals(algorithm.observation)
            require_goal_rules_of(config)
        except ValueError as error:
            raise _refused(config, str(error)) from error
        return super().numbers(algorithm, model)

    @classmethod
    def create(
        cls, arena: ExperienceArena, algorithm: Any, model: PolicyNetwork, start: Start, saved: Path | None
    ) -> tuple[Self, str | None]:
        """As `ReplayPath.create`, with an observation for each row, because goals differ between rows."""
        config = algorithm.config
        assert isinstance(config, ReplayConfig) and config.hindsight is not None
        own = Field(algorithm.observation.shape, algorithm.observation.dtype)
        replay, note = make_replay(algorithm, start, saved, transition_buffer(algorithm, obs=own))
        return cls(replay, config.hindsight, config.goals_per_step, config.seed), note

    def _writer_class(self) -> Callable[..., ExperienceWriter]:
        return partial(
            HindsightWriter, replay=self.replay, strategy=self.strategy, goals_per_step=self.goals_per_step,
            seed=self.seed,
        )  # fmt: skip


def _refused(config: ReplayConfig, why: str) -> ConfigError:
    return ConfigError(f"hindsight={config.hindsight!r} is not possible here: {why}; use hindsight=None")
