"""The warning about truncated episodes that lose their reward: not for those cut because they went well."""

import numpy as np
import pytest

from penstock.rudder.learning import Episode
from penstock.rudder.redistributor import CUT_EPISODES, Cuts


def episodes(*kinds):
    """Episodes of each kind: count, return, is_truncated."""
    nothing = np.empty(0)
    return [Episode(nothing, nothing, g, is_truncated=cut) for count, g, cut in kinds for _ in range(count)]


@pytest.mark.parametrize(
    ("kinds", "is_so"),
    [
        ([(100, 5.0, True)], True),  # returns after a cut are unknown
        ([(99, 5.0, True)], False),  # too few to say so
        ([(300, 10.0, False), (20, 0.0, True)], True),
        ([(300, 10.0, False), (19, 0.0, True)], False),
        ([(60, 0.0, True), (300, 10.0, False)], False),  # long ago
        ([(200, 20.0, False), (100, 500.0, True)], False),  # CartPole: all the last went well
        ([(200, 20.0, False), (100, 20.0, True)], True),
    ],
)
def test_truncations_cost_returns_where_many_of_the_last_episodes_returned_no_more_than_terminated_ones(kinds, is_so):
    cuts = Cuts()
    cuts.take(episodes(*kinds))
    assert cuts.cost_returns == is_so


def test_the_share_is_that_of_the_last_episodes():
    cuts = Cuts()
    assert cuts.share == 0.0
    cuts.take(episodes((50, 0.0, True), (CUT_EPISODES - 30, 0.0, False)))
    assert cuts.share == 0.3
