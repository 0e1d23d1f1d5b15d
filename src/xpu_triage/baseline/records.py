"""One benchmark run as every tool tells it: a load (concurrency, prompt and output length) and what it measured.

Latencies are in ms, lengths in tokens. A statistic or a length that a tool does not give is None: unknown, not zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LATENCIES = ("ttft", "tpot", "itl", "e2e")
"""Time to first token. Time per output token of one request after its first: (e2e − ttft) ÷ (tokens − 1). Gap between
two tokens, over all gaps. Request duration. Each in ms."""


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


def positive(values: Floats) -> Floats:
    """Those that can be times or lengths: NaN is unknown, and nothing takes no time."""
    return values[np.isfinite(values) & (values > 0)]


def stat_of(values: Floats) -> Stat:
    """mean, p50, p90, p99 (linear interpolation), n and max of the values that are known."""
    known = values[~np.isnan(values)]
    if not len(known):
        return Stat(n=0)
    p50, p90, p99 = (float(v) for v in np.percentile(known, (50, 90, 99)))
    return Stat(float(known.mean()), p50, p90, p99, len(known), float(known.max()))
