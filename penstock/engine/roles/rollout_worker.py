"""The rollout worker: steps lanes and writes experience. Imports no torch: whoever infers for it is handed in."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.config import FEATURES
from penstock.engine.messages import Command, EnvironmentMetrics, EnvironmentSteps, Episodes, Tell, unknown
from penstock.engine.watching.clock import Clock
from penstock.envs.episodes import EpisodeRecord
from penstock.envs.lanes import Lanes
from penstock.envs.making import lane_seed, make_group
from penstock.envs.spec import EnvSpec
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.requests import NOT_ASKED
from penstock.experience.statistics import WorkerStatistics
from penstock.ipc import gather
from penstock.play.noise import NoiseStreams
from penstock.self_play.matchmaking import games_of
from penstock.surroundings import seed_generators

if TYPE_CHECKING:
    from penstock.engine.contracts import Actor
    from penstock.engine.paths.base import DataPath

REPORT_INTERVAL = 0.1  # seconds


@dataclass(frozen=True)
class RolloutSpec:
    """Spec of a rollout worker: plain data, never an algorithm's config."""

    worker: int
    env: EnvSpec
    paths: tuple[DataPath, ...]
    """The ways of experience, one for each policy."""
    seed: int
    incarnation: int
    num_threads: int
    lanes_per_worker: tuple[int, ...] = ()
    """Lanes of each policy, where a population shares the workers."""
    heeds_time: bool = True
    """Whether a clock says when episodes are reported; in a serial run nothing depends on one."""


class RolloutWorker:
    """Steps its groups of lanes in turn, each as soon as its actions are there.

    Parameters
    ----------
    spec
        What it is told.
    arena
        The arena of the run's first policy.
    report
        Called with `Episodes`, `EnvironmentMetrics` and `EnvironmentSteps` now and then.
    actors
        Answer the requests of each policy's lanes at once (local inference); empty: policy workers will.
    """

    ACTIVITIES = (
        "env", "infer", "write", *(name for feature in FEATURES for name in feature.activities), "learn",
        "wait for slots", "wait for actions", "wait for learner", "wait for goal",
    )  # fmt: skip

    def __init__(
        self,
        spec: RolloutSpec,
        arena: ExperienceArena,
        report: Tell,
        actors: Sequence[Actor] = (),
    ) -> None:
        first_lane = _first_lane(spec, arena, spec.worker * arena.shape.num_groups)
        seed_generators(lane_seed(spec.seed, first_lane, spec.incarnation))  # forked processes begin with the same ones
        self.bell = arena.rollout_bells[spec.worker]
        self._report = report
        self._clock = Clock(arena.gauges_of(f"rollout-{spec.worker}"), self.ACTIVITIES)
        # A population's policies do not meet: each has groups of its own, and none waits for another's.
        together = [(each,) for each in arena.policies] if spec.env.population > 1 else [arena.policies]
        self._statistics = WorkerStatistics(arena.statistics, spec.worker)
        self._groups = [
            LaneGroup(
                spec, arenas, spec.worker * arenas[0].shape.num_groups + i, self._clock, actors, self._statistics
            )
            for arenas in together
            for i in range(arenas[0].shape.num_groups)
        ]
        self._teams = [team for group in self._groups for team in group.teams]
        self._report_interval = REPORT_INTERVAL if spec.heeds_time else 0.0
        self._next_report = 0.0

    def poll(self) -> bool:
        """Move every group on that can be moved; False if none could."""
        moved = [group.poll() for group in self._groups]
        if not any(moved):
            actions = any(group.is_waiting_for_actions for group in self._groups)
            self._clock.switch("wait for actions" if actions else self._groups[0].waits_for)
        now = time.monotonic()
        if now >= self._next_report:
            self._next_report = now + self._report_interval
            self._report_episodes()
            if self._statistics.held is not None:
                self._statistics.exchange()
        return any(moved)

    def handle(self, command: Command) -> None:
        """Take a command of the supervisor; a rollout worker knows none."""
        raise unknown("rollout worker", command)

    def close(self) -> None:
        """Report what is left, and close the environments."""
        self._report_episodes()
        for group in self._groups:
            group.envs.close()

    def _report_episodes(self) -> None:
        by_policy: dict[int, list[PolicyLanes]] = {}
        for team in self._teams:
            by_policy.setdefault(team.policy, []).append(team)
        for policy, teams in by_policy.items():
            ended = [each for team in teams for each in team.take_episodes() if each[0].length]
            if ended:
                finished = [(episode.episode_return, episode.length) for episode, _ in ended]
                successes, is_new = [episode.success for episode, _ in ended], [is_new for _, is_new in ended]
                self._report(Episodes(finished, successes, policy, is_new))
            for team in teams:
                for metrics, of_now in team.take_metrics():
                    self._report(EnvironmentMetrics(metrics, policy, of_now))
                if count := team.lanes.take_env_steps():
                    self._report(EnvironmentSteps(count))


class LaneGroup:
    """The environments of a worker that step together, and the team of each policy that acts in them.

    Parameters
    ----------
    spec, clock, actors
        Of the worker.
    arenas
        Of these policies.
    number
        Of the group, among those of the run.
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
            num_threads=spec.num_threads,
            games=games_of(arenas, spec.env.seats, group=number, seed=spec.seed, incarnation=spec.incarnation),
        )  # fmt: skip
        self._clock = clock
        self._infers = bool(actors)
        self.teams = [
            PolicyLanes(spec, number, lanes, arena, actors[arena.policy] if actors else None, clock)
            for lanes, arena in zip(self.envs.lanes, arenas, strict=True)
        ]
        self.is_waiting_for_actions = False
        statistics.take_in(self.envs.statistics)
        self.envs.reset()

    @property
    def waits_for(self) -> str:
        """The activity of waiting for a place to write."""
        waiting = [team.writer for team in self.teams if not team.writer.is_open]
        return (waiting or [self.teams[0].writer])[0].waits_for

    def poll(self) -> bool:
        """Step if the actions are there, then ask for the next ones; False if neither was possible.

        Who infers here does not leave a question open: it is answered with the newest weights, and stepped upon.
        """
        has_stepped = self.is_waiting_for_actions
        if has_stepped:
            if not all(team.is_answered() for team in self.teams):
                return False
            self._step()
        if not all([team.is_open() for team in self.teams]):
            for team in self.teams:
                team.writer.flush()
            return has_stepped
        for team in self.teams:
            team.ask()
        self.is_waiting_for_actions = True
        if self._infers:
            self._step()
        return True

    def _step(self) -> None:
        self.is_waiting_for_actions = False
        actions = [team.actions() for team in self.teams]
        self._clock.switch("env")
        self.envs.step(actions)
        self._clock.switch("write")
        for team in self.teams:
            team.writer.record()


class PolicyLanes:
    """One policy's part in a group: its lanes, what their experience is written through, and their requests."""

    def __init__(
        self,
        spec: RolloutSpec,
        number: int,
        lanes: Lanes,
        arena: ExperienceArena,
        actor: Actor | None,
        clock: Clock,
    ) -> None:
        shape, policy = arena.shape, arena.policy
        first_lane = number * shape.group_size
        streams = range(shape.first_lane + first_lane, shape.first_lane + first_lane + shape.group_size)
        self.policy = policy
        self.lanes = lanes
        self._epoch = int(arena.control[Control.RUN_EPOCH])
        self._began_before = np.zeros(shape.group_size, np.bool_)  # the fence: the running episode of each lane
        self._ended: list[tuple[EpisodeRecord, bool]] = []
        self._metrics: list[tuple[dict[str, float], bool]] = []
        self._number = number
        self._arena = arena
        self._actor = actor
        self._clock = clock
        self.writer = spec.paths[policy].writer(arena, spec.worker, lanes, first_lane, actor, clock)
        self._noise = NoiseStreams(
            shape.action.noise, shape.action.noise_size, streams, seed=spec.seed + policy, incarnation=spec.incarnation
        )
        action = arena.columns["action"]
        self._actions = np.empty((shape.group_size, *action.shape[1:]), action.dtype)

    def is_open(self) -> bool:
        """Whether there is a place to write what the lanes bring next; one is looked for if there is none."""
        return self.writer.is_open or self.writer.open()

    def is_answered(self) -> bool:
        """Whether the actions are there that were asked for."""
        return self._arena.requests.is_answered(self._number)

    def ask(self) -> None:
        """Ask for the lanes' next actions; who infers here answers at once."""
        self._heed_fence()
        self.writer.restart_if_fenced()
        noise = self._noise.draw()
        if not self.lanes.asked.any():  # others' turn
            return
        if self._actor is None:
            self._arena.requests.ask(self._number, self._asking_rows(), noise)
        else:
            self._clock.switch("infer")
            self._arena.requests.ask_and_answer(self._number, self._asking_rows(), noise, self._actor.answer)

    def take_episodes(self) -> list[tuple[EpisodeRecord, bool]]:
        """Episodes that ended since the last call, and of each whether it began after the last fence."""
        self._hear_lanes()
        ended, self._ended = self._ended, []
        return ended

    def take_metrics(self) -> list[tuple[dict[str, float], bool]]:
        """Numbers that environments reported since the last call, and whether after the last fence."""
        found, self._metrics = [*self._metrics, (self.lanes.take_metrics(), True)], []
        return [each for each in found if each[0]]

    def _hear_lanes(self) -> None:
        for episode in self.lanes.take_episodes():
            self._ended.append((episode, not self._began_before[episode.lane]))
            self._began_before[episode.lane] = False

    def _heed_fence(self) -> None:
        """Note what belongs to the policy as it was before its weights or settings were replaced."""
        epoch = int(self._arena.control[Control.RUN_EPOCH])
        if epoch != self._epoch:
            self._epoch = epoch
            self._hear_lanes()
            self._ended = [(episode, False) for episode, _ in self._ended]
            self._metrics = [(metrics, False) for metrics, _ in self.take_metrics()]
            self._began_before[:] = self.lanes.running_lengths > 0

    def actions(self) -> np.ndarray:
        """The actions that were answered; those of lanes that did not ask are of no meaning."""
        gather(self._arena.columns["action"], self.writer.rows, self._actions)
        return self._actions

    def _asking_rows(self) -> np.ndarray:
        """Rows of the lanes that want an action; `NOT_ASKED` for a lane that waits for its turn."""
        rows: np.ndarray = self.writer.rows
        return np.where(self.lanes.asked, rows, NOT_ASKED) if self.lanes.agents else rows


def _first_lane(spec: RolloutSpec, arena: ExperienceArena, number: int) -> int:
    """Number of a group's first lane among all of the run; a worker's lie together, policy by policy."""
    shape = arena.shape
    if spec.env.population == 1:
        return (shape.first_worker * shape.num_envs_per_worker + number * shape.envs_per_group) * spec.env.seats
    of_worker = [lanes * (shape.first_worker + spec.worker) for lanes in spec.lanes_per_worker]
    before = sum(of_worker) + sum(spec.lanes_per_worker[: arena.policy])
    return before + number % shape.num_groups * shape.group_size
