"""Result files of benchmark tools, written by hand in each tool's own format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from xpu_triage.baseline.records import BenchRecord
from xpu_triage.evidence import bench

VLLM: dict[str, Any] = {
    "date": "20260101-000000", "endpoint_type": "openai", "backend": "openai", "label": None, "model_id": "m",
    "tokenizer_id": "m", "num_prompts": 4, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 2,
    "duration": 2.0, "completed": 3, "failed": 1, "total_input_tokens": 30, "total_output_tokens": 12,
    "request_throughput": 1.5, "request_goodput": None, "output_throughput": 6.0, "total_token_throughput": 21.0,
    "mean_ttft_ms": 120.0, "median_ttft_ms": 110.0, "std_ttft_ms": 5.0, "p99_ttft_ms": 150.0,
    "mean_tpot_ms": 20.0, "median_tpot_ms": 19.0, "std_tpot_ms": 1.0, "p99_tpot_ms": 25.0,
    "mean_itl_ms": 20.0, "median_itl_ms": 18.0, "std_itl_ms": 1.0, "p99_itl_ms": 40.0}
"""`vllm bench serve --save-result`, with the default percentiles and metrics."""

VLLM_DETAILS: dict[str, Any] = {
    "input_lens": [10, 10, 10, 12], "output_lens": [4, 4, 4, 0],
    "ttfts": [0.1, 0.11, 0.15, 0.0],
    "itls": [[0.01, 0.02, 0.03], [0.02, 0.02, 0.02], [0.01, 0.01, 0.01], []],
    "start_times": [100.0, 100.5, 101.0, 101.2],
    "generated_texts": ["SECRET", "b", "c", ""], "errors": ["", "", "", "Traceback: http://host.internal:8000"]}
"""Of three completed requests and one that failed."""

SGLANG: dict[str, Any] = {
    "tag": None, "backend": "sglang", "dataset_name": "random", "request_rate": float("inf"), "max_concurrency": 2,
    "sharegpt_output_len": None, "random_input_len": 10, "random_output_len": 4, "random_range_ratio": 1.0,
    "duration": 2.0, "completed": 3, "total_input_tokens": 30, "total_output_tokens": 12,
    "total_output_tokens_retokenized": 12, "request_throughput": 1.5, "input_throughput": 15.0,
    "output_throughput": 6.0, "mean_e2e_latency_ms": 170.0, "median_e2e_latency_ms": 170.0,
    "std_e2e_latency_ms": 5.0, "p99_e2e_latency_ms": 180.0, "mean_ttft_ms": 120.0, "median_ttft_ms": 110.0,
    "std_ttft_ms": 5.0, "p99_ttft_ms": 150.0, "mean_tpot_ms": 17.0, "median_tpot_ms": 20.0, "std_tpot_ms": 1.0,
    "p99_tpot_ms": 20.0, "mean_itl_ms": 17.0, "median_itl_ms": 20.0, "std_itl_ms": 1.0, "p95_itl_ms": 30.0,
    "p99_itl_ms": 30.0, "concurrency": 1.5, "accept_length": None}

LLMETER: dict[str, Any] = {
    "total_requests": 5, "clients": 2, "n_requests": 3, "total_test_time": 2.0, "model_id": "m",
    "output_path": "/home/someone/out", "endpoint_name": "openai", "failed_requests": 1, "failed_requests_rate": 0.2,
    "total_input_tokens": 40, "total_output_tokens": 16, "time_to_last_token-average": 0.2,
    "time_to_last_token-p50": 0.19, "time_to_last_token-p90": 0.3, "time_to_last_token-p99": 0.31,
    "time_to_first_token-average": 0.1, "time_to_first_token-p50": 0.09, "time_to_first_token-p90": 0.15,
    "time_to_first_token-p99": 0.16, "time_per_output_token-p50": 0.02, "num_tokens_output-p50": 4,
    "num_tokens_input-p50": 10.0, "requests_per_minute": 150.0}


def response(ttft: float | None, last: float | None, tokens: int | None = 5,
             error: str | None = None) -> dict[str, Any]:
    """A line of llmeter's responses.jsonl."""
    return {"response_text": "SECRET", "input_payload": {"messages": [{"content": "SECRET"}], "model": "m"},
            "id": "x", "input_prompt": "SECRET", "time_to_first_token": ttft, "time_to_last_token": last,
            "num_tokens_input": 10, "num_tokens_output": tokens, "time_per_output_token": None, "error": error,
            "request_time": "2026-01-01T00:00:00Z"}


def summary(mean: float, **percentiles: float) -> dict[str, Any]:
    """A metric of guidellm over completed requests."""
    return {"successful": {"mean": mean, "median": percentiles.get("p50"), "min": percentiles.get("min", mean),
                           "max": percentiles.get("max", mean), "count": 3, "percentiles": percentiles},
            "errored": {"mean": 0.0, "count": 0, "percentiles": {"p50": 0.0}}}


def guidellm(requests: list[dict[str, Any]] | None = None, **strategy: Any) -> dict[str, Any]:
    """A report of guidellm 0.8 with one benchmark."""
    return {
        "metadata": {"version": 2, "guidellm_version": "0.8.1"},
        "config": {"spec": {"backend": {"target": "http://host.internal:8000", "api_key": "SECRET"}}},
        "benchmarks": [{
            "type_": "generative_benchmark",
            "config": {"strategy": strategy or {"type_": "concurrent", "streams": 2},
                       "backend": {"target": "http://host.internal:8000", "model": "m", "api_key": "SECRET"}},
            "metrics": {
                "request_totals": {"successful": 3, "errored": 1, "incomplete": 0, "total": 4},
                "request_latency": summary(0.3, p50=0.31, p90=0.4, p99=0.41),
                "time_to_first_token_ms": summary(100.0, p50=90.0, p90=150.0, p99=160.0, min=80.0),
                "time_per_output_token_ms": summary(60.0, p50=62.0, p90=80.0, p99=81.0),
                "inter_token_latency_ms": summary(50.0, p50=51.0, p90=55.0, p99=56.0),
                "prompt_token_count": summary(10.0, p50=10.0), "output_token_count": summary(5.0, p50=5.0),
                "output_tokens_per_second": summary(7.5, p50=100.0), "requests_per_second": summary(1.5, p50=3.0)},
            "requests": {"successful": requests or [], "errored": [], "incomplete": []},
            "start_time": 10.0, "end_time": 12.0, "duration": 2.0}]}


def guidellm_request(ttft_ms: float | None, latency_s: float, tokens: int, start: float = 10.0) -> dict[str, Any]:
    """A request of that report; its own time per output token has TTFT in it, as the tool computes it."""
    return {"request_id": "x", "request_args": "{\"prompt\": \"SECRET\"}", "output": "SECRET", "prompt_tokens": 10,
            "output_tokens": tokens, "request_latency": latency_s, "request_start_time": start,
            "time_to_first_token_ms": ttft_ms, "time_per_output_token_ms": 1000 * latency_s / tokens}


def metric(unit: str, **figures: float) -> dict[str, Any]:
    """A metric of aiperf."""
    return {"unit": unit, **figures}


AIPERF: dict[str, Any] = {
    "schema_version": "1.4", "aiperf_version": "0.13.0",
    "request_throughput": metric("requests/sec", avg=1.5),
    "request_latency": metric("ms", avg=300.0, p50=310.0, p90=400.0, p99=410.0, min=200.0, max=420.0, count=3),
    "request_count": metric("requests", avg=3.0), "error_request_count": metric("requests", avg=1.0),
    "time_to_first_token": metric("ms", avg=100.0, p50=90.0, p90=150.0, p99=160.0, min=80.0, max=165.0, count=3),
    "inter_token_latency": metric("ms", avg=50.0, p50=51.0, p90=55.0, p99=56.0, max=57.0, count=3),
    "inter_chunk_latency": metric("ms", avg=50.0, p50=49.0, p90=60.0, p99=70.0, max=75.0, count=12),
    "output_token_throughput": metric("tokens/sec", avg=7.5),
    "output_sequence_length": metric("tokens", avg=5.0, p50=5.0, sum=15.0),
    "input_sequence_length": metric("tokens", avg=10.0, p50=10.0, sum=30.0),
    "benchmark_duration": metric("sec", avg=2.0),
    "http_req_waiting": metric("ms", avg=85.0, p50=80.0),
    "input_config": {"models": {"items": [{"name": "m"}]}, "endpoint": {"urls": ["http://host.internal:8000"]},
                     "phases": [{"kind": "warmup", "concurrency": 1}, {"kind": "profiling", "concurrency": 2}]},
    "run_info": {"cli_command": "aiperf profile --api-key SECRET"}, "was_cancelled": False}

AIPERF_CSV = """\
Metric,avg,min,max,sum,p1,p5,p10,p25,p50,p75,p90,p95,p99,std
Inter Chunk Latency (ms),50.00,1.00,75.00,600.00,1.00,1.00,1.00,1.00,49.00,50.00,60.00,65.00,70.00,5.00
Inter Token Latency (ms),50.00,40.00,57.00,150.00,1.00,1.00,1.00,1.00,51.00,52.00,55.00,55.50,56.00,5.00
Input Sequence Length (tokens),10.00,10.00,10.00,30.00,10.00,10.00,10.00,10.00,10.00,10.00,10.00,10.00,10.00,0.00
Output Sequence Length (tokens),5.00,5.00,5.00,15.00,5.00,5.00,5.00,5.00,5.00,5.00,5.00,5.00,5.00,0.00
Request Latency (ms),"1,300.00",200.00,"1,420.00",9.00,1.00,1.00,1.00,1.00,"1,310.00",1.00,"1,400.00",1.00,"1,410.00",5
Time to First Token (ms),100.00,80.00,165.00,300.00,80.00,80.00,80.00,80.00,90.00,95.00,150.00,155.00,160.00,5.00

Metric,Value
Benchmark Duration (sec),2.00
Output Token Throughput (tokens/sec),7.50
Request Count,3
Request Throughput (requests/sec),1.50


Endpoint,GPU_Index,Metric,avg
host.internal:9400,0,GPU Power Usage (W),120.0
"""

EVALSCOPE: dict[str, Any] = {
    "Test Duration (s)": 2.0, "Concurrency": 2, "Request Rate (req/s)": -1.0, "Total Requests": 4,
    "Success Requests": 3, "Failed Requests": 1, "Stream Requests": 3, "Non-Stream Requests": 0,
    "Req Throughput (req/s)": 1.5, "Avg Latency (s)": 0.3, "Avg Input Tokens": 10.0,
    "Output Throughput (tok/s)": 7.5, "Total Throughput (tok/s)": 22.5, "Avg TTFT (ms)": 100.0,
    "Avg TPOT (ms)": 50.0, "Avg ITL (ms)": 49.0, "Avg Output Tokens": 5.0}

EVALSCOPE_PERCENTILES: list[dict[str, Any]] = [
    {"Percentiles": label, "Latency (s)": e2e, "TTFT (ms)": ttft, "ITL (ms)": itl, "TPOT (ms)": tpot,
     "Input tokens": 10.0, "Output tokens": 5.0, "Output (tok/s)": 16.0}
    for label, e2e, ttft, itl, tpot in (
        ("min", 0.2, 80.0, 1.0, 40.0), ("50%", 0.31, 90.0, 49.0, 51.0), ("90%", 0.4, 150.0, 60.0, 55.0),
        ("99%", 0.41, 160.0, 70.0, 56.0), ("max", 0.42, 165.0, 75.0, 57.0))]


def written(path: Path, *documents: Any, text: str | None = None) -> Path:
    """Documents as JSON, one a line; or the text itself."""
    path.write_text("\n".join(map(json.dumps, documents)) if text is None else text, encoding="utf-8")
    return path


def read(path: Path, *documents: Any, text: str | None = None) -> tuple[BenchRecord, ...]:
    """What is read of such a file, by content alone."""
    return bench.read(written(path, *documents, text=text))


def plain(record: BenchRecord) -> str:
    """Everything that a record says, as text."""
    return repr(record) + repr(record.requests)
