"""Whether the requests that took long lie at the start or at the end of their run."""

from __future__ import annotations

import numpy as np

from .records import Floats, Requests

PARTS = 10
MIN_REQUESTS = 5 * PARTS

SLOWER = 1.4
"""Of the slow part against the rest. Judgement: more than a part of a tenth of the requests moves by itself."""

STEADY = 1.2
"""Largest ÷ typical of the other parts: where they differ by more it is no matter of the run's course."""

_LATENCIES = (("ttft", "time to first token"), ("tpot", "time per token"), ("e2e", "duration"))


def course(requests: Requests) -> str:
    """What is said of a run whose first tenths (up to half of it) or last ones are slower than all others; empty for
    any other run, and where the requests' starts are unknown or too few."""
    if np.isnan(requests.start_s).any() or len(requests) < MIN_REQUESTS:
        return ""
    order = np.argsort(requests.start_s, kind="stable")
    for name, said in _LATENCIES:
        values: Floats = getattr(requests, f"{name}_ms")[order]
        if not (np.isfinite(values) & (values > 0)).all():
            continue
        tenths = np.array([float(np.median(part)) for part in np.array_split(values, PARTS)])
        if (found := _slow_start(tenths)) is not None:
            return (f"the first {found[0]}0 % of the requests have {found[1]:.1f} times the {said} of those after "
                    "them: a warm-up (compilation, cold caches, loading), sooner than a slow server; record it warm")
        if (found := _slow_start(tenths[::-1])) is not None:
            return (f"the last {found[0]}0 % of the requests have {found[1]:.1f} times the {said} of those before "
                    "them: it gets slower as it runs (heat, a leak, a cache that fills), or something came in between")
    return ""


def _slow_start(tenths: Floats) -> tuple[int, float] | None:
    """How many tenths at the start are slower than all others, and how many times."""
    rest = float(np.median(tenths[PARTS // 2:]))
    slow = tenths >= SLOWER * rest
    count = int(np.argmin(slow)) if not slow.all() else PARTS
    if not 0 < count <= PARTS // 2 or (tenths[count + 1:] > STEADY * rest).any():
        return None
    return count, float(np.median(tenths[:count])) / rest
