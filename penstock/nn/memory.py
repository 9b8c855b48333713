"""Memory cores: recurrent layers with one flat state tensor, reset at the start of an episode."""

import torch
from torch import Tensor, nn

CELLS: dict[str, type[nn.GRUCell] | type[nn.LSTMCell]] = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}


def state_size_of(memory: str, size: int) -> int:
    """Return the width of a lane's memory state for a kind of core ("none", "gru", "lstm") and its width."""
    return {"none": 0, "gru": size, "lstm": 2 * size}[memory]


class MemoryCore(nn.Module):
    """Recurrent layer over time-major batches.

    Its state is one tensor ``[B, S]``, so that it fits a column: the hidden state of a GRU, or hidden and cell state
    of an LSTM side by side. The state at the start of an episode is zero.

    Parameters
    ----------
    kind : {"gru", "lstm"}
        Kind of recurrence.
    input_size : int
        Width ``F`` of a row of input.
    size : int
        Width ``H`` of a row of output.
    span : int, optional
        Rows over which the untrained memory remembers, 2 or more: initial gate biases let units forget at different
        rates, the slowest over this span (chrono initialization, arXiv:1804.11188, section 2.3). None: biases of 0,
        with which a unit forgets half in every row.

    Attributes
    ----------
    state_size : int
        Width ``S`` of the state: ``H`` (GRU) or ``2 H`` (LSTM).
    """

    def __init__(self, kind: str, input_size: int, size: int, span: int | None = None) -> None:
        super().__init__()
        self.cell = CELLS[kind](input_size, size)
        self.size = size
        self.state_size = state_size_of(kind, size)
        for name, parameter in self.cell.named_parameters():
            nn.init.orthogonal_(parameter) if name.startswith("weight") else nn.init.zeros_(parameter)
        if span is not None:
            self._begin_with_a_span(span)

    @torch.no_grad()
    def _begin_with_a_span(self, span: int) -> None:
        """Initialise ``b_f ~ log U(1, span - 1)`` and ``b_i = -b_f``; a GRU has one gate for both, which keeps at 1."""
        bias = torch.empty(self.size).uniform_(1.0, span - 1.0).log_()
        gates = self.cell.bias_ih.view(-1, self.size)  # LSTM: input, forget, cell, output; GRU: reset, update, new
        gates[1] = bias
        if isinstance(self.cell, nn.LSTMCell):
            gates[0] = -bias

    def step(self, x: Tensor, first: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Advance every lane by one row.

        Parameters
        ----------
        x : Tensor
            Input, float32 ``[B, F]``.
        first : Tensor
            Rows that begin an episode, bool ``[B]``: their state is reset *before* the row.
        state : Tensor
            State before the row, float32 ``[B, S]``.

        Returns
        -------
        y : Tensor
            Output, float32 ``[B, H]``.
        state : Tensor
            State after the row, float32 ``[B, S]``.
        """
        state = state.masked_fill(first.unsqueeze(-1), 0.0)
        if isinstance(self.cell, nn.LSTMCell):
            hidden, cell = self.cell(x, state.split(self.size, -1))
            return hidden, torch.cat((hidden, cell), -1)
        hidden = self.cell(x, state)
        return hidden, hidden

    def unroll(self, x: Tensor, first: Tensor, state: Tensor, burn_in: int = 0) -> tuple[Tensor, Tensor]:
        """Advance every lane by ``T`` rows: :meth:`step` for each, with gradient through time.

        A loop over cells instead of one fused call: lanes begin episodes at different rows, and acting and learning
        share the same arithmetic.

        Parameters
        ----------
        x : Tensor
            Input, float32 ``[T, B, F]``.
        first : Tensor
            Rows that begin an episode, bool ``[T, B]``.
        state : Tensor
            State before row 0, float32 ``[B, S]``.
        burn_in : int
            First rows that only warm up the state: no gradient passes back from later rows.

        Returns
        -------
        y : Tensor
            Output, float32 ``[T, B, H]``.
        state : Tensor
            State after the last row, float32 ``[B, S]``.
        """
        outputs = []
        for row, (x_row, first_row) in enumerate(zip(x.unbind(), first.unbind(), strict=True)):
            if burn_in and row == burn_in:
                state = state.detach()
            y, state = self.step(x_row, first_row, state)
            outputs.append(y)
        return torch.stack(outputs), state
