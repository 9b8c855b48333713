"""The rollout worker: steps lanes and writes experience. Without torch: actors for local inference are passed in."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.config import FEATURES
from penstock.engine.messages import Command, EnvironmentMetrics, EnvironmentSteps, Episodes, Tell, unknown
from penstock.engine.watching.clock import Clock
from penstock.envs.columns import NoiseStreams
from penstock.envs.lanes import EpisodeRecord, Lanes
from penstock.envs.making import lane_seed, make_group
from penstock.envs.spec import EnvSpec
from penstock.experience.arena import NOT_ASKED, Control, ExperienceArena
from penstock.experience.statistics import WorkerStatistics
from penstock.ipc import gather
from penstock.process_state import seed_generators
from penstock.self_play.matchmaking import games_of

if TYPE_CHECKING:
    from penstock.engine.contracts import Actor
    from penstock.engine.paths.base import DataPath

REPORT_INTERVAL = 0.1  # seconds


@dataclass(frozen=True)
class RolloutSpec:
    """Spec of a rollout worker: plain data, without an algorithm's config."""

    worker: int
    env: EnvSpec
    paths: tuple[DataPath, ...]
    """Data path of each policy."""
    seed: int
    incarnation: int
    lanes_per_worker: tuple[int, ...] = ()
    """Lanes of each policy, where a population shares the workers."""
    uses_clock: bool = True
    """Whether episodes are reported by the clock; False in a serial run, where nothing depends on time."""
    is_pinned: bool = False
    """Whether the worker's process is pinned to one core."""
    noise_hold: tuple[int, ...] = ()
    """Most steps for which a lane keeps the random numbers of its actions, by policy; empty: 1."""


class RolloutWorker:
    """Steps its groups of lanes in turn, each as soon as its actions are chosen.

    Parameters
    ----------
    spec
        Spec of the worker.
    arena
        Arena of the run's first policy.
    report
        Function for reports: `Episodes`, `EnvironmentMetrics` and `EnvironmentSteps`, at intervals.
    actors
        Actors of local inference, one per policy; empty: policy workers choose the actions.
    """

    ACTIVITIES = (
        "env", "infer", "write", *(name for feature in FEATURES for name in feature.activities), "learn",
        "wait for slots", "wait for actions", "wait for learner", "wait for goal",
    )  # fmt: skip

    def __init__(self, spec: RolloutSpec, arena: ExperienceArena, report: Tell, actors: Sequence[Actor] = ()) -> None:
        first_lane = _first_lane(spec, arena, spec.worker * arena.shape.num_groups)
        seed_generators(lane_seed(spec.seed, first_lane, spec.incarnation))  # forked processes start with equal ones
        self.bell = arena.rollout_bells[spec.worker]
        self._report = report
        self._clock = Clock(arena.gauges_of(f"rollout-{spec.worker}"), self.ACTIVITIES)
        self._statistics = WorkerStatistics(arena.statistics, spec.worker)
        # The policies of a population do not meet: each has groups of its own, and none waits for another's.
        parties = [(each,) for each in arena.policies] if spec.env.population > 1 else [arena.policies]
        self._groups = [
            LaneGroup(spec, arenas, spec.worker * arenas[0].shape.num_groups + i, self._clock, actors, self._statistics)
            for arenas in parties
            for i in range(arenas[0].shape.num_groups)
        ]
        self._policy_lanes = [policy_lanes for group in self._groups for policy_lanes in group.policy_lanes]
        self._report_interval = REPORT_INTERVAL if spec.uses_clock else 0.0
        self._next_report = 0.0

    def poll(self) -> bool:
        """Advance every group that has its actions and room to write; return whether any advanced."""
        advanced = any([group.poll() for group in self._groups])
        if not advanced:
            waits_for_actions = any(group.is_waiting_for_actions for group in self._groups)
            self._clock.switch("wait for actions" if waits_for_actions else self._groups[0].waits_for)
        now = time.monotonic()
        if now >= self._next_report:
            self._next_report = now + self._report_interval
            self._report_episodes()
            if self._statistics.held is not None:
                self._statistics.exchange()
        return advanced

    def handle(self, command: Command) -> None:
        """Refuse the command: a rollout worker accepts none."""
        raise unknown("rollout worker", command)

    def close(self) -> None:
        """Report the remaining episodes, and close the environments."""
        self._report_episodes()
        for group in self._groups:
            group.envs.close()

    def _report_episodes(self) -> None:
        by_policy: dict[int, list[PolicyLanes]] = {}
        for policy_lanes in self._policy_lanes:
            by_policy.setdefault(policy_lanes.policy, []).append(policy_lanes)
        for policy, parts in by_policy.items():
            ended = [each for part in parts for each in part.take_episodes() if each[0].length]
            if ended:
                finished = [(episode.episode_return, episode.length) for episode, _ in ended]
                successes, is_new = [episode.success for episode, _ in ended], [is_new for _, is_new in ended]
                self._report(Episodes(finished, successes, policy, is_new))
            for part in parts:
                for metrics, is_after_fence in part.take_metrics():
                    self._report(EnvironmentMetrics(metrics, policy, is_after_fence))
                if count := part.lanes.take_env_steps():
                    self._report(EnvironmentSteps(count))


class LaneGroup:
    """The environments of a worker that step together, with the lanes of each policy that acts in them.

    Parameters
    ----------
    spec, clock, actors
        Spec, clock and actors of the worker.
    arenas
        Arenas of the policies that act in these environments.
    number
        Number of the group among those of the run.
    statistics
        Running statistics of the worker's environments.
    """

    def __init__(
        self, spec: RolloutSpec, arenas: Sequence[ExperienceArena], number: int, clock: Clock,
        actors: Sequence[Actor], statistics: WorkerStatistics,
    ) -> None:  # fmt: skip
        shape = arenas[0].shape
        clock.switch("env")
        self.envs = make_group(
            spec.env.of_one, shape.envs_per_group, seed=spec.seed, first_lane=_first_lane(spec, arenas[0], number),
            worker_index=shape.first_worker + spec.worker, incarnation=spec.incarnation,
            games=games_of(arenas, spec.env.seats, group=number, seed=spec.seed, incarnation=spec.incarnation),
        )  # fmt: skip
        self._clock = clock
        self._infers = bool(actors)
        self.policy_lanes = [
            PolicyLanes(spec, number, lanes, arena, actors[arena.policy] if actors else None, clock)
            for lanes, arena in zip(self.envs.lanes, arenas, strict=True)
        ]
        self.is_waiting_for_actions = False
        statistics.take_in(self.envs.statistics)
        self.envs.reset()

    @property
    def waits_for(self) -> str:
        """Activity of waiting for room to write."""
        writers = [policy_lanes.writer for policy_lanes in self.policy_lanes]
        return next((writer for writer in writers if not writer.is_open), writers[0]).waits_for

    def poll(self) -> bool:
        """Step if the actions are chosen, then request the next ones; return whether either was possible.

        With local inference, request, answer and step happen in one call, with the newest weights.
        """
        has_stepped = self.is_waiting_for_actions
        if has_stepped:
            if not all(policy_lanes.is_answered() for policy_lanes in self.policy_lanes):
                return False
            self._step()
        # Every policy's writer is opened, even if an earlier one has no room.
        if not all([policy_lanes.writer.is_open or policy_lanes.writer.open() for policy_lanes in self.policy_lanes]):
            for policy_lanes in self.policy_lanes:
                policy_lanes.writer.flush()
            return has_stepped
        for policy_lanes in self.policy_lanes:
            policy_lanes.request_actions()
        self.is_waiting_for_actions = True
        if self._infers:
            self._step()
        return True

    def _step(self) -> None:
        self.is_waiting_for_actions = False
        actions = [policy_lanes.actions() for policy_lanes in self.policy_lanes]
        self._clock.switch("env")
        self.envs.step(actions)
        self._clock.switch("write")
        for policy_lanes in self.policy_lanes:
            policy_lanes.writer.record()


class PolicyLanes:
    """One policy's lanes in a group, with the writer of their experience and their requests for actions."""

    def __init__(
        self, spec: RolloutSpec, number: int, lanes: Lanes, arena: ExperienceArena, actor: Actor | None, clock: Clock
    ) -> None:
        shape, policy = arena.shape, arena.policy
        first_lane = number * shape.group_size
        streams = range(shape.first_lane + first_lane, shape.first_lane + first_lane + shape.group_size)
        self.policy = policy
        self.lanes = lanes
        self._epoch = int(arena.control[Control.RUN_EPOCH])
        self._began_before_fence = np.zeros(shape.group_size, np.bool_)  # the running episode of each lane
        self._ended: list[tuple[EpisodeRecord, bool]] = []
        self._metrics: list[tuple[dict[str, float], bool]] = []
        self._number = number
        self._arena = arena
        self._actor = actor
        self._clock = clock
        self.writer = spec.paths[policy].writer(arena, spec.worker, lanes, first_lane, actor, clock)
        self._noise = NoiseStreams(
            shape.action.noise, shape.action.noise_size, streams, seed=spec.seed + policy, incarnation=spec.incarnation,
            hold=spec.noise_hold[policy] if spec.noise_hold else 1,
        )  # fmt: skip
        action = arena.columns["action"]
        self._actions = np.empty((shape.group_size, *action.shape[1:]), action.dtype)

    def is_answered(self) -> bool:
        """Return whether the requested actions are chosen."""
        return self._arena.requests.is_answered(self._number)

    def request_actions(self) -> None:
        """Request the lanes' next actions; with local inference they are chosen when this returns."""
        epoch = int(self._arena.control[Control.RUN_EPOCH])
        if epoch != self._epoch:
            self._epoch = epoch
            self._mark_fence()
        self.writer.restart_if_fenced()
        noise = self._noise.draw()
        if not self.lanes.asked.any():  # the turn of other agents
            return
        rows: np.ndarray = self.writer.rows
        if self.lanes.agents:
            rows = np.where(self.lanes.asked, rows, NOT_ASKED)
        if self._actor is None:
            self._arena.requests.ask(self._number, rows, noise)
        else:
            self._clock.switch("infer")
            self._arena.requests.ask_and_answer(self._number, rows, noise, self._actor.answer)

    def actions(self) -> np.ndarray:
        """Return the chosen actions; those of lanes that requested none are undefined."""
        gather(self._arena.columns["action"], self.writer.rows, self._actions)
        return self._actions

    def take_episodes(self) -> list[tuple[EpisodeRecord, bool]]:
        """Return the episodes that ended since the last call, each with whether it began after the last fence."""
        self._collect_episodes()
        ended, self._ended = self._ended, []
        return ended

    def take_metrics(self) -> list[tuple[dict[str, float], bool]]:
        """Return the metrics reported since the last call, each with whether it follows the last fence."""
        found, self._metrics = [*self._metrics, (self.lanes.take_metrics(), True)], []
        return [each for each in found if each[0]]

    def _collect_episodes(self) -> None:
        for episode in self.lanes.take_episodes():
            self._ended.append((episode, not self._began_before_fence[episode.lane]))
            self._began_before_fence[episode.lane] = False

    def _mark_fence(self) -> None:
        """Mark all episodes and metrics so far as results of weights or settings that have been replaced."""
        self._collect_episodes()
        self._ended = [(episode, False) for episode, _ in self._ended]
        self._metrics = [(metrics, False) for metrics, _ in self.take_metrics()]
        self._began_before_fence[:] = self.lanes.running_lengths > 0


def _first_lane(spec: RolloutSpec, arena: ExperienceArena, number: int) -> int:
    """Return the number of a group's first lane in the run; a worker's lanes are contiguous, policy by policy."""
    shape = arena.shape
    if spec.env.population == 1:
        return (shape.first_worker * shape.num_envs_per_worker + number * shape.envs_per_group) * spec.env.seats
    of_worker = [lanes * (shape.first_worker + spec.worker) for lanes in spec.lanes_per_worker]
    before = sum(of_worker) + sum(spec.lanes_per_worker[: arena.policy])
    return before + number % shape.num_groups * shape.group_size
