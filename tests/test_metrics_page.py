"""The pages of metrics list what runs log: each name, and which algorithms log it."""

import dataclasses
import inspect
import json
import re

import pytest

import penstock
from penstock.algorithms import ALGORITHMS, load_algorithm
from penstock.engine.roles import rollout_worker
from penstock.engine.roster import ACTIVITIES
from penstock.engine.watching import progress
from penstock.engine.watching.metrics import OF_A_NODE
from penstock.rudder import predictor
from penstock.runs.descriptions import QUANTILES
from penstock.runs.status import Status
from tests.places import DOCS

PAGE = "".join((DOCS / "reference" / name).read_text() for name in ("metrics.md", "metrics-of-learning.md"))
SYMPTOMS = (DOCS / "guides" / "it-does-not-learn.md").read_text()
LOADED = {load_algorithm(name).__name__: load_algorithm(name) for name in ALGORITHMS}
REPLAY = {name for name, algorithm in LOADED.items() if issubclass(algorithm, penstock.ReplayAlgorithm)}
SEGMENTS = set(LOADED) - REPLAY
GROUPS = {"All": set(LOADED), "Segments": SEGMENTS, "Actor-critics": SEGMENTS - {"PQN"}, "Replay": REPLAY}
TOLD = {"episode/success_rate", "evaluation/success_rate"}  # by some environments alone
REDISTRIBUTION = {f"redistribution/{name}" for name in ("share", *predictor.TOLD)}  # with rewards="rudder" alone
OPPONENTS = {  # of games against opponents alone
    *(f"opponents/{name}" for name in ("rating", "pool", "games", "mean_score", "min_score")),
    *(f"opponents/rating/{end}" for end in ("low", "high")),
    *(f"against/NAME/{name}" for name in ("wins", "draws", "losses", "mean_return")),
}
SET = {"tuned/NAME", "exploits"}  # where settings are set, or policies copy each other
NODES = {"nodes/connected", *(f"node/NAME/{name}" for name in OF_A_NODE)}  # with backend="ray" alone
STORAGE = {"storage/unsent_files", "storage/unsent_bytes"}  # with a URL as run_dir alone
LEARNERS = {"learners/active", "learners/rendezvous"}  # with num_learners of more than 1 alone
OPEN = {
    "time/ROLE/ACTIVITY", "metrics/NAME", "loss/NAME", "env_steps", "frames", *SET, *TOLD, *REDISTRIBUTION, *OPPONENTS,
    *NODES, *LEARNERS, *STORAGE, "late_segments",
}  # fmt: skip
SOURCES = ("uniform", "reservoir")  # those that algorithms have by default
TINY = {
    "hidden_sizes": (8,), "num_workers": 1, "num_envs_per_worker": 2, "backend": "serial", "total_steps": 24,
    "env_kwargs": {"max_episode_steps": 2}, "eval_episodes": 1,
}  # fmt: skip
TINY_REPLAY = {"batch_size": 8, "learning_starts": 8}
TINY_MIXTURE = {"segment_length": 2, "batch_size": 8}
TINY_OWN = {
    "LASER": {**TINY_MIXTURE, "replay": ["queue:1/2", "uniform:1/2,capacity=8,min_size=2"]},
    "CLEAR": {**TINY_MIXTURE, "replay": ["queue:1/2", "reservoir:1/2,capacity=8,min_size=2"]},
    "PQN": {"segment_length": 4, "batch_size": 8},
    "R2D2": {"sequence_length": 4, "burn_in": 2, "sequence_overlap": 2, "updates_per_step": 1.0},
}


def rows(heading_cell: str) -> list[list[str]]:
    """Rows of all tables of the page whose first heading is this."""
    found, is_wanted = [], False
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            is_wanted = False
        elif cells[0] == heading_cell:
            is_wanted = True
        elif is_wanted and set(cells) != {"---"}:
            found.append(cells)
    return found


def listed() -> dict[str, set[str]]:
    """Algorithms by metric, as the page lists them."""
    found: dict[str, set[str]] = {}
    for name, *_, by in rows("metric"):
        if (whole := name.strip("`")) not in OPEN:
            of, _, last = whole.rpartition("/")
            for each in [f"{of}/{quantile}" for quantile in QUANTILES] if last == "QUANTILE" else [whole]:
                found.setdefault(each, set()).update(*(GROUPS.get(who, {who}) for who in by.split(", ")))
    return found


@pytest.fixture(scope="module")
def logged(tmp_path_factory) -> dict[str, set[str]]:
    """Algorithms by the metric that they log, in the shortest of trainings."""
    found: dict[str, set[str]] = {}
    for name, algorithm in LOADED.items():
        run_dir = tmp_path_factory.mktemp("runs") / name
        env = "CartPole-v1" if "discrete" in algorithm.actions else "Pendulum-v1"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(progress, "SHORTEST_WINDOW", 0.0)  # so short a run shows its time, too,
            patch.setattr(rollout_worker, "REPORT_INTERVAL", 0.0)  # and every episode
            settings = TINY | (TINY_REPLAY if name in REPLAY else {}) | TINY_OWN.get(name, {})
            with penstock.Trainer(algorithm, env, run_dir=run_dir, **settings) as trainer:
                trainer.train(quiet=True)
        for line in (run_dir / "metrics.jsonl").read_text().splitlines():
            for metric in json.loads(line):
                found.setdefault(re.sub(rf"replay/({'|'.join(SOURCES)})/", "replay/SOURCE/", metric), set()).add(name)
    return found


@pytest.mark.long
def test_every_metric_is_listed_with_the_algorithms_that_log_it(logged):
    timed = {name: by for name, by in logged.items() if name.startswith("time/")}
    assert timed.keys() >= {"time/learner/learn", "time/rollout/env"}
    assert {name: by for name, by in logged.items() if name not in timed} == listed()


def test_every_activity_is_listed():
    assert [(role.strip("`"), activity.strip("`")) for role, activity, _ in rows("role")] == [
        (role, activity) for role, activities in ACTIVITIES.items() for activity in activities
    ]


def test_every_open_name_is_told_of():
    assert all(any(row[0] == f"`{name}`" for row in rows("metric")) for name in OPEN)


def test_every_field_of_a_status_is_told_of():
    told = [name for row in rows("field of `Status`") for name in re.findall(r"`(\w+)`", row[0])]
    properties = [name for name, member in inspect.getmembers(Status) if isinstance(member, property)]
    assert sorted(told) == sorted(properties + [field.name for field in dataclasses.fields(Status)])


def test_the_symptoms_are_told_in_metrics_that_are_listed():
    parts = "|".join(sorted({name.partition("/")[0] for name in [*listed(), *OPEN] if "/" in name}))
    named = set(re.findall(rf"`((?:{parts})/[^`]+)`", SYMPTOMS))
    times = {f"time/{role}/{activity}" for role, activities in ACTIVITIES.items() for activity in activities}
    assert len(named) > 10
    assert named - listed().keys() - TOLD - times == set()
