"""While requests wait: a limit, an admission that stalls and a step that stands still have the same gauges, and other
counters."""

from __future__ import annotations

import numpy as np
import pytest

from scrape_dumps import histogram, scrape, values, window
from xpu_triage.fingerprints import load
from xpu_triage.samples import EngineLog, Scrape
from xpu_triage.signals import Signals
from xpu_triage.telemetry import iterations, serving
from xpu_triage.telemetry.measured import Measured
from xpu_triage.verdict import Verdict, judge


def at(time: float, *, running: float, waiting: float = 380, steps: float, gap_s: float = 0.012,
       tokens: float | None = None, prefills: float = 0, prefill_s: float = 0.03) -> Scrape:
    """vLLM after `steps` steps: each token came `gap_s` after the one before; each prefill took its time, after 30 s
    in the queue."""
    tokens = steps * running if tokens is None else tokens
    found = {"vllm:num_requests_running": running, "vllm:num_requests_waiting": waiting,
             "vllm:kv_cache_usage_perc": 0.01, "vllm:generation_tokens_total": tokens,
             "vllm:iteration_tokens_total_count": steps}
    for name, each, count in (("inter_token_latency", gap_s, tokens), ("request_prefill_time", prefill_s, prefills),
                              ("request_queue_time", 30.0, prefills)):
        found |= histogram(f"vllm:{name}_seconds", each * count, _0_3=0, _60=count)
    return scrape(found, time)


def judged(measured: Measured) -> Verdict:
    return judge(Signals(measured.signals), load())


def test_a_limit_of_two_runs_two_in_every_step_all_the_time():
    """30 s ÷ 2,500 steps are 12 ms, as long as the gap between tokens: never without work."""
    measured = serving.measure([at(10 * i, running=2, steps=833 * i, prefills=8 * i) for i in range(4)])
    found = values(measured)
    assert found["serving.running_spread_ratio"] == 0
    assert "idle.no_work_fraction" not in found
    assert found["step.wall_ms"] == pytest.approx(12, rel=0.01)
    assert judged(measured).id == "queueing-idle-device"
    assert "one or two requests run in steps that come quickly" in judged(measured).summary


def test_admission_that_stalls_leaves_time_without_work_though_requests_wait():
    """In 40 s 1,000 steps with a gap of 12 ms are 12 s, and 20 prefills with one that may be under way 0.63 s:
    1 − 12.63 ÷ 40 = 0.684."""
    measured = serving.measure([at(10 * i, running=i % 2, steps=250 * i, tokens=250 * i, prefills=5 * i)
                                for i in range(5)])
    found = values(measured)
    assert found["idle.no_work_fraction"] == pytest.approx(1 - (12 + 21 * 0.03) / 40)
    assert "others waited" in window(measured, "idle.no_work_fraction")
    assert found["serving.running_spread_ratio"] == pytest.approx(1 / 0.4)
    verdict = judged(measured)
    assert verdict.id == "queueing-idle-device"
    assert "nothing to do while requests wait" in verdict.summary


def test_an_engine_that_runs_nothing_while_requests_wait_is_without_work_all_the_time():
    measured = serving.measure([at(10 * i, running=0, steps=700, tokens=5000) for i in range(3)])
    assert values(measured)["idle.no_work_fraction"] == 1
    assert values(measured)["serving.running_spread_ratio"] == 0


def test_a_step_that_stands_still_is_said_and_is_no_stalled_admission():
    measured = serving.measure([at(10 * i, running=2, steps=700, tokens=5000) for i in range(4)])
    assert any("2 requests run and none got a token in 30 s" in note for note in measured.notes)
    assert "idle.no_work_fraction" not in values(measured)
    assert judged(measured).id is None


def test_steps_of_seconds_come_before_the_question_who_is_admitted():
    """10 steps in 60 s, each as long as the gap between tokens."""
    measured = serving.measure([at(20 * i, running=2, steps=3 * i, gap_s=6.2, tokens=6 * i, prefills=i)
                                for i in range(4)])
    assert values(measured)["step.wall_ms"] == pytest.approx(6667, rel=0.01)
    assert judged(measured).id is None


def test_one_scrape_does_not_tell_which_of_the_three_it_is():
    measured = serving.measure([at(0, running=2, steps=700)])
    assert "serving.running_spread_ratio" not in values(measured)
    assert judged(measured).id is None


@pytest.mark.parametrize("scrapes", [
    [at(10 * i, running=2, waiting=5 * (i % 2), steps=250 * i) for i in range(4)],       # nobody waits at two of them
    [at(10 * i, running=2, steps=250 * i) for i in range(2)],                            # two are no series
])
def test_a_spread_needs_three_readings_and_requests_that_wait_at_each(scrapes):
    assert "serving.running_spread_ratio" not in values(serving.measure(scrapes))


def test_time_without_work_is_not_told_where_every_look_found_a_request_running():
    """By steps × gap 0.7 of the time is free; that seven looks all met a request is then a chance of 0.0002."""
    measured = serving.measure([at(10 * i, running=1, steps=250 * i, tokens=250 * i, prefills=5 * i)
                                for i in range(7)])
    assert "idle.no_work_fraction" not in values(measured)


def test_engines_that_do_not_share_the_requests_are_told():
    def both(time: float, steps: float) -> Scrape:
        one = at(time, running=200, waiting=0, steps=steps).values
        two = at(time, running=1, waiting=0, steps=steps).values
        return Scrape("a.prom", time, {name: (*(({**labels, "engine": "0"}, value) for labels, value in found),
                                              *(({**labels, "engine": "1"}, value) for labels, value in two[name]))
                                       for name, found in one.items()}, ())
    assert any("2 engines run 1 to 200 requests" in note
               for note in serving.measure([both(10 * i, 300 * i) for i in range(3)]).notes)


def test_a_log_s_periodic_lines_tell_the_spread_too():
    stats = {"time": [0.0, 10, 20, 30], "running": [16.0, 16, 15, 16], "waiting": [300.0, 310, 320, 330],
             "kv_usage_fraction": [0.02] * 4, "decode_tokens_per_s": [1200.0] * 4}
    log = EngineLog("a.log", "vllm", stats={name: np.array(column) for name, column in stats.items()})
    assert values(iterations.measure([log]))["serving.running_spread_ratio"] == pytest.approx(1 / 15.75)


def queued(engine: str, times: tuple[float, ...] = (0, 10, 20), usage: float = 0.2, waiting: float = 6,
           **rises: float) -> Measured:
    """None runs at any scrape, and `rises` of it a second."""
    gauges = {"sglang": ("sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage"),
              "tgi": ("tgi_batch_current_size", "tgi_queue_size"),
              "vllm": ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")}[engine]
    base = dict(zip(gauges, (0.0, waiting, usage), strict=False))
    return serving.measure([scrape(base | {f"{engine}:{name}": each * time for name, each in rises.items()}, time)
                            for time in times])


@pytest.mark.parametrize("measured", [
    queued("sglang"), queued("tgi"), queued("sglang", forward_execution_seconds_total=0.9),
    queued("sglang", **{"realtime_tokens_total{mode=prefill_compute}": 8000.0}),
    queued("sglang", usage=0.0, times=(0.0,)),                          # one look: a short prompt holds little
    queued("sglang", usage=0.0, times=(0.0, 2.0)),
])
def test_none_running_is_not_told_by_engines_that_leave_out_what_they_prefill(measured):
    assert "serving.running" not in values(measured)
    assert "serving.running_spread_ratio" not in values(measured)
    assert "does not count those whose prompt is being computed" in measured.unknown["serving.running"]
    assert judged(measured).id is None


@pytest.mark.parametrize("measured", [
    queued("vllm"), queued("sglang", forward_execution_seconds_total=0.0), queued("sglang", waiting=0),
    queued("sglang", **{"realtime_tokens_total{mode=prefill_compute}": 0.0}),
    queued("sglang", scheduler_idle_seconds_total=0.9), queued("sglang", usage=0.0),
])
def test_none_running_is_told_where_no_prompt_can_be_computed(measured):
    assert values(measured)["serving.running"] == 0
