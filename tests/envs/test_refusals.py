"""What cannot be trained on is refused in one line: what was found, what is legal, what to do."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from penstock.envs import EnvironmentFailure, EnvSpec, UnknownEnvironmentError, UnsupportedSpaceError
from penstock.envs.failures import EnvironmentUsageError
from penstock.envs.making import probe
from penstock.extras import extra_with
from tests.envs.faulty import FaultyEnv

since_it_moved = pytest.mark.skipif(
    not callable(gymnasium.registry["Ant-v2"].entry_point), reason="Gymnasium before 1.2 asks for MuJoCo first"
)

class Bare(gymnasium.Env):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.zeros(2, np.float32), {}


class WithoutActions(Bare):
    observation_space = spaces.Box(-1, 1, (2,), np.float32)


class OldReset(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self) -> Any:  # type: ignore[override]
        return np.zeros(2, np.float32)


class OldGym:
    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self) -> Any:
        return np.zeros(2, np.float32)

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 0.0, False, {}


class Passing(FaultyEnv):
    def __init__(self, size: int = 3, **others: Any) -> None:
        super().__init__(**others)


def nothing() -> None:
    return None


@pytest.mark.parametrize(
    ("env", "env_kwargs", "kind", "message"),
    [
        (Bare, {}, UnsupportedSpaceError, "env='Bare': Bare has no observation_space: set it in __init__"),
        (WithoutActions, {}, UnsupportedSpaceError, "WithoutActions has no action_space: set it in __init__"),
        (OldReset, {}, EnvironmentUsageError, "takes no seed, as in old Gym. In Gymnasium reset(self, *"),
        (OldGym, {}, EnvironmentUsageError, "expected a gymnasium.Env, found an OldGym: derive it from gymnasium.Env"),
        (nothing, {}, EnvironmentUsageError, "found None: a factory returns a new environment each time"),
        (
            "CartPole-v1", {"sutton_barto_rewards": True}, EnvironmentUsageError,
            "env='CartPole-v1': env_kwargs: 'sutton_barto_rewards' is not an argument of it: did you mean "
            "'sutton_barto_reward'? legal are sutton_barto_reward, render_mode",
        ),
        (Passing, {"closed": 1}, EnvironmentUsageError, "'closed' is not an argument of it: legal are size, space, r"),
        pytest.param(
            "Ant-v2", {}, UnknownEnvironmentError, "moved to the gymnasium-robotics project", marks=since_it_moved
        ),
        pytest.param("Ant-v2", {}, UnknownEnvironmentError, "Newest of its kind: 'Ant-v5'", marks=since_it_moved),
    ],
)  # fmt: skip
def test_an_environment_that_cannot_be_used_says_why_without_a_traceback(env, env_kwargs, kind, message) -> None:
    with pytest.raises(kind) as refusal:
        probe(EnvSpec.resolve(env, env_kwargs))
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value) and refusal.value.__cause__ is None


@pytest.mark.parametrize(
    ("env", "module", "package"),
    [
        ("Ant-v5", "mujoco", "mujoco"), ("LunarLander-v3", "Box2D", "box2d"), ("phys2d/CartPole-v1", "jax", "jax"),
        ("ALE/Pong-v5", "ale_py", "atari"), ("VizdoomBasic-v1", "vizdoom", "vizdoom"),
        ("MiniGrid-Empty-5x5-v0", "minigrid", "minigrid"), ("BabyAI-OneRoomS8-v0", "minigrid", "minigrid"),
        ("MinAtar/Breakout-v1", "minatar", "minatar"), ("highway-fast-v0", "highway_env", "highway"),
        ("FetchReach-v4", "gymnasium_robotics", "robotics"), ("dm_control/walker-walk-v0", "shimmy", "dmcontrol"),
        ("Foraging-8x8-2p-2f-coop-v3", "lbforaging", "lbforaging"), ("EnvPool/Pong-v5", "envpool", "envpool"),
        ("lbforaging:Foraging-8x8-2p-2f-coop-v3", "lbforaging", "lbforaging"),
        ("mpe2.simple_spread_v3:parallel_env", "mpe2", "mpe2"),
    ],
)  # fmt: skip
def test_every_family_whose_package_is_missing_names_the_extra_that_brings_it(
    env, module, package, monkeypatch: pytest.MonkeyPatch
) -> None:
    if extra_with(module) is None:
        pytest.skip("the metadata of the installed package is older than pyproject.toml")
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == module else find(name, *rest))
    monkeypatch.setitem(sys.modules, module, None)
    own = {name: each for name, each in gymnasium.registry.items() if "gymnasium." in str(each.entry_point)}
    monkeypatch.setattr(gymnasium, "registry", own)
    with pytest.raises(UnknownEnvironmentError) as refusal:
        probe(EnvSpec.resolve(env))
    assert f"pip install 'penstock[{package}]'" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_exception_of_the_users_own_shows_where_it_was_raised_and_none_of_penstocks_frames() -> None:
    def factory() -> gymnasium.Env:
        return FaultyEnv(space=spaces.Box(1, 2, (None,)))  # type: ignore[arg-type]

    with pytest.raises(EnvironmentFailure) as failure:
        probe(EnvSpec.resolve(factory))
    assert str(failure.value).startswith("environment factory failed in make: Traceback (most recent call last):")
    assert "test_refusals.py" in str(failure.value) and "penstock/envs/" not in str(failure.value)


def test_a_close_that_raises_names_the_environment() -> None:
    with pytest.raises(EnvironmentFailure, match=r"^environment FaultyEnv failed in close: (.|\n)*OSError: gone$"):
        probe(EnvSpec.resolve(FaultyEnv, {"close_error": OSError("gone")}))
