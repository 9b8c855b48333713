"""Present state of a run in plain numbers: the engine makes one `Status` per refresh, the views show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

REAL_WORK = ("env", "infer", "learn")
"""Necessary work of a run: stepping environments, choosing actions, learning."""


@dataclass(frozen=True, kw_only=True)
class RoleShare:
    """Shares of wall time that a role, over all its processes, spent on each activity in the last seconds."""

    name: str
    """Name shown, e.g. "rollout x2"."""
    activities: Mapping[str, float]
    """Share of wall time per activity, e.g. {"env": 0.62, "wait for slots": 0.10}; the sum is at most 1."""
    busy: float
    """Share of wall time spent in activities that are no waits, from 0 to 1."""

    @property
    def kind(self) -> str:
        """The name without the number of processes: "rollout"."""
        return self.name.partition(" ")[0]


@dataclass(frozen=True)
class MatchStatus:
    """Games of the last evaluation against one opponent, from one seat, or from all those of a policy."""

    opponent: str
    seat: str
    wins: int
    draws: int
    losses: int
    mean_return: float

    @property
    def games(self) -> int:
        """Games that somebody has won, or that were drawn."""
        return self.wins + self.draws + self.losses


@dataclass(frozen=True, kw_only=True)
class NodeStatus:
    """One moment of a node that steps lanes for a run, or has one of its learners."""

    name: str = ""
    """"node-0", "node-1" and so on."""
    host: str = ""
    """Name of the machine; of the last one while there is none."""
    lanes: int = 0
    learner: int = 0
    """Rank of the learner that it has; 0: it steps lanes."""
    is_there: bool = False
    """Whether it is connected; else its lanes stand still, or its learner is missing."""
    steps: int = 0
    """Steps that it has brought."""
    steps_per_second: float = 0.0
    policy_lag: float = 0.0
    """Mean policy lag of its last steps when they arrived."""
    nbytes: int = 0
    """Bytes that it has sent."""
    weights_nbytes: int = 0
    """Bytes of weights that it was sent."""
    bytes_per_second: float = 0.0
    """Recent rate at which it sends."""
    stale: int = 0
    """Blocks of an earlier run epoch, or of a host that has been replaced: not learned from."""
    doubled: int = 0
    """Blocks that came a second time: not learned from."""
    missing: int = 0
    """Blocks that never came, though later ones did."""
    faults: int = 0
    """Number of times that the node was lost."""


@dataclass(frozen=True)
class OpponentStatus:
    """A past version that a policy plays, and how games against it have ended."""

    steps: int
    """Steps of the run when it entered."""
    rating: float
    """Its Elo rating."""
    score: float
    """Score of the policy in recent games against it: a win is 1, a draw 1/2."""
    wins: int = 0
    """Games that the policy has won."""
    draws: int = 0
    losses: int = 0
    policy: str = ""
    """Name of the policy whose version it is, where a run has several."""


@dataclass(frozen=True, kw_only=True)
class PolicyStatus:
    """One moment of one policy's learning; of a run, that of its policies together."""

    name: str = ""
    """Name of the policy, where a run has several."""
    steps: int
    """Steps learned from so far."""
    episodes: int = 0
    mean_return: float | None = None
    """Mean return of recent training episodes."""
    mean_length: float | None = None
    """Mean length of recent training episodes, in steps."""
    success_rate: float | None = None
    """Share of recent training episodes whose last info says that they were successes; None where none says."""
    eval_return: float | None = None
    """Mean return of the last evaluation."""
    eval_unfinished: int = 0
    """Number of its episodes that were given up before they ended."""
    eval_success_rate: float | None = None
    """Share of its episodes that were successes; None where the environment does not say."""
    eval_matches: tuple[MatchStatus, ...] = ()
    """Its games against each opponent, where it has any: `eval_return` is that against the first one."""
    best_return: float | None = None
    """Mean return of the best weights that any evaluation has seen."""

    updates: int = 0
    version: int = 0
    learning_rate: float | None = None
    """The optimiser's step size in the last update; None before the first."""
    losses: Mapping[str, float] = field(default_factory=dict)
    experience: Mapping[str, float] = field(default_factory=dict)
    """Metrics of the data path about the experience learned from, by name: "policy_lag/mean", "masked_steps",
    "replay/rows" and others."""
    skipped_updates: int = 0
    """Updates left out because loss or gradient was not finite."""
    tuned: Mapping[str, float] = field(default_factory=dict)
    """Values of tunable settings that have been set while the run went on, or by its population."""
    exploits: int | None = None
    """Number of times that the policy was replaced by a copy of another; None without population-based training."""
    rating: float | None = None
    """Elo rating of the policy, where it plays past versions: that of the first one is 0."""
    opponents: tuple[OpponentStatus, ...] = ()
    """The past versions that it plays, from the oldest on."""
    opponent_games: int = 0
    """Games against past versions that were played to their end."""

    @property
    def policy_lag_min(self) -> float:
        """Smallest policy lag of a step in the last batch; 0 where there is none."""
        return self.experience.get("policy_lag/min", 0.0)

    @property
    def policy_lag_mean(self) -> float:
        """Mean policy lag of the last batch's steps; 0 where there is none."""
        return self.experience.get("policy_lag/mean", 0.0)

    @property
    def policy_lag_max(self) -> float:
        """Largest policy lag of a step in the last batch; 0 where there is none."""
        return self.experience.get("policy_lag/max", 0.0)

    @property
    def masked_steps(self) -> int:
        """Steps that were not learned from: too stale, fenced off by other weights, or of the burn-in."""
        return int(self.experience.get("masked_steps", 0))

    @property
    def replay_rows(self) -> int | None:
        """Transitions in the replay buffer; None where there is none."""
        rows = self.experience.get("replay/rows")
        return None if rows is None else int(rows)

    @property
    def updates_per_step(self) -> float | None:
        """Updates made for each step since the first update; None where nothing is learned from replay."""
        return self.experience.get("replay/updates_per_step")


@dataclass(frozen=True, kw_only=True)
class Status(PolicyStatus):
    """One moment of a run."""

    algorithm: str
    env: str
    run_dir: str | None = None

    total_steps: int
    """Budget in steps."""
    seconds: float
    """Wall-clock time trained so far."""
    steps_per_second: float = 0.0
    """Recent rate of steps learned from."""
    frame_skip: int = 1
    env_steps: int | None = None
    """Steps that the environments have made, in each of which several agents may act, since the start or the last
    resume; None where environments have one agent."""
    target_return: float | None = None
    restarts: int = 0
    """Workers replaced so far."""
    policies: tuple[PolicyStatus, ...] = ()
    """Each policy's own, where a run has several."""

    real_work: float | None = None
    """Share of all cores' time of the last seconds that went into real work: env, infer and learn of `cores`. (What is
    more than the same work costs alone counts as real here; the efficiency of `penstock bench ideal` counts it not.)"""
    cores: Mapping[str, float] = field(default_factory=dict)
    """Share of all cores' time of the last seconds by what it went into: "env", "infer", "learn", "evaluate",
    "copying", "other" (waiting, and the supervisor), "other programs" and "idle"; the sum is 1."""
    roles: tuple[RoleShare, ...] = ()
    limiting_role: str = ""
    """Name of the role that holds the run back."""
    limiting_reason: str = ""
    """Why, in a few words, e.g. "busy 97 % of the time, mostly env"."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Numbers that the environment or the user reports."""
    nodes: tuple[NodeStatus, ...] = ()
    """The nodes that step its lanes, where these are not on this machine alone."""


def summed_up(policies: Sequence[PolicyStatus]) -> dict[str, Any]:
    """Status of a whole run from those of its policies: counts are summed, matches joined; all else is averaged, or the
    first policy's.

    Losses, and what is said of experience, are those of the first policy: each of the others has its own.
    """
    first = policies[0]
    together = dict(vars(first))
    if len(policies) > 1:
        together |= {"name": "", "rating": None, "opponents": ()}
        counts = ("steps", "episodes", "updates", "version", "skipped_updates", "eval_unfinished", "opponent_games")
        for count in counts:
            together[count] = sum(getattr(policy, count) for policy in policies)
        for value in ("mean_return", "mean_length", "success_rate", "eval_return", "eval_success_rate", "best_return"):
            together[value] = mean_of(getattr(policy, value) for policy in policies)
        together["eval_matches"] = tuple(match for policy in policies for match in policy.eval_matches)
    return together


def mean_of(values: Iterable[float | None]) -> float | None:
    """Mean of those values that are known; None where none is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
