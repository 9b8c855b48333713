"""Memory cores: one flat state, forgotten exactly where an episode begins."""

import pytest
import torch
from torch import nn

from penstock.nn import MemoryCore

T, B, F, H = 9, 4, 3, 5


@pytest.fixture(params=["gru", "lstm"])
def core(request):
    torch.manual_seed(0)
    return MemoryCore(request.param, F, H)


@pytest.fixture
def segment(core):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(T, B, F, generator=generator)
    first = torch.rand(T, B, generator=generator) < 0.25
    state = torch.randn(B, core.state_size, generator=generator)
    return x, first, state


def test_the_state_is_one_vector_per_lane():
    assert MemoryCore("gru", F, H).state_size == H
    assert MemoryCore("lstm", F, H).state_size == 2 * H


def test_unrolling_equals_stepping(core, segment):
    x, first, state = segment
    y, final_state = core.unroll(x, first, state)
    for t in range(T):
        row, state = core.step(x[t], first[t], state)
        assert torch.equal(y[t], row)
    assert torch.equal(final_state, state)


@pytest.mark.parametrize(("kind", "reference_class"), [("gru", nn.GRU), ("lstm", nn.LSTM)])
def test_without_resets_it_is_the_recurrence_that_torch_computes(kind, reference_class):
    core, reference = MemoryCore(kind, F, H), reference_class(F, H)
    reference.load_state_dict({f"{name}_l0": value for name, value in core.cell.state_dict().items()})
    x, first, state = torch.randn(T, B, F), torch.zeros(T, B, dtype=torch.bool), torch.randn(B, core.state_size)
    parts = [part.unsqueeze(0).contiguous() for part in state.split(H, -1)]
    expected, expected_state = reference(x, parts[0] if kind == "gru" else tuple(parts))
    y, final_state = core.unroll(x, first, state)
    torch.testing.assert_close(y, expected)
    last = expected_state if kind == "gru" else torch.cat(expected_state, -1)
    torch.testing.assert_close(final_state, last.squeeze(0))


def test_at_the_first_row_of_an_episode_the_past_is_forgotten(core, segment):
    """The rows from a reset on are those of a core that starts there with zeros."""
    x, first, state = segment
    y, _ = core.unroll(x, first, state)
    resets = first.nonzero().tolist()
    assert resets
    for t, b in resets:
        start = torch.zeros(1, core.state_size)
        fresh, _ = core.unroll(x[t:, b : b + 1], first[t:, b : b + 1], start)
        torch.testing.assert_close(y[t:, b], fresh[:, 0])


def test_a_lane_that_goes_on_is_not_touched_by_the_resets_of_others(core, segment):
    x, first, state = segment
    first = first.clone()
    first[:, 0] = False
    y, _ = core.unroll(x, first, state)
    alone, _ = core.unroll(x, torch.zeros_like(first), state)
    torch.testing.assert_close(y[:, 0], alone[:, 0])


def test_even_a_broken_state_is_forgotten(core):
    x, first = torch.randn(B, F), torch.ones(B, dtype=torch.bool)
    y, _ = core.step(x, first, torch.full((B, core.state_size), torch.nan))
    expected, _ = core.step(x, first, torch.zeros(B, core.state_size))
    assert torch.equal(y, expected)


def test_no_gradient_crosses_a_reset(core):
    x = torch.randn(T, B, F, requires_grad=True)
    state = torch.randn(B, core.state_size, requires_grad=True)
    first = torch.zeros(T, B, dtype=torch.bool)
    first[4, :2] = True
    y, _ = core.unroll(x, first, state)
    y[6].sum().backward()
    assert (x.grad[:4, :2] == 0).all()
    assert (state.grad[:2] == 0).all()
    assert (x.grad[4:7, :2] != 0).any(-1).all()
    assert (x.grad[:7, 2:] != 0).any(-1).all()
    assert (state.grad[2:] != 0).any(-1).all()


def test_the_state_after_one_segment_continues_it_in_the_next(core, segment):
    x, first, state = segment
    whole, _ = core.unroll(x, first, state)
    head, between = core.unroll(x[:5], first[:5], state)
    tail, _ = core.unroll(x[5:], first[5:], between)
    assert torch.equal(whole, torch.cat((head, tail)))


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_a_memory_with_a_span_keeps_what_it_holds_over_so_many_rows(kind):
    """Units forget at rates of their own, the slowest over the span; without one, half is gone after each row."""
    torch.manual_seed(0)
    kept = {}
    for span in (None, 100):
        core = MemoryCore(kind, F, 64, span)
        for name, weight in core.cell.named_parameters():
            if name.startswith("weight"):
                nn.init.zeros_(weight)  # what gates do before they see anything
        state = torch.zeros(1, core.state_size)
        state[:, -64:] = 1.0  # of an LSTM the cell
        _, after = core.unroll(torch.zeros(1, 1, F), torch.zeros(1, 1, dtype=torch.bool), state)
        kept[span] = after[0, -64:]
    torch.testing.assert_close(kept[None], torch.full((64,), 0.5))
    spans = 1.0 / (1.0 - kept[100])  # rows over which a unit forgets
    assert 1.9 < spans.min() < 10.0 and 90.0 < spans.max() <= 100.0
    assert 35.0 < spans.mean() < 65.0, "drawn uniformly"


def test_the_input_gate_of_an_lstm_with_a_span_is_closed_as_far_as_the_forget_gate_is_open():
    core = MemoryCore("lstm", F, H, 50)
    entering, keeping, *others = core.cell.bias_ih.view(4, H)
    assert torch.equal(entering, -keeping) and (keeping > 0).all()
    assert all((gate == 0).all() for gate in others) and (core.cell.bias_hh == 0).all()
