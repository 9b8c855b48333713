"""Replay in shards over loopback: batches are drawn as from one buffer, also when shards come and go."""

import contextlib
import math
import pickle
import re
import threading
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from penstock.engine.nodes.shards import Shard, ShardRole
from penstock.experience import shards
from penstock.experience.arena import ExperienceArena
from penstock.experience.shards import ShardAddress, ShardedBuffer, ShardedReplay, ShardLink
from penstock.ipc import stream
from penstock.ipc.stream import Frame, Kind, connect
from penstock.replay import Field, NotReady, Prioritized, RateLimiter, ReplayBuffer, Uniform
from tests.engine.processes import PATIENCE, wait_until
from tests.experience.writing import run_shape

TOKEN, RUN = b"t" * 32, 11
FIELDS = {"value": Field((3,), "float32"), "reward": Field((), "float32")}
BY_PRIORITY = Prioritized(alpha=1.0, eps=0.0, normalize="batch")
CHI_SQUARE = 2.0  # of its degrees of freedom: exceeded with a chance of less than 1e-4 for 30 or more


def maker(sampler, capacity=60):
    return partial(ReplayBuffer, capacity=capacity, fields=FIELDS, sampler=sampler, seed=3)


class Shards:
    """Shards on this machine, and the buffer at home that is connected to them."""

    def __init__(self, sampler, num_shards=3) -> None:
        self.arena = ExperienceArena.create(run_shape(num_workers=1))
        self.home = ShardedBuffer(maker(sampler), num_shards)
        self.buffers = [self.home.maker_of(number)() for number in range(num_shards)]
        self.served: dict[int, Shard] = {}

    def serve(self, number: int) -> ShardAddress:
        """Serve a shard, and tell home."""
        found = []
        role = ShardRole("127.0.0.1", TOKEN, RUN, self.home.maker_of(number), buffer=self.buffers[number])
        self.served[number] = role.build(self.arena, found.append)
        at = ShardAddress(number, found[0].address, TOKEN, RUN)
        self.home.connect(at)
        return at

    def fill(self, number: int, count: int, priorities=None) -> None:
        for row in range(count):
            given = {} if priorities is None else {"priorities": float(priorities[row])}
            self.buffers[number].add(value=np.full(3, 100 * number + row), reward=number, **given)

    def until(self, is_done) -> None:
        wait_until(is_done, "the shards are so far")

    def lose(self, number: int) -> None:
        self.served.pop(number).close()

    def close(self) -> None:
        self.home.close()
        for number in list(self.served):
            self.lose(number)


@pytest.fixture
def of_three():
    made = []

    def make(sampler, **numbers):
        made.append(Shards(sampler, **numbers))
        return made[-1]

    yield make
    for each in made:
        each.close()
    assert not {"shards", "accepting"} & {thread.name for thread in threading.enumerate()}


@pytest.fixture
def now(monkeypatch):
    """The time at home, as a list of one number that the test moves on."""
    clock = [1_000.0]
    monkeypatch.setattr(shards, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=time.sleep))
    return clock


def drawn(of, batches: int, size: int = 64, beta=None):
    """Count rows by their first value; yield each batch, too."""
    out, counts, found = of.home.allocate(size), Counter(), []
    for _ in range(batches):
        batch = of.home.sample(size, beta=beta, out=out)
        counts.update(batch["value"][:, 0].tolist())
        found.append({name: array.copy() for name, array in batch.items()})
    return counts, found


def misfit(counts: Counter, expected: dict[float, float]) -> float:
    """Chi-square of counts over its degrees of freedom."""
    assert set(counts) <= set(expected)
    total = sum(counts.values()) / sum(expected.values())
    return sum((counts[row] - part * total) ** 2 / (part * total) for row, part in expected.items()) / len(expected)


@pytest.mark.parametrize("sampler", [Uniform(), BY_PRIORITY], ids=["uniform", "by priority"])
def test_rows_are_drawn_as_often_as_from_one_buffer_and_have_its_weights(of_three, sampler):
    of, random = of_three(sampler), np.random.default_rng(1)
    one = maker(sampler)()
    expected = {}
    for number, count in enumerate((5, 18, 11)):
        priorities = random.gamma(0.5, size=count) + 0.05 if sampler is BY_PRIORITY else None
        of.fill(number, count, priorities)
        for row in range(count):
            value, given = 100.0 * number + row, 1.0 if priorities is None else float(priorities[row])
            one.add(value=np.full(3, value), reward=number, **({} if priorities is None else {"priorities": given}))
            expected[value] = given
        of.serve(number)
    of.until(lambda: len(of.home) == 34)
    counts, batches = drawn(of, 400, beta=0.7 if sampler is BY_PRIORITY else None)
    assert misfit(counts, expected) < CHI_SQUARE
    for batch in batches[:50]:
        first = batch["value"][:, :1]
        assert (batch["value"] == first).all() and (batch["reward"] == first[:, 0] // 100).all()
        if sampler is BY_PRIORITY:
            given = np.array([expected[value] for value in batch["value"][:, 0].tolist()])
            assert batch["weights"] == pytest.approx((given / given.min()) ** -0.7, rel=1e-5)
    assert one.allocate(4).keys() == of.home.allocate(4).keys()


def test_weights_are_divided_by_the_largest_of_all_shards_where_the_sampler_says_so(of_three):
    sampler = replace(BY_PRIORITY, normalize="buffer")
    of, one = of_three(sampler, num_shards=2), maker(sampler)()
    priorities = {0: np.array([4.0, 2.0, 8.0]), 1: np.array([1e-3, 5.0])}  # the least is hardly ever drawn
    for number, given in priorities.items():
        of.fill(number, len(given), given)
        one.add(value=np.ones((len(given), 3)), reward=np.full(len(given), number), priorities=given)
        of.serve(number)
    of.until(lambda: len(of.home) == 5)
    drawn(of, 2)  # of both shards
    _, (batch,) = drawn(of, 1, beta=0.5)
    given = np.array([priorities[int(value) // 100][int(value) % 100] for value in batch["value"][:, 0]])
    assert batch["weights"] == pytest.approx((given / 1e-3) ** -0.5, rel=1e-4)
    theirs = one.sample(64, beta=0.5)
    assert set(np.round(batch["weights"], 5)) >= set(np.round(theirs["weights"], 5)) - {1.0}


def test_a_silent_shard_takes_no_other_with_it(of_three, now, monkeypatch):
    monkeypatch.setattr(shards, "LEAST_PATIENCE", PATIENCE)  # for the answers of the others
    of = of_three(Uniform())
    for number in range(3):
        of.fill(number, 10)
        of.serve(number)
    of.until(lambda: len(of.home) == 30)
    frozen = threading.Event()
    draw = of.buffers[1].draw
    monkeypatch.setattr(of.buffers[1], "draw", lambda *given: frozen.wait(20) and draw(*given))
    at, patience = of.home._known.pop(1), []  # it is not connected again by itself
    silent, another = (of.home._links[number].stream.wait_at_most for number in (1, 2))

    def end_at_once(seconds):
        silent(0.1)
        now[0] += seconds

    def note(seconds):
        patience.append(seconds)
        another(seconds)

    monkeypatch.setattr(of.home._links[1].stream, "wait_at_most", end_at_once)
    monkeypatch.setattr(of.home._links[2].stream, "wait_at_most", note)
    counts, _ = drawn(of, 1)  # it waits for the silent one, and then draws of the others
    assert patience[0] == PATIENCE, "though the time in which all were to answer is over"
    assert sum(counts.values()) == 64 and {int(row) // 100 for row in counts} == {0, 2}
    (remark,) = of.home.remarks
    assert "gateway-1 is not connected" in remark
    frozen.set()
    of.home.connect(at)
    of.until(lambda: len(of.home) == 30)


def test_shards_outlast_a_learner_that_stands_still(of_three, monkeypatch):
    monkeypatch.setattr(stream, "SILENCE", 0.3)
    of = of_three(Uniform(), num_shards=1)
    of.fill(0, 10)
    of.serve(0)
    of.until(lambda: len(of.home) == 10)
    with of.home._exchange:  # nothing is asked
        time.sleep(1.0)
    time.sleep(0.3)
    assert not of.home.remarks and sum(drawn(of, 1)[0].values()) == 64


def test_new_priorities_reach_their_rows_and_new_rows_of_any_shard_begin_with_the_largest(of_three):
    of = of_three(BY_PRIORITY, num_shards=2)
    for number in range(2):
        of.fill(number, 4, np.ones(4))
        of.serve(number)
    of.until(lambda: len(of.home) == 8)
    _, batches = drawn(of, 10)
    ids = {float(value): row for b in batches for value, row in zip(b["value"][:, 0], b["ids"].tolist(), strict=True)}
    rows = sorted(ids)
    priorities = np.array([0.0 if row < 3 else 9.0 if row == 3 else 1.0 for row in rows])
    with of.home._exchange:  # nothing is asked
        of.home.update_priorities(np.array([ids[row] for row in rows]), priorities)
        assert of.home._largest == 9.0, "all shards are told, whichever is asked first"
    of.until(lambda: of.buffers[0].mass == 9.0)
    of.until(lambda: of.buffers[1].max_priority == 9.0)
    of.fill(1, 1)  # a row without a priority of its own
    of.until(lambda: sum(link.mass for link in of.home._links.values()) == 22.0)
    counts, _ = drawn(of, 200)
    expected = {3.0: 9.0, 100.0: 1.0 + 9.0, 101.0: 1.0, 102.0: 1.0, 103.0: 1.0}
    assert misfit(counts, expected) < 5.0
    with pytest.raises(ValueError, match="finite"):
        of.home.update_priorities(np.array([ids[rows[0]]]), np.array([np.nan]))


def test_weights_are_of_the_chances_that_rows_had_where_a_shard_has_changed_since_its_last_answer(of_three):
    of = of_three(BY_PRIORITY, num_shards=2)
    for number in range(2):
        of.fill(number, 10, np.ones(10))
        of.serve(number)
    of.until(lambda: len(of.home) == 20)
    with of.home._exchange:
        for link in of.home._links.values():
            link.mass, link.answered_at = 30.0 if link.at.gateway == 0 else 10.0, math.inf  # not asked by itself
    batch = of.home.sample(64, beta=1.0, out=of.home.allocate(64))
    at_first = batch["reward"] == 0
    assert at_first.sum() == 48
    assert batch["weights"][at_first] == pytest.approx(1 / 3) and (batch["weights"][~at_first] == 1.0).all()


def test_a_lost_shard_is_said_with_what_it_held_and_the_others_are_drawn_from(of_three):
    of = of_three(BY_PRIORITY)
    for number in range(3):
        of.fill(number, 10, np.ones(10))
        of.serve(number)
    of.until(lambda: len(of.home) == 30)
    _, (before, *_) = drawn(of, 1)
    of.lose(1)
    drawn(of, 50)
    of.until(lambda: len(of.home) == 20)
    assert {int(row) // 100 for row in drawn(of, 50)[0]} == {0, 2}
    (remark,) = of.home.remarks
    assert "gateway-1 is not connected" in remark and "10 rows, of 30, cannot be drawn" in remark
    of.home.update_priorities(before["ids"], np.full(64, 2.0))  # those of the lost shard are of no use
    of.buffers[1] = of.home.maker_of(1)()  # its successor begins with nothing
    of.fill(1, 3, np.full(3, 5.0))
    of.serve(1)
    of.until(lambda: len(of.home) == 23)
    assert {int(row) // 100 for row in drawn(of, 50)[0]} == {0, 1, 2}


def test_a_shard_whose_role_is_replaced_has_its_rows_again(of_three):
    of = of_three(Uniform(), num_shards=2)
    of.fill(0, 10)
    of.serve(0)
    of.until(lambda: len(of.home) == 10)
    of.lose(0)
    of.until(lambda: len(of.home) == 0)
    of.serve(0)
    of.until(lambda: len(of.home) == 10)
    assert sum(drawn(of, 1)[0].values()) == 64


def test_steps_are_let_in_uncounted_only_when_all_rows_are_lost(of_three, now):
    of, limiter = of_three(Uniform(), num_shards=1), RateLimiter(samples_per_insert=1.0, min_size=4, tolerance=4.0)
    admits = lambda: ShardedReplay(of.home, limiter, 1, 1.0).admit(4, None)  # noqa: E731

    def pass_by(seconds):
        """Let time go by, until the shard has answered again."""
        with of.home._exchange:
            now[0] += seconds
        of.until(lambda: 0 in of.home._links and of.home._links[0].answered_at == now[0])

    assert admits() and admits()  # by the limiter
    assert not admits()
    of.serve(0)
    pass_by(0.0)
    pass_by(shards.BARE_SECONDS)
    assert not admits()  # what was taken may be on its way
    of.fill(0, 8)
    pass_by(10 * shards.BARE_SECONDS)
    assert not admits()
    of.lose(0)
    now[0] += 10 * shards.BARE_SECONDS
    of.until(lambda: len(of.home) == 0)
    assert not admits()  # it may come back with its rows
    of.buffers[0] = of.home.maker_of(0)()
    of.serve(0)
    pass_by(0.0)
    assert not admits()
    pass_by(1.5 * shards.BARE_SECONDS)
    assert admits()
    of.fill(0, 1)
    pass_by(1.0)
    assert not admits()
    assert limiter.inserts == 8


def test_a_draw_waits_for_rows_and_ends_with_the_run(of_three):
    of = of_three(Uniform(), num_shards=2)
    of.serve(0)
    found = []

    def draw():
        with contextlib.suppress(NotReady):
            found.append(len(of.home.sample(64, out=of.home.allocate(64))["ids"]))

    thread = threading.Thread(target=draw)
    thread.start()
    time.sleep(0.2)
    assert thread.is_alive()
    of.fill(0, 1)
    thread.join(5)
    assert found == [64]
    of.lose(0)
    of.until(lambda: len(of.home) == 0)
    thread = threading.Thread(target=draw)
    thread.start()
    of.home.close()
    thread.join(5)
    assert found == [64] and not thread.is_alive()


def test_what_ends_the_thread_that_asks_shards_ends_the_draw(of_three, monkeypatch):
    of = of_three(Uniform(), num_shards=1)

    def fail(wanted):
        raise KeyError("a bug")

    monkeypatch.setattr(of.home, "_answers", fail)
    of.serve(0)
    with pytest.raises(KeyError, match="a bug"):
        of.home.sample(4, out=of.home.allocate(4))


def test_a_shard_that_connects_while_its_learner_ends_is_disconnected(of_three):
    home, ended = of_three(Uniform(), num_shards=1).home, []
    stream = SimpleNamespace(close=lambda: ended.append(True))
    closing = threading.Thread(target=home.close)
    with home._exchange:  # a connection is being taken
        closing.start()
        closing.join(0.3)
        home._links[0] = ShardLink(ShardAddress(0, ("127.0.0.1", 1), TOKEN, RUN), stream, 1)
    closing.join(5)
    assert ended


def test_other_processes_see_the_number_of_rows_and_each_shard_its_own_seed_and_part_of_the_capacity(of_three):
    of = of_three(Uniform())
    elsewhere = pickle.loads(pickle.dumps(of.home))
    of.fill(0, 7)
    of.serve(0)
    of.until(lambda: len(elsewhere) == 7)
    assert elsewhere.capacity == of.home.capacity == 60 and {buffer.capacity for buffer in of.buffers} == {20}
    assert len({of.home.maker_of(number).keywords["seed"] for number in range(3)}) == 3


def test_strangers_get_nothing_and_disturb_nobody(of_three):
    of = of_three(Uniform(), num_shards=1)
    of.fill(0, 5)
    at = of.serve(0)
    of.until(lambda: len(of.home) == 5)
    ask = Frame(Kind.DRAW, RUN, 1, count=1, nbytes=8)
    for token in (b"x" * 32, TOKEN):
        stranger = connect(at.address, token, Frame(Kind.HELLO, RUN, 1), {})
        # With the token, but with a frame that no learner sends.
        stranger.send(ask if token != TOKEN else Frame(Kind.WEIGHTS, RUN, 1), [memoryview(bytes(8))])
        with pytest.raises(OSError):
            stranger.receive()
        stranger.close()
    assert of.served[0].poll() is False
    assert sum(drawn(of, 1)[0].values()) == 64


def request(largest=0.0, priorities=(), number=None, count=0, nbytes=None):
    """A request of a learner, with new priorities of the first rows; a number or length given is a wrong one."""
    content = np.array([largest]).tobytes() + np.arange(len(priorities)).tobytes() + np.array(priorities).tobytes()
    number = len(priorities) if number is None else number
    nbytes = len(content) if nbytes is None else nbytes
    return Frame(Kind.DRAW, RUN, 1, number=number, count=count, nbytes=nbytes), [memoryview(content)]


@pytest.mark.parametrize(
    ("sampler", "damaged", "why"),
    [
        (Uniform(), request(number=2**62), r"one with 4611686018427387904 new priorities is \d+ bytes long, found 8"),
        (Uniform(), request(nbytes=24), "one with 0 new priorities is 8 bytes long, found 24"),
        (Uniform(), request(2.0), "has no priorities"),
        (BY_PRIORITY, request(2.0, [1.0, math.nan]), r"priorities\[1\] is nan"),
        (BY_PRIORITY, request(math.nan), "is nan"),
        (BY_PRIORITY, request(math.inf), "is inf"),
        (BY_PRIORITY, request(count=2**32 - 1), "for 4294967295 rows"),
    ],
)
def test_a_damaged_request_is_refused_and_the_shard_serves_on(of_three, sampler, damaged, why):
    of = of_three(sampler, num_shards=1)
    of.fill(0, 5)
    at = of.serve(0)
    of.until(lambda: len(of.home) == 5)
    broken = connect(at.address, TOKEN, Frame(Kind.HELLO, RUN, 1), {})
    broken.send(*damaged)
    with pytest.raises(OSError):
        broken.receive()
    broken.close()
    reported = []
    of.served[0]._report = reported.append

    def is_refused():
        assert of.served[0].poll() is False
        return reported

    of.until(is_refused)
    (note,) = reported
    assert re.search(f"home has sent a damaged request.*{why}", note.text), note
    assert sum(drawn(of, 1)[0].values()) == 64 and not of.home.remarks


def test_what_ends_the_thread_of_a_connection_ends_the_shard(of_three, monkeypatch):
    of = of_three(Uniform(), num_shards=1)

    def fail(*given):
        raise KeyError("a bug")

    monkeypatch.setattr(of.buffers[0], "draw", fail)
    of.fill(0, 5)
    at = of.serve(0)
    stranger = connect(at.address, TOKEN, Frame(Kind.HELLO, RUN, 1), {})
    stranger.send(*request(count=1))
    of.until(lambda: of.served[0]._failure is not None)
    stranger.close()
    with pytest.raises(KeyError, match="a bug"):
        of.served[0].poll()
