"""Each fingerprint on sheets with invented figures: what makes it probable, what confirms it, what refutes it, and the
boundaries between those that look alike."""

from __future__ import annotations

import pytest

from sheets import verdict_of
from xpu_triage.verdict import Level

PROBABLE = [
    # the host paces the device: share of idle while launching; or counted launches
    ("launch-bound", {"idle.launching_fraction": 0.28, "device.busy_fraction": 0.6}),
    ("launch-bound", {"kernel.per_step": 1400, "host.launch_us": 7.5, "step.wall_ms": 18}),           # 10.5 of 18 ms
    ("launch-bound", {"device.busy_fraction": 0.25, "kernel.per_step": 950, "kernel.median_us": 5, "step.wall_ms": 26}),
    ("launch-bound", {"host.launch_us": 3500, "device.busy_fraction": 0.5, "idle.host_op": "hipGraphLaunch"}),
    ("launch-bound", {"kernel.graph_fraction": 0.2, "host.graph_requested": True, "device.busy_fraction": 0.35,
                      "kernel.median_us": 4}),
    # host work that launches nothing
    ("host-bound", {"idle.host_op_fraction": 0.33, "device.busy_fraction": 0.6, "idle.host_op": "build_batch"}),
    ("host-bound", {"idle.step_gap_ms": 2.1, "step.wall_ms": 14}),
    ("host-bound", {"host.top_op": "schedule", "host.top_op_fraction": 0.4, "host.timer_drained": True}),
    ("host-bound", {"ab.plain_request_ratio": 0.55, "device.utilization_fraction": 0.35,
                    "serving.features": "grammar"}),
    # syncs whose idle is seen, or many in a very short step
    ("implicit-sync", {"idle.after_sync_fraction": 0.24, "device.busy_fraction": 0.7,
                       "sync.gain_bound_fraction": 0.22}),
    ("implicit-sync", {"sync.per_step": 9, "step.wall_ms": 4, "sync.site": "mask.any()"}),
    # a CPU does the device's work
    ("cpu-fallback", {"placement.loaded_fraction": 0.6, "device.utilization_fraction": 0.2, "serving.running": 2}),
    ("cpu-fallback", {"placement.planned_fraction": 1.0, "placement.loaded_fraction": 0.0}),
    ("cpu-fallback", {"placement.host_ops": 44, "device.utilization_fraction": 0.25, "serving.concurrency": 1}),
    ("cpu-fallback", {"kernel.top_core": "AI_CPU", "kernel.top_fraction": 0.4, "kernel.top_name": "Unique"}),
    ("cpu-fallback", {"step.wall_ms": 900, "device.utilization_fraction": 0.01, "serving.concurrency": 1,
                      "serving.request_decode_tokens_per_s": 1.1}),
    ("cpu-fallback", {"host.top_op": "aten::multinomial", "host.top_op_ms": 40, "step.wall_ms": 52,
                      "device.utilization_fraction": 0.15}),
    # the device's own work
    ("kernel-bound", {"device.busy_fraction": 0.93, "device.compute_fraction": 0.9, "device.comm_fraction": 0.02}),
    ("kernel-bound", {"kernel.top_name": "sort", "kernel.top_fraction": 0.36, "kernel.top_ms": 22, "step.wall_ms": 61}),
    ("kernel-bound", {"comm.min_us": 14, "comm.max_us": 90, "comm.compute_spread_ratio": 1.4}),
    ("kernel-bound", {"device.busy_fraction": 0.74, "sync.wait_fraction": 0.72}),
    ("bandwidth-bound", {"roofline.bandwidth_fraction": 0.68}),
    ("bandwidth-bound", {"roofline.read_gb": 14, "roofline.peak_gbps": 900, "step.wall_ms": 21}),     # 667 of 900 GB/s
    ("bandwidth-bound", {"sync.copy_ms": 30, "step.wall_ms": 80, "serving.features": "weight offload"}),
    ("bandwidth-bound", {"ab.other_dtype_ratio": 0.6, "device.memory_active_fraction": 0.8}),
    # scheduling and cache
    ("prefill-starves-decode", {"serving.prefill_run_steps": 22, "serving.prefill_run_ms": 5200, "step.wall_ms": 30}),
    ("prefill-starves-decode", {"latency.itl_max_ms": 5200, "latency.prefill_ms": 5000, "latency.itl_ms": 30,
                                "serving.prompt_tokens": 40_000, "serving.concurrency": 6}),
    ("prefill-too-long", {"latency.prefill_ms": 2600, "latency.ttft_ms": 3000, "serving.prompt_tokens": 2500}),
    ("prefill-too-long", {"kv.shared_prefix_fraction": 0.8, "kv.prefix_hit_fraction": 0.1, "latency.ttft_ms": 6000}),
    ("kv-pressure", {"kv.preemptions_per_request": 0.8}),
    ("kv-pressure", {"kv.swapped": 40, "kv.usage_fraction": 0.97}),
    ("queueing-idle-device", {"serving.waiting": 9, "serving.running": 0, "kv.usage_fraction": 0.05}),
    ("queueing-idle-device", {"serving.waiting": 30, "serving.running": 20, "serving.running_limit": 128,
                              "kv.usage_fraction": 0.3, "serving.decode_tokens_per_s": 640,
                              "device.utilization_fraction": 0.4}),
    # the front end
    ("tokenizer-cpu", {"process.busiest_cpu_cores": 1.0, "process.busiest_name": "tokenizer worker 0",
                       "process.sibling_cpu_cores": 0.1}),
    ("tokenizer-cpu", {"latency.before_prefill_ms": 3000, "latency.ttft_ms": 4200}),
    ("network-frontend", {"client.frame_interval_ms": 120, "latency.engine_itl_ms": 30}),
    ("network-frontend", {"serving.concurrency": 200, "serving.running": 30, "serving.waiting": 0}),
    ("network-frontend", {"latency.ttft_ms": 2900, "latency.e2e_ms": 2920, "client.first_chunk_empty": True}),
    # ranks
    ("comm-bound", {"device.busy_fraction": 0.9, "device.comm_fraction": 0.42, "device.compute_fraction": 0.46}),
    ("comm-bound", {"comm.calls_per_step": 80, "comm.min_us": 90, "step.wall_ms": 24}),               # 7.2 of 24 ms
    ("comm-bound", {"comm.host_ms": 5, "step.wall_ms": 28}),
    ("comm-bound", {"idle.peer_wait_fraction": 0.25, "device.comm_fraction": 0.08, "device.busy_fraction": 0.6}),
    # first use, clocks, implementations
    ("warmup-compile", {"warmup.first_ms": 9000, "warmup.repeat_ms": 400}),
    ("warmup-compile", {"warmup.compiles": 120}),
    ("warmup-compile", {"warmup.first_step_excess_fraction": 0.5, "step.count": 6}),
    ("throttling", {"clock.core_fraction": 0.55, "serving.running": 20}),
    ("throttling", {"step.drift_ratio": 1.4, "step.drift_after_s": 300}),
    ("throttling", {"power.limit_fraction": 0.5, "power.draw_fraction": 0.99, "step.wall_ms": 60}),
    ("wrong-backend", {"ab.kernel_ratio": 0.3, "log.implementation": "reference attention"}),
    ("wrong-backend", {"ab.other_dtype_ratio": 0.7, "roofline.bandwidth_fraction": 0.2, "device.busy_fraction": 0.9}),
    # nothing is broken: measuring, limit, no requests
    ("no-fault", {"host.top_op": "sampler", "host.top_op_fraction": 0.6, "host.timer_drained": False}),
    ("no-fault", {"host.timed_sum_ratio": 0.08}),
    ("no-fault", {"ab.profiler_ratio": 1.6}),
    ("no-fault", {"ab.spread_fraction": 0.35, "kv.prefix_hit_fraction": 0.6, "kv.shared_prefix_fraction": 0.1}),
    ("no-fault", {"serving.decode_tokens_per_s": 2980, "serving.reference_tokens_per_s": 3010}),
    ("no-fault", {"latency.queue_ms": 9000, "latency.ttft_ms": 9600, "device.utilization_fraction": 0.97,
                  "power.draw_fraction": 0.88, "serving.running": 64, "serving.running_limit": 64,
                  "serving.waiting": 70}),
    ("no-fault", {"idle.no_work_fraction": 0.7, "device.busy_fraction": 0.25, "serving.running": 0,
                  "serving.waiting": 0}),
]

CONFIRMED = [
    ("launch-bound", {"ab.graph_ratio": 0.6}),
    ("host-bound", {"host.top_op_fraction": 0.4, "ab.drained_span_ratio": 0.95}),
    ("implicit-sync", {"ab.fewer_syncs_ratio": 0.85, "sync.per_step": 3}),
    ("cpu-fallback", {"fallback.op": "aten::sort", "fallback.fraction": 0.3}),
    ("kernel-bound", {"device.busy_fraction": 0.9, "device.compute_fraction": 0.85, "device.comm_fraction": 0,
                      "ab.kernel_choice_ratio": 1.0, "roofline.bandwidth_fraction": 0.3}),
    ("bandwidth-bound", {"roofline.bandwidth_fraction": 0.86, "roofline.probe_gbps": 800}),
    ("prefill-starves-decode", {"ab.interleave_ratio": 0.4, "serving.concurrency": 20}),
    ("prefill-too-long", {"latency.prefill_ms": 7000, "latency.ttft_ms": 7600, "serving.prompt_tokens": 48_000}),
    ("kv-pressure", {"ab.kv_headroom_ratio": 0.6, "kv.preemptions_per_request": 1.5}),
    ("queueing-idle-device", {"serving.waiting": 12, "serving.running": 4, "serving.running_limit": 64,
                              "kv.usage_fraction": 0.1, "latency.queue_ms": 8000,
                              "device.utilization_fraction": 0.3}),
    ("tokenizer-cpu", {"ab.no_tokenizer_ratio": 0.5}),
    ("network-frontend", {"ab.other_client_ratio": 0.4}),
    ("network-frontend", {"ab.direct_engine_ratio": 0.5, "serving.concurrency": 64}),
    ("comm-bound", {"ab.no_comm_ratio": 0.6, "comm.layout": "TP8"}),
    ("warmup-compile", {"warmup.first_ms": 8000, "warmup.repeat_ms": 900, "warmup.compiles": 14}),
    ("throttling", {"clock.core_fraction": 0.6, "step.drift_ratio": 1.5}),
    ("wrong-backend", {"ab.kernel_choice_ratio": 0.5}),
    ("no-fault", {"ab.drained_span_ratio": 0.1, "host.top_op_fraction": 0.5}),
]

REFUTED = [
    # what would have made it probable, and the measurement that refutes it
    ("launch-bound", {"kernel.per_step": 1400, "host.launch_us": 7.5, "step.wall_ms": 18}, {"ab.graph_ratio": 1.0}),
    ("launch-bound", {"kernel.graph_fraction": 0.2, "host.graph_requested": True, "kernel.median_us": 4},
     {"device.busy_fraction": 0.95}),
    ("host-bound", {"host.top_op": "schedule", "host.top_op_fraction": 0.4, "host.timer_drained": True},
     {"ab.drained_span_ratio": 0.1}),
    ("host-bound", {"idle.step_gap_ms": 2.1, "step.wall_ms": 14}, {"roofline.bandwidth_fraction": 0.85}),
    ("implicit-sync", {"sync.per_step": 9, "step.wall_ms": 4}, {"ab.fewer_syncs_ratio": 0.99}),
    ("implicit-sync", {"sync.per_step": 9, "step.wall_ms": 4}, {"device.busy_fraction": 0.92}),
    ("implicit-sync", {"sync.per_step": 9, "step.wall_ms": 4}, {"sync.gain_bound_fraction": 0.02}),
    ("cpu-fallback", {"step.wall_ms": 900, "device.utilization_fraction": 0.01, "serving.running": 3, "step.count": 9},
     {"fallback.fraction": 0.01}),
    ("cpu-fallback", {"placement.host_ops": 44, "serving.concurrency": 1}, {"device.busy_fraction": 0.95}),
    ("kernel-bound", {"kernel.top_fraction": 0.36, "kernel.top_ms": 22, "step.wall_ms": 61},
     {"device.busy_fraction": 0.2}),
    ("kernel-bound", {"device.busy_fraction": 0.93, "device.compute_fraction": 0.9}, {"ab.kernel_choice_ratio": 0.5}),
    ("bandwidth-bound", {"roofline.bandwidth_fraction": 0.68}, {"ab.kernel_choice_ratio": 0.4}),
    ("prefill-starves-decode", {"serving.prefill_run_steps": 22, "serving.prefill_run_fraction": 0.7},
     {"ab.interleave_ratio": 1.0}),
    ("prefill-starves-decode", {"latency.itl_max_ms": 5200, "latency.prefill_ms": 5000}, {"serving.concurrency": 1}),
    ("prefill-too-long", {"latency.ttft_ms": 6000, "kv.shared_prefix_fraction": 0.8, "kv.prefix_hit_fraction": 0.1},
     {"latency.queue_ms": 5000}),
    ("kv-pressure", {"log.kv_exhausted": True, "kv.swapped": 4}, {"kv.usage_fraction": 0.1}),
    ("kv-pressure", {"kv.preemptions_per_request": 0.8}, {"ab.kv_headroom_ratio": 1.0}),
    ("queueing-idle-device", {"serving.waiting": 9, "serving.running": 0}, {"kv.usage_fraction": 0.97}),
    ("tokenizer-cpu", {"latency.before_prefill_ms": 3000}, {"ab.no_tokenizer_ratio": 1.0}),
    ("network-frontend", {"client.frame_interval_ms": 120, "latency.engine_itl_ms": 30},
     {"ab.direct_engine_ratio": 1.0}),
    ("comm-bound", {"kernel.top_name": "AllReduce", "kernel.top_fraction": 0.5}, {"ab.no_comm_ratio": 1.0}),
    ("comm-bound", {"comm.min_us": 400, "ab.one_device_ratio": 1.0},
     {"comm.calls_per_step": 10, "comm.isolated_us": 20, "step.wall_ms": 40}),
    ("warmup-compile", {"warmup.compiler_running": True, "warmup.first_ms": 6000}, {"warmup.repeat_ms": 5800}),
    ("throttling", {"step.drift_ratio": 1.4, "clock.core_fraction": 0.8}, {"ab.other_device_ratio": 1.0}),
    ("throttling", {"clock.core_fraction": 0.8, "power.limit_fraction": 0.6}, {"roofline.bandwidth_fraction": 0.85}),
    ("wrong-backend", {"ab.kernel_ratio": 0.3, "log.implementation": "reference"}, {"ab.kernel_choice_ratio": 1.0}),
    ("no-fault", {"host.timed_sum_ratio": 0.08}, {"fallback.fraction": 0.5}),
    ("no-fault", {"ab.spread_fraction": 0.35}, {"fallback.fraction": 0.5, "fallback.op": "aten::sort"}),
]


@pytest.mark.parametrize(("name", "figures"), PROBABLE, ids=lambda v: v if isinstance(v, str) else "+".join(v))
def test_probable(name, figures):
    verdict = verdict_of(figures)
    assert (verdict.level, verdict.id) == (Level.PROBABLE, name), [(h.id, h.score) for h in verdict.hypotheses]


@pytest.mark.parametrize(("name", "figures"), CONFIRMED, ids=lambda v: v if isinstance(v, str) else "+".join(v))
def test_confirmed(name, figures):
    verdict = verdict_of(figures)
    assert (verdict.level, verdict.id) == (Level.CONFIRMED, name), [(h.id, h.score) for h in verdict.hypotheses]


@pytest.mark.parametrize(("name", "figures", "refuting"), REFUTED,
                         ids=lambda v: v if isinstance(v, str) else "+".join(v))
def test_refuted(name, figures, refuting):
    before = next(h for h in verdict_of(figures).hypotheses if h.id == name)
    verdict = verdict_of({**figures, **refuting})
    after = next((h for h in verdict.hypotheses if h.id == name), None)
    assert before.score > 0
    assert verdict.id != name
    assert after is None or after.score <= 0


def test_every_fingerprint_is_tried_in_all_three_ways():
    for table in (PROBABLE, CONFIRMED, REFUTED):
        assert len({row[0] for row in table}) == 17


# -- boundaries that need saying

def test_a_queue_is_overload_or_admission_and_never_a_long_prefill():
    waiting = {"latency.queue_ms": 9000, "latency.ttft_ms": 9500, "serving.prompt_tokens": 60_000}
    assert verdict_of(waiting).id is None
    full = {**waiting, "device.busy_fraction": 0.95, "serving.running": 64, "serving.running_limit": 64,
            "serving.waiting": 9}
    assert verdict_of(full).id == "no-fault"
    free = {**waiting, "device.busy_fraction": 0.3, "serving.running": 4, "serving.running_limit": 64,
            "serving.waiting": 9, "kv.usage_fraction": 0.2}
    assert verdict_of(free).id == "queueing-idle-device"


@pytest.mark.parametrize("device", [
    {"device.utilization_fraction": 0.05}, {"device.utilization_fraction": 0.97, "power.draw_fraction": 0.3}])
def test_admission_holds_requests_back_where_the_device_has_room_though_the_tool_may_read_busy(device):
    seen = {"serving.waiting": 40, "serving.running": 6, "serving.running_limit": 64, "kv.usage_fraction": 0.2,
            **device}
    assert verdict_of({**seen, "serving.decode_tokens_per_s": 180}).id == "queueing-idle-device"
    assert verdict_of(seen).id is None, "without a sign of a step it may be the step that stands still"


def test_many_running_beside_an_idle_device_is_a_slow_step_and_not_admission():
    assert verdict_of({"serving.waiting": 900, "serving.running": 300, "serving.running_limit": 300,
                       "kv.usage_fraction": 0.4, "device.utilization_fraction": 0.2}).id is None


OVERLOAD = {"serving.waiting": 16_000, "serving.running": 255, "kv.usage_fraction": 0.2, "latency.queue_ms": 80_000,
            "latency.ttft_ms": 81_000, "latency.e2e_ms": 87_000, "serving.decode_tokens_per_s": 4950,
            "step.wall_ms": 51}


@pytest.mark.parametrize("beside", [
    {}, {"device.utilization_fraction": 0.0}, {"device.utilization_fraction": 0.6},
    {"serving.running": 8, "serving.waiting": 260, "kv.usage_fraction": 0.01, "device.utilization_fraction": 0.6,
     "serving.decode_tokens_per_s": 155},                                  # a limit of eight, and it is reached
    {"serving.running_limit": 256}, {"serving.running_limit": 256, "device.utilization_fraction": 0.6},
])
def test_a_queue_a_queue_time_and_a_free_cache_are_one_fact_and_no_proof_of_held_back_requests(beside):
    assert verdict_of({**OVERLOAD, **beside}).id is None


FEW = {"serving.running": 1, "serving.waiting": 7, "kv.usage_fraction": 0.015}
IN_QUICK_STEPS = {"serving.decode_tokens_per_s": 77, "step.wall_ms": 13, "latency.engine_itl_ms": 13}


def test_with_a_limit_far_above_or_hardly_any_running_the_same_queue_is_admission():
    room = {**OVERLOAD, "serving.running_limit": 1024, "device.utilization_fraction": 0.5}
    assert verdict_of(room).id == "queueing-idle-device"
    assert verdict_of({**FEW, **IN_QUICK_STEPS}).id == "queueing-idle-device"
    assert verdict_of({**FEW, "idle.no_work_fraction": 0.6, "step.method": "metrics"}).id == "queueing-idle-device"
    assert verdict_of({"serving.running": 0, "serving.waiting": 6, "kv.usage_fraction": 0.0}).id == \
        "queueing-idle-device"


def test_hardly_any_running_at_one_reading_may_be_a_step_that_stands_still():
    verdict = verdict_of(FEW)
    assert verdict.id is None
    assert verdict.hypotheses[0].id == "queueing-idle-device"


@pytest.mark.parametrize("step", [
    {"serving.decode_tokens_per_s": 0},                                              # it hangs
    {"serving.decode_tokens_per_s": 0.4, "step.wall_ms": 5000},                      # it takes seconds
    {**IN_QUICK_STEPS, "step.wall_ms": 90, "serving.prefill_tokens_per_s": 22_000},  # 1,980 tokens of prompts each
])
@pytest.mark.parametrize("limit", [{}, {"serving.running_limit": 256, "latency.queue_ms": 30_000}])
def test_few_that_run_in_a_slow_or_full_step_are_not_held_back_by_admission(step, limit):
    assert verdict_of({**FEW, "serving.running": 2, "serving.waiting": 380, **limit, **step}).id is None


def test_a_number_of_running_requests_that_never_changes_is_a_limit_and_no_proof_that_it_is_too_low():
    held = {**OVERLOAD, "serving.running": 16, "serving.running_spread_ratio": 0.0, "kv.usage_fraction": 0.02}
    assert verdict_of(held).id is None
    assert "serving.running_limit" in next(iter(verdict_of(held).hypotheses)).missing
    other = {**held, "serving.running_limit": 256, "device.utilization_fraction": 0.4}
    said = next(h for h in verdict_of(other).hypotheses if h.id == "queueing-idle-device")
    assert any("another limit holds" in reason.text for reason in said.for_)


@pytest.mark.parametrize(("beside", "found"), [
    ({}, None), ({"power.draw_fraction": 0.45}, None), ({"power.draw_fraction": 0.9}, "no-fault"),
    ({"device.memory_active_fraction": 0.55}, None), ({"kv.usage_fraction": 0.8}, "no-fault")])
def test_a_device_that_reads_full_beside_a_free_cache_is_at_its_limit_where_power_or_memory_say_so(beside, found):
    waiting = {"latency.queue_ms": 30_000, "latency.ttft_ms": 31_000, "serving.waiting": 360, "serving.running": 64,
               "serving.running_limit": 64, "kv.usage_fraction": 0.05, "device.utilization_fraction": 1.0}
    assert verdict_of({**waiting, **beside}).id == found


def test_where_a_thread_stands_is_no_fault_while_the_device_is_full():
    seen = {"host.top_op": "forward (vllm/model_executor/models/qwen3.py)", "host.top_op_fraction": 0.6,
            "process.busiest_cpu_cores": 1.0, "process.busiest_name": "engine", "serving.running": 200,
            "latency.engine_itl_ms": 29, "power.draw_fraction": 0.85}
    assert verdict_of({**seen, "device.utilization_fraction": 1.0}).id is None
    at_rest = {**seen, "device.utilization_fraction": 0.3, "power.draw_fraction": 0.3}
    assert verdict_of(at_rest).id is None, "its own layers launch: the stack does not tell host work from launching"
    assert verdict_of({**at_rest, "host.top_op": "schedule (vllm/v1/core/sched/scheduler.py)"}).id == "host-bound"
    polls = {name: value for name, value in seen.items() if not name.startswith("host.")}
    assert verdict_of({**polls, "device.utilization_fraction": 0.25}).id is None, "an engine polls in a full core"


def test_a_full_core_of_the_front_end_is_told_apart_by_what_it_is_seen_doing():
    full = {"process.busiest_cpu_cores": 0.98, "process.busiest_name": "api server", "host.top_op_fraction": 0.7}
    assert verdict_of({**full, "host.top_op": "tokenize (transformers/tokenization_utils.py)"}).id == "tokenizer-cpu"
    assert verdict_of({**full, "host.top_op": "dumps (json/__init__.py)"}).id == "network-frontend"
    assert verdict_of({**full, "host.top_op": "handle (acme/app.py)"}).id is None
    assert verdict_of({**full, "process.sibling_cpu_cores": 0.05, "host.top_op": "handle (acme/app.py)"}).id is None


def test_a_full_detokenizer_beside_a_full_device_may_keep_up():
    full = {"process.busiest_cpu_cores": 0.98, "process.busiest_name": "detokenizer"}
    assert verdict_of({**full, "device.utilization_fraction": 1.0}).id is None
    assert verdict_of({**full, "device.utilization_fraction": 0.4}).id == "tokenizer-cpu"
    late = {"latency.itl_ms": 180, "latency.engine_itl_ms": 39}
    assert verdict_of({**full, **late, "device.utilization_fraction": 1.0}).id == "tokenizer-cpu"


def test_long_steps_on_an_idle_device_are_no_prefills_where_the_token_gap_is_a_step_long():
    crawl = {"device.utilization_fraction": 0.0, "step.wall_ms": 4890, "serving.running": 256, "step.count": 12,
             "serving.decode_tokens_per_s": 52, "latency.prefill_ms": 5100}
    assert verdict_of({**crawl, "latency.engine_itl_ms": 4800}).id == "cpu-fallback"
    assert verdict_of(crawl).id is None


def test_requests_that_wait_for_the_step_that_runs_are_not_held_back():
    brief = {"serving.waiting": 3, "serving.running": 20, "serving.running_limit": 128, "kv.usage_fraction": 0.3,
             "step.wall_ms": 30, "device.utilization_fraction": 0.5}
    assert verdict_of({**brief, "latency.queue_ms": 60}).id is None
    assert verdict_of({**brief, "latency.queue_ms": 6000}).id == "queueing-idle-device"


STARVED = {"latency.engine_itl_ms": 18.7, "latency.itl_p99_ms": 2280, "latency.prefill_ms": 1250,
           "latency.queue_ms": 3100, "latency.ttft_ms": 4100, "serving.running": 62, "serving.prompt_tokens": 7600,
           "device.utilization_fraction": 0.97, "power.draw_fraction": 0.85}


def test_gaps_as_long_as_prefills_are_starved_decodes_and_not_a_system_at_its_limit():
    verdict = verdict_of(STARVED)
    assert (verdict.level, verdict.id) == (Level.PROBABLE, "prefill-starves-decode")
    limit = verdict_of({**STARVED, "latency.itl_p99_ms": 80})
    assert limit.id == "no-fault"


@pytest.mark.parametrize("ratio", [3, 6, 9])
def test_what_chunked_prefill_makes_of_the_gaps_is_no_starved_decode(ratio):
    assert verdict_of({**STARVED, "latency.engine_itl_ms": 50, "latency.itl_p99_ms": 50 * ratio}).id != \
        "prefill-starves-decode"


def test_long_gaps_weigh_more_the_longer_they_are():
    def score(p99):
        return next(h.score for h in verdict_of({"latency.engine_itl_ms": 20, "latency.itl_p99_ms": p99}).hypotheses
                    if h.id == "prefill-starves-decode")
    assert [score(p99) for p99 in (80, 300, 400, 4000)] == [0.75, 1.125, 1.25, 1.25]    # 0.75 + 15 ÷ 40, then the cap


def test_long_gaps_with_evictions_are_kv_pressure_and_alone_in_the_engine_nothing():
    thrash = {**STARVED, "kv.preemptions_per_request": 0.8, "kv.usage_fraction": 0.99}
    assert verdict_of(thrash).id == "kv-pressure"
    alone = verdict_of({**STARVED, "serving.running": 0.3})
    assert alone.id != "prefill-starves-decode"


def test_a_full_cache_alone_is_no_fault_of_the_cache():
    assert verdict_of({"kv.usage_fraction": 0.99, "serving.running": 200, "serving.waiting": 90,
                       "device.utilization_fraction": 0.3}).id is None


def test_the_same_busy_core_is_host_bound_in_the_engine_and_tokenizer_cpu_in_the_front_end():
    shared = {"process.busiest_cpu_cores": 1.0, "idle.step_gap_ms": 3, "step.wall_ms": 20}
    assert verdict_of({**shared, "process.busiest_name": "scheduler"}).id == "host-bound"
    assert verdict_of({"process.busiest_cpu_cores": 1.0, "process.busiest_name": "detokenizer"}).id == "tokenizer-cpu"


def test_another_implementation_makes_it_wrong_backend_and_the_best_there_kernel_bound():
    busy = {"device.busy_fraction": 0.95, "device.compute_fraction": 0.93, "device.comm_fraction": 0}
    assert verdict_of({**busy, "ab.kernel_choice_ratio": 0.6}).id == "wrong-backend"
    assert verdict_of({**busy, "ab.kernel_choice_ratio": 0.99}).id == "kernel-bound"


def test_a_long_wait_on_a_busy_device_is_waiting():
    verdict = verdict_of({"sync.wait_fraction": 0.8, "sync.per_step": 30, "sync.site": "aten::item",
                          "device.busy_fraction": 0.9, "device.compute_fraction": 0.88, "device.comm_fraction": 0})
    assert verdict.id == "kernel-bound"
    assert "implicit-sync" in {r.id for r in verdict.ruled_out}


def test_a_long_all_reduce_that_is_short_on_the_last_rank_is_not_communication():
    assert verdict_of({"kernel.top_name": "ncclAllReduce", "kernel.top_fraction": 0.4, "comm.min_us": 12,
                       "comm.max_us": 300, "comm.compute_spread_ratio": 1.3}).id == "kernel-bound"


def test_an_operator_on_the_device_s_own_cpu_is_a_fallback_though_the_device_is_busy():
    busy = {"device.busy_fraction": 0.95, "device.compute_fraction": 0.93, "device.comm_fraction": 0,
            "kernel.top_name": "Unique", "kernel.top_fraction": 0.7}
    assert verdict_of({**busy, "kernel.top_core": "AI_CPU"}).id == "cpu-fallback"
    assert verdict_of({**busy, "kernel.top_core": "AI_VECTOR_CORE"}).id == "kernel-bound"


def test_a_cpu_that_was_asked_for_is_no_fallback():
    assert verdict_of({"kernel.top_core": "CPU", "kernel.top_fraction": 0.8, "step.wall_ms": 300}).id is None


def test_a_collective_that_waits_for_a_late_rank_fills_the_device_and_is_not_communication():
    waiting = {"device.busy_fraction": 0.97, "device.comm_fraction": 0.9, "device.compute_fraction": 0.07,
               "comm.calls_per_step": 64, "comm.min_us": 12, "step.wall_ms": 400}       # 0.8 of 360 ms
    assert verdict_of(waiting).id is None
    assert verdict_of({**waiting, "comm.min_us": 3000}).id == "comm-bound"              # 192 of 360 ms


def test_exchanges_over_the_host_are_communication():
    assert verdict_of({"comm.host_ms": 9, "step.wall_ms": 40, "device.busy_fraction": 0.5}).id == "comm-bound"


def test_a_reported_power_limit_does_not_throttle_a_step_at_the_memory_limit():
    verdict = verdict_of({"clock.limit_reason": "sw_power_cap", "clock.core_fraction": 0.84,
                          "clock.memory_fraction": 1.0, "roofline.bandwidth_fraction": 0.8})
    assert verdict.id == "bandwidth-bound"


def test_the_road_of_a_bandwidth_bound_step_is_named():
    memory = verdict_of({"roofline.bandwidth_fraction": 0.7})
    link = verdict_of({"device.busy_fraction": 0.92, "device.copy_fraction": 0.55, "device.compute_fraction": 0.37,
                       "device.comm_fraction": 0, "kernel.top_name": "Memcpy HtoD (Pageable -> Device)"})
    assert (memory.id, link.id) == ("bandwidth-bound", "bandwidth-bound")
    assert "road: device memory" in memory.summary
    assert "road: the link to the host" in link.summary


@pytest.mark.parametrize(("figures", "names"), [
    ({"host.timed_sum_ratio": 0.08}, "measuring:"),
    ({"ab.double_load_ratio": 1.9, "device.utilization_fraction": 0.98}, "limit:"),
    ({"idle.no_work_fraction": 0.7, "device.busy_fraction": 0.25, "serving.running": 0}, "no requests:"),
])
def test_no_fault_names_which_it_is(figures, names):
    verdict = verdict_of(figures)
    assert verdict.id == "no-fault"
    assert names in verdict.summary


def test_an_effect_inside_the_spread_of_repeats_is_no_statement():
    assert verdict_of({"ab.fewer_syncs_ratio": 0.93}).id == "implicit-sync"
    assert verdict_of({"ab.fewer_syncs_ratio": 0.93, "ab.spread_fraction": 0.09}).id is None


# -- what looks like a cause and may be another

@pytest.mark.parametrize("counted", [{}, {"serving.running": 12}, {"serving.waiting": 0}])
def test_a_thread_that_waits_is_no_proof_of_no_requests(counted):
    verdict = verdict_of({"idle.no_work_fraction": 0.8, "device.busy_fraction": 0.15, "step.wall_ms": 9, **counted})
    assert verdict.id is None
    assert "serving.running and serving.waiting" in verdict.next
    assert "data loader" in verdict.next


LONG_FIRST = {"warmup.first_step_excess_fraction": 0.8, "step.count": 7}


def test_a_long_first_step_is_warm_up_where_the_device_idles_through_it_and_work_where_it_is_busy():
    assert verdict_of({**LONG_FIRST, "device.busy_fraction": 0.2}).id == "warmup-compile"
    busy = {**LONG_FIRST, "device.busy_fraction": 0.95, "device.compute_fraction": 0.94, "device.comm_fraction": 0}
    assert verdict_of(busy).id == "kernel-bound"


def test_a_first_step_that_is_long_for_idle_nobody_recorded_is_no_warm_up():
    unrecorded = {"idle.launching_fraction": 0.0, "idle.host_op_fraction": 0.0, "idle.after_sync_fraction": 0.0,
                  "idle.first_use_fraction": 0.0, "idle.peer_wait_fraction": 0.0, "idle.profiler_fraction": 0.0}
    assert verdict_of({**LONG_FIRST, **unrecorded, "device.busy_fraction": 0.1,
                       "idle.unrecorded_fraction": 0.75}).id is None


def test_a_first_use_toll_in_every_step_is_not_settled_as_a_warm_up():
    tolls = {"idle.first_use_fraction": 0.7, "device.busy_fraction": 0.25, "step.count": 11}
    assert verdict_of({**tolls, "warmup.first_step_excess_fraction": 0.6}).level is Level.CONFIRMED
    assert verdict_of({**tolls, "warmup.first_step_excess_fraction": 0.0}).level is Level.PROBABLE


@pytest.mark.parametrize("beside", [
    {"serving.prompt_tokens": 30_000},                                      # the later ones find their prefix
    {"serving.prompt_tokens": 30_000, "warmup.compiles": 1},
    {"kv.prefix_hit_fraction": 0.9, "warmup.compiles": 2},
    {"step.wall_ms": 30},                                                   # a prefill against a step of decode
])
def test_a_slow_first_request_that_prefill_explains_is_no_warm_up(beside):
    assert verdict_of({"warmup.first_ms": 3000, "warmup.repeat_ms": 31, **beside}).id is None


ZERO = {"device.utilization_fraction": 0.01, "step.wall_ms": 1300, "serving.running": 40,
        "serving.decode_tokens_per_s": 31}


@pytest.mark.parametrize("explains", [
    {"serving.features": "weight offload"}, {"serving.features": "frequency penalties"}, {"comm.host_ms": 1100},
    {"sync.copy_ms": 1200}, {"latency.prefill_ms": 1200}, {"ab.plain_request_ratio": 0.05},
    {"host.top_op": "sample_numpy", "host.top_op_ms": 1250},
])
def test_a_device_at_zero_is_no_fallback_beside_another_explanation(explains):
    assert verdict_of(ZERO).id == "cpu-fallback"
    assert verdict_of({**ZERO, **explains}).id != "cpu-fallback"


@pytest.mark.parametrize("figures", [
    {"device.utilization_fraction": 0.24, "serving.running": 3, "process.busiest_cpu_cores": 5, "step.wall_ms": 30},
    {"device.utilization_fraction": 0.26, "serving.running": 1, "device.memory_used_fraction": 0.04},
    {"serving.concurrency": 1, "serving.request_decode_tokens_per_s": 6, "serving.prefill_tokens_per_s": 25,
     "serving.prompt_tokens": 22},
    {"placement.planned_fraction": 0.5, "placement.loaded_fraction": 0.5, "serving.concurrency": 1},
    {"log.backend": "cpu", "device.utilization_fraction": 0.0, "serving.concurrency": 1,
     "serving.request_decode_tokens_per_s": 3, "process.busiest_cpu_cores": 16},
])
def test_a_little_used_device_or_a_placement_as_planned_is_no_fallback_yet(figures):
    assert verdict_of(figures).id is None


@pytest.mark.parametrize("figures", [
    {"ab.other_device_ratio": 0.5, "device.utilization_fraction": 0.97},    # a larger device
    {"ab.other_device_ratio": 0.5, "clock.core_fraction": 0.83},
    {"step.drift_ratio": 1.25, "serving.running": 40},                      # contexts grow
    {"step.drift_ratio": 1.2, "clock.core_fraction": 0.82},
    {"power.limit_fraction": 0.65, "power.draw_fraction": 0.98, "clock.core_fraction": 0.8,
     "clock.memory_fraction": 1.0, "clock.limit_reason": "power cap"},
])
def test_slower_than_another_or_later_is_no_throttling_without_a_clock_far_below(figures):
    assert verdict_of(figures).id is None


def test_a_difference_inside_the_spread_is_no_statement_and_no_proof_of_health():
    assert verdict_of({"ab.graph_ratio": 0.8, "ab.spread_fraction": 0.28}).id is None


COPIES = {"device.busy_fraction": 0.9, "device.copy_fraction": 0.5, "device.compute_fraction": 0.4,
          "device.comm_fraction": 0, "step.wall_ms": 50}


def test_copies_are_on_the_link_only_where_they_are_seen_to_go_to_or_from_the_host():
    assert "the link to the host. Copies" in verdict_of({**COPIES, "sync.copy_ms": 22}).summary
    assert "copies. Copies alone" in verdict_of({**COPIES, "sync.copy_ms": 0.1}).summary


def test_copies_that_other_work_covers_are_no_road_that_is_full():
    covered = {"sync.copy_ms": 8, "step.wall_ms": 10, "device.busy_fraction": 0.5}
    assert verdict_of({**covered, "device.copy_fraction": 0.4}).level is Level.CONFIRMED
    assert verdict_of({**covered, "device.copy_fraction": 0.05}).id is None


def test_where_the_trace_gives_the_share_of_collectives_the_larger_share_of_kernels_comes_first():
    verdict = verdict_of({"device.busy_fraction": 0.85, "device.compute_fraction": 0.6, "device.comm_fraction": 0.22,
                          "device.copy_fraction": 0.03, "comm.calls_per_step": 8, "comm.min_us": 2500,
                          "step.wall_ms": 90, "kernel.top_name": "ncclSendRecv",
                          "kernel.top_fraction": 0.35})
    assert verdict.id == "kernel-bound"
    assert "Second: comm-bound (22% of the time)" in verdict.summary


def test_a_collective_needs_a_clear_ratio_to_be_taken_for_waiting():
    ranks = {"device.busy_fraction": 0.95, "device.comm_fraction": 0.5, "device.compute_fraction": 0.45,
             "comm.calls_per_step": 60, "step.wall_ms": 40, "comm.max_us": 330}
    assert verdict_of({**ranks, "comm.min_us": 50}).id == "comm-bound"      # 3 of 20 ms, 0.15
    assert verdict_of({**ranks, "comm.min_us": 5}).id is None               # 0.3 of 20 ms, 0.015


def test_a_healthy_busy_device_reads_as_a_limit_and_says_what_was_looked_for():
    verdict = verdict_of({"device.busy_fraction": 0.97, "device.compute_fraction": 0.96, "device.comm_fraction": 0,
                          "fallback.fraction": 0, "idle.launching_fraction": 0.01, "idle.host_op_fraction": 0.0})
    assert verdict.id == "kernel-bound"
    assert "nothing on the host holds it up" in verdict.summary
    assert {"cpu-fallback", "launch-bound", "host-bound"} <= {r.id for r in verdict.ruled_out}


FRAME = {"host.top_op": "forward (engine/model.py)", "host.top_op_fraction": 0.9}
LIGHT = {"serving.running": 1.8, "step.wall_ms": 15.5, "latency.engine_itl_ms": 17.6,
         "device.utilization_fraction": 0.12, "power.draw_fraction": 0.26}


@pytest.mark.parametrize("frame", ["forward (engine/model.py)", "random_sample (engine/sampler.py)",
                                   "_prepare_inputs (engine/runner.py)", "schedule (engine/scheduler.py)"])
@pytest.mark.parametrize("cpu", [{}, {"process.busiest_cpu_cores": 1.0, "process.busiest_name": "worker"},
                                 {"process.busiest_cpu_cores": 3.0, "process.busiest_name": "engine"}])
def test_a_lightly_loaded_server_with_short_steps_has_no_fault_wherever_its_host_stands(frame, cpu):
    verdict = verdict_of({**LIGHT, "host.top_op": frame, "host.top_op_fraction": 1.0, **cpu})
    assert verdict.level is Level.NOT_ENOUGH, [(h.id, h.score) for h in verdict.hypotheses]
    assert {h.id for h in verdict.hypotheses if h.score > 0.75}.isdisjoint({"cpu-fallback", "host-bound"})


def test_a_python_frame_in_short_steps_is_not_enough_however_many_requests_run():
    for running in (8, 64, 256):
        verdict = verdict_of({**LIGHT, **FRAME, "serving.running": running, "device.memory_used_fraction": 0.01})
        assert verdict.level is Level.NOT_ENOUGH, [(h.id, h.score) for h in verdict.hypotheses]


@pytest.mark.parametrize("frame", ["forward (engine/model.py)", "random_sample (engine/sampler.py)"])
@pytest.mark.parametrize("more", [{}, {"power.draw_fraction": 0.2}, {"latency.engine_itl_ms": 130}])
def test_a_python_frame_in_slow_steps_is_a_fallback_or_the_host_s_own_work(frame, more):
    verdict = verdict_of({"host.top_op": frame, "host.top_op_fraction": 0.8, "device.utilization_fraction": 0.06,
                          "serving.running": 16, "step.wall_ms": 125, **more})
    assert verdict.level is Level.NOT_ENOUGH
    assert "About equally supported: cpu-fallback, host-bound" in verdict.summary


def test_seconds_a_step_on_a_device_at_0_percent_are_a_fallback_though_only_a_python_frame_is_seen():
    """The P800 case as stacks without native frames show it."""
    seen = {"device.utilization_fraction": 0, "serving.running": 256, "step.wall_ms": 4890,
            "host.top_op_fraction": 0.95}
    for frame, page in (("sample (engine/sampler.py)", "cpu-fallback"),
                        ("schedule (engine/scheduler.py)", "host-bound")):
        verdict = verdict_of({**seen, "host.top_op": frame})
        assert (verdict.level, verdict.id) == (Level.PROBABLE, page), [(h.id, h.score) for h in verdict.hypotheses]


def test_a_step_time_that_the_engine_s_own_token_time_refutes_is_no_slow_step():
    """Scrapes half a minute apart count the pauses between requests into the step: 745 against 17.5 ms."""
    verdict = verdict_of({"device.utilization_fraction": 0.02, "power.draw_fraction": 0.17, "serving.running": 1,
                          "step.wall_ms": 745, "step.count": 120, "serving.decode_tokens_per_s": 1.4,
                          "latency.engine_itl_ms": 17.5})
    assert verdict.level is Level.NOT_ENOUGH
    assert not [h for h in verdict.hypotheses if h.id in ("cpu-fallback", "host-bound") and h.score > 0]


AT_RATED_POWER = {"clock.core_fraction": 0.56, "power.draw_fraction": 0.997, "power.limit_fraction": 1.0,
                  "clock.limit_reason": "sw_power_cap", "device.utilization_fraction": 0.98, "serving.running": 20}


@pytest.mark.parametrize("more", [{}, {"clock.memory_fraction": 1.0}, {"step.drift_ratio": 1.3, "step.wall_ms": 60}])
def test_a_card_at_its_rated_power_is_not_throttled(more):
    verdict = verdict_of({**AT_RATED_POWER, **more})
    assert verdict.id != "throttling"
    assert all("44%" not in text for text in (verdict.summary, verdict.title))


@pytest.mark.parametrize("change", [
    {"power.limit_fraction": 0.5}, {"clock.limit_reason": "hw_thermal_slowdown, sw_power_cap"},
    {"power.draw_fraction": 0.6, "clock.limit_reason": "none"}])
def test_a_lowered_limit_heat_or_a_card_that_draws_little_is_throttled(change):
    verdict = verdict_of({**AT_RATED_POWER, **change})
    assert (verdict.level, verdict.id) == (Level.PROBABLE, "throttling"), [(h.id, h.score) for h in verdict.hypotheses]
    assert "% of the time" not in verdict.summary          # 1 − clock is no share of the time


@pytest.mark.parametrize("figures", [
    {"clock.core_fraction": 0.4}, {"clock.memory_fraction": 0.5},
    {"power.limit_fraction": 0.5, "power.draw_fraction": 0.99},
    {"clock.core_fraction": 0.4, "clock.limit_reason": "hw_thermal_slowdown"}])
def test_a_clock_without_a_load_or_a_rate_is_not_enough(figures):
    seen = {**figures, "device.utilization_fraction": 0.97}
    assert verdict_of(seen).level is Level.NOT_ENOUGH
    assert verdict_of({**seen, "serving.running": 12}).id == "throttling"


def test_tokenizing_seen_in_stacks_alone_is_not_enough():
    seen = {"host.top_op": "encode (tokenizers/__init__.py)", "host.top_op_fraction": 1.0}
    assert verdict_of(seen).level is Level.NOT_ENOUGH
    full = verdict_of({**seen, "process.busiest_cpu_cores": 1.0, "process.busiest_name": "tokenizer"})
    assert (full.level, full.id) == (Level.PROBABLE, "tokenizer-cpu")


def test_a_full_front_end_before_an_engine_without_requests_is_the_front_end_s():
    verdict = verdict_of({"process.busiest_cpu_cores": 1.0, "process.busiest_name": "api server", "serving.running": 0,
                          "serving.waiting": 0, "device.utilization_fraction": 0})
    assert verdict.id != "no-fault"
    assert {"tokenizer-cpu", "network-frontend"} <= {h.id for h in verdict.hypotheses if h.score > 0}


# -- what a trace wears that another fault has

BESIDE = {"device.busy_fraction": 0.94, "device.compute_fraction": 0.2, "device.copy_fraction": 0.74,
          "device.comm_fraction": 0, "sync.copy_ms": 3.9, "step.wall_ms": 4.2, "kernel.per_step": 210,
          "kernel.graph_fraction": 0, "host.launch_us": 4.5, "idle.launching_fraction": 0.05,
          "sync.wait_fraction": 0.01}


def test_a_link_in_use_is_the_limit_only_where_kernels_or_the_host_wait_for_the_copies():
    for name, behind in (("launch-bound", "launching"), ("host-bound", "host_op")):
        beside = {**BESIDE, "device.copy_wait_fraction": 0.05, f"device.copy_over_{behind}_fraction": 0.68}
        assert (verdict_of(beside).level, verdict_of(beside).id) == (Level.PROBABLE, name)
    waits = verdict_of({**BESIDE, "device.copy_wait_fraction": 0.6})
    assert (waits.level, waits.id) == (Level.CONFIRMED, "bandwidth-bound")


def test_copies_beside_kernels_that_wait_for_something_else_name_no_launching():
    assert verdict_of({**BESIDE, "device.copy_wait_fraction": 0.05}).id is None
    little = {"device.copy_over_launching_fraction": 0.1, "device.copy_over_host_op_fraction": 0.1}
    assert verdict_of({**BESIDE, "device.copy_wait_fraction": 0.05, **little}).id is None


RANK = {"step.method": "annotation", "device.busy_fraction": 0.9, "device.comm_fraction": 0.6,
        "device.compute_fraction": 0.3, "idle.peer_wait_fraction": 0}


@pytest.mark.parametrize("known", [
    {"comm.isolated_us": 2500, "comm.calls_per_step": 20, "step.wall_ms": 100},
    {"comm.skew_ms": 3, "comm.min_us": 2800, "comm.calls_per_step": 20, "step.wall_ms": 100},
    {"ab.no_comm_ratio": 0.5},
])
def test_a_trace_of_one_rank_is_no_proof_of_communication_without_its_cost(known):
    alone = verdict_of(RANK)
    assert (alone.level, alone.id) == (Level.NOT_ENOUGH, None)
    assert alone.hypotheses[0].id == "comm-bound"
    assert verdict_of({**RANK, **known}).id == "comm-bound"


STEADY = {"comm.min_us": 2900, "comm.max_us": 2950, "comm.calls_per_step": 20, "step.wall_ms": 100}


@pytest.mark.parametrize("beside", [{}, {"comm.host_ms": 12}])
def test_a_rank_that_is_late_alike_in_every_step_makes_all_calls_of_the_others_long(beside):
    """58 of 60 ms by the shortest call of one rank: an exchange of that cost and a steady straggler look the same."""
    verdict = verdict_of({**RANK, **STEADY, **beside})
    assert (verdict.level, verdict.id) == (Level.NOT_ENOUGH, None)
    assert "xpu-triage fleet" in verdict.next
    assert verdict_of({**RANK, **STEADY, **beside, "comm.skew_ms": 2}).id == "comm-bound"


def test_waiting_for_an_object_from_another_rank_is_no_exchange_that_one_rank_could_price():
    waits = {"step.method": "annotation", "device.busy_fraction": 0.6, "device.comm_fraction": 0.0,
             "device.compute_fraction": 0.58, "idle.peer_wait_fraction": 0.3, "comm.host_ms": 12, "step.wall_ms": 40}
    assert verdict_of(waits).id is None
    assert verdict_of({**waits, "comm.skew_ms": 0.5}).id == "comm-bound"


def test_what_one_rank_cannot_tell_of_its_collectives_is_not_laid_on_its_host():
    verdict = verdict_of({**RANK, "device.busy_fraction": 0.7, "device.compute_fraction": 0.1,
                          "idle.host_op_fraction": 0.25, "idle.launching_fraction": 0.05})
    assert verdict.id is None
    assert [h.id for h in verdict.hypotheses[:2]] == ["comm-bound", "host-bound"]


def test_receives_of_one_rank_hold_the_senders_time_whatever_their_shortest():
    receives = {**RANK, "kernel.top_name": "ncclDevKernel_SendRecv", "kernel.top_fraction": 0.66, "comm.min_us": 2900,
                "comm.calls_per_step": 20, "step.wall_ms": 100}
    assert verdict_of(receives).id is None
    assert verdict_of({**receives, "comm.skew_ms": 3}).id == "comm-bound"


FULL = {"device.busy_fraction": 0.98, "device.compute_fraction": 0.97, "device.comm_fraction": 0}


@pytest.mark.parametrize(("run", "name"), [(1, "kernel-bound"), (5, "kernel-bound"), (10, "prefill-starves-decode"),
                                           (58, "prefill-starves-decode")])
def test_a_full_device_does_not_say_whose_turn_it_is(run, name):
    timed = {"serving.prefill_run_steps": run, "serving.prefill_run_ms": 100 * run, "step.wall_ms": 20}
    assert verdict_of({**FULL, **timed}).id == name


@pytest.mark.parametrize("run", [10, 58])
def test_how_many_prefills_follow_each_other_does_not_say_how_long_anybody_waits(run):
    for beside in ({}, FULL):
        verdict = verdict_of({**beside, "serving.prefill_run_steps": run})
        assert verdict.id is None
        assert "prefill-starves-decode" in {h.id for h in verdict.hypotheses}


@pytest.mark.parametrize(("ms", "part", "name"), [
    (30, 0.008, "kernel-bound"),              # ten prefills of 3 ms beside decode steps of 20: nobody notices
    (190, 0.2, "kernel-bound"),               # nearly ten decode steps
    (5000, 0.05, "kernel-bound"),             # long, and rare
    (5000, 0.2, "prefill-starves-decode"),
    (240, 0.2, "prefill-starves-decode"),
])
def test_a_long_run_of_prefills_is_the_fault_where_it_takes_long_and_is_not_rare(ms, part, name):
    assert verdict_of({**FULL, "serving.prefill_run_steps": 12, "serving.prefill_run_ms": ms,
                       "serving.prefill_run_fraction": part, "step.wall_ms": 20}).id == name


@pytest.mark.parametrize(("run", "part", "name"), [(3, 0.9, "kernel-bound"), (4, 0.2, "kernel-bound"),
                                                   (4, 0.5, "prefill-starves-decode"),
                                                   (9, 0.75, "prefill-starves-decode")])
def test_shorter_runs_of_prefills_are_the_fault_where_they_take_most_of_the_time(run, part, name):
    full = {**FULL, "serving.prefill_run_steps": run, "serving.prefill_run_fraction": part}
    assert verdict_of(full).id == name


HICCUP = {**LONG_FIRST, "device.busy_fraction": 0.2, "idle.host_op_fraction": 0.75, "idle.launching_fraction": 0.05,
          "idle.after_sync_fraction": 0.0, "idle.peer_wait_fraction": 0.0}


def test_a_long_first_step_without_a_first_time_call_is_as_well_a_hiccup_of_the_host():
    hiccup = verdict_of({**HICCUP, "idle.first_use_fraction": 0.0})
    assert hiccup.id is None
    assert {"warmup-compile", "host-bound"} <= {h.id for h in hiccup.hypotheses if h.score > 0}
    assert verdict_of({**HICCUP, "idle.first_use_fraction": 0.0, "warmup.compiles": 4}).id == "warmup-compile"
    assert verdict_of({**HICCUP, "idle.first_use_fraction": 0.0, "warmup.compiles": 0}).id != "warmup-compile"
    seen = {**HICCUP, "idle.first_use_fraction": 0.7, "idle.host_op_fraction": 0.05}
    assert verdict_of(seen).id == "warmup-compile"


@pytest.mark.parametrize("part", [
    {"comm.isolated_us": 2500, "step.wall_ms": 100}, {"comm.isolated_us": 2500, "comm.calls_per_step": 20}])
def test_a_time_of_one_collective_is_no_cost_while_calls_or_the_step_are_unknown(part):
    verdict = verdict_of({**RANK, **part})
    assert (verdict.level, verdict.id) == (Level.NOT_ENOUGH, None)
    assert "one rank's collectives" in verdict.summary.lower()
    whole = {"comm.calls_per_step": 20, "step.wall_ms": 100, **part}
    assert verdict_of({**RANK, **whole}).id == "comm-bound"


@pytest.mark.parametrize(("page", "figures"), [
    ("cpu-fallback", {"device.utilization_fraction": 0.2, "process.host_cpu_fraction": 0.6}),
    ("host-bound", {"process.host_cpu_fraction": 0.95}),
    ("tokenizer-cpu", {"process.host_cpu_fraction": 0.95})])
def test_cpu_that_others_use_is_no_sign_of_what_the_service_does(page, figures):
    def says(**more):
        return [reason.text for found in verdict_of({**figures, **more}).hypotheses if found.id == page
                for reason in found.for_ if "machine's CPU" in reason.text]

    assert len(says()) == 1  # nobody looked at the service's processes
    assert len(says(**{"process.busiest_cpu_cores": 1.0})) == 1
    assert says(**{"process.busiest_cpu_cores": 0.26}) == []
