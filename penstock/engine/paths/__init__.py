"""Data paths: how experience gets from the lanes of a run to what learns from it. One file for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config import ConfigError, closest, find_object
from penstock.engine.paths.base import DataPath

if TYPE_CHECKING:
    from penstock.algorithms.bases.algorithm import Algorithm
    from penstock.config import Config

__all__ = ["DATA_PATHS", "DataPath", "data_path"]

DATA_PATHS = {
    "segments": "penstock.engine.paths.segments:SegmentPath",
    "redistributed": "penstock.engine.paths.redistributed:RedistributedPath",
    "circular": "penstock.engine.paths.circular:CircularPath",
    "mixture": "penstock.engine.paths.mixture:MixturePath",
    "replay": "penstock.engine.paths.replay:ReplayPath",
    "hindsight": "penstock.engine.paths.hindsight:HindsightPath",
    "redistributed_replay": "penstock.engine.paths.redistributed_replay:RedistributedReplayPath",
    "sequences": "penstock.engine.paths.sequences:SequencePath",
    "gradients": "penstock.engine.paths.gradients:GradientPath",
}
"""Place of each data path that an algorithm may name."""


def data_path(algorithm: Algorithm | type[Algorithm], config: Config | None = None) -> type[DataPath]:
    """Find the data path of an algorithm: the one that it names, or its own; of a class, with these settings.

    Raises
    ------
    ConfigError
        The algorithm names no data path, or one that there is not.
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
