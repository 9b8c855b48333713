"""A machine that is a formula: how fast each setting trains is known, and measuring it takes no time."""

from __future__ import annotations

from collections.abc import Callable

from penstock.bench.engine_run import EngineRun
from penstock.config import Config
from penstock.engine.watching.time_spent import RoleTime

TOOK = 6.0  # seconds on the machine's clock for each measurement


class Machine:
    """Stands in for `run_engine`, with a clock of its own and four cores.

    Attributes
    ----------
    rate
        Steps per second of a config.
    roles
        How the roles of a config spend their time, and which one limits.
    other_programs
        Cores that other programs take.
    configs
        All that was measured, in order.
    patience
        How long each of them might have taken at most.
    now
        The time.
    """

    def __init__(self, rate: Callable[[Config], float]) -> None:
        self.rate = rate
        self.roles: Callable[[Config], tuple[tuple[RoleTime, ...], str]] = busy_rollouts
        self.other_programs = 0.0
        self.configs: list[Config] = []
        self.patience: list[float] = []
        self.now = 1_000.0

    def run_engine(
        self, algorithm: object, config: Config, *, seconds: float, warmup: float, patience: float
    ) -> EngineRun:
        """Measure a config."""
        self.configs.append(config)
        self.patience.append(patience)
        self.now += TOOK
        roles, limiting = self.roles(config)
        steps = round(seconds * self.rate(config))
        return EngineRun(
            steps=steps, seconds=seconds, roles=roles, cpu_seconds=1.0, other_programs=self.other_programs * seconds,
            limiting_role=limiting, limiting_reason="busy 97% of the time, mostly env",
        )  # fmt: skip

    def tried(self, *names: str) -> set[tuple[object, ...]]:
        """The values of these settings that were measured."""
        return {tuple(getattr(config, name) for name in names) for config in self.configs}


def role(name: str, *, on_core: float = 0.7, **wall: float) -> RoleTime:
    """A role with the seconds spent on each activity, `on_core` of its work on a core."""
    spent = {name.replace("_", " "): seconds for name, seconds in wall.items()}
    cpu = {name: 0.0 if name.startswith("wait") else on_core * seconds for name, seconds in spent.items()}
    return RoleTime(name, 1, spent, cpu)


def busy_rollouts(config: Config) -> tuple[tuple[RoleTime, ...], str]:
    """Everybody wants more of the cores, and rollout workers limit the run: every setting may matter."""
    policy = (role("policy", infer=1.0, wait_for_requests=1.0),) if config.inference == "central" else ()
    acting = {"infer": 0.0, "wait_for_actions": 0.3} if policy else {"infer": 0.3, "wait_for_actions": 0.0}
    rollout = role("rollout x2", env=0.7, **acting)
    return (rollout, *policy, role("learner", learn=0.5, wait_for_data=0.5)), rollout.name
