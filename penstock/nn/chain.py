"""Networks from observations to the outputs of a head as one call of the native core, without gradient.

Actions of a few lanes cost calls rather than arithmetic: torch makes some forty for two layers of 64, whose products
take two microseconds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from penstock._native import Chain as NativeChain
from penstock.nn.memory import MemoryCore
from penstock.nn.mlp import MLP, SideBySide, in_bfloat16, is_available
from penstock.nn.observations import CompositeInput, ObservationInput

Mode = Callable[[np.ndarray], np.ndarray]
EMPTY = torch.empty(0)
GATES = {nn.GRUCell: 3, nn.LSTMCell: 4}


class Chain:
    """First stage, mlp encoder, memory core and linear head of a network, in one call wherever it `fits`.

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
        # Floats pass the first stage natively, which at most normalises them; all else passes through its module.
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
        """Return whether outputs of these observations can be computed here: on the CPU, without gradient."""
        if not self._is_native or torch.is_grad_enabled() or not isinstance(observation, Tensor):
            return False
        return observation.is_cpu and self._has_floats() and not torch.compiler.is_exporting() and is_available()

    def __call__(self, observation: Tensor, first: Tensor = EMPTY, state: Tensor = EMPTY) -> tuple[Tensor, Tensor]:
        """Return the outputs of the head for observations that it `fits`, and the memory after them.

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
            float32 ``[B, S]``; without memory as given.
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
        _native(*self._shape).run(
            x.data_ptr(), rows, self._addresses(), addresses[0], addresses[1], outputs.data_ptr(), addresses[2],
            in_bfloat16(), torch.get_num_threads(),
        )  # fmt: skip
        return outputs, after

    def act(self, observation: np.ndarray, first: np.ndarray, state: Tensor | None) -> tuple[np.ndarray, Tensor] | None:
        """Return actions without exploration, in the layout of their column; None where this network has no such way.

        Nothing depends on torch's defaults or modes.

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
        if not (self._is_native and self._takes_floats and self._mode and self._has_floats() and is_available()):
            return None
        rows = len(observation)
        outputs = np.empty((rows, self._num_outputs), np.float32)
        before = after = np.empty((rows, 0), np.float32)
        if self._state_size:
            before = np.zeros((rows, self._state_size), np.float32) if state is None else _contiguous(state)
            after = np.empty((rows, self._state_size), np.float32)
        _native(*self._shape).run_arrays(
            observation, self._addresses(), first, before, outputs, after, torch.get_num_threads()
        )
        return self._mode(outputs), torch.from_numpy(after)

    def _has_floats(self) -> bool:
        tensors, name = self._places[-1]
        tensor = tensors[name]
        assert tensor is not None
        return tensor.is_cpu and tensor.dtype is torch.float32

    def _addresses(self) -> list[int]:
        return [tensors[name].data_ptr() for tensors, name in self._places]  # type: ignore[union-attr]


def largest(outputs: np.ndarray) -> np.ndarray:
    """Return the number of the largest output (the first of several), int64 ``[N]``."""
    return outputs.argmax(-1)


def _contiguous(state: Tensor) -> np.ndarray:
    return np.ascontiguousarray(state.detach().numpy(), np.float32)


@functools.lru_cache(maxsize=256)
def _native(
    sizes: tuple[int, ...], num_outputs: int, is_tangent: bool, is_normalized: bool, gates: int, memory_size: int
) -> NativeChain:
    return NativeChain([*sizes], num_outputs, is_tangent, is_normalized, gates, memory_size)
