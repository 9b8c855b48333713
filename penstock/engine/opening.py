"""Opening of a training: a new one from its settings, or a resumed one from its run directory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from penstock.algorithms import algorithm_id, load_algorithm
from penstock.algorithms.bases.algorithm import Algorithm
from penstock.config import Config, ConfigError, change_config, saved
from penstock.config.nodes import left_on_nodes
from penstock.engine.backends import launcher
from penstock.engine.exploits import open_population
from penstock.engine.nodes.joining import leave_cluster, on_cluster
from penstock.engine.policies import Policy, Training, checkpoints_to_resume, open_policies
from penstock.engine.preparation import (
    ResolvedEnvironment,
    check_code,
    note_of_budget,
    note_of_flattening,
    note_of_precision,
    note_of_workers,
    require_device,
    require_learners,
    resolve,
)
from penstock.engine.scheduling import open_schedule
from penstock.engine.supervisor import Supervisor
from penstock.envs.making import Probed
from penstock.envs.spaces import ObservationSpec
from penstock.envs.spec import EnvSpec
from penstock.envs.statistics import ADVICE, statistics_of
from penstock.experience.statistics import RunStatistics
from penstock.imports import UntrustedCodeError
from penstock.play.policy import specs_from_json
from penstock.population.schedule import Schedule, schedule_of
from penstock.population.space import tables_of
from penstock.process_state import plain_torch
from penstock.redaction import masked
from penstock.runs.checkpoint import Checkpoint
from penstock.runs.remote import is_remote
from penstock.runs.run_directory import RunDirectory
from penstock.runs.vacancy import require_different
from penstock.self_play.settings import with_absolute_paths
from penstock.trust import code_of, is_sealed


def open_training(
    algorithm: type[Algorithm], config: Config, run: RunDirectory | None = None,
    checkpoints: Sequence[Checkpoint] = (), changes: Collection[str] = (),
) -> Supervisor:  # fmt: skip
    """Make a training without starting its roles.

    Parameters
    ----------
    algorithm, config
        Algorithm, and its settings.
    run, checkpoints
        Directory of a resumed run, None for a new one; and the checkpoint that each policy starts from, empty to start
        from nothing.
    changes
        Names of settings that a resume changes.

    Raises
    ------
    ConfigError, UnknownEnvironmentError, UnsupportedSpaceError, CheckpointError, RunDirectoryError, MemoryError
        The message says what is wrong. Nothing is left behind.
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
    run_dir: str | os.PathLike[str], changes: Mapping[str, Any], report: Callable[[str], None] | None = None, *,
    trust_code: bool = False, kind: type[Algorithm] = Algorithm,
) -> Supervisor:  # fmt: skip
    """Resume a run of an algorithm that is a `kind`; other parameters and errors as for `Trainer.resume`."""
    if is_remote(run_dir):
        from penstock.runs.fetching import copy_to_resume

        run_dir = copy_to_resume(run_dir, report or print)
    run = RunDirectory.own(run_dir)
    with code_of(run.info, run_dir, trust_code, changes), ExitStack() as on_failure:
        on_failure.callback(run.release)
        checkpoints = checkpoints_to_resume(run, report)
        algorithm = load_algorithm(run.algorithm, changes.get("algorithm"))
        if not issubclass(algorithm, kind):
            name = algorithm.name()
            raise ConfigError(f"{run_dir} is a run of {name}, not of {kind.name()}: use penstock.Trainer.resume")
        run.algorithm = algorithm_id(algorithm) if "algorithm" in changes else run.algorithm
        changes = {name: value for name, value in changes.items() if name != "algorithm"}
        url = run.config.get("run_dir")
        if is_remote(url) and not (trust_code or is_sealed(run.info, str(url))):
            raise UntrustedCodeError(
                f"{run_dir} would be sent to {url}, and no seal says that this user chose it: the run may be a copy. "
                "If the URL is right, use --trust-code, in Python trust_code=True"
            )
        before = {**run.config, "run_dir": url if is_remote(url) else os.fspath(run_dir)}
        more = changes.get("max_seconds")
        if isinstance(more, int | float) and more > 0:
            spent = checkpoints[0].meta.get("seconds", 0.0) if checkpoints else 0.0
            changes = {**changes, "max_seconds": round(spent + more, 3)}
        left = left_on_nodes(before, changes)
        changes = {**changes, **left}
        config = change_config(algorithm.Config, before, changes)
        supervisor = open_training(algorithm, config, run, checkpoints, changes)
        if left:
            now = ", ".join(f"{name}={value!r}" for name, value in left.items())
            note = f"backend={config.backend!r} has no nodes: {now} from now on"
            supervisor.training.notes = [*supervisor.training.notes, note]
        _note_changes(run, supervisor.progress.steps, before, supervisor.training.config.to_json(), changes)
        on_failure.pop_all()
    return supervisor


def _opened(
    algorithm: type[Algorithm], config: Config, run: RunDirectory | None, checkpoints: Sequence[Checkpoint],
    changes: Collection[str],
) -> Supervisor:  # fmt: skip
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
        config = replace(config, pbt_space=tables_of(config.pbt_space))  # a resume does not need the file
    schedule: Schedule = {}
    if config.schedule is not None:
        schedule = schedule_of(config.schedule, config.schedule_policy)
        config = replace(config, schedule=schedule, schedule_policy=None)
    found = resolve(config.with_schedules())
    config, env = found.config, found.env
    algorithms = {
        policy.name: algorithm(_for_roles(policy.config), _observation(seen.observation, checkpoint), seen.action)
        for policy, seen, checkpoint in zip_longest(found.policies, found.seen, checkpoints)
    }
    in_wrappers = () if config.backend == "ray" else found.seen[0].statistics  # nodes have arenas of their own
    policies, notes = open_policies(config, algorithms, checkpoints, run, changes, in_wrappers)
    statistics = RunStatistics(in_wrappers, policies[0].arena.statistics)
    notes += check_code(config, *algorithms.values())
    notes += _notes_of_statistics(config, statistics, found.seen[0], policies[0].start.meta)
    if run is None and config.run_dir is not None:
        require_different([*algorithms])
        run = RunDirectory.create(
            config.run_dir, env_name=env.name, algorithm=algorithm_id(algorithm), config=config.to_json(),
            policies=[name for name in algorithms if name],
        )  # fmt: skip
    sender = None
    with ExitStack() as on_failure:
        if run is not None:
            on_failure.callback(run.release)
            for policy in policies:
                policy.path = policy.path.kept_in(run.of_policy(policy.name), policy.algorithm.config)
            _log_inputs(run, env, policies)
            if is_remote(run.config.get("run_dir")):
                from penstock.runs.sending import Sender  # not needed by local runs

                sender = Sender(run)
            notes += [run.lock.note] if run.lock is not None and run.lock.note else []
        open_schedule(schedule, policies, changes)
        population = open_population(config, policies, changes)
        supervisor = Supervisor(Training(
            config, env, found.seen[0].frame_skip, policies, run, statistics, population, schedule,
            [*_notes_of_settings(found, policies), *notes], sender,
        ))  # fmt: skip
        on_failure.pop_all()
    if config.backend != "ray":  # the start of a cluster does not count as time of the run
        supervisor.progress.seconds += time.monotonic() - began
    return supervisor


def _observation(seen: ObservationSpec, checkpoint: Checkpoint | None) -> ObservationSpec:
    """Return the observation spec of a policy; a resumed policy keeps the bounds that it was trained with."""
    if checkpoint is None:
        return seen
    before, _ = specs_from_json(checkpoint.meta["specs"])
    return before if before == seen else seen


def _for_roles(config: Config) -> Config:
    """Return a policy's settings for its roles: without the environment's objects, and with absolute paths."""
    is_at_home = config.evaluator == "home"  # a node has its own copies of files
    against = with_absolute_paths(config.eval_against) if is_at_home else config.eval_against
    return replace(config, env_kwargs=saved(config.env_kwargs), eval_against=against).with_schedules()


def _log_inputs(run: RunDirectory, env: EnvSpec, policies: Sequence[Policy]) -> None:
    """Log what the networks see, and the memory of large arguments of the environment."""
    for policy in policies:
        parts = policy.model.input.describe().items()
        leaves = ", ".join(f"{path or 'the observation'}: {what}" for path, what in parts)
        run.log(f"the network{f' of {policy.name}' if policy.name else ''} sees {leaves}")
    if env.payload.nbytes:
        run.log(
            f"arguments of the environment: {env.payload.nbytes / 2**20:,.1f} MiB of memory, shared by all "
            "processes of this machine; a process that writes to a page gets its own copy"
        )


def _notes_of_settings(found: ResolvedEnvironment, policies: Sequence[Policy]) -> list[str]:
    """Return notes for the user of settings with consequences."""
    config, algorithms = found.config, [policy.algorithm for policy in policies]
    notes = [note_of_workers(config), note_of_precision(algorithms[0]), found.note_of_settled]
    notes += dict.fromkeys(note_of_flattening(each.config.encoder, each.observation) for each in algorithms)
    notes += dict.fromkeys(seen.note_of_mask for seen in found.seen)
    if len(policies) == 1:
        notes.append(note_of_budget(config, policies[0].arena.shape, policies[0].start.state.steps))
    return [note for note in notes if note]


def _notes_of_statistics(config: Config, statistics: RunStatistics, seen: Probed, meta: Mapping[str, Any]) -> list[str]:
    """Restore the running statistics of a checkpoint's metadata; return notes for the user."""
    note = statistics.begin(statistics_of(meta) if meta else None)
    notes = [] if note is None else [note]
    alone = [*seen.unshared, *([each.name for each in seen.statistics] if config.backend == "ray" else [])]
    if alone:
        notes.append(
            f"warning: the running statistics {', '.join(alone)} are not saved, and not shared by "
            f"{'nodes' if config.backend == 'ray' else 'environments'}: observations in evaluations and of the loaded "
            f"policy differ from those in training. {ADVICE}"
        )
    return notes


def _note_changes(
    run: RunDirectory, steps: int, before: Mapping[str, Any], now: Mapping[str, Any], changes: Collection[str]
) -> None:
    """Write the changed settings of a resumed run to its log and ``config.json``."""
    changed = {name: now[name] for name in changes if now[name] != before.get(name)}
    shown = {name: (masked(value, name), masked(before.get(name), name)) for name, value in changed.items()}
    each = ", ".join(f"{name}={value!r} (was {old!r})" for name, (value, old) in shown.items())
    run.log(f"resumed at step {steps:,}{f' with {each}' if each else ''}")
    run.record_resumption(steps, changed)
