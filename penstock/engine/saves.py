"""The checkpoints of a run, as the supervisor sees them: when one is due, what was asked for, what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.config import Config
from penstock.engine.messages import Save
from penstock.engine.watching.chronicle import Chronicle
from penstock.runs.run_directory import RunDirectory
from penstock.runs.store import CheckpointStore

SAVE_SECONDS = 60.0
"""Seconds for the learner to finish an update and write a checkpoint."""
SAVE_CONTENTS_SECONDS = 600.0
"""Seconds for contents saved apart, at the end of a run."""

TurnUntil = Callable[[Callable[[], bool], float], object]
"""Hears the roles until something is so, or until so many seconds are over."""


class Saves:
    """Asks the learner to save, and hears whether it could.

    Parameters
    ----------
    config
        The run's settings.
    steps
        Steps that the run has learned from when it starts.
    run_directory
        Where the run is written; None: nowhere, so that only what is asked for is saved.
    saving_apart
        How many roles save more than the learner's weights, beside each checkpoint of the run.
    ask
        Called with what a policy's learner is commanded, and the policy's number; returns whether there is a learner.
    policies
        Names of the policies.
    turn_until
        Hears the roles meanwhile.
    chronicle
        Is told of what could not be saved.
    """

    def __init__(
        self,
        config: Config,
        steps: int,
        run_directory: RunDirectory | None,
        *,
        saving_apart: int,
        ask: Callable[[Save, int], bool],
        policies: Sequence[str] = ("",),
        turn_until: TurnUntil,
        chronicle: Chronicle,
    ) -> None:
        interval = config.checkpoint_interval
        self._interval = max(1, config.total_steps // 10) if interval is None else interval
        self._next = steps + self._interval
        self._run_directory = run_directory
        self._saving_apart = saving_apart
        self._ask = ask
        self._policies = policies
        self._turn_until = turn_until
        self._chronicle = chronicle
        # Requests are numbered: an answer to an earlier one is not taken for that to a later one.
        self._asked = 0
        self._asked_for: list[Save] = []
        self._saved: dict[int, Exception | None] = {}  # of the last request, by policy
        self._contents_saved = 0  # answers to the last request

    def schedule(self, steps: int, meta: Callable[[], Sequence[dict[str, Any]]]) -> None:
        """Ask for a checkpoint of the run if one is due, and wait for nothing."""
        if self._run_directory is not None and self._interval and steps >= self._next:
            self._next = steps + self._interval
            if self._chronicle.restore():
                self._request(self._stores(), meta(), steps)

    def save_run(self, meta: Sequence[dict[str, Any]], steps: int, seconds: float = SAVE_SECONDS) -> None:
        """Save a checkpoint where the run is written, and what belongs to it, and wait for that.

        Parameters
        ----------
        meta
            What the checkpoint of each policy says of the run.
        steps
            That the run has learned from.
        seconds
            How long is waited.
        """
        if self._run_directory is not None and self._chronicle.restore():
            self.save(self._stores(), meta, seconds, steps)
            if seconds >= SAVE_SECONDS:
                self._turn_until(lambda: self._contents_saved >= self._saving_apart, SAVE_CONTENTS_SECONDS)

    def save(
        self,
        destinations: Sequence[CheckpointStore | str],
        meta: Sequence[dict[str, Any]],
        seconds: float = SAVE_SECONDS,
        steps: int | None = None,
    ) -> Exception | None:
        """Save every policy and wait for it; return what went wrong, which the user is told of."""
        are_there = self._request(destinations, meta, steps)
        number, count = self._asked, len(destinations)
        self._turn_until(lambda: len(self._saved) == count or not are_there, seconds)
        for policy in range(count):
            if policy not in self._saved:
                self.take(number, TimeoutError(f"the learner did not answer within {seconds:.0f} s"), policy)
        return next((error for error in self._saved.values() if error is not None), None)

    def take(self, number: int, error: Exception | None, policy: int = 0) -> None:
        """Hear that a policy's learner has saved a checkpoint, or could not."""
        if number == self._asked:
            self._saved[policy] = error
        if error is not None:
            self._chronicle.event(f"warning: no checkpoint{self._whose(policy)} could be written: {error}")

    def take_contents(self, number: int, error: Exception | None, what: str, policy: int = 0) -> None:
        """Hear that a role of a policy has saved what belongs to a checkpoint, or could not."""
        self._contents_saved += number == self._asked
        if error is not None:
            whose = self._whose(policy)
            self._chronicle.event(f"warning: {what}{whose} could not be saved, the weights are: {error}")

    def ask_again(self) -> bool:
        """Ask the learners that have not saved what they were asked to; return whether they are there."""
        left = [(save, policy) for policy, save in enumerate(self._asked_for) if policy not in self._saved]
        return all([self._ask(save, policy) for save, policy in left])

    def _whose(self, policy: int) -> str:
        """Of which policy something is, in a run of several."""
        return f" of policy {self._policies[policy]!r}" if len(self._policies) > 1 else ""

    def _stores(self) -> list[CheckpointStore | str]:
        """Checkpoint store of each policy; made anew each time, because keep_checkpoints may change."""
        assert self._run_directory is not None
        return [self._run_directory.of_policy(policy).checkpoints for policy in self._policies]

    def _request(
        self, destinations: Sequence[CheckpointStore | str], meta: Sequence[dict[str, Any]], steps: int | None
    ) -> bool:
        """Ask all learners; return whether they are there. Of several, checkpoints go by the steps of the run."""
        self._asked += 1
        self._saved = {}
        self._contents_saved = 0
        name = steps if len(destinations) > 1 else None
        self._asked_for = [Save(self._asked, *each, name) for each in zip(destinations, meta, strict=True)]
        return self.ask_again()
