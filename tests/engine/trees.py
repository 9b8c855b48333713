"""Home, gateways and nodes in one process, over loopback."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.engine.messages import Listening, NodesSeen
from penstock.engine.nodes.host import HostTask, with_paths
from penstock.engine.nodes.receiver import ReceiverRole
from penstock.engine.nodes.sender import Home, SenderRole, keep_all_slots
from penstock.engine.nodes.shards import ShardRole
from penstock.engine.nodes.tasks import relay_roles
from penstock.engine.nodes.transport import transport_of
from penstock.engine.paths.segments import SegmentPath
from penstock.experience.arena import READER, ExperienceArena
from penstock.ipc import SlotState
from penstock.runs.status import NodeStatus
from tests.experience.writing import LOGITS, fill_slots, run_shape

TOKEN, RUN = b"t" * 32, 11
SMALL, LARGE, OTHER = range(1), range(1, 3), range(3, 4)  # workers of three nodes, two lanes each


class End:
    """An arena with its roles: of home, a gateway or a node.

    `workers` are the rollout workers of the run that it has, `parts` those of each end below it. `above` is the end
    that it connects to, with its place there and its incarnation. `split` is that of lanes which play past versions.
    """

    def __init__(self, transport, workers: range, parts=(), above=None, takes_turns=False, split=None, **numbers):
        shape = run_shape(num_workers=len(workers), first_worker=workers.start, **numbers)
        if split is not None:
            shape = replace(shape, others=(replace(shape, plays=0, split=split),))
        self.arena, self.reports, self.address = ExperienceArena.create(shape), [], ("", 0)
        parts = [range(part.start - workers.start, part.stop - workers.start) for part in parts]
        if above is None:
            specs = [ReceiverRole("127.0.0.1", TOKEN, RUN, parts, (transport,), (takes_turns,))]
        else:
            keep_all_slots(self.arena)
            end, place, incarnation = above
            home, there = Home(end.address, TOKEN, RUN, place, incarnation), transport.to_node()
            roles = [SenderRole(home, there.path, there.unit)]
            if parts:
                roles = relay_roles(home, "127.0.0.1", parts, [there], (takes_turns,))
                if transport.is_sharded:
                    make = transport.path.replay.buffer.maker_of(place)
                    roles.append(ShardRole("127.0.0.1", TOKEN, RUN, make))
            specs = with_paths(HostTask(shape, roles, False, [there]), self.arena)
        self.specs = specs
        self.roles = [spec.build(self.arena, self._take) for spec in specs]

    def _take(self, report) -> None:
        if isinstance(report, Listening) and not self.address[1]:  # first the receiver
            self.address = report.address
        self.reports.append(report)

    def poll(self) -> None:
        for role in self.roles:
            role.poll()

    def seen(self):
        """Statuses of what is connected, by number."""
        seen = [report.statuses for report in self.reports if isinstance(report, NodesSeen)]
        return seen[-1] if seen else defaultdict(NodeStatus)

    def free(self) -> list[int]:
        return self.arena.slots.in_state(SlotState.FREE).tolist()

    def full(self) -> list[int]:
        return sorted(self.arena.slots.in_state(SlotState.FULL).tolist())

    def fill(self, slots: list[int], seed: int = 0) -> None:
        fill_slots(self.arena, slots, seed)

    def learn(self) -> None:
        """Free all slots that have arrived, as a learner does."""
        slots = np.array(self.full(), np.int64)
        self.arena.full.pop_many(self.arena.full.capacity)
        assert self.arena.slots.claim(slots, SlotState.FULL, SlotState.READING, READER).all()
        self.arena.release(slots)

    def close(self) -> None:
        for role in reversed(self.roles):
            role.close()


class Tree:
    """Home, and whatever is below it; `until` polls all roles."""

    def __init__(self, tops, transport, **numbers) -> None:
        self.numbers = {"records": (LOGITS,), "state_size": 3, "weights_nbytes": 1 << 12, "slots_per_lane": 2} | numbers
        self.transport, self.ends = transport or transport_of(SegmentPath()), []
        self.home = self.add(range(tops[-1].stop), tops)
        self.publish(4)

    def add(self, workers: range, parts=(), above=None) -> End:
        self.ends.append(End(self.transport, workers, parts, above, **self.numbers))
        return self.ends[-1]

    def publish(self, version: int) -> None:
        self.home.arena.weights.publish(np.full(1 << 12, version, np.uint8), version)
        self.home.arena.ring_rollout_workers()

    def until(self, is_done) -> None:
        end = time.monotonic() + 10
        while not is_done():
            for each in self.ends:
                each.poll()
            assert time.monotonic() < end
            time.sleep(0.002)

    def lose(self, end: End) -> None:
        self.ends.remove(end)
        end.close()

    def close(self) -> None:
        for end in reversed(self.ends):
            with contextlib.suppress(OSError):
                end.close()


def trees() -> Iterator[Any]:
    """Yield a function that makes trees; close them afterwards, and look for threads that are left."""
    made = []

    def make(tops, transport=None, **numbers):
        made.append(Tree(tops, transport, **numbers))
        return made[-1]

    yield make
    for each in made:
        each.close()
    threads = {"home-receiving", "home-sending", "node-receiving"}
    assert not threads & {thread.name for thread in threading.enumerate()}
