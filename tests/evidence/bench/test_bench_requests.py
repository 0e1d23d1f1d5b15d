"""Per-request figures: medians computed from them, invalid TTFTs, definitions that differ, units that contradict."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bench_files as files
from xpu_triage.baseline.records import BenchRecord, Requests
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence.bench import vllm_bench
from xpu_triage.evidence.bench.figures import Refused, Run, tpot_ms


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "result"


def one(path: Path, *documents: Any, text: str | None = None) -> BenchRecord:
    (record,) = files.read(path, *documents, text=text)
    return record


def requests(record: BenchRecord) -> Requests:
    assert record.requests is not None
    return record.requests


def test_vllm_lists_in_seconds_make_the_medians_and_failed_requests_are_left_out(path: Path) -> None:
    record = one(path, {**files.VLLM, **files.VLLM_DETAILS})
    assert requests(record).ttft_ms.tolist() == pytest.approx([100, 110, 150])
    assert requests(record).e2e_ms.tolist() == pytest.approx([160, 170, 180])       # ttft and gaps added up
    assert requests(record).tpot_ms.tolist() == pytest.approx([20, 20, 10])
    assert requests(record).start_s.tolist() == pytest.approx([0, 0.5, 1])
    assert record.latencies["ttft"].p50 == pytest.approx(110)
    assert record.latencies["ttft"].n == 3
    assert record.latencies["itl"].n == 9
    assert record.latencies["itl"].max == pytest.approx(30)
    assert (record.failed, record.invalid_ttft) == (1, 0)           # the TTFT of a failed request is no invalid one
    assert not any(word in files.plain(record) for word in ("SECRET", "Traceback", "host.internal"))


def test_durations_in_the_file_come_before_sums(path: Path) -> None:
    record = one(path, {**files.VLLM, **files.VLLM_DETAILS, "latencies": [0.2, 0.3, 0.4, 0.0]})
    assert requests(record).e2e_ms.tolist() == pytest.approx([200, 300, 400])
    assert requests(record).tpot_ms.tolist() == pytest.approx([100 / 3, 190 / 3, 250 / 3])


def test_a_ttft_of_zero_is_counted_left_out_and_nothing_counts_from_it(path: Path) -> None:
    details = {**files.VLLM_DETAILS, "ttfts": [0.1, 0.0, -0.1, 0.0]}
    record = one(path, {**files.VLLM, **details})
    assert record.invalid_ttft == 2
    assert record.latencies["ttft"].n == 1
    assert record.latencies["ttft"].p50 == pytest.approx(100)
    assert np.isnan(requests(record).tpot_ms).tolist() == [False, True, True]
    assert record.latencies["tpot"].n == 1
    assert any("2 of 3 requests have a TTFT of 0 or less" in line for line in record.notes)


def test_sglang_adds_up_only_where_its_own_mean_agrees(path: Path) -> None:
    """A gap there lies between two chunks with text: those without are missing from the sum."""
    details = {key: files.VLLM_DETAILS[key] for key in ("input_lens", "output_lens", "ttfts", "itls", "errors")}
    agrees = one(path, {**files.SGLANG, **details})                     # (160 + 170 + 180) ÷ 3 = 170
    assert requests(agrees).e2e_ms.tolist() == pytest.approx([160, 170, 180])
    longer = {**files.SGLANG, **details, "mean_e2e_latency_ms": 190.0, "median_e2e_latency_ms": 191.0}
    record = one(path, longer)
    assert np.isnan(requests(record).e2e_ms).all()
    assert record.latencies["e2e"].p50 == 191
    assert record.latencies["tpot"].p50 == 20                           # the summary's
    assert record.failed == 1


def test_sglang_with_zeros_keeps_the_valid_ttfts_and_no_time_per_token(path: Path) -> None:
    details = {key: files.VLLM_DETAILS[key] for key in ("input_lens", "output_lens", "itls", "errors")}
    record = one(path, {**files.SGLANG, **details, "ttfts": [0.1, 0.0, 0.0, 0.0], "median_ttft_ms": 0.0})
    assert record.latencies["ttft"].p50 == pytest.approx(100)
    assert record.invalid_ttft == 2
    assert "tpot" not in record.latencies
    assert any("from the request's start" in line for line in record.definitions)


def test_guidellm_is_converted_to_a_time_per_token_after_the_first(path: Path) -> None:
    rows = [files.guidellm_request(100.0, 0.3, 5), files.guidellm_request(100.0, 0.5, 5, 11.0),
            files.guidellm_request(200.0, 0.3, 1, 10.5)]
    record = one(path, files.guidellm(rows))
    assert requests(record).tpot_ms[:2].tolist() == pytest.approx([50, 100])      # (300 − 100) ÷ 4, (500 − 100) ÷ 4
    assert math.isnan(requests(record).tpot_ms[2])                      # one token: there is none after the first
    assert record.latencies["tpot"].p50 == pytest.approx(75)
    assert requests(record).start_s.tolist() == [0, 1, 0.5]
    assert any("converted" in line for line in record.definitions)
    assert "SECRET" not in files.plain(record)


def test_requests_that_are_a_sample_leave_the_summary_as_it_is(path: Path) -> None:
    record = one(path, files.guidellm([files.guidellm_request(100.0, 0.3, 5)]))
    assert record.latencies["e2e"].p50 == 310
    assert record.latencies["tpot"].p50 == 51
    assert len(requests(record)) == 1
    assert "per-request figures of 1 of 3 requests" in record.notes


def test_llmeter_responses(path: Path) -> None:
    lines = [files.response(0.1, 0.3), files.response(0.2, 0.6), files.response(None, None, None, "refused: SECRET")]
    record = one(path, *lines)
    assert requests(record).tpot_ms.tolist() == pytest.approx([50, 100])
    assert record.latencies["e2e"].p50 == pytest.approx(450)
    assert (record.completed, record.failed, record.environment.model) == (2, 1, "m")
    assert (record.concurrency, record.duration_s, record.output_tokens_per_s) == (None, None, None)
    assert "SECRET" not in files.plain(record)


def aiperf_line(start_s: float, ttft: float, e2e: float, phase: str = "profiling", **more: Any) -> dict[str, Any]:
    metrics = {"time_to_first_token": (ttft, "ms"), "request_latency": (e2e, "ms"),
               "output_sequence_length": (6, "tokens"), "usage_completion_tokens": (5, "tokens"),
               "input_sequence_length": (10, "tokens"), "inter_chunk_latency": ([40.0, 60.0], "ms")}
    begin = 1_795_000_000_000_000_000 + round(start_s * 1e9)
    return {"metadata": {"session_num": 0, "x_request_id": "SECRET", "worker_id": "host.internal",
                         "request_start_ns": begin, "request_end_ns": begin + round(e2e * 1e6),
                         "benchmark_phase": phase, "was_cancelled": False},
            "metrics": {tag: {"value": value, "unit": unit} for tag, (value, unit) in metrics.items()},
            "error": None, **more}


def test_aiperf_records_without_warm_up_and_with_the_servers_count_of_tokens(path: Path) -> None:
    record = one(path, aiperf_line(0, 900, 1000, "warmup"), aiperf_line(1, 100, 300), aiperf_line(1.5, 100, 500),
                 aiperf_line(1.6, 1, 2, error={"message": "SECRET"}))
    assert requests(record).tpot_ms.tolist() == pytest.approx([50, 100])        # 4 tokens after the first, not 5
    assert (record.completed, record.failed) == (2, 1)
    assert record.duration_s == pytest.approx(1.0)                      # 1.0 s to 1.5 + 0.5 s
    assert record.output_tokens_per_s == pytest.approx(10)
    assert record.latencies["itl"].n == 4
    assert requests(record).start_s.tolist() == pytest.approx([0, 0.5])
    assert "1 warm-up requests left out" in record.notes
    assert not any(word in files.plain(record) for word in ("SECRET", "host.internal"))


@pytest.mark.parametrize("factor", [1000, 0.001])
def test_a_summary_in_another_unit_than_its_requests_is_refused(factor: float, path: Path) -> None:
    wrong = {**files.VLLM, **files.VLLM_DETAILS}
    wrong |= {key: wrong[key] * factor for key in ("mean_ttft_ms", "median_ttft_ms")}
    with pytest.raises(UnusableInput, match="mixed units: ttft of the summary and of its requests differ by a factor "
                                            "of 1,000"):
        files.read(path, wrong)


def test_lists_of_different_lengths_leave_what_is_missing_unknown(path: Path) -> None:
    details = {**files.VLLM_DETAILS, "itls": files.VLLM_DETAILS["itls"][:2]}
    del details["errors"]
    record = one(path, {**files.VLLM, **details})
    assert np.isnan(requests(record).e2e_ms).tolist() == [False, False, True]
    assert any("lists of 2 to 4 requests" in line for line in record.notes)


figure = st.one_of(st.floats(-1, 10), st.none(), st.text(max_size=3), st.just(math.inf), st.just(math.nan),
                   st.integers(-2, 10**30), st.booleans())


@given(st.lists(figure, max_size=6), st.lists(figure, max_size=6), st.lists(st.lists(figure, max_size=3), max_size=6))
def test_whatever_stands_in_the_lists_every_kept_figure_is_above_zero(ttfts: list[Any], lens: list[Any],
                                                                       itls: list[Any]) -> None:
    document = {**files.VLLM, "ttfts": ttfts, "output_lens": lens, "itls": itls}
    run = vllm_bench._run(json.loads(json.dumps(document)))
    try:
        record = run.record("x")
    except Refused as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:     # requests too long, or too short, for a run of two seconds with two in flight
        assert "units contradict each other" in refusal or "mixed units" in refusal
        return
    for stat in record.latencies.values():
        assert all(value is None or (math.isfinite(value) and value >= 0) for value in (stat.p50, stat.max, stat.mean))
    if record.requests is not None:
        assert not (record.requests.ttft_ms <= 0).any()
        valid = int((~np.isnan(record.requests.ttft_ms)).sum())
        assert valid + record.invalid_ttft == len(record.requests)


@given(st.floats(1, 1e4), st.floats(0.1, 500), st.integers(2, 4000))
def test_the_time_per_token_gives_back_the_duration(ttft: float, each: float, tokens: int) -> None:
    e2e = ttft + each * (tokens - 1)
    assert tpot_ms(np.array([ttft]), np.array([e2e]), np.array([float(tokens)]))[0] == pytest.approx(each, rel=1e-6)


def test_a_run_without_any_figure_is_a_record_that_knows_nothing() -> None:
    from xpu_triage.baseline.records import Environment
    record = Run("x", Environment()).record("y")
    assert (record.latencies, record.completed, record.concurrency) == ({}, None, None)
