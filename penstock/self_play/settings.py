"""Settings of self-play: their validation, and the games and lanes that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from penstock.config.checking import ConfigError, closest, find_object, require
from penstock.imports import place_of

RANDOM, BEST, OTHERS = "random", "best", "others"
"""Opponents of evaluations that need no code: uniform legal actions, the best weights evaluated so far, and the run's
other policies with their current weights."""


class SelfPlaySettings(Protocol):
    """Settings of a run that determine self-play, as in `penstock.config.Config`."""

    @property
    def opponents(self) -> str: ...

    @property
    def opponent_pool(self) -> int: ...

    @property
    def opponent_interval(self) -> int | None: ...

    @property
    def opponent_share(self) -> float: ...

    @property
    def eval_against(self) -> tuple[str | Callable[..., Any], ...]: ...

    @property
    def policy_names(self) -> list[str]: ...

    @property
    def team_reward(self) -> str: ...

    @property
    def pbt(self) -> str | None: ...

    @property
    def num_envs_per_worker(self) -> int: ...

    @property
    def num_groups(self) -> int | None: ...

    @property
    def num_agents(self) -> int | None: ...

    @property
    def total_steps(self) -> int: ...


def require_legal(config: SelfPlaySettings) -> None:
    """Raise `ConfigError` if a setting of self-play is illegal whatever the environment."""
    names = config.policy_names
    if config.opponents not in ("none", "past", *names):
        known = ["none", "past", *names]
        legal = "use 'none' or 'past'" + (f", or the name of a policy: {', '.join(names)}" if names else "")
        raise ConfigError(f"opponents={config.opponents!r} is not legal{closest(config.opponents, known)}; {legal}")
    require(config.opponent_pool > 0, "opponent_pool", config.opponent_pool, "more than 0")
    interval, share = config.opponent_interval, config.opponent_share
    require(interval is None or interval > 0, "opponent_interval", interval, "more than 0, or None")
    require(0.0 < share <= 1.0, "opponent_share", share, "more than 0, and at most 1 (opponents='none': no guests)")
    for opponent in config.eval_against:
        is_known = not isinstance(opponent, str) or opponent in (RANDOM, BEST, OTHERS) or ":" in opponent
        legal = 'opponents such as "random", "best", "others", "module:name" and "file.py:name"'
        require(is_known, "eval_against", config.eval_against, legal)
    against = [name_of(opponent) for opponent in config.eval_against]
    if doubled := [name for name in against if against.count(name) > 1]:
        raise ConfigError(f"eval_against has {doubled[0]!r} twice: results are listed by the names of opponents")
    if config.eval_against[:1] == (BEST,):
        raise ConfigError(
            f"eval_against={config.eval_against!r} begins with 'best', which changes during a run: the first opponent "
            "decides on target_return and the best weights; name another first, such as ('random', 'best')"
        )


def require_agents_for(config: SelfPlaySettings, agents: Sequence[str]) -> None:
    """Raise `ConfigError` if settings of self-play do not fit the environment's agents, or an opponent is unknown.

    Parameters
    ----------
    config
        Settings of the run.
    agents
        Names of the agents; empty if the environment has only one.
    """
    has_guests = config.opponents != "none"
    if not has_guests and not config.eval_against:
        return
    name = f"opponents={config.opponents!r}" if has_guests else f"eval_against={config.eval_against!r}"
    if len(agents) < 2:
        raise ConfigError(f"{name}: the environment has one agent, and opponents need an environment of several")
    has_several = len(config.policy_names) > 1
    if has_guests and config.pbt is not None:
        raise ConfigError(f"{name}: policies of a population copy each other, and have no guests: leave this out")
    if has_guests:
        _require_games_for_all(config, name)
    if OTHERS in config.eval_against and not has_several:
        raise ConfigError(f"{name}: {OTHERS!r} are the other policies of the run, and it has only one: leave it out")
    if config.team_reward != "own" and not has_several:
        raise ConfigError(
            f"{name}: with team_reward={config.team_reward!r} all agents share their rewards, so that there is nobody "
            "to win against: use team_reward='own'"
        )
    for place in config.eval_against:
        found = place if not isinstance(place, str) or ":" not in place else find_object(place, "eval_against")
        if not isinstance(found, str) and not callable(found):
            raise ConfigError(f"eval_against={place!r} is a {type(found).__name__}: name a class or a function")


def with_absolute_paths(opponents: Sequence[str | Callable[..., Any]]) -> tuple[str | Callable[..., Any], ...]:
    """Return opponents of ``eval_against`` whose files are found from any working directory."""
    return tuple(place_of(each) if isinstance(each, str) else each for each in opponents)


def name_of(opponent: str | Callable[..., Any]) -> str:
    """Return the name of an opponent of ``eval_against`` in results; for "module:name", the name of the object."""
    if isinstance(opponent, str):
        return opponent.rpartition(":")[2]
    return str(getattr(opponent, "__qualname__", type(opponent).__name__))


def games_with_guests(config: SelfPlaySettings) -> int:
    """Return the number of environments of each rollout worker in which guests play, equal in each group."""
    if config.opponents == "none":
        return 0
    groups = config.num_groups or 1
    return groups * max(_cycle(config), round(config.opponent_share * config.num_envs_per_worker / groups))


def learner_of(config: SelfPlaySettings, game: int) -> int:
    """Return the number of the policy that learns in one of a group's games with past versions: policies alternate."""
    return game % _cycle(config)


def is_guest(config: SelfPlaySettings, policy: str, game: int) -> bool:
    """Whether guests play the agents of a policy, one of several, in one of a group's games with guests."""
    if config.opponents == "past":
        return config.policy_names.index(policy) != learner_of(config, game)
    return policy == config.opponents


def envs_of(config: SelfPlaySettings, policy: str) -> int:
    """Return the number of environments of each rollout worker in which a policy, one of several, learns."""
    groups = config.num_groups or 1
    taken = groups * sum(is_guest(config, policy, game) for game in range(games_with_guests(config) // groups))
    return config.num_envs_per_worker - taken


def splits_in_two(config: SelfPlaySettings) -> bool:
    """Whether a worker's games can be split into two equal groups, if the number of groups is not set."""
    return config.num_envs_per_worker % 2 == games_with_guests(config) % (2 * _cycle(config)) == 0


def lanes_without(config: SelfPlaySettings) -> int:
    """Return the number of lanes of each rollout worker that a run's only policy does not learn from."""
    is_alone = config.opponents == "past" and len(config.policy_names) < 2
    return games_with_guests(config) * ((config.num_agents or 1) - 1) if is_alone else 0


def lanes_without_in_words(config: SelfPlaySettings) -> str:
    """Return `lanes_without` in words, to be appended to the product that it is subtracted from; "" for none."""
    count = lanes_without(config)
    return f", less {count} guests in each" if count else ""


def _cycle(config: SelfPlaySettings) -> int:
    """Return the number of a group's games in which each policy learns once."""
    return max(1, len(config.policy_names)) if config.opponents == "past" else 1


def _require_games_for_all(config: SelfPlaySettings, name: str) -> None:
    """Raise `ConfigError` if a policy would learn in no game, or in none against past versions of all others."""
    groups, envs, least = config.num_groups or 1, config.num_envs_per_worker, _cycle(config)
    if games_with_guests(config) > envs:
        each = "" if groups == 1 else f" of each of {groups} groups"
        raise ConfigError(
            f"{name}: each of {least} policies needs an environment{each} in which guests play all others, and "
            f"num_envs_per_worker={envs} is too few: use {groups * least} or more"
        )
    if config.opponents != "past" and games_with_guests(config) == envs:
        raise ConfigError(
            f"{name}: with opponent_share={config.opponent_share} and num_envs_per_worker={envs}, it is a guest in all "
            "environments, and would learn nothing: use a smaller opponent_share, or more environments"
        )


def entry_interval(config: SelfPlaySettings) -> int:
    """Return the number of steps between two entries of versions into the pool."""
    return config.opponent_interval or max(1, config.total_steps // 20)
