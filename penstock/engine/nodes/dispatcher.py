"""The dispatcher: a thread at home that sends weights, control words and grants to all nodes of a policy.

It sleeps on one bell, which the learner and arriving blocks ring. The slots of the run are read once for all nodes, and
the weights once for each version.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from penstock.engine.nodes.lanes import NodeLanes
from penstock.engine.nodes.past import SentVersions, pool_of
from penstock.engine.nodes.sender import CONTROLS
from penstock.experience.arena import Control
from penstock.ipc import Occupancy
from penstock.ipc.stream import ALIVE_INTERVAL, Kind, OwnDelay, Views, array_views, rounded

if TYPE_CHECKING:
    from penstock.experience.arena import ExperienceArena

WEIGHTS_INTERVAL = 0.005  # least seconds between versions sent to nodes: small networks publish hundreds a second


class Dispatcher(threading.Thread):
    """Thread that sends to the nodes of one policy; it never waits for a node.

    Parameters
    ----------
    arena
        Arena of the policy at home.
    lanes
        Lanes of each node.
    takes_turns
        Whether each batch is one segment of every lane: then each grant is sent with the newest weights.

    Attributes
    ----------
    failure
        Error that has ended the thread; None: there is none.
    """

    def __init__(self, arena: ExperienceArena, lanes: Sequence[NodeLanes], takes_turns: bool) -> None:
        super().__init__(name="home-sending", daemon=True)
        self._arena = arena
        self._lanes = lanes
        self._bell = arena.rollout_bells[0]
        self._takes_turns = takes_turns
        self._weights, self._version = np.empty(0, np.uint8), -1
        self._next_version = 0.0  # time at which newer weights may be sent
        pool = pool_of(arena)
        self._past = None if pool is None else SentVersions(pool, arena.shape.rounded_nbytes)
        self._is_over = False
        self._delay = OwnDelay()
        self.failure: Exception | None = None

    def run(self) -> None:
        """Send what is new whenever the bell rings, and signs of life at intervals."""
        next_signs = 0.0
        try:
            while not self._is_over:
                seen, now = self._bell.value, time.monotonic()
                if with_signs := now >= next_signs:
                    self._delay.observe(now - next_signs if next_signs else 0.0)
                    next_signs = now + ALIVE_INTERVAL
                if not self.dispatch(with_signs=with_signs):
                    # Look again when the next version may be sent: learners do not ring more often than that.
                    wakes = self._next_version if self._next_version > now else next_signs
                    self._bell.wait(seen, max(0.0, wakes - time.monotonic()))
        except Exception as error:
            self.failure = error

    def dispatch(self, *, with_signs: bool = False) -> bool:
        """Send each node everything it lacks; return whether slots were granted, as more may then be free.

        Weights are sent before the slots that are filled by acting with them.

        Parameters
        ----------
        with_signs
            Whether nodes are sent a sign of life, too.
        """
        arena, occupancy = self._arena, Occupancy(self._arena.slots)
        # Claim slots before reading weights: a learner publishes before it releases slots.
        granted = [found for lanes in self._lanes if (found := lanes.grant_to(occupancy)) is not None]
        now = time.monotonic()
        if arena.weights.version != self._version and (self._takes_turns or now >= self._next_version):
            self._next_version = now + WEIGHTS_INTERVAL
            self._weights = np.empty(arena.weights.size, np.uint8)  # links may still be sending the previous array
            self._version = arena.weights.read_into(self._weights)
            self._weights = rounded(self._weights, arena.shape.rounded_nbytes)
        version, control = self._version, arena.control[list(CONTROLS)].tobytes()
        epoch = int(arena.control[Control.RUN_EPOCH])
        if self._past is not None:
            self._past.read()
        for link, slots in granted:
            views: Views = []
            if link.version != version:
                link.version = version
                weights = array_views(self._weights)
                views += [link.frame(Kind.WEIGHTS, epoch, version, nbytes=self._weights.nbytes), *weights]
            if link.control != control:
                link.control = control
                words = memoryview(control)
                views += [link.frame(Kind.CONTROL, epoch, version, count=len(CONTROLS), nbytes=len(words)), words]
            if self._past is not None:
                views += self._past.views(link, epoch)
            if len(slots):
                grant = link.frame(Kind.GRANT, epoch, version, count=len(slots), nbytes=slots.nbytes)
                views += [grant, *array_views(slots)]
            if with_signs:
                views += [link.frame(Kind.ALIVE, epoch, version, number=round(1_000 * self._delay.seconds))]
            if views:
                link.send(views)
        return any(len(slots) for _, slots in granted)

    def end(self) -> None:
        """End the thread, and wait for it."""
        self._is_over = True
        self._bell.ring()
        if self.is_alive():
            self.join()
