"""Batches of transitions: drawn as the rate limiter lets them, one ahead where a thread draws, and the same ones."""

import threading
from typing import ClassVar
from unittest import mock

import numpy as np
import pytest
import torch

from penstock.engine.paths.replay_learner import TransitionReader
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.batch import SequenceBatch
from penstock.experience.run_replay import Replay, transition_fields
from penstock.replay import NotReady, NStep, Prioritized, RateLimiter, ReplayBuffer, Uniform
from tests.experience.reading import CPU

BATCH = 4


def make(num_rows: int = 20, ratio: float = 1.0, *, prioritized: bool = False, slack: int = 1) -> Replay:
    """A replay in which row i holds i everywhere, with discount 0.9, and the last one of ten 0."""
    action = ActionSpec((), "int64", num_actions=50)
    fields = transition_fields(ObservationSpec((3,), "float32"), action, with_values=False)
    sampler = Prioritized(alpha=1.0, eps=0.0, normalize="batch") if prioritized else Uniform()
    buffer = ReplayBuffer(100, fields, sampler=sampler, n_step=NStep(1, 0.9), seed=3)
    replay = Replay(buffer, RateLimiter(ratio * BATCH, 10, slack * BATCH), BATCH, ratio)
    for i in range(num_rows):
        obs = np.full(3, i, np.float32)
        buffer.add(obs=obs, action=i, reward=i, next_obs=obs + 1, terminated=i % 10 == 9)
    if num_rows:
        replay.limiter.insert(min(num_rows, 10))
    return replay


def a_reader(replay, ahead):
    """A reader of batches that are large enough to be drawn ahead, if they are to be."""
    with mock.patch("penstock.engine.paths.replay_learner.WORTH_A_THREAD", 0):
        return TransitionReader(replay, CPU, in_order=not ahead)


@pytest.fixture(params=[True, False], ids=["ahead", "in order"])
def draws_ahead(request):
    return request.param


def test_a_batch_holds_whole_rows_as_tensors(draws_ahead):
    reader = a_reader(make(), draws_ahead)
    assert reader.ask(None)
    batch, ids = reader.take(7, 0.25)
    assert batch.obs.shape == batch.next_obs.shape == (BATCH, 3) and batch.obs.dtype == torch.float32
    for name, dtype in (("action", torch.int64), ("reward", torch.float32), ("discount", torch.float32)):
        assert getattr(batch, name).shape == (BATCH,) and getattr(batch, name).dtype == dtype
    assert batch.obs[:, 0].tolist() == batch.action.tolist() == batch.reward.tolist() == ids.tolist()
    assert (batch.next_obs == batch.obs + 1).all()
    expected = [0.0 if i % 10 == 9 else pytest.approx(0.9) for i in ids.tolist()]
    assert batch.discount.tolist() == expected
    assert batch.weights.tolist() == [1.0] * BATCH
    assert (batch.number, batch.progress) == (7, 0.25)
    reader.close()


def test_nothing_is_drawn_before_there_is_enough_nor_from_nothing(draws_ahead):
    replay = make(num_rows=9)
    reader = a_reader(replay, draws_ahead)
    assert not reader.ask(None) and replay.limiter.samples == 0
    replay.limiter.insert(1)  # a step that is taken, while its row is not finished yet
    assert reader.ask(None)
    reader.close()
    empty = make(num_rows=0)
    empty.limiter.insert(10)
    reader = a_reader(empty, draws_ahead)
    assert not reader.ask(None) and empty.limiter.samples == 0
    reader.close()


def test_a_batch_is_asked_for_and_counted_once_however_often_it_is_asked_for(draws_ahead):
    replay = make(slack=3)
    reader = a_reader(replay, draws_ahead)
    assert all(reader.ask(None) for _ in range(5))
    assert replay.limiter.samples == BATCH
    reader.take(1, 0.0)
    assert reader.ask(None) and replay.limiter.samples == 2 * BATCH
    reader.close()


def test_the_rate_limiter_has_the_last_word(draws_ahead):
    replay = make(ratio=0.5)
    reader = a_reader(replay, draws_ahead)
    # One update of slack before the eleventh step; from then on one for every two steps.
    answers = [reader.ask(None) and bool(reader.take(1, 0.0))]
    for _ in range(6):
        answers.append(reader.ask(None) and bool(reader.take(1, 0.0)))
        replay.limiter.insert(1)
    assert answers == [True, False, False, True, False, True, False]
    reader.close()


def test_batches_that_are_drawn_ahead_are_the_ones_that_would_be_drawn_in_order():
    drawn = {}
    for ahead in (True, False):
        replay = make(slack=20)
        reader = a_reader(replay, ahead)
        drawn[ahead] = []
        for number in range(12):
            assert reader.ask(None)
            batch, ids = reader.take(number, 0.0)
            if ahead:
                reader.ask(None)
            drawn[ahead].append((ids.tolist(), batch.obs.tolist()))
        reader.close()
    assert drawn[True] == drawn[False]
    assert len({tuple(ids) for ids, _ in drawn[True]}) > 6


def test_a_batch_stays_as_it_is_while_the_next_one_is_drawn():
    reader = a_reader(make(slack=20), True)
    assert reader.ask(None)
    for number in range(10):
        batch, ids = reader.take(number, 0.0)
        kept, kept_ids = batch.obs.clone(), ids.copy()
        assert reader.ask(None)
        reader._asked.result()  # the next one is there
        assert torch.equal(batch.obs, kept) and np.array_equal(ids, kept_ids)
    reader.close()


def test_importance_weights_come_with_the_beta_that_was_asked_for(draws_ahead):
    # Priorities 1 and 3: the weights of beta are 1 and 3^-beta, the largest is 1.
    replay = make(2, prioritized=True, slack=20)
    replay.limiter.insert(8)
    replay.buffer.update_priorities([0, 1], [1.0, 3.0])
    reader = a_reader(replay, draws_ahead)
    for beta in (0.0, 0.5, 1.0):
        seen = set()
        for number in range(4):
            assert reader.ask(beta)
            batch, ids = reader.take(number, 0.0)
            least = 0 if 0 in ids else 1
            for row, weight in zip(ids.tolist(), batch.weights.tolist(), strict=True):
                assert weight == pytest.approx(1.0 if row == least else 3.0**-beta)
                seen.add(row)
        assert seen == {0, 1}
    reader.close()


def test_what_goes_wrong_while_a_batch_is_drawn_is_raised_where_it_is_taken(draws_ahead):
    replay = make(2, prioritized=True)
    replay.limiter.insert(8)
    replay.buffer.update_priorities([0, 1], [0.0, 0.0])
    reader = a_reader(replay, draws_ahead)
    with pytest.raises(NotReady, match="priorities are all 0"):
        reader.ask(1.0)
        reader.take(1, 0.0)
    reader.close()


def test_closing_ends_the_thread():
    before = set(threading.enumerate())
    reader = a_reader(make(), True)
    assert reader.ask(None)
    (thread,) = set(threading.enumerate()) - before
    reader.close()
    assert not thread.is_alive()


def test_only_batches_that_are_worth_a_thread_are_drawn_by_one():
    """Pictures of 84 x 84 x 4 bytes are, vectors of three numbers are not; nothing is, where all is to be in order."""
    pictures = transition_fields(ObservationSpec((4, 84, 84), "uint8"), ActionSpec((), "int64", 2), with_values=False)
    large = Replay(ReplayBuffer(20, pictures, n_step=NStep(1, 0.9)), RateLimiter(32.0), 32, 1.0)
    for replay, in_order, expected in [(make(), False, False), (large, False, True), (large, True, False)]:
        reader = TransitionReader(replay, CPU, in_order=in_order)
        assert reader.draws_ahead is expected
        reader.close()


def test_of_sequences_the_steps_alone_count_as_observed():
    """Two sequences of three rows and one more; the second one ended after its first step."""
    valid = torch.tensor([[True, True], [True, False], [True, False]])
    batch = SequenceBatch(
        obs=torch.arange(8.0).view(4, 2, 1), first=torch.zeros(4, 2, dtype=torch.bool),
        action=torch.zeros(3, 2, dtype=torch.int64), reward=torch.zeros(3, 2), discount=torch.ones(3, 2), valid=valid,
        memory=torch.zeros(2, 0), weights=torch.ones(2), number=1, progress=0.0,
    )  # fmt: skip
    obs, mask = batch.observed
    assert obs[mask].flatten().tolist() == [0.0, 1.0, 2.0, 4.0]


class Event:
    """What is behind copies to a GPU: it remembers whether it was waited for."""

    made: ClassVar = []

    def __init__(self, blocking):
        assert blocking
        self.was_recorded = self.was_waited_for = False
        self.made.append(self)

    def record(self, stream):
        self.was_recorded = True

    def synchronize(self):
        assert self.was_recorded
        self.was_waited_for = True


def test_memory_is_drawn_into_again_only_behind_its_copies_to_a_gpu(draws_ahead, monkeypatch):
    monkeypatch.setattr(Event, "made", [])
    monkeypatch.setattr("torch.cuda.Event", Event)
    monkeypatch.setattr("torch.cuda.current_stream", lambda device: None)
    replay = make(ratio=8.0, slack=8)
    reader = a_reader(replay, draws_ahead)
    monkeypatch.setattr(reader, "_device", torch.device("cuda"))
    monkeypatch.setattr(reader, "_on_device", torch.from_numpy)
    behind, sample = {}, replay.buffer.sample  # the event behind the copies from each memory, by its address

    def drawn(*args, out, **kwargs):
        event = behind.get(out["obs"].ctypes.data)
        assert event is None or event.was_waited_for
        return sample(*args, out=out, **kwargs)

    monkeypatch.setattr(replay.buffer, "sample", drawn)
    for number in range(6):
        assert reader.ask(None)
        batch, _ = reader.take(number, 0.0)
        behind[batch.obs.data_ptr()] = Event.made[-1]
    assert len(behind) == 1 + draws_ahead and len(Event.made) == 6
    reader.close()
