"""The settings of redistributed rewards, and the hooks by which the rest of Penstock uses this package.

The module is a part of `penstock.config`. It imports no other module of the package: `Rudder` names their places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from penstock.config.base import Config
from penstock.config.checking import ConfigError, require
from penstock.config.segment import FreshConfig

RECEIVERS = "ppo, appo, a2c, impala or pqn"
"""The algorithms over segments that can use redistributed rewards."""
PATHS = {"segments": "redistributed", "replay": "redistributed_replay"}
"""Names of the data paths that redistribute, by the usual ones that they replace."""
ROLE = "redistributor"
"""Kind of the role, and its directory within a run."""


@dataclass(frozen=True, kw_only=True)
class DelayedRewardConfig(Config):
    """Settings of algorithms that learn from rewards as they are, or redistributed by RUDDER (arXiv:1806.07857)."""

    fixed: ClassVar[Mapping[str, str]] = {
        "rewards": "values and stored rewards would change their meaning",
        "redistributor_size": "the redistributor's weights are of this network",
        "redistribution_attribution": "the redistributor's network has different inputs with each",
    }

    rewards: Literal["environment", "rudder"] = "environment"
    """"environment": learn from the environment's rewards; "rudder": redistribute delayed rewards to the steps that
    earned them, with a network trained alongside the policy. Reported returns stay unchanged."""
    redistribution_attribution: Literal["difference", "integrated_gradients"] = "difference"
    """Credit of a step: the change that it makes to the predicted return, or integrated gradients."""
    redistribution_points: int = 20
    """Points on the path of integrated gradients."""
    redistribution_max_error: float = 0.2
    """Original rewards are used while predictions leave more than this share of the returns' variance unexplained."""
    redistributor_size: int = 32
    """Memory cells of the network that predicts returns."""
    redistributor_learning_rate: float = 5e-3
    """Step size of the return-predicting network's optimiser."""
    redistributor_interval: int = 25
    """Steps of the run per update of the return-predicting network."""
    redistributor_batch_size: int = 8
    """Episodes per update of the return-predicting network."""
    redistributor_lessons: int = 512
    """Capacity of the network's episode buffer, which keeps the episodes with the largest prediction errors."""
    redistributor_chunk: int = 500
    """Steps of truncated backpropagation; longer episodes are cut into chunks that overlap by half."""
    redistributor_max_steps: int = 10_000
    """Length of the longest episode that the return-predicting network learns from."""

    def validate(self) -> None:
        super().validate()
        positive = (
            "redistribution_points", "redistributor_size", "redistributor_interval", "redistributor_batch_size",
            "redistributor_max_steps",
        )  # fmt: skip
        for name in positive:
            require(getattr(self, name) > 0, name, getattr(self, name), "more than 0")
        is_error = 0.0 < self.redistribution_max_error < math.inf
        require(is_error, "redistribution_max_error", self.redistribution_max_error, "more than 0, and finite")
        is_rate = 0.0 < self.redistributor_learning_rate < math.inf
        require(is_rate, "redistributor_learning_rate", self.redistributor_learning_rate, "more than 0, and finite")
        require(self.redistributor_chunk > 1, "redistributor_chunk", self.redistributor_chunk, "2 or more")
        lessons, batch = self.redistributor_lessons, self.redistributor_batch_size
        require(lessons >= batch, "redistributor_lessons", lessons, f"redistributor_batch_size={batch} or more")
        if self.is_redistributing and (reason := self.final_rewards()) is not None:
            raise ConfigError(f"rewards='rudder' is not possible with {reason}")

    @property
    def is_redistributing(self) -> bool:
        """Whether rewards are redistributed."""
        return self.rewards == "rudder"

    @property
    def points_of_attribution(self) -> int:
        """Points of integrated gradients; 0: contributions are differences of predictions."""
        return self.redistribution_points if self.redistribution_attribution == "integrated_gradients" else 0

    def final_rewards(self) -> str | None:
        """Return, as the end of a message, what makes rewards final when a step is taken; None if nothing does."""
        return None

    def data_path_for(self, usual: str | type, algorithm: str) -> str | type:
        """Return the data path that redistributes rewards, with rewards="rudder"; see `Config.data_path_for`."""
        if not self.is_redistributing:
            return super().data_path_for(usual, algorithm)
        if not isinstance(usual, str) or usual not in PATHS:
            raise ConfigError(
                f"rewards={self.rewards!r} is not possible with the data path of {algorithm}, which does not "
                'redistribute; use rewards="environment"'
            )
        return PATHS[usual]


@dataclass(frozen=True, kw_only=True)
class SegmentDelayedRewardConfig(DelayedRewardConfig, FreshConfig):
    """`DelayedRewardConfig` for fresh segments: values may be learned from other rewards than the policy."""

    redistribution_value: Literal["redistributed", "original"] = "redistributed"
    """Rewards that values are learned from: "redistributed", as for the policy; "original", with redistributed rewards
    mixed into the policy's advantages, as in the paper's Atari experiments."""
    redistribution_share: float = 0.5
    """With original values, largest share of redistributed rewards in the advantages."""
    redistribution_trace: float = 0.5
    """With original values, share of each redistributed reward that is also credited to the preceding step."""

    def validate(self) -> None:
        super().validate()
        for name in ("redistribution_share", "redistribution_trace"):
            require(0.0 <= getattr(self, name) <= 1.0, name, getattr(self, name), "from 0 to 1")

    def final_rewards(self) -> str | None:
        if not self.replayed_sources:
            return super().final_rewards()
        kinds = ", ".join(source.kind for source in self.replayed_sources)
        return (
            "replayed segments: only fresh ones can be redistributed, in the order in which each lane wrote them, but "
            f"this replays segments ({kinds}): use rewards='environment', or {RECEIVERS} without replay"
        )

    def require_changed_values(self, reason: str) -> None:
        """Raise `ConfigError` if values would be learned from original rewards, for algorithms without advantages."""
        found = self.redistribution_value
        require(found == "redistributed", "redistribution_value", found, f'"redistributed": {reason}')

    @property
    def mixes_advantages(self) -> bool:
        """Whether values are learned from original rewards, and advantages from a mixture."""
        return self.is_redistributing and self.redistribution_value == "original"

    @property
    def further_records(self) -> tuple[str, ...]:
        """Recorded values: they stand for what a truncated episode would still have earned."""
        return ("value",) if self.mixes_advantages else ()

    @property
    def target_changes(self) -> tuple[str, ...]:
        """Mixture of advantages."""
        return ("penstock.rudder.redistribution:MixedAdvantages",) if self.mixes_advantages else ()


class Rudder:
    """Hooks of the feature, see `penstock.config.features.Feature`."""

    group = "delayed rewards"
    settings: tuple[str, ...] = tuple(
        name
        for config in (DelayedRewardConfig, SegmentDelayedRewardConfig)
        for name in config.__annotations__
        if name != "fixed"
    )
    data_paths: Mapping[str, str] = {
        "redistributed": "penstock.rudder.paths:RedistributedSegmentPath",
        "redistributed_replay": "penstock.rudder.paths:RedistributedReplayPath",
    }
    transports: Mapping[str, str] = {
        "penstock.rudder.paths:RedistributedSegmentPath": "penstock.rudder.paths:RedistributedSegmentTransport",
        "penstock.rudder.paths:RedistributedReplayPath": "penstock.rudder.paths:RedistributedStepTransport",
    }
    modules: tuple[str, ...] = ("penstock.rudder.redistribution", "penstock.rudder.redistributor")
    roles: Mapping[str, tuple[str, ...]] = {ROLE: ("learn", "gather", "wait for data")}
    activities: tuple[str, ...] = ("redistribute",)
    metrics = "redistribution/"
    explain = "penstock.rudder.explanation:explain_run"

    def hint(self, setting: str, known: Collection[str]) -> str | None:
        """Return which algorithms have these settings, if this one does not."""
        if setting != "rewards" and not setting.startswith("redistribut"):
            return None
        if "rewards" in known:
            return ""
        return (
            "rewards are redistributed by algorithms that learn from every fresh segment once, in the order in which "
            "each lane wrote it: ppo, appo, a2c, impala and pqn; and by those that replay single transitions: dqn, "
            "rainbow, btr, ddpg, td3, sac, tqc and crossq. This one reuses batches, or learns in its workers"
        )

    def rows(self, metrics: Mapping[str, float], shown: Callable[[float], str]) -> list[tuple[str, str]]:
        """Return the share of redistributed rewards, the quality of predictions, and the predictor's losses."""
        complete = "" if metrics["completeness"] == 1 else f", complete to {metrics['completeness']:.0%}"
        dropped = f", {metrics['dropped']:,.0f} dropped" if metrics["dropped"] else ""
        error, main, auxiliary = (shown(metrics[name]) for name in ("error", "main_loss", "auxiliary_loss"))
        return [
            ("redistributed", f"{metrics['share']:.0%} of rewards, quality {metrics['quality']:.2f}{complete}"),
            ("predictor", f"error {error}, loss {main} and {auxiliary}"),
            ("lessons", f"{metrics['lessons']:,.0f} episodes{dropped}, {metrics['updates']:,.0f} updates"),
        ]


RUDDER = Rudder()
"""The feature."""
