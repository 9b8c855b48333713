"""What all tests share."""

import pytest


@pytest.fixture(scope="module")
def kept_launcher():
    """Trainings of a module start without importing torch anew, as those of a bench do."""
    from penstock.engine import launcher

    with launcher.kept():
        yield
