"""Results of SGLang's serving benchmark (`sglang.bench_serving`, later `sglang.benchmark.serving`): JSON lines, one a
run, with the lists of `--output-details` or without.

Source: python/sglang/bench_serving.py (`calculate_metrics`). A TTFT is set by the first chunk *with text* and stays 0
where none comes; then TPOT counts from the request's start. A gap lies between two chunks with text.
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
    "{}_ttft_ms": Quantity("ttft", "ms", "first chunk with text; 0 where none came"),
    "{}_tpot_ms": Quantity("tpot", "ms", "(latency − ttft) ÷ (tokens − 1)"),
    "{}_itl_ms": Quantity("itl", "ms", "gap between two chunks with text"),
    "{}_e2e_latency_ms": Quantity("e2e", "ms", "to the last chunk"),
    "ttfts": Quantity("ttft_ms", "s"),
    "itls": Quantity("itl_ms", "s"),
    "input_lens": Quantity("prompt_tokens", "tokens"),
    "output_lens": Quantity("output_tokens", "tokens", "as asked for or as the server counts them"),
    "errors": Quantity("errors", "text", "empty for a completed request; the texts are not kept"),
    "duration": Quantity("duration_s", "s"),
    "completed": Quantity("completed", "requests"),
    "output_throughput": Quantity("output_tokens_per_s", "tokens/s"),
    "request_throughput": Quantity("requests_per_s", "requests/s"),
    "input_throughput": Quantity("prompt_tokens_per_s", "tokens/s", "cached ones included"),
    "total_input_tokens": Quantity("prompt_tokens", "tokens", "sum over completed requests"),
    "total_output_tokens": Quantity("output_tokens", "tokens", "sum over completed requests"),
    "request_rate": Quantity("request_rate", "requests/s", "Infinity: all at once, or as concurrency allows"),
    "max_concurrency": Quantity("concurrency", "requests"),
    "concurrency": Quantity("mean_in_flight", "requests", "sum of latencies ÷ duration: measured, not set"),
}
"""Key to meaning; {} stands for a statistic."""

EXTRA = {"concurrency": "mean_in_flight", "accept_length": "accept_length",
         "max_concurrent_requests": "max_concurrent_requests", "max_output_tokens_per_s": "max_output_tokens_per_s"}

_E2E = re.compile(r'(?<!\\)"(?:mean|median|p\d+)_e2e_latency_ms"\s*:')
_ARGUMENTS = (re.compile(r'(?<!\\)"backend"\s*:'), re.compile(r'(?<!\\)"request_throughput"\s*:'))
_DATASET = re.compile(r'(?<!\\)"(?:sharegpt_output_len|random_range_ratio|random_input_len)"\s*:')


def matches(head: str) -> bool:
    """Whether a text that begins like this is such a result."""
    if head.lstrip()[:1] not in ("{", "["):
        return False
    return _E2E.search(head) is not None or (_DATASET.search(head) is not None
                                             and all(key.search(head) for key in _ARGUMENTS))


def read(path: str | PathLike[str]) -> tuple[BenchRecord, ...]:
    """A record a line. Raises UnusableInput where no run can be used."""
    loaded = documents.load(path)
    return records(path, loaded.found, loaded.notes, _run)


def _run(document: dict[str, Any]) -> Run:
    run = Run("sglang bench_serving", _environment(document))
    summary(document, UNITS, run)
    run.requests = requests(document, UNITS, run.notes, mean_e2e_ms=run.told["e2e"].mean)
    lengths(document, run)
    errors = document.get("errors")
    if isinstance(errors, list):
        run.failed = sum(bool(error) for error in errors)
    elif run.completed is not None and (prompts := count(document.get("num_prompts"))) is not None:
        run.failed = max(0, prompts - run.completed)
    for key, kept in EXTRA.items():
        if (value := positive(document.get(key))) is not None:
            run.extra[kept] = value
    return run


def _environment(document: dict[str, Any]) -> Environment:
    """Of what the server said about itself only its version and model are looked at: keys and hosts stand there too."""
    said = document.get("server_info")
    server = said if isinstance(said, dict) else {}
    version = name(server.get("version"))
    model = server.get("served_model_name") or server.get("model_path") or document.get("model_id")
    return Environment(model=name(model), engine="sglang" if version else "", engine_version=version,
                       client="sglang bench_serving")
