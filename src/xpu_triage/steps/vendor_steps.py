"""A step's length here beside the one that the vendor's profiler gives: two quantities, and why they differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Any

from .results import Steps

SAME = 0.01
"""Apart by less than this part of the step they need no words."""


def with_vendor(steps: Steps, meta: Mapping[str, Any]) -> Steps:
    """`steps` with a note on the vendor's Stage (`Trace.meta["vendorSteps"]`, in ms) where it is another figure."""
    vendor = meta.get("vendorSteps") or {}
    stage, before = vendor.get("stage_ms"), vendor.get("preparing_ms")
    if not stage or steps.method != "annotation":
        return steps
    step = median(each.wall for each in steps.steps) / 1e6
    if abs(stage - step) <= SAME * step:
        return steps
    rest = "" if before is None else f", without the {before:,.2f} ms of Preparing before it"
    return replace(steps, notes=(*steps.notes, (
        f"a step takes {step:,.2f} ms here, from its mark to the next or to the end of the work that it launched; the "
        f"vendor's Stage (step_trace_time), {stage:,.2f} ms, counts from its first device task to its last{rest}")))
