"""Encoders: networks from observations to feature vectors, by name or custom."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from penstock.nn.layers import HIDDEN_GAIN, SpectralConv2d, orthogonal
from penstock.nn.mlp import MLP
from penstock.nn.observations import Seen, encoder_input_shape, unmasked

if TYPE_CHECKING:
    from penstock.envs.spaces import ObservationSpec

EncoderBuilder = Callable[["ObservationSpec"], nn.Module]
"""Custom encoder: a ``nn.Module`` class or a callable that takes the observation spec."""

NATURE_CNN_MINIMUM = 36
"""Smallest height and width for the three convolutions of :class:`NatureCNN`."""


class EncoderError(ValueError):
    """Object that is not an encoder. Errors within a custom encoder are raised unchanged."""


class NatureCNN(nn.Sequential):
    """Three convolutions and 512 units, after Mnih et al. 2015 (doi:10.1038/nature14236)."""

    def __init__(self, observation: ObservationSpec) -> None:
        layout = ImageLayout(observation)
        if min(layout.height, layout.width) < NATURE_CNN_MINIMUM:
            raise ValueError(
                f"encoder='nature_cnn' needs images of at least {NATURE_CNN_MINIMUM}x{NATURE_CNN_MINIMUM}, found "
                f"{layout.height}x{layout.width} (observation shape {observation.shape}): "
                "use encoder='impala_resnet', encoder='mlp' or your own"
            )
        height, width = (((n - 8) // 4 - 3) // 2 - 1 for n in (layout.height, layout.width))
        super().__init__(
            layout, orthogonal(layout.convolution(32, 8, stride=4)), nn.ReLU(inplace=True),
            orthogonal(nn.Conv2d(32, 64, 4, stride=2)), nn.ReLU(inplace=True), orthogonal(nn.Conv2d(64, 64, 3)),
            nn.ReLU(inplace=True), nn.Flatten(), orthogonal(nn.Linear(64 * height * width, 512)),
            nn.ReLU(inplace=True),
        )  # fmt: skip
        self.output_size: int = 512


class NatureCNNAndMLP(nn.Sequential):
    """A :class:`NatureCNN`, then fully connected layers."""

    def __init__(self, observation: ObservationSpec, hidden_sizes: tuple[int, ...], activation: str) -> None:
        convolutions = NatureCNN(observation)
        features = replace(observation, shape=(convolutions.output_size,), dtype="float32")
        layers = MLP(features, hidden_sizes, activation)
        super().__init__(convolutions, layers)
        self.output_size: int = layers.output_size


@dataclass(frozen=True)
class ResNetShape:
    """Deviations of an :class:`ImpalaResNet` from the published network, as in BTR (arXiv:2411.03820).

    Attributes
    ----------
    width
        Multiple of the published channels and units.
    pool
        Height and width to which the last maps are reduced, by adaptive max pooling; ``None``: no pooling.
    spectral_norm
        Whether the residual convolutions are :class:`SpectralConv2d`.
    """

    width: int = 1
    pool: int | None = None
    spectral_norm: bool = False


PUBLISHED_RESNET = ResNetShape()


class ImpalaResNet(nn.Sequential):
    """Deep network of IMPALA: 15 convolutions in three sections and 256 units (arXiv:1802.01561, figure 3).

    Parameters
    ----------
    observation : ObservationSpec
        Spec of the images.
    shape : ResNetShape
        Deviations from the published network.
    """

    def __init__(self, observation: ObservationSpec, shape: ResNetShape = PUBLISHED_RESNET) -> None:
        layout = ImageLayout(observation)
        layers: list[nn.Module] = [layout]
        channels, height, width = 0, layout.height, layout.width
        for depth in (16 * shape.width, 32 * shape.width, 32 * shape.width):
            convolve = nn.Conv2d(channels, depth, 3, padding=1) if channels else layout.convolution(depth, 3, padding=1)
            residuals = [_Residual(depth, shape.spectral_norm) for _ in range(2)]
            layers += [orthogonal(convolve), nn.MaxPool2d(3, stride=2, padding=1), *residuals]
            channels, height, width = depth, (height + 1) // 2, (width + 1) // 2
        layers.append(nn.ReLU())
        if shape.pool is not None:
            height = width = shape.pool
            layers.append(MaxPoolTo(shape.pool))
        size = 256 * shape.width
        layers += [nn.Flatten(), orthogonal(nn.Linear(channels * height * width, size)), nn.ReLU()]
        super().__init__(*layers)
        self.output_size: int = size


class MaxPoolTo(nn.AdaptiveMaxPool2d):
    """Adaptive max pooling to a square; in an export, of slices, because ONNX has no adaptive max pooling."""

    def __init__(self, side: int) -> None:
        super().__init__(side)
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_exporting():
            return super().forward(x)
        for dim in (-2, -1):
            size, side = x.shape[dim], self.side
            windows = [(i * size // side, -(-(i + 1) * size // side)) for i in range(side)]
            x = torch.stack([x.narrow(dim, begin, end - begin).amax(dim) for begin, end in windows], dim)
        return x


class _Residual(nn.Module):
    def __init__(self, channels: int, spectral_norm: bool) -> None:
        super().__init__()
        convolution = SpectralConv2d if spectral_norm else nn.Conv2d
        self.branch = nn.Sequential(
            nn.ReLU(),
            orthogonal(convolution(channels, channels, 3, padding=1)),
            nn.ReLU(),
            # Six branches are added in sequence: the smaller gain keeps the sum at the input's scale.
            orthogonal(convolution(channels, channels, 3, padding=1), gain=HIDDEN_GAIN / math.sqrt(6)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


class ImageLayout(nn.Module):
    """Conversion of any image to floating point ``[N, C, H, W]``, by its channel axis.

    Channels are the first or the last of three axes, whichever is smaller: ``(4, 84, 84)`` has them first,
    ``(210, 160, 3)`` last. The result is channels-last in memory, the fastest layout for convolutions on CPUs. Bytes
    are reordered, then converted to autocast's floating-point type without scaling: passes over pixels are expensive,
    and the first convolution (see :meth:`convolution`) includes the scale.

    Raises
    ------
    ValueError
        The observation does not have three axes, or its first and last axes have equal lengths.
    """

    def __init__(self, observation: ObservationSpec) -> None:
        super().__init__()
        shape = observation.shape
        if len(shape) != 3 or shape[0] == shape[-1]:
            problem = "three axes are needed" if len(shape) != 3 else "its first and last axes are equally long"
            raise ValueError(
                f"cannot tell which axis of observation shape {shape} holds the channels: {problem}; legal are "
                "(channels, height, width) and (height, width, channels) with fewer channels than pixels along a "
                "side; use encoder='mlp' or your own"
            )
        self.channels_last = shape[-1] < shape[0]
        self.channels, self.height, self.width = (shape[2], *shape[:2]) if self.channels_last else shape
        self.brightest = observation.brightest

    def convolution(self, out_channels: int, kernel_size: int, stride: int = 1, padding: int = 0) -> nn.Conv2d:
        """Return the first convolution for such images."""
        if self.brightest is None:
            return nn.Conv2d(self.channels, out_channels, kernel_size, stride, padding)
        return ConvolutionOfBytes(self.channels, out_channels, kernel_size, stride, padding, brightest=self.brightest)

    def forward(self, x: Tensor) -> Tensor:
        if self.channels_last:
            x = x.permute(0, 3, 1, 2)
        x = x.contiguous(memory_format=torch.channels_last)
        device = x.device.type
        return x.to(torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32)


class ConvolutionOfBytes(nn.Conv2d):
    """Convolution of bytes in [0, brightest] as if in [0, 1]; the weights are scaled instead of the bytes."""

    def __init__(self, *sizes: Any, brightest: float) -> None:
        super().__init__(*sizes)
        self.brightest = brightest

    def forward(self, x: Tensor) -> Tensor:
        return self._conv_forward(x, self.weight / self.brightest, self.bias)


IMAGE_ENCODERS = ("nature_cnn", "impala_resnet")


class ImagesAndMore(nn.Module):
    """One encoder per image, then an mlp over the features and all other parts.

    Features of one part can thus depend on any other part. An image that is the only part has an encoder and no mlp.

    Parameters
    ----------
    observation : ObservationSpec
        Composite observation with an image among its parts.
    encoder : str
        Encoder of each image: a name of ``IMAGE_ENCODERS``, or "auto".
    hidden_sizes, activation
        Widths and activation of the mlp.
    resnet : ResNetShape
        Shape of each :class:`ImpalaResNet`.
    """

    def __init__(
        self, observation: ObservationSpec, encoder: str, hidden_sizes: tuple[int, ...], activation: str,
        resnet: ResNetShape = PUBLISHED_RESNET,
    ) -> None:  # fmt: skip
        super().__init__()
        images, parts = {}, []
        for part in observation.parts:
            if part.spec.is_image:
                images[part.path], num_features = build_encoder(encoder, part.spec, hidden_sizes, activation, resnet)
                part = replace(part, spec=replace(part.spec, shape=(num_features,), dtype="float32"))
            parts.append(part)
        self.paths = tuple(images)
        self.images = nn.ModuleList(images.values())
        self.mlp = MLP(replace(observation, parts=tuple(parts)), hidden_sizes if len(parts) > 1 else (), activation)
        self.output_size: int = self.mlp.output_size

    def forward(self, x: dict[str, Tensor]) -> Tensor:
        features = {path: encoder(x[path]) for path, encoder in zip(self.paths, self.images, strict=True)}
        encoded: Tensor = self.mlp({**x, **features})
        return encoded


ENCODER_NAMES = ("auto", "mlp", *IMAGE_ENCODERS, "nature_cnn_mlp")


def takes_bytes(encoder: str | EncoderBuilder, observation: ObservationSpec) -> bool:
    """Return whether the encoder from :func:`build_encoder` takes images with one range as bytes."""
    return not callable(encoder) and encoder != "mlp" and observation.is_image


def encodes_images(encoder: str | EncoderBuilder, observation: ObservationSpec) -> bool:
    """Return whether an encoder for such observations, built-in or custom, has images to encode."""
    return encoder != "mlp" and observation.is_image


def build_encoder(
    encoder: str | EncoderBuilder, observation: ObservationSpec, hidden_sizes: tuple[int, ...], activation: str,
    resnet: ResNetShape = PUBLISHED_RESNET,
) -> tuple[nn.Module, int]:  # fmt: skip
    """Build an encoder from the first stage's output to features ``[N, F]``.

    Its input is float32 ``[N, *encoder_input_shape(observation)]``, with images unconverted if `takes_bytes`; for a
    composite observation (other than a plain one with a mask) a dict with such a tensor per path.

    Parameters
    ----------
    encoder : str or callable
        One of ``ENCODER_NAMES``; ``"auto"`` is ``nature_cnn`` for images, ``impala_resnet`` for smaller images, and
        ``mlp`` for all others; ``"nature_cnn_mlp"`` is ``nature_cnn``, then an ``mlp`` over its features. In a
        composite observation each image has its own encoder, followed by an ``mlp`` over the features and all other
        parts; with ``"mlp"`` images are treated as numbers. Or custom: a ``nn.Module`` class or a callable that takes
        the observation spec. A dry run finds its ``F``; an ``output_size``, if it has one, must be equal.
    observation : ObservationSpec
        Spec of the observations.
    hidden_sizes, activation
        Widths and activation of an ``mlp``; those of other layers are fixed.
    resnet : ResNetShape
        Shape of ``impala_resnet``.

    Returns
    -------
    encoder : nn.Module
        The network.
    output_size : int
        ``F``.

    Raises
    ------
    ValueError
        The encoder cannot take such observations.
    EncoderError
        The custom object is not an encoder.
    """
    observation = unmasked(observation)
    if callable(encoder):
        return _build_own(encoder, observation)
    network: MLP | ImagesAndMore | NatureCNN | NatureCNNAndMLP | ImpalaResNet
    if encoder == "mlp" or (encoder == "auto" and not observation.is_image):
        network = MLP(observation, hidden_sizes, activation)
    elif not observation.parts and encoder == "nature_cnn_mlp":
        network = NatureCNNAndMLP(observation, hidden_sizes, activation)
    elif not observation.parts:
        name = _fitting_encoder(observation) if encoder == "auto" else encoder
        network = NatureCNN(observation) if name == "nature_cnn" else ImpalaResNet(observation, resnet)
    elif observation.is_image:
        network = ImagesAndMore(observation, encoder, hidden_sizes, activation, resnet)
    else:
        paths = ", ".join(f"{part.path!r} ({part.spec.dtype} {part.spec.shape})" for part in observation.parts)
        raise ValueError(
            f"encoder={encoder!r} needs an image, uint8 of three axes; found {paths}: use encoder='mlp' or your own"
        )
    return network, network.output_size


def _fitting_encoder(observation: ObservationSpec) -> str:
    layout = ImageLayout(observation)
    return "nature_cnn" if min(layout.height, layout.width) >= NATURE_CNN_MINIMUM else "impala_resnet"


def _build_own(builder: EncoderBuilder, observation: ObservationSpec) -> tuple[nn.Module, int]:
    if isinstance(builder, nn.Module):
        raise EncoderError(
            f"encoder is an instance of {type(builder).__name__}: give the class, or a function of the observation "
            "spec that builds it, because every process builds its own networks"
        )
    name = getattr(builder, "__qualname__", repr(builder))
    if isinstance(builder, type) and not issubclass(builder, nn.Module):
        raise EncoderError(f"encoder {name} is not a network class: it must derive from torch.nn.Module")
    try:
        inspect.signature(builder).bind(observation)
    except TypeError:
        own = f"{name}.__init__" if isinstance(builder, type) else name
        raise EncoderError(f"encoder: {own} must accept one argument, the observation spec") from None
    except ValueError:  # written in C, without a signature
        pass
    module = builder(observation)
    if not isinstance(module, nn.Module):
        raise EncoderError(f"encoder {name} returned {type(module).__name__}; it must return a torch.nn.Module")
    rows: Seen
    if observation.parts:
        rows = {part.path: torch.zeros(2, *encoder_input_shape(part.spec)) for part in observation.parts}
        shapes = "{" + ", ".join(f"{path!r}: {tuple(x.shape)}" for path, x in rows.items()) + "}"
    else:
        rows = torch.zeros(2, *encoder_input_shape(observation))
        shapes = str(tuple(rows.shape))
    was_training = module.training
    with torch.no_grad():
        features = module.eval()(rows)
    module.train(was_training)
    if not isinstance(features, Tensor) or features.ndim != 2 or features.shape[0] != 2:
        found = f"shape {tuple(features.shape)}" if isinstance(features, Tensor) else type(features).__name__
        raise EncoderError(
            f"encoder {name} turned a batch of shape {shapes} into {found}; it must return one feature "
            "vector for each row, a tensor of shape (2, F)"
        )
    if (said := getattr(module, "output_size", None)) not in (None, size := features.shape[1]):
        raise EncoderError(f"encoder {name} has output_size={said}, but returned {size} features: make them equal")
    return module, size
