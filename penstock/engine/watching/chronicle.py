"""The chronicle of a run: shows events and status, and writes them to the run directory."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from penstock.engine.messages import Scored
from penstock.engine.watching.hangs import HangWatch
from penstock.engine.watching.hardware import Hardware
from penstock.engine.watching.metrics import metrics_of, of_policy, values_of
from penstock.engine.watching.progress import Progress
from penstock.ipc.ownership import Owned, owner_only
from penstock.play.evaluation import Evaluation, Match
from penstock.runs.episodes import EPISODES, episode_lines, write_episode
from penstock.runs.files import LinesLog
from penstock.runs.metrics import METRICS, MetricsLog
from penstock.runs.run_directory import HARDWARE, RunDirectory
from penstock.runs.state import StateFile, Written
from penstock.runs.status import Status
from penstock.runs.store import CheckpointStore
from penstock.runs.vacancy import RunDirectoryError

if TYPE_CHECKING:
    from penstock.runs.sending import Sender

REFRESH_INTERVAL = 0.25  # seconds between two looks at the gauges
METRICS_INTERVAL = 1.0  # seconds between two lines of metrics.jsonl, and two states of status.json
HARDWARE_INTERVAL = 2.0  # seconds between two lines of hardware.jsonl

OnUpdate = Callable[[Status], Mapping[str, float] | bool | None]
"""The user's callback: numbers by name are logged and shown, False stops the training."""


class View(Protocol):
    """Interface of a view of the run."""

    def update(self, status: Status) -> None: ...

    def event(self, text: str) -> None: ...


class Chronicle(Owned):
    """Passes the run's status to view, user's callback, ``status.json`` and ``metrics.jsonl``, events to view and log.

    Parameters
    ----------
    progress
        Progress of the run; of a resumed run, that of its checkpoint.
    hangs
        Watch for environments that hang.
    hardware
        Load of cores, memory and GPUs.
    run_directory
        Directory of the run; None: nothing is written.
    export
        Called with the status at the intervals of ``metrics.jsonl``; None: metrics are not exported.
    sender, patience
        Sender of the run's files to its remote directory (None: the run is local), and the longest wait for it at the
        end of a training, in seconds.

    Attributes
    ----------
    stop_is_asked
        Whether the user's callback has returned False; it is not called again then.
    unsent
        Parts of the run that were not sent when the last training ended.
    """

    def __init__(
        self, progress: Progress, hangs: HangWatch, hardware: Hardware, run_directory: RunDirectory | None,
        export: Callable[[Status], None] | None = None, sender: Sender | None = None, patience: float = 0.0,
    ) -> None:  # fmt: skip
        self._progress = progress
        self._hangs = hangs
        self._hardware = hardware
        self._run_directory = run_directory
        self._export = export
        self._sender, self._patience, self._is_flushed = sender, patience, True
        self.unsent: tuple[str, ...] = ()
        path = None if run_directory is None else run_directory.path
        goes_on = progress.steps or (path is not None and (path / METRICS).is_file())
        start = (progress.steps, progress.seconds) if goes_on else None
        self._metrics = MetricsLog(path, self.event, start)
        self._logs: list[LinesLog] = []
        self._episodes, self._hardware_lines = self.lines_log(EPISODES), self.lines_log(HARDWARE)
        self._state = StateFile(path)
        self._is_lost = False  # whether the loss of the run directory was shown
        self._episode: dict[str, np.ndarray] = {}
        self._view: View | None = None
        self._on_update: OnUpdate | None = None
        self.stop_is_asked = False
        self._next_export = self._next_refresh = self._next_metrics = self._next_state = self._next_hardware = 0.0

    @contextmanager
    def shown_to(self, view: View, on_update: OnUpdate | None) -> Iterator[None]:
        """Show status and events to a view and a callback while the block runs."""
        self._view, self._on_update, self.stop_is_asked = view, on_update, False
        self.unsent, self._is_flushed = (), False
        if self._sender is not None:
            self._sender.start()
        try:
            yield
        finally:
            self._view = self._on_update = None

    def event(self, text: str) -> None:
        """Show and log an event."""
        self.log(text)
        if self._view is not None:
            self._view.event(text)

    def log(self, text: str) -> None:
        """Log text without showing it."""
        if self._run_directory is not None and self._run_directory.is_whole:
            self._run_directory.log(text)

    def lines_log(self, name: str) -> LinesLog:
        """Return the log of a further file of the run directory: lines are dropped while the directory is lost."""
        path = None if self._run_directory is None else self._run_directory.path / name
        self._logs.append(LinesLog(path, self.event, lambda: self.is_written))
        return self._logs[-1]

    @property
    def is_written(self) -> bool:
        """Whether the run directory exists; its loss is shown once."""
        if self._run_directory is None:
            return False
        is_whole = self._run_directory.is_whole
        if not is_whole and not self._is_lost:
            self.event(
                f"warning: the run directory {self._run_directory.path} was removed, or something else has taken its "
                "place; the next checkpoint writes the run again"
            )
        self._is_lost = not is_whole
        return is_whole

    def restore(self) -> bool:
        """Write the run directory again if it is gone; return whether it exists, and warn if that fails."""
        if self._run_directory is None or self.is_written:
            return self._run_directory is not None
        try:
            self._run_directory.restore()
        except (OSError, RunDirectoryError) as error:
            self.event(f"warning: no checkpoint could be written: {error}")
            return False
        self.close()  # the next lines open the files again
        is_there, steps = self.is_written, self._progress.steps
        self.event(f"the run directory {self._run_directory.path} is written again from step {steps:,} on")
        return is_there

    @property
    def run_path(self) -> Path | None:
        """Directory of the run; None: nothing is written."""
        return None if self._run_directory is None else self._run_directory.path

    @property
    def stores(self) -> list[CheckpointStore]:
        """Checkpoint store of each policy, new each time as keep_checkpoints may change; empty: nothing is written."""
        if self._run_directory is None:
            return []
        return [self._run_directory.of_policy(policy.name).checkpoints for policy in self._progress.policies]

    def evaluated(self, policies: Sequence[Scored]) -> None:
        """Write an evaluation, and the episodes of the evaluations that it confirms."""
        names = [policy.name for policy in self._progress.policies]
        values: dict[str, float] = {}
        for policy, scored in zip(self._progress.policies, policies, strict=True):
            its = {"updates": policy.updates_of(scored.evaluation.version), **values_of(scored.evaluation)}
            values |= {of_policy(policy.name) + key: value for key, value in its.items()}
        if len(policies) > 1:
            found = [scored.evaluation.mean_return for scored in policies if scored.evaluation.took_part]
            values |= {"evaluation/mean_return": fmean(found)} if found else {}
            steps = self._progress.steps
        else:
            steps = policies[0].evaluation.steps
        if not self.is_written:
            return
        self._write_metrics(steps, values)
        for name, scored in zip(names, policies, strict=True):
            for each in (*scored.others, scored.evaluation):
                self._write_episodes(each, steps if name else each.steps, name)

    def write_episode(self, columns: Mapping[str, np.ndarray], policy: int) -> None:
        """Write the numbers of each step of a policy's recent episode, replacing an earlier one."""
        before = of_policy(self._progress.policies[policy].name)
        kept = {name: column for name, column in self._episode.items() if not before or not name.startswith(before)}
        self._episode = kept | {before + name: column for name, column in columns.items()}
        if self._run_directory is not None and self.is_written:
            write_episode(self._run_directory.path, self._progress.seconds, self._episode)

    def refresh(self, final: bool = False) -> None:
        """Show the status if REFRESH_INTERVAL has passed, and write it to files that are due; always if `final`."""
        now = time.monotonic()
        if now < self._next_refresh and not final:
            return
        self._next_refresh = now + REFRESH_INTERVAL
        for warning in self._hangs.look(now):
            self.event(warning)
        self._show_notes()
        self._progress.refresh_shares()
        status = self._progress.status()
        if self._on_update is not None and not self.stop_is_asked:
            answer = self._on_update(status)
            self.require_owner()
            self.stop_is_asked = isinstance(answer, bool | np.bool_) and not answer
            self._progress.take_metrics(_numbers_in(answer))
        if self._view is not None:
            self._view.update(status)
        if self._export is not None and now >= self._next_export:
            self._next_export = now + METRICS_INTERVAL
            self._export(status)
        if not self.is_written:
            return
        if now >= self._next_state:
            self._next_state = now + METRICS_INTERVAL
            self._state.write(status, "running")
        if now >= self._next_hardware:
            self._next_hardware = now + HARDWARE_INTERVAL
            self._write_hardware(status)
        if (now >= self._next_metrics or final) and status.steps:
            self._next_metrics = now + METRICS_INTERVAL
            self._write_metrics(status.steps, metrics_of(status))

    def ended(self, state: Written, reason: str, *, is_urgent: bool = False) -> None:
        """Write the state of a run that has stopped training, and why; flush unless it is paused or urgent."""
        if self.is_written:
            self._state.write(self._progress.status(), state, reason)
        if state != "paused" and not is_urgent:
            self.flush()

    def flush(self) -> None:
        """Wait until the run's files are sent, and report those that are not; a no-op if done since training."""
        if self._sender is None or self._is_flushed:
            return
        self._is_flushed = True
        self.unsent = self._sender.flush(self._patience)
        self._show_notes()
        if not self.unsent or self._run_directory is None:
            return
        status = self._progress.status()
        text = (
            f"warning: not sent to {self._run_directory.config['run_dir']}: {', '.join(self.unsent)} "
            f"({(status.unsent_nbytes + 5e4) / 1e6:,.1f} MB{f'; {why}' if (why := status.upload_error) else ''}). "
            f"They are in {self._run_directory.path}: penstock resume sends them from there"
        )
        self.event(text)
        if self._view is None:
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _show_notes(self) -> None:
        while self._sender is not None and self._sender.notes:
            self.event(self._sender.notes.pop(0))

    @owner_only
    def close(self) -> None:
        """Close the files."""
        self._metrics.close()
        for log in self._logs:
            log.close()

    def _write_metrics(self, steps: int, values: Mapping[str, float]) -> None:
        """Write numbers at a number of steps, with the simulator frames of these if the environment declares them."""
        self._metrics.write(steps, self._progress.seconds, {**values, **self._frames(steps)})

    def _frames(self, steps: int) -> dict[str, int]:
        skip = self._progress.frame_skip
        return {} if skip is None else {"frames": skip * steps}

    def _write_episodes(self, evaluation: Evaluation, steps: int, policy: str) -> None:
        """Write an evaluation's episodes; episodes of games have opponent and seat."""
        for part in evaluation.matches or (evaluation,):
            about = {"opponent": part.opponent, "seat": part.seat} if isinstance(part, Match) else None
            self._episodes.write(episode_lines(
                steps, self._progress.seconds, evaluation.version, part.returns, part.lengths,
                unfinished=part.unfinished, requested=part.requested, policy=policy, about=about,
            ))  # fmt: skip

    def _write_hardware(self, status: Status) -> None:
        if sample := self._hardware.sample():
            when = {"steps": status.steps, "seconds": round(status.seconds, 3), "time": round(time.time(), 3)}
            when |= {"updates": status.updates} | self._frames(status.steps)
            rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in sample.items()}
            self._hardware_lines.write([when | rounded])


def _numbers_in(answer: object) -> dict[str, float]:
    """Return the numbers that a callback returned; raises `TypeError` for anything else."""
    if answer is None or isinstance(answer, bool | np.bool_):
        return {}
    if not isinstance(answer, Mapping):
        raise TypeError(
            f"on_update returned {answer!r}, a {type(answer).__name__}: return numbers by name, such as "
            '{"my_loss": 0.5}, or None, or False to stop the training'
        )
    return {str(name): _number(name, value) for name, value in answer.items()}


def _number(name: object, value: Any) -> float:
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value)  # a scalar of any library
    except Exception as error:
        raise TypeError(
            f"on_update returned {{{name!r}: {value!r}}}: {name!r} is a {type(value).__name__}, and no number"
        ) from error
