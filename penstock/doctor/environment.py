"""``penstock doctor --env``: contract of an environment, its speed, and what would limit a training on it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.algorithms import load_algorithm
from penstock.bench import BenchError
from penstock.bench.account import COPYING, NAMES, Account
from penstock.bench.costs import measure_costs
from penstock.bench.data_paths import measured_path
from penstock.bench.engine_run import run_engine
from penstock.bench.work import MOST_ACTIONS, random_actions
from penstock.config import Config, ConfigError, find_object, make_config
from penstock.doctor import Check
from penstock.doctor.contract import SEED, check_contract
from penstock.engine.backends import launcher
from penstock.engine.backends.apart import apart
from penstock.engine.preparation import resolve_env
from penstock.envs.columns import ActionDecoder
from penstock.envs.factories import OUTSIDE
from penstock.envs.failures import PROBED_LANE, EnvironmentFailure, EnvironmentUsageError
from penstock.envs.making import construct, make_lanes
from penstock.envs.spec import EnvSpec
from penstock.self_play.fixed_opponents import RandomOpponent

if TYPE_CHECKING:
    from penstock.flags import DoctorFlags

ALGORITHM = "ppo"  # it supports every action space
_TURNS = 4
_WORK = {"env": "the simulator", "infer": "inference", "learn": "the learner"}
_BECAUSE = {
    "rollout workers": "because rollout workers step their groups one after another",
    "policy worker": "because the policy worker has few threads",
    "taking turns": "because rollout and learning alternate",
}
_ADVICE = {
    "env": "more cores, a cheaper step, or environments that step together (vectorize='vector')",
    "infer": "more num_envs_per_worker, a smaller network, or device='cuda'",
    "learn": "device='cuda', a smaller network, fewer epochs, or an asynchronous algorithm",
}


def check_environment(flags: DoctorFlags) -> list[Check]:
    """Return the findings about the environment that the flags name; it is made in other processes.

    Raises
    ------
    ConfigError
        The flags name no environment, or an illegal time.
    """
    _require_time("seconds", flags.seconds, flags.seconds >= 0, "0 or more")
    _require_time("timeout", flags.timeout, flags.timeout > 0, "more than 0")
    algorithm = load_algorithm(ALGORITHM)
    settings = {"env": flags.env, "env_kwargs": flags.env_kwargs, "vectorize": flags.vectorize}
    config = make_config(algorithm.Config, settings)
    env = resolve_env(config)
    if flags.wrapper:
        env = env.wrapped([find_object(name, "wrapper") for name in flags.wrapper])
        source, kwargs = env.unpack()
        config = replace(config, env=source, env_kwargs=kwargs)
    with launcher.kept():
        launcher.prepare()
        checks = check_contract(env, flags.timeout)
        if not flags.seconds:
            return checks
        if any(check.status == "fail" for check in checks):
            return [*checks, Check("speed", "warn", "not measured", "fix the environment first")]
        try:
            return [*checks, *_speed(env, config, flags.seconds, flags.timeout)]
        except EnvironmentFailure as failure:
            return [*checks, Check("speed", "fail", str(failure), "fix the environment: it fails after longer play")]
        except (BenchError, ConfigError, EnvironmentUsageError) as error:
            return [*checks, Check("speed", "warn", f"not measured: {error}")]


def _require_time(flag: str, seconds: float, is_legal: bool, legal: str) -> None:
    if not (is_legal and math.isfinite(seconds)):
        raise ConfigError(f"--{flag} {seconds:g} is not a legal time: give a finite number of seconds, {legal}")


def _speed(env: EnvSpec, config: Config, seconds: float, limit: float) -> list[Check]:
    """Measure one lane, all cores and a short training, for a third of the time each; `limit` bounds their start."""
    size = config.num_envs_per_worker
    one, group, bare = apart(env.name, _in_one_process, env, size, seconds / 3, limit=seconds / 3 + limit)
    together = f"{group:,.0f} steps/s of {size} lanes in one process"
    if bare is not None:
        together += f"; a bare loop makes {bare:,.0f}: {max(0.0, 1.0 - group / bare):.0%} is Penstock's own"
    algorithm = load_algorithm(ALGORITHM)
    measured = measured_path(algorithm, config).quick(config)
    costs, capacity = measure_costs(algorithm, measured, seconds=seconds / 3)
    engine = run_engine(algorithm, measured, seconds=seconds / 3, patience=seconds / 3 + limit)
    account = Account(costs, capacity, engine)
    cores = "1 core" if capacity.cores == 1 else f"{capacity.cores:g} cores"
    rate = capacity.cores / (costs.env + costs.env_wait)
    sleeps = f", {1e6 * costs.env_wait:,.1f} us of which asleep" if costs.env_waits else ""
    return [
        Check("one lane", "ok", f"{one:,.0f} steps/s"),
        Check("one worker", "ok", together),
        Check("all cores", "ok", f"{rate:,.0f} steps/s on {cores}, {1e6 * capacity.cores / rate:,.1f} us each{sleeps}"),
        _training(account, cores),
        _limit(account),
    ]


def _training(account: Account, cores: str) -> Check:
    """Describe the measured training and the use of the cores' time."""
    parts, total = account.parts, account.total
    work = {_WORK[name]: parts[f"real work: {NAMES[name]}"] for name in _WORK}
    work["Penstock's own"] = parts["Python and the rest"] + sum(parts[f"copying: {name}"] for name in COPYING.values())
    work |= {name: parts[name] for name in ("other programs", "idle")}
    work["slower than alone"] = total - sum(work.values())
    shares = {name: seconds / total for name, seconds in work.items()}
    shown = ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if abs(share) >= 0.005)
    found = (
        f"{ALGORITHM} with its defaults learns from {account.engine.rate:,.0f} steps/s, {account.efficiency:.0%} of "
        f"the ideal {account.ideal:,.0f}. Time of {cores}: {shown}"
    )
    return Check("training", "ok", found, "other algorithms and settings: penstock bench ideal ALGORITHM --env ENV")


def _limit(account: Account) -> Check:
    """Name the largest part of a step's work: it limits a training whose roles are balanced."""
    costs = account.costs
    if account.bound_by == "waiting environments":
        found = f"environments sleep {1e6 * costs.env_wait:,.0f} us of each step, while cores idle"
        return Check("limit", "ok", found, "more num_envs_per_worker and num_workers step others meanwhile")
    work = max(_WORK, key=lambda name: getattr(costs, name))
    found = f"{_WORK[work]}, with {getattr(costs, work) / costs.all:.0%} of a step's work"
    if account.allowed < 0.9 * account.ideal:
        found += f"; these settings allow {account.allowed:,.0f} steps/s, {_BECAUSE[account.allowed_by]}"
    return Check("limit", "ok", found, _ADVICE[work])


def _in_one_process(env: EnvSpec, group: int, seconds: float) -> tuple[float, float, float | None]:
    """Return the steps per second of one lane, of a group of lanes, and of a bare loop over a single environment.

    The bare loop is None for environments that are not single, or that restrict actions by masks.
    """
    with ExitStack() as stack:
        one, many = (_Lanes(stack, env, count) for count in (1, group))
        loops: list[Callable[[int], int]] = [one.step, many.step]
        if not (env.is_vector or one.lanes.agents or one.opponent is not None):
            loops.append(_bare_loop(stack, env, one))
        each = seconds / _TURNS / len(loops)
        turns = [[_rate(loop, each) for loop in loops] for _ in range(_TURNS)]
    rates = [float(np.median(rates)) for rates in zip(*turns, strict=True)]
    return rates[0], rates[1], rates[2] if len(rates) > 2 else None


class _Lanes:
    """Lanes that step with random actions and write their observations into rows, as in a rollout worker."""

    def __init__(self, stack: ExitStack, env: EnvSpec, count: int) -> None:
        lanes = make_lanes(env, count, seed=SEED, first_lane=PROBED_LANE, worker_index=OUTSIDE)
        self.lanes = stack.enter_context(closing(lanes))
        self.opponent = None if lanes.observation.mask is None else RandomOpponent(lanes, SEED)
        generator = np.random.default_rng(SEED)
        self.actions = [random_actions(lanes.action, lanes.num_lanes, generator) for _ in range(MOST_ACTIONS)]
        self._column = np.zeros((lanes.num_lanes, *lanes.observation.shape), lanes.observation.dtype)
        self._rows = np.arange(lanes.num_lanes, dtype=np.int64)
        lanes.reset()

    def step(self, number: int) -> int:
        """Step once; return the number of real steps."""
        self.lanes.step(self.actions[number] if self.opponent is None else self.opponent.act())
        self.lanes.write_observations(self._column, self._rows)
        return int(np.count_nonzero(self.lanes.valid))


def _bare_loop(stack: ExitStack, env: EnvSpec, lanes: _Lanes) -> Callable[[int], int]:
    """Return a function that steps a single environment without lanes."""
    source, kwargs = env.unpack()
    bare = construct(source, kwargs, {"worker_index": OUTSIDE, "lane": PROBED_LANE, "seed": SEED})
    stack.enter_context(closing(bare))
    decode = ActionDecoder(lanes.lanes.action)
    chosen = [decode.each(action)[0] for action in lanes.actions]
    bare.reset(seed=SEED)

    def step(number: int) -> int:
        _, _, terminated, truncated, _ = bare.step(chosen[number])
        if terminated or truncated:
            bare.reset()
        return 1

    return step


def _rate(step: Callable[[int], int], seconds: float) -> float:
    """Return the steps per second of a function that is called with the number of its actions."""
    steps, number, began = 0, 0, time.monotonic()
    while (passed := time.monotonic() - began) < seconds or not steps:
        for _ in range(8):
            steps += step(number % MOST_ACTIONS)
            number += 1
    return steps / passed
