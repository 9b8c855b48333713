"""Requests for actions: groups of lanes ask, and whoever infers for them answers. All words between them are here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from penstock.experience.layout import RunShape
from penstock.ipc import Doorbell, fence

WITHDRAWN = -1
NOT_ASKED = -1
"""The row of a lane that waits for its turn, where environments have several agents."""


class Pending(NamedTuple):
    """Requests that wait for an answer.

    Attributes
    ----------
    groups
        int64 ``[G]``: the groups that ask.
    numbers
        int64 ``[G]``: the number of each group's request.
    """

    groups: np.ndarray
    numbers: np.ndarray


class Requests:
    """The last request of every group, and whether it is answered.

    A group numbers its requests 1, 2, 3 and has one open at a time. Its rollout worker raises the group's word `asked`
    when everything that the request says is written. The policy worker raises `answered` to the same number when the
    actions are written. With local inference the rollout worker does both.

    Several policy workers share the rollout workers out: each answers its own, see `RunShape`.

    The supervisor withdraws the requests of a dead rollout worker, but its policy worker may be answering one right
    then. So the supervisor counts deaths, and between two batches the policy worker says how many it has seen: it
    answers no request from before those deaths any more. Only then does the supervisor reset the requests.

    Parameters
    ----------
    shape
        The run's numbers.
    array
        Returns the arena's array of a name.
    policy_bells, rollout_bells
        Rung by who asks, and by who answers; one for each policy worker and rollout worker.

    Attributes
    ----------
    rows
        int64 ``[groups, group_size]``: rows where the lanes of each group stood when it last asked, or `NOT_ASKED`.
    noise
        float32 ``[groups, group_size, noise_size]``: random numbers for the actions that it asked for.
    """

    def __init__(
        self,
        shape: RunShape,
        array: Callable[[str], np.ndarray],
        policy_bells: Sequence[Doorbell],
        rollout_bells: Sequence[Doorbell],
    ) -> None:
        # Each group's are written by its rollout worker; the supervisor withdraws and resets a dead worker's.
        self._asked = array("asked")[:, 0]
        self.rows = array("request_rows")
        self.noise = array("noise")
        # Written by whoever infers; the supervisor resets a dead worker's.
        self._answered = array("answered")[:, 0]
        # A state of every lane in each of two buffers, by turns, float32 [2, groups, group_size, state_size]: request
        # n starts from buffer n % 2 and leaves what comes after in the other. Written by whoever infers.
        self._memory = array("lane_memory")
        # Of each policy worker: deaths of its rollout workers so far, written by the supervisor, and the last of them
        # that it has passed, written by it.
        self._deaths = array("deaths")[:, 0]
        self._passed = array("deaths_passed")[:, 0]
        self._rollout_bells = rollout_bells
        self._num_groups = shape.num_groups
        answering = np.arange(shape.all_groups) // shape.num_groups % shape.num_policy_workers
        self._answering = answering.tolist()  # the number of each group's policy worker
        self._bells = [policy_bells[number] for number in self._answering]  # and its bell
        self._are_of = [answering == number for number in range(shape.num_policy_workers)]
        # For local inference, made once and not in every step.
        self._alone = [Pending(np.array([group]), np.zeros(1, np.int64)) for group in range(shape.all_groups)]

    def ask(self, group: int, rows: np.ndarray, noise: np.ndarray) -> None:
        """Ask for a group's next actions, and wake its policy worker.

        Parameters
        ----------
        group
            Number of the group.
        rows
            int64 ``[group_size]``: where its lanes stand, or `NOT_ASKED`.
        noise
            float32 ``[group_size, noise_size]``: random numbers for their actions.
        """
        self.rows[group] = rows
        self.noise[group] = noise
        fence()  # whoever sees the request sees what it says
        self._asked[group] += 1
        self._bells[group].ring()

    def ask_and_answer(
        self, group: int, rows: np.ndarray, noise: np.ndarray, answer: Callable[[Pending], object]
    ) -> None:
        """Ask as `ask` does, and have `answer` answer in this thread: nobody else sees the request open."""
        self.rows[group] = rows
        self.noise[group] = noise
        pending = self._alone[group]
        number = int(self._asked[group]) + 1
        pending.numbers[0] = number
        answer(pending)
        self._asked[group] = number
        self._answered[group] = number

    def is_answered(self, group: int) -> bool:
        """Whether a group has nothing open; then its actions are there to be read."""
        if self._answered[group] != self._asked[group]:
            return False
        fence()  # the actions are read after the word
        return True

    def num_answered(self, group: int) -> int:
        """Number of a group's last request that was answered."""
        return int(self._answered[group])

    def pending(self, number: int = 0) -> Pending | None:
        """Return all requests that wait for a policy worker, None if there are none. It calls this between two batches.

        Whoever has died by now has had its last answer, and its requests are read as withdrawn.
        """
        deaths = self._deaths[number]
        fence()
        self._passed[number] = deaths
        asked = self._asked.copy()
        fence()  # what a request says is read after the word
        groups = ((asked > self._answered) & self._are_of[number]).nonzero()[0]
        return Pending(groups, asked[groups]) if len(groups) else None

    def memory(self, pending: Pending) -> np.ndarray:
        """Memory states that the lanes of these requests start from, float32 ``[N, state_size]``."""
        _, _, group_size, state_size = self._memory.shape
        return self._memory[pending.numbers & 1, pending.groups].reshape(len(pending.groups) * group_size, state_size)

    def keep_memory(self, pending: Pending, memory_after: np.ndarray) -> None:
        """Keep the memory states that the next requests start from, float32 ``[N, state_size]``.

        An answer that is never finished leaves the states that it started from as they were.
        """
        turns = 1 - (pending.numbers & 1)
        self._memory[turns, pending.groups] = memory_after.reshape(len(turns), *self._memory.shape[2:])

    def mark_answered(self, pending: Pending) -> None:
        """Say that all actions that these requests asked for are written, and wake the rollout workers."""
        fence()  # whoever sees the answer sees the actions
        self._answered[pending.groups] = pending.numbers
        for worker in set((pending.groups // self._num_groups).tolist()):
            self._rollout_bells[worker].ring()

    def withdraw(self, worker: int) -> int:
        """Withdraw the requests of a dead rollout worker; return its death's number, as its policy worker counts."""
        groups, number = self._groups_of(worker), self.policy_worker_of(worker)
        self._asked[groups] = WITHDRAWN
        fence()  # whoever sees the death sees that the requests are withdrawn
        self._deaths[number] += 1
        self._bells[groups.start].ring()
        return int(self._deaths[number])

    def policy_worker_of(self, worker: int) -> int:
        """Number of the policy worker that answers a rollout worker."""
        number: int = self._answering[worker * self._num_groups]
        return number

    def has_passed(self, death: int, worker: int) -> bool:
        """Whether no policy worker can be answering a request of a rollout worker any more from before its death."""
        return bool(self._passed[self.policy_worker_of(worker)] >= death)

    def reset(self, worker: int) -> None:
        """Let the successor of a dead rollout worker begin anew; the policy worker has passed the death, or is gone."""
        groups = self._groups_of(worker)
        self._asked[groups] = 0
        self._answered[groups] = 0

    def _groups_of(self, worker: int) -> slice:
        return slice(worker * self._num_groups, (worker + 1) * self._num_groups)
