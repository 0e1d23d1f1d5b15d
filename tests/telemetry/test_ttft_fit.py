"""TTFT = a + b·L + c·L²: coefficients found again, errors that cover, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xpu_triage.telemetry.ttft_fit import CannotFitError, fit_ttft

LENGTHS = np.repeat([512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0], 8)


def times(a: float, b: float, c: float, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    exact = a + b * LENGTHS + c * LENGTHS**2
    return exact * (1 + noise * np.random.default_rng(seed).standard_normal(len(LENGTHS)))


def test_eight_times_the_prompt_is_sixty_four_times_the_square() -> None:
    # the public arithmetic: 4,096 ÷ 512 = 8, 8² = 64
    fit = fit_ttft(LENGTHS, times(30, 0.1, 2e-6))
    assert fit.quadratic_ms(4096) / fit.quadratic_ms(512) == pytest.approx(64)
    assert (fit.a, fit.b, fit.c) == (pytest.approx(30), pytest.approx(0.1), pytest.approx(2e-6))
    # at 16,384: 30 + 1,638.4 + 536.9 = 2,205.3; the square is 24.3 %
    assert fit.quadratic_share(16384) == pytest.approx(536.87 / 2205.27, abs=1e-4)
    assert fit.at(1000) == pytest.approx(132)


@settings(max_examples=40, deadline=None)
@given(st.floats(1, 1e4), st.floats(1e-3, 10), st.floats(0, 1e-3))
def test_exact_times_give_their_coefficients(a: float, b: float, c: float) -> None:
    fit = fit_ttft(LENGTHS, times(a, b, c))
    for length in (512, 3000, 16384):
        assert fit.at(length) == pytest.approx(a + b * length + c * length**2, rel=1e-6)
    assert fit.c == pytest.approx(c, rel=1e-4, abs=1e-7 * (a + b * 16384) / 512)


def test_errors_cover_the_truth_as_often_as_they_say() -> None:
    # 200 noisy runs: two standard errors hold the truth in 95 of 100, 190; outside 178 to 199 once in 1,000
    fits = [fit_ttft(LENGTHS, times(40, 0.1, 5e-6, noise=0.05, seed=run), seed=9000 + run) for run in range(200)]
    assert 178 <= sum(abs(fit.c - 5e-6) <= 2 * fit.c_error for fit in fits) <= 199
    assert np.median([fit.spread for fit in fits]) == pytest.approx(0.05, rel=0.1)


def test_a_square_is_claimed_only_where_there_is_one() -> None:
    # without one, 2.5 of 100 are expected: 10 of 400; more than 21 once in 1,000
    there, none = ([fit_ttft(LENGTHS, times(40, 0.1, c, 0.03, run), seed=9000 + run).has_quadratic
                    for run in range(runs)] for c, runs in ((5e-6, 50), (0.0, 400)))
    assert all(there)
    assert sum(none) <= 21
    assert "cannot be told from the noise" in fit_ttft(LENGTHS, times(40, 0.1, 0.0, 0.03, 5), seed=1).words


def test_a_first_request_that_compiles_does_not_bend_the_curve() -> None:
    slow = times(40, 0.1, 5e-6, 0.01)
    slow[0] += 20_000
    assert fit_ttft(LENGTHS, slow).c == pytest.approx(5e-6, rel=0.1)


def test_the_same_points_give_the_same_errors() -> None:
    noisy = times(40, 0.1, 5e-6, 0.05)
    first, second = fit_ttft(LENGTHS, noisy, seed=3), fit_ttft(LENGTHS, noisy, seed=3)
    assert (first.a_error, first.c_error, first.share_interval(4096)) == (
        second.a_error, second.c_error, second.share_interval(4096))
    low, high = first.share_interval(16384)
    assert low < first.quadratic_share(16384) < high


@pytest.mark.parametrize(("tokens", "why"), [
    ([], "0 requests"), ([100, 200, 400, 800, 1600], "5 requests"), ([500] * 20, "prompts of 1 length:"),
    ([500] * 10 + [4000] * 10, "prompts of 2 lengths"), ([500, 600, 700, 800, 900, 1000], "has to be 4 times"),
    ([500, 501, 502, 4000, 4001, 4002], "none between"), ([float("nan")] * 10, "0 requests"),
    ([0.0] * 10, "0 requests"), ([-5.0] * 10, "0 requests"), ([float("inf")] * 10, "0 requests")])
def test_lengths_that_do_not_spread_are_refused(tokens: list[float], why: str) -> None:
    with pytest.raises(CannotFitError, match=why):
        fit_ttft(tokens, [100.0] * len(tokens))


def test_zero_and_unknown_times_are_left_out() -> None:
    some = times(30, 0.1, 2e-6)
    some[::4] = 0.0
    some[1::4] = np.nan
    fit = fit_ttft(LENGTHS, some)
    assert (fit.points, fit.c) == (24, pytest.approx(2e-6))


def test_columns_of_different_lengths_and_falling_times_are_refused() -> None:
    with pytest.raises(CannotFitError, match="not of one number"):
        fit_ttft([1, 2, 3], [1, 2])
    with pytest.raises(CannotFitError, match="negative inside"):
        fit_ttft([100, 100, 300, 300, 900, 900], [900, 900, 1, 1, 900, 900])  # 1 ms at 300, below 0 from there on
