"""The package itself: light to import, and its stub is correct."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import penstock
from penstock import _native, ipc


def test_importing_ipc_imports_neither_torch_nor_gymnasium() -> None:
    code = "import sys, penstock.ipc; sys.exit('torch' in sys.modules or 'gymnasium' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_everything_public_is_exported_and_documented() -> None:
    for name in ipc.__all__:
        assert inspect.getdoc(getattr(ipc, name)), f"{name} has no docstring"


def test_the_stub_names_exactly_what_the_native_module_has() -> None:
    assert penstock.__file__ is not None
    stub = ast.parse((Path(penstock.__file__).parent / "_native.pyi").read_text())
    declared: dict[str, set[str]] = {}
    for node in stub.body:
        if isinstance(node, ast.ClassDef):
            members = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
            members |= {item.target.id for item in node.body if isinstance(item, ast.AnnAssign)}  # type: ignore[union-attr]
            declared[node.name] = members
        elif isinstance(node, ast.FunctionDef):
            declared[node.name] = set()

    def public(thing: object) -> set[str]:
        return {name for name in vars(thing) if not name.startswith("_") or name == "__len__"}

    assert set(declared) == public(_native)
    for name, members in declared.items():
        if inspect.isclass(getattr(_native, name)) and name != "RingClosed":
            assert members - {"__buffer__", "__init__"} == public(getattr(_native, name)), name
