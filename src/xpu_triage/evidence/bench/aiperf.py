"""Results of aiperf (and of genai-perf, which it follows): the JSON or CSV of a run, or its `profile_export.jsonl`.

Source: aiperf/metrics/types, aiperf/exporters. A metric is `{unit, avg, p50, …}`; in the CSV its name carries the unit.
`inter_token_latency` is one figure a request, (latency − ttft) ÷ (tokens − 1): our TPOT. `inter_chunk_latency` is the
gap between two chunks with content: our ITL. Lengths and rates count tokens with the client's tokenizer; where the
server's own count is there too, that one is taken.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ...baseline.records import BenchRecord, Environment, Floats, Requests
from . import documents
from .figures import SECONDS, Quantity, Run, at, count, in_unit, name, number, positive, records, told, tpot_ms

UNITS = {
    "time_to_first_token": Quantity("ttft", "as said"),
    "inter_token_latency": Quantity("tpot", "as said", "(latency − ttft) ÷ (tokens − 1), tokens by the client's count"),
    "inter_chunk_latency": Quantity("itl", "as said", "gap between two chunks with content"),
    "request_latency": Quantity("e2e", "as said", "to the last content"),
    "benchmark_duration": Quantity("duration_s", "as said"),
    "request_count": Quantity("completed", "requests"),
    "error_request_count": Quantity("failed", "requests"),
    "request_throughput": Quantity("requests_per_s", "requests/sec"),
    "output_token_throughput": Quantity("output_tokens_per_s", "tokens/sec", "by the client's count"),
    "input_token_throughput": Quantity("prompt_tokens_per_s", "tokens/sec", "cached ones included"),
    "input_sequence_length": Quantity("prompt_tokens", "tokens", "by the client's count"),
    "output_sequence_length": Quantity("output_tokens", "tokens", "by the client's count"),
    "usage_prompt_tokens": Quantity("prompt_tokens", "tokens", "by the server's count"),
    "usage_completion_tokens": Quantity("output_tokens", "tokens", "by the server's count"),
    "effective_concurrency": Quantity("mean_in_flight", "requests", "measured, not set"),
}
"""Metric to meaning. The unit in the file counts; one that is no unit of time leaves the figure out."""

STATISTICS = {"mean": ("avg",), "p50": ("p50",), "p90": ("p90",), "p99": ("p99",), "max": ("max",)}

EXTRA = ("http_req_waiting", "http_req_receiving", "http_req_connecting", "http_req_blocked", "credit_to_start_latency")
"""Kept under their own names, the median in ms: where the time of a request went on the wire."""

_JSON = re.compile(r'(?<!\\)"(?:time_to_first_token|request_latency|inter_token_latency|request_count'
                   r'|request_throughput)"\s*:\s*\{\s*"(?:unit|avg)"\s*:')
_RECORD = (re.compile(r'^\s*\{\s*"metadata"\s*:\s*\{'), re.compile(r'(?<!\\)"metrics"\s*:\s*\{'),
           re.compile(r'(?<!\\)"request_(?:start|end)_ns"\s*:'))
_CSV = re.compile(r"(?m)^\"?(?:Request Latency|Time [Tt]o First Token|Inter Token Latency) \((\w+)\)\"?,")
_NAME = re.compile(r"(.*?)\s*(?:\(([^()]*)\))?\s*")
_THOUSANDS = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d*)?")


def matches(head: str) -> bool:
    """Whether a text that begins like this is one of the three."""
    if head.lstrip()[:1] == "{":
        return _JSON.search(head) is not None or '"aiperf_version"' in head[:1000] or all(
            key.search(head) for key in _RECORD)
    return re.match(r'\s*"?Metric"?,', head) is not None and _CSV.search(head) is not None


def read(path: str | PathLike[str]) -> tuple[BenchRecord, ...]:
    """One record. Raises UnusableInput where no request was completed."""
    notes: list[str] = []
    content = documents.text(Path(path), notes)
    if content.lstrip()[:1] not in ("{", "["):
        return records(path, [_table(content)], notes, _run)
    loaded = documents.load(path)
    rows = [one for one in loaded.found if all(isinstance(one.get(part), dict) for part in ("metadata", "metrics"))]
    if rows:
        whole = rows[:-1] if loaded.cut and rows[-1] is loaded.found[-1] else rows
        return records(path, [{}], loaded.notes, lambda _: _requests(whole))
    return records(path, loaded.found, loaded.notes, _run)


def _table(content: str) -> dict[str, Any]:
    """The sections of the CSV as the JSON has them: by metric, a figure a statistic."""
    found: dict[str, Any] = {}
    header: list[str] = []
    for cells in csv.reader(_bounded(content.splitlines())):
        if not cells or not cells[0]:
            header = []
        elif cells[0].strip().casefold() == "metric":
            header = ["avg" if cell.strip().casefold() == "value" else cell.strip().casefold() for cell in cells[1:]]
        elif header and (match := _NAME.fullmatch(cells[0])):
            tag = re.sub(r"[^a-z0-9]+", "_", match[1].casefold()).strip("_")
            found[tag] = {"unit": match[2] or "", **dict(zip(header, map(_cell, cells[1:]), strict=False))}
    return found


def _bounded(rows: Iterable[str]) -> Iterable[str]:
    """Rows as the csv module takes them."""
    return (row.replace("\0", "")[:10_000] for row in rows)


def _cell(cell: str) -> float | None:
    cell = cell.strip()
    if _THOUSANDS.fullmatch(cell):
        cell = cell.replace(",", "")
    try:
        return number(float(cell))
    except ValueError:
        return None


def _run(document: dict[str, Any]) -> Run:
    run = Run("aiperf", _environment(document))
    metrics = {tag: metric for tag, metric in document.items() if isinstance(metric, dict)}
    for tag in ("time_to_first_token", "inter_token_latency", "inter_chunk_latency", "request_latency"):
        _latency(run, tag, metrics.get(tag, {}))
    _ttft_zeros(run, metrics.get("time_to_first_token", {}))
    for tag, field in (("request_count", "completed"), ("error_request_count", "failed")):
        setattr(run, field, count(at(metrics, tag, "avg")))
    for tag in ("request_throughput", "output_token_throughput", "input_token_throughput"):
        setattr(run, UNITS[tag].field, positive(at(metrics, tag, "avg")))
    unit = name(at(metrics, "benchmark_duration", "unit"))
    if unit in SECONDS:
        run.duration_s = in_unit(positive(at(metrics, "benchmark_duration", "avg")), unit, "s")
    run.prompt_tokens = positive(at(metrics, "input_sequence_length", "p50"))
    run.output_tokens = positive(at(metrics, "output_sequence_length", "p50"))
    _server_counts(run, metrics)
    _load(document, run)
    if (in_flight := positive(at(metrics, "effective_concurrency", "avg"))) is not None:
        run.extra["mean_in_flight"] = in_flight
    for tag in EXTRA:
        metric = metrics.get(tag, {})
        value = number(metric.get("p50"))
        if value is not None and (spelled := name(metric.get("unit"))) in SECONDS:
            run.extra[tag] = value * SECONDS[spelled] / SECONDS["ms"]
    if document.get("was_cancelled") is True:
        run.notes.append("the run was cancelled: figures are of the part before")
    return run


def _latency(run: Run, tag: str, metric: Mapping[str, Any]) -> None:
    unit = name(metric.get("unit"))
    if unit in SECONDS:
        run.told[UNITS[tag].field] = replace(told(metric, unit, STATISTICS), n=count(metric.get("count")))
    elif metric:
        run.notes.append(f"{tag} in {unit or 'no unit'}: left out")


def _ttft_zeros(run: Run, metric: Mapping[str, Any]) -> None:
    run.ttft_least = number(metric.get("min"))
    median = number(metric.get("p50"))
    run.ttft_zero_at = "median" if median is not None and median <= 0 else ""


def _server_counts(run: Run, metrics: Mapping[str, Any]) -> None:
    """Lengths and rates by the server's own count of tokens."""
    run.prompt_tokens = positive(at(metrics, "usage_prompt_tokens", "p50")) or run.prompt_tokens
    run.output_tokens = positive(at(metrics, "usage_completion_tokens", "p50")) or run.output_tokens
    ours = positive(at(metrics, "output_sequence_length", "sum"))
    theirs = positive(at(metrics, "usage_completion_tokens", "sum"))
    if ours is not None and theirs is not None and ours != theirs:
        run.definitions.append(f"tokens: the client's tokenizer counts {ours:,.0f}, the server {theirs:,.0f}; lengths "
                               "and tokens per second by the server, TPOT by the client")
        if run.output_tokens_per_s is not None:
            run.output_tokens_per_s *= theirs / ours


def _load(document: Mapping[str, Any], run: Run) -> None:
    """The phase that was measured; before there were phases, the settings of the load generator."""
    config = document.get("input_config")
    phases = at(config, "phases")
    rows = [one for one in phases if isinstance(one, dict)] if isinstance(phases, list) else []
    measured = [one for one in rows if "profiling" in (one.get("kind"), one.get("name"))] or rows[-1:]
    older = (at(config, "loadgen"), at(config, "perf_analyzer", "stimulus"))
    for settings in (*measured[:1], *(one for one in older if isinstance(one, dict))):
        run.request_rate = positive(settings.get("rate")) or positive(settings.get("request_rate"))
        cap = positive(settings.get("concurrency"))
        if run.request_rate is None:
            run.concurrency = cap
        elif cap is not None:
            run.extra["max_concurrency"] = cap


def _environment(document: Mapping[str, Any]) -> Environment:
    """Of the configuration only the model's name and the tool's version: URLs and keys stand there too."""
    config = document.get("input_config")
    items = at(config, "models", "items")
    first = items[0] if isinstance(items, list) and items else None
    names = at(config, "endpoint", "model_names")
    older = names[0] if isinstance(names, list) and names else None
    return Environment(model=name(at(first, "name") or older), client="aiperf",
                       client_version=name(document.get("aiperf_version")))


def _requests(rows: Sequence[Mapping[str, Any]]) -> Run:
    run = Run("aiperf", Environment(client="aiperf"))
    measured = [row for row in rows if at(row, "metadata", "benchmark_phase") in (None, "profiling")]
    done = [row for row in measured if not row.get("error") and not at(row, "metadata", "was_cancelled")]
    run.completed, run.failed = len(done), len(measured) - len(done)
    if len(measured) < len(rows):
        run.notes.append(f"{len(rows) - len(measured):,} warm-up requests left out")
    ttft, e2e = _times(done, "time_to_first_token"), _times(done, "request_latency")
    ours, theirs = _tokens(done, "output_sequence_length"), _tokens(done, "usage_completion_tokens")
    output = np.where(np.isnan(theirs), ours, theirs)
    prompts = _tokens(done, "usage_prompt_tokens")
    start, end = (np.array([_clock(at(row, "metadata", f"request_{edge}_ns")) for row in done]) for edge in
                  ("start", "end"))
    first = np.nanmin(start) if len(start) and not np.isnan(start).all() else np.nan
    if len(end) and not np.isnan(end).all() and np.nanmax(end) > first:
        run.duration_s = float(np.nanmax(end) - first)
        run.requests_per_s = len(done) / run.duration_s
        if not np.isnan(output).any():
            run.output_tokens_per_s = float(output.sum()) / run.duration_s
    run.requests = Requests(
        ttft_ms=ttft, e2e_ms=e2e, tpot_ms=tpot_ms(ttft, e2e, output), output_tokens=output, start_s=start - first,
        prompt_tokens=np.where(np.isnan(prompts), _tokens(done, "input_sequence_length"), prompts),
        itl_ms=_chunk_gaps(done))
    run.notes.append("requests alone do not say the load that was set: profile_export_aiperf.json does")
    return run


def _value(row: Mapping[str, Any], tag: str) -> tuple[Any, str]:
    return at(row, "metrics", tag, "value"), name(at(row, "metrics", tag, "unit"))


def _times(rows: Sequence[Mapping[str, Any]], tag: str) -> Floats:
    """In ms; NaN where it is missing or in no unit of time."""
    found = [_value(row, tag) for row in rows]
    times = [in_unit(number(value), unit, "ms") if unit in SECONDS else None for value, unit in found]
    return np.array([np.nan if time is None else time for time in times], dtype=float)


def _tokens(rows: Sequence[Mapping[str, Any]], tag: str) -> Floats:
    found = [number(_value(row, tag)[0]) for row in rows]
    return np.array([np.nan if value is None else value for value in found], dtype=float)


def _chunk_gaps(rows: Sequence[Mapping[str, Any]]) -> tuple[Floats, ...]:
    gaps = []
    for row in rows:
        values, unit = _value(row, "inter_chunk_latency")
        listed = values if isinstance(values, list) and unit in SECONDS else []
        times = [in_unit(number(value), unit, "ms") for value in listed]
        gaps.append(np.array([time for time in times if time is not None], dtype=float))
    return tuple(gaps) if any(len(gap) for gap in gaps) else ()


def _clock(raw: Any) -> float:
    """Seconds of a clock in ns."""
    return raw / 1e9 if isinstance(raw, int) and not isinstance(raw, bool) and 0 < raw < 1 << 63 else np.nan
