"""Models of Stable-Baselines3 as runs: their networks in Penstock's layout, with the same actions.

======================================  ============================================================================
Stable-Baselines3                       here
======================================  ============================================================================
images divided by 255, other integers   scaled by their bounds: the first layer's weights compensate
as they are
means of PPO and A2C in the action's    means in [-1, 1]: the last layer's weights and the standard deviation
own units                               compensate
a MultiBinary action's logits           two logits for each value, the first of them 0
SAC's clipped log standard deviation    ``log_std="clipped"``
statistics of a VecNormalize            moments in the weights; a fixed ``reward_scale``
======================================  ============================================================================
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from penstock.algorithms import load_algorithm
from penstock.config import make_config, whole_arguments
from penstock.envs.making import probe
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.envs.spec import NO_ENV, EnvSpec
from penstock.envs.translation import environment_specs
from penstock.exchange import ExchangeError
from penstock.exchange.sb3_files import Normalization, SavedModel, read_model, read_normalization
from penstock.exchange.sb3_weights import CLIP, Inputs, Layer, Network, fill, normalize
from penstock.nn.observations import unmasked
from penstock.play.policy import specs_to_json
from penstock.process_state import ProcessState, plain_torch
from penstock.runs.run_directory import RunDirectory
from penstock.trust import SEALS, seals_of

_FAMILIES = {"common": "actor-critic", "dqn": "dqn", "sac": "sac", "td3": "td3"}
_ACTIVATIONS = {"Tanh": "tanh", "ReLU": "relu", "ELU": "elu", "SiLU": "silu"}
_EXTRACTORS = ("FlattenExtractor", "NatureCNN")
_POLICY_KWARGS = frozenset((
    "activation_fn", "features_extractor_class", "features_extractor_kwargs", "log_std_init", "n_critics", "net_arch",
    "normalize_images", "optimizer_class", "optimizer_kwargs", "ortho_init", "share_features_extractor", "use_sde",
))  # fmt: skip
_MOST_NUMBERS = 1 << 24  # of an observation
_NUMBER = re.compile(r"[-+]?(?:inf|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)")


@dataclass(frozen=True)
class ImportedModel:
    """Run converted from a model.

    Attributes
    ----------
    path
        The run's directory.
    notes
        Facts for the user: what is not carried over, what further training changes.
    """

    path: Path
    notes: tuple[str, ...]


class _Tensors:
    """Tensors of a saved policy by name, and the names not taken yet."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = {name: tensor.detach().to("cpu", torch.float32) for name, tensor in tensors.items()}
        self._left = set(tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def take(self, name: str) -> Tensor:
        if name not in self:
            raise ExchangeError(f"its policy has no {name!r}: it is not one of Stable-Baselines3's own")
        self._left.discard(name)
        return self._tensors[name]

    def layer(self, name: str) -> Layer:
        return self.take(f"{name}.weight"), self.take(f"{name}.bias")

    def sequence(self, name: str) -> list[Layer]:
        """Take the layers of a sequence, in order."""
        found = (re.fullmatch(rf"{re.escape(name)}\.(\d+)\.weight", key) for key in self._tensors)
        layers = [self.layer(f"{name}.{number}") for number in sorted(int(match[1]) for match in found if match)]
        if any(weight.ndim != 2 for weight, _ in layers):
            raise ExchangeError(f"{name!r} of its policy has layers other than fully connected ones, such as LayerNorm")
        return layers

    def network(self, extractor: str, hidden: str) -> Network:
        """Take a features extractor and the layers after it."""
        names = [f"{extractor}.cnn.{number}" for number in (0, 2, 4)] + [f"{extractor}.linear.0"]
        is_cnn = f"{extractor}.cnn.0.weight" in self
        return Network([self.layer(name) for name in names] if is_cnn else [], self.sequence(hidden))

    def drop(self, *beginnings: str) -> None:
        """Discard the tensors with names that begin with any of these."""
        self._left = {name for name in self._left if not name.startswith(beginnings)}

    def require_empty(self) -> None:
        if self._left:
            unknown = ", ".join(map(repr, sorted(self._left)[:4]))
            raise ExchangeError(f"its policy has {unknown}, which Stable-Baselines3's own policies do not have")


def import_sb3(
    path: str | os.PathLike[str], *, vec_normalize: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] = "auto", env: str | None = None, env_kwargs: Mapping[str, Any] | None = None,
) -> ImportedModel:  # fmt: skip
    """Convert a Stable-Baselines3 model to a run: PPO, A2C, DQN, SAC or TD3, with an MLP or the Nature CNN.

    Modes, distributions and values of the run's policy equal those of the model up to rounding. No code of the files is
    run. Optimisers, replay buffers, and settings of the training except ``gamma`` and ``seed`` are not carried over.

    Parameters
    ----------
    path
        The zip written by ``model.save``.
    vec_normalize
        The file written by ``VecNormalize.save``, if the model was trained with one.
    out
        Directory of the run, absent or empty; "auto": ``runs/<env>-<algorithm>-<time>``.
    env
        Environment of the run, as for a training. Its spaces must be those of the model. None: spaces are read from the
        model, and evaluating the run or training it further needs an environment.
    env_kwargs
        Arguments of the environment.

    Raises
    ------
    ExchangeError
        A file is refused, or the model cannot be represented here; the message gives the reason.
    RunDirectoryError
        `out` exists and is not empty.
    """
    try:
        return _imported(path, read_model(path), vec_normalize, out, env, dict(env_kwargs or {}))
    except ExchangeError as error:
        name = os.fspath(path)
        raise ExchangeError(str(error) if name in str(error) else f"{name} cannot be imported: {error}") from None


@plain_torch()
def _imported(
    path: str | os.PathLike[str], saved: SavedModel, vec_normalize: str | os.PathLike[str] | None,
    out: str | os.PathLike[str], env: str | None, env_kwargs: dict[str, Any],
) -> ImportedModel:  # fmt: skip
    name = _algorithm_of(saved)
    moments = None if vec_normalize is None else read_normalization(vec_normalize)
    observed, acted = (_space(saved.data, key, env is not None) for key in ("observation_space", "action_space"))
    env_name, specs = Path(path).stem, environment_specs(observed, acted)
    if env is not None:
        spec = EnvSpec.resolve(env, whole_arguments(env_kwargs))
        with ProcessState().inside():
            found = probe(spec)
        env_name = spec.name
        _require_same(specs, (found.observation, found.action), env_name)
        specs = found.observation, found.action
    tensors = _Tensors(saved.tensors)
    networks = _NETWORKS[name](tensors)
    tensors.require_empty()
    settings = _settings(name, saved, networks, moments)
    algorithm_class = load_algorithm(name)
    config = make_config(algorithm_class.Config, {"env": env or NO_ENV, "env_kwargs": env_kwargs, **settings})
    algorithm = algorithm_class(config, *specs)
    model = algorithm.make_model()
    divides_images = bool(_policy_kwargs(saved.data).get("normalize_images", True))
    fill(model, algorithm, networks, Inputs(observed, specs[0], divides_images), saved.variables)
    if settings["normalize_observations"]:
        assert moments is not None
        normalize(model.input, moments)
    run = RunDirectory.create(out, env_name=env_name, algorithm=name, config=config.to_json())
    try:
        steps = saved.data.get("num_timesteps")
        meta: dict[str, Any] = {
            "algorithm": name, "env": env_name, "seconds": 0.0, "version": 0, "updates": 0, "mean_return": None,
            "run": run.info["id"], "config": config.to_json(), "specs": specs_to_json(*specs),
        }  # fmt: skip
        meta |= {SEALS: seals} if (seals := seals_of(name, meta["config"])) else {}
        run.checkpoints.save(steps if type(steps) is int and steps >= 0 else 0, meta=meta, weights=model.state_dict())
        run.record_parent(0, Path(path), {"steps": steps})
        run.log(f"imported from {os.fspath(path)}, a model of Stable-Baselines3")
    finally:
        run.release()
    return ImportedModel(run.path, tuple(_notes(name, env, moments)))


def _algorithm_of(saved: SavedModel) -> str:
    """Return the name of the model's algorithm here."""
    data = saved.data
    policy, kwargs = data.get("policy_class"), _policy_kwargs(data)
    module = str(policy.get("__module__")) if isinstance(policy, dict) else "?"
    match = re.fullmatch(r"stable_baselines3\.(\w+)\.policies", module)
    family = _FAMILIES.get(match[1]) if match else None
    if family is None:
        raise ExchangeError(f"its policy is a class of {module}, but only Stable-Baselines3's own can be read")
    if data.get("use_sde") or kwargs.get("use_sde"):
        raise ExchangeError("use_sde=True: state-dependent exploration has no counterpart here")
    if unknown := kwargs.keys() - _POLICY_KWARGS:
        raise ExchangeError(f"policy_kwargs has {', '.join(sorted(unknown))}, which has no counterpart here")
    extractor = kwargs.get("features_extractor_class")
    if extractor is not None and not re.fullmatch(rf"<class '[\w.]+\.({'|'.join(_EXTRACTORS)})'>", str(extractor)):
        raise ExchangeError(f"features_extractor_class is {extractor}; legal are {' and '.join(_EXTRACTORS)}")
    if family == "actor-critic":
        is_other = "cg_max_steps" in data or "gae_lambda" not in data
        family = "?" if is_other else "ppo" if "clip_range" in data else "a2c"
    if family not in _NETWORKS:
        raise ExchangeError(f"its algorithm is not one of {', '.join(_NETWORKS)}")
    return family


def _policy_kwargs(data: Mapping[str, Any]) -> dict[str, Any]:
    kwargs = data.get("policy_kwargs")
    return {key: kwargs[key] for key in kwargs if not key.startswith(":")} if isinstance(kwargs, dict) else {}


def _actor_critic(tensors: _Tensors) -> dict[str, Any]:
    """Take the layers of PPO and A2C."""
    tensors.drop("features_extractor.")  # a copy of the policy's; before version 1.8, that of both networks
    has_own = "pi_features_extractor.cnn.0.weight" in tensors
    extractors = ["pi_features_extractor", "vf_features_extractor"] if has_own else ["features_extractor"] * 2
    actor = tensors.network(extractors[0], "mlp_extractor.policy_net")
    critic = tensors.network(extractors[1], "mlp_extractor.value_net")
    if actor.widths != critic.widths:
        raise ExchangeError(
            f"net_arch has {actor.widths} for the policy and {critic.widths} for the value, but here both must be equal"
        )
    head, value = tensors.layer("action_net"), tensors.layer("value_net")
    log_std = tensors.take("log_std") if "log_std" in tensors else None
    return {"actor": actor, "critic": critic, "head": head, "value": value, "log_std": log_std}


def _q(tensors: _Tensors) -> dict[str, Any]:
    """Take the layers of DQN."""
    tensors.drop("q_net_target.")
    return _headed(tensors.network("q_net.features_extractor", "q_net.q_net"))


def _stochastic(tensors: _Tensors) -> dict[str, Any]:
    """Take the layers of SAC."""
    actor = tensors.network("actor.features_extractor", "actor.latent_pi")
    (mean, mean_bias), (log_std, log_std_bias) = tensors.layer("actor.mu"), tensors.layer("actor.log_std")
    head = torch.cat((mean, log_std)), torch.cat((mean_bias, log_std_bias))
    return {"actor": actor, "head": head, **_critics(tensors, actor)}


def _deterministic(tensors: _Tensors) -> dict[str, Any]:
    """Take the layers of TD3."""
    tensors.drop("actor_target.")
    found = _headed(tensors.network("actor.features_extractor", "actor.mu"))
    return {**found, **_critics(tensors, found["actor"])}


def _headed(network: Network) -> dict[str, Any]:
    """Separate the last layer of a network, its head."""
    if not network.hidden:
        raise ExchangeError("its policy has no last layer: it is not one of Stable-Baselines3's own")
    return {"actor": Network(network.convolutions, network.hidden[:-1]), "head": network.hidden[-1]}


def _critics(tensors: _Tensors, actor: Network) -> dict[str, Any]:
    """Take the layers of both critics of SAC or TD3."""
    tensors.drop("critic_target.")
    encoder = tensors.network("critic.features_extractor", "critic.none")
    if actor.convolutions and not encoder.convolutions:
        encoder = Network(actor.convolutions, [])
    critics = [layers for number in range(64) if (layers := tensors.sequence(f"critic.qf{number}"))]
    if len(critics) != 2:
        raise ExchangeError(f"n_critics={len(critics)}, but here it must be 2")
    widths = tuple(len(bias) for _, bias in critics[0][:-1])
    if widths != actor.widths:
        raise ExchangeError(
            f"net_arch has {actor.widths} for the policy and {widths} for the critics, but here both must be equal"
        )
    return {"encoder": encoder, "critics": critics}


_NETWORKS = {"ppo": _actor_critic, "a2c": _actor_critic, "dqn": _q, "sac": _stochastic, "td3": _deterministic}


def _settings(
    name: str, saved: SavedModel, networks: Mapping[str, Any], moments: Normalization | None
) -> dict[str, Any]:
    """Return the settings of the config, except the environment."""
    data, kwargs, actor = saved.data, _policy_kwargs(saved.data), networks["actor"]
    given = kwargs.get("activation_fn")
    kind = str(given).rpartition(".")[2].removesuffix("'>") if given is not None else None
    if kind is not None and kind not in _ACTIVATIONS:
        raise ExchangeError(f"activation_fn is {kind}; legal are {', '.join(_ACTIVATIONS)}")
    usual = "tanh" if name in ("ppo", "a2c") else "relu"
    encoder = ("nature_cnn_mlp" if actor.hidden else "nature_cnn") if actor.convolutions else "mlp"
    settings: dict[str, Any] = {
        "encoder": encoder, "hidden_sizes": actor.widths, "activation": _ACTIVATIONS[kind] if kind else usual,
        "normalize_observations": moments is not None and moments.mean is not None,
        "gamma": data.get("gamma"), "seed": data.get("seed") or 0,
    }  # fmt: skip
    if name in ("ppo", "a2c"):
        is_same = all(
            torch.equal(mine, its)
            for ours, theirs in zip(actor.layers, networks["critic"].layers, strict=True)
            for mine, its in zip(ours, theirs, strict=True)
        )
        settings["shared_encoder"] = encoder == "nature_cnn" and is_same
    if name == "sac":
        settings["log_std"] = "clipped"
        if "ent_coef_tensor" in saved.variables:
            settings["alpha"] = float(saved.variables["ent_coef_tensor"])
    if moments is not None and moments.mean is not None and moments.clip != CLIP:
        raise ExchangeError(f"clip_obs={moments.clip:g} of the VecNormalize, but here observations are clipped to 10")
    if moments is not None and moments.reward_scale is not None:
        settings |= {"reward_scale": moments.reward_scale, "reward_clip": moments.reward_clip}
    return settings


def _space(data: Mapping[str, Any], key: str, may_be_partial: bool) -> spaces.Space:
    """Return a space from the readable fields of its record; its pickle is not decoded.

    Parameters
    ----------
    data
        Attributes of the model.
    key
        Name of the space.
    may_be_partial
        Whether bounds that were abbreviated in the record may be left out.
    """
    fields = data.get(key)
    kind = re.fullmatch(r"<class '[\w.]+\.(\w+)'>", str(fields.get(":type:"))) if isinstance(fields, dict) else None
    name = kind[1] if kind else "?"
    try:
        assert isinstance(fields, dict)
        if name == "Box":
            shape = tuple(map(int, fields["_shape"]))
            if math.prod(shape) > _MOST_NUMBERS:
                raise ExchangeError(f"its {key} has the shape {shape}, of more than {_MOST_NUMBERS:,} numbers")
            low, high = (_bounds(fields, side, shape, may_be_partial) for side in ("low", "high"))
            return spaces.Box(low, high, shape, np.dtype(str(fields["dtype"])).type)
        if name == "MultiBinary":
            return spaces.MultiBinary(_integers(fields["n"]) if isinstance(fields["n"], str) else fields["n"])
        if name in ("Discrete", "MultiDiscrete"):
            start = _integers(fields.get("start", 0))
            if any(start):
                raise ExchangeError(f"its {key} does not start at 0, which Stable-Baselines3 does not support")
            counts = _integers(fields["n" if name == "Discrete" else "nvec"])
            return spaces.Discrete(counts[0]) if name == "Discrete" else spaces.MultiDiscrete(counts)
    except (AssertionError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise ExchangeError(f"its {key} cannot be read ({type(error).__name__}: {error})") from None
    raise ExchangeError(f"its {key} is a {name}; legal are Box, Discrete, MultiDiscrete and MultiBinary")


def _bounds(fields: Mapping[str, Any], side: str, shape: tuple[int, ...], may_be_partial: bool) -> np.ndarray:
    text, dtype = str(fields[side]), np.dtype(str(fields["dtype"]))
    numbers = [float(number) for number in _NUMBER.findall(text)]
    if "..." in text and len(set(numbers)) == 1:  # NumPy's abbreviation of many equal numbers, such as an image's
        numbers = numbers[:1]
    elif "..." in text:
        if not may_be_partial:
            raise ExchangeError(
                "the file abbreviates the bounds of its spaces: name the environment with --env (in Python, env=)"
            )
        limits = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
        return np.full(shape, limits.min if side == "low" else limits.max, dtype)
    return np.broadcast_to(np.array(numbers, dtype).reshape(shape if len(numbers) > 1 else ()), shape)


def _integers(value: Any) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(value))]


def _require_same(own: tuple[ObservationSpec, ActionSpec], found: tuple[ObservationSpec, ActionSpec], env: str) -> None:
    """Raise `ExchangeError` unless the environment's observations and actions are the model's."""
    (seen, act), (env_seen, env_act) = own, found
    env_seen = unmasked(env_seen)
    shapes = [env_seen.shape] + ([(env_seen.shape[2], *env_seen.shape[:2])] if env_seen.is_image else [])
    is_seen = not env_seen.parts and seen.num_values == env_seen.num_values and seen.nvec == env_seen.nvec
    if not is_seen or seen.shape not in shapes:
        raise ExchangeError(
            f"the model sees {seen.dtype} {seen.shape}, but {env} shows {env_seen.dtype} {env_seen.shape}: "
            "wrap the environment as it was in training"
        )
    is_same = act.choices == env_act.choices and act.shape == env_act.shape
    for mine, its in zip((act.low or (), act.high or ()), (env_act.low or (), env_act.high or ()), strict=True):
        is_same = is_same and len(mine) == len(its) and np.allclose(mine, its, rtol=1e-5, atol=1e-6)
    if not is_same:
        raise ExchangeError(f"the model chooses {_acts(act)}, but {env} takes {_acts(env_act)}")


def _acts(spec: ActionSpec) -> str:
    if spec.choices:
        return f"choices among {', '.join(map(str, spec.choices))}"
    return f"{spec.num_numbers} numbers from {spec.low} to {spec.high}"


def _notes(name: str, env: str | None, moments: Normalization | None) -> Iterable[str]:
    yield (
        "not carried over: the optimiser's state, the replay buffer, and settings of the training other than gamma and "
        f"seed; resuming starts with fresh ones, and with Penstock's defaults for {name}"
    )
    if moments is not None and moments.reward_scale is not None:
        yield (
            f"further training multiplies rewards by {moments.reward_scale:.6g} and clips them to "
            f"{moments.reward_clip:g}, the VecNormalize's last values, which no longer follow the returns"
        )
    if env is None:
        yield "no environment was named: the policy acts, but evaluating it or training it further needs --env"
