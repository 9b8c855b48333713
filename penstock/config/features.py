"""Features: parts of a run that settings turn on, each in a room of its own. The one list of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from penstock.rudder.settings import RUDDER, RewardConfig, SegmentRewardConfig

__all__ = ["FEATURES", "Feature", "RewardConfig", "SegmentRewardConfig"]


class Feature(Protocol):
    """Hooks of a feature: plain data, with places of code as "module:object", so that nothing is imported too early.

    What a feature does in a run follows from the settings that turn it on (`Config.data_path_for`,
    `FreshConfig.further_records`, `FreshConfig.target_changes`) and from its data paths, which add roles, writers,
    learners, and memory to the arena (`PathMemory`).
    """

    group: str
    """Title of the settings in ``--help`` and signatures."""
    settings: tuple[str, ...]
    """Names of the settings."""
    data_paths: Mapping[str, str]
    """Places of data paths, by the names that algorithms use."""
    transports: Mapping[str, str]
    """Places of transports between nodes, by the places of data paths."""
    modules: tuple[str, ...]
    """Modules that roles need, imported once before roles are forked."""
    roles: Mapping[str, tuple[str, ...]]
    """Activities of each kind of role that the feature adds; a policy has one of each kind, or none."""
    activities: tuple[str, ...]
    """Activities that rollout workers have besides."""
    metrics: str
    """Prefix of the feature's metrics."""
    explain: str
    """Place of the function that plots what the feature did in an episode, as ``penstock eval --explain``."""

    def hint(self, setting: str, known: Collection[str]) -> str | None:
        """Return the hint for a setting that is not among an algorithm's; None: no setting of this feature."""
        ...

    def rows(self, metrics: Mapping[str, float], shown: Callable[[float], str]) -> list[tuple[str, str]]:
        """Return rows of the live view from the feature's metrics, by names without the prefix, each number `shown`."""
        ...


FEATURES: tuple[Feature, ...] = (RUDDER,)
"""All features."""

