"""Layout of the arena: computed once from a few numbers, identical in every process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from penstock.config.features import FEATURES
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.envs.statistics import moments_nbytes
from penstock.ipc import Doorbell, Ring, SlotTable, WeightsBlock

ALIGNMENT = 64  # a cache line: different processes never write to the same one
RETURN_NBYTES = 8  # of the mean return, after the best weights

MOST_TUNABLES = 63
"""Number of settings in the arena's row of tunable settings, which begins with the number of changes."""


class RoleKind(StrEnum):
    """Kind of a role. Where a run has several roles of a kind, a name is kind and number, such as "rollout-0"."""

    ROLLOUT = "rollout"
    POLICY = "policy"
    LEARNER = "learner"
    EVALUATOR = "evaluator"
    RANK = "rank"


ROLES_OF_FEATURES: tuple[str, ...] = tuple(kind for feature in FEATURES for kind in feature.roles)
"""Kinds of the roles that features add."""

SINGLE_ROLES: tuple[str, ...] = (RoleKind.POLICY, RoleKind.LEARNER, RoleKind.EVALUATOR, *ROLES_OF_FEATURES)
"""Kinds of roles of which a policy has at most one, numbered by the policy, such as "learner-1"."""


def policy_worker_name(policy: int, number: int) -> str:
    """Return the name of a policy worker: "policy-0" is the first of the first policy, "policy-0.1" the second."""
    return f"{RoleKind.POLICY}-{policy}.{number}" if number else f"{RoleKind.POLICY}-{policy}"


@dataclass(frozen=True)
class Column:
    """Named array with a row of this shape and dtype for every step, slot or lane."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Region:
    """Stretch of the arena, with shape and dtype of its array view."""

    name: str
    offset: int
    nbytes: int
    shape: tuple[int, ...]
    dtype: str


class StateOfSplit(Protocol):
    """Shared memory of lanes that are not learned from."""

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint of the policy that acts in these lanes."""
        ...


class SeatSplit(Protocol):
    """Split of a policy's seats between lanes of its own and lanes that it does not learn from; plain data."""

    def lanes(self, shape: RunShape) -> int:
        """Return the lanes of an arena in a group."""
        ...

    def columns(self, shape: RunShape) -> Iterable[Column]:
        """Return additional columns of the arena."""
        ...

    def pool(self, array: Callable[[str], np.ndarray], block: Callable[[str], WeightsBlock]) -> StateOfSplit | None:
        """Return the state in these columns, which `array` and `block` return by name; None if there is none."""
        ...

    def label(self, policy: str) -> str:
        """Return a name for the arena of lanes that a policy does not learn from, for messages."""
        ...


@dataclass(frozen=True)
class PathMemory:
    """Additional memory of one data path in the arena.

    Attributes
    ----------
    blocks
        Name and payload size of each weights block.
    columns
        Columns with a row for every step of a segment.
    """

    blocks: tuple[tuple[str, int], ...] = ()
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True)
class RunShape:
    """Numbers that define the layout of a run's arena; plain data, the same in every process.

    Attributes
    ----------
    num_workers, num_envs_per_worker, num_groups
        Rollout workers, environments per worker, and groups that these are split into.
    segment_length
        T: transitions per segment. Every column has T + 1 rows for each slot.
    slots_per_lane
        Slots per lane: slot s holds only segments of lane ``s % num_lanes``.
    segments_per_batch
        B: segments per batch.
    observation, action
        Specs of a lane.
    records
        Columns that the algorithm records while acting, beside action, log_prob and version.
    state_size
        Numbers of memory state per lane; 0 without memory.
    weights_nbytes
        Size of the weights block's payload.
    rounded_nbytes
        Size of its first part, of float32 parameters, that is sent to nodes as bfloat16.
    shared_nbytes
        Size of the parameters that rollout workers train together; 0: they train none.
    num_agents
        Lanes of each environment, one per agent of this policy, which may wait for each other; None: one lane, which
        never waits.
    others
        Shapes of the run's other policies, whose arenas follow this one.
    path_memory
        Additional memory of the data path.
    plays
        Number of the policy that acts in these lanes but does not learn from them; None: lanes of a policy's own.
    split
        Split of the policy's seats between such lanes and its own; None: all seats are its own.
    first_worker
        Number of the first rollout worker in the run: more than 0 on some of several nodes.
    num_learners
        Learners of the group; those after the first are ranks, counted from 1.
    statistics
        Numbers in the mean of each running statistic of the environment's wrappers; only in the first policy's arena.
    num_policy_workers
        Policy workers: number i answers every rollout worker w with ``w % num_policy_workers == i``.
    """

    num_workers: int
    num_envs_per_worker: int
    num_groups: int
    segment_length: int
    slots_per_lane: int
    segments_per_batch: int
    observation: ObservationSpec
    action: ActionSpec
    records: tuple[Column, ...]
    state_size: int
    weights_nbytes: int
    rounded_nbytes: int = 0
    shared_nbytes: int = 0
    path_memory: PathMemory = PathMemory()
    num_agents: int | None = None
    others: tuple[RunShape, ...] = ()
    plays: int | None = None
    split: SeatSplit | None = None
    first_worker: int = 0
    num_learners: int = 1
    num_policy_workers: int = 1
    statistics: tuple[int, ...] = ()

    @cached_property
    def num_lanes(self) -> int:
        """Lanes of the arena: of the run, or of one of several nodes."""
        return self.num_workers * self.lanes_per_worker

    @cached_property
    def first_lane(self) -> int:
        """Number of the first lane in the run."""
        return self.first_worker * self.lanes_per_worker

    @cached_property
    def lanes_per_worker(self) -> int:
        """Lanes of each rollout worker."""
        return self.num_groups * self.group_size

    @cached_property
    def envs_per_group(self) -> int:
        """Environments per group."""
        return self.num_envs_per_worker // self.num_groups

    @cached_property
    def group_size(self) -> int:
        """Lanes per group."""
        return self.envs_per_group * (self.num_agents or 1) if self.split is None else self.split.lanes(self)

    @property
    def all_groups(self) -> int:
        """Groups of the run."""
        return self.num_workers * self.num_groups

    @property
    def groups_per_policy_worker(self) -> int:
        """Largest number of groups of a policy worker."""
        return -(-self.num_workers // self.num_policy_workers) * self.num_groups

    @cached_property
    def num_slots(self) -> int:
        """Slots of the arena."""
        return self.num_lanes * self.slots_per_lane

    @cached_property
    def rows_per_slot(self) -> int:
        """T + 1."""
        return self.segment_length + 1

    def gauge_row(self, role: str, policy: int = 0) -> int:
        """Return the row of the gauges of a role by its name, such as "rollout-0", "learner-1" or "learner".

        A name without a number stands for the role of `policy`.
        """
        kind, _, numbers = role.partition("-")
        number, _, beside = numbers.partition(".")
        of = int(number) if number else policy
        if kind == RoleKind.RANK:
            return self._num_single_rows + of - 1
        if beside:
            return self._num_single_rows + self.num_learners - 1 + int(beside) - 1
        return of if kind == RoleKind.ROLLOUT else (
            self.num_workers + of * len(SINGLE_ROLES) + SINGLE_ROLES.index(kind)
        )

    @property
    def _num_single_rows(self) -> int:
        return self.num_workers + len(SINGLE_ROLES) * (1 + len(self.others))

    def step_columns(self) -> tuple[Column, ...]:
        """Return the columns with a row for every step of a segment; a global row is ``slot * (T + 1) + row``."""
        return (
            Column("obs", self.observation.shape, self.observation.dtype), Column("first", (), "bool"),
            Column("action", self.action.column_shape, self.action.column_dtype), Column("reward", (), "float32"),
            Column("terminated", (), "bool"), Column("truncated", (), "bool"), Column("valid", (), "bool"),
            Column("log_prob", (), "float32"), Column("version", (), "int64"), *self.records,
            *self.path_memory.columns,
        )  # fmt: skip

    def regions(self, begin: int = 0) -> dict[str, Region]:
        """Return the regions by name, in their order, of an arena that begins at `begin`."""
        return {region.name: region for region in self._lay_out(begin)}

    def nbytes(self) -> int:
        """Return the size of the arena, without those of other policies; a multiple of `ALIGNMENT`."""
        last = list(self.regions().values())[-1]
        return -(-(last.offset + last.nbytes) // ALIGNMENT) * ALIGNMENT

    def _lay_out(self, offset: int) -> Iterator[Region]:
        for name, shape, dtype, nbytes in self._wanted():
            yield Region(name, offset, nbytes, shape, dtype)
            offset += -(-nbytes // ALIGNMENT) * ALIGNMENT

    def _wanted(self) -> Iterator[tuple[str, tuple[int, ...], str, int]]:
        def array(name: str, shape: tuple[int, ...], dtype: str) -> tuple[str, tuple[int, ...], str, int]:
            return name, shape, dtype, max(1, math.prod(shape)) * np.dtype(dtype).itemsize

        def opaque(name: str, nbytes: int) -> tuple[str, tuple[int, ...], str, int]:
            return name, (nbytes,), "uint8", nbytes

        rows, size = self.num_slots * self.rows_per_slot, self.state_size
        yield array("control", (9, ALIGNMENT // 8), "int64")
        yield array("tunables", (1 + MOST_TUNABLES,), "float64")
        num_roles = self._num_single_rows + (self.num_learners - 1) + (self.num_policy_workers - 1)
        yield array("gauges", (num_roles, 32), "float64")
        policy_bells = (f"policy_bell_{i}" for i in range(self.num_policy_workers))
        feature_bells = (f"{kind}_bell" for kind in ROLES_OF_FEATURES)
        rollout_bells = (f"rollout_bell_{i}" for i in range(self.num_workers))
        for name in ("learner_bell", *policy_bells, "evaluator_bell", *feature_bells, *rollout_bells):
            yield opaque(name, Doorbell.nbytes)
        yield opaque("full", Ring.nbytes(4 * self.num_slots))
        yield opaque("slots", SlotTable.nbytes(self.num_slots))
        yield opaque("weights", WeightsBlock.nbytes(self.weights_nbytes))
        yield opaque("best_weights", WeightsBlock.nbytes(self.weights_nbytes + RETURN_NBYTES))
        yield from (opaque(f"{name}_block", WeightsBlock.nbytes(nbytes)) for name, nbytes in self.path_memory.blocks)
        yield array("shared_weights", (self.shared_nbytes,), "uint8")
        yield array("square_averages", (self.shared_nbytes,), "uint8")
        yield array("contributions", (self.num_workers + 1, ALIGNMENT // 8), "int64")
        yield array("open_steps", (self.num_workers,), "int64")
        yield array("slot_epoch", (self.num_slots,), "int64")
        yield array("slot_number", (self.num_slots,), "int64")
        yield array("slot_altered", (self.num_slots,), "int64")
        yield array("slot_memory", (self.num_slots, size), "float32")
        yield array("decision_memory", (self.num_lanes if self.num_agents else 0, size), "float32")
        yield array("asked", (self.all_groups, ALIGNMENT // 8), "int64")
        yield array("answered", (self.all_groups, ALIGNMENT // 8), "int64")
        yield array("request_rows", (self.all_groups, self.group_size), "int64")
        yield array("noise", (self.all_groups, self.group_size, self.action.noise_size), "float32")
        yield array("lane_memory", (2, self.all_groups, self.group_size, size), "float32")
        yield array("deaths", (self.num_policy_workers, ALIGNMENT // 8), "int64")
        yield array("deaths_passed", (self.num_policy_workers, ALIGNMENT // 8), "int64")
        for i in range(self.num_workers + 1 if self.statistics else 0):
            yield opaque(f"statistics_{i}", WeightsBlock.nbytes(sum(map(moments_nbytes, self.statistics))))
        for column in () if self.split is None else self.split.columns(self):
            yield array(column.name, column.shape, column.dtype)
        for column in self.step_columns():
            yield array(column.name, (rows, *column.shape), column.dtype)


def row_name(column: str) -> str:
    """Return the name of a column in a replay buffer, where "terminated" and "truncated" would end an episode."""
    return f"is_{column}" if column in ("terminated", "truncated") else column
