"""bench/learning.py: reading the output of commands."""

import pytest

from bench.learning import scored

OF = "over 300 episodes (simple_spread_v3, weights of step 2,000,000, checkpoint 2000000)"


def test_one_policy_is_scored_by_what_it_returned():
    assert scored(f"mean return -11.40 +/- 3.20 {OF}\nagainst random as a: 3 won, mean return 7.0") == (-11.4, 3.2)
    assert scored(f"mean return -1,184.1 +/- 1,003.5 {OF}") == (-1184.1, 1003.5)
    assert scored("error: no run") is None


def test_several_policies_are_scored_as_all_their_episodes_together():
    mean, std = scored(f"0: mean return -10.0 +/- 3.0 {OF}\n0: against others as agent_0: mean return -10.0\n"
                       f"1: mean return -14.0 +/- 3.0 {OF}")  # fmt: skip
    assert mean == -12.0
    assert std == pytest.approx(13**0.5), "3 within each, 2 between them"
