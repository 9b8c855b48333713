"""Penstock's buffer with cpprb's conversion of values."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from penstock._native import ReplayWriter
from penstock.replay import Field, NStep, ReplayBuffer
from penstock.replay.buffer import Batch
from penstock.replay.plan import FieldPlan, describe, make_plan
from penstock.replay.settings import Sampler
from penstock.replay.writer import convert

DONE = "done"  # field that ends an episode of n-step rows
_FIRST, _LAST = 0, 2  # Taken in schema.h


class Storage(ReplayBuffer):
    """Buffer that accepts any dtype and any shape of the right size, and ignores unknown names.

    Parameters
    ----------
    capacity : int
    fields : mapping of str to Field
    sampler : Sampler
    n_step : NStep or None
    moved : collection of str
        Fields that n-step rows take from their last step.
    disk : str or None
    seed : int
    """

    def __init__(
        self, capacity: int, fields: Mapping[str, Field], *, sampler: Sampler, n_step: NStep | None,
        moved: Collection[str], disk: str | None, seed: int,
    ) -> None:  # fmt: skip
        plan = make_plan(
            capacity, fields, sampler=sampler, n_step=n_step, sequences=None,
            terminated=DONE if n_step is not None else "", truncated="", lenient=True,
        )  # fmt: skip
        planned = tuple(replace(field, taken=_LAST) if field.name in moved else field for field in plan.fields)
        description = describe(plan, fields, sampler, n_step, None)
        self._create(replace(plan, fields=planned), description, sampler, disk, None, seed)
        self.rate_limiter = None

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of one row's value of each field."""
        return {field.name: field.shape for field in self._plan.fields}

    @property
    def dtypes(self) -> dict[str, np.dtype[Any]]:
        """Dtype of each field."""
        return {field.name: field.dtype for field in self._plan.fields}

    @property
    def is_nstep(self) -> bool:
        """Whether rows span several steps, and thus have a discount."""
        return self._plan.n_step > 0

    def writer_of_steps(self) -> ReplayWriter:
        """Return a writer that turns steps into rows."""
        return self._default_writer()._native

    def add_rows(self, rows: Batch) -> None:
        """Write complete rows, as returned by ``get_all``."""
        if not self.is_nstep:
            self.add(**rows)
            return
        # Open the same memory as rows of one step, with the discount as a field like the others.
        discount = FieldPlan(
            name="discount", dtype=np.dtype(np.float32), shape=(1,), batch_shape=(1,), step_nbytes=4, stored_nbytes=4,
            offset=self._plan.discount_offset, taken=_FIRST, letter="f", once=False, frame_store=-1, outer=1, depth=1,
            inner=4,
        )  # fmt: skip
        plan = replace(self._plan, fields=(*self._plan.fields, discount), n_step=0, terminated="")
        core = replace(self._memory, plan=plan).open(num_threads=1, seed=0)
        ReplayWriter(core, 1, secrets.randbits(64), convert).add(rows)
