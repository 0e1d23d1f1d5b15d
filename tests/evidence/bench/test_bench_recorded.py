"""Results recorded by others, every one to the same record; and against each other where two tools measured one
server. The figures were read off the files by hand, or computed here from their requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from xpu_triage.baseline import signals
from xpu_triage.baseline.records import BenchRecord
from xpu_triage.evidence import bench
from xpu_triage.signals import Value

KNOWN: dict[str, dict[str, Any]] = {
    "vllm-bench-serve-*-detailed-*.json": {
        "tool": "vllm bench serve", "concurrency": 4, "lengths": (64, 32), "completed": 20, "failed": 0,
        "ttft": 725.412, "tpot": 111.673, "itl": 60.0992, "e2e": 4487.70, "tokens_per_s": 31.5229, "invalid": 0},
    "sglang-bench_serving-*.jsonl": {
        "tool": "sglang bench_serving", "concurrency": 4, "lengths": (64, 32), "completed": 20, "failed": 0,
        "ttft": 686.693, "tpot": None, "itl": 33.9920, "e2e": 2031.56, "tokens_per_s": 64.1545, "invalid": 15},
    "guidellm-*-20req-*.json": {       # its own TTFT median, 181.5, is the next value up; so are the others
        "tool": "guidellm", "concurrency": 4, "lengths": (26, 32), "completed": 20, "failed": 0,
        "ttft": 179.588, "tpot": 22.1517, "itl": None, "e2e": 881.109, "tokens_per_s": 128.450, "invalid": 0},
    "aiperf-*-profile_export_aiperf.json": {    # 10.1244 tokens/s by the client's count, × 640 ÷ 656
        "tool": "aiperf", "concurrency": 4, "lengths": (64, 32), "completed": 20, "failed": None,
        "ttft": 2322.70, "tpot": 335.111, "itl": 537.002, "e2e": 12417.8, "tokens_per_s": 9.87747, "invalid": 0},
    "llmeter-*-stats.json": {
        "tool": "llmeter", "concurrency": 4, "lengths": (9, 32), "completed": 20, "failed": 0,
        "ttft": 182.907, "tpot": 21.1054, "itl": None, "e2e": 880.700, "tokens_per_s": 128.160, "invalid": 0},
    "llmeter-*-responses-first3.jsonl": {
        "tool": "llmeter", "concurrency": None, "lengths": (9, 32), "completed": 3, "failed": 0,
        "ttft": 874.732, "tpot": 19.6766, "itl": None, "e2e": 1481.25, "tokens_per_s": None, "invalid": 0},
}


def path_of(shared: Path, pattern: str) -> Path:
    found = sorted((shared / "samples" / "bench").glob(pattern))
    if len(found) != 1:
        pytest.skip(f"no ../shared/samples/bench/{pattern}: results of others are not part of the repository")
    return found[0]


def read(shared: Path, pattern: str) -> BenchRecord:
    (record,) = bench.read(path_of(shared, pattern))
    return record


def values(record: BenchRecord) -> dict[str, Value]:
    return {signal.name: signal.value for signal in signals.measure([record]).signals}


@pytest.mark.parametrize("pattern", KNOWN)
def test_every_tool_reads_to_the_same_record(pattern: str, shared: Path) -> None:
    record, known = read(shared, pattern), KNOWN[pattern]
    assert (record.tool, record.concurrency, record.completed, record.failed) == (
        known["tool"], known["concurrency"], known["completed"], known["failed"])
    assert (record.prompt_tokens, record.output_tokens) == known["lengths"]
    for latency in ("ttft", "tpot", "itl", "e2e"):
        assert record.stat(latency).p50 == (known[latency] and pytest.approx(known[latency], rel=1e-5)), latency
    assert record.output_tokens_per_s == (known["tokens_per_s"] and pytest.approx(known["tokens_per_s"], rel=1e-5))
    assert record.invalid_ttft == known["invalid"]


def test_no_recorded_file_is_left_without_a_reader(shared: Path) -> None:
    assert {bench.read(path)[0].tool for path in (shared / "samples" / "bench").iterdir()} == {
        known["tool"] for known in KNOWN.values()}


def test_two_tools_that_measured_one_mock_server_agree(shared: Path) -> None:
    one, other = read(shared, "guidellm-*-20req-*.json"), read(shared, "llmeter-*-stats.json")
    for latency, within in (("ttft", 0.03), ("e2e", 0.01), ("tpot", 0.06)):
        assert one.stat(latency).p50 == pytest.approx(other.stat(latency).p50, rel=within)
    assert one.output_tokens_per_s == pytest.approx(other.output_tokens_per_s, rel=0.01)
    assert one.requests_per_s == pytest.approx(other.requests_per_s, rel=0.01)


def test_the_time_per_token_with_ttft_in_it_would_not_agree(shared: Path) -> None:
    report = json.loads(path_of(shared, "guidellm-*-20req-*.json").read_text())
    theirs = report["benchmarks"][0]["metrics"]["time_per_output_token_ms"]["successful"]["percentiles"]["p50"]
    assert theirs > 1.2 * (read(shared, "llmeter-*-stats.json").stat("tpot").p50 or 0)


def test_throughput_is_that_of_requests_and_duration(shared: Path) -> None:
    for pattern in KNOWN:
        record = read(shared, pattern)
        if record.duration_s is not None and record.completed is not None and record.output_tokens is not None:
            assert record.output_tokens_per_s == pytest.approx(
                record.completed * record.output_tokens / record.duration_s, rel=0.005)


def test_clients_and_engine_agree_on_the_gap_between_tokens(shared: Path) -> None:
    """The engine's own histograms over the same run: median 50 to 75 ms, 99th percentile 400 to 500 ms."""
    said = values(read(shared, "vllm-bench-serve-*-detailed-*.json"))
    assert 50 < float(said["latency.itl_ms"]) < 75
    assert 400 < float(said["latency.itl_p99_ms"]) < 500


def test_gaps_between_chunks_with_text_are_not_taken_for_gaps_between_tokens(shared: Path) -> None:
    for pattern in ("sglang-bench_serving-*.jsonl", "aiperf-*-profile_export_aiperf.json"):
        measured = signals.measure([read(shared, pattern)])
        assert "latency.itl_p99_ms" not in {signal.name for signal in measured.signals}
        assert "gaps between chunks for a token" in measured.unknown["latency.itl_p99_ms"]


def test_nothing_of_prompts_answers_and_servers_is_kept(shared: Path) -> None:
    for path in (shared / "samples" / "bench").iterdir():
        for record in bench.read(path):
            said = repr(record) + repr(record.requests)
            assert not any(word in said.replace(record.source, "") for word in
                           ("127.0.0.1", "http:", "quick brown", "Score each cause", "/opt/"))
