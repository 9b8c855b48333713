"""Launchers: a role of one that the test has, and the one of a run."""

from penstock.algorithms.ppo import PPO
from penstock.engine.backends.channel import Channel
from penstock.engine.trainer import Trainer
from penstock.ipc import Arena
from tests.engine.processes import TINY, pids_of


def fork(running, name):
    """A role that never gets its spec: it waits for ever, while the other returned values are kept."""
    ours, theirs = Channel.pair()
    arena = Arena.create(4096)
    return running.fork(name, arena.fd, theirs), ours, theirs, arena


def launcher_of_a_run(**settings):
    """Process id of the launcher of a short run."""
    with Trainer(PPO, **{**TINY, **settings}, run_dir=None) as trainer:
        trainer.train(32, quiet=True)
        return pids_of(trainer)["launcher"]
