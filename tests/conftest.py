"""Fixtures and marks of all tests."""

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.browsing import chromium
from tests.starting import Start, starter

# No test depends on how fast the machine is.
hypothesis.settings.register_profile(
    "penstock", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("penstock")

# Before torch is loaded: test processes share the cores, and threads of several would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray gives its processes a niceness of 15, with which a test beside other programs waits for minutes.
os.environ.setdefault("RAY_worker_niceness", "0")
# Collected modules are compiled once, for later runs and for processes of tests; after collection the shell decides.
sys.dont_write_bytecode = False
# A shell starts background commands with SIGINT ignored, and processes started by tests would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# The key with which runs are sealed is kept there, and processes that tests start inherit it.
_CONFIG_HOME = tempfile.TemporaryDirectory(prefix="penstock-tests-")
os.environ["XDG_CONFIG_HOME"] = _CONFIG_HOME.name

TESTS = Path(__file__).parent
SLOW = ("engine", "bench", "search", "exchange", "trials")
"""Folders whose tests train, or start processes."""
SLOW_FILES = (
    "replay/test_processes.py", "replay/test_priorities.py", "ipc/test_ring_processes.py", "ipc/test_arena.py",
    "algorithms/test_optimizers.py", "algorithms/test_return_statistics.py", "algorithms/test_each_is_itself.py",
    "envs/test_seeds.py", "nn/test_encoders.py", "nn/test_actor_critic.py", "runs/test_runs_of_before.py",
    "test_examples.py", "test_readme.py", "test_output.py", "test_cli.py", "test_environments_page.py",
    "studies/test_multirun.py", "dashboard/test_server.py", "dashboard/test_browser.py",
    "test_public_face.py", "test_architecture.py", "test_docs.py", "test_docs_site.py", "test_metrics_page.py",
    "test_tutorial.py",
)  # fmt: skip
"""Files elsewhere that take seconds."""
LONGEST = (
    "test_docs_shell.py", "engine/test_nodes.py", "trials/test_cluster.py", "test_docs_site.py",
    "dashboard/test_browser.py", "engine/test_signals.py", "studies/test_multirun.py", "export/test_export.py",
    "engine/test_remote_runs.py", "engine/test_pbt.py", "engine/test_redistributed_replay.py", "engine/test_games.py",
    "engine/test_policies.py", "test_docs.py", "engine/test_redistributed_runs.py", "engine/test_hindsight_runs.py",
    "self_play/test_past_of_several.py", "engine/test_failure.py", "algorithms/test_learning_at_all.py",
    "test_examples.py", "bench/test_replay.py",
)  # fmt: skip
"""Files that take longest: they come first, so that no process of the suite is left with one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the files that take longest to the front; mark the tests that `make test-fast` leaves out."""
    rank = {TESTS / place: number for number, place in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))
    for item in items:
        place = item.path.relative_to(TESTS)
        if place.parts[0] in SLOW or place.as_posix() in SLOW_FILES:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from walking through thousands of tests."""
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_prepared() -> Iterator[None]:
    """Discard what a refused command prepared for its run: outside tests the command ends with its process."""
    yield
    if launcher := sys.modules.get("penstock.engine.backends.launcher"):
        launcher.discard()


@pytest.fixture(scope="session")
def idle_launchers() -> Iterator[list[Any]]:
    """The launcher of the modules that have `kept_launcher`, while none of them runs."""
    idle: list[Any] = []
    yield idle
    for one in idle:
        one.close()


@pytest.fixture(scope="module")
def kept_launcher(idle_launchers) -> Iterator[None]:
    """Trainings of such modules start from one launcher, without importing torch anew, as those of a bench do."""
    from penstock.engine.backends import launcher

    with launcher.kept():
        for _ in range(len(idle_launchers)):
            launcher.give_back(idle_launchers.pop(), is_idle=True)
        yield
        idle_launchers.append(launcher.take())


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium; the test is skipped where it is not installed."""
    with chromium() as chrome:
        yield chrome


@pytest.fixture(params=["short", pytest.param("long", marks=pytest.mark.long)])
def soak(request: pytest.FixtureRequest) -> float:
    """Share of a soak's length: a tenth in `make test`, all of it in `make test-long`."""
    return 1.0 if request.param == "long" else 0.1


@pytest.fixture
def spawn() -> Iterator[Start]:
    """Start a process that shares nothing but what it is sent: ``spawn(function, *arguments)``."""
    yield from starter("spawn")


@pytest.fixture
def fork() -> Iterator[Start]:
    """Start a process in milliseconds, to be killed soon: ``fork(function, *arguments)``."""
    yield from starter("fork")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch computes in one thread, as in the engine: several would only wait for each other in networks so small."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
