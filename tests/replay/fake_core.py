"""A replay buffer's contents in plain NumPy arrays, to be saved and loaded in tests."""

import numpy as np
import pytest

from penstock.replay import files
from penstock.replay.files import load_buffer, save_buffer

NOTHING = -1
SETTINGS = {"capacity": 10, "fields": {"obs": {"shape": (4,), "dtype": "uint8"}}, "n_step": None}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Where this is imported: four rows of store 0 in a block, one frame of store 1."""
    monkeypatch.setattr(files, "_BLOCK_NBYTES", 20)


class FakeCore:
    """Two buffers with different seeds have different records under equal ids, as two runs have."""

    def __init__(self, seed=0, shapes=((10, 5), (7, 16)), prioritized=True):
        self._random = np.random.default_rng(seed)
        self._shapes = shapes
        self._ids = [np.full(capacity, NOTHING) for capacity, _ in shapes]
        self._records = [np.zeros(shape, np.uint8) for shape in shapes]
        self._counters = [(0, 0, 0, 0) for _ in shapes]
        self._last_save = 0
        self._episode_starts = seed
        self._largest = 1.0
        self._leaves = np.zeros(shapes[0][0])
        self._leaf_ids = np.full(shapes[0][0], NOTHING)
        self._generator = self._random.bytes(32)
        self.prioritized = prioritized
        self.blocks_read = []
        self.after_read = lambda store, begin: None

    # What a user of the buffer does.

    def add(self, store, count=1):
        capacity, record_nbytes = self._shapes[store]
        claimed, base, written, cleared = self._counters[store]
        for record_id in range(claimed, claimed + count):
            row = record_id % capacity
            self._ids[store][row] = record_id
            self._records[store][row] = self._random.integers(0, 256, record_nbytes)
            if store == 0:
                self._leaf_ids[row] = record_id
                self._leaves[row] = self._random.random()
                self._largest = max(self._largest, 10 * self._leaves[row])
        self._counters[store] = (claimed + count, base, written + count, cleared)

    def clear(self):
        for store, (claimed, _, written, _) in enumerate(self._counters):
            capacity, _ = self._shapes[store]
            start = -(-claimed // capacity) * capacity
            self._ids[store][:] = NOTHING
            self._counters[store] = (start, start, written, written)
        self._leaves[:] = 0.0
        self._leaf_ids[:] = NOTHING

    def sample(self):
        self._generator = self._random.bytes(32)

    def die_writing(self, store, row):
        self._ids[store][row] = NOTHING
        self._records[store][row] = 0xEE

    def contents(self):
        rows = [
            {int(record_id): self._records[store][row].tobytes() for row, record_id in enumerate(ids) if record_id >= 0}
            for store, ids in enumerate(self._ids)
        ]
        places = [ids.tolist() for ids in self._ids]
        leaves = (self._leaves.tolist(), self._leaf_ids.tolist(), self._largest) if self.prioritized else None
        return rows, places, list(self._counters), leaves, self._generator

    def size(self, store=0):
        _, _, written, cleared = self._counters[store]
        return min(written - cleared, self._shapes[store][0])

    # What save_buffer and load_buffer use.

    @property
    def num_stores(self):
        return len(self._shapes)

    def store_shape(self, store):
        return self._shapes[store]

    def last_save(self):
        return self._last_save

    def set_last_save(self, number):
        self._last_save = number

    def ids(self, store, begin, end):
        return self._ids[store][begin:end].copy()

    def read_block(self, store, begin, end):
        block = self.ids(store, begin, end), self._records[store][begin:end].copy()
        self.blocks_read.append((store, begin))
        self.after_read(store, begin)
        return block

    def put_block(self, store, begin, ids, records):
        end = begin + len(ids)
        assert ids.dtype == np.int64
        assert records.shape == (len(ids), self._shapes[store][1]) and records.dtype == np.uint8
        self._ids[store][begin:end] = ids
        self._records[store][begin:end] = records

    def counters(self, store):
        return self._counters[store]

    def set_counters(self, store, counters):
        self._counters[store] = counters

    def read_priorities(self):
        return self._leaves.copy(), self._leaf_ids.copy(), self._largest

    def put_priorities(self, leaves, ids, largest):
        assert leaves.dtype == np.float64 and ids.dtype == np.int64
        self._leaves[:], self._leaf_ids[:], self._largest = leaves, ids, largest

    def episode_starts(self):
        return self._episode_starts

    def set_episode_starts(self, count):
        self._episode_starts = count

    def generator_state(self):
        return self._generator

    def set_generator_state(self, state):
        self._generator = state


def filled(seed=0, rows=7, frames=5, **kwargs):
    core = FakeCore(seed, **kwargs)
    core.add(0, rows)
    if core.num_stores > 1:
        core.add(1, frames)
    return core


def saved(core, path):
    save_buffer(core, SETTINGS, path)
    return core.contents()


def loaded(path, **kwargs):
    core = FakeCore(99, **kwargs)
    load_buffer(core, SETTINGS, path)
    return core.contents()


def stamps(path):
    return {file.name: (file.stat().st_ino, file.stat().st_mtime_ns) for file in path.iterdir()}


def named_files(path):
    return {"manifest.json"} | {name for name in stamps(path) if name in (path / "manifest.json").read_text()}
