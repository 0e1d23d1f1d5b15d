"""Results of `vllm bench serve --save-result`, with `--save-detailed` or without, and of `benchmark_serving.py`.

Source: vllm/benchmarks/serve.py (`calculate_metrics`). Summaries are in ms, the lists of `--save-detailed` in s. A
metric without values is written as 0. Of TTFT, TPOT, ITL and E2E only those named by `--percentile-metrics` are there,
and of percentiles only those of `--metric-percentiles` (the 99th by default).
"""

from __future__ import annotations

import re
from os import PathLike
from typing import Any

from ...baseline.records import BenchRecord, Environment
from . import documents
from .figures import Quantity, Run, count, name, positive, records
from .serve_results import lengths, requests, summary

UNITS = {
    "{}_ttft_ms": Quantity("ttft", "ms", "first chunk with a choice"),
    "{}_tpot_ms": Quantity("tpot", "ms", "(latency − ttft) ÷ (tokens − 1)"),
    "{}_itl_ms": Quantity("itl", "ms", "gap between two chunks"),
    "{}_e2el_ms": Quantity("e2e", "ms", "to the last chunk"),
    "ttfts": Quantity("ttft_ms", "s"),
    "itls": Quantity("itl_ms", "s"),
    "latencies": Quantity("e2e_ms", "s"),
    "start_times": Quantity("start_s", "s"),
    "input_lens": Quantity("prompt_tokens", "tokens"),
    "output_lens": Quantity("output_tokens", "tokens", "as the server counts them, else the client's tokenizer"),
    "errors": Quantity("errors", "text", "empty for a completed request; the texts are not kept"),
    "duration": Quantity("duration_s", "s"),
    "completed": Quantity("completed", "requests"),
    "failed": Quantity("failed", "requests"),
    "output_throughput": Quantity("output_tokens_per_s", "tokens/s"),
    "request_throughput": Quantity("requests_per_s", "requests/s"),
    "total_input_tokens": Quantity("prompt_tokens", "tokens", "sum over completed requests"),
    "total_output_tokens": Quantity("output_tokens", "tokens", "sum over completed requests"),
    "request_rate": Quantity("request_rate", "requests/s", "`inf`: all at once, or as concurrency allows"),
    "max_concurrency": Quantity("concurrency", "requests"),
}
"""Key to meaning; {} stands for a statistic."""

EXTRA = ("max_concurrent_requests", "max_output_tokens_per_s", "burstiness", "spec_decode_acceptance_length")

_KEYS = re.compile(r'(?<!\\)"(?:mean|median|p\d+)_(?:ttft|tpot|itl|e2el)_ms"\s*:')
_ARGUMENTS = (re.compile(r'(?<!\\)"tokenizer_id"\s*:'), re.compile(r'(?<!\\)"num_prompts"\s*:'))
_OTHERS = re.compile(r'(?<!\\)"(?:mean|median)_e2e_latency_ms"\s*:')


def matches(head: str) -> bool:
    """Whether a text that begins like this is such a result: its arguments come first, its summary last."""
    if head.lstrip()[:1] not in ("{", "[") or _OTHERS.search(head):
        return False
    return _KEYS.search(head) is not None or all(key.search(head) for key in _ARGUMENTS)


def read(path: str | PathLike[str]) -> tuple[BenchRecord, ...]:
    """A record a run (`--append-result` writes several). Raises UnusableInput where no run can be used."""
    loaded = documents.load(path)
    return records(path, loaded.found, loaded.notes, _run)


def _run(document: dict[str, Any]) -> Run:
    run = Run("vllm bench serve", Environment(model=name(document.get("model_id")), client="vllm bench serve"))
    summary(document, UNITS, run)
    run.requests = requests(document, UNITS, run.notes, exact=True)
    lengths(document, run)
    run.failed = count(document.get("failed"))
    prompts = count(document.get("num_prompts"))
    if run.failed is None and run.completed is not None and prompts is not None and prompts >= run.completed:
        run.failed = prompts - run.completed
    for key in EXTRA:
        if (value := positive(document.get(key))) is not None:
            run.extra[key] = value
    return run
