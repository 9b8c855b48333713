"""The rate limiter: never out of its band, and no process blocked without need."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock._native import RateLimiter as NativeRateLimiter
from penstock.ipc import Arena
from penstock.replay.limiter import NotReady, RateLimiter


def in_band(limiter: RateLimiter) -> bool:
    due = (limiter.inserts - limiter.min_size) * limiter.samples_per_insert
    filling = limiter.samples == 0 and limiter.inserts <= limiter.min_size
    return filling or abs(due - limiter.samples) <= limiter.tolerance


# --- the rule -------------------------------------------------------------------------------------------------------


def test_nothing_is_sampled_before_min_size_and_rows_up_to_it_are_never_held() -> None:
    limiter = RateLimiter(samples_per_insert=1, min_size=1000, tolerance=10)
    assert limiter.try_insert(999)
    assert not limiter.try_sample(1)
    assert limiter.try_insert(1)
    assert limiter.try_sample(1)


def test_either_side_runs_ahead_by_the_tolerance_and_no_further() -> None:
    # min_size 100 * 4 = 400 samples are the centre; the band is 64 to either side.
    limiter = RateLimiter(samples_per_insert=4, min_size=100, tolerance=64)
    limiter.insert(100)
    assert limiter.try_sample(64)  # surplus -64
    assert not limiter.try_sample(1)
    assert limiter.try_insert(16) and limiter.try_insert(16)  # surplus 32 * 4 - 64 = 64
    assert not limiter.try_insert(1)
    assert limiter.try_sample(4)  # surplus 60: room for one row
    assert limiter.try_insert(1)
    assert not limiter.try_insert(1)
    assert (limiter.inserts, limiter.samples) == (133, 68)


def test_ratios_below_one_hold_too() -> None:
    limiter = RateLimiter(samples_per_insert=0.1, min_size=10, tolerance=1)
    limiter.insert(10)
    assert limiter.try_sample(1) and not limiter.try_sample(1)
    assert limiter.try_insert(10) and limiter.try_insert(10)  # worth 2 samples: from -1 to 1
    assert not limiter.try_insert(1)


@pytest.mark.parametrize("samples_per_insert", [None, math.inf])
def test_without_a_ratio_only_min_size_counts(samples_per_insert: float | None) -> None:
    limiter = RateLimiter(samples_per_insert, min_size=3)
    assert limiter.try_insert(2) and not limiter.try_sample(1)
    assert limiter.try_insert(1_000_000) and limiter.try_sample(5_000_000)


def test_by_default_batches_of_1024_and_inserts_of_128_may_go() -> None:
    assert RateLimiter(samples_per_insert=1).tolerance == 1024
    assert RateLimiter(samples_per_insert=8).tolerance == 1024
    assert RateLimiter(samples_per_insert=32).tolerance == 128 * 32


ratios = st.one_of(st.sampled_from([0.1, 0.25, 1 / 3, 1.0, 8.0]), st.floats(0.01, 30))


@given(
    ratio=ratios,
    min_size=st.integers(1, 50),
    extra=st.one_of(st.integers(0, 50), st.floats(0, 50)),
    requests=st.lists(st.tuples(st.booleans(), st.integers(1, 60)), max_size=200),
)
def test_random_interleavings_never_leave_the_band_never_wait_without_need_and_never_get_stuck(
    ratio: float, min_size: int, extra: float, requests: list[tuple[bool, int]]
) -> None:
    tolerance = max(1.0, ratio) + extra
    limiter = RateLimiter(ratio, min_size, tolerance)
    inserts = samples = 0
    held: set[bool] = set()  # the sides refused since something went
    for inserting, n in requests:
        surplus = (inserts - min_size) * ratio - samples
        if inserting:
            free = inserts + n <= min_size
            legal = free or n <= limiter.largest_insert
            may_go = free or surplus + n * ratio <= tolerance
        else:
            legal = n <= tolerance
            may_go = inserts >= min_size and surplus - n >= -tolerance
        request = limiter.try_insert if inserting else limiter.try_sample
        if not legal:
            with pytest.raises(ValueError, match=f"{n} (inserts|samples) at once are too many"):
                request(n)
            continue
        assert request(n) == may_go
        held = set() if may_go else held | {inserting}
        assert held != {True, False}
        inserts += n if may_go and inserting else 0
        samples += n if may_go and not inserting else 0
        assert (limiter.inserts, limiter.samples) == (inserts, samples)
        assert in_band(limiter)


@given(ratio=ratios, min_size=st.integers(1, 50), extra=st.floats(0, 50))
@example(ratio=0.1, min_size=7, extra=0.0)
def test_the_largest_batch_and_the_largest_insert_never_get_stuck(ratio: float, min_size: int, extra: float) -> None:
    tolerance = max(1.0, ratio) + extra
    limiter = RateLimiter(ratio, min_size, tolerance)
    batch, rows = int(tolerance), limiter.largest_insert
    for _ in range(300):
        inserted, sampled = limiter.try_insert(rows), limiter.try_sample(batch)
        assert inserted or sampled


@given(ratio=ratios, rows=st.integers(1, 10_000), slack=st.sampled_from([-1e-16, 0.0, 1e-16]))
def test_the_largest_insert_may_go_and_one_more_may_not(ratio: float, rows: int, slack: float) -> None:
    limiter = RateLimiter(ratio, 1, max(1.0, ratio, rows * ratio * (1 + slack)))
    limiter.insert(1)
    most = limiter.largest_insert
    assert abs(most - limiter.tolerance / ratio) < 1.001 and most * ratio <= limiter.tolerance
    assert limiter.try_insert(most)
    with pytest.raises(ValueError, match=f"at most {most} may go together"):
        limiter.try_insert(most + 1)


def test_without_a_ratio_an_insert_may_have_any_size() -> None:
    assert RateLimiter().largest_insert == 1 << 40


def test_the_measured_ratio_leaves_out_the_rows_that_filled_the_buffer() -> None:
    limiter = RateLimiter(samples_per_insert=2, min_size=10, tolerance=100)
    assert limiter.ratio == 0.0
    limiter.insert(10)
    assert limiter.ratio == 0.0
    limiter.insert(20)
    limiter.sample(50)
    assert limiter.ratio == 2.5


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"samples_per_insert": 0.0}, "samples_per_insert must be above 0, found 0"),
        ({"samples_per_insert": math.nan}, "samples_per_insert must be above 0, found nan"),
        ({"min_size": 0}, "min_size must be from 1 to 1099511627776, found 0"),
        ({"min_size": -1}, "min_size must not be negative, found -1"),
        ({"samples_per_insert": 8, "tolerance": 7.5}, "tolerance must be at least 8, .* found 7.5"),
        ({"samples_per_insert": 0.5, "tolerance": 0.5}, "tolerance must be at least 1, .* found 0.5"),
        ({"samples_per_insert": 1, "tolerance": math.nan}, "found nan"),
        ({"samples_per_insert": 1, "tolerance": math.inf}, "and finite, found inf"),
    ],
)
def test_settings_that_could_only_block_are_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RateLimiter(**arguments)  # type: ignore[arg-type]


def test_a_request_larger_than_the_tolerance_is_an_error_and_not_a_wait() -> None:
    limiter = RateLimiter(samples_per_insert=8, min_size=10, tolerance=100)
    with pytest.raises(ValueError, match=r"101 samples at once are too many: .* at most 100 may go together"):
        limiter.sample(101)
    limiter.insert(10)
    with pytest.raises(ValueError, match=r"13 inserts at once are too many: .* at most 12 may go together"):
        limiter.insert(13)
    assert (limiter.inserts, limiter.samples) == (10, 0)


@pytest.mark.parametrize("n", [0, -1, 1 << 41])
def test_a_request_of_nothing_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match=f"n must be from 1 to 1099511627776, found {n}"):
        RateLimiter().insert(n)


def test_an_error_says_who_is_ahead_and_how_far() -> None:
    limiter = RateLimiter(samples_per_insert=4, min_size=100, tolerance=64)
    with pytest.raises(NotReady, match=r"waits for the first rows: 0 are inserted, min_size=100. Insert 100 more"):
        limiter.sample(64, timeout=0)
    limiter.insert(100)
    limiter.sample(64)
    with pytest.raises(NotReady, match=r"sampling is ahead: 100 inserts and 64 samples, .* after 8 more inserts"):
        limiter.sample(32, timeout=0)
    limiter.insert(16)
    limiter.insert(16)
    with pytest.raises(NotReady, match=r"inserting is ahead: 132 inserts and 64 samples, .* after 8 more samples"):
        limiter.insert(2, timeout=0)
    assert issubclass(NotReady, TimeoutError)


def test_what_an_error_says_is_missing_is_exactly_what_is_missing() -> None:
    limiter = RateLimiter(samples_per_insert=4, min_size=100, tolerance=64)
    limiter.insert(100)
    limiter.sample(64)
    limiter.insert(7)
    assert not limiter.try_sample(32)
    limiter.insert(1)
    assert limiter.try_sample(32)


# --- checkpoints ----------------------------------------------------------------------------------------------------


def test_counters_come_back_from_a_checkpoint() -> None:
    limiter = RateLimiter(samples_per_insert=4, min_size=100, tolerance=64)
    limiter.insert(100)
    limiter.sample(60)
    state = limiter.state()
    assert state == {"inserts": 100, "samples": 60}
    restored = RateLimiter(samples_per_insert=4, min_size=100, tolerance=64)
    restored.restore(state)
    assert restored.state() == state
    assert not restored.try_sample(5) and restored.try_sample(4)
    restored.reset()
    assert restored.state() == {"inserts": 0, "samples": 0}
    assert not restored.try_sample(1)


@pytest.mark.parametrize("counters", [(1000, 1), (100, 500), (-1, 0), (0, -1)])
def test_counters_of_another_limiter_are_refused_and_change_nothing(counters: tuple[int, int]) -> None:
    limiter = RateLimiter(samples_per_insert=4, min_size=100, tolerance=64)
    limiter.insert(50)
    with pytest.raises(ValueError, match=r"outside the band|not be negative"):
        limiter.restore({"inserts": counters[0], "samples": counters[1]})
    assert limiter.state() == {"inserts": 50, "samples": 0}


def test_a_limiter_still_filling_comes_back_too() -> None:
    limiter = RateLimiter(samples_per_insert=4, min_size=1000, tolerance=64)
    limiter.restore({"inserts": 3, "samples": 0})
    assert limiter.inserts == 3


# --- waiting --------------------------------------------------------------------------------------------------------


def test_both_waits_are_measured_apart() -> None:
    limiter = RateLimiter(samples_per_insert=1, min_size=1, tolerance=1)
    with pytest.raises(NotReady):
        limiter.sample(1, timeout=0.02)
    assert limiter.sample_wait > 0.0
    assert limiter.insert_wait == 0.0
    limiter.insert(1)
    limiter.insert(1)
    with pytest.raises(NotReady):
        limiter.insert(1, timeout=0.02)
    assert limiter.insert_wait > 0.0


def test_attaching_the_native_limiter_where_there_is_none_fails() -> None:
    with pytest.raises(ValueError, match="there is no RateLimiter at offset 0"):
        NativeRateLimiter.attach(Arena.create(4096), 0)
