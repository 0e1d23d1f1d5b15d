"""Every tool's own summary to one record: units, definitions, loads, versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import bench_files as files
from xpu_triage.baseline.records import BenchRecord, Stat
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence import bench


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "result"


def one(path: Path, *documents: Any, text: str | None = None) -> BenchRecord:
    (record,) = files.read(path, *documents, text=text)
    return record


WHOLE = {"vllm bench serve": [files.VLLM], "sglang bench_serving": [files.SGLANG], "llmeter": [files.LLMETER],
         "guidellm": [files.guidellm()], "aiperf": [files.AIPERF], "evalscope": [files.EVALSCOPE]}


@pytest.mark.parametrize("tool", WHOLE)
def test_each_file_is_told_by_its_content_by_one_reader_alone(tool: str, path: Path) -> None:
    head = files.written(path, *WHOLE[tool]).read_text()
    assert [reader.tool for reader in bench.READERS if reader.matches(head)] == [tool]
    assert one(path, *WHOLE[tool]).tool == tool


@pytest.mark.parametrize("tool", WHOLE)
def test_load_counts_and_rates_are_the_same_whichever_tool_tells_them(tool: str, path: Path) -> None:
    record = one(path, *WHOLE[tool])
    assert (record.concurrency, record.request_rate, record.prompt_tokens) == (2, None, 10)
    assert record.duration_s == 2
    if tool == "llmeter":           # five requests, one of them failed, in 2 s
        assert (record.completed, record.failed, record.requests_per_s) == (4, 1, 2)
        assert (record.output_tokens_per_s, record.prompt_tokens_per_s) == (8, 20)
    else:
        assert (record.completed, record.requests_per_s) == (3, 1.5)
        assert record.failed == (None if tool == "sglang bench_serving" else 1)


@pytest.mark.parametrize("tool", [tool for tool in WHOLE if tool != "sglang bench_serving"])
def test_the_model_is_known_where_the_tool_names_it(tool: str, path: Path) -> None:
    assert one(path, *WHOLE[tool]).environment.model == ("" if tool == "evalscope" else "m")


@pytest.mark.parametrize("tool", WHOLE)
def test_no_text_key_url_or_host_is_kept(tool: str, path: Path) -> None:
    said = files.plain(one(path, *WHOLE[tool]))
    assert not any(word in said for word in ("SECRET", "host.internal", "http:", "someone"))


def test_vllm_means_and_medians_and_what_was_not_asked_for_is_unknown(path: Path) -> None:
    record = one(path, files.VLLM)
    assert record.latencies == {"ttft": Stat(120, 110, None, 150, 3), "tpot": Stat(20, 19, None, 25),
                                "itl": Stat(20, 18, None, 40)}
    assert record.output_tokens == 4            # 12 tokens of 3 requests
    assert any("means" in line for line in record.definitions)


def test_vllm_of_a_version_without_failed_counts_them_from_the_prompts(path: Path) -> None:
    older = {key: value for key, value in files.VLLM.items() if key not in ("failed", "endpoint_type", "label")}
    assert one(path, older).failed == 1


def test_a_rate_is_the_load_and_the_cap_beside_it_is_not(path: Path) -> None:
    record = one(path, {**files.VLLM, "request_rate": 4.0, "max_concurrency": 64})
    assert (record.request_rate, record.concurrency, record.extra["max_concurrency"]) == (4, None, 64)


def test_zeros_of_a_metric_without_values_are_unknown(path: Path) -> None:
    silent = {key: 0.0 if key.endswith(("_itl_ms", "_tpot_ms", "_ttft_ms")) else value
              for key, value in files.VLLM.items()}
    assert one(path, {**silent, "median_e2el_ms": 300.0, "p99_e2el_ms": 400.0}).latencies == {
        "e2e": Stat(None, 300, None, 400, 3)}


def test_a_median_ttft_of_zero_takes_ttft_and_what_counts_from_it_with_it(path: Path) -> None:
    record = one(path, {**files.SGLANG, "median_ttft_ms": 0.0})
    assert set(record.latencies) == {"itl", "e2e"}
    assert any("TTFT is unknown" in line for line in record.notes)
    assert any(line.startswith("tpot:") for line in record.definitions)


def test_sglang_measures_its_concurrency_and_sets_another(path: Path) -> None:
    record = one(path, files.SGLANG)
    assert record.latencies["e2e"] == Stat(170, 170, None, 180, 3)
    assert (record.concurrency, record.extra["mean_in_flight"], record.prompt_tokens_per_s) == (2, 1.5, 15)


def test_several_lines_are_several_runs_in_order(path: Path) -> None:
    runs = files.read(path, files.SGLANG, {**files.SGLANG, "max_concurrency": 8}, {**files.SGLANG, "completed": 0})
    assert [run.concurrency for run in runs] == [2, 8]
    assert "run 3: no request was completed" in runs[0].notes[-1]


def test_what_a_server_says_about_itself_gives_version_and_model_alone(path: Path) -> None:
    server = {"version": "0.5.3", "model_path": "org/model", "api_key": "SECRET", "host": "host.internal"}
    record = one(path, {**files.SGLANG, "server_info": server})
    assert (record.environment.engine, record.environment.engine_version) == ("sglang", "0.5.3")
    assert record.environment.model == "org/model"
    assert "SECRET" not in files.plain(record)


def test_guidellm_without_requests_takes_its_inter_token_latency_for_a_time_per_token(path: Path) -> None:
    record = one(path, files.guidellm())
    assert record.latencies["e2e"] == Stat(300, 310, 400, 410, 3, 300)         # s in the file
    assert record.latencies["tpot"].p50 == 51           # not 62, which has TTFT in it
    assert record.latencies["itl"] == Stat(mean=50, n=3)
    assert any("counts once a token" in line for line in record.definitions)


@pytest.mark.parametrize(("strategy", "concurrency", "rate"), [
    ({"type_": "synchronous"}, 1, None), ({"type_": "constant", "rate": 4.0}, None, 4),
    ({"type_": "poisson", "rate": 2.5, "max_concurrency": 64}, None, 2.5),
    ({"type_": "throughput", "max_concurrency": 64}, 64, None), ({"type_": "throughput"}, None, None)])
def test_guidellm_loads(strategy: dict[str, Any], concurrency: float | None, rate: float | None, path: Path) -> None:
    record = one(path, files.guidellm(**strategy))
    assert (record.concurrency, record.request_rate) == (concurrency, rate)


def test_guidellm_of_the_first_versions(path: Path) -> None:
    """0.2: no metadata, the load in args, times of requests without a prefix, counts in run_stats."""
    report = files.guidellm([{**files.guidellm_request(100.0, 0.3, 5), "request_start_time": None, "start_time": 7.0}])
    benchmark = report["benchmarks"][0]
    benchmark["args"] = {"strategy": {"type_": "concurrent", "streams": 16}}
    benchmark["run_stats"] = {"requests_made": {"successful": 1, "errored": 0, "incomplete": 2, "total": 3}}
    benchmark["worker"] = {"backend_model": "old", "backend_target": "http://host.internal"}
    for key in ("config", "duration"):
        del benchmark[key]
    del benchmark["metrics"]["request_totals"]
    record = one(path, {"benchmarks": [benchmark]})
    assert (record.concurrency, record.completed, record.failed, record.duration_s) == (16, 1, 0, 2)
    assert record.environment.model == "old"
    assert record.latencies["tpot"].p50 == pytest.approx(50)         # (300 − 100) ÷ 4
    assert "2 requests were still running at the end: left out" in record.notes


def test_aiperf_names_per_request_averages_inter_token_latency(path: Path) -> None:
    record = one(path, files.AIPERF)
    assert record.latencies["tpot"] == Stat(50, 51, 55, 56, 3, 57)
    assert record.latencies["itl"] == Stat(50, 49, 60, 70, 12, 75)
    assert record.environment.client_version == "0.13.0"
    assert record.extra["http_req_waiting"] == 80


def test_aiperf_units_are_those_in_the_file(path: Path) -> None:
    seconds = {**files.AIPERF, "request_latency": files.metric("s", avg=0.3, p50=0.31),
               "time_to_first_token": files.metric("us", avg=1e5, p50=9e4),
               "inter_token_latency": files.metric("tokens", avg=50.0, p50=51.0)}
    record = one(path, seconds)
    assert (record.latencies["e2e"].p50, record.latencies["ttft"].p50) == pytest.approx((310, 90))
    assert "tpot" not in record.latencies
    assert "inter_token_latency in tokens: left out" in record.notes


def test_aiperf_counts_tokens_as_the_server_does(path: Path) -> None:
    record = one(path, {**files.AIPERF, "usage_completion_tokens": files.metric("tokens", p50=4.0, sum=12.0)})
    assert record.output_tokens == 4
    assert record.output_tokens_per_s == pytest.approx(6)           # 7.5 × 12 ÷ 15
    assert any("the server 12" in line for line in record.definitions)


def test_aiperf_before_there_were_phases(path: Path) -> None:
    older = {**files.AIPERF, "input_config": {"endpoint": {"model_names": ["m"]},
                                              "loadgen": {"concurrency": 32, "request_rate": None}}}
    assert one(path, older).concurrency == 32
    rate = {**files.AIPERF, "input_config": {"phases": [{"name": "profiling", "type": "poisson", "rate": 5.0}]}}
    assert (one(path, rate).request_rate, one(path, rate).concurrency) == (5, None)


def test_aiperf_as_csv_reads_to_the_same_figures_as_its_json(path: Path) -> None:
    table, tree = one(path, text=files.AIPERF_CSV), one(path, files.AIPERF)
    for latency in ("ttft", "tpot", "itl"):
        assert [getattr(table.latencies[latency], part) for part in ("mean", "p50", "p90", "p99", "max")] == [
            getattr(tree.latencies[latency], part) for part in ("mean", "p50", "p90", "p99", "max")]
    assert table.latencies["e2e"] == Stat(1300, 1310, 1400, 1410, 3, 1420)       # thousands have a comma
    assert (table.completed, table.duration_s, table.output_tokens_per_s, table.prompt_tokens) == (3, 2, 7.5, 10)
    assert (table.concurrency, table.failed) == (None, None)        # the table does not say
    assert "host.internal" not in files.plain(table)


def test_the_smallest_ttft_of_zero_leaves_the_mean_out(path: Path) -> None:
    record = one(path, {**files.AIPERF, "time_to_first_token": files.metric("ms", avg=66.0, p50=90.0, min=0.0)})
    assert record.latencies["ttft"] == Stat(None, 90, None, None, 3)
    assert "tpot" not in record.latencies
    assert any("empty first chunk" in line for line in record.notes)


def test_evalscope_means_have_their_unit_in_their_key(path: Path) -> None:
    record = one(path, files.EVALSCOPE)
    assert {latency: stat.mean for latency, stat in record.latencies.items()} == pytest.approx(
        {"ttft": 100, "tpot": 50, "itl": 49, "e2e": 300})
    assert all(stat.p50 is None for stat in record.latencies.values())
    assert (record.output_tokens_per_s, record.output_tokens) == (7.5, 5)


def test_evalscope_of_1_0_writes_seconds_and_other_names(path: Path) -> None:
    record = one(path, {
        "Time taken for tests (s)": 2.0, "Number of concurrency": 2, "Total requests": 4, "Succeed requests": 3,
        "Failed requests": 1, "Output token throughput (tok/s)": 7.5, "Total token throughput (tok/s)": 22.5,
        "Request throughput (req/s)": 1.5, "Average latency (s)": 0.3, "Average time to first token (s)": 0.1,
        "Average time per output token (s)": 0.05, "Average inter-token latency (s)": 0.049,
        "Average input tokens per request": 10.0, "Average output tokens per request": 5.0})
    same = one(path, files.EVALSCOPE)
    assert {latency: stat.mean for latency, stat in record.latencies.items()} == pytest.approx(
        {latency: stat.mean for latency, stat in same.latencies.items()})
    assert (record.concurrency, record.completed, record.failed, record.duration_s) == (2, 3, 1, 2)


def test_evalscope_once_called_the_reciprocal_of_the_throughput_a_time_per_token(path: Path) -> None:
    record = one(path, {
        "Time taken for tests (s)": 10.739, "Number of concurrency": 1, "Total requests": 15, "Succeed requests": 15,
        "Failed requests": 0, "Throughput(average tokens/s)": 324.059, "Average QPS": 1.397,
        "Average latency (s)": 0.696, "Average time to first token (s)": 0.029,
        "Average time per output token (s)": 0.00309, "Average input tokens per request": 50.133,
        "Average output tokens per request": 232.0, "Average package latency (s)": 0.003,
        "Average package per request": 232.0})
    assert set(record.latencies) == {"ttft", "e2e"}
    assert any(line.startswith("tpot:") for line in record.definitions)
    assert (record.output_tokens_per_s, record.requests_per_s) == (324.059, 1.397)


def test_a_ttft_of_requests_that_were_not_streamed_is_none(path: Path) -> None:
    record = one(path, {**files.EVALSCOPE, "Stream Requests": 0, "Non-Stream Requests": 3, "Avg TTFT (ms)": 300.0})
    assert set(record.latencies) == {"itl", "e2e"}
    said = one(path, {**files.EVALSCOPE, "Avg TTFT (ms)": 300.0})
    assert any("held back" in line for line in said.notes)


@pytest.mark.parametrize("as_columns", [False, True])
def test_evalscope_percentiles_by_row_or_by_column(as_columns: bool, path: Path) -> None:
    rows: Any = files.EVALSCOPE_PERCENTILES
    if as_columns:
        rows = {key: [row[key] for row in rows] for key in rows[0]}
    record = one(path, text=json.dumps(rows, indent=4))
    assert record.latencies["ttft"] == Stat(None, 90, 150, 160, None, 165)
    assert record.latencies["e2e"] == Stat(None, 310, 400, 410, None, 420)
    assert (record.prompt_tokens, record.completed, record.concurrency) == (10, None, None)


def test_llmeter_is_all_in_seconds(path: Path) -> None:
    record = one(path, files.LLMETER)
    assert record.latencies == {"ttft": Stat(100, 90, 150, 160, 4), "e2e": Stat(200, 190, 300, 310, 4),
                                "tpot": Stat(None, 20)}


def test_the_summary_of_llmeter_without_latencies_says_which_file_has_them(path: Path) -> None:
    bare = {key: value for key, value in files.LLMETER.items() if "-" not in key}
    with pytest.raises(UnusableInput, match=r"no latency in this summary.*Give stats\.json"):
        files.read(path, bare)


# ---- units


def scaled(document: dict[str, Any], factor: float, *parts: str) -> dict[str, Any]:
    """The same with every time whose key holds one of `parts` in another unit than its name says."""
    return {key: value * factor if isinstance(value, float) and key.endswith("_ms") and any(p in key for p in parts)
            else value for key, value in document.items()}


LONG_ENOUGH = {**files.VLLM, "duration": 60.0, "completed": 400, "num_prompts": 400, "failed": 0,
               "total_input_tokens": 4000, "total_output_tokens": 12_800}
"""400 requests of 32 tokens, two in flight: 120 + 31 · 20 = 740 ms each is 4.9 in flight, near enough."""


def test_a_summary_in_seconds_under_names_in_ms_is_refused(path: Path) -> None:
    """0.74 ms each: 400 of them in 60 s are 0.005 in flight, and 2 were kept."""
    assert one(path, LONG_ENOUGH).stat("ttft").p50 == 110
    with pytest.raises(UnusableInput, match=r"units contradict each other: 400 requests of 0\.74 ms in 60 s are 0\.0049"
                                            r"\d* in flight, and 2 were kept.*Give the file as its tool wrote it"):
        files.read(path, scaled(LONG_ENOUGH, 1e-3, "ttft", "tpot", "itl"))


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_a_time_per_token_in_another_unit_than_durations_is_refused(path: Path, factor: float) -> None:
    """170 ms a request, 4 tokens: 120 + 3 · 17 = 171 ms. No token takes 17 s of them."""
    assert one(path, files.SGLANG).stat("e2e").p50 == 170
    if factor > 1:
        with pytest.raises(UnusableInput, match="17,000 ms for each token, and a request takes 170 ms"):
            files.read(path, scaled(files.SGLANG, factor, "tpot"))
    else:
        with pytest.raises(UnusableInput, match=r"0\.12 ms to the first token and 0\.051 ms for the others"):
            files.read(path, scaled(files.SGLANG, factor, "tpot", "ttft"))


def test_of_several_runs_the_one_with_doubtful_units_is_left_out_and_said(path: Path) -> None:
    sound, *others = files.read(path, LONG_ENOUGH, scaled(LONG_ENOUGH, 1e-3, "ttft", "tpot", "itl"))
    assert others == []
    assert any(note.startswith("left out, run 2: units contradict each other") for note in sound.notes)
