"""Running statistics of wrappers: found, shared by all environments of a run, and frozen for scoring.

A wrapper such as ``NormalizeObservation`` is a part of the policy, whose network was trained on its outputs. Its
moments are therefore replaced by `RunningMoments`, one object for all environments of a process. No Gymnasium, no
torch.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

KNOWN: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("gymnasium", "NormalizeObservation"): ("obs_rms",),
    ("gymnasium", "NormalizeReward"): ("return_rms",),
    ("stable_baselines3", "VecNormalize"): ("obs_rms", "ret_rms"),
}
"""Attributes with a wrapper's moments, by package and name of its class; subclasses are recognised too."""
SWITCHES = ("update_running_mean", "training")  # attributes that switch a wrapper's updates on and off
ADVICE = "use normalize_observations=True, and normalize_returns=True for rewards, where the algorithm has it"


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of a wrapper at one time.

    Attributes
    ----------
    name
        Class and attribute: "NormalizeObservation.obs_rms".
    count
        Number of values seen, including the wrapper's initial count.
    mean, var
        float64, in the shape of one value.
    """

    name: str
    count: float
    mean: np.ndarray
    var: np.ndarray

    @property
    def kind(self) -> tuple[str, tuple[int, ...]]:
        """Name and shape; equal for moments that can replace each other."""
        return self.name, self.mean.shape

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; mean and variance are flat."""
        mean, var = self.mean.ravel().tolist(), self.var.ravel().tolist()
        return {"name": self.name, "count": self.count, "shape": list(self.mean.shape), "mean": mean, "var": var}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Moments:
        """Return the moments in the values of `to_json`."""
        mean, var = (np.array(values[name], np.float64).reshape(values["shape"]) for name in ("mean", "var"))
        return cls(str(values["name"]), float(values["count"]), mean, var)

    def flat(self) -> np.ndarray:
        """Return count, mean and sum of squared deviations side by side, float64 ``[1 + 2 n]``."""
        return np.concatenate([[self.count], self.mean.ravel(), self.count * self.var.ravel()])


def statistics_of(meta: Mapping[str, Any]) -> tuple[Moments, ...]:
    """Return the running statistics in a checkpoint's metadata."""
    return tuple(map(Moments.from_json, meta.get("statistics", ())))


def merge(into: np.ndarray, other: np.ndarray) -> None:
    """Add the moments of other values exactly (Chan et al. 1979); both in the layout of `Moments.flat`."""
    size = len(into) // 2
    count, more = into[0], other[0]
    if more == 0.0:
        return
    mean, deviation = into[1 : 1 + size], into[1 + size :]
    delta = other[1 : 1 + size] - mean
    into[0] = total = count + more
    mean += delta * (more / total)
    deviation += other[1 + size :]
    deviation += delta * delta * (count * more / total)


def moments_nbytes(size: int) -> int:
    """Return the bytes of flat moments of values with `size` numbers."""
    return 8 * (1 + 2 * size)


class RunningMoments:
    """Replacement of a wrapper's moments, shared by all environments of a process.

    Parameters
    ----------
    start
        Initial moments.

    Attributes
    ----------
    own
        Moments of the values seen here, flat.
    is_frozen
        Whether updates are ignored.
    """

    def __init__(self, start: Moments) -> None:
        self.start = start
        self.own = np.zeros_like(start.flat())
        self.is_frozen = False
        self.begin_from(self.start.flat())

    def begin_from(self, others: np.ndarray) -> None:
        """Set the moments of all values seen elsewhere, flat."""
        self._all = others.copy()
        merge(self._all, self.own)

    def update(self, values: Any) -> None:
        """Add a batch of values ``[N, ...]``."""
        values = np.asarray(values, np.float64)
        if len(values) == 1:
            self.update_from_moments(values[0], 0.0, 1)
        else:
            self.update_from_moments(values.mean(axis=0), values.var(axis=0), len(values))

    def update_from_moments(self, batch_mean: Any, batch_var: Any, batch_count: float) -> None:
        """Add the moments of a batch."""
        if self.is_frozen:
            return
        size = len(self.own) // 2
        batch = np.empty_like(self.own)
        batch[0] = batch_count
        batch[1 : 1 + size] = np.ravel(batch_mean)
        batch[1 + size :] = batch_count * np.ravel(batch_var)
        merge(self.own, batch)
        merge(self._all, batch)

    @property
    def count(self) -> float:
        """Number of values."""
        return float(self._all[0])

    @property
    def mean(self) -> np.ndarray:
        """Mean."""
        shape = self.start.mean.shape
        return self._all[1 : 1 + math.prod(shape)].reshape(shape)

    @property
    def var(self) -> np.ndarray:
        """Variance."""
        shape = self.start.mean.shape
        return (self._all[1 + math.prod(shape) :] / self._all[0]).reshape(shape)

    def now(self) -> Moments:
        """Return the current moments."""
        return Moments(self.start.name, self.count, self.mean.copy(), self.var)


class RunningStatistics:
    """Running statistics shared by environments.

    Parameters
    ----------
    envs
        Environments with the same wrappers: single ones, or vector environments.
    frozen
        Moments to `freeze`; None: they start anew and are updated.

    Attributes
    ----------
    moments
        Moments of their wrappers, from the outermost to the innermost.
    unshared
        Names of apparent running statistics in unknown or unreachable wrappers.

    Raises
    ------
    ValueError
        The environments' wrappers differ, or the frozen moments belong to other wrappers.
    """

    def __init__(self, envs: Sequence[Any], frozen: Sequence[Moments] | None = None) -> None:
        self._places = _aligned([_places(env) for env in envs])
        self.moments = tuple(RunningMoments(places[0].moments()) for places in self._places)
        self.share(self)
        self.unshared = _unshared(envs[0]) if envs else ()
        if frozen is not None:
            self.freeze(frozen)

    def share(self, other: RunningStatistics) -> None:
        """Replace these environments' moments by another group's."""
        self.moments = other.moments
        for places, moments in zip(self._places, self.moments, strict=True):
            for place in places:
                place.put(moments)

    def join(self, others: Sequence[RunningStatistics]) -> RunningStatistics:
        """Share these moments with other groups' environments; return all as one."""
        for other in others:
            other.share(self)
            for places, more in zip(self._places, other._places, strict=True):
                places += more
        return self

    def freeze(self, statistics: Sequence[Moments]) -> None:
        """Fix the moments at these values and ignore later observations.

        Raises
        ------
        ValueError
            The statistics belong to other wrappers.
        """
        if not statistics and self.moments:
            warnings.warn(
                f"the running statistics of {self} were not saved: they start anew, so that the policy sees other "
                "observations than in its training. Train it again with this version, or set them yourself",
                stacklevel=2,
            )
            return
        kinds = [each.kind for each in statistics]
        if kinds != [each.start.kind for each in self.moments]:
            raise ValueError(
                f"the policy was trained with the running statistics of {_listed(kinds) or 'no wrapper'}, and this "
                f"environment has {self or 'none'}: wrap it as in training"
            )
        for moments, saved in zip(self.moments, statistics, strict=True):
            moments.own[:] = 0.0
            moments.begin_from(saved.flat())
            moments.is_frozen = True
        for place in [place for places in self._places for place in places]:
            place.switch_off()

    def __bool__(self) -> bool:
        return bool(self.moments)

    def __str__(self) -> str:
        return _listed([each.start.kind for each in self.moments])


def _unshared(env: Any) -> tuple[str, ...]:
    """Return names of an environment's running statistics that cannot be saved and shared."""
    found: list[str] = []
    for wrapper in _chain(env):
        for each in _inside(wrapper)[:1]:
            found += _unshared(each)
        if not _attributes(wrapper):
            found += [f"{type(wrapper).__name__}.{name}" for name, value in _variables(wrapper) if _are_moments(value)]
        if any(cls.__name__ == "AsyncVectorEnv" for cls in type(wrapper).__mro__):
            hidden = sorted({name for names in KNOWN.values() for name in names})
            found += [f"{name} in the processes of AsyncVectorEnv" for name in hidden if _has_inside(wrapper, name)]
    return tuple(found)


class _Place:
    """Place of a wrapper's moments: an attribute, or a value of a dict in one."""

    def __init__(self, wrapper: Any, attribute: str, key: Any = None) -> None:
        self._wrapper, self._attribute, self._key = wrapper, attribute, key

    def moments(self) -> Moments:
        held = getattr(self._wrapper, self._attribute)
        held = held if self._key is None else held[self._key]
        mean, var = (np.array(value, np.float64) for value in (held.mean, held.var))
        path = self._attribute if self._key is None else f"{self._attribute}.{self._key}"
        return Moments(f"{type(self._wrapper).__name__}.{path}", float(held.count), mean, var)

    def put(self, moments: RunningMoments) -> None:
        if self._key is None:
            setattr(self._wrapper, self._attribute, moments)
        else:
            getattr(self._wrapper, self._attribute)[self._key] = moments

    def switch_off(self) -> None:
        for name in SWITCHES:
            if hasattr(type(self._wrapper), name) or name in vars(self._wrapper):
                setattr(self._wrapper, name, False)


def _places(env: Any) -> list[list[_Place]]:
    """Return all places of each of the wrappers' moments; a vector environment has one per inner environment."""
    found = []
    for wrapper in _chain(env):
        for attribute in _attributes(wrapper):
            held = getattr(wrapper, attribute, None)
            keys = list(held) if isinstance(held, dict) else [None] * (held is not None)
            found += [[_Place(wrapper, attribute, key)] for key in keys]
        found += _aligned([_places(each) for each in _inside(wrapper)])
    return found


def _aligned(of_envs: Sequence[list[list[_Place]]]) -> list[list[_Place]]:
    """Return the places of the wrappers' moments over environments with the same wrappers."""
    kinds = [[places[0].moments().kind for places in each] for each in of_envs]
    if any(each != kinds[0] for each in kinds):
        found = "; ".join(sorted({_listed(each) or "none" for each in kinds}))
        raise ValueError(f"expected wrappers with the same running statistics in all environments, found {found}")
    return [[place for places in alike for place in places] for alike in zip(*of_envs, strict=True)]


def _chain(env: Any) -> Iterator[Any]:
    """Yield an environment's wrappers from the outermost to the innermost, and the environment."""
    seen: list[int] = []
    while env is not None and id(env) not in seen:
        seen.append(id(env))
        yield env
        inner = dict(_variables(env))
        env = inner.get("env", inner.get("venv"))


def _inside(env: Any) -> Sequence[Any]:
    """Return the environments that a vector environment steps in sequence."""
    envs = dict(_variables(env)).get("envs")
    return envs if isinstance(envs, list | tuple) else ()


def _attributes(wrapper: Any) -> tuple[str, ...]:
    for cls in type(wrapper).__mro__:
        if attributes := KNOWN.get((cls.__module__.partition(".")[0], cls.__name__)):
            return attributes
    return ()


def _variables(env: Any) -> list[tuple[str, Any]]:
    return list(getattr(env, "__dict__", {}).items())


def _are_moments(value: Any) -> bool:
    """Return whether an object looks like running moments: mean, deviation, count and an update method."""
    kind = type(value)
    if kind.__module__.partition(".")[0] in ("builtins", "numpy", "torch", "pandas") or not callable(
        getattr(kind, "update", None) or getattr(kind, "push", None)
    ):
        return False
    names = {name for name, _ in _variables(value)} | set(dir(kind))
    return "mean" in names and bool(names & {"var", "std", "variance"}) and bool(names & {"count", "n"})


def _has_inside(vector: Any, name: str) -> bool:
    try:
        return any(vector.call("has_wrapper_attr", name))
    except Exception:  # nothing is known of an unreachable environment
        return False


def _listed(kinds: Sequence[tuple[str, tuple[int, ...]]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in kinds)
