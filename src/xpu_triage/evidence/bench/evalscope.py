"""Results of `evalscope perf`: `benchmark_summary.json` (means) and `benchmark_percentile.json`.

Source: evalscope/perf/utils/perf_constants.py and db_util.py, 0.5 to 1.14. The keys are what people read and carry
their unit: `Avg TTFT (ms)`, once `Average time to first token (s)`. What was not measured is written as 0. Without
`--stream` a TTFT is the whole latency.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from os import PathLike
from typing import Any

from ...baseline.records import BenchRecord, Environment, Stat
from . import documents
from .figures import SECONDS, Quantity, Run, count, in_unit, name, number, positive, records

UNITS = {
    "avg latency": Quantity("e2e.mean", "by key"), "average latency": Quantity("e2e.mean", "by key"),
    "avg ttft": Quantity("ttft.mean", "by key"), "average time to first token": Quantity("ttft.mean", "by key"),
    "avg tpot": Quantity("tpot.mean", "by key", "(latency − ttft) ÷ (tokens − 1)"),
    "average time per output token": Quantity("tpot.mean", "by key", "(latency − ttft) ÷ (tokens − 1)"),
    "avg itl": Quantity("itl.mean", "by key", "gap between two chunks"),
    "average inter-token latency": Quantity("itl.mean", "by key", "gap between two chunks"),
    "latency": Quantity("e2e", "by key"), "ttft": Quantity("ttft", "by key"),
    "tpot": Quantity("tpot", "by key"), "itl": Quantity("itl", "by key"),
    "test duration": Quantity("duration_s", "by key"), "time taken for tests": Quantity("duration_s", "by key"),
    "concurrency": Quantity("concurrency", "requests"), "number of concurrency": Quantity("concurrency", "requests"),
    "request rate": Quantity("request_rate", "requests/s", "-1: none was set"),
    "success requests": Quantity("completed", "requests"), "succeed requests": Quantity("completed", "requests"),
    "failed requests": Quantity("failed", "requests"),
    "req throughput": Quantity("requests_per_s", "requests/s"),
    "request throughput": Quantity("requests_per_s", "requests/s"), "average qps": Quantity("requests_per_s", "1/s"),
    "output throughput": Quantity("output_tokens_per_s", "tokens/s"),
    "output token throughput": Quantity("output_tokens_per_s", "tokens/s"),
    "throughput": Quantity("output_tokens_per_s", "tokens/s", "`Throughput(average tokens/s)`"),
    "avg input tokens": Quantity("prompt_tokens", "tokens", "mean"),
    "average input tokens per request": Quantity("prompt_tokens", "tokens", "mean"),
    "avg output tokens": Quantity("output_tokens", "tokens", "mean"),
    "average output tokens per request": Quantity("output_tokens", "tokens", "mean"),
    "input tokens": Quantity("prompt_tokens", "tokens"), "output tokens": Quantity("output_tokens", "tokens"),
    "stream requests": Quantity("", "requests"), "non-stream requests": Quantity("", "requests"),
}
"""Key without its unit, in lower case, to meaning. The unit in the key's brackets counts."""

PERCENTILES = {"50%": "p50", "90%": "p90", "99%": "p99", "max": "max"}

AVERAGE_ONLY = "average package latency"
"""A key of the versions whose TPOT is the run's time ÷ all its tokens, the reciprocal of the throughput."""

_SUMMARY = re.compile(r'(?<!\\)"(?:Avg Latency|Average latency|Avg TTFT|Average time to first token) ?\(\w+\)"\s*:')
_OLDEST = re.compile(r'(?<!\\)"(?:Average QPS|Throughput\(average tokens/s\))"\s*:')
_PERCENTILE = re.compile(r'(?<!\\)"Percentiles?"\s*:\s*["\[]')
_LATENCY = re.compile(r'(?<!\\)"(?:Latency|TTFT) ?\(\w+\)"\s*:')
_KEY = re.compile(r"(.*?)\s*(?:\(([^()]*)\))?\s*")


def matches(head: str) -> bool:
    """Whether a text that begins like this is one of the two."""
    if head.lstrip()[:1] not in ("{", "["):
        return False
    return bool(_SUMMARY.search(head) or _OLDEST.search(head)
                or (_PERCENTILE.search(head) and _LATENCY.search(head)))


def read(path: str | PathLike[str]) -> tuple[BenchRecord, ...]:
    """A record a summary, or one of all percentiles. Raises UnusableInput where nothing can be used."""
    loaded = documents.load(path)
    rows = [one for one in loaded.found if "Percentiles" in one or "Percentile" in one]
    if rows:
        return records(path, [{}], loaded.notes, lambda _: _percentiles(_as_rows(rows)))
    return records(path, loaded.found, loaded.notes, _run)


def _run(document: dict[str, Any]) -> Run:
    run = Run("evalscope", Environment(model=name(document.get("Model")), client="evalscope"))
    figures, others = _figures(document, run)
    for latency in ("ttft", "tpot", "itl", "e2e"):
        run.told[latency] = Stat(mean=positive(figures.get(f"{latency}.mean")))
    run.concurrency, run.request_rate = positive(figures.get("concurrency")), positive(figures.get("request_rate"))
    if run.request_rate is not None:
        run.concurrency = None
    run.completed, run.failed = count(figures.get("completed")), count(figures.get("failed"))
    for field in ("duration_s", "requests_per_s", "output_tokens_per_s", "prompt_tokens", "output_tokens"):
        setattr(run, field, positive(figures.get(field)))
    if run.prompt_tokens is not None:
        run.definitions.append("lengths: means, the file has no others")
    if AVERAGE_ONLY in others and run.told.pop("tpot").mean is not None:
        run.definitions.append("tpot: the run's time ÷ all tokens in this version, not a request's: left out")
    _without_stream(run, others)
    return run


def _without_stream(run: Run, others: Mapping[str, float | None]) -> None:
    """A TTFT of requests that were not streamed is no TTFT."""
    ttft, e2e = run.told["ttft"].mean, run.told["e2e"].mean
    if ttft is None:
        return
    if others.get("stream requests") == 0 and others.get("non-stream requests"):
        run.told["ttft"] = run.told["tpot"] = Stat()
        run.definitions.append("ttft: the requests were not streamed, it is their whole latency: left out")
    elif e2e is not None and ttft >= 0.995 * e2e:
        run.notes.append("TTFT is the whole latency: not streamed, or the stream was held back")


def _figures(document: Mapping[str, Any], run: Run) -> tuple[dict[str, Any], dict[str, float | None]]:
    """By field, times in ms (a duration in s); and the keys that are no field of a record."""
    fields: dict[str, Any] = {}
    others: dict[str, float | None] = {}
    for key, raw in document.items():
        match = _KEY.fullmatch(key)
        if match is None:
            continue
        base, unit = match[1].casefold(), match[2] or ""
        row, value = UNITS.get(base), number(raw)
        if row is None or not row.field:
            others[base] = value
        elif row.unit != "by key":
            fields.setdefault(row.field, value)
        elif unit not in SECONDS:
            run.notes.append(f"{name(key)}: a latency without a unit of time: left out")
        else:
            fields.setdefault(row.field, in_unit(value, unit, "s" if row.field == "duration_s" else "ms"))
    return fields, others


def _as_rows(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row a percentile, also of a file that has a column a quantity."""
    labels = found[0].get("Percentiles")
    if not isinstance(labels, list):
        return found
    columns = {key: values for key, values in found[0].items() if isinstance(values, list)}
    return [{key: values[i] for key, values in columns.items() if i < len(values)} for i in range(len(labels))]


def _percentiles(rows: list[dict[str, Any]]) -> Run:
    run = Run("evalscope", Environment(client="evalscope"))
    found: dict[str, dict[str, float | None]] = {}
    for row in rows:
        label = name(row.get("Percentiles", row.get("Percentile"))).casefold()
        figures, _ = _figures(row, run)
        least = number(figures.get("ttft"))
        if label == "min":
            run.ttft_least = least
        if label in PERCENTILES:
            for field, value in figures.items():
                found.setdefault(field, {})[PERCENTILES[label]] = positive(value)
        if label == "50%" and least is not None and least <= 0:
            run.ttft_zero_at = "median"
    for latency in ("ttft", "tpot", "itl", "e2e"):
        of = found.get(latency, {})
        run.told[latency] = Stat(None, of.get("p50"), of.get("p90"), of.get("p99"), None, of.get("max"))
    if not any(run.told[latency] != Stat() for latency in run.told):
        run.notes.append("no 50th, 90th or 99th percentile of a latency in it")
    run.prompt_tokens = found.get("prompt_tokens", {}).get("p50")
    run.output_tokens = found.get("output_tokens", {}).get("p50")
    run.notes.append("percentiles alone do not say the load: benchmark_summary.json, which lies beside it, does")
    return run
