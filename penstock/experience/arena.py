"""The arena of one run, seen as named arrays, rings and bells. Who writes each shared word is said here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from penstock.envs.statistics import moments_nbytes
from penstock.experience.layout import MOST_TUNABLES, RETURN_NBYTES, ROLES_OF_FEATURES, RunShape
from penstock.experience.requests import Requests
from penstock.experience.statistics import SharedStatistics
from penstock.ipc import Arena, Doorbell, Ring, SlotState, SlotTable, WeightsBlock, fence, require_memory


class Control(IntEnum):
    """Words by which the supervisor steers the run; it alone writes them, where nothing else is said."""

    RUN_EPOCH = 0
    """Experience begun in an earlier epoch is thrown away."""
    GOAL = 1
    """The learner takes no further batch once it has learned from this many steps."""
    WEIGHTS_SET = 2
    """Replacements of the shared parameters from outside; written by the learner."""
    PACE = 3
    """Nanoseconds that the learner's last batch took it; 0 where time is to decide nothing; written by the learner."""
    MEETING = 4
    """Meetings requested of a learner group; written by the first learner."""
    CALLS = 5
    """Joint operations requested of a learner group; written by the first learner."""
    TOGETHER = 6
    """Meetings held by a learner group; written by the first learner."""
    UPDATES = 7
    """Updates that they have made; written by the first of them."""
    BATCHES = 8
    """Batches that they have learned from, where these come from replay; written by the first of them."""


class Contribution(IntEnum):
    """Counters of a rollout worker that learns, in its row of ``contributions``."""

    STEPS = 0
    """Steps learned from."""
    UPDATES = 1
    """Gradients applied to the shared parameters."""
    SKIPPED = 2
    """Gradients left out because they were not finite."""
    MASKED = 3
    """Steps not learned from."""
    IS_LEARNING = 4
    """1 while a gradient is computed and applied, else 0."""


class ExperienceArena:
    """Everything that the roles share of one policy.

    Parameters
    ----------
    shape
        The run's numbers.
    arena
        The mapped memory, laid out by a process that called `create`.
    fresh
        Lay it out.
    begin
        Where it begins in the mapped memory.
    first
        The arena of the run's first policy, whose learner's and rollout workers' bells are those of all; None: it is
        this.

    Attributes
    ----------
    policy
        Number of the policy.
    policies : tuple of ExperienceArena
        Of the run's first policy: the arenas of all of them, this first.
    tunables : ndarray
        float64 ``[64]``: settings that may change while the run goes on, see `Tunables`; written by the supervisor's
        process.
    columns : dict of str to ndarray
        ``[num_slots * (T + 1), ...]``: obs, first, reward, terminated, truncated and valid are written by the rollout
        worker that owns the slot; action, log_prob, version and the algorithm's records by whoever infers for it.
    slots : SlotTable
        State, owner and generation of each slot: the truth.
    full : Ring
        Numbers of slots that may be full, in the order in which they became so: hints.
    weights : WeightsBlock
        Written by the learner (by the supervisor while the learner rests).
    best_weights : WeightsBlock
        The best weights that any evaluation has seen; written by the evaluator (by the trainer before there is one).
    blocks : dict of str to WeightsBlock
        Those that the data path has besides (`PathMemory.blocks`), by name.
    bells : dict of str to Doorbell
        Those of the roles that features add, by kind.
    slot_number : ndarray
        int64 ``[num_slots]``: which segment of its lane lies in each slot; written by the rollout worker that owns it.
        Successive segments have successive numbers: one that is missing was thrown away.
    slot_altered : ndarray
        int64 ``[num_slots]``: steps in each slot whose rewards the data path has altered; written, as these rewards
        are, by the rollout worker that owns it, and of another node's lanes by the receiver.
    decision_memory : ndarray
        float32 ``[num_lanes, S]``, where environments have several agents: the memory state that each lane's last
        action was chosen from; written by whoever infers.
    shared_weights, square_averages : ndarray
        Parameters that rollout workers train together, and their optimiser's state: written by all of them, no locks.
    contributions : ndarray
        int64 ``[num_workers + 1, 8]``: see `Contribution`; each row is written by its worker, the last one, which says
        what was before, by the supervisor before there are any.
    requests : Requests
        What the groups of lanes ask of whoever infers for them.
    pool : StateOfSplit or None
        What the split of seats shares between roles, such as past versions of the policy.
    statistics : SharedStatistics or None
        Running statistics of the environment's wrappers: of the first policy's arena, where there are any.
    unlearned : ExperienceArena or None
        Of a policy's arena: that of the lanes in which the policy acts and does not learn; None where there are none.
    """

    def __init__(
        self,
        shape: RunShape,
        arena: Arena,
        *,
        fresh: bool = False,
        begin: int = 0,
        first: ExperienceArena | None = None,
    ) -> None:
        self.shape = shape
        self.arena = arena
        regions = shape.regions(begin)

        def array(name: str) -> np.ndarray:
            region = regions[name]
            return arena.array(region.offset, region.shape, region.dtype)

        def offset(name: str) -> int:
            return regions[name].offset

        def block(name: str, nbytes: int = shape.weights_nbytes) -> WeightsBlock:
            if fresh:
                return WeightsBlock.create(arena, offset(name), nbytes)
            return WeightsBlock.attach(arena, offset(name))

        self.columns = {column.name: array(column.name) for column in shape.step_columns()}
        self.control = array("control")[:, 0]
        self.tunables = array("tunables")
        self.policy = 0 if first is None else len(first.policies)
        self.gauges: np.ndarray = array("gauges") if first is None else first.gauges
        self.shared_weights = array("shared_weights")
        self.square_averages = array("square_averages")
        self.contributions = array("contributions")
        self.slot_epoch = array("slot_epoch")
        self.slot_number = array("slot_number")
        self.slot_altered = array("slot_altered")
        self.slot_memory = array("slot_memory")
        self.decision_memory = array("decision_memory")

        if fresh:
            self.full = Ring.create(arena, offset("full"), 4 * shape.num_slots)  # hints may be doubled after a death
            self.slots = SlotTable.create(arena, offset("slots"), shape.num_slots)
            self.weights = WeightsBlock.create(arena, offset("weights"), shape.weights_nbytes)
            self.best_weights = WeightsBlock.create(arena, offset("best_weights"), shape.weights_nbytes + RETURN_NBYTES)
        else:
            self.full = Ring.attach(arena, offset("full"))
            self.slots = SlotTable.attach(arena, offset("slots"))
            self.weights = WeightsBlock.attach(arena, offset("weights"))
            self.best_weights = WeightsBlock.attach(arena, offset("best_weights"))
        self.blocks = {name: block(f"{name}_block", nbytes) for name, nbytes in shape.path_memory.blocks}
        bell = Doorbell.create if fresh else Doorbell.attach
        self.policy_bells = [bell(arena, offset(f"policy_bell_{i}")) for i in range(shape.num_policy_workers)]
        self.evaluator_bell = bell(arena, offset("evaluator_bell"))
        self.bells = {kind: bell(arena, offset(f"{kind}_bell")) for kind in ROLES_OF_FEATURES}
        if first is None:
            self.learner_bell = bell(arena, offset("learner_bell"))
            self.rollout_bells = [bell(arena, offset(f"rollout_bell_{i}")) for i in range(shape.num_workers)]
        else:
            self.learner_bell, self.rollout_bells = first.learner_bell, first.rollout_bells
        self.requests = Requests(shape, array, self.policy_bells, self.rollout_bells)
        self.pool = None if shape.split is None else shape.split.pool(array, block)
        nbytes = sum(map(moments_nbytes, shape.statistics))
        blocks = [block(f"statistics_{i}", nbytes) for i in range(shape.num_workers + 1 if nbytes else 0)]
        self.statistics = SharedStatistics(blocks, shape.statistics) if blocks else None
        self.unlearned: ExperienceArena | None = None
        self.policies: tuple[ExperienceArena, ...] = (self,)
        for other in shape.others:
            begin += self.policies[-1].shape.nbytes()
            self.policies += (ExperienceArena(other, arena, fresh=fresh, begin=begin, first=self),)
        if first is not None and shape.plays is not None:
            played = first.policies[shape.plays]
            self.weights, played.unlearned = played.weights, self

    @classmethod
    def create(cls, shape: RunShape) -> ExperienceArena:
        """Reserve the memory of a run and lay it out.

        Raises
        ------
        MemoryError
            There is too little room; the message shows the arithmetic.
        """
        shapes = (shape, *shape.others)
        nbytes = sum(each.nbytes() for each in shapes)
        largest = sorted(shape.regions().values(), key=lambda region: -region.nbytes)[:3]
        parts = ", ".join(f"{region.name} {region.nbytes / 2**20:.1f} MiB" for region in largest)
        what = "the experience arena" if len(shapes) == 1 else f"experience arenas of {len(shapes)} policies, the first"
        require_memory(
            nbytes,
            f"{what} ({shape.num_slots} slots of {shape.rows_per_slot} rows for {shape.num_lanes} lanes: "
            f"{parts}); use fewer lanes, or a smaller segment_length or batch_size",
        )
        return cls(shape, Arena.create(nbytes), fresh=True)

    @classmethod
    def attach(cls, shape: RunShape, fd: int) -> ExperienceArena:
        """Map the arena of a run through a descriptor received from its creator."""
        return cls(shape, Arena.attach(fd))

    def gauges_of(self, role: str) -> np.ndarray:
        """Gauges of a role, by its name, float64 ``[32]``: the role's clock alone writes them.

        The first policy's arena holds those of all policies' roles.
        """
        row: np.ndarray = self.gauges[self.shape.gauge_row(role, self.policy)]
        return row

    def state(self) -> dict[str, Any]:
        """State of lanes that the policy does not learn from, for its checkpoints."""
        pool = None if self.unlearned is None else self.unlearned.pool
        return {} if pool is None else pool.state()

    def ring_all(self) -> None:
        """Wake every role that sleeps on a doorbell; of the first policy's arena, those of all policies."""
        for arena in self.policies:
            for bell in (arena.learner_bell, *arena.policy_bells, arena.evaluator_bell, *arena.bells.values()):
                bell.ring()
        self.ring_rollout_workers()

    def ring_rollout_workers(self) -> None:
        """Wake the rollout workers."""
        for bell in self.rollout_bells:
            bell.ring()

    def lane_of(self, slots: np.ndarray) -> np.ndarray:
        """Number of the lane whose segments lie in each slot."""
        return slots % self.shape.num_lanes

    def waiting(self) -> np.ndarray:
        """Slots whose segments the learner has not read to the end, full or being read, int64 ``[K]``."""
        # In this order what the learner takes hold of meanwhile is missed, not counted twice.
        return np.concatenate([self.slots.in_state(SlotState.READING), self.slots.in_state(SlotState.FULL)])

    def take(self, lanes: np.ndarray, slots: np.ndarray, worker: int, plenty: float = math.inf) -> bool:
        """Take one of its slots for each lane to write.

        Parameters
        ----------
        lanes
            int64 ``[N]``: numbers of the lanes.
        slots
            int64 ``[N]``: the slot that each holds; where it is -1, that of a free one it may have is written there.
        worker
            Whose lanes they are.
        plenty
            While so many segments wait for the learner, a lane of which one waits gets no further slot.

        Returns
        -------
        bool
            Whether all lanes hold a slot now.
        """
        if (slots >= 0).all():
            return True
        waiting = self.waiting()
        may_write = np.full(len(lanes), True) if len(waiting) < plenty else ~np.isin(lanes, self.lane_of(waiting))
        for turn in range(self.shape.slots_per_lane):
            without = np.flatnonzero((slots < 0) & may_write)
            if not len(without):
                break
            wanted = lanes[without] + turn * self.shape.num_lanes
            won = self.slots.claim(wanted, SlotState.FREE, SlotState.WRITING, worker)
            slots[without[won]] = wanted[won]
        return bool((slots >= 0).all())

    def release(self, slots: np.ndarray) -> None:
        """Give slots that the learner has read back to their lanes."""
        self.slots.claim(slots, SlotState.READING, SlotState.FREE, 0)
        self.ring_rollout_workers()

    def reclaim(self, worker: int) -> None:
        """Take back what a dead rollout worker was writing, and announce what it had no time to.

        The supervisor calls this once no policy worker can still be answering the dead worker's requests.
        """
        writing = self.slots.owned_by(worker, SlotState.WRITING)
        self.slots.claim(writing, SlotState.WRITING, SlotState.FREE, 0, from_owner=worker)
        self._announce_anew()

    def void(self, slots: np.ndarray) -> None:
        """Let slots hold a segment of this run epoch without a valid step."""
        shape = self.shape
        for column in self.columns.values():
            column.reshape(shape.num_slots, shape.rows_per_slot, *column.shape[1:])[slots] = 0
        self.slot_epoch[slots] = self.control[Control.RUN_EPOCH]
        self.slot_memory[slots] = 0.0
        self.slot_altered[slots] = 0

    def reclaim_read(self) -> None:
        """Give back what a dead learner was reading, and announce anew what it had no time to read."""
        self.release(self.slots.in_state(SlotState.READING))
        self._announce_anew()

    def _announce_anew(self) -> None:
        announced = self.full.pop_many(self.full.capacity)  # in their order: every lane gets its turn by it
        unannounced = np.setdiff1d(self.slots.in_state(SlotState.FULL), announced)
        self.full.push_many(np.concatenate([announced, unannounced]))
        self.ring_rollout_workers()
        self.learner_bell.ring()


class Tunables:
    """Values of tunable settings in shared memory: one process writes them, any number reads them.

    Parameters
    ----------
    row
        float64 ``[64]``: the number of changes so far, odd while one is under way, and a value for each name; NaN
        where the config's own holds. Written by the supervisor's process.
    names
        Of the settings, the same in every process.
    """

    def __init__(self, row: np.ndarray, names: Sequence[str]) -> None:
        self._row = row
        self._names = tuple(names)[:MOST_TUNABLES]
        self._seen = 0.0

    def write(self, values: Mapping[str, float]) -> None:
        """Replace all values; a setting without one has the config's own again."""
        self._row[0] += 1
        fence()
        for place, name in enumerate(self._names, start=1):
            self._row[place] = values.get(name, math.nan)
        fence()
        self._row[0] += 1

    def news(self) -> dict[str, float] | None:
        """Return the values that are set, by name; None if they are those of the last call, as at the start none are.

        What is being written meanwhile is news for the next call.
        """
        count = self._row[0]
        if count == self._seen or count % 2:
            return None
        fence()
        values = {name: float(value) for name, value in zip(self._names, self._row[1:], strict=False)}
        fence()
        if self._row[0] != count:
            return None
        self._seen = count
        return {name: value for name, value in values.items() if not math.isnan(value)}
