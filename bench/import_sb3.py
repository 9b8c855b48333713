"""Largest differences between models of Stable-Baselines3 and their runs converted by `penstock import-sb3`.

    python bench/import_sb3.py [MODEL ...] [--rows N]

Each model is trained briefly with its own library, saved, imported, and compared on observations of its environment:
actions without exploration, the parameters of the distribution of actions (logits, means and standard deviations in
the environment's units), and values (of observations, or of the actions of the model; relative where above 1). The
models:

    ppo, ppo-normalized (VecNormalize), ppo-continuous, ppo-cnn, ppo-cnn-wide (layers after the Nature CNN), ppo-binary,
    a2c, a2c-multi, dqn, dqn-cnn, sac, sac-normalized, sac-cnn, td3, td3-cnn

It needs the package stable-baselines3, which is in the extra "dev".
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from penstock.exchange import import_sb3
from penstock.play.policy import Policy, load_policy
from penstock.runs.formatting import drawn
from penstock.runs.machine import describe


class Toy(gymnasium.Env):
    """Random observations and rewards.

    Parameters
    ----------
    image
        Whether observations are images, uint8 ``[40, 44, 3]``; else three float32 numbers.
    action
        "numbers", "choices" or "bits".
    """

    def __init__(self, image: bool = False, action: str = "numbers") -> None:
        box = spaces.Box(0, 255, (40, 44, 3), np.uint8) if image else spaces.Box(-5.0, 80.0, (3,), np.float32)
        self.observation_space = box
        self.action_space = {
            "numbers": spaces.Box(np.float32([-0.3, -2.0]), np.float32([0.5, 2.0])),
            "choice": spaces.Discrete(4),
            "choices": spaces.MultiDiscrete([3, 2]),
            "bits": spaces.MultiBinary(3),
        }[action]
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self.observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return self.observation(), float(self.np_random.normal()), self._steps == 20, False, {}

    def observation(self) -> np.ndarray:
        space = self.observation_space
        high = space.high.astype(float) + (space.dtype == np.uint8)  # 256: bytes are rounded down
        return self.np_random.uniform(space.low, high).astype(space.dtype)


@dataclass(frozen=True)
class Case:
    """A model: its class, policy, environment and arguments."""

    algorithm: type[Any]
    env: str
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    policy: str = "MlpPolicy"
    is_normalized: bool = False
    steps: int = 256


TOY = f"{Path(__file__).resolve()}:Toy"
_ROLLOUT = {"n_steps": 64, "batch_size": 32}
_REPLAY = {"learning_starts": 20, "buffer_size": 300, "batch_size": 16}
_IMAGES = {"buffer_size": 100, "learning_starts": 20, "batch_size": 8}
CASES = {
    "ppo": Case(PPO, "CartPole-v1", arguments=_ROLLOUT),
    "ppo-normalized": Case(PPO, "CartPole-v1", arguments=_ROLLOUT, is_normalized=True),
    "ppo-continuous": Case(
        PPO, TOY, arguments={**_ROLLOUT, "policy_kwargs": {"net_arch": [32], "activation_fn": torch.nn.ELU}}
    ),
    "ppo-cnn": Case(PPO, TOY, {"image": True, "action": "choice"}, _ROLLOUT, "CnnPolicy", steps=64),
    "ppo-cnn-wide": Case(
        PPO, TOY, {"image": True}, {**_ROLLOUT, "policy_kwargs": {"net_arch": [32, 32]}}, "CnnPolicy", steps=64
    ),
    "ppo-binary": Case(PPO, TOY, {"action": "bits"}, _ROLLOUT),
    "a2c": Case(A2C, "Pendulum-v1"),
    "a2c-multi": Case(
        A2C, TOY, {"image": True, "action": "choices"},
        {"learning_rate": 1e-4, "policy_kwargs": {"net_arch": [16], "activation_fn": torch.nn.ReLU}}, steps=20,
    ),
    "dqn": Case(DQN, "CartPole-v1", arguments=_REPLAY),
    "dqn-cnn": Case(DQN, TOY, {"image": True, "action": "choice"}, _IMAGES, "CnnPolicy", steps=40),
    "sac": Case(SAC, "Pendulum-v1", arguments=_REPLAY, steps=60),
    "sac-normalized": Case(SAC, TOY, arguments=_REPLAY, is_normalized=True, steps=60),
    "sac-cnn": Case(SAC, TOY, {"image": True}, _IMAGES, "CnnPolicy", steps=28),
    "td3": Case(TD3, "Pendulum-v1", arguments=_REPLAY, steps=60),
    "td3-cnn": Case(TD3, TOY, {"image": True}, _IMAGES, "CnnPolicy", steps=28),
}


@dataclass(frozen=True)
class Trained:
    """A trained model, and its files."""

    case: Case
    model: Any
    path: Path
    normalization: Path | None
    vec_env: Any

    def observations(self, rows: int) -> np.ndarray:
        """Return observations of random play, ``[rows, ...]``."""
        env = made(self.case)
        env.action_space.seed(1)
        found, (row, _) = [], env.reset(seed=1)
        while len(found) < rows:
            found.append(row)
            row, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                row, _ = env.reset()
        return np.stack(found)


def made(case: Case) -> gymnasium.Env:
    """Make the environment of a case."""
    return Toy(**case.env_kwargs) if case.env == TOY else gymnasium.make(case.env, **case.env_kwargs)


def train(name: str, folder: Path) -> Trained:
    """Train a model briefly, and save it in a folder."""
    case = CASES[name]
    venv: Any = DummyVecEnv([lambda: made(case)])
    venv = VecNormalize(venv) if case.is_normalized else venv
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = case.algorithm(case.policy, venv, seed=1, device="cpu", **case.arguments)
        model.learn(case.steps)
    path, normalization = folder / f"{name}.zip", folder / f"{name}.pkl" if case.is_normalized else None
    model.save(path)
    if normalization is not None:
        venv.save(normalization)
        venv.training = False
    return Trained(case, model, path, normalization, venv)


def imported(trained: Trained, out: Path) -> Policy:
    """Import a model, and load the policy of the converted run."""
    case = trained.case
    import_sb3(
        trained.path, vec_normalize=trained.normalization, out=out, env=case.env, env_kwargs=case.env_kwargs
    )
    return load_policy(out, trust_code=True)


@torch.no_grad()
def differences(trained: Trained, policy: Policy, rows: int) -> dict[str, float]:
    """Return the largest differences over a number of observations: of actions, parameters and values."""
    observations = trained.observations(rows)
    seen = trained.vec_env.normalize_obs(observations) if trained.normalization else observations
    action, _ = trained.model.predict(seen, deterministic=True)
    own = policy.act(observations)
    obs, *_ = policy.choose(observations)
    choice, _ = policy.model.act(torch.from_numpy(obs), torch.ones(rows, dtype=torch.bool), torch.zeros(rows, 0))
    columns, _ = trained.model.policy.obs_to_tensor(seen)
    return {
        "actions": float(np.abs(np.asarray(own, np.float64) - np.asarray(action, np.float64)).max()),
        "parameters": _largest(_parameters(trained.model, columns), _own_parameters(policy, choice)),
        "values": _largest(*_values(trained.model, policy.model, columns, torch.from_numpy(obs)), relative=True),
    }


def _largest(theirs: list[torch.Tensor], ours: list[torch.Tensor], relative: bool = False) -> float:
    pairs = zip(theirs, ours, strict=True)
    return max(float(((a - b).abs() / (a.abs().clamp(min=1.0) if relative else 1.0)).max()) for a, b in pairs)


def _values(
    model: Any, network: Any, columns: torch.Tensor, obs: torch.Tensor
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the values of both: of observations, of all actions, or by each critic for the model's actions."""
    if isinstance(model, DQN):
        return [model.q_net(columns)], [network.q(obs)]
    if isinstance(model, PPO | A2C):
        return [model.policy.predict_values(columns).squeeze(-1)], [network.evaluate(obs)[1]]
    action = model.actor(columns, deterministic=True) if isinstance(model, SAC) else model.actor(columns)
    return [q.squeeze(-1) for q in model.critic(columns, action)], list(network.q(obs, action))


def _parameters(model: Any, observations: torch.Tensor) -> list[torch.Tensor]:
    """Return the parameters of a model's distribution, numbers in the environment's units."""
    if isinstance(model, DQN):
        return [model.q_net(observations)]
    if isinstance(model, TD3):
        return [model.actor(observations)]
    if isinstance(model, SAC):
        mean, log_std, _ = model.actor.get_action_dist_params(observations)
        return [mean, log_std]
    found = model.policy.get_distribution(observations).distribution
    if isinstance(found, list):
        return [torch.cat([each.logits for each in found], -1)]
    return [found.mean, found.stddev] if isinstance(found, torch.distributions.Normal) else [found.logits]


def _own_parameters(policy: Policy, choice: Any) -> list[torch.Tensor]:
    action = policy.algorithm.action
    kind: Callable[[Any], list[torch.Tensor]] = {
        "EpsilonGreedy": lambda c: [c.q],
        "Deterministic": lambda c: [c.action],
        "TanhGaussian": lambda c: [c.mean, c.log_std],
        "Categorical": lambda c: [c.log_probs],
        "MultiCategorical": lambda c: [_of_choices(c)],
        "DiagonalGaussian": lambda c: _in_units(c, action),
    }[type(choice).__name__]
    return kind(choice)


def _of_choices(choice: Any) -> torch.Tensor:
    """Return log-probabilities side by side; for bits, the logits of 1."""
    table = choice.table.log_probs
    if set(choice.nvec) == {2}:
        return table[..., 1] - table[..., 0]
    return torch.cat([table[..., row, :size] for row, size in enumerate(choice.nvec)], -1)


def _in_units(choice: Any, action: Any) -> list[torch.Tensor]:
    low, high = torch.tensor(action.low), torch.tensor(action.high)
    scale = (high - low) / 2
    return [choice.mean * scale + (low + high) / 2, choice.log_std.exp() * scale]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", choices=[[], *CASES], help="models, by default all")
    parser.add_argument("--rows", type=int, default=1000, help="observations of each")
    flags = parser.parse_args()
    heading = ("model", "network", "largest difference of actions", "of parameters", "of values")
    rows: list[tuple[str, ...]] = [heading]
    with tempfile.TemporaryDirectory() as folder:
        for name in flags.models or CASES:
            trained = train(name, Path(folder))
            policy = imported(trained, Path(folder) / name)
            config = policy.algorithm.config
            found = differences(trained, policy, flags.rows)
            network = f"{config.encoder}, {' x '.join(map(str, config.hidden_sizes)) or '-'}, {config.activation}"
            rows.append((name, network, *(f"{value:.1e}" for value in found.values())))
    print(describe())
    print(drawn(rows, markdown=True))


if __name__ == "__main__":
    main()
