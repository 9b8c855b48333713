"""Opening a training: a new one from its settings, or one that goes on from its run directory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

from penstock.algorithms import algorithm_id, load_algorithm
from penstock.algorithms.bases.algorithm import Algorithm
from penstock.config import Config, change_config, saved, with_schedules
from penstock.engine.backends import launcher
from penstock.engine.exploits import open_population
from penstock.engine.following import open_schedule
from penstock.engine.nodes.joining import leave_cluster, on_cluster
from penstock.engine.policies import Policy, checkpoints_to_go_on_from, open_policies
from penstock.engine.preparation import (
    look_at,
    note_of_budget,
    note_of_precision,
    note_of_workers,
    require_device,
    require_learners,
)
from penstock.engine.supervisor import Supervisor
from penstock.envs.making import Probed
from penstock.envs.spaces import ObservationSpec
from penstock.envs.spec import EnvSpec
from penstock.envs.statistics import ADVICE, statistics_of
from penstock.experience.statistics import RunStatistics
from penstock.masking import masked
from penstock.play.policy import specs_from_json
from penstock.population.schedule import schedule_of
from penstock.population.space import tables_of
from penstock.runs.checkpoint import Checkpoint
from penstock.runs.run_directory import RunDirectory
from penstock.self_play.settings import with_absolute_paths
from penstock.surroundings import plain_torch
from penstock.trust import code_of

C = TypeVar("C", bound=Config)


class Training(NamedTuple):
    """A training that is ready to run.

    Attributes
    ----------
    config
        Its settings.
    env
        Its environment.
    policies
        Its policies, whose arenas hold the weights to start from.
    run_directory
        Where it is written; None: nowhere.
    supervisor
        Runs it.
    """

    config: Config
    env: EnvSpec
    policies: list[Policy]
    run_directory: RunDirectory | None
    supervisor: Supervisor


def open_training(
    algorithm: type[Algorithm],
    config: Config,
    run: RunDirectory | None = None,
    checkpoints: Sequence[Checkpoint] = (),
    changes: Collection[str] = (),
) -> Training:
    """Make all that a training needs, but for its roles.

    Parameters
    ----------
    algorithm, config
        What learns, and how.
    run, checkpoints
        The run that goes on, and the checkpoint of each of its policies; None and empty: a new one.
    changes
        Settings that a run that goes on is given now.

    Raises
    ------
    ConfigError, UnknownEnvironmentError, UnsupportedSpaceError, CheckpointError, RunDirectoryError, MemoryError
        What is wrong is in the message. Nothing is left behind.
    """
    try:
        with plain_torch():
            return _opened(algorithm, config, run, checkpoints, changes)
    except BaseException:
        launcher.discard()
        if config.backend == "ray":
            leave_cluster()
        raise


def reopen_training(
    run_dir: str | os.PathLike[str],
    changes: Mapping[str, Any],
    report: Callable[[str], None] | None = None,
    *,
    trust_code: bool = False,
) -> Training:
    """Go on with a run, with some settings changed; parameters and errors are those of `Trainer.resume`."""
    run = RunDirectory.own(run_dir)
    with code_of(run.info, run_dir, trust_code, changes), ExitStack() as on_failure:
        on_failure.callback(run.release)
        checkpoints = checkpoints_to_go_on_from(run, report)
        algorithm = load_algorithm(run.algorithm)
        before = {**run.config, "run_dir": os.fspath(run_dir)}
        more = changes.get("max_seconds")
        if isinstance(more, int | float) and more > 0:
            changes = {**changes, "max_seconds": round(checkpoints[0].meta.get("seconds", 0.0) + more, 3)}
        config = change_config(algorithm.Config, before, changes)
        training = open_training(algorithm, config, run, checkpoints, changes)
        _note_changes(run, training.supervisor.progress.steps, before, training.config.to_json(), changes)
        on_failure.pop_all()
    return training


def _opened(
    algorithm: type[Algorithm],
    config: Config,
    run: RunDirectory | None,
    checkpoints: Sequence[Checkpoint],
    changes: Collection[str],
) -> Training:
    began = time.monotonic()
    require_device(config.device)
    require_learners(algorithm, config)
    if config.backend == "serial":
        launcher.discard()
    else:
        launcher.prepare()
    if config.backend == "ray":
        config = on_cluster(algorithm, config)
    if config.pbt_space is not None:
        config = replace(config, pbt_space=tables_of(config.pbt_space))  # a run goes on without the file
    schedule = None if config.schedule is None else schedule_of(config.schedule, config.schedule_policy)
    if schedule is not None:
        config = replace(config, schedule=schedule, schedule_policy=None)
    found = look_at(with_schedules(config))
    config, env = found.config, found.env
    algorithms = {
        policy.name: algorithm(
            _for_roles(policy.config), _observation(seen.observation, checkpoint), seen.action
        )
        for policy, seen, checkpoint in zip_longest(found.policies, found.seen, checkpoints)
    }
    in_wrappers = () if config.backend == "ray" else found.seen[0].statistics  # nodes have arenas of their own
    policies, notes = open_policies(config, algorithms, checkpoints, run, changes, in_wrappers)
    statistics = RunStatistics(in_wrappers, policies[0].arena.statistics)
    notes += _notes_of_statistics(config, statistics, found.seen[0], checkpoints)
    if run is None and config.run_dir is not None:
        run = RunDirectory.create(
            config.run_dir, env_name=env.name, algorithm=algorithm_id(algorithm), config=config.to_json(),
            policies=[name for name in algorithms if name],
        )  # fmt: skip
    with ExitStack() as on_failure:
        if run is not None:
            on_failure.callback(run.release)
            for policy in policies:
                policy.path = policy.path.kept_in(run.of_policy(policy.name), policy.algorithm.config)
                run.log(_what_is_seen(policy))
            for note in _note_of_arguments(env):
                run.log(note)
            notes += [run.lock.note] if run.lock is not None and run.lock.note else []
        if schedule is not None:
            open_schedule(schedule, policies, checkpoints, changes)
        population = open_population(config, policies, checkpoints, changes)
        lines = checkpoints[0].meta.get("population", {}).get("lines", 0) if checkpoints else None
        own = [note_of_workers(config), note_of_precision(policies[0].algorithm)]
        if len(policies) == 1:
            own.append(note_of_budget(config, policies[0].arena.shape, policies[0].start.state.steps))
        supervisor = Supervisor(
            config, policies, env, found.seen[0].frame_skip, run,
            [*(note for note in own if note), *notes], population, lines, schedule, statistics,
        )  # fmt: skip
        on_failure.pop_all()
    supervisor.progress.seconds += time.monotonic() - began
    return Training(config, env, policies, run, supervisor)


def _observation(seen: ObservationSpec, checkpoint: Checkpoint | None) -> ObservationSpec:
    """Observation spec of a policy; a resumed one keeps the bounds that it has learned with."""
    if checkpoint is None:
        return seen
    before, _ = specs_from_json(checkpoint.meta["specs"])
    return before if before == seen else seen


def _for_roles(config: C) -> C:
    """Return a policy's settings for its roles: without objects of the environment, and for any working directory."""
    is_at_home = config.evaluator == "home"  # a node has its own copies of files
    against = with_absolute_paths(config.eval_against) if is_at_home else config.eval_against
    return with_schedules(replace(config, env_kwargs=saved(config.env_kwargs), eval_against=against))


def _note_of_arguments(env: EnvSpec) -> list[str]:
    if not env.payload.nbytes:
        return []
    size = f"{env.payload.nbytes / 2**20:,.1f} MiB"
    return [
        f"arguments of the environment: {size} of memory, which all processes of this machine share; a page that one "
        "writes to is its own"
    ]


def _what_is_seen(policy: Policy) -> str:
    leaves = ", ".join(f"{path or 'the observation'}: {what}" for path, what in policy.model.input.describe().items())
    return f"the network{f' of {policy.name}' if policy.name else ''} sees {leaves}"


def _notes_of_statistics(
    config: Config, statistics: RunStatistics, seen: Probed, checkpoints: Sequence[Checkpoint]
) -> list[str]:
    """Begin with the running statistics of a checkpoint; return what the user is to be told."""
    note = statistics.begin(statistics_of(checkpoints[0].meta) if checkpoints else None)
    notes = [] if note is None else [note]
    alone = [*seen.unshared, *([each.name for each in seen.statistics] if config.backend == "ray" else [])]
    if alone:
        notes.append(
            f"warning: the running statistics {', '.join(alone)} are not saved, and not shared by "
            f"{'nodes' if config.backend == 'ray' else 'environments'}: evaluations and the loaded policy see other "
            f"observations than training. {ADVICE}"
        )
    return notes


def _note_changes(
    run: RunDirectory, steps: int, before: Mapping[str, Any], now: Mapping[str, Any], changes: Collection[str]
) -> None:
    """Write down with what settings a run goes on that it did not have before."""
    changed = {name: now[name] for name in changes if now[name] != before.get(name)}
    shown = {name: (masked(value, name), masked(before.get(name), name)) for name, value in changed.items()}
    each = ", ".join(f"{name}={value!r} (was {old!r})" for name, (value, old) in shown.items())
    run.log(f"resumed at step {steps:,}{f' with {each}' if each else ''}")
    run.record_resumption(steps, changed)
