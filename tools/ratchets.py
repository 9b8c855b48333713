"""Figures of the source that may fall and never rise, each with its limit and its goal.

    python tools/ratchets.py

`tests/test_architecture.py` compares the figures with the limits. A figure that has fallen lowers its limit here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
HOUSE = REPOSITORY / "penstock"
PAGE = REPOSITORY / "docs" / "internals" / "tour.md"

PRONOUNS = re.compile(r"(What|Who|Whoever|Whom|Whose|How|So many)\b")


@dataclass(frozen=True)
class Ratchet:
    """Figure of the source.

    Attributes
    ----------
    limit, goal
        Largest legal value, and largest wanted value.
    count
        Function that counts the figure.
    slack
        Distance below the limit from which the limit must be lowered.
    """

    limit: int
    goal: int
    count: Callable[[], int]
    slack: int = 0

    def complaint(self, name: str, found: int) -> str | None:
        """Return the error in the figure or its limit; None: there is none."""
        if found > self.limit:
            return f"{name}: {found}, and at most {self.limit} is allowed: it may fall and never rise"
        if found < self.limit - self.slack:
            return f"{name} has fallen to {found}: lower its limit of {self.limit} in tools/ratchets.py"
        return None


@cache
def modules() -> dict[str, ast.Module]:
    """Return the syntax trees of the package's modules by dotted name."""
    trees = {}
    for path in sorted(HOUSE.rglob("*.py")):
        parts = path.relative_to(REPOSITORY).with_suffix("").parts
        trees[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text())
    return trees


@cache
def imports(with_types: bool = True) -> dict[str, set[str]]:
    """Return the modules of the package that each module imports, in functions too; `with_types`, for types too."""
    native = {".".join(path.relative_to(REPOSITORY).with_suffix("").parts) for path in HOUSE.rglob("*.pyi")}
    own = modules().keys()
    edges = {name: set(imported(tree, own | native, with_types)) for name, tree in modules().items()}
    return {name: (uses & own) - {name} for name, uses in edges.items()}


def imported(tree: ast.AST, names: Iterable[str], with_types: bool) -> Iterator[str]:
    """Yield the modules among `names` that a tree imports."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in names:
                    yield whole
                elif node.module in names:
                    yield node.module
        elif isinstance(node, ast.If) and is_for_type_checkers(node):
            if with_types:
                yield from imported(node, names, with_types)
        else:
            yield from imported(node, names, with_types)


def is_for_type_checkers(node: ast.If) -> bool:
    """Return whether a block is skipped at run time."""
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def knots(with_types: bool = True) -> list[list[str]]:
    """Return circles of modules that import each other (strongly connected components), the largest first."""
    edges = imports(with_types)
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        """Tarjan's algorithm."""
        number[name] = lowest[name] = len(number)
        stack.append(name)
        for other in sorted(edges[name]):
            if other not in number:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], number[other])
        if lowest[name] == number[name]:
            place = stack.index(name)
            found.append(sorted(stack[place:]))
            del stack[place:]

    for name in edges:
        if name not in number:
            visit(name)
    return sorted((knot for knot in found if len(knot) > 1), key=lambda knot: (-len(knot), knot))


def lengths() -> dict[Path, int]:
    """Return the number of lines of each module."""
    return {path: path.read_text().count("\n") for path in HOUSE.rglob("*.py")}


def tiny_files() -> int:
    """Return the number of modules of fewer than 60 lines, except ``__init__.py``."""
    return sum(lines < 60 and path.name != "__init__.py" for path, lines in lengths().items())


def mentions(words: str) -> int:
    """Return the number of modules whose text or path matches a pattern."""
    pattern = re.compile(words, re.IGNORECASE)
    paths = HOUSE.rglob("*.py")
    return sum(bool(pattern.search(f"{path.relative_to(HOUSE)}\n{path.read_text()}")) for path in paths)


def class_named(module: str, name: str) -> ast.ClassDef:
    """Return the definition of a class."""
    return next(n for n in modules()[module].body if isinstance(n, ast.ClassDef) and n.name == name)


def members(node: ast.ClassDef) -> list[str]:
    """Return the public names that the body of a class defines."""
    names = []
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            names.append(child.name)
        elif isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            names.append(child.target.id)
        elif isinstance(child, ast.Assign):
            names += [target.id for target in child.targets if isinstance(target, ast.Name)]
    return [name for name in names if not name.startswith("_")]


def most_ancestors() -> int:
    """Return the largest number of classes that an algorithm's config inherits from, except `object`."""
    from penstock.algorithms import ALGORITHMS, load_algorithm

    return max(len(load_algorithm(name).Config.__mro__) - 2 for name in ALGORITHMS)


def longest_function() -> int:
    """Return the lines of the longest function."""
    functions = (
        node
        for tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return max((node.end_lineno or node.lineno) - node.lineno + 1 for node in functions)


def pronoun_docstrings() -> int:
    """Return the number of docstrings, those of fields included, that begin with a pronoun."""
    texts = (
        node.value.value
        for tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )
    return sum(bool(PRONOUNS.match(text.strip())) for text in texts)


def on_tour(title: str, figure: str = r"\*\*: (\d+) files") -> int:
    """Return a figure of a tour on the architecture page, by default its number of files."""
    tours = PAGE.read_text().split("<!-- tour:")[-1].split("\n**")
    text = next((f"**{tour}" for tour in tours if tour.startswith(title)), "")
    found = re.search(figure, text)
    assert found is not None, f"{PAGE} shows no tour {title!r}: python tools/tour.py --write"
    return int(found.group(1))


APPO, DQN, RATE = "One observation of APPO", "One transition of DQN", "`learning_rate` of APPO"
CALLS, FILES = r"gradient: (\d+) calls", r"gradient: \d+ calls in (\d+) files"

RATCHETS: dict[str, Ratchet] = {
    "files that an observation of APPO enters": Ratchet(20, 20, lambda: on_tour(APPO)),
    "files that a transition of DQN enters": Ratchet(20, 20, lambda: on_tour(DQN)),
    "files that learning_rate enters": Ratchet(6, 6, lambda: on_tour(RATE)),
    "calls from the learner's turn to the gradient, APPO": Ratchet(3, 3, lambda: on_tour(APPO, CALLS)),
    "files from the learner's turn to the gradient, APPO": Ratchet(2, 2, lambda: on_tour(APPO, FILES)),
    "calls from the learner's turn to the gradient, DQN": Ratchet(3, 4, lambda: on_tour(DQN, CALLS)),
    "files from the learner's turn to the gradient, DQN": Ratchet(2, 2, lambda: on_tour(DQN, FILES)),
    "modules in the largest knot, type imports counted": Ratchet(0, 0, lambda: len(knots()[0]) if knots() else 0),
    "modules in the largest knot at run time": Ratchet(0, 0, lambda: len(knots(False)[0]) if knots(False) else 0),
    "knots of modules, type imports counted": Ratchet(0, 0, lambda: len(knots())),
    "lines of Python": Ratchet(76_333, 46_000, lambda: sum(lengths().values()), slack=3_000),
    "files of fewer than 60 lines": Ratchet(7, 10, tiny_files),
    "members of DataPath": Ratchet(10, 10, lambda: len(members(class_named("penstock.engine.paths.base", "DataPath")))),
    "modules that mention RUDDER or redistribution": Ratchet(11, 10, lambda: mentions(r"rudder|redistribut")),
    "modules that mention guests": Ratchet(8, 8, lambda: mentions(r"guest")),
    "ancestors of a config": Ratchet(9, 4, most_ancestors),
    "lines of the longest function": Ratchet(72, 72, longest_function),
    "docstrings that begin with a pronoun": Ratchet(0, 0, pronoun_docstrings),
}
"""All figures by name."""


def main() -> None:
    """Print all figures."""
    width = max(map(len, RATCHETS))
    print(f"{'figure':<{width}}  {'today':>6}  {'limit':>6}  {'goal':>6}")
    for name, ratchet in RATCHETS.items():
        print(f"{name:<{width}}  {ratchet.count():>6}  {ratchet.limit:>6}  {ratchet.goal:>6}")


if __name__ == "__main__":
    main()
