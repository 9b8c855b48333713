"""Command-line flags made from a config dataclass: one definition serves Python, the command line and config.json."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import textwrap
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from penstock.config import Config, ConfigError, cannot_change, load_preset, make_config

C = TypeVar("C", bound=Config)
F = TypeVar("F")

_NO_ENV = "none given"
_PRESET = "preset"
_RESUME_HELP = "Go on with a run from its last checkpoint. A flag changes a setting from now on; all others stay."
_MORE_SECONDS = Annotated[
    float | None, tyro.conf.arg(help="Seconds of wall-clock time that the run gets in addition; None: none.")
]
_PRESET_HELP = 'Other defaults: the name of a preset, e.g. "atari", or a .toml file of your own. Flags win over it.'


def parse_config(config_class: type[C], args: Sequence[str], prog: str) -> C:
    """Make a config from command-line flags: every field is one, its docstring is the help.

    Parameters
    ----------
    config_class
        The config dataclass of an algorithm.
    args
        The flags. ``--preset NAME`` among them gives other defaults.
    prog
        What to call the command in its help.

    Raises
    ------
    ConfigError
        A value is not legal; the message is the one that Python users see.
    SystemExit
        The flags cannot be read (code 2; the closest flag was shown) or ask for help (code 0).
    """
    preset = _preset_in(args)
    defaults = make_config(config_class, {"env": _NO_ENV, **(load_preset(preset, config_class) if preset else {})})
    flags: list[tuple[str, Any, Any]] = [
        (_PRESET, Annotated[str | None, tyro.conf.arg(help=_PRESET_HELP)], dataclasses.field(default=preset))
    ]
    for name, flag_type in _flags_of(config_class).items():
        value = getattr(defaults, name)
        flags.append((name, flag_type, dataclasses.field() if value == _NO_ENV else _default(value)))
    flags_class = dataclasses.make_dataclass(config_class.__name__, flags, kw_only=True)
    description = inspect.cleandoc(config_class.__doc__ or "")
    values = dict(vars(tyro.cli(flags_class, prog=prog, description=description, args=list(args))))
    del values[_PRESET]
    return make_config(config_class, values)


def parse_changes(
    config_class: type[Config], before: Mapping[str, Any], args: Sequence[str], prog: str
) -> dict[str, Any]:
    """Read from command-line flags which settings of a run change when it goes on.

    Parameters
    ----------
    config_class
        The config dataclass of the run's algorithm.
    before
        The run's settings as its ``config.json`` has them.
    args
        The flags: every field that can change within a run is one.
    prog
        What to call the command in its help.

    Returns
    -------
    dict
        New values by field name.

    Raises
    ------
    ConfigError
        A setting is given that cannot change within a run; the message says why not.
    SystemExit
        As `parse_config` does.
    """
    fixed = config_class.fixed_settings()
    for arg, after in zip(args, [*args, ""][1:], strict=True):
        flag, _, value = arg.partition("=")
        name = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
        if flag.startswith("--") and name in fixed:
            raise cannot_change(name, value or after or flag, before.get(name), fixed[name])
    had = make_config(config_class, {**before, "max_seconds": None})
    flags = [
        (name, _MORE_SECONDS if name == "max_seconds" else flag_type, _default(getattr(had, name)))
        for name, flag_type in _flags_of(config_class).items()
        if name not in fixed
    ]
    flags_class = dataclasses.make_dataclass(f"Resumed{config_class.__name__}", flags, kw_only=True)
    values = vars(tyro.cli(flags_class, prog=prog, description=_RESUME_HELP, args=list(args)))
    return {name: value for name, value in values.items() if value != getattr(had, name)}


def _flags_of(config_class: type[Config]) -> dict[str, Any]:
    """What tyro shall read for every field of a config, with its docstring as help."""
    documents, hints = field_documents(config_class), typing.get_type_hints(config_class)
    return {
        field.name: Annotated[_flag_type(hints[field.name]), tyro.conf.arg(help=documents.get(field.name, ""))]
        for field in dataclasses.fields(config_class)
    }


def _default(value: Any) -> Any:
    return dataclasses.field(default_factory=lambda: value)


_Run = Annotated[Path, tyro.conf.arg(metavar="RUN")]


@dataclasses.dataclass(frozen=True)
class EvalFlags:
    """Play episodes with a trained policy and score it."""

    run: tyro.conf.Positional[_Run]
    """Directory of a run, or of one checkpoint."""
    episodes: int = 100
    """Episodes to play."""
    checkpoint: str = "best"
    """Which of the run's: "best", "latest", or the steps of one."""
    deterministic: bool = True
    """Play the likeliest action instead of sampling."""
    video: str | None = None
    """File to film one more episode to, e.g. episode.mp4."""
    seed: int = 0
    """Seeds the environments and the sampling."""
    max_steps: int | None = None
    """Steps after which an episode is given up; None: the run's eval_max_steps."""


@dataclasses.dataclass(frozen=True)
class DoctorFlags:
    """Check this machine: what runs, what is missing, what to do about it."""


def parse_flags(flags_class: type[F], args: Sequence[str], prog: str) -> F:
    """Read the flags of a command that trains nothing; raises `SystemExit` as `parse_config` does."""
    return tyro.cli(flags_class, args=list(args), prog=prog)


def field_documents(config_class: type[Config]) -> dict[str, str]:
    """Docstring under each field of a config class and its bases, by field name; the nearest class wins."""
    documents: dict[str, str] = {}
    for owner in reversed(config_class.__mro__):
        if not dataclasses.is_dataclass(owner):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
        except (OSError, TypeError):  # a class without a source file: flags without help
            continue
        (definition,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
        for statement, after in zip(definition.body, definition.body[1:], strict=False):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                match after:
                    case ast.Expr(value=ast.Constant(value=str(text))):
                        documents[statement.target.id] = inspect.cleandoc(text)
    fields = {field.name for field in dataclasses.fields(config_class)}
    return {name: text for name, text in documents.items() if name in fields}


def _preset_in(args: Sequence[str]) -> str | None:
    """The preset has to be known before the flags can be read, because it gives their defaults."""
    preset = None
    for arg, after in zip(args, [*args[1:], ""], strict=False):
        if arg == f"--{_PRESET}":
            preset = after
        elif arg.startswith(f"--{_PRESET}="):
            preset = arg.partition("=")[2]
    return preset or None


def _flag_type(hint: Any) -> Any:
    """What tyro shall read for a field: what only Python can say, a callable, is left out."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        options = [_flag_type(o) for o in typing.get_args(hint) if typing.get_origin(o) is not _CALLABLE]
        return typing.Union[tuple(options)]  # noqa: UP007 - made at run time
    if typing.get_origin(hint) is Literal and all(isinstance(v, str) for v in typing.get_args(hint)):
        # the config checks the value itself, and shows the closest one
        return Annotated[str, _words("{" + ",".join(typing.get_args(hint)) + "}")]
    if typing.get_origin(hint) is dict:
        return Annotated[dict, _SETTINGS]
    return hint


def _words(metavar: str) -> PrimitiveConstructorSpec[str]:
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda args: args[0],
        is_instance=lambda value: isinstance(value, str),
        str_from_instance=lambda value: [value],
    )


def _read_settings(args: list[str]) -> dict[str, Any]:
    settings = {}
    for arg in args:
        name, equals, text = arg.partition("=")
        if not (name and equals):
            raise ConfigError(f"{arg!r} is not KEY=VALUE, e.g. render_mode=rgb_array or sutton_barto_reward=true")
        try:
            settings[name] = json.loads(text)
        except ValueError:
            settings[name] = text
    return settings


_CALLABLE = typing.get_origin(Callable[..., Any])
_SETTINGS = PrimitiveConstructorSpec[dict[str, Any]](
    nargs="*",
    metavar="[KEY=VALUE ...]",
    instance_from_str=_read_settings,
    is_instance=lambda value: isinstance(value, dict),
    str_from_instance=lambda value: [f"{name}={json.dumps(item)}" for name, item in value.items()],
)
