"""Requests: groups ask, inference answers, and no word is read before the data it announces is written."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from penstock.experience import arena as arena_module
from penstock.experience.arena import ExperienceArena, Pending, Requests
from tests.experience.writing import run_shape

SHAPE = run_shape(num_workers=2, num_envs_per_worker=4, num_groups=2, state_size=1)
"""Two workers with two groups each, 0 and 1, 2 and 3, of two lanes; a lane's memory state is one number."""


@dataclass
class Shared:
    """The requests of a run as two processes see them: one asks and steps, the other answers."""

    asking: Requests
    answering: Requests
    arena: ExperienceArena

    def ask(self, *groups: int) -> None:
        """Have groups ask, each for its first two rows and with its own number as noise."""
        for group in groups:
            self.asking.ask(group, *said_by(group))

    def answer(self) -> Pending:
        """Answer all that is pending."""
        pending = self.answering.pending()
        assert pending is not None
        self.answering.mark_answered(pending)
        return pending

    def answered(self, *groups: int) -> list[bool]:
        """Whether each of these groups finds itself answered."""
        return [self.asking.is_answered(group) for group in groups]


def said_by(group: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and noise of a group's request."""
    return np.array([10 * group, 10 * group + 1]), np.full((2, 1), group + 0.5, np.float32)


def numbered(pending: Pending | None) -> dict[int, int]:
    """Number of the pending request by group."""
    return {} if pending is None else dict(zip(pending.groups.tolist(), pending.numbers.tolist(), strict=True))


@pytest.fixture
def shared() -> Shared:
    arena = ExperienceArena.create(SHAPE)
    other = ExperienceArena.attach(SHAPE, os.dup(arena.arena.fd))
    return Shared(arena.requests, other.requests, arena)


@pytest.fixture
def at_the_fences(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Gives another process its turn between two words of this one: one call at each of the next fences."""

    def give(*turns: Callable[[], object]) -> None:
        left = iter(turns)
        monkeypatch.setattr(arena_module, "fence", lambda: next(left, lambda: None)())

    return give


def test_in_the_beginning_nothing_is_asked_and_nothing_is_open(shared):
    assert shared.answering.pending() is None
    assert shared.answered(0, 1, 2, 3) == [True] * 4
    assert shared.asking.num_answered(0) == 0


def test_who_asks_is_pending_with_all_that_it_said_and_the_policy_worker_is_woken(shared):
    rung = shared.arena.policy_bells[0].value
    shared.ask(1, 2)
    assert shared.arena.policy_bells[0].value != rung
    assert numbered(shared.answering.pending()) == {1: 1, 2: 1}
    assert shared.answering.rows[[1, 2]].tolist() == [[10, 11], [20, 21]]
    assert shared.answering.noise[[1, 2]].tolist() == [[[1.5], [1.5]], [[2.5], [2.5]]]
    assert shared.answered(0, 1, 2, 3) == [True, False, False, True]


def test_an_answer_is_for_what_was_pending_and_for_nothing_asked_since(shared):
    shared.ask(1)
    pending = shared.answering.pending()
    shared.ask(0, 3)
    bells = shared.arena.rollout_bells
    rung = [bell.value for bell in bells]
    shared.answering.mark_answered(pending)
    assert [bell.value != before for bell, before in zip(bells, rung, strict=True)] == [True, False]
    assert shared.answered(0, 1, 3) == [False, True, False]
    assert numbered(shared.answer()) == {0: 1, 3: 1}
    assert shared.answered(0, 1, 3) == [True] * 3 and shared.answering.pending() is None


def test_a_groups_requests_are_numbered(shared):
    for number in (1, 2, 3):
        shared.ask(2)
        assert numbered(shared.answer()) == {2: number}
        assert shared.asking.num_answered(2) == number


def test_a_request_is_seen_when_all_that_it_says_is_written(shared, at_the_fences):
    seen = []

    def look():
        seen.extend([shared.answering.pending(), shared.answering.rows[3].tolist(), shared.answering.noise[3].tolist()])

    at_the_fences(look)
    shared.ask(3)
    assert seen == [None, [30, 31], [[3.5], [3.5]]]


def test_an_answer_is_seen_behind_a_fence_after_the_actions(shared, at_the_fences):
    shared.ask(0)
    pending, seen = shared.answering.pending(), []
    at_the_fences(lambda: seen.append(shared.answered(0)))
    shared.answering.mark_answered(pending)
    assert seen == [[False]] and shared.answered(0) == [True]


def test_actions_are_read_behind_a_fence_after_the_answer_was_seen(shared, at_the_fences):
    shared.ask(0)
    shared.answer()
    passed = []
    at_the_fences(lambda: passed.append("a fence"))
    assert shared.answered(0) == [True] and passed == ["a fence"]


def test_who_infers_for_itself_answers_its_request_before_anyone_else_sees_it(shared):
    seen = []

    def answer(pending: Pending) -> None:
        said = shared.asking.rows[2].tolist(), shared.asking.noise[2].tolist()
        seen.append((numbered(pending), said, shared.answering.pending()))

    for number in (1, 2):
        shared.asking.ask_and_answer(2, *said_by(2), answer)
        assert seen.pop() == ({2: number}, ([20, 21], [[2.5], [2.5]]), None)
        assert shared.answered(2) == [True] and shared.asking.num_answered(2) == number
    assert shared.answering.pending() is None


def test_the_next_request_starts_from_the_memory_that_the_last_answer_left(shared):
    shared.ask(1)
    shared.answering.keep_memory(shared.answering.pending(), np.array([[5.0], [6.0]]))
    shared.answer()
    shared.ask(1, 3)  # the second request of one, the first of the other
    pending = shared.answering.pending()
    assert shared.answering.memory(pending).tolist() == [[5.0], [6.0], [0.0], [0.0]]
    shared.answering.keep_memory(pending, np.array([[7.0], [8.0], [1.0], [2.0]]))
    shared.answer()
    shared.ask(3, 1)
    assert shared.answering.memory(shared.answering.pending()).tolist() == [[7.0], [8.0], [1.0], [2.0]]


def test_an_answer_that_is_not_finished_leaves_the_memory_that_it_started_from(shared):
    for number in range(3):
        shared.ask(0)
        pending = shared.answering.pending()
        for after in (99.0, number + 1.0):  # a policy worker that dies, and its successor
            assert shared.answering.memory(pending).tolist() == [[number], [number]]
            shared.answering.keep_memory(pending, np.full((2, 1), after))
        shared.answer()


def test_what_is_withdrawn_is_pending_no_more_and_the_policy_worker_is_woken(shared):
    shared.ask(0, 1, 2, 3)
    rung = shared.arena.policy_bells[0].value
    assert shared.asking.withdraw(1) == 1
    assert shared.arena.policy_bells[0].value != rung
    assert numbered(shared.answering.pending()) == {0: 1, 1: 1}
    assert shared.asking.withdraw(0) == 2
    assert shared.answering.pending() is None


def test_a_late_answer_to_what_was_withdrawn_is_none_for_the_successor(shared):
    shared.ask(0, 1)
    late = shared.answering.pending()
    death = shared.asking.withdraw(0)
    shared.answering.mark_answered(late)
    assert shared.answered(0, 1) == [False, False]
    assert shared.answering.pending() is None and shared.asking.has_passed(death, 0)
    shared.asking.reset(0)
    shared.ask(0)
    assert shared.answered(0, 1) == [False, True]
    assert numbered(shared.answer()) == {0: 1}


def test_a_reset_lets_the_groups_of_one_worker_begin_anew_and_those_of_no_other(shared):
    for _ in range(3):
        shared.ask(0, 1, 2, 3)
        shared.answer()
    shared.ask(0, 2)
    shared.asking.withdraw(1)
    shared.asking.reset(1)
    assert shared.answered(0, 1, 2, 3) == [False, True, True, True]
    shared.ask(1, 2, 3)
    assert numbered(shared.answering.pending()) == {0: 4, 1: 4, 2: 1, 3: 1}


def test_a_death_is_passed_between_two_batches(shared):
    shared.ask(0)
    pending = shared.answering.pending()
    assert shared.asking.has_passed(0, 0)
    one, two = shared.asking.withdraw(0), shared.asking.withdraw(1)
    assert not shared.asking.has_passed(one, 0), "an answer is under way"
    shared.answering.mark_answered(pending)
    assert not shared.asking.has_passed(one, 0), "and it does not say that it was the last"
    assert shared.answering.pending() is None
    assert shared.asking.has_passed(one, 0) and shared.asking.has_passed(two, 1)
    assert not shared.asking.has_passed(shared.asking.withdraw(0), 0)


def test_a_policy_worker_that_looks_in_the_midst_of_a_withdrawal_finds_nothing_and_has_not_passed_it(
    shared, at_the_fences
):
    shared.ask(0, 1)
    seen = []
    at_the_fences(lambda: seen.extend([shared.answering.pending(), shared.asking.has_passed(1, 0)]))
    shared.asking.withdraw(0)
    assert seen == [None, False]
    assert shared.answering.pending() is None and shared.asking.has_passed(1, 0)


def test_each_of_several_policy_workers_serves_its_own_rollout_workers_and_notices_their_deaths_alone():
    shape = run_shape(num_workers=3, num_envs_per_worker=4, num_groups=2, state_size=1, num_policy_workers=2)
    arena = ExperienceArena.create(shape)
    other = ExperienceArena.attach(shape, os.dup(arena.arena.fd))
    shared = Shared(arena.requests, other.requests, arena)
    assert [arena.requests.policy_worker_of(worker) for worker in range(3)] == [0, 1, 0]
    assert shape.groups_per_policy_worker == 4

    def rung():
        return [bell.value for bell in arena.policy_bells]

    before = rung()
    shared.ask(0, 1, 5)
    assert rung() == [before[0] + 3, before[1]]
    shared.ask(2)
    assert rung() == [before[0] + 3, before[1] + 1]
    assert [numbered(shared.answering.pending(number)) for number in range(2)] == [{0: 1, 1: 1, 5: 1}, {2: 1}]
    shared.answering.mark_answered(shared.answering.pending(1))
    assert shared.answered(0, 1, 2, 5) == [False, False, True, False]
    assert shared.answering.pending(1) is None

    before = rung()
    death = shared.asking.withdraw(1)
    assert rung() == [before[0], before[1] + 1]
    shared.answering.pending(0)
    assert not shared.asking.has_passed(death, 1), "it is none of this one's"
    shared.answering.pending(1)
    assert shared.asking.has_passed(death, 1) and not shared.asking.has_passed(death, 0)
    first = shared.asking.withdraw(2)
    assert first == 1 and not shared.asking.has_passed(first, 2)
    assert numbered(shared.answering.pending(0)) == {0: 1, 1: 1}
    assert shared.asking.has_passed(first, 2)


@pytest.mark.parametrize(("fence", "found"), [("before it looks", {}), ("after it looked", {0: 1})])
def test_a_policy_worker_has_not_passed_a_death_that_comes_while_it_looks(shared, at_the_fences, fence, found):
    shared.ask(0)
    turns = [lambda: shared.asking.withdraw(0)] if found == {} else [lambda: None, lambda: shared.asking.withdraw(0)]
    at_the_fences(*turns)
    assert numbered(shared.answering.pending()) == found
    assert not shared.asking.has_passed(1, 0)
    assert shared.answering.pending() is None and shared.asking.has_passed(1, 0)


def count_requests(arena: ExperienceArena, dies_at: int | None) -> None:
    """Answer for ever, with the number of requests that the memory has seen; or die during such a request."""
    requests, bell = arena.requests, arena.policy_bells[0]
    while True:
        seen = bell.value
        pending = requests.pending()
        if pending is None:
            bell.wait(seen, 1.0)
            continue
        count = requests.memory(pending) + 1
        arena.columns["action"][requests.rows[pending.groups].reshape(-1)] = count[:, 0]
        requests.keep_memory(pending, count)
        if dies_at in pending.numbers:
            os.kill(os.getpid(), signal.SIGKILL)
        requests.mark_answered(pending)


@pytest.mark.timeout(60)
def test_two_processes_ask_and_answer_and_a_killed_ones_successor_answers_the_same(shared, fork):
    process = fork(count_requests, shared.arena, 100)
    actions, bell = shared.arena.columns["action"], shared.arena.rollout_bells[0]
    for number in range(1, 301):
        rows = [np.array([(7 * number + lane) % 20 for lane in (first, first + 1)]) for first in (0, 2)]
        for group in (0, 1):
            shared.asking.ask(group, rows[group], said_by(group)[1])
        if number == 100:
            process.join()
            fork(count_requests, shared.arena, None)
        for group in (0, 1):
            seen = bell.value
            while not shared.asking.is_answered(group):
                seen = bell.wait(seen, 1.0)
            assert actions[rows[group]].tolist() == [number] * 2
