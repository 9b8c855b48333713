"""Specification of an environment, picklable for worker processes."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import importlib
import importlib.util
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Literal, get_args

import gymnasium
from gymnasium.envs.registration import EnvSpec as RegisteredEnv

from penstock.envs.envpool import NAMESPACE, pool_arguments
from penstock.envs.factories import Vectorize, Wrapped, name_of_factory, require_fitting_arguments
from penstock.envs.failures import EnvironmentUsageError, UnknownEnvironmentError
from penstock.envs.refusals import needs
from penstock.envs.statistics import Moments
from penstock.extras import extra_with, install_command, package_of_id
from penstock.imports import NoSuchPlaceError, UntrustedCodeError, is_own, load_module, why_lost
from penstock.serialization import Parcel, packed

_SHOWN = 8  # names of a module that a message lists
_MAKERS = ("env", "parallel_env", "raw_env")  # the names of PettingZoo's constructors

NO_ENV = "imported-without-env"
"""Name of the environment of a run that was imported without one."""

Kind = Literal["gymnasium", "atari", "envpool", "callable"]


@dataclass(frozen=True)
class EnvSpec:
    """Environment with its arguments, always picklable.

    Attributes
    ----------
    name
        Short name, legal in a file name, such as ``"CartPole-v1"``.
    kind
        ``"gymnasium"`` for a registered id, ``"atari"`` for an ``ALE/...`` id, ``"envpool"`` for an ``EnvPool/...`` id,
        ``"callable"`` for all others.
    vectorize
        ``"make"``: one environment for each lane. ``"vector"``: one vector environment for all lanes of a group.
    payload
        Callable and keyword arguments, pickled: by value if defined in a script, a notebook or a loose file. Large
        values lie in memory shared by the processes of this machine. Includes the registrations of this process,
        because a custom environment may make registered ones.
    mask_is_in_info
        Whether infos hold a mask of legal actions; `penstock.envs.probe` finds out.
    teams
        Names of the agents of each policy; each agent is a lane. Empty for one agent.
    team_reward
        Reward of each agent, see `Games`.
    is_shuffled
        Whether teams change agents before each game, see `Games`.
    statistics
        Frozen values of the wrappers' running statistics (see `penstock.envs.statistics`); None: they start anew and
        are updated.
    population
        Number of policies, each with environments of its own.
    given
        In the process that resolved them, the objects of which the payload is a copy; None elsewhere.
    """

    name: str
    kind: Kind
    vectorize: Vectorize
    payload: Parcel = dataclasses.field(repr=False)
    mask_is_in_info: bool = False
    teams: tuple[tuple[str, ...], ...] = ()
    team_reward: Literal["own", "mean", "sum"] = "own"
    is_shuffled: bool = False
    population: int = 1
    statistics: tuple[Moments, ...] | None = dataclasses.field(default=None, compare=False, repr=False)
    given: tuple[Any, dict[str, Any]] | None = dataclasses.field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "given": None}

    @property
    def of_one(self) -> EnvSpec:
        """Return the same environment for a single policy of a population."""
        return dataclasses.replace(self, population=1)

    @property
    def is_vector(self) -> bool:
        """Whether all lanes of a group are one vector environment."""
        return self.vectorize == "vector" or self.kind in ("atari", "envpool")

    @property
    def seats(self) -> int:
        """Lanes of each environment, over all policies."""
        return sum(map(len, self.teams)) or 1

    @classmethod
    def resolve(
        cls, env: str | Callable[..., Any], env_kwargs: Mapping[str, Any] | None = None, vectorize: Vectorize = "make"
    ) -> EnvSpec:
        """Return the spec of the environment that a user names.

        Parameters
        ----------
        env
            A Gymnasium id (also ``"module:Id"``, which imports the module that registers it), ``"EnvPool/Id"``, a
            callable that returns an environment, an environment class, ``"module:Class"`` or ``"file.py:Class"``. With
            ``vectorize="vector"`` a callable or class takes ``num_envs`` and returns a vector environment.
            `penstock.envs.factories` describes the other arguments they may take.
        env_kwargs
            Keyword arguments of the environment.
        vectorize
            As the attribute. ``ALE/...`` and ``EnvPool/...`` ids always use their vector environments.

        Raises
        ------
        UnknownEnvironmentError
            No environment has this name.
        TypeError
            ``env`` is neither a string nor callable.
        ValueError
            ``vectorize`` or a keyword argument is not legal, or the environment cannot be pickled.
        """
        if vectorize not in get_args(Vectorize):
            raise ValueError(f"vectorize={vectorize!r} is unknown: use one of {', '.join(get_args(Vectorize))}")
        kwargs = dict(env_kwargs or {})
        if isinstance(env, str) and env.startswith(NAMESPACE):
            return cls._of(env, "envpool", vectorize, None, pool_arguments(env, kwargs))
        if vectorize == "vector" and "num_envs" in kwargs:
            raise ValueError(
                f"env_kwargs: num_envs={kwargs['num_envs']!r} is not legal with vectorize='vector': a vector "
                "environment has the lanes of a group; set num_envs_per_worker"
            )
        source = _find(env) if isinstance(env, str) else env
        if isinstance(source, RegisteredEnv):
            if source.id.startswith("ALE/"):
                from penstock.envs.atari import atari_arguments

                arguments = atari_arguments(source.kwargs["game"], kwargs)
                return cls._of(source.id, "atari", vectorize, None, arguments)
            # The lanes guarantee or check what the wrappers left out here would check.
            bare = dataclasses.replace(source, order_enforce=False, disable_env_checker=True)
            return cls._of(source.id, "gymnasium", vectorize, bare, kwargs)
        name = _module_of_makers(env) or name_of_factory(source)
        if not callable(source):
            raise TypeError(
                f"env={source!r} is a {type(source).__name__}: use an id, an environment class, or a callable that "
                "returns a new environment each time"
            )
        require_fitting_arguments(name, source, kwargs, vectorize)
        return cls._of(name, "callable", vectorize, source, kwargs)

    @classmethod
    def _of(cls, name: str, kind: Kind, vectorize: Vectorize, source: Any, kwargs: dict[str, Any]) -> EnvSpec:
        file_name = re.sub(r"[^\w.]+", "-", name).strip("-")
        return cls(file_name, kind, vectorize, _pickled(name, source, kwargs), given=(source, kwargs))

    def wrapped(self, wrappers: Sequence[Callable[[Any], Any]]) -> EnvSpec:
        """Return the same environment inside wrappers, the last outermost; around a vector environment, as a whole.

        Raises
        ------
        EnvironmentUsageError
            The environment steps in native code that no wrapper reaches.
        """
        if self.kind in ("atari", "envpool"):
            raise EnvironmentUsageError(
                f"wrappers around {self.name} are not legal: its vector environment is native. Write a factory of "
                "wrapped environments, such as file.py:make"
            )
        source, kwargs = self.unpack()
        inside = EnvSpec.resolve(Wrapped(source, wrappers), kwargs, self.vectorize)
        return dataclasses.replace(self, kind="callable", payload=inside.payload, given=inside.given)

    @property
    def module(self) -> str:
        """Module in which the environment is defined; empty where it has none."""
        if self.kind in ("atari", "envpool"):
            return {"atari": "ale_py", "envpool": "envpool"}[self.kind]
        source = self.unpack()[0]
        if isinstance(source, RegisteredEnv):
            source = source.entry_point
        return source.partition(":")[0] if isinstance(source, str) else getattr(source, "__module__", None) or ""

    def unpack(self) -> tuple[Any, dict[str, Any]]:
        """Return the constructor, a registered spec, a callable or (ALE, EnvPool) None, and its keyword arguments.

        The process that resolved them gets the objects that were given. Other processes get copies, and Gymnasium's
        registry gets the pickled registrations, as far as they can be loaded here.
        """
        if self.given is not None:
            source, kwargs = self.given
            return source, dict(kwargs)
        source, kwargs, registrations = self.payload.open()
        for name, registration in registrations.items():
            if name not in gymnasium.registry:
                with contextlib.suppress(Exception):  # a registration that the environment may not need
                    gymnasium.registry[name] = pickle.loads(registration)
        return source, kwargs


def _find(env: str) -> Any:
    place, colon, name = env.rpartition(":")
    if env.endswith(".py"):
        raise UnknownEnvironmentError(f"env={env!r} names a file, and nothing in it: write '{env}:Class'")
    if colon and not place:
        raise UnknownEnvironmentError(f"env={env!r} names no module: write 'module:{name}' or 'file.py:{name}'")
    if not colon:
        return _registered(env)
    if place == "envpool":
        raise UnknownEnvironmentError(f"env={env!r}: an environment of EnvPool is written {NAMESPACE + name!r}")
    try:
        module = load_module(place)
    except NoSuchPlaceError as error:
        extra = None if place.endswith(".py") else extra_with(place)
        hint = f"; {place.partition('.')[0]} comes with {install_command(extra)}" if extra else ""
        raise UnknownEnvironmentError(f"env={env!r}: {error.args[0]}{hint}") from None
    if name in gymnasium.registry:
        return _registered(name)
    try:
        found = functools.reduce(getattr, name.split("."), module)
        if not is_own(place) and not (_is_environment(found) or name in _MAKERS):
            raise UntrustedCodeError(
                f"env={env!r} is named by a run that may have come from elsewhere, but is not an environment: an "
                "installed package gives one by a registered id, a class with reset and step, or a function called "
                f"{', '.join(_MAKERS)}. Look at it, then give --trust-code, in Python trust_code=True"
            )
        return found
    except AttributeError:
        lost = why_lost("env", env, f"--env file.py:{name}, in Python env=...")
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        known = [key for key in known if getattr(vars(module)[key], "__module__", None) == module.__name__] or known
        more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
        near = _closest(name, known) or f" It has {', '.join(known[:_SHOWN]) or 'nothing that can be called'}{more}."
        problem = f"{place} has no {name!r}, and registers no such id"
        raise UnknownEnvironmentError(lost or f"env={env!r}: {problem}.{near}") from None


def _is_environment(found: Any) -> bool:
    return isinstance(found, type) and all(callable(getattr(found, name, None)) for name in ("reset", "step"))


def _registered(env_id: str) -> RegisteredEnv:
    if env_id == NO_ENV:
        raise UnknownEnvironmentError(
            "the run was imported without an environment: give one with --env, in Python with env=..."
        )
    # Some packages register their games on import; others, such as MinAtar, have a function for it.
    for module, prefix in (("ale_py", ""), ("vizdoom.gymnasium_wrapper", "Vizdoom")):
        is_installed = importlib.util.find_spec(module.partition(".")[0]) is not None
        if is_installed and env_id not in gymnasium.registry and env_id.startswith(prefix):
            importlib.import_module(module)
    if env_id not in gymnasium.registry:
        for plugin in entry_points(group="gymnasium.envs", name=env_id.partition("/")[0]):
            plugin.load()()
    if env_id in gymnasium.registry:
        return gymnasium.registry[env_id]
    package = package_of_id(env_id)
    if package and importlib.util.find_spec(package) is None and (extra := extra_with(package)):
        raise UnknownEnvironmentError(f"env={env_id!r}: {needs(package, extra)}")
    raise UnknownEnvironmentError(
        f"env={env_id!r} is not a registered Gymnasium id.{_closest(env_id, list(gymnasium.registry))} An id that a "
        "package registers when it is imported is written 'package:Id'; your own class is 'module:Class' or "
        "'file.py:Class'"
    )


def _closest(name: str, known: list[str]) -> str:
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), list(by_lower), n=3)
    return f" Did you mean {' or '.join(repr(by_lower[match]) for match in close)}?" if close else ""


def _module_of_makers(env: Any) -> str:
    """Return the module of a PettingZoo constructor, as its environment's name; else ""."""
    place, _, name = env.rpartition(":") if isinstance(env, str) else ("", "", "")
    return re.split(r"[./]", place.removesuffix(".py"))[-1] if name in _MAKERS else ""


def _registrations() -> dict[str, bytes]:
    # A worker process does not import the script, or the packages that registered environments here. Each registration
    # is pickled alone, so that one that fails affects no other.
    travelling = {}
    for name, registration in gymnasium.registry.items():
        with contextlib.suppress(Exception):
            travelling[name] = packed(registration)
    return travelling


def _pickled(name: str, source: Any, kwargs: dict[str, Any]) -> Parcel:
    is_gymnasiums_own = isinstance(source, RegisteredEnv) and str(source.entry_point).startswith("gymnasium.")
    registrations = {} if source is None or is_gymnasiums_own else _registrations()
    try:
        return Parcel((source, kwargs, registrations))
    except Exception as error:
        raise ValueError(
            f"environment {name} cannot travel to worker processes: {error}. Create what cannot be pickled (files, "
            "locks, sockets) inside the callable"
        ) from error
