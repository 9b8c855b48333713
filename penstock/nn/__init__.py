"""Networks: encoders, memory cores, action distributions, and the agents' networks made of them."""

from penstock.nn.control import DeterministicActorCritic, StochasticActorCritic
from penstock.nn.distributions import (
    Categorical,
    Deterministic,
    DiagonalGaussian,
    Distribution,
    EpsilonGreedy,
    TanhGaussian,
    distribution_class,
    uniform_action,
)
from penstock.nn.encoders import EncoderError, build_encoder
from penstock.nn.memory import MemoryCore
from penstock.nn.model import ActorCritic, NetworkConfig
from penstock.nn.normalization import RunningMoments
from penstock.nn.policy_network import Choice, PolicyNetwork
from penstock.nn.q_network import QNetwork
from penstock.nn.weights import WeightsLayout, flatten_, joined, stretch_of

__all__ = [
    "ActorCritic",
    "Categorical",
    "Choice",
    "Deterministic",
    "DeterministicActorCritic",
    "DiagonalGaussian",
    "Distribution",
    "EncoderError",
    "EpsilonGreedy",
    "MemoryCore",
    "NetworkConfig",
    "PolicyNetwork",
    "QNetwork",
    "RunningMoments",
    "StochasticActorCritic",
    "TanhGaussian",
    "WeightsLayout",
    "build_encoder",
    "distribution_class",
    "flatten_",
    "joined",
    "stretch_of",
    "uniform_action",
]
