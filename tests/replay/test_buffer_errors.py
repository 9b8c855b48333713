"""Illegal arguments: errors name the argument, the value and legal values, and nothing changes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    Reverse,
    Sequences,
)

STEP: dict[str, Any] = {"obs": [1.0, 2.0, 3.0], "action": 1, "flag": True}


def ten_rows(**options: object) -> ReplayBuffer:
    fields = {"obs": Field((3,)), "action": Field((), "int64"), "flag": Field((), "bool")}
    return ReplayBuffer(10, fields, **options)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"obs": [1.0, 2.0]}, ValueError, r"obs has shape \[2\], but one step is \[3\]: give that, or \[k, ...\]"),
        ({"obs": np.zeros((2, 2, 3))}, ValueError, r"obs has shape \[2, 2, 3\], but one step is \[3\]"),
        ({"obs": 1.0}, ValueError, r"obs has shape \[\], but one step is \[3\]"),
        ({"obs": None}, TypeError, "obs is a NoneType: give float32 numbers"),
        ({"obs": "here"}, TypeError, "obs is a str .*: give float32 numbers"),
        ({"action": 1.5}, TypeError, "action is float64, but the field holds int64: convert it"),
        ({"action": np.zeros(3, np.int64)}, ValueError, "action holds 3 steps, but obs holds 1: give the same number"),
        ({"flag": 2}, TypeError, "flag is int64, but the field holds bool"),
        ({"reward": 1.0}, KeyError, "reward is no field of this buffer: it knows obs, action, flag, terminated"),
        ({"terminated": [True, False]}, ValueError, "terminated holds 2 steps, but obs holds 1"),
        ({"priorities": 1.0}, TypeError, r"a buffer that is not prioritized: .* make it with sampler=Prioritized\(\)"),
        ({"mask": [True, False]}, ValueError, "mask has 2 entries for 1 steps: give one for each"),
    ],
)
def test_a_step_that_does_not_fit_is_named_and_not_written(
    wrong: dict[str, Any], error: type[Exception], message: str
) -> None:
    buffer = ten_rows()
    with pytest.raises(error, match=message):
        buffer.add(**{**STEP, **wrong})
    assert len(buffer) == buffer.num_added == 0
    assert buffer.add(**STEP) == 0


@pytest.mark.parametrize(("dtype", "value"), [("uint8", 256), ("uint8", -1), ("int8", 128), ("int32", 2**31)])
def test_a_number_outside_the_range_of_its_field_is_named(dtype: str, value: int) -> None:
    buffer = ReplayBuffer(10, {"action": Field((), dtype)})
    with pytest.raises(ValueError, match=f"action holds {value} to {value}, which {dtype} cannot hold"):
        buffer.add(action=value)


@pytest.mark.parametrize(
    ("dtype", "value", "found", "largest"),
    [
        ("float32", np.array([1.0, -1e39]), r"-1e\+39", r"3.4028235e\+38"),
        ("float32", [1e39, 1.0], r"1e\+39", r"3.4028235e\+38"),
        ("float16", np.array([70000]), "70000", "65504"),
        ("complex64", [1e39j], r"1e\+39j", r"3.4028235e\+38"),
    ],
)
def test_a_finite_number_that_would_become_infinite_is_named(
    dtype: str, value: object, found: str, largest: str
) -> None:
    buffer = ReplayBuffer(10, {"obs": Field((), dtype)})
    with pytest.raises(ValueError, match=f"obs holds {found}, which {dtype} cannot hold: give -{largest} to {largest}"):
        buffer.add(obs=value)
    assert len(buffer) == 0


def test_what_is_infinite_or_nan_stays_so_and_the_rest_is_rounded() -> None:
    buffer = ReplayBuffer(10, {"obs": Field((3,), "float16")})
    buffer.add(obs=np.array([np.inf, np.nan, 0.1]))
    np.testing.assert_array_equal(buffer.get_all()["obs"], [np.array([np.inf, np.nan, 0.1], np.float16)])


@pytest.mark.parametrize("missing", STEP)
def test_a_missing_field_is_named(missing: str) -> None:
    buffer = ten_rows()
    with pytest.raises(KeyError, match=f"{missing} is missing: .* obs, action, flag"):
        buffer.add(**{name: value for name, value in STEP.items() if name != missing})
    assert len(buffer) == 0


@pytest.mark.parametrize("option", [{"n_step": NStep(reward="obs")}, {"sequences": Sequences(4, 2)}])
def test_rows_of_several_steps_need_to_know_where_episodes_end(option: dict[str, Any]) -> None:
    with pytest.raises(KeyError, match="terminated is missing: rows of several steps end with the episode"):
        ten_rows(**option).add(**STEP)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"obs": [1.0, 2.0, 3.0]}, r"obs has shape \[3\], but one step of 2 lanes is \[2, 3\]"),
        ({name: [value] * 3 for name, value in STEP.items()}, "values for 3 lanes, but this writer has 2"),
        ({"mask": [True]}, "mask has 1 entries for 2 steps: give one for each"),
    ],
)
def test_a_wrong_number_of_lanes_is_named(wrong: dict[str, Any], message: str) -> None:
    buffer = ten_rows()
    writer = buffer.writer(lanes=2)
    with pytest.raises(ValueError, match=message):
        writer.add(**{**{name: [value] * 2 for name, value in STEP.items()}, **wrong})
    assert len(buffer) == 0


def test_a_lane_that_is_not_there_is_named() -> None:
    with pytest.raises(IndexError, match="lane 2 is not legal: lanes are 0 to 1"):
        ten_rows().writer(lanes=2).end_episode(2)
    with pytest.raises(ValueError, match="lanes=0 is not legal: give a whole number, 1 or more"):
        ten_rows().writer(lanes=0)


@pytest.mark.parametrize("batch_size", [0, -3])
def test_a_batch_size_that_is_not_legal_is_named(batch_size: int) -> None:
    with pytest.raises(ValueError, match=f"batch_size={batch_size} is not legal: give 1 or more"):
        ten_rows().sample(batch_size)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda buffer: buffer.sample(1.5), "batch_size=1.5 is not legal: give a whole number"),
        (lambda buffer: buffer.sample_uniform(2**70), f"batch_size={2**70} is not legal: give a whole number"),
        (lambda buffer: buffer.sample_uniform("2"), "batch_size='2' is not legal: give a whole number"),
        (lambda buffer: buffer.allocate(None), "batch_size=None is not legal: give a whole number"),
        (lambda buffer: buffer.draw("2"), "batch_size='2' is not legal: give a whole number"),
        (lambda buffer: buffer.sample(2, beta="x"), "beta='x' is not legal: give a number"),
        (lambda buffer: buffer.sample(2, beta=[0.4]), r"beta=\[0.4\] is not legal: give a number"),
        (lambda _: ten_rows().sample(2, timeout="1"), "timeout='1' is not legal: give a number"),
        (lambda buffer: buffer.update_priorities(None, [1.0]), "ids must be whole numbers, found object"),
        (lambda buffer: buffer.writer(2).end_episode("a"), "lane='a' is not legal: give a whole number"),
        (lambda buffer: buffer.writer(2).episode_length(0.5), "lane=0.5 is not legal: give a whole number"),
        (lambda _: RateLimiter("4"), "samples_per_insert='4' is not legal: give a number"),
        (lambda _: RateLimiter(min_size=1.5), "min_size=1.5 is not legal: give a whole number"),
        (lambda _: RateLimiter(tolerance="1"), "tolerance='1' is not legal: give a number"),
        (lambda _: RateLimiter().insert("1"), "n='1' is not legal: give a whole number"),
        (lambda _: RateLimiter().sample(1, timeout="1"), "timeout='1' is not legal: give a number"),
        (lambda _: RateLimiter().try_sample(None), "n=None is not legal: give a whole number"),
    ],
)
def test_an_argument_of_another_type_is_named(call: Callable[[ReplayBuffer], object], message: str) -> None:
    buffer = ten_rows(sampler=Prioritized())
    buffer.add(**STEP)
    with pytest.raises(TypeError, match=f"^{message}$"):
        call(buffer)
    assert len(buffer.sample(np.int32(2), beta=np.float32(0.5))["ids"]) == 2


@pytest.mark.parametrize("illegal", [np.nan, np.inf, -1.0])
def test_an_illegal_priority_is_named_and_changes_nothing(illegal: float) -> None:
    buffer = ten_rows(sampler=Prioritized())
    buffer.add(**STEP)
    with pytest.raises(ValueError, match=r"priorities\[0\] is .*: priorities must be finite and not negative"):
        buffer.add(**STEP, priorities=illegal)
    with pytest.raises(ValueError, match=r"priorities\[1\] is .*: priorities must be finite and not negative"):
        buffer.update_priorities([0, 0], [5.0, illegal])
    assert (len(buffer), buffer.max_priority) == (1, 1.0)


def test_priorities_must_be_as_many_as_what_they_are_for() -> None:
    buffer = ten_rows(sampler=Prioritized())
    with pytest.raises(ValueError, match="found 2 priorities for 1 steps: give one for each, or one for all"):
        buffer.add(**STEP, priorities=[1.0, 2.0])
    with pytest.raises(ValueError, match="found 1 priorities for 2 rows: give one for each"):
        buffer.update_priorities([0, 1], [1.0])


def test_what_only_a_prioritized_buffer_can_do_says_so() -> None:
    for ask in (lambda buffer: buffer.update_priorities([0], [1.0]), lambda buffer: buffer.max_priority):
        with pytest.raises(TypeError, match=r"this buffer has no priorities: make it with sampler=Prioritized\(\)"):
            ask(ten_rows())


def test_a_reservoir_does_not_know_where_a_row_went() -> None:
    with pytest.raises(TypeError, match="this buffer is a reservoir"):
        ten_rows(sampler=Reservoir()).get([0])


def test_a_limited_buffer_says_which_side_is_ahead() -> None:
    buffer = ten_rows(rate_limiter=RateLimiter(samples_per_insert=1.0, min_size=2, tolerance=4))
    writer = buffer.writer(timeout=0.01)
    writer.add(**STEP)
    with pytest.raises(NotReady, match="a sample of 4 waits for the first rows: 1 are inserted, min_size=2"):
        buffer.sample(4)
    for _ in range(5):
        writer.add(**STEP)
    with pytest.raises(NotReady, match="inserting is ahead"):
        writer.add(**STEP)
    assert len(buffer) == 6
    buffer.sample(4)
    buffer.sample(4)
    with pytest.raises(NotReady, match="sampling is ahead"):
        buffer.sample(4, timeout=0.01)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"capacity": 0}, ValueError, "capacity=0 is not legal: give a whole number of rows, 1 or more"),
        ({"capacity": 1e6}, ValueError, "capacity=1000000.0 is not legal: give a whole number"),
        ({"capacity": True}, ValueError, "capacity=True is not legal: give a whole number"),
        ({"capacity": 10**11}, MemoryError, "a replay buffer of 100,000,000,000 rows needs .* MiB, but only"),
        ({"fields": {}}, ValueError, "fields is empty: name at least one"),
        ({"fields": ["a"]}, TypeError, r"fields=\['a'\] is not legal: give a dict"),
        ({"fields": {"a": (3,)}}, TypeError, r"fields\['a'\] is \(3,\): give a Field\(shape, dtype\)"),
        ({"fields": {"ids": Field()}}, ValueError, r"fields\['ids'\]: the name is used by the buffer itself"),
        ({"fields": {"a": Field((0,))}}, ValueError, r"fields\['a'\] has shape \(0,\): every length must be 1 or more"),
        ({"fields": {"a": Field((4.5,))}}, ValueError, r"fields\['a'\] has shape \(4.5,\): .* a whole number"),
        ({"fields": {"a": Field((True,))}}, ValueError, r"fields\['a'\] has shape \(True,\): .* a whole number"),
        ({"fields": {"a": Field((3,), stack=0.5)}}, ValueError, r"fields\['a'\] has stack=0.5: .* of an axis, or None"),
        ({"fields": {"a": Field(next_of=["b"])}}, ValueError, r"next_of=\['b'\]: give one of"),
        ({"fields": {"a": Field((), object)}}, ValueError, r"fields\['a'\] has dtype object: .* plain numbers"),
        ({"fields": {"a": Field((), ">f4")}}, ValueError, r"fields\['a'\] has dtype >f4 in foreign byte order"),
        ({"fields": {"a": Field((3,), stack=1)}}, ValueError, r"fields\['a'\] has stack=1, but 1 axes"),
        ({"fields": {"a": Field((4097,), stack=0)}}, ValueError, r"fields\['a'\] stacks 4097 frames: at most 4096"),
        ({"fields": {"a": Field(), "b": Field(next_of="c")}}, ValueError, r"next_of='c': give one of \['a'\]"),
        ({"fields": {"a": Field(), "b": Field((2,), next_of="a")}}, ValueError, "give both the same shape and dtype"),
        ({"fields": {"a": Field(first=True)}}, ValueError, "a meaning only with sequences"),
        ({"sampler": "uniform"}, TypeError, r"sampler='uniform' is not legal: give Uniform\(\), Prioritized\(\)"),
        ({"sampler": Prioritized(alpha=-1.0)}, ValueError, r"Prioritized\(alpha=-1.0\) is not legal"),
        ({"sampler": Prioritized(alpha="a")}, ValueError, r"Prioritized\(alpha='a'\) is not legal: give a finite"),
        ({"sampler": Prioritized(beta=np.nan)}, ValueError, r"Prioritized\(beta=nan\) is not legal: give a finite"),
        ({"sampler": Prioritized(eps=None)}, ValueError, r"Prioritized\(eps=None\) is not legal: give a finite"),
        ({"sampler": Prioritized(normalize="all")}, ValueError, "give 'buffer' or 'batch'"),
        ({"sampler": Reverse(stride=0)}, ValueError, r"Reverse\(stride=0\) is not legal"),
        ({"sampler": Reverse(2.5)}, ValueError, r"Reverse\(stride=2.5\) is not legal: give a whole number, 1 or more"),
        ({"n_step": 3}, TypeError, r"n_step=3 is not legal: give NStep\(steps, gamma\) or None"),
        ({"n_step": NStep(2.0)}, ValueError, r"NStep\(steps=2.0\) is not legal: give a whole number, 1 or more"),
        ({"n_step": NStep(3, "a")}, ValueError, r"NStep\(gamma='a'\) is not legal: give 0 to 1"),
        ({"n_step": NStep(3, np.nan)}, ValueError, r"NStep\(gamma=nan\) is not legal: give 0 to 1"),
        ({"n_step": NStep(reward=7)}, ValueError, r"NStep\(reward=7\) is not legal: give the name of a field"),
        ({"n_step": NStep(steps=0)}, ValueError, r"NStep\(steps=0\) is not legal"),
        ({"n_step": NStep(gamma=1.5)}, ValueError, r"NStep\(gamma=1.5\) is not legal: give 0 to 1"),
        ({"n_step": NStep(reward="r")}, ValueError, "reward='r'.*: .* float32 or float64, found no such field"),
        ({"n_step": NStep(), "sequences": Sequences()}, ValueError, "n_step and sequences cannot be combined"),
        ({"sequences": 8}, TypeError, r"sequences=8 is not legal: give Sequences\(length, period\) or None"),
        ({"sequences": Sequences(length=0)}, ValueError, "length and period must be whole numbers, 1 or more"),
        ({"sequences": Sequences(8.5, 4)}, ValueError, r"Sequences\(length=8.5, period=4\) is not legal"),
        ({"sequences": Sequences(8, "4")}, ValueError, r"Sequences\(length=8, period='4'\) is not legal"),
        ({"frame_capacity": 0}, ValueError, "frame_capacity=0 is not legal: give a whole number, 1 or more, or None"),
        ({"frame_capacity": 2.5}, ValueError, "frame_capacity=2.5 is not legal: give a whole number"),
        ({"frame_capacity": 9}, ValueError, r"frame_capacity=9 has a meaning only with frames: .* among reward"),
        ({"num_threads": 0}, ValueError, "num_threads=0 is not legal: give a whole number, 1 to 64"),
        ({"num_threads": 1.5}, ValueError, "num_threads=1.5 is not legal: give a whole number"),
        ({"seed": "a"}, ValueError, "seed='a' is not legal: give a whole number, or None"),
    ],
)
def test_a_setting_that_is_not_legal_is_named(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    legal: dict[str, Any] = {"capacity": 10, "fields": {"reward": Field()}}
    with pytest.raises(error, match=message):
        ReplayBuffer(**{**legal, **settings})


def test_settings_may_be_numbers_of_numpy(tmp_path: Path) -> None:
    def make(whole: type, real: type) -> ReplayBuffer:
        fields = {"obs": Field((whole(2), whole(4)), stack=whole(0)), "reward": Field()}
        options = {"sampler": Prioritized(real(0.5), real(0.5), real(0.25)), "n_step": NStep(whole(2), real(0.5))}
        return ReplayBuffer(whole(10), fields, frame_capacity=whole(50), **options)

    buffer = make(np.int64, np.float64)
    buffer.add(obs=np.ones((5, 2, 4)), reward=np.ones(5), terminated=np.arange(5) == 4)
    buffer.save(tmp_path / "saved")
    plain = make(int, float)
    plain.load(tmp_path / "saved")
    assert plain.get_all()["reward"].tolist() == [1.5, 1.5, 1.5, 1.5, 1.0]
    assert len(ReplayBuffer(10, {"a": Field()}, sequences=Sequences(np.int64(4), np.int32(2))).allocate(3)["mask"]) == 3


@pytest.mark.parametrize("stratified", [1, "no", np.bool_(True)])
def test_a_switch_of_the_sampler_is_true_or_false(stratified):
    with pytest.raises(ValueError, match=r"Prioritized\(stratified=.*\) is not legal: give True or False"):
        ReplayBuffer(10, {"obs": Field()}, sampler=Prioritized(stratified=stratified))


def test_rows_that_no_machine_holds_are_refused():
    with pytest.raises(MemoryError, match=r"fields\['obs'\] has 39,.* bytes in each row: at most 1,099,"):
        ReplayBuffer(10, {"obs": Field((2**31 - 1,) * 3)})
