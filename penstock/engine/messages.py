"""Reports of roles and commands of the supervisor: plain data, one class per kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

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
        What the algorithm reports of its last update.
    experience
        What is shown and logged of the data path, by the name of the metric.
    learning_rate
        Of the last update; None where rollout workers tell it.
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
    """Last updates of a rollout worker that learns.

    Attributes
    ----------
    worker
        Its number.
    losses
        Of the last one.
    lag
        Smallest, mean and largest policy lag of the gradients since its last report.
    learning_rate
        Of the last one.
    policy
        Number of the policy that it learns.
    """

    worker: int
    losses: Mapping[str, float]
    lag: tuple[float, float, float]
    learning_rate: float
    policy: int = 0


@dataclass(frozen=True)
class Episodes:
    """Training episodes of one policy that have ended, (return, length) each.

    Of each its success is told; None where none is. Of each it is told whether it began after the policy's last fence,
    where weights or settings were replaced; nothing means all did.
    """

    finished: list[tuple[float, int]]
    successes: list[float | None] = field(default_factory=list)
    policy: int = 0
    is_new: list[bool] = field(default_factory=list)


@dataclass(frozen=True)
class EnvironmentMetrics:
    """Numbers that environments of a policy have reported, by name; whether since the policy's last fence."""

    values: Mapping[str, float]
    policy: int = 0
    is_new: bool = True


@dataclass(frozen=True)
class Scored:
    """Evaluation of one policy.

    Attributes
    ----------
    evaluation
        What came of it.
    is_best
        Whether the weights are the best so far. They lie in the arena's block of the best weights then.
    error
        What went wrong in saving the best weights, if anything.
    others
        What the same weights had played, of which this one is the confirmation.
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
        Of the command.
    policies
        What came of it for each policy.
    seconds
        How long it took.
    has_reached_target
        Whether all policies that have a target have reached theirs, twice.
    """

    number: int
    policies: tuple[Scored, ...]
    seconds: float
    has_reached_target: bool = False


@dataclass(frozen=True)
class Saved:
    """A checkpoint was written, or could not be; `number` is that of the command."""

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
    """The learner goes on with weights that it was given; `version` is theirs."""

    version: int


@dataclass(frozen=True)
class Copied:
    """State of a learner for another: weights, normalisations, optimisers and targets.

    Attributes
    ----------
    learned
        All of it, as bytes that share no memory with the learner's own.
    version, steps
        Of the weights, and what they have been learned from in the steps of their policy.
    """

    learned: bytes
    version: int
    steps: int


@dataclass(frozen=True)
class Diverged:
    """The updates of a population's policy are not finite any more; it waits to be replaced."""

    policy: int
    problem: str


@dataclass(frozen=True)
class Note:
    """Something that the user is to be told."""

    text: str


@dataclass(frozen=True)
class NodeSeen:
    """State of a node of the run; the first is 0."""

    number: int
    status: NodeStatus


@dataclass(frozen=True)
class Ready:
    """A role is made, environments and all."""


@dataclass(frozen=True)
class Failed:
    """A role raised: its last report.

    Attributes
    ----------
    error
        The exception, if it can be pickled.
    text
        Its traceback.
    """

    error: BaseException | None
    text: str


@dataclass(frozen=True)
class Died:
    """A role ended and is replaced; the backend says so."""

    story: str


@dataclass(frozen=True)
class Of:
    """Report of one of several roles of a process.

    Attributes
    ----------
    role
        Its name.
    said
        What it reports.
    """

    role: str
    said: Report


Report = (
    Of | Learned | LearnedInWorker | Episodes | EnvironmentMetrics | EnvironmentSteps | Evaluated | Saved
    | ContentsSaved | WeightsSet | Copied | Diverged | Note | NodeSeen | Ready | Failed | Died
)  # fmt: skip
Tell = Callable[[Report], None]
"""Function by which a role reports."""
Handler = Callable[[str, Report], None]
"""Called with the name of a role and what it reports."""


# -- commands --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Save:
    """Write a checkpoint.

    Attributes
    ----------
    number
        By which the answer is known.
    destination
        The run's checkpoints, or a path.
    meta
        What it says of the run, beside what the learner knows.
    steps
        Steps of the run, by which it is found among the run's; None: those that the learner knows.
    """

    number: int
    destination: CheckpointStore | str
    meta: dict[str, Any]
    steps: int | None = None


@dataclass(frozen=True)
class SetWeights:
    """Go on with these weights, which have learned from so many steps; None: from as many as the run."""

    weights: dict[str, np.ndarray]
    steps: int | None


@dataclass(frozen=True)
class Copy:
    """Hand over what is learned so far."""


@dataclass(frozen=True)
class Inherit:
    """Go on with what another learner has handed over; steps, seed and random numbers stay."""

    learned: bytes


@dataclass(frozen=True)
class Candidate:
    """One policy that is to be evaluated.

    Attributes
    ----------
    store
        Where its best weights are saved; None: nowhere.
    best_return
        Mean return that they have to reach; None: any.
    meta
        What the best weights' checkpoint says of the run.
    """

    store: CheckpointStore | None
    best_return: float | None
    meta: dict[str, Any]


@dataclass(frozen=True)
class Evaluate:
    """Play the newest weights.

    Attributes
    ----------
    number
        By which the answer is known.
    deadline
        When playing ends, in monotonic seconds.
    policies
        Whose weights, one for each policy.
    """

    number: int
    deadline: float
    policies: tuple[Candidate, ...]


@dataclass(frozen=True)
class GoOnWithout:
    """Wait for a node no more: it is lost, and may never have been there."""

    node: int


@dataclass(frozen=True)
class Stop:
    """End by yourself."""


@dataclass(frozen=True)
class To:
    """A command to one of several roles of a process.

    Attributes
    ----------
    role
        Its name.
    command
        What it is told.
    """

    role: str
    command: Command


Command = Save | SetWeights | Copy | Inherit | Evaluate | GoOnWithout | Stop | To


def unknown(role: str, command: object, *known: type) -> ValueError:
    """The error of a role that is told what it does not know."""
    legal = " or ".join(each.__name__ for each in known) or "none"
    return ValueError(f"the {role} knows no command {type(command).__name__} (legal: {legal})")
