"""Figures of one load that cannot all be true are said with the arithmetic; figures that agree are left alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sheets import typed
from xpu_triage.catalogue import CATALOGUE
from xpu_triage.contradictions import contradictions
from xpu_triage.signals import Signal, Signals

SPEAKS = [
    # 256 ÷ 4.89 s = 52.35 tokens/s
    ({"serving.running": 256, "step.wall_ms": 4890, "serving.decode_tokens_per_s": 32},
     "256 running ÷ 4,890 ms a step = 52.4 tokens/s, but serving.decode_tokens_per_s says 32 tokens/s"),
    ({"device.utilization_fraction": 0, "serving.running": 8, "step.wall_ms": 700}, "cannot read 0 %"),
    ({"serving.running": 4, "serving.request_decode_tokens_per_s": 20, "serving.decode_tokens_per_s": 300},
     "4 requests × 20 tokens/s each = 80 tokens/s, but serving.decode_tokens_per_s says 300 tokens/s"),
    ({"latency.itl_ms": 50, "serving.request_decode_tokens_per_s": 60}, "50 ms a token = 20 tokens/s a request"),
    ({"latency.engine_itl_ms": 3, "step.wall_ms": 60},
     "latency.engine_itl_ms 3 ms is 20 times shorter than a step of 60 ms"),
    ({"latency.engine_itl_ms": 25, "step.wall_ms": 0.04}, "25 ms is 625 steps of 0.04 ms"),
    ({"latency.engine_itl_ms": 17.5, "latency.itl_p99_ms": 25, "step.wall_ms": 745}, "42.6 times shorter"),
    # 60 ÷ 25 ms = 2,400 tokens/s
    ({"serving.running": 60, "latency.engine_itl_ms": 25, "serving.decode_tokens_per_s": 1_200_000},
     "60 running ÷ 25 ms a token = 2,400 tokens/s, but serving.decode_tokens_per_s says 1,200,000 tokens/s"),
    ({"device.busy_fraction": 0.9, "device.utilization_fraction": 0.2}, "different moments"),
    # a hung kernel: sm 100, mem 0, at 17 % of its power
    ({"device.utilization_fraction": 1, "device.memory_active_fraction": 0, "power.draw_fraction": 0.17},
     "device.memory_active_fraction 0 and power.draw_fraction 0.17: a kernel that spins"),
    ({"device.utilization_fraction": 1, "device.memory_active_fraction": 0}, "reads as full"),
    ({"device.utilization_fraction": 0.95, "power.draw_fraction": 0.2}, "reads as full"),
    ({"device.busy_fraction": 0.6, "idle.launching_fraction": 0.3, "idle.host_op_fraction": 0.2}, "add up to 1.1"),
    ({"device.busy_fraction": 0.5, "device.compute_fraction": 0.4, "device.comm_fraction": 0.2},
     "0.4 + 0.2 = 0.6, more than"),
    ({"latency.queue_ms": 900, "latency.prefill_ms": 800, "latency.ttft_ms": 1000},
     "900 ms + 800 ms = 1,700, more than"),
    ({"latency.ttft_ms": 900, "latency.e2e_ms": 500}, "latency.ttft_ms is 900 ms, more than latency.e2e_ms 500 ms"),
    ({"latency.ttft_ms": 900, "latency.e2e_ms": 400, "serving.waiting": 79}, "more than latency.e2e_ms 400 ms"),
    ({"latency.itl_ms": 30, "latency.itl_p99_ms": 20}, "latency.itl_ms is 30 ms, more than latency.itl_p99_ms 20 ms"),
    ({"idle.step_gap_ms": 12, "step.wall_ms": 10}, "more than step.wall_ms 10 ms"),
    ({"kernel.per_step": 1000, "kernel.median_us": 50, "device.busy_fraction": 0.5, "step.wall_ms": 20},
     "1,000 kernels × 50 µs = 50 ms a step, but busy × step is 10 ms"),
    ({"comm.calls_per_step": 100, "comm.isolated_us": 900, "step.wall_ms": 40}, "= 90 ms, longer than a step of 40 ms"),
    ({"serving.concurrency": 100, "latency.e2e_ms": 2000, "serving.offered_requests_per_s": 10},
     "100 in flight ÷ 2,000 ms = 50 requests/s, but only 10 are offered"),
    ({"serving.running": 80, "serving.running_limit": 64}, "serving.running 80 is more than serving.running_limit 64"),
    ({"serving.running": 80, "serving.concurrency": 64}, "serving.running 80 is more than serving.concurrency 64"),
    # 20 GB ÷ 40 ms = 500 GB/s of 1,000
    ({"roofline.read_gb": 20, "step.wall_ms": 40, "roofline.peak_gbps": 1000, "roofline.bandwidth_fraction": 0.9},
     "= 500 GB/s = 0.5 of roofline.peak_gbps 1,000, but roofline.bandwidth_fraction says 0.9"),
    ({"roofline.read_gb": 60, "step.wall_ms": 40, "roofline.probe_gbps": 1000}, "more than there is"),
]

AGREES = [
    {"serving.running": 64, "step.wall_ms": 41, "serving.decode_tokens_per_s": 1560},
    {"serving.running": 64, "step.wall_ms": 41, "serving.decode_tokens_per_s": 1250},     # ramps: 20 % below
    {"serving.running": 8, "step.wall_ms": 20, "serving.decode_tokens_per_s": 1400},      # speculation: 3.5 a step
    {"device.utilization_fraction": 0, "serving.running": 0, "step.wall_ms": 700},
    {"latency.engine_itl_ms": 160, "step.wall_ms": 20},                                     # stages, prefills between
    {"latency.engine_itl_ms": 21, "latency.itl_p99_ms": 2400, "step.wall_ms": 900},         # gaps are uneven
    {"serving.running": 62, "step.wall_ms": 45, "serving.decode_tokens_per_s": 360, "latency.itl_p99_ms": 2280},
    {"serving.running": 1, "latency.engine_itl_ms": 25, "serving.decode_tokens_per_s": 1200},  # a burst nobody saw
    {"serving.running": 0, "latency.engine_itl_ms": 25, "serving.decode_tokens_per_s": 900},
    {"device.utilization_fraction": 0.6, "device.busy_fraction": 0.3},                    # a tool reads more than busy
    {"device.utilization_fraction": 1, "device.memory_active_fraction": 0.1, "power.draw_fraction": 0.9},  # gpu_burn
    {"device.utilization_fraction": 1, "device.memory_active_fraction": 0.6, "power.draw_fraction": 0.3},
    {"device.utilization_fraction": 0.3, "device.memory_active_fraction": 0, "power.draw_fraction": 0.2},
    {"device.busy_fraction": 0.46, "idle.launching_fraction": 0.47, "idle.host_op_fraction": 0.08},
    {"device.busy_fraction": 0.5, "idle.launching_fraction": 0.5, "idle.before_unlinked_fraction": 0.4},
    {"latency.queue_ms": 300, "latency.prefill_ms": 600, "latency.ttft_ms": 1000, "latency.e2e_ms": 9000},
    {"latency.queue_ms": 79_000, "latency.prefill_ms": 7_000, "latency.ttft_ms": 60_000, "serving.waiting": 11},
    {"latency.ttft_ms": 50_000, "latency.e2e_ms": 45_000, "serving.waiting": 79},          # a queue that grew
    {"latency.itl_ms": 30, "latency.itl_p99_ms": 80, "latency.itl_max_ms": 900},
    {"latency.itl_max_ms": 11_031, "latency.e2e_ms": 4014},                  # the longest of one beside a median of all
    {"latency.itl_ms": 180, "latency.engine_itl_ms": 39, "step.wall_ms": 38},
    {"roofline.read_gb": 13.5, "step.wall_ms": 30, "roofline.peak_gbps": 616, "roofline.bandwidth_fraction": 0.73},
    {"serving.concurrency": 100, "latency.e2e_ms": 2000, "serving.offered_requests_per_s": 50},
]


@pytest.mark.parametrize(("figures", "says"), SPEAKS, ids=lambda v: "+".join(v) if isinstance(v, dict) else "")
def test_figures_that_cannot_all_be_true_are_said_with_the_arithmetic(figures, says):
    found = contradictions(typed(figures))
    assert any(says in c.text for c in found), [c.text for c in found]
    assert all(set(c.signals) <= set(figures) for c in found)


@pytest.mark.parametrize("figures", AGREES, ids=lambda v: "+".join(v))
def test_figures_that_agree_within_reason_are_left_alone(figures):
    assert contradictions(typed(figures)) == ()


@pytest.mark.parametrize(("figures", "_"), SPEAKS, ids=lambda v: "+".join(v) if isinstance(v, dict) else "")
def test_with_any_of_its_figures_unknown_a_contradiction_is_gone_or_another(figures, _):
    whole = {c.text for c in contradictions(typed(figures))}
    for c in contradictions(typed(figures)):
        for name in c.signals:
            fewer = contradictions(typed({k: v for k, v in figures.items() if k != name}))
            assert c.text not in {other.text for other in fewer}
    assert whole


REMARKS = ["cannot read 0 %"]


@pytest.mark.parametrize(("figures", "says"), SPEAKS, ids=lambda v: "+".join(v) if isinstance(v, dict) else "")
def test_a_figure_that_is_put_right_by_the_others_contradicts_no_more(figures, says):
    """One at a time; a remark has nothing to put right."""
    found = next(c for c in contradictions(typed(figures)) if says in c.text)
    assert set(found.repairs) <= set(found.signals)
    assert bool(found.repairs) is (says not in REMARKS)
    for name, repaired in found.repairs.items():
        right = [s for s in typed(figures).values() if s.name != name]
        if repaired is not None:
            right.append(Signal(name, repaired, how="typed", source="sheet.yaml"))
        assert found.signals not in [c.signals for c in contradictions(Signals(right))], name


NUMBERS = st.lists(st.sampled_from([n for n, s in CATALOGUE.items() if s.unit not in ("text", "bool")]),
                   max_size=12, unique=True)


@given(NUMBERS, st.data())
@settings(max_examples=200, deadline=None)
def test_any_figures_are_checked_without_harm(names, data):
    figures = {}
    for name in names:
        low = 0.001 if name.startswith("latency.") else 0.0
        high = 1.0 if CATALOGUE[name].unit == "fraction" else 1e9
        figures[name] = data.draw(st.floats(low, high) | st.just(1 if low else 0))
    for found in contradictions(typed(figures)):
        assert found.text
        assert "nan" not in found.text


def test_no_operator_on_a_cpu_beside_a_share_for_one():
    assert [c.signals for c in contradictions(typed({"fallback.op": "none", "fallback.fraction": 0.4}))] == [
        ("fallback.op", "fallback.fraction")]
    assert contradictions(typed({"fallback.op": "none", "fallback.fraction": 0.0})) == ()


@pytest.mark.parametrize("beside", ["device.busy_fraction", "roofline.bandwidth_fraction"])
def test_a_busy_device_beside_a_fallback_that_leaves_it_no_time(beside):
    assert "= 1.4" in contradictions(typed({beside: 0.8, "fallback.fraction": 0.6}))[0].text
    assert contradictions(typed({beside: 0.5, "fallback.fraction": 0.6})) == ()                   # 1.1: overlap
