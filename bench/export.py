"""Exported policies compared with `Policy.act`: largest difference, size, and time of one action.

    python bench/export.py
    python bench/export.py --only sac --sampled

Each row is a policy of an algorithm with a network, with random weights of the size of trained ones. Differences are
over 1,000 random observations, or with memory over 100 steps of 10 lanes, some of which begin episodes; file and
`Policy.act` carry on their own memories. Differences are relative for numbers beyond 1. "Other choices" counts discrete
actions that differ. Times are microseconds per call with one observation and one thread: the median of several rounds,
each the mean of its fastest calls.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from penstock.algorithms import load_algorithm
from penstock.config import make_config
from penstock.envs.translation import environment_specs
from penstock.export import ExportError, PolicyProgram
from penstock.export.contract import Arrays, Run, acted, apart_by, contract_of
from penstock.export.onnx import file_of, load
from penstock.nn.norms import BatchNorm
from penstock.nn.observations import RunningMoments
from penstock.play.policy import Policy, specs_to_json
from penstock.runs.checkpoint import save_checkpoint

ROWS = 1_000
STEPS, LANES = 100, 10

VECTOR = spaces.Box(-2.0, 2.0, (4,), np.float32)
UNBOUNDED = spaces.Box(-np.inf, np.inf, (6,), np.float64)
FRAMES = spaces.Box(0, 255, (4, 84, 84), np.uint8)
PICTURE = spaces.Box(0, 255, (20, 24, 3), np.uint8)
CARDS = spaces.MultiDiscrete([3, 4, 2], start=[1, 0, 5])
HAND = spaces.Dict(cards=CARDS, lamps=spaces.MultiBinary(5), room=spaces.Discrete(4, start=2))
ARM = spaces.Dict(angles=VECTOR, load=spaces.Box(0, 4_000, (), np.int32))
ROBOT = spaces.Dict(arm=ARM, camera=PICTURE, hand=HAND)
PAIR = spaces.Tuple((VECTOR, spaces.Box(np.array([0, 7]), np.array([3, 9]), dtype=np.uint16)))
MASKED = spaces.Dict(seen=VECTOR, action_mask=spaces.MultiBinary(9))
MOVES = spaces.Discrete(5, start=-2)
GRID = spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[0, 1], [2, 0]])
TORQUE = spaces.Box(np.float32([-2.0, 0.0, -np.inf]), np.float32([3.0, np.inf, np.inf]))
LEVER = spaces.Box(-1.0, 4.0, (2, 1), np.float32)
TREE = spaces.Tuple((spaces.Discrete(3, start=1), spaces.Dict(pull=LEVER, turn=spaces.Box(0, 100, (2,), np.int32))))
BUTTONS = spaces.Dict(a=spaces.MultiBinary((2, 2)), b=spaces.Discrete(5))


class OwnEncoder(nn.Module):
    """Encoder such as a user writes, with attention over the numbers of an observation."""

    def __init__(self, observation: Any) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm = nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.embed(x.unsqueeze(-1))
        mixed: torch.Tensor = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        return self.norm(tokens + mixed).mean(1)


@dataclass(frozen=True)
class Kind:
    """Policy of the table: an algorithm with a network."""

    algorithm: str
    network: str
    observation: spaces.Space
    action: spaces.Space
    settings: Mapping[str, Any] = field(default_factory=dict)
    mask_in_info: bool = False

    @property
    def name(self) -> str:
        return f"{self.algorithm}, {self.network}"


KINDS = (
    Kind("ppo", "mlp", VECTOR, MOVES),
    Kind("a2c", "mlp, normalised", UNBOUNDED, MOVES, {"normalize_observations": True}),
    Kind("a3c", "lstm", VECTOR, MOVES, {"memory": "lstm", "memory_size": 32}),
    Kind("appo", "Nature CNN", FRAMES, MOVES),
    Kind("appo", "Nature CNN, gru", FRAMES, MOVES, {"memory": "gru", "memory_size": 32}),
    Kind("impala", "ResNet", PICTURE, MOVES, {"encoder": "impala_resnet"}),
    Kind("impact", "mlp, continuous", UNBOUNDED, TORQUE, {"normalize_observations": True}),
    Kind("clear", "lstm", VECTOR, MOVES, {"memory": "lstm", "memory_size": 32}),
    Kind("laser", "Dict", ROBOT, MOVES),
    Kind("ppo", "Dict, gru, mixed actions", ROBOT, TREE, {"memory": "gru", "memory_size": 32}),
    Kind("ppo", "Tuple, MultiDiscrete", PAIR, GRID),
    Kind("ppo", "choices seen", HAND, BUTTONS),
    Kind("ppo", "mask seen", MASKED, spaces.MultiDiscrete([4, 3, 2])),
    Kind("ppo", "mask in info, lstm", VECTOR, MOVES, {"memory": "lstm", "memory_size": 32}, mask_in_info=True),
    Kind("ppo", "Tuple actions", VECTOR, TREE, {"activation": "elu", "continuous_actions": "squashed"}),
    Kind("ppo", "own encoder", VECTOR, MOVES, {"encoder": OwnEncoder}),
    Kind("pqn", "mlp, layer norm", VECTOR, MOVES),
    Kind("dqn", "mlp", VECTOR, MOVES, {"dueling": True}),
    Kind("dqn", "Nature CNN", FRAMES, MOVES),
    Kind("dqn", "C51, mask in info", VECTOR, MOVES, {"distributional": "c51"}, mask_in_info=True),
    Kind("dqn", "quantile", VECTOR, MOVES, {"distributional": "quantile"}),
    Kind("dqn", "IQN", VECTOR, MOVES, {"distributional": "iqn"}),
    Kind("dqn", "IQN, noisy", VECTOR, MOVES, {"distributional": "iqn", "noisy": True}),
    Kind("dqn", "noisy, gru", VECTOR, MOVES, {"noisy": True, "dueling": True, "memory": "gru"}),
    Kind("rainbow", "mlp", VECTOR, MOVES),
    Kind("btr", "mlp", VECTOR, MOVES),
    Kind(
        "btr", "ResNet", FRAMES, MOVES,
        {"encoder": "impala_resnet", "resnet_width": 2, "resnet_pool": 6, "spectral_norm": True},
    ),
    Kind("apex", "Dict", ROBOT, MOVES),
    Kind("r2d2", "lstm", VECTOR, MOVES, {"rescale_values": True}),
    Kind("ddpg", "mlp", UNBOUNDED, LEVER),
    Kind("td3", "mlp, normalised", UNBOUNDED, LEVER, {"normalize_observations": True}),
    Kind("sac", "mlp", UNBOUNDED, LEVER),
    Kind("sac", "image", PICTURE, LEVER),
    Kind("tqc", "mlp, Dict", spaces.Dict(a=VECTOR, b=UNBOUNDED), LEVER),
    Kind("crossq", "mlp", UNBOUNDED, LEVER),
    Kind("flashsac", "residual", UNBOUNDED, LEVER),
    Kind("fasttd3", "mlp", UNBOUNDED, LEVER),
    Kind("xqc", "mlp", UNBOUNDED, LEVER),
    Kind("sac", "residual", UNBOUNDED, LEVER, {"network": "residual", "normalization": "layer", "unit_weights": True}),
    Kind("apexdpg", "mlp", UNBOUNDED, LEVER),
)  # fmt: skip
"""Every algorithm, and every kind of network, observation and action."""


def fresh_policy(kind: Kind, seed: int = 0) -> Policy:
    """Return a policy that has not been trained, with random weights of the size of trained ones."""
    algorithm_class = load_algorithm(kind.algorithm)
    config = make_config(algorithm_class.Config, {"env": "CartPole-v1", **kind.settings})
    algorithm = algorithm_class(config, *environment_specs(kind.observation, kind.action, kind.mask_in_info))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = algorithm.make_model()
        for name, parameter in model.named_parameters():
            if name == "policy_head.weight":
                parameter.mul_(100.0)  # PPO's policies begin nearly uniform
            elif parameter.ndim <= 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
        for module in model.modules():
            if isinstance(module, RunningMoments | BatchNorm):
                module.mean.normal_()
                module.var.uniform_(0.5, 2.0)
            if isinstance(module, RunningMoments):
                module.std.copy_(module.var.sqrt())
    meta = {"algorithm": kind.algorithm, "env": "CartPole-v1", "steps": 0, "mean_return": None}
    return Policy(algorithm, model, {**meta, "config": config.to_json()})


def save_fresh(path: Path, policy: Policy) -> Path:
    """Write a policy as a checkpoint, and return its path."""
    specs = specs_to_json(policy.algorithm.observation, policy.algorithm.action)
    return save_checkpoint(path, meta={**policy.meta, "specs": specs}, weights=policy.model.state_dict())


@dataclass
class Comparison:
    """Distance of a file from `Policy.act`.

    Attributes
    ----------
    difference
        Largest difference of real-valued outputs, relative beyond 1.
    other_choices, choices
        Integer outputs that differ, and all of them.
    """

    difference: float = 0.0
    other_choices: int = 0
    choices: int = 0

    def add(self, expected: Arrays, found: Arrays) -> None:
        """Add the outputs of one call."""
        for name, array in expected.items():
            assert array.shape == found[name].shape and array.dtype == found[name].dtype, name
            if array.dtype.kind == "f":
                self.difference = max(self.difference, float(apart_by(array, found[name]).max(initial=0.0)))
            else:
                self.choices += array.size
                self.other_choices += int((array != found[name]).sum())


def compared(policy: Policy, program: PolicyProgram, run: Run, rows: int = ROWS, steps: int = STEPS) -> Comparison:
    """Compare a file with `Policy.act` on random observations, with memory over steps with resets."""
    found = Comparison()
    if not policy.has_memory:
        inputs = arrays_of(program, rows, seed=99)
        found.add(acted(policy, inputs, program), run(inputs))
        return found
    state = other = np.zeros((LANES, policy.model.state_size), np.float32)
    random = np.random.default_rng(99)
    for step in range(steps):
        inputs = arrays_of(program, LANES, seed=step) | {"first": (random.random(LANES) < 0.1) | (step == 0)}
        expected = acted(policy, inputs | {"state_in": state}, program)
        answer = run(inputs | {"state_in": other})
        found.add(expected, answer)
        state, other = expected["state_out"], answer["state_out"]
    return found


def arrays_of(program: PolicyProgram, count: int, seed: int) -> Arrays:
    """Return random inputs of a program."""
    return {name: tensor.numpy() for name, tensor in program.examples(count, seed).items()}


def microseconds(call: Callable[[], object], rounds: int = 15, calls: int = 60) -> float:
    """Return the time of a call: the median over rounds of the fastest tenth's mean."""
    for _ in range(20):
        call()
    return statistics.median(_fastest(call, calls) for _ in range(rounds))


def _fastest(call: Callable[[], object], calls: int) -> float:
    times = []
    for _ in range(calls):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return 1e6 * statistics.mean(sorted(times)[: max(1, calls // 10)])


def row_of(kind: Kind, sampled: bool) -> tuple[str, ...]:
    """Return a row of the table."""
    policy = fresh_policy(kind)
    program = PolicyProgram(policy, sampled=sampled)
    try:
        data = file_of(program, contract_of(program, policy))
    except ExportError as error:
        return kind.algorithm, kind.network, f"refused: {error}"
    run = load(data, {})
    found = compared(policy, program, run)
    one = arrays_of(program, 1, seed=0)
    tensors = {name: torch.from_numpy(array) for name, array in one.items()}
    observed = {port.path: one[port.name][0] for port in program.inputs if port.name.startswith("obs")}
    mask = one["mask"][0] if "mask" in one else None
    spec = program.observation
    observation: Any = observed if spec.parts and "" not in observed else observed[""]
    if mask is not None and not spec.mask_is_in_info:
        observation, mask = {**observation, "action_mask": mask}, None
    state = policy.model.initial_state(1) if policy.has_memory else None

    with torch.inference_mode():
        times = [
            microseconds(lambda: run(one)),
            microseconds(lambda: program(tensors)),
            microseconds(lambda: policy.act(observation, state, not sampled, mask)),
        ]
    others = f"{found.other_choices} of {found.choices:,}" if found.choices else ""
    figures = f"{found.difference:.1e}", others, f"{len(data):,}", *(f"{each:.0f}" for each in times)
    return kind.algorithm, kind.network, *figures


def table(kinds: Iterator[Kind], sampled: bool) -> Iterator[str]:
    """Yield the lines of the table."""
    heads = ("algorithm", "network", "largest difference", "other choices", "bytes", "onnxruntime", "torch", "act")
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for kind in kinds:
        yield f"| {' | '.join(row_of(kind, sampled))} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="policies whose name contains this text")
    parser.add_argument("--sampled", action="store_true", help="sampled actions, with noise as an input")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for line in table((kind for kind in KINDS if asked.only in kind.name), asked.sampled):
        print(line, flush=True)


if __name__ == "__main__":
    main()
