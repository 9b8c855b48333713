"""Arena of one run as named arrays, rings, bells and requests; each shared word is documented with its writer.

Slots are freed only here: by `ExperienceArena.release` when their reader is done, by `reclaim` and `reclaim_read` when
a role has died, and by `give_up` when a taken slot is not written after all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from penstock.envs.statistics import moments_nbytes
from penstock.experience.layout import RETURN_NBYTES, ROLES_OF_FEATURES, RunShape
from penstock.experience.statistics import SharedStatistics
from penstock.ipc import Arena, Doorbell, Ring, SegmentMemory, SlotState, SlotTable, WeightsBlock, fence, require_memory


class Control(IntEnum):
    """Words that steer the run, written by the supervisor unless documented otherwise."""

    RUN_EPOCH = 0
    """Run epoch: experience begun in an earlier one is discarded."""
    GOAL = 1
    """Steps after which the learner takes no further batch."""
    WEIGHTS_SET = 2
    """Number of times that the shared parameters were replaced from outside; written by the learner."""
    PACE = 3
    """Nanoseconds of the learner's last batch; 0 if nothing depends on time; written by the learner."""
    MEETING = 4
    """Meetings requested of a learner group; written by the first learner."""
    CALLS = 5
    """Joint operations requested of a learner group; written by the first learner."""
    TOGETHER = 6
    """Meetings held by a learner group; written by the first learner."""
    UPDATES = 7
    """Updates made by a learner group; written by the first learner."""
    BATCHES = 8
    """Batches from replay that a learner group has learned from; written by the first learner."""


READER = 0xFFFF
"""Owner of slots in state READING."""
WITHDRAWN = -1
NOT_ASKED = -1
"""Row of a lane that waits for its turn, where environments have several agents."""


class Pending(NamedTuple):
    """Requests without an answer.

    Attributes
    ----------
    groups, numbers
        int64 ``[G]``: groups with a request, and the number of each group's request.
    """

    groups: np.ndarray
    numbers: np.ndarray


class Requests:
    """Requests for actions: the last request of every group of lanes, and whether it is answered.

    A group numbers its requests 1, 2, 3 and has one open at a time. Its rollout worker raises the group's word `asked`
    when the request is written. The policy worker raises `answered` to the same number when the actions are written.
    With local inference the rollout worker does both. Each of several policy workers answers certain rollout workers,
    see `RunShape`.

    The supervisor withdraws the requests of a dead rollout worker while its policy worker may be answering one.
    Therefore the supervisor counts deaths, and between two batches the policy worker publishes the count that it has
    passed: it answers no more requests from before these deaths. Only then does the supervisor reset the requests.

    Parameters
    ----------
    shape
        Shape of the run.
    array
        Function that returns an array of the arena by name.
    policy_bells, rollout_bells
        Bells of policy workers, rung by requests, and of rollout workers, rung by answers.

    Attributes
    ----------
    rows
        int64 ``[groups, group_size]``: rows of each group's lanes at its last request, or `NOT_ASKED`.
    noise
        float32 ``[groups, group_size, noise_size]``: random numbers for the requested actions.
    """

    def __init__(
        self, shape: RunShape, array: Callable[[str], np.ndarray], policy_bells: Sequence[Doorbell],
        rollout_bells: Sequence[Doorbell],
    ) -> None:  # fmt: skip
        # Written by the group's rollout worker; the supervisor withdraws and resets a dead worker's.
        self._asked = array("asked")[:, 0]
        self.rows = array("request_rows")
        self.noise = array("noise")
        # Written by the role that chooses actions; the supervisor resets a dead worker's.
        self._answered = array("answered")[:, 0]
        # Memory states of every lane in two buffers, float32 [2, groups, group_size, state_size]: request n starts from
        # buffer n % 2 and leaves the states after it in the other. Written by the role that chooses actions.
        self._memory = array("lane_memory")
        # Of each policy worker: deaths of its rollout workers, written by the supervisor, and the number of deaths that
        # it has passed, written by itself.
        self._deaths = array("deaths")[:, 0]
        self._passed = array("deaths_passed")[:, 0]
        self._rollout_bells = rollout_bells
        self._num_groups = shape.num_groups
        answering = np.arange(shape.all_groups) // shape.num_groups % shape.num_policy_workers
        self._answering = answering.tolist()  # the number of each group's policy worker
        self._bells = [policy_bells[number] for number in self._answering]  # and its bell
        self._are_of = [answering == number for number in range(shape.num_policy_workers)]
        # For local inference, made once.
        self._alone = [Pending(np.array([group]), np.zeros(1, np.int64)) for group in range(shape.all_groups)]

    def ask(self, group: int, rows: np.ndarray, noise: np.ndarray) -> None:
        """Request a group's next actions, and wake its policy worker.

        Parameters
        ----------
        group
            Number of the group.
        rows
            int64 ``[group_size]``: rows of its lanes, or `NOT_ASKED`.
        noise
            float32 ``[group_size, noise_size]``: random numbers for the actions.
        """
        self.rows[group] = rows
        self.noise[group] = noise
        fence()  # rows and noise are visible before the request
        self._asked[group] += 1
        self._bells[group].ring()

    def ask_and_answer(
        self, group: int, rows: np.ndarray, noise: np.ndarray, answer: Callable[[Pending], object]
    ) -> None:
        """Request actions as `ask` does, and call `answer` in this thread: no other role sees the request open."""
        self.rows[group] = rows
        self.noise[group] = noise
        pending = self._alone[group]
        number = int(self._asked[group]) + 1
        pending.numbers[0] = number
        answer(pending)
        self._asked[group] = number
        self._answered[group] = number

    def is_answered(self, group: int) -> bool:
        """Return whether a group has no open request; its actions can be read then."""
        if self._answered[group] != self._asked[group]:
            return False
        fence()  # the actions are read after the word
        return True

    def num_answered(self, group: int) -> int:
        """Return the number of a group's last answered request."""
        return int(self._answered[group])

    def pending(self, number: int = 0) -> Pending | None:
        """Return the open requests of a policy worker, which calls this between two batches; None if there are none.

        Requests of rollout workers that are dead by now are read as withdrawn.
        """
        deaths = self._deaths[number]
        fence()
        self._passed[number] = deaths
        asked = self._asked.copy()
        fence()  # rows and noise are read after the word
        groups = ((asked > self._answered) & self._are_of[number]).nonzero()[0]
        return Pending(groups, asked[groups]) if len(groups) else None

    def memory(self, pending: Pending) -> np.ndarray:
        """Return the memory states that these requests start from, float32 ``[N, state_size]``."""
        _, _, group_size, state_size = self._memory.shape
        return self._memory[pending.numbers & 1, pending.groups].reshape(len(pending.groups) * group_size, state_size)

    def keep_memory(self, pending: Pending, memory_after: np.ndarray) -> None:
        """Store the memory states that the next requests start from, float32 ``[N, state_size]``.

        An unfinished answer leaves the states that it started from unchanged.
        """
        turns = 1 - (pending.numbers & 1)
        self._memory[turns, pending.groups] = memory_after.reshape(len(turns), *self._memory.shape[2:])

    def mark_answered(self, pending: Pending) -> None:
        """Mark requests as answered, after their actions are written, and wake the rollout workers."""
        fence()  # the actions are visible before the answer
        self._answered[pending.groups] = pending.numbers
        for worker in set((pending.groups // self._num_groups).tolist()):
            self._rollout_bells[worker].ring()

    def withdraw(self, worker: int) -> int:
        """Withdraw the requests of a dead rollout worker; return the number of its death, for `has_passed`."""
        groups, number = self._groups_of(worker), self.policy_worker_of(worker)
        self._asked[groups] = WITHDRAWN
        fence()  # the withdrawal is visible before the death
        self._deaths[number] += 1
        self._bells[groups.start].ring()
        return int(self._deaths[number])

    def policy_worker_of(self, worker: int) -> int:
        """Return the number of the policy worker that answers a rollout worker."""
        number: int = self._answering[worker * self._num_groups]
        return number

    def has_passed(self, death: int, worker: int) -> bool:
        """Return whether no policy worker can still be answering a request from before a rollout worker's death."""
        return bool(self._passed[self.policy_worker_of(worker)] >= death)

    def reset(self, worker: int) -> None:
        """Reset the requests of a dead rollout worker, whose policy worker has passed the death or is gone."""
        groups = self._groups_of(worker)
        self._asked[groups] = 0
        self._answered[groups] = 0

    def _groups_of(self, worker: int) -> slice:
        return slice(worker * self._num_groups, (worker + 1) * self._num_groups)


class ExperienceArena:
    """Memory of one policy, shared by the roles.

    Parameters
    ----------
    shape
        Shape of the run.
    arena
        Mapped memory.
    fresh
        True: lay the memory out; False: it was laid out by `create`.
    begin
        Offset in the mapped memory.
    first
        Arena of the run's first policy, which holds the bells of the learner and the rollout workers; None: this one.

    Attributes
    ----------
    policy
        Number of the policy.
    policies : tuple of ExperienceArena
        Arenas of all policies, in the arena of the first.
    tunables : ndarray
        float64 ``[64]``: tunable settings, see `penstock.engine.roles.learner.Tunables`; written by the supervisor's
        process.
    columns : dict of str to ndarray
        ``[num_slots * (T + 1), ...]``: obs, first, reward, terminated, truncated and valid are written by the rollout
        worker that owns the slot; action, log_prob, version and the algorithm's records by the role that acts.
    slots : SlotTable
        State, owner and generation of each slot.
    full : Ring
        Numbers of slots that may be full, in the order in which they became full: hints.
    weights : WeightsBlock
        Written by the learner (by the supervisor while the learner rests).
    best_weights : WeightsBlock
        Weights of the best evaluation; written by the evaluator (by the trainer before there is one).
    blocks : dict of str to WeightsBlock
        Weights blocks of the data path (`PathMemory.blocks`), by name.
    bells : dict of str to Doorbell
        Bells of the roles that features add, by kind.
    slot_number : ndarray
        int64 ``[num_slots]``: number of the segment in each slot among those of its lane; written by the rollout worker
        that owns the slot. Successive segments have successive numbers: a missing one was discarded.
    slot_altered : ndarray
        int64 ``[num_slots]``: steps in each slot whose rewards the data path has altered; written, like these rewards,
        by the rollout worker that owns the slot, for another node's lanes by the receiver.
    decision_memory : ndarray
        float32 ``[num_lanes, S]``, where environments have several agents: the memory state that each lane's last
        action was chosen from; written by the role that chooses actions.
    shared_weights, square_averages : ndarray
        Parameters that rollout workers train together, and their optimiser's state: written by all workers, no locks.
    contributions : ndarray
        int64 ``[num_workers + 1, 8]``: see `penstock.engine.paths.hogwild.Contribution`; each row is written by its
        worker, the last row, with the counts at the start, by the supervisor before there are workers.
    open_steps : ndarray
        int64 ``[num_workers]``: steps admitted to the replay buffer that a node, counted at its first rollout worker,
        has not taken; written by the receiver.
    requests : Requests
        Requests of the groups of lanes for actions.
    pool : StateOfSplit or None
        State of the split of seats that roles share, such as past versions of the policy.
    statistics : SharedStatistics or None
        Running statistics of the environment's wrappers, in the first policy's arena, if there are any.
    unlearned : ExperienceArena or None
        Arena of the lanes in which the policy acts but does not learn; None: there are none.
    """

    def __init__(
        self, shape: RunShape, arena: Arena, *, fresh: bool = False, begin: int = 0,
        first: ExperienceArena | None = None,
    ) -> None:  # fmt: skip
        self.shape = shape
        self.arena = arena
        regions = shape.regions(begin)

        def array(name: str) -> np.ndarray:
            region = regions[name]
            return arena.array(region.offset, region.shape, region.dtype)

        def block(name: str, nbytes: int = shape.weights_nbytes) -> WeightsBlock:
            offset = regions[name].offset
            return WeightsBlock.create(arena, offset, nbytes) if fresh else WeightsBlock.attach(arena, offset)

        def bell(name: str) -> Doorbell:
            offset = regions[name].offset
            return Doorbell.create(arena, offset) if fresh else Doorbell.attach(arena, offset)

        self.columns = {column.name: array(column.name) for column in shape.step_columns()}
        self.control = array("control")[:, 0]
        self.tunables = array("tunables")
        self.policy = 0 if first is None else len(first.policies)
        self.gauges: np.ndarray = array("gauges") if first is None else first.gauges
        self.shared_weights = array("shared_weights")
        self.square_averages = array("square_averages")
        self.contributions = array("contributions")
        self.open_steps = array("open_steps")
        self.slot_epoch = array("slot_epoch")
        self.slot_number = array("slot_number")
        self.slot_altered = array("slot_altered")
        self.slot_memory = array("slot_memory")
        self.decision_memory = array("decision_memory")

        full, slots, hints = regions["full"].offset, regions["slots"].offset, 4 * shape.num_slots
        self.full = Ring.create(arena, full, hints) if fresh else Ring.attach(arena, full)  # a death may double hints
        self.slots = SlotTable.create(arena, slots, shape.num_slots) if fresh else SlotTable.attach(arena, slots)
        self.weights = block("weights")
        self.best_weights = block("best_weights", shape.weights_nbytes + RETURN_NBYTES)
        self.blocks = {name: block(f"{name}_block", nbytes) for name, nbytes in shape.path_memory.blocks}
        self.policy_bells = [bell(f"policy_bell_{i}") for i in range(shape.num_policy_workers)]
        self.evaluator_bell = bell("evaluator_bell")
        self.bells = {kind: bell(f"{kind}_bell") for kind in ROLES_OF_FEATURES}
        if first is None:
            self.learner_bell = bell("learner_bell")
            self.rollout_bells = [bell(f"rollout_bell_{i}") for i in range(shape.num_workers)]
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
            There is too little memory; the message shows the arithmetic.
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
        """Return the gauges of a role by its name, float64 ``[32]``, which only the role's clock writes.

        The first policy's arena holds the gauges of all policies' roles.
        """
        row: np.ndarray = self.gauges[self.shape.gauge_row(role, self.policy)]
        return row

    def state(self) -> dict[str, Any]:
        """Return the state of lanes that the policy does not learn from, for its checkpoints."""
        pool = None if self.unlearned is None else self.unlearned.pool
        return {} if pool is None else pool.state()

    def ring_all(self) -> None:
        """Wake every role; the first policy's arena wakes those of all policies."""
        for arena in self.policies:
            for bell in (arena.learner_bell, *arena.policy_bells, arena.evaluator_bell, *arena.bells.values()):
                bell.ring()
        self.ring_rollout_workers()

    def ring_rollout_workers(self) -> None:
        """Wake the rollout workers."""
        for bell in self.rollout_bells:
            bell.ring()

    def lane_of(self, slots: np.ndarray) -> np.ndarray:
        """Return the number of the lane whose segments lie in each slot."""
        return slots % self.shape.num_lanes

    def segment_memory(self) -> SegmentMemory:
        """Return the memory of segments, for blocks that travel."""
        columns = self.columns
        return SegmentMemory(
            self.shape.num_slots, list(columns.values()), columns["valid"], columns["version"], self.slot_epoch,
            self.slot_number, self.slot_memory, self.shape.segment_length,
        )  # fmt: skip

    def waiting(self) -> np.ndarray:
        """Return the slots whose segments the learner has not finished reading, full or being read, int64 ``[K]``."""
        # In this order a slot that the learner takes meanwhile is missed, not counted twice.
        return np.concatenate([self.slots.in_state(SlotState.READING), self.slots.in_state(SlotState.FULL)])

    def take(self, lanes: np.ndarray, slots: np.ndarray, worker: int, backlog: float = math.inf) -> bool:
        """Take a slot for each lane to write, one of the lane's own slots.

        Parameters
        ----------
        lanes
            int64 ``[N]``: numbers of the lanes.
        slots
            int64 ``[N]``: the slot that each lane holds; -1 is replaced by a free slot if there is one.
        worker
            Number of the lanes' rollout worker.
        backlog
            Number of waiting segments at which a lane with a waiting segment gets no further slot.

        Returns
        -------
        bool
            Whether all lanes hold a slot.
        """
        if (slots >= 0).all():
            return True
        waiting = self.waiting()
        may_write = np.full(len(lanes), True) if len(waiting) < backlog else ~np.isin(lanes, self.lane_of(waiting))
        for turn in range(self.shape.slots_per_lane):
            without = np.flatnonzero((slots < 0) & may_write)
            if not len(without):
                break
            wanted = lanes[without] + turn * self.shape.num_lanes
            won = self.slots.claim(wanted, SlotState.FREE, SlotState.WRITING, worker)
            slots[without[won]] = wanted[won]
        return bool((slots >= 0).all())

    def deliver(self, slots: np.ndarray, owner: int) -> None:
        """Announce slots that their owner has filled."""
        self.slots.claim(slots, SlotState.WRITING, SlotState.FULL, owner)
        self.full.push_many(slots)

    def take_full(self) -> np.ndarray:
        """Take the announced slots for reading, and return them, int64 ``[K]``."""
        hints = self.full.pop_many(self.shape.num_slots)
        taken: np.ndarray = hints[self.slots.claim(hints, SlotState.FULL, SlotState.READING, READER)]
        return taken

    def release(self, slots: np.ndarray) -> None:
        """Free slots that have been read, and wake the rollout workers."""
        self.slots.claim(slots, SlotState.READING, SlotState.FREE, 0)
        self.ring_rollout_workers()

    def reclaim(self, worker: int) -> None:
        """Free the slots that a dead rollout worker was writing, and announce full slots that it did not announce.

        The supervisor calls this when no policy worker can still be answering the dead worker's requests.
        """
        self.give_up(worker)
        self.announce_anew()

    def give_up(self, owner: int) -> None:
        """Free the slots that an owner has taken for writing and not filled."""
        writing = self.slots.owned_by(owner, SlotState.WRITING)
        self.slots.claim(writing, SlotState.WRITING, SlotState.FREE, 0, from_owner=owner)

    def void(self, slots: np.ndarray) -> None:
        """Fill slots with segments of this run epoch that have no valid step."""
        shape = self.shape
        for column in self.columns.values():
            column.reshape(shape.num_slots, shape.rows_per_slot, *column.shape[1:])[slots] = 0
        self.slot_epoch[slots] = self.control[Control.RUN_EPOCH]
        self.slot_memory[slots] = 0.0
        self.slot_altered[slots] = 0

    def reclaim_read(self) -> None:
        """Free the slots that a dead learner was reading, and announce the full ones anew."""
        self.release(self.slots.in_state(SlotState.READING))
        self.announce_anew()

    def announce_anew(self) -> None:
        """Announce the full slots that are not announced, and wake the learner and the rollout workers."""
        announced = self.full.pop_many(self.full.capacity)  # in order, which gives every lane its turn
        unannounced = np.setdiff1d(self.slots.in_state(SlotState.FULL), announced)
        self.full.push_many(np.concatenate([announced, unannounced]))
        self.ring_rollout_workers()
        self.learner_bell.ring()
