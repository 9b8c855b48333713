"""Making a config from values by name, on top of a preset."""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from penstock.config.base import Config
from penstock.config.checking import ConfigError, closest, read_toml
from penstock.config.features import FEATURES
from penstock.config.foreign_names import NO_SETTINGS, SETTINGS
from penstock.imports import why_lost

C = TypeVar("C", bound=Config)

PRESETS = Path(__file__).parents[1] / "presets"


def make_config(config_class: type[C], values: Mapping[str, Any], preset: str | os.PathLike[str] | None = None) -> C:
    """Make a config from keyword values on top of an optional preset.

    Raises
    ------
    ConfigError
        A field is unknown (the closest name is shown), ill-typed, or out of range; there is no such preset.
    """
    known = [*config_class.field_types()]
    merged = {**(load_preset(preset, config_class) if preset else {}), **values}
    for name in merged:
        if name not in known:
            hint = setting_hint(name, known) or f"{closest(name, known)} (legal: {', '.join(sorted(known))})"
            raise ConfigError(f"unknown setting {name!r}{hint}")
    if "env" not in merged:
        raise ConfigError('env is missing: give a Gymnasium id such as "CartPole-v1", a callable or a class')
    for f in dataclasses.fields(config_class):
        if f.name not in merged and f.default is f.default_factory:  # both are MISSING
            raise ConfigError(f"{f.name} is missing, {config_class.__name__} has no default for it: give {f.name}=...")
    return config_class(**merged)


def setting_hint(name: str, known: Collection[str]) -> str:
    """Return the hint for a setting's name in another library, as the second half of a message; empty if unknown.

    Parameters
    ----------
    name
        The setting as it was given.
    known
        The settings of the algorithm.
    """
    if name in NO_SETTINGS:
        return f": it is not a setting here; {NO_SETTINGS[name]}"
    for feature in FEATURES:
        if (hint := feature.hint(name, known)) is not None:
            return f": {hint}" if hint else ""
    alternatives = SETTINGS[name].split(" | ") if name in SETTINGS else []
    fields = {alternative: re.findall(r"\w+", alternative)[0] for alternative in alternatives}
    for alternative, field in fields.items():
        if field in known:
            return f": here it is {alternative}"
    return f": other algorithms here call it {' or '.join(fields.values())}, this one lacks it" if fields else ""


def restored_config(config_class: type[C], before: Mapping[str, Any], changes: Mapping[str, Any]) -> C:
    """Return the config of a run's saved settings with changes; environment arguments that are not given again stay."""
    before = {**config_class.legacy_defaults, **before}
    merged = {**before, **changes}
    given, had = changes.get("env_kwargs"), before.get("env_kwargs")
    if isinstance(given, Mapping) and isinstance(had, Mapping):
        merged["env_kwargs"] = {**had, **given}
    return make_config(config_class, merged)


def change_config(config_class: type[C], before: Mapping[str, Any], changes: Mapping[str, Any]) -> C:
    """Return the config of a resumed run: its old settings with changes.

    Raises
    ------
    ConfigError
        A field is unknown, ill-typed, out of range, or cannot change within a run; the message says why not.
    """
    config = restored_config(config_class, before, changes)
    fixed = config_class.fixed_settings()
    had = restored_config(config_class, before, {"env": config.env})
    for name in sorted(fixed.keys() & changes.keys()):
        found, legal = getattr(config, name), getattr(had, name)
        if found != legal and not why_lost(name, legal):  # a value that could not be saved must be given again
            raise cannot_change(name, repr(found), legal, fixed[name])
    return config


def cannot_change(name: str, found: str, legal: Any, why: str) -> ConfigError:
    """Return the error for a setting that cannot change within a run."""
    return ConfigError(
        f"{name}={found} is not legal here: {name} cannot change within a run, and is {legal!r} in this one, because "
        f"{why}. Start a new run to change it"
    )


def load_preset(name: str | os.PathLike[str], config_class: type[Config]) -> dict[str, Any]:
    """Read the settings of a preset: a name in ``penstock/presets``, or the path of a TOML file.

    A preset has a table of settings per algorithm, named as the algorithm is on the command line.

    Raises
    ------
    ConfigError
        There is no such preset, it is not TOML, or it has no table for this algorithm.
    """
    name = os.fspath(name)
    path = Path(name) if name.endswith(".toml") else PRESETS / f"{name}.toml"
    if not path.is_file():
        names = sorted(p.stem for p in PRESETS.glob("*.toml"))
        unknown = f"there is no file {name}" if path == Path(name) else f"unknown preset {name!r}{closest(name, names)}"
        raise ConfigError(f"{unknown} (legal: {', '.join(names)}, or the path of a .toml file)")
    contents = read_toml(path, f"preset {name!r}")
    tables = {key: value for key, value in contents.items() if isinstance(value, dict)}
    table = config_class.__name__.removesuffix("Config").lower()
    if table not in tables:
        hint = f"; write [{table}] above the settings"
        if path.parent == PRESETS:
            others = [each.stem for each in sorted(PRESETS.glob("*.toml")) if table in tomllib.loads(each.read_text())]
            hint = f"; presets for {table} are {', '.join(others)}" if others else f"; {table} has no presets"
        has = f"its tables are {', '.join(sorted(tables))}" if tables else "it has no tables"
        raise ConfigError(f"preset {name!r} has no table [{table}]: {has}{hint}")
    return dict(tables[table])
