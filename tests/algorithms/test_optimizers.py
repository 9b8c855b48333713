"""Optimisers without torch's preparations for compiling: the same updates, and no long imports before the first."""

import inspect
import pickle
import re
import subprocess
import sys

import pytest
import torch

from penstock.algorithms.arithmetic.optimizers import Adam, TorchRMSProp, fused_adam
from penstock.algorithms.arithmetic.rmsprop import RMSProp
from penstock.algorithms.bases.algorithm import clip_norm_
from penstock.nn import flatten_, joined_if_adjacent

TRAININGS = """
import sys
import penstock

for algorithm, env, steps in (("APPO", "CartPole-v1", 2000), ("A2C", "CartPole-v1", 500), ("TD3", "Pendulum-v1", 1100)):
    with getattr(penstock, algorithm)(env=env, backend="serial", run_dir=None, eval_interval=0) as algo:
        algo.train(steps, quiet=True)
        algo.save(f"{sys.argv[1]}/{algorithm}")
    print(algorithm, "torch._dynamo" in sys.modules)
assert "torch" in sys.modules
"""


@pytest.mark.long
def test_neither_training_nor_a_checkpoint_imports_what_compiles(tmp_path):
    command = [sys.executable, "-c", TRAININGS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(APPO|A2C|TD3) (\w+)$", done.stdout, re.MULTILINE) == [
        ("APPO", "False"), ("A2C", "False"), ("TD3", "False")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "torchs", "settings"),
    [
        (Adam, torch.optim.Adam, {"lr": 0.1, "fused": True}),
        (Adam, torch.optim.Adam, {"lr": 0.1, "amsgrad": True}),
        (TorchRMSProp, torch.optim.RMSprop, {"lr": 0.1, "centered": True}),
    ],
)
def test_the_updates_are_torchs_own_also_from_a_loaded_state(ours, torchs, settings):
    ends = []
    for kind in (ours, torchs):
        parameter = torch.nn.Parameter(torch.linspace(-1.0, 1.0, 7))
        optimizer = kind([parameter], **settings)
        for step in range(6):
            if step == 3:
                again = kind([parameter], **settings)
                again.load_state_dict(optimizer.state_dict())
                optimizer = again
            optimizer.zero_grad()
            (parameter.square() * torch.arange(7)).sum().backward()
            optimizer.step()
        assert torch.is_grad_enabled() and parameter.requires_grad
        ends.append(parameter.detach())
    torch.testing.assert_close(*ends, rtol=1e-6, atol=1e-6)


def test_it_is_one_of_torchs_optimizers_and_can_be_pickled():
    optimizer = fused_adam([torch.nn.Parameter(torch.zeros(3))], 0.5, eps=1e-3)
    assert isinstance(optimizer, torch.optim.Adam)
    group = pickle.loads(pickle.dumps(optimizer)).param_groups[0]
    assert group["fused"] and group["lr"] == 0.5 and group["eps"] == 1e-3


@pytest.mark.parametrize("kind", [Adam, TorchRMSProp, RMSProp])
def test_no_method_is_left_that_would_import_what_compiles(kind):
    """By the names that their code knows; that none was overlooked, the trainings above show."""
    names = [name for name in dir(kind) if not name.startswith("__") and inspect.isfunction(getattr(kind, name))]
    wrapper = inspect.getattr_static(torch.optim.Optimizer, "zero_grad").__code__
    wrapped = [name for name in names if getattr(torch.optim.Optimizer, name, kind.step).__code__ is wrapper]
    assert {"add_param_group", "zero_grad", "state_dict", "load_state_dict"} <= set(wrapped)
    assert not [name for name in names if getattr(kind, name).__code__ is wrapper]


@pytest.mark.parametrize("size", [1, 1_000, 40_000])
def test_adam_over_one_stretch_is_torchs_to_rounding(size):
    torch.manual_seed(0)
    mine, theirs = (torch.nn.Parameter(torch.linspace(-1.0, 1.0, size)) for _ in range(2))
    ours = fused_adam([mine], 1e-3, eps=1e-5, beta1=0.8)
    plain = torch.optim.Adam([theirs], 1e-3, (0.8, 0.999), 1e-5, fused=True)
    for number in range(6):
        mine.grad, theirs.grad = (torch.full_like(mine, number - 2.5).sin_() for _ in range(2))
        for optimizer in (ours, plain):
            optimizer.param_groups[0]["lr"] = 1e-3 / (number + 1)
            optimizer.step()
    torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)
    found, expected = (optimizer.state_dict()["state"][0] for optimizer in (ours, plain))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
    assert found["step"] == 6


def test_joined_gradients_and_separate_ones_make_the_same_update():
    def learned(is_joined):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16))
        if is_joined:
            flatten_(model)
        optimizer, trained = fused_adam(model.parameters(), 0.01), joined_if_adjacent(list(model.parameters()))
        assert len(trained) == (1 if is_joined else 4)
        for _ in range(5):
            for parameter in trained:
                if parameter.grad is not None:
                    parameter.grad.zero_()
            model(torch.linspace(-1.0, 1.0, 12).view(4, 3)).square().sum().backward()
            assert clip_norm_(trained, 0.5).item() > 0.5
            norm = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
            assert norm.item() == pytest.approx(0.5, rel=1e-4)
            optimizer.step()
        return [parameter.detach().clone() for parameter in model.parameters()]

    for one, other in zip(learned(True), learned(False), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_frozen_parameters_have_gradients_apart():
    model = torch.nn.Linear(3, 16)
    flatten_(model)
    model.bias.requires_grad_(False)
    assert len(joined_if_adjacent(list(model.parameters()))) == 2
