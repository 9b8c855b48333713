"""Generator of ``docs/reference/settings.md`` from the configs: all settings of all algorithms, and the presets.

``python tools/pages.py`` writes the page.
"""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path

from penstock.algorithms import ALGORITHMS, load_algorithm
from penstock.config import PRESETS, Config, FreshConfig, PrioritizedReplayConfig, SegmentConfig, grouped
from penstock.config.features import FEATURES, Feature
from penstock.flags import field_documents

SETTINGS_PAGE = Path(__file__).parents[1] / "docs" / "reference" / "settings.md"

ConfigClass = type[Config]

SHARED: dict[str, tuple[ConfigClass, ConfigClass]] = {
    "learning from segments": (FreshConfig, Config),
    "actor-critics that learn from segments": (SegmentConfig, FreshConfig),
    "learning from replay": (PrioritizedReplayConfig, Config),
}
"""Settings that several algorithms share, by title: the class that has them and the class that it adds to."""

OF_FEATURES = frozenset(name for feature in FEATURES for name in feature.settings)

_HEAD = """<!-- Written by `python tools/pages.py` from the configs; edit those. -->

# Settings

Every setting is a keyword argument in Python, a flag on the command line and a key of the run's `config.json`.
`penstock train appo --help` shows those of one algorithm.

| in Python | on the command line |
|---|---|
| `num_workers=4` | `--num-workers 4` |
| `hidden_sizes=(256, 256)` | `--hidden-sizes 256 256` |
| `normalize_observations=False` | `--no-normalize-observations` |
| `shared_encoder=True`, where the default is `None` | `--shared-encoder True` |
| `target_kl=None` | `--target-kl None` |
| `env_kwargs={"img_height": 42}` | `--env-kwargs img_height=42` |

Defaults are those without a [preset](#presets). Where they differ, the algorithms stand in brackets behind each.
`penstock resume` changes settings of a run; a setting that cannot change then is marked.
"""

_PRESETS = """## Presets

A preset gives other defaults for a family of environments. Flags and keyword arguments override it.

```bash
penstock train appo --env LunarLander-v3 --preset lunarlander
```

In Python it is `preset="lunarlander"`. The path of a `.toml` file of your own is a preset, too: one table of settings
for each algorithm. An empty cell is the algorithm's default.
"""


def settings_page() -> str:
    """Return the page: settings of all algorithms, of each data path, of each algorithm; presets."""
    configs = [load_algorithm(name).Config for name in ALGORITHMS]
    parts = [_HEAD, "## Settings of every algorithm\n"]
    for group, fields in grouped(Config).items():
        parts += [f"### {group.capitalize()}\n", _table([field.name for field in fields], configs, Config)]
    for what, (shared, base) in SHARED.items():
        sharing = [config for config in configs if issubclass(config, shared)]
        added = [name for name in _names(shared) if name not in (*_names(base), *OF_FEATURES)]
        parts += [f"## Settings of {what}\n", f"{_listed(sharing)}.\n", _table(added, sharing, shared)]
    parts += ["## Settings of features\n", *(part for feature in FEATURES for part in _feature(feature, configs))]
    parts += ["## Settings of each algorithm\n", *map(_section, configs), _PRESETS, *map(_preset, _preset_files())]
    return "\n".join(parts)


def _feature(feature: Feature, configs: Sequence[ConfigClass]) -> list[str]:
    """Return the section of a feature: a table for each set of algorithms that have the same settings."""
    names = dict.fromkeys(name for config in configs for name in _names(config) if name in feature.settings)
    by_owners: dict[tuple[ConfigClass, ...], list[str]] = {}
    for name in names:
        owners = tuple(config for config in configs if name in _names(config))
        by_owners.setdefault(owners, []).append(name)
    parts = [f"### {feature.group.capitalize()}\n"]
    for owners, those in by_owners.items():
        parts += [f"{_listed(owners)}:\n", _table(those, owners, owners[0])]
    return parts


def _section(config: ConfigClass) -> str:
    """Return the section of an algorithm: settings that it adds, and shared settings that it changes."""
    shared = [shared for shared, _ in SHARED.values() if issubclass(config, shared)][-1]
    own = [name for name in _names(config) if name not in (*_names(shared), *OF_FEATURES)]
    of_path = [name for name in _names(shared) if name not in _names(Config)]
    changed = _changed(_names(Config), config, Config) + _changed(of_path, config, shared)
    summary = inspect.cleandoc(config.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    tables = [_table(own, [config], config), "With another default or meaning:\n", _table(changed, [config], config)]
    marked = [f"<!-- {_name(config)} -->\n", *tables, f"<!-- /{_name(config)} -->\n"]  # for the algorithm's own page
    return "\n".join([f"### {_name(config)}\n", f"{summary}\n", "Own settings:\n", *marked])


def _changed(names: Iterable[str], config: ConfigClass, shared: ConfigClass) -> list[str]:
    """Return the settings among `names` with another default or meaning than in the shared class."""
    ours, theirs = field_documents(config), field_documents(shared)
    return [name for name in names if _default(name, config) != _default(name, shared) or ours[name] != theirs[name]]


def _table(names: Iterable[str], configs: Sequence[ConfigClass], described: ConfigClass) -> str:
    """Return a table of settings with their defaults in these configs, and their meaning in one of them."""
    documents, hints = field_documents(described), typing.get_type_hints(described)
    lines = [["setting", "default", "meaning"], ["---"] * 3]
    for name in names:
        meaning = [documents[name], _legal(documents[name], hints[name]), _fixed(name, configs)]
        lines.append([f"`{name}`", _defaults(name, configs), _cell(" ".join(filter(None, meaning)))])
    return "\n".join([*map(_row, lines), ""])


def _defaults(name: str, configs: Sequence[ConfigClass]) -> str:
    owners: dict[str, list[ConfigClass]] = {}
    for config in configs:
        owners.setdefault(_default(name, config), []).append(config)
    if len(owners) == 1:
        return next(iter(owners))
    return "; ".join(f"{default} ({_listed(those)})" for default, those in owners.items())


def _default(name: str, config: ConfigClass) -> str:
    (field,) = (field for field in dataclasses.fields(config) if field.name == name)
    if field.default_factory is not dataclasses.MISSING:
        return _code(field.default_factory())
    return "required" if field.default is dataclasses.MISSING else _code(field.default)


def _legal(document: str, hint: object) -> str:
    """Return the legal words of a setting, unless its meaning names them."""
    words = _choices(hint)
    return "" if all(word in document for word in words) else f"Legal: {', '.join(words)}."


def _fixed(name: str, configs: Sequence[ConfigClass]) -> str:
    """Return a remark on the algorithms in which a setting cannot change within a run; "" if there are none."""
    fixed = [config for config in configs if name in config.fixed_settings()]
    where = "" if len(fixed) == len(configs) else f" ({_listed(fixed)})"
    return f"*Cannot change within a run{where}.*" if fixed else ""


def _choices(hint: object) -> list[str]:
    """Return all words that a type allows."""
    if typing.get_origin(hint) is typing.Literal:
        return [f'"{word}"' for word in typing.get_args(hint) if isinstance(word, str)]
    return [word for option in typing.get_args(hint) for word in _choices(option)]


def _preset(path: Path) -> str:
    """Return the section of a preset: its purpose, and a table of its settings."""
    text = path.read_text()
    about = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("#")]
    tables = tomllib.loads(text)
    names = dict.fromkeys(name for table in tables.values() for name in table)
    rows = [[f"`{name}`", *(_code(t[name]) if name in t else "" for t in tables.values())] for name in names]
    table = "\n".join(map(_row, [["setting", *tables], ["---"] * (len(tables) + 1), *rows]))
    return f"### {path.stem}\n\n{' '.join(about)} File: [{path.name}](../../penstock/presets/{path.name}).\n\n{table}\n"


def _preset_files() -> list[Path]:
    return sorted(PRESETS.glob("*.toml"))


def _names(config: ConfigClass) -> list[str]:
    """Return the names of all settings in the order of ``--help``."""
    return [field.name for fields in grouped(config).values() for field in fields]


def _name(config: ConfigClass) -> str:
    return config.__name__.removesuffix("Config")


def _listed(configs: Iterable[ConfigClass]) -> str:
    return ", ".join(map(_name, configs))


def _cell(text: str) -> str:
    """Return a text on one line, with marks of Markdown's tables and tags escaped."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _code(value: object) -> str:
    return f"`{_literal(value)}`"


def _literal(value: object) -> str:
    """Return a value as written in Python, long numbers in groups of three digits."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_literal(key)}: {_literal(each)}' for key, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_literal, value))}{',' * (len(value) == 1)})"
    if isinstance(value, int) and value >= 10_000:
        return f"{value:_}"
    return f'"{value}"' if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    SETTINGS_PAGE.write_text(settings_page())
    print(f"written: {SETTINGS_PAGE}")
