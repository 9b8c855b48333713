"""Optional packages: the extras that the installed package declares, and their missing requirements.

The package's metadata is the only list of extras. The prefix of an environment id gives its package.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_PACKAGE = "penstock"

# Prefixes of environment ids, by the package that registers them; a missing package cannot be asked for its ids.
_IDS = {
    "ale_py": r"ALE/",
    "envpool": r"EnvPool/",
    "gymnasium_robotics": r"(Fetch|Hand(Reach|Manipulate)|AntMaze|PointMaze|Adroit|FrankaKitchen)",
    "highway_env": r"(highway|merge|roundabout|parking|intersection|racetrack|exit|two-way|u-turn)\b.*-v\d",
    "lbforaging": r"Foraging-",
    "minatar": r"MinAtar/",
    "minigrid": r"(MiniGrid|BabyAI)-",
    "shimmy": r"(dm_control|GymV2[16]Environment)",
    "vizdoom": r"Vizdoom",
}


def extras() -> dict[str, list[Requirement]]:
    """Return the requirements of each extra, except extras made of other extras; empty without metadata."""
    found: dict[str, list[Requirement]] = {}
    for requirement in _requirements(_PACKAGE):
        if match := re.search(r'extra == "([\w.-]+)"', str(requirement.marker)):
            found.setdefault(match[1], []).append(requirement)
    return {name: needed for name, needed in found.items() if all(each.name != _PACKAGE for each in needed)}


def missing_from(requirements: list[Requirement]) -> list[str]:
    """Return the unmet requirements as arguments of ``pip``, including those of their own extras."""
    return list(dict.fromkeys(text for each in requirements for text in _missing_of(each)))


def modules_of(requirements: list[Requirement]) -> list[str]:
    """Return the modules of the installed packages among these requirements."""
    packages = {_normalized(name) for each in requirements for name in _packages_of(each)}
    return sorted(
        module
        for module, owners in packages_distributions().items()
        if not module.startswith("_") and packages & set(map(_normalized, owners))
    )


def install_command(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install '{_PACKAGE}[{extra}]'"


def extra_with(module: str) -> str | None:
    """Return the extra that installs a module, given the module's or its package's name; None if there is none."""
    name, known = _normalized(module.partition(".")[0]), extras()
    if name in known:
        return name
    if name == "gymnasium":  # always installed: an extra only adds to it
        return None
    for extra, requirements in known.items():
        for each in requirements:
            if name in {_normalized(part) for part in (each.name, *each.extras)}:
                return extra
    return None


def package_of_id(env_id: str) -> str | None:
    """Return the module that registers environment ids with this id's prefix; None if unknown."""
    return next((module for module, pattern in _IDS.items() if re.match(pattern, env_id)), None)


def _missing_of(requirement: Requirement) -> list[str]:
    try:
        found = version(requirement.name)
    except PackageNotFoundError:
        return [f"{requirement.name}{requirement.specifier}"]
    missing = [] if requirement.specifier.contains(found, prereleases=True) else [
        f"{requirement.name}{requirement.specifier} (found {found})"
    ]  # fmt: skip
    return missing + missing_from(_of_its_extras(requirement))


def _packages_of(requirement: Requirement) -> list[str]:
    """Return the packages that a requirement's extras add, or its own if they add none."""
    others = [name for each in _of_its_extras(requirement) for name in _packages_of(each)]
    return others or [requirement.name]


def _of_its_extras(requirement: Requirement) -> list[Requirement]:
    """Return the requirements of a requirement's extras on this machine, such as those of "gymnasium[box2d]"."""
    each = _requirements(requirement.name) if requirement.extras else []
    return [
        one
        for one in each
        if one.marker is not None
        and not one.marker.evaluate({"extra": ""})
        and any(one.marker.evaluate({"extra": extra}) for extra in requirement.extras)
    ]


def _requirements(package: str) -> list[Requirement]:
    from packaging.requirements import Requirement  # slow to import, and needed only after an error

    try:
        return [Requirement(text) for text in requires(package) or []]
    except PackageNotFoundError:
        return []


def _normalized(name: str) -> str:
    """Return a package's name as PEP 503 normalizes it."""
    return re.sub(r"[-_.]+", "-", name).lower()
