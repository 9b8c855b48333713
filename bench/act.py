"""Microseconds per action at batch size 1, of a policy and of its exported files.

    python bench/act.py [--rounds 20] [--calls 500] [--networks mlp gru] [--write]

An untrained PPO policy of CartPole-v1 with two layers of 64, and one with a GRU of 128 after them, choose the most
probable action of one observation, in turns: ``policy.act``; the same network in plain torch; the ONNX file in
onnxruntime; the C file, compiled with -O2, through ctypes and within C; layers by hand in NumPy; and ``predict`` of
Stable-Baselines3's PPO with layers of the same widths. All use one thread. ``--write`` replaces the rows of the group
in bench/history/current.jsonl.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import penstock
from penstock.runs.machine import describe, machine_facts

HISTORY = Path(__file__).parent / "history" / "current.jsonl"
GROUP = "One action at batch 1, microseconds"
WARM_UP = 200  # calls
LOOP = """
void act_often(const float *observation, int64_t *action, int n)
{
    while (n--)
        policy_act(observation, action);
}
"""
NETWORKS: dict[str, dict[str, Any]] = {"mlp": {}, "gru": {"memory": "gru", "memory_size": 128}}
IN_WORDS = {"mlp": "MLP 64x64", "gru": "MLP 64x64 and GRU 128"}
OBSERVATION = np.array([0.01, -0.02, 0.03, 0.04], np.float32)

Act = Callable[[], Any]


def policy_of(network: str, folder: Path) -> Any:
    """Return an untrained policy of CartPole-v1, saved and loaded."""
    with penstock.PPO("CartPole-v1", backend="serial", run_dir=None, **NETWORKS[network]) as algo:
        algo.save(folder / network)
    return penstock.load_policy(folder / network)


def ways(network: str, folder: Path) -> Iterator[tuple[str, Act, int]]:
    """Yield name, function and number of actions in one call of each way to act."""
    policy = policy_of(network, folder)
    if policy.has_memory:
        _, state = policy.act(OBSERVATION)
        yield "policy.act", lambda: policy.act(OBSERVATION, state), 1
    else:
        yield "policy.act", lambda: policy.act(OBSERVATION), 1
    yield "plain torch", plain_torch(policy), 1
    yield "onnxruntime", onnxruntime_session(policy, folder / f"{network}.onnx"), 1
    if not policy.has_memory:
        yield from compiled(policy, folder)
        yield "NumPy by hand", by_hand(policy), 1
        if (predict := stable_baselines3()) is not None:
            yield "Stable-Baselines3 predict", predict, 1


def plain_torch(policy: Any) -> Act:
    """Return a call of the same layers made of torch's modules, from array to number."""
    model = policy.model
    activation = torch.nn.Tanh()
    encoder = torch.nn.Sequential(*(m if isinstance(m, torch.nn.Linear) else activation for m in model.encoder))

    if not policy.has_memory:
        @torch.inference_mode()
        def act() -> int:
            return int(model.policy_head(encoder(torch.from_numpy(OBSERVATION))).argmax())

        return act
    cell = torch.nn.GRUCell(64, 128)
    state = torch.zeros(1, 128)

    @torch.inference_mode()
    def remember() -> int:
        features = cell(encoder(torch.from_numpy(OBSERVATION).unsqueeze(0)), state)
        return int(model.policy_head(features).argmax())

    return remember


def onnxruntime_session(policy: Any, file: Path) -> Act:
    """Return a call of the ONNX file in onnxruntime, on one thread."""
    import onnxruntime

    policy.export(file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options)
    given = {"obs": OBSERVATION[None]}
    if policy.has_memory:
        given |= {"state_in": policy.model.initial_state(1).numpy(), "first": np.zeros(1, bool)}
    return lambda: session.run(["action"], given)[0].item()


def compiled(policy: Any, folder: Path) -> Iterator[tuple[str, Act, int]]:
    """Yield calls of the C file: one action through ctypes, and 100 within C."""
    source, library = folder / "policy.c", folder / "policy.so"
    policy.export(source)
    looped = folder / "looped.c"
    looped.write_text(f'#include "{source.name}"{LOOP}')
    subprocess.run(["cc", "-std=c99", "-O2", "-shared", "-fPIC", looped, "-o", library, "-lm"], check=True)
    functions = ctypes.CDLL(str(library))
    observation = np.ascontiguousarray(OBSERVATION)
    action = (ctypes.c_int64 * 1)()
    address = ctypes.c_void_p(observation.ctypes.data)

    def once() -> int:
        functions.policy_act(address, action)
        return action[0]

    yield "C through ctypes", once, 1
    yield "C within C", lambda: functions.act_often(address, action, 100), 100


def by_hand(policy: Any) -> Act:
    """Return a call of the layers as NumPy's products."""
    model = policy.model
    layers = [m for m in model.encoder if isinstance(m, torch.nn.Linear)] + [model.policy_head]
    *hidden, (weight, bias) = [(m.weight.detach().numpy(), m.bias.detach().numpy()) for m in layers]

    def act() -> int:
        x = OBSERVATION
        for w, b in hidden:
            x = np.tanh(w @ x + b)
        return int((weight @ x + bias).argmax())

    return act


def stable_baselines3() -> Act | None:
    """Return a call of `predict` of PPO with the same widths; None if the library is missing."""
    try:
        from stable_baselines3 import PPO
    except ImportError:
        return None
    model = PPO("MlpPolicy", gym.make("CartPole-v1"), device="cpu", policy_kwargs={"net_arch": [64, 64]})
    return lambda: model.predict(OBSERVATION, deterministic=True)


def measured(found: list[tuple[str, Act, int]], rounds: int, calls: int) -> dict[str, list[float]]:
    """Return the microseconds per action of every call, by way; the ways take turns."""
    times = defaultdict[str, list[float]](list)
    for _, act, _ in found:
        for _ in range(WARM_UP):
            act()
    for number in range(rounds):
        for name, act, actions in found if number % 2 == 0 else reversed(found):
            for _ in range(calls if actions == 1 else max(1, calls // 10)):
                began = time.perf_counter_ns()
                act()
                times[name].append((time.perf_counter_ns() - began) / 1_000 / actions)
    return times


def record(network: str, name: str, times: list[float], act: float, facts: dict[str, Any], given: Any) -> dict:
    """Return a row of the history: median, 10th and 90th percentile, beside ``policy.act``."""
    low, high = (round(float(np.percentile(times, q)), 2) for q in (10, 90))
    value = round(statistics.median(times), 2)
    against = None if name == "policy.act" else {"what": "policy.act", "value": act, "ratio": round(value / act, 3)}
    return {
        "group": GROUP, "mark": f"act-{network}-{name.lower().replace(' ', '-')}",
        "what": f"{IN_WORDS[network]}: {name}",
        "value": value, "unit": "us", "spread": {"lowest": low, "highest": high}, "against": against, "target": None,
        "met": None, "machine": f"{facts['cpu']}, {facts['cores']:g} cores, load {facts['load']:.1f}",
        "commit": (facts["commit"] or "").removesuffix("-dirty"), "rounds": given.rounds, "seeds": None,
        "date": datetime.date.today().isoformat(),
        "command": f"python bench/act.py --rounds {given.rounds} --calls {given.calls}",
    }  # fmt: skip


def main() -> None:
    """Measure and print, or store."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--rounds", type=int, default=20, help="turns of each way")
    flags.add_argument("--calls", type=int, default=500, help="calls in a turn")
    flags.add_argument("--networks", nargs="*", choices=list(NETWORKS), default=list(NETWORKS))
    flags.add_argument("--write", action="store_true", help="store the figures in bench/history/current.jsonl")
    given = flags.parse_args()
    torch.set_num_threads(1)
    facts, records = machine_facts(), []
    print(describe(facts))
    print(f"{'network':24}{'way':28}{'median us':>10}{'90 %':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for network in given.networks:
            times = measured(list(ways(network, Path(folder))), given.rounds, given.calls)
            act = round(statistics.median(times["policy.act"]), 2)
            for name, values in times.items():
                row = record(network, name, values, act, facts, given)
                print(f"{IN_WORDS[network]:24}{name:28}{row['value']:10.2f}{row['spread']['highest']:10.2f}")
                records.append(row)
    if given.write:
        lines = HISTORY.read_text().splitlines()
        marks = {row["mark"] for row in records}
        kept = [line for line in lines if json.loads(line)["mark"] not in marks]
        HISTORY.write_text("".join(f"{line}\n" for line in [*kept, *map(json.dumps, records)]))


if __name__ == "__main__":
    main()
