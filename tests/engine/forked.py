"""Ends of forked children. It imports nothing large, for a process that does nothing else."""

import multiprocessing
import os
import signal
import time

PATIENCE = 10.0  # seconds until a child that does not end is given up


def say_so_and_stay(connection):
    connection.send("here")
    while True:
        time.sleep(0.01)


def end_of_forked(signum):
    """Return the exit code of a child that is forked and sent a signal: SIGTERM before it can have done anything."""
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=say_so_and_stay, args=(theirs,), daemon=True)
    child.start()
    if signum == signal.SIGINT:
        ours.recv()
    os.kill(child.pid, signum)
    child.join(PATIENCE)
    code = child.exitcode
    child.kill()
    return code
