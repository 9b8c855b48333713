"""Help texts of the commands."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path

from penstock.commands.exits import EXIT_CODES

HELP = ("-h", "--help")

RESUME_USAGE = """usage: penstock resume RUN [flags]

Resume the run in the directory RUN from its last checkpoint.

Settings that can change within a run are flags: --total-steps, --target-return, --learning-rate, --eval-interval, ...
--max-seconds adds seconds to the budget. "penstock resume RUN --help" lists all flags with their current values.
--trust-code runs code that came with a copied run, such as its environment's file, and sends the run to its URL."""


def usage(commands: Mapping[str, Callable[[list[str]], int]]) -> str:
    """Return the usage of ``penstock``, with each command's docstring."""
    lines = "\n".join(f"  {name:<12}{(command.__doc__ or '').strip()}" for name, command in commands.items())
    return f"""usage: penstock COMMAND ...

{lines}

penstock COMMAND --help shows more, e.g.
  penstock train appo --env CartPole-v1 --target-return 475

{EXIT_CODES}"""


def train_usage(algorithms: Mapping[str, str]) -> str:
    """Return the usage of ``penstock train``; `algorithms` maps names to "module:class"."""
    from penstock.flags import most_used_flags

    flags = "\n".join(f"  --{flag:<22}{document}" for flag, document in most_used_flags().items())
    return f"""usage: penstock train ALGORITHM --env ENV [flags]

{flags}

{_first_lines(algorithms)}

penstock train ALGORITHM --help lists all of its flags; every setting is one.

{EXIT_CODES}"""


def bench_usage(benches: Mapping[str, str]) -> str:
    """Return the usage of ``penstock bench``; `benches` maps names to modules."""
    return f"""usage: penstock bench BENCH [flags]

{_first_lines(benches)}

penstock bench BENCH --help lists its flags.

{EXIT_CODES}"""


def _first_lines(targets: Mapping[str, str]) -> str:
    """Return one line per name: the name and the first line of its module's docstring."""
    width = max(map(len, targets)) + 2
    return "\n".join(f"  {name:<{width}}{_first_line(target)}" for name, target in targets.items())


def _first_line(target: str) -> str:
    """Return the first line of a module's docstring without importing the module."""
    spec = importlib.util.find_spec(target.partition(":")[0])
    if spec is None or spec.origin is None:
        return ""
    return (ast.get_docstring(ast.parse(Path(spec.origin).read_text())) or "").partition("\n")[0]
