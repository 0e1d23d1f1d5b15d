"""Of what a hypothesis's share is a share. Most pages measure against the step; some divide by something else (a queue
by the time to first token), and then the share is of that."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .expressions import Expression, Values

STEP = "the step"
CAPTURE = "the capture"
"""Where no steps were found the window is all of what was recorded."""

WHOLES: Mapping[str, str] = {
    "step.wall_ms": STEP,
    "step.drift_ratio": "a step late in the run",
    "latency.e2e_ms": "a request's time",
    "latency.ttft_ms": "the time to first token",
    "latency.itl_ms": "the time between tokens",
    "warmup.first_ms": "the first request",
}
"""By the signal that is divided by."""

DIVIDED: Mapping[str, str] = {"serving.queued_fraction": "latency.ttft_ms"}
"""Shares that are measured as such, and what they were divided by."""

COMPARED = "the time that the comparison measures"
"""Of a share that one change saved: of the step or of the latency, whichever was compared."""

_SAVED = re.compile(r"saved\([^()]*\)")
_DIVISOR = re.compile(r"/\s*([a-z]+\.[a-z0-9_]+)")


def whole_of(share: Expression, values: Values) -> str:
    """What `share` (one of a page's) is a part of, ready to follow "of": `the time to first token`.

    Raises `KeyError` for a divisor that WHOLES does not name."""
    if divisors := _DIVISOR.findall(share.text):
        return WHOLES[divisors[-1]]
    if share.text in DIVIDED:
        return WHOLES[DIVIDED[share.text]]
    if _SAVED.fullmatch(share.text):
        return COMPARED
    return CAPTURE if values.get("step.method") == "window" else STEP
