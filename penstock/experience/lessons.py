"""Whole episodes, put together from the segments of lanes, and the few of them that most is learned from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

TEMPERATURE = 1.0  # of the draw of lessons by their loss


@dataclass
class Episode:
    """An episode that has ended, as it is learned from.

    Attributes
    ----------
    obs, action
        ``[T, ...]``, as they lie in their columns.
    return_
        Sum of its rewards. Of an episode that was truncated where values are known: of those before the last one, and
        what was expected when its last action was chosen.
    loss
        What it cost when it was last learned from, or first looked at.
    is_truncated
        Whether it was cut off, as far as anybody asks: not of one that was saved.
    """

    obs: np.ndarray
    action: np.ndarray
    return_: float
    loss: float = 0.0
    is_truncated: bool = False

    @property
    def length(self) -> int:
        """T."""
        return len(self.obs)

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        return int(self.obs.nbytes + self.action.nbytes)


class Lessons:
    """The episodes that are learned from: those that cost most stay (arXiv:1806.07857, "lessons replay buffer").

    Parameters
    ----------
    capacity
        Episodes kept.
    max_nbytes
        Bytes that they may take: where they would take more, those that cost least go first.
    """

    def __init__(self, capacity: int, max_nbytes: int) -> None:
        self.episodes: list[Episode] = []
        self._capacity = capacity
        self._max_nbytes = max_nbytes

    def __len__(self) -> int:
        return len(self.episodes)

    @property
    def is_full(self) -> bool:
        """Whether memory has no room for one more episode as large as the largest that is kept."""
        sizes = [episode.nbytes for episode in self.episodes]
        return bool(sizes) and sum(sizes) + max(sizes) > self._max_nbytes

    def add(self, episode: Episode) -> bool:
        """Keep an episode if there is room, or else in place of the one that costs least, if it costs more itself."""
        if len(self.episodes) == self._capacity:
            least = self._least()
            if self.episodes[least].loss >= episode.loss:
                return False
            self.episodes[least] = episode
        else:
            self.episodes.append(episode)
        while len(self.episodes) > 1 and sum(each.nbytes for each in self.episodes) > self._max_nbytes:
            del self.episodes[self._least()]
        return True

    def draw(self, count: int, random: np.random.Generator) -> list[Episode]:
        """Draw episodes with replacement, by the softmax of what they cost."""
        costs = np.array([episode.loss for episode in self.episodes]) / TEMPERATURE
        weights = np.exp(costs - costs.max())
        drawn = random.choice(len(self.episodes), count, p=weights / weights.sum())
        return [self.episodes[number] for number in drawn]

    def _least(self) -> int:
        return int(np.argmin([episode.loss for episode in self.episodes]))


@dataclass
class _Open:
    """Episode that has not ended yet."""

    obs: list[np.ndarray] = field(default_factory=list)
    action: list[np.ndarray] = field(default_factory=list)
    return_: float = 0.0
    length: int = 0


class Assembly:
    """Puts the segments of every lane together to whole episodes.

    Segments of a lane are numbered. Where one is missing, the episode that it was a part of is dropped; the next one
    begins anew. An episode of more than `max_steps` steps is dropped, too.

    Parameters
    ----------
    max_steps
        Steps of the longest episode that is kept.

    Attributes
    ----------
    missed
        Episodes of which a segment was missing.
    too_long
        Episodes that had more steps.
    """

    def __init__(self, max_steps: int) -> None:
        self._max_steps = max_steps
        self._open: dict[int, _Open | None] = {}
        self._next: dict[int, int] = {}
        self.missed = self.too_long = 0

    def add(self, lane: int, number: int, segment: dict[str, Any]) -> Iterator[Episode]:
        """Add a segment, and return the episodes that end in it.

        Parameters
        ----------
        lane, number
            Whose it is, and which of its lane.
        segment
            Columns ``[T, ...]``: obs, action, reward, first, ended (the step ends its episode), truncated and valid;
            perhaps value.
        """
        if number != self._next.get(lane, number) and self._open.pop(lane, None) is not None:
            self.missed += 1
        self._next[lane] = number + 1
        first, ended, valid = (np.asarray(segment[name]) for name in ("first", "ended", "valid"))
        begins = np.flatnonzero(first & valid)
        for begin, end in zip(*_pieces(begins, len(first)), strict=True):
            rows = np.arange(begin, end)[valid[begin:end]]
            if not len(rows):
                continue
            if first[rows[0]]:
                self._open[lane] = _Open()
            episode = self._open.get(lane)
            if episode is None:
                continue
            episode.obs.append(segment["obs"][rows])
            episode.action.append(segment["action"][rows])
            episode.return_ += float(segment["reward"][rows].sum(dtype=np.float64))
            is_truncated = bool(segment["truncated"][rows[-1]])
            if "value" in segment and is_truncated:
                episode.return_ += float(segment["value"][rows[-1]]) - float(segment["reward"][rows[-1]])
            episode.length += len(rows)
            if episode.length > self._max_steps:
                self._open[lane] = None
                self.too_long += 1
            elif ended[rows[-1]]:
                self._open[lane] = None
                obs, action = np.concatenate(episode.obs), np.concatenate(episode.action)
                yield Episode(obs, action, episode.return_, is_truncated=is_truncated)


def _pieces(begins: np.ndarray, length: int) -> tuple[Sequence[int], Sequence[int]]:
    """Bounds of the episodes within a segment, given the rows at which some begin."""
    cuts = sorted({0, *begins.tolist()})
    return cuts, [*cuts[1:], length]
