"""Saves that are interrupted at any point, and saves while others write, save or load."""

import multiprocessing
import os
import signal
from functools import partial

import pytest

from penstock.replay.files import load_buffer
from tests.replay.fake_core import SETTINGS, FakeCore, filled, loaded, named_files, saved, small_blocks, stamps  # noqa: F401
from tests.runs.limits import files_no_larger_than

OPERATIONS = ("open", "write", "fsync", "replace", "unlink")
fork = multiprocessing.get_context("fork")


def test_rows_overwritten_while_the_save_runs_are_kept_as_they_were_read_but_without_a_leaf(tmp_path):
    core = filled(rows=10)

    def write_once(store, begin):
        core.after_read = lambda store, begin: None
        core.add(0, 6)  # after block 0 was read: ids 10..15 take rows 0..5

    core.after_read = write_once
    saved(core, tmp_path)
    (rows, _), (places, _), _, (leaves, leaf_ids, _), _ = loaded(tmp_path)
    # Rows 0..3 were read with ids 0..3, whose leaves were those of 10..13 by then; rows 4..9 were read afterwards.
    assert places == [0, 1, 2, 3, 14, 15, 6, 7, 8, 9]
    assert leaf_ids == [-1, -1, -1, -1, 14, 15, 6, 7, 8, 9]
    assert set(rows) == set(places)
    assert {name: rows[name] for name in (14, 15)} == {name: core.contents()[0][0][name] for name in (14, 15)}
    assert [leaf > 0 for leaf in leaves] == [False] * 4 + [True] * 6


def test_the_size_counts_what_is_there_and_no_id_is_given_out_twice(tmp_path):
    core = filled(rows=3)
    core.after_read = lambda store, begin: core.add(0, 1) if store == 1 else None
    saved(core, tmp_path)
    again = FakeCore()
    load_buffer(again, SETTINGS, tmp_path)
    assert again.size() == len(again.contents()[0][0]) == 3
    assert again.counters(0)[0] == core.counters(0)[0] == 8


def test_a_buffer_cleared_while_the_save_runs_loads_as_cleared(tmp_path):
    core = filled(rows=10, prioritized=False)
    core.after_read = lambda store, begin: core.clear() if (store, begin) == (0, 4) else None
    saved(core, tmp_path)
    again = FakeCore(prioritized=False)
    load_buffer(again, SETTINGS, tmp_path)
    assert again.contents()[0] == [{}, {}] and again.size() == 0


@pytest.mark.timeout(60)
def test_processes_that_save_to_one_directory_take_turns_and_readers_see_one_save_whole(tmp_path):
    cores = [filled(seed) for seed in range(2)]
    saved(cores[0], tmp_path)

    def save_often(core):
        for _ in range(20):
            core.set_last_save(0)
            saved(core, tmp_path)

    children = [fork.Process(target=save_often, args=(core,)) for core in cores]
    for child in children:
        child.start()
    wanted = [core.contents() for core in cores]
    while any(child.is_alive() for child in children):
        assert loaded(tmp_path) in wanted
    for child in children:
        child.join()
        assert child.exitcode == 0
    assert loaded(tmp_path) in wanted and set(stamps(tmp_path)) == named_files(tmp_path)


# ---- interrupted


def fail_at(patch, number, failure, *, after=False):
    """Make the file operation with this number fail; returns the list of operations so far."""
    done = []

    def operation(real, name, *args, **kwargs):
        done.append(name)
        if len(done) - 1 != number:
            return real(*args, **kwargs)
        if after:
            real(*args, **kwargs)
        failure()

    for name in OPERATIONS:
        patch.setattr(os, name, partial(operation, getattr(os, name), name))
    return done


def raise_disk_full():
    raise OSError(28, "No space left on device")


def raise_interrupt():
    raise KeyboardInterrupt


def old_and_new(tmp_path):
    core = filled(rows=7, frames=2)
    old = saved(core, tmp_path)
    core.add(0, 2)
    core.add(1, 1)
    return core, old


@pytest.mark.parametrize(("failure", "after"), [(raise_disk_full, False), (raise_interrupt, True)])
def test_a_save_that_fails_at_any_operation_leaves_the_old_save_or_the_new_and_nothing_else(tmp_path, failure, after):
    for number in range(1000):
        path = tmp_path / str(number)
        core, old = old_and_new(path)
        failed = None
        with pytest.MonkeyPatch.context() as patch:
            done = fail_at(patch, number, failure, after=after)
            try:
                saved(core, path)
            except (OSError, KeyboardInterrupt) as error:
                failed = error
        new = core.contents()
        found = loaded(path)
        assert found in (old, new)
        if failed is None:
            assert found == new
        if failed and "replace" not in done[:number] and done[number] != "replace":
            assert found == old
            assert set(stamps(path)) == named_files(path)
        core.add(0, 1)
        saved(core, path)
        assert loaded(path) == core.contents() and set(stamps(path)) == named_files(path)
        if len(done) <= number:
            assert set(OPERATIONS) <= set(done)
            return
    raise AssertionError("the save never got through")


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_save_killed_at_any_operation_leaves_the_old_save_or_the_new(tmp_path):
    def save_and_die(core, path, number):
        with pytest.MonkeyPatch.context() as patch:
            fail_at(patch, number, lambda: os.kill(os.getpid(), signal.SIGKILL))
            saved(core, path)

    outcomes = []
    for number in range(1000):
        path = tmp_path / str(number)
        core, old = old_and_new(path)
        new = core.contents()
        child = fork.Process(target=save_and_die, args=(core, path, number))
        child.start()
        child.join()
        found = loaded(path)
        assert found in (old, new)
        outcomes.append(found == new)
        saved(core, path)
        assert loaded(path) == new and set(stamps(path)) == named_files(path)
        if child.exitcode == 0:
            break
    # At first the old save is there, from some operation on the new one.
    assert outcomes == sorted(outcomes) and True in outcomes and False in outcomes


def test_a_first_save_that_fails_leaves_no_file(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        fail_at(patch, 9, raise_disk_full)
        with pytest.raises(OSError, match="No space left"):
            saved(filled(), tmp_path)
    assert not stamps(tmp_path)


def test_leftovers_of_a_killed_save_are_removed_before_the_next_one_needs_the_space(tmp_path):
    core, old = old_and_new(tmp_path)
    leftover = tmp_path / "rows-0-0-0123456789abcdef.bin"
    leftover.write_text("of a killed save")

    def leftover_is_gone():
        assert not leftover.exists()
        raise_disk_full()

    with pytest.MonkeyPatch.context() as patch:
        # The directory and its manifest are opened, the leftover is removed, and then the first file is made.
        done = fail_at(patch, 3, leftover_is_gone)
        with pytest.raises(OSError, match="No space left"):
            saved(core, tmp_path)
    assert done[:4] == ["open", "open", "unlink", "open"] and loaded(tmp_path) == old


def test_a_file_that_the_system_takes_in_small_pieces_is_written_whole(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    core = filled()
    assert saved(core, tmp_path) == loaded(tmp_path)


def test_a_disk_that_takes_only_a_part_of_a_file_leaves_the_old_save(tmp_path):
    core, old = old_and_new(tmp_path)
    with files_no_larger_than(40), pytest.raises(OSError, match="File too large"):
        saved(core, tmp_path)
    assert loaded(tmp_path) == old and set(stamps(tmp_path)) == named_files(tmp_path)
