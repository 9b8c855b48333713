"""Sampling and pruning of trials by Optuna, which only this module imports.

Sampler: the tree-structured Parzen estimator (Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS
2011), whose first ten trials are random. Pruner: the median rule (Golovin et al., "Google Vizier", KDD 2017, section
3.2.2): a trial is pruned if its best value so far is below the median of the completed trials' values at the same rung.
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

from penstock.config import Config, ConfigError
from penstock.search.directory import LOCKS, Hold, SearchDirectory
from penstock.search.objective import RUNGS
from penstock.search.space import Choice, Range, Space

_SAFE_RUNGS = RUNGS // 4  # first rungs of a trial, without pruning
_SAFE_TRIALS = 5  # completed before any trial is pruned

_STATES = {
    TrialState.COMPLETE: "done", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed",
    TrialState.RUNNING: "under way", TrialState.WAITING: "waiting",
}  # fmt: skip


@dataclass(frozen=True)
class Tried:
    """Trial as recorded in the journal.

    Attributes
    ----------
    number
        Number of the trial, from 0.
    state
        "done", "pruned", "failed" or "under way".
    settings
        Values of the searched settings.
    score
        Mean over the seeds; None unless the trial is done.
    scores
        Scores of the seeds that are done.
    spent
        Share of its trainings' budgets covered by reports.
    error
        Reason of a failure.
    is_as_given
        Whether its settings are the values given by the flags.
    """

    number: int
    state: str
    settings: dict[str, Any]
    score: float | None
    scores: list[float] = field(default_factory=list)
    spent: float = 0.0
    error: str = ""
    is_as_given: bool = False


class Trial:
    """Trial held by this process, whose results it reports to the study."""

    def __init__(self, study: Study, trial: optuna.Trial) -> None:
        self._study = study
        self._trial = trial
        self.number = trial.number
        self.settings = study.settings(trial)

    @property
    def scores(self) -> list[float]:
        """Scores of the seeds that are done."""
        return list(self._trial.user_attrs.get("scores", ()))

    def seed_done(self, score: float) -> None:
        """Record the score of a seed's training."""
        self._trial.set_user_attr("scores", [*self.scores, score])

    def report(self, rung: int, value: float) -> bool:
        """Record the value so far, at a rung counted over all seeds; return whether to prune the trial."""
        frozen = self._study.frozen(self.number)
        if frozen.last_step is not None and rung <= frozen.last_step:  # reported before an interruption
            return False
        self._trial.report(value, rung)
        return self._trial.should_prune()

    def complete(self) -> None:
        """Record that all seeds are done."""
        self._study.tell(self.number, TrialState.COMPLETE, sum(self.scores) / len(self.scores))

    def prune(self) -> None:
        """Record that the trial was pruned."""
        self._study.tell(self.number, TrialState.PRUNED)

    def fail(self, error: str) -> None:
        """Record that a training failed, with the reason."""
        self._trial.set_user_attr("error", error)
        self._study.tell(self.number, TrialState.FAIL)


class Study:
    """Trials of a search directory.

    Parameters
    ----------
    directory
        Directory of the search, with the journal.
    space
        Searched settings.
    config
        Settings that trials change; its seed is also the sampler's.
    seeds
        Trainings per trial.
    is_pruned
        Whether trials are pruned.
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
        with directory.asking():  # of two processes that begin together, one creates the study
            self._study = optuna.create_study(
                study_name="penstock", storage=storage, direction="maximize", load_if_exists=True,
                pruner=median if is_pruned else optuna.pruners.NopPruner(),
            )  # fmt: skip

    @property
    def tried(self) -> list[Tried]:
        """All trials by number, those of other processes included."""
        return [self._tried(frozen) for frozen in self._frozen() if frozen.state != TrialState.WAITING]

    def ask(self, limit: int) -> tuple[Trial, Hold] | None:
        """Hold a trial to train; None: there is none to begin now.

        Trials left by dead processes come first, then those that the sampler proposes, up to `limit` trials. The first
        trial of a search has the settings as given, if these are within the space.
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
            # A new sampler per trial: its proposal depends on the trials so far, not on interruptions of the search.
            self._study.sampler = optuna.samplers.TPESampler(seed=1000 * self._config.seed + len(trials))
            asked = self._study.ask()
            hold = self._directory.take(asked.number)
            assert hold is not None, "only one process chooses at a time"
            return Trial(self, asked), hold

    @property
    def has_ending(self) -> bool:
        """Whether the training of a trial left by a dead process is about to end, so that it can be held soon."""
        with self._directory.asking():
            left = [frozen.number for frozen in self._frozen() if frozen.state == TrialState.RUNNING]
            return any(map(self._directory.is_ending, left))

    def settings(self, trial: optuna.Trial) -> dict[str, Any]:
        """Return the settings of a trial; the sampler proposes those that it lacks."""
        values: dict[str, Any] = {}
        for dimension in self._space.dimensions:
            match dimension:
                case Choice():
                    chosen = trial.suggest_categorical(dimension.name, [*map(_key, dimension.values)])
                    values[dimension.name] = _value(dimension, chosen)
                case Range(is_whole=True, low=low, high=high, log=log, step=step):
                    each = int(step) if step is not None else 1
                    values[dimension.name] = trial.suggest_int(dimension.name, int(low), int(high), log=log, step=each)
                case Range(low=low, high=high, log=log, step=step):
                    values[dimension.name] = trial.suggest_float(dimension.name, low, high, log=log, step=step)
        return values

    def frozen(self, number: int) -> FrozenTrial:
        """Return the journal's record of a trial."""
        return self._frozen()[number]

    def tell(self, number: int, state: TrialState, value: float | None = None) -> None:
        """Record the end of a trial."""
        self._study.tell(number, value, state)

    def _frozen(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False)

    def _as_given(self) -> dict[str, Any]:
        return {dimension.name: _key(getattr(self._config, dimension.name)) for dimension in self._space.dimensions}

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
    """Lock of the journal, for one writer at a time; freed when its holder is killed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def acquire(self) -> bool:
        self._file = open(self._path, "ab")  # noqa: SIM115 - closed in `release`
        fcntl.flock(self._file, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        assert self._file is not None
        self._file.close()


def _mend(journal: Path, lock: _Lock) -> None:
    """Cut off an incomplete last line, left by a power failure or a full disk.

    Raises
    ------
    ConfigError
        Another line is not a record of the journal.
    """
    lock.acquire()
    try:
        text = journal.read_bytes() if journal.exists() else b""
        if text and not text.endswith(b"\n"):
            os.truncate(journal, text.rfind(b"\n") + 1)
        for number, line in enumerate(text.split(b"\n")[:-1], 1):
            _require_record(journal, number, line)
    finally:
        lock.release()


def _require_record(journal: Path, number: int, line: bytes) -> None:
    try:
        if json.loads(line).keys() >= {"op_code", "worker_id"}:
            return
    except (ValueError, AttributeError):
        pass
    raise ConfigError(f"{journal} is damaged in line {number}: restore it, or begin another search with another --dir")


def _key(value: Any) -> CategoricalChoiceType:
    """Return a value as stored in the journal: a tuple, which Optuna does not accept, as JSON."""
    return json.dumps(value) if isinstance(value, tuple) else value


def _value(dimension: Range | Choice, found: Any) -> Any:
    if not isinstance(dimension, Choice):
        return found
    return next(value for value in dimension.values if _key(value) == found and type(_key(value)) is type(found))
