"""The arena: shared, sized once, gone with its last user."""

import errno
import gc
import os
import socket
from collections.abc import Callable

import numpy as np
import pytest

from penstock.ipc import Arena, Doorbell, Ring, SlotTable, WeightsBlock
from tests.ipc.sharing import Sent, finished
from tests.starting import Start


def test_a_new_arena_is_all_zero_and_as_large_as_asked() -> None:
    arena = Arena.create(5000)
    assert arena.nbytes == 5000
    assert not arena.array(0, 5000, np.uint8).any()


def test_attachments_see_each_others_writes() -> None:
    arena = Arena.create(4096)
    other = Arena.attach(os.dup(arena.fd))
    arena.array(64, (2, 3), np.float32)[1, 2] = 7.5
    assert other.nbytes == 4096
    assert other.array(64, (2, 3), np.float32)[1, 2] == 7.5


def test_an_array_keeps_its_arena_alive() -> None:
    arena = Arena.create(1 << 20)
    array = arena.array(0, (1 << 18,), np.float32)
    del arena
    gc.collect()
    array[:] = 1.0
    assert array.sum() == 1 << 18


@pytest.mark.parametrize(
    "create",
    [
        lambda arena: Ring.create(arena, 0, 4),
        lambda arena: Doorbell.create(arena, 0),
        lambda arena: WeightsBlock.create(arena, 0, 8),
        lambda arena: SlotTable.create(arena, 0, 4),
        lambda arena: (Doorbell.create(arena, 0), Doorbell.attach(arena, 0))[1],
    ],
)
def test_a_structure_keeps_its_arena_alive(create: Callable[[Arena], object]) -> None:
    arena = Arena.create(4096)
    fd = arena.fd
    structure = create(arena)
    del arena
    gc.collect()
    os.fstat(fd)  # still open
    del structure
    gc.collect()
    with pytest.raises(OSError):
        os.fstat(fd)


def test_an_array_has_the_asked_shape_dtype_and_place() -> None:
    arena = Arena.create(4096)
    array = arena.array(128, (3, 5), "int16")
    array[:] = np.arange(15).reshape(3, 5)
    assert array.flags.c_contiguous and array.flags.writeable
    np.testing.assert_array_equal(arena.array(128, 30, np.uint8).view(np.int16), np.arange(15))


@pytest.mark.parametrize(
    ("offset", "shape", "dtype", "message"),
    [
        (0, (1025,), np.float32, "4100 bytes at offset 0 does not fit: the arena ends at 4096"),
        (4096, (1,), np.uint8, "does not fit"),
        (1 << 40, (0,), np.uint8, "does not fit"),
        (2, (1,), np.float32, "offset 2 is not a multiple of 4, the alignment of float32"),
        (0, (-1,), np.uint8, "no shape"),
        (0, (1 << 40, 1 << 40), np.uint8, "no shape"),
        (0, (1,), object, "not Python objects"),
    ],
)
def test_an_array_that_cannot_lie_there_is_refused(
    offset: int, shape: tuple[int, ...], dtype: type, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Arena.create(4096).array(offset, shape, dtype)


@pytest.mark.parametrize("nbytes", [0, 4095, 8192])
def test_an_arena_cannot_be_resized(nbytes: int) -> None:
    arena = Arena.create(4096)
    with pytest.raises(PermissionError):
        os.ftruncate(arena.fd, nbytes)


def test_more_than_the_machine_has_is_refused_before_it_is_taken() -> None:
    with pytest.raises(OSError, match="reserving 1125899906842624 bytes") as caught:
        Arena.create(1 << 50)
    assert caught.value.errno == errno.ENOSPC


def test_an_arena_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 byte"):
        Arena.create(0)


def test_attaching_a_descriptor_that_is_not_open_fails() -> None:
    with pytest.raises(OSError, match="descriptor 987654") as caught:
        Arena.attach(987654)
    assert caught.value.errno == errno.EBADF


def test_attaching_something_without_bytes_fails_and_still_takes_the_descriptor() -> None:
    reading, writing = os.pipe()
    with pytest.raises(ValueError, match="is no arena"):
        Arena.attach(reading)
    with pytest.raises(OSError):
        os.fstat(reading)
    os.close(writing)


def test_the_descriptor_is_closed_with_the_arena_and_not_inherited_by_programs() -> None:
    arena = Arena.create(4096)
    fd = arena.fd
    assert not os.get_inheritable(fd)
    del arena
    gc.collect()
    with pytest.raises(OSError):
        os.fstat(fd)


def test_an_arena_travels_over_a_unix_socket() -> None:
    arena = Arena.create(4096)
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        socket.send_fds(ours, [b"arena"], [arena.fd])
        _, descriptors, _, _ = socket.recv_fds(theirs, 16, 1)
    Arena.attach(descriptors[0]).array(0, 4, np.uint8)[:] = 9
    assert arena.array(0, 4, np.uint8).tolist() == [9, 9, 9, 9]


def _add_one(sent: Sent) -> None:
    sent.arena.array(64, (10,), np.int64)[:] += 1


@pytest.mark.timeout(60)
def test_a_spawned_process_attaches_by_descriptor(spawn: Start) -> None:
    arena = Arena.create(4096)
    numbers = arena.array(64, (10,), np.int64)
    numbers[:] = np.arange(10)
    assert finished(spawn(_add_one, Sent(arena)))
    np.testing.assert_array_equal(numbers, np.arange(1, 11))
