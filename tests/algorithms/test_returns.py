"""Returns against golden numbers, against slow explicit sums, and against their on-policy values.

Golden data G1: T=3, gamma=0.9, r=[1, 2, 3], V=[0.5, 1, 1.5] and 2 behind the last step.
By hand, on-policy with lambda 1: v_2 = 3 + 0.9*2 = 4.8, v_1 = 2 + 0.9*4.8 = 6.32, v_0 = 1 + 0.9*6.32 = 6.688.
"""

import math

import pytest
import torch

from penstock.algorithms.arithmetic.returns import explained_variance, gae, lambda_return, vtrace

GAMMA = 0.9
REWARD = [1.0, 2.0, 3.0]
VALUE = [0.5, 1.0, 1.5, 2.0]


def column(numbers, dtype=torch.float64):
    return torch.tensor(numbers, dtype=dtype).unsqueeze(-1)


def flags(*set_at, length=3):
    return column([t in set_at for t in range(length)], torch.bool)


def g1(estimator, *, value=VALUE, terminated=(), truncated=(), ratios=None, **settings):
    ratio_columns = () if ratios is None else (column([math.log(ratio) for ratio in ratios]),)
    boundaries = flags(*terminated), flags(*truncated)
    results = estimator(column(REWARD), column(value), *boundaries, *ratio_columns, gamma=GAMMA, **settings)
    return [result.squeeze(-1).tolist() for result in results]


def with_final_row():
    """G1 cut after t=1 where the final observation is worth 4: four rows, of which row 2 is the final row."""
    return {
        "reward": column([1.0, 2.0, 0.0, 3.0]),
        "value": column([0.5, 1.0, 4.0, 1.5, 2.0]),
        "terminated": flags(length=4),
        "truncated": flags(1, length=4),
        "valid": ~flags(2, length=4),
        "gamma": GAMMA,
    }


ON_POLICY = [1.0, 1.0, 1.0]
OFF_POLICY = [0.5, 2.0, 1.0]


@pytest.mark.parametrize(
    ("case", "target", "advantage"),
    [
        pytest.param({"ratios": ON_POLICY}, [6.688, 6.32, 4.8], [6.188, 5.32, 3.3], id="a: on-policy"),
        pytest.param({"ratios": ON_POLICY, "terminated": (1,)}, [2.8, 2.0, 4.8], [2.3, 1.0, 3.3], id="b: terminated"),
        pytest.param({"ratios": OFF_POLICY}, [3.594, 6.32, 4.8], [3.094, 5.32, 3.3], id="d: off-policy"),
        pytest.param(
            {"ratios": OFF_POLICY, "rho_bar": 2.0}, [4.6515, 8.67, 4.8], [4.1515, 5.32, 3.3], id="e: rho_bar 2"
        ),
        pytest.param(
            {"ratios": ON_POLICY, "lambda_": 0.95},
            [6.3216325, 6.1715, 4.8],
            [5.8216325, 5.1715, 3.3],
            id="f: lambda 0.95",
        ),
    ],
)
def test_vtrace_gives_the_golden_numbers(case, target, advantage):
    found_target, found_advantage = g1(vtrace, **case)
    assert found_target == pytest.approx(target, abs=1e-12)
    assert found_advantage == pytest.approx(advantage, abs=1e-12)


def test_vtrace_bootstraps_a_truncated_step_from_its_final_row_and_cuts_the_trace():
    """Golden row c: V(final observation) = 4, so v_1 = 2 + 0.9*4 and nothing of the next episode reaches back."""
    segment = with_final_row()
    target, advantage = vtrace(**segment, log_ratio=torch.zeros(4, 1, dtype=torch.float64))
    steps = segment["valid"]
    assert target[steps].tolist() == pytest.approx([6.04, 5.6, 4.8], abs=1e-12)
    assert advantage[steps].tolist() == pytest.approx([5.54, 4.6, 3.3], abs=1e-12)


def test_vtrace_does_not_fake_the_bootstrap_from_the_last_value():
    """Golden row g: (V_2 - r_2) / gamma in place of V(o_3) makes the last step teach nothing. Ours must differ."""
    faked = [*VALUE[:3], (VALUE[2] - REWARD[2]) / GAMMA]
    fake_target, fake_advantage = g1(vtrace, ratios=ON_POLICY, value=faked)
    assert fake_target == pytest.approx([4.015, 3.35, 1.5], abs=1e-12)
    assert fake_advantage == pytest.approx([3.515, 2.35, 0.0], abs=1e-12)

    target, advantage = g1(vtrace, ratios=ON_POLICY)
    for ours, fake in zip(target + advantage, fake_target + fake_advantage, strict=True):
        assert abs(ours - fake) > 1.0


@pytest.mark.parametrize(
    ("lambda_", "terminated", "expected"),
    [
        (1.0, (), [6.688, 6.32, 4.8]),  # golden row a: 1 + 0.9 (2 + 0.9 (3 + 0.9 * 2))
        (0.95, (), [6.3216325, 6.1715, 4.8]),  # golden row f
        (0.0, (), [1.9, 3.35, 4.8]),  # one step: r_t + 0.9 V_t+1
        (1.0, (1,), [2.8, 2.0, 4.8]),  # golden row b
    ],
)
def test_lambda_returns_have_the_golden_numbers(lambda_, terminated, expected):
    found = lambda_return(column(REWARD), column(VALUE), flags(*terminated), flags(), gamma=GAMMA, lambda_=lambda_)
    assert found.flatten().tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("lambda_", "advantage"),
    [(1.0, [6.188, 5.32, 3.3]), (0.95, [5.8216325, 5.1715, 3.3]), (0.0, [1.4, 2.35, 3.3])],
)
def test_gae_gives_the_golden_numbers(lambda_, advantage):
    found, target = g1(gae, lambda_=lambda_)
    assert found == pytest.approx(advantage, abs=1e-12)
    assert target == pytest.approx([a + v for a, v in zip(advantage, VALUE, strict=False)], abs=1e-12)


def test_gae_bootstraps_after_truncation_and_not_after_termination():
    ended, _ = g1(gae, lambda_=1.0, terminated=(1,))
    assert ended == pytest.approx([2.3, 1.0, 3.3], abs=1e-12)
    segment = with_final_row()
    cut, _ = gae(**segment, lambda_=1.0)
    assert cut[segment["valid"]].tolist() == pytest.approx([5.54, 4.6, 3.3], abs=1e-12)


def test_a_step_that_is_both_terminated_and_truncated_is_terminated():
    both, _ = g1(gae, lambda_=0.9, terminated=(1,), truncated=(1,))
    assert both == g1(gae, lambda_=0.9, terminated=(1,))[0]


# --- random segments -------------------------------------------------------------------------------------------------

SEGMENTS = [(1, 1), (2, 3), (7, 5), (16, 4)]
SEEDS = range(4)


def random_segment(steps, batch, seed):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def happens(probability):
        return torch.rand(steps, batch, generator=generator) < probability

    segment = {
        "reward": normal(steps, batch),
        "value": normal(steps + 1, batch),
        "terminated": happens(0.15),
        "truncated": happens(0.15),
        "valid": ~happens(0.2),
    }
    return segment, torch.rand(steps, batch, generator=generator, dtype=torch.float64) * 5.0 - 2.5


def trace_goes_on(segment, t, b):
    boundary = segment["terminated"][t, b] or segment["truncated"][t, b]
    return t + 1 < len(segment["reward"]) and not boundary and bool(segment["valid"][t + 1, b])


def difference(segment, t, b, gamma):
    discount = gamma * (1.0 - float(segment["terminated"][t, b]))
    return float(segment["reward"][t, b] + discount * segment["value"][t + 1, b] - segment["value"][t, b])


def explicit_sum(segment, t, b, weight, decay, gamma):
    """Weighted temporal differences from ``t`` to the end of the trace, each times the product of decays before it."""
    total, product, s = 0.0, 1.0, t
    while True:
        total += product * weight(s, b) * difference(segment, s, b, gamma)
        if not trace_goes_on(segment, s, b):
            return total
        product *= decay(s, b)
        s += 1


def valid_rows(segment):
    return [(t, b) for t, b in segment["valid"].nonzero().tolist()]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("steps", "batch"), SEGMENTS)
def test_gae_is_the_explicit_sum_of_discounted_errors(steps, batch, seed):
    segment, _ = random_segment(steps, batch, seed)
    advantage, target = gae(**segment, gamma=0.97, lambda_=0.9)
    for t, b in valid_rows(segment):
        expected = explicit_sum(segment, t, b, lambda s, b: 1.0, lambda s, b: 0.97 * 0.9, 0.97)
        assert advantage[t, b].item() == pytest.approx(expected, abs=1e-12)
        assert target[t, b].item() == pytest.approx(expected + segment["value"][t, b].item(), abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("lambda_", [0.0, 0.65, 1.0])
@pytest.mark.parametrize(("steps", "batch"), SEGMENTS)
def test_lambda_returns_are_the_recursion_of_their_definition(steps, batch, seed, lambda_):
    segment, _ = random_segment(steps, batch, seed)
    found = lambda_return(**segment, gamma=0.9, lambda_=lambda_)
    for t, b in valid_rows(segment):
        following = segment["value"][t + 1, b]
        if trace_goes_on(segment, t, b):
            following = lambda_ * found[t + 1, b] + (1.0 - lambda_) * following
        discount = 0.0 if segment["terminated"][t, b] else 0.9
        assert found[t, b].item() == pytest.approx((segment["reward"][t, b] + discount * following).item(), abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("rho_bar", "c_bar", "rho_pg_bar", "lambda_"), [(1, 1, 1, 1), (2.5, 1.2, 0.7, 0.8)])
@pytest.mark.parametrize(("steps", "batch"), SEGMENTS)
def test_vtrace_is_the_explicit_sum_with_products_of_clipped_ratios(
    steps, batch, rho_bar, c_bar, rho_pg_bar, lambda_, seed
):
    segment, log_ratio = random_segment(steps, batch, seed)
    gamma, ratio, value = 0.97, log_ratio.exp(), segment["value"]
    target, advantage = vtrace(
        **segment,
        log_ratio=log_ratio,
        gamma=gamma,
        lambda_=lambda_,
        rho_bar=rho_bar,
        c_bar=c_bar,
        rho_pg_bar=rho_pg_bar,
    )

    def expected_target(t, b):
        correction = explicit_sum(
            segment,
            t,
            b,
            lambda s, b: min(rho_bar, ratio[s, b].item()),
            lambda s, b: gamma * lambda_ * min(c_bar, ratio[s, b].item()),
            gamma,
        )
        return value[t, b].item() + correction

    for t, b in valid_rows(segment):
        following = value[t + 1, b].item()
        if trace_goes_on(segment, t, b):
            following = lambda_ * expected_target(t + 1, b) + (1 - lambda_) * following
        discount = gamma * (1.0 - float(segment["terminated"][t, b]))
        error = segment["reward"][t, b].item() + discount * following - value[t, b].item()
        assert target[t, b].item() == pytest.approx(expected_target(t, b), abs=1e-12)
        assert advantage[t, b].item() == pytest.approx(min(rho_pg_bar, ratio[t, b].item()) * error, abs=1e-12)


@pytest.mark.parametrize("lambda_", [0.0, 0.6, 1.0])
def test_on_policy_the_vtrace_advantage_is_gae(lambda_):
    segment, log_ratio = random_segment(12, 6, seed=1)
    target, advantage = vtrace(**segment, log_ratio=torch.zeros_like(log_ratio), gamma=0.95, lambda_=lambda_)
    expected_advantage, expected_target = gae(**segment, gamma=0.95, lambda_=lambda_)
    torch.testing.assert_close(advantage, expected_advantage, rtol=0, atol=1e-12)
    torch.testing.assert_close(target, expected_target, rtol=0, atol=1e-12)


def test_on_policy_with_lambda_one_the_vtrace_target_is_the_return():
    segment, log_ratio = random_segment(10, 4, seed=2)
    target, _ = vtrace(**segment, log_ratio=torch.zeros_like(log_ratio), gamma=0.95)
    for t, b in valid_rows(segment):
        total, discount, s = segment["reward"][t, b].item(), 0.95, t
        while trace_goes_on(segment, s, b):
            s += 1
            total += discount * segment["reward"][s, b].item()
            discount *= 0.95
        if not segment["terminated"][s, b]:
            total += discount * segment["value"][s + 1, b].item()
        assert target[t, b].item() == pytest.approx(total, abs=1e-12)


def test_permuting_lanes_permutes_results():
    segment, log_ratio = random_segment(9, 6, seed=3)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    permuted = {name: tensor[:, order] for name, tensor in segment.items()}
    for one, other in zip(
        (*vtrace(**segment, log_ratio=log_ratio, gamma=0.9), *gae(**segment, gamma=0.9, lambda_=0.9)),
        (*vtrace(**permuted, log_ratio=log_ratio[:, order], gamma=0.9), *gae(**permuted, gamma=0.9, lambda_=0.9)),
        strict=True,
    ):
        assert torch.equal(one[:, order], other)


def test_a_segment_with_a_final_row_and_padding_equals_its_episodes_apart():
    generator = torch.Generator().manual_seed(5)

    def normal(length):
        return torch.randn(length, 1, generator=generator, dtype=torch.float64)

    # Episode one: 3 steps, cut by a time limit. Episode two: 2 steps, the segment ends before it does.
    rewards, values, log_ratios = (normal(3), normal(2)), (normal(4), normal(3)), (normal(3), normal(2))
    nothing = torch.full((1, 1), torch.nan, dtype=torch.float64)
    together = {
        "reward": torch.cat((rewards[0], nothing, rewards[1], nothing)),
        "value": torch.cat((values[0], values[1], nothing)),
        "terminated": flags(length=7),
        "truncated": flags(2, length=7),
        "valid": ~flags(3, 6, length=7),
    }
    log_ratio = torch.cat((log_ratios[0], nothing, log_ratios[1], nothing))

    def apart(estimator, **settings):
        results = []
        for i, length in enumerate((3, 2)):
            boundaries = {"terminated": flags(length=length), "truncated": flags(length=length)}
            off_policy = {"log_ratio": log_ratios[i]} if estimator is vtrace else {}
            results.append(
                estimator(rewards[i], values[i], **boundaries, **off_policy, gamma=0.9, lambda_=0.8, **settings)
            )
        return [torch.cat(pair) for pair in zip(*results, strict=True)]

    steps = together["valid"]
    for found, expected in zip(
        (*gae(**together, gamma=0.9, lambda_=0.8), *vtrace(**together, log_ratio=log_ratio, gamma=0.9, lambda_=0.8)),
        (*apart(gae), *apart(vtrace)),
        strict=True,
    ):
        torch.testing.assert_close(found[steps], expected.squeeze(-1), rtol=0, atol=1e-12)


def test_an_invalid_row_has_advantage_zero_and_its_own_value_as_target():
    segment = with_final_row()
    advantage, target = gae(**segment, lambda_=0.9)
    assert advantage[2].item() == 0.0
    assert target[2].item() == 4.0


def test_extreme_log_ratios_stay_finite():
    segment, log_ratio = random_segment(6, 3, seed=4)
    extreme = log_ratio.sign() * 1e4
    clipped = log_ratio.sign() * 20.0
    unbounded = {"rho_bar": math.inf, "c_bar": 1.0, "rho_pg_bar": math.inf, "gamma": 0.9}
    for result, expected in zip(
        vtrace(**segment, log_ratio=extreme, **unbounded),
        vtrace(**segment, log_ratio=clipped, **unbounded),
        strict=True,
    ):
        assert result.isfinite().all()
        assert torch.equal(result, expected)


def test_results_carry_no_gradient_and_leave_their_inputs_alone():
    segment, log_ratio = random_segment(6, 3, seed=6)
    inputs = [*segment.values(), log_ratio]
    before = [tensor.clone() for tensor in inputs]
    segment["value"].requires_grad_()
    log_ratio.requires_grad_()
    for result in (*gae(**segment, gamma=0.9, lambda_=0.9), *vtrace(**segment, log_ratio=log_ratio, gamma=0.9)):
        assert not result.requires_grad
    for tensor, copy in zip(inputs, before, strict=True):
        assert torch.equal(tensor, copy)


def test_shapes_that_do_not_belong_together_are_named():
    segment, log_ratio = random_segment(6, 3, seed=7)
    with pytest.raises(ValueError, match=r"value has shape \(6, 3\) but reward \(6, 3\).*one more row"):
        gae(**{**segment, "value": segment["value"][:-1]}, gamma=0.9, lambda_=0.9)
    with pytest.raises(ValueError, match=r"log_ratio has shape \(5, 3\)"):
        vtrace(**segment, log_ratio=log_ratio[:-1], gamma=0.9)
    with pytest.raises(ValueError, match=r"reward has shape \(6,\).*time-major"):
        gae(**{**segment, "reward": segment["reward"][:, 0]}, gamma=0.9, lambda_=0.9)


def test_explained_variance_is_one_for_perfect_values_and_zero_for_a_constant():
    target = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert explained_variance(target, target).item() == 1.0
    assert explained_variance(torch.full((4,), 7.0), target).item() == 0.0
    # Errors -1, 1, -1, 1 have variance 1, the targets 1.25.
    assert explained_variance(torch.tensor([2.0, 1.0, 4.0, 3.0]), target).item() == pytest.approx(0.2)


def test_explained_variance_looks_at_valid_rows_only():
    value, target = torch.tensor([1.0, 2.0, torch.nan]), torch.tensor([1.0, 2.0, 9.0])
    assert explained_variance(value, target, torch.tensor([True, True, False])).item() == 1.0


def test_explained_variance_of_targets_that_do_not_vary_is_nan():
    assert explained_variance(torch.arange(3.0), torch.ones(3)).isnan()
    assert explained_variance(torch.ones(2), torch.ones(2), torch.zeros(2, dtype=torch.bool)).isnan()
