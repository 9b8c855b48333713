"""The redistributor: a role that trains a predictor of returns from episodes of the feed, and publishes it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.engine.acting.inference import SharedWeights
from penstock.engine.contracts import LeavesNothing, Role
from penstock.engine.messages import Command, ContentsSaved, EpisodeSteps, Note, Save, Tell, unknown
from penstock.engine.roles.specs import name_of
from penstock.engine.watching.clock import Clock
from penstock.experience.arena import ExperienceArena
from penstock.rudder.arithmetic import as_learned, return_equivalent
from penstock.rudder.feed import EXPECTED, PREDICTOR, Feed
from penstock.rudder.learning import LESSONS_NBYTES, Episode, LessonBatch, PredictorTraining, contributions_in
from penstock.rudder.predictor import ReturnPredictor, build_predictor
from penstock.rudder.settings import ROLE, RUDDER
from penstock.runs.checkpoint import (
    CheckpointError,
    NewerCheckpointError,
    UnreadableCheckpointError,
    load_checkpoint,
    require_matching,
    save_checkpoint,
)
from penstock.runs.store import CheckpointStore

MOST_DUE = 100  # updates due; a redistributor that falls behind skips older ones
UPDATES_AT_ONCE = 8  # before the feed is read again: several episodes side by side cost little more than one
CHART_INTERVAL = 10.0  # seconds between episodes that are shown
EQUAL_EPISODES = 100  # episodes with equal returns before a warning
CUT_EPISODES, CUT_SHARE = 100, 0.2  # number of last episodes, and share of truncated ones before a warning


class Cuts:
    """Detection of episodes that are truncated before their reward.

    The sign is a large share of truncated episodes with a mean return no higher than that of terminated ones. Truncated
    episodes with higher returns went well, as in CartPole.
    """

    def __init__(self) -> None:
        self._last = deque[tuple[bool, float]](maxlen=CUT_EPISODES)
        self._terminated = 0
        self._mean = 0.0  # return of those that terminated

    def take(self, episodes: Sequence[Episode]) -> None:
        """Add new episodes."""
        for episode in episodes:
            self._last.append((episode.is_truncated, episode.return_))
            if not episode.is_truncated:
                self._terminated += 1
                self._mean += (episode.return_ - self._mean) / self._terminated

    @property
    def share(self) -> float:
        """Share of truncated episodes among the last ones."""
        return sum(is_truncated for is_truncated, _ in self._last) / max(1, len(self._last))

    @property
    def cost_returns(self) -> bool:
        """Whether episodes are truncated before their reward."""
        if len(self._last) < CUT_EPISODES or self.share < CUT_SHARE:
            return False
        cut = [return_ for is_truncated, return_ in self._last if is_truncated]
        return not self._terminated or sum(cut) / len(cut) <= self._mean


class Redistributor:
    """Joins segments to episodes, learns from those with the largest losses, and publishes the predictor of returns.

    The learner never waits for it. A replacement begins with the last published predictor, and with the last saved
    lessons and optimiser.

    Parameters
    ----------
    algorithm
        Algorithm of the policy.
    feed
        Feed of segments.
    arena
        Arena of the policy, for the predictor.
    report
        Called with notes, and with `ContentsSaved`.
    saved_at
        Directory of the saved state; None: nothing is saved.
    """

    def __init__(
        self, algorithm: Algorithm, feed: Feed, arena: ExperienceArena, report: Tell, saved_at: Path | None
    ) -> None:
        config: Any = algorithm.config
        self.bell = arena.bells[ROLE]
        self._config = config
        self._report = report
        self._saved_at = saved_at
        self._clock = Clock(arena.gauges_of(ROLE), RUDDER.roles[ROLE])
        self._predictor = build_predictor(algorithm)
        self._rudder = PredictorTraining(config, self._predictor)
        if saved_at is not None and saved_at.exists():
            self._load(saved_at)
        block, version = arena.blocks[PREDICTOR], 0
        self._weights = SharedWeights(self._predictor, block)
        if block.version >= 0:
            self._weights.refresh()
            self._rudder.recall()
            version = self._weights.version + 1
        self._version = version
        self._feed = feed.reader()
        self._has_values = EXPECTED in feed.names
        self._assembly = Assembly(config.redistributor_max_steps)
        self._steps = 0
        self._due_steps = self._made = self._skipped = 0  # steps without an update, updates made and skipped
        self._longest = 0  # steps of the longest episode
        self._cuts = Cuts()
        self._next_chart = 0.0
        self._warned_of = set[str]()
        self._publish()

    def poll(self) -> bool:
        """Read the feed, and make some of the due updates (in a serial run all); return False if there were none."""
        self._clock.switch("gather")
        has_read = self._read()
        due = self._due_steps // self._config.redistributor_interval if self._rudder.can_learn else 0
        made = due if self._config.backend == "serial" else min(due, UPDATES_AT_ONCE)
        for _ in range(made):
            self._clock.switch("learn")
            self._rudder.update()
        self._due_steps -= made * self._config.redistributor_interval
        self._made += made
        if has_read or made:
            self._publish()
            return True
        self._clock.switch("wait for data")
        return False

    def handle(self, command: Command) -> None:
        """Execute a command: `Save`."""
        if not isinstance(command, Save):
            raise unknown(ROLE, command, Save)
        if self._saved_at is not None and isinstance(command.destination, CheckpointStore):
            error: Exception | None = None
            try:
                command.destination.require_run()
                save_checkpoint(
                    self._saved_at, meta=command.meta, weights=self._predictor.state_dict(), state=self._rudder.state()
                )
            except (OSError, CheckpointError) as problem:
                error = problem
            self._report(ContentsSaved(command.number, error, "the redistributor"))

    def close(self) -> None:
        """No-op: nothing is held open."""

    def _read(self) -> bool:
        """Read new segments, and add the episodes that end in them; return whether there were any."""
        episodes: list[Episode] = []
        has_read = False
        for lane, number, segment in self._feed.take():
            has_read = True
            steps = int(segment["valid"].sum())
            self._steps += steps
            self._due_steps += steps
            segment["reward"] = as_learned(segment["reward"], self._config.reward_scale, self._config.reward_clip)
            episodes += self._assembly.add(lane, number, segment)
        if not self._rudder.can_learn:
            self._due_steps = 0
        most = MOST_DUE * self._config.redistributor_interval
        self._skipped += max(0, self._due_steps - most) // self._config.redistributor_interval
        self._due_steps = min(self._due_steps, most)
        if episodes:
            self._rudder.take(episodes)
            self._longest = max(self._longest, *(episode.length for episode in episodes))
            self._cuts.take(episodes)
            if time.monotonic() >= self._next_chart:
                self._next_chart = time.monotonic() + CHART_INTERVAL
                self._report(EpisodeSteps(columns_of(self._predictor, episodes[-1], self._config)))
        self._warn()
        return has_read

    def _publish(self) -> None:
        self._rudder.write_told(self._assembly.missed + self._assembly.too_long)
        self._weights.publish(self._version, self._steps)
        self._version += 1

    def _warn(self) -> None:
        """Warn once about each cause that keeps rewards from being redistributed well."""
        rudder, config = self._rudder, self._config
        num_lessons, batch_size = len(rudder.lessons), config.redistributor_batch_size
        if self._assembly.too_long:
            self._warn_once(
                "too long",
                "rewards='rudder' learns from whole episodes, and one has taken more than "
                f"redistributor_max_steps={config.redistributor_max_steps:,} steps: such episodes are left out. If "
                "none ends sooner, rewards stay the environment's",
            )
        if rudder.episodes >= EQUAL_EPISODES and rudder.has_equal_returns:
            self._warn_once(
                "equal",
                f"rewards='rudder' has nothing to redistribute yet: all {rudder.episodes:,} episodes so far have "
                f"returned {self._predictor.returns.mean.item():g}. Until one differs, rewards stay the environment's",
            )
        if not self._has_values and self._cuts.cost_returns:
            self._warn_once(
                "cuts",
                f"{self._cuts.share:.0%} of the last {CUT_EPISODES} episodes were truncated, and rewards='rudder' "
                "redistributes what they had received by then: a reward that would have come later does not count. "
                "Give episodes time until their reward comes, or use redistribution_value='original' (of PPO, APPO, "
                "A2C and IMPALA), which counts the value expected after the truncation",
            )
        if num_lessons < batch_size and rudder.lessons.is_full:
            self._warn_once(
                "few lessons",
                f"rewards='rudder' keeps only {num_lessons} of the redistributor_batch_size={batch_size} episodes that "
                f"an update is made from: {LESSONS_NBYTES >> 20} MiB have no room for one more like the longest of "
                "them. Updates therefore draw some episodes several times",
            )
        if self._longest > config.redistributor_chunk:
            self._warn_once(
                "chunks",
                f"rewards='rudder' learns from an episode of {self._longest:,} steps in chunks of "
                f"redistributor_chunk={config.redistributor_chunk:,} steps that overlap by half: gradients go back at "
                "most one chunk. If rewards come later than that, raise redistributor_chunk, which takes memory",
            )
        if self._skipped > MOST_DUE + self._made:
            self._warn_once(
                "load",
                "the redistributor falls behind: it has made less than half of its updates, one for each "
                f"redistributor_interval={config.redistributor_interval} steps. The learner does not wait for it, but "
                "predictions improve more slowly: raise the interval, or leave it a core with fewer num_workers",
            )

    def _warn_once(self, cause: str, text: str) -> None:
        if cause not in self._warned_of:
            self._warned_of.add(cause)
            self._report(Note(text))

    def _load(self, saved_at: Path) -> None:
        """Restore the saved state; if it is damaged, or of another architecture, ignore it with a note.

        Raises
        ------
        NewerCheckpointError, UnreadableCheckpointError
            The state cannot be used now, and the next save would replace it.
        """
        try:
            saved = load_checkpoint(saved_at)
            require_matching(saved.weights, self._predictor.state_dict(), str(saved_at))
        except (NewerCheckpointError, UnreadableCheckpointError):
            raise
        except CheckpointError as error:
            self._report(Note(f"the redistributor starts from scratch: {error}"))
            return
        self._predictor.load_state_dict(saved.weights)
        assert saved.state is not None
        self._rudder.load_state(saved.state)
        self._rudder.recall()


@torch.no_grad()
def columns_of(predictor: ReturnPredictor, episode: Episode, config: Any) -> dict[str, np.ndarray]:
    """Return an episode's original and redistributed rewards, and predicted and received returns, float32 ``[T]``."""
    batch = LessonBatch([episode])
    found = contributions_in(predictor, batch, config.points_of_attribution, config.redistributor_chunk)
    redistributed = found if episode.is_truncated else return_equivalent(found, batch.returns)
    return {
        "reward/given": episode.reward,
        "reward/redistributed": redistributed.flatten().numpy(),
        "return/predicted": found.cumsum(0).flatten().numpy(),
        "return/received so far": episode.reward.cumsum(dtype=np.float32),
    }


@dataclass
class _Open:
    """Episode that has not ended yet."""

    obs: list[np.ndarray] = field(default_factory=list)
    action: list[np.ndarray] = field(default_factory=list)
    reward: list[np.ndarray] = field(default_factory=list)
    return_: float = 0.0
    length: int = 0


class Assembly:
    """Joins the numbered segments of every lane to whole episodes.

    An episode with a missing segment, or with more than `max_steps` steps, is dropped.

    Parameters
    ----------
    max_steps
        Largest number of steps of an episode.

    Attributes
    ----------
    missed
        Number of episodes dropped for a missing segment.
    too_long
        Number of episodes dropped for their length.
    """

    def __init__(self, max_steps: int) -> None:
        self._max_steps = max_steps
        self._open: dict[int, _Open | None] = {}
        self._next: dict[int, int] = {}
        self.missed = self.too_long = 0

    def add(self, lane: int, number: int, segment: dict[str, Any]) -> Iterator[Episode]:
        """Add a segment, and yield the episodes that end in it.

        Parameters
        ----------
        lane, number
            Number of the lane, and of the segment in it.
        segment
            Columns ``[T, ...]``: obs, action, reward, first, ended (the step ends its episode), truncated, valid, and
            optionally value.
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
            episode.reward.append(segment["reward"][rows])
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
                obs, action, reward = map(np.concatenate, (episode.obs, episode.action, episode.reward))
                yield Episode(obs, action, episode.return_, is_truncated=is_truncated, reward=reward)


def _pieces(begins: np.ndarray, length: int) -> tuple[Sequence[int], Sequence[int]]:
    """Return the bounds of the episodes within a segment, given the rows at which some begin."""
    cuts = sorted({0, *begins.tolist()})
    return cuts, [*cuts[1:], length]


@dataclass(frozen=True)
class RedistributorRole(LeavesNothing):
    """The redistributor."""

    algorithm: Algorithm
    feed: Feed
    saved_at: Path | None
    policy: int = 0
    num_threads: int = 1
    is_vital: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Name: "redistributor", or "redistributor-<number>" for further policies."""
        return name_of(ROLE, self.policy)

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the redistributor with its predictor."""
        return Redistributor(self.algorithm, self.feed, arena.policies[self.policy], report, self.saved_at)
