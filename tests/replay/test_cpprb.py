"""The drop-in against cpprb 11.0.0: what its buffers answered to the same calls is written down here."""

import inspect
import pickle

import numpy as np
import pytest

from penstock.replay import NotReady, cpprb
from tests.replay.drop_in import filled, numbers

TRANSITION = {"obs": {"shape": 2}, "act": {}, "rew": {}, "next_obs": {"shape": 2}, "done": {}}
STEP = {"obs": [1, 2], "act": 3, "rew": 0.5, "next_obs": [3, 4], "done": False}
KINDS = [
    cpprb.ReplayBuffer,
    cpprb.PrioritizedReplayBuffer,
    cpprb.ReverseReplayBuffer,
    cpprb.MPReplayBuffer,
    cpprb.MPPrioritizedReplayBuffer,
]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def kind(request):
    return request.param


def values(buffer, name="a"):
    return buffer.get_all_transitions()[name].ravel().tolist()


# ---- names


def test_it_has_the_names_of_cpprb():
    assert set(cpprb.__all__) == {
        "ReplayBuffer", "PrioritizedReplayBuffer", "MPReplayBuffer", "MPPrioritizedReplayBuffer",
        "SelectiveReplayBuffer", "ReverseReplayBuffer", "LaBERmean", "LaBERlazy", "LaBERmax", "HindsightReplayBuffer",
        "create_buffer", "train", "create_env_dict", "create_before_add_func",
    }  # fmt: skip


def test_sizes_and_declarations_are_positional_and_options_are_keywords(kind):
    for name, parameter in list(inspect.signature(kind).parameters.items())[2:]:
        assert parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD, name
    with pytest.raises(TypeError):
        kind(4, TRANSITION, None)


def test_prioritized_buffers_are_of_the_class_that_they_extend():
    assert issubclass(cpprb.PrioritizedReplayBuffer, cpprb.ReplayBuffer)
    assert issubclass(cpprb.MPPrioritizedReplayBuffer, cpprb.MPReplayBuffer)


# ---- adding and counting


def test_a_row_an_index_and_the_counts_go_together(kind):
    buffer = kind(4, TRANSITION)
    first = buffer.add(**STEP)
    assert (first, type(first)) == (0, int)
    assert buffer.add(obs=[[1, 2], [5, 6]], act=[3, 4], rew=[0.5, 0.6], next_obs=[[3, 4], [7, 8]], done=[0, 1]) == 1
    assert (buffer.get_next_index(), buffer.get_stored_size(), buffer.get_buffer_size()) == (3, 3, 4)
    assert buffer.add(**STEP) == 3
    assert (buffer.get_next_index(), buffer.get_stored_size()) == (0, 4)


def test_rows_that_wrap_around_take_the_first_indexes(kind):
    buffer = kind(4, TRANSITION)
    for _ in range(4):
        buffer.add(**STEP)
    added = {"obs": np.arange(6).reshape(3, 2) * 10, "act": [30, 31, 32], "rew": [1, 2, 3]}
    assert buffer.add(**added, next_obs=np.zeros((3, 2)), done=[0, 0, 0]) == 0
    rows = buffer.get_all_transitions()
    assert rows["obs"].tolist() == [[0, 10], [20, 30], [40, 50], [1, 2]]
    assert rows["act"].tolist() == [[30], [31], [32], [3]]
    assert rows["rew"].tolist() == [[1], [2], [3], [0.5]]


def test_the_episode_grows_with_every_row_until_it_is_ended():
    buffer = numbers(cpprb.ReplayBuffer, 4)
    buffer.add(a=[1, 2, 3, 4])
    buffer.add(a=[5, 6, 7])
    assert buffer.get_current_episode_len() == 7
    buffer.on_episode_end()
    assert buffer.get_current_episode_len() == 0
    buffer.add(a=8)
    assert buffer.get_current_episode_len() == 1


def test_an_addition_larger_than_the_buffer_leaves_its_last_rows(kind):
    buffer = numbers(kind, 4)
    assert buffer.add(a=np.arange(7)) == 0
    assert values(buffer) == [4, 5, 6, 3]


def test_values_are_cast_as_numpy_casts_them(kind):
    buffer = kind(
        4,
        {
            "a": {"shape": (2, 3), "dtype": np.uint8},
            "b": {"shape": 1, "dtype": "int16"},
            "c": {"dtype": bool},
            "d": {"shape": [3]},
            "e": {"shape": np.array([2, 2])},
        },
        default_dtype=np.float64,
    )
    buffer.add(a=np.arange(6).reshape(2, 3) + 250, b=70000, c=3, d=[1, 2, 3], e=np.ones(4))
    buffer.add(a=np.full((2, 3), -1.7), b=-2.9, c=0.1, d=(1, 2, 3), e=np.ones((2, 2)))
    rows = buffer.get_all_transitions()
    assert rows["a"].tolist() == [[[250, 251, 252], [253, 254, 255]], [[255] * 3] * 2]
    assert rows["b"].tolist() == [[4464], [-2]]
    assert rows["c"].tolist() == [[True], [True]]
    assert {name: (array.dtype.name, array.shape) for name, array in rows.items()} == {
        "a": ("uint8", (2, 2, 3)),
        "b": ("int16", (2, 1)),
        "c": ("bool", (2, 1)),
        "d": ("float64", (2, 3)),
        "e": ("float64", (2, 2, 2)),
    }


@pytest.mark.parametrize("shape", [1, (), [], (1,)])
def test_a_number_is_an_array_of_one(kind, shape):
    buffer = kind(4, {"a": {"shape": shape}})
    buffer.add(a=3)
    assert buffer.sample(2)["a"].tolist() == [[3], [3]]


def test_the_size_of_a_value_says_how_many_rows_it_is(kind):
    buffer = kind(8, {"a": {"shape": 2}, "b": {}})
    assert buffer.add(a=[1, 2, 3, 4], b=[1, 2]) == 0
    assert buffer.add(a=[[5, 6]], b=[[3]]) == 2
    assert values(buffer) == [1, 2, 3, 4, 5, 6]
    assert values(buffer, "b") == [1, 2, 3]


def test_values_beyond_the_declared_ones_are_passed_over(kind):
    buffer = numbers(kind, 4)
    assert buffer.add(a=1, info="anything") == 0
    assert list(buffer.sample(1))[:1] == ["a"]


def test_a_size_may_be_a_float(kind):
    assert numbers(kind, 1e3).get_buffer_size() == 1000
    assert numbers(kind, 3.7).get_buffer_size() == 3


def test_the_default_dtype_is_float32_and_a_dtype_of_none_is_the_default(kind):
    assert numbers(kind, 4).get_all_transitions()["a"].dtype == np.float32
    buffer = kind(4, {"a": {"dtype": None}}, default_dtype="f8")
    assert buffer.get_all_transitions()["a"].dtype == np.float64


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ({"obs": [1, 2]}, KeyError),
        ({**STEP, "obs": [1, 2, 3]}, ValueError),
        ({**STEP, "act": [1, 2, 3]}, ValueError),
        ({**STEP, "act": "word"}, (TypeError, ValueError)),
        ({**STEP, "act": None}, (TypeError, ValueError)),
    ],
)
def test_an_addition_that_fails_adds_nothing(kind, step, error):
    buffer = kind(4, TRANSITION)
    buffer.add(**STEP)
    with pytest.raises(error):
        buffer.add(**step)
    assert (buffer.get_next_index(), buffer.get_stored_size()) == (1, 1)


@pytest.mark.parametrize("size", [0, -1])
def test_a_buffer_without_room_is_refused(kind, size):
    with pytest.raises(ValueError, match="capacity"):
        numbers(kind, size)


def test_a_buffer_without_fields_is_refused(kind):
    with pytest.raises(ValueError, match="env_dict"):
        kind(4)


@pytest.mark.parametrize("random", [kind for kind in KINDS if kind is not cpprb.ReverseReplayBuffer])
def test_a_batch_of_no_rows_is_refused(random):
    with pytest.raises(ValueError, match="batch_size=0"):
        filled(random, 4, 2).sample(0)


def test_objects_are_refused(kind):
    with pytest.raises(ValueError, match="dtype object"):
        kind(4, {"a": {"dtype": object}})


def test_arguments_that_cpprb_ignores_are_ignored_with_a_warning(kind):
    with pytest.warns(UserWarning, match="ignores nonsense"):
        assert numbers(kind, 4, nonsense=3).get_buffer_size() == 4


def test_clearing_starts_again_at_the_first_index(kind):
    buffer = filled(kind, 4, 6)
    buffer.clear()
    assert (buffer.get_next_index(), buffer.get_stored_size()) == (0, 0)
    assert values(buffer) == []
    assert buffer.add(a=7) == 0
    assert values(buffer) == [7]


def test_create_buffer_makes_the_class_that_is_asked_for():
    assert type(cpprb.create_buffer(4, TRANSITION)) is cpprb.ReplayBuffer
    assert type(cpprb.create_buffer(4, TRANSITION, prioritized=True, alpha=0.3)) is cpprb.PrioritizedReplayBuffer


# ---- reading


def test_a_batch_has_every_field_and_its_rows_belong_together(kind):
    buffer = kind(64, {"a": {}, "b": {"shape": 3}})
    buffer.add(a=np.arange(50), b=np.repeat(np.arange(50), 3))
    batch = buffer.sample(32)
    assert list(batch)[:2] == ["a", "b"]
    assert {name: array.shape for name, array in batch.items() if name in "ab"} == {"a": (32, 1), "b": (32, 3)}
    assert np.array_equal(batch["b"], np.repeat(batch["a"], 3, axis=1))


@pytest.mark.parametrize("size", [np.int64(3), 3])
def test_the_batch_size_is_any_integer(kind, size):
    assert len(filled(kind, 4, 4).sample(size)["a"]) == 3


def test_all_rows_come_by_index_or_shuffled(kind):
    buffer = filled(kind, 8, 6)
    assert values(buffer) == [0, 1, 2, 3, 4, 5]
    buffer.add(a=np.arange(6, 11))
    assert values(buffer) == [8, 9, 10, 3, 4, 5, 6, 7]
    shuffled = [tuple(buffer.get_all_transitions(shuffle=True)["a"].ravel()) for _ in range(20)]
    assert len(set(shuffled)) > 1
    assert {tuple(sorted(each)) for each in shuffled} == {tuple(range(3, 11))}


def test_all_rows_of_an_empty_buffer_are_empty_arrays(kind):
    rows = kind(4, TRANSITION).get_all_transitions()
    assert {name: array.shape for name, array in rows.items()} == {
        "obs": (0, 2), "act": (0, 1), "rew": (0, 1), "next_obs": (0, 2), "done": (0, 1),
    }  # fmt: skip


def test_what_is_given_out_is_a_copy(kind):
    buffer = filled(kind, 4, 3)
    buffer.get_all_transitions()["a"][:] = 99
    buffer.sample(10)["a"][:] = 99
    assert values(buffer) == [0, 1, 2]


@pytest.mark.timeout(20)
def test_sampling_an_empty_buffer_is_an_error_and_no_hang(kind):
    buffer = numbers(kind, 4)
    with pytest.raises(NotReady):
        buffer.sample(2)
    buffer.add(a=1)
    buffer.clear()
    with pytest.raises(NotReady):
        buffer.sample(2)


def test_a_batch_keeps_its_values_when_the_next_one_is_drawn(kind):
    buffer = filled(kind, 100, 50)
    batch = buffer.sample(32)
    copies = {name: array.copy() for name, array in batch.items()}
    for _ in range(5):
        following = buffer.sample(32)
        assert not any(np.shares_memory(batch[name], following[name]) for name in batch)
    assert all(np.array_equal(batch[name], copies[name]) for name in batch)


def test_uniform_batches_hold_no_more_than_the_fields():
    assert list(filled(cpprb.ReplayBuffer, 4, 4).sample(2)) == ["a"]
    assert list(filled(cpprb.MPReplayBuffer, 4, 4).sample(2)) == ["a"]


@pytest.mark.parametrize("kind", [cpprb.ReplayBuffer, cpprb.MPReplayBuffer], ids=lambda kind: kind.__name__)
def test_uniform_rows_are_drawn_with_equal_probability(kind):
    drawn = filled(kind, 20, 33).sample(20_000)["a"].ravel().astype(int)
    counts = np.bincount(drawn, minlength=33)
    assert counts[:13].sum() == 0
    # chi-square of 19 degrees of freedom: 43.8 is exceeded once in a thousand times, 60 once in 4 million
    assert ((counts[13:] - 1000) ** 2 / 1000).sum() < 60


def test_numpys_seed_makes_draws_reproducible(kind):
    def batch():
        np.random.seed(7)
        return filled(kind, 100, 100).sample(64)["a"].ravel().tolist()

    assert batch() == batch()


def test_every_buffer_can_be_pickled_and_is_the_same_memory(kind):
    buffer = filled(kind, 8, 3)
    other = pickle.loads(pickle.dumps(buffer))
    assert type(other) is kind
    other.add(a=3)
    assert values(buffer) == values(other) == [0, 1, 2, 3]
    assert len(other.sample(4)["a"]) == 4
    other.clear()
    assert buffer.get_stored_size() == 0


# ---- reverse


def reverse(size, rows, stride, batch, batches):
    buffer = filled(cpprb.ReverseReplayBuffer, size, rows, stride=stride)
    return [buffer.sample(batch)["a"].ravel().tolist() for _ in range(batches)]


def test_reverse_batches_walk_back_and_start_again_after_two_strides():
    assert reverse(10, 10, 3, 3, 3) == [[9, 6, 3], [8, 5, 2], [7, 4, 1]]
    assert [batch[0] for batch in reverse(100, 130, 3, 1, 14)] == [129, 128, 127, 126, 125, 124] * 2 + [129, 128]
    assert reverse(100, 100, 1, 3, 3) == [[99, 98, 97], [98, 97, 96], [99, 98, 97]]


def test_reverse_batches_go_round_the_rows_that_are_stored():
    assert reverse(100, 20, 5, 6, 11)[4:] == [
        [15, 10, 5, 0, 15, 10],
        [14, 9, 4, 19, 14, 9],
        [13, 8, 3, 18, 13, 8],
        [12, 7, 2, 17, 12, 7],
        [11, 6, 1, 16, 11, 6],
        [10, 5, 0, 15, 10, 5],
        [19, 14, 9, 4, 19, 14],
    ]
    assert reverse(100, 4, 5, 6, 5) == [
        [3, 2, 1, 0, 3, 2], [2, 1, 0, 3, 2, 1], [1, 0, 3, 2, 1, 0], [0, 3, 2, 1, 0, 3], [3, 2, 1, 0, 3, 2],
    ]  # fmt: skip


def test_reverse_batches_go_on_while_rows_are_added():
    buffer = filled(cpprb.ReverseReplayBuffer, 100, 20, stride=5)
    drawn = [buffer.sample(1)["a"].item() for _ in range(7)]
    buffer.add(a=[20, 21, 22, 23])
    drawn += [buffer.sample(1)["a"].item() for _ in range(13)]
    assert drawn == [19, 18, 17, 16, 15, 14, 13, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 23, 22, 21]
