"""The trainer: the public face of the engine."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from penstock.algorithms import algorithm_id, load_algorithm
from penstock.algorithms.bases.algorithm import Algorithm
from penstock.config import Config, ConfigError, change_config, checked, make_config, with_schedules
from penstock.engine.acting.weights import Best, BestWeights, SharedWeights
from penstock.engine.backends import launcher
from penstock.engine.backends.interruption import interruption
from penstock.engine.endings import TrainingFailed, TrainingInterrupted, TrainResult
from penstock.engine.paths import data_path
from penstock.engine.preparation import go_on_from_best, look_at, note_of_precision, require_device, run_shape
from penstock.engine.roles.learner import LearnerState, Start
from penstock.engine.supervisor import Supervisor
from penstock.engine.watching.chronicle import OnUpdate
from penstock.experience.arena import ExperienceArena
from penstock.nn import PolicyNetwork
from penstock.play.evaluation import Evaluation, evaluate_model
from penstock.runs.checkpoint import (
    Checkpoint,
    load_checkpoint,
    require_matching,
    save_checkpoint,
)
from penstock.runs.run_directory import RunDirectory, resolve_checkpoint
from penstock.runs.status import Status
from penstock.runs.view import open_view

__all__ = ["TrainResult", "Trainer", "TrainingFailed", "TrainingInterrupted"]

Weights = Mapping[str, Tensor] | str | os.PathLike[str]
"""A state dict, or where a checkpoint lies."""


class Trainer:
    """An algorithm with its settings, ready to train.

    ``penstock.APPO("CartPole-v1")`` is ``Trainer(APPO, "CartPole-v1")`` for Penstock's own algorithm; your own is
    trained by ``penstock.Trainer(MyAlgorithm, "CartPole-v1")``. Also a context manager that closes itself.

    Parameters
    ----------
    algorithm
        A subclass of `SegmentAlgorithm` or `ReplayAlgorithm`.
    env
        The environment, needed unless the preset names one; or all settings at once, a config made beforehand.
    preset
        Name of a preset, or path of one's own .toml file, for other defaults.
    **settings
        Other fields of the algorithm's config.

    Raises
    ------
    ConfigError, UnknownEnvironmentError, UnsupportedSpaceError
        A setting, or the environment, is not legal.
    RunDirectoryError
        The run directory exists and is not empty.
    MemoryError
        The arena does not fit in memory; the message shows the arithmetic.
    """

    _trains_in: int | None = None  # the thread in which train() is under way

    def __init__(
        self,
        algorithm: type[Algorithm],
        env: str | Callable[..., Any] | Config | None = None,
        *,
        preset: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        if isinstance(env, Config):
            if settings or preset:
                given = ", ".join([*settings, *(["preset"] if preset else [])])
                raise ConfigError(f"settings are given twice, as a config and by name ({given}): use one or the other")
            config = env
        else:
            config = make_config(algorithm.Config, ({} if env is None else {"env": env}) | settings, preset)
        self._open(algorithm, config, None, None)

    @classmethod
    def resume(
        cls,
        run_dir: str | os.PathLike[str],
        *,
        report: Callable[[str], None] | None = None,
        **changes: Any,
    ) -> Trainer:
        """Go on with a run from its last intact checkpoint, in the same directory.

        Parameters
        ----------
        run_dir
            The run directory.
        report
            Is told of damaged checkpoints that were passed over.
        **changes
            Settings that are others from now on, such as ``total_steps`` or ``learning_rate``; they are written to the
            run's ``config.json`` and log. ``max_seconds`` are so many more. ``env`` is needed where it was a callable
            or class that cannot be found again by its name.

        Raises
        ------
        ConfigError
            A setting is not legal, or cannot change within a run; the message says why not.
        RunDirectoryError, CheckpointError
            There is no such run, or it has no intact checkpoint.
        """
        run = RunDirectory.open(run_dir)
        checkpoint = run.checkpoints.latest(report)
        algorithm = load_algorithm(run.algorithm)
        before = {**run.config, "run_dir": os.fspath(run_dir)}
        more = changes.get("max_seconds")
        if isinstance(more, int | float) and more > 0:
            changes = {**changes, "max_seconds": round(checkpoint.meta.get("seconds", 0.0) + more, 3)}
        config = change_config(algorithm.Config, before, changes)
        trainer = cls.__new__(cls)
        trainer._open(algorithm, config, run, checkpoint)
        trainer._note_changes(before, changes)
        return trainer

    def _note_changes(self, before: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
        """Write down with what settings a run goes on that it did not have before."""
        assert self._run_directory is not None
        now = self.config.to_json()
        changed = {name: now[name] for name in changes if now[name] != before.get(name)}
        each = ", ".join(f"{name}={value!r} (was {before.get(name)!r})" for name, value in changed.items())
        self._run_directory.log(f"resumed at step {self.status.steps:,}{f' with {each}' if each else ''}")
        self._run_directory.go_on(self.status.steps, changed)

    def _open(
        self,
        algorithm: type[Algorithm],
        config: Config,
        run: RunDirectory | None,
        checkpoint: Checkpoint | None,
    ) -> None:
        try:
            self._set_up(algorithm, config, run, checkpoint)
        except BaseException:
            launcher.discard()
            raise

    def _set_up(
        self,
        algorithm: type[Algorithm],
        config: Config,
        run: RunDirectory | None,
        checkpoint: Checkpoint | None,
    ) -> None:
        began = time.monotonic()
        require_device(config.device)
        if config.backend == "local":
            launcher.prepare()
        else:
            launcher.discard()
        config = with_schedules(config)
        config, self._env, found = look_at(config)
        self.config = config
        self._algorithm = algorithm(config, found.observation, found.action)
        self._model = self._build_model()
        start = Start() if checkpoint is None else self._go_on_from(checkpoint, run)
        shape = run_shape(self._algorithm, self._model)
        saved = None if run is None else run.replay_path
        path, refill = data_path(self._algorithm).open(self._algorithm, shape, start, saved)
        self._arena = ExperienceArena.create(shape)
        self._weights = SharedWeights(self._model, self._arena.weights)
        self._weights.publish(start.state.version, start.state.steps)
        self._best_weights = BestWeights(self._arena.best_weights)
        if run is not None:
            go_on_from_best(run, self._best_weights, self._build_model())
        path.begin(self._arena, self._algorithm, self._model, start)
        if run is None and config.run_dir is not None:
            run = RunDirectory.create(
                config.run_dir, env_name=self._env.name, algorithm=algorithm_id(algorithm), config=config.to_json()
            )
        self._run_directory = run
        if run is not None:
            path = path.kept_in(run, config)
        notes = [note for note in (note_of_precision(self._algorithm), refill) if note is not None]
        self._supervisor = Supervisor(
            self._algorithm, self._env, found.frame_skip, self._arena, start, path, run, notes,
            best_weights=self._load_best,
        )  # fmt: skip
        self._supervisor.progress.seconds += time.monotonic() - began

    def _go_on_from(self, checkpoint: Checkpoint, run: RunDirectory | None) -> Start:
        require_matching(checkpoint.weights, self._model.state_dict(), str(checkpoint.path))
        self._model.load_state_dict(checkpoint.weights)
        state, meta = checkpoint.state or {}, checkpoint.meta
        return Start(
            LearnerState(meta["steps"], meta["version"], meta["updates"]), state, seconds=meta.get("seconds", 0.0)
        )

    def _build_model(self) -> PolicyNetwork:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed)
            return self._algorithm.build_model()

    def _load_best(self) -> Best | None:
        return self._best_weights.load(self._build_model)

    @property
    def run_dir(self) -> str | None:
        """The run directory; None if nothing is written."""
        return None if self._run_directory is None else str(self._run_directory.path)

    @property
    def status(self) -> Status:
        """Where the run stands, as plain numbers."""
        return self._supervisor.progress.status()

    def train(
        self,
        steps: int | None = None,
        *,
        on_update: OnUpdate | None = None,
        quiet: bool = False,
    ) -> TrainResult:
        """Train, and return when the steps are learned from. May be called again: processes stay warm.

        Parameters
        ----------
        steps
            At least so many more; None: up to ``total_steps``.
        on_update
            Called a few times per second with a `Status`; numbers that it returns by name are logged and shown, and
            False stops the training as a spent budget does. It may use the trainer, but not train or close it.
        quiet
            Show nothing.

        Raises
        ------
        TrainingFailed
            Something in the run failed. A checkpoint was written first, where there is a run directory, and the
            trainer is closed.
        TrainingInterrupted
            Ctrl-C or SIGTERM came: the update was finished and a checkpoint written. At a second one nothing is
            waited for: it is a plain KeyboardInterrupt, and the trainer is closed.
        Exception
            Whatever `on_update` raised. A checkpoint was written first, and the trainer may go on.
        ConfigError
            `steps` is not a whole number of more than 0.
        TypeError
            `on_update` returned something else.
        RuntimeError
            The trainer is closed, or trains already.
        """
        self._require_open()
        self._require_idle("train")
        steps = checked("steps", steps, int | None)
        if steps is not None and steps <= 0:
            raise ConfigError(f"steps={steps} is not legal: train at least 1 step, or None for up to total_steps")
        progress, config = self._supervisor.progress, self.config
        goal = config.total_steps if steps is None else progress.steps + steps
        deadline = None
        if config.max_seconds is not None:
            deadline = time.monotonic() + config.max_seconds - progress.seconds
        with self._training(), open_view(quiet=quiet) as view, interruption() as interrupted:
            stopped = self._supervisor.run(goal, deadline, interrupted, view, on_update)
            view.close(progress.status())
        evaluation = progress.evaluation
        result = TrainResult(
            steps=progress.steps,
            seconds=progress.seconds,
            reached_target=stopped == "target",
            target_return=config.target_return,
            eval_return=evaluation.mean_return if evaluation else None,
            mean_return=progress.mean_return,
            stopped=stopped,
            run_dir=self.run_dir,
            eval_unfinished=evaluation.unfinished if evaluation else 0,
        )
        if stopped == "interrupted":
            raise TrainingInterrupted(result)
        return result

    def evaluate(
        self, episodes: int | None = None, *, deterministic: bool = True, seed: int | None = None
    ) -> Evaluation:
        """Play episodes with the current weights, in this process; None: ``eval_episodes``.

        One that lasts longer than ``eval_max_steps`` is given up and counted in `Evaluation.unfinished`.
        """
        self._require_open()
        self._weights.refresh()
        evaluation = evaluate_model(
            self._model, self._env,
            episodes=checked("episodes", self.config.eval_episodes if episodes is None else episodes, int),
            deterministic=deterministic, seed=self.config.seed if seed is None else seed,
            max_steps=self.config.eval_max_steps,
        )  # fmt: skip
        return replace(evaluation, steps=self._weights.steps)

    def get_parameters(self) -> dict[int, dict[str, Tensor]]:
        """Return the newest weights, ``{policy_id: state dict on the CPU}``; policy_id is 0. They are copies."""
        self._require_open()
        self._weights.refresh()
        return {0: {name: tensor.clone() for name, tensor in self._model.state_dict().items()}}

    def set_parameters(self, parameters: Mapping[int, Weights] | str | os.PathLike[str]) -> None:
        """Go on with other weights; the optimiser keeps its state.

        Segments collected before are fenced off; a replay buffer, which holds what any policy did, stays as it is.

        Parameters
        ----------
        parameters
            ``{0: state dict}``, ``{0: path}`` or a path: of a checkpoint, or of a run (its best).

        Raises
        ------
        CheckpointError
            The checkpoint cannot be read, or its weights are of another architecture (the first tensor that
            differs is named).
        ConfigError
            A policy other than 0 is named.
        """
        self._require_open()
        chosen = _of_policy_0(parameters) if isinstance(parameters, Mapping) else parameters
        if isinstance(chosen, Mapping):
            weights, what = dict(chosen), "the parameters given"
        else:
            weights, what = load_checkpoint(resolve_checkpoint(chosen)).weights, os.fspath(chosen)
        require_matching(weights, self._model.state_dict(), what)
        self._supervisor.set_weights({name: tensor.detach().cpu().numpy() for name, tensor in weights.items()})

    def best(self) -> Best:
        """Return the best weights that any evaluation of this run has seen, with their mean return and their steps.

        After ``reached_target`` these are the weights that reached it, and those that the trainer holds.

        Raises
        ------
        RuntimeError
            There was no evaluation yet.
        """
        self._require_open()
        best = self._load_best()
        if best is None:
            raise RuntimeError(
                "no evaluation has scored any weights yet, so none are the best: evaluations come with train(), every "
                f"eval_interval steps (now {self.config.eval_interval}) and at the end; eval_interval=0 is never"
            )
        return best

    def save(self, path: str | os.PathLike[str], *, best: bool = False) -> None:
        """Write one checkpoint at `path`, a directory that is replaced atomically if it holds a checkpoint.

        Parameters
        ----------
        path
            Where.
        best
            Write the weights of `best` instead of those that are held now.

        Raises
        ------
        CheckpointError
            `path` is something else; nothing is touched.
        OSError
            It could not be written.
        RuntimeError
            `best` is asked for, and there was no evaluation yet.
        """
        if best:
            found = self.best()
            meta = {"steps": found.steps, "version": found.version, "mean_return": found.mean_return}
            save_checkpoint(path, meta={**self._supervisor.meta(), **meta}, weights=found.parameters[0])
            return
        self._require_open()
        self._supervisor.save(os.fspath(path))

    def close(self) -> None:
        """Stop all processes and give the memory back; a second call does nothing. Not within `on_update`."""
        if self._trains_in == threading.get_ident():
            self._require_idle("close")
        self._supervisor.close()

    @contextmanager
    def _training(self) -> Iterator[None]:
        self._trains_in = threading.get_ident()
        try:
            yield
        finally:
            self._trains_in = None

    def _require_idle(self, what: str) -> None:
        if self._trains_in is not None:
            is_within = self._trains_in == threading.get_ident()
            where = "within on_update" if is_within else "while another thread trains"
            raise RuntimeError(
                f"{what}() is called {where}, and train() is under way: let on_update return False to stop it, and "
                f"call {what}() when it has returned"
            )

    def _require_open(self) -> None:
        if self._supervisor.is_closed:
            raise RuntimeError("this trainer is closed: make a new one, or resume its run with Trainer.resume(run_dir)")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _of_policy_0(parameters: Mapping[Any, Any]) -> Weights:
    if list(parameters) != [0]:
        raise ConfigError(f"parameters are given for the policies {list(parameters)}; there is one: {{0: ...}}")
    chosen: Weights = parameters[0]
    return chosen
