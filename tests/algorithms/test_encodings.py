"""The same facts in many encodings: what an environment declares decides how a network sees it."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

import penstock
from penstock.cli import main

LENGTH = 20
FAR = 10**6


class Recall(gymnasium.Env):
    """Each observation holds two random bits; the action that they are the number of is worth 1. Chance is 5 of 20."""

    action_space = Discrete(4)

    def __init__(self, encoding):
        self.observation_space, self.encode = ENCODINGS[encoding]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.shown(), {}

    def shown(self):
        self.bits = self.np_random.integers(2, size=2)
        return self.encode(self.bits)

    def step(self, action):
        reward = float(action == 2 * self.bits[0] + self.bits[1])
        self.time += 1
        return self.shown(), reward, False, self.time == LENGTH, {}


def box(low, high, dtype):
    """Two numbers: the lower bound, or the upper one."""
    return Box(low, high, (2,), dtype), lambda bits: np.where(bits, high, low).astype(dtype)


ENCODINGS = {
    "float32": box(0, 1, np.float32),
    "uint8": box(0, 1, np.uint8),
    "bytes": box(0, 255, np.uint8),
    "int8": box(0, 1, np.int8),
    "bool": box(0, 1, np.bool_),
    "int32": box(0, 4_000, np.int32),
    "int64, from afar": box(FAR, FAR + 1, np.int64),
    "uint16, each bounded by itself": (
        Box(np.array([0, 7]), np.array([3, 9]), dtype=np.uint16),
        lambda bits: np.where(bits, [3, 9], [0, 7]).astype(np.uint16),
    ),
    "MultiBinary": (MultiBinary(2), lambda bits: bits.astype(np.int8)),
    "Discrete": (Discrete(4, start=3), lambda bits: 3 + 2 * bits[0] + bits[1]),
    "MultiDiscrete": (MultiDiscrete([2, 2]), lambda bits: bits),
    "Dict": (
        Dict(a=Box(0, 1, (1,), np.uint8), b=Box(-FAR, FAR, (), np.int64)),
        lambda bits: {"a": bits[:1].astype(np.uint8), "b": np.array(FAR if bits[1] else -FAR)},
    ),
}
AS_FLOATS = [name for name in ENCODINGS if name not in ("float32", "Discrete", "MultiDiscrete", "Dict")]


def trained(encoding, steps, **settings):
    return penstock.PPO(
        env=Recall, env_kwargs={"encoding": encoding}, backend="serial", num_workers=1, num_envs_per_worker=8,
        segment_length=16, batch_size=128, num_epochs=4, gamma=0.0, learning_rate=0.01, hidden_sizes=(16,),
        total_steps=steps, eval_interval=0, seed=1, **{"run_dir": None, **settings},
    )  # fmt: skip


@pytest.mark.parametrize("encoding", ["uint8", "Discrete", "MultiDiscrete", "Dict"])
def test_the_same_facts_are_learned_in_every_encoding(encoding):
    with trained(encoding, 3_000) as algo:
        algo.train(quiet=True)
        assert algo.evaluate(10).mean_return == LENGTH


def test_integers_of_all_kinds_teach_what_floats_from_0_to_1_teach():
    """Scaled by their bounds they are the same numbers, and so are the weights."""
    found = {}
    for encoding in ("float32", *AS_FLOATS):
        with trained(encoding, 256, normalize_observations=False) as algo:
            algo.train(quiet=True)
            found[encoding] = algo.get_parameters()[0]
    for encoding in AS_FLOATS:
        for name, weight in found["float32"].items():
            torch.testing.assert_close(found[encoding][name], weight, rtol=0.0, atol=1e-5, msg=f"{encoding}: {name}")


def test_a_run_goes_on_with_the_bounds_that_it_has_learned_with(tmp_path, monkeypatch, capsys):
    with trained("int32", 128, run_dir=tmp_path / "run", checkpoint_interval=None) as algo:
        algo.train(quiet=True)
        algo.save(tmp_path / "policy")
    assert "x / 4,000" in (tmp_path / "run" / "log.txt").read_text()
    assert main(["info", str(tmp_path / "policy")]) == 0
    about = capsys.readouterr().out
    assert "  sees: int32 (2,), x / 4,000\n" in about and "; encoder: MLP\n" in about
    wider = Box(0, 100_000, (2,), np.int32)
    monkeypatch.setitem(ENCODINGS, "int32", (wider, ENCODINGS["int32"][1]))
    assert penstock.load_policy(tmp_path / "policy").model.input.describe() == {"": "x / 4,000"}
    with penstock.PPO.resume(tmp_path / "run", total_steps=256, env=Recall) as algo:
        algo.train(quiet=True)
    assert (tmp_path / "run" / "log.txt").read_text().count("sees the observation: x / 4,000") == 2
