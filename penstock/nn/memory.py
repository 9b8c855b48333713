"""Memory cores: recurrent layers whose whole state is one flat tensor, reset where an episode begins."""

import torch
from torch import Tensor, nn

CELLS: dict[str, type[nn.GRUCell] | type[nn.LSTMCell]] = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}


def state_size_of(memory: str, size: int) -> int:
    """Width of a lane's memory state with a core of this kind ("none", "gru", "lstm") and width."""
    return {"none": 0, "gru": size, "lstm": 2 * size}[memory]


class MemoryCore(nn.Module):
    """A recurrent layer over time-major batches.

    Its state is one tensor ``[B, S]``, so that it fits a column: the hidden state of a GRU, hidden and cell state
    side by side for an LSTM. Zeros are the state at the start of an episode.

    Parameters
    ----------
    kind : {"gru", "lstm"}
        Which recurrence.
    input_size : int
        Width ``F`` of a row of input.
    size : int
        Width ``H`` of a row of output.
    span : int, optional
        Rows that the memory is to reach over before anything is learned, 2 or more: gates begin with biases by which
        each unit forgets at a rate of its own, at the slowest over so many rows (chrono initialization,
        arXiv:1804.11188, section 2.3). None: biases of 0, by which a unit forgets half in every row.

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
        """``b_f ~ log U(1, span - 1)`` and ``b_i = -b_f``; a GRU has one gate for both, which keeps where it is 1."""
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
            Rows that begin an episode, bool ``[B]``: their state is forgotten *before* the row.
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

        A loop of cells rather than one fused call: lanes begin episodes at different rows, and acting and
        learning go through the same arithmetic.

        Parameters
        ----------
        x : Tensor
            Input, float32 ``[T, B, F]``.
        first : Tensor
            Rows that begin an episode, bool ``[T, B]``.
        state : Tensor
            State before row 0, float32 ``[B, S]``.
        burn_in : int
            Rows that only bring the state up to date: no gradient goes back from the rows behind them.

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
