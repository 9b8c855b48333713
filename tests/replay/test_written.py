"""Which rows a writer's last call finished, and reading only some fields of them: first priorities need both."""

from multiprocessing import Pipe
from multiprocessing.connection import Connection

import numpy as np
import pytest

from penstock.replay import (
    Field,
    NotReady,
    NStep,
    Prioritized,
    RateLimiter,
    ReplayBuffer,
    Reservoir,
    Sequences,
    Writer,
)
from tests.starting import Start

STEP = {"step": Field((2,), "int64"), "reward": Field()}  # [lane, time]


def plain(capacity: int = 100, **options: object) -> ReplayBuffer:
    return ReplayBuffer(capacity, {"reward": Field()}, **options)


def add_round(writer: Writer, times: list[int], **signals: list[bool]) -> list[int]:
    """One step of three lanes; the ids finished."""
    step = np.array([[lane, time] for lane, time in enumerate(times)])
    writer.add(**{"step": step, "reward": np.ones(3), "terminated": [False] * 3, **signals})
    return writer.written.tolist()


# ---- which rows


def test_nothing_is_written_before_the_first_add() -> None:
    written = plain().writer().written
    assert written.shape == (0,) and written.dtype == np.int64


def test_every_step_of_a_plain_buffer_is_a_row_of_its_own() -> None:
    writer = plain().writer()
    writer.add(reward=0.0)
    assert writer.written.tolist() == [0]
    writer.add(reward=np.arange(5.0))
    assert writer.written.tolist() == [1, 2, 3, 4, 5]
    writer.add(reward=np.arange(4.0), mask=[True, False, False, True])
    assert writer.written.tolist() == [6, 7]
    writer.end_episode()
    assert writer.written.tolist() == []


def test_written_is_a_new_array_that_no_later_add_changes() -> None:
    writer = plain().writer()
    writer.add(reward=np.arange(3.0))
    before = writer.written
    writer.written[:] = 9
    assert writer.written.tolist() == [0, 1, 2]
    writer.add(reward=np.arange(3.0))
    assert before.tolist() == [0, 1, 2]


def test_two_writers_of_a_buffer_each_know_their_own_rows() -> None:
    buffer = plain()
    first, second = buffer.writer(), buffer.writer(lanes=3)
    first.add(reward=[0.0, 1.0])
    second.add(reward=[2.0, 3.0, 4.0])
    assert first.written.tolist() == [0, 1]
    assert second.written.tolist() == [2, 3, 4]


def test_n_step_rows_come_lane_by_lane_oldest_first_when_their_tails_are_finished() -> None:
    buffer = ReplayBuffer(100, STEP, n_step=NStep(3, gamma=0.5))
    writer = buffer.writer(lanes=3)
    assert add_round(writer, [0, 0, 0]) == []
    assert add_round(writer, [1, 1, 0], mask=[True, True, False]) == []
    # The third step of lanes 0 and 1 is the last of their episodes: each leaves rows of 3, 2 and 1 steps.
    ended = add_round(writer, [2, 2, 1], terminated=[True, False, False], truncated=[False, True, False])
    rows = buffer.get(ended)
    assert rows["step"].tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert rows["discount"].tolist() == [0.0, 0.0, 0.0, 0.125, 0.25, 0.5]
    # The third step of lane 2 fills its window; the others' new episodes have none yet.
    full = add_round(writer, [3, 3, 2])
    assert buffer.get(full)["step"].tolist() == [[2, 0]]
    writer.end_episode(1)
    assert buffer.get(writer.written)["step"].tolist() == [[1, 3]]
    writer.end_episode()
    assert buffer.get(writer.written)["step"].tolist() == [[0, 3], [2, 1], [2, 2]]
    assert add_round(writer, [4, 4, 4]) == []


def test_steps_given_together_finish_the_rows_of_all_of_them() -> None:
    buffer = ReplayBuffer(100, {"reward": Field()}, n_step=NStep(3, gamma=1.0))
    writer = buffer.writer()
    writer.add(reward=np.ones(2), terminated=[False, False])
    writer.add(reward=np.ones(5), terminated=[False, False, True, False, False])
    assert buffer.get(writer.written)["reward"].tolist() == [3.0, 3.0, 3.0, 2.0, 1.0]


def test_a_sequence_is_written_by_its_last_step() -> None:
    buffer = ReplayBuffer(100, STEP, sequences=Sequences(length=2, period=2))
    writer = buffer.writer(lanes=3)
    assert add_round(writer, [0, 0, 0], terminated=[False, True, False]) == [0]  # of one step, padded
    assert add_round(writer, [1, 1, 1]) == [1, 2]
    rows = buffer.get([0, 1, 2])
    assert rows["step"][:, 0].tolist() == [[1, 0], [0, 0], [2, 0]]
    assert rows["mask"].tolist() == [[True, False], [True, True], [True, True]]
    writer.end_episode()
    assert buffer.get(writer.written)["step"][:, 0].tolist() == [[1, 1]]


def test_rows_that_a_reservoir_passes_over_are_not_written() -> None:
    buffer = plain(10, sampler=Reservoir(), seed=0)
    writer = buffer.writer()
    writer.add(reward=np.arange(500.0))
    written = writer.written.tolist()
    assert written[:10] == list(range(10)) and 10 < len(written) < 500
    assert set(buffer.get_all()["ids"].tolist()) <= set(written)


def test_rows_overwritten_by_their_own_add_were_written_and_cannot_be_got() -> None:
    buffer = plain(4)
    writer = buffer.writer()
    writer.add(reward=np.arange(6.0))
    assert writer.written.tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(KeyError, match="row 0 is not in the buffer"):
        buffer.get(writer.written)


# ---- with a rate limiter


def test_an_add_that_goes_in_by_parts_has_written_the_rows_of_all_parts() -> None:
    limiter = RateLimiter(samples_per_insert=1.0, min_size=1000, tolerance=16)
    buffer = ReplayBuffer(1000, {"reward": Field()}, n_step=NStep(2, gamma=1.0), rate_limiter=limiter)
    writer = buffer.writer()
    first = writer.add(reward=np.arange(100.0), terminated=np.arange(100) % 10 == 9)
    assert first == 0 and limiter.inserts == 100
    assert writer.written.tolist() == list(range(100))
    writer.add(reward=0.0, terminated=False)
    assert writer.written.tolist() == []
    writer.end_episode()
    assert writer.written.tolist() == [100]


def test_an_add_that_was_let_in_half_has_written_that_half_and_one_that_was_refused_changes_nothing() -> None:
    # Of 20 rows the first 8 go in, a surplus of 7 over min_size=1; 8 more would make 15, above 8.
    limiter = RateLimiter(samples_per_insert=1.0, min_size=1, tolerance=8)
    writer = plain(rate_limiter=limiter).writer(timeout=0.0)
    with pytest.raises(NotReady) as held:
        writer.add(reward=np.zeros(20))
    assert held.value.written == 8
    assert writer.written.tolist() == list(range(8))
    with pytest.raises(NotReady):
        writer.add(reward=np.zeros(2))
    assert writer.written.tolist() == list(range(8))


@pytest.mark.parametrize("limiter", [None, RateLimiter(samples_per_insert=1.0, min_size=100)])
def test_an_add_of_no_steps_finishes_none_and_an_error_changes_nothing(limiter: RateLimiter | None) -> None:
    writer = plain(rate_limiter=limiter).writer()
    writer.add(reward=np.zeros(3))
    with pytest.raises(KeyError, match="reward is missing"):
        writer.add(rewards=0.0)
    assert writer.written.tolist() == [0, 1, 2]
    assert writer.add(reward=np.zeros(0)) is None
    assert writer.written.tolist() == []


# ---- what is void


def _send_written(writer: Writer, connection: Connection) -> None:
    connection.send(writer.written.tolist())
    writer.add(reward=[5.0, 5.0, 5.0], terminated=[False, False, True])
    connection.send(writer.written.tolist())


def test_a_forked_writer_has_written_nothing_of_its_parents(fork: Start) -> None:
    writer = ReplayBuffer(16, {"reward": Field()}, n_step=NStep(2, gamma=1.0)).writer()
    writer.add(reward=[1.0, 1.0, 1.0], terminated=[False, False, False])
    ours, theirs = Pipe()
    fork(_send_written, writer, theirs)
    assert [ours.recv(), ours.recv()] == [[], [2, 3, 4]]
    assert writer.written.tolist() == [0, 1]


def test_a_clear_voids_the_ids_of_what_was_written() -> None:
    buffer = plain()
    writer = buffer.writer()
    writer.add(reward=np.zeros(3))
    buffer.clear()
    assert writer.written.tolist() == []
    writer.add(reward=0.0)
    assert writer.written.tolist() == [100]  # a cleared buffer goes on from the next multiple of its capacity


# ---- first priorities


def test_rows_are_drawn_by_the_td_errors_that_their_writer_gave_them() -> None:
    fields = {"reward": Field(), "value": Field(), "next_value": Field(next_of="value")}
    buffer = ReplayBuffer(64, fields, sampler=Prioritized(alpha=1.0, eps=0.0), n_step=NStep(2, gamma=0.5), seed=1)
    writer = buffer.writer(lanes=2)
    for time, (terminated, truncated) in enumerate([(False, False), (False, False), (True, True)]):
        writer.add(
            reward=[1.0, 2.0],
            value=[time, 10.0 + time],
            next_value=[time + 1.0, 11.0 + time],
            terminated=[terminated, False],
            truncated=[False, truncated],
        )
        rows = buffer.get(writer.written, fields=("reward", "value", "next_value"))
        td_error = rows["reward"] + rows["discount"] * rows["next_value"] - rows["value"]
        assert buffer.update_priorities(rows["ids"], np.abs(td_error)) == 0
    # Lane 0, terminated:       1 + 0.5 + 0.25 * 2 - 0 = 2;  1 + 0.5 - 1 = 0.5;  1 - 2 = -1.
    # Lane 1, truncated: 2 + 1 + 0.25 * 12 - 10 = -4;  2 + 1 + 0.25 * 13 - 11 = -4.75;  2 + 0.5 * 13 - 12 = -3.5.
    expected = {0.0: 2.0, 1.0: 0.5, 2.0: 1.0, 10.0: 4.0, 11.0: 4.75, 12.0: 3.5}
    batch = buffer.sample(1000, beta=1.0)
    found = dict(zip(batch["value"].tolist(), batch["weights"].tolist(), strict=True))
    assert found == pytest.approx({value: 0.5 / priority for value, priority in expected.items()})


# ---- some fields of rows


def test_only_the_fields_asked_for_are_read() -> None:
    buffer = ReplayBuffer(100, STEP, n_step=NStep(2, gamma=0.5))
    buffer.add(step=[[0, 0], [0, 1], [0, 2]], reward=[1.0, 2.0, 4.0], terminated=[False] * 3)
    some, everything = buffer.get([1, 0], fields=("reward",)), buffer.get([1, 0])
    assert set(some) == {"reward", "discount", "ids"}
    for name, array in some.items():
        np.testing.assert_array_equal(array, everything[name])
    assert set(buffer.get([1, 0], fields=())) == {"discount", "ids"}


def test_many_threads_read_the_fields_asked_for() -> None:
    buffer = ReplayBuffer(64, {"obs": Field((9_000,)), "picture": Field((50_000,), "uint8")}, num_threads=3)
    numbers = np.arange(64)
    buffer.add(obs=np.repeat(numbers, 9_000).reshape(64, -1), picture=np.zeros((64, 50_000), np.uint8))
    rows = buffer.get(numbers[::-1], fields=("obs",))
    assert set(rows) == {"obs", "ids"}
    assert (rows["obs"] == numbers[::-1, None]).all()


def test_a_row_whose_frames_are_gone_still_has_its_other_fields() -> None:
    fields = {"obs": Field((15,), "uint8", shared=True), "reward": Field()}
    buffer = ReplayBuffer(10, fields, frame_capacity=4)
    buffer.add(obs=np.arange(1, 151, dtype=np.uint8).reshape(10, 15), reward=np.arange(10.0))
    with pytest.raises(KeyError, match="row 2 is not in the buffer"):
        buffer.get([2])
    assert buffer.get([2], fields=("reward",))["reward"].tolist() == [2.0]


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        (("reward", "obs"), KeyError, "'obs' is not a field of this buffer: it has step, reward"),
        (("discount",), KeyError, "'discount' is not a field"),
        ("reward", TypeError, r"fields='reward' is not legal: give a tuple of names, such as \('reward',\)"),
    ],
)
def test_fields_that_there_are_none_of_are_named(fields: tuple[str, ...], error: type, message: str) -> None:
    buffer = ReplayBuffer(100, STEP, n_step=NStep(2))
    buffer.add(step=[[0, 0], [0, 1]], reward=[1.0, 2.0], terminated=[False, True])
    with pytest.raises(error, match=message):
        buffer.get([0], fields=fields)
