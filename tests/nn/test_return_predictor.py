"""The predictor of returns: its inputs, its memory, and information that it must not get."""

import numpy as np
import pytest
import torch

from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.nn import NetworkConfig
from penstock.rudder.predictor import AddingCells, ReturnPredictor
from tests.nn.plain import CHOICE

VECTOR = ObservationSpec((3,), "float32")
STACK = ObservationSpec((4, 40, 40), "uint8", is_stacked=True)
NUMBERS = ActionSpec((2,), "float32", low=(-1.0, -1.0), high=(1.0, 1.0))


def predictor_of(observation=VECTOR, action=CHOICE, **settings):
    torch.manual_seed(0)
    return ReturnPredictor(observation, action, NetworkConfig(**settings), 5)


def rows(steps=6, lanes=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    obs = torch.randn(steps, lanes, 3, generator=generator)
    action = torch.randint(CHOICE.num_actions, (steps, lanes), generator=generator)
    first = torch.zeros(steps, lanes, dtype=torch.bool)
    first[0] = True
    return obs, action, first


def unrolled(predictor, obs, action, first, valid=None, before=None, memory=None):
    before = torch.zeros_like(obs[0]) if before is None else before
    valid = torch.ones_like(first) if valid is None else valid
    memory = predictor.initial_memory(obs.shape[1]) if memory is None else memory
    inputs = predictor.inputs(obs, before, first, action)
    return predictor.unroll(inputs, first, valid, memory)


def test_it_computes_what_its_docstring_says():
    predictor, (obs, action, first) = predictor_of(), rows(lanes=1)
    found, _ = unrolled(predictor, obs, action, first)
    cells = torch.zeros(5)
    for t in range(len(obs)):
        change = obs[t, 0] - (obs[t - 1, 0] if t else 0.0)
        x = torch.cat([change, torch.nn.functional.one_hot(action[t, 0], CHOICE.num_actions)])
        cells = cells + torch.sigmoid(predictor.input_gate(cells)) * torch.tanh(predictor.cell_input(x))
        assert torch.allclose(found[t, 0], predictor.output(cells).squeeze(), atol=1e-6)


def test_the_gradient_by_hand_is_that_of_what_is_computed():
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    z, weight, bias = numbers(5, 3, 4), numbers(4, 4), numbers(4)
    kept = torch.ones(5, 3, 1, dtype=torch.float64)
    kept[2, 0] = kept[0, 1] = 0.0
    memory = numbers(3, 4).detach()
    assert torch.autograd.gradcheck(lambda *x: AddingCells.apply(x[0], kept, memory, *x[1:]), (z, weight, bias))


@pytest.mark.parametrize("steps, lanes, size", [(1, 1, 1), (5, 3, 4), (40, 2, 33), (3, 17, 32)])
def test_cells_of_the_native_core_are_those_of_torch(steps, lanes, size):
    """float64 is computed by torch."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(steps, lanes, size), (size, size), (size,)]
    given = [torch.randn(*shape, generator=generator) for shape in shapes]
    kept = (torch.rand(steps, lanes, 1, generator=generator) > 0.2).float()
    memory, gradient = torch.randn(lanes, size, generator=generator), torch.randn(*shapes[0], generator=generator)
    results = []
    for dtype in (torch.float32, torch.float64):
        z, weight, bias = (each.detach().clone().to(dtype).requires_grad_() for each in given)
        cells = AddingCells.apply(z, kept.to(dtype), memory.to(dtype), weight, bias)
        cells.backward(gradient.to(dtype))
        results.append([cells.detach(), z.grad, weight.grad, bias.grad])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other.float(), rtol=1e-4, atol=1e-4)


def test_in_two_parts_it_predicts_what_it_does_at_once():
    predictor, (obs, action, first) = predictor_of(), rows()
    whole, end = unrolled(predictor, obs, action, first)
    early, memory = unrolled(predictor, obs[:4], action[:4], first[:4])
    late, end_late = unrolled(predictor, obs[4:], action[4:], first[4:], before=obs[3], memory=memory)
    assert torch.allclose(torch.cat([early, late]), whole, atol=1e-6) and torch.allclose(end, end_late, atol=1e-6)


def test_an_episode_knows_nothing_of_the_one_before():
    predictor, (obs, action, first) = predictor_of(), rows()
    first[3] = True
    whole, _ = unrolled(predictor, obs, action, first)
    alone, _ = unrolled(predictor, obs[3:], action[3:], first[3:])
    assert torch.allclose(whole[3:], alone, atol=1e-6)


def test_a_row_that_is_no_step_changes_nothing():
    predictor, (obs, action, first) = predictor_of(), rows()
    valid = torch.ones_like(first)
    valid[3:] = False
    found, memory = unrolled(predictor, obs, action, first, valid)
    short, after = unrolled(predictor, obs[:3], action[:3], first[:3])
    torch.testing.assert_close(found[3:], short[-1].expand(3, -1), rtol=1e-5, atol=1e-7)
    assert torch.equal(memory, after)


def test_it_sees_changes_so_that_the_last_observation_by_itself_tells_it_nothing():
    """A constant input, such as a flag for the end to come, counts once: when it appears."""
    obs, action, first = rows(lanes=1)
    moved = obs.clone()
    moved[2:] += 5.0

    def differs(sees_observations):
        torch.manual_seed(0)
        predictor = ReturnPredictor(VECTOR, CHOICE, NetworkConfig(), 5, sees_observations=sees_observations)
        one, other = (predictor.inputs(each, torch.zeros(1, 3), first, action) for each in (obs, moved))
        return ((one - other).abs().amax((1, 2)) > 1e-6).tolist()

    assert differs(False) == [False, False, True, False, False, False]
    assert differs(True) == [False, False, True, True, True, True], "beside the observations"


def test_a_prediction_depends_on_its_own_action_and_on_nothing_later():
    predictor, (obs, action, first) = predictor_of(), rows(lanes=1)
    other = action.clone()
    other[3] = (action[3] + 1) % CHOICE.num_actions
    found, changed = (unrolled(predictor, obs, each, first)[0].flatten() for each in (action, other))
    assert torch.equal(found[:3], changed[:3]) and found[3] != changed[3]


def test_new_moments_of_returns_leave_predictions_as_they_are():
    predictor, (obs, action, first) = predictor_of(), rows()
    before = predictor.as_return(unrolled(predictor, obs, action, first)[0])
    predictor.take_returns(torch.tensor([100.0, 300.0, -50.0]))
    assert predictor.returns.std > 50
    assert torch.allclose(predictor.as_return(unrolled(predictor, obs, action, first)[0]), before, atol=1e-3)


@pytest.mark.parametrize(
    ("observation", "width"),
    [
        (ObservationSpec((), "int64", num_values=4), 4),
        (ObservationSpec((2,), "int64", nvec=(2, 3)), 5),
        (ObservationSpec((2, 2), "float32"), 4),
        (ObservationSpec((10, 10, 3), "uint8"), 256),
        (STACK, 512),
    ],
)
def test_changes_of_every_kind_of_observation_are_encoded(observation, width):
    predictor, newest = predictor_of(observation, NUMBERS), observation.newest
    zeros = np.zeros((7, 2, *observation.shape), newest.dtype)
    obs = torch.from_numpy(observation.newest_of(zeros))
    first = torch.zeros(6, 2, dtype=torch.bool)
    inputs = predictor.inputs(obs[1:], obs[0], first, torch.zeros(6, 2, 2))
    assert inputs.shape == (6, 2, width + 2)
    prediction, memory = predictor.unroll(inputs, first, ~first, predictor.initial_memory(2))
    assert prediction.shape == (6, 2) and memory.shape == (2, 5) and prediction.isfinite().all()


def test_of_a_stack_of_frames_only_the_newest_is_looked_at():
    column = np.arange(2 * 4 * 40 * 40).reshape(2, *STACK.shape)
    assert STACK.newest.shape == (1, 40, 40) and not STACK.newest.is_stacked
    assert (STACK.newest_of(column)[:, 0] == column[:, -1]).all()
    assert STACK.newest_of(column).base is not None, "a view"
    assert VECTOR.newest == VECTOR and VECTOR.newest_of(column) is column


def test_pixels_that_get_darker_are_negative_changes():
    predictor = predictor_of(ObservationSpec((10, 10, 3), "uint8"), encoder="mlp", hidden_sizes=())
    bright = torch.full((1, 1, 10, 10, 3), 255, dtype=torch.uint8)
    first = torch.zeros(1, 1, dtype=torch.bool)
    inputs = predictor.inputs(bright * 0, bright[0], first, torch.zeros(1, 1, dtype=torch.int64))
    assert torch.equal(inputs[..., :300], torch.full((1, 1, 300), -1.0))
