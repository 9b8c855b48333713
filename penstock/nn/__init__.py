"""Networks: encoders, memory cores, action distributions, and the agents' networks made of them."""

from penstock.nn.batch_renorm import NormalizedActorCritic
from penstock.nn.bodies import BodyActorCritic, BodyConfig
from penstock.nn.continuous import DeterministicActorCritic, StochasticActorCritic
from penstock.nn.distributions import (
    ILLEGAL,
    Categorical,
    DiagonalGaussian,
    Distribution,
    Joint,
    MultiCategorical,
    SquashedGaussian,
    distribution_of,
    legal_values,
    num_parameters,
    numbers_of,
    recorded_distribution,
)
from penstock.nn.encoders import EncoderError, ResNetShape, build_encoder
from penstock.nn.exploration import Deterministic, TanhGaussian, uniform_action
from penstock.nn.memory import MemoryCore
from penstock.nn.model import ActorCritic, NetworkConfig
from penstock.nn.modes import buffer_in, evaluating, foreign_buffers, put_buffer, training_mode
from penstock.nn.noisy import NoisyLinear
from penstock.nn.norms import update_moments
from penstock.nn.observations import RunningMoments
from penstock.nn.policy_network import Choice, PolicyNetwork
from penstock.nn.q_network import EpsilonGreedy, NoisyGreedy, QNetwork
from penstock.nn.return_distributions import CategoricalReturns, ImplicitQuantileReturns, QuantileReturns
from penstock.nn.sharing import Group, GroupBroken, average_gradients_, leave_group, share_rows_, sharing
from penstock.nn.weights import WeightsLayout, flatten_, joined, joined_if_adjacent, place_, places_in, stretch_of

__all__ = [
    "ILLEGAL",
    "ActorCritic",
    "BodyActorCritic",
    "BodyConfig",
    "Categorical",
    "CategoricalReturns",
    "Choice",
    "Deterministic",
    "DeterministicActorCritic",
    "DiagonalGaussian",
    "Distribution",
    "EncoderError",
    "EpsilonGreedy",
    "Group",
    "GroupBroken",
    "ImplicitQuantileReturns",
    "Joint",
    "MemoryCore",
    "MultiCategorical",
    "NetworkConfig",
    "NoisyGreedy",
    "NoisyLinear",
    "NormalizedActorCritic",
    "PolicyNetwork",
    "QNetwork",
    "QuantileReturns",
    "ResNetShape",
    "RunningMoments",
    "SquashedGaussian",
    "StochasticActorCritic",
    "TanhGaussian",
    "WeightsLayout",
    "average_gradients_",
    "buffer_in",
    "build_encoder",
    "distribution_of",
    "evaluating",
    "flatten_",
    "foreign_buffers",
    "joined",
    "joined_if_adjacent",
    "leave_group",
    "legal_values",
    "num_parameters",
    "numbers_of",
    "place_",
    "places_in",
    "put_buffer",
    "recorded_distribution",
    "share_rows_",
    "sharing",
    "stretch_of",
    "training_mode",
    "uniform_action",
    "update_moments",
]
