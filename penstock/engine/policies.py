"""Policies of a run, each with algorithm, data path, arena and weights; and the training that consists of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from penstock.algorithms import algorithm_id
from penstock.algorithms.bases.algorithm import Algorithm
from penstock.config import Config, tunable_settings, tuned
from penstock.engine.acting.inference import Best, BestWeights, SharedWeights
from penstock.engine.contracts import LearnerState, Start
from penstock.engine.paths import DataPath, data_path
from penstock.engine.preparation import run_shape
from penstock.engine.roles.learner import Tunables
from penstock.envs.spec import EnvSpec
from penstock.envs.statistics import Moments
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RunShape
from penstock.experience.statistics import RunStatistics
from penstock.nn import PolicyNetwork
from penstock.play.policy import specs_to_json
from penstock.population.decisions import Population
from penstock.population.schedule import Schedule
from penstock.process_state import plain_torch
from penstock.runs.checkpoint import (
    Checkpoint,
    DamagedCheckpointError,
    MissingCheckpointError,
    load_checkpoint,
    require_matching,
)
from penstock.runs.run_directory import RunDirectory
from penstock.runs.store import CheckpointStore
from penstock.self_play.arenas import arena_shapes
from penstock.trust import SEALS, seals_of

if TYPE_CHECKING:
    from penstock.runs.sending import Sender


@dataclass(eq=False)
class Policy:
    """One policy of a run, made by `open_policies`.

    Attributes
    ----------
    number
        Place among the run's policies.
    name
        Name of the policy; empty in a run of one policy.
    algorithm
        Algorithm that learns the policy, with its settings.
    model
        Network that holds the last requested weights.
    start
        Start of the learning.
    path
        Data path of the policy.
    arena
        Shared memory of the policy's roles.
    weights, best_weights
        Newest weights, and the best that any evaluation has scored.
    untuned
        Settings of the policy as given when the run was started or resumed.
    tuned
        Values of tunable settings that replace those of `untuned`; the policy's progress shows the same dict.
    scheduled
        Steps of the entry of the run's schedule that was set last; None: no entry yet.
    """

    number: int
    name: str
    algorithm: Algorithm
    model: PolicyNetwork
    start: Start
    path: DataPath
    arena: ExperienceArena
    weights: SharedWeights
    best_weights: BestWeights
    untuned: Config
    tuned: dict[str, float] = field(default_factory=dict)
    scheduled: int | None = None

    @property
    def id(self) -> int | str:
        """Key in `Trainer.get_parameters`: the policy's number, or its given name."""
        return self.name if self.name and not self.name.isdigit() else self.number

    @property
    def config(self) -> Config:
        """Settings of the policy, with tuned values."""
        return tuned(self.untuned, self.tuned)

    def meta(self, of_run: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metadata of the policy's checkpoints, except steps and versions; all policies share `of_run`."""
        algorithm = self.algorithm
        meta = {
            "algorithm": algorithm_id(type(algorithm)),
            **of_run,
            "config": self.config.to_json(),
            "specs": specs_to_json(algorithm.observation, algorithm.action),
        }
        meta |= {SEALS: seals} if (seals := seals_of(meta["algorithm"], meta["config"])) else {}
        meta |= {"tuned": dict(self.tuned)} if self.tuned else {}
        meta |= {} if self.scheduled is None else {"heard": self.scheduled}
        return meta | ({"policy": self.name} if self.name else {})

    def tune(self, values: Mapping[str, Any]) -> None:
        """Set tunable settings, from the policy's next batch on.

        Raises
        ------
        ConfigError
            A setting is not tunable, or not legal together with the others; nothing is changed then.
        """
        now = {**self.tuned, **values}
        config = tuned(self.untuned, now)
        self.tuned.update((name, float(getattr(config, name))) for name in now)
        Tunables(self.arena.tunables, tunable_settings(type(config))).write(self.tuned)

    def best(self) -> Best | None:
        """Return the best weights that any evaluation has scored; None before there are any."""
        return self.best_weights.load(lambda: new_model(self.algorithm), self.id)

    def best_model(self) -> PolicyNetwork | None:
        """Return a network with the best weights; None before there are any."""
        return self.best_weights.model(lambda: new_model(self.algorithm))

    def parameters(self) -> dict[str, Tensor]:
        """Return a copy of the newest weights."""
        self.weights.refresh()
        return {name: tensor.clone() for name, tensor in self.model.state_dict().items()}

    def restore_best(self, store: CheckpointStore) -> str:
        """Restore the best weights of a resumed run; return a warning if they are damaged, else "".

        Raises
        ------
        NewerCheckpointError, UnreadableCheckpointError
            The best weights cannot be used now; a run that continued would replace them with worse ones.
        """
        try:
            checkpoint = store.best()
        except MissingCheckpointError:
            return ""
        except DamagedCheckpointError as error:
            return f"{error}; the next evaluation determines the best weights again"
        model = new_model(self.algorithm)
        model.load_state_dict(checkpoint.weights)
        meta = checkpoint.meta
        self.best_weights.put(model, meta.get("version", 0), meta["steps"], meta["mean_return"])
        return ""


@dataclass(eq=False)
class Training:
    """A training before it has roles, made by `penstock.engine.opening.open_training`.

    Attributes
    ----------
    config
        Settings of the run.
    env
        The environment.
    frame_skip
        Simulator frames per step; None where the environment declares none.
    policies
        Policies of the run, whose arenas hold the weights to start from. Empty once the run is closed.
    run_directory
        Directory of the run; None: nothing is written.
    statistics
        Running statistics of the environment's wrappers.
    population
        Population whose decisions are carried out; None without ``pbt``.
    schedule
        Values of tunable settings by steps, which replace those of `config`; empty: no schedule.
    notes
        Notes to show to the user before the roles start.
    sender
        Sender of the run's files to its remote directory; None: the run is local.
    """

    config: Config
    env: EnvSpec
    frame_skip: int | None
    policies: list[Policy]
    run_directory: RunDirectory | None
    statistics: RunStatistics
    population: Population | None
    schedule: Schedule
    notes: Sequence[str]
    sender: Sender | None = None


def open_policies(
    config: Config, algorithms: Mapping[str, Algorithm], checkpoints: Sequence[Checkpoint], run: RunDirectory | None,
    changed: Collection[str] = (), statistics: Sequence[Moments] = (),
) -> tuple[list[Policy], list[str]]:  # fmt: skip
    """Make the policies of a run, and the arenas that their roles share.

    Parameters
    ----------
    config
        Settings of the run.
    algorithms
        Algorithm of each policy, by the policy's name.
    checkpoints
        Checkpoint that each policy starts from; empty: from nothing.
    run
        Directory of a resumed run; None: a new run.
    changed
        Names of settings that a resume changes: their tuned values are dropped.
    statistics
        Running statistics of the environment's wrappers, for which the first arena has room.

    Returns
    -------
    policies : list of Policy
    notes : list of str
        Notes for the user.

    Raises
    ------
    ConfigError
        The settings do not fit the algorithm's data path.
    CheckpointError
        A checkpoint's weights are of another architecture.
    MemoryError
        The arenas do not fit in memory; the message shows the arithmetic.
    """
    models = [new_model(algorithm) for algorithm in algorithms.values()]
    starts = [_start_from(checkpoint, model) for checkpoint, model in zip(checkpoints, models, strict=False)]
    starts = starts or [Start() for _ in models]
    alone = [run_shape(algorithm, model) for algorithm, model in zip(algorithms.values(), models, strict=True)]
    shapes = arena_shapes(config, [*algorithms], alone)
    sizes = tuple(each.mean.size for each in statistics)
    first = ExperienceArena.create(replace(shapes[0], others=tuple(shapes[1:]), statistics=sizes))
    policies, notes, of_paths = [], [], []
    for number, (name, algorithm) in enumerate(algorithms.items()):
        model, start, arena = models[number], starts[number], first.policies[number]
        weights = SharedWeights(model, arena.weights)
        weights.publish(start.state.version, start.state.steps)
        saved = None if run is None else run.of_policy(name).replay_path
        path, note = data_path(algorithm).create(arena, algorithm, model, start, saved)
        if note is not None:
            of_paths.append(note if len(algorithms) == 1 else f"policy {name!r}: {note}")
        best_weights = BestWeights(arena.best_weights)
        policy = Policy(
            number, name, algorithm, model, start, path, arena, weights, best_weights, untuned=algorithm.config
        )
        tuned_before = start.meta.get("tuned", {})
        if kept := {setting: value for setting, value in tuned_before.items() if setting not in changed}:
            policy.tune(kept)
        if run is not None and (warning := policy.restore_best(run.of_policy(name).checkpoints)):
            notes.append(warning)
        policies.append(policy)
    return policies, [*_note_of_memory([*algorithms], shapes), *notes, *of_paths]


def new_model(algorithm: Algorithm) -> PolicyNetwork:
    """Make an algorithm's network, initialised from the algorithm's seed."""
    with plain_torch(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(algorithm.config.seed)
        return algorithm.make_model()


def checkpoints_to_resume(run: RunDirectory, report: Callable[[str], None] | None = None) -> list[Checkpoint]:
    """Load the newest intact checkpoints of a run: one of each policy, all of the same steps.

    Return an empty list for a run that ended before its first checkpoint, and starts again.

    Parameters
    ----------
    run
        Directory of the run.
    report
        Called with a line for each damaged checkpoint that is skipped.

    Raises
    ------
    MissingCheckpointError, DamagedCheckpointError
        The directory holds no checkpoints, or none that are intact and of the same steps for all policies.
    NewerCheckpointError, UnreadableCheckpointError
        The newest checkpoints cannot be used now.
    """
    stores = [run.of_policy(name).checkpoints for name in run.policies or [""]]
    if not any(store.directory.exists() for store in stores):
        (report or print)(f"{run.path} ended before its first checkpoint, and starts again at step 0")
        return []
    if not run.policies:
        return [run.checkpoints.latest(report)]
    common = set.intersection(*(set(store.steps()) for store in stores))
    for steps in sorted(common, reverse=True):
        try:
            return [load_checkpoint(store.path_of(steps)) for store in stores]
        except DamagedCheckpointError as error:
            if report is not None:
                report(f"{error}; using the previous one")
    raise (DamagedCheckpointError if common else MissingCheckpointError)(
        f"{run.path} has no intact checkpoints of all its policies ({', '.join(run.policies)}) at the same steps"
    )


def _start_from(checkpoint: Checkpoint, model: PolicyNetwork) -> Start:
    require_matching(checkpoint.weights, model.state_dict(), str(checkpoint.path))
    model.load_state_dict(checkpoint.weights)
    learning, meta = checkpoint.state, checkpoint.meta
    steps = (learning or {}).get("steps", meta["steps"])
    return Start(LearnerState(steps, meta["version"], meta["updates"]), learning, meta)


def _note_of_memory(names: Sequence[str], shapes: Sequence[RunShape]) -> list[str]:
    count = len(names)
    if count == 1:
        return []
    sizes = [shape.nbytes() / 2**20 for shape in shapes]
    unlearned = [s.split.label(names[s.plays]) for s in shapes if s.split is not None and s.plays is not None]
    each = ", ".join(f"{name} {size:,.1f} MiB" for name, size in zip([*names, *unlearned], sizes, strict=True))
    return [f"{count} policies: {len(sizes)} arenas, {sum(sizes):,.1f} MiB of shared memory ({each})"]
