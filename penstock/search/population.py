"""Population-based training over several runs: members train in slices, and copy each other in between.

======================  ========================================================================
``population.json``     settings, members, scores, and the start of the next slice
``lineage.jsonl``       copies between members, and their settings over time
``member-3/``           a member's run, an ordinary run directory
``member-3.json``       arguments of its slice's process; ``.txt``: output of the process
``handed/member-3-9/``  its checkpoint of step 9, which others copy in this slice
======================  ========================================================================

All members train a slice of ``pbt_interval`` steps, as many at once as there are jobs; then all are ranked. The next
call completes an interrupted slice.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypedDict

from penstock.bench import BenchError
from penstock.config import Config, ConfigError
from penstock.population.decisions import RETURN, Decision, Population, rules_of
from penstock.population.lineage import LINEAGE, Lineage, WeightsOrigin
from penstock.population.space import population_space, tables_of
from penstock.runs.checkpoint import holds_only_a_checkpoint, verify_checkpoint
from penstock.runs.documents import DocumentError, read_document
from penstock.runs.files import LinesLog, directory_replacing, json_bytes, remove_directory, write_file_atomically
from penstock.runs.jobs import LOST, Command, Jobs, Training
from penstock.runs.lookup import checkpoint_to_resume, resolve_checkpoint
from penstock.runs.state import read_state
from penstock.runs.vacancy import set_aside_run

POPULATION, HANDED = "population.json", "handed"
PROGRAM = (sys.executable, "-m", "penstock.engine.slices")
"""Program that trains a slice; tests replace it."""
PATIENCE = 60.0
"""Seconds between asking a slice to end and killing it."""
DIVERGED = 4
"""Exit code of a slice with non-finite updates."""

Ending = Literal["done", "diverged", "failed", "interrupted", "lost"]


class Slice(Training):
    """Process that trains a member's slice.

    Parameters
    ----------
    member
        Number of the member.
    arguments
        File with the arguments of the slice.
    cores
        Cores of the process, or its place.
    reads
        Checkpoint that it copies, if any.
    """

    def __init__(self, member: int, arguments: Path, cores: Collection[int], *reads: Path) -> None:
        output, run = arguments.with_suffix(".txt"), arguments.with_suffix("")
        super().__init__(Command([*PROGRAM, str(arguments)], output, run, [arguments, *reads]), cores, PATIENCE)
        self.member = member

    def ending(self, code: int) -> Ending:
        """Return how the slice ended with an exit code."""
        if code == LOST:
            return "lost"
        if self.is_stopping or code in (130, -signal.SIGTERM, -signal.SIGINT):
            return "interrupted"
        return "done" if code == 0 else "diverged" if code == DIVERGED else "failed"


class _Facts(TypedDict):
    algorithm: str
    count: int
    config: dict[str, Any]


class _Member(TypedDict):
    settings: dict[str, float]
    since: int
    decisions: int
    exploits: int
    scores: list[float]
    episodes: int


class _Members(TypedDict):
    members: list[_Member]


@dataclass
class Plan:
    """Start of a member's next slice.

    Attributes
    ----------
    begin
        Steps of the member's run before it.
    parent
        Checkpoint that it copies first; None: it keeps its own weights.
    """

    begin: int
    parent: str | None = None


class _Saved(TypedDict):
    """Content of ``population.json``."""

    facts: _Facts
    slice: int
    lines: int
    plans: list[Plan]
    population: _Members


class PopulationRuns:
    """A population whose members are runs.

    Parameters
    ----------
    path
        Directory of the population, created if missing; an existing population with the same settings is resumed.
    algorithm
        Name of the algorithm.
    config
        Settings that all members share, with those of the population.
    count
        Number of members.
    cores
        Cores of each job.
    report
        Called with each line of progress.

    Raises
    ------
    ConfigError
        The settings are not legal, or the directory holds another population.
    """

    def __init__(
        self, path: Path, algorithm: str, config: Config, count: int, cores: Sequence[Sequence[int]],
        report: Callable[[str], None],
    ) -> None:  # fmt: skip
        if count < 2:
            raise ConfigError(f"--population {count} is not legal: members copy each other: use 4, or at least 2")
        assert config.pbt is not None and config.pbt_space is not None
        tables = tables_of(config.pbt_space)
        self._config = replace(config, pbt=None, pbt_space=None)
        self._metric, self._algorithm, self._report = config.pbt_metric, algorithm, report
        self.path = path
        self.population = Population(
            rules_of(config, config.total_steps), population_space(tables, self._config), [{}] * count, config.seed
        )
        shared = {name: value for name, value in config.to_json().items() if name != "num_workers"}  # --jobs decides it
        self._facts = {"algorithm": algorithm, "count": count, "config": {**shared, "pbt_space": tables}}
        self._names = [str(number) for number in range(count)]
        self._lineage = Lineage(LinesLog(path / LINEAGE, report), self._names)
        self._plans = [Plan(0) for _ in range(count)]
        self.slice = 0
        self._jobs = Jobs[Slice](cores)
        self._todo: list[int] = []
        self._error = ""
        path.mkdir(parents=True, exist_ok=True)
        self._begin()

    @property
    def is_done(self) -> bool:
        """Whether all members have trained all their steps."""
        return self._until(self.slice - 1) >= self._config.total_steps

    def run(self) -> None:
        """Train all slices.

        Raises
        ------
        KeyboardInterrupt
            Ctrl-C or SIGTERM; no process is left, and the same call resumes.
        BenchError
            A slice failed.
        CheckpointError, RunDirectoryError
            A member's run cannot be used now; it stays unchanged.
        """
        while not self.is_done:
            self._todo = list(range(len(self._names)))
            self._jobs.run(self._start, self._ended, is_over=lambda: bool(self._error), is_left=lambda: False)
            if self._error:
                raise BenchError(self._error)
            if self._jobs.is_interrupted:
                raise KeyboardInterrupt
            self._decide()

    def scores(self) -> list[float | None]:
        """Latest score of each member."""
        return [self._score(number)[0] for number in range(len(self._names))]

    def member(self, number: int) -> Path:
        """Directory of a member's run."""
        return self.path / f"member-{number}"

    # -- slices ----------------------------------------------------------------------------------------------------

    def _until(self, index: int) -> int:
        """Steps of every member at the end of a slice."""
        return min(self._config.total_steps, (index + 1) * self.population.rules.interval)

    def _start(self) -> None:
        while self._jobs.free and self._todo:
            number = self._todo.pop(0)
            self._set_aside_run(number)
            settings, plan = self.population.members[number].settings, self._plans[number]
            parent = None if plan.parent is None else os.path.abspath(plan.parent)
            run = str(self.member(number).absolute())
            config = {**self._config.to_json(), "run_dir": run, "seed": self._config.seed + number}
            arguments = self.path / f"member-{number}.json"
            contents = {
                "algorithm": self._algorithm, "config": config, "settings": settings, "parent": parent,
                "begin": plan.begin, "until": self._until(self.slice),
            }  # fmt: skip
            write_file_atomically(arguments, json_bytes(contents))
            reads = [] if plan.parent is None else [Path(plan.parent)]
            self._jobs.add(Slice(number, arguments, self._jobs.free[0], *reads))

    def _set_aside_run(self, member: int) -> None:
        """Set aside a member's run without a usable checkpoint, as after an early kill or divergence."""
        run = self.member(member)
        if checkpoint_to_resume(run) is None and (moved := set_aside_run(run)):
            self._report(f"member {member}: {moved}")

    def _ended(self, job: Slice, code: int) -> None:
        ending = job.ending(code)
        if ending == "failed" and not self._error:
            *_, last = job.lines() or ["no output"]
            self._error = f"member {job.member} failed: {last} (see {job.output})"
        elif ending == "lost":
            self._todo.append(job.member)
        elif ending == "diverged":
            decision = self.population.rescue(job.member, self._until(self.slice - 1) if self.slice else 0)
            if decision is None:
                self._error = "all members have diverged: narrow the space"
                return
            self._plans[job.member] = Plan(begin=self._steps(job.member))  # it may have saved since the slice began
            self._carry_out([decision])
            self._save()
            self._todo.append(job.member)

    # -- decisions -------------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        """Rank the members by their last slice, and plan the next one."""
        until = self._until(self.slice)
        for number in range(len(self._names)):
            score, episodes = self._score(number)
            self.population.forget(number)
            self.population.add_scores(number, [] if score is None else [score], episodes=episodes)
        shown = ", ".join("none" if score is None else f"{score:.4g}" for score in self.scores())
        self._report(f"slice {self.slice}: {until:,} steps each; scores {shown}")
        self._plans = [Plan(begin=self._steps(number)) for number in range(len(self._names))]
        self.slice += 1
        self._remove_handed()
        if not self.is_done:
            self._carry_out(self.population.decide([until] * len(self._names)))
        self._save()

    def _carry_out(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            child, handed = decision.member, None
            if decision.parent is not None:
                self._plans[child].parent, handed = self._hand_over(decision.parent)
            self.population.carried_out(decision)
            self._lineage.write(decision, self._plans[child].begin, handed)
            what = "continues" if decision.parent is None else f"copies member {decision.parent}"
            settings = ", ".join(f"{name}={value:.4g}" for name, value in decision.after.items())
            self._report(f"member {child} {what} with {settings}")

    def _hand_over(self, parent: int) -> tuple[str | None, WeightsOrigin | None]:
        """Copy a member's newest checkpoint to a place that its next slice does not change.

        A member that is itself about to copy a checkpoint hands over that checkpoint.
        """
        plan, steps = self._plans[parent], self._steps(parent)
        if plan.parent is not None and steps <= plan.begin:
            return plan.parent, WeightsOrigin(verify_checkpoint(plan.parent)["version"], steps)
        place = self.path / HANDED / f"member-{parent}-{steps}"
        if checkpoint_to_resume(self.member(parent)) is None:
            return None, None
        if not place.exists():
            with directory_replacing(place) as aside:
                shutil.copytree(resolve_checkpoint(self.member(parent), "latest"), aside, dirs_exist_ok=True)
        meta = verify_checkpoint(place)
        return str(place), WeightsOrigin(meta["version"], meta["steps"])

    def _remove_handed(self) -> None:
        """Remove the handed-over checkpoints that members have copied."""
        handed = self.path / HANDED
        for place in handed.glob("member-*"):
            if holds_only_a_checkpoint(place):
                remove_directory(place)
        with suppress(OSError):  # it holds a file of the user, or does not exist
            handed.rmdir()

    def _steps(self, member: int) -> int:
        """Steps of a member's newest checkpoint."""
        found = checkpoint_to_resume(self.member(member))
        return 0 if found is None else int(found["steps"])

    def _score(self, member: int) -> tuple[float | None, int]:
        """Score of a member's last slice, and its number of episodes."""
        status = read_state(self.member(member))
        found = status.get("mean_return") if self._metric == RETURN else status.get("metrics", {}).get(self._metric)
        return found, int(status.get("episodes", 0))

    # -- the directory ---------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        file = self.path / POPULATION
        if not file.is_file():
            if others := sorted(path.name for path in self.path.iterdir() if path.name not in (LINEAGE, file.name)):
                raise ConfigError(
                    f"--dir {self.path} holds {', '.join(others[:3])}{', ...' if len(others) > 3 else ''}, and no "
                    "population: give another, or remove them yourself"
                )
            self._lineage.truncate(0)  # a file left by a command that was killed at its start
            for number, member in enumerate(self.population.members):
                self._lineage.start(number, member.settings)
            self._save()
            return
        try:
            found = read_document(file, _Saved)
        except (OSError, DocumentError) as error:
            raise ConfigError(f"--dir {self.path} holds a population that cannot be read: {error}") from None
        self._require_same(found["facts"])
        if not len(found["plans"]) == len(found["population"]["members"]) == len(self._names):
            raise ConfigError(f"{file} cannot be read: it does not have a state for each of {len(self._names)} members")
        self.population.restore(found["population"])
        self.slice = found["slice"]
        self._plans = [Plan(plan["begin"], plan.get("parent")) for plan in found["plans"]]
        self._lineage.truncate(found["lines"])

    def _require_same(self, facts: Mapping[str, Any]) -> None:
        """Raise `ConfigError` naming the first setting that differs from that of the directory's population.

        Settings that an older version did not record count with their defaults.
        """
        here: Mapping[str, Any] = json.loads(json_bytes(self._facts))
        defaults = json.loads(json_bytes(type(self._config)(env=self._config.env).to_json()))
        given = {"algorithm": here["algorithm"], "population": here["count"], **here["config"]}
        begun = {"algorithm": facts["algorithm"], "population": facts["count"], **defaults, **facts["config"]}
        for name, value in given.items():
            if begun[name] != value:
                raise ConfigError(
                    f"--dir {self.path} holds another population: it was begun with {name}={begun[name]!r}, but "
                    f"{name}={value!r} is given. Give {name}={begun[name]!r} to resume it, or another --dir"
                )
        if unknown := [name for name in facts["config"] if name not in given]:
            raise ConfigError(
                f"--dir {self.path} was begun by another version with {unknown[0]}={begun[unknown[0]]!r}, a setting "
                f"that {self._algorithm} does not have: give another --dir"
            )

    def _save(self) -> None:
        found = {
            "facts": self._facts, "slice": self.slice, "lines": self._lineage.count,
            "plans": [vars(plan) for plan in self._plans], "population": self.population.state(),
        }  # fmt: skip
        write_file_atomically(self.path / POPULATION, json_bytes(found))
