"""Counting lanes written by the engine's own writer into a real arena, and read back as a learner would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.envs import Lanes
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.layout import Column, RunShape
from penstock.experience.segments import SegmentWriter
from penstock.ipc import SlotState
from tests.envs.arrangements import counting_lanes
from tests.envs.counting import Ending


def run_shape(**numbers: object) -> RunShape:
    """A small run of one worker: two lanes of counting environments, T = 4, a slot for each lane, batches of two."""
    defaults: dict[str, object] = {
        "num_workers": 1,
        "num_envs_per_worker": 2,
        "num_groups": 1,
        "segment_length": 4,
        "slots_per_lane": 1,
        "segments_per_batch": 2,
        "observation": ObservationSpec((3,), "float32"),
        "action": ActionSpec((), "int64", num_actions=2),
        "records": (),
        "state_size": 0,
        "weights_nbytes": 8,
    }
    return RunShape(**{**defaults, **numbers})  # type: ignore[arg-type]


LOGITS = Column("logits", (2,), "float32")


def fill_slots(arena: ExperienceArena, slots: Sequence[int], seed: int = 0) -> None:
    """Fill granted slots of a node as its lanes would, with bytes of chance."""
    numbers, at = np.random.default_rng(seed), np.array(slots)
    assert arena.slots.claim(at, SlotState.FREE, SlotState.WRITING, 0).all()
    for column in arena.columns.values():
        whole = column.reshape(arena.shape.num_slots, -1)
        whole[at] = numbers.integers(0, 2, whole[at].shape).astype(column.dtype)
    arena.slot_epoch[at], arena.slot_number[at] = arena.control[Control.RUN_EPOCH], at + 1
    arena.slot_memory[at] = numbers.normal(size=(len(at), 3))
    arena.deliver(at, 0)


@dataclass
class Segment:
    """A copy of one slot's rows; the columns with a row for each transition have T of them."""

    slot: int
    epoch: int
    obs: np.ndarray
    first: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray
    log_prob: np.ndarray
    version: np.ndarray


class Writing:
    """Lanes with their writer, and the segments that came of them, lane by lane.

    The arena begins full of nonsense, and few slots are used over and over: nothing is right by chance.
    """

    def __init__(self, lanes: Lanes, length: int, slots_per_lane: int = 1) -> None:
        self.lanes = lanes
        agents = len(lanes.agents) or None
        shape = run_shape(
            num_envs_per_worker=lanes.num_lanes // (agents or 1), num_agents=agents, segment_length=length,
            slots_per_lane=slots_per_lane, observation=lanes.observation, action=lanes.action,
        )  # fmt: skip
        self.arena = ExperienceArena.create(shape)
        for column in self.arena.columns.values():
            column[...] = 77
        self.writer = SegmentWriter(self.arena, 0, lanes, first_lane=0)
        self.finished: list[list[Segment]] = [[] for _ in range(lanes.num_lanes)]
        lanes.reset()

    def play(self, num_steps: int) -> None:
        """Step all lanes, opening segments and taking finished ones as they come."""
        for _ in range(num_steps):
            if not self.writer.is_open:
                assert self.writer.open()
            self.step()
            self.take_finished()

    def step(self) -> None:
        """Choose actions for the lanes' current rows, and record the results."""
        rows = self.writer.rows[self.lanes.asked]
        self.arena.columns["version"][rows] = 5
        self.arena.columns["log_prob"][rows] = -0.5
        self.lanes.step(np.zeros(self.lanes.num_lanes, np.int64))
        self.writer.record()

    def fence(self) -> None:
        """Begin a new run epoch, as new weights do."""
        self.arena.control[Control.RUN_EPOCH] += 1
        self.writer.restart_if_fenced()

    def take_finished(self) -> None:
        """Copy the full slots, and give them back."""
        arena = self.arena
        slots = arena.take_full()
        for slot in slots.tolist():
            self.finished[arena.lane_of(slot)].append(self._copy(slot))
        arena.release(slots)

    def _copy(self, slot: int) -> Segment:
        length = self.arena.shape.segment_length
        rows = slice(slot * (length + 1), (slot + 1) * (length + 1))
        obs, first = (self.arena.columns[name][rows].copy() for name in ("obs", "first"))
        names = ("reward", "terminated", "truncated", "valid", "log_prob", "version")
        steps = {name: self.arena.columns[name][rows][:length].copy() for name in names}
        return Segment(slot, int(self.arena.slot_epoch[slot]), obs, first, **steps)


def write(
    arrangement: str, endings_of_lanes: Sequence[Sequence[Ending]], length: int, num_steps: int, slots_per_lane: int = 1
) -> Writing:
    """Play counting lanes for some steps."""
    writing = Writing(counting_lanes(arrangement, endings_of_lanes), length, slots_per_lane)
    writing.play(num_steps)
    writing.lanes.close()
    return writing


Step = tuple[list[float], bool, float, str, list[float] | None]
"""Observation, whether it begins an episode, reward, how the episode ended, and what the step led to."""


def written_steps(segments: Sequence[Segment]) -> list[Step]:
    """The valid steps of a lane's segments, in order; observations after a termination are omitted."""
    steps: list[Step] = []
    for segment in segments:
        for t in np.flatnonzero(segment.valid):
            ending = "terminated" if segment.terminated[t] else "truncated" if segment.truncated[t] else ""
            led_to = None if ending == "terminated" else segment.obs[t + 1].tolist()
            steps.append((segment.obs[t].tolist(), bool(segment.first[t]), float(segment.reward[t]), ending, led_to))
    return steps


def true_steps(lane: int, endings: Sequence[Ending], count: int) -> list[Step]:
    """The first steps that a counting lane really makes."""
    steps: list[Step] = []
    episode = 0
    while len(steps) < count:
        length, kind = endings[episode % len(endings)]
        for number in range(length):
            ending = "" if number + 1 < length else "truncated" if kind == "truncated" else "terminated"
            led_to = None if ending == "terminated" else [lane, episode, number + 1]
            steps.append(([lane, episode, number], number == 0, 1000.0 * episode + number + 1, ending, led_to))
        episode += 1
    return steps[:count]
