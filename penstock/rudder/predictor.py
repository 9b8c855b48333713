"""RUDDER's network g, which predicts an episode's return after each step, and the steps' contributions to it.

See arXiv:1806.07857.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from penstock._native import adding_cells, adding_cells_gradient
from penstock.engine.acting.inference import SharedWeights, weights_nbytes
from penstock.nn.encoders import build_encoder, takes_bytes
from penstock.nn.mlp import SideBySide, is_native
from penstock.nn.model import NetworkConfig
from penstock.nn.observations import BoundedMoments, RunningMoments, Seen, build_input, encoder_input_size, unmasked
from penstock.rudder.arithmetic import differences, integrated_gradients
from penstock.rudder.feed import PREDICTOR

if TYPE_CHECKING:
    from penstock.algorithms.bases.algorithm import Algorithm
    from penstock.envs.spaces import ActionSpec, ObservationSpec
    from penstock.experience.arena import ExperienceArena

HIDDEN = 64  # units between the inputs and the cells
GATE_BIAS = -2.0  # gates begin nearly closed, so that noise in long episodes does not fill the cells
TOLD = ("quality", "error", "completeness", "main_loss", "auxiliary_loss", "lessons", "dropped", "updates")
"""Running means published with the predictor's weights."""
COUNTED = ("episodes", "_complete", "_mean_return", "_mean_square", "_squared_error")
"""Running means published after those of `TOLD`, from which a replacement of the redistributor continues."""


class AddingCells(torch.autograd.Function):
    """Cells over time, ``c_t = m_t + sigmoid(W m_t + b) z_t`` with ``m_t = k_t c_t-1``, and their gradient.

    A step is a few operations on small tensors, which autograd would make four times as slow. On a CPU, one call of the
    native core computes all steps.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, kept: Tensor, memory: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return ``c``, ``[T, N, S]``, for ``z``, ``k`` ``[T, N, 1]``, earlier cells ``[N, S]``, ``W`` and ``b``."""
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
        """Return gradients of ``z``, ``W`` and ``b``; the cells before the first row have none."""
        z, kept, gates, carried, weight = ctx.saved_tensors
        d_z, into_gates, grad_cells = torch.empty_like(z), torch.empty_like(z), grad_cells.contiguous()
        if is_native(z):
            steps, lanes, size = z.shape
            adding_cells_gradient(
                grad_cells.data_ptr(), z.data_ptr(), kept.data_ptr(), gates.data_ptr(), weight.data_ptr(), steps,
                lanes, size, d_z.data_ptr(), into_gates.data_ptr(),
            )  # fmt: skip
        else:
            slopes = z * gates * (1.0 - gates)  # derivative of c_t by its gate's input
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

        z_t = tanh(W_z relu(W_x x_t + b_x) + b_z)      input: forward connections alone
        i_t = sigmoid(W_i c_t-1 + b_i)                 its gate: recurrent connections alone
        c_t = c_t-1 + i_t z_t                          no forget gate, no output gate
        g_t = W_g c_t + b_g                            in units of returns' deviation, from their mean

    ``x_t`` is the change of the observation, and the action. The first change of an episode is its first observation.
    From observations themselves a network could predict late: the last one often shows the result of early decisions.
    The loss at every step discourages that. With `sees_observations`, observations are inputs, too, and lasting causes
    are learned much sooner. Rewards and a count of steps are never inputs.

    The hidden layer lets a step's contribution depend on the pair of observation and action. Without it, the cells
    would combine the two over later steps, which would then get the credit.

    Parameters
    ----------
    observation : ObservationSpec
        Observations; for a stack of frames, the network takes the newest frame (`ObservationSpec.newest_of`).
    action : ActionSpec
        Actions.
    config : NetworkConfig
        Config of the policy's network. Changes of images go through the same kind of encoder, or the user's; other
        changes are inputs as they are. Floats are always normalised, so that rare values are not large.
    size : int
        Number of cells, S.
    num_told : int
        Length of `told`.
    sees_observations : bool
        Whether observations that are not encoded are inputs in addition to their changes.

    Attributes
    ----------
    returns : RunningMoments
        Moments of the returns that were learned from.
    told : Tensor
        Running means of the redistributor, published with the weights, float64 ``[num_told]``.
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
        """Return the inputs of the memory cells, float32 ``[T, N, F]``.

        Parameters
        ----------
        obs : Tensor
            Observations as in their column, ``[T, N, *shape]``.
        before : Tensor
            Observations before the first row, ``[N, *shape]``.
        first : Tensor
            Whether a row begins an episode, bool ``[T, N]``; its change is then the whole observation.
        action : Tensor
            Actions, ``[T, N, ...]``.
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
        """Return the cells at the beginning of an episode: zeros, float32 ``[lanes, S]``."""
        return torch.zeros(lanes, self.size, device=self.output.weight.device)

    def unroll(self, inputs: Tensor, first: Tensor, valid: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Predict returns after every row.

        Parameters
        ----------
        inputs : Tensor
            Result of `inputs`, float32 ``[T, N, F]``.
        first, valid : Tensor
            Whether a row begins an episode, and whether it is a step, bool ``[T, N]``; only steps change anything.
        memory : Tensor
            Cells before the rows, float32 ``[N, S]``.

        Returns
        -------
        prediction : Tensor
            Predictions in units of the head, float32 ``[T, N]``; see `as_return`.
        memory : Tensor
            Cells after the rows, without gradient.
        """
        incoming = torch.tanh(self.cell_input(inputs)) * valid.unsqueeze(-1)
        kept = (~first).float().unsqueeze(-1)
        gate = self.input_gate
        cells: Tensor = AddingCells.apply(incoming, kept, memory, gate.weight, gate.bias)
        return self.output(cells).squeeze(-1), cells[-1].detach()

    def as_return(self, prediction: Tensor) -> Tensor:
        """Convert predictions to returns."""
        return self.returns.denormalize(prediction)

    @torch.no_grad()
    def take_returns(self, returns: Tensor) -> None:
        """Add returns ``[N]`` to the moments, and keep predictions unchanged (PopArt, arXiv:1602.07714)."""
        mean, std = self.returns.mean.clone(), self.returns.std.clone()
        self.returns.update(returns)
        self.output.weight.mul_(std / self.returns.std)
        self.output.bias.mul_(std).add_(mean - self.returns.mean).div_(self.returns.std)


def build_predictor(algorithm: Algorithm) -> ReturnPredictor:
    """Make the predictor for an algorithm's observations and actions, the same in every process."""
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


class PublishedPredictor:
    """A policy's predictor in a process that reads it.

    Attributes
    ----------
    network
        The predictor, with the weights of the last `refresh`.
    """

    def __init__(self, algorithm: Algorithm, arena: ExperienceArena) -> None:
        self.network = build_predictor(algorithm)
        self._weights = SharedWeights(self.network, arena.blocks[PREDICTOR])

    def refresh(self) -> float:
        """Load the newest weights; return the quality of predictions, which are not used if it is 0."""
        self._weights.refresh()
        return float(self.network.told[TOLD.index("quality")])

    def metrics(self, share: float) -> dict[str, float]:
        """Return metrics of the predictor, and the share of the last batch's steps with redistributed rewards."""
        told = dict(zip(TOLD, self.network.told.tolist(), strict=False))
        return {f"redistribution/{name}": value for name, value in {"share": share, **told}.items()}


@torch.no_grad()
def contributions(
    predictor: ReturnPredictor, inputs: Tensor, first: Tensor, valid: Tensor, memory: Tensor, before: Tensor,
    num_points: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return each step's contribution to the prediction at the end of the chunk or, if earlier, of its episode.

    Parameters
    ----------
    predictor, inputs, first, valid, memory
        As for `ReturnPredictor.unroll`.
    before
        Predictions before the chunk, as returns: float32 ``[N]``.
    num_points
        Points of integrated gradients within the chunk; their error is spread evenly, so that contributions add up to
        the change of the prediction. 0: differences of predictions.

    Returns
    -------
    contribution : Tensor
        Contributions in units of returns, float32 ``[T, N]``.
    prediction : Tensor
        Predicted return after the last row, float32 ``[N]``.
    memory : Tensor
        Cells after the last row.
    """
    output, after = predictor.unroll(inputs, first, valid, memory)
    prediction = predictor.as_return(output)
    # Before its first step, the prediction of an episode is 0; a row without a step changes nothing.
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
    """Return integrated gradients, as returns, of the predictions at the end of each episode or of the chunk."""
    is_last = torch.cat([first[1:], torch.ones_like(first[:1])])  # rows after the last step have its prediction

    def at_ends(x: Tensor) -> Tensor:
        return (predictor.unroll(x, first, valid, memory)[0] * is_last).sum() * predictor.returns.std

    return integrated_gradients(at_ends, inputs, num_points).sum(-1) * valid
