"""The trainer, the public interface of the engine."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from statistics import fmean
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.config import Config, ConfigError, checked, make_config, method_hint
from penstock.engine.acting.inference import Best
from penstock.engine.backends.interruption import Interrupted, interruption
from penstock.engine.endings import Budget, TrainingFailed, TrainingInterrupted, TrainResult
from penstock.engine.opening import open_training, reopen_training
from penstock.engine.policies import Policy
from penstock.engine.steering import Steering
from penstock.engine.supervisor import Supervisor
from penstock.engine.watching.chronicle import OnUpdate
from penstock.play.evaluation import Evaluation
from penstock.play.scoring import evaluate_models
from penstock.runs.checkpoint import Checkpoint, load_checkpoint, require_matching, save_checkpoint
from penstock.runs.lookup import resolve_checkpoint
from penstock.runs.status import Status
from penstock.runs.view import open_view

__all__ = ["TrainResult", "Trainer", "TrainingFailed", "TrainingInterrupted"]

Weights = Mapping[str, Tensor | np.ndarray] | str | os.PathLike[str]
"""A state dict, or the path of a checkpoint."""


class _Hinted(type):
    def __getattr__(cls, name: str) -> Any:
        raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}{method_hint(name)}")


class Trainer(Steering, metaclass=_Hinted):
    """Trainer of an algorithm with its settings; a context manager that closes itself.

    ``penstock.APPO("CartPole-v1")`` is ``Trainer(APPO, "CartPole-v1")`` for Penstock's own algorithm; train your own
    by ``penstock.Trainer(MyAlgorithm, "CartPole-v1")``.

    Parameters
    ----------
    algorithm
        A subclass of `SegmentAlgorithm` or `ReplayAlgorithm`.
    env
        The environment, required unless the preset names one; or a config with all settings.
    preset
        Name of a preset, or path of a .toml file, with other defaults.
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

    _trains_in: int | None = None  # identifier of the thread that runs train()

    def __init__(
        self, algorithm: type[Algorithm], env: str | Callable[..., Any] | Config | None = None, *,
        preset: str | os.PathLike[str] | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        if not (isinstance(algorithm, type) and issubclass(algorithm, Algorithm)):
            found = f"the class {algorithm.__name__}" if isinstance(algorithm, type) else repr(algorithm)
            raise ConfigError(
                f"algorithm={found} is not legal: it must be a subclass of SegmentAlgorithm or ReplayAlgorithm; "
                'algorithms of Penstock are trainers themselves, e.g. penstock.PPO("CartPole-v1")'
            )
        if isinstance(env, Config):
            if settings or preset:
                given = ", ".join([*settings, *(["preset"] if preset else [])])
                raise ConfigError(f"settings are given twice, as a config and by name ({given}): use one or the other")
            config = env
        else:
            config = make_config(algorithm.Config, ({} if env is None else {"env": env}) | settings, preset)
        self._hold(open_training(algorithm, config))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{method_hint(name)}")

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the state of the run, and the curves of its returns."""
        from penstock.runs.notebook import run_html  # only needed in notebooks

        return run_html(self.status, self.run_dir)

    @classmethod
    def resume(
        cls, run_dir: str | os.PathLike[str], *, report: Callable[[str], None] | None = None, trust_code: bool = False,
        **changes: Any,
    ) -> Trainer:  # fmt: skip
        """Resume a run from its last intact checkpoint, in the same directory.

        A remote run, given by its URL, is downloaded into a new directory in ``runs``, unless a complete copy is there.

        Parameters
        ----------
        run_dir
            The run directory, or its URL.
        report
            Called with a line for each damaged checkpoint that is skipped.
        trust_code
            Whether to run code and use a URL that the run names, even if this user has not trained with them.
        **changes
            Settings to change, such as ``total_steps`` or ``learning_rate``; they are written to the run's
            ``config.json`` and log. ``max_seconds`` is added to the seconds spent. ``env``, ``encoder`` and
            ``algorithm`` are required if they were callables or classes that cannot be found by name.

        Raises
        ------
        ConfigError
            A setting is not legal, or cannot change within a run.
        RunDirectoryError, CheckpointError
            There is no such run, or it has no intact checkpoint.
        UntrustedCodeError
            The run names code that this user has not trained with; nothing was imported.
        """
        trainer = cls.__new__(cls)
        kind = getattr(cls, "algorithm", Algorithm)
        trainer._hold(reopen_training(run_dir, changes, report, trust_code=trust_code, kind=kind))
        return trainer

    def _hold(self, supervisor: Supervisor) -> None:
        self._supervisor, training = supervisor, supervisor.training
        self.config, self._env = training.config, training.env
        self._policies, self._run_directory = training.policies, training.run_directory

    @property
    def run_dir(self) -> str | None:
        """Absolute path of the run directory; None: nothing is written."""
        return None if self._run_directory is None else str(self._run_directory.path)

    @property
    def status(self) -> Status:
        """Status of the run, in plain numbers."""
        return self._supervisor.progress.status()

    def train(self, steps: int | None = None, *, on_update: OnUpdate | None = None, quiet: bool = False) -> TrainResult:
        """Train until a number of steps have been learned from. May be called again: processes stay alive.

        Parameters
        ----------
        steps
            Minimum number of further steps; None: up to ``total_steps``.
        on_update
            Called a few times per second with a `Status`. Numbers that it returns by name are logged and shown; False
            ends training like a spent budget. It may use the trainer, but not train or close it.
        quiet
            Show nothing.

        Raises
        ------
        TrainingFailed
            A role failed. A checkpoint was written first if there is a run directory, and the trainer is closed.
        TrainingInterrupted
            Ctrl-C, SIGTERM, SIGHUP or SIGUSR1 came: the update was finished and a checkpoint written. A second signal
            raises a plain KeyboardInterrupt at once, and closes the trainer.
        Exception
            An exception of `on_update`. A checkpoint was written first, and the trainer may be used again.
        ConfigError
            `steps` is not a positive integer, or `on_update` cannot be called.
        TypeError
            `on_update` returned something else.
        RuntimeError
            The trainer is closed, or is training already.
        """
        self._require_open()
        self._require_idle("train")
        steps = checked("steps", steps, int | None)
        checked("on_update", on_update, Callable[..., Any] | None)
        if steps is not None and steps <= 0:
            raise ConfigError(f"steps={steps} is not legal: train at least 1 step, or None for up to total_steps")
        progress, config = self._supervisor.progress, self.config
        goal = config.total_steps if steps is None else progress.steps + steps
        deadline = None
        if config.max_seconds is not None:
            deadline = time.monotonic() + config.max_seconds - progress.seconds
        with open_view(quiet=quiet) as view, interruption() as interrupted, self._training(interrupted):
            stop_reason = self._supervisor.run(Budget(goal, deadline), interrupted, view, on_update)
            view.close(progress.status())
        status = progress.status()
        result = TrainResult(
            steps=progress.steps, seconds=progress.seconds, reached_target=stop_reason == "target",
            target_return=config.target_return, eval_return=status.eval_return, mean_return=status.mean_return,
            stop_reason=stop_reason, run_dir=self.run_dir, eval_unfinished=status.eval_unfinished,
            unsent=self._supervisor.chronicle.unsent, save_error=self._supervisor.saves.save_error,
        )  # fmt: skip
        if stop_reason == "interrupted":
            raise TrainingInterrupted(result)
        return result

    def evaluate(
        self, episodes: int | None = None, *, deterministic: bool = True, seed: int | None = None
    ) -> Evaluation | Any:  # `Any` stands for the dict of several policies, so that one policy needs no cast
        """Play a number of episodes (None: ``eval_episodes``) with the current weights, in this process.

        With ``eval_against`` that many games are played against each opponent: by a single policy from each seat, by
        each of several with its own agents; see `Evaluation.matches`. Without it, several policies play each other. An
        episode of more than ``eval_max_steps`` steps is cut short and counted in `Evaluation.unfinished`.

        Returns
        -------
        Evaluation
            Result of the episodes; with several policies, which play together, ``{policy_id: Evaluation}``.
        """
        self._require_open()
        for policy in self._policies:
            policy.weights.refresh()
        evaluations = evaluate_models(
            [policy.model for policy in self._policies],
            replace(self._env, statistics=self._supervisor.training.statistics.now()),
            episodes=checked("episodes", self.config.eval_episodes if episodes is None else episodes, int),
            deterministic=deterministic, seed=self.config.seed if seed is None else seed,
            max_steps=self.config.eval_max_steps, opponents=self.config.eval_against,
            best=[policy.best_model for policy in self._policies],
        )  # fmt: skip
        found = {
            policy.id: replace(evaluation, steps=policy.weights.steps, version=policy.weights.version)
            for policy, evaluation in zip(self._policies, evaluations, strict=True)
        }
        return found if len(found) > 1 else found[self._policies[0].id]

    def get_parameters(self) -> dict[int | str, dict[str, Tensor]]:
        """Return the newest weights, ``{policy_id: state dict on the CPU}``, as copies.

        The id of a policy is its name, or its number if it has no name: 0 in a run of one policy.
        """
        self._require_open()
        return {policy.id: policy.parameters() for policy in self._policies}

    def set_parameters(self, parameters: Mapping[int | str, Weights] | str | os.PathLike[str]) -> None:
        """Replace weights; the optimisers keep their state.

        Segments that these policies have already collected are discarded; replay buffers are kept.

        Parameters
        ----------
        parameters
            ``{policy_id: state dict}`` or ``{policy_id: path}`` for any policies; for a single policy also just a path.
            A path is that of a checkpoint, or of a run, of which the best weights are used. In a run of several
            policies these are the weights of the policy of the same name, or of the policy whose directory is given.

        Raises
        ------
        CheckpointError
            A checkpoint cannot be read, or weights are of another architecture or not finite (the first such tensor is
            named). Nothing is changed then.
        ConfigError
            A policy does not exist.
        """
        self._require_open()
        by_id = {policy.id: policy for policy in self._policies}
        if not isinstance(parameters, Mapping):
            if len(by_id) > 1:
                raise ConfigError(f"parameters are given without a policy: give {{id: parameters}}, of {list(by_id)}")
            parameters = {0: parameters}
        if not parameters or not parameters.keys() <= by_id.keys():
            raise ConfigError(
                f"parameters for policies {list(parameters)!r:.80}; this run has {list(by_id)}: give {{id: weights}}"
            )
        checkpoints = list[Checkpoint]()
        found = {by_id[key]: _weights_in(chosen, by_id[key], checkpoints) for key, chosen in parameters.items()}
        for policy, weights in found.items():
            self._supervisor.set_weights(policy.number, weights)
        for checkpoint in checkpoints:
            self._record_parent(checkpoint)

    def best(self) -> Best:
        """Return the best weights that any evaluation of this run has scored, with their mean return and steps.

        After a training that reached the target, these are the weights that reached it, which the trainer then holds.
        With several policies they are the best of each, with the mean of their returns.

        Raises
        ------
        RuntimeError
            There has been no evaluation yet.
        """
        self._require_open()
        found = [best for policy in self._policies if (best := policy.best()) is not None]
        if not found:
            raise RuntimeError(
                "no evaluation has scored any weights yet, so none are the best: train() evaluates every eval_interval "
                f"steps (now {self.config.eval_interval}) and at the end, and never with eval_interval=0"
            )
        parameters = {policy: weights for best in found for policy, weights in best.parameters.items()}
        return replace(found[0], parameters=parameters, mean_return=fmean(best.mean_return for best in found))

    def save(self, path: str | os.PathLike[str], *, best: bool = False) -> None:
        """Write one checkpoint at `path`, a directory that is replaced atomically if it holds a checkpoint.

        With several policies, `path` gets a checkpoint of each, in a directory with the policy's name.

        Parameters
        ----------
        path
            Directory of the checkpoint.
        best
            Write the weights of `best` instead of the current ones.

        Raises
        ------
        CheckpointError
            `path` exists and is something else; nothing is changed.
        OSError
            The checkpoint could not be written.
        ValueError, TypeError
            `path` has a null character, or the algorithm's state holds more than tensors and plain values.
        RuntimeError
            `best` is requested before any evaluation.
        """
        paths = [os.path.join(path, policy.name) if policy.name else os.fspath(path) for policy in self._policies]
        if not best:
            self._require_open()
            self._supervisor.save(paths)
            return
        self.best()
        for policy, place, about in zip(self._policies, paths, self._supervisor.meta(), strict=True):
            found = policy.best()
            assert found is not None
            meta = {"steps": found.steps, "version": found.version, "mean_return": found.mean_return}
            save_checkpoint(place, meta={**about, **meta}, weights=found.parameters[policy.id])

    def close(self) -> None:
        """Stop all processes and free the memory; a second call does nothing. Not legal within `on_update`.

        A `train` in another thread ends first: it writes a checkpoint and raises `TrainingInterrupted` there.
        """
        if self._trains_in == threading.get_ident():
            self._require_idle("close")
        if self._trains_in is not None and not self._supervisor.is_foreign:
            self._interrupted.has_come = True
            self._is_idle.wait()
        self._supervisor.close()

    @contextmanager
    def _training(self, interrupted: Interrupted) -> Iterator[None]:
        self._interrupted, self._is_idle = interrupted, threading.Event()
        self._trains_in = threading.get_ident()
        try:
            yield
        finally:
            self._trains_in = None
            self._is_idle.set()

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


def _weights_in(chosen: Weights, policy: Policy, checkpoints: list[Checkpoint]) -> dict[str, np.ndarray]:
    """Return weights as arrays that fit a policy's network; append a checkpoint that was read to `checkpoints`."""
    if isinstance(chosen, Mapping):
        weights, what = {name: torch.as_tensor(array) for name, array in chosen.items()}, "the parameters given"
    else:
        place = resolve_checkpoint(chosen, policy=policy.name or None, is_any_legal=True)
        checkpoints.append(load_checkpoint(place))
        weights, what = checkpoints[-1].weights, os.fspath(chosen)
    require_matching(weights, policy.model.state_dict(), what)
    return {name: tensor.detach().cpu().numpy() for name, tensor in weights.items()}
