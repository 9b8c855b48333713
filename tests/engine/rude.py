"""An environment whose constructor changes the state of its whole process."""

from __future__ import annotations

import locale
import os
import random
import signal
import threading
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from penstock.runs.process import ENDING


class RudeEnv(gymnasium.Env):
    """Episodes of 4 steps, whose rewards are drawn from NumPy's global generator.

    Parameters
    ----------
    elsewhere
        Directory that the constructor goes to, and notes its process in.
    made
        Extended by each new environment with the number of environments before it.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    metadata: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, elsewhere: str, made: list[int] | None = None) -> None:
        if made is not None:
            made.append(len(made))
        os.chdir(elsewhere)
        Path(f"made-by-{os.getpid()}").touch()
        os.environ["RUDE"] = "1"
        random.seed(1)
        torch.manual_seed(1)
        np.seterr(all="raise")
        torch.set_default_dtype(torch.float16)
        torch.set_default_device("meta")
        torch.set_grad_enabled(False)
        warnings.simplefilter("error")
        locale.setlocale(locale.LC_ALL, "C.UTF-8" if locale.setlocale(locale.LC_ALL) == "C" else "C")
        for signum in (signal.SIGTERM, signal.SIGALRM):
            signal.signal(signum, lambda *_: None)
        self._end = threading.Event()
        threading.Thread(target=self._end.wait, daemon=True).start()
        self._time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self._time += 1
        return np.zeros(2, np.float32), float(np.random.random()), False, self._time == 4, {}

    def close(self) -> None:
        self._end.set()


def state_of_process(*, with_endings: bool = True) -> dict[str, Any]:
    """State of this process that the environment changes; a running training owns the handlers of `ENDING`."""
    endings = () if with_endings else ENDING
    _, keys, *place = np.random.get_state()
    return {
        "directory": os.getcwd(),
        "variables": dict(os.environ),
        "generators": (random.getstate(), keys.tolist(), place, torch.get_rng_state().tolist()),
        "numpy": np.geterr(),
        "torch": (torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()),
        "warnings": [*warnings.filters],
        "locale": locale.setlocale(locale.LC_ALL),
        "handlers": {s: signal.getsignal(s) for s in signal.Signals if s not in endings},
    }
