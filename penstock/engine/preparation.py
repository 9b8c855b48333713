"""Preparation of a run: its environment, device and arena, and notes for the user."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import torch

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.config import Config, ConfigError, PolicyConfig, policy_configs
from penstock.engine.acting.inference import weights_nbytes
from penstock.engine.backends.apart import apart
from penstock.engine.paths import data_path
from penstock.engine.roster import infers_centrally
from penstock.envs.failures import UnknownEnvironmentError
from penstock.envs.making import Probed, agents_of, probe_all, require_goal_rules
from penstock.envs.spaces import ObservationSpec
from penstock.envs.spec import EnvSpec
from penstock.experience.layout import RunShape
from penstock.imports import place_of, why_lost
from penstock.ipc import whole_cores
from penstock.nn import PolicyNetwork, WeightsLayout
from penstock.nn.encoders import encodes_images
from penstock.nn.layers import is_bfloat16, is_faster_in_bfloat16
from penstock.play.film import require_packages, require_pictures
from penstock.play.policy import environment_named_by
from penstock.self_play.settings import require_agents_for
from penstock.serialization import packed

_SIDE = 16  # shortest axis that may be a side of an image
_CROWD = 4  # rollout workers per core above which the user is warned


def run_shape(algorithm: Algorithm, model: PolicyNetwork) -> RunShape:
    """Return the shape of a policy's arena, from its algorithm, config and network, as if it had all seats.

    Raises
    ------
    ConfigError
        The settings do not fit the algorithm's data path.
    """
    config = algorithm.config
    is_central = infers_centrally(config.inference, algorithm)
    is_apart = is_central and config.backend == "local"
    num_groups = config.num_groups or (2 if is_central and config.num_envs_per_worker % 2 == 0 else 1)
    numbers: dict[str, Any] = data_path(algorithm).numbers(algorithm, model)
    return RunShape(
        num_workers=config.workers,
        num_envs_per_worker=config.num_envs_per_worker,
        num_groups=num_groups,
        num_agents=config.num_agents,
        num_learners=config.num_learners,
        num_policy_workers=min(config.num_learners, config.workers) if is_apart else 1,  # one for each learner
        **numbers,
        observation=algorithm.observation,
        action=algorithm.action,
        records=algorithm.record_columns(),
        state_size=algorithm.lane_state_size(model),
        weights_nbytes=weights_nbytes(model),
        rounded_nbytes=_rounded_nbytes(model) if config.node_weights == "bfloat16" else 0,
    )


def _rounded_nbytes(model: PolicyNetwork) -> int:
    """Return the size of a network's parameters for `RunShape.rounded_nbytes`."""
    if others := {parameter.dtype for parameter in model.parameters()} - {torch.float32}:
        raise ConfigError(
            f'node_weights="bfloat16" rounds parameters of float32, found {", ".join(map(str, others))}: use '
            'node_weights="float32"'
        )
    return WeightsLayout(model).parameters_nbytes


def resolve_env(config: Config) -> EnvSpec:
    """Return the environment of a config; raises `ConfigError`, or a subclass, if it is not legal."""
    try:
        return environment_named_by(config)
    except UnknownEnvironmentError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error


def require_goal_rules_of(config: Config) -> None:
    """Raise ValueError if a config's environment, created `apart`, cannot compute rewards for other goals."""
    env = resolve_env(config)
    apart(env.name, require_goal_rules, env)


@dataclass(frozen=True)
class ResolvedEnvironment:
    """Environment of a config, and the policies that act in it.

    Attributes
    ----------
    config
        The config, with the number of the environment's agents and, for a single policy, settled defaults.
    env
        The environment, with its teams.
    policies, seen
        Config and spaces of each policy.
    note_of_settled
        Note of the settled defaults, for the user; None: there are none.
    """

    config: Config
    env: EnvSpec
    policies: list[PolicyConfig]
    seen: list[Probed]
    note_of_settled: str | None = None


def resolve(config: Config) -> ResolvedEnvironment:
    """Find a config's environment, which is created `apart`, and its policies.

    Raises
    ------
    ConfigError, UnknownEnvironmentError, UnsupportedSpaceError, EnvironmentFailure, LauncherDied
        The environment, the number of its agents, or a policy is not legal.
    """
    env = resolve_env(config)
    is_one_policy = config.num_policies == 1 and not config.policies
    seen = apart(env.name, probe_all, env) if is_one_policy else []
    agents = seen[0].agents if is_one_policy else apart(env.name, agents_of, env)
    count = max(1, len(agents))
    if config.num_agents not in (None, count):
        which = f" ({', '.join(agents)})" if agents else ""
        raise ConfigError(
            f"num_agents={config.num_agents} is not the number of agents of {env.name}: it has {count}{which}; "
            "leave it out to use all of them"
        )
    require_agents_for(config, agents)
    config = given = replace(config, num_agents=len(agents)) if agents else config
    if is_one_policy:
        config = given.resolved(encodes_images=encodes_images(given.encoder, seen[0].observation))
    policies = policy_configs(config, agents)
    teams = tuple(policy.agents for policy in policies) if agents else ()
    env = replace(env, teams=teams, population=1 if agents else len(policies))
    seen = seen or apart(env.name, probe_all, env)
    env = replace(env, mask_is_in_info=seen[0].mask_is_in_info)
    if config.eval_videos:
        require_packages()
        apart(env.name, require_pictures, env.of_one)
    return ResolvedEnvironment(config, env, policies, seen, _note_of_settled(given, config))


def _note_of_settled(given: Config, config: Config) -> str | None:
    """Return a note of the values chosen for settings that were None; None if there are no such settings."""
    names = [field.name for field in fields(given) if getattr(given, field.name) != getattr(config, field.name)]
    return f"defaults for this run: {', '.join(f'{name}={getattr(config, name)}' for name in names)}" if names else None


def settled_precision(algorithm: Algorithm) -> str:
    """Resolved precision of the network's body: "float32", "bfloat16", or one per role."""
    precision = algorithm.config.precision
    chosen, learned = ("bfloat16" if is_bfloat16(precision, device) else "float32" for device in _devices(algorithm))
    return learned if chosen == learned else f"{chosen} in the rollout workers, {learned} in the learner"


def note_of_precision(algorithm: Algorithm) -> str | None:
    """Return a note of the resolution of "auto", or that the requested precision is slow on the CPU; else None."""
    precision = algorithm.config.precision
    if precision == "auto":
        return f"precision='auto' is {settled_precision(algorithm)} here"
    is_on_cpu = any(device.type == "cpu" for device in _devices(algorithm))
    if precision == "bfloat16" and is_on_cpu and not is_faster_in_bfloat16("cpu"):
        return (
            "precision='bfloat16': this CPU is faster in float32, many times faster if it has to emulate bfloat16; "
            "precision='auto' chooses the faster one"
        )
    return None


def note_of_flattening(encoder: Any, observation: ObservationSpec) -> str | None:
    """Return a note if encoder="auto" flattens for an mlp what may be images; else None."""
    flat = [str(leaf) for leaf in observation.leaves if not leaf.is_image and sum(n >= _SIDE for n in leaf.shape) > 1]
    if encoder != "auto" or not flat:
        return None
    return (
        f"encoder='auto' flattens {', '.join(flat)} for an mlp: images are uint8 of three axes, (channels, height, "
        "width) or (height, width, channels); use that form, with stacked frames as channels, or your own encoder"
    )


def note_of_budget(config: Config, shape: RunShape, steps: int) -> str | None:
    """Return a note if whole batches, counted from `steps`, do not end exactly at ``total_steps``; else None."""
    batch, total = shape.segment_length * shape.segments_per_batch, config.total_steps
    end = steps + -(-(total - steps) // batch) * batch
    if steps >= total or end == total:
        return None
    holds, ends = f"{batch} steps", f"at about step {end}"
    if (config.num_agents or 1) > 1:  # turn-based games have rows without a move
        holds, ends = f"{batch} steps or, where agents wait, fewer", f"within {batch - 1} steps after it"
    return f"total_steps={total} ends within a batch: a batch has {holds}, so training ends {ends}"


def check_code(config: Config, *algorithms: Algorithm) -> list[str]:
    """Raise `ConfigError` for code that cannot be pickled; return a warning of code that cannot be imported by name."""
    saved = {name: config.to_json().get(name) for name in ("encoder", "env")}
    saved["algorithm"] = place_of(type(algorithms[0]))
    try:
        _ = config.backend == "serial" or packed(algorithms)
    except Exception as error:
        name = next(filter(partial(_cannot_travel, config), config.to_json()), "algorithm")
        problem = f"{name}={saved.get(name, name)!r} cannot travel to worker processes: {error}"
        raise ConfigError(f"{problem}. Create what cannot be pickled (files, locks, sockets) inside it") from None
    lost = [f"{name}={saved[name]!r}" for name in ("algorithm", "encoder", "env") if why_lost(name, saved[name])]
    where = f"warning: {', '.join(lost)}: defined in a script or a function, or an object, so other processes cannot "
    return [f"{where}load this run; move it to a file, and give file.py:Class"] if lost and config.run_dir else []


def _cannot_travel(config: Config, name: str) -> bool:
    try:
        return not packed(getattr(config, name))
    except Exception:
        return True


def note_of_workers(config: Config) -> str | None:
    """Return a note if there are many more rollout workers than cores; else None."""
    cores, each = whole_cores(), config.workers_per_node
    if config.backend != "local" or each <= _CROWD * cores:
        return None
    return (
        f"num_workers={each} on {cores} core{'' if cores == 1 else 's'}: each is a process that takes memory, and none "
        f"of them gets more than {cores / each:.1%} of a core; leave num_workers out for one per core"
    )


def _devices(algorithm: Algorithm) -> tuple[torch.device, torch.device]:
    """Return the devices of inference and of the learner."""
    learner = torch.device(algorithm.config.device)
    return learner if infers_centrally(algorithm.config.inference, algorithm) else torch.device("cpu"), learner


def require_device(device: str) -> None:
    """Raise `ConfigError` if torch cannot use a device."""
    kind, _, index = device.partition(":")
    if kind == "cuda":
        count = _num_gpus()
        if int(index or 0) >= count:
            found = f"torch {torch.__version__} sees {count} CUDA devices"
            raise ConfigError(f'device={device!r} is not available: {found}; use device="cpu", or see: penstock doctor')


def require_learners(algorithm: type[Algorithm], config: Config) -> None:
    """Raise `ConfigError` if the algorithm cannot have `num_learners`, or there is no GPU for each."""
    size, device = config.num_learners, torch.device(config.device)
    if size == 1:
        return
    from penstock.engine.groups.rank_learner import require_rank_learner  # imports every data path

    require_rank_learner(algorithm, config)
    first, here, away = device.index or 0, config.learners_at_home, config.num_learner_nodes
    if device.type == "cuda" and (left := _num_gpus() - first) < here:
        at_home = f" of the {here} at home" if away else ""
        raise ConfigError(
            f"num_learners={size} needs a GPU for each{at_home}, from {device.type}:{first} on, and torch "
            f'{torch.__version__} sees {left} there: use num_learners={max(1, left) + away}, or device="cpu"'
        )


def _num_gpus() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0
