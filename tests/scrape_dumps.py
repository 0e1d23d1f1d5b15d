"""Dumps of `/metrics` as values in memory, and what was measured in them as a mapping."""

from __future__ import annotations

from collections.abc import Mapping

from xpu_triage.samples import Scrape
from xpu_triage.telemetry.measured import Measured

Values = Mapping[str, float]


def scrape(values: Values, time: float | None = None, labels: str = 'model_name="m"', source: str = "a.prom",
           empty: tuple[str, ...] = ()) -> Scrape:
    """`{"vllm:x{reason=capacity}": 1}` with `labels` added to each."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for written, value in values.items():
        name, _, own = written.partition("{")
        pairs = [pair.partition("=") for pair in own.rstrip("}").split(",") if pair]
        each = {key: text for key, _, text in pairs}
        each |= {key: text.strip('"') for key, _, text in (pair.partition("=") for pair in labels.split(",") if pair)}
        found.setdefault(name, []).append((each, value))
    return Scrape(source, time, {name: tuple(samples) for name, samples in found.items()}, empty)


def values(measured: Measured) -> dict[str, object]:
    return {signal.name: signal.value for signal in measured.signals}


def window(measured: Measured, name: str) -> str:
    return next(signal.window for signal in measured.signals if signal.name == name)


def histogram(name: str, total: float, **below: float) -> dict[str, float]:
    """`_0_1=3` is the bucket of 0.1; the last given is the count."""
    buckets = {f"{name}_bucket{{le={bound.strip('_').replace('_', '.')}}}": count for bound, count in below.items()}
    count = max(below.values(), default=0.0)
    return buckets | {f"{name}_bucket{{le=+Inf}}": count, f"{name}_sum": total, f"{name}_count": count}
