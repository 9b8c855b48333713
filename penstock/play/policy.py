"""Trained policies loaded from a checkpoint, without trainer, processes or environment."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypedDict, TypeVar

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms import load_algorithm
from penstock.algorithms.bases.algorithm import Algorithm
from penstock.config import Config, find_object, restored_config, whole_arguments
from penstock.envs.columns import ActionDecoder, PartView, observation_writer
from penstock.envs.masks import flat_mask, mask_of_lane, offers_nothing
from penstock.envs.spaces import ActionSpec, ObservationPart, ObservationSpec
from penstock.envs.spec import EnvSpec
from penstock.envs.statistics import RunningStatistics, statistics_of
from penstock.nn import PolicyNetwork
from penstock.nn.layers import Allowance
from penstock.process_state import plain_torch
from penstock.runs.checkpoint import META, CheckpointError, load_checkpoint, require_matching
from penstock.runs.documents import DocumentError, require_shape
from penstock.runs.lookup import resolve_checkpoint
from penstock.trust import code_of

Env = TypeVar("Env")
Wrappers = Sequence[Callable[[Any], Any]]
"""Functions or classes that take an environment and return one."""
_ROOM_TO_BUILD = 1 << 24  # bytes of temporary tensors while a network is built


class _Meta(TypedDict):
    """Keys of a checkpoint's ``meta.json`` needed for a policy."""

    algorithm: str
    config: dict[str, Any]
    specs: dict[str, Any]


class Policy:
    """A network that acts.

    Attributes
    ----------
    algorithm, model
        Algorithm of its training, and network with its weights.
    meta
        Metadata of the checkpoint: algorithm, env, steps, mean_return, config, ...
    code
        Opens the block within which code named by the settings may be imported.
    """

    def __init__(
        self, algorithm: Algorithm, model: PolicyNetwork, meta: Mapping[str, Any],
        code: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:  # fmt: skip
        self.code = code
        self.algorithm = algorithm
        self.model = model
        self.meta = meta
        self._decode = ActionDecoder(algorithm.action)
        self._writer = observation_writer(algorithm.observation)

    def __getattr__(self, name: str) -> Any:
        hint = ": here it is act(observation)" if name in ("predict", "compute_single_action") else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    @property
    def has_memory(self) -> bool:
        """Whether `act` takes and returns a state."""
        return self.model.state_size > 0

    def prepare(self, env: Env) -> Env:
        """Set the running statistics of an environment's wrappers to their values at the end of training, frozen.

        Parameters
        ----------
        env
            Environment wrapped as in training, single or vector; unchanged without such wrappers.

        Returns
        -------
        env
            The same environment.

        Raises
        ------
        ValueError
            The wrappers differ from those in training.
        """
        RunningStatistics([env], statistics_of(self.meta))
        return env

    @property
    def idle_action(self) -> Any:
        """Return an arbitrary action, for an agent whose action is ignored."""
        action = self.algorithm.action
        return self.decoded(np.zeros((1, *action.column_shape), action.column_dtype))

    def act(
        self, observation: Any, state: Any = None, deterministic: bool = True, action_mask: Any = None
    ) -> Any:
        """Choose actions in the environment's form.

        Parameters
        ----------
        observation
            One observation, or a batch of N: with a leading dimension, in every leaf if it is nested.
        state
            With memory: the state from the last call, ``[N, S]``, as any array; None, or rows of 0, at the start of an
            episode.
        deterministic
            Whether to take the most probable action; False: a sample (from torch's global generator).
        action_mask
            Mask of legal actions, for environments with masks in the info, of one observation or of N. None: all are
            legal.

        Returns
        -------
        action
            One action, or N of them, in the environment's form. With memory the pair (action, state).

        Raises
        ------
        ValueError
            The observation is not finite, observation, state or mask have another shape than in training, a state is
            given without memory, or the mask leaves a choice no value.
        """
        _, chosen, is_one, memory = self.choose(observation, state, deterministic, action_mask)
        action = self._decode.each(chosen)[0] if is_one else self._decode(chosen)
        return (action, memory) if self.has_memory else action

    def choose(
        self, observation: Any, state: Any = None, deterministic: bool = True, action_mask: Any = None,
        noise: Tensor | None = None,
    ) -> tuple[np.ndarray, np.ndarray, bool, Tensor]:  # fmt: skip
        """Choose actions in the policy's form; parameters and errors as for `act`.

        Parameters
        ----------
        noise
            Random numbers of a sample, float32 ``[N, noise_size]``; None: from torch's global generator.

        Returns
        -------
        obs, action : ndarray
            Observations and actions in the layout of their columns, ``[N, ...]``.
        is_one : bool
            Whether a single observation was given instead of a batch.
        state : Tensor
            Memory after the observations.
        """
        spec, writer = self.algorithm.observation, self._writer
        count = writer.batch_size((observation, None) if spec.mask_is_in_info else observation)
        if spec.mask_is_in_info:
            observation = observation, self._legal(action_mask, count)
        elif action_mask is not None:
            raise ValueError("action_mask is given, but this policy was trained without masks in infos: leave it out")
        rows = np.arange(1 if count is None else count)
        obs = np.zeros((len(rows), *spec.shape), spec.dtype)
        if count is None:
            writer.write_each(obs, rows, [observation])
        else:
            writer.write_batch(obs, rows, observation)
        if spec.mask is not None and offers_nothing(PartView(spec.mask)(obs), self.algorithm.action.choices).any():
            raise ValueError("a mask leaves a choice no legal value: let one be legal, or all if the episode is over")
        state = None if state is None else self._state_of(state, len(rows))
        first, chain = np.full(len(rows), state is None), self.model.chain
        if deterministic and chain is not None and (acted := chain.act(obs, first, state)) is not None:
            chosen, memory = acted
            return obs, chosen, count is None, memory
        with plain_torch(), torch.inference_mode():
            memory = self.model.initial_state(len(rows)) if state is None else state
            choice, memory = self.model.act(torch.from_numpy(obs), torch.from_numpy(first), memory)
            if noise is None and not deterministic:
                noise = self._noise(len(rows))
            action = choice.mode() if noise is None else choice.sample(noise)
        return obs, action.numpy(), count is None, memory.clone()  # a tensor that may be written to

    def decoded(self, chosen: np.ndarray) -> Any:
        """Return one action from `choose`, ``[1, ...]``, in the environment's form."""
        return self._decode.each(chosen)[0]

    def export(self, path: str | os.PathLike[str], **settings: Any) -> dict[str, Any]:
        """Write the policy as one file that runs without Penstock, with its contract beside it.

        See :func:`penstock.export.export_policy`.
        """
        written: dict[str, Any] = find_object("penstock.export:export_policy", "export")(self, path, **settings)
        return written

    def _state_of(self, given: Any, count: int) -> Tensor:
        """Return a given state as float32 ``[count, S]``."""
        state, shape = torch.as_tensor(given, dtype=torch.float32), (count, self.model.state_size)
        if state.shape == shape:
            return state
        if not self.has_memory:
            raise ValueError(f"a state is given, {given!r:.60}, and this policy has no memory: leave it out")
        raise ValueError(
            f"expected a state of shape {shape}, a row for each observation, found {tuple(state.shape)}: give the "
            "state of the last call, or None where an episode begins"
        )

    def _legal(self, mask: Any, count: int | None) -> np.ndarray:
        """Return the mask of one observation, bool ``[M]``, or of N, ``[N, M]``."""
        action = self.algorithm.action
        if mask is None:
            legal = np.ones(sum(action.choices), np.bool_)
            return legal if count is None else np.tile(legal, (count, 1))
        if count is None:
            return flat_mask(mask, action, "action_mask")
        return np.array([flat_mask(mask_of_lane(mask, lane), action, "action_mask") for lane in range(count)])

    def _noise(self, count: int) -> Tensor:
        action = self.algorithm.action
        draw = torch.rand if action.noise == "uniform" else torch.randn
        return draw(count, action.noise_size)


def environment_of(policy: Policy, on: EnvSpec | None = None, wrappers: Wrappers = ()) -> EnvSpec:
    """Return the environment that a policy was trained on, or another for it to play.

    Parameters
    ----------
    policy
        The policy, whose running statistics the environment gets.
    on
        Other environment; None: that of the training.
    wrappers
        Functions or classes that take an environment and return one; the last is the outermost.
    """
    mask_is_in_info = policy.algorithm.observation.mask_is_in_info
    with policy.code():
        env = environment_named_by(policy.algorithm.config, on)
    env = env.wrapped(wrappers) if wrappers else env
    return dataclasses.replace(env, mask_is_in_info=mask_is_in_info, statistics=statistics_of(policy.meta))


def environment_named_by(config: Config, on: EnvSpec | None = None) -> EnvSpec:
    """Return the environment of a config, or another with its teams; raise as `EnvSpec.resolve` does."""
    spec = on or EnvSpec.resolve(config.env, whole_arguments(config.env_kwargs), config.vectorize)
    return dataclasses.replace(spec, team_reward=config.team_reward, is_shuffled=config.seats == "shuffled")


@plain_torch()
def load_policy(
    path: str | os.PathLike[str], policy: int | str | None = None, *, trust_code: bool = False, **settings: Any
) -> Policy:
    """Load a trained policy.

    Weights and settings are read without executing code. Settings may name code, such as an encoder, which is imported
    if it belongs to an installed package, or to a run that this user has trained.

    Parameters
    ----------
    path
        Run directory (its best checkpoint is used), checkpoint, or file written by ``save``.
    policy
        Name or number of the policy, for a run with several.
    trust_code
        Whether to import code that came with a copied run.
    **settings
        Settings that the checkpoint could not store by value, such as ``encoder=MyEncoder`` or ``algorithm=MyOwn``.

    Raises
    ------
    CheckpointError
        The checkpoint is missing, damaged or foreign, or its weights are not finite or do not fit its settings.
    UntrustedCodeError
        The checkpoint names code that this user has not trained with; nothing was imported.
    """
    checkpoint = load_checkpoint(resolve_checkpoint(path, policy=policy))
    meta, name = checkpoint.meta, str(checkpoint.path)
    try:
        require_shape(meta, f"{name}/{META}", _Meta)
        specs = specs_from_json(meta["specs"])
    except (DocumentError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{name} is not the checkpoint of a policy: {error}") from error
    code = partial(code_of, meta, checkpoint.path, trust_code, {**settings})
    with code():
        algorithm_class = load_algorithm(meta["algorithm"], settings.pop("algorithm", None))
        config = restored_config(algorithm_class.Config, meta["config"], settings)
        algorithm = algorithm_class(config, *specs)
    nbytes = sum(tensor.nbytes for tensor in checkpoint.weights.values())
    try:
        # Initialising a layer needs several tensors of its size; the checkpoint then replaces the drawn values.
        with code(), Allowance(_ROOM_TO_BUILD + 8 * nbytes), torch.random.fork_rng(devices=[]):
            model = algorithm.make_model()
    except MemoryError as error:
        raise CheckpointError(
            f"{name} is refused: its weights have {nbytes:,} bytes, but its settings make a larger network: {error}"
        ) from error
    require_matching(checkpoint.weights, model.state_dict(), name)
    model.load_state_dict(checkpoint.weights)
    return Policy(algorithm, model, meta, code)


def specs_to_json(observation: ObservationSpec, action: ActionSpec) -> dict[str, Any]:
    """Return observation and action specs as JSON values; infinite bounds as text."""
    return {"observation": _to_json(observation), "action": _to_json(action)}


def specs_from_json(specs: Mapping[str, Any]) -> tuple[ObservationSpec, ActionSpec]:
    """Return the specs written by `specs_to_json`."""
    return _observation_from_json(specs["observation"]), _action_from_json(specs["action"])


def _to_json(value: Any) -> Any:
    """Return a spec, or a value of its fields, as JSON values, without computed fields."""
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    if not isinstance(value, ActionSpec | ObservationSpec | ObservationPart):
        return repr(value) if isinstance(value, float) and math.isinf(value) else value
    fields = {field.name: _to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, ActionSpec):  # all of its bounds are text
        bounds = {"low": value.low, "high": value.high}
        fields |= {name: bound and [repr(x) for x in bound] for name, bound in bounds.items()}
    return fields


def _action_from_json(fields: Mapping[str, Any]) -> ActionSpec:
    parts = tuple((key, _action_from_json(part)) for key, part in fields.get("parts", ()))
    return ActionSpec(**{**_tuples(fields), "parts": parts})


def _observation_from_json(fields: Mapping[str, Any]) -> ObservationSpec:
    parts = tuple(_part_from_json(part) for part in fields.get("parts", ()))
    mask = fields.get("mask") and _part_from_json(fields["mask"])
    unbounded = {"low": None, "high": None}  # a checkpoint may lack bounds
    return ObservationSpec(**{**_tuples({**unbounded, **fields}), "parts": parts, "mask": mask})


def _part_from_json(fields: Mapping[str, Any]) -> ObservationPart:
    return ObservationPart(fields["path"], _observation_from_json(fields["spec"]), fields["offset"])


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec's fields with tuples for lists, and numbers for bounds in text."""
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    for name in ("low", "high"):
        bounds = values[name]
        values[name] = bounds and tuple(float(x) if isinstance(x, str) else x for x in bounds)
    return values
