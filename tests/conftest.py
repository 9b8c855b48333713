"""What all tests share."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def kept_launcher():
    """Trainings of a module start without importing torch anew, as those of a bench do."""
    from penstock.engine.backends import launcher

    with launcher.kept():
        yield


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch computes in one thread, as in the engine: several would only wait for each other in networks so small."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
