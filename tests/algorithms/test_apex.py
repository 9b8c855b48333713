"""Ape-X: every lane explores at its own rate, and new transitions bring the priorities that a learner would give."""

import numpy as np
import pytest
import torch

from penstock.algorithms.apex import ApeX
from penstock.algorithms.arithmetic.td import epsilon_ladder
from penstock.config import ConfigError, make_config
from penstock.engine.acting.inference import Inference, SharedWeights
from penstock.engine.contracts import Start
from penstock.engine.paths.replay import ReplayPath, make_replay
from penstock.engine.preparation import run_shape
from penstock.engine.roles.rollout_worker import RolloutSpec, RolloutWorker
from penstock.envs.making import probe
from penstock.envs.spec import EnvSpec
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.batch import TransitionBatch
from penstock.nn.q_network import DuelingHead
from penstock.replay import Prioritized
from tests.algorithms.transitions import TORQUE, VECTOR, begin, make, request
from tests.engine.collecting import Witnessed
from tests.nn.composites import composite, pack
from tests.nn.plain import CHOICE

LADDER = [0.4, 0.16, 0.064, 0.0256, 0.01024, 0.004096, 0.0016384, 0.00065536]


def test_eight_lanes_explore_at_rates_that_fall_from_0_4_to_its_eighth_power():
    """Noise just below a lane's rate explores, and means the last action; just above it the best, the first, is taken.

    Shown for lanes 2 to 7 of the run, as a group of lanes would ask.
    """
    algorithm = make(ApeX, VECTOR, CHOICE, num_workers=2, num_envs_per_worker=4, dueling=False)
    model = begin(algorithm)
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
    for factor, action in ((0.999, 2), (1.001, 0)):
        asked = request(torch.tensor(LADDER[2:]).unsqueeze(1) * factor)
        asked.lane.copy_(torch.arange(2, 8))
        columns, _ = algorithm.act(model, asked)
        assert columns["action"].tolist() == [action] * 6


def test_each_node_explores_over_the_whole_ladder():
    """Nodes come and go: two nodes of the eight possible have rates from 0.4 almost down to its eighth power."""
    algorithm = make(ApeX, VECTOR, CHOICE, backend="ray", nodes="2:8", num_envs_per_worker=8, buffer_size=1_000)
    ladder = epsilon_ladder(64)
    rates = algorithm.epsilon(request(torch.zeros(64, 1)))
    for node in range(8):
        assert rates[8 * node : 8 * node + 8].tolist() == pytest.approx(ladder[node::8])
    assert algorithm.final_epsilon == pytest.approx(ladder[-1])


@pytest.mark.parametrize("steps", [0, 10**9])
def test_the_rates_stay_over_the_whole_run(steps):
    algorithm = make(ApeX, VECTOR, CHOICE, num_envs_per_worker=8)
    assert algorithm.epsilon(request(torch.zeros(8, 1), steps)).tolist() == pytest.approx(LADDER)


def test_recorded_are_the_values_of_the_action_taken_and_of_the_best():
    algorithm = make(ApeX, VECTOR, CHOICE, num_envs_per_worker=2, dueling=False)
    model = begin(algorithm)
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.copy_(torch.tensor([1.0, 3.0, 2.0]))
    columns, _ = algorithm.act(model, request(torch.tensor([[0.9], [0.0]])))
    assert columns["action"].tolist() == [1, 0], "the second lane explores"
    assert columns["value"].tolist() == [3.0, 1.0] and columns["max_value"].tolist() == [3.0, 3.0]
    assert {column.name for column in algorithm.record_columns()} == {"value", "max_value"}


def test_the_best_value_recorded_is_that_of_a_legal_action():
    observation = composite({"": VECTOR}, num_masked=3)
    algorithm = make(ApeX, observation, CHOICE, num_envs_per_worker=3, dueling=False)
    model = begin(algorithm)
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.copy_(torch.tensor([1.0, 3.0, 2.0]))
    rows = pack(observation, {"": np.zeros((3, 2))}, np.array([[1, 0, 1], [1, 0, 1], [0, 0, 0]], bool))
    columns, _ = algorithm.act(model, request(torch.tensor([[0.9], [0.0], [0.9]]), obs=rows))
    assert columns["action"].tolist() == [2, 0, 1]
    assert columns["value"].tolist() == [2.0, 1.0, 3.0] and columns["max_value"].tolist() == [2.0, 2.0, 3.0]


@pytest.mark.parametrize("n_step", [1, 3])
def test_a_first_priority_is_the_td_error_that_a_learner_of_the_same_weights_finds(n_step):
    """Two lanes of episodes of 1, 3 and 5 steps, terminated and truncated."""
    config = make_config(
        ApeX.Config,
        {"env": Witnessed, "num_workers": 1, "num_envs_per_worker": 2, "hidden_sizes": (8,), "n_step": n_step,
         "reward_scale": 1e-3, "learning_starts": 200, "seed": 2},
    )  # fmt: skip
    env = EnvSpec.resolve(config.env, config.env_kwargs, config.vectorize)
    observation, action, *_ = probe(env)
    algorithm = ApeX(config, observation, action)
    torch.manual_seed(0)
    model = algorithm.build_model()
    arena = ExperienceArena.create(run_shape(algorithm, model))
    arena.control[Control.GOAL] = 10**9
    SharedWeights(model, arena.weights).publish(0, 0)
    algorithm.begin(model)
    replay, _ = make_replay(algorithm, Start(), None)
    given: dict[int, float] = {}
    replay.buffer.update_priorities = lambda ids, values: given.update(zip(ids.tolist(), values.tolist(), strict=True))
    worker = RolloutWorker(
        RolloutSpec(0, env, (ReplayPath(replay),), config.seed, 0), arena, lambda *report: None,
        [Inference(arena, algorithm, "cpu", ReplayPath(replay).steps_taken)],
    )  # fmt: skip
    for _ in range(60):
        assert worker.poll()
    worker.close()

    rows = replay.buffer.get_all()
    assert list(given) == sorted(rows["ids"].tolist()) and len(given) > 80, "every transition has got one"
    assert (rows["discount"] == 0).any() and len(np.unique(rows["discount"])) == n_step + 1
    tensors = {name: torch.from_numpy(rows[name]) for name in ("obs", "next_obs", "action", "reward", "discount")}
    batch = TransitionBatch(**tensors, weights=torch.ones(len(rows["ids"])), number=1, progress=0.0)
    td_error, _ = algorithm.update(model, batch)
    expected = td_error.abs().numpy()
    np.testing.assert_allclose([given[i] for i in rows["ids"].tolist()], expected, rtol=1e-4, atol=1e-5)


def test_it_is_double_dueling_three_step_dqn_with_weights_by_the_largest_in_the_buffer_of_a_constant_exponent():
    algorithm = make(ApeX, VECTOR, CHOICE)
    assert isinstance(begin(algorithm).head, DuelingHead)
    assert algorithm.config.double and algorithm.config.n_step == 3
    assert algorithm.sampler() == Prioritized(0.6, 0.4, normalize="buffer")
    assert [algorithm.beta(progress) for progress in (0.0, 0.5, 1.0)] == pytest.approx([0.4] * 3)


def test_continuous_actions_are_refused_with_the_algorithms_that_choose_them():
    with pytest.raises(ConfigError) as refusal:
        make(ApeX, VECTOR, TORQUE)
    assert "apex chooses discrete actions" in str(refusal.value)
    assert "ddpg, td3, sac, tqc, crossq, flashsac, fasttd3, xqc or apexdpg" in str(refusal.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prioritized": False}, 'Ape-X without priorities is "dqn"'),
        ({"exploration_exponent": -1.0}, "exploration_exponent=-1.0 is not legal"),
    ],
)
def test_illegal_settings_are_named(settings, message):
    with pytest.raises(ConfigError) as refusal:
        make(ApeX, VECTOR, CHOICE, **settings)
    assert message in str(refusal.value)
