"""The command line: ``penstock train | eval | info | resume | runs | multirun | plot | compare | dashboard | ...``.

Heavy modules are imported only when needed, so that help appears at once.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence

from penstock.commands.evaluation import evaluate, info
from penstock.commands.exits import (
    DONE,
    FAILED,
    INTERRUPTED,
    NOT_REACHED,
    WRONG_USAGE,
    CommandError,
    explained,
    unknown,
)
from penstock.commands.training import resume, train
from penstock.commands.usage import HELP, bench_usage, usage
from penstock.output import lossy_output

GRACE = 5.0  # seconds that threads have to end after the command


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Parameters
    ----------
    argv
        Arguments after the program's name; None: ``sys.argv[1:]``.
    """
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)  # no garbage collection of torch's modules at exit, which takes half a second
    with lossy_output():  # a closed pipe, as after `| head`, prints no traceback and ends no training
        code = _command(list(sys.argv[1:] if argv is None else argv))
    if argv is None:
        threading.Thread(target=_end_despite_threads, args=[code], daemon=True).start()
    return code


def _end_despite_threads(code: int) -> None:
    """End the process after `GRACE` even if threads of an environment still run, for which Python would wait."""
    time.sleep(GRACE)
    if left := [one.name for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]:
        with lossy_output():
            print(f"warning: ended with threads still running: {', '.join(left)}; end them in close()", file=sys.stderr)
        atexit._run_exitfuncs()
        os._exit(code)


def _command(args: list[str]) -> int:
    args = [*args[1:], HELP[0]] if args[:1] == ["help"] else args
    if not args or args[0] in HELP:
        print(usage(COMMANDS))
        return DONE if args else WRONG_USAGE
    name, *rest = args
    if name == "--version":
        import penstock
        from penstock.runs.machine import penstock_commit

        commit = penstock_commit()
        print(f"penstock {penstock.__version__}" + (f" (commit {commit})" if commit else ""))
        return DONE
    try:
        if name not in COMMANDS:
            raise unknown("command", name, COMMANDS)
        return COMMANDS[name](rest)
    except CommandError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    except SystemExit as exit_:  # wrong flags (2), or help (0)
        return exit_.code if isinstance(exit_.code, int) else FAILED
    except KeyboardInterrupt:
        if name in ("train", "resume"):
            print("interrupted", file=sys.stderr)
        return INTERRUPTED


def doctor(args: list[str]) -> int:
    """Check this machine, or an environment: findings with advice."""
    from penstock.flags import DoctorFlags, parse_flags

    flags = parse_flags(DoctorFlags, args, prog="penstock doctor")
    from penstock.doctor import report
    from penstock.doctor.machine import run_checks

    if sys.stderr.isatty():
        print(f"checking {flags.env or 'this machine'}, which takes a few seconds", file=sys.stderr)
    if flags.env is None:
        if flags.env_kwargs or flags.wrapper or flags.vectorize != "make":
            raise CommandError("--env-kwargs, --vectorize and --wrapper need --env")
        return report(run_checks(), as_json=flags.json)
    with explained():
        checks = importlib.import_module("penstock.doctor.environment").check_environment(flags)
    success = "the environment keeps its contract"
    return report(checks, subject=flags.env, success=success, as_json=flags.json)


def bench(args: list[str]) -> int:
    """Measure the speed of Penstock on this machine."""
    from penstock.bench import BENCHES, refuse_comparison

    if not args or args[0] in HELP:
        print(bench_usage(BENCHES))
        return DONE if args else WRONG_USAGE
    name, *rest = args
    with explained():
        refuse_comparison(name, rest)
    if name not in BENCHES:
        raise unknown("bench", name, BENCHES)
    with explained():
        is_reached = importlib.import_module(BENCHES[name]).command(rest)
    return DONE if is_reached else NOT_REACHED


def _of(module: str, does: str, name: str = "command") -> Callable[[list[str]], int]:
    """Return a command that imports its module when it runs; `does` is its docstring."""

    def run(args: list[str]) -> int:
        with explained():
            code = int(getattr(importlib.import_module(module), name)(args))
        return code

    run.__doc__ = does
    return run


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": train,
    "eval": evaluate,
    "info": info,
    "resume": resume,
    "runs": _of("penstock.studies.table", "Show runs and their current state."),
    "multirun": _of("penstock.studies.multirun", "Train many runs: algorithms, settings and seeds."),
    "plot": _of("penstock.studies.plot", "Plot a metric of many runs, with one curve for all seeds."),
    "compare": _of("penstock.studies.compare", "Compare groups of runs, with intervals."),
    "tag": _of("penstock.studies.tag", "Give runs tags and notes, or archive them."),
    "watch": _of("penstock.studies.watch", "Show the live view of a run that trains elsewhere."),
    "report": _of("penstock.studies.report", "Write runs as one HTML file with all charts."),
    "dashboard": _of("penstock.dashboard.command", "Show runs in the browser while they train."),
    "export": _of(
        "penstock.export.command", "Export a trained policy as one file that runs anywhere, or check such a file."
    ),
    "doctor": doctor,
    "bench": bench,
    "autotune": _of("penstock.bench.autotune", "Find the settings that train fastest on this machine."),
    "search": _of("penstock.search.command", "Find the settings that learn best on a task."),
    "pbt": _of("penstock.search.population_command", "Train a population of runs that copy each other."),
    "hub": _of("penstock.exchange.command", "Publish runs on the Hugging Face Hub, and fetch published ones.", "hub"),
    "import-sb3": _of("penstock.exchange.command", "Convert a Stable-Baselines3 model to a run.", "import_sb3"),
}


if __name__ == "__main__":
    sys.exit(main())
