"""What `/metrics` of serving engines say. Values are worked by hand beside each dump."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrape_dumps import Values, histogram, scrape, values, window
from xpu_triage.catalogue import CATALOGUE
from xpu_triage.evidence import prometheus
from xpu_triage.samples import Scrape
from xpu_triage.telemetry.measured import Measured
from xpu_triage.telemetry.serving import OFF, measure

# the recorded dumps

def recorded(shared: Path, *names: str) -> Measured:
    return measure([scrape for name in names for scrape in prometheus.read(shared / "samples" / "metrics" / name)])


def test_a_recorded_pair_gives_what_a_person_works_out(shared: Path) -> None:
    """21 requests between the two. Rank 10.5 of 21: TTFT in (0.5, 0.75] with 9 below and 3 inside, 0.5 + 0.25 × 1.5/3;
    E2E in (2.5, 5] with 9 and 8; prefill in (0.3, 0.5] with 8 and 4; prompts in (50, 100] with 1 and 20. Rank 313.5 of
    627 gaps in (0.05, 0.075] with 252 and 115; rank 620.73 in (0.4, 0.5] with 607 and 17. All queue times lie in the
    first bucket: 0.0005149 s ÷ 21."""
    names = ("vllm-0.32.0-cpu-real-before.prom", "vllm-0.32.0-cpu-real-after-20req.prom")
    for order in (names, names[::-1]):
        measured = recorded(shared, *order)
        assert values(measured) == {
            "step.count": 173, "step.method": "metrics",
            "latency.ttft_ms": pytest.approx(625), "latency.e2e_ms": pytest.approx(2968.75),
            "latency.prefill_ms": pytest.approx(425), "serving.prompt_tokens": pytest.approx(73.75),
            "latency.engine_itl_ms": pytest.approx(50 + 25 * 61.5 / 115, abs=0.001),
            "latency.itl_p99_ms": pytest.approx(400 + 100 * 13.73 / 17, abs=0.001),
            "latency.queue_ms": pytest.approx(0.0005149010014520172 / 21 * 1000, rel=1e-5),
            "serving.queued_fraction": pytest.approx(0.0005149010014520172 / 16.303, rel=1e-3),
            "kv.preemptions_per_request": 0, "kv.prefix_hit_fraction": 0,
        }
        assert "mean of 21" in window(measured, "latency.queue_ms")
        assert "without times" in window(measured, "latency.ttft_ms")
        assert all("when they were taken" in measured.unknown[name] for name in (
            "step.wall_ms", "serving.decode_tokens_per_s", "serving.prefill_tokens_per_s"))
        assert "648 tokens" in measured.unknown["serving.running"]  # idle before and after: not idle between


def test_recorded_single_dumps_give_gauges(shared: Path) -> None:
    after = recorded(shared, "vllm-0.32.0-cpu-real-after-20req.prom")
    assert values(after) == {"serving.running": 0, "serving.waiting": 0, "kv.usage_fraction": 0}
    assert "mean 776.3 ms of 21" in after.unknown["latency.ttft_ms"]  # 16.303 s ÷ 21
    assert all("second scrape" in after.unknown[name] for name in (
        "latency.ttft_ms", "latency.engine_itl_ms", "step.wall_ms", "serving.decode_tokens_per_s"))
    sglang = recorded(shared, "sglang-0.5.1-qwen32b-issue13485.prom")
    assert values(sglang) == {"serving.running": 1, "kv.usage_fraction": 0}
    assert "second scrape" in sglang.unknown["serving.decode_tokens_per_s"]  # the gauge may span idle time
    assert "second scrape" in recorded(shared, "vllm-docs-v0.8.5-iteration-tokens.prom").unknown["step.wall_ms"]


def test_recorded_announcements_without_samples_are_off(shared: Path) -> None:
    measured = recorded(shared, "vllm-0.5-helptype-only-no-samples.prom")
    assert not measured.signals
    assert measured.unknown == dict.fromkeys(("serving.running", "serving.waiting", "kv.usage_fraction"), OFF)


def test_every_recorded_dump_together_mixes_no_servers(shared: Path) -> None:
    names = sorted(path.name for path in (shared / "samples" / "metrics").glob("*.prom"))
    measured = recorded(shared, *names)
    assert values(measured)["step.count"] == 173
    assert "servers" in measured.notes[0]


# vLLM, new and old names

VLLM_0: Values = {
    "vllm:num_requests_running": 32, "vllm:num_requests_waiting": 4, "vllm:kv_cache_usage_perc": 0.5,
    "vllm:num_requests_waiting_by_reason{reason=capacity}": 3,
    "vllm:num_requests_waiting_by_reason{reason=deferred}": 1,
    "vllm:generation_tokens_total": 1000, "vllm:prompt_tokens_total": 5000, "vllm:prompt_tokens_cached_total": 1000,
    "vllm:iteration_tokens_total_count": 100, "vllm:num_preemptions_total": 7,
    "vllm:request_success_total{finished_reason=stop}": 10, "vllm:request_success_total{finished_reason=length}": 2,
    "vllm:prefix_cache_queries_total": 5000, "vllm:prefix_cache_hits_total": 1000,
}
VLLM_30: Values = {
    "vllm:num_requests_running": 34, "vllm:num_requests_waiting": 8, "vllm:kv_cache_usage_perc": 0.9,
    "vllm:num_requests_waiting_by_reason{reason=capacity}": 7,
    "vllm:num_requests_waiting_by_reason{reason=deferred}": 1,
    "vllm:generation_tokens_total": 10900, "vllm:prompt_tokens_total": 65000, "vllm:prompt_tokens_cached_total": 16000,
    "vllm:iteration_tokens_total_count": 400, "vllm:num_preemptions_total": 31,
    "vllm:request_success_total{finished_reason=stop}": 17, "vllm:request_success_total{finished_reason=length}": 5,
    "vllm:prefix_cache_queries_total": 65000, "vllm:prefix_cache_hits_total": 16000,
}
EXPECTED_30 = {
    "serving.running": 33, "serving.waiting": 6, "serving.waiting_reason": "capacity", "kv.usage_fraction": 0.7,
    "serving.decode_tokens_per_s": 330,          # 9,900 ÷ 30 s
    "serving.prefill_tokens_per_s": 1500,        # (60,000 − 15,000) ÷ 30 s
    "step.wall_ms": 100, "step.count": 300, "step.method": "metrics",
    "kv.preemptions_per_request": 2.4,           # 24 ÷ 10
    "kv.prefix_hit_fraction": 0.25,              # 15,000 ÷ 60,000
}


def renamed(values: Values, **names: str) -> dict[str, float]:
    return {next((key.replace(old, new) for old, new in names.items() if old in key), key): value
            for key, value in values.items()}


def test_two_scrapes_give_what_happened_between_them() -> None:
    measured = measure([scrape(VLLM_30, 130.0), scrape(VLLM_0, 100.0)])
    assert values(measured) == EXPECTED_30
    assert {signal.how for signal in measured.signals} == {"metrics"}
    assert window(measured, "serving.decode_tokens_per_s") == "2 scrapes, 30 s apart: 9,900 tokens"
    assert window(measured, "step.wall_ms").startswith("2 scrapes, 30 s apart: mean under load")
    assert {signal.name for signal in measured.signals} <= set(CATALOGUE)


@pytest.mark.parametrize("prefix", ["vllm_", "ray_vllm:", "ray_vllm_"])
def test_a_gateway_may_rewrite_the_colon(prefix: str) -> None:
    pair = [scrape(renamed(dump, **{"vllm:": prefix}), time) for dump, time in ((VLLM_0, 0.0), (VLLM_30, 30.0))]
    assert values(measure(pair)) == EXPECTED_30


def test_old_vllm_names_give_the_same() -> None:
    old = {"kv_cache_usage_perc": "gpu_cache_usage_perc", "vllm:prefix_cache": "vllm:gpu_prefix_cache"}
    pair = [scrape({key: value for key, value in renamed(dump, **old).items() if "by_reason" not in key
                    and "tokens_cached" not in key}, time) for dump, time in ((VLLM_0, 0.0), (VLLM_30, 30.0))]
    assert values(measure(pair)) == {key: value for key, value in EXPECTED_30.items() if "reason" not in key}


def test_where_cached_prompt_tokens_are_not_counted_the_prefill_rate_is_unknown() -> None:
    pair = [scrape({key: value for key, value in dump.items() if "cache" not in key}, time)
            for dump, time in ((VLLM_0, 0.0), (VLLM_30, 30.0))]
    measured = measure(pair)
    assert "cache" in measured.unknown["serving.prefill_tokens_per_s"]
    assert "serving.prefill_tokens_per_s" not in values(measured)


def test_computed_prompt_tokens_come_before_a_difference() -> None:
    extra = "vllm:prompt_tokens_by_source_total{source=local_compute}"
    pair = [scrape(VLLM_0 | {extra: 4000}, 0.0), scrape(VLLM_30 | {extra: 43000}, 30.0)]
    assert values(measure(pair))["serving.prefill_tokens_per_s"] == 1300


# engines and ranks

def test_requests_of_data_parallel_engines_add_up_and_of_tensor_ranks_do_not() -> None:
    gauges = {f"sglang:num_running_reqs{{dp_rank={dp},tp_rank={tp}}}": 5 + dp for dp in (0, 1) for tp in (0, 1)}
    usage = {f"sglang:token_usage{{dp_rank={dp},tp_rank={tp}}}": 0.25 + dp / 2 for dp in (0, 1) for tp in (0, 1)}
    assert values(measure([scrape(gauges | usage)])) == {"serving.running": 11, "kv.usage_fraction": 0.75}


def test_sglang_requests_by_priority_are_not_counted_twice() -> None:
    by_priority = {"sglang:num_queue_reqs{priority=}": 5, "sglang:num_queue_reqs{priority=0}": 3,
                   "sglang:num_queue_reqs{priority=1}": 2}
    assert values(measure([scrape(by_priority)])) == {"serving.waiting": 5}


# SGLang, TGI, TensorRT-LLM, LMDeploy

def sglang(time: float, **figures: float) -> Scrape:
    base = {"sglang:num_running_reqs": 16, "sglang:num_queue_reqs": 0, "sglang:token_usage": 0.5}
    return scrape(base | {f"sglang:{name}": value for name, value in figures.items()}, time)


def test_sglang_counts_tokens_while_they_come_where_it_can() -> None:
    real = "realtime_tokens_total{{mode={}}}"
    first = {real.format("decode"): 0, real.format("prefill_compute"): 0, real.format("prefill_cache"): 0,
             "generation_tokens_total": 0, "prompt_tokens_total": 0, "cached_tokens_total": 0, "num_requests_total": 0,
             "num_retracted_requests_total": 0, "cuda_graph_passes_total{mode=decode_cuda_graph}": 0,
             "cuda_graph_passes_total{mode=decode_none}": 0, "scheduler_idle_seconds_total": 0,
             "forward_execution_seconds_total{category=decode}": 0}
    last = {real.format("decode"): 8000, real.format("prefill_compute"): 3000, real.format("prefill_cache"): 9000,
            "generation_tokens_total": 100, "prompt_tokens_total": 800, "cached_tokens_total": 600,
            "num_requests_total": 4, "num_retracted_requests_total": 2,
            "cuda_graph_passes_total{mode=decode_cuda_graph}": 400, "cuda_graph_passes_total{mode=decode_none}": 100,
            "scheduler_idle_seconds_total": 2, "forward_execution_seconds_total{category=decode}": 7}
    measured = measure([sglang(0.0, **first), sglang(10.0, **last)])
    assert values(measured) == {
        "serving.running": 16, "serving.waiting": 0, "kv.usage_fraction": 0.5, "serving.decode_tokens_per_s": 800,
        "serving.prefill_tokens_per_s": 300, "step.wall_ms": 20, "step.count": 500, "step.method": "metrics",
        "kv.preemptions_per_request": 0.5, "kv.prefix_hit_fraction": 0.75, "serving.prompt_tokens": 200,
        "idle.no_work_fraction": 0.2,
    }
    assert "prefill between them is in it" in window(measured, "step.wall_ms")
    assert "70.0% of the time" in measured.notes[0]


def test_tokens_counted_at_the_end_of_a_request_are_unknown_before_one_ends() -> None:
    measured = measure([sglang(0.0, generation_tokens_total=100, prompt_tokens_total=50, cached_tokens_total=0),
                        sglang(10.0, generation_tokens_total=100, prompt_tokens_total=50, cached_tokens_total=0)])
    assert "serving.decode_tokens_per_s" not in values(measured)
    assert "when a request finishes" in measured.unknown["serving.decode_tokens_per_s"]
    assert "when a request finishes" in measured.unknown["serving.prefill_tokens_per_s"]


def test_old_sglang_gives_a_step_by_its_own_throughput_only_under_load() -> None:
    busy = [sglang(0.0, gen_throughput=400), sglang(10.0, gen_throughput=400)]
    assert values(measure(busy))["step.wall_ms"] == 40  # 16 ÷ 400 per s
    assert values(measure(busy))["serving.decode_tokens_per_s"] == 400
    stale = [busy[0], scrape({"sglang:num_running_reqs": 0, "sglang:gen_throughput": 400}, 10.0)]
    assert "idle" in measure(stale).unknown["step.wall_ms"]
    several = [sglang(time, gen_throughput=400, spec_accept_length=2.5) for time in (0.0, 10.0)]
    several[1] = sglang(10.0, gen_throughput=410, spec_accept_length=2.5)
    assert "speculative" in measure(several).unknown["step.wall_ms"]


def test_a_count_of_retractions_that_falls_gives_no_rate() -> None:
    """0.5.1 has a gauge for it: it is no counter whose fall would say that the server was restarted."""
    pair = [sglang(0.0, total_retracted_reqs=5, num_requests_total=1),
            sglang(9.0, total_retracted_reqs=2, num_requests_total=4)]
    measured = measure(pair)
    assert "kv.preemptions_per_request" not in values(measured)
    assert measured.notes == ()


def test_sglang_prefill_in_pieces_is_not_passed_off_as_whole() -> None:
    name = "sglang:per_stage_req_latency_seconds"
    whole = {f"{name}_count{{stage=prefill_forward}}": 0.0, f"{name}_sum{{stage=prefill_forward}}": 0.0}
    later = {f"{name}_count{{stage=prefill_forward}}": 4.0, f"{name}_sum{{stage=prefill_forward}}": 2.0}
    assert values(measure([scrape(whole), scrape(later)]))["latency.prefill_ms"] == 500
    pieces = {f"{name}_count{{stage=chunked_prefill}}": 0.0}, {f"{name}_count{{stage=chunked_prefill}}": 9.0}
    assert "pieces" in measure([scrape(whole | pieces[0]), scrape(later | pieces[1])]).unknown["latency.prefill_ms"]


def test_tgi_times_its_decode_steps() -> None:
    """Decode: 100 steps in (0.0216, 0.0324] s, as TGI's buckets are, so rank 50 is in the middle."""
    def batch(count: float) -> dict[str, float]:
        decode = "tgi_batch_inference_duration{}{{method=decode{}}}"
        return {decode.format("_bucket", ",le=0.0216"): 0, decode.format("_bucket", ",le=0.0324"): count,
                decode.format("_bucket", ",le=+Inf"): count, decode.format("_sum", ""): count * 0.027,
                decode.format("_count", ""): count, "tgi_batch_inference_duration_count{method=prefill}": count / 10,
                "tgi_batch_inference_duration_sum{method=prefill}": count / 100, "tgi_queue_size": 3,
                "tgi_batch_current_size": 8, "tgi_request_generated_tokens_sum": count * 8,
                "tgi_request_input_length_sum": count * 5, "tgi_request_success": count / 10}
    measured = measure([scrape(batch(0), 0.0, labels=""), scrape(batch(100), 4.0, labels="")])
    assert values(measured) == {
        "serving.running": 8, "serving.waiting": 3, "serving.decode_tokens_per_s": 200, "step.count": 100,
        "step.method": "metrics", "step.wall_ms": pytest.approx(27), "latency.prefill_ms": 100,
        "serving.prompt_tokens": 50}
    assert "cache" in measured.unknown["serving.prefill_tokens_per_s"]


@pytest.mark.parametrize("prefix", ["trtllm_", "trtllm:"])
def test_tensorrt_llm(prefix: str) -> None:
    def dump(running: float, latency: float, count: float) -> dict[str, float]:
        return {f"{prefix}{name}": value for name, value in {
            "num_requests_running": running, "num_requests_waiting": 0, "kv_cache_utilization": 0.42,
            "iteration_latency_seconds": latency, "max_num_active_requests": 64, "prompt_tokens_total": count * 1000,
            "prompt_cached_tokens_total": count * 250, "generation_tokens_total": count * 100,
            "request_success_total{finished_reason=stop}": count}.items()}
    measured = measure([scrape(dump(8, 0.020, 0), 0.0), scrape(dump(8, 0.024, 4), 5.0), scrape(dump(8, 0.9, 8), 10.0)])
    assert values(measured) == {
        "serving.running": 8, "serving.waiting": 0, "kv.usage_fraction": 0.42, "serving.running_limit": 64,
        "serving.decode_tokens_per_s": 80, "serving.prefill_tokens_per_s": 600, "step.wall_ms": 24,
        "step.method": "metrics", "kv.prefix_hit_fraction": 0.25, "serving.prompt_tokens": 1000}
    assert "several times" in measure([scrape(dump(8, 0.02, 0))]).unknown["step.wall_ms"]


def test_lmdeploy_that_counts_each_token_twice_is_read_once() -> None:
    def dump(requests: float, per_token: int) -> dict[str, float]:
        ttft, gap = "lmdeploy:time_to_first_token_seconds", "lmdeploy:time_per_output_token_seconds"
        return {"lmdeploy:num_requests_running": 2, "lmdeploy:gpu_cache_usage_perc": 0.3,
                "lmdeploy:generation_tokens_total": requests * 10 * per_token, f"{ttft}_count": requests,
                f"{ttft}_sum": requests, f"{gap}_count": requests * 9, f"{gap}_sum": requests * 9 * 0.02}
    for per_token in (1, 2):
        measured = measure([scrape(dump(0, per_token), 0.0), scrape(dump(10, per_token), 1.0)])
        assert values(measured)["serving.decode_tokens_per_s"] == 100
        assert values(measured)["kv.usage_fraction"] == 0.3
        assert ("twice" in " ".join(measured.notes)) == (per_token == 2)


# what must not be mixed

def test_scrapes_before_a_restart_are_left_out() -> None:
    before = scrape(VLLM_30, 50.0)
    measured = measure([before, scrape(VLLM_0, 100.0), scrape(VLLM_30, 130.0)])
    assert values(measured) == EXPECTED_30
    assert "restarted" in measured.notes[0]


def test_a_restart_shows_in_the_start_of_the_process_too() -> None:
    """The counters of the new process have already passed those of the old one."""
    start = "process_start_time_seconds"
    old = scrape({key: value / 10 for key, value in VLLM_0.items()} | {start: 1e9}, 50.0)
    pair = [scrape(VLLM_0 | {start: 2e9}, 100.0), scrape(VLLM_30 | {start: 2e9}, 130.0)]
    measured = measure([old, *pair])
    assert values(measured) == EXPECTED_30
    assert "servers, or of one before and after a restart" in measured.notes[0]


def test_two_servers_are_not_mixed() -> None:
    other = [scrape({"vllm:num_requests_running": 900, "vllm:generation_tokens_total": n}, 100.0 + n, 'model_name="x"')
             for n in (0, 1)][:1]
    measured = measure([scrape(VLLM_0, 100.0), *other, scrape(VLLM_30, 130.0)])
    assert values(measured) == EXPECTED_30
    assert "2 servers" in measured.notes[0]


def test_untimed_scrapes_are_ordered_by_their_counters() -> None:
    forward, backward = measure([scrape(VLLM_0), scrape(VLLM_30)]), measure([scrape(VLLM_30), scrape(VLLM_0)])
    assert values(forward) == values(backward)
    assert values(forward)["kv.preemptions_per_request"] == 2.4
    assert "serving.decode_tokens_per_s" not in values(forward)


def test_the_same_dump_twice_is_one_reading() -> None:
    measured = measure([scrape(VLLM_0), scrape(VLLM_0, source="copy.prom")])
    assert "latency.ttft_ms" not in values(measured)
    assert "step.count" not in values(measured)
    assert "given twice" in measured.notes[0]


def test_a_dump_without_a_time_among_timed_ones_is_left_out() -> None:
    measured = measure([scrape(VLLM_0, 100.0), scrape(VLLM_30, 130.0), scrape({"vllm:num_requests_running": 999})])
    assert values(measured) == EXPECTED_30
    assert "1 of 3 dumps" in measured.notes[0]


def test_a_family_that_began_between_the_scrapes_began_at_nothing_if_it_was_announced() -> None:
    late = {"vllm:num_preemptions_total": 8.0, "vllm:request_success_total": 4.0}
    first = scrape({"vllm:num_requests_running": 1}, 0.0, empty=("vllm:num_preemptions_total", "vllm:request_success"))
    last = scrape({"vllm:num_requests_running": 1} | late, 10.0)
    assert values(measure([first, last]))["kv.preemptions_per_request"] == 2
    bare = scrape({"vllm:num_requests_running": 1}, 0.0)
    assert "kv.preemptions_per_request" not in values(measure([bare, last]))


def test_an_idle_interval_has_load_zero_and_no_latencies() -> None:
    idle = {"vllm:num_requests_running": 0.0, "vllm:num_requests_waiting": 0.0, "vllm:generation_tokens_total": 9.0,
            "vllm:iteration_tokens_total_count": 9.0}
    idle |= histogram("vllm:e2e_request_latency_seconds", 9.0, _1_0=0, _2_0=9)
    measured = measure([scrape(idle, 0.0), scrape(idle, 10.0)])
    assert values(measured) == {"serving.running": 0, "serving.waiting": 0, "serving.decode_tokens_per_s": 0}
    assert "no engine step" in measured.unknown["step.wall_ms"]
    assert "none was observed" in measured.unknown["latency.e2e_ms"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 43.0])
def test_a_share_that_cannot_be_is_unknown(value: float) -> None:
    assert "kv.usage_fraction" not in values(measure([scrape({"vllm:kv_cache_usage_perc": value})]))


def test_a_reason_from_the_dump_cannot_move_a_cursor() -> None:
    measured = measure([scrape({"vllm:num_requests_waiting_by_reason{reason=\x1b[31mfull}": 1})])
    assert values(measured)["serving.waiting_reason"] == "\\x1b[31mfull"


def test_other_exporters_say_nothing_of_serving() -> None:
    assert measure([scrape({"node_load1": 3, "DCGM_FI_DEV_GPU_UTIL": 40})]) == Measured()
    assert measure([]) == Measured()


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(1, 10**4)), min_size=2, max_size=6))
def test_differences_are_those_that_were_counted(tmp_path_factory: pytest.TempPathFactory,
                                                 rises: list[tuple[int, int, int]]) -> None:
    """Any counters, rendered as an exporter does and read back, give their rise over the time, in any order."""
    folder = tmp_path_factory.mktemp("scrapes")
    generated = computed = finished = 0
    paths = []
    for index, (tokens, prompts, requests) in enumerate(rises):
        generated, computed, finished = generated + tokens, computed + prompts, finished + requests
        samples = {'vllm:generation_tokens_total{engine="0"}': generated,
                   'vllm:prompt_tokens_by_source_total{engine="0",source="local_compute"}': computed,
                   'vllm:request_success_total{engine="0",finished_reason="stop"}': finished,
                   'vllm:num_preemptions_total{engine="0"}': finished * 2, 'vllm:num_requests_running{engine="0"}': 1}
        text = f"# scraped 2026-11-30T06:20:{index:02d}.000Z\n# TYPE vllm:generation_tokens_total counter\n" + "".join(
            f"{name} {float(value)}\n" for name, value in samples.items())
        path = folder / f"{9 - index}.prom"
        path.write_text(text)
        paths.append(path)
    measured = values(measure([scrape for path in sorted(paths) for scrape in prometheus.read(path)]))
    tokens, prompts = (sum(rise[place] for rise in rises[1:]) / (len(rises) - 1) for place in (0, 1))
    assert measured["serving.decode_tokens_per_s"] == pytest.approx(tokens, rel=1e-5)
    assert measured["serving.prefill_tokens_per_s"] == pytest.approx(prompts, rel=1e-5)
    assert measured["kv.preemptions_per_request"] == 2
