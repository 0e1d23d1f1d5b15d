"""What the results of vLLM's and SGLang's serving benchmarks, which have one ancestor, have in common.

A summary spells a latency `mean_ttft_ms`, `median_ttft_ms`, `p99_ttft_ms`; of its requests there is a list a quantity,
with an entry a request, failed ones too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...baseline.records import Floats, Requests
from .figures import SECONDS, Quantity, Run, column, count, number, positive, told, tpot_ms

STATISTICS = {"mean": ("mean",), "p50": ("median", "p50"), "p90": ("p90",), "p99": ("p99",), "max": ("max",)}


def summary(document: Mapping[str, Any], units: Mapping[str, Quantity], run: Run) -> None:
    """Latencies, load, counts and rates of one run."""
    for pattern, row in units.items():
        if "{}" in pattern:
            run.told[row.field] = told(document, row.unit, {
                statistic: [pattern.format(spelled) for spelled in names] for statistic, names in STATISTICS.items()})
            if row.field == "ttft":
                medians = (number(document.get(pattern.format(spelled))) for spelled in STATISTICS["p50"])
                run.ttft_zero_at = "median" if any(one is not None and one <= 0 for one in medians) else ""
    cap = positive(document.get("max_concurrency"))
    run.request_rate = positive(document.get("request_rate"))
    if run.request_rate is None:
        run.concurrency = cap
    elif cap is not None:
        run.extra["max_concurrency"] = cap
    run.completed = count(document.get("completed"))
    run.duration_s = positive(document.get("duration"))
    run.output_tokens_per_s = positive(document.get("output_throughput"))
    run.requests_per_s = positive(document.get("request_throughput"))
    total = positive(document.get("total_input_tokens"))
    if total is not None and run.duration_s is not None:
        run.prompt_tokens_per_s = total / run.duration_s


def lengths(document: Mapping[str, Any], run: Run) -> None:
    """Mean lengths out of the totals, where the file does not list its requests."""
    prompt, output = (positive(document.get(key)) for key in ("total_input_tokens", "total_output_tokens"))
    if run.completed:
        run.prompt_tokens = None if prompt is None else prompt / run.completed
        run.output_tokens = None if output is None else output / run.completed
    if run.requests is None and run.prompt_tokens is not None:
        run.definitions.append("lengths: means, the file has no others")


def requests(document: Mapping[str, Any], units: Mapping[str, Quantity], notes: list[str], *,
             mean_e2e_ms: float | None = None, exact: bool = False) -> Requests | None:
    """The completed requests; None where the file has no lists. Lists of different lengths (a file that breaks off)
    leave what is missing unknown.

    Where the file has no durations, TTFT and gaps are added up. That is the duration if every chunk counts (`exact`),
    or if it agrees with the summary's mean; else durations are unknown.
    """
    lists = {row.field: (document[key], row) for key, row in units.items() if isinstance(document.get(key), list)}
    if "ttft_ms" not in lists:
        return None
    size = max(len(lists[field][0]) for field in ("ttft_ms", "output_tokens", "prompt_tokens") if field in lists)
    shortest = min(len(values) for values, row in lists.values() if row.field != "errors")
    if shortest < size:
        notes.append(f"lists of {shortest:,} to {size:,} requests: what is missing is unknown")

    def of(field: str, unit: str = "") -> Floats:
        values, row = lists.get(field, ([], None))
        return column(values, size, SECONDS[row.unit] / SECONDS[unit] if row and unit else 1.0)

    errors = lists["errors"][0] if "errors" in lists else []
    ttft, output = of("ttft_ms", "ms"), of("output_tokens")
    kept = np.array([not (i < len(errors) and errors[i]) for i in range(size)], dtype=bool) & ~(output == 0)
    kept &= ~np.isnan(ttft)
    gaps = _gaps(lists["itl_ms"], size) if "itl_ms" in lists else ()
    e2e = of("e2e_ms", "ms")
    if gaps and "e2e_ms" not in lists:
        added = np.array([start + gap.sum() for start, gap in zip(ttft, gaps, strict=True)])
        added[len(lists["itl_ms"][0]):] = np.nan
        valid = kept & (ttft > 0)
        if exact or _agrees(added[kept], mean_e2e_ms):
            e2e = np.where(valid, added, np.nan)
    start = of("start_s", "s")
    if not np.isnan(start[kept]).all():
        start = start - np.nanmin(start[kept])
    return Requests(
        ttft_ms=ttft[kept], e2e_ms=e2e[kept], tpot_ms=tpot_ms(ttft, e2e, output)[kept],
        prompt_tokens=of("prompt_tokens")[kept], output_tokens=output[kept], start_s=start[kept],
        itl_ms=tuple(gap for gap, keep in zip(gaps, kept, strict=True) if keep) if gaps else ())


def _gaps(listed: tuple[list[Any], Quantity], size: int) -> tuple[Floats, ...]:
    values, row = listed
    factor = SECONDS[row.unit] / SECONDS["ms"]
    gaps = [column(one, len(one), factor) if isinstance(one, list) else np.empty(0) for one in values[:size]]
    return tuple(gap[~np.isnan(gap)] for gap in gaps) + (np.empty(0),) * (size - len(gaps))


def _agrees(added: Floats, mean_ms: float | None) -> bool:
    return mean_ms is not None and len(added) > 0 and abs(float(added.mean()) - mean_ms) <= 0.01 * mean_ms
