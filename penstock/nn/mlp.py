"""Fully connected networks, whose layers on a CPU are one call of the native core, forward and backward.

Torch makes some ten calls per layer, and reads and writes the results in between. Matrix products use the library that
comes with torch, also in bfloat16, with float32 sums. Without gradient, a `Chain` is one call from observations to the
outputs of a head.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from penstock._native import Chain as NativeChain
from penstock._native import Layers, use_products
from penstock.nn.layers import ACTIVATIONS, orthogonal, require_memory_of_layers
from penstock.nn.memory import MemoryCore
from penstock.nn.observations import CompositeInput, ObservationInput, Seen, encoder_input_shape, encoder_input_size

if TYPE_CHECKING:
    from penstock.envs.spaces import ObservationSpec

FUSED_ACTIVATIONS = ("relu", "tanh")
"""Activations of the native core."""

Mode = Callable[[np.ndarray], np.ndarray]
EMPTY = torch.empty(0)
GATES = {nn.GRUCell: 3, nn.LSTMCell: 4}


class Watcher(Protocol):
    """Dispatch mode that is notified after each call of the native core, with the call's tensors."""

    def layers_forward(
        self, layers: Layers, x: Tensor, parameters: Sequence[Tensor], kept: Tensor, out: Tensor, *, count: int,
        in_bf16: bool,
    ) -> None:  # fmt: skip
        """Layers ran forward."""

    def layers_backward(
        self, layers: Layers, x: Tensor, parameters: Sequence[Tensor], kept: Tensor, out: Tensor, gradient: Tensor,
        d_x: Tensor | None, added_to: Sequence[Tensor], *, count: int, in_bf16: bool,
    ) -> None:  # fmt: skip
        """Layers ran backward; gradients of parameters were added to the tensors `added_to`."""

    def squashed_sample(
        self, outputs: Tensor, noise: Tensor, action: Tensor, log_prob: Tensor, *, centre: float, reach: float
    ) -> None:
        """Squashed normal actions were drawn."""

    def squashed_gradient(
        self, outputs: Tensor, noise: Tensor, action: Tensor, d_action: Tensor, d_log_prob: Tensor, d_outputs: Tensor,
        *, centre: float, reach: float,
    ) -> None:  # fmt: skip
        """The gradient of outputs from which squashed normal actions were drawn was computed."""

    def quantile_huber(
        self, quantile: Tensor, fraction: Tensor, target: Tensor, loss: Tensor, slope: Tensor
    ) -> None:
        """Losses of quantiles and their derivatives were computed."""


class _Here(threading.local):
    watcher: Watcher | None = None


_here = _Here()


def watcher() -> Watcher | None:
    """Return the watcher of this thread's calls, if any."""
    return _here.watcher


@contextmanager
def seen_by(watcher: Watcher) -> Iterator[None]:
    """Within the block, notify a watcher of this thread's calls."""
    before, _here.watcher = _here.watcher, watcher
    try:
        yield
    finally:
        _here.watcher = before


def is_native(*tensors: Tensor) -> bool:
    """Return whether the native core takes tensors: float32 on the CPU, not exported, no dispatch mode but a `Watcher`.
    """
    for tensor in tensors:
        if not tensor.is_cpu or tensor.dtype is not torch.float32:
            return False
    is_hidden = not torch._C._len_torch_dispatch_stack() or _here.watcher is not None
    return is_hidden and not torch.compiler.is_exporting()


def computes_natively(values: Tensor, noise: Tensor) -> bool:
    """Return whether actions can be chosen in a call of the native core: on the CPU, without gradient, unwatched."""
    has_gradient = torch.is_grad_enabled() and values.requires_grad
    return not has_gradient and _here.watcher is None and is_native(values, noise)


class SideBySide(nn.Module):
    """Concatenates all numbers of an observation, plain or composite: float32 ``[N, encoder_input_size]``."""

    def forward(self, x: Seen) -> Tensor:
        if isinstance(x, Tensor):
            return x.flatten(1)
        return torch.cat([part.flatten(1) for part in x.values()], 1)


class MLP(nn.Sequential):
    """Fully connected layers, each followed by the activation, over all numbers of an observation."""

    def __init__(self, observation: ObservationSpec, hidden_sizes: tuple[int, ...], activation: str) -> None:
        is_vector = not observation.parts and len(encoder_input_shape(observation)) == 1
        layers: list[nn.Module] = [] if is_vector else [SideBySide()]
        sizes = (encoder_input_size(observation), *hidden_sizes)
        require_memory_of_layers(sizes)
        for input_size, output_size in pairwise(sizes):
            layers += [orthogonal(nn.Linear(input_size, output_size)), ACTIVATIONS[activation]()]
        super().__init__(*layers)
        self.output_size: int = sizes[-1]
        self.sizes = sizes
        self.activation = activation

    @property
    def is_fused(self) -> bool:
        """Whether it consists of layers and activations of the native core, and nothing else."""
        count = len(self) - isinstance(self[0], SideBySide) if len(self) else 0
        return count == 2 * len(self.sizes) - 2 > 0 and self.activation in FUSED_ACTIVATIONS

    def forward(self, x: Seen, head: nn.Linear | None = None) -> Tensor:
        """Convert the first stage's output into features ``[N, F]``, or with `head` into its float32 output."""
        layers = list(self)
        if layers and isinstance(layers[0], SideBySide):
            x = layers.pop(0)(x)
        features = cast("Tensor", x)
        if self.is_fused and fits(features):
            linear, num_outputs = (layers[::2], 0) if head is None else ([*layers[::2], head], head.out_features)
            parameters = [each for layer in linear for each in (layer.weight, layer.bias)]
            found = fused_layers(
                features.reshape(-1, self.sizes[0]), cast("list[Tensor]", parameters), self.sizes,
                num_outputs=num_outputs, is_transposed=True, activation=self.activation,
            )  # fmt: skip
            return found.view(*features.shape[:-1], num_outputs or self.sizes[-1])
        for layer in layers:
            features = layer(features)
        return features if head is None else in_float32(head, features)


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which layers compute in the precision of their inputs."""
    return torch.autocast(device.type, enabled=False) if torch.is_autocast_enabled(device.type) else nullcontext()


def in_bfloat16() -> bool:
    """Return whether ``torch.autocast`` has layers multiply in bfloat16 on the CPU."""
    return torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16


def in_float32(head: nn.Module, features: Tensor) -> Tensor:
    """Return the output of a head, computed in float32 even within ``torch.autocast``."""
    with without_autocast(features.device):
        answer: Tensor = head(features.float())
        return answer


def headed(encoder: nn.Module, x: Any, head: nn.Linear) -> Tensor:
    """Return the float32 output of a head over an encoder, in one call if the encoder is an `MLP`."""
    answer: Tensor = encoder(x, head) if isinstance(encoder, MLP) else in_float32(head, encoder(x))
    return answer


@functools.cache
def is_available() -> bool:
    """Return whether the native core can call torch's library of matrix products."""
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        addresses = [
            ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
            for name in ("sgemm_", "cblas_gemm_bf16bf16f32", "GOMP_parallel")
        ]
    except (OSError, AttributeError):
        return False
    use_products(*addresses)
    x, weight, bias = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, -4.0], [5.0, 6.0]]), torch.tensor([0.5, 0.0])
    found = _forward(Layers(1, [2, 2], 0, False, False), x, [weight, bias], (1, 1, 2), False)[0]
    return found.tolist() == [[[13.5, 8.0]]]


def fits(x: Tensor) -> bool:
    """Return whether the native core can compute layers over this input: float32, on the CPU."""
    return is_native(x) and is_available()


def fused_layers(
    x: Tensor, parameters: Sequence[Tensor], sizes: tuple[int, ...], *, num_networks: int = 1, count: int = 1,
    num_outputs: int = 0, is_transposed: bool = False, activation: str = "relu",
) -> Tensor:  # fmt: skip
    """Run an input that `fits` through the layers of several networks of the same sizes.

    Under ``torch.autocast`` to bfloat16, hidden layers multiply in bfloat16 and sum in float32.

    Parameters
    ----------
    x : Tensor
        Input of each network, float32 ``[N, I]``.
    parameters : sequence of Tensor
        Weight ``[C, inputs, outputs]`` and bias ``[C, outputs]`` of each hidden layer, which the activation follows,
        then of the head, if any, without activation. Each is contiguous; dimensions of size 1 may be inserted.
    sizes : tuple of int
        ``I``, and the widths of the hidden layers.
    num_networks, count : int
        Number ``C`` of networks, and number of networks to run, from the first.
    num_outputs : int
        Width ``M`` of the head; 0: no head.
    is_transposed : bool
        Whether weights are stored as ``[C, outputs, inputs]``.
    activation : str
        One of `FUSED_ACTIVATIONS`.

    Returns
    -------
    Tensor
        float32 ``[count, N, M]``; with a single output ``[count, N]``; without a head the last hidden layer's output.
    """
    shape = (count, len(x)) if num_outputs == 1 else (count, len(x), num_outputs or sizes[-1])
    native, x = _native(num_networks, sizes, num_outputs, is_transposed, activation == "tanh"), x.contiguous()
    in_bf16 = in_bfloat16()
    if torch.is_grad_enabled() and (x.requires_grad or any(each.requires_grad for each in parameters)):
        answer: Tensor = _Pass.apply(native, shape, in_bf16, x, *parameters)
        return answer
    return _forward(native, x, parameters, shape, in_bf16)[0]


@functools.lru_cache(maxsize=256)
def _native(num_networks: int, sizes: tuple[int, ...], outputs: int, is_transposed: bool, is_tangent: bool) -> Layers:
    return Layers(num_networks, list(sizes), outputs, is_transposed, is_tangent)


def _forward(
    native: Layers, x: Tensor, parameters: Sequence[Tensor], shape: tuple[int, ...], in_bf16: bool
) -> tuple[Tensor, Tensor]:
    """Return the output, and the values kept for the backward pass."""
    count, rows = shape[:2]
    kept = torch.empty(native.kept_nbytes(rows, count, in_bf16), dtype=torch.uint8)
    out = torch.empty(shape)
    addresses = [each.data_ptr() for each in parameters]
    threads = torch.get_num_threads()
    native.forward(x.data_ptr(), rows, count, addresses, kept.data_ptr(), out.data_ptr(), in_bf16, threads)
    if (seen := watcher()) is not None:
        seen.layers_forward(native, x, parameters, kept, out, count=count, in_bf16=in_bf16)
    return out, kept


def _is_needed(node: Any) -> tuple[bool, bool]:
    """Return whether this node's gradient is needed, and whether it accumulates into a parameter's ``grad``.

    ``backward(inputs=...)`` needs only some; ``autograd.grad`` returns them as its result.
    """
    try:
        return node is not None and torch._C._will_engine_execute_node(node), True
    except RuntimeError:
        return True, False


def _gradients(parameters: Sequence[Tensor]) -> list[Tensor] | None:
    """Return the parameters' ``grad`` if all have one and each is contiguous; else None."""
    found = [each.grad for each in parameters if each.grad is not None and each.grad.is_contiguous()]
    return found if len(found) == len(parameters) else None


class _Pass(torch.autograd.Function):
    """Differentiable pass. Only needed gradients are computed.

    Those of parameters are added to their ``grad`` directly if all have one, as in a learner.
    """

    @staticmethod
    def forward(
        ctx: Any, native: Layers, shape: tuple[int, ...], in_bf16: bool, x: Tensor, *parameters: Tensor
    ) -> Tensor:
        out, kept = _forward(native, x, parameters, shape, in_bf16)
        ctx.save_for_backward(x, kept, out, *parameters)
        ctx.of = native, shape[0], in_bf16
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, kept, out, *parameters = ctx.saved_tensors
        native, count, in_bf16 = ctx.of
        (needs_x, _), *rest = (_is_needed(node) for node, _ in ctx.next_functions)
        gradient, d_x = gradient.contiguous(), torch.empty_like(x) if needs_x else None
        into: list[Tensor] | None = None
        gradients: Sequence[Tensor | None] = [None] * len(parameters)
        if any(is_needed for is_needed, _ in rest):
            into = _gradients(parameters) if all(is_kept for _, is_kept in rest) else None
            if into is None:
                into = [torch.zeros_like(each) for each in parameters]
                gradients = into
        native.backward(
            x.data_ptr(), len(x), count, [each.data_ptr() for each in parameters], kept.data_ptr(), out.data_ptr(),
            gradient.data_ptr(), 0 if d_x is None else d_x.data_ptr(), [each.data_ptr() for each in into or ()],
            in_bf16, torch.get_num_threads(),
        )  # fmt: skip
        if (seen := watcher()) is not None:
            seen.layers_backward(
                native, x, parameters, kept, out, gradient, d_x, into or (), count=count, in_bf16=in_bf16
            )
        return None, None, None, d_x, *gradients


class Chain:
    """First stage, mlp encoder, memory core and linear head of a network, in one call if it `fits`.

    Parameters
    ----------
    stage, encoder, memory, head
        Modules of a network. Their parameters are read at every call.
    mode
        Function from the outputs of the head, float32 ``[N, M]``, to the actions without exploration; None: `act` never
        applies.
    """

    def __init__(
        self, stage: ObservationInput | CompositeInput, encoder: nn.Module, memory: MemoryCore | None, head: nn.Module,
        mode: Mode | None = None,
    ) -> None:  # fmt: skip
        self._stage = stage
        self._mode = mode
        self._is_native = isinstance(encoder, MLP) and encoder.is_fused and type(head) is nn.Linear
        if not self._is_native:
            return
        assert isinstance(encoder, MLP)
        assert isinstance(head, nn.Linear)
        # The native core runs the first stage on floats, which it at most normalises; on others, the module runs.
        self._takes_floats = isinstance(stage, ObservationInput) and stage.takes_floats
        self._joins = encoder[0] if isinstance(encoder[0], SideBySide) else None
        moments = stage.moments if self._takes_floats and isinstance(stage, ObservationInput) else None
        places: list[tuple[Mapping[str, Tensor | None], str]] = []
        if moments is not None:
            places += [(moments._buffers, name) for name in ("mean", "std")]
        layers = [layer for layer in encoder if isinstance(layer, nn.Linear)]
        places += [(layer._parameters, name) for layer in layers for name in ("weight", "bias")]
        gates, self._state_size, size = 0, 0, 0
        if memory is not None:
            gates, self._state_size, size = GATES[type(memory.cell)], memory.state_size, memory.size
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            places += [(memory.cell._parameters, name) for name in names]
        self._places = [*places, *((head._parameters, name) for name in ("weight", "bias"))]
        self._num_inputs, self._num_outputs = encoder.sizes[0], head.out_features
        self._shape = (
            encoder.sizes, head.out_features, encoder.activation == "tanh", moments is not None, gates, size,
        )  # fmt: skip

    def fits(self, observation: Tensor | Mapping[str, Tensor]) -> bool:
        """Return whether one call can compute the outputs for these observations: on the CPU, without gradient."""
        if torch.is_grad_enabled() or not isinstance(observation, Tensor) or torch.compiler.is_exporting():
            return False
        if watcher() is not None:  # it knows layers, not chains
            return False
        return observation.is_cpu and self._can_run()

    def __call__(self, observation: Tensor, first: Tensor = EMPTY, state: Tensor = EMPTY) -> tuple[Tensor, Tensor]:
        """Return the outputs of the head for observations that `fits` accepts, and the memory after them.

        Under ``torch.autocast`` to bfloat16, hidden layers multiply in bfloat16 and sum in float32.

        Parameters
        ----------
        observation, first, state
            As for :meth:`PolicyNetwork.act`.

        Returns
        -------
        outputs : Tensor
            float32 ``[B, M]``.
        state : Tensor
            float32 ``[B, S]``; unchanged without memory.
        """
        x = observation
        if not self._takes_floats:
            x = self._stage(observation)
            x = x if self._joins is None else self._joins(x)
        rows = x.shape[0]
        x = x.reshape(rows, self._num_inputs).contiguous()
        outputs = torch.empty(rows, self._num_outputs, dtype=torch.float32, device="cpu")
        after, addresses = state, (0, 0, 0)
        if self._state_size:
            first, state = first.contiguous(), state.contiguous()
            after = torch.empty(rows, self._state_size, dtype=torch.float32, device="cpu")
            addresses = first.data_ptr(), state.data_ptr(), after.data_ptr()
        _native_chain(*self._shape).run(
            x.data_ptr(), rows, self._addresses(), addresses[0], addresses[1], outputs.data_ptr(), addresses[2],
            in_bfloat16(), torch.get_num_threads(),
        )  # fmt: skip
        return outputs, after

    def act(self, observation: np.ndarray, first: np.ndarray, state: Tensor | None) -> tuple[np.ndarray, Tensor] | None:
        """Return actions without exploration, in the layout of their column; None if this network cannot.

        The result does not depend on torch's defaults or modes.

        Parameters
        ----------
        observation : ndarray
            Contiguous, in the layout of its column, ``[N, *shape]``.
        first : ndarray
            bool ``[N]``.
        state : Tensor, optional
            Memory before, float32 ``[N, S]``; None: zeros.

        Returns
        -------
        action : ndarray
            ``[N, *column_shape]``.
        state : Tensor
            Memory after, float32 ``[N, S]``.
        """
        if self._mode is None or not self._can_run() or not self._takes_floats:
            return None
        rows = len(observation)
        outputs = np.empty((rows, self._num_outputs), np.float32)
        before = after = np.empty((rows, 0), np.float32)
        if self._state_size:
            before = np.zeros((rows, self._state_size), np.float32) if state is None else _contiguous(state)
            after = np.empty((rows, self._state_size), np.float32)
        _native_chain(*self._shape).run_arrays(
            observation, self._addresses(), first, before, outputs, after, torch.get_num_threads()
        )
        return self._mode(outputs), torch.from_numpy(after)

    def _can_run(self) -> bool:
        """Return whether the native core has this kind of network, with float32 weights on the CPU."""
        if not self._is_native:
            return False
        tensors, name = self._places[-1]
        tensor = tensors[name]
        assert tensor is not None
        return tensor.is_cpu and tensor.dtype is torch.float32 and is_available()

    def _addresses(self) -> list[int]:
        return [tensors[name].data_ptr() for tensors, name in self._places]  # type: ignore[union-attr]


def largest(outputs: np.ndarray) -> np.ndarray:
    """Return the index of the largest output (the first of several), int64 ``[N]``."""
    return outputs.argmax(-1)


def _contiguous(state: Tensor) -> np.ndarray:
    return np.ascontiguousarray(state.detach().numpy(), np.float32)


@functools.lru_cache(maxsize=256)
def _native_chain(
    sizes: tuple[int, ...], num_outputs: int, is_tangent: bool, is_normalized: bool, gates: int, memory_size: int
) -> NativeChain:
    return NativeChain([*sizes], num_outputs, is_tangent, is_normalized, gates, memory_size)
