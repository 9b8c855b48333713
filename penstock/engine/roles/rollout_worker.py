"""The rollout worker: steps lanes and writes experience. Imports no torch: whoever infers for it is handed in."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.engine.messages import Command, EnvironmentMetrics, EnvironmentSteps, Episodes, Tell, unknown
from penstock.engine.watching.clock import Clock
from penstock.envs.making import make_lanes
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
    path: DataPath
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
        The run's arena.
    report
        Called with `Episodes`, `EnvironmentMetrics` and `EnvironmentSteps` now and then.
    actor
        Answers requests at once (local inference); None: a policy worker will.
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
        actor: Actor | None,
    ) -> None:
        self.bell = arena.rollout_bells[spec.worker]
        self._report = report
        self._clock = Clock(arena.gauges_of(f"rollout-{spec.worker}"), self.ACTIVITIES)
        shape = arena.shape
        self._groups = [
            LaneGroup(spec, arena, spec.worker * shape.num_groups + i, self._clock, actor)
            for i in range(shape.num_groups)
        ]
        self._next_report = 0.0

    def poll(self) -> bool:
        """Move every group on that can be moved; False if none could."""
        moved = [group.poll() for group in self._groups]
        if not any(moved):
            actions = any(group.is_waiting_for_actions for group in self._groups)
            self._clock.switch("wait for actions" if actions else self._groups[0].writer.waits_for)
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
            group.lanes.close()

    def _report_episodes(self) -> None:
        episodes = [episode for group in self._groups for episode in group.lanes.take_episodes()]
        if episodes:
            played = [episode for episode in episodes if episode.length]
            finished = [(episode.episode_return, episode.length) for episode in played]
            self._report(Episodes(finished, [episode.success for episode in played]))
        for group in self._groups:
            metrics = group.lanes.take_metrics()
            if metrics:
                self._report(EnvironmentMetrics(metrics))
        if count := sum(group.lanes.take_env_steps() for group in self._groups):
            self._report(EnvironmentSteps(count))


class LaneGroup:
    """The lanes of a worker that step together: their segments, their noise, and the request they wait for."""

    def __init__(
        self,
        spec: RolloutSpec,
        arena: ExperienceArena,
        number: int,
        clock: Clock,
        actor: Actor | None,
    ) -> None:
        shape = arena.shape
        first_lane = number * shape.group_size
        clock.switch("env")
        self.lanes = make_lanes(
            spec.env, shape.envs_per_group, seed=spec.seed, first_lane=first_lane, worker_index=spec.worker,
            incarnation=spec.incarnation, num_threads=spec.num_threads,
        )  # fmt: skip
        self._number = number
        self._arena = arena
        self._clock = clock
        self._actor = actor
        self.writer = spec.path.writer(arena, spec.worker, self.lanes, first_lane, actor, clock)
        self._noise = NoiseStreams(
            shape.action.noise, shape.action.noise_size, range(first_lane, first_lane + shape.group_size),
            seed=spec.seed, incarnation=spec.incarnation,
        )  # fmt: skip
        action = arena.columns["action"]
        self._actions = np.empty((shape.group_size, *action.shape[1:]), action.dtype)
        self.is_waiting_for_actions = False
        self.lanes.reset()

    def poll(self) -> bool:
        """Step if the actions are there, then ask for the next ones; False if neither was possible.

        Who infers here does not leave a question open: it is answered with the newest weights, and stepped upon.
        """
        has_stepped = self.is_waiting_for_actions
        if has_stepped:
            if not self._arena.requests.is_answered(self._number):
                return False
            self._step()
        if not self.writer.is_open and not self.writer.open():
            return has_stepped
        self._ask()
        if self._actor is not None:
            self._step()
        return True

    def _step(self) -> None:
        self.is_waiting_for_actions = False
        gather(self._arena.columns["action"], self.writer.rows, self._actions)
        self._clock.switch("env")
        self.lanes.step(self._actions)
        self._clock.switch("write")
        self.writer.record()

    def _asking_rows(self) -> np.ndarray:
        """Rows of the lanes that want an action; -1 for a lane that waits for its turn."""
        rows: np.ndarray = self.writer.rows
        return np.where(self.lanes.asked, rows, NOT_ASKED) if self.lanes.agents else rows

    def _ask(self) -> None:
        self.writer.restart_if_fenced()
        requests, rows, noise = self._arena.requests, self._asking_rows(), self._noise.draw()
        if self._actor is None:
            requests.ask(self._number, rows, noise)
        else:
            self._clock.switch("infer")
            requests.ask_and_answer(self._number, rows, noise, self._actor.answer)
        self.is_waiting_for_actions = True
