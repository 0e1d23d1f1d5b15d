"""The cross-check of step 2: throughput × step time is the running batch, or the figures are not of one
load."""

from __future__ import annotations

import numpy as np

from ..diagnosis import Diagnosis
from ..telemetry.periodic import DERIVED
from .shown import Shown, said, stacked, table

CLOSE = 0.15
"""Two of the three figures may differ from the third by this share: they are means over moments that
differ."""

_RATE, _WALL, _RUNNING = "serving.decode_tokens_per_s", "step.wall_ms", "serving.running"


def cross_check(diagnosis: Diagnosis) -> Shown:
    """Hold throughput, step time and running batch against each other, with the arithmetic; or say what is
    missing."""
    figures = {name: _number(diagnosis, name) for name in (_RATE, _WALL, _RUNNING)}
    from_names = _decode_requests(diagnosis)
    rows = [(name, "unknown" if value is None else f"{value:,.4g}", _source(diagnosis, name))
            for name, value in figures.items()]
    if figures[_RUNNING] is None and from_names is not None:
        figures[_RUNNING] = from_names
        rows[2] = (_RUNNING, f"{from_names:,.4g}", "median of the decode requests in the steps' names")
    wall = diagnosis.signals.get(_WALL)
    if wall is not None and wall.window.startswith(DERIVED):
        told = ["The step time here is the running batch ÷ the throughput: it follows from the other two, and checks "
                "nothing. A trace, or the engine's iteration lines, give one of its own."]
    else:
        told = _told(*figures.values())
    return stacked(table(("figure", "value", "from"), rows, numbers=(1,)), said(*told))


def _number(diagnosis: Diagnosis, name: str) -> float | None:
    value = diagnosis.signals.value(name)
    return float(value) if isinstance(value, int | float) else None


def _source(diagnosis: Diagnosis, name: str) -> str:
    signal = diagnosis.signals.get(name)
    return "" if signal is None else ", ".join(part for part in (signal.how, signal.window) if part)


def _decode_requests(diagnosis: Diagnosis) -> float | None:
    walk = diagnosis.lead
    told = [s.decode_requests for s in walk.steps.steps if s.decode_requests] if walk else []
    return float(np.median(told)) if told else None


def _told(rate: float | None, wall_ms: float | None, running: float | None) -> list[str]:
    each = "A decode step gives every running request one token (several with speculative decoding)."
    if wall_ms is None or (rate is None and running is None):
        known = ((_RATE, rate), (_WALL, wall_ms), (_RUNNING, running))
        missing = ", ".join(name for name, value in known if value is None)
        return [
            each,
            f"The step time and one of the others are needed; unknown here: {missing}. The engine's log or its "
            "/metrics give throughput and running requests: type them in an evidence sheet beside the trace.",
        ]
    wall = f"{wall_ms / 1e3:,.4g} s"
    if rate is None:
        assert running is not None
        possible = f"{running:,.4g} requests ÷ {wall} = {running / wall_ms * 1e3:,.4g} tokens/s"
        return [each, f"{possible} is what these steps can give. Compare it with the engine's throughput."]
    per_step = rate * wall_ms / 1e3
    product = f"{rate:,.4g} tokens/s × {wall} = {per_step:,.4g}"
    if running is None:
        return [each, f"{product} requests must be running. Compare it with the engine's running batch."]
    return [each, f"{product} tokens a step, for {running:,.4g} running requests.", _judged(per_step, running)]


def _judged(per_step: float, running: float) -> str:
    low, high = sorted((per_step, running))
    if high - low <= CLOSE * high:
        return "They agree."
    return (
        f"They do not agree, by a factor of {high / max(low, 1e-12):.2f}: they are not of the same moment, "
        "or prefill and idle time lie between the steps. Build nothing on further digits of them."
    )
