"""Reports of roles and commands of the supervisor: plain data, one class per kind."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from penstock.experience.shards import ShardAddress
    from penstock.play.evaluation import Evaluation
    from penstock.runs.status import NodeStatus
    from penstock.runs.store import CheckpointStore


# -- reports ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Learned:
    """Progress of a learner.

    Attributes
    ----------
    steps, version, updates, skipped_updates
        Steps learned from, version of the weights, updates made and skipped.
    losses
        Numbers that the algorithm reports for the last update.
    experience
        Numbers of the data path to show and log, by name of the metric.
    learning_rate
        Learning rate of the last update; None where rollout workers report it.
    """

    steps: int
    version: int = 0
    updates: int = 0
    skipped_updates: int = 0
    losses: Mapping[str, float] = field(default_factory=dict)
    experience: Mapping[str, float] = field(default_factory=dict)
    learning_rate: float | None = None


@dataclass(frozen=True)
class LearnedInWorker:
    """Latest updates of a rollout worker that learns.

    Attributes
    ----------
    worker
        Number of the worker.
    losses
        Losses of the last update.
    lags
        Policy lag of each gradient since the worker's last report.
    learning_rate
        Learning rate of the last update.
    policy
        Number of the policy.
    """

    worker: int
    losses: Mapping[str, float]
    lags: Sequence[int]
    learning_rate: float
    policy: int = 0


@dataclass(frozen=True)
class Episodes:
    """Finished training episodes of one policy.

    Attributes
    ----------
    finished
        Return and length of each episode.
    successes
        Success of each episode; None where the environment reports none.
    policy
        Number of the policy.
    is_new
        Whether each episode began after the policy's last fence, which replaced weights or settings; empty: all did.
    """

    finished: list[tuple[float, int]]
    successes: list[float | None] = field(default_factory=list)
    policy: int = 0
    is_new: list[bool] = field(default_factory=list)


@dataclass(frozen=True)
class EnvironmentMetrics:
    """Numbers by name reported by environments of a policy; `is_new`: since the policy's last fence."""

    values: Mapping[str, float]
    policy: int = 0
    is_new: bool = True


@dataclass(frozen=True)
class Scored:
    """Evaluation of one policy.

    Attributes
    ----------
    evaluation
        Result of the evaluation.
    is_best
        Whether the weights are the best so far; if so, they are in the arena's block of the best weights.
    error
        Error in saving the best weights; None: no error.
    others
        Earlier evaluations of the same weights, which this one confirms.
    """

    evaluation: Evaluation
    is_best: bool = False
    error: Exception | None = None
    others: tuple[Evaluation, ...] = ()


@dataclass(frozen=True)
class EnvironmentSteps:
    """Steps made by environments of several agents since the last report of this kind."""

    count: int


@dataclass(frozen=True)
class Evaluated:
    """Result of one evaluation.

    Attributes
    ----------
    number
        Number of the command.
    policies
        Result for each policy.
    seconds
        Duration in seconds.
    has_reached_target
        Whether all policies with a target have reached it twice.
    without_film
        Reason why a film that was due was not made; None: it was made, or none was due.
    """

    number: int
    policies: tuple[Scored, ...]
    seconds: float
    has_reached_target: bool = False
    without_film: str | None = None


@dataclass(frozen=True)
class Saved:
    """A checkpoint was written, or could not be because of an error; `number` is that of the command."""

    number: int
    error: Exception | None


@dataclass(frozen=True)
class ContentsSaved:
    """Contents of a data path were saved, or could not be because of an error; `number` is that of the command."""

    number: int
    error: Exception | None
    what: str = "the replay buffer"


@dataclass(frozen=True)
class WeightsSet:
    """The learner has adopted weights and given them this version."""

    version: int


@dataclass(frozen=True)
class Copied:
    """State of a learner for another one to adopt: weights, normalisations, optimisers and targets.

    Attributes
    ----------
    learned
        The state, as bytes that share no memory with the learner's own.
    version, steps
        Version of the weights, and steps that the policy has learned from.
    """

    learned: bytes
    version: int
    steps: int


@dataclass(frozen=True)
class Diverged:
    """Updates of a policy in a population are no longer finite; the policy waits to be replaced."""

    policy: int
    problem: str


@dataclass(frozen=True)
class Note:
    """Text for the user."""

    text: str


@dataclass(frozen=True)
class EpisodeSteps:
    """Numbers of each step of a recent episode by name, each ``[T]``, for the charts of an episode."""

    columns: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class NodesSeen:
    """Statuses of the run's nodes, by number from 0; a receiver reports only the nodes that connect to it."""

    statuses: dict[int, NodeStatus]
    gateways: dict[int, NodeStatus] = field(default_factory=dict)


@dataclass(frozen=True)
class Listening:
    """A receiver listens for nodes, or a shard for the learner, at an address, which the backend keeps."""

    address: tuple[str, int]


@dataclass(frozen=True)
class Ready:
    """A role and its environments have been created."""


@dataclass(frozen=True)
class Failed:
    """Last report of a role that raised.

    Attributes
    ----------
    error
        The exception; None if it cannot be pickled.
    text
        Traceback of the exception.
    """

    error: BaseException | None
    text: str

    @classmethod
    def of(cls, error: BaseException) -> Failed:
        """Return the report of an exception."""
        text = "".join(traceback.format_exception(error))
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return cls(None, text)
        return cls(error, text)


@dataclass(frozen=True)
class Died:
    """A role ended and will be replaced; sent by the backend."""

    story: str


@dataclass(frozen=True)
class FromRole:
    """Report of one of several roles that share a process."""

    role: str
    report: Report


Report = (
    FromRole | Learned | LearnedInWorker | Episodes | EnvironmentMetrics | EnvironmentSteps | Evaluated | Saved
    | ContentsSaved | WeightsSet | Copied | Diverged | Note | EpisodeSteps | NodesSeen | Listening | Ready | Failed
    | Died
)  # fmt: skip
Tell = Callable[[Report], None]
"""Function that a role calls with each report."""
Handler = Callable[[str, Report], None]
"""Function called with the name of a role and its report."""


# -- commands --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Save:
    """Write a checkpoint.

    Attributes
    ----------
    number
        Number of the command, which the answer repeats.
    destination
        Checkpoint store of the run, or a path.
    meta
        Metadata of the checkpoint, which the learner completes.
    steps
        Steps of the run, which name the checkpoint in the store; None: the learner's steps.
    """

    number: int
    destination: CheckpointStore | str
    meta: dict[str, Any]
    steps: int | None = None


@dataclass(frozen=True)
class SetWeights:
    """Adopt weights that were learned from `steps` steps; None: as many as the policy has learned from."""

    weights: dict[str, np.ndarray]
    steps: int | None


@dataclass(frozen=True)
class Copy:
    """Report the learned state as `Copied`."""


@dataclass(frozen=True)
class Inherit:
    """Adopt the state of another learner; keep steps, seed and random numbers."""

    learned: bytes


@dataclass(frozen=True)
class Candidate:
    """One policy to evaluate.

    Attributes
    ----------
    store
        Checkpoint store for the best weights; None: they are not saved.
    best_return
        Mean return of the best weights so far; None: no evaluation yet.
    meta
        Metadata of the best weights' checkpoint.
    """

    store: CheckpointStore | None
    best_return: float | None
    meta: dict[str, Any]


@dataclass(frozen=True)
class Evaluate:
    """Evaluate the newest weights.

    Attributes
    ----------
    number
        Number of the command, which the answer repeats.
    deadline
        End of playing, in monotonic seconds.
    policies
        The policies, which play together.
    run
        Directory of the run, for videos; None: nothing is written.
    is_last
        Whether the run ends with this evaluation.
    """

    number: int
    deadline: float
    policies: tuple[Candidate, ...]
    run: Path | None = None
    is_last: bool = False


@dataclass(frozen=True)
class GoOnWithout:
    """Stop waiting for a node that is lost, or that never connected."""

    node: int


@dataclass(frozen=True)
class Dismiss:
    """Grant a node nothing more; it leaves when everything that it was granted has arrived."""

    node: int


@dataclass(frozen=True)
class DrawFrom:
    """Draw from a shard of the replay, which replaces any earlier shard of the same gateway."""

    shard: ShardAddress


@dataclass(frozen=True)
class Stop:
    """End the role."""


@dataclass(frozen=True)
class ToRole:
    """Command to one of several roles that share a process."""

    role: str
    command: Command


Command = Save | SetWeights | Copy | Inherit | Evaluate | GoOnWithout | Dismiss | DrawFrom | Stop | ToRole


def unknown(role: str, command: object, *known: type) -> ValueError:
    """Return the error for a command that a role does not accept; `known` are the legal commands."""
    legal = " or ".join(each.__name__ for each in known) or "none"
    return ValueError(f"the {role} takes no command {type(command).__name__} (legal: {legal})")
