"""Drop-in replacement for cpprb 11: its names, arguments and results, on Penstock's replay buffers.

To switch a program, change its import::

    from penstock.replay.cpprb import PrioritizedReplayBuffer  # was: from cpprb import ...

Differences, all where cpprb is wrong or silently accepts a mistake:

- Sampling an empty buffer raises ``penstock.replay.NotReady``. cpprb raises ``ValueError``, returns meaningless rows
  with NaN weights (prioritized), or hangs (multi-process). ``sample(0)`` raises ``ValueError``.
- A batch belongs to the caller: the next ``sample()`` does not overwrite ``weights`` and ``indexes``.
- ``Nstep`` rows cut short by an episode's end have the last step's next values, where cpprb leaves 1.0. ``done`` is
  that of the last step covered, where cpprb stops one step earlier. Batches have an additional entry, ``discount``
  (float32, ``[B, 1]``), the factor of the bootstrap value. ``done`` ends an episode even without ``on_episode_end()``,
  so that no row continues into the next one.
- ``next_of`` and ``stack_compress`` store equal bytes once, in any order of additions; they need no
  ``on_episode_end()``, work with ``Nstep``, and every class accepts them.
- Every buffer lies in shared memory and can be pickled to another process of the machine. Explorers take no lock: a
  killed one blocks no other, and its unfinished row is never sampled.
- A failed addition adds nothing. Of an addition larger than the buffer, the last rows remain.
- Priorities that are NaN, infinite or negative raise ``ValueError``, indexes outside the buffer ``IndexError``.
- ``save_transitions`` writes no pickle, and ``load_transitions`` reads none; its message says how to convert files
  of cpprb.
- ``mmap_prefix`` gives the directory of the data on disk. The file has no name and is freed with the buffer.
- For Dict spaces ``create_env_dict`` and ``create_before_add_func`` agree: see ``create_env_dict``.
- ``train`` accepts Gymnasium environments too, and reports the episode's total reward, not its last.
- Arguments that cpprb ignores are ignored with a warning.
- These raise ``ValueError``: ``env_dict=None``; object dtypes; a negative ``alpha`` or ``beta``; fields named
  ``priorities``, in prioritized buffers ``weights`` or ``indexes``, with ``Nstep`` ``discount``; ``rew`` of ``Nstep``
  other than float32 or float64; ``Nstep`` with ``HindsightReplayBuffer``, which would mix rewards of different goals.
- All names are at the top level: there is no ``cpprb.util`` or other module of cpprb's.

The generator is seeded from NumPy's global generator when a buffer is made: call ``np.random.seed`` before that for
reproducible draws.
"""

from penstock.replay.cpprb.buffers import ReplayBuffer, ReverseReplayBuffer
from penstock.replay.cpprb.environments import create_before_add_func, create_env_dict
from penstock.replay.cpprb.multiprocess import MPPrioritizedReplayBuffer, MPReplayBuffer
from penstock.replay.cpprb.prioritized import PrioritizedReplayBuffer, create_buffer
from penstock.replay.cpprb.relabelling import HindsightReplayBuffer, LaBERlazy, LaBERmax, LaBERmean
from penstock.replay.cpprb.selective import SelectiveReplayBuffer
from penstock.replay.cpprb.training import train

__all__ = [
    "HindsightReplayBuffer",
    "LaBERlazy",
    "LaBERmax",
    "LaBERmean",
    "MPPrioritizedReplayBuffer",
    "MPReplayBuffer",
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "ReverseReplayBuffer",
    "SelectiveReplayBuffer",
    "create_before_add_func",
    "create_buffer",
    "create_env_dict",
    "train",
]
