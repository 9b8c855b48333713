"""No algorithm is another under a second name, and no setting of any is without effect."""

import ast
import dataclasses
import itertools
from functools import cache
from pathlib import Path

import pytest
import torch

import penstock
from penstock.algorithms import ALGORITHMS, load_algorithm
from penstock.algorithms.a2c import A2C
from penstock.algorithms.a3c import A3C
from penstock.algorithms.appo import APPO
from penstock.algorithms.impala import IMPALA
from penstock.algorithms.ppo import PPO
from tests.algorithms.batches import B, T, collect, gradients, make, make_model

POLICY_GRADIENT = [PPO, APPO, A2C, IMPALA, A3C]


def first_update(algorithm):
    """Gradient of an algorithm's first update from a batch that an older policy has collected, as one vector."""
    model = make_model(algorithm)
    batch = collect(algorithm, model)
    # Ratios within the bounds of both PPO and APPO, within those of PPO alone (1 / 1.2 > 0.82 > 0.8), and outside.
    lag = torch.tensor([-0.5, -0.2, 0.1, 0.6]).repeat(T * B // 4)[torch.randperm(T * B, generator=generator())]
    batch.log_prob = batch.log_prob - lag.view(T, B)
    algorithm.prepare(model, batch)
    update = next(iter(algorithm.minibatches(batch, generator())))
    return torch.cat([g.flatten() for g in gradients(algorithm.evaluate(model, update)[0], model).values()])


def generator():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("minibatches", [1, 2])
def test_from_the_same_old_experience_every_algorithm_makes_another_update(minibatches):
    size = T * B // minibatches
    settings = {
        PPO: {"batch_size": size, "gae_lambda": 1.0},
        APPO: {"batch_size": size, "num_minibatches": minibatches, "gae_lambda": 1.0},
    }
    found = {algorithm: first_update(make(algorithm, **settings.get(algorithm, {}))) for algorithm in POLICY_GRADIENT}
    for one, two in itertools.combinations(POLICY_GRADIENT, 2):
        distance = (found[one] - found[two]).norm() / found[two].norm()
        assert distance > 0.01, f"{one.__name__} is {two.__name__}"


# --- settings --------------------------------------------------------------------------------------------------------

ROOT = Path(penstock.__file__).parent
CONFIGS = {"c", "config", "_config"}  # what a config is called where it is read


@cache
def settings_read():
    """Names of settings that penstock's code reads outside their check: of a config, or by a list of names."""
    found = set()
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text())
        found |= set(_read(tree, within_config=False))
    return found


def _read(node, within_config):
    if isinstance(node, ast.ClassDef):
        within_config = node.name.endswith("Config")
    elif isinstance(node, ast.FunctionDef):
        if node.name == "validate":
            return
        if any(isinstance(n, ast.Name) and n.id == "getattr" for n in ast.walk(node)):
            yield from (n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "self.config.get":  # of a run's config.json
        yield ast.literal_eval(node.args[0])
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", None)
        if owner in CONFIGS or (within_config and owner == "self"):
            yield node.attr
    for child in ast.iter_child_nodes(node):
        yield from _read(child, within_config)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_setting_is_read_by_more_than_its_check(name):
    fields = {field.name for field in dataclasses.fields(load_algorithm(name).Config)}
    assert fields - settings_read() == set()
