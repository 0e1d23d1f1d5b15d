"""Signals by name: the first of two pieces of evidence wins, and a disagreement is kept."""

from __future__ import annotations

from xpu_triage.signals import Signal, Signals


def test_the_first_of_two_values_is_used_and_the_disagreement_is_kept():
    measured = Signal("step.wall_ms", 41.0, "trace", source="a.json")
    typed = Signal("step.wall_ms", 44, "typed", source="b.yaml")
    both = Signals([measured, typed])
    assert both.value("step.wall_ms") == 41.0
    assert [(c.kept, c.other) for c in both.conflicts] == [(measured, typed)]


def test_two_measurements_of_other_moments_agree_within_ten_percent():
    running = [Signal("serving.running", value, how) for value, how in ((20.5, "metrics"), (20, "log"))]
    assert Signals(running).conflicts == []
    assert len(Signals([Signal("serving.running", 40, "metrics"), *running]).conflicts) == 2
    assert len(Signals([running[0], Signal("serving.running", 20, "typed")]).conflicts) == 1
    assert Signals([Signal("step.count", 3, "trace"), Signal("step.count", 900, "log")]).conflicts == []


def test_two_equal_values_are_no_conflict():
    assert Signals([Signal("step.count", 3, "trace"), Signal("step.count", 3, "typed")]).conflicts == []


def test_a_signal_that_is_not_there_is_unknown_and_not_zero():
    assert Signals().value("step.wall_ms") is None
    assert Signals([Signal("serving.running", 0, "typed")]).value("serving.running") == 0


def test_a_signal_knows_its_unit_from_the_catalogue():
    assert Signal("kernel.median_us", 6.4, "trace").unit == "us"
