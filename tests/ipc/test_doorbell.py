"""The doorbell: no ring is missed, no wait outlives its time."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from penstock.ipc import Arena, Doorbell
from tests.ipc.sharing import Sent, finished, wait_until_asleep
from tests.starting import Start


@pytest.fixture
def bell(arena: Arena) -> Doorbell:
    return Doorbell.create(arena, 128)


def test_each_ring_raises_the_value_by_one_for_everybody(arena: Arena, bell: Doorbell) -> None:
    other = Doorbell.attach(arena, 128)
    assert bell.value == 0
    bell.ring()
    other.ring()
    assert bell.value == other.value == 2


def test_a_ring_before_the_wait_is_not_missed(bell: Doorbell) -> None:
    seen = bell.value
    bell.ring()
    assert bell.wait(seen, timeout=None) == 1


@pytest.mark.parametrize("timeout", [0.0, -1.0, 0.002])
@pytest.mark.parametrize("spin", [0.0, 0.001, 10.0])
def test_a_wait_without_a_ring_ends_with_the_value_unchanged(bell: Doorbell, timeout: float, spin: float) -> None:
    assert bell.wait(0, timeout=timeout, spin=spin) == 0


def test_a_sleeper_is_woken(bell: Doorbell) -> None:
    values: list[int] = []
    sleeper = threading.Thread(target=lambda: values.append(bell.wait(0, timeout=None)))
    sleeper.start()
    wait_until_asleep(Path(f"/proc/self/task/{sleeper.native_id}"))
    bell.ring()
    sleeper.join()
    assert values == [1]


def _answer(sent: Sent, rounds: int) -> None:
    ping, pong = Doorbell.attach(sent.arena, 0), Doorbell.attach(sent.arena, 64)
    for round_ in range(rounds):
        ping.wait(round_, timeout=None)
        pong.ring()


@pytest.mark.timeout(60)
def test_a_thousand_round_trips_need_no_timeout_to_come_back(arena: Arena, spawn: Start) -> None:
    # A sleep lasts up to 100 ms unless it is ended by a ring: were rings lost, this would take minutes.
    ping, pong = Doorbell.create(arena, 0), Doorbell.create(arena, 64)
    process = spawn(_answer, Sent(arena), 1000)
    for round_ in range(1000):
        ping.ring()
        assert pong.wait(round_, timeout=None) == round_ + 1
    assert finished(process)


def _burn(sent: Sent) -> None:
    Doorbell.attach(sent.arena, 0).ring()
    while True:
        pass


@pytest.mark.timeout(60)
def test_no_process_spins_while_others_want_every_core(arena: Arena, spawn: Start) -> None:
    begun, bell = Doorbell.create(arena, 0), Doorbell.create(arena, 64)
    cores = len(os.sched_getaffinity(0))
    for _ in range(cores):
        spawn(_burn, Sent(arena))
    while begun.value < cores:
        time.sleep(0.001)
    before = time.thread_time()
    for _ in range(10):
        bell.wait(0, timeout=0.1, spin=0.1)
    assert time.thread_time() - before < 0.05  # of the processor's time: it slept


class _Signalled(Exception):
    pass


@pytest.mark.timeout(60, method="thread")  # the usual method is itself a signal
def test_a_signal_handler_runs_during_an_endless_wait(bell: Doorbell) -> None:
    def handler(*_: object) -> None:
        raise _Signalled

    def send() -> None:
        wait_until_asleep(Path(f"/proc/self/task/{threading.main_thread().native_id}"))
        os.kill(os.getpid(), signal.SIGUSR1)

    previous = signal.signal(signal.SIGUSR1, handler)
    sender = threading.Thread(target=send)
    try:
        sender.start()
        with pytest.raises(_Signalled):
            bell.wait(0, timeout=None)
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, previous)


def test_attaching_where_there_is_no_doorbell_says_so(arena: Arena) -> None:
    with pytest.raises(ValueError, match="there is no Doorbell at offset 64: found magic word 0x0000000000000000"):
        Doorbell.attach(arena, 64)
