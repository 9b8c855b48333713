"""The network that predicts an episode's return from the beginning of the episode: RUDDER's g (arXiv:1806.07857).

Its contributions are what rewards are redistributed by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from penstock._native import adding_cells, adding_cells_gradient
from penstock.engine.acting.inference import weights_nbytes
from penstock.nn.encoders import SideBySide, build_encoder, takes_bytes
from penstock.nn.layers import is_native
from penstock.nn.model import NetworkConfig
from penstock.nn.normalization import BoundedMoments, RunningMoments
from penstock.nn.observations import Seen, build_input, encoder_input_size, unmasked
from penstock.rudder.arithmetic import differences, integrated_gradients
from penstock.rudder.feed import PREDICTOR

if TYPE_CHECKING:
    from penstock.algorithms.bases.algorithm import Algorithm
    from penstock.envs.spaces import ActionSpec, ObservationSpec

HIDDEN = 64  # units between what is seen and the cells
GATE_BIAS = -2.0  # gates begin nearly shut, so that a long episode does not fill the cells with what means nothing
TOLD = ("quality", "error", "completeness", "main_loss", "auxiliary_loss", "lessons", "dropped", "updates")
"""Running means published with the predictor's weights."""
COUNTED = ("episodes", "_complete", "_mean_return", "_mean_square", "_squared_error")
"""Running means published after these, from which a successor of the redistributor continues."""


class AddingCells(torch.autograd.Function):
    """Cells over time, ``c_t = m_t + sigmoid(W m_t + b) z_t`` with ``m_t = k_t c_t-1``, and their gradient by hand.

    A step is a few operations on small tensors. Recorded one by one for the backward pass they take four times as long;
    on a CPU all steps are one call of the native core.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, kept: Tensor, memory: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return ``c``, ``[T, N, S]``, of ``z``, ``k`` ``[T, N, 1]``, the cells before ``[N, S]``, ``W`` and ``b``."""
        z, kept, memory = z.contiguous(), kept.contiguous(), memory.contiguous()
        gates, carried, cells = torch.empty_like(z), torch.empty_like(z), torch.empty_like(z)
        ctx.save_for_backward(z, kept, gates, carried, weight)
        if is_native(z):
            steps, lanes, size = z.shape
            adding_cells(
                z.data_ptr(), kept.data_ptr(), memory.data_ptr(), weight.data_ptr(), bias.data_ptr(), steps, lanes,
                size, gates.data_ptr(), carried.data_ptr(), cells.data_ptr(),
            )  # fmt: skip
            return cells
        transposed = weight.t()
        rows = zip(z.unbind(), kept.unbind(), gates.unbind(), carried.unbind(), cells.unbind(), strict=True)
        for z_t, k_t, gate, m_t, c_t in rows:
            torch.mul(memory, k_t, out=m_t)
            torch.addmm(bias, m_t, transposed, out=gate)
            torch.addcmul(m_t, gate.sigmoid_(), z_t, out=c_t)
            memory = c_t
        return cells

    @staticmethod
    def backward(ctx: Any, grad_cells: Tensor) -> tuple[Tensor, None, None, Tensor, Tensor]:  # type: ignore[override]
        """Gradients of ``z``, ``W`` and ``b``; none goes back behind the first row."""
        z, kept, gates, carried, weight = ctx.saved_tensors
        d_z, into_gates, grad_cells = torch.empty_like(z), torch.empty_like(z), grad_cells.contiguous()
        if is_native(z):
            steps, lanes, size = z.shape
            adding_cells_gradient(
                grad_cells.data_ptr(), z.data_ptr(), kept.data_ptr(), gates.data_ptr(), weight.data_ptr(), steps,
                lanes, size, d_z.data_ptr(), into_gates.data_ptr(),
            )  # fmt: skip
        else:
            slopes = z * gates * (1.0 - gates)  # of c_t over what goes into its gate
            grad = torch.zeros_like(grad_cells[0])
            for t in range(len(z) - 1, -1, -1):
                grad = grad + grad_cells[t]
                torch.mul(grad, gates[t], out=d_z[t])
                torch.mul(grad, slopes[t], out=into_gates[t])
                grad = torch.addmm(grad, into_gates[t], weight).mul_(kept[t])
        flat = into_gates.flatten(0, 1)
        return d_z, None, None, flat.t() @ carried.flatten(0, 1), flat.sum(0)


class ReturnPredictor(nn.Module):
    """A memory that only adds, over observations and actions (section "LSTM for return decomposition").

        z_t = tanh(W_z relu(W_x x_t + b_x) + b_z)      what comes in: forward connections alone
        i_t = sigmoid(W_i c_t-1 + b_i)                 how much of it: recurrent connections alone
        c_t = c_t-1 + i_t z_t                          no forget gate, no output gate
        g_t = W_g c_t + b_g                            in units of returns' deviation, from their mean

    ``x_t`` is how the observation has changed, and the action. The first change of an episode is its first observation.
    A network that sees the observations themselves could wait for the last one, which often shows what was decided long
    before. With a loss at every step waiting is dear, and with `sees_observations` they go in, too: what matters by
    lasting, and not by changing, is learned much sooner then. Rewards and a count of steps never go in.

    The hidden layer lets a step's contribution depend on what was done where. Without one the cells have to find out
    over the steps that follow, and hand the credit to these.

    Parameters
    ----------
    observation : ObservationSpec
        What changes. Of a stack of frames that is the newest one: the network takes `ObservationSpec.newest_of`.
    action : ActionSpec
        What is chosen.
    config : NetworkConfig
        The policy's. Changes of images go through an encoder of the same family, and so they do through a user's own;
        all else goes in as it is. Floats are normalised before, always, so that nothing is large where it is rare.
    size : int
        Number of cells, S.
    num_told : int
        Of `told`.
    sees_observations : bool
        Whether observations that are not encoded go in beside their changes.

    Attributes
    ----------
    returns : RunningMoments
        Of the returns that were learned from.
    told : Tensor
        Numbers that its owner tells with it, float64 ``[num_told]``: they travel with the weights.
    """

    told: Tensor

    def __init__(
        self, observation: ObservationSpec, action: ActionSpec, config: NetworkConfig, size: int, num_told: int = 0,
        *, sees_observations: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.size = size
        self.action = action
        observation = observation.newest
        self.input = build_input(observation, True, takes_bytes(config.encoder, observation), BoundedMoments)
        self.encoder: nn.Module
        is_encoded = observation.is_image or callable(config.encoder)
        self.sees_observations = sees_observations and not is_encoded
        if is_encoded:
            self.encoder, width = build_encoder(config.encoder, observation, config.hidden_sizes, config.activation)
        else:
            self.encoder, width = SideBySide(), encoder_input_size(unmasked(observation))
        width *= 1 + self.sees_observations
        width += sum(action.choices) + action.num_numbers
        self.cell_input = nn.Sequential(nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, size))
        self.input_gate = nn.Linear(size, size)
        self.output = nn.Linear(size, 1)
        nn.init.constant_(self.input_gate.bias, GATE_BIAS)
        nn.init.zeros_(self.output.bias)
        self.returns = RunningMoments(())
        self.register_buffer("told", torch.zeros(num_told, dtype=torch.float64))

    def inputs(self, obs: Tensor, before: Tensor, first: Tensor, action: Tensor) -> Tensor:
        """Inputs of the memory cells.

        Parameters
        ----------
        obs : Tensor
            Observations as they lie in their column, ``[T, N, *shape]``.
        before : Tensor
            Those before them, ``[N, *shape]``.
        first : Tensor
            Which of them begin an episode, bool ``[T, N]``: their change is all that they show.
        action : Tensor
            ``[T, N, ...]``.

        Returns
        -------
        Tensor
            float32 ``[T, N, F]``.
        """
        steps, lanes = first.shape
        seen = self.input(torch.cat([before.unsqueeze(0), obs]).flatten(0, 1))
        goes_on = (~first).float()

        def change(values: Tensor) -> Tensor:
            values = values.float().unflatten(0, (steps + 1, lanes))
            weight = goes_on.view(*goes_on.shape, *(1,) * (values.ndim - 2))
            return (values[1:] - weight * values[:-1]).flatten(0, 1)

        changes: Seen = {k: change(v) for k, v in seen.items()} if isinstance(seen, dict) else change(seen)
        features = [self.encoder(changes).float()]
        if self.sees_observations:
            features.append(self.encoder(seen)[lanes:])
        columns = (action.unsqueeze(-1) if self.action.is_discrete else action).flatten(0, 1)
        choices = [one_hot(columns[:, i].long(), n) for i, n in enumerate(self.action.choices)]
        return torch.cat([*features, *choices, columns[:, len(choices) :]], -1).unflatten(0, (steps, lanes))

    def initial_memory(self, lanes: int) -> Tensor:
        """Cells where nothing has come in yet: zeros, float32 ``[lanes, S]``."""
        return torch.zeros(lanes, self.size, device=self.output.weight.device)

    def unroll(self, inputs: Tensor, first: Tensor, valid: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Predict returns after every row.

        Parameters
        ----------
        inputs : Tensor
            As `inputs` gives them, float32 ``[T, N, F]``.
        first, valid : Tensor
            Which rows begin an episode, and which are steps, bool ``[T, N]``: others change nothing.
        memory : Tensor
            Cells before the rows, float32 ``[N, S]``.

        Returns
        -------
        prediction : Tensor
            In units of the head, float32 ``[T, N]``; see `as_return`.
        memory : Tensor
            Cells after the rows, without gradient.
        """
        incoming = torch.tanh(self.cell_input(inputs)) * valid.unsqueeze(-1)
        kept = (~first).float().unsqueeze(-1)
        gate = self.input_gate
        cells: Tensor = AddingCells.apply(incoming, kept, memory, gate.weight, gate.bias)
        return self.output(cells).squeeze(-1), cells[-1].detach()

    def as_return(self, prediction: Tensor) -> Tensor:
        """Predictions as returns."""
        return self.returns.denormalize(prediction)

    @torch.no_grad()
    def take_returns(self, returns: Tensor) -> None:
        """Take returns ``[N]`` into their moments; what is predicted stays as it is (PopArt, arXiv:1602.07714)."""
        mean, std = self.returns.mean.clone(), self.returns.std.clone()
        self.returns.update(returns)
        self.output.weight.mul_(std / self.returns.std)
        self.output.bias.mul_(std).add_(mean - self.returns.mean).div_(self.returns.std)


def build_predictor(algorithm: Algorithm) -> ReturnPredictor:
    """Make the predictor for an algorithm's observations and actions; the same in every process."""
    config = algorithm.config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return algorithm.build_network(
            ReturnPredictor, size=config.redistributor_size, num_told=len(TOLD) + len(COUNTED),
            sees_observations=config.redistribution_attribution == "difference",
        ).eval()  # fmt: skip


def predictor_block(algorithm: Algorithm) -> tuple[tuple[str, int], ...]:
    """Return name and size of the weights block of an algorithm's predictor."""
    return ((PREDICTOR, weights_nbytes(build_predictor(algorithm))),)


def quality_of(predictor: ReturnPredictor) -> float:
    """Return the quality of a predictor's returns as published with its weights; 0.0: they are not trusted."""
    return float(predictor.told[TOLD.index("quality")])


def predictor_metrics(predictor: ReturnPredictor, share: float) -> dict[str, float]:
    """Metrics of a predictor, and of the share of the last batch's steps with redistributed rewards."""
    told = dict(zip(TOLD, predictor.told.tolist(), strict=False))
    return {f"redistribution/{name}": value for name, value in {"share": share, **told}.items()}


@torch.no_grad()
def contributions(
    predictor: ReturnPredictor,
    inputs: Tensor,
    first: Tensor,
    valid: Tensor,
    memory: Tensor,
    before: Tensor,
    num_points: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Contribution of each step of a chunk to the prediction at the end of the chunk or of its episode.

    Parameters
    ----------
    predictor, inputs, first, valid, memory
        As for `ReturnPredictor.unroll`.
    before
        Predictions before the chunk, as returns: float32 ``[N]``.
    num_points
        0: differences of predictions; else integrated gradients within the chunk, of so many points. What these do not
        explain is spread evenly, so that both add up to how far the prediction moved.

    Returns
    -------
    contribution : Tensor
        As returns, float32 ``[T, N]``.
    prediction : Tensor
        After the last row, as a return: float32 ``[N]``.
    memory : Tensor
        Cells after the last row.
    """
    output, after = predictor.unroll(inputs, first, valid, memory)
    prediction = predictor.as_return(output)
    # Before its first step an episode is predicted to return 0; a row that is no step has moved nothing.
    found = torch.where(valid, differences(prediction, before, first), 0.0)
    if num_points:
        explained = integrated(predictor, inputs, first, valid, memory, num_points)
        number = first.long().cumsum(0)
        shape = (int(number.max()) + 1, first.shape[1])
        total = torch.zeros(shape, device=found.device).scatter_add_(0, number, found - explained)
        steps = torch.zeros(shape, device=found.device).scatter_add_(0, number, valid.float())
        found = explained + valid * (total / steps.clamp(min=1.0)).gather(0, number)
    return found, prediction[-1], after


def integrated(
    predictor: ReturnPredictor, inputs: Tensor, first: Tensor, valid: Tensor, memory: Tensor, num_points: int
) -> Tensor:
    """Integrated gradients of what is predicted where each episode ends, or the chunk: of each step, as returns."""
    is_last = torch.cat([first[1:], torch.ones_like(first[:1])])  # rows behind the last step predict what it did

    def at_ends(x: Tensor) -> Tensor:
        return (predictor.unroll(x, first, valid, memory)[0] * is_last).sum() * predictor.returns.std

    return integrated_gradients(at_ends, inputs, num_points).sum(-1) * valid
