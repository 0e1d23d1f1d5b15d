"""What benchmark results say as signals: of one load, with the reasons for what they cannot say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xpu_triage.baseline.records import BenchRecord, Environment, Requests, Stat, stat_of
from xpu_triage.baseline.signals import gaps_a_token, in_flight, measure
from xpu_triage.catalogue import CATALOGUE
from xpu_triage.signals import Value


def made_of(requests: Requests, **more: Any) -> BenchRecord:
    gaps = np.concatenate(requests.itl_ms) if requests.itl_ms else np.empty(0)
    told = {"ttft": stat_of(requests.ttft_ms), "tpot": stat_of(requests.tpot_ms), "e2e": stat_of(requests.e2e_ms)}
    return record(latencies=told | ({"itl": stat_of(gaps)} if len(gaps) else {}), requests=requests,
                  completed=len(requests), **more)


def record(**more: Any) -> BenchRecord:
    base: dict[str, Any] = {
        "source": "runs/a.json", "tool": "vllm bench serve", "environment": Environment("m"), "concurrency": 4.0,
        "request_rate": None, "prompt_tokens": 64.0, "output_tokens": 5.0,
        "latencies": {"ttft": Stat(p50=100), "tpot": Stat(p50=20), "e2e": Stat(p50=180)}, "duration_s": 10.0,
        "completed": 200, "failed": 0, "output_tokens_per_s": 100.0, "requests_per_s": 20.0}
    return BenchRecord(**(base | more))


def run_of(count: int, gap_ms: float = 20.0) -> Requests:
    """Requests of five tokens: TTFT 100 ms, gaps of 20 ms but the last of each, which is 60 ms."""
    gaps = np.array([gap_ms] * 3 + [3 * gap_ms])
    e2e = 100 + gaps.sum()
    return Requests(ttft_ms=np.full(count, 100.0), e2e_ms=np.full(count, e2e), tpot_ms=np.full(count, gaps.mean()),
                    prompt_tokens=np.full(count, 64.0), output_tokens=np.full(count, 5.0),
                    start_s=np.linspace(0, 1, count), itl_ms=(gaps,) * count)


def values(*records: BenchRecord) -> dict[str, Value]:
    return {signal.name: signal.value for signal in measure(records).signals}


def test_one_run_with_its_requests() -> None:
    assert values(made_of(run_of(50), output_tokens_per_s=31.0)) == {
        "latency.ttft_ms": 100, "latency.e2e_ms": 220,              # 100 + 20 + 20 + 20 + 60
        "latency.itl_ms": 20, "latency.itl_p99_ms": 60, "latency.itl_max_ms": 60,       # 50 of 200 gaps have 60 ms
        "client.frame_interval_ms": 20,
        "serving.request_decode_tokens_per_s": pytest.approx(33.3333),                 # 4 tokens in 120 ms
        "serving.decode_tokens_per_s": 31, "serving.concurrency": 4, "serving.prompt_tokens": 64}


def test_every_signal_is_in_the_catalogue_says_its_window_and_comes_from_its_file() -> None:
    for signal in measure([made_of(run_of(50))]).signals:
        assert "bench" in CATALOGUE[signal.name].evidence
        assert signal.how == "bench"
        assert signal.source == "runs/a.json"
        assert signal.window.startswith("50 requests, 4 in flight, 64 → 5 tokens, 10 s, vllm bench serve")


def test_without_gaps_the_time_per_token_of_a_request_stands_for_them_and_says_so() -> None:
    measured = measure([record()])
    itl = next(signal for signal in measured.signals if signal.name == "latency.itl_ms")
    assert (itl.value, "(e2e − ttft) ÷ (tokens − 1)" in itl.window) == (20, True)
    assert "no such figure of the gaps" in measured.unknown["latency.itl_p99_ms"]


@pytest.mark.parametrize(("tokens_a_chunk", "one_a_token"), [(1, True), (2, False), (4, False)])
def test_a_gap_between_chunks_of_several_tokens_is_none_between_tokens(tokens_a_chunk: int, one_a_token: bool) -> None:
    requests = replace(run_of(50), output_tokens=np.full(50, 1.0 + 4 * tokens_a_chunk))
    measured = measure([made_of(requests)])
    names = {signal.name for signal in measured.signals}
    assert ("latency.itl_p99_ms" in names, "latency.itl_max_ms" in names) == (one_a_token, one_a_token)
    assert "latency.itl_ms" in names                                # then by durations and tokens
    assert one_a_token or "gaps between chunks for a token" in measured.unknown["latency.itl_max_ms"]


def test_gaps_a_token_from_counts_or_from_means_where_requests_are_missing() -> None:
    counted = record(latencies={"itl": Stat(p50=40, n=400)})        # 200 requests × 4 tokens after the first
    assert gaps_a_token(counted) == 0.5
    assert gaps_a_token(record(latencies={"itl": Stat(mean=40), "tpot": Stat(mean=20)})) == 0.5
    assert gaps_a_token(record()) is None


def bursts(of: int, token_ms: float = 30.0) -> Requests:
    """97 tokens a request, which leave a buffer `of` at a time: one gap of their time, then hardly any."""
    gaps = np.array([token_ms * of if j % of == of - 1 else 0.02 for j in range(96)])
    e2e = 100 + gaps.sum()
    return Requests(ttft_ms=np.full(20, 100.0), e2e_ms=np.full(20, e2e), tpot_ms=np.full(20, gaps.mean()),
                    prompt_tokens=np.full(20, 64.0), output_tokens=np.full(20, 97.0), start_s=np.linspace(0, 1, 20),
                    itl_ms=(gaps,) * 20)


@pytest.mark.parametrize("of", [3, 16])
def test_a_stream_that_comes_in_bursts_says_nothing_of_the_gaps_between_tokens(of: int) -> None:
    measured = measure([made_of(bursts(of), output_tokens_per_s=31.0)])
    found = {signal.name: signal.value for signal in measured.signals}
    assert found["latency.itl_ms"] == pytest.approx(30, rel=0.01)         # (96 ÷ of × 30 × of) ÷ 96
    for name in ("latency.itl_p99_ms", "latency.itl_max_ms", "client.frame_interval_ms"):
        assert name not in found
        assert "the time between two bursts" in measured.unknown[name]
    assert any("buffered on the way" in note for note in measured.notes)


def test_even_steps_with_long_stalls_between_are_no_bursts() -> None:
    """Of 96 gaps four last 5 s, so that a token takes 237 ms on average: the usual one still takes its 30."""
    gaps = np.array([5000.0 if j % 24 == 23 else 30.0 for j in range(96)])
    stalled = bursts(1)
    stalled = replace(stalled, itl_ms=(gaps,) * 20, tpot_ms=np.full(20, gaps.mean()),
                      e2e_ms=np.full(20, 100 + gaps.sum()))
    assert values(made_of(stalled))["latency.itl_max_ms"] == 5000


def test_few_gaps_have_no_99th_percentile() -> None:
    measured = measure([made_of(run_of(24))])                       # 96 gaps
    assert measured.unknown["latency.itl_p99_ms"] == "96 gaps are too few for a 99th percentile"
    assert "latency.itl_max_ms" in {signal.name for signal in measured.signals}


def test_zero_ttfts_show_the_empty_first_chunk() -> None:
    measured = measure([record(invalid_ttft=15, completed=20, latencies={"ttft": Stat(p50=686.7, n=5)})])
    said = {signal.name: signal for signal in measured.signals}
    assert said["client.first_chunk_empty"].value is True
    assert "median of the 5 that are valid, 15 are 0" in said["latency.ttft_ms"].window
    assert "client.first_chunk_empty" not in values(record())       # nobody looked: unknown, not false


def test_only_means_are_no_medians() -> None:
    measured = measure([record(latencies={"ttft": Stat(mean=100), "e2e": Stat(mean=300)})])
    assert measured.unknown["latency.ttft_ms"] == "only the mean is known, 100 ms"
    assert not any(signal.name.startswith("latency.") for signal in measured.signals)


def test_a_client_does_not_know_what_came_from_a_cache() -> None:
    assert "cache" in measure([record(prompt_tokens_per_s=500.0)]).unknown["serving.prefill_tokens_per_s"]


def test_a_rate_is_offered_and_what_is_in_flight_is_measured() -> None:
    rated = made_of(run_of(100), concurrency=None, request_rate=10.0)
    said = {signal.name: signal for signal in measure([rated]).signals}
    assert said["serving.offered_requests_per_s"].value == 10
    assert said["serving.concurrency"].value == pytest.approx(2.2)  # 100 × 0.22 s ÷ 10 s
    assert said["serving.concurrency"].window.endswith("measured")


def test_of_several_loads_the_one_with_most_in_flight_speaks_and_is_named() -> None:
    light, heavy = record(concurrency=1.0), record(concurrency=32.0, latencies={"ttft": Stat(p50=900)})
    measured = measure([light, heavy])
    said = {signal.name: signal.value for signal in measured.signals}
    assert (said["serving.concurrency"], said["latency.ttft_ms"]) == (32, 900)
    assert "latency.e2e_ms" not in said                             # never from another load
    assert any("1 other run not used" in note and "1 in flight" in note for note in measured.notes)
    assert "two models" in measured.unknown["step.fixed_ms"]


def test_a_load_under_which_most_requests_failed_does_not_speak() -> None:
    broken = record(concurrency=64.0, completed=3, failed=197)
    assert values(record(), broken)["serving.concurrency"] == 4
    alone = measure([broken])
    assert any("197 of 200 requests failed" in note for note in alone.notes)


def test_two_files_of_one_run_complete_each_other() -> None:
    means = record(tool="evalscope", source="runs/summary.json", latencies={"ttft": Stat(mean=100)})
    medians = record(tool="evalscope", source="runs/percentile.json", latencies={"ttft": Stat(p50=90)},
                     concurrency=None, completed=None, duration_s=None, output_tokens_per_s=None)
    said = {signal.name: signal for signal in measure([means, medians]).signals}
    assert (said["latency.ttft_ms"].value, said["serving.concurrency"].value) == (90, 4)
    assert said["latency.ttft_ms"].source == "runs/percentile.json"
    assert "step.fixed_ms" not in measure([means, medians]).unknown         # it is one load


@pytest.mark.parametrize("other", [
    {"source": "elsewhere/percentile.json"}, {"tool": "aiperf"}, {"environment": Environment("n")},
    {"prompt_tokens": 2048.0}, {"completed": 20}, {"concurrency": 1.0}])
def test_files_of_other_runs_do_not(other: dict[str, Any]) -> None:
    lead = record(latencies={"ttft": Stat(p50=100)})
    more = record(**{"source": "runs/b.json", "latencies": {"e2e": Stat(p50=1)}, "concurrency": None,
                     "completed": None, **other})
    assert "latency.e2e_ms" not in values(lead, more)


def test_nothing_is_measured_of_nothing() -> None:
    assert measure([]).signals == ()
    assert measure([record(completed=0)]).notes == ("no benchmark run with completed requests",)


@given(st.lists(st.tuples(st.one_of(st.none(), st.sampled_from([1.0, 8.0, 64.0])), st.integers(1, 500),
                          st.integers(0, 500)), min_size=1, max_size=6))
def test_all_figures_are_of_one_load(loads: list[tuple[float | None, int, int]]) -> None:
    """A TTFT here tells the load that it was measured under."""
    runs = [record(source=f"run{i}/a.json", concurrency=load, completed=done, failed=failed, duration_s=1000.0 + i,
                   latencies={"ttft": Stat(p50=float(i + 1))}, output_tokens_per_s=float(i + 1))
            for i, (load, done, failed) in enumerate(loads)]
    said = values(*runs)
    spoke = runs[int(float(said["latency.ttft_ms"])) - 1]
    assert said["serving.decode_tokens_per_s"] == said["latency.ttft_ms"]
    assert said.get("serving.concurrency") == in_flight(spoke)
    sound = [run for run in runs if (run.failed or 0) <= (run.completed or 0)] or runs
    assert (in_flight(spoke) or 0) == max(in_flight(run) or 0 for run in sound)
