"""Contract of an environment, checked by Gymnasium's checker and by playing it with random legal actions.

Each stage of the check makes and closes the environment in a separate process.
"""

from __future__ import annotations

import re
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, redirect_stdout
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from penstock.config import ConfigError
from penstock.doctor import Check
from penstock.engine.backends.apart import NoAnswer, apart
from penstock.engine.preparation import note_of_flattening
from penstock.envs.factories import OUTSIDE
from penstock.envs.failures import FAILING, PROBED_LANE, EnvironmentFailure, EnvironmentUsageError
from penstock.envs.game_group import games_by_spaces
from penstock.envs.lanes import EpisodeRecord, Group, outline
from penstock.envs.making import Probed, construct, make_group, probe_all
from penstock.envs.spec import EnvSpec
from penstock.play.film import make_stage, picture_of
from penstock.process_state import kept_settings, left_threads, seed_generators
from penstock.self_play.fixed_opponents import RandomOpponent

STEPS, SECONDS = 3_000, 8.0  # of each of two plays, whichever ends it first
LIMIT = 60.0  # seconds of a stage
SEED = 7
_ALIKE = 3  # whole episodes of one length that look like a time limit
_LARGE_REWARD = 100.0
_THREAD_SECONDS = 2.0  # for threads to end after close()
_CONVERTED = "training converts it; for other programs, "  # advice about a finding that blocks no training
_MARKS = re.compile(r"^(?:\x1b\[[0-9;]*m)*WARN: |\x1b\[[0-9;]*m", re.MULTILINE)  # colours and level of a note
# Notes of Gymnasium's checker that do not matter to Penstock: it scales actions to their bounds, accepts unbounded
# numbers, and checks environments with the wrappers of training.
_SETTLED = ("recommend using a symmetric and normalized space", "infinity. This is probably", "unwrapped version")
_OPINION = "check_env of gymnasium.utils.env_checker says this: no training needs it unless another line fails"
_NO_ANSWER = "fix the environment: a training would stop in the same way; a slow environment needs a longer --timeout"

T = TypeVar("T")


def check_contract(env: EnvSpec, limit: float = LIMIT) -> list[Check]:
    """Return the findings about an environment, up to the first failed stage that others need.

    Parameters
    ----------
    env
        Environment; what it prints goes to standard error.
    limit
        Seconds after which a stage without an answer is ended and counts as failed. Without a launcher all stages run
        in this process, and none is ended.
    """
    stages = _Stages(env, limit)
    checks: list[Check] = []
    try:
        for check in _checks(env, stages):
            checks.append(check)
    except NoAnswer as failure:
        checks.append(Check(stages.name, "fail", failure.problem, _NO_ANSWER))
    return checks


@dataclass
class _Stages:
    """Calls with an environment, each in a separate process; `name` is that of the last one."""

    env: EnvSpec
    limit: float
    name: str = ""

    def call(self, name: str, function: Callable[..., T], *arguments: Any) -> T:
        self.name = name
        return apart(self.env.name, _quietly, function, *arguments, limit=self.limit)


def _quietly(function: Callable[..., T], *arguments: Any) -> T:
    with redirect_stdout(sys.stderr):
        return function(*arguments)


def _checks(env: EnvSpec, stages: _Stages) -> Iterator[Check]:
    """Yield the findings."""
    try:
        seen = stages.call("spaces", probe_all, env, games_by_spaces)
    except NoAnswer:
        raise
    except (EnvironmentUsageError, EnvironmentFailure) as error:
        yield Check("spaces", "fail", str(error), "fix the environment, or wrap it")
        return
    advice = "agents with different spaces need policies of their own" if len(seen) > 1 else ""
    for each in seen:
        agents = f"; {len(each.agents)} agents: {', '.join(each.agents)}" if each.agents else ""
        yield Check("spaces", "ok", f"observations {each.observation}; actions {each.action}{agents}", advice)
        notes = {"encoder": note_of_flattening("auto", each.observation), "mask": each.note_of_mask}
        yield from (Check(name, "warn", *note.split(": ", 1)) for name, note in notes.items() if note is not None)
    env = replace(env, mask_is_in_info=seen[0].mask_is_in_info)
    is_single = not env.is_vector and not seen[0].agents
    if is_single:
        yield stages.call("gymnasium", _by_gymnasium, env, seen[0])
    play, found = stages.call("episodes", _two_plays, env, is_single)
    if play.failure is not None:
        advice = "fix the environment, or wrap it: the same step fails in every training"
        yield Check("episodes", "fail", str(play.failure), advice)
        return
    resets = f"{len(play.episodes):,} reset after their end"
    yield Check("episodes", "ok", f"{len(play.rows) - 1:,} steps as a training makes them; {resets}")
    if play.values is not None:
        yield from _judge_values(play.values)
    yield from found
    yield _ends(play)
    yield _rewards(play)
    if env.kind != "atari":
        yield stages.call("rendering", _rendering, env)


@dataclass
class _Values:
    """Comparison of an environment's values with its spaces and with each other.

    Attributes
    ----------
    space
        Description of the observation space.
    limit
        Steps of the time limit that wrappers or the registered spec declare; None without one.
    is_random
        Whether the registered spec declares the environment nondeterministic.
    outside
        Description of the first observation outside of the space, and advice; None without one.
    changed
        Description of the first change of each info's shape, by key.
    odd_flag
        Description of the first end of an episode that is not a bool; None without one.
    """

    space: str
    limit: int | None
    is_random: bool
    outside: tuple[str, str] | None = None
    changed: dict[str, str] = field(default_factory=dict)
    odd_flag: str | None = None


@dataclass
class _Play:
    """Random legal actions in an environment, and the values that it returned.

    Attributes
    ----------
    rows
        Hashes of the observations, rewards and ends, for the first reset and each step.
    episodes
        Whole episodes.
    ends
        Number of episodes by "terminated" and "truncated".
    rewards
        Smallest and largest reward, and their sum.
    values
        Comparison of the values; None unless the environment is single.
    failure
        Failure that ended the play.
    """

    is_single: bool
    rows: list[tuple[int, ...]] = field(default_factory=list)
    episodes: list[EpisodeRecord] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    rewards: list[float] = field(default_factory=list)
    values: _Values | None = None
    failure: EnvironmentFailure | None = None

    def run(self, env: EnvSpec, steps: int, seconds: float, general_seed: int = 0) -> _Play:
        """Play for a number of steps or seconds; `general_seed` is that of the process's generators."""
        seed_generators(general_seed)
        end = time.monotonic() + seconds
        try:
            if self.is_single:
                env = env.wrapped([self._watched])
            count = 2 if env.is_vector else 1
            with closing(
                make_group(env, count, seed=SEED, first_lane=PROBED_LANE, worker_index=OUTSIDE, games=games_by_spaces)
            ) as group:
                opponents = [RandomOpponent(lanes, SEED) for lanes in group.lanes]
                group.reset()
                self._look(group)
                while len(self.rows) <= steps and time.monotonic() < end:
                    group.step([opponent.act() for opponent in opponents])
                    self._look(group)
        except EnvironmentFailure as failure:
            self.failure = failure
        return self

    def _watched(self, env: gymnasium.Env) -> _Watch:
        watch = _Watch(env)
        self.values = watch.values
        return watch

    def _look(self, group: Group) -> None:
        """Read what the last step, or reset, returned."""
        parts = []
        for lanes in group.lanes:
            obs = np.zeros((lanes.num_lanes, *lanes.observation.shape), lanes.observation.dtype)
            everyone = np.arange(lanes.num_lanes, dtype=np.int64)
            lanes.write_finals(obs, everyone[: len(lanes.finals)])
            lanes.write_observations(obs, everyone)
            parts.append([each.tobytes() for each in (obs, lanes.reward, lanes.terminated, lanes.truncated)])
            self.rewards += compress(lanes.reward.tolist(), lanes.valid.tolist())
            self.ends["terminated"] += int(lanes.terminated.sum())
            self.ends["truncated"] += int(lanes.truncated.sum())
            self.episodes += [episode for episode in lanes.take_episodes() if episode.length]
        self.rows.append(tuple(map(hash, zip(*parts, strict=True))))


class _Watch(gymnasium.Wrapper):
    """Wrapper that fills `_Values`."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        spec = getattr(env.unwrapped, "spec", None)
        limit = _limit_of(env) or getattr(spec, "max_episode_steps", None)
        self.values = _Values(str(env.observation_space), limit, bool(getattr(spec, "nondeterministic", False)))
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        answer = self.env.reset(seed=seed)
        if isinstance(answer, tuple) and len(answer) == 2:
            self._look(*answer, f"reset() after step {self._steps}" if self._steps else "the first reset()")
        return answer

    def step(self, action: Any) -> Any:
        answer = self.env.step(action)
        self._steps += 1
        if isinstance(answer, tuple) and len(answer) == 5:
            self._look(answer[0], answer[4], f"step {self._steps}")
            for name, value in zip(("terminated", "truncated"), answer[2:4], strict=True):
                if self.values.odd_flag is None and not isinstance(value, bool | np.bool_):
                    self.values.odd_flag = f"{name} in step {self._steps} is {outline(value)}"
        return answer

    def _look(self, observation: Any, info: Any, place: str) -> None:
        with warnings.catch_warnings(action="ignore"):
            if self.values.outside is None and not self.observation_space.contains(observation):
                found, advice = _why_outside(self.observation_space, observation)
                self.values.outside = f"{place} returned {found}", advice
        for key, value in info.items() if isinstance(info, Mapping) else ():
            shape = np.shape(value) if isinstance(value, np.ndarray | np.generic | int | float) else None
            if shape is not None and self._shapes.setdefault(key, shape) != shape:
                change = f"{key!r} of shape {self._shapes[key]} has shape {shape} in {place}"
                self.values.changed.setdefault(key, change)


def _limit_of(env: Any) -> int | None:
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            return int(env._max_episode_steps)
        env = env.env
    return None


def _judge_values(values: _Values) -> Iterator[Check]:
    """Yield the findings about observations, infos and flags."""
    if values.outside is None:
        yield Check("observations", "ok", f"within {values.space if len(values.space) < 80 else 'their space'}")
    else:
        yield Check("observations", "warn" if values.outside[1].startswith(_CONVERTED) else "fail", *values.outside)
    changed, advice = "; ".join(values.changed.values()), "pad it to one shape: datasets and vector lanes stack infos"
    yield Check("infos", "warn", changed, advice) if changed else Check("infos", "ok", "each value keeps its shape")
    if values.odd_flag is not None:
        yield Check("ends", "warn", f"not a bool: {values.odd_flag}", "return bool(...)")


def _why_outside(space: gymnasium.Space, value: Any, path: str = "observation") -> tuple[str, str]:
    """Describe an observation that lies outside of its space, and advise."""
    advice = "return observations of the space, or change the space"
    if isinstance(space, spaces.Dict) and isinstance(value, Mapping):
        if value.keys() != space.spaces.keys():
            return f"{path} with the keys {sorted(map(str, value))}, expected {sorted(map(str, space.spaces))}", advice
        wrong = next(key for key, part in space.spaces.items() if not part.contains(value[key]))
        return _why_outside(space.spaces[wrong], value[wrong], f"{path}[{wrong!r}]")
    if not isinstance(space, spaces.Box):
        return f"{path} {outline(value)}, expected one of {space}", advice
    array = np.asarray(value)
    if array.shape != space.shape:
        return f"{path} of shape {array.shape}, expected {space.shape}", advice
    if not np.can_cast(array.dtype, space.dtype):
        advice = f"{_CONVERTED if space.dtype.kind == 'f' else ''}return it with .astype(np.{space.dtype})"
        return f"{path} of dtype {array.dtype}, expected {space.dtype}", advice
    index = tuple(np.argwhere(~((array >= space.low) & (array <= space.high)))[0].tolist())
    bounds = f"[{space.low[index]:g}, {space.high[index]:g}]"
    found = f"{path}{list(index) if index else ''} = {array[index]:g}, expected a value within {bounds}"
    return found, "widen the bounds of the space, or clip the observation"


def _by_gymnasium(env: EnvSpec, seen: Probed) -> Check:
    """Run Gymnasium's checker."""
    if seen.observation.mask is not None:
        return Check("gymnasium", "ok", "its checker is not run: it would take actions that the mask forbids")
    source, kwargs = env.unpack()
    with (
        kept_settings(),
        closing(construct(source, kwargs, {"worker_index": OUTSIDE, "lane": PROBED_LANE, "seed": SEED})) as made,
        warnings.catch_warnings(record=True, action="always") as caught,  # after imports, which may warn, too
    ):
        try:
            check_env(made, skip_render_check=True, skip_close_check=True)
        except tuple(FAILING) as error:  # an AssertionError, or any error of the environment
            name = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            return Check("gymnasium", "warn", f"{name}{error}".partition("\n")[0], _OPINION)
    notes = dict.fromkeys(_MARKS.sub("", str(each.message)) for each in caught)
    if said := [note for note in notes if not any(words in note for words in _SETTLED)]:
        return Check("gymnasium", "warn", " ".join(said), _OPINION)
    return Check("gymnasium", "ok", "its checker finds nothing")


def _two_plays(env: EnvSpec, is_single: bool) -> tuple[_Play, list[Check]]:
    """Play twice in one process, which lanes of a rollout worker also share; return no findings after a failure."""
    before = threading.enumerate()
    play = _Play(is_single).run(env, STEPS, SECONDS)
    if play.failure is not None:
        return play, []
    left = ", ".join(left_threads(before, _THREAD_SECONDS))
    threads = [Check("threads", "warn", f"still running after close(): {left}", "end them in close()")] if left else []
    return play, [_seeds(env, play), *threads]


def _seeds(env: EnvSpec, play: _Play) -> Check:
    """Compare a second play with the same seed and actions."""
    if play.values is not None and play.values.is_random:
        return Check("seeds", "ok", "the environment is declared nondeterministic")
    again = _Play(is_single=False).run(env, len(play.rows) - 1, 2 * SECONDS, general_seed=1)
    if again.failure is not None:
        return Check("seeds", "fail", f"only a second environment fails: {again.failure}", "look for shared state")
    pairs = enumerate(zip(play.rows, again.rows, strict=False))
    step, difference = next(((number, pair) for number, pair in pairs if pair[0] != pair[1]), (None, None))
    if difference is None:
        return Check("seeds", "ok", f"the same seed and actions give the same {len(again.rows) - 1:,} steps")
    parts = zip(("observation", "reward", "end", "end"), *difference, strict=True)
    what = next(name for name, one, other in parts if one != other)
    place = f"step {step}" if step else "the first reset"
    return Check(
        "seeds", "fail", f"with the same seed and actions, the {what} of {place} differs",
        "draw from self.np_random, which super().reset(seed=seed) seeds, and from no global generator; if it is random "
        "by design, register it with nondeterministic=True",
    )  # fmt: skip


def _ends(play: _Play) -> Check:
    """Judge ends of episodes, and the time limit."""
    steps, lengths = len(play.rows) - 1, [episode.length for episode in play.episodes]
    limit, known = (play.values.limit, "declared") if play.values is not None else (None, "known")
    if not lengths:
        found = f"none of {steps:,} steps ended an episode"
        if limit:
            return Check("time limit", "ok", f"{found}; the time limit is {limit:,} steps")
        advice = "bound episodes with gymnasium.wrappers.TimeLimit, or evaluations with eval_max_steps"
        return Check("time limit", "warn", f"{found}, and no time limit is {known}", advice)
    terminated, truncated = play.ends["terminated"], play.ends["truncated"]
    span = " to ".join(f"{each:,}" for each in sorted({min(lengths), max(lengths)}))
    found = f"{len(lengths)} episodes of {span} steps: {terminated} terminated, {truncated} truncated"
    found += f"; the time limit is {limit:,}" if limit else ""
    if not truncated and len(lengths) >= _ALIKE and len(set(lengths)) == 1 and lengths[0] > 1:
        return Check(
            "time limit", "warn", f"every episode terminated after {lengths[0]:,} steps",
            "if that is a time limit, return truncated=True instead: after a termination, the learner counts all "
            "later rewards as 0",
        )  # fmt: skip
    if not truncated and limit is None:
        advice = "if a good policy may play forever: gymnasium.wrappers.TimeLimit, and eval_max_steps for evaluations"
        return Check("time limit", "ok", f"{found}; no time limit is {known}", advice)
    return Check("time limit", "ok", found)


def _rewards(play: _Play) -> Check:
    least, most = min(play.rewards), max(play.rewards)
    found = f"finite, from {least:g} to {most:g}, mean {np.mean(play.rewards):.3g}"
    if least == most == 0.0:
        advice = "learning needs rewards: reward partial success, or start near the goal (see It does not learn)"
        return Check("rewards", "warn", f"none in {len(play.rewards):,} steps of random actions", advice)
    advice = "large rewards slow learning: reward_scale brings them near 1"
    return Check("rewards", "ok", found, advice if max(-least, most) > _LARGE_REWARD else "")


def _rendering(env: EnvSpec) -> Check:
    """Draw a picture, if the environment declares that it can."""
    try:
        with closing(make_stage(env, SEED, draws=False)) as stage:
            declared = list((getattr(stage, "metadata", None) or {}).get("render_modes", []))
        if "rgb_array" not in declared:
            advice = "for videos: metadata['render_modes'] with 'rgb_array', and a render() of uint8 [H, W, 3]"
            return Check("rendering", "ok", f"render modes: {', '.join(map(str, declared)) or 'none'}", advice)
        with closing(make_stage(env, SEED)) as stage:
            stage.reset(seed=SEED)
            height, width, _ = picture_of(stage, env.name).shape
    except ConfigError as error:
        causes = [error.__cause__, getattr(error.__cause__, "__cause__", None)]
        is_missing = any(isinstance(each, ImportError | gymnasium.error.DependencyNotInstalled) for each in causes)
        if is_missing or "vector environments" in str(error):
            return Check("rendering", "ok", f"no videos: {error}")
        return Check("rendering", "fail", str(error), "draw in every declared mode, or leave it out of render_modes")
    return Check("rendering", "ok", f"render modes: {', '.join(declared)}; pictures of {width} x {height}")
