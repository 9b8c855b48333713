"""Interface of a data path: how experience moves from lanes to the learner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.algorithms.bases.algorithm import Algorithm
    from penstock.config import Config
    from penstock.engine.acting.inference import MakeWeights, StepsTaken
    from penstock.engine.contracts import Actor, ExperienceWriter, LearnerState, RoleSpec, Start
    from penstock.engine.messages import Tell
    from penstock.engine.roles.learner import Learner
    from penstock.engine.watching.clock import Clock
    from penstock.envs.lanes import Lanes
    from penstock.experience.arena import ExperienceArena
    from penstock.nn import PolicyNetwork
    from penstock.runs.run_directory import RunDirectory


class DataPath:
    """Path of experience from the lanes of a run to its learner.

    An algorithm names its data path (`Algorithm.data_path`). Each policy of a run has one object of it: plain data,
    without torch, that is sent to the process of every role. The members serve runs; learner groups, nodes and
    measurements have tables of their own, with an entry for each class of data path.
    """

    workers_learn: ClassVar[bool] = False
    """True: rollout workers choose actions and learn; the learner publishes and saves the result."""

    # -- the start of a run ------------------------------------------------------------------------------------------

    @classmethod
    def numbers(cls, algorithm: Algorithm, model: PolicyNetwork) -> dict[str, int]:
        """Return numbers for the run's shape: segment_length, slots_per_lane, segments_per_batch, shared_nbytes.

        Raises
        ------
        ConfigError
            The settings do not fit this data path.
        """
        raise NotImplementedError

    @classmethod
    def create(
        cls, arena: ExperienceArena, algorithm: Algorithm, model: PolicyNetwork, start: Start, saved: Path | None
    ) -> tuple[Self, str | None]:
        """Make the data path of a policy, with the memory that its roles share, before the roles start.

        Parameters
        ----------
        arena
            Arena of the policy.
        algorithm, model
            Algorithm of the policy, and its network with the weights of the start.
        start
            Start of the run.
        saved
            Directory beside the checkpoints of a resumed run that may hold contents; None: a new run.

        Returns
        -------
        path : DataPath
        note : str or None
            Text for the user.

        Raises
        ------
        MemoryError
            A part does not fit in memory; the message shows the arithmetic.
        """
        return cls(), None

    def kept_in(self, run: RunDirectory, config: Config) -> DataPath:
        """Return this data path with the places in the run directory that it saves to."""
        return self

    # -- the roles ---------------------------------------------------------------------------------------------------

    def roles(self, algorithm: Algorithm, policy: int) -> Sequence[RoleSpec]:
        """Return the additional roles that a policy of this number needs for this data path."""
        return ()

    def actor(
        self, arena: ExperienceArena, algorithm: Algorithm, device: str, worker: int | None = None,
        report: Tell | None = None,
    ) -> Actor:  # fmt: skip
        """Make the actor that chooses actions on a device: of a rollout worker, or of a policy worker.

        Parameters
        ----------
        arena, algorithm, device
            Arena and algorithm of the policy, and the device of the computation.
        worker, report
            Number of the rollout worker, and its function for reports; None: a policy worker's actor.
        """
        from penstock.engine.acting.inference import Inference

        return Inference(arena, algorithm, device, self.steps_taken)

    def writer(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, actor: Any, clock: Clock
    ) -> ExperienceWriter:
        """Make the writer through which a rollout worker writes the experience of a group of lanes.

        Parameters
        ----------
        arena, worker, lanes, first_lane
            Arena of the policy, number of the rollout worker, lanes of the group, and number of the first of them.
        actor
            Result of `actor`; None: a policy worker chooses actions.
        clock
            Clock of the rollout worker, for activities other than stepping and writing.
        """
        return self._writer_class()(arena, worker, lanes, first_lane)

    def _writer_class(self) -> Callable[..., ExperienceWriter]:
        """Return the class of the writer, or a function with the same parameters."""
        raise NotImplementedError

    def learner(
        self, arena: ExperienceArena, algorithm: Algorithm, state: LearnerState, learning: dict[str, Any] | None,
        report: Tell, weights: MakeWeights,
    ) -> Learner:  # fmt: skip
        """Make the learner that learns from this experience.

        Status, metrics and panels show what the learner reports as "experience" (see `Learner.experience`).

        Parameters
        ----------
        arena, algorithm
            Arena and algorithm of the policy.
        state, learning
            Progress of learning, and the learner's own state as it was saved; None: nothing was saved.
        report
            Function for reports.
        weights
            Constructor of the transport by which weights are published.
        """
        return self._learner_class()(algorithm, arena, state, learning, report, weights=weights)

    def _learner_class(self) -> Callable[..., Learner]:
        """Return the class of the learner, or a function with the same parameters."""
        raise NotImplementedError

    @property
    def steps_taken(self) -> StepsTaken | None:
        """Function that returns the steps that exploration is scheduled by; None: these are the steps learned from."""
        return None

    @property
    def saving_apart(self) -> int:
        """Number of roles that save contents beside each checkpoint and then report `ContentsSaved`."""
        return 0
