"""The rollout worker: steps lanes and writes experience. Imports no torch: whoever infers for it is handed in."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from penstock.engine.clock import Clock
from penstock.engine.noise import NoiseStreams
from penstock.envs.making import make_lanes
from penstock.envs.spec import EnvSpec
from penstock.experience.arena import ExperienceArena
from penstock.experience.replay import Replay
from penstock.experience.requests import Pending
from penstock.experience.segments import OwnSegmentWriter, SegmentWriter
from penstock.experience.transitions import TransitionWriter
from penstock.ipc import gather

Report = Callable[[str, Any], None]
REPORT_INTERVAL = 0.1  # seconds


class ExperienceWriter(Protocol):
    """Keeps the rows in which a group's lanes stand, and writes what their steps bring."""

    waits_for: str
    is_open: bool

    @property
    def rows(self) -> np.ndarray: ...

    def open(self) -> bool: ...

    def restart_if_fenced(self) -> None: ...

    def record(self) -> None: ...


class Learns(Protocol):
    """Whoever learns from a worker's own segments on the spot."""

    def is_wanted(self) -> bool: ...

    def learn(self, slots: np.ndarray) -> bool: ...


class Infers(Protocol):
    """Whoever answers requests on the spot."""

    def answer(self, pending: Pending) -> None: ...


@dataclass(frozen=True)
class RolloutSpec:
    """What a rollout worker is told: plain data, never an algorithm's config.

    With `replay` it writes transitions into that; without, segments into the arena's slots.
    """

    worker: int
    env: EnvSpec
    seed: int
    incarnation: int
    num_threads: int
    replay: Replay | None = None


class RolloutWorker:
    """Steps its groups of lanes in turn, each as soon as its actions are there.

    Parameters
    ----------
    spec
        What it is told.
    arena
        The run's arena.
    report
        Called with ("episodes", list of (return, length)) and ("metrics", dict) now and then.
    inference
        Answers requests at once (local inference); None: a policy worker will.
    learner
        Learns from full segments at once; None: they go to the learner.
    """

    ACTIVITIES = (
        "env", "infer", "write", "learn",
        "wait for slots", "wait for actions", "wait for learner", "wait for goal",
    )  # fmt: skip

    def __init__(
        self,
        spec: RolloutSpec,
        arena: ExperienceArena,
        report: Report,
        inference: Infers | None,
        learner: Learns | None = None,
    ) -> None:
        self.bell = arena.rollout_bells[spec.worker]
        self._report = report
        self._clock = Clock(arena.gauges[spec.worker], self.ACTIVITIES)
        shape = arena.shape
        self._groups = [
            LaneGroup(spec, arena, spec.worker * shape.num_groups + i, self._clock, inference, learner)
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

    def handle(self, command: str, payload: Any) -> None:
        """Take a command of the supervisor; a rollout worker knows none."""
        raise ValueError(f"a rollout worker knows no command, found {command!r}")

    def close(self) -> None:
        """Report what is left, and close the environments."""
        self._report_episodes()
        for group in self._groups:
            group.lanes.close()

    def _report_episodes(self) -> None:
        episodes = [(e.episode_return, e.length) for group in self._groups for e in group.lanes.take_episodes()]
        if episodes:
            self._report("episodes", episodes)
        for group in self._groups:
            metrics = group.lanes.take_metrics()
            if metrics:
                self._report("metrics", metrics)


class LaneGroup:
    """The lanes of a worker that step together: their segments, their noise, and the request they wait for."""

    def __init__(
        self,
        spec: RolloutSpec,
        arena: ExperienceArena,
        number: int,
        clock: Clock,
        inference: Infers | None,
        learner: Learns | None,
    ) -> None:
        shape = arena.shape
        first_lane = number * shape.group_size
        clock.switch("env")
        self.lanes = make_lanes(
            spec.env, shape.group_size, seed=spec.seed, first_lane=first_lane, worker_index=spec.worker,
            incarnation=spec.incarnation, num_threads=spec.num_threads,
        )  # fmt: skip
        self._number = number
        self._arena = arena
        self._clock = clock
        self._inference = inference
        self._learner = learner
        self.writer = self._make_writer(spec, first_lane)
        self._noise = NoiseStreams(
            shape.action.noise, shape.action.noise_size, range(first_lane, first_lane + shape.group_size),
            seed=spec.seed, incarnation=spec.incarnation,
        )  # fmt: skip
        action = arena.columns["action"]
        self._actions = np.empty((shape.group_size, *action.shape[1:]), action.dtype)
        self.is_waiting_for_actions = False
        self.lanes.reset()

    def _make_writer(self, spec: RolloutSpec, first_lane: int) -> ExperienceWriter:
        place = self._arena, spec.worker, self.lanes, first_lane
        if spec.replay is not None:
            return TransitionWriter(*place, spec.replay)
        if self._learner is not None:
            return OwnSegmentWriter(*place, is_wanted=self._learner.is_wanted, learn=self._learn)
        return SegmentWriter(*place)

    def _learn(self, slots: np.ndarray) -> bool:
        assert self._learner is not None
        self._clock.switch("learn")
        return self._learner.learn(slots)

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
        if self._inference is not None:
            self._step()
        return True

    def _step(self) -> None:
        self.is_waiting_for_actions = False
        gather(self._arena.columns["action"], self.writer.rows, self._actions)
        self._clock.switch("env")
        self.lanes.step(self._actions)
        self._clock.switch("write")
        self.writer.record()

    def _ask(self) -> None:
        self.writer.restart_if_fenced()
        requests, rows, noise = self._arena.requests, self.writer.rows, self._noise.draw()
        if self._inference is None:
            requests.ask(self._number, rows, noise)
        else:
            self._clock.switch("infer")
            requests.ask_and_answer(self._number, rows, noise, self._inference.answer)
        self.is_waiting_for_actions = True
