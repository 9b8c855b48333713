"""Directories of saves: contents, files written by a save, files refused by a load."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.replay.files import ReplayFileError, load_buffer, save_buffer
from penstock.replay.manifest import MOST_NBYTES
from tests.replay.fake_core import SETTINGS, FakeCore, filled, loaded, named_files, saved, small_blocks, stamps  # noqa: F401

# ---- round trip


@pytest.mark.parametrize("rows", [0, 1, 4, 7, 10, 23])
@pytest.mark.parametrize("prioritized", [True, False])
def test_what_was_saved_is_loaded(tmp_path, rows, prioritized):
    core = filled(rows=rows, prioritized=prioritized)
    assert saved(core, tmp_path) == loaded(tmp_path, prioritized=prioritized)


def test_the_directory_and_those_above_it_are_made(tmp_path):
    core = filled()
    assert saved(core, tmp_path / "a" / "b") == loaded(tmp_path / "a" / "b")


def test_a_load_replaces_all_contents(tmp_path):
    saved(filled(rows=2, frames=1), tmp_path)
    full = filled(seed=1, rows=35, frames=20)
    load_buffer(full, SETTINGS, tmp_path)
    assert full.contents() == loaded(tmp_path) and full.size() == 2


def test_one_row_may_be_larger_than_a_block(tmp_path):
    shapes = ((3, 100),)
    core = filled(rows=2, shapes=shapes)
    assert saved(core, tmp_path) == loaded(tmp_path, shapes=shapes)


def test_rows_of_killed_writers_are_not_saved(tmp_path):
    core = filled(rows=10)
    core.die_writing(0, 5)
    saved(core, tmp_path)
    assert all(b"\xee" * 5 not in file.read_bytes() for file in tmp_path.iterdir())
    again = FakeCore()
    load_buffer(again, SETTINGS, tmp_path)
    assert again.contents()[0] == core.contents()[0] and again.size() == 9


def test_files_hold_raw_little_endian_numbers_and_no_pickle(tmp_path):
    core = filled(rows=3)
    saved(core, tmp_path)
    (block,) = tmp_path.glob("rows-0-*.bin")
    rows = core.contents()[0][0]
    assert block.read_bytes() == np.array([0, 1, 2, -1], "<i8").tobytes() + rows[0] + rows[1] + rows[2]
    (priorities,) = tmp_path.glob("priorities-*.bin")
    leaves, ids, largest = core.read_priorities()
    assert priorities.read_bytes() == ids.astype("<i8").tobytes() + leaves.astype("<f8").tobytes()
    assert json.loads((tmp_path / "manifest.json").read_text())["content"]["priorities"]["largest"] == largest


@pytest.mark.parametrize(("saver", "loader"), [(5, 2), (2, 5)])
def test_numbers_of_episodes_go_on_after_the_saved_ones_and_those_given_here(tmp_path, saver, loader):
    saved(FakeCore(saver), tmp_path)
    core = FakeCore(loader)
    load_buffer(core, SETTINGS, tmp_path)
    assert core.episode_starts() == 5


# ---- only what changed is written


def test_blocks_whose_rows_did_not_change_keep_their_files(tmp_path):
    core = filled(rows=9)
    saved(core, tmp_path)
    before = stamps(tmp_path)
    core.blocks_read.clear()
    core.add(0, 2)  # rows 9 and 0, so blocks 8 and 0; block 4 stays
    saved(core, tmp_path)
    after = stamps(tmp_path)
    assert core.blocks_read == [(0, 0), (0, 8)]
    kept = {name for name in before if after.get(name) == before[name]}
    assert {name.rpartition("-")[0] for name in kept} == {"rows-0-4", *(f"rows-1-{frame}" for frame in range(5))}
    assert loaded(tmp_path) == core.contents()


def test_after_a_load_too_only_what_changed_is_written(tmp_path):
    saved(filled(rows=9), tmp_path)
    core = FakeCore()
    load_buffer(core, SETTINGS, tmp_path)
    core.add(0, 1)
    saved(core, tmp_path)
    assert core.blocks_read == [(0, 8)]
    assert loaded(tmp_path) == core.contents()


def test_another_buffer_with_the_same_ids_keeps_no_file(tmp_path):
    saved(filled(seed=1), tmp_path)
    other = filled(seed=2)
    saved(other, tmp_path)
    assert loaded(tmp_path) == other.contents()


def test_a_buffer_that_went_back_and_took_another_way_keeps_no_file_of_the_first_way(tmp_path):
    core = filled(rows=5)
    saved(core, tmp_path / "early")
    core.add(0, 5)
    saved(core, tmp_path / "late")
    load_buffer(core, SETTINGS, tmp_path / "early")
    core.add(0, 5)
    saved(core, tmp_path / "late")
    assert loaded(tmp_path / "late") == core.contents()


def test_a_kept_file_that_is_gone_or_cut_is_written_again(tmp_path):
    core = filled(rows=10)
    saved(core, tmp_path)
    gone, cut, *_ = sorted(tmp_path.glob("rows-0-*.bin"))
    gone.unlink()
    cut.write_bytes(b"cut")
    saved(core, tmp_path)
    assert loaded(tmp_path) == core.contents()


def test_rows_cleared_since_the_last_save_leave_no_file(tmp_path):
    core = filled(rows=10)
    saved(core, tmp_path)
    core.clear()
    saved(core, tmp_path)
    assert not list(tmp_path.glob("rows-*"))
    assert loaded(tmp_path) == core.contents()


def test_files_of_other_names_are_left_alone(tmp_path):
    foreign = {"notes.txt", "rows-0.bin", "priorities.bin", "rows-0-0-0123456789abcdef.bin.gz", "manifest.json.old"}
    for name in foreign:
        (tmp_path / name).write_text("mine")
    core = filled()
    for _ in range(2):
        core.add(0, 3)
        saved(core, tmp_path)
    assert foreign <= set(stamps(tmp_path)) and all((tmp_path / name).read_text() == "mine" for name in foreign)
    assert loaded(tmp_path) == core.contents()


@pytest.mark.parametrize("content", [b'{"name": "my web app"}', b"[]", b"\xff\x00", b""])
def test_a_manifest_of_another_program_is_not_overwritten(tmp_path, content):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(ReplayFileError, match=r"manifest\.json"):
        saved(filled(), tmp_path)
    assert set(stamps(tmp_path)) == {"manifest.json"} and (tmp_path / "manifest.json").read_bytes() == content


def test_settings_that_json_cannot_hold_leave_the_old_save(tmp_path):
    old = saved(filled(), tmp_path)
    with pytest.raises(TypeError):
        save_buffer(filled(seed=1), {"sampler": object()}, tmp_path)
    assert loaded(tmp_path) == old and set(stamps(tmp_path)) == named_files(tmp_path)


STEPS = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 1), st.integers(0, 1), st.integers(1, 12)),
    st.tuples(st.sampled_from(["clear", "sample"]), st.integers(0, 1)),
    st.tuples(st.sampled_from(["save", "load"]), st.integers(0, 1), st.sampled_from("ab")),
)


@given(st.lists(STEPS, max_size=25))
@settings(max_examples=150)
def test_a_directory_holds_what_was_saved_there_last_by_whichever_buffer(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("saves")
    cores = [FakeCore(0), FakeCore(1)]
    last = {}
    for name, buffer, *arguments in steps:
        core = cores[buffer]
        if name == "save":
            last[arguments[0]] = saved(core, path / arguments[0])
        elif name == "load" and arguments[0] in last:
            load_buffer(core, SETTINGS, path / arguments[0])
            assert core.contents() == last[arguments[0]]
        elif name != "load":
            getattr(core, name)(*arguments)
    for directory, contents in last.items():
        assert loaded(path / directory) == contents
        assert set(stamps(path / directory)) == named_files(path / directory)


# ---- damaged


def refused(path, match, **kwargs):
    """The load is refused, and the buffer is as it was."""
    core = filled(seed=5, rows=3, **kwargs)
    before = core.contents()
    with pytest.raises(ReplayFileError, match=match) as caught:
        load_buffer(core, SETTINGS, path)
    assert core.contents() == before
    return str(caught.value)


def test_flipped_bits_are_found(tmp_path):
    contents = saved(filled(rows=2, frames=1), tmp_path)
    for file in sorted(tmp_path.iterdir()):
        whole = file.read_bytes()
        for position in range(0, len(whole), 3):
            bit = 1 << position % 8
            file.write_bytes(whole[:position] + bytes([whole[position] ^ bit]) + whole[position + 1 :])
            refused(tmp_path, file.name)
        file.write_bytes(whole)
    assert loaded(tmp_path) == contents


@pytest.mark.parametrize("length", [0, 1, -1, "longer"])
def test_files_that_are_too_short_or_too_long_are_found(tmp_path, length):
    saved(filled(rows=9), tmp_path)
    for file in sorted(tmp_path.iterdir()):
        whole = file.read_bytes()
        file.write_bytes(whole + b"\0" if length == "longer" else whole[:length])
        message = refused(tmp_path, file.name)
        assert file.name == "manifest.json" or f"bytes instead of {len(whole)}" in message
        file.write_bytes(whole)


def test_a_manifest_without_end_is_not_read(tmp_path):
    saved(filled(rows=9), tmp_path)
    os.truncate(tmp_path / "manifest.json", MOST_NBYTES + 1)
    assert "at most 67,108,864 are read" in refused(tmp_path, r"manifest\.json has 67,108,865 bytes;")


def test_missing_files_are_found(tmp_path):
    saved(filled(rows=9), tmp_path)
    for file in sorted(tmp_path.iterdir()):
        whole = file.read_bytes()
        file.unlink()
        message = refused(tmp_path, file.name)
        assert "of 9 rows" in message or (file.name == "manifest.json" and "is missing, so" in message)
        file.write_bytes(whole)


def test_a_directory_without_a_save_is_no_save(tmp_path):
    assert "missing" in refused(tmp_path, r"manifest\.json")
    assert "not a directory" in refused(tmp_path / "nowhere", "nowhere")
    (tmp_path / "file").write_text("")
    assert "not a directory" in refused(tmp_path / "file", "file")


@pytest.mark.parametrize("report", [None, "given"])
def test_a_damaged_manifest_is_moved_aside_and_everything_saved_anew(tmp_path, report):
    core, told = filled(rows=9), []
    saved(core, tmp_path)
    manifest = tmp_path / "manifest.json"
    manifest.write_bytes(damaged := manifest.read_bytes()[:-10])
    if report is None:
        with pytest.warns(RuntimeWarning, match=r"moved to manifest\.json\.damaged, and the whole buffer") as warned:
            save_buffer(core, SETTINGS, tmp_path)
        assert warned[0].filename == __file__
    else:
        save_buffer(core, SETTINGS, tmp_path, report=told.append)
        assert len(told) == 1 and "manifest.json is not JSON" in told[0] and "load an older copy" not in told[0]
    assert (tmp_path / "manifest.json.damaged").read_bytes() == damaged
    assert loaded(tmp_path) == core.contents()
    assert {file.name for file in tmp_path.iterdir()} == named_files(tmp_path) | {"manifest.json.damaged"}


def test_another_version_is_named_as_such_and_not_overwritten(tmp_path):
    core = filled()
    saved(core, tmp_path)
    manifest = tmp_path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"version": 1', '"version": 2'))
    assert "version 2" in refused(tmp_path, "reads version 1")
    with pytest.raises(ReplayFileError, match="version 2"):
        saved(core, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"capacity": 11}, "capacity was 10 when saved, and is 11 here"),
        (
            {"fields": {"obs": {"shape": (5,), "dtype": "uint8"}}},
            r"fields\.obs\.shape was \[4\] when saved, and is \[5\] here",
        ),
        ({"fields": {}}, r"fields\.obs was .* when saved, and there is none here"),
        ({"sampler": "uniform"}, "sampler is 'uniform' here, and there was none when saved"),
        ({"n_step": {"steps": 3}}, r"n_step was None when saved, and is \{'steps': 3\} here"),
    ],
)
def test_the_first_setting_that_differs_is_named(tmp_path, change, message):
    saved(filled(), tmp_path)
    core = FakeCore()
    before = core.contents()
    with pytest.raises(ReplayFileError, match=message):
        load_buffer(core, {**SETTINGS, **change}, tmp_path)
    assert core.contents() == before


def test_stores_of_another_shape_are_refused(tmp_path):
    saved(filled(), tmp_path)
    others = ({"shapes": ((10, 6), (7, 16))}, {"shapes": ((10, 5),)}, {"prioritized": False})
    told = [refused(tmp_path, "holds stores", **other).partition(": load it")[0].split("has ")[-1] for other in others]
    assert told == ["([(10, 6), (7, 16)], True)", "([(10, 5)], True)", "([(10, 5), (7, 16)], False)"]


def test_files_damaged_while_they_are_loaded_leave_an_empty_buffer_and_the_error_says_so(tmp_path):
    saved(filled(rows=9, prioritized=False), tmp_path)
    core = filled(seed=5, prioritized=False)
    core.set_last_save(7)
    last = sorted(tmp_path.glob("rows-1-*.bin"))[-1]
    core_put = core.put_block

    def put_and_damage(*args):
        last.write_bytes(b"damaged")
        core_put(*args)

    core.put_block = put_and_damage
    with pytest.raises(ReplayFileError, match=last.name) as caught:
        load_buffer(core, SETTINGS, Path(tmp_path))
    assert "empty" in caught.value.__notes__[0] and core.last_save() == 0
    assert core.contents()[0] == [{}, {}] and core.size(0) == core.size(1) == 0
