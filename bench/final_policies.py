"""Returns of the final and the best policy of trainings, deterministic and sampled, over several seeds.

    python bench/final_policies.py [TRAINING ...] [--seeds N] [--sb3 X/bin/python] [--peer-only] [--history FILE]
                                   [--table]

A training has a fixed budget and no target. Its final weights and its best checkpoint then play 100 fresh episodes
each, once with the most probable actions and once with sampled ones. ``--sb3`` also trains with Stable-Baselines3, with
its defaults and the same budget, if it has the algorithm (python -m venv X; X/bin/pip install stable-baselines3). Every
run is appended to the history with its machine and commit. Runs of this commit in the history are not repeated, so that
an interrupted bench continues. ``--peer-only`` omits Penstock: on a machine with spare cores both can run side by side.
``--table`` only prints the history.

    cartpole-ppo, cartpole-appo, cartpole-impala, cartpole-a2c, cartpole-a3c, cartpole-dqn, cartpole-apex,
    cartpole-rainbow, cartpole-r2d2
    pendulum-ppo (preset), pendulum-td3, pendulum-sac, pendulum-ddpg, pendulum-tqc, pendulum-crossq
    lunarlander-appo, lunarlander-impala (presets), lunarlander-dqn
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runs_file import RunsFile

from penstock import Trainer
from penstock.algorithms import load_algorithm
from penstock.engine.backends import launcher
from penstock.play.scoring import evaluate_run
from penstock.runs.lookup import resolve_checkpoint
from penstock.runs.machine import describe, machine_facts

EPISODES = 100
PEER = Path(__file__).parent / "peers" / "sb3_final.py"
HISTORY = Path(__file__).parent / "history" / "final_policies.jsonl"
POLICIES, ACTIONS = ("final", "best"), ("deterministic", "sampled")


@dataclass(frozen=True)
class Training:
    """A training with defaults, except for its settings."""

    algorithm: str
    env: str
    seeds: int
    settings: dict[str, Any] = field(default_factory=dict)
    peer: str | None = None
    """Name of the algorithm in Stable-Baselines3; None if it is missing there."""
    peer_seeds: int = 3
    episodes: int = EPISODES
    """Episodes that each policy plays in each way."""


def _cartpole(algorithm: str, steps: int, peer: str | None = None, seeds: int = 10) -> Training:
    return Training(algorithm, "CartPole-v1", seeds, {"total_steps": steps}, peer)


def _pendulum(algorithm: str, *, is_peers: bool = True) -> Training:
    return Training(algorithm, "Pendulum-v1", 5, {"total_steps": 12_000}, algorithm if is_peers else None)


TRAININGS = {
    "cartpole-ppo": _cartpole("ppo", 100_000, "ppo"),
    "cartpole-appo": _cartpole("appo", 200_000),
    "cartpole-impala": _cartpole("impala", 300_000),
    "cartpole-a2c": _cartpole("a2c", 300_000, "a2c"),
    "cartpole-a3c": _cartpole("a3c", 300_000),
    "cartpole-dqn": _cartpole("dqn", 100_000, "dqn"),
    "cartpole-apex": _cartpole("apex", 100_000, seeds=5),
    "cartpole-rainbow": _cartpole("rainbow", 100_000, seeds=5),
    "cartpole-r2d2": _cartpole("r2d2", 100_000, seeds=5),
    "pendulum-ppo": Training("ppo", "Pendulum-v1", 5, {"preset": "pendulum"}),
    "pendulum-td3": _pendulum("td3"),
    "pendulum-sac": _pendulum("sac"),
    "pendulum-ddpg": _pendulum("ddpg"),
    "pendulum-tqc": _pendulum("tqc", is_peers=False),
    "pendulum-crossq": _pendulum("crossq", is_peers=False),
    "lunarlander-appo": Training("appo", "LunarLander-v3", 3, {"preset": "lunarlander"}),
    "lunarlander-impala": Training("impala", "LunarLander-v3", 3, {"preset": "lunarlander"}),
    "lunarlander-dqn": Training("dqn", "LunarLander-v3", 5, {"total_steps": 300_000}),
}


def train(training: Training, seed: int, folder: Path) -> dict[str, Any]:
    """Train with Penstock; return the seconds and the returns of its policies."""
    algorithm = load_algorithm(training.algorithm)
    began = time.monotonic()
    with Trainer(algorithm, env=training.env, seed=seed, run_dir=str(folder), **training.settings) as trainer:
        result = trainer.train(quiet=True)
    seconds = time.monotonic() - began
    scores = {
        policy: {
            actions: evaluate_run(
                resolve_checkpoint(folder, "latest" if policy == "final" else "best"),
                episodes=training.episodes, deterministic=actions == "deterministic", seed=seed,
            ).returns
            for actions in ACTIONS
        }
        for policy in POLICIES
    }  # fmt: skip
    return {"seconds": seconds, "steps": result.steps, **scores}


def train_peer(python: Path, training: Training, seed: int) -> dict[str, Any]:
    """Train with Stable-Baselines3; return the same facts."""
    assert training.peer is not None
    steps = training.settings["total_steps"]
    kwargs = json.dumps(training.settings.get("env_kwargs", {}))
    arguments = [training.peer, training.env, str(steps), str(seed), str(training.episodes), kwargs]
    ran = subprocess.run([python, PEER, *arguments], capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"Stable-Baselines3 failed:\n{ran.stderr}")
    return {**json.loads(ran.stdout.splitlines()[-1]), "steps": steps}


def measure(
    trainings: Mapping[str, Training], seeds: int | None, sb3: Path | None, history: RunsFile, *, peer_only: bool
) -> None:
    """Run the trainings, by name, that the history lacks for this commit."""
    facts = machine_facts()
    held = {(each["training"], each["library"], each["seed"]) for each in history.runs if _same(each, facts)}
    with launcher.kept(), tempfile.TemporaryDirectory() as aside:
        for name, training in trainings.items():
            libraries = {} if peer_only else {"penstock": seeds or training.seeds}
            if sb3 is not None and training.peer is not None:
                libraries["sb3"] = seeds or training.peer_seeds
            for library, count in libraries.items():
                for seed in range(1, count + 1):
                    if (name, library, seed) in held:
                        continue
                    if library == "penstock":
                        outcome = train(training, seed, Path(aside) / f"{name}-{seed}")
                    else:
                        assert sb3 is not None
                        outcome = train_peer(sb3, training, seed)
                    record = {"training": name, "library": library, "seed": seed, "machine": facts, **_rounded(outcome)}
                    history.add(record)
                    print(_line(record), file=sys.stderr, flush=True)


def _same(record: dict[str, Any], facts: dict[str, Any]) -> bool:
    """Return whether a record is of this machine and commit, or of a peer, which does not depend on the commit."""
    machine = record["machine"]
    return machine["cpu"] == facts["cpu"] and (record["library"] != "penstock" or machine["commit"] == facts["commit"])


def _rounded(outcome: dict[str, Any]) -> dict[str, Any]:
    """Return the outcome with mean and least instead of all returns, rounded for a table."""
    scores = {
        policy: {
            actions: {"mean": round(statistics.fmean(returns), 2), "least": round(min(returns), 2)}
            for actions, returns in outcome[policy].items()
        }
        for policy in POLICIES
    }
    return {**outcome, "seconds": round(outcome["seconds"], 1), **scores}


def _line(record: dict[str, Any]) -> str:
    scores = ", ".join(
        f"{policy} {actions} {record[policy][actions]['mean']:g}" for policy in POLICIES for actions in ACTIONS
    )
    return f"{record['training']} {record['library']} seed {record['seed']}: {record['seconds']} s, {scores}"


def table(records: list[dict[str, Any]]) -> str:
    """Return Markdown: a row per training and library, with the lowest and the median of the seeds' mean returns."""
    newest = {(r["training"], r["library"], r["seed"]): r for r in records}  # the last one written
    rows: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for (name, library, _), record in sorted(newest.items(), key=lambda item: list(TRAININGS).index(item[0][0])):
        rows[name, library].append(record)
    columns = [(policy, actions) for policy in POLICIES for actions in ACTIONS]
    scored = " | ".join(f"{policy}, {actions}" for policy, actions in columns)
    lines = [
        f"| training | library | seeds | {scored} | seconds | machine | commit |",
        "|---" * (len(columns) + 6) + "|",
    ]
    for (name, library), found in rows.items():
        scores = []
        for policy, actions in columns:
            means = [record[policy][actions]["mean"] for record in found]
            scores.append(f"{min(means):.1f} / {statistics.median(means):.1f}")
        shown = {"penstock": "Penstock", "sb3": "Stable-Baselines3"}[library]
        seconds = statistics.median(record["seconds"] for record in found)
        place = " | ".join(_all(str(record["machine"][fact]) for record in found) for fact in ("cpu", "commit"))
        lines.append(f"| {name} | {shown} | {len(found)} | {' | '.join(scores)} | {seconds:.1f} | {place} |")
    return "\n".join(lines)


def _all(names: Iterable[str]) -> str:
    """Join the names, each once, in the order of the seeds."""
    return ", ".join(dict.fromkeys(names))


def _known(name: str) -> str:
    if name not in TRAININGS:
        raise argparse.ArgumentTypeError(f"{name!r} is not a training: choose among {', '.join(TRAININGS)}")
    return name


def main() -> None:
    """Parse the command, run what is missing, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trainings", type=_known, nargs="*", metavar="TRAINING", help="all of them when left out")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--sb3", type=Path, help="the Python of an environment that has Stable-Baselines3")
    parser.add_argument("--peer-only", action="store_true", help="run nothing but Stable-Baselines3")
    parser.add_argument("--history", type=Path, default=HISTORY)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    names, history = arguments.trainings or list(TRAININGS), RunsFile(arguments.history)
    if not arguments.table:
        if arguments.peer_only and arguments.sb3 is None:
            parser.error("--peer-only needs --sb3 X/bin/python")
        chosen, only = {name: TRAININGS[name] for name in names}, arguments.peer_only
        measure(chosen, arguments.seeds, arguments.sb3, history, peer_only=only)
    print(describe())
    print(f"Lowest / median of the seeds' mean returns over {EPISODES} fresh episodes each.")
    print(table([record for record in history.runs if record["training"] in names]))


if __name__ == "__main__":
    main()
