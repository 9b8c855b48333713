"""Recording of played episodes as a Minari dataset: observations and actions in the environment's own form."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import concatenate, create_empty_array

from penstock.config import ConfigError
from penstock.envs.failures import UnsupportedSpaceError
from penstock.envs.spec import EnvSpec
from penstock.play.film import AleScreen
from penstock.runs.files import why_unwritable

_NAME = re.compile(r"[-\w]+-v\d+")
_ROOT = "MINARI_DATASETS_PATH"


@dataclass
class Episode:
    """Steps of one episode.

    Attributes
    ----------
    seed
        Seed of its reset; None: the environment's generator was not reseeded.
    observations
        T + 1 observations, the first and the last one included.
    actions, rewards, terminated, truncated
        T values each.
    """

    seed: int | None
    observations: list[Any]
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminated: list[bool] = field(default_factory=list)
    truncated: list[bool] = field(default_factory=list)


class RecordedEnv(gymnasium.Wrapper):
    """Wrapper that keeps the running episode and the last whole one.

    Attributes
    ----------
    running, ended
        The two episodes; None before there is one.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.running: Episode | None = None
        self.ended: Episode | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset, and begin an episode."""
        answer = self.env.reset(seed=seed, options=options) if options else self.env.reset(seed=seed)
        self.running = Episode(seed, [deepcopy(answer[0])])
        return answer

    def step(self, action: Any) -> Any:
        """Step, and add the step to the episode."""
        taken = deepcopy(action)
        answer = self.env.step(action)
        observation, reward, terminated, truncated, _ = answer
        assert self.running is not None, "step() before reset()"
        self.running.observations.append(deepcopy(observation))
        self.running.actions.append(taken)
        self.running.rewards.append(float(reward))
        self.running.terminated.append(bool(terminated))
        self.running.truncated.append(bool(truncated) and not terminated)
        if terminated or truncated:
            self.ended = self.running
        return answer


class EpisodeRecorder:
    """Writer of episodes into a new Minari dataset, which appears when it is complete.

    Images are stored without loss. Infos are not stored.

    Parameters
    ----------
    directory
        Directory of the dataset, which must not exist. Its name is that of a Minari dataset, such as "cartpole-v0".
        The data are in its folder ``data``, where `minari.load_dataset` expects them.

    Raises
    ------
    ConfigError
        The extra "minari" is not installed, the directory exists or cannot be created, or its name is not that of a
        dataset.
    """

    def __init__(self, directory: str) -> None:
        try:
            import h5py  # noqa: F401  (Minari writes with it)
            from minari.dataset.minari_storage import MinariStorage
        except ImportError as error:
            raise ConfigError(f"a dataset needs the extra minari: pip install 'penstock[minari]' ({error})") from None
        self._new: Callable[..., Any] = MinariStorage.new
        self._directory = Path(directory).absolute()
        if not _NAME.fullmatch(self._directory.name):
            raise ConfigError(
                f"record={directory!r} is not legal: the directory needs the name of a Minari dataset, NAME-vNUMBER, "
                "such as datasets/cartpole-v0"
            )
        if os.path.lexists(self._directory):
            raise ConfigError(f"record={directory!r} exists: give a new name, such as the next version, or delete it")
        if reason := why_unwritable(self._directory):
            raise ConfigError(f"record={directory!r} cannot be written: {reason}")
        self._lanes: list[RecordedEnv] = []
        self._storage: Any = None
        self._aside: Path | None = None

    def __enter__(self) -> EpisodeRecorder:
        return self

    def __exit__(self, *error: object) -> None:
        """Delete a dataset that is not complete."""
        if self._aside is not None:
            shutil.rmtree(self._aside, ignore_errors=True)

    def around(self, env: EnvSpec) -> EnvSpec:
        """Return the environment with lanes that are recorded: single ones, also of an ALE game."""
        if env.kind == "atari":
            _, arguments = env.unpack()
            env = replace(env, kind="callable", vectorize="make", given=(AleScreen, {"arguments": arguments}))
        elif env.is_vector and env.kind != "gymnasium":
            raise ConfigError(
                f"{env.name} makes vector environments, which cannot be recorded: give a single one, with --env"
            )
        return replace(env, vectorize="make").wrapped([self._watch])

    def keep(self, lane: int, is_whole: bool) -> None:
        """Write the last whole episode of a lane, or the running one, which counts as truncated."""
        from minari.data_collector import EpisodeBuffer

        env = self._lanes[lane]
        episode = env.ended if is_whole else env.running
        assert episode is not None
        if not is_whole:
            episode = replace(episode, truncated=[*episode.truncated[:-1], True])
        if self._storage is None:
            self._storage = self._begin(env)
        with warnings.catch_warnings(action="ignore"):  # notes on metadata that finish() adds
            self._storage.update_episodes(
                [
                    EpisodeBuffer(
                        seed=episode.seed,
                        observations=_stacked(env.observation_space, episode.observations),
                        actions=_stacked(env.action_space, episode.actions),
                        rewards=episode.rewards,
                        terminations=episode.terminated,
                        truncations=episode.truncated,
                    )
                ]
            )

    def finish(self, *, algorithm: str, description: str, returns: tuple[float, float], episodes: int) -> None:
        """Complete the dataset and move it to its place.

        Parameters
        ----------
        algorithm, description
            Texts of the dataset's metadata.
        returns
            Mean returns of random actions and of the policy, as reference scores; left out if the policy is no better.
        episodes
            Number of episodes of each mean.
        """
        import minari

        lowest, highest = returns
        scores = {"ref_min_score": lowest, "ref_max_score": highest, "num_episodes_average_score": episodes}
        self._storage.update_metadata(
            {
                "dataset_id": self._name(), "minari_version": minari.__version__, "algorithm_name": algorithm,
                "description": description, **(scores if highest > lowest else {}),
            }
        )  # fmt: skip
        assert self._aside is not None
        os.rename(self._aside, self._directory)  # fails if another dataset was created there meanwhile
        self._aside = None

    def _watch(self, env: Any) -> RecordedEnv:
        if not isinstance(env, gymnasium.Env):
            raise UnsupportedSpaceError("episodes of several agents cannot be recorded: a Minari dataset has one agent")
        self._lanes.append(RecordedEnv(env))
        return self._lanes[-1]

    def _begin(self, env: RecordedEnv) -> Any:
        """Make the dataset next to its final place, with the spec of the environment if it can be written."""
        self._directory.parent.mkdir(parents=True, exist_ok=True)
        self._aside = Path(tempfile.mkdtemp(prefix=f".{self._directory.name}-", dir=self._directory.parent))
        self._aside.chmod(0o755)
        spec = env.env.spec
        try:
            spec = spec and gymnasium.envs.registration.EnvSpec.from_json(spec.to_json())
        except Exception:  # an argument or a wrapper that JSON cannot represent
            spec = None
        with warnings.catch_warnings(action="ignore"):  # notes on metadata that finish() adds
            return self._new(
                self._aside / "data", env.observation_space, env.action_space, spec, data_format="hdf5",
                jpeg_encoding=False,
            )  # fmt: skip

    def _name(self) -> str:
        """Return the dataset's name: its path below Minari's root, or that of the directory alone."""
        root = Path(os.environ.get(_ROOT) or "~/.minari/datasets").expanduser().absolute()
        is_below = self._directory.is_relative_to(root)
        return self._directory.relative_to(root).as_posix() if is_below else self._directory.name


def _stacked(space: gymnasium.Space, values: list[Any]) -> Any:
    """Stack values of a space along a new leading axis, also within its Dicts and Tuples."""
    empty: Any = create_empty_array(space, len(values), fn=np.empty)
    return concatenate(space, values, empty)
