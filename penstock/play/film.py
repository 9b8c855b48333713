"""Videos of a policy playing one episode, or one game with all its agents."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from fractions import Fraction
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from penstock.config import ConfigError
from penstock.envs.factories import OUTSIDE, requested
from penstock.envs.games import Game, game_of
from penstock.envs.making import construct
from penstock.envs.masks import MASK, forbids_all
from penstock.envs.spec import EnvSpec
from penstock.envs.statistics import RunningStatistics
from penstock.play.policy import Policy
from penstock.process_state import ProcessState, seed_generators
from penstock.runs.files import why_no_new_file

MAX_STEPS = 10_000
FILMED_LANE = 4_000_000  # outside the lanes of training, evaluation, scoring and probing
CONTAINERS = (".mp4", ".mkv", ".mov", ".gif")
ENLARGEMENT = 4  # ALE observations are small: a video shows each pixel as a square of this width
ALE_FRAMES_PER_SECOND = 60
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR")
QUICK_FRAMES_PER_SECOND = 30
GIF_FRAMES_PER_SECOND = 50  # a GIF counts in hundredths of a second, and browsers slow one hundredth down to ten


def film(
    policy: Policy, env: EnvSpec, path: str, *, deterministic: bool, seed: int,
    teammates: Mapping[str, Policy] | None = None, goes_on: Callable[[], bool] = lambda: True, is_quick: bool = False,
) -> None:  # fmt: skip
    """Play one episode or game, of at most MAX_STEPS steps, and film it as H.264 video or as GIF.

    The video of an ALE game shows the policy's view: the newest frame of each observation.

    Parameters
    ----------
    policy
        Policy that plays.
    env
        Environment to play; one single environment is made, whatever its `vectorize`.
    path
        New file, whose suffix selects the format: .mp4, .mkv, .mov or .gif.
    deterministic
        Whether to play the most probable actions instead of samples.
    seed
        Seed of the environment and the samples.
    teammates
        Policies of the agents, by agent; None: the policy plays all of them.
    goes_on
        Function called before every picture but the first; the video ends when it returns False.
    is_quick
        Whether to spare the machine: at most `QUICK_FRAMES_PER_SECOND`, with fast encoding in one thread.

    Raises
    ------
    ConfigError
        The extra "video" is not installed, the environment draws no pictures, or `path` exists or is not a legal file.
    """
    require_writable("video", path, "a video", CONTAINERS)
    require_packages()
    path = os.path.abspath(path)  # the environment may change the working directory
    with ProcessState().inside():
        seed_generators(seed % 2**32)
        with closing(make_stage(env, seed)) as stage:
            game = game_of(stage)
            played = (
                play(policy, stage, deterministic=deterministic, seed=seed)
                if game is None
                else play_game(
                    [(teammates or {}).get(agent, policy) for agent in game.agents], game,
                    deterministic=deterministic, seed=seed,
                )
            )
            first = next(picture_of(stage, env.name) for _ in played)  # before the file: it raises without pictures
            pace = _pictures_per_second(stage)
            stride = math.ceil(pace / QUICK_FRAMES_PER_SECOND) if is_quick else 1
            shown = islice(takewhile(lambda _: goes_on(), played), stride - 1, None, stride)
            pictures = (picture_of(stage, env.name) for _ in shown)
            Path(path).touch(exist_ok=False)
            try:
                _write(path, chain([first], pictures), pace / stride, is_quick=is_quick)
            except BaseException:
                Path(path).unlink(missing_ok=True)
                raise


def require_packages() -> None:
    """Raise `ConfigError` if the extra "video" is not installed."""
    try:
        import av  # noqa: F401
        import imageio.v3  # noqa: F401
    except ImportError:
        raise ConfigError("a video needs the packages imageio and av: pip install 'penstock[video]'") from None


def require_pictures(env: EnvSpec) -> None:
    """Raise `ConfigError` if an environment draws no pictures, by making one."""
    with closing(make_stage(env, 0)) as stage:
        if (game := game_of(stage)) is None:
            stage.reset(seed=0)
        else:
            game.reset(0)
        picture_of(stage, env.name)


def _write(path: str, pictures: Iterator[np.ndarray], pace: float, *, is_quick: bool) -> None:
    """Write pictures as a video, at `pace` pictures per second."""
    import av

    if path.endswith(".gif"):
        _write_gif(path, pictures, pace)
        return
    with av.open(path, "w") as video:
        stream = video.add_stream("libx264", Fraction(pace).limit_denominator(65_535))
        if is_quick:
            stream.codec_context.thread_count = 1
            stream.options = {"preset": "veryfast"}
        for number, picture in enumerate(pictures):
            if number == 0:  # the codec opens with the first picture
                stream.height, stream.width, _ = picture.shape
            video.mux(stream.encode(av.VideoFrame.from_ndarray(picture)))
        video.mux(stream.encode())


def _write_gif(path: str, pictures: Iterable[np.ndarray], pace: float) -> None:
    """Write pictures as a looping GIF, at `pace` pictures per second; beyond a GIF's limit, pictures are left out."""
    import imageio.v3 as imageio

    stride = math.ceil(pace / GIF_FRAMES_PER_SECOND)
    how: dict[str, Any] = {"is_batch": False, "bits": 8, "duration": 1000.0 * stride / pace, "loop": 0}
    with imageio.imopen(path, "w", plugin="pillow") as file:
        for picture in islice(pictures, 0, None, stride):
            file.write(picture, **how)


def play(policy: Policy, stage: gymnasium.Env, *, deterministic: bool, seed: int) -> Iterator[None]:
    """Play one episode; yield at every frame to show."""
    observation, info = stage.reset(seed=seed)
    yield
    state, has_mask = None, policy.algorithm.observation.mask_is_in_info
    for _ in range(MAX_STEPS):
        _, chosen, _, state = policy.choose(observation, state, deterministic, info[MASK] if has_mask else None)
        observation, _, terminated, truncated, info = stage.step(policy.decoded(chosen))
        yield
        if terminated or truncated:
            return


def play_game(policies: Sequence[Policy], game: Game, *, deterministic: bool, seed: int) -> Iterator[None]:
    """Play one game, each seat by its policy; yield at every frame to show."""
    seats = range(len(game.agents))
    turn, states, over = game.reset(seed), dict.fromkeys(seats), set[int]()
    yield
    for _ in range(MAX_STEPS):
        actions = {seat: policies[seat].idle_action for seat in seats} if game.is_simultaneous else {}
        for seat, (observation, info) in turn.asked.items():
            policy = policies[seat]
            spec = policy.algorithm.observation
            if game.is_simultaneous and forbids_all(spec, observation, info):
                continue
            mask = info[MASK] if spec.mask_is_in_info else None
            _, chosen, _, states[seat] = policy.choose(observation, states[seat], deterministic, mask)
            actions[seat] = policy.decoded(chosen)
        turn = game.step(actions)
        yield
        over |= turn.ended.keys()
        states |= dict.fromkeys(turn.ended)
        if turn.is_over or len(over) == len(seats):
            return


class AleScreen(gymnasium.Env):
    """ALE game that draws the player's observations.

    Parameters
    ----------
    arguments
        Result of `penstock.envs.atari.atari_arguments`.
    """

    render_mode = "rgb_array"

    def __init__(self, arguments: dict[str, Any]) -> None:
        from penstock.envs.atari import make_atari

        self._game = make_atari(arguments, num_lanes=1, num_threads=1)
        self.observation_space = self._game.single_observation_space
        self.action_space = self._game.single_action_space
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": ALE_FRAMES_PER_SECOND / arguments["frameskip"]}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Start a game."""
        observations, _ = self._game.reset(seed=None if seed is None else np.array([seed]))
        self._observation = observations[0]
        return self._observation, {}

    def step(self, action: np.integer) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Play one step."""
        observations, rewards, terminated, truncated, _ = self._game.step(np.array([action]))
        self._observation = observations[0]
        return self._observation, float(rewards[0]), bool(terminated[0]), bool(truncated[0]), {}

    def render(self) -> np.ndarray:
        """Draw the newest frame, grey or in colour, enlarged."""
        frame = self._observation[-1]
        colored = frame if frame.ndim == 3 else np.repeat(frame[..., None], 3, axis=2)
        return colored.repeat(ENLARGEMENT, axis=0).repeat(ENLARGEMENT, axis=1)

    def close(self) -> None:
        """Close the game."""
        self._game.close()


def require_writable(flag: str, path: str, what: str, endings: Sequence[str]) -> None:
    """Refuse a file that could not be written, before an episode is played.

    Parameters
    ----------
    flag, path
        Flag that names the file, and the file.
    what
        Kind of file, "a video" or "a plot".
    endings
        Legal suffixes.

    Raises
    ------
    ConfigError
        The suffix is not legal, the file exists, or its directory does not exist or cannot be written.
    """
    if Path(path).suffix not in endings:
        raise ConfigError(f"{flag}={path!r} is not legal: {what}'s name must end in one of {', '.join(endings)}")
    if reason := why_no_new_file(path):
        raise ConfigError(f"{flag}={path!r} cannot be written: {reason}")


def make_stage(env: EnvSpec, seed: int, *, draws: bool = True) -> gymnasium.Env:
    """Make a single environment for drawing, with the running statistics of its spec.

    Parameters
    ----------
    env, seed
        Environment, and seed passed to its factory.
    draws
        Whether it must draw pictures.

    Raises
    ------
    ConfigError
        The environment cannot draw, or is a vector environment.
    """
    stage = _make_stage(env, seed, draws=draws)
    if env.statistics is not None:
        RunningStatistics([stage], env.statistics)
    return stage


def _make_stage(env: EnvSpec, seed: int, *, draws: bool) -> gymnasium.Env:
    source, kwargs = env.unpack()
    if env.kind == "atari":
        return AleScreen(kwargs)
    if env.is_vector and env.kind != "gymnasium":
        raise ConfigError(f"{env.name} makes vector environments, which cannot be filmed: load the policy and draw one")
    values = {"worker_index": OUTSIDE, "lane": FILMED_LANE, "seed": seed}
    if not draws:
        made: gymnasium.Env = construct(source, kwargs, values)
        return made
    if not any(os.environ.get(name) for name in _DISPLAYS):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # SDL would print an error about the missing display
    drawing = {**kwargs, "render_mode": "rgb_array"}
    takes_mode = env.kind == "gymnasium" or _takes(source, requested(source, drawing, values))
    try:
        stage = construct(source, drawing if takes_mode else kwargs, values)
    except Exception as error:  # it was made without drawing before, so it is drawing that fails
        raise _cannot_draw(env.name, f"{type(error).__name__}: {error}") from error
    if (render_mode := getattr(stage, "render_mode", None)) != "rgb_array":
        legal = _metadata(stage).get("render_modes", [])
        stage.close()
        raise _cannot_draw(
            env.name, f"its render_mode is {render_mode!r}, and its metadata names the modes {legal}"
        )
    return stage


def _takes(source: Callable[..., Any], kwargs: dict[str, Any]) -> bool:
    try:
        inspect.signature(source).bind(**kwargs)
    except (TypeError, ValueError):
        return False
    return True


def picture_of(stage: gymnasium.Env, name: str) -> np.ndarray:
    """Return a rendered frame, uint8 ``[H, W, 3]`` with even H and W; raise `ConfigError` if there is none."""
    try:
        drawn = stage.render()
    except Exception as error:  # usually a missing package for drawing
        raise _cannot_draw(name, f"{type(error).__name__}: {error}") from error
    picture = np.asarray(drawn)
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
        found = f"{picture.dtype} of shape {picture.shape}" if isinstance(drawn, np.ndarray) else repr(drawn)
        raise _cannot_draw(name, f"render() must return uint8 [H, W, 3], found {found}")
    height, width, _ = picture.shape
    # H.264 halves the resolution of colours: both sides must be even.
    return np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")


def _pictures_per_second(stage: gymnasium.Env) -> float:
    return float(_metadata(stage).get("render_fps") or 30)


def _metadata(stage: gymnasium.Env) -> dict[str, Any]:
    return getattr(stage, "metadata", None) or {}


def _cannot_draw(name: str, problem: str) -> ConfigError:
    return ConfigError(
        f"{name} cannot be filmed: {problem}. A video needs an environment that accepts render_mode='rgb_array' "
        "and draws, and the packages that it draws with"
    )
