"""Reports of guidellm (`benchmarks.json`), 0.2 to 0.8: one benchmark a load.

Source: guidellm/schemas/…/request_stats.py and benchmark/schemas. `time_per_output_token_ms` is (last token − request
start) ÷ tokens, so TTFT is in it (before 0.4: (last − first) ÷ tokens); it is never used. The summary of the
inter-token latency is made of one average a request, each counted once a token: its mean is that of the gaps, its
percentiles are not those of the gaps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np

from ...baseline.records import BenchRecord, Environment, Requests, Stat
from . import documents
from .figures import SECONDS, Quantity, Run, at, column, count, name, number, positive, records, told, tpot_ms

UNITS = {
    "time_to_first_token_ms": Quantity("ttft", "ms", "first token"),
    "request_latency": Quantity("e2e", "s", "request start to end"),
    "inter_token_latency_ms": Quantity("tpot", "ms", "(last token − first token) ÷ (tokens − 1), one a request"),
    "time_per_output_token_ms": Quantity("", "ms", "TTFT is in it: left out"),
    "prompt_token_count": Quantity("prompt_tokens", "tokens"),
    "output_token_count": Quantity("output_tokens", "tokens"),
    "output_tokens_per_second": Quantity("output_tokens_per_s", "tokens/s", "mean over the run"),
    "requests_per_second": Quantity("requests_per_s", "requests/s", "mean over the run"),
    "prompt_tokens_per_second": Quantity("prompt_tokens_per_s", "tokens/s", "cached ones included"),
    "request_concurrency": Quantity("mean_in_flight", "requests", "measured, not set"),
}
"""Metric to meaning, in `metrics` and, for the latencies, in each of `requests`."""

STATISTICS = {"mean": ("mean",), "p50": ("p50",), "p90": ("p90",), "p99": ("p99",), "max": ("max",)}

_BENCHMARKS = re.compile(r'(?<!\\)"benchmarks"\s*:\s*\[')
_OWN = re.compile(r'(?<!\\)"(?:guidellm_version"|type_"\s*:\s*"generative_benchmark)')

_CONVERTED = "tpot: guidellm's has TTFT in it; converted, (latency − ttft) ÷ (tokens − 1) of each request"
_WEIGHTED = "tpot: guidellm's has TTFT in it and is left out; its inter-token latency is taken, an average a request " \
            "that counts once a token"
_GAPS = "itl: guidellm keeps an average a request, not the gaps: only the mean is known"


def matches(head: str) -> bool:
    """Whether a text that begins like this is such a report."""
    return head.lstrip()[:1] == "{" and _OWN.search(head) is not None and (
        _BENCHMARKS.search(head) is not None or '"guidellm_version"' in head)


def read(path: str | PathLike[str]) -> tuple[BenchRecord, ...]:
    """A record a benchmark. Raises UnusableInput where none can be used."""
    loaded = documents.load(path)
    found: list[dict[str, Any]] = []
    for report in loaded.found:
        version = name(at(report, "metadata", "guidellm_version"))
        listed = report.get("benchmarks")
        found += [{**one, "_version": version} for one in (listed if isinstance(listed, list) else [])
                  if isinstance(one, dict)]
    return records(path, found, loaded.notes, _run)


def _run(benchmark: dict[str, Any]) -> Run:
    run = Run("guidellm", _environment(benchmark))
    metrics = {metric: _successful(at(benchmark, "metrics", metric)) for metric in UNITS}
    for metric in ("time_to_first_token_ms", "request_latency", "inter_token_latency_ms"):
        row = UNITS[metric]
        run.told[row.field] = told(metrics[metric], row.unit, STATISTICS)
    run.ttft_least = number(metrics["time_to_first_token_ms"].get("min"))
    median = number(metrics["time_to_first_token_ms"].get("p50"))
    run.ttft_zero_at = "median" if median is not None and median <= 0 else ""
    _gaps(run, metrics["inter_token_latency_ms"])
    _load(benchmark, run)
    run.prompt_tokens = positive(metrics["prompt_token_count"].get("p50"))
    run.output_tokens = positive(metrics["output_token_count"].get("p50"))
    run.output_tokens_per_s = positive(metrics["output_tokens_per_second"].get("mean"))
    run.requests_per_s = positive(metrics["requests_per_second"].get("mean"))
    run.prompt_tokens_per_s = positive(metrics["prompt_tokens_per_second"].get("mean"))
    if (in_flight := positive(metrics["request_concurrency"].get("mean"))) is not None:
        run.extra["mean_in_flight"] = in_flight
    start, end = number(benchmark.get("start_time")), number(benchmark.get("end_time"))
    run.duration_s = positive(benchmark.get("duration")) or (
        positive(end - start) if start is not None and end is not None else None)
    _counts(benchmark, run)
    run.requests = _requests(at(benchmark, "requests", "successful"))
    if run.requests is not None and run.completed is not None and len(run.requests) < run.completed:
        run.sampled = True
        run.notes.append(f"per-request figures of {len(run.requests):,} of {run.completed:,} requests")
    if run.requests is None or run.sampled:
        run.definitions.append(_WEIGHTED)
    else:
        run.definitions.append(_CONVERTED)
    return run


def _successful(metric: Any) -> dict[str, Any]:
    """Mean, minimum, maximum, count and percentiles of one metric over the completed requests."""
    found = at(metric, "successful")
    if not isinstance(found, dict):
        return {}
    percentiles = found.get("percentiles")
    return {**found, **(percentiles if isinstance(percentiles, dict) else {})}


def _gaps(run: Run, metric: Mapping[str, Any]) -> None:
    mean = positive(metric.get("mean"))
    if mean is not None:
        run.told["itl"] = Stat(mean=mean, n=count(metric.get("count")))
        run.definitions.append(_GAPS)


def _load(benchmark: Mapping[str, Any], run: Run) -> None:
    strategy = at(benchmark, "config", "strategy") or at(benchmark, "args", "strategy") or {}
    if not isinstance(strategy, dict):
        return
    kind = name(strategy.get("type_"))
    if kind in ("constant", "poisson"):
        run.request_rate = positive(strategy.get("rate"))
    elif kind == "synchronous":
        run.concurrency = 1.0
    elif kind == "concurrent":
        run.concurrency = positive(strategy.get("streams"))
    elif kind == "throughput":
        run.concurrency = positive(strategy.get("max_concurrency"))


def _counts(benchmark: Mapping[str, Any], run: Run) -> None:
    totals = at(benchmark, "metrics", "request_totals") or at(benchmark, "run_stats", "requests_made") or {}
    if isinstance(totals, dict):
        run.completed, run.failed = count(totals.get("successful")), count(totals.get("errored"))
        if incomplete := count(totals.get("incomplete")):
            run.notes.append(f"{incomplete:,} requests were still running at the end: left out")


def _requests(listed: Any) -> Requests | None:
    rows = [one for one in (listed if isinstance(listed, list) else []) if isinstance(one, dict)]
    rows = [row for row in rows if number(row.get("request_latency")) is not None]
    if not rows:
        return None

    def of(key: str, factor: float = 1.0) -> Any:
        return column([row.get(key) for row in rows], len(rows), factor)

    ttft = of("time_to_first_token_ms")
    e2e = of("request_latency", SECONDS[UNITS["request_latency"].unit] / SECONDS["ms"])
    output = of("output_tokens")
    start = of("request_start_time")
    start = np.where(np.isnan(start), of("start_time"), start)
    return Requests(ttft_ms=ttft, e2e_ms=e2e, tpot_ms=tpot_ms(ttft, e2e, output), prompt_tokens=of("prompt_tokens"),
                    output_tokens=output, start_s=start - np.nanmin(start) if not np.isnan(start).all() else start)


def _environment(benchmark: Mapping[str, Any]) -> Environment:
    """Of the back end only the model: targets, keys and headers stand beside it."""
    model = at(benchmark, "config", "backend", "model") or at(benchmark, "worker", "backend_model")
    return Environment(model=name(model), client="guidellm", client_version=name(benchmark.get("_version")))
