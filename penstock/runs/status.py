"""Present state of a run in plain numbers: a `Status` for each refresh of the views."""

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
    """Share of wall time spent in activities that are not waits, from 0 to 1."""

    @property
    def kind(self) -> str:
        """Name without the number of processes: "rollout"."""
        return self.name.partition(" ")[0]


@dataclass(frozen=True)
class MatchStatus:
    """Games of the last evaluation against one opponent, from one seat or from all seats of a policy."""

    opponent: str
    seat: str
    wins: int
    draws: int
    losses: int
    mean_return: float

    @property
    def games(self) -> int:
        """Games won, drawn and lost."""
        return self.wins + self.draws + self.losses


@dataclass(frozen=True, kw_only=True)
class NodeStatus:
    """State of a node that steps lanes for a run or has one of its learners."""

    name: str = ""
    """"node-0", "node-1" and so on."""
    host: str = ""
    """Name of the machine; while none is connected, of the last one."""
    lanes: int = 0
    learner: int = 0
    """Rank of the node's learner; 0: the node steps lanes."""
    is_connected: bool = False
    """Whether the node is connected; otherwise its lanes do not step, or its learner is missing."""
    is_leaving: bool = False
    """Whether the node has been asked to leave: it is granted nothing more."""
    has_left: bool = False
    """Whether the node has left on request, after it delivered everything or its time was up."""
    steps: int = 0
    """Steps received from the node."""
    steps_per_second: float = 0.0
    policy_lag: float = 0.0
    """Mean policy lag of its last steps when they arrived."""
    policy_lag_max: float = 0.0
    """Largest policy lag among them."""
    nbytes: int = 0
    """Bytes received from the node."""
    weights_nbytes: int = 0
    """Bytes of weights sent to the node."""
    bytes_per_second: float = 0.0
    """Recent rate of bytes received from the node."""
    stale: int = 0
    """Dropped blocks of an earlier run epoch, or of a replaced host."""
    duplicates: int = 0
    """Dropped blocks that arrived a second time."""
    missing: int = 0
    """Blocks that did not arrive, although later ones did."""
    faults: int = 0
    """Number of times that the node was lost."""
    nodes: int = 0
    """Of a gateway: number of its nodes."""
    nodes_connected: int = 0
    """Of a gateway: number of its nodes that are connected."""

    @property
    def state(self) -> str:
        """State in a word or two."""
        if self.has_left:
            return "left"
        if self.is_connected:
            return "leaving" if self.is_leaving else "connected"
        return "asked for" if not self.host else "lost" if self.faults else "starting"

    @property
    def share(self) -> str:
        """Number of its lanes, rank of its learner, or how many of a gateway's nodes are connected."""
        if self.nodes:
            return f"{self.nodes_connected} of {self.nodes} nodes"
        return f"rank {self.learner}" if self.learner else f"{self.lanes:,}"


@dataclass(frozen=True)
class OpponentStatus:
    """A past version that a policy plays, and the results of games against it."""

    steps: int
    """Steps of the run when the version entered the pool."""
    rating: float
    """Elo rating of the version."""
    score: float
    """Score of the policy in recent games against the version: a win is 1, a draw 1/2."""
    wins: int = 0
    """Games won by the policy."""
    draws: int = 0
    losses: int = 0
    policy: str = ""
    """Name of the policy of the version, if a run has several."""


@dataclass(frozen=True, kw_only=True)
class PolicyStatus:
    """State of a policy's learning; in `Status`, of all policies together."""

    name: str = ""
    """Name of the policy, if a run has several."""
    steps: int
    """Steps learned from so far."""
    episodes: int = 0
    mean_return: float | None = None
    """Mean return of recent training episodes."""
    mean_length: float | None = None
    """Mean length of recent training episodes, in steps."""
    success_rate: float | None = None
    """Share of successes among recent training episodes, from their last infos; None if no info has it."""
    eval_return: float | None = None
    """Mean return of the last evaluation."""
    eval_unfinished: int = 0
    """Episodes of the last evaluation that were given up before they ended."""
    eval_success_rate: float | None = None
    """Share of successes among episodes of the last evaluation; None if the environment does not report it."""
    eval_matches: tuple[MatchStatus, ...] = ()
    """Games of the last evaluation against each opponent; `eval_return` is the return against the first one."""
    best_return: float | None = None
    """Highest mean return of an evaluation so far."""

    updates: int = 0
    version: int = 0
    learning_rate: float | None = None
    """The optimiser's step size in the last update; None before the first."""
    losses: Mapping[str, float] = field(default_factory=dict)
    experience: Mapping[str, float] = field(default_factory=dict)
    """Metrics of the data path, by name: "policy_lag/mean", "masked_steps", "replay/rows" and others."""
    skipped_updates: int = 0
    """Updates skipped because loss or gradient was not finite."""
    tuned: Mapping[str, float] = field(default_factory=dict)
    """Values of tunable settings that were changed during the run, by the user or the population."""
    exploits: int | None = None
    """Times that the policy was replaced by a copy of another; None without population-based training."""
    rating: float | None = None
    """Elo rating of a policy that plays past versions, relative to the first version."""
    rating_error: float | None = None
    """Half the 95 % interval of the rating; None before the first games."""
    opponents: tuple[OpponentStatus, ...] = ()
    """Past versions in the pool, oldest first."""
    opponent_games: int = 0
    """Finished games against past versions."""

    @property
    def policy_lag_min(self) -> float:
        """Smallest policy lag of a step in the last batch; 0 if there is none."""
        return self.experience.get("policy_lag/min", 0.0)

    @property
    def policy_lag_mean(self) -> float:
        """Mean policy lag of the last batch's steps; 0 if there is none."""
        return self.experience.get("policy_lag/mean", 0.0)

    @property
    def policy_lag_max(self) -> float:
        """Largest policy lag of a step in the last batch; 0 if there is none."""
        return self.experience.get("policy_lag/max", 0.0)

    @property
    def masked_steps(self) -> int:
        """Steps not learned from: too stale, of an earlier run epoch, or of the burn-in."""
        return int(self.experience.get("masked_steps", 0))

    @property
    def replay_rows(self) -> int | None:
        """Transitions in the replay buffer; None without one."""
        rows = self.experience.get("replay/rows")
        return None if rows is None else int(rows)

    @property
    def updates_per_step(self) -> float | None:
        """Updates per step since the first update; None without learning from replay."""
        return self.experience.get("replay/updates_per_step")


@dataclass(frozen=True, kw_only=True)
class Status(PolicyStatus):
    """State of a run."""

    algorithm: str
    env: str
    run_dir: str | None = None

    total_steps: int
    """Budget in steps."""
    seconds: float
    """Wall-clock time trained so far."""
    steps_per_second: float = 0.0
    """Recent rate of steps learned from."""
    frame_skip: int | None = None
    """Simulator frames per step; None where the environment declares none."""
    env_steps: int | None = None
    """Steps of the environments since the start or the last resumption; None for environments of one agent."""
    target_return: float | None = None
    restarts: int = 0
    """Workers replaced so far."""
    policies: tuple[PolicyStatus, ...] = ()
    """State of each policy, if a run has several."""

    real_work: float | None = None
    """Share of all cores' time in the last seconds spent on real work: env, infer and learn of `cores`. Slower work
    under load counts in full, unlike in the efficiency of `penstock bench ideal`."""
    cores: Mapping[str, float] = field(default_factory=dict)
    """Share of all cores' time in the last seconds by use: "env", "infer", "learn", "evaluate", "copying", "other"
    (waiting, and the supervisor), "other programs" and "idle"; the sum is 1."""
    roles: tuple[RoleShare, ...] = ()
    learners: tuple[RoleShare, ...] = ()
    """Time of each learner of a group, which `roles` shows as one: "learner", "rank-1", ..."""
    limiting_role: str = ""
    """Name of the role that limits the run."""
    limiting_reason: str = ""
    """Reason in a few words, such as "busy 97 % of the time, mostly env"."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metrics reported by the environment or the user."""
    gateways: tuple[NodeStatus, ...] = ()
    """Gateways between home and its nodes, those nearest to home first."""
    nodes: tuple[NodeStatus, ...] = ()
    """Nodes of the run, if other machines take part; if their number may change, all that have been connected."""
    unsent_files: int | None = None
    """Files that are to be sent to a remote ``run_dir`` and are not there yet; None: the run stays on this machine."""
    unsent_nbytes: int = 0
    """Bytes of these files."""
    upload_error: str = ""
    """Reason why the last transfer failed; empty if it did not."""
    nodes_requested: str = ""
    """Number of nodes of the run, learners' included, in words: "3", "2 to 64"."""

    @property
    def nodes_summary(self) -> str:
        """Number of connected nodes, and of all: "3 of 2 to 64"."""
        return f"{sum(node.is_connected for node in self.nodes)} of {self.nodes_requested or len(self.nodes)}"


def summed_up(policies: Sequence[PolicyStatus]) -> dict[str, Any]:
    """Return the fields of a run's status from those of its policies.

    Counts are summed, matches joined, and returns, lengths and success rates averaged. Other fields, such as losses and
    metrics of experience, are those of the first policy.
    """
    together = dict(vars(policies[0]))
    if len(policies) > 1:
        together |= {"name": "", "rating": None, "rating_error": None, "opponents": ()}
        counts = ("steps", "episodes", "updates", "version", "skipped_updates", "eval_unfinished", "opponent_games")
        for count in counts:
            together[count] = sum(getattr(policy, count) for policy in policies)
        for value in ("mean_return", "mean_length", "success_rate", "eval_return", "eval_success_rate", "best_return"):
            together[value] = mean_of(getattr(policy, value) for policy in policies)
        together["eval_matches"] = tuple(match for policy in policies for match in policy.eval_matches)
    return together


def mean_of(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
