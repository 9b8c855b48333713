"""Generator of ``penstock/engine/faces.pyi``, the trainers' signatures for editors and type checkers, from the configs.

``python tools/signatures.py`` writes the stub.

The stub has each setting once, with its type, its meaning and its default: in a ``TypedDict`` of the settings that one
config class gives to several algorithms, or among the algorithm's own. The settings of an algorithm inherit from these
groups and are the keyword arguments of its trainer.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import textwrap
import types
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

from penstock.config import Config
from penstock.engine import faces
from penstock.flags import field_documents

STUB = Path(faces.__file__).with_suffix(".pyi")

ConfigClass = type[Config]
Groups = dict[tuple[ConfigClass, tuple[ConfigClass, ...]], list[str]]
"""Names of settings by the class that defines them and the algorithms' configs that keep its type."""

_WIDTH = 120
_NAMED = 4  # algorithms in the name of a group

_HEAD = '''"""Written by ``python tools/signatures.py`` from the configs; edit those."""

import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, TypedDict, Unpack

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.engine.trainer import Trainer

_Env = str | Callable[..., Any]
_Preset = str | os.PathLike[str] | None

class Face(Trainer):
    """A trainer of one algorithm."""

    algorithm: ClassVar[type[Algorithm]]
'''


def signatures() -> str:
    """Return the stub of `penstock.engine.faces`: groups of settings, then each algorithm's own and its trainer."""
    members = vars(faces).values()
    own = [face for face in members if isinstance(face, type) and issubclass(face, faces.Face) and face != faces.Face]
    groups = _groups([face.algorithm.Config for face in own])
    shared = [_settings(_name(*each), [], each[0][0], each[1]) for each in groups.items() if len(each[0][1]) > 1]
    return "\n".join([_HEAD, *shared, *(_trainer(face, groups) for face in own)])


def _groups(configs: Iterable[ConfigClass]) -> Groups:
    """Return the groups of all settings but env; a setting with another type in some configs is in two groups."""
    having: dict[tuple[ConfigClass, str], list[ConfigClass]] = {}
    for config in configs:
        for field in dataclasses.fields(config):
            having.setdefault((_definer(config, field.name), field.name), []).append(config)
    groups: Groups = {}
    for (definer, name), those in having.items():
        if name != "env":  # also a positional argument
            groups.setdefault((definer, tuple(those)), []).append(name)
    return groups


def _definer(config: ConfigClass, name: str) -> ConfigClass:
    """Return the first ancestor of a config that defines a setting with the config's type."""
    hints = {owner: _hints(owner) for owner in config.__mro__ if dataclasses.is_dataclass(owner)}
    annotating = [owner for owner in hints if name in inspect.get_annotations(owner)]
    alike = [owner for owner in annotating if hints[owner][name] == hints[config][name]]
    retyped = [owner for owner in annotating if owner not in alike]
    return [owner for owner in alike if not any(issubclass(other, owner) for other in retyped)][-1]


_hints = functools.cache(typing.get_type_hints)


def _trainer(face: type[faces.Face], groups: Groups) -> str:
    """Return an algorithm's settings and trainer; its docstring names defaults that differ from those of groups."""
    config = face.algorithm.Config
    own = {group: names for group, names in groups.items() if config in group[1]}
    shared = {group: names for group, names in own.items() if len(group[1]) > 1}
    alone = [name for group, names in own.items() if group not in shared for name in names]
    settings = _settings(f"{face.__name__}Settings", [_name(*each) for each in shared.items()], config, alone)

    ours, theirs = _defaults(config), {name: _defaults(g[0])[name] for g, names in shared.items() for name in names}
    others = ", ".join(f"{name}={ours[name]}" for name in theirs if ours[name] != theirs[name])
    document = [inspect.cleandoc(face.__doc__ or "")]
    if others:
        document += ["", *textwrap.wrap(f"Other defaults: {others}.", _WIDTH - 4, break_on_hyphens=False)]
    call = f"self, env: _Env = ..., *, preset: _Preset = None, **settings: Unpack[{face.__name__}Settings]"
    text = "\n".join(document) + ("\n" if others else "")
    body = f'"""{text}"""\n\ndef __init__({call}) -> None: ...'
    return f"{settings}\nclass {face.__name__}(Face):\n{textwrap.indent(body, '    ')}\n"


def _settings(name: str, bases: list[str], described: ConfigClass, settings: Iterable[str]) -> str:
    """Return a TypedDict of settings, described as in a config class."""
    documents, hints, defaults = field_documents(described), _hints(described), _defaults(described)
    lines = []
    for setting in settings:
        document = f'"""{" ".join(documents[setting].split())} Default: {defaults[setting]}."""'
        lines += [f"{setting}: {_type(hints[setting])}", *textwrap.wrap(document, _WIDTH - 4, break_on_hyphens=False)]
    arguments = ", ".join([*(bases or ["TypedDict"]), "total=False"])
    head = f"class {name}({arguments}):"
    if len(head) + 4 * (not lines) > _WIDTH:
        inside = textwrap.fill(arguments, _WIDTH - 4)
        head = f"class {name}(\n{textwrap.indent(inside, '    ')}\n):"
    return "\n".join([f"{head}{'' if lines else ' ...'}", *(f"    {line}" for line in lines), ""])


def _name(group: tuple[ConfigClass, tuple[ConfigClass, ...]], settings: list[str]) -> str:
    """Return the name of a group, with the algorithms in which its settings have other types, or with its settings."""
    definer, having = group
    stem = definer.__name__.removesuffix("Config") or "Shared"
    below = [face.algorithm.Config for face in faces.Face.__subclasses__()]
    others = [c.__name__.removesuffix("Config") for c in below if issubclass(c, definer) and c not in having]
    if len(others) > _NAMED:
        return f"_{stem}{''.join(setting.title().replace('_', '') for setting in settings)}"
    return f"_{stem}{'Except' if others else ''}{'And'.join(others)}"


def _type(hint: Any) -> str:
    """Return a type as written in a stub."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(_type, options))
    if origin is Literal:
        return f"Literal[{', '.join(map(_literal, options))}]"
    if origin is typing.get_origin(Callable[..., Any]):
        taken = "..." if options[0] is ... else f"[{', '.join(map(_type, options[0]))}]"
        return f"Callable[{taken}, {_type(options[1])}]"
    if origin is tuple:  # of any length; lists are legal too
        return f"Sequence[{_type(options[0])}]"
    if origin is not None:
        name = f"{'os.' if origin.__module__ == 'os' else ''}{origin.__name__}"
        return f"{name}[{', '.join(map(_type, options))}]"
    return "None" if hint is types.NoneType else "Any" if hint is Any else hint.__name__


def _defaults(config: ConfigClass) -> dict[str, str]:
    """Return the defaults without a preset, as written in Python."""
    fields = {field.name: field for field in dataclasses.fields(config)}
    factories = {name: field.default_factory for name, field in fields.items()}
    return {
        name: _literal(field.default if factories[name] is dataclasses.MISSING else factories[name]())  # type: ignore
        for name, field in fields.items()
    }


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    STUB.write_text(signatures())
    print(f"written: {STUB}")
