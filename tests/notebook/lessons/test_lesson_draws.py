"""The lesson's statistics: the exact distribution, the test itself, and that it sees what is bent."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sampler_reference import exact_distribution
from xpu_triage.notebook.lessons import draws, fit_table, spread_table
from xpu_triage.notebook.lessons.draws import Fit, Spread, chi_square, exact, fitted
from xpu_triage.sampling import Request

LOGITS = np.log([0.5, 0.3, 0.15, 0.05])


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, [0.5, 0.3, 0.15, 0.05]),
        ({"temperature": 0.5}, [0.6849, 0.2466, 0.0616, 0.0068]),  # squares: 0.25, 0.09, 0.0225, 0.0025
        ({"temperature": 0}, [1, 0, 0, 0]),
        ({"top_k": 2}, [0.625, 0.375, 0, 0]),
        ({"top_p": 0.79}, [0.625, 0.375, 0, 0]),
        ({"top_p": 0.81}, [0.5263, 0.3158, 0.1579, 0]),
        ({"min_p": 0.31}, [0.625, 0.375, 0, 0]),  # at least 0.155
        ({"top_k": 3, "top_p": 0.8}, [0.625, 0.375, 0, 0]),  # 0.8 of 0.95 is 0.76
    ],
    ids=str,
)
def test_the_exact_distribution_by_hand(parameters, expected):
    assert exact(LOGITS, Request("r", **parameters)) == pytest.approx(expected, abs=1e-4)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(-40, 40), min_size=2, max_size=30),
    st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    st.one_of(st.none(), st.integers(1, 30)),
    st.one_of(st.none(), st.floats(0.05, 0.99)),
    st.sampled_from([0.0, 0.03, 0.3]),
)
def test_the_exact_distribution_is_that_of_the_slow_reference(row, temperature, top_k, top_p, min_p):
    """Eighths as logits: equal ones are common, and float32 holds them exactly."""
    logits = torch.tensor(row) / 8
    request = Request("r", temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    found = exact(logits.double().numpy(), request)
    reference = exact_distribution(logits, request)
    assert found == pytest.approx([reference.get(i, 0.0) for i in range(len(row))], abs=1e-9)


def test_the_chi_square_matches_a_table():
    """Upper 5 % point for 9 degrees of freedom: 16.919."""
    shift = math.sqrt(16.919 * 1000 / 2)
    observed = np.array([1000 + shift, 1000 - shift, *[1000] * 8])
    statistic, freedom, p = chi_square(observed, np.full(10, 0.1))
    assert (statistic, freedom) == (pytest.approx(16.919), 9)
    assert p == pytest.approx(0.05, abs=2e-4)


def test_rare_tokens_are_put_together_and_certain_ones_need_no_test():
    """Of 100 draws 5 are expected only of the last three together: two cells, one degree of freedom."""
    observed = np.array([94, 2, 2, 2])
    assert chi_square(observed, np.array([0.94, 0.02, 0.02, 0.02]))[1] == 1
    assert chi_square(np.array([100, 0]), np.array([1.0, 0.0])) == (0.0, 0, 1.0)


def test_the_fixed_sampler_fits_and_a_bent_one_does_not():
    assert fitted("", draws.PLAIN, draws.fixed(draws.PLAIN), 50_000).right
    wrong = fitted("", draws.PLAIN, draws.fixed(Request("r", temperature=0.9)), 50_000)
    assert not wrong.right
    assert wrong.outside == 0


def test_a_draw_that_the_filter_drops_is_wrong_whatever_the_rest_says():
    loose = fitted("", Request("r", top_k=40), draws.fixed(draws.PLAIN), 50_000)
    assert loose.outside > 0
    assert not loose.right
    assert not Fit("", draws.PLAIN, 10, 1, 0.0, 1, 1.0).right


def test_fits_leave_the_threads_and_the_random_numbers_of_the_program_alone():
    torch.manual_seed(3)
    expected, threads = torch.rand(2), torch.get_num_threads()
    torch.manual_seed(3)
    draws.other_fits(10_000)
    assert torch.equal(torch.rand(2), expected)
    assert torch.get_num_threads() == threads


def test_the_table_says_which_are_bent():
    text = repr(fit_table(draws.other_fits()))
    assert [line.split()[-1] for line in text.splitlines()[1:4]] == ["asked", "asked", "bent"]


@pytest.mark.parametrize(
    ("first_part", "distinct", "right"),
    [(1 / 16, 128, True), (0.16, 128, True), (0.18, 128, False), (1.0, 128, False), (1 / 16, 100, False)],
)
def test_even_draws_lie_within_five_deviations_and_are_distinct(first_part, distinct, right):
    """√(15/256 ÷ 128) = 0.0214, so up to 0.0625 + 0.107 = 0.169."""
    assert Spread("", 128, distinct, first_part).right is right


def test_coarse_clamped_and_shared_noise_are_seen_over_a_wide_vocabulary():
    found = draws.spreads(rounds=1)
    assert [s.right for s in found] == [True, True, True, False, False, False]
    assert repr(spread_table(found)).count("bent") == 3
