"""Commands ``penstock hub push``, ``penstock hub pull`` and ``penstock import-sb3``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from penstock.config import closest
from penstock.exchange import ExchangeError
from penstock.flags import Arguments, parse_flags

_HUB_USAGE = """usage: penstock hub push RUN ORG/NAME [flags]
       penstock hub pull ORG/NAME [DIR] [flags]

push publishes a run on the Hugging Face Hub, pull fetches a published one.

penstock hub push --help and penstock hub pull --help list their flags."""
_Repo = tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="ORG/NAME")]]


@dataclass(frozen=True)
class ImportFlags:
    """Convert a Stable-Baselines3 model to a run: PPO, A2C, DQN, SAC or TD3, with an MLP or the Nature CNN.

    No code of the files is run.
    """

    model: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="MODEL")]]
    """The zip written by model.save."""
    vec_normalize: Path | None = None
    """File written by VecNormalize.save, if the model was trained with it."""
    out: str = "auto"
    """Directory of the run, absent or empty; "auto": runs/<env>-<algorithm>-<time>."""
    env: str | None = None
    """Environment of the run, as for a training; None: evaluating the run or training it further needs --env."""
    env_kwargs: Arguments = field(default_factory=dict)
    """Arguments of the environment."""


@dataclass(frozen=True)
class PushFlags:
    """Publish a run on the Hugging Face Hub: weights, ONNX, settings, metrics, a video, and a card with scores."""

    run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    """Directory of the run."""
    repo: _Repo
    """Repository, created if missing."""
    episodes: int = 100
    """Episodes that score the best and the final weights each, with deterministic actions; 0: no scores."""
    seed: int = 0
    """Seed of the environments of these episodes."""
    video: bool = False
    """Film an episode of the best policy; otherwise the newest video of the run is published, if any."""
    private: bool = False
    """Make a new repository private."""
    replace: bool = False
    """Replace the files of a run published before."""
    folder: Path | None = None
    """Write the files into this new folder instead of a repository, to inspect them first."""
    env_kwargs: Arguments = field(default_factory=dict)
    """Environment arguments that are not saved with the run, such as secrets. They are not published."""
    trust_code: bool = False
    """Run code that came with a copied run, such as its environment's file."""


@dataclass(frozen=True)
class PullFlags:
    """Fetch a published run from the Hugging Face Hub, as a run directory. No code of it is run."""

    repo: _Repo
    """Repository of the run."""
    dir: tyro.conf.Positional[Annotated[Path | None, tyro.conf.arg(metavar="DIR")]] = None
    """Directory of the run, which must not exist; None: runs/ORG-NAME."""
    revision: str | None = None
    """Branch, tag or commit of the repository; None: the newest commit."""


def hub(args: list[str]) -> int:
    """Run the command; return its exit code. It raises as `penstock.exchange.push` and `penstock.exchange.pull` do."""
    name, *rest = args or ["--help"]
    if name in ("-h", "--help"):
        print(_HUB_USAGE)
        return 0 if args else 2
    if name not in ("push", "pull"):
        raise ExchangeError(f"unknown command hub {name}{closest(name, ['push', 'pull'])} (legal: push, pull)")
    return _push(rest) if name == "push" else _pull(rest)


def _push(args: list[str]) -> int:
    flags = parse_flags(PushFlags, args, prog="penstock hub push")
    from penstock.exchange.hub import push

    settings = {"env_kwargs": flags.env_kwargs} if flags.env_kwargs else {}
    published = push(
        flags.run, flags.repo, episodes=flags.episodes, seed=flags.seed, video=flags.video, private=flags.private,
        replace=flags.replace, folder=flags.folder, trust_code=flags.trust_code, **settings,
    )  # fmt: skip
    print("\n".join([*published.notes, f"{len(published.files)} files: {', '.join(published.files)}"]))
    print(f"{'published' if flags.folder is None else 'written'}: {published.place}")
    return 0


def _pull(args: list[str]) -> int:
    flags = parse_flags(PullFlags, args, prog="penstock hub pull")
    from penstock.exchange.hub import pull
    from penstock.runs.files import shown_path
    from penstock.runs.formatting import printable

    fetched = pull(flags.repo, flags.dir, revision=flags.revision)
    run = shown_path(fetched.path)
    if fetched.left_out:
        print(f"not fetched: {', '.join(map(printable, fetched.left_out))}")
    print(f"fetched: {run} (commit {printable(fetched.commit[:12])})\nevaluate: penstock eval {run}")
    return 0


def import_sb3(args: list[str]) -> int:
    """Run the command; return its exit code. It raises as `penstock.exchange.import_sb3` does."""
    flags = parse_flags(ImportFlags, args, prog="penstock import-sb3")
    from penstock.exchange.sb3 import import_sb3 as imported
    from penstock.runs.files import shown_path

    model = imported(
        flags.model, vec_normalize=flags.vec_normalize, out=flags.out, env=flags.env, env_kwargs=flags.env_kwargs
    )
    run = shown_path(model.path)
    print("\n".join([f"imported: {run}", *model.notes]))
    if flags.env is not None:
        print(f"evaluate: penstock eval {run}")
    return 0
