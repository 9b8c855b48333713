"""Checkpoints of a run: when one is due, requests to the learners, and their answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from penstock.engine.messages import Save
from penstock.engine.policies import Training
from penstock.engine.polling import Roles
from penstock.engine.roles.specs import name_of
from penstock.engine.watching.chronicle import Chronicle
from penstock.engine.watching.progress import Progress
from penstock.experience.layout import ROLES_OF_FEATURES, RoleKind
from penstock.runs.store import CheckpointStore

SAVE_SECONDS = 60.0
"""Seconds for the learner to finish an update and write a checkpoint."""
SAVE_CONTENTS_SECONDS = 600.0
"""Seconds for saving contents beside the checkpoint, at the end of a run."""


class Saves:
    """Requests checkpoints from the learners, and reports those that could not be written.

    Parameters
    ----------
    training, progress
        Settings, policies and progress of the run.
    chronicle
        Checkpoint stores of the run, and its log.
    roles
        Roles of the run.

    Attributes
    ----------
    save_error
        Reason why the last `save_run` wrote no checkpoint; "" if it did, or if nothing is to be written.
    """

    def __init__(self, training: Training, progress: Progress, chronicle: Chronicle, roles: Roles) -> None:
        self._progress, self._chronicle, self._roles = progress, chronicle, roles
        interval = training.config.checkpoint_interval
        self._interval = max(1, training.config.total_steps // 10) if interval is None else interval
        self._next = progress.steps + self._interval
        self._saving_apart = sum(policy.path.saving_apart for policy in training.policies)
        # Requests are numbered so that a late answer to an earlier one is recognised.
        self._number = 0
        self._requests: list[Save] = []
        self._saved: dict[int, Exception | None] = {}  # of the last request, by policy
        self._contents_saved = 0  # answers to the last request
        self._failures: Counter[int] = Counter()  # in a row, by policy
        self.save_error = ""

    def schedule(self, meta: Callable[[], Sequence[dict[str, Any]]]) -> None:
        """Request a checkpoint of the run if one is due, without waiting; `meta` describes it, for each policy."""
        steps = self._progress.steps
        if self._interval and steps >= self._next:
            self._next = steps + self._interval
            if self._chronicle.restore():
                self._request(self._chronicle.stores, meta(), steps)

    def save_run(self, meta: Sequence[dict[str, Any]], seconds: float = SAVE_SECONDS) -> None:
        """Save a checkpoint in the run directory, with the contents beside it, and wait for up to `seconds`.

        Parameters
        ----------
        meta
            Metadata of each policy's checkpoint.
        seconds
            Longest wait. Contents are waited for only if it is at least SAVE_SECONDS.
        """
        self.save_error = "" if self._chronicle.run_path is None else "the run directory could not be restored"
        if self._chronicle.restore():
            steps, stores = self._progress.steps, self._chronicle.stores
            error = self.save(stores, meta, seconds, steps)
            if error is None and len(stores) > 1 and self._progress.steps > steps and seconds >= SAVE_SECONDS:
                error = self.save(stores, meta, seconds, self._progress.steps)  # learners have reported steps since
            self.save_error = "" if error is None else str(error)
            if seconds >= SAVE_SECONDS:
                self._roles.until(lambda: self._contents_saved >= self._saving_apart, SAVE_CONTENTS_SECONDS)

    def save(
        self, destinations: Sequence[CheckpointStore | str], meta: Sequence[dict[str, Any]],
        seconds: float = SAVE_SECONDS, steps: int | None = None,
    ) -> Exception | None:  # fmt: skip
        """Save every policy and wait; return the first error, which is also shown to the user."""
        are_there = self._request(destinations, meta, steps)
        number, count = self._number, len(destinations)
        self._roles.until(lambda: len(self._saved) == count or not are_there, seconds)
        for policy in range(count):
            if policy not in self._saved:
                self._saved[policy] = error = TimeoutError(f"the learner did not answer within {seconds:.0f} s")
                if not self._roles.is_failing:  # otherwise a consequence of the failure, which the user is shown
                    self.take(number, error, policy)
        return next((error for error in self._saved.values() if error is not None), None)

    def take(self, number: int, error: Exception | None, policy: int = 0) -> None:
        """Record the answer of a policy's learner; failures in a row are shown at the 1st, 2nd, 4th, 8th and so on."""
        if number == self._number:
            self._saved[policy] = error
        count = self._failures[policy] = 0 if error is None else self._failures[policy] + 1
        if count and not count & (count - 1):
            again = f", {count} times in a row" if count > 1 else ""
            self._chronicle.event(f"warning: no checkpoint{self._of_policy(policy)} could be written{again}: {error}")

    def take_contents(self, number: int, error: Exception | None, what: str, policy: int = 0) -> None:
        """Record the answer of a role that saves contents beside the checkpoint."""
        self._contents_saved += number == self._number
        if error is not None:
            contents = f"{what}{self._of_policy(policy)}"
            self._chronicle.event(f"warning: {contents} could not be saved, although the weights were: {error}")

    def repeat_request(self) -> bool:
        """Repeat the last request to learners that have not answered; return whether they are there."""
        left = [(save, policy) for policy, save in enumerate(self._requests) if policy not in self._saved]
        return all([self._send(save, policy) for save, policy in left])

    def _of_policy(self, policy: int) -> str:
        policies = self._progress.policies
        return f" of policy {policies[policy].name!r}" if len(policies) > 1 else ""

    def _request(
        self, destinations: Sequence[CheckpointStore | str], meta: Sequence[dict[str, Any]], steps: int | None
    ) -> bool:
        """Command all learners to save, several under the run's steps; return whether they are there."""
        self._number += 1
        self._saved = {}
        self._contents_saved = 0
        name = steps if len(destinations) > 1 else None
        self._requests = [Save(self._number, *each, name) for each in zip(destinations, meta, strict=True)]
        return self.repeat_request()

    def _send(self, save: Save, policy: int) -> bool:
        """Command a policy's roles to save; return whether its learner is there."""
        for kind in ROLES_OF_FEATURES:
            self._roles.send(name_of(kind, policy), save)
        return self._roles.send(name_of(RoleKind.LEARNER, policy), save)
