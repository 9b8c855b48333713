"""Parts of the time of an update: each operation counts for its part."""

import importlib

import pytest
import torch

from penstock.nn import mlp
from tests.places import BENCH


@pytest.fixture
def parts(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("update_parts")


def test_operations_count_by_their_name_and_what_was_begun_around_them_counts_first(parts):
    x = torch.ones(8, 8)

    def found(update):
        shares = parts.shares_of(update, 3)
        assert sum(shares.values()) == pytest.approx(1.0)
        return set(shares)

    assert found(lambda: None) == {"Python"}
    assert found(lambda: x.add_(1.0)) == {"Python", "other operations of torch"}
    assert "matrix products" in found(lambda: torch.mm(x, x))
    assert found(parts.marked(parts.OPTIMISER, lambda: torch.mm(x, x).add_(1.0))) == {"Python", "optimiser"}
    assert found(parts.marked(parts.SAMPLE, lambda: x.add_(1.0))) == {"Python", "drawing the batch"}


def test_layers_of_our_own_are_matrix_products_forward_and_back(parts):
    if not mlp.is_available():
        pytest.skip("this processor computes layers by torch")
    x, weight, bias = torch.ones(4, 3), torch.ones(1, 3, 2, requires_grad=True), torch.ones(1, 2, requires_grad=True)
    with torch.no_grad():
        shares = parts.shares_of(lambda: mlp.fused_layers(x, [weight, bias], (3, 2)), 3)
    assert "matrix products" in shares

    def back():
        mlp.fused_layers(x, [weight, bias], (3, 2)).sum().backward()

    names = set(parts.shares_of(back, 3))
    assert names == {"Python", "matrix products", "other operations of torch"}
