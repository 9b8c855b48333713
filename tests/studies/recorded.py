"""Runs as training would have left them, without any training."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.runs.reading import RecordedRun
from penstock.runs.run_directory import RunDirectory
from penstock.runs.state import StateFile
from penstock.runs.status import Status


def record(
    path: Path,
    points: Sequence[tuple[float, float]] = (),
    *,
    algorithm: str = "ppo",
    env: str = "CartPole-v1",
    seed: int = 0,
    state: str = "done",
    reason: str = "steps",
    target: float | None = None,
    **settings: Any,
) -> RecordedRun:
    """Write a run with these returns of evaluations at these steps, ten steps a second."""
    config: Mapping[str, Any] = {
        "env": env, "seed": seed, "total_steps": 1000, "target_return": target, "run_dir": str(path), **settings
    }  # fmt: skip
    run = RunDirectory.create(path, env_name=env, algorithm=algorithm, config=config)
    lines = [
        {"steps": steps, "seconds": steps / 10, "time": 1e9 + steps / 10, "evaluation/mean_return": score}
        for steps, score in points
    ]
    run.metrics.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    steps, last = points[-1] if points else (0, None)
    status = Status(
        algorithm=algorithm, env=env, steps=int(steps), total_steps=1000, seconds=steps / 10, eval_return=last,
        best_return=max((score for _, score in points), default=None), target_return=target,
        limiting_role="learner",
    )  # fmt: skip
    StateFile(path).write(status, state, reason)
    assert run.lock is not None
    run.lock.release(remove=True)  # as an earlier Penstock: a run that is "running" is one of this process
    return RecordedRun.open(path)
