"""Sampling and pruning of trials by Optuna, which only this module imports.

Sampler: the tree-structured Parzen estimator (Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS
2011), whose first ten trials are random. Pruner: the median rule (Golovin et al., "Google Vizier", KDD 2017, section
3.2.2): a trial is given up if the best that it has shown is below the median of what completed ones showed at the same
moment.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import optuna
from optuna.distributions import CategoricalChoiceType
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from penstock.config import Config
from penstock.search.directory import LOCKS, Hold, SearchDirectory
from penstock.search.objective import RUNGS
from penstock.search.space import Choice, Range, Space

_SAFE_RUNGS = RUNGS // 4  # of the first training of a trial, at which none is given up
_SAFE_TRIALS = 5  # that are completed before any is given up

_STATES = {
    TrialState.COMPLETE: "done", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed",
    TrialState.RUNNING: "under way", TrialState.WAITING: "waiting",
}  # fmt: skip


@dataclass(frozen=True)
class Tried:
    """A trial, as the journal has it.

    Attributes
    ----------
    number
        Counted from 0.
    state
        "done", "pruned", "failed" or "under way".
    settings
        Those that are searched.
    score
        Mean over the seeds; None unless it is done.
    scores
        Of each seed that is done.
    spent
        The share of its trainings' budgets that was reported.
    error
        Why it failed.
    is_as_given
        Whether its settings are those that all others are changes of.
    """

    number: int
    state: str
    settings: dict[str, Any]
    score: float | None
    scores: list[float] = field(default_factory=list)
    spent: float = 0.0
    error: str = ""
    is_as_given: bool = False

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "number": self.number, "state": self.state, "settings": self.settings, "score": self.score,
            "scores": self.scores, "spent": self.spent, "error": self.error, "is_as_given": self.is_as_given,
        }  # fmt: skip


class Trial:
    """A trial that this process has: it asks whether to go on, and tells what came of it."""

    def __init__(self, study: Study, trial: optuna.Trial) -> None:
        self._study = study
        self._trial = trial
        self.number = trial.number
        self.settings = study.settings(trial)

    @property
    def scores(self) -> list[float]:
        """Of each seed that is done."""
        return list(self._trial.user_attrs.get("scores", ()))

    def seed_done(self, score: float) -> None:
        """Note what a seed's training was worth."""
        self._trial.set_user_attr("scores", [*self.scores, score])

    def report(self, rung: int, value: float) -> bool:
        """Note what the trial is worth so far, at a rung counted over all of its seeds; say whether to give it up."""
        frozen = self._study.frozen(self.number)
        if frozen.last_step is not None and rung <= frozen.last_step:  # told before it was interrupted
            return False
        self._trial.report(value, rung)
        return self._trial.should_prune()

    def complete(self) -> None:
        """Tell that all seeds are done."""
        self._study.tell(self.number, TrialState.COMPLETE, sum(self.scores) / len(self.scores))

    def prune(self) -> None:
        """Tell that the trial was given up."""
        self._study.tell(self.number, TrialState.PRUNED)

    def fail(self, error: str) -> None:
        """Tell that a training failed, and why."""
        self._trial.set_user_attr("error", error)
        self._study.tell(self.number, TrialState.FAIL)


class Study:
    """The trials of a search directory.

    Parameters
    ----------
    directory
        Where the journal lies.
    space
        What is searched.
    config
        The settings that trials are changes of; its seed is the sampler's, too.
    seeds
        Trainings of a trial.
    is_pruned
        Whether trials are given up.
    """

    def __init__(
        self, directory: SearchDirectory, space: Space, config: Config, seeds: int = 1, *, is_pruned: bool = True
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._directory = directory
        self._space = space
        self._config = config
        self._seeds = seeds
        lock = _Lock(directory.path / LOCKS / "journal")
        _mend(directory.journal, lock)
        storage = optuna.storages.JournalStorage(JournalFileBackend(os.fspath(directory.journal), lock))
        median = optuna.pruners.MedianPruner(n_startup_trials=_SAFE_TRIALS, n_warmup_steps=_SAFE_RUNGS)
        with directory.asking():  # of two processes that begin at once, one creates it
            self._study = optuna.create_study(
                study_name="penstock", storage=storage, direction="maximize", load_if_exists=True,
                pruner=median if is_pruned else optuna.pruners.NopPruner(),
            )  # fmt: skip

    @property
    def tried(self) -> list[Tried]:
        """All trials by number, those of other processes too."""
        return [self._tried(frozen) for frozen in self._frozen() if frozen.state != TrialState.WAITING]

    def ask(self, limit: int) -> tuple[Trial, Hold] | None:
        """Take a trial to train; None: there is none to begin now.

        First comes what a process that died has left, then what the sampler proposes, until there are `limit` trials.
        The first of all has the settings as they are, if these are within the space.
        """
        with self._directory.asking():
            trials = self._frozen()
            for frozen in trials:
                if frozen.state == TrialState.RUNNING and (hold := self._directory.take(frozen.number)) is not None:
                    return Trial(self, optuna.Trial(self._study, frozen._trial_id)), hold
            if sum(frozen.state != TrialState.WAITING for frozen in trials) >= limit:
                return None
            if not trials and self._space.holds(self._config):
                self._study.enqueue_trial(self._as_given(), user_attrs={"is_as_given": True})
            # A sampler of its own for each trial: what it proposes depends on the trials so far, and not on how often
            # the search was interrupted.
            self._study.sampler = optuna.samplers.TPESampler(seed=1000 * self._config.seed + len(trials))
            asked = self._study.ask()
            hold = self._directory.take(asked.number)
            assert hold is not None, "one process at a time asks"
            return Trial(self, asked), hold

    @property
    def has_ending(self) -> bool:
        """Whether a trial of a process that died is still about to end, so that it can be taken soon."""
        with self._directory.asking():
            left = [frozen.number for frozen in self._frozen() if frozen.state == TrialState.RUNNING]
            return any(map(self._directory.is_ending, left))

    def settings(self, trial: optuna.Trial) -> dict[str, Any]:
        """The settings of a trial; the sampler is asked for those that it has not got yet."""
        values: dict[str, Any] = {}
        for dimension in self._space.dimensions:
            match dimension:
                case Choice():
                    chosen = trial.suggest_categorical(dimension.name, _choices(dimension))
                    values[dimension.name] = _value(dimension, chosen)
                case Range(is_whole=True, low=low, high=high, log=log, step=step):
                    each = int(step) if step is not None else 1
                    values[dimension.name] = trial.suggest_int(dimension.name, int(low), int(high), log=log, step=each)
                case Range(low=low, high=high, log=log, step=step):
                    values[dimension.name] = trial.suggest_float(dimension.name, low, high, log=log, step=step)
        return values

    def frozen(self, number: int) -> FrozenTrial:
        """Record of a trial in the journal."""
        return self._frozen()[number]

    def tell(self, number: int, state: TrialState, value: float | None = None) -> None:
        """Write down how a trial ended."""
        self._study.tell(number, value, state)

    def _frozen(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False)

    def _as_given(self) -> dict[str, Any]:
        given = {dimension.name: getattr(self._config, dimension.name) for dimension in self._space.dimensions}
        return {
            dimension.name: _key(given[dimension.name]) if isinstance(dimension, Choice) else given[dimension.name]
            for dimension in self._space.dimensions
        }

    def _tried(self, frozen: FrozenTrial) -> Tried:
        settings = {
            dimension.name: _value(dimension, frozen.params[dimension.name])
            for dimension in self._space.dimensions
            if dimension.name in frozen.params
        }
        is_done = frozen.state == TrialState.COMPLETE
        spent = 1.0 if is_done else (frozen.last_step or 0) / (RUNGS * self._seeds)
        return Tried(
            frozen.number, _STATES[frozen.state], settings, frozen.value if is_done else None,
            list(frozen.user_attrs.get("scores", ())), spent, frozen.user_attrs.get("error", ""),
            frozen.user_attrs.get("is_as_given", False),
        )  # fmt: skip


class _Lock(JournalFileOpenLock):
    """One process at a time writes the journal; the lock of a process that was killed is free."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def acquire(self) -> bool:
        self._file = open(self._path, "ab")  # noqa: SIM115 - closed when it is released
        fcntl.flock(self._file, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        assert self._file is not None
        self._file.close()


def _mend(journal: Path, lock: _Lock) -> None:
    """Cut off a last line that was half written when the power failed or the disk was full."""
    lock.acquire()
    try:
        if journal.exists() and (text := journal.read_bytes()) and not text.endswith(b"\n"):
            os.truncate(journal, text.rfind(b"\n") + 1)
    finally:
        lock.release()


def _choices(choice: Choice) -> list[CategoricalChoiceType]:
    return [_key(value) for value in choice.values]


def _key(value: Any) -> CategoricalChoiceType:
    """A value as the journal has it: lists, which Optuna does not take, as JSON."""
    return json.dumps(value) if isinstance(value, tuple) else value


def _value(dimension: Range | Choice, found: Any) -> Any:
    if not isinstance(dimension, Choice):
        return found
    return next(value for value in dimension.values if _key(value) == found and type(_key(value)) is type(found))
