"""The drop-in's files of transitions: whole, damaged, of another kind, and of cpprb's own."""

import errno
import io
import os

import numpy as np
import pytest

from penstock.replay import cpprb
from tests.replay.drop_in import columns, rows_of, stack


def n_step():
    return cpprb.ReplayBuffer(
        20,
        {"obs": {}, "rew": {}, "next_obs": {}, "done": {}},
        Nstep={"size": 3, "rew": "rew", "gamma": 0.5, "next": "next_obs"},
    )


def numbered(rows, size=8, kind=cpprb.ReplayBuffer, **options):
    buffer = kind(size, {"obs": {"shape": 3}, "r": {"dtype": "i2"}}, **options)
    for i in range(rows):
        buffer.add(obs=[i, 2, 3], r=i)
    return buffer


def test_saved_rows_are_added_to_those_of_another_buffer(tmp_path):
    numbered(11).save_transitions(tmp_path / "rows")
    assert os.listdir(tmp_path) == ["rows.npz"]
    other = numbered(1, size=20)
    other.load_transitions(tmp_path / "rows.npz")
    assert rows_of(other, "r") == [[0], [8], [9], [10], [3], [4], [5], [6], [7]]
    assert rows_of(other, "obs")[1] == [8, 2, 3]
    assert (other.get_stored_size(), other.get_next_index()) == (9, 9)


def test_a_smaller_buffer_keeps_the_last_rows_and_one_with_fewer_fields_those_it_has(tmp_path):
    numbered(11).save_transitions(str(tmp_path / "rows.npz"))
    small = numbered(0, size=4)
    small.load_transitions(str(tmp_path / "rows.npz"))
    assert rows_of(small, "r") == [[4], [5], [6], [7]]
    fewer = cpprb.ReplayBuffer(20, {"r": {}})
    fewer.load_transitions(str(tmp_path / "rows.npz"))
    assert columns(fewer) == {"r": [8, 9, 10, 3, 4, 5, 6, 7]}


def test_an_open_file_will_do():
    file = io.BytesIO()
    numbered(3).save_transitions(file, safe=False)
    file.seek(0)
    other = numbered(0)
    other.load_transitions(file)
    assert rows_of(other, "r") == [[0], [1], [2]]


def test_loaded_rows_get_the_largest_priority(tmp_path):
    saved = cpprb.PrioritizedReplayBuffer(8, {"r": {}})
    saved.add(r=[1, 2], priorities=[3, 4])
    saved.save_transitions(tmp_path / "rows.npz")
    loaded = cpprb.PrioritizedReplayBuffer(8, {"r": {}})
    loaded.load_transitions(tmp_path / "rows.npz")
    assert loaded.get_max_priority() == 1.0
    assert set(loaded.sample(50, beta=1.0)["weights"].tolist()) == {1.0}


def test_n_step_rows_are_loaded_as_they_are(tmp_path):
    saved = n_step()
    for i in range(5):
        saved.add(obs=i, rew=2.0**i, next_obs=i + 1, done=i == 4)
    saved.save_transitions(tmp_path / "rows.npz")
    loaded = n_step()
    loaded.load_transitions(tmp_path / "rows.npz")
    assert columns(loaded) == columns(saved)
    with pytest.raises(ValueError, match="n-step"):
        cpprb.ReplayBuffer(20, {"obs": {}, "rew": {}}).load_transitions(tmp_path / "rows.npz")


def test_shared_storage_is_saved_whole(tmp_path):
    saved = cpprb.ReplayBuffer(8, {"obs": {"shape": (2, 3)}}, next_of="obs", stack_compress="obs")
    for i in range(11):
        saved.add(obs=stack(i), next_obs=stack(i + 1))
    saved.save_transitions(tmp_path / "rows.npz")
    loaded = cpprb.ReplayBuffer(8, {"obs": {"shape": (2, 3)}}, next_of="obs", stack_compress="obs")
    loaded.load_transitions(tmp_path / "rows.npz")
    assert columns(loaded) == columns(saved)


def test_an_interrupted_save_leaves_the_file_before(tmp_path, monkeypatch):
    path = tmp_path / "rows.npz"
    numbered(3).save_transitions(path)
    before = path.read_bytes()

    def full_disk(file, **entries):
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    with pytest.raises(OSError, match="No space left"):
        numbered(5).save_transitions(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["rows.npz"]


def cut(path):
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def flip(path):
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 3] ^= 0xFF
    path.write_bytes(damaged)


@pytest.mark.parametrize("damage", [cut, flip, lambda path: path.write_text("x"), lambda path: path.write_bytes(b"")])
def test_a_damaged_file_is_an_error_and_adds_nothing(tmp_path, damage):
    path = tmp_path / "rows.npz"
    numbered(200, size=200).save_transitions(path)
    damage(path)
    buffer = numbered(1)
    with pytest.raises(ValueError, match="cannot be loaded"):
        buffer.load_transitions(path)
    assert buffer.get_stored_size() == 1


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"a": 1}, "not a file of transitions"),
        ({"safe": True, "version": 1, "data": np.array({"r": np.zeros((2, 1))}, object)}, "allow_pickle"),
        ({"format": "penstock-transitions-9", "Nstep": False}, "format"),
        ({"format": "penstock-transitions-1", "Nstep": False, "data/r": np.zeros((2, 1))}, "obs"),
        (
            {
                "format": "penstock-transitions-1",
                "Nstep": False,
                "data/obs": np.zeros((3, 4)),
                "data/r": np.zeros((4, 1)),
            },
            "obs",
        ),
        (
            {
                "format": "penstock-transitions-1",
                "Nstep": False,
                "data/obs": np.zeros((2, 3)),
                "data/r": np.zeros((3, 1)),
            },
            "field 'r'",
        ),
    ],
)
def test_another_kind_of_file_is_named_and_adds_nothing(tmp_path, entries, message):
    np.savez(tmp_path / "rows.npz", **entries)
    buffer = numbered(1)
    with pytest.raises(ValueError, match=f"cannot be loaded: .*{message}"):
        buffer.load_transitions(tmp_path / "rows.npz")
    assert buffer.get_stored_size() == 1


def test_the_conversion_that_the_message_names_works(tmp_path):
    saved = {"obs": np.arange(6).reshape(2, 3), "r": np.array([[1], [2]])}
    np.savez(tmp_path / "theirs.npz", safe=True, version=1, data=np.array(saved, object))
    data = np.load(tmp_path / "theirs.npz", allow_pickle=True)["data"].item()
    buffer = numbered(0)
    buffer.add(**data)
    assert rows_of(buffer, "r") == [[1], [2]]


def test_a_file_that_is_not_there_is_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        numbered(0).load_transitions(tmp_path / "nothing.npz")
