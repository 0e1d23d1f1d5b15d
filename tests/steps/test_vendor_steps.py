"""The vendor's Stage beside our step: two quantities, told apart where they differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from xpu_triage.steps.results import Step, Steps
from xpu_triage.steps.vendor_steps import with_vendor

MS = 1_000_000
STEPS = Steps("annotation", "ProfilerStep#…", tuple(Step(f"ProfilerStep#{i}", i * 100 * MS, (i + 1) * 100 * MS)
                                                    for i in range(3)))


def test_a_stage_without_the_preparation_is_explained():
    found = with_vendor(STEPS, {"vendorSteps": {"stage_ms": 82.0, "preparing_ms": 17.5}})
    note, = found.notes
    assert note.startswith("a step takes 100.00 ms here, from its mark to the next")
    assert "Stage (step_trace_time), 82.00 ms, counts from its first device task to its last" in note
    assert note.endswith("without the 17.50 ms of Preparing before it")
    assert found.steps == STEPS.steps


def test_where_the_preparation_is_not_told_nothing_is_said_of_it():
    note, = with_vendor(STEPS, {"vendorSteps": {"stage_ms": 82.0}}).notes
    assert "Preparing" not in note


@pytest.mark.parametrize("meta", [{}, {"vendorSteps": {}}, {"vendorSteps": {"stage_ms": 99.5}},
                                  {"vendorSteps": {"stage_ms": 100.9}}])
def test_the_same_figure_or_none_needs_no_words(meta):
    assert with_vendor(STEPS, meta) is STEPS


def test_a_window_is_no_step_to_compare():
    window = replace(STEPS, method="window")
    assert with_vendor(window, {"vendorSteps": {"stage_ms": 82.0}}) is window
