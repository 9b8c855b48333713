"""``penstock eval`` and ``penstock info``: scores of a trained policy, inputs and outputs of its network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.commands.exits import DONE, CommandError, explained, warn

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.flags import EvalFlags
    from penstock.play.evaluation import Evaluation
    from penstock.play.policy import Policy

_SYNONYMS = {"--no-deterministic": "--sampled", "--deterministic": "--no-sampled"}
"""Other names of flags."""


def evaluate(args: list[str]) -> int:
    """Play episodes with a trained policy and score it."""
    from penstock.flags import EvalFlags, parse_flags

    flags = parse_flags(EvalFlags, [_SYNONYMS.get(arg, arg) for arg in args], prog="penstock eval")
    if flags.episodes < 1:
        raise CommandError(f"--episodes {flags.episodes} is not legal: play 1 or more")
    if flags.max_steps is not None and flags.max_steps < 1:
        raise CommandError(f"--max-steps {flags.max_steps} is not legal: play 1 or more")
    if flags.env is None and flags.vectorize != "make":
        raise CommandError("--vectorize needs --env")
    if flags.explain is not None and (flags.env is not None or flags.wrapper):
        raise CommandError("--explain plays the environment of the run: leave out --env and --wrapper")
    from penstock.config import FEATURES, find_object
    from penstock.runs.checkpoint import verify_checkpoint
    from penstock.runs.lookup import local_copy, policies_of, resolve_checkpoint
    from penstock.runs.remote import is_remote

    with explained():
        if flags.video == "auto" and is_remote(flags.run):
            raise CommandError("--video auto writes into a local run: for a remote one, give a new file")
        flags = replace(flags, run=local_copy(flags.run, flags.checkpoint, warn))
        paths = {
            name: resolve_checkpoint(flags.run, flags.checkpoint, warn, name or None)
            for name in policies_of(flags.run) or [""]
        }
        metas = {name: verify_checkpoint(path) for name, path in paths.items()}
        first = next(iter(paths))
        video = _video(flags, paths, metas[first]["steps"])
        results = _play(flags, paths, video)
        if flags.explain is not None:
            for feature in FEATURES:
                find_object(feature.explain, "explain")(
                    paths[first], flags.explain, deterministic=not flags.sampled, seed=flags.seed,
                    trust_code=flags.trust_code,
                )  # fmt: skip
    for name, result in results.items():
        which = "best checkpoint" if paths[name].name == "best" else f"checkpoint {paths[name].name}"
        meta = {**metas[name], **({"env": flags.env} if flags.env is not None else {})}
        print(_score(result, f"{name}: " if name else "", meta, which))
    if flags.record is not None:
        print(f"dataset: {flags.record}")
    if video is not None:
        print(f"video: {video}")
    if flags.explain is not None:
        print(f"explanation: {flags.explain}")
    return DONE


def info(args: list[str]) -> int:
    """Show the network of a trained policy, with its observations and actions."""
    from pathlib import Path

    from penstock.flags import InfoFlags, parse_flags

    flags = parse_flags(InfoFlags, args, prog="penstock info")
    from penstock.play.policy import load_policy
    from penstock.runs.formatting import printable
    from penstock.runs.lookup import local_copy, policies_of, resolve_checkpoint
    from penstock.runs.reading import RecordedRun
    from penstock.runs.vacancy import CONFIG
    from penstock.runs.videos import VIDEOS, videos_of

    with explained():
        flags = replace(flags, run=local_copy(flags.run, flags.checkpoint, warn))
        if (Path(flags.run) / CONFIG).is_file():
            if origin := RecordedRun.open(flags.run).origin:
                print(f"weights from {printable(origin)}")
            if videos := [video.name for video in videos_of(Path(flags.run))]:
                print(f"videos: {printable(', '.join(videos))}, in {VIDEOS}")
        for name in policies_of(flags.run) or [""]:
            path = resolve_checkpoint(flags.run, flags.checkpoint, warn, name or None)
            policy = load_policy(path, trust_code=flags.trust_code)
            print("\n".join([f"{name}: {path}" if name else f"{path}", *_about(policy)]))
    return DONE


def _about(policy: Policy) -> list[str]:
    """Return lines that describe a policy."""
    meta, observation, action = policy.meta, policy.algorithm.observation, policy.algorithm.action
    size = sum(parameter.numel() for parameter in policy.model.parameters())
    numbers = f"{action.num_numbers} real-valued" if action.num_numbers else ""
    choices = f"one of {', '.join(map(str, action.choices))}" if action.choices else ""
    leaves = [(part.path, part.spec) for part in observation.parts] or [("", observation)]
    seen, encoder = policy.model.input.describe(), type(getattr(policy.model, "encoder", policy.model)).__name__
    return [
        f"  {meta['algorithm']} on {meta['env']}, step {meta['steps']:,}",
        f"  network: {size:,} parameters{', with memory' if policy.has_memory else ''}; encoder: {encoder}",
        *(f"  sees{f' {path!r}' if path else ''}: {spec.dtype} {spec.shape}, {seen[path]}" for path, spec in leaves),
        f"  chooses: {' and '.join(filter(None, (choices, numbers)))}",
    ]


def _video(flags: EvalFlags, paths: Mapping[str, Path], steps: int) -> str | None:
    """Return the path of the video; for "auto", a path in the run, named after the steps of the weights."""
    if flags.video != "auto":
        return flags.video
    from penstock.runs.run_directory import RunDirectory
    from penstock.runs.videos import video_path

    run = flags.run if len(paths) > 1 else next(iter(paths.values())).parent.parent
    directory = RunDirectory.open(run)
    try:
        return str(video_path(directory.path, steps))
    except OSError as error:
        raise CommandError(f"--video auto cannot be written: {error.strerror} ({error.filename})") from error


def _play(flags: EvalFlags, paths: Mapping[str, Path], video: str | None) -> dict[str, Evaluation]:
    """Play the episodes; return the evaluations by policy."""
    from penstock.config import find_object
    from penstock.play.scoring import evaluate_run, evaluate_together

    how: dict[str, Any] = {
        "episodes": flags.episodes, "deterministic": not flags.sampled, "video": video, "seed": flags.seed,
        "max_steps": flags.max_steps, "trust_code": flags.trust_code,
        **({"record": flags.record} if flags.record is not None else {}),
        **({"wrappers": [find_object(name, "wrapper") for name in flags.wrapper]} if flags.wrapper else {}),
    }  # fmt: skip
    if flags.env is not None:
        from penstock.envs.spec import EnvSpec

        try:
            how["on"] = EnvSpec.resolve(flags.env, flags.env_kwargs, flags.vectorize)
        except ValueError as error:  # its message is complete
            raise CommandError(str(error)) from error
    elif flags.env_kwargs:
        how["env_kwargs"] = flags.env_kwargs
    if len(paths) > 1:
        if flags.record is not None:
            raise CommandError(f"--record takes one policy: give the directory of one of {', '.join(paths)}")
        return evaluate_together(paths, **how)
    return {name: evaluate_run(path, **how) for name, path in paths.items()}


def _score(result: Evaluation, name: str, meta: Mapping[str, Any], which: str) -> str:
    """Return lines that describe an evaluation."""
    from penstock.runs.formatting import number, spread

    if not result.took_part:
        return f"{name}no return: its agents acted in none of the games"
    ended = f", {result.finished} of which ended" if result.unfinished else ""
    lines = [
        f"{name}mean return {spread(result.mean_return, result.std_return)} over {result.episodes} episodes{ended} "
        f"({meta['env']}, weights of step {meta['steps']:,}, {which})"
    ]
    if result.success_rate is not None:
        lines.append(f"success rate {result.success_rate:.3f}")
    for match in result.matches:
        won = f"{match.wins} won, {match.draws} drawn, {match.losses} lost, " if match.outcomes else ""
        about = f"{name}against {match.opponent} as {match.seat}"
        lines.append(f"{about}: {won}mean return {number(match.mean_return)}")
    if result.unfinished:
        was, its = ("was", "its return") if result.unfinished == 1 else ("were", "their returns")
        asked = "1 whole one was" if result.requested == 1 else f"{result.requested} whole ones were"
        is_short = result.finished < result.requested
        limit = "; playing stops when as many were given up" if is_short else ""
        lines.append(
            f"partial: {result.unfinished} of them {was} given up after {max(result.lengths):,} steps and counted with "
            f"{its} so far. {asked} requested{limit}. --max-steps sets the bound"
        )
    return "\n".join(lines)
