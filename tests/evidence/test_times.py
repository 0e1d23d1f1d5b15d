"""Microseconds to nanoseconds: exact, against decimal arithmetic."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xpu_triage.evidence import times

LIMIT_NS = int(times.FLOAT_LIMIT_US) * 1000


@given(st.lists(st.integers(-LIMIT_NS + 1, LIMIT_NS - 1), min_size=1))
def test_a_float_below_the_limit_is_the_nanosecond_that_was_written(ns: list[int]) -> None:
    written = [float(Decimal(value) / 1000) for value in ns]
    got, usable = times.from_floats(np.array(written))
    assert got.tolist() == ns
    assert usable.all()
    assert [times.one(us) for us in written] == ns


def test_a_float_above_the_limit_would_not_be() -> None:
    """Why there is a limit: from 2**43 µs on two nanoseconds share a float."""
    assert float(Decimal(LIMIT_NS + 1) / 1000) == float(Decimal(LIMIT_NS + 2) / 1000)


def shown(ns: int, digits: int) -> str:
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03}" + "0" * (digits - 3)


@given(st.lists(st.integers(-(2**60), 2**62), min_size=1), st.integers(3, 6))
def test_digits_of_any_shape_are_exact(ns: list[int], digits: int) -> None:
    got, usable = times.from_written([shown(value, digits) for value in ns])
    assert got.tolist() == ns
    assert usable.all()


@given(st.lists(st.integers(10**18, 2 * 10**18), min_size=1))
def test_digits_of_one_shape_are_exact(ns: list[int]) -> None:
    assert times.from_written([shown(value, 3) for value in ns])[0].tolist() == ns


@pytest.mark.parametrize("us", [
    "", "12", "1.5", "a.bcd", "１２３.４５６", "1e3", " 7.000", "+7.000", "9223372036854775.807",
    "9999999999999999.999", None, float("nan"), 1e300, "inf", [1], 10**30, -(10**30)])
def test_odd_times_are_exact_or_unusable_beside_a_good_one(us: Any) -> None:
    ns, usable = times.from_written([us, "1.000"])
    assert (ns[1], usable[1]) == (1000, True)
    if usable[0]:
        assert int(ns[0]) == round(Decimal(us) * 1000)
    assert (times.one(us) is not None) == usable[0]


def test_integers_beyond_int64_nanoseconds_are_unusable() -> None:
    ns, usable = times.from_integers(np.array([5, 2**62, -(2**63)], np.int64))
    assert usable.tolist() == [True, False, False]
    assert ns[0] == 5000


def test_nothing_is_nothing() -> None:
    assert len(times.from_written([])[0]) == 0
    assert len(times.from_floats(np.zeros(0))[0]) == 0
