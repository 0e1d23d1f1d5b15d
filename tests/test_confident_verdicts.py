"""Evidence that fits a fault and fits something else as well: the fault must not be named. Beside each, what would
have to be known for it to be named."""

from __future__ import annotations

import pytest

from sheets import verdict_of
from xpu_triage.verdict import Level

# -- a queue beside a device that is full, or may be

QUEUED = {"serving.waiting": 50, "serving.running": 100, "serving.running_limit": 1024, "kv.usage_fraction": 0.45,
          "latency.queue_ms": 5000, "latency.ttft_ms": 7000, "latency.engine_itl_ms": 120,
          "serving.decode_tokens_per_s": 800}


def score(figures: dict[str, object], name: str) -> float:
    return next((h.score for h in verdict_of(figures).hypotheses if h.id == name), 0.0)


@pytest.mark.parametrize("device", [
    {"device.busy_fraction": 0.98},
    {"device.busy_fraction": 0.98, "device.utilization_fraction": 0.99, "power.draw_fraction": 0.95},
    {"device.utilization_fraction": 0.99, "power.draw_fraction": 0.95},
])
def test_a_full_device_refutes_a_queue_that_is_held_back_however_high_the_limit_on_requests(device):
    verdict = verdict_of({**QUEUED, **device})
    assert verdict.id != "queueing-idle-device"
    assert score({**QUEUED, **device}, "queueing-idle-device") <= 0


@pytest.mark.parametrize("device", [{}, {"device.utilization_fraction": 0.97},
                                    {"device.utilization_fraction": 0.97, "power.draw_fraction": 0.65}])
def test_a_device_that_nobody_looked_at_or_that_only_reads_full_leaves_it_open(device):
    for more in ({}, {"serving.running_spread_ratio": 0.0, "serving.concurrency": 400}):
        verdict = verdict_of({**QUEUED, **device, **more})
        assert verdict.level is Level.NOT_ENOUGH, [(h.id, h.score) for h in verdict.hypotheses]


@pytest.mark.parametrize("room", [
    {"device.busy_fraction": 0.3}, {"device.utilization_fraction": 0.4},
    {"device.utilization_fraction": 0.97, "power.draw_fraction": 0.3},                  # it spins
    {"serving.prefill_tokens_per_s": 900, "step.wall_ms": 120},                         # 108 prompt tokens a step
])
def test_room_on_the_device_or_in_the_step_settles_it(room):
    assert (verdict_of({**QUEUED, **room}).level, verdict_of({**QUEUED, **room}).id) == \
        (Level.CONFIRMED, "queueing-idle-device")


@pytest.mark.parametrize("running", [20, 100, 500])
def test_steps_that_prompts_fill_are_no_admission_that_holds_back(running):
    """20,000 tokens/s in steps of 0.12 s: 2,400 prompt tokens each."""
    full = {**QUEUED, "serving.running": running, "serving.prefill_tokens_per_s": 20_000}
    assert verdict_of(full).id != "queueing-idle-device"
    assert verdict_of({**full, "step.wall_ms": 120}).id != "queueing-idle-device"


# -- "running 0" of an engine that does not count what it prefills

NONE_RUNS = {"serving.running": 0, "serving.waiting": 6, "latency.queue_ms": 8000}


@pytest.mark.parametrize("beside", [
    {"kv.usage_fraction": 0.3}, {},                                                     # somebody holds the cache
    {"kv.usage_fraction": 0.02, "serving.prefill_tokens_per_s": 9000},
    {"kv.usage_fraction": 0.02, "device.utilization_fraction": 0.99},
    {"kv.usage_fraction": 0.02, "device.utilization_fraction": 0.99, "power.draw_fraction": 0.9},
    {"kv.usage_fraction": 0.02, "device.busy_fraction": 0.97},
])
def test_running_0_is_no_stalled_admission_where_a_prompt_may_be_computed(beside):
    assert verdict_of({**NONE_RUNS, **beside}).id != "queueing-idle-device"


def test_running_0_with_an_empty_cache_is_settled():
    verdict = verdict_of({**NONE_RUNS, "kv.usage_fraction": 0.0})
    assert (verdict.level, verdict.id) == (Level.CONFIRMED, "queueing-idle-device")


# -- long gaps that no prefill made

GAPS = {"latency.itl_ms": 30, "latency.itl_p99_ms": 1030, "latency.itl_max_ms": 1040, "serving.concurrency": 16,
        "serving.decode_tokens_per_s": 320, "latency.e2e_ms": 12_000}


@pytest.mark.parametrize("beside", [
    {}, {"latency.ttft_ms": 250, "serving.prompt_tokens": 400},                         # prefills are a quarter second
    {"latency.ttft_ms": 1000, "serving.prompt_tokens": 400},                            # short prompts that wait
    {"latency.prefill_ms": 60}, {"serving.prompt_tokens": 16_000}, {"latency.itl_max_ms": 11_000},
])
def test_gaps_that_prefills_are_not_seen_to_be_as_long_as_are_not_enough(beside):
    verdict = verdict_of({**GAPS, **beside})
    assert verdict.level is Level.NOT_ENOUGH, [(h.id, h.score) for h in verdict.hypotheses]
    assert verdict.hypotheses[0].id in ("prefill-starves-decode", "kv-pressure")


@pytest.mark.parametrize("prefills", [
    {"latency.prefill_ms": 900}, {"latency.ttft_ms": 1400, "latency.queue_ms": 400},
    {"latency.ttft_ms": 1100, "serving.prompt_tokens": 12_000}])
def test_gaps_as_long_as_the_prefills_beside_them_are_starved_decodes(prefills):
    verdict = verdict_of({**GAPS, **prefills})
    assert (verdict.level, verdict.id) == (Level.PROBABLE, "prefill-starves-decode")


@pytest.mark.parametrize("buffered", [
    {"latency.itl_ms": 0.02, "serving.request_decode_tokens_per_s": 35},                # 28 ms a token
    {"latency.itl_ms": 5, "latency.engine_itl_ms": 28, "serving.request_decode_tokens_per_s": 33},
])
def test_a_buffered_stream_says_nothing_of_steps(buffered):
    seen = {**GAPS, "latency.prefill_ms": 800, **buffered}
    assert verdict_of(seen).id != "prefill-starves-decode"


def test_the_longest_gap_is_no_share_of_a_request():
    seen = {**GAPS, "latency.itl_max_ms": 40_000, "latency.prefill_ms": 900}            # of 12 s that a request takes
    found = next(h for h in verdict_of(seen).hypotheses if h.id == "prefill-starves-decode")
    assert found.share is None


# -- nothing is broken: only where it is shown

FULL_BY_THE_TOOL = {"device.utilization_fraction": 1.0, "latency.queue_ms": 9000, "latency.ttft_ms": 10_000,
                    "serving.running": 16, "serving.waiting": 30}


@pytest.mark.parametrize("beside", [
    {}, {"serving.running_limit": 16}, {"kv.usage_fraction": 0.2}, {"power.draw_fraction": 0.22},
    {"kv.usage_fraction": 0.7, "power.draw_fraction": 0.3}])
def test_a_tool_that_reads_100_percent_is_no_proof_of_a_limit(beside):
    assert verdict_of({**FULL_BY_THE_TOOL, **beside}).id is None


@pytest.mark.parametrize("proof", [{"power.draw_fraction": 0.9}, {"device.busy_fraction": 0.96},
                                   {"kv.usage_fraction": 0.8}])
def test_power_a_trace_or_a_cache_in_use_prove_it_unless_the_step_is_far_from_what_memory_gives(proof):
    assert verdict_of({**FULL_BY_THE_TOOL, **proof}).id == "no-fault"
    slow = {**FULL_BY_THE_TOOL, **proof, "roofline.bandwidth_fraction": 0.03}
    assert verdict_of(slow).id != "no-fault"


AS_BEFORE = {"serving.decode_tokens_per_s": 2000, "serving.reference_tokens_per_s": 2000}


@pytest.mark.parametrize("beside", [
    {"serving.offered_requests_per_s": 5}, {"latency.ttft_ms": 9000}, {"latency.queue_ms": 18_000},
    {"serving.waiting": 30}])
def test_a_rate_that_arrivals_set_is_no_all_clear(beside):
    assert verdict_of(AS_BEFORE).id == "no-fault"
    verdict = verdict_of({**AS_BEFORE, **beside})
    assert verdict.id is None
    assert score({**AS_BEFORE, **beside}, "no-fault") <= 0.5


def test_one_gap_of_seconds_takes_the_all_clear_from_usual_times():
    usual = {"latency.baseline_least_ratio": 1.0, "latency.baseline_most_ratio": 1.06}
    assert verdict_of(usual).id == "no-fault"
    assert verdict_of({**usual, "latency.itl_ms": 20, "latency.itl_max_ms": 11_000, "serving.concurrency": 64}).id \
        is None


# -- low clocks of a device that has little to do

LOW = {"clock.core_fraction": 0.083, "clock.memory_fraction": 0.045, "serving.running": 64, "step.wall_ms": 300}


@pytest.mark.parametrize("why", [
    {"clock.limit_reason": "idle"}, {"clock.limit_reason": "gpu_idle", "device.utilization_fraction": 0.12},
    {"device.utilization_fraction": 0.12}, {"device.busy_fraction": 0.2, "clock.limit_reason": "none"},
    {"device.utilization_fraction": 0.12, "step.drift_ratio": 1.2}])
def test_clocks_of_an_idle_device_are_no_throttling(why):
    assert verdict_of({**LOW, **why}).id != "throttling"


@pytest.mark.parametrize("why", [
    {"device.utilization_fraction": 0.9}, {}, {"device.utilization_fraction": 0.2,
                                               "clock.limit_reason": "hw_thermal_slowdown"}])
def test_the_same_clocks_under_load_or_with_heat_are_throttling(why):
    assert verdict_of({**LOW, **why}).id == "throttling"


# -- shares

def test_a_queue_longer_than_the_time_to_first_token_has_no_share():
    """Two medians, each read off a bucket of 5 to 10 s, say nothing of the share; means do."""
    seen = {**NONE_RUNS, "kv.usage_fraction": 0.0, "latency.queue_ms": 7500, "latency.ttft_ms": 7500}
    found = verdict_of(seen).hypotheses[0]
    assert (found.id, found.share) == ("queueing-idle-device", None)
    means = verdict_of({**seen, "serving.queued_fraction": 7 / 9}).hypotheses[0]
    assert (means.share, means.share_of) == (pytest.approx(7 / 9), "the time to first token")
