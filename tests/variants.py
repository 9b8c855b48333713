"""Variants of long tests: those that run in every suite, and those of the same code path for `make test-long`."""

from collections.abc import Iterable
from typing import Any

import pytest


def only(ids: str, variants: Iterable[Any]) -> list[Any]:
    """Return variants, `pytest.param` with an id each, all of which are marked `long` but those with the given ids.

    Parameters
    ----------
    ids
        Ids of the variants that `make test` runs, separated by blanks.
    variants
        Variants of a parametrised test.
    """
    names = ids.split()
    assert set(names) <= {each.id for each in variants}, f"an id of {names} is that of no variant"
    long = [pytest.param(*each.values, marks=[*each.marks, pytest.mark.long], id=each.id) for each in variants]
    return [each if each.id in names else marked for each, marked in zip(variants, long, strict=True)]
