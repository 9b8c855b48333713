"""A buffer holds the rows of a plain list after any operations."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.replay import Field, ReplayBuffer


class Model:
    """The rows of a buffer as a list of (id, number, episode)."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.rows: list[tuple[int, int, int]] = []
        self.next_id = 0
        self.added = 0
        self.episode = 0

    def add(self, numbers: Iterable[int], ends: Iterable[bool]) -> None:
        for number, end in zip(numbers, ends, strict=True):
            self.rows = [*self.rows, (self.next_id, number, self.episode)][-self.capacity :]
            self.next_id += 1
            self.added += 1
            self.episode += end

    def clear(self) -> None:
        self.rows = []
        self.next_id = -(-self.next_id // self.capacity) * self.capacity  # rows are filled from the first one again
        self.episode += 1

    def column(self, which: int) -> list[int]:
        return [row[which] for row in self.rows]

    def episodes(self) -> list[list[int]]:
        order = dict.fromkeys(self.column(2))
        return [[number for _, number, episode in self.rows if episode == each] for each in order]


steps = st.lists(st.tuples(st.integers(-1000, 1000), st.sampled_from(["", "", "terminated", "truncated"])), max_size=9)
actions = st.one_of(
    st.tuples(st.just("one"), steps),
    st.tuples(st.just("many"), steps),
    st.tuples(st.sampled_from(["end", "clear", "sample", "get"]), st.none()),
)


@settings(max_examples=150)
@given(capacity=st.sampled_from([1, 2, 3, 5, 8, 13]), history=st.lists(actions, max_size=25), seed=st.integers(0, 9))
def test_a_buffer_holds_what_a_plain_list_would(capacity: int, history: list[tuple[str, Any]], seed: int) -> None:
    fields = {"number": Field((), "int32"), "pair": Field((2,), "float64"), "terminated": Field((), "bool")}
    buffer, model = ReplayBuffer(capacity, fields, seed=seed), Model(capacity)
    for action, given_steps in history:
        match action:
            case "one":
                for number, ending in given_steps:
                    added = buffer.add(**arguments([(number, ending)], single=True))
                    assert added == model.next_id
                    model.add([number], [ending != ""])
            case "many":
                added = buffer.add(**arguments(given_steps))
                assert added == (model.next_id if given_steps else None)
                model.add([number for number, _ in given_steps], [ending != "" for _, ending in given_steps])
            case "end":
                buffer.end_episode()
                model.episode += 1
            case "clear":
                buffer.clear()
                model.clear()
            case "sample" if model.rows:
                batch = buffer.sample(7)
                assert set(zip(batch["ids"].tolist(), batch["number"].tolist(), strict=True)) <= {
                    (row_id, number) for row_id, number, _ in model.rows
                }
                assert (batch["pair"] == batch["number"][:, None] * [1.0, 0.5]).all()
            case "get" if model.rows:
                assert buffer.get(model.column(0)[::-1])["number"].tolist() == model.column(1)[::-1]
                with pytest.raises(KeyError):
                    buffer.get([model.next_id])
        rows = buffer.get_all()
        assert rows["ids"].tolist() == model.column(0)
        assert rows["number"].tolist() == model.column(1)
        assert [episode["number"].tolist() for episode in buffer.episodes()] == model.episodes()
        assert len(buffer) == len(model.rows)
        assert buffer.num_added == model.added


def arguments(given_steps: list[tuple[int, str]], single: bool = False) -> dict[str, Any]:
    numbers = np.array([number for number, _ in given_steps], np.int32)
    columns = {
        "number": numbers,
        "pair": numbers[:, None] * [1.0, 0.5],
        "terminated": np.array([ending == "terminated" for _, ending in given_steps], bool),
        "truncated": np.array([ending == "truncated" for _, ending in given_steps], bool),
    }
    return {name: values[0] for name, values in columns.items()} if single else columns
