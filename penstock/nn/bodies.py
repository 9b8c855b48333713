"""Hidden layers of several networks side by side, made of parts: blocks, normalisation, unit weights.

With them, SAC's network becomes that of XQC (arXiv:2509.25174) or FlashSAC (arXiv:2604.04539).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from penstock.nn.continuous import StackedLinear, StochasticActorCritic
from penstock.nn.layers import ACTIVATIONS, require_memory_of_layers
from penstock.nn.mlp import MLP, SideBySide, without_autocast
from penstock.nn.model import NetworkConfig
from penstock.nn.norms import NORMS, BatchNorm, RMSNorm
from penstock.nn.observations import encoder_input_size
from penstock.nn.return_distributions import CategoricalReturns

if TYPE_CHECKING:
    from penstock.envs.spaces import ActionSpec, ObservationSpec
    from penstock.nn.encoders import Seen

EXPANSION = 4  # inner width of a residual block, as a multiple of its width


@dataclass(frozen=True)
class BodyConfig:
    """Kind of hidden layers.

    Attributes
    ----------
    network
        "mlp": layers in sequence; "residual": a layer, then blocks that add two layers, the inner one four times as
        wide, to their input, then RMS normalisation.
    normalization
        Normalisation of each layer before its activation: "batch", which also normalises the input, "layer" or "rms";
        None: no normalisation.
    unit_weights
        Whether the weights of each unit are kept at norm 1, without bias, and the scale and shift of each normalisation
        at the norm sqrt(features).
    """

    network: str = "mlp"
    normalization: str | None = None
    unit_weights: bool = False


def to_unit_norm_(weight: Tensor) -> None:
    """Scale a weight to norm 1 over its second axis, in place: over the inputs of each output."""
    weight.div_(torch.linalg.vector_norm(weight, dim=1, keepdim=True).clamp(min=1e-8))


class UnitLinear(StackedLinear):
    """Linear layers whose weights are vectors of norm 1 for each output, in each of several networks.

    The optimiser moves the weights freely; `constrain_` projects them back after each step, so that the step size
    relative to the weights does not change.

    Parameters
    ----------
    num_networks, input_size, output_size
        As for `StackedLinear`.
    has_bias : bool
        Whether there is a bias, which is free.
    """

    def __init__(self, num_networks: int, input_size: int, output_size: int, has_bias: bool = False) -> None:
        super().__init__(num_networks, input_size, output_size)
        self.bias = nn.Parameter(torch.zeros_like(self.bias)) if has_bias else None  # type: ignore[assignment]
        for weight in self.weight.data:
            nn.init.orthogonal_(weight)
        self.constrain_()

    def forward(self, x: Tensor) -> Tensor:
        return torch.bmm(x, self.weight) if self.bias is None else super().forward(x)

    @torch.no_grad()
    def constrain_(self) -> None:
        """Scale the weights of each output to norm 1."""
        to_unit_norm_(self.weight)


class UnitHead(nn.Linear):
    """Linear layer with a free bias, whose weights are a vector of norm 1 for each output. See `UnitLinear`."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        nn.init.orthogonal_(self.weight)
        nn.init.zeros_(self.bias)
        self.constrain_()

    @torch.no_grad()
    def constrain_(self) -> None:
        """Scale the weights of each output to norm 1."""
        to_unit_norm_(self.weight)


class HiddenLayer(nn.Module):
    """Linear layer, normalisation and activation, in each of several networks.

    Parameters
    ----------
    num_networks, input_size, output_size : int
        Numbers ``C`` of networks, ``I`` of inputs and ``O`` of outputs.
    activation : str
        Name of the activation.
    config : BodyConfig
        Kind of layer.
    """

    def __init__(self, num_networks: int, input_size: int, output_size: int, activation: str, config: BodyConfig):
        super().__init__()
        linear = UnitLinear if config.unit_weights else StackedLinear
        self.linear = linear(num_networks, input_size, output_size)
        norm = None if config.normalization is None else NORMS[config.normalization]
        self.norm = nn.Identity() if norm is None else norm((num_networks, 1, output_size), config.unit_weights)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs ``[C, N, O]``, float32, of inputs ``[C, N, I]``."""
        y: Tensor = self.activation(self.norm(self.linear(x).float()))
        return y


class ResidualBlock(nn.Module):
    """Two hidden layers, the inner one four times as wide, whose outputs are added to the inputs.

    Parameters
    ----------
    num_networks, width : int
        Number ``C`` of networks, and width ``F`` of inputs and outputs.
    activation, config
        As for `HiddenLayer`.
    """

    def __init__(self, num_networks: int, width: int, activation: str, config: BodyConfig) -> None:
        super().__init__()
        self.inner = HiddenLayer(num_networks, width, EXPANSION * width, activation, config)
        self.outer = HiddenLayer(num_networks, EXPANSION * width, width, activation, config)

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs ``[C, N, F]`` of inputs ``[C, N, F]``."""
        y: Tensor = x + self.outer(self.inner(x))
        return y


class Body(nn.Sequential):
    """Hidden layers of several networks of the same sizes.

    Linear layers may run under ``torch.autocast``; normalisations and sums compute in float32 regardless.

    Parameters
    ----------
    num_networks, input_size : int
        Numbers ``C`` of networks, and ``I`` of inputs.
    sizes : tuple of int
        Widths of an mlp's layers; or those of residual blocks, all equal.
    activation : str
        Name of the activation.
    config : BodyConfig
        Kind of layers.

    Attributes
    ----------
    output_size : int
        Width ``F`` of the output.

    Raises
    ------
    ValueError
        The widths of residual blocks differ, or there is no block.
    """

    def __init__(
        self, num_networks: int, input_size: int, sizes: tuple[int, ...], activation: str, config: BodyConfig
    ) -> None:
        parts: list[nn.Module] = []
        if config.normalization == "batch":
            parts.append(BatchNorm((num_networks, 1, input_size), config.unit_weights))
        if config.network == "residual":
            width = width_of_blocks(sizes)
            require_memory_of_layers((input_size, width, *[EXPANSION * width, width] * len(sizes)), num_networks)
            embed = UnitLinear if config.unit_weights else StackedLinear
            parts.append(embed(num_networks, input_size, width))
            parts += [ResidualBlock(num_networks, width, activation, config) for _ in sizes]
            parts.append(RMSNorm((num_networks, 1, width), config.unit_weights))
        else:
            require_memory_of_layers((input_size, *sizes), num_networks)
            widths = pairwise((input_size, *sizes))
            parts += [HiddenLayer(num_networks, *layer, activation, config) for layer in widths]
        super().__init__(*parts)
        self.output_size = sizes[-1] if sizes else input_size

    def forward(self, x: Tensor) -> Tensor:
        """Return features ``[C, N, F]``, float32, of inputs ``[C, N, I]``."""
        for part in self:
            x = part(x).float()
        return x


class BodyEncoder(nn.Module):
    """Encoder of vectors with the layers of a `Body` of one network; parameters as there."""

    def __init__(self, input_size: int, sizes: tuple[int, ...], activation: str, config: BodyConfig) -> None:
        super().__init__()
        self.side_by_side = SideBySide()
        self.body = Body(1, input_size, sizes, activation, config)

    def forward(self, x: Seen) -> Tensor:
        """Convert the first stage's output into features ``[N, F]``."""
        features: Tensor = self.body(self.side_by_side(x).unsqueeze(0)).squeeze(0)
        return features


class BodyCritics(nn.Module):
    """Critics with the hidden layers of a `Body`, called like :class:`Critics`.

    Parameters
    ----------
    input_size, hidden_sizes, activation, num_critics, num_quantiles
        As for :class:`Critics`.
    config : BodyConfig
        Kind of hidden layers.
    has_unit_head : bool
        Whether the last layer's weights are unit vectors, too: for logits. Values need other scales.
    """

    def __init__(
        self, input_size: int, hidden_sizes: tuple[int, ...], activation: str, num_critics: int, num_quantiles: int = 1,
        *, config: BodyConfig, has_unit_head: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_critics = num_critics
        self.body = Body(num_critics, input_size, hidden_sizes, activation, config)
        sizes = num_critics, self.body.output_size, num_quantiles
        self.head = UnitLinear(*sizes, has_bias=True) if has_unit_head else StackedLinear(*sizes)

    def forward(self, x: Tensor, rows: slice = slice(None)) -> Tensor:
        """Return values ``[C, N]`` of inputs ``[N, I]``, or of some rows; with several quantiles ``[C, N, M]``."""
        features = self.body(x.expand(self.num_critics, *x.shape))[:, rows]
        with without_autocast(x.device):
            values: Tensor = self.head(features)
        return values.squeeze(-1)

    def first(self, x: Tensor) -> Tensor:
        """Return the first critic's values ``[N]`` of inputs ``[N, I]``; all critics run."""
        first: Tensor = self(x)[0]
        return first


class BodyActorCritic(StochasticActorCritic):
    """SAC's network with the hidden layers of a `Body` in the critics and, for vectors, in the actor.

    Encoders of images and custom encoders stay unchanged; only the critics' layers over their features are replaced.

    Parameters
    ----------
    observation, action, config, num_quantiles, **settings
        As for :class:`StochasticActorCritic`.
    body : BodyConfig
        Kind of hidden layers.
    returns : CategoricalReturns, optional
        Support of the distributions whose logits the critics give; default: values or quantiles.
    """

    def __init__(
        self, observation: ObservationSpec, action: ActionSpec, config: NetworkConfig, *, body: BodyConfig,
        returns: CategoricalReturns | None = None, num_quantiles: int = 1, **settings: Any,
    ) -> None:  # fmt: skip
        has_unit_head = body.unit_weights and returns is not None
        super().__init__(
            observation, action, config, num_quantiles=num_quantiles if returns is None else returns.num_outputs,
            make_critics=partial(BodyCritics, config=body, has_unit_head=has_unit_head), **settings,
        )  # fmt: skip
        self.returns = returns
        if isinstance(self.encoder, MLP):
            self.encoder = BodyEncoder(encoder_input_size(observation), config.hidden_sizes, config.activation, body)
            if body.unit_weights:
                self.actor_head = UnitHead(self.encoder.body.output_size, self.actor_head.out_features)


def width_of_blocks(sizes: tuple[int, ...]) -> int:
    """Return the width of residual blocks.

    Raises
    ------
    ValueError
        The widths differ, or there is no block.
    """
    if len(set(sizes)) != 1:
        raise ValueError(
            f'network="residual" has blocks of one width, but the widths found are {sizes}: give the same width for '
            "every block, such as (128, 128) for two"
        )
    return sizes[0]
