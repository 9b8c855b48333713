"""The rollout worker: steps lanes and writes experience. Imports no torch: whoever infers for it is handed in."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.engine.messages import Command, EnvironmentMetrics, EnvironmentSteps, Episodes, Tell, unknown
from penstock.engine.watching.clock import Clock
from penstock.envs.lanes import Lanes
from penstock.envs.making import make_group
from penstock.envs.spec import EnvSpec
from penstock.experience.arena import ExperienceArena
from penstock.experience.requests import NOT_ASKED
from penstock.ipc import gather
from penstock.play.noise import NoiseStreams

if TYPE_CHECKING:
    from penstock.engine.paths.base import Actor, DataPath

REPORT_INTERVAL = 0.1  # seconds


@dataclass(frozen=True)
class RolloutSpec:
    """What a rollout worker is told: plain data, never an algorithm's config."""

    worker: int
    env: EnvSpec
    paths: tuple[DataPath, ...]
    """The ways of experience, one for each policy."""
    seed: int
    incarnation: int
    num_threads: int


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
        "env", "infer", "write", "learn",
        "wait for slots", "wait for actions", "wait for learner", "wait for goal",
    )  # fmt: skip

    def __init__(
        self,
        spec: RolloutSpec,
        arena: ExperienceArena,
        report: Tell,
        actors: Sequence[Actor] = (),
    ) -> None:
        self.bell = arena.rollout_bells[spec.worker]
        self._report = report
        self._clock = Clock(arena.gauges_of(f"rollout-{spec.worker}"), self.ACTIVITIES)
        shape = arena.shape
        self._groups = [
            LaneGroup(spec, arena, spec.worker * shape.num_groups + i, self._clock, actors)
            for i in range(shape.num_groups)
        ]
        self._next_report = 0.0

    def poll(self) -> bool:
        """Move every group on that can be moved; False if none could."""
        moved = [group.poll() for group in self._groups]
        if not any(moved):
            actions = any(group.is_waiting_for_actions for group in self._groups)
            self._clock.switch("wait for actions" if actions else self._groups[0].waits_for)
        now = time.monotonic()
        if now >= self._next_report:
            self._next_report = now + REPORT_INTERVAL
            self._report_episodes()
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
        for policy, of_policy in enumerate(zip(*(group.envs.lanes for group in self._groups), strict=True)):
            episodes = [episode for lanes in of_policy for episode in lanes.take_episodes() if episode.length]
            if episodes:
                finished = [(episode.episode_return, episode.length) for episode in episodes]
                self._report(Episodes(finished, [episode.success for episode in episodes], policy))
            for lanes in of_policy:
                if metrics := lanes.take_metrics():
                    self._report(EnvironmentMetrics(metrics))
                if count := lanes.take_env_steps():
                    self._report(EnvironmentSteps(count))


class LaneGroup:
    """The environments of a worker that step together, and the team of each policy that acts in them."""

    def __init__(
        self, spec: RolloutSpec, arena: ExperienceArena, number: int, clock: Clock, actors: Sequence[Actor]
    ) -> None:
        first_env = arena.shape.first_worker * arena.shape.num_envs_per_worker + number * arena.shape.envs_per_group
        clock.switch("env")
        self.envs = make_group(
            spec.env, arena.shape.envs_per_group, seed=spec.seed, first_lane=first_env * spec.env.seats,
            worker_index=arena.shape.first_worker + spec.worker, incarnation=spec.incarnation,
            num_threads=spec.num_threads,
        )  # fmt: skip
        self._clock = clock
        self._infers = bool(actors)
        self._teams = [
            Team(spec, policy, number, lanes, of_policy, actors[policy] if actors else None, clock)
            for policy, (lanes, of_policy) in enumerate(zip(self.envs.lanes, arena.policies, strict=True))
        ]
        self.is_waiting_for_actions = False
        self.envs.reset()

    @property
    def waits_for(self) -> str:
        """The activity of waiting for a place to write."""
        waiting = [team.writer for team in self._teams if not team.writer.is_open]
        return (waiting or [self._teams[0].writer])[0].waits_for

    def poll(self) -> bool:
        """Step if the actions are there, then ask for the next ones; False if neither was possible.

        Who infers here does not leave a question open: it is answered with the newest weights, and stepped upon.
        """
        has_stepped = self.is_waiting_for_actions
        if has_stepped:
            if not all(team.is_answered() for team in self._teams):
                return False
            self._step()
        if not all([team.is_open() for team in self._teams]):
            return has_stepped
        for team in self._teams:
            team.ask()
        self.is_waiting_for_actions = True
        if self._infers:
            self._step()
        return True

    def _step(self) -> None:
        self.is_waiting_for_actions = False
        actions = [team.actions() for team in self._teams]
        self._clock.switch("env")
        self.envs.step(actions)
        self._clock.switch("write")
        for team in self._teams:
            team.writer.record()


class Team:
    """One policy's part in a group: its lanes, what their experience is written through, and their requests."""

    def __init__(
        self,
        spec: RolloutSpec,
        policy: int,
        number: int,
        lanes: Lanes,
        arena: ExperienceArena,
        actor: Actor | None,
        clock: Clock,
    ) -> None:
        shape = arena.shape
        first_lane = number * shape.group_size
        streams = range(shape.first_lane + first_lane, shape.first_lane + first_lane + shape.group_size)
        self._lanes = lanes
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
        self.writer.restart_if_fenced()
        noise = self._noise.draw()
        if not self._lanes.asked.any():  # others' turn
            return
        if self._actor is None:
            self._arena.requests.ask(self._number, self._asking_rows(), noise)
        else:
            self._clock.switch("infer")
            self._arena.requests.ask_and_answer(self._number, self._asking_rows(), noise, self._actor.answer)

    def actions(self) -> np.ndarray:
        """The actions that were answered; those of lanes that did not ask are of no meaning."""
        gather(self._arena.columns["action"], self.writer.rows, self._actions)
        return self._actions

    def _asking_rows(self) -> np.ndarray:
        """Rows of the lanes that want an action; `NOT_ASKED` for a lane that waits for its turn."""
        rows: np.ndarray = self.writer.rows
        return np.where(self._lanes.asked, rows, NOT_ASKED) if self._lanes.agents else rows
