"""A replay library with cpprb's names in a page of numpy, for tests of the bench; TOY_FAULT gives it one fault."""

import mmap
import multiprocessing
import os
import time

import numpy as np

FAULT = os.environ.get("TOY_FAULT")

print("a library may print what it likes")


def shared(shape, dtype):
    size = int(np.prod(shape))
    return np.frombuffer(mmap.mmap(-1, size * np.dtype(dtype).itemsize), dtype, size).reshape(shape)


class ReplayBuffer:
    def __init__(self, size, env_dict):
        self.random = np.random.default_rng(0)
        shapes = {name: (size, *np.atleast_1d(field["shape"])) for name, field in env_dict.items()}
        self.columns = {name: shared(shape, env_dict[name]["dtype"]) for name, shape in shapes.items()}
        self.added, self.size = shared(1, np.int64), size

    def add(self, **values):
        single = np.ndim(values["obs"]) == self.columns["obs"].ndim - 1
        rows = 1 if single else len(values["obs"])
        where = (self.added[0] + np.arange(rows)) % self.size
        for name, column in self.columns.items():
            column[where] = np.reshape(values[name], (rows, *column.shape[1:]))
        self.added += rows
        return where

    def stored(self):
        return int(min(self.added[0], self.size))

    def rows(self, where):
        batch = {name: column[where] for name, column in self.columns.items()}
        if FAULT == "rows":
            batch["obs"][-1].flat[1] += 1
        return batch

    def sample(self, batch_size):
        lowest = 1 if FAULT == "frequencies" else 0
        return self.rows(self.random.integers(lowest, self.stored(), batch_size))


class PrioritizedReplayBuffer(ReplayBuffer):
    def __init__(self, size, env_dict, alpha, eps):
        super().__init__(size, env_dict)
        self.alpha, self.eps = alpha, eps
        self.leaves, self.highest = shared(size, np.float64), shared(1, np.float64)
        self.highest[:] = 1.0

    def add(self, priorities=None, **values):
        self.update_priorities(super().add(**values), self.highest[0] if priorities is None else priorities)

    def sample(self, batch_size, beta=0.4):
        sums = np.cumsum(self.leaves[: self.stored()])
        where = np.searchsorted(sums, self.random.uniform(0, sums[-1], batch_size), side="right")
        weights = (self.leaves[where] / self.leaves[: self.stored()].min()) ** -beta
        if FAULT == "weights":
            weights *= 1.0001
        return {**self.rows(where), "weights": weights, "indexes": where + (FAULT == "indexes")}

    def update_priorities(self, indexes, priorities):
        self.leaves[indexes] = (priorities + self.eps) ** self.alpha
        self.highest[:] = max(self.highest[0], np.max(priorities))

    def get_max_priority(self):
        return 2.0 if FAULT == "max priority" else self.highest[0]


class MPPrioritizedReplayBuffer(PrioritizedReplayBuffer):
    def __init__(self, size, env_dict, alpha, eps, ctx):
        super().__init__(size, env_dict, alpha, eps)
        self.lock, self.owner = ctx.Lock(), os.getpid()

    def add(self, **values):
        if FAULT == "dead writer" and os.getpid() != self.owner:
            os._exit(1)
        if FAULT == "stuck writer" and os.getpid() != self.owner and self.added[0] > 3 * self.size:
            time.sleep(3600)
        with self.lock:
            super().add(**values)
        if FAULT == "torn" and multiprocessing.parent_process():
            self.columns["rew"][:] = -1.0

    def sample(self, batch_size, beta=0.4):
        with self.lock:
            return super().sample(batch_size, beta)

    def update_priorities(self, indexes, priorities):
        super().update_priorities(indexes, priorities)
