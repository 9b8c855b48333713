"""Algorithms declare the kinds of actions they choose; a refusal of others names algorithms that can."""

import pytest

from penstock.algorithms import ALGORITHMS, load_algorithm
from penstock.config import ConfigError
from penstock.envs.spaces import ActionSpec, ObservationSpec
from tests.nn.plain import CHOICE

OBSERVATION = ObservationSpec((3,), "float32")
CHOICES = ActionSpec((2,), "int64", nvec=(3, 4), starts=(0, 0))
NUMBERS = ActionSpec((2,), "float32", low=(-1.0,) * 2, high=(1.0,) * 2)
BOTH = ActionSpec((), "object", low=NUMBERS.low, high=NUMBERS.high, parts=(("gear", CHOICES), ("turn", NUMBERS)))


def made(name, action):
    algorithm = load_algorithm(name)
    return algorithm(algorithm.Config(env="any", num_workers=1), OBSERVATION, action)


@pytest.mark.parametrize("action", [CHOICE, CHOICES, NUMBERS, BOTH])
def test_algorithms_that_learn_from_segments_choose_any_action(action):
    for name in ("ppo", "appo"):
        assert made(name, action).action == action


@pytest.mark.parametrize(
    ("name", "action", "message"),
    [
        ("dqn", CHOICES, "dqn chooses discrete actions, .* are multi-discrete (choices among 3, 4): use "),
        ("apex", NUMBERS, "apex chooses discrete actions, .* are continuous (2 numbers): use "),
        ("sac", BOTH, "sac chooses continuous actions, .* are mixed (choices among 3, 4 and 2 numbers): use "),
        ("td3", CHOICE, "td3 chooses continuous actions, .* are discrete (3 of them): use "),
    ],
)
def test_actions_of_another_kind_are_refused_with_the_algorithms_that_choose_them(name, action, message):
    with pytest.raises(ConfigError, match=message.replace("(", r"\(").replace(")", r"\)")) as refusal:
        made(name, action)
    named = str(refusal.value).rpartition("use ")[2].replace(" or ", ", ").split(", ")
    assert named == [name for name in ALGORITHMS if action.kind in load_algorithm(name).actions]
