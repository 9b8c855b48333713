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
        Steps learned from, version of the weights, updates made and left out.
    losses
        Numbers that the algorithm reports of the last update.
    experience
        Shown and logged numbers of the data path, by the name of the metric.
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
        Whether each episode began after the policy's last fence, where weights or settings were replaced; empty: all.
    """

    finished: list[tuple[float, int]]
    successes: list[float | None] = field(default_factory=list)
    policy: int = 0
    is_new: list[bool] = field(default_factory=list)


@dataclass(frozen=True)
class EnvironmentMetrics:
    """Numbers by name that environments of a policy have reported, and whether since the policy's last fence."""

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
        Whether the weights are the best so far. They lie in the arena's block of the best weights then.
    error
        Error of saving the best weights; None: none.
    others
        Earlier evaluations of the same weights, which this one confirms.
    """

    evaluation: Evaluation
    is_best: bool = False
    error: Exception | None = None
    others: tuple[Evaluation, ...] = ()


@dataclass(frozen=True)
class EnvironmentSteps:
    """Steps that environments of several agents have made since the last report of them."""

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
        Reason why there is no film, where one was to be made; None: there is one, or there was to be none.
    """

    number: int
    policies: tuple[Scored, ...]
    seconds: float
    has_reached_target: bool = False
    without_film: str | None = None


@dataclass(frozen=True)
class Saved:
    """A checkpoint was written, or failed with an error; `number` is that of the command."""

    number: int
    error: Exception | None


@dataclass(frozen=True)
class ContentsSaved:
    """End of the saving of a data path's contents; `number` is that of the command."""

    number: int
    error: Exception | None
    what: str = "the replay buffer"


@dataclass(frozen=True)
class WeightsSet:
    """The learner has adopted weights; `version` is theirs."""

    version: int


@dataclass(frozen=True)
class Copied:
    """State of a learner for another: weights, normalisations, optimisers and targets.

    Attributes
    ----------
    learned
        The state, as bytes that share no memory with the learner's own.
    version, steps
        Version of the weights, and their policy's steps.
    """

    learned: bytes
    version: int
    steps: int


@dataclass(frozen=True)
class Diverged:
    """Updates of a population's policy are not finite any more; the policy waits to be replaced."""

    policy: int
    problem: str


@dataclass(frozen=True)
class Note:
    """Text for the user."""

    text: str


@dataclass(frozen=True)
class EpisodeSteps:
    """Numbers of each step of a recent episode, ``[T]``, by name, for the charts of an episode."""

    columns: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class NodesSeen:
    """Statuses of nodes of the run, by number; the first is 0. From a receiver: of those that connect to it."""

    statuses: dict[int, NodeStatus]
    gateways: dict[int, NodeStatus] = field(default_factory=dict)


@dataclass(frozen=True)
class Listening:
    """A receiver listens for nodes, or a shard for the learner, at an address; the backend keeps it."""

    address: tuple[str, int]


@dataclass(frozen=True)
class Ready:
    """A role and its environments are made."""


@dataclass(frozen=True)
class Failed:
    """Last report of a role that raised.

    Attributes
    ----------
    error
        The exception, if it can be pickled.
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
    """A role ended and is replaced; the backend reports it."""

    story: str


@dataclass(frozen=True)
class FromRole:
    """Report of one of several roles of a process."""

    role: str
    report: Report


Report = (
    FromRole | Learned | LearnedInWorker | Episodes | EnvironmentMetrics | EnvironmentSteps | Evaluated | Saved
    | ContentsSaved | WeightsSet | Copied | Diverged | Note | EpisodeSteps | NodesSeen | Listening | Ready | Failed
    | Died
)  # fmt: skip
Tell = Callable[[Report], None]
"""Function that takes the reports of a role."""
Handler = Callable[[str, Report], None]
"""Function that takes the name of a role and its report."""


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
    """Adopt weights that were learned from a number of steps; None: the policy's own."""

    weights: dict[str, np.ndarray]
    steps: int | None


@dataclass(frozen=True)
class Copy:
    """Report the learned state as `Copied`."""


@dataclass(frozen=True)
class Inherit:
    """Adopt the state of another learner; steps, seed and random numbers stay."""

    learned: bytes


@dataclass(frozen=True)
class Candidate:
    """One policy to evaluate.

    Attributes
    ----------
    store
        Checkpoint store for the best weights; None: they are not saved.
    best_return
        Mean return of the best weights so far; None: none yet.
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
        Directory of the run, for films; None: nothing is written.
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
    """Stop waiting for a node that is lost, or was never there."""

    node: int


@dataclass(frozen=True)
class Dismiss:
    """Grant a node nothing more: it leaves when what it was granted has arrived."""

    node: int


@dataclass(frozen=True)
class DrawFrom:
    """Draw from a shard of the replay, too, or in the place of the one that its gateway had."""

    shard: ShardAddress


@dataclass(frozen=True)
class Stop:
    """End the role."""


@dataclass(frozen=True)
class ToRole:
    """Command to one of several roles of a process."""

    role: str
    command: Command


Command = Save | SetWeights | Copy | Inherit | Evaluate | GoOnWithout | Dismiss | DrawFrom | Stop | ToRole


def unknown(role: str, command: object, *known: type) -> ValueError:
    """Error for a command that a role does not take; `known` are the legal commands."""
    legal = " or ".join(each.__name__ for each in known) or "none"
    return ValueError(f"the {role} takes no command {type(command).__name__} (legal: {legal})")
