"""The architecture: imports between packages, cheap imports, and no module without a purpose."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import requires
from pathlib import Path

import pytest

from tools.ratchets import RATCHETS, Ratchet, imported, imports, modules

HOUSE = Path(__file__).parents[1] / "penstock"

# Each room with those that it may use. A room is a package in penstock/, or a module that stands beside them.
MAY_USE = {
    "_native": set(),
    "imports": set(),
    "redaction": set(),
    "serialization": set(),
    "extras": set(),
    "process_state": set(),
    "output": set(),
    "config": {"imports", "ipc", "envs", "redaction"},
    "trust": {"imports"},
    "runs": {"config", "extras", "ipc", "redaction", "replay", "trust"},
    "ipc": {"_native"},
    "replay": {"_native", "ipc"},
    "nn": {"_native", "ipc"},
    "envs": {"extras", "imports", "ipc", "redaction", "process_state", "serialization"},
    "experience": {"config", "envs", "ipc", "replay"},
    "algorithms": {"_native", "config", "imports", "replay", "envs", "experience", "nn"},
    "population": {"config", "runs"},
    "play": {"config", "runs", "nn", "envs", "algorithms", "process_state", "trust"},
    "export": {"algorithms", "config", "envs", "extras", "flags", "nn", "play", "runs"},
    "engine": {"config", "imports", "output", "runs", "ipc", "replay", "nn", "envs", "experience", "algorithms", "play"}
    | {"redaction", "population", "process_state", "serialization", "trust"},
    "rudder": {"_native", "config", "engine", "envs", "experience", "ipc", "nn", "algorithms", "play", "replay", "runs"}
    | {"process_state"},
    "trials": {"config", "engine", "ipc", "runs", "trust"},
    "flags": {"config", "imports", "redaction"},
    "bench": {"config", "flags", "redaction", "runs", "ipc", "nn", "envs", "experience", "algorithms", "play"}
    | {"engine"},
    "doctor": {"extras", "ipc", "config", "process_state", "envs", "algorithms", "play", "engine", "bench", "flags"}
    | {"runs"},
    "search": {"config", "redaction", "runs", "ipc", "algorithms", "bench", "population", "trials", "trust"},
    "studies": {"config", "envs", "flags", "redaction", "runs", "ipc", "algorithms", "population", "trials"}
    | {"search"},
    "dashboard": {"flags", "redaction", "runs", "studies"},
    "exchange": {"algorithms", "config", "envs", "extras", "flags", "redaction", "nn", "play", "runs", "process_state"}
    | {"trust"},
    "commands": {"config", "imports", "runs", "envs", "algorithms", "play", "engine", "flags", "bench", "studies"}
    | {"dashboard", "exchange", "redaction", "trust"},
    "cli": {"output", "commands", "flags", "doctor", "bench", "runs"},
    "__init__": {"config", "envs", "algorithms", "play", "engine"},
}

# A feature has a room of its own, and each of its modules the height of the room that it extends: it may use what that
# room may, and is used as that room is.
FEATURES = {
    "self_play": {
        "__init__": "imports", "settings": "config", "games": "envs", "arenas": "experience",
        "matchmaking": "experience", "ratings": "play", "fixed_opponents": "play", "matches": "play",
        "path": "engine", "inference": "engine", "versions": "engine",
    },
    "rudder": {"__init__": "config", "settings": "config"} | dict.fromkeys(
        ("arithmetic", "predictor", "learning", "feed", "redistributor", "paths", "redistribution", "explanation"),
        "rudder",
    ),
}  # fmt: skip

# The engine's rooms, from the ground up. Each may use those before it.
ENGINE = (
    "messages", "contracts", "watching", "acting", "self_play.inference", "paths", "self_play.path", "groups", "roles",
    "backends", "roster", "preparation", "policies", "nodes", "polling", "evaluations", "saves", "transfers",
    "exploits", "scheduling", "self_play.versions", "reports", "endings", "supervisor", "opening", "steering",
    "trainer", "inspection", "slices", "faces", "__init__",
)  # fmt: skip

# Uses against that order, imports for type checkers and in functions counted: they may become fewer, never more.
AGAINST_THE_ORDER = {
    ("watching", "roles"),
    ("watching", "roster"),
    ("paths", "roles"),
    ("paths", "preparation"),
    ("groups", "roles"),
}

MODULES = sorted(HOUSE.rglob("*.py"))


def room_of(module: Path) -> str:
    return room_named(module.relative_to(HOUSE.parent).with_suffix("").parts)


def room_named(parts: Sequence[str]) -> str:
    """Room, of a feature's module the one that it extends, from the parts of a dotted name below the package."""
    heights = FEATURES.get(parts[1])
    return parts[1] if heights is None else heights[parts[2] if parts[2:] else "__init__"]


def tree_of(module: Path) -> ast.Module:
    parts = module.relative_to(HOUSE.parent).with_suffix("").parts
    return modules()[".".join(parts[:-1] if parts[-1] == "__init__" else parts)]


@cache
def sources_of_tests() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(Path(__file__).parent.rglob("*.py"))}


@pytest.fixture(autouse=True, scope="module")
def trees() -> Iterator[None]:
    """Drops the syntax trees after the last test: the garbage collector would walk through millions of objects."""
    yield
    for cached in (modules, imports, sources_of_tests):
        cached.cache_clear()


def runs_only_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def is_helper(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("test_")


def is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def imported_modules(node: ast.AST) -> set[str]:
    """Names of all modules imported at run time, in functions too."""
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            found |= {alias.name for alias in child.names}
        elif isinstance(child, ast.ImportFrom) and child.module is not None and not child.level:
            found |= {f"{child.module}.{alias.name}" for alias in child.names}
        elif not runs_only_for_type_checkers(child):
            found |= imported_modules(child)
    return found


def rooms_used_by(module: Path) -> set[str]:
    names = imported_modules(tree_of(module))
    return {room_named(name.split(".")) for name in names if name.startswith("penstock.")} - {room_of(module)}


def test_every_room_has_its_place_in_the_order():
    rooms = {room_of(module) for module in MODULES} | {"_native"}
    assert rooms == set(MAY_USE)


def test_dependencies_between_rooms_run_one_way():
    entered: list[str] = []
    left = dict(MAY_USE)
    while left:
        next_rooms = [room for room, uses in left.items() if uses <= set(entered)]
        assert next_rooms, f"these rooms depend on each other in a circle: {sorted(left)}"
        entered += next_rooms
        left = {room: uses for room, uses in left.items() if room not in entered}


def test_a_module_uses_only_the_rooms_below_its_own():
    found = {module: rooms_used_by(module) - MAY_USE[room_of(module)] for module in MODULES}
    assert {str(module.relative_to(HOUSE)): rooms for module, rooms in found.items() if rooms} == {}


def test_nothing_uses_relative_imports_which_this_test_could_not_follow():
    for module in MODULES:
        for node in ast.walk(tree_of(module)):
            assert not (isinstance(node, ast.ImportFrom) and node.level), module


def engine_room(module: str) -> str | None:
    """Room of the engine that a module is in; None: it is not in the engine."""
    parts = module.split(".")
    if parts[1:2] != ["engine"]:
        is_in_engine = len(parts) == 3 and FEATURES.get(parts[1], {}).get(parts[2]) == "engine"
        return ".".join(parts[1:]) if is_in_engine else None
    return ".".join(parts[2:3]) or "__init__"


def uses_within_the_engine() -> set[tuple[str, str]]:
    pairs = {(engine_room(m), engine_room(used)) for m, uses in imports().items() for used in uses}
    return {(room, used) for room, used in pairs if room is not None and used is not None and room != used}


def test_every_room_of_the_engine_has_its_place_in_the_order():
    assert {room for module in imports() if (room := engine_room(module))} == set(ENGINE)


def test_rooms_of_the_engine_use_those_before_them_but_for_known_ones():
    found = {(room, used) for room, used in uses_within_the_engine() if ENGINE.index(used) > ENGINE.index(room)}
    assert not found - AGAINST_THE_ORDER, "a room uses one above it"
    assert not AGAINST_THE_ORDER - found, "these are mended: strike them from AGAINST_THE_ORDER"


@pytest.mark.parametrize("name", RATCHETS)
def test_figures_of_the_source_do_not_rise_and_their_limits_follow_them_down(name):
    assert not RATCHETS[name].complaint(name, RATCHETS[name].count())


def test_a_ratchet_refuses_a_rise_and_asks_for_a_lower_limit_after_a_fall():
    ratchet = Ratchet(limit=10, goal=5, count=int, slack=2)
    assert [ratchet.complaint("files", found) for found in (8, 10)] == [None, None]
    assert ratchet.complaint("files", 11) == "files: 11, and at most 10 is allowed: it may fall and never rise"
    assert "lower its limit of 10" in ratchet.complaint("files", 7)


def test_imports_for_type_checkers_and_in_functions_are_counted():
    tree = ast.parse("if TYPE_CHECKING:\n import a.b\ndef f():\n from a import c, d\n")
    assert set(imported(tree, {"a", "a.b", "a.c"}, True)) == {"a", "a.b", "a.c"}
    assert set(imported(tree, {"a", "a.b", "a.c"}, False)) == {"a", "a.c"}


@pytest.mark.timeout(300)
def test_the_page_of_the_architecture_shows_the_tours_that_the_code_takes():
    tour = [sys.executable, HOUSE.parent / "tools" / "tour.py", "--check"]
    done = subprocess.run(tour, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_test_file_is_imported_by_another():
    for path, tree in sources_of_tests().items():
        names = imported_modules(tree)
        assert not [name for name in names if re.match(r"tests\.(\w+\.)*test_", name)], path


def test_no_helper_is_written_twice():
    seen: dict[str, Path] = {}
    for path, tree in sources_of_tests().items():
        for helper in filter(is_helper, tree.body):
            body = [node for node in helper.body if not is_docstring(node)]
            if body:
                first = seen.setdefault(f"{helper.name} {[ast.dump(node) for node in body]}", path)
                assert first == path, f"{helper.name} is in {first}, too"


# Modules with what importing them leaves out, in an order in which none needs what a later one leaves out.
LEFT_OUT = {
    "penstock": {"torch", "gymnasium", "numpy"},
    "penstock.cli": {"torch", "gymnasium", "numpy", "tyro", "optuna"},
    "penstock.engine.backends.forking": {"torch", "gymnasium", "numpy"},
    "penstock.config": {"torch", "gymnasium", "numpy"},
    "penstock.algorithms": {"torch", "gymnasium", "numpy"},
    "penstock.studies.table": {"torch", "gymnasium", "numpy"},
    "penstock.ipc": {"torch", "gymnasium"},
    "penstock.replay": {"torch", "gymnasium"},
    "penstock.replay.cpprb": {"torch", "gymnasium"},
    "penstock.runs": {"torch", "gymnasium"},
    "penstock.dashboard.catalogue": {"torch", "gymnasium"},
    "penstock.bench.throughput": {"torch", "gymnasium"},
    "penstock.bench.ideal": {"torch", "gymnasium"},
    "penstock.envs": {"torch", "gymnasium"},
    "penstock.search.command": {"torch", "gymnasium", "optuna"},
    "penstock.experience": {"torch", "gymnasium"},
    "penstock.engine.roles.rollout_worker": {"torch"},
    "penstock.engine.trainer": {"ray", "penstock.engine.nodes.backend", "penstock.engine.nodes.receiver"}
    | {"fsspec", "penstock.runs.sending", "penstock.runs.fetching"},
}
IMPORT_THEM = """
import importlib, json, sys
for module, left_out in json.load(sys.stdin).items():
    importlib.import_module(module)
    print(module, *(name for name in left_out if name in sys.modules))
"""


def test_importing_it_leaves_out_what_it_does_not_need_at_once():
    table = json.dumps({module: sorted(names) for module, names in LEFT_OUT.items()})
    done = subprocess.run([sys.executable, "-c", IMPORT_THEM], input=table, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(LEFT_OUT)


def test_three_files_alone_know_ray():
    imports = {m: {name.split(".")[0] for name in imported_modules(tree_of(m))} for m in MODULES}
    knows = [module.relative_to(HOUSE).as_posix() for module in MODULES if "ray" in imports[module]]
    assert knows == ["engine/nodes/cluster.py", "engine/nodes/hosted.py", "trials/cluster.py"]


def test_a_run_on_one_machine_neither_imports_ray_nor_asks_for_it(tmp_path):
    needed = [line for line in requires("penstock") or [] if line.startswith("ray")]
    assert needed and all('extra == "cluster"' in line for line in needed)
    (tmp_path / "ray.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()")
    run = (
        "import penstock\n"
        "with penstock.APPO('CartPole-v1', num_workers=1, run_dir=None) as algo:\n"
        "    print(algo.train(64, quiet=True).stop_reason)"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}  # of all its processes
    out = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, env=environment)
    assert out.stdout.split() == ["steps"], out.stderr
    assert not (tmp_path / "imported").exists()


def test_there_is_no_lumber_room():
    names = {module.stem for module in MODULES} | {room_of(module) for module in MODULES}
    assert not names & {"utils", "util", "helpers", "helper", "common", "misc", "tools"}


def test_every_module_says_what_it_is_for():
    for module in MODULES:
        assert ast.get_docstring(tree_of(module)), module


def test_nobody_but_a_data_path_asks_what_kind_of_experience_there_is():
    rooms = (HOUSE / "engine", HOUSE / "runs", HOUSE / "bench", HOUSE.parent / "bench")
    modules = [module for room in rooms for module in room.rglob("*.py") if module.parent.name != "paths"]
    ladder = re.compile(r"isinstance\(.*(Segment|Replay)(Algorithm|Config)\b|learns_in_workers")
    assert not [module.name for module in modules if ladder.search(module.read_text())]
