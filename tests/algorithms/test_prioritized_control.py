"""Prioritized replay of TD3, SAC, DDPG, TQC and CrossQ: which losses its weights apply to, and that it is off."""

import dataclasses

import pytest
import torch

from penstock.algorithms.bases.replay import ReplayAlgorithm
from penstock.algorithms.crossq import CrossQ
from penstock.algorithms.ddpg import DDPG
from penstock.algorithms.sac import SAC
from penstock.algorithms.td3 import TD3
from penstock.algorithms.tqc import TQC
from penstock.config import ConfigError, PrioritizedReplayConfig
from penstock.replay import Prioritized, Uniform
from tests.algorithms.transitions import TORQUE, VECTOR, begin, make, random_transitions

ALL = [DDPG, TD3, SAC, TQC, CrossQ]


def begun(algorithm, **settings):
    delay = {"policy_delay": 1} if hasattr(algorithm.Config, "policy_delay") else {}
    made = make(algorithm, VECTOR, TORQUE, hidden_sizes=(8,), **delay, **settings)
    return made, begin(made)


def standing_still(algorithm):
    """With optimisers that leave everything where it is, so that one loss does not change the next."""
    for optimizer in algorithm.optimizers.values():
        optimizer.param_groups[0]["lr"] = 0.0


def updated(algorithm, batch):
    """Metrics of a first update on a batch, with a step size of 0."""
    made, model = begun(algorithm)
    standing_still(made)
    return made.update(model, batch)


@pytest.mark.parametrize("algorithm", ALL)
def test_replay_is_uniform_and_without_weights_unless_it_is_prioritized(algorithm):
    made, _ = begun(algorithm)
    assert made.sampler() == Uniform() and made.beta(0.5) is None


@pytest.mark.parametrize("algorithm", ALL)
def test_prioritized_replay_has_weights_by_the_largest_in_the_batch_of_an_exponent_that_rises_to_its_end(algorithm):
    made, _ = begun(algorithm, prioritized=True, priority_alpha=0.7, priority_beta=0.5, priority_beta_final=0.9)
    assert made.sampler() == Prioritized(0.7, 0.5, normalize="batch")
    assert [made.beta(progress) for progress in (0.0, 0.5, 1.0)] == pytest.approx([0.5, 0.7, 0.9])


def test_an_algorithm_of_ones_own_from_replay_may_be_prioritized_too():
    class Own(ReplayAlgorithm):
        Config = PrioritizedReplayConfig

    made = make(Own, VECTOR, TORQUE, prioritized=True, priority_alpha=0.7, priority_beta=0.5)
    assert made.sampler() == Prioritized(0.7, 0.5, normalize="batch")
    assert made.beta(1.0) == 1.0
    assert make(Own, VECTOR, TORQUE).sampler() == Uniform()


def test_only_settings_of_prioritized_replay_have_priorities():
    made = make(ReplayAlgorithm, VECTOR, TORQUE)
    assert made.sampler() == Uniform() and made.beta(0.5) is None
    with pytest.raises(ConfigError, match="unknown setting 'prioritized'"):
        make(ReplayAlgorithm, VECTOR, TORQUE, prioritized=True)


@pytest.mark.parametrize("algorithm", [DDPG, TD3, SAC, TQC])
def test_weights_multiply_each_transitions_loss_and_not_the_error_in_it(algorithm):
    """Of two terminated transitions, weights 1 and 0.25: (L_1 + 0.25 L_2) / 2. Targets are rewards, without noise."""
    batch = random_transitions(TORQUE, size=2)
    batch.discount.zero_()
    fields = ("obs", "next_obs", "action", "reward", "discount", "weights")
    rows = [dataclasses.replace(batch, **{name: getattr(batch, name)[i : i + 1] for name in fields}) for i in (0, 1)]
    losses = [updated(algorithm, row)[1]["critic_loss"].item() for row in rows]
    weighted = dataclasses.replace(batch, weights=torch.tensor([1.0, 0.25]))
    found = updated(algorithm, weighted)[1]["critic_loss"].item()
    assert found == pytest.approx((losses[0] + 0.25 * losses[1]) / 2, rel=1e-5)
    assert abs(losses[0] - losses[1]) > 0.01


@pytest.mark.parametrize("algorithm", ALL)
def test_weights_apply_to_the_critics_loss_alone(algorithm):
    batch = random_transitions(TORQUE)
    error, plain = updated(algorithm, batch)
    same, weighted = updated(algorithm, dataclasses.replace(batch, weights=torch.full((16,), 0.5)))
    assert torch.equal(error, same)
    assert weighted["critic_loss"].item() == pytest.approx(0.5 * plain["critic_loss"].item(), rel=1e-5)
    assert {name for name in plain if not torch.equal(plain[name], weighted[name])} == {"critic_loss"}


@pytest.mark.parametrize("algorithm", ALL)
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"priority_alpha": -0.1}, "priority_alpha=-0.1 is not legal"),
        ({"priority_beta": 1.5}, "priority_beta=1.5 is not legal"),
        ({"priority_beta_final": -1.0}, "priority_beta_final=-1.0 is not legal"),
    ],
)
def test_illegal_settings_are_named(algorithm, settings, message):
    with pytest.raises(ConfigError) as refusal:
        begun(algorithm, **settings)
    assert message in str(refusal.value)
