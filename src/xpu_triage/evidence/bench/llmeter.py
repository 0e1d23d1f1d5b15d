"""Results of llmeter: `stats.json` of a run, or its `responses.jsonl`. Every time is in s.

Source: llmeter/results.py, llmeter/endpoints/base.py. Texts, prompts and payloads of the responses are not kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from os import PathLike
from typing import Any

import numpy as np

from ...baseline.records import BenchRecord, Environment, Requests
from ...errors import UnusableInput
from . import documents
from .figures import SECONDS, Quantity, Run, column, count, name, number, positive, records, told, tpot_ms

UNITS = {
    "time_to_first_token": Quantity("ttft", "s"),
    "time_to_last_token": Quantity("e2e", "s"),
    "time_per_output_token": Quantity("tpot", "s", "(last − first token) ÷ (tokens − 1)"),
    "num_tokens_input": Quantity("prompt_tokens", "tokens"),
    "num_tokens_output": Quantity("output_tokens", "tokens"),
    "total_test_time": Quantity("duration_s", "s"),
    "total_requests": Quantity("completed", "requests", "failed ones included"),
    "failed_requests": Quantity("failed", "requests"),
    "total_output_tokens": Quantity("output_tokens_per_s", "tokens", "over the run; ÷ total_test_time"),
    "total_input_tokens": Quantity("prompt_tokens_per_s", "tokens", "over the run; ÷ total_test_time"),
    "clients": Quantity("concurrency", "requests", "each has one request in flight"),
}

STATISTICS = {"mean": ("average",), "p50": ("p50",), "p90": ("p90",), "p99": ("p99",)}

_STATS = re.compile(r'(?<!\\)"time_to_(?:first|last)_token-(?:average|p\d+)"\s*:')
_RESPONSE = (re.compile(r'(?<!\\)"time_to_last_token"\s*:'), re.compile(r'(?<!\\)"num_tokens_output"\s*:'))
_SUMMARY = (re.compile(r'(?<!\\)"n_requests"\s*:'), re.compile(r'(?<!\\)"total_test_time"\s*:'),
            re.compile(r'(?<!\\)"clients"\s*:'))


def matches(head: str) -> bool:
    """Whether a text that begins like this is one of the two (or the summary beside them, which has no latency)."""
    return head.lstrip()[:1] == "{" and (
        _STATS.search(head) is not None or all(key.search(head) for key in _RESPONSE)
        or all(key.search(head) for key in _SUMMARY))


def read(path: str | PathLike[str]) -> tuple[BenchRecord, ...]:
    """One record. Raises UnusableInput where no request was completed or no latency is in the file."""
    loaded = documents.load(path)
    responses = [one for one in loaded.found if "time_to_last_token" in one or "num_tokens_output" in one]
    if responses:
        whole = responses[:-1] if loaded.cut and responses[-1] is loaded.found[-1] else responses
        return records(path, [{}], loaded.notes, lambda _: _responses(whole))
    runs = [one for one in loaded.found if any(_STATS.match(f'"{key}":') for key in one)]
    if not runs:
        raise UnusableInput("no latency in this summary of llmeter", where=path,
                            todo="Give stats.json or responses.jsonl, which lie beside it")
    return records(path, runs, loaded.notes, _stats)


def _stats(stats: dict[str, Any]) -> Run:
    run = Run("llmeter", Environment(model=name(stats.get("model_id")), client="llmeter"))
    for key in ("time_to_first_token", "time_to_last_token", "time_per_output_token"):
        row = UNITS[key]
        run.told[row.field] = told(stats, row.unit, {
            statistic: [f"{key}-{spelled}" for spelled in names] for statistic, names in STATISTICS.items()})
    median = number(stats.get("time_to_first_token-p50"))
    run.ttft_zero_at = "median" if median is not None and median <= 0 else ""
    run.concurrency = positive(stats.get("clients"))
    run.failed = count(stats.get("failed_requests"))
    if (total := count(stats.get("total_requests"))) is not None:
        run.completed = max(0, total - (run.failed or 0))
    run.prompt_tokens = positive(stats.get("num_tokens_input-p50"))
    run.output_tokens = positive(stats.get("num_tokens_output-p50"))
    run.duration_s = positive(stats.get("total_test_time"))
    if run.duration_s is not None:
        if run.completed is not None:
            run.requests_per_s = run.completed / run.duration_s
        for key in ("total_output_tokens", "total_input_tokens"):
            if (tokens := positive(stats.get(key))) is not None:
                setattr(run, UNITS[key].field, tokens / run.duration_s)
    return run


def _responses(rows: Sequence[Mapping[str, Any]]) -> Run:
    run = Run("llmeter", Environment(model=_model(rows), client="llmeter"))
    done = [row for row in rows if not row.get("error")]
    run.failed, run.completed = len(rows) - len(done), len(done)

    def of(key: str) -> Any:
        unit = UNITS[key].unit
        return column([row.get(key) for row in done], len(done), SECONDS[unit] / SECONDS["ms"] if unit == "s" else 1.0)

    ttft, e2e, output = of("time_to_first_token"), of("time_to_last_token"), of("num_tokens_output")
    start = np.array([_time(row.get("request_time")) for row in done], dtype=float)
    if len(start) and not np.isnan(start).all():
        start -= np.nanmin(start)
    run.requests = Requests(ttft_ms=ttft, e2e_ms=e2e, tpot_ms=tpot_ms(ttft, e2e, output), output_tokens=output,
                            prompt_tokens=of("num_tokens_input"), start_s=start)
    run.notes.append("responses alone do not say how many were in flight, nor for how long: stats.json does")
    return run


def _model(rows: Sequence[Mapping[str, Any]]) -> str:
    """Of the payloads only the model's name."""
    payloads = (row.get("input_payload") for row in rows)
    return next((name(one["model"]) for one in payloads if isinstance(one, dict) and one.get("model")), "")


def _time(raw: Any) -> float:
    """Seconds since the epoch; NaN for what is no time."""
    try:
        time = datetime.fromisoformat(raw)
    except (TypeError, ValueError):
        return np.nan
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
