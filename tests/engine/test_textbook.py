"""The serial engine is the textbook algorithm, step for step.

Beside it runs a plain loop: act with the newest weights, step, store, and from ``learning_starts`` steps on update, as
often as ``updates_per_step`` says. It shares with the engine only what is drawn at random: the first weights, the seed
of the environment, the noise behind actions, which rows a batch is made of, and the noise of the target policy.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import penstock
from penstock.envs.columns import NoiseStreams
from penstock.envs.making import lane_seed
from penstock.replay import Field, ReplayBuffer

pytestmark = pytest.mark.usefixtures("one_thread")
SEED, BATCH, GAMMA, RATE = 5, 16, 0.97, 3e-3
SERIAL: dict[str, Any] = {
    "num_workers": 1, "num_envs_per_worker": 1, "backend": "serial", "hidden_sizes": (16,), "activation": "tanh",
    "batch_size": BATCH, "gamma": GAMMA, "learning_rate": RATE, "seed": SEED, "total_steps": 1_000, "eval_interval": 0,
    "run_dir": None,
}  # fmt: skip
Weights = dict[str, Tensor]


# --- the textbook ----------------------------------------------------------------------------------------------------


class TextbookDQN:
    """DQN over a network of one hidden layer."""

    noise = "uniform"
    settings: ClassVar[dict[str, Any]] = {
        "exploration_steps": 150, "exploration_final": 0.1, "target_period": 7, "max_grad_norm": 0.5,
        "n_step": 1, "learning_rate_schedule": "constant", "normalize_returns": False,
    }  # fmt: skip

    def __init__(self, weights: Weights, learning_starts: int, double: bool = False) -> None:
        self.double = double
        self.q = nn.Sequential(
            linear(weights["encoder.0.weight"], weights["encoder.0.bias"]), nn.Tanh(),
            linear(weights["head.weight"], weights["head.bias"]),
        )  # fmt: skip
        self.target = copy.deepcopy(self.q)
        self.optimizer = torch.optim.Adam(self.q.parameters(), RATE)
        self.updates = 0

    def act(self, obs: np.ndarray, noise: np.ndarray, steps: int) -> np.ndarray:
        epsilon = max(0.1, 1.0 - 0.9 * steps / 150)
        q = self.q(torch.from_numpy(obs))
        return np.int64(2 * noise.item() / epsilon if noise.item() < epsilon else q.argmax())

    def decode(self, action: np.ndarray) -> Any:
        return action

    def learn(self, obs: Tensor, action: Tensor, reward: Tensor, discount: Tensor, next_obs: Tensor) -> None:
        with torch.no_grad():
            chooser = self.q if self.double else self.target
            best = chooser(next_obs).argmax(1, keepdim=True)
            y = reward + discount * self.target(next_obs).gather(1, best).squeeze(1)
        loss = 0.5 * mse_loss(self.q(obs).gather(1, action.unsqueeze(1)).squeeze(1), y)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.q.parameters(), 0.5)
        self.optimizer.step()
        self.updates += 1
        if self.updates % 7 == 0:
            self.target.load_state_dict(self.q.state_dict())

    def weights(self) -> Weights:
        hidden, _, head = self.q
        return copied({"encoder.0.weight": hidden.weight, "encoder.0.bias": hidden.bias, "head.weight": head.weight,
                       "head.bias": head.bias})  # fmt: skip


class TextbookTD3:
    """TD3 over networks of one hidden layer, for actions in [-2, 2]."""

    noise = "normal"
    settings: ClassVar[dict[str, Any]] = {"exploration_noise": 0.2, "tau": 0.05}

    def __init__(self, weights: Weights, learning_starts: int) -> None:
        self.learning_starts = learning_starts
        self.actor = nn.Sequential(
            linear(weights["encoder.0.weight"], weights["encoder.0.bias"]), nn.Tanh(),
            linear(weights["actor_head.weight"], weights["actor_head.bias"]), nn.Tanh(),
        )  # fmt: skip
        layers = [(weights[f"critics.{name}.weight"], weights[f"critics.{name}.bias"]) for name in ("hidden.0", "head")]
        self.critics = nn.ModuleList(
            nn.Sequential(*(layer for w, b in layers for layer in (linear(w[i].T, b[i, 0]), nn.Tanh())))[:-1]
            for i in range(2)
        )
        self.target_actor, self.target_critics = copy.deepcopy(self.actor), copy.deepcopy(self.critics)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), RATE)
        self.critic_optimizer = torch.optim.Adam(self.critics.parameters(), RATE)
        self.generator = torch.Generator().manual_seed(SEED)
        self.updates = 0

    def act(self, obs: np.ndarray, noise: np.ndarray, steps: int) -> np.ndarray:
        normal = torch.from_numpy(noise)
        if steps < self.learning_starts:
            return (2.0 * torch.distributions.Normal(0.0, 1.0).cdf(normal) - 1.0).numpy()
        return (self.actor(torch.from_numpy(obs)) + 0.2 * normal).clamp(-1.0, 1.0).numpy()

    def decode(self, action: np.ndarray) -> Any:
        return 2.0 * action

    def learn(self, obs: Tensor, action: Tensor, reward: Tensor, discount: Tensor, next_obs: Tensor) -> None:
        with torch.no_grad():
            noise = (0.2 * torch.randn(action.shape, generator=self.generator)).clamp(-0.5, 0.5)
            next_action = (self.target_actor(next_obs) + noise).clamp(-1.0, 1.0)
            y = reward + discount * torch.minimum(*(q(next_obs, next_action) for q in self.both(self.target_critics)))
        loss = sum(mse_loss(q(obs, action), y) for q in self.both(self.critics))
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()
        self.updates += 1
        if self.updates % 2 == 0:
            first, _ = self.both(self.critics)
            self.actor_optimizer.zero_grad()
            (-first(obs, self.actor(obs)).mean()).backward()
            self.actor_optimizer.step()
            for target, online in ((self.target_actor, self.actor), (self.target_critics, self.critics)):
                for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                    slow.data.copy_(0.05 * fast + 0.95 * slow)

    def both(self, critics: nn.ModuleList) -> list[Any]:
        return [lambda o, a, critic=critic: critic(torch.cat((o, a), 1)).squeeze(1) for critic in critics]

    def weights(self) -> Weights:
        found = {"encoder.0": self.actor[0], "actor_head": self.actor[2]}
        named = {f"{name}.{part}": getattr(layer, part) for name, layer in found.items() for part in ("weight", "bias")}
        for name, place in (("hidden.0", 0), ("head", 2)):
            layers = [critic[place] for critic in self.critics]
            named[f"critics.{name}.weight"] = torch.stack([layer.weight.T for layer in layers])
            named[f"critics.{name}.bias"] = torch.stack([layer.bias.unsqueeze(0) for layer in layers])
        return copied(named)


def linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer


def copied(weights: Weights) -> Weights:
    return {name: tensor.detach().clone() for name, tensor in weights.items()}


def play(agent: Any, env: gymnasium.Env, num_steps: int, learning_starts: int, ratio: float) -> list[Weights]:
    """The weights after each update; the first ones are made after `learning_starts` steps, `ratio` for each step."""
    noise = NoiseStreams(agent.noise, 1, range(1), seed=SEED, incarnation=0)
    dice = ReplayBuffer(num_steps, {"step": Field((), "int64")}, seed=SEED)
    memory: list[tuple[Any, ...]] = []
    history = []
    obs, _ = env.reset(seed=lane_seed(SEED, 0, 0))
    for steps in range(num_steps):
        with torch.no_grad():
            action = agent.act(obs, noise.draw()[0], steps)
        next_obs, reward, terminated, truncated, _ = env.step(agent.decode(action))
        memory.append((obs, action, np.float32(reward), np.float32(0.0 if terminated else GAMMA), next_obs))
        dice.add(step=steps)
        obs = next_obs
        if terminated or truncated:
            obs, _ = env.reset()
            if not terminated:
                noise.draw()  # the engine's lane asks for an action at the final observation too, and ignores it
        due = max(1.0, ratio) + ratio * (steps + 1 - learning_starts)
        while steps + 1 >= learning_starts and len(history) + 1 <= due:
            rows = [memory[i] for i in dice.sample(BATCH)["ids"]]
            agent.learn(*(torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True)))
            history.append(agent.weights())
    return history


# --- beside the engine -----------------------------------------------------------------------------------------------


def assert_equal_weights(
    engine: Any, textbook: Any, env: str, num_steps: int, *, episode: int, learning_starts: int = 40,
    ratio: float = 1.0, **settings: Any,
) -> None:  # fmt: skip
    """Train the engine and the textbook on the same steps; both must end with the same weights.

    Sums of products may be taken in another order, so that weights agree to rounding, not to the last bit.
    """
    with engine(
        env=env, env_kwargs={"max_episode_steps": episode}, learning_starts=learning_starts,
        updates_per_step=ratio, **SERIAL, **textbook.settings, **settings,
    ) as trainer:  # fmt: skip
        first = trainer.get_parameters()[0]
        trainer.train(num_steps, quiet=True)
        found, updates = trainer.get_parameters()[0], trainer.status.updates
    agent = textbook(first, learning_starts, **settings)
    history = play(agent, gymnasium.make(env, max_episode_steps=episode), num_steps, learning_starts, ratio)
    assert 0 <= len(history) - updates <= max(1, ratio), "the goal may be reached before the last step's updates"
    expected = history[updates - 1]
    assert found.keys() == expected.keys()
    assert all((found[name] - first[name]).abs().max() > 0.01 for name in found), "there was something to learn"
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-5, atol=5e-6, msg=name)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("ratio", [1.0, 0.25])
def test_dqn_is_the_textbooks(ratio, double):
    assert_equal_weights(penstock.DQN, TextbookDQN, "CartPole-v1", 200, episode=500, ratio=ratio, double=double)


def test_dqn_is_the_textbooks_with_several_updates_for_each_step():
    assert_equal_weights(penstock.DQN, TextbookDQN, "CartPole-v1", 200, episode=500, ratio=2.0)


def test_td3_is_the_textbooks():
    assert_equal_weights(penstock.TD3, TextbookTD3, "Pendulum-v1", 200, episode=500)


def test_dqn_is_the_textbooks_where_episodes_are_cut_off():
    assert_equal_weights(penstock.DQN, TextbookDQN, "CartPole-v1", 200, episode=11)


def test_td3_is_the_textbooks_where_episodes_are_cut_off():
    assert_equal_weights(penstock.TD3, TextbookTD3, "Pendulum-v1", 200, episode=50)
