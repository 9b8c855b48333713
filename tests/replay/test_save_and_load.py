"""A replay buffer that was saved and loaded goes on as if nothing had happened."""

import json
import multiprocessing
import os
import signal
import zlib
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
    Uniform,
)
from penstock.replay.files import ReplayFileError
from tests.runs.limits import files_no_larger_than

fork = multiprocessing.get_context("fork")

VECTORS = {"obs": Field((3,)), "act": Field((), "int64"), "rew": Field(), "next_obs": Field((3,), next_of="obs")}
FRAMES = {
    "obs": Field((4, 4, 2), "uint8", stack=-1),
    "rew": Field(),
    "next_obs": Field((4, 4, 2), "uint8", stack=-1, next_of="obs"),
}
KINDS = {
    "uniform": {"fields": VECTORS, "sampler": Uniform()},
    "prioritized": {"fields": VECTORS, "sampler": Prioritized()},
    "evicting": {"fields": VECTORS, "sampler": Prioritized(eviction_alpha=-0.4)},
    "reservoir": {"fields": VECTORS, "sampler": Reservoir()},
    "reverse": {"fields": FRAMES, "sampler": Reverse(stride=3)},
    "n-step": {"fields": VECTORS, "sampler": Prioritized(normalize="batch"), "n_step": NStep(3, 0.9, reward="rew")},
    "frames": {"fields": FRAMES, "sampler": Prioritized()},
    "sequences": {
        "fields": {"obs": Field((3,)), "rew": Field(), "memory": Field((2,), first=True)},
        "sampler": Prioritized(),
        "sequences": Sequences(length=4, period=2),
    },
}
FIELDS = {tuple(kind["fields"]): kind["fields"] for kind in KINDS.values()}


def make(kind, capacity=20, seed=0, **kwargs):
    settings = dict(KINDS[kind])
    return ReplayBuffer(capacity, settings.pop("fields"), **settings, seed=seed, **kwargs)


def add_episodes(buffer, count, random):
    """Episodes of 1 to 9 steps; nothing is pending at the end."""
    for _ in range(count):
        length = int(random.integers(1, 10))
        observations = {
            name: random.integers(0, 200, (length + 1, *field.shape)).astype(field.dtype)
            for name, field in FIELDS[buffer.fields].items()
            if not name.startswith("next_")
        }
        for step in range(length):
            values = {name: value[step] for name, value in observations.items()}
            if "next_obs" in buffer.fields:
                values["next_obs"] = observations["obs"][step + 1]
            buffer.add(**values, terminated=step == length - 1, truncated=False)


def same(a, b):
    assert a.keys() == b.keys()
    for name, values in a.items():
        np.testing.assert_array_equal(values, b[name], err_msg=name)


def same_from_now_on(a, b, random, *, adding=True):
    """Equal rows and counters, and equal samples also after equal changes."""
    seed = int(random.integers(1 << 30))
    for _ in range(2):
        assert (len(a), a.num_added) == (len(b), b.num_added)
        same(a.get_all(), b.get_all())
        if len(a):
            for _ in range(3):
                batch = a.sample(16)
                same(batch, b.sample(16))
                if "weights" in batch:
                    assert a.max_priority == b.max_priority
                    priorities = random.random(16) * 3
                    assert a.update_priorities(batch["ids"], priorities) == b.update_priorities(
                        batch["ids"], priorities
                    )
        for buffer in (a, b) if adding else ():
            add_episodes(buffer, 3, np.random.default_rng(seed))


@pytest.mark.parametrize("kind", KINDS)
@given(capacity=st.integers(2, 40), episodes=st.integers(0, 12), before=st.integers(0, 6), seed=st.integers(0, 999))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_loaded_buffer_goes_on_as_the_saved_one(tmp_path_factory, kind, capacity, episodes, before, seed):
    path = tmp_path_factory.mktemp("saves")
    random = np.random.default_rng(seed)
    buffer = make(kind, capacity)
    loaded = make(kind, capacity, seed=1)
    add_episodes(loaded, before, random)
    for _ in range(2):  # the second save is incremental
        add_episodes(buffer, episodes, random)
        if len(buffer):
            buffer.sample(5)
        buffer.save(path)
    loaded.load(path)
    # Which row of a reservoir, or of a buffer that evicts by priority, a new one replaces is each writer's own chance.
    same_from_now_on(buffer, loaded, random, adding=kind not in ("reservoir", "evicting"))


def test_going_back_to_a_save_takes_the_same_way_again(tmp_path):
    buffer = make("prioritized")
    add_episodes(buffer, 5, np.random.default_rng(0))
    buffer.save(str(tmp_path))
    first = buffer.sample(32)
    add_episodes(buffer, 9, np.random.default_rng(1))
    buffer.load(str(tmp_path))
    same(first, buffer.sample(32))


def test_a_cleared_buffer_is_saved_as_such(tmp_path):
    buffer = make("prioritized")
    loaded = make("prioritized", seed=1)
    add_episodes(buffer, 9, np.random.default_rng(0))
    buffer.save(tmp_path)
    buffer.clear()
    buffer.save(tmp_path)
    loaded.load(tmp_path)
    assert len(loaded) == 0
    same_from_now_on(buffer, loaded, np.random.default_rng(1))


def test_two_runs_may_save_to_one_directory_one_after_the_other(tmp_path):
    first = make("uniform")
    second = make("uniform")
    loaded = make("uniform")
    add_episodes(first, 5, np.random.default_rng(0))
    first.save(tmp_path)
    add_episodes(second, 5, np.random.default_rng(1))
    second.save(tmp_path)
    loaded.load(tmp_path)
    same(second.get_all(), loaded.get_all())


def test_steps_that_were_pending_before_a_load_are_forgotten(tmp_path):
    buffer = make("n-step")
    buffer.save(tmp_path)
    step = {"obs": np.zeros(3), "act": 0, "rew": 1.0, "next_obs": np.zeros(3)}
    assert buffer.add(**step, terminated=False, truncated=False) is None
    buffer.load(tmp_path)
    buffer.add(**step, terminated=True, truncated=False)
    assert len(buffer) == 1 and buffer.get_all()["rew"].tolist() == [1.0]


def test_frames_that_were_added_before_a_load_are_stored_again(tmp_path):
    buffer = make("frames")
    other = make("frames", seed=1)
    add_episodes(other, 1, np.random.default_rng(0))
    other.save(tmp_path)
    frame = np.full((4, 4, 2), 77, np.uint8)
    buffer.add(obs=frame, rew=0.0, next_obs=frame, terminated=False, truncated=False)
    buffer.load(tmp_path)
    row = buffer.add(obs=frame, rew=0.0, next_obs=frame, terminated=True, truncated=False)
    np.testing.assert_array_equal(buffer.get([row])["obs"][0], frame)


@pytest.mark.parametrize("before", [0, 2])
def test_episodes_added_after_a_load_are_episodes_of_their_own(tmp_path, before):
    buffer = make("uniform", 100)
    loaded = make("uniform", 100)
    add_episodes(buffer, 3, np.random.default_rng(0))
    buffer.save(tmp_path)
    add_episodes(loaded, before, np.random.default_rng(2))  # by the writer that goes on after the load
    loaded.load(tmp_path)
    add_episodes(loaded, 2, np.random.default_rng(1))
    assert len(list(loaded.episodes())) == 5


def test_where_the_rows_lie_does_not_matter(tmp_path):
    on_disk = make("frames", disk=tmp_path)
    loaded = make("frames", seed=1, num_threads=2)
    add_episodes(on_disk, 5, np.random.default_rng(0))
    on_disk.save(tmp_path / "save")
    loaded.load(tmp_path / "save")
    same_from_now_on(on_disk, loaded, np.random.default_rng(1))


@pytest.mark.parametrize("other", ["uniform", "n-step", "frames", "sequences"])
def test_a_save_of_another_kind_of_buffer_is_refused_and_changes_nothing(tmp_path, other):
    buffer = make("prioritized")
    saved = make(other)
    saved.save(tmp_path)
    add_episodes(buffer, 3, np.random.default_rng(0))
    before = buffer.get_all()
    with pytest.raises(ReplayFileError, match="other settings"):
        buffer.load(tmp_path)
    same(before, buffer.get_all())


def test_a_damaged_save_is_refused_and_changes_nothing(tmp_path):
    buffer = make("frames")
    add_episodes(buffer, 3, np.random.default_rng(0))
    buffer.save(tmp_path)
    add_episodes(buffer, 1, np.random.default_rng(1))
    before = buffer.get_all()
    for file in tmp_path.iterdir():
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(ReplayFileError, match=file.name):
            buffer.load(tmp_path)
        file.write_bytes(whole)
    same(before, buffer.get_all())


def test_a_full_disk_leaves_the_old_save(tmp_path):
    buffer = make("prioritized")
    add_episodes(buffer, 3, np.random.default_rng(0))
    buffer.save(tmp_path)
    before, names = buffer.get_all(), set(os.listdir(tmp_path))
    add_episodes(buffer, 3, np.random.default_rng(1))
    with files_no_larger_than(100), pytest.raises(OSError, match="File too large"):
        buffer.save(tmp_path)
    assert set(os.listdir(tmp_path)) == names
    buffer.load(tmp_path)
    same(before, buffer.get_all())


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "sampler",
    [Uniform(), Prioritized(), Prioritized(eviction_alpha=-0.4)],
    ids=["uniform", "prioritized", "evicting"],
)
def test_rows_are_whole_in_a_save_made_while_others_write_and_one_of_them_is_killed(tmp_path, sampler):
    fields = {"obs": Field((8, 2), "int64", stack=-1), "step": Field((), "int64")}
    capacity, chunk, chunks = 12_000, 100, 50
    buffer = ReplayBuffer(capacity, fields, sampler=sampler, seed=0)
    permits = fork.Semaphore(0)  # enough chunks that writers never go round the whole buffer during a save

    def write_for_ever(number):
        writer = buffer.writer()
        step = number << 40
        while permits.acquire():
            for _ in range(chunk):
                step += 1
                # Every element says which step it is of, so that a mixture of two shows.
                writer.add(obs=np.stack([np.full(8, step), np.full(8, step + 1)], axis=-1), step=step)

    children = [fork.Process(target=write_for_ever, args=(number,)) for number in range(2)]
    for child in children:
        child.start()
    try:
        for attempt in range(1, 9):
            for _ in range(chunks):
                permits.release()
            while buffer.num_added < (attempt - 1) * chunks * chunk + 5 * chunk:
                pass
            if attempt == 5:
                os.kill(children[0].pid, signal.SIGKILL)
            buffer.save(tmp_path)
            loaded = ReplayBuffer(capacity, fields, sampler=sampler, seed=1)
            loaded.load(tmp_path)
            everything = loaded.get_all()
            for rows in (everything, loaded.sample(64)):
                step = rows["step"][:, None]
                assert (rows["obs"][..., 0] == step).all() and (rows["obs"][..., 1] == step + 1).all()
            assert len(set(everything["step"].tolist())) == len(everything["step"]) >= 5 * chunk
    finally:
        for child in children:
            child.kill()
            child.join()


# ---- files with right checksums that no save has written


def rewritten(folder, change):
    """Change the manifest's content, and make its checksum right again."""
    manifest = folder / "manifest.json"
    whole = json.loads(manifest.read_bytes())
    whole["content"] = change(whole["content"])
    whole["crc32"] = zlib.crc32(json.dumps(whole["content"], sort_keys=True).encode())
    manifest.write_text(json.dumps(whole))


def places_in(value, path=()):
    """Every key and index of nested JSON, as paths."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places_in(inner, (*path, key))


def refused_or_usable(kind, folder):
    """A load raises the documented error and changes nothing, or gives a buffer that can be used."""
    limiter = None if kind == "reservoir" else RateLimiter(4.0, min_size=8, tolerance=4000)
    buffer = make(kind, rate_limiter=limiter)
    add_episodes(buffer, 2, np.random.default_rng(1))
    before = buffer.get_all()
    try:
        buffer.load(folder)
    except ReplayFileError as error:
        assert str(folder) in str(error) and "Loading had begun" not in "".join(getattr(error, "__notes__", []))
        same(before, buffer.get_all())
        return True
    buffer.get_all()
    with suppress(NotReady):
        for _ in range(3):
            batch = buffer.sample(8)
            if "weights" in batch:
                buffer.update_priorities(batch["ids"], np.ones(8))
    add_episodes(buffer, 5, np.random.default_rng(0))
    return False


def a_save(kind, folder):
    limiter = None if kind == "reservoir" else RateLimiter(4.0, min_size=8, tolerance=4000)
    buffer = make(kind, rate_limiter=limiter)
    add_episodes(buffer, 12, np.random.default_rng(3))
    buffer.save(folder)
    return folder


ODD = st.sampled_from(
    [None, True, 0, -1, 1, 7, 2**43, 2**63, 2**64, 10**40, 0.5, float("nan"), float("inf"), "", "0" * 64, [], {},
     [1] * 4, {"name": 1}, "../rows-0-0-0.bin"]
)  # fmt: skip


@given(st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_manifest_of_odd_values_with_a_right_checksum_is_refused_or_usable(tmp_path_factory, data):
    kind = data.draw(st.sampled_from(["reverse", "frames", "evicting", "reservoir"]))
    folder = a_save(kind, tmp_path_factory.mktemp("save"))

    def change(content):
        *path, last = data.draw(st.sampled_from(list(places_in(content))))
        inner = content
        for key in path:
            inner = inner[key]
        if data.draw(st.integers(0, 3)):
            inner[last] = data.draw(ODD)
        else:
            del inner[last]
        return content

    rewritten(folder, change)
    refused_or_usable(kind, folder)


@given(st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_files_of_odd_bytes_with_right_checksums_are_refused_or_usable(tmp_path_factory, data):
    kind = data.draw(st.sampled_from(sorted(KINDS)))
    folder = a_save(kind, tmp_path_factory.mktemp("save"))
    file = data.draw(st.sampled_from(sorted(folder.glob("*.bin"))))
    words = np.fromfile(file, "<i8", count=file.stat().st_size // 8)
    odd = [-1, -2, 2**63 - 1, 2**44, 0x7FF0 << 48, 0x7FF8 << 48, 2**62]  # infinite, NaN and huge among float64
    for place in data.draw(st.lists(st.integers(0, len(words) - 1), min_size=1, max_size=4)):
        words[place] = data.draw(st.sampled_from(odd))
    rest = file.read_bytes()[words.nbytes :]
    file.write_bytes(words.tobytes() + rest)

    def change(content):
        holders = [block for store in content["stores"] for block in store["blocks"]] + [content["priorities"]]
        (entry,) = (holder["file"] for holder in holders if holder and holder["file"]["name"] == file.name)
        entry["crc32"] = zlib.crc32(file.read_bytes())
        return content

    rewritten(folder, change)
    refused_or_usable(kind, folder)


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("reverse", ["extras", "reverse"], "3"),
        ("uniform", ["extras", "rate_limiter", "inserts"], None),
        ("uniform", ["extras", "rate_limiter", "samples"], 10**6),
        ("uniform", ["description"], []),
        ("uniform", ["stores"], []),
        ("uniform", ["stores", 0, "blocks", 0, "file"], None),
        ("uniform", ["stores", 0, "counters"], [5, 6, 5, 0]),
        ("prioritized", ["priorities", "largest"], float("nan")),
        ("uniform", ["generator"], "00"),
        ("uniform", ["extras", "deep"], json.loads("[" * 400 + "]" * 400)),
    ],
)  # fmt: skip
def test_a_value_of_a_manifest_that_no_save_writes_is_named(kind, path, value, tmp_path):
    folder = a_save(kind, tmp_path / "save")

    def change(content):
        inner = content
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        return content

    rewritten(folder, change)
    assert refused_or_usable(kind, folder) == (path[-1] != "deep")


@pytest.mark.parametrize("make_it", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("name", ["manifest.json", "rows-0"])
def test_what_is_no_regular_file_is_refused_and_not_waited_for(make_it, name, tmp_path):
    folder = a_save("uniform", tmp_path / "save")
    (file,) = folder.glob(f"{name}*")
    file.unlink()
    make_it(file)
    assert refused_or_usable("uniform", folder)
