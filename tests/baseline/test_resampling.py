"""The intervals are as wide as they have to be."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xpu_triage.baseline.resampling import (
    MIN_REQUESTS,
    OVERLAP,
    RUN_TO_RUN,
    Difference,
    Estimate,
    block_length,
    difference,
    mean_difference,
    middle_half,
    rate,
    t_quantile,
    typical,
)


@pytest.mark.parametrize(("p", "df", "value"), [  # from printed tables of Student's t
    (0.975, 1, 12.706), (0.975, 2, 4.303), (0.975, 10, 2.228), (0.995, 4, 4.604), (0.995, 5, 4.032),
    (0.9995, 5, 6.869), (0.9995, 30, 3.646), (0.9995, 60, 3.460), (0.95, 120, 1.658),
])
def test_quantiles_are_those_of_the_tables(p, df, value):
    assert t_quantile(p, df) == pytest.approx(value, abs=5e-4)


def test_degrees_of_freedom_are_rounded_to_the_wider_interval():
    assert t_quantile(0.99, 4.9) == t_quantile(0.99, 4) > t_quantile(0.99, 5)
    assert t_quantile(0.99, 0.3) == t_quantile(0.99, 1)
    assert t_quantile(0.975, 1e9) == pytest.approx(1.97, abs=0.005)  # of 200, above the normal's 1.96


def test_the_middle_half_is_its_mean():
    assert middle_half(np.array([9.0, 1, 2, 3, 4, 5, 6, 7, 8, 1000, -50, 5])) == pytest.approx(5.0)  # 3 4 5 5 6 7
    assert middle_half(np.array([1.0, 2.0, 6.0])) == pytest.approx(3.0)  # fewer than four: all


def test_a_quarter_of_the_requests_may_be_anything():
    rng = np.random.default_rng(1)
    calm = rng.lognormal(3, 0.1, 200)
    wild = np.concatenate([calm[:160], np.full(40, 1e6)])  # a fifth
    assert math.exp(typical(wild, 6).log) == pytest.approx(math.exp(typical(calm, 6).log), rel=0.06)


def test_the_standard_error_of_independent_requests_is_that_of_theory():
    """Of normal data: the influence function of a 25 % trimmed mean gives a variance of 1.195 σ² ÷ n."""
    rng = np.random.default_rng(2)
    errors = [typical(rng.lognormal(2, 0.2, 400), 8).se for _ in range(40)]
    assert np.mean(errors) == pytest.approx(0.2 * math.sqrt(1.195 / 400), rel=0.08)


def test_requests_that_share_their_luck_count_for_less():
    """400 requests in 25 waves of 16 are as good as 25. Blocks of two waves see 1 − 1 ÷ 6 of the variance."""
    found, alone = [], []
    for seed in range(20):
        waves = np.repeat(np.random.default_rng(seed).normal(0, 0.1, 25), 16)
        found.append(typical(np.exp(2 + waves), block_length(400, 16)))
        alone.append(typical(np.exp(2 + waves), 1).se)
    assert np.mean([one.se for one in found]) == pytest.approx(0.1 * math.sqrt(1.195 / 25 * 5 / 6), rel=0.15)
    assert np.mean([one.se for one in found]) > 3 * np.mean(alone)
    assert found[0].df == pytest.approx(OVERLAP * (400 / 32 - 1))


@pytest.mark.parametrize(("requests", "concurrency", "block"), [
    (200, None, 6),  # ⌈200^⅓⌉
    (200, 1, 6), (200, 8, 16), (200, 64, 33), (12, 64, 2), (5, 8, 1), (1000, 6.3, 13),
])
def test_blocks_hold_the_requests_in_flight_and_leave_six(requests, concurrency, block):
    assert block_length(requests, concurrency) == block


def test_too_few_requests_have_no_interval():
    values = np.linspace(1, 2, MIN_REQUESTS)
    assert typical(values[:-1], 1) is None
    assert typical(values, 1) is not None


def test_the_same_requests_give_the_same_interval():
    values = np.random.default_rng(4).lognormal(0, 1, 50)
    assert typical(values, 5) == typical(values, 5)


def test_many_requests_are_drawn_in_pieces():
    values = np.random.default_rng(5).lognormal(0, 0.5, 30_000)
    assert typical(values, 32).se == pytest.approx(0.5 * math.sqrt(1.195 / 30_000), rel=0.2)


def test_a_rate_is_of_sums():
    tokens, times = np.full(20, 64.0), np.linspace(500.0, 1500.0, 20)
    assert math.exp(rate(tokens, times, 1).log) == pytest.approx(0.064)


def test_a_ratio_is_a_difference_of_logarithms():
    found = difference(Estimate(math.log(100), 0.03, 10), Estimate(math.log(120), 0.04, 10))
    assert math.exp(found.log) == pytest.approx(1.2)
    assert found.se == pytest.approx(0.05)
    # Welch and Satterthwaite: (9 + 16)² ÷ (9² ÷ 10 + 16² ÷ 10) = 625 ÷ 33.7
    assert found.df == pytest.approx(18.55, abs=0.01)
    low, high = found.within(0.05)
    half = 2.101 * math.hypot(0.05, RUN_TO_RUN * math.sqrt(2))  # t(0.975, 18)
    assert (math.log(low), math.log(high)) == pytest.approx((math.log(1.2) - half, math.log(1.2) + half), abs=1e-4)


def test_blocks_that_begin_anywhere_have_no_fewer_degrees_of_freedom_than_are_counted():
    """The spread of a variance over 300 runs is its degrees of freedom: 2 · mean² ÷ variance. Independent requests."""
    rng = np.random.default_rng(6)
    found = [typical(rng.lognormal(0, 0.1, 200), 33) for _ in range(300)]
    variances = np.array([one.se ** 2 for one in found])
    assert 2 * variances.mean() ** 2 / variances.var() > found[0].df == pytest.approx(1.25 * (200 / 33 - 1))


def test_two_runs_without_noise_still_differ_by_what_runs_differ():
    assert difference(Estimate(0.0, 0.0, 30), Estimate(0.0, 0.0, 30)).half(0.05) == pytest.approx(
        RUN_TO_RUN * math.sqrt(2) * t_quantile(0.975, 60))


def test_the_mean_over_loads_is_surer_than_each():
    mean = mean_difference([Difference(0.1, 0.04, 20), Difference(0.2, 0.04, 20), Difference(0.3, 0.04, 20)])
    assert mean.log == pytest.approx(0.2)
    assert mean.se == pytest.approx(0.04 / math.sqrt(3))
    assert mean.df == pytest.approx(60)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.floats(0.01, 1e6), min_size=12, max_size=60), st.floats(0.01, 100), st.integers(1, 10))
def test_a_unit_changes_nothing_but_the_value(values, factor, block):
    block = min(block, len(values) // 6)
    one, other = typical(np.array(values), block), typical(np.array(values) * factor, block)
    assert other.log - one.log == pytest.approx(math.log(factor), abs=1e-6)
    assert other.se == pytest.approx(one.se, abs=1e-6)


@settings(deadline=None, max_examples=40)
@given(st.floats(-2, 2), st.floats(0, 1), st.floats(3, 300), st.floats(1e-3, 0.5))
def test_an_interval_holds_its_ratio_and_grows_with_what_is_asked_of_it(log, se, df, level):
    low, high = Difference(log, se, df).within(level)
    wider = Difference(log, se, df).within(level / 10)
    assert wider[0] < low < math.exp(log) < high < wider[1]
