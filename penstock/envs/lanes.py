"""Contract of lanes: environments that step together, each with one observation after every step.

Lanes record true episode scores and the metrics that environments report. A group is the unit that a rollout worker
steps: the lanes of each policy that acts in its environments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.envs.failures import EnvironmentFailure
from penstock.envs.goals import GoalRules
from penstock.envs.masks import MASK, flat_mask, offers_nothing
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.envs.statistics import RunningStatistics

SUCCESS = "is_success"
"""Key of an info with the success of a goal environment."""


class EpisodeRecord(NamedTuple):
    """Finished episode, or the running one so far.

    Attributes
    ----------
    lane
        Lane, counted from 0 in its `Lanes`.
    episode_return
        Undiscounted sum of true rewards, neither scaled nor clipped.
    length
        Number of steps.
    success
        ``info["is_success"]`` of the last step, from 0 to 1; None if not reported.
    """

    lane: int
    episode_return: float
    length: int
    success: float | None = None


def outcome(returns: Sequence[float], seat: int) -> int:
    """Return a game's outcome for one seat: 1 if its return exceeds all others, -1 if one exceeds it, else 0."""
    best = max(one for other, one in enumerate(returns) if other != seat)
    return int(returns[seat] > best) - int(returns[seat] < best)


class EpisodeBook:
    """Return and length of each lane's running episode, and finished episodes."""

    def __init__(self, num_lanes: int) -> None:
        self._returns = np.zeros(num_lanes, np.float64)
        self._lengths = np.zeros(num_lanes, np.int64)
        self._finished: list[EpisodeRecord] = []

    @property
    def lengths(self) -> np.ndarray:
        """Steps of each lane's running episode, int64 ``[N]``; read-only."""
        return self._lengths

    def running(self, lane: int) -> EpisodeRecord:
        """Return the record so far of a lane's running episode."""
        return EpisodeRecord(lane, float(self._returns[lane]), int(self._lengths[lane]))

    def restart(self) -> None:
        """Forget the running episodes."""
        self._returns.fill(0.0)
        self._lengths.fill(0)

    def add(self, reward: np.ndarray, valid: np.ndarray, ended: list[int]) -> None:
        """Add one step of every lane; the episodes of lanes in ``ended`` finish with it.

        Parameters
        ----------
        reward
            float64 ``[N]``, 0 where not valid.
        valid
            bool ``[N]``.
        ended
            Lanes whose episode is over.
        """
        self._returns += reward
        self._lengths += valid
        for lane in ended:
            self._finished.append(self.running(lane))
            self._returns[lane] = 0.0
            self._lengths[lane] = 0

    def grant(self, lane: int, reward: float) -> None:
        """Add a reward that belongs to no step to a lane's running episode."""
        self._returns[lane] += reward

    def skip(self, lane: int) -> None:
        """Record an episode without steps for a lane that had no part in a game."""
        self._finished.append(EpisodeRecord(lane, 0.0, 0))

    def add_success(self, lane: int, success: Any) -> None:
        """Record the success of an episode that has just been added; a value that is not a number is ignored.

        Parameters
        ----------
        lane
            Lane of the episode.
        success
            ``info["is_success"]``: a number or an array of one.
        """
        number = np.asarray(success)
        if number.size != 1 or number.dtype.kind not in "biuf":
            return
        for index in reversed(range(len(self._finished))):
            if self._finished[index].lane == lane:
                self._finished[index] = self._finished[index]._replace(success=float(number.item()))
                return

    def take(self) -> list[EpisodeRecord]:
        """Return and forget the finished episodes."""
        finished, self._finished = self._finished, []
        return finished


class MetricMeans:
    """Means of the numbers in ``info["metrics"]``, already checked to be a mapping."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Add one lane's metrics; values that are not numbers are ignored."""
        for name, value in metrics.items():
            if isinstance(value, (int, float, np.number, np.bool_)):
                self._add(name, float(value), 1)

    def add_batch(self, metrics: Mapping[str, Any]) -> None:
        """Add the metrics of a vector environment: one per lane, masked by ``_name`` where a lane did not report.

        Gymnasium gives such an array the type of the first lane's number: environments should report floats.
        """
        for name, values in metrics.items():
            array = np.asarray(values)
            is_mask = name.startswith("_") and name[1:] in metrics
            if is_mask or array.ndim > 1 or array.dtype.kind not in "biuf":
                continue
            reported = array.ravel()[metrics.get(f"_{name}", ...)]
            if reported.size:
                self._add(name, float(reported.sum(dtype=np.float64)), reported.size)

    def take(self) -> dict[str, float]:
        """Return and forget the means."""
        means = {name: self._sums[name] / self._counts[name] for name in self._sums}
        self._sums, self._counts = {}, {}
        return means

    def _add(self, name: str, total: float, count: int) -> None:
        self._sums[name] = self._sums.get(name, 0.0) + total
        self._counts[name] = self._counts.get(name, 0) + count


class Lanes(ABC):
    """N streams of experience that step together: environments of one agent, or seats of games.

    Every `step` advances each lane by exactly one row, except that a seat waits while others act: the lane has not
    ``moved``, or is not ``asked``. The arrays below describe the kind of row of the last `reset` or `step`; they belong
    to the lanes and are overwritten by the next call.

    ============================  ==========  =====  =====  =========  =============================================
    event                         terminated  valid  first  in finals  observation shown now
    ============================  ==========  =====  =====  =========  =============================================
    an ordinary step              no          yes    no     no         the next one of the same episode
    ended, autoreset comes next   as it is    yes    no     no         the true final one
    the autoreset after that      no          no     yes    no         the first one of a new episode
    terminated, reset at once     yes         yes    yes    no         the first one of a new episode
    truncated, reset at once      no          yes    yes    yes        the first of a new episode; `write_finals` has
                                                                       the true final one
    ended, the game goes on       as it is    yes    no     if         none: not asked until the next game
                                                            truncated
    ============================  ==========  =====  =====  =========  =============================================

    If an environment reports both, terminated wins: ``truncated`` becomes False.

    Parameters
    ----------
    num_lanes
        N, at least 1.
    observation, action
        Specs of one lane's observations and actions.
    name
        Name of the environment, for messages.
    first_lane
        Number of lane 0 among all lanes of the run, for messages.
    frame_skip
        Simulator frames for each step; None where nothing declares them.

    Attributes
    ----------
    reward : float32 [N]
        Reward of the transition just made; 0 where it is not valid.
    terminated, truncated : bool [N]
        Whether that transition ended its episode, and how. Never both.
    valid : bool [N]
        Whether it was a real step; False if it was only the autoreset after a final observation.
    first : bool [N]
        Whether the observation shown is the first of an episode.
    moved : bool [N]
        Whether a transition was completed; always True with one agent.
    asked : bool [N]
        Whether the lane's observation requests an action; always True with one agent.
    pending : bool [N]
        Whether an action's transition is not yet complete; always False with one agent.
    agents : tuple of str
        Names of the agents whose seats are the lanes of an environment; empty with one agent.
    finals : int64 [K]
        Lanes whose true final observation came in the same step as the next episode's first one.
    mask_was_in_info : bool
        Whether the info of a reset has held a mask of legal actions.
    has_action_masks : bool
        Whether the environment has a method ``action_masks``, which other libraries call; here nothing does.
    """

    def __init__(
        self, num_lanes: int, observation: ObservationSpec, action: ActionSpec, *, name: str = "environment",
        first_lane: int = 0, frame_skip: int | None = None,
    ) -> None:  # fmt: skip
        self.num_lanes = num_lanes
        self.observation = observation
        self.action = action
        self.name = name
        self.first_lane = first_lane
        self.frame_skip = frame_skip
        self.reward = np.zeros(num_lanes, np.float32)
        self.terminated = np.zeros(num_lanes, np.bool_)
        self.truncated = np.zeros(num_lanes, np.bool_)
        self.valid = np.zeros(num_lanes, np.bool_)
        self.first = np.ones(num_lanes, np.bool_)
        self.moved = np.ones(num_lanes, np.bool_)
        self.asked = np.ones(num_lanes, np.bool_)
        self.pending = np.zeros(num_lanes, np.bool_)
        self.agents: tuple[str, ...] = ()
        self.finals = np.empty(0, np.int64)
        self.mask_was_in_info = False
        self.has_action_masks = False
        self._steps = 0
        self._env_steps = 0
        self._episodes = EpisodeBook(num_lanes)
        self._metrics = MetricMeans()

    @abstractmethod
    def reset(self) -> None:
        """Start a new episode in every lane: all ``first``, none ``valid``. The first call seeds the environments."""

    @abstractmethod
    def step(self, actions: np.ndarray) -> None:
        """Advance every lane by one row.

        Parameters
        ----------
        actions
            ``[N, *action.column_shape]`` of the dtype ``action.column_dtype``, as chosen by the policy. Actions of
            lanes due for an autoreset are ignored.

        Raises
        ------
        EnvironmentFailure
            An environment raised, or violated its own contract.
        """

    @abstractmethod
    def write_observations(self, column: np.ndarray, rows: np.ndarray) -> None:
        """Copy the current observation of each lane into its row: ``column[rows[i]]`` for lane ``i``.

        Parameters
        ----------
        column
            C-contiguous ``[R, *observation.shape]`` of the observation's dtype.
        rows
            int64 ``[N]``, all different.

        Raises
        ------
        EnvironmentFailure
            An observation has the wrong shape or an incompatible dtype, is not finite, or leaves no action legal within
            an episode.
        """

    @abstractmethod
    def write_finals(self, column: np.ndarray, rows: np.ndarray) -> None:
        """Copy the final observation of each lane in ``finals`` into ``column[rows[k]]``; rows is int64 ``[K]``.

        Raises
        ------
        EnvironmentFailure
            As for `write_observations`.
        """

    @abstractmethod
    def close(self) -> None:
        """Close every environment; a second call does nothing."""

    def goal_rules(self) -> list[GoalRules]:
        """Return the functions that compute each lane's rewards for other goals.

        Raises
        ------
        ValueError
            The environments have no such functions, or cannot be reached.
        """
        raise ValueError(
            f"expected single environments, whose compute_reward can be called, found lanes of the vector environment "
            f"{self.name}"
        )

    def take_episodes(self) -> list[EpisodeRecord]:
        """Return the episodes that ended since the last call, in the order of their ends.

        An agent that had no part in a game has an episode without steps.
        """
        return self._episodes.take()

    @property
    def running_lengths(self) -> np.ndarray:
        """Return the steps of each lane's running episode, int64 ``[N]``; the array belongs to the lanes."""
        return self._episodes.lengths

    def running_episode(self, lane: int) -> EpisodeRecord:
        """Return the record so far of a lane's running episode; lanes are counted from 0."""
        return self._episodes.running(lane)

    def take_metrics(self) -> dict[str, float]:
        """Return the means of the numbers in ``info["metrics"]`` since the last call."""
        return self._metrics.take()

    def take_env_steps(self) -> int:
        """Return the steps of environments of several agents since the last call; 0 with one agent."""
        taken, self._env_steps = self._env_steps, 0
        return taken

    def _begin(self) -> None:
        """Set the arrays to their state after `reset`."""
        self.reward.fill(0.0)
        self.terminated.fill(False)
        self.truncated.fill(False)
        self.valid.fill(False)
        self.first.fill(True)
        self.finals = np.empty(0, np.int64)
        self._episodes.restart()

    def _store_reward(self, reward: np.ndarray) -> None:
        """Check and store the rewards of a step whose flags and ``valid`` are set; 0 where not valid."""
        reward = reward.astype(np.float64, copy=False)
        # One product, without a warning of overflow, is small only if every reward is finite and fits a float32.
        if not np.vdot(reward, reward) < 1e70:
            unfit = np.flatnonzero(~(np.abs(reward) <= np.finfo(np.float32).max))
            if unfit.size:
                lane = int(unfit[0])
                raise self._failure("step", lane, f"expected a finite float32 reward, found {reward[lane]}")
        self.reward[:] = reward
        self._episodes.add(reward, self.valid, (self.terminated | self.truncated).nonzero()[0].tolist())

    def _mask_of(self, phase: str, lane: int, mask: Any, *, is_final: bool = False) -> np.ndarray:
        """Return the flat mask of an info; after an episode's end it may be missing, and everything is legal."""
        try:
            return flat_mask(mask, self.action)
        except ValueError as error:
            if is_final:
                return np.ones(sum(self.action.choices), np.bool_)
            raise self._failure(phase, lane, str(error)) from error

    def _collect_info(self, phase: str, lane: int, info: Any) -> None:
        """Check one lane's info, and collect its metrics."""
        if type(info) is dict and not info:
            return
        if not isinstance(info, Mapping):
            raise self._failure(phase, lane, f"{phase}() must return a dict as info, found {outline(info)}")
        if info.get(MASK) is not None:
            self._note_mask(phase, lane)
        if "metrics" in info:
            self._metrics.add(self._metrics_in(phase, lane, info))

    def _metrics_in(self, phase: str, lane: int | None, info: Mapping[str, Any]) -> Mapping[str, Any]:
        metrics = info["metrics"]
        if not isinstance(metrics, Mapping):
            problem = f"expected info['metrics'] to be a dict of numbers by name, found {outline(metrics)}"
            raise self._failure(phase, lane, problem)
        return metrics

    def _note_mask(self, phase: str, lane: int | None) -> None:
        """Note that an info holds a mask; refuse a later one if infos of the first reset have none: it is ignored."""
        if phase == "reset" and not self._steps:
            self.mask_was_in_info = True
        elif self.action.choices and self.observation.mask is None and not self.mask_was_in_info:
            problem = "expected every info from reset() on to have an 'action_mask', with several agents that of each"
            raise self._failure(phase, lane, f"{problem}; found the first one in a later info")

    def _check_masks(
        self, column: np.ndarray, rows: np.ndarray, is_final: np.ndarray | None = None, lanes: np.ndarray | None = None
    ) -> None:
        """Allow all values of a choice without a legal one if the episode is over; raise otherwise.

        Parameters
        ----------
        column, rows
            As just written.
        is_final
            Rows of episodes that are over; None: determined from the lanes' current state.
        lanes
            Lanes of the rows; None: all.
        """
        mask = self.observation.mask
        if mask is None:
            return
        if is_final is None:
            is_final = (self.terminated | self.truncated) & ~self.first
        entries = slice(mask.offset, mask.offset + mask.spec.shape[0])
        stuck = offers_nothing(column[rows, entries], self.action.choices)
        lost = stuck & ~is_final
        if lost.any():
            problem = "expected a mask of legal actions that leaves each choice a value, found one that does not"
            lane = int(lost.argmax() if lanes is None else lanes[lost.argmax()])
            raise self._observation_failure(lane, f"{problem}: let one be legal, or end the episode")
        column[rows[stuck], entries] = True

    def _failure(self, phase: str, lane: int | None, problem: str | BaseException) -> EnvironmentFailure:
        run_lane = None if lane is None else self.first_lane + lane
        return EnvironmentFailure.of(self.name, phase, run_lane, self._steps, problem)

    def _observation_failure(self, lane: int | None, problem: str) -> EnvironmentFailure:
        shown_by_reset = bool(self.first.all() if lane is None else self.first[lane])
        return self._failure("reset" if shown_by_reset else "step", lane, problem)


class Group:
    """Environments that step together; here of one agent, with separate lanes for several policies.

    Parameters
    ----------
    lanes
        Lanes of each policy.

    Attributes
    ----------
    lanes
        Lanes of each policy, as a tuple.
    statistics
        Running statistics of the environments' wrappers.
    """

    def __init__(self, lanes: Sequence[Lanes]) -> None:
        self.lanes = tuple(lanes)
        self.statistics = RunningStatistics([])

    def reset(self) -> None:
        """Start a new episode everywhere."""
        for lanes in self.lanes:
            lanes.reset()

    def step(self, actions: Sequence[np.ndarray]) -> None:
        """Step everything; `actions` has an array per policy, as `Lanes.step` takes it."""
        for lanes, taken in zip(self.lanes, actions, strict=True):
            lanes.step(taken)

    def close(self) -> None:
        """Close every environment; a second call does nothing."""
        for lanes in self.lanes:
            lanes.close()


def outline(value: Any) -> str:
    """Return the type and the value of an environment's answer, shortened, for messages."""
    text = f"a {type(value).__name__}: {value!r}"
    return text if len(text) <= 200 else f"{text[:200]}..."
