"""Values, units and dates as tools print them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xpu_triage.evidence.smi.printed import Printed, in_unit_of, time_in, values


@pytest.mark.parametrize(("text", "expected"), [
    ("31058MiB / 98304MiB", [(31058, "MiB"), (98304, "MiB")]),
    ("69W /  700W", [(69, "W"), (700, "W")]),
    ("107 W/ 250 W", [(107, "W"), (250, "W")]),
    ("858/65536 MiB", [(858, "MiB"), (65536, "MiB")]),
    ("2.9/ 15.9 GB", [(2.9, "GB"), (15.9, "GB")]),
    ("662MiB(16384MiB)", [(662, "MiB"), (16384, "MiB")]),
    ("N/A/750 W", [(None, "W"), (750, "W")]),
    ("N/A /  N/A", [(None, ""), (None, "")]),
    ("ERR! /  N/A", [(None, ""), (None, "")]),
    ("100%", [(100, "%")]),
    ("58 °C", [(58, "C")]),
    ("43.0c", [(43, "c")]),
    ("1115 MHz", [(1115, "MHz")]),
    ("N/A", [(None, "")]),
    ("[N/A]", [(None, "")]),
    ("[Not Supported]", [(None, "")]),
    ("ERR!", [(None, "")]),
    ("-", [(None, "")]),
])
def test_numbers_pairs_and_words_for_unknown(text: str, expected: list[tuple[float | None, str]]) -> None:
    assert values(text) == tuple(Printed(*value) for value in expected)


@pytest.mark.parametrize("text", ["Default", "P0", "910B2", "16x(16x)", "v5.10.22", "0000:13:00.0", "SPX/NPS1",
                                  "NPS1,SPX,0", "80GBHBM", "1 / 2 / 3"])
def test_words_are_no_values(text: str) -> None:
    assert values(text) is None


@pytest.mark.parametrize(("quantity", "value", "expected"), [
    ("memory_used", Printed(1, "MiB"), 1.048576),
    ("memory_used", Printed(512, "Mib"), 536.870912),
    ("memory_used", Printed(1, "GiB"), 1073.741824),
    ("memory_used", Printed(1, "GB"), 1000),
    ("utilization", Printed(23, "%"), 0.23),
    ("power", Printed(1500, "mW"), 1.5),
    ("core_clock", Printed(2.1, "GHz"), 2100),
    ("temperature", Printed(-5, "C"), -5),
])
def test_units_become_the_quantity_s_own(quantity: str, value: Printed, expected: float) -> None:
    number, right = in_unit_of(quantity, value)
    assert right
    assert number == pytest.approx(expected)


@pytest.mark.parametrize(("quantity", "value"), [
    ("utilization", Printed(45, "C")), ("utilization", Printed(45, "")), ("utilization", Printed(101, "%")),
    ("power", Printed(300, "MiB")), ("memory_used", Printed(12, "%")), ("power", Printed(-1, "W")),
    ("memory_total", Printed(1.7e308, "TiB")),
])
def test_a_number_in_another_kind_of_unit_is_refused(quantity: str, value: Printed) -> None:
    assert in_unit_of(quantity, value) == (None, False)


def test_a_number_that_no_float_holds_is_unknown() -> None:
    assert values("9" * 400 + "MiB") == (Printed(None, "MiB"),)


@pytest.mark.parametrize(("line", "expected"), [
    ("Wed Nov  8 16:16:45 2023", 1699460205),
    ("Wed Nov  8 16:16:45 UTC 2023", 1699460205),
    ("Wed Nov  8 16:16:45 CST 2023", 1699460205),          # a zone is not guessed: taken as printed
    ("Wed 08 Nov 2023 04:16:45 PM UTC", 1699460205),
    ("Timestamp    Wed Nov  8 16:16:45 2023", 1699460205),
    ("Every 1.0s: nvidia-smi         box: Wed Nov  8 16:16:45 2023", 1699460205),
    ("2023-11-08 16:16:45.250", 1699460205.25),
    ("2023年 11月 08日 星期三 16:16:45 CST", 1699460205),
])
def test_dates_above_a_table(line: str, expected: float) -> None:
    assert time_in(line) == expected


@pytest.mark.parametrize("line", ["", "16:16:45", "Wed Feb 31 16:16:45 2023", "Wed Nov  8 25:16:45 2023",
                                  "| 0 | 0000:13:00.0 |", "GPU 0: 2023"])
def test_what_is_no_date(line: str) -> None:
    assert time_in(line) is None


@given(st.text(max_size=60))
def test_any_text_is_a_value_or_none(text: str) -> None:
    for value in values(text) or ():
        assert value.number is None or value.number == float(value.number)
    time_in(text)
