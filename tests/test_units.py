"""What a person types becomes a value in the signal's unit, or is refused with the reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xpu_triage.catalogue import CATALOGUE
from xpu_triage.units import figure, nearest, show, value_of


@pytest.mark.parametrize(("name", "raw", "expected"), [
    ("step.wall_ms", 41, 41),
    ("step.wall_ms", {"value": 1.2, "unit": "s"}, 1200),
    ("step.wall_ms", {"value": 2, "unit": "min"}, 120_000),
    ("latency.e2e_ms", {"value": 21.5, "unit": "s"}, 21_500),
    ("kernel.median_us", {"value": 2500, "unit": "ns"}, 2.5),
    ("kernel.median_us", {"value": 0.5, "unit": "ms"}, 500),
    ("kernel.median_us", {"value": 7, "unit": "µs"}, 7),
    ("step.drift_after_s", {"value": 20, "unit": "min"}, 1200),
    ("device.busy_fraction", {"value": 23, "unit": "%"}, 0.23),
    ("device.busy_fraction", 1, 1),
    ("device.utilization_fraction", "3%", 0.03),
    ("device.utilization_fraction", " 3.5 % ", 0.035),
    ("step.wall_ms", "4.89 s", 4890),
    ("step.wall_ms", "41ms", 41),
    ("kernel.median_us", "2.5e3 ns", 2.5),
    ("serving.decode_tokens_per_s", "32 tokens/s", 32),
    ("sync.copy_mb", {"value": 2, "unit": "MiB"}, 2.097152),
    ("sync.copy_mb", {"value": 16, "unit": "B"}, 0.000016),
    ("sync.copy_mb", {"value": 3, "unit": "kB"}, 0.003),
    ("roofline.read_gb", {"value": 1, "unit": "GiB"}, 1.073741824),
    ("roofline.peak_gbps", {"value": 3.35, "unit": "TB/s"}, 3350),
    ("roofline.peak_gbps", {"value": 900, "unit": "MB/s"}, 0.9),
    ("serving.decode_tokens_per_s", {"value": 32, "unit": "tokens/s"}, 32),
    ("serving.decode_tokens_per_s", {"value": 32, "unit": "tokens_per_s"}, 32),
    ("host.length_exponent", -0.2, -0.2),
    ("host.graph_requested", False, False),
    ("clock.limit_reason", " sw_power_cap ", "sw_power_cap"),
])
def test_values_are_converted_within_their_kind(name, raw, expected):
    assert value_of(CATALOGUE[name], raw) == pytest.approx(expected)


@pytest.mark.parametrize(("name", "raw", "says"), [
    ("step.wall_ms", {"value": 3, "unit": "GB"}, "not a time"),
    ("step.wall_ms", {"value": 3, "unit": "S"}, "not a time"),
    ("device.busy_fraction", {"value": 3, "unit": "s"}, "not a fraction"),
    ("device.busy_fraction", 23, "between 0 and 1"),
    ("device.busy_fraction", -0.01, "between 0 and 1"),
    ("device.busy_fraction", {"value": 120, "unit": "%"}, "between 0 and 1"),
    ("kernel.per_step", -1, "negative"),
    ("kernel.per_step", {"value": 3, "unit": "ms"}, "does not fit"),
    ("ab.graph_ratio", -0.2, "negative"),
    ("step.wall_ms", float("nan"), "finite"),
    ("step.wall_ms", float("inf"), "finite"),
    ("step.wall_ms", True, "not a number"),
    ("step.wall_ms", "41", "not a number"),
    ("step.wall_ms", "4,890 ms", "not a number"),
    ("step.wall_ms", "about 41 ms", "not a number"),
    ("step.wall_ms", "3 GB", "not a time"),
    ("device.busy_fraction", "120 %", "between 0 and 1"),
    ("kernel.per_step", "3 ms", "does not fit"),
    ("host.graph_requested", "3 %", "not true or false"),
    ("step.wall_ms", [41], "not a number"),
    ("step.wall_ms", {"value": 41}, "{value: …, unit: …}"),
    ("step.wall_ms", {"value": 41, "unit": 3}, "{value: …, unit: …}"),
    ("step.wall_ms", {"value": 41, "unit": "ms", "note": 1}, "'note' is not known"),
    ("latency.ttft_ms", 0, "nothing takes exactly 0"),
    ("latency.ttft_ms", {"value": 0.0, "unit": "s"}, "nothing takes exactly 0"),
    ("host.graph_requested", 1, "not true or false"),
    ("host.graph_requested", "yes", "not true or false"),
    ("comm.layout", 8, "not text"),
    ("comm.layout", True, "not text"),
    ("comm.layout", "  ", "empty"),
    ("comm.layout", "x" * 501, "more than 500"),
])
def test_what_does_not_fit_is_refused_and_the_reason_is_said(name, raw, says):
    with pytest.raises(ValueError, match=r".") as refusal:
        value_of(CATALOGUE[name], raw)
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_zero_is_a_value_where_only_a_latency_is_not():
    assert value_of(CATALOGUE["serving.running"], 0) == 0
    assert value_of(CATALOGUE["device.utilization_fraction"], 0) == 0


def test_a_control_character_in_a_refused_value_is_written_out():
    with pytest.raises(ValueError, match=r".") as refusal:
        value_of(CATALOGUE["step.wall_ms"], "\x1b[31m")
    assert "\x1b" not in str(refusal.value)


@pytest.mark.parametrize(("typo", "meant"), [
    ("device.busy", "device.busy_fraction"), ("latency.itl_p99", "latency.itl_p99_ms"),
    ("serving.decode_token_per_s", "serving.decode_tokens_per_s"), ("graph_ratio", "ab.graph_ratio"),
    ("xyzzy.plugh", ""),
])
def test_the_nearest_name_is_found_and_a_far_one_is_not_guessed(typo, meant):
    assert nearest(typo) == meant


@pytest.mark.parametrize(("value", "unit", "text"), [
    (0.953, "fraction", "0.953"), (4890, "ms", "4,890 ms"), (3201.71, "tokens_per_s", "3,202 tokens/s"),
    (6.44, "us", "6.44 µs"), (0.000016, "MB", "1.6e-05 MB"), (0, "fraction", "0"), (216.16, "ms", "216.2 ms"),
    (2100, "count", "2,100"), (True, "bool", "yes"), (False, "bool", "no"), ("a\x1bb", "text", "a\\x1bb"),
])
def test_a_value_is_shown_as_a_person_reads_it(value, unit, text):
    assert show(value, unit) == text


@given(st.floats(min_value=1e-12, max_value=1e12))
def test_a_shown_figure_is_within_half_a_percent(value):
    assert float(figure(value).replace(",", "")) == pytest.approx(value, rel=0.051 if value < 0.001 else 0.0051)
