"""One benchmark run as every tool tells it: a load (concurrency, prompt and output length) and what it measured.

Latencies are in ms, lengths in tokens. A statistic or a length that a tool does not give is None: unknown, not zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..units import figure

Floats = NDArray[np.float64]

LATENCIES = ("ttft", "tpot", "itl", "e2e")
"""Time to first token. Time per output token of one request after its first: (e2e − ttft) ÷ (tokens − 1). Gap between
two tokens, over all gaps. Request duration. Each in ms."""

MOST_OFF = 100.0
"""What two ways give of one quantity, larger ÷ smaller: units differ by 1,000, and a client's waits between requests, a
long end of the run or lengths that differ by less than this."""


@dataclass(frozen=True)
class Stat:
    """A distribution as far as it is known."""

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    n: int | None = None
    """How many values it was made of."""
    max: float | None = None


@dataclass(frozen=True, eq=False)
class Requests:
    """One entry a completed request, NaN where unknown."""

    ttft_ms: Floats
    e2e_ms: Floats
    tpot_ms: Floats
    prompt_tokens: Floats
    output_tokens: Floats
    start_s: Floats
    """From the first request's start."""
    itl_ms: tuple[Floats, ...] = ()
    """The gaps of each request, where the tool keeps them."""

    def __len__(self) -> int:
        return len(self.ttft_ms)


@dataclass(frozen=True)
class Environment:
    """What the figures belong to. Two runs whose known parts differ are not of one kind."""

    model: str = ""
    engine: str = ""
    engine_version: str = ""
    device: str = ""
    client: str = ""
    """The load generator and its version."""
    client_version: str = ""


@dataclass(frozen=True, eq=False)
class BenchRecord:
    source: str
    tool: str
    """`vllm bench serve`, `sglang bench_serving`, `guidellm`, `aiperf`, `evalscope`, `llmeter`, `xpu-triage`."""
    environment: Environment
    concurrency: float | None
    """Requests that the clients keep in flight; None where the load is a rate, or unknown."""
    request_rate: float | None
    """Requests per second that the load generator was set to; None for as fast as concurrency allows, or unknown."""
    prompt_tokens: float | None
    """Median prompt length."""
    output_tokens: float | None
    """Median output length."""
    latencies: Mapping[str, Stat]
    """By name of LATENCIES; a name that is absent is unknown."""
    duration_s: float | None
    completed: int | None
    failed: int | None
    output_tokens_per_s: float | None
    """Generated tokens per second over all requests of the run."""
    requests_per_s: float | None
    prompt_tokens_per_s: float | None = None
    invalid_ttft: int = 0
    """Requests whose TTFT is 0 or negative: an empty first chunk, not a fast one. They are left out of `ttft`."""
    requests: Requests | None = None
    definitions: tuple[str, ...] = ()
    """Where this tool's definition differs from LATENCIES: what it is, and whether it was converted or left out."""
    notes: tuple[str, ...] = ()
    extra: Mapping[str, float] = field(default_factory=dict)
    """Other figures of the tool under its own names (`http_req_waiting`, …)."""

    def stat(self, latency: str) -> Stat:
        """The statistic of a latency; all unknown where the tool does not give it."""
        return self.latencies.get(latency, Stat())


def stat_of(values: Floats) -> Stat:
    """mean, p50, p90, p99 (linear interpolation), n and max of the values that are known."""
    known = values[~np.isnan(values)]
    if not len(known):
        return Stat(n=0)
    p50, p90, p99 = (float(v) for v in np.percentile(known, (50, 90, 99)))
    return Stat(float(known.mean()), p50, p90, p99, len(known), float(known.max()))


def units_doubted(record: BenchRecord) -> str:
    """Why the times of a run cannot all be of the units that they are given in; empty where they can, or where there is
    nothing to hold them against. A request is its first token and all others, and by Little's law durations add up to
    requests in flight × the run."""
    return _parts_doubted(record) or _flying_doubted(record)


def _middle(record: BenchRecord, latency: str) -> float | None:
    stat = record.stat(latency)
    return next((value for value in (stat.mean, stat.p50) if value and math.isfinite(value) and value > 0), None)


def _parts_ms(record: BenchRecord) -> tuple[float | None, float | None]:
    """Time to the first token, and from there to the last."""
    token, tokens = _middle(record, "tpot"), record.output_tokens
    return _middle(record, "ttft"), token * (tokens - 1) if token and tokens and tokens > 1 else None


def _parts_doubted(record: BenchRecord) -> str:
    whole, (first, others) = _middle(record, "e2e"), _parts_ms(record)
    parts = (first or 0.0) + (others or 0.0)
    if whole is None or not parts:
        return ""
    too_short = first is not None and others is not None and parts * MOST_OFF < whole
    if not too_short and parts <= MOST_OFF * whole:
        return ""
    said = [f"{figure(ms)} ms {what}" for ms, what in ((first, "to the first token"), (others, "for the others")) if ms]
    return f"units contradict each other: {' and '.join(said)}, and a request takes {figure(whole)} ms"


def _flying_doubted(record: BenchRecord) -> str:
    each, (first, others) = _middle(record, "e2e"), _parts_ms(record)
    if each is None and first is not None and others is not None:
        each = first + others
    if not each or not record.duration_s or not record.completed or record.duration_s < 0:
        return ""
    flying = record.completed * each / 1000 / record.duration_s
    kept = min(record.concurrency or record.completed, record.completed)
    if not math.isfinite(flying) or kept <= 0:
        return ""
    # A rate may keep fewer in flight, and so may a load that is not known. No request takes longer than its run.
    too_few = record.request_rate is None and record.concurrency and flying < kept / MOST_OFF
    if not too_few and flying <= min(kept * MOST_OFF, 2 * record.completed):
        return ""
    were = f"{figure(record.concurrency)} were kept" if record.concurrency else "there were no more than those"
    return (f"units contradict each other: {record.completed:,} requests of {figure(each)} ms in "
            f"{figure(record.duration_s)} s are {figure(flying)} in flight, and {were}")
