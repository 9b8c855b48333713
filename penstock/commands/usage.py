"""Help texts of the commands."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path

from penstock.commands.exits import EXIT_CODES

HELP = ("-h", "--help")

RESUME_USAGE = """usage: penstock resume RUN [flags]

Goes on with the run in the directory RUN from its last checkpoint.

Settings that can change within a run are flags: --total-steps, --target-return, --learning-rate, --eval-interval, ...
--max-seconds are seconds in addition. "penstock resume RUN --help" lists those of the run, with what they are now.
--trust-code runs code that came with a run from elsewhere, such as its environment's file."""


def usage(commands: Mapping[str, Callable[[list[str]], int]]) -> str:
    """The usage of ``penstock``, with the first line of each command's docstring."""
    lines = "\n".join(f"  {name:<10}{(command.__doc__ or '').strip()}" for name, command in commands.items())
    return f"""usage: penstock COMMAND ...

{lines}

penstock COMMAND --help tells more, e.g.
  penstock train appo --env CartPole-v1 --target-return 475

{EXIT_CODES}"""


def train_usage(algorithms: Mapping[str, str]) -> str:
    """The usage of ``penstock train``, of algorithms by name, as "module:class"."""
    from penstock.flags import most_used_flags

    flags = "\n".join(f"  --{flag:<22}{document}" for flag, document in most_used_flags().items())
    return f"""usage: penstock train ALGORITHM --env ENV [flags]

{flags}

{_first_lines(algorithms)}

penstock train ALGORITHM --help lists all of its flags; every setting is one.

{EXIT_CODES}"""


def bench_usage(benches: Mapping[str, str]) -> str:
    """The usage of ``penstock bench``, of modules by name."""
    return f"""usage: penstock bench BENCH [flags]

{_first_lines(benches)}

penstock bench BENCH --help lists its flags.

{EXIT_CODES}"""


def _first_lines(targets: Mapping[str, str]) -> str:
    """Names, and beside each the first line of its module's docstring."""
    width = max(map(len, targets)) + 2
    return "\n".join(f"  {name:<{width}}{_first_line(target)}" for name, target in targets.items())


def _first_line(target: str) -> str:
    """First line of a module's docstring, read without importing it."""
    spec = importlib.util.find_spec(target.partition(":")[0])
    if spec is None or spec.origin is None:
        return ""
    return (ast.get_docstring(ast.parse(Path(spec.origin).read_text())) or "").partition("\n")[0]
