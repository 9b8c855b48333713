"""Interface of a data path: how experience moves from lanes to the learner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy as np

    from penstock.algorithms.bases.algorithm import Algorithm
    from penstock.config import Config
    from penstock.engine.acting.weights import MakeWeights
    from penstock.engine.contracts import Actor, ExperienceWriter, LearnerState, RoleSpec, Start
    from penstock.engine.messages import Tell
    from penstock.engine.paths.apprentices import Apprentice
    from penstock.engine.roles.learner import Learner
    from penstock.engine.watching.clock import Clock
    from penstock.envs.lanes import Lanes
    from penstock.experience.arena import ExperienceArena
    from penstock.experience.layout import RunShape
    from penstock.nn import PolicyNetwork
    from penstock.runs.run_directory import RunDirectory


class Rehearsal(Protocol):
    """One kind of a run's work, done over and over to see what it costs."""

    def do(self) -> float:
        """Do it once; return how many steps of the run that is for."""
        ...

    def close(self) -> None:
        """Let go of what is held open."""
        ...


class DataPath:
    """Path of experience from the lanes of a run to its learner.

    An algorithm names its data path (`Algorithm.data_path`). One object of it belongs to a run: plain data, without
    torch, that travels to the process of every role. A subclass says what differs; everybody else asks it.
    """

    workers_learn: ClassVar[bool] = False
    """True: rollout workers choose actions and learn; the learner only shows what comes of it."""
    batch_is_free: ClassVar[bool] = True
    """False: nothing is gained by tuning the batch's size for speed, because the smallest is always the fastest."""

    # -- before a run: what follows from algorithm and config --------------------------------------------------------

    @classmethod
    def numbers(cls, algorithm: Algorithm, model: PolicyNetwork) -> dict[str, int]:
        """Return what it adds to the run's shape: segment_length, slots_per_lane, segments_per_batch, shared_nbytes.

        Raises
        ------
        ConfigError
            The settings do not fit this data path.
        """
        raise NotImplementedError

    @classmethod
    def takes_turns(cls, algorithm: Algorithm | type[Algorithm]) -> bool:
        """Whether nobody steps while the learner learns."""
        return False

    @classmethod
    def lanes_of_batch(cls, config: Config) -> int | None:
        """Lanes that bring one segment each to a batch; None: a batch is of any lanes."""
        return None

    @classmethod
    def quick(cls, config: Config) -> Config:
        """Return settings of the same work per step for a measurement, where learning is to begin at once."""
        return config

    @classmethod
    def rehearsal(cls, arena: ExperienceArena, algorithm: Any) -> Rehearsal:
        """Make the learning of a run by itself, from what lies in the rows of a full arena."""
        raise NotImplementedError

    # -- the start of a run ------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, algorithm: Any, shape: RunShape, start: Start, saved: Path | None) -> tuple[Self, str | None]:
        """Make the data path of a run, or go on with what is saved of it.

        Parameters
        ----------
        algorithm, shape
            Whose run it is, and the run's numbers.
        start
            Where the run starts.
        saved
            Where contents may have been saved beside the checkpoints; None: nowhere.

        Returns
        -------
        path : DataPath
        note : str or None
            What the user is to be told.
        """
        return cls(), None

    def kept_in(self, run: RunDirectory, config: Config) -> DataPath:
        """Return this data path as it is where the run is written to a directory."""
        return self

    def begin(self, arena: ExperienceArena, algorithm: Any, model: PolicyNetwork, start: Start) -> None:
        """Lay out what the roles share, before there are any."""

    # -- the roles ---------------------------------------------------------------------------------------------------

    def roles(self, algorithm: Any, policy: int) -> Sequence[RoleSpec]:
        """Return the roles that a policy of this number has for this data path, beside those of every policy."""
        return ()

    def actor(self, arena: ExperienceArena, algorithm: Any, worker: int, report: Tell) -> Actor:
        """Make what chooses the actions of a rollout worker in its own process."""
        return self.inference(arena, algorithm, "cpu")

    def inference(self, arena: ExperienceArena, algorithm: Any, device: str) -> Actor:
        """Make what chooses actions on a device."""
        from penstock.engine.acting.inference import Inference

        return Inference(arena, algorithm, device, self.steps_taken)

    def writer(
        self,
        arena: ExperienceArena,
        worker: int,
        lanes: Lanes,
        first_lane: int,
        actor: Any,
        clock: Clock,
    ) -> ExperienceWriter:
        """Make what a rollout worker writes the experience of a group of lanes through.

        Parameters
        ----------
        arena, worker, lanes, first_lane
            The run's arena, the worker's number, the lanes of the group, and the number of the first of them.
        actor
            What `actor` has made; None: a policy worker chooses actions.
        clock
            The worker's, for what is neither stepping nor writing.
        """
        raise NotImplementedError

    def learner(
        self,
        arena: ExperienceArena,
        algorithm: Any,
        state: LearnerState,
        learning: dict[str, Any] | None,
        report: Tell,
        weights: MakeWeights,
    ) -> Learner:
        """Make the learner that reads it.

        What the learner reports as "experience" (see `Learner.experience`) is what status, metrics and panels show.

        Parameters
        ----------
        arena, algorithm
            The run's arena, and what learns.
        state, learning
            Where learning stands, and what the learner alone has, as it was saved; None: nothing was.
        report
            Called with what happens.
        weights
            By which way weights are published.
        """
        raise NotImplementedError

    # -- several learners --------------------------------------------------------------------------------------------

    @classmethod
    def why_one_learner(cls) -> str:
        """Why no other learner can learn from the same batches; empty: it can."""
        return "its learner does not hand out what it learns from"

    @classmethod
    def apprentice(cls, algorithm: Any) -> Apprentice:
        """Make what learns from the batches that the learner of this data path hands out, in another process."""
        raise NotImplementedError

    # -- other nodes -------------------------------------------------------------------------------------------------

    @classmethod
    def why_at_home(cls) -> str:
        """Why lanes on other nodes cannot bring this experience; empty: they can."""
        return "its experience has no way between machines yet"

    travels: ClassVar[Literal["segments", "steps"]] = "segments"
    """Unit in which experience travels from another node to home."""

    def away(self) -> DataPath:
        """Return what of this data path travels to another node: all but what lies in the home node's memory."""
        return self

    def there(self, arena: ExperienceArena) -> DataPath:
        """Return what has travelled to a node, as its roles have it, with what they share."""
        return self

    def arrived(self, arena: ExperienceArena) -> Callable[[np.ndarray], None]:
        """Make what is done at home with full slots (int64 ``[K]``) of another node, before they are handed over."""
        return lambda slots: None

    def steps_taken(self, learned: int, asked: int) -> int:
        """Steps by which exploration is scheduled, when so many are learned from and actions for `asked` are asked."""
        return learned

    @property
    def saving_apart(self) -> int:
        """Number of roles that save contents beside each checkpoint and then report "contents_saved"."""
        return 0
