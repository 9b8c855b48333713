"""A group: environments that step together, and the lanes of each policy that acts in them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from penstock.envs.lanes import Lanes
from penstock.envs.statistics import RunningStatistics


class Group(ABC):
    """Environments that step together.

    Parameters
    ----------
    lanes
        Of each policy.

    Attributes
    ----------
    lanes
        The same, as a tuple.
    statistics
        Running statistics of the environments' wrappers.
    """

    def __init__(self, lanes: Sequence[Lanes]) -> None:
        self.lanes = tuple(lanes)
        self.statistics = RunningStatistics([])

    @abstractmethod
    def reset(self) -> None:
        """Start a new episode everywhere."""

    @abstractmethod
    def step(self, actions: Sequence[np.ndarray]) -> None:
        """Step everything; actions are those of each policy's lanes, as `Lanes.step` takes them."""

    @abstractmethod
    def close(self) -> None:
        """Close every environment; a second call does nothing."""


class SideBySide(Group):
    """Groups that step together, of policies that do not meet: each plays environments of its own."""

    def __init__(self, groups: Sequence[Group]) -> None:
        super().__init__([lanes for group in groups for lanes in group.lanes])
        self._groups = tuple(groups)
        if groups:
            self.statistics = groups[0].statistics.join([group.statistics for group in groups[1:]])

    def reset(self) -> None:
        for group in self._groups:
            group.reset()

    def step(self, actions: Sequence[np.ndarray]) -> None:
        for group, taken in zip(self._groups, actions, strict=True):
            group.step([taken])

    def close(self) -> None:
        for group in self._groups:
            group.close()


class LanesAlone(Group):
    """Environments of one agent: the lanes of one policy."""

    def __init__(self, lanes: Lanes) -> None:
        super().__init__([lanes])
        self._only = lanes

    def reset(self) -> None:
        self._only.reset()

    def step(self, actions: Sequence[np.ndarray]) -> None:
        self._only.step(actions[0])

    def close(self) -> None:
        self._only.close()
