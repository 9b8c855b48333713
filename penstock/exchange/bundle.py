"""The folder of a published run: weights, settings, metrics, a video, an ONNX file and a card, and nothing else.

=============================  ======================================================================================
``README.md``                  the card: scores, command, commit, seeds (`penstock.exchange.card`)
``config.json``                algorithm and settings, as in a run directory
``metrics.csv``                metrics over time, in at most `ROWS` rows
``policy.onnx``                the best policy for other programs, with ``policy.onnx.json``; or ``policy-NAME.onnx``
``replay.mp4``                 a video of an episode
``checkpoints/<steps>/``       weights at the end of training, without the learner's state
``checkpoints/best/``          the best weights, if they differ from the final ones
``policies/<name>/``           checkpoints of each policy, if there are several
=============================  ======================================================================================

A published run has the layout of a run directory, so that every command that takes a run can open a fetched one.
Secrets, seals, host names and folders of the user are left out.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.config import saved
from penstock.exchange import ExchangeError
from penstock.exchange.card import Card, Score
from penstock.play.evaluation import Evaluation
from penstock.play.policy import load_policy
from penstock.play.scoring import evaluate_run, evaluate_together
from penstock.redaction import masked
from penstock.runs.checkpoint import APART, STATE, load_checkpoint, save_checkpoint, verify_checkpoint
from penstock.runs.files import json_bytes, why_unwritable
from penstock.runs.lookup import resolve_checkpoint
from penstock.runs.metrics import METRICS
from penstock.runs.run_directory import CHECKPOINTS, RunDirectory
from penstock.runs.series import columns_in
from penstock.runs.store import BEST
from penstock.runs.vacancy import CONFIG, safe_name
from penstock.runs.videos import videos_of
from penstock.trust import SEALS

README, TABLE, VIDEO, ONNX = "README.md", "metrics.csv", "replay.mp4", "policy.onnx"
ROWS = 1_000
"""Largest number of rows of ``metrics.csv``."""

_CHECKPOINT = r"checkpoints/(?:best|\d+)/(?:weights\.safetensors|(?:meta|statistics|population)\.json)"
FILES = re.compile(
    rf"README\.md|config\.json|metrics\.csv|replay\.mp4|policy(?:-[\w.+-]+)?\.onnx(?:\.json)?|"
    rf"(?:policies/[\w.+-]+/)?{_CHECKPOINT}"
)
"""Paths of the files of a bundle."""

_FOLDERS = re.compile(r"(?s)/.*/([^/]+\.py:[\w.<>]+)")
_LEFT_OUT = (SEALS, "host")


def make_bundle(
    run_dir: str | os.PathLike[str], folder: Path, repo: str, *, episodes: int, seed: int, video: bool,
    trust_code: bool, settings: Mapping[str, Any],
) -> Card:  # fmt: skip
    """Write the files of a run's bundle into an empty folder.

    Parameters
    ----------
    run_dir
        The run.
    folder
        Empty folder.
    repo
        Name of the repository, for the card.
    episodes, seed
        Episodes of the score of each checkpoint, and the seed of their environments; 0 episodes: no score.
    video
        Whether to film an episode of the best policy. Otherwise the newest video of the run is copied, if there is one.
    trust_code
        Whether to run code that came with a copied run.
    settings
        Settings that the run could not save, such as secrets in ``env_kwargs``.

    Returns
    -------
    Card
        The card that was written.
    """
    run = RunDirectory.open(run_dir)
    places = {name: _checkpoints(run, name) for name in run.policies or [""]}
    paths = {which: {name: found[which] for name, found in places.items()} for which in ("final", BEST)}
    for name, found in places.items():
        inner = folder / f"policies/{safe_name(name)}" if name else folder
        for path in set(found.values()):
            _copy_checkpoint(path, inner / CHECKPOINTS / path.name)
    how: dict[str, Any] = {"seed": seed, "trust_code": trust_code, **settings}
    video_path = folder / VIDEO
    scores = _scores(paths, episodes, str(video_path) if video else None, how)
    if not video and (newest := _newest_video(run)) is not None:
        shutil.copyfile(newest, video_path)
    has_metrics = _write_metrics(run.path / METRICS, folder / TABLE)
    exported = {name: _exported(path, name, folder, trust_code) for name, path in paths[BEST].items()}
    document = _public({"algorithm": run.algorithm, "run": run.info, **run.config, "run_dir": "auto"})
    (folder / CONFIG).write_bytes(json_bytes(document))
    card = Card(
        repo=repo, document=document, scores=tuple(scores), seed=seed, has_video=video_path.exists(),
        has_metrics=has_metrics, not_exported={name: reason for name, reason in exported.items() if reason},
    )  # fmt: skip
    (folder / README).write_text(card.text())
    return card


def _checkpoints(run: RunDirectory, name: str) -> dict[str, Path]:
    """Return the paths of a policy's final and best checkpoint; with equal weights, the final one for both."""
    final, best = (resolve_checkpoint(run.path, prefer, policy=name or None) for prefer in ("latest", BEST))
    return {"final": final, BEST: final if _weights_of(final) == _weights_of(best) else best}


def _weights_of(path: Path) -> dict[str, Any]:
    """Return sizes and hashes of a checkpoint's files, except the learner's state."""
    return {name: facts for name, facts in verify_checkpoint(path)["files"].items() if name != STATE}


def _copy_checkpoint(path: Path, target: Path) -> None:
    """Write a checkpoint without the learner's state and without the user's private data."""
    checkpoint = load_checkpoint(path)
    of_file = ("format", "format_version", "saved_at", "files")
    meta = {key: value for key, value in checkpoint.meta.items() if key not in of_file}
    apart: dict[str, Any] = {key: meta.pop(key) for key in APART if key in meta}
    save_checkpoint(target, meta={**_public(meta), **apart}, weights=checkpoint.weights)


def _public(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document of a run without secrets, seals, host and folders."""
    plain = {key: value for key, value in document.items() if key not in ("config", "env_kwargs")}
    found: dict[str, Any] = _without_folders(masked(plain))
    if isinstance(document.get("env_kwargs"), Mapping):
        found["env_kwargs"] = saved(dict(document["env_kwargs"]))
    if isinstance(document.get("config"), Mapping):
        found["config"] = _public({**document["config"], "run_dir": "auto"})
    return found


def _without_folders(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_folders(item) for key, item in value.items() if key not in _LEFT_OUT}
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    return _FOLDERS.sub(r"\1", value) if isinstance(value, str) and _FOLDERS.fullmatch(value) else value


def _scores(
    paths: Mapping[str, Mapping[str, Path]], episodes: int, video: str | None, how: Mapping[str, Any]
) -> list[Score]:
    """Score the best and the final policies, and film the best."""
    found: list[Score] = []
    for which in (BEST, "final"):
        together = paths[which]
        if which == "final" and together == paths[BEST]:
            break
        if not episodes and (video is None or which == "final"):
            evaluations: dict[str, Evaluation | None] = dict.fromkeys(together)
        else:
            filming = {"video": video} if which == BEST else {}
            evaluations = _played(together, {**how, **filming, "episodes": episodes or 1})
        for name, path in together.items():
            evaluation = evaluations[name] if episodes else None
            found.append(Score(name, which, verify_checkpoint(path)["steps"], evaluation))
    return found


def _played(paths: Mapping[str, Path], how: Mapping[str, Any]) -> dict[str, Evaluation | None]:
    if len(paths) > 1:
        return dict(evaluate_together(paths, deterministic=True, **how))
    return {name: evaluate_run(path, deterministic=True, **how) for name, path in paths.items()}


def _newest_video(run: RunDirectory) -> Path | None:
    return max(videos_of(run.path), key=lambda path: path.stat().st_mtime, default=None)


def _write_metrics(path: Path, table: Path) -> bool:
    """Write a run's metrics as a table, thinned; return whether there are any."""
    shown = columns_in(path, ROWS)
    if not shown:
        return False
    with open(table, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(shown)
        writer.writerows(zip(*shown.values(), strict=True))
    return True


def _exported(path: Path, name: str, folder: Path, trust_code: bool) -> str:
    """Write the ONNX file of a policy; return the reason if it cannot be written, else ""."""
    policy = load_policy(path, trust_code=trust_code)
    try:
        policy.export(folder / (f"policy-{safe_name(name)}.onnx" if name else ONNX))
    except ValueError as error:
        return str(error)
    return ""


def require_new(folder: str | os.PathLike[str]) -> Path:
    """Return the path of a folder that does not exist yet.

    Raises
    ------
    ExchangeError
        The path exists, or no folder can be created there.
    """
    if os.path.lexists(folder):
        raise ExchangeError(f"{os.fspath(folder)} exists, and nothing is overwritten: give another name")
    if reason := why_unwritable(folder):
        raise ExchangeError(f"{os.fspath(folder)} cannot be written: {reason}")
    return Path(folder)

