"""Replay buffers for any number of processes, usable alone: NumPy in and out, no deep-learning framework.

>>> from penstock.replay import Field, Prioritized, ReplayBuffer
>>> buffer = ReplayBuffer(1_000_000, {"obs": Field((4,)), "reward": Field()}, sampler=Prioritized(alpha=0.6))
>>> buffer.add(obs=[0.0, 0.1, 0.2, 0.3], reward=1.0)
0
>>> batch = buffer.sample(256)
>>> buffer.update_priorities(batch["ids"], abs(batch["reward"]))
0
"""

from penstock.replay.buffer import ReplayBuffer
from penstock.replay.hindsight import Hindsight
from penstock.replay.laber import LaBER
from penstock.replay.limiter import NotReady, RateLimiter
from penstock.replay.manifest import ReplayFileError
from penstock.replay.memory import Stats
from penstock.replay.settings import Elite, Field, NStep, Prioritized, Reservoir, Reverse, Sequences, Uniform
from penstock.replay.writer import Writer

__all__ = [
    "Elite",
    "Field",
    "Hindsight",
    "LaBER",
    "NStep",
    "NotReady",
    "Prioritized",
    "RateLimiter",
    "ReplayBuffer",
    "ReplayFileError",
    "Reservoir",
    "Reverse",
    "Sequences",
    "Stats",
    "Uniform",
    "Writer",
]
