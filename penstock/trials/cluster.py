"""Places for trainings on the nodes of a Ray cluster, and trainings there seen from home.

Ray places an actor where its resources are free, carries calls and answers, and reports its death.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import ray
from ray.exceptions import RayError

from penstock.config import ConfigError
from penstock.engine.endings import TrainingFailed
from penstock.engine.nodes.choosing import GPU
from penstock.engine.nodes.cluster import Cluster, briefly
from penstock.runs.checkpoint import CheckpointError
from penstock.runs.files import replace_file
from penstock.runs.jobs import LOST, Command, Needs, Place, Running
from penstock.runs.lock import HeldError, RunLock, holding_of
from penstock.runs.lookup import checkpoint_to_go_on_from
from penstock.runs.machine import About, about_here, differences
from penstock.runs.run_directory import RunDirectory
from penstock.runs.vacancy import CONFIG
from penstock.trials.files import Changes, Copy, Piece, batches
from penstock.trials.host import Task, TrialHost
from penstock.trust import names_only

LOOK_SECONDS = 2.0  # between two looks for the head node
SILENCE_SECONDS = 60.0  # without an answer, after which a node is lost
MOST_LOSSES = 5  # of nodes under one training without a new checkpoint: it may be the training that ends them
_INTERRUPTED, _FAILED = 130, 1


class TrialCluster:
    """Connection to the cluster of a command's trainings.

    Parameters
    ----------
    address
        Address of the cluster; None: a cluster of this machine.
    needs
        Resources of each training.
    folder
        Folder that holds all files that the trainings read and write.
    report
        Called with each line of progress.

    Attributes
    ----------
    needs, folder, report
        The parameters.
    losses
        Steps of the checkpoint at the last loss of a node, and number of losses with this checkpoint, by training.
    token
        Content of the file `proof`: a node that finds it there has the folder itself.

    Raises
    ------
    ConfigError
        There is no such cluster.
    """

    def __init__(self, address: str | None, needs: Needs, folder: Path, report: Callable[[str], None]) -> None:
        self.needs, self.report = needs, report
        self.folder, self._given = folder.absolute(), os.fspath(folder)
        self.losses: dict[str, tuple[int, int]] = {}
        self.token = secrets.token_hex(16)
        self._cluster = Cluster(address, needs.cores, gpus=None)
        self._looked_at = time.monotonic()
        self._is_lost = False

    def places(self, jobs: int | None) -> list[Place]:
        """Return places for trainings: `jobs`, or as many as the nodes have room for.

        Raises
        ------
        ConfigError
            No node has the resources of a training, and the cluster does not grow.
        """
        machines = self._cluster.machines()
        alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        room = sum(self._room(resources) for resources in alive)
        if not room and not self._cluster.grows:
            there = ", ".join(f"{machine}{_gpus(machine.resources)}" for machine in machines if machine.cores)
            raise ConfigError(
                f"each training asks for {self.needs} of one node, and no node of the cluster {self._cluster.name} has "
                f"them; it has {there or 'none'}: ask for less (num_workers, num_learners, device), or start Ray on "
                "larger machines"
            )
        return [RayPlace(self) for _ in range(jobs or max(1, room))]

    def absolute(self, word: str) -> str:
        """Return an argument with the absolute path of the folder."""
        return f"{self.folder}{word.removeprefix(self._given)}" if word.startswith(f"{self._given}/") else word

    def _room(self, resources: dict[str, float]) -> int:
        """Number of trainings for which a node has the resources."""
        wanted = {"CPU": self.needs.cores, GPU: self.needs.gpus}
        return int(min(resources.get(name, 0.0) // amount for name, amount in wanted.items() if amount))

    @property
    def proof(self) -> Path:
        """File by which nodes show that they have the folder itself."""
        return self.folder / f".{self.token[:8]}.shared"

    @property
    def is_lost(self) -> bool:
        """Whether the head node is gone."""
        if not self._is_lost and time.monotonic() - self._looked_at > LOOK_SECONDS:
            self._is_lost = not self._cluster.has_head
            self._looked_at = time.monotonic()
        return self._is_lost

    def __enter__(self) -> TrialCluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.proof.unlink(missing_ok=True)
        self._cluster.close(head_is_gone=self._is_lost)
        if self._is_lost:
            raise TrainingFailed(
                f"the head node of the cluster {self._cluster.name} is gone, and with it all trainings there: the same "
                "command resumes them from the checkpoints that have arrived"
            ) from error


class RayPlace(Place):
    """Place for a training on whichever node has its resources free; all of a cluster are equal.

    Parameters
    ----------
    cluster
        The cluster.
    """

    def __init__(self, cluster: TrialCluster) -> None:
        super().__init__(range(cluster.needs.cores))
        self._cluster = cluster

    def start(self, command: Command) -> Running:
        """Start a training."""
        return Remote(self._cluster, command)


class Remote(Running):
    """A training on a node.

    Parameters
    ----------
    cluster
        The cluster.
    command
        The training.
    """

    def __init__(self, cluster: TrialCluster, command: Command) -> None:
        self._cluster, self._command = cluster, command
        self._copy = Copy(cluster.folder)
        self._lock: RunLock | None = None
        self._code: int | None = None
        self._is_stopping = self._is_placed = False
        self._name = command.output.stem
        self._there = b""  # the folder of the node that takes the place of home's
        self._sent: list[Any] = []  # answers to what was sent before the start
        if cluster.is_lost:
            raise TrainingFailed("the cluster is lost")
        if not cluster.proof.exists():  # not before: a new folder must be empty
            cluster.proof.write_text(cluster.token)
        actor: Any = ray.remote(TrialHost)
        self._actor = actor.options(
            name=f"penstock {self._name} {secrets.token_hex(4)}", num_cpus=cluster.needs.cores,
            num_gpus=cluster.needs.gpus, scheduling_strategy="SPREAD", max_restarts=0, max_task_retries=0,
        ).remote()  # fmt: skip
        self._ask()

    def poll(self) -> int | None:
        """Write what has arrived; return the exit code, `LOST` if the node was lost, and None while it runs."""
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
        """Request an end in good order."""
        self._is_stopping = True
        if not self._is_placed or self._cluster.is_lost:
            self._code = _INTERRUPTED
        else:
            self._actor.stop.remote()

    def kill(self) -> None:
        """End the processes now."""
        self._code = _INTERRUPTED if self._code is None else self._code

    def _await(self, answer: Any) -> None:
        self._answer, self._asked_at = answer, time.monotonic()

    def _poll(self) -> None:
        if self._cluster.is_lost:
            self._code = _INTERRUPTED
            return
        if not ray.wait([self._answer], timeout=0)[0]:
            if self._is_placed and time.monotonic() - self._asked_at > SILENCE_SECONDS:
                raise TimeoutError(f"no answer for {SILENCE_SECONDS:.0f} s")
            return
        answer = ray.get(self._answer)
        if isinstance(answer, str):
            self._there = os.fsencode(answer)
            ray.get(self._sent)
        elif self._is_placed:
            pieces, self._code = answer
            self._take(pieces)
        elif self._is_held(*answer):
            self._ask()
            return
        else:
            self._begin(*answer)
            return
        if self._code is None:
            self._await(self._actor.gather.remote())

    def _ask(self) -> None:
        self._await(self._actor.about.remote(str(self._cluster.proof), self._cluster.token))

    def _is_held(self, about: About, is_shared: bool) -> bool:
        """Whether a lost node may still train in the shared folder; it ends the training when it misses home."""
        return is_shared and self._name in self._cluster.losses and bool(holding_of(self._command.run).is_held)

    def _begin(self, about: About, is_shared: bool) -> None:
        """Send the files that the training reads, and start it."""
        if unlike := differences(about_here(), about):
            raise ConfigError(f"the node {about.host} has {unlike}: install the same versions there, or leave it out")
        self._is_placed = True
        self._cluster.report(f"{self._name}: on node {about.host}")
        command, folder = self._command, self._cluster.folder
        words = [self._cluster.absolute(word) for word in command.words[1:]]
        if not is_shared:
            within = [os.path.relpath(path, folder) for path in (command.run, command.output, *command.reads)]
            for batch in batches(Changes(folder).pieces(within)):
                self._sent.append(self._actor.put.remote(batch))
        # A node has no seal of the user's code; the user has named it in this command, too.
        if "resume" in words[:3] and names_only(RunDirectory.open(command.run).config, command.given):
            words.append("--trust-code")
        output = os.path.relpath(command.output, folder)
        task = Task(words, os.fspath(folder), output, is_shared, self._cluster.needs.cores, os.getcwd())
        self._await(self._actor.begin.remote(task))

    def _take(self, pieces: Sequence[Piece]) -> None:
        """Write pieces to home's copy of the run, which this process owns meanwhile."""
        try:
            for piece in pieces:
                self._copy.take(self._of_home(piece))
            if self._lock is None and pieces and self._command.run.is_dir():
                self._lock = RunLock.take(self._command.run)
        except FileNotFoundError:  # the copy was removed
            self._actor.send_again.remote()
        except HeldError as error:
            raise ConfigError(f"{self._command.run} is in use: {error}") from None

    def _of_home(self, piece: Piece) -> Piece:
        """Return a piece with home's folder in the run's settings."""
        if piece.data is None or Path(piece.path).name != CONFIG:
            return piece
        return replace(piece, data=piece.data.replace(self._there, os.fsencode(self._cluster.folder)))

    def _lose(self, why: str) -> None:
        """Settle on the code of a training whose node is lost."""
        checkpoint = checkpoint_to_go_on_from(self._command.run)
        steps = -1 if checkpoint is None else int(checkpoint["steps"])
        before, losses = self._cluster.losses.get(self._name, (-1, 0))
        losses = losses + 1 if steps == before else 1
        self._cluster.losses[self._name] = steps, losses
        self._code = LOST
        if self._is_stopping:
            self._code = _INTERRUPTED
        elif losses >= MOST_LOSSES:
            self._code = _FAILED
            with open(self._command.output, "a") as file:
                file.write(f"error: {losses} nodes were lost under it without a new checkpoint, the last one: {why}\n")
        else:
            self._cluster.report(f"{self._name}: its node was lost ({why}); it goes on elsewhere")

    def _end(self) -> None:
        """Release the node, and home's copy."""
        with suppress(Exception):
            ray.kill(self._actor)
        self._copy.close()
        if self._there and self._command.output.exists():
            text = self._command.output.read_bytes()
            replace_file(self._command.output, text.replace(self._there, os.fsencode(self._cluster.folder)))
        if self._lock is not None:
            self._lock.release()


def _gpus(resources: Collection[str]) -> str:
    return " with GPUs" if GPU in resources else ""
