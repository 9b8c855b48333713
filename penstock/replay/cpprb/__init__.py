"""A drop-in for cpprb 11: its names, arguments and results, on Penstock's replay buffers.

A program moves over by changing its import::

    from penstock.replay.cpprb import PrioritizedReplayBuffer  # was: from cpprb import ...

What differs is what was wrong there, or would pass over a mistake in silence:

- Sampling an empty buffer raises ``penstock.replay.NotReady``. It raised ``ValueError``, gave rows of rubbish with
  weights NaN (prioritized), or hung (multi-process). ``sample(0)`` raises ``ValueError``.
- A batch belongs to the caller: ``weights`` and ``indexes`` are not overwritten by the next ``sample()``.
- Rows of ``Nstep`` that an episode's end cuts short have the last step's next values, where cpprb left 1.0. ``done`` is
  that of the last step which the row covers, where cpprb looked one step less far. Batches have one entry more,
  ``discount`` (float32, ``[B, 1]``): what to multiply the bootstrap value with. ``done`` ends an episode by itself, so
  that no row runs on into the next one when ``on_episode_end()`` was forgotten.
- ``next_of`` and ``stack_compress`` store equal bytes once, whatever is added after what; they need no
  ``on_episode_end()`` to be right, work with ``Nstep``, and every class takes them.
- Every buffer lies in shared memory and can be pickled to another process of the machine. Explorers take no lock: one
  that is killed holds up nobody, and the row that it was writing is never sampled.
- An addition that fails adds nothing. One larger than the buffer leaves its last rows.
- Priorities that are NaN, infinite or negative raise ``ValueError``, indexes outside of the buffer ``IndexError``.
- ``save_transitions`` writes no pickle, and ``load_transitions`` reads none: see there for files of cpprb's own.
- ``mmap_prefix`` says in which directory the data lie on disk. Their file has no name and goes with the buffer.
- For Dict spaces ``create_env_dict`` and ``create_before_add_func`` agree: see ``create_env_dict``.
- ``train`` takes Gymnasium environments too, and the reward that it reports is the episode's sum, not its last.
- Arguments that cpprb ignores are ignored with a warning.
- These raise ``ValueError``: ``env_dict=None``; object dtypes; a negative ``alpha`` or ``beta``; fields named
  ``priorities``, in prioritized buffers ``weights`` or ``indexes``, with ``Nstep`` ``discount``; ``rew`` of ``Nstep``
  that is no float32 or float64; ``Nstep`` with ``HindsightReplayBuffer``, which mixed rewards of different goals.
- All names are at the top level: there is no ``cpprb.util`` or other module of cpprb's.

Draws are seeded from NumPy's global generator when a buffer is made: ``np.random.seed`` before that makes them
reproducible.
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
