"""Command-line flags generated from a config dataclass: one definition serves Python, flags and config.json."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import json
import os
import re
import textwrap
import types
import typing
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from penstock.config import Config, ConfigError, grouped
from penstock.config.features import MOST_USED
from penstock.config.making import cannot_change, load_preset, make_config, restored_config, setting_hint
from penstock.imports import why_lost
from penstock.redaction import is_secret, masked, masked_arguments

Places = tyro.conf.Positional[tuple[Annotated[Path, tyro.conf.arg(metavar="DIR")], ...]]
"""Flag type of folders that are runs or contain runs."""

C = TypeVar("C", bound=Config)
F = TypeVar("F")
Flag = tuple[str, Any, Any]  # name, type and dataclass field

_NO_ENV = "none given"
_PRESET = "preset"
_RESUME_HELP = "Resume a run from its last checkpoint. Each flag changes a setting for the rest of the run."
_MORE_SECONDS = Annotated[float | None, tyro.conf.arg(help="Seconds added to the run's wall-clock budget; None: none.")]
_PRESET_HELP = 'Other defaults: the name of a preset, e.g. "atari", or the path of a .toml file. Flags override it.'


def parse_config(config_class: type[C], args: Sequence[str], prog: str) -> C:
    """Make a config from command-line flags: one per field, with the field's docstring as help.

    Parameters
    ----------
    config_class
        The config dataclass of an algorithm.
    args
        Flags. ``--preset NAME`` among them changes the defaults.
    prog
        Name of the command in its help.

    Raises
    ------
    ConfigError
        A value is not legal; the message is the same as in Python.
    SystemExit
        The flags cannot be read (code 2, after showing the closest flag), or ask for help (code 0).
    """
    _require_own_names(config_class, args)
    preset = _preset_in(args)
    defaults = make_config(config_class, {"env": _NO_ENV, **(load_preset(preset, config_class) if preset else {})})
    flags: list[Flag] = [
        (_PRESET, Annotated[str | None, tyro.conf.arg(help=_PRESET_HELP)], dataclasses.field(default=preset))
    ]
    description = inspect.cleandoc(config_class.__doc__ or "")
    values = _read(config_class.__name__, [*flags, *_groups(config_class, defaults)], args, prog, description)
    del values[_PRESET]
    return make_config(config_class, values)


def parse_changes(
    config_class: type[Config], before: Mapping[str, Any], args: Sequence[str], prog: str
) -> dict[str, Any]:
    """Read the changed settings of a resumed run from command-line flags.

    Parameters
    ----------
    config_class
        The config dataclass of the run's algorithm.
    before
        Settings of the run, as in its ``config.json``.
    args
        Flags: one per field that can change within a run.
    prog
        Name of the command in its help.

    Returns
    -------
    dict
        New values by field name.

    Raises
    ------
    ConfigError
        A setting cannot change within a run; the message gives the reason.
    SystemExit
        As for `parse_config`.
    """
    _require_own_names(config_class, args)
    had = restored_config(config_class, before, {"max_seconds": None})
    fixed = {name: why for name, why in config_class.fixed_settings().items() if not why_lost(name, before.get(name))}
    for number, arg in enumerate(args, 1):
        after = " ".join(itertools.takewhile(lambda word: not word.startswith("--"), args[number:]))
        flag, _, value = arg.partition("=")
        name = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
        if flag.startswith("--") and name in fixed:
            raise cannot_change(name, value or after or flag, getattr(had, name), fixed[name])
    groups = _groups(config_class, had, without=fixed, instead={"max_seconds": _MORE_SECONDS})
    values = _read(f"Resumed{config_class.__name__}", groups, args, prog, _RESUME_HELP)
    return {name: value for name, value in values.items() if value != getattr(had, name)}


def _read_settings(args: list[str]) -> dict[str, Any]:
    settings = {}
    for arg, shown in zip(args, masked_arguments(args), strict=True):
        name, equals, text = arg.partition("=")
        if not (name and equals) or name.startswith("{"):
            raise ConfigError(f"{shown!r} is not KEY=VALUE, e.g. render_mode=rgb_array or sutton_barto_reward=true")
        try:
            settings[name] = json.loads(text)
        except ValueError:
            settings[name] = text
    return settings


def _spec(
    metavar: str, read: Callable[[list[str]], Any], kind: type = object, nargs: Literal["*"] | int = 1,
    shown: Callable[[Any], list[str]] = lambda value: [str(value)],
) -> PrimitiveConstructorSpec[Any]:  # fmt: skip
    """Return how tyro reads the words of a flag, and shows its default."""
    return PrimitiveConstructorSpec(nargs, metavar, read, lambda value: isinstance(value, kind), shown)


_SETTINGS = _spec(
    "[KEY=VALUE ...]", _read_settings, dict, "*",
    lambda value: [f"{key}={json.dumps(item, default=repr)}" for key, item in masked(value).items()],
)  # fmt: skip

Arguments = Annotated[dict[str, Any], _SETTINGS]
"""Flag type of arguments by name, written KEY=VALUE."""

_Run = Annotated[Path, tyro.conf.arg(metavar="RUN")]


@dataclasses.dataclass(frozen=True)
class InfoFlags:
    """Show the network of a trained policy, with its observations and actions."""

    run: tyro.conf.Positional[_Run]
    """Directory of a run, or of one checkpoint."""
    checkpoint: str = "best"
    """Checkpoint of the run: "best", "latest", or its number of steps."""
    trust_code: bool = False
    """Run code that came with a copied run, such as its encoder's file."""


@dataclasses.dataclass(frozen=True)
class EvalFlags:
    """Play episodes with a trained policy and score it."""

    run: tyro.conf.Positional[_Run]
    """Directory of a run, or of one checkpoint."""
    episodes: int = 100
    """Episodes to play; with several agents, each is an episode of every agent. With eval_against, games against each
    opponent from each seat."""
    checkpoint: str = "best"
    """Checkpoint of the run: "best", "latest", or its number of steps."""
    sampled: bool = False
    """Sample actions instead of playing the most probable ones."""
    env: str | None = None
    """Another environment to play, with the same spaces: an id, "module:Class" or "file.py:Class"."""
    env_kwargs: Annotated[dict[str, Any], _SETTINGS] = dataclasses.field(default_factory=dict)
    """Arguments of the environment. The run's own apply unless overridden here or by --env; secrets are not saved."""
    vectorize: Literal["make", "vector"] = "make"
    """With --env: "vector" for a factory of vector environments."""
    wrapper: tuple[str, ...] = ()
    """Functions or classes, "module:Name" or "file.py:Name", that wrap the environment; the last is the outermost."""
    video: str | None = None
    """New file for a video of one more episode, e.g. episode.mp4 or episode.gif; "auto": in the run, named after the
    weights' steps."""
    record: str | None = None
    """New directory for a Minari dataset of the episodes, e.g. datasets/cartpole-v0 (needs the extra "minari")."""
    explain: str | None = None
    """File for a plot of one more episode's rewards, original and used for learning, e.g. episode.png; see rewards."""
    seed: int = 0
    """Seed of the environments and of sampling."""
    max_steps: int | None = None
    """Steps after which an episode is given up; None: the run's eval_max_steps."""
    trust_code: bool = False
    """Run code that came with a copied run, such as its environment's file."""


@dataclasses.dataclass(frozen=True)
class DoctorFlags:
    """Check this machine, or an environment."""

    env: str | None = None
    """Environment to check instead of the machine: an id, "module:Class" or "file.py:Class"."""
    env_kwargs: Annotated[dict[str, Any], _SETTINGS] = dataclasses.field(default_factory=dict)
    """Arguments of the environment."""
    vectorize: Literal["make", "vector"] = "make"
    """"vector" for a factory of vector environments."""
    wrapper: tuple[str, ...] = ()
    """Functions or classes, "module:Name" or "file.py:Name", that wrap the environment; the last is the outermost."""
    seconds: float = 12.0
    """Seconds of measurements of the environment's speed, without start-up; 0: no measurements."""
    timeout: float = 60.0
    """Seconds without an answer after which a stage of the check of an environment fails."""
    json: bool = False
    """Print the findings as JSON."""


def parse_flags(flags_class: type[F], args: Sequence[str], prog: str) -> F:
    """Read the flags of a command without a config; raise `SystemExit` as `parse_config` does."""
    return _cli(flags_class, args, prog)


def field_documents(config_class: type[Config]) -> dict[str, str]:
    """Return the docstring of each setting of a config class, by name; subclasses override their bases."""
    documents: dict[str, str] = {}
    for owner in reversed(config_class.__mro__):
        documents |= own_documents(owner)
    fields = {field.name for field in dataclasses.fields(config_class)}
    return {name: text for name, text in documents.items() if name in fields}


@functools.cache
def own_documents(owner: type) -> dict[str, str]:
    """Return the docstrings of the fields that a dataclass itself defines; empty for a class without a source file."""
    if not dataclasses.is_dataclass(owner):
        return {}
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    except (OSError, TypeError):
        return {}
    documents: dict[str, str] = {}
    (definition,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    for statement, after in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            match after:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    paragraphs = re.split(r"\n\s*\n", text)
                    documents[statement.target.id] = "\n\n".join(" ".join(each.split()) for each in paragraphs)
    return documents


def most_used_flags() -> dict[str, str]:
    """Return the first clause of the help of the most used flags, by name."""
    documents = {field.name: field_documents(Config)[field.name] for field in grouped(Config)[MOST_USED]}
    documents = {"env": documents.pop("env"), _PRESET: _PRESET_HELP, **documents}
    end = re.compile(r"; |\.\s+(?=[A-Z])|, or a function")
    clauses = {name: end.split(text, maxsplit=1)[0] for name, text in documents.items()}
    return {name.replace("_", "-"): clause.rstrip("., ") for name, clause in clauses.items()}


def _groups(
    config_class: type[Config], defaults: Config, without: Container[str] = (), instead: Mapping[str, Any] | None = None
) -> list[Flag]:
    """Return a config's flags for tyro, in groups, with docstrings as help.

    A group is a class; its name is the heading of its flags, not a prefix of each.
    """
    documents, hints = field_documents(config_class), typing.get_type_hints(config_class)
    groups: list[Flag] = []
    for number, (group, fields) in enumerate(grouped(config_class).items()):
        members: list[Flag] = []
        for name in (field.name for field in fields if field.name not in without):
            value, document = getattr(defaults, name), tyro.conf.arg(help=documents.get(name, ""))
            default = dataclasses.field() if value == _NO_ENV else dataclasses.field(default_factory=_always(value))
            flag_type = (instead or {}).get(name) or Annotated[_flag_type(hints[name]), document]
            members.append((name, flag_type, default))
        shown: Any = Annotated[_flags_class(group, members), tyro.conf.arg(name=group), tyro.conf.OmitArgPrefixes]
        groups.append((f"group_{number}", shown, dataclasses.field()))
    return [group for group in groups if dataclasses.fields(typing.get_args(group[1])[0])]


def _read(name: str, flags: list[Flag], args: Sequence[str], prog: str, description: str) -> dict[str, Any]:
    """Read flags and groups of flags; return the values by name."""
    values: dict[str, Any] = {}
    # Without the marker, tyro would search for more help in the source of the class, which has none.
    marker = (tyro.conf.HelptextFromCommentsOff,)
    for flag, value in vars(_cli(_flags_class(name, flags), args, prog, description, marker)).items():
        values |= vars(value) if flag.startswith("group_") else {flag: value}
    return values


def _cli(
    flags_class: type[F], args: Sequence[str], prog: str, description: str | None = None, config: tuple[Any, ...] = ()
) -> F:
    """Read flags; whole numbers may be written as 1e5."""
    registry = ConstructorRegistry()
    registry.primitive_rule(_whole_number)
    words = _without_truth({f"--{name.replace('_', '-')}" for name in _switches(flags_class)}, args)
    return tyro.cli(flags_class, args=words, prog=prog, description=description, config=config, registry=registry)


def _switches(flags_class: Any) -> Iterator[str]:
    """Yield the names of boolean flags."""
    for field in dataclasses.fields(flags_class):
        kind = typing.get_args(field.type)[0] if typing.get_origin(field.type) is Annotated else field.type
        yield from _switches(kind) if dataclasses.is_dataclass(kind) else [field.name] * (kind in (bool, "bool"))


def _without_truth(switches: Container[str], args: Sequence[str]) -> list[str]:
    """Write ``--switch true`` and ``--switch=false`` as ``--switch`` and ``--no-switch``."""
    left, words = list(args), []
    while left:
        word = left.pop(0)
        flag, _, value = word.partition("=")
        if flag.replace("_", "-") in switches and (value or left[:1]):
            truth = (value or left[0]).lower()
            if truth in ("true", "false"):
                del left[: not value]
                word = flag if truth == "true" else f"--no-{flag[2:]}"
        words.append(word)
    return words


def _flags_class(name: str, flags: list[Flag]) -> type:
    flags_class = dataclasses.make_dataclass(name.title().replace(" ", ""), flags, kw_only=True)
    flags_class.__doc__ = ""  # only the name is shown
    return flags_class


def _whole_number(wanted: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    return _spec("INT", _read_whole_number, int) if wanted.type is int else None


def _read_whole_number(args: list[str]) -> int:
    (text,) = args
    try:
        return int(text)
    except ValueError:
        number = float(text)
    if not number.is_integer():
        raise ValueError(f"{text} is not a whole number")
    return int(number)


def _require_own_names(config_class: type[Config], args: Sequence[str]) -> None:
    """Raise `ConfigError` for another library's flag, naming Penstock's; tyro rejects other unknown flags."""
    known = [field.name for field in dataclasses.fields(config_class)]
    for flag in (arg.partition("=")[0] for arg in args if arg.startswith("--")):
        name = flag.removeprefix("--").replace("-", "_")
        if name not in known and (hint := setting_hint(name, known)):
            raise ConfigError(f"unknown setting {flag}{hint}")
        if name not in known and is_secret(name):  # tyro's message would repeat its value
            raise ConfigError(f"unknown setting {flag}; arguments of the environment are --env-kwargs {name}=...")


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


def _preset_in(args: Sequence[str]) -> str | None:
    """Return the preset among the arguments: it sets the flags' defaults, so it is needed before they are parsed."""
    preset = None
    for arg, after in zip(args, [*args[1:], ""], strict=False):
        if arg == f"--{_PRESET}":
            preset = after
        elif arg.startswith(f"--{_PRESET}="):
            preset = arg.partition("=")[2]
    return preset or None


def _flag_type(hint: Any) -> Any:
    """Return a flag's type for tyro, without types that no flag can express: callables and path objects."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        if dict[str, int] in typing.get_args(hint):
            return Annotated[Any, _spec("INT|STR|JSON", _read_json, shown=_shown_json)]
        left_out = (_CALLABLE, os.PathLike, dict)
        options = [_flag_type(o) for o in typing.get_args(hint) if typing.get_origin(o) not in left_out]
        return typing.Union[tuple(options)]  # noqa: UP007 - made at run time
    if typing.get_origin(hint) is Literal and all(isinstance(v, str) for v in typing.get_args(hint)):
        # The config checks the value itself and shows the closest legal one.
        return Annotated[str, _spec("{" + ",".join(typing.get_args(hint)) + "}", lambda args: args[0], str)]
    if typing.get_origin(hint) is tuple:
        kinds = typing.get_args(hint)
        if kinds == (int, ...):
            return Annotated[tuple, _spec("[INT ...]", _read_numbers, tuple, "*", lambda value: [*map(str, value)])]
        return tuple[tuple(map(_flag_type, kinds))]  # type: ignore[misc]
    if typing.get_origin(hint) is dict:
        return Annotated[dict, _SETTINGS]
    return Annotated[Any, _spec("JSON|STR", _read_json, shown=_shown_json)] if hint is Any else hint


def _read_json(args: list[str]) -> Any:
    """Read a JSON value, or a text, which the config checks."""
    (text,) = args
    try:
        return json.loads(text)
    except ValueError:
        if text.startswith(("{", "[")):
            raise
    return None if text == "None" else text


def _shown_json(value: Any) -> list[str]:
    return [value if isinstance(value, str) else json.dumps(value, default=repr)]


def _read_numbers(args: list[str]) -> tuple[int, ...]:
    try:
        return tuple(_read_whole_number([arg]) for arg in args)
    except ValueError:
        text = " ".join(args)
        example = " ".join(re.findall(r"\d+", text)) or "64 64"
        raise ValueError(f"{text!r} is not legal: write whole numbers separated by spaces, e.g. {example}") from None


_CALLABLE = typing.get_origin(Callable[..., Any])
