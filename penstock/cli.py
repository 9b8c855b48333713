"""The command line: ``penstock train | eval | resume | runs | multirun | plot | compare | dashboard | ...``.

Nothing heavy is imported until it is known to be needed: asking for help answers at once.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config import ConfigError, closest
from penstock.output import lossy_output

if TYPE_CHECKING:
    from penstock.engine.endings import TrainResult
    from penstock.engine.trainer import Trainer
    from penstock.play.evaluation import Evaluation

DONE, FAILED, WRONG_USAGE, NOT_REACHED, INTERRUPTED = 0, 1, 2, 3, 130

_HELP = ("-h", "--help")

_RESUME_USAGE = """usage: penstock resume RUN [flags]

Goes on with the run in the directory RUN from its last checkpoint.

Settings that can change within a run are flags: --total-steps, --target-return, --learning-rate, --eval-interval, ...
--max-seconds are seconds in addition. "penstock resume RUN --help" lists those of the run, with what they are now."""

_EXIT_CODES = (
    "exit codes: 0 done, 1 failure, 2 wrong usage, 3 budget spent without reaching --target-return, "
    "or a mark of a bench missed, 130 interrupted"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Parameters
    ----------
    argv
        The arguments behind the program's name; None: those of this process.
    """
    with lossy_output():  # what is piped into `head` ends neither in a traceback nor a training
        return _command(list(sys.argv[1:] if argv is None else argv))


def _command(args: list[str]) -> int:
    if not args or args[0] in _HELP:
        print(_usage())
        return DONE if args else WRONG_USAGE
    name, *rest = args
    if name == "--version":
        import penstock

        print(f"penstock {penstock.__version__}")
        return DONE
    if name not in COMMANDS:
        return _wrong(f"unknown command {name!r}{closest(name, list(COMMANDS))} (legal: {', '.join(COMMANDS)})")
    try:
        return COMMANDS[name](rest)
    except SystemExit as exit_:  # the flags were wrong (2), or asked for help (0)
        return exit_.code if isinstance(exit_.code, int) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def train(args: list[str]) -> int:
    """Train an algorithm on an environment."""
    from penstock.algorithms import ALGORITHMS, load_algorithm

    if not args or args[0] in _HELP:
        print(_train_usage(ALGORITHMS))
        return DONE if args else WRONG_USAGE
    name, *flags = args
    if name.startswith("-"):
        return _wrong(f"the algorithm comes first: penstock train {next(iter(ALGORITHMS))} {' '.join(args)}")
    if name.lower() not in ALGORITHMS and ":" not in name:
        near = closest(name.lower(), list(ALGORITHMS))
        return _wrong(f"unknown algorithm {name!r}{near} (legal: {', '.join(ALGORITHMS)})")
    if not set(flags) & set(_HELP):
        _prepare()
    from penstock.flags import parse_config

    try:
        algorithm = load_algorithm(name)
        config = parse_config(algorithm.Config, flags, prog=f"penstock train {name}")
    except ConfigError as error:
        return _wrong(str(error))
    from penstock.engine.trainer import Trainer

    return _run(lambda: Trainer(algorithm, config))


def resume(args: list[str]) -> int:
    """Go on with a run from its last checkpoint."""
    if not args or args[0] in _HELP:
        print(_RESUME_USAGE)
        return DONE if args else WRONG_USAGE
    path, *flags = args
    if path.startswith("-"):
        return _wrong(f"the run comes first: penstock resume RUN {' '.join(args)}")
    from penstock.runs.run_directory import RunDirectory, RunDirectoryError

    try:
        run = RunDirectory.open(path)
    except RunDirectoryError as error:
        return _wrong(str(error))
    if not set(flags) & set(_HELP):
        _prepare()
    from penstock.algorithms import load_algorithm
    from penstock.flags import parse_changes

    try:
        changes = parse_changes(load_algorithm(run.algorithm).Config, run.config, flags, f"penstock resume {path}")
    except ConfigError as error:
        return _wrong(str(error))
    from penstock.engine.trainer import Trainer

    return _run(lambda: Trainer.resume(path, report=_warn, **changes))


def evaluate(args: list[str]) -> int:
    """Play episodes with a trained policy and score it."""
    from penstock.flags import EvalFlags, parse_flags

    flags = parse_flags(EvalFlags, args, prog="penstock eval")
    if flags.episodes < 1:
        return _wrong(f"--episodes {flags.episodes} is not legal: play 1 or more")
    if flags.max_steps is not None and flags.max_steps < 1:
        return _wrong(f"--max-steps {flags.max_steps} is not legal: play 1 or more")
    from penstock.envs.failures import EnvironmentFailure
    from penstock.runs.checkpoint import verify_checkpoint
    from penstock.runs.run_directory import RunDirectory, policies_of, resolve_checkpoint

    video = flags.video
    try:
        paths = {
            name: resolve_checkpoint(flags.run, flags.checkpoint, _warn, name or None)
            for name in policies_of(flags.run) or [""]
        }
        metas = {name: verify_checkpoint(path) for name, path in paths.items()}
        path, meta = next(iter(paths.values())), next(iter(metas.values()))
        if video == "auto":
            run = flags.run if len(paths) > 1 else path.parent.parent
            video = str(RunDirectory.open(run).film_path(meta["steps"]))
        if len(paths) > 1:
            from penstock.play.evaluation import evaluate_together

            results = evaluate_together(
                paths, episodes=flags.episodes, deterministic=flags.deterministic, video=video, seed=flags.seed,
                max_steps=flags.max_steps,
            )  # fmt: skip
        else:
            from penstock.play.evaluation import evaluate_run

            results = {"": evaluate_run(
                path, episodes=flags.episodes, deterministic=flags.deterministic, video=video, seed=flags.seed,
                max_steps=flags.max_steps,
            )}  # fmt: skip
        if flags.explain is not None:
            from penstock.play.explanation import explain_run

            explain_run(path, flags.explain, deterministic=flags.deterministic, seed=flags.seed)
    except _usage_errors() as error:
        return _wrong(str(error))
    except EnvironmentFailure as error:
        return _failed(str(error))
    for name, result in results.items():
        which = "best checkpoint" if paths[name].name == "best" else f"checkpoint {paths[name].name}"
        print(_score_of(result, f"{name}: " if name else "", metas[name], which, flags.episodes))
    if video is not None:
        print(f"video: {video}")
    if flags.explain is not None:
        print(f"explanation: {flags.explain}")
    return DONE


def _score_of(result: Evaluation, name: str, meta: Mapping[str, Any], which: str, asked: int) -> str:
    """What came of an evaluation, in lines."""
    from penstock.runs.panels import number, spread

    ended = f", {result.episodes - result.unfinished} of which ended" if result.unfinished else ""
    lines = [
        f"{name}mean return {spread(result.mean_return, result.std_return)} over {result.episodes} episodes{ended} "
        f"({meta['env']}, weights of step {meta['steps']:,}, {which})"
    ]
    if result.success_rate is not None:
        lines.append(f"success rate {result.success_rate:.3f}")
    lines += [
        f"against {match.opponent} as {match.seat}: {match.wins} won, {match.draws} drawn, {match.losses} lost, "
        f"mean return {number(match.mean_return)}"
        for match in result.matches
    ]
    if result.unfinished:
        was, it, its = ("was", "it", "its lane") if result.unfinished == 1 else ("were", "they", "their lanes")
        lines.append(
            f"partial: {result.unfinished} of them {was} given up after {max(result.lengths):,} steps: what {it} had "
            f"returned by then counts, and {its} played no more of the {asked} episodes. --max-steps sets the bound"
        )
    return "\n".join(lines)


def runs(args: list[str]) -> int:
    """Show the runs there are, as they stand now."""
    return _study("penstock.studies.table", args)


def multirun(args: list[str]) -> int:
    """Train many runs: algorithms, settings and seeds."""
    return _study("penstock.studies.multirun", args)


def plot(args: list[str]) -> int:
    """Draw a metric of many runs, seeds as one curve."""
    return _study("penstock.studies.plot", args)


def compare(args: list[str]) -> int:
    """Compare groups of runs, with intervals."""
    return _study("penstock.studies.compare", args)


def dashboard(args: list[str]) -> int:
    """Show runs in the browser while they train."""
    from penstock.dashboard import DashboardError
    from penstock.dashboard.command import command

    try:
        return command(args)
    except DashboardError as error:
        return _wrong(str(error))


def doctor(args: list[str]) -> int:
    """Check this machine: what runs, what is missing, what to do about it."""
    from penstock.flags import DoctorFlags, parse_flags

    parse_flags(DoctorFlags, args, prog="penstock doctor")
    from penstock.doctor import report, run_checks

    return report(run_checks())


def bench(args: list[str]) -> int:
    """Measure what this machine does with Penstock, beside its peers."""
    from penstock.bench import BENCHES

    if not args or args[0] in _HELP:
        print(_bench_usage(BENCHES))
        return DONE if args else WRONG_USAGE
    name, *rest = args
    if name not in BENCHES:
        return _wrong(f"unknown bench {name!r}{closest(name, list(BENCHES))} (legal: {', '.join(BENCHES)})")
    return _measure(BENCHES[name], rest)


def autotune(args: list[str]) -> int:
    """Find the settings that train fastest on this machine."""
    return _measure("penstock.bench.autotune", args)


def search(args: list[str]) -> int:
    """Find the settings that learn best on a task."""
    return _measure("penstock.search.command", args)


def pbt(args: list[str]) -> int:
    """Train a population of runs that copy each other."""
    return _measure("penstock.search.population_command", args)


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": train,
    "eval": evaluate,
    "resume": resume,
    "runs": runs,
    "multirun": multirun,
    "plot": plot,
    "compare": compare,
    "dashboard": dashboard,
    "doctor": doctor,
    "bench": bench,
    "autotune": autotune,
    "search": search,
    "pbt": pbt,
}


def _study(module: str, args: list[str]) -> int:
    """Run a command over many runs."""
    from penstock.runs.run_directory import RunDirectoryError
    from penstock.studies import StudyError

    try:
        return int(importlib.import_module(module).command(args))
    except (StudyError, RunDirectoryError, ConfigError) as error:
        return _wrong(str(error))


def _measure(module: str, args: list[str]) -> int:
    """Run the command of a module that measures, or searches."""
    from penstock.bench import BenchError, BenchUsageError

    try:
        return DONE if importlib.import_module(module).command(args) else NOT_REACHED
    except SystemExit:  # help: nothing more is imported for it
        raise
    except BenchUsageError as error:
        return _wrong(str(error))
    except BenchError as error:
        return _failed(str(error))
    except _usage_errors() as error:
        return _wrong(str(error))
    except _training_errors() as error:
        return _failed(str(error))


def _run(make: Callable[[], Trainer]) -> int:
    """Train until the run ends, then say what was reached and how to go on."""
    from penstock.engine.endings import TrainingFailed, TrainingInterrupted
    from penstock.envs.failures import EnvironmentFailure

    try:
        trainer = make()
    except _usage_errors() as error:
        return _wrong(str(error))
    except EnvironmentFailure as error:
        return _failed(str(error))
    with trainer:
        try:
            result = trainer.train()
        except TrainingInterrupted as interruption:
            result = interruption.result
        except TrainingFailed as error:
            return _failed(str(error))
    print(_summary(result))
    if result.stopped == "interrupted":
        return INTERRUPTED
    return NOT_REACHED if result.target_return is not None and not result.reached_target else DONE


def _summary(result: TrainResult) -> str:
    from penstock.runs.panels import beside, clock, number
    from penstock.runs.run_directory import RunDirectory

    spent = f"after {result.steps:,} steps and {clock(result.seconds)}"
    if result.eval_return is not None:
        target = result.target_return
        score = f"mean return {number(result.eval_return) if target is None else beside(result.eval_return, target)}"
        if result.eval_unfinished:
            score += f" (partial: {result.eval_unfinished} episodes did not end)"
    else:
        in_training = result.mean_return
        score = "no evaluation" if in_training is None else f"mean return {number(in_training)} in training"
    if result.stopped == "interrupted":
        lines = [f"interrupted {spent}"]
    elif result.target_return is None:
        lines = [f"done {spent}, {score}"]
    elif result.reached_target:
        lines = [f"reached {score} >= {result.target_return:g} {spent}"]
    else:
        lines = [f"not reached {result.target_return:g}: {score} {spent}"]
    if result.run_dir is not None:
        run = RunDirectory.open(result.run_dir)
        checkpoints = run.checkpoints
        if checkpoints.has_best():
            lines.append(f"best checkpoint: {checkpoints.best_path}")
        if checkpoints.has_best() or checkpoints.steps():
            lines.append(f"evaluate: penstock eval {result.run_dir}")
        if (saved := checkpoints.latest_steps()) is not None:
            if saved < result.steps:
                lines.append(f"last checkpoint: of step {saved:,}; what was learned since is not saved")
            lines.append(f"resume:   {run.resume_command(result.stopped)}")
    return "\n".join(lines)


def _prepare() -> None:
    """Let a process import torch while this one reads the flags."""
    from penstock.engine.backends.launcher import prepare

    prepare()


def _usage_errors() -> tuple[type[Exception], ...]:
    """What the user can mend by asking differently; anything else is a failure and shows where it came from."""
    from penstock.envs.failures import UnknownEnvironmentError, UnsupportedSpaceError
    from penstock.runs.checkpoint import CheckpointError
    from penstock.runs.run_directory import RunDirectoryError

    return ConfigError, UnknownEnvironmentError, UnsupportedSpaceError, CheckpointError, RunDirectoryError, MemoryError


def _training_errors() -> tuple[type[Exception], ...]:
    """What ends a training that was begun as it should be; the message tells all."""
    from penstock.engine.endings import TrainingFailed
    from penstock.envs.failures import EnvironmentFailure

    return TrainingFailed, EnvironmentFailure


def _wrong(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return WRONG_USAGE


def _failed(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return FAILED


def _warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


def _usage() -> str:
    commands = "\n".join(f"  {name:<10}{(command.__doc__ or '').strip()}" for name, command in COMMANDS.items())
    return f"""usage: penstock COMMAND ...

{commands}

penstock COMMAND --help tells more, e.g.
  penstock train appo --env CartPole-v1 --target-return 475

{_EXIT_CODES}"""


def _train_usage(algorithms: dict[str, str]) -> str:
    lines = "\n".join(f"  {name:<9}{_first_line(target)}" for name, target in algorithms.items())
    return f"""usage: penstock train ALGORITHM --env ENV [flags]

{lines}

penstock train ALGORITHM --help lists its flags; every setting is one.

{_EXIT_CODES}"""


def _bench_usage(benches: dict[str, str]) -> str:
    lines = "\n".join(f"  {name:<9}{_first_line(target)}" for name, target in benches.items())
    return f"""usage: penstock bench BENCH [flags]

{lines}

penstock bench BENCH --help lists its flags.

{_EXIT_CODES}"""


def _first_line(target: str) -> str:
    """First line of a module's docstring, read without importing it."""
    spec = importlib.util.find_spec(target.partition(":")[0])
    if spec is None or spec.origin is None:
        return ""
    return (ast.get_docstring(ast.parse(Path(spec.origin).read_text())) or "").partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
