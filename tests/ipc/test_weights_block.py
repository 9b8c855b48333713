"""The weights block: the newest update, never half of one, even if the writer dies."""

import random

import numpy as np
import pytest

from penstock.ipc import Arena, WeightsBlock
from tests.ipc.sharing import Sent, finished
from tests.starting import Start

SIZE = 200_000  # large enough to be overtaken, and killed, in the middle of a copy


def weights(version: int, size: int = SIZE) -> np.ndarray:
    return np.full(size, version % 251, dtype=np.uint8)


def test_before_the_first_publish_there_is_nothing_to_read(arena: Arena) -> None:
    block = WeightsBlock.create(arena, 0, 8)
    out = np.full(8, 77, np.uint8)
    assert block.version == -1
    assert block.read_into(out) == -1
    assert (out == 77).all()


@pytest.mark.parametrize("size", [1, 8, 100, 65_536])
def test_readers_get_the_newest_publish(arena: Arena, size: int) -> None:
    block = WeightsBlock.create(arena, 64, size)
    reader = WeightsBlock.attach(arena, 64)
    assert reader.size == size
    out = np.zeros(size, np.uint8)
    for version in [0, 1, 2, 7, 5]:
        block.publish(weights(version + 1, size), version)
        assert reader.version == version
        assert reader.read_into(out) == version
        assert (out == version + 1).all()


def test_any_contiguous_buffer_of_the_right_size_can_be_published(arena: Arena) -> None:
    block = WeightsBlock.create(arena, 0, 8)
    out = np.zeros(8, np.uint8)
    block.publish(b"penstock", 1)
    block.read_into(out)
    assert out.tobytes() == b"penstock"
    block.publish(np.array([1.5, 2.5], np.float32), 2)
    block.read_into(out)
    assert out.view(np.float32).tolist() == [1.5, 2.5]


def test_two_blocks_side_by_side_do_not_touch(arena: Arena) -> None:
    first = WeightsBlock.create(arena, 0, 100)
    second = WeightsBlock.create(arena, WeightsBlock.nbytes(100), 100)
    for version in range(2):  # fills both buffers of each
        first.publish(weights(1, 100), version)
        second.publish(weights(2, 100), version)
    out = np.zeros(100, np.uint8)
    first.read_into(out)
    assert (out == 1).all()
    second.read_into(out)
    assert (out == 2).all()


def test_wrong_sizes_and_versions_are_refused(arena: Arena) -> None:
    block = WeightsBlock.create(arena, 0, 8)
    with pytest.raises(ValueError, match="data has 9 bytes, but the block holds 8"):
        block.publish(bytes(9), 1)
    with pytest.raises(ValueError, match="out has 4 bytes, but the block holds 8"):
        block.read_into(np.zeros(4, np.uint8))
    with pytest.raises(ValueError, match="version must not be negative, found -1"):
        block.publish(bytes(8), -1)
    with pytest.raises(ValueError, match="out must be a writable C-contiguous array"):
        block.read_into(np.frombuffer(bytes(8), np.uint8))
    assert block.version == -1


def test_a_block_must_fit(arena: Arena) -> None:
    with pytest.raises(ValueError, match="the arena ends at"):
        WeightsBlock.create(arena, 0, arena.nbytes // 2)
    with pytest.raises(ValueError, match="size must be from 1"):
        WeightsBlock.create(arena, 0, 0)
    with pytest.raises(ValueError, match="there is no WeightsBlock"):
        WeightsBlock.attach(arena, 0)


def _publish_for_ever(sent: Sent) -> None:
    block = WeightsBlock.attach(sent.arena, 0)
    while True:
        version = block.version + 1
        block.publish(weights(version), version)


def _read_until(sent: Sent, newest: int) -> None:
    block, out, version = WeightsBlock.attach(sent.arena, 0), np.zeros(SIZE, np.uint8), -1
    while version < newest:
        previous, version = version, block.read_into(out)
        assert version >= previous, "a reader went back in time"
        assert version == -1 or (out == version % 251).all(), "a reader saw half an update"


@pytest.mark.timeout(60)
def test_a_reader_never_sees_half_an_update_of_a_busy_writer(spawn: Start) -> None:
    arena = Arena.create(WeightsBlock.nbytes(SIZE))
    WeightsBlock.create(arena, 0, SIZE)
    reader = spawn(_read_until, Sent(arena), 20_000)
    block = WeightsBlock.attach(arena, 0)
    for version in range(20_001):
        block.publish(weights(version), version)
    assert finished(reader)


@pytest.mark.timeout(240)
def test_a_writer_killed_at_any_instant_leaves_whole_weights_and_a_block_its_successor_can_use(
    fork: Start, soak: float
) -> None:
    arena = Arena.create(WeightsBlock.nbytes(SIZE))
    block, out, chance = WeightsBlock.create(arena, 0, SIZE), np.zeros(SIZE, np.uint8), random.Random(3)
    killed_inside = 0
    begun = arena.array(16, 2, np.uint64)  # numbers of the last publish begun and of the last completed
    for _ in range(round(400 * soak)):
        writer = fork(_publish_for_ever, Sent(arena))
        goal = block.version + chance.randrange(1, 60)
        version = -1
        while version < goal:
            version = block.read_into(out)
            assert version == -1 or (out == version % 251).all()
        writer.kill()
        writer.join()
        killed_inside += int(begun[0] != begun[1])
        version = block.read_into(out)
        assert version >= goal
        assert version == block.version
        assert (out == version % 251).all()
    assert killed_inside > 0, "no writer was killed inside a publish: the test proved nothing"
