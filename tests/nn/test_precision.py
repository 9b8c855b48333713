"""Arithmetic of a network: as requested, or as the device is fastest."""

from __future__ import annotations

import pytest
import torch

from penstock.algorithms.appo import APPO
from penstock.config import make_config
from penstock.engine.preparation import note_of_precision
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.nn import layers as precision
from penstock.nn.layers import is_bfloat16, is_faster_in_bfloat16

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def appo(**settings: str) -> APPO:
    config = make_config(APPO.Config, {"env": "none", **settings})
    return APPO(config, ObservationSpec((1,), "float32"), ActionSpec((), "int64", num_actions=2))


@pytest.fixture
def machine(monkeypatch):
    """Set the CPU and GPU of this machine."""

    def settle(cpu: bool, gpu: bool = True) -> None:
        monkeypatch.setattr(precision, "is_faster_in_bfloat16", {"cpu": cpu, "cuda": gpu}.__getitem__)
        monkeypatch.setattr("penstock.engine.preparation.is_faster_in_bfloat16", {"cpu": cpu, "cuda": gpu}.__getitem__)

    return settle


@pytest.mark.parametrize(
    ("asked", "on_new_cpu", "on_old_cpu", "on_gpu"),
    [("float32", False, False, False), ("bfloat16", True, True, True), ("auto", True, False, True)],
)
def test_auto_is_bfloat16_where_the_device_is_faster_in_it(machine, asked, on_new_cpu, on_old_cpu, on_gpu):
    machine(cpu=True)
    assert is_bfloat16(asked, CPU) == on_new_cpu
    machine(cpu=False)
    assert (is_bfloat16(asked, CPU), is_bfloat16(asked, GPU)) == (on_old_cpu, on_gpu)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx2 avx512f avx512_bf16 fma", True),
        ("vendor_id\t: GenuineIntel\nflags\t\t: fpu avx2 avx512f avx512_bf16 fma", False),
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx2 fma", False),
        ("flags\t\t: fpu amx_bf16 amx_tile", True),
        ("Features\t: fp asimd bf16 i8mm", True),
        ("flags\t\t: fpu avx2 avx512f fma", False),
        ("", False),
    ],
)
def test_a_cpu_says_by_its_words_in_what_it_is_faster(tmp_path, monkeypatch, line, expected):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{line}\n")
    read = precision._cpu_words
    monkeypatch.setattr(precision, "_cpu_words", lambda: read(tmp_path / "cpuinfo"))
    assert is_faster_in_bfloat16.__wrapped__("cpu") is expected


def test_a_cpu_that_says_nothing_of_itself_multiplies_float32(tmp_path):
    assert precision._cpu_words(tmp_path / "none") == set()


def test_without_a_gpu_there_is_none_that_is_faster_in_bfloat16(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert is_faster_in_bfloat16.__wrapped__("cuda") is False


def test_a_slow_precision_is_told_only_if_it_was_asked_for_and_auto_says_what_it_became(machine):
    def told(asked: str, **settings: str) -> str | None:
        return note_of_precision(appo(precision=asked, **settings))

    machine(cpu=False)
    assert "this CPU is faster in float32" in told("bfloat16") and "precision='auto'" in told("bfloat16")
    assert told("auto") == "precision='auto' is float32 here" and told("float32") is None
    assert told("auto", device="cuda:1") == "precision='auto' is bfloat16 here"
    on_both = "precision='auto' is float32 in the rollout workers, bfloat16 in the learner here"
    assert told("auto", device="cuda:1", inference="local") == on_both
    assert told("bfloat16", device="cuda:1") is None  # all is chosen and learned on the GPU
    assert "this CPU" in told("bfloat16", device="cuda:1", inference="local")
    machine(cpu=True)
    assert told("bfloat16") is None and told("auto") == "precision='auto' is bfloat16 here"


def test_the_networks_body_computes_in_what_auto_has_settled(machine):
    def dtype(asked: str) -> torch.dtype:
        with appo(precision=asked).autocast(CPU):
            return (torch.ones(2, 2) @ torch.ones(2, 2)).dtype

    machine(cpu=True)
    assert (dtype("auto"), dtype("float32")) == (torch.bfloat16, torch.float32)
    machine(cpu=False)
    assert (dtype("auto"), dtype("bfloat16")) == (torch.float32, torch.bfloat16)
