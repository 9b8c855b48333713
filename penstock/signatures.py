"""Signatures of the algorithms' trainers, made from their configs: what editors complete and type checkers check.

``python -m penstock.signatures`` writes them anew, to ``penstock/engine/faces.pyi``.
"""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from penstock.config import grouped
from penstock.engine import faces
from penstock.flags import field_documents

STUB = Path(faces.__file__).with_suffix(".pyi")

_WIDTH = 120

_HEAD = '''"""Written by ``python -m penstock.signatures`` from the configs; edit those."""

import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.engine.trainer import Trainer

class Face(Trainer):
    """A trainer of one algorithm."""

    algorithm: ClassVar[type[Algorithm]]
'''


def signatures() -> str:
    """The stub of `penstock.engine.faces`: for each algorithm a class whose settings are keywords with their types.

    Defaults are those without a preset. Settings stand in the order of ``--help``, and what each means is in the
    class's docstring, which editors show.
    """
    members = vars(faces).values()
    own = [face for face in members if isinstance(face, type) and issubclass(face, faces.Face) and face != faces.Face]
    return "\n".join([_HEAD, *map(_class, own)])


def _class(face: type[faces.Face]) -> str:
    config_class = face.algorithm.Config
    documents, hints = field_documents(config_class), typing.get_type_hints(config_class)
    parameters, described = [], []
    for name, field in {f.name: f for fields in grouped(config_class).values() for f in fields}.items():
        described.append(f"{name}\n{textwrap.indent(textwrap.fill(documents[name], _WIDTH - 8), '    ')}")
        if name != "env":
            parameters.append(f"{name}: {_type(hints[name])} = {_default(field)},")
    env = f"env: {_type(hints['env'])} = ...,"
    preset = "preset: str | os.PathLike[str] | None = None,"
    signature = textwrap.indent("\n".join(["self,", env, "*,", preset, *parameters]), "    ")
    document = "\n".join([inspect.cleandoc(face.__doc__ or ""), "", "Parameters", "----------", *described])
    body = f'"""{document}\n"""\n\ndef __init__(\n{signature}\n) -> None: ...'
    return f"class {face.__name__}(Face):\n{textwrap.indent(body, '    ')}\n"


def _type(hint: Any) -> str:
    """A type as it is written in a stub."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(_type, options))
    if origin is Literal:
        return f"Literal[{', '.join(map(_literal, options))}]"
    if origin is typing.get_origin(Callable[..., Any]):
        taken = "..." if options[0] is ... else f"[{', '.join(map(_type, options[0]))}]"
        return f"Callable[{taken}, {_type(options[1])}]"
    if origin is tuple:  # of any length, and lists are taken too
        return f"Sequence[{_type(options[0])}]"
    if origin is not None:
        name = f"{'os.' if origin.__module__ == 'os' else ''}{origin.__name__}"
        return f"{name}[{', '.join(map(_type, options))}]"
    return "None" if hint is types.NoneType else "Any" if hint is Any else hint.__name__


def _default(field: dataclasses.Field[object]) -> str:
    """A default as it is written in a stub, where one of several lines or a made one is left out."""
    return "..." if field.default is dataclasses.MISSING else _literal(field.default)


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    STUB.write_text(signatures())
    print(f"written: {STUB}")
