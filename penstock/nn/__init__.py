"""Networks: encoders, memory cores, action distributions, and the actor-critic made of them."""

from penstock.nn.distributions import Categorical, DiagonalGaussian, Distribution, distribution_class
from penstock.nn.encoders import EncoderError, build_encoder
from penstock.nn.memory import MemoryCore
from penstock.nn.model import ActorCritic, NetworkConfig
from penstock.nn.normalization import RunningMoments
from penstock.nn.weights import WeightsLayout, flatten_

__all__ = [
    "ActorCritic",
    "Categorical",
    "DiagonalGaussian",
    "Distribution",
    "EncoderError",
    "MemoryCore",
    "NetworkConfig",
    "RunningMoments",
    "WeightsLayout",
    "build_encoder",
    "distribution_class",
    "flatten_",
]
