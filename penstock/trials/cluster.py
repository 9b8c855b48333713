"""Places for trainings on the nodes of a Ray cluster, and trainings there seen from home.

Ray places an actor where its resources are free, carries calls and answers, and reports its death.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from penstock.config import ConfigError
from penstock.engine.endings import TrainingFailed
from penstock.engine.nodes.choosing import GPU
from penstock.engine.nodes.cluster import Cluster
from penstock.engine.nodes.hosted import briefly
from penstock.runs.checkpoint import CheckpointError
from penstock.runs.files import replace_file
from penstock.runs.jobs import LOST, MOST_LOSSES, Command, Needs, Place, with_loss
from penstock.runs.lock import RunLock, holding_of
from penstock.runs.lookup import checkpoint_to_resume
from penstock.runs.machine import About, about_here, differences
from penstock.runs.run_directory import RunDirectory
from penstock.runs.vacancy import CONFIG, take_lock
from penstock.trials.files import Change, Changes, batches, write
from penstock.trials.host import Task, TrialHost
from penstock.trust import names_only

LOOK_SECONDS = 2.0  # between two looks for the head node
SILENCE_SECONDS = 60.0  # without an answer, after which a node counts as lost
_INTERRUPTED, _FAILED = 130, 1


@contextmanager
def places_on(
    address: str | None, needs: Needs, jobs: int | None, folder: Path, report: Callable[[str], None]
) -> Iterator[list[Place]]:
    """Connect to a cluster for the block; yield `jobs` places for trainings, or as many as there is room for.

    Parameters
    ----------
    address
        Address of the cluster; None: a cluster of this machine.
    needs
        Resources of each training.
    jobs
        Number of places.
    folder
        Folder that holds all files that the trainings read and write.
    report
        Called with each line of progress.

    Raises
    ------
    ConfigError
        There is no such cluster, or no node has the resources of a training, and the cluster does not grow.
    TrainingFailed
        At the end of the block: the cluster was lost.
    """
    cluster = Cluster(address, needs.cores, gpus=None)
    trials = _Trials(cluster, needs, folder, report)
    try:
        places = [Place(range(needs.cores)) for _ in range(jobs or max(1, _room(cluster, needs)))]
        for place in places:
            place.start = lambda command: _Remote(trials, command)
        yield places
    finally:
        trials.proof.unlink(missing_ok=True)
        cluster.close(head_is_gone=trials.has_lost_head)
        if trials.has_lost_head:
            raise TrainingFailed(
                f"the head node of the cluster {cluster.name} is gone, and with it all trainings there: the same "
                "command resumes them from the checkpoints that have arrived"
            )


def _room(cluster: Cluster, needs: Needs) -> int:
    """Return the number of trainings for which the nodes of a cluster have the resources."""
    wanted = {"CPU": needs.cores, GPU: needs.gpus}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    room = sum(int(min(node.get(name, 0) // n for name, n in wanted.items() if n)) for node in nodes)
    if not room and not cluster.grows:
        gpus = {machine: " with GPUs" if GPU in machine.resources else "" for machine in cluster.machines()}
        there = ", ".join(f"{machine}{word}" for machine, word in gpus.items() if machine.cores)
        raise ConfigError(
            f"each training asks for {needs} of one node, but no node of the cluster {cluster.name} has them; it has "
            f"{there or 'none'}: ask for less (num_workers, num_learners, device), or start Ray on larger machines"
        )
    return room


class _Trials:
    """State that the trainings of a command share; parameters as in `places_on`.

    Attributes
    ----------
    token, proof
        Random text, and the file at home that holds it: a node that reads it there shares the folder.
    losses
        Steps of the checkpoint at the last loss of a node, and number of losses with this checkpoint, by training.
    """

    def __init__(self, cluster: Cluster, needs: Needs, folder: Path, report: Callable[[str], None]) -> None:
        self._cluster, self.needs, self.report = cluster, needs, report
        self.folder, self._given = folder.absolute(), os.fspath(folder)
        self.token = secrets.token_hex(16)
        self.proof = self.folder / f".{self.token[:8]}.shared"
        self.losses: dict[str, tuple[int, int]] = {}
        self._looked_at, self.has_lost_head = time.monotonic(), False

    def absolute(self, word: str) -> str:
        """Return an argument with the absolute path of the folder."""
        return f"{self.folder}{word.removeprefix(self._given)}" if word.startswith(f"{self._given}/") else word

    def look(self, after: float = LOOK_SECONDS) -> bool:
        """Return whether the head node is gone, as found at most `after` seconds ago."""
        if not self.has_lost_head and time.monotonic() - self._looked_at > after:
            self.has_lost_head, self._looked_at = not self._cluster.has_head, time.monotonic()
        return self.has_lost_head


class _Remote:
    """A training on a node."""

    def __init__(self, trials: _Trials, command: Command) -> None:
        self._trials, self._command = trials, command
        self._name = command.output.stem
        self._lock: RunLock | None = None
        self._code: int | None = None
        self._is_stopping = self._is_placed = False
        self._there = b""  # the node's folder that stands in for home's
        self._sent: list[Any] = []  # answers to what was sent before the start
        if trials.look(after=0.0):
            raise TrainingFailed("the cluster is lost")
        if not trials.proof.exists():  # not before: a new folder must be empty
            trials.proof.write_text(trials.token)
        actor: Any = ray.remote(TrialHost)
        self._actor = actor.options(
            name=f"penstock {self._name} {secrets.token_hex(4)}", num_cpus=trials.needs.cores,
            num_gpus=trials.needs.gpus, scheduling_strategy="SPREAD", max_restarts=0, max_task_retries=0,
        ).remote()  # fmt: skip
        self._ask()

    def poll(self) -> int | None:
        """Write what has arrived; return the exit code, `LOST` if the node was lost, or None while it runs."""
        try:
            if self._code is None:
                self._poll()
        except (RayError, CheckpointError, TimeoutError) as error:
            self._lose(briefly(error))
        except BaseException:
            self._code = _FAILED
            raise
        finally:
            if self._code is not None:
                self._end()
        return self._code

    def send_signal(self, number: int) -> None:
        """Ask the training to end cleanly."""
        self._is_stopping = True
        if self._is_placed and not self._trials.look():
            self._actor.stop.remote()
        else:
            self._code = _INTERRUPTED

    def kill(self) -> None:
        """End the processes now."""
        self._code = _INTERRUPTED if self._code is None else self._code

    def _await(self, answer: Any) -> None:
        self._answer, self._asked_at = answer, time.monotonic()

    def _ask(self) -> None:
        self._await(self._actor.about.remote(str(self._trials.proof), self._trials.token))

    def _poll(self) -> None:
        if self._trials.look():
            self._code = _INTERRUPTED
        elif ray.wait([self._answer], timeout=0)[0]:
            match ray.get(self._answer):
                case About() as about, bool(is_shared):
                    self._begin(about, is_shared)
                    return
                case str(folder):
                    ray.get(self._sent)
                    self._there = os.fsencode(folder)
                case changes, code:
                    self._write(changes)
                    self._code = code
            self._await(self._actor.gather.remote())
        elif self._is_placed and time.monotonic() - self._asked_at > SILENCE_SECONDS:
            raise TimeoutError(f"no answer for {SILENCE_SECONDS:.0f} s")

    def _begin(self, about: About, is_shared: bool) -> None:
        """Send the files that the training reads, and start it."""
        if unlike := differences(about_here(), about):
            raise ConfigError(f"the node {about.host} has {unlike}: install the same versions there, or leave it out")
        command, trials, folder = self._command, self._trials, self._trials.folder
        if is_shared and self._name in trials.losses and holding_of(command.run).is_held:
            self._ask()  # a node that was lost may still train there, until it notices that home is gone
            return
        self._is_placed = True
        trials.report(f"{self._name}: on node {about.host}")
        words = [trials.absolute(word) for word in command.words[1:]]
        if not is_shared:
            within = [os.path.relpath(path, folder) for path in (command.run, command.output, *command.reads)]
            self._sent = [self._actor.put.remote(batch) for batch in batches(Changes(folder).read(within))]
        # A node has no seals of the user's code; this command itself names all of it.
        if "resume" in words[:3] and names_only(RunDirectory.open(command.run).config, command.given):
            words.append("--trust-code")
        output = os.path.relpath(command.output, folder)
        task = Task(words, os.fspath(folder), output, is_shared, trials.needs.cores, os.getcwd())
        self._await(self._actor.begin.remote(task))

    def _write(self, changes: Sequence[Change]) -> None:
        """Write changes to home's copy of the run, which this process owns meanwhile."""
        try:
            for change in changes:
                if isinstance(change.content, bytes) and Path(change.path).name == CONFIG:
                    change = change._replace(content=self._of_home(change.content))
                write(self._trials.folder, change)
            if self._lock is None and changes and self._command.run.is_dir():
                self._lock = take_lock(self._command.run)
        except FileNotFoundError:  # the copy was removed
            self._actor.send_again.remote()

    def _of_home(self, text: bytes) -> bytes:
        return text.replace(self._there, os.fsencode(self._trials.folder))

    def _lose(self, why: str) -> None:
        """Set the exit code of a training that lost its node."""
        before = self._trials.losses.get(self._name, (-1, 0))
        losses = _, count = with_loss(before, checkpoint_to_resume(self._command.run))
        self._trials.losses[self._name] = losses
        self._code = _INTERRUPTED if self._is_stopping else LOST if count < MOST_LOSSES else _FAILED
        if self._code == _FAILED:
            with open(self._command.output, "a") as file:
                file.write(f"error: its node was lost {count} times without a new checkpoint, the last time: {why}\n")
        elif self._code == LOST:
            self._trials.report(f"{self._name}: its node was lost ({why}); it resumes elsewhere")

    def _end(self) -> None:
        """Release the node, and home's copy; it may be called again."""
        with suppress(Exception):
            ray.kill(self._actor)
        if self._there and self._command.output.exists():
            replace_file(self._command.output, self._of_home(self._command.output.read_bytes()))
        if self._lock is not None:
            self._lock.release()
