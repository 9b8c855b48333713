"""A trained policy by itself: loaded from a checkpoint, without trainer, processes or environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms import load_algorithm
from penstock.algorithms.base import Algorithm
from penstock.config import make_config
from penstock.envs.actions import ActionDecoder
from penstock.envs.observations import ObservationWriter
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.nn import PolicyNetwork
from penstock.runs.checkpoint import load_checkpoint, require_matching
from penstock.runs.run_directory import resolve_checkpoint


class Policy:
    """A network that acts.

    Attributes
    ----------
    algorithm, model
        What it was trained by, and the network with its weights.
    meta
        What is known of the checkpoint: algorithm, env, steps, mean_return, config, ...
    """

    def __init__(self, algorithm: Algorithm, model: PolicyNetwork, meta: Mapping[str, Any]) -> None:
        self.algorithm = algorithm
        self.model = model
        self.meta = meta
        self._decode = ActionDecoder(algorithm.action)
        self._writer = ObservationWriter(algorithm.observation)

    @property
    def has_memory(self) -> bool:
        """Whether `act` needs and returns a state."""
        return self.model.state_size > 0

    @torch.inference_mode()
    def act(self, observation: Any, state: Tensor | None = None, deterministic: bool = True) -> Any:
        """Choose actions as the environment takes them.

        Parameters
        ----------
        observation
            One observation, or a batch of N with a leading dimension.
        state
            With memory: what the last call returned; None at the start of an episode.
        deterministic
            The most probable action; False: a sample (from torch's global generator).

        Returns
        -------
        action
            One action, or N of them. With memory the pair (action, state).

        Raises
        ------
        ValueError
            The observation is not shaped as in training.
        """
        spec = self.algorithm.observation
        array = np.asarray(observation)
        is_batch = array.ndim == len(spec.shape) + 1
        batch = array if is_batch else array[None]
        obs = np.empty((len(batch), *spec.shape), spec.dtype)
        self._writer.write_batch(obs, np.arange(len(batch)), batch)
        memory = self.model.initial_state(len(batch)) if state is None else state
        first = torch.full((len(batch),), state is None)
        distribution, memory = self.model.act(torch.from_numpy(obs), first, memory)
        chosen = distribution.mode() if deterministic else distribution.sample(self._noise(len(batch)))
        actions = self._decode(chosen.numpy())
        action = actions if is_batch else actions[0]
        return (action, memory) if self.has_memory else action

    def _noise(self, count: int) -> Tensor:
        action = self.algorithm.action
        draw = torch.rand if action.noise == "uniform" else torch.randn
        return draw(count, action.noise_size)


def load_policy(path: str | os.PathLike[str], **settings: Any) -> Policy:
    """Load a trained policy.

    Weights and settings are read without executing code. The algorithm and an encoder of one's own are imported from
    the module or file that the checkpoint names, which does execute it: load only what you trust to name code.

    Parameters
    ----------
    path
        A run directory (its best checkpoint is taken), a checkpoint, or what ``save`` wrote.
    **settings
        Settings that could not be written to the checkpoint by value, such as ``encoder=MyEncoder``.

    Raises
    ------
    CheckpointError
        There is none, it is damaged or foreign, or its weights do not fit the network of its settings.
    """
    checkpoint = load_checkpoint(resolve_checkpoint(path))
    meta = checkpoint.meta
    algorithm_class = load_algorithm(meta["algorithm"])
    config = make_config(algorithm_class.Config, {**meta["config"], **settings})
    algorithm = algorithm_class(config, *specs_from_json(meta["specs"]))
    model = algorithm.build_model()
    require_matching(checkpoint.weights, model.state_dict(), str(checkpoint.path))
    model.load_state_dict(checkpoint.weights)
    return Policy(algorithm, model, meta)


def specs_to_json(observation: ObservationSpec, action: ActionSpec) -> dict[str, Any]:
    """What an environment shows and takes, as JSON values; infinite bounds as text."""
    return {
        "observation": {**vars(observation)},
        "action": {
            **vars(action),
            "low": None if action.low is None else [repr(x) for x in action.low],
            "high": None if action.high is None else [repr(x) for x in action.high],
        },
    }


def specs_from_json(specs: Mapping[str, Any]) -> tuple[ObservationSpec, ActionSpec]:
    """The inverse of `specs_to_json`."""
    observation, action = dict(specs["observation"]), dict(specs["action"])
    observation["shape"], action["shape"] = tuple(observation["shape"]), tuple(action["shape"])
    for bound in ("low", "high"):
        if action[bound] is not None:
            action[bound] = tuple(float(x) for x in action[bound])
    return ObservationSpec(**observation), ActionSpec(**action)
