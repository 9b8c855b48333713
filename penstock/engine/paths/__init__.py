"""Data paths: how experience moves from the lanes of a run to the learner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from penstock.config import FEATURES, ConfigError, closest, find_object
from penstock.engine.paths.base import DataPath

if TYPE_CHECKING:
    from penstock.algorithms.bases.algorithm import Algorithm
    from penstock.config import Config

__all__ = ["DATA_PATHS", "DataPath", "data_path", "entry_of"]

DATA_PATHS = {
    "segments": "penstock.engine.paths.segments:SegmentPath",
    "circular": "penstock.engine.paths.segments:CircularPath",
    "mixture": "penstock.engine.paths.mixture:MixturePath",
    "replay": "penstock.engine.paths.replay:ReplayPath",
    "hindsight": "penstock.engine.paths.hindsight:HindsightPath",
    "sequences": "penstock.engine.paths.sequences:SequencePath",
    "gradients": "penstock.engine.paths.gradients:GradientPath",
    **{name: place for feature in FEATURES for name, place in feature.data_paths.items()},
}
"""Import path of each data path that an algorithm may name."""

Entry = TypeVar("Entry")


def data_path(algorithm: Algorithm | type[Algorithm], config: Config | None = None) -> type[DataPath]:
    """Return the data path of an algorithm; of a class, with the settings of `config`.

    Raises
    ------
    ConfigError
        The algorithm names no data path, or an unknown one.
    """
    named = algorithm.data_path if config is None else algorithm.data_path_of(config)
    if isinstance(named, str):
        target = DATA_PATHS.get(named, named)
        if ":" not in target:
            legal = f"legal: {', '.join(DATA_PATHS)}, or a subclass of penstock.engine.paths.DataPath"
            raise ConfigError(f"data_path={named!r} is unknown{closest(named, list(DATA_PATHS))} ({legal})")
        named = find_object(target, "data_path")
    if not (isinstance(named, type) and issubclass(named, DataPath)):
        found = f"the class {named.__name__}" if isinstance(named, type) else f"a {type(named).__name__}"
        raise ConfigError(f"data_path must be a subclass of penstock.engine.paths.DataPath, found {found}")
    return named


def entry_of(table: Mapping[type[DataPath], Entry], path: type[DataPath]) -> Entry:
    """Return the entry of a data path in a table by class: its own, or that of its nearest base class."""
    return next(table[base] for base in path.__mro__ if base in table)
