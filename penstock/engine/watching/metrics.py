"""Metrics of a run: numbers of statuses, evaluations and learners by the names under which they are logged."""

from __future__ import annotations

from statistics import fmean

import numpy as np
from numpy.typing import ArrayLike

from penstock.play.evaluation import Evaluation, by_opponent
from penstock.runs.descriptions import QUANTILES
from penstock.runs.status import PolicyStatus, Status

OF_A_NODE = (
    "is_connected", "steps", "steps_per_second", "policy_lag", "policy_lag_max", "bytes_per_second", "weights_nbytes",
    "stale", "duplicates", "missing", "faults",
)  # fmt: skip
"""Fields of `NodeStatus` that are logged for each node, or for each gateway if the run has any."""


def distribution(name: str, values: ArrayLike) -> dict[str, float]:
    """Return the quantiles of values by the names of their metrics; empty without values."""
    ordered = np.sort(np.asarray(values), axis=None)
    if not ordered.size:
        return {}
    places = np.array(list(QUANTILES.values())) * (ordered.size - 1)
    found = np.interp(places, np.arange(ordered.size), ordered)
    return {f"{name}/{quantile}": value for quantile, value in zip(QUANTILES, found.tolist(), strict=True)}


def of_policy(name: str) -> str:
    """Return the prefix of a policy's metrics; empty in a run of one policy."""
    return f"policy/{name}/" if name else ""


def values_of(evaluation: Evaluation) -> dict[str, float]:
    """Return the metrics of an evaluation, by name; empty for a policy that took no part."""
    if not evaluation.took_part:
        return {}
    values = {
        "evaluation/mean_return": evaluation.mean_return,
        "evaluation/std_return": evaluation.std_return,
        "evaluation/finished": evaluation.finished,
        "evaluation/unfinished": evaluation.unfinished,
        **distribution("evaluation/return", evaluation.returns),
        **distribution("evaluation/length", evaluation.lengths),
    }
    if evaluation.success_rate is not None:
        values["evaluation/success_rate"] = evaluation.success_rate
    for opponent, matches in by_opponent(evaluation.matches).items():
        games = sum(len(match.outcomes) for match in matches)
        for outcome in ("wins", "draws", "losses") if games else ():
            values[f"against/{opponent}/{outcome}"] = sum(getattr(match, outcome) for match in matches) / games
        values[f"against/{opponent}/mean_return"] = fmean(one for match in matches for one in match.returns)
    return values


def _metrics_of_policy(policy: PolicyStatus) -> dict[str, float]:
    """Return the metrics of one policy, by name."""
    values: dict[str, float] = {"updates": policy.updates, "skipped_updates": policy.skipped_updates}
    if policy.learning_rate is not None:
        values["learning_rate"] = policy.learning_rate
    values |= policy.experience
    if policy.mean_return is not None and policy.mean_length is not None:
        values |= {"episode/mean_return": policy.mean_return, "episode/mean_length": policy.mean_length}
    if policy.success_rate is not None:
        values["episode/success_rate"] = policy.success_rate
    if policy.exploits is not None:
        values["exploits"] = policy.exploits
    if policy.opponents:
        scores = [opponent.score for opponent in policy.opponents]
        values |= {
            "opponents/rating": policy.rating or 0.0,
            "opponents/pool": len(scores),
            "opponents/games": policy.opponent_games,
            "opponents/mean_score": fmean(scores),
            "opponents/min_score": min(scores),
        }
    if policy.rating is not None and policy.rating_error is not None:
        values["opponents/rating/low"] = policy.rating - policy.rating_error
        values["opponents/rating/high"] = policy.rating + policy.rating_error
    values |= {f"tuned/{name}": value for name, value in policy.tuned.items()}
    return values | {f"loss/{name}": value for name, value in policy.losses.items()}


def metrics_of(status: Status) -> dict[str, float]:
    """Return the numbers of a status to log, by name."""
    values: dict[str, float] = {"steps_per_second": status.steps_per_second, "restarts": status.restarts}
    if not status.policies:
        values |= _metrics_of_policy(status)
    else:
        values["updates"] = status.updates
        if status.mean_return is not None:
            values["episode/mean_return"] = status.mean_return
    for policy in status.policies:
        before = of_policy(policy.name)
        values[f"{before}steps"] = policy.steps
        values |= {before + name: value for name, value in _metrics_of_policy(policy).items()}
    if status.env_steps is not None:
        values["env_steps"] = status.env_steps
    if status.unsent_files is not None:
        values |= {"storage/unsent_files": status.unsent_files, "storage/unsent_bytes": status.unsent_nbytes}
    if status.nodes:
        values["nodes/connected"] = sum(node.is_connected for node in status.nodes)
    for node in status.gateways + tuple(node for node in status.nodes if node.learner or not status.gateways):
        names = OF_A_NODE if not node.learner else ("is_connected", "faults")
        values |= {f"node/{node.name}/{name}": float(getattr(node, name)) for name in names}
    if status.real_work is not None:
        values |= {"real_work": status.real_work} | {f"cores/{name}": share for name, share in status.cores.items()}
    values |= {f"time/{role.kind}/{name}": share for role in status.roles for name, share in role.activities.items()}
    return values | {f"metrics/{name}": value for name, value in status.metrics.items()}
