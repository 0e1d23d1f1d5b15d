"""Measured steps beside their floors: which figure is the step, what batch and context are, what a share says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from baseline_runs import ENVIRONMENT, record_of
from model_configs import LLAMA_2_7B
from xpu_triage.baseline.limit import (
    PER_GAP,
    PER_REQUEST,
    floor_of,
    measured_steps,
    prefill_floor_ms,
    step_of,
)
from xpu_triage.baseline.records import BenchRecord, Requests, Stat
from xpu_triage.roofline import config_json
from xpu_triage.roofline.devices import Device
from xpu_triage.roofline.floors import Load, UnknownFloorError

LLAMA = config_json.shape_of(LLAMA_2_7B, "config.json")
CARD = Device("card", 1000.0, 100.0, "typed", "typed")


def run(step_ms: float | None, *, concurrency: float | None = 4.0, prompt: float | None = 1000.0,
        output: float | None = 200.0, gaps: Stat | None = None, **more: object) -> BenchRecord:
    latencies = {} if step_ms is None else {"tpot": Stat(p50=step_ms)}
    if gaps is not None:
        latencies["itl"] = gaps
    made = BenchRecord("file", "vllm bench serve", ENVIRONMENT, concurrency, None, prompt, output, latencies, 10.0, 10,
                       0, 100.0, 1.0)
    return replace(made, **more)


def test_the_floor_of_a_step_worked_by_hand():
    """Llama 2 7B in 16 bits: 32 × (4 × 4,096² + 3 × 4,096 × 11,008) + 32,000 × 4,096 = 6,607,077,376 weights,
    13.214 GB; a cached token is 2 × 32 × 4,096 × 2 bytes = 524,288. 4 requests of 1,100 tokens: 2.307 GB. At
    1,000 GB/s: 15.521 ms. Arithmetic: 2 × 6.607e9 × 4 + 4 × 1,100 × 32 × 4 × 4,096 = 5.516e10, at 100 TFLOP/s 0.552 ms.
    """
    floor = floor_of(LLAMA, CARD, Load(4, 1100))
    assert floor.gb == pytest.approx(15.521, abs=1e-3)
    assert floor.memory_ms == pytest.approx(15.521, abs=1e-3)
    assert floor.arithmetic_ms == pytest.approx(0.5516, abs=1e-3)
    assert (floor.ms, floor.by) == (floor.memory_ms, "memory")


def test_the_arithmetic_is_the_floor_of_a_batch_that_is_large_enough():
    """2 × 6.607e9 × 400 ÷ 100e12 = 52.9 ms; 13.2 GB at 1,000 GB/s take 13.2."""
    floor = floor_of(LLAMA, CARD, Load(400, 1))
    assert floor.by == "arithmetic"
    assert floor.ms == pytest.approx(52.9, abs=0.1)


def test_a_load_becomes_a_step_with_the_answer_half_written():
    (step,), why = measured_steps([run(31.042)], LLAMA, CARD)
    assert why == ()
    assert (step.batch, step.context, step.ms, step.basis) == (4.0, 1100.0, 31.042, PER_REQUEST)
    assert step.share == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize(("ms", "said"), [
    (15.6, "at its limit: nothing is broken, only fewer bytes help"), (20.0, "at its limit"),
    (25.0, "between its limit and a fault"), (40.0, "the time goes elsewhere"), (15.0, "shorter than its floor")])
def test_a_share_is_said_in_words(ms, said):
    (step,), _ = measured_steps([run(ms)], LLAMA, CARD)
    assert step.words.startswith(said)


def test_the_median_gap_is_the_step_where_a_gap_is_a_token():
    """10 requests of 200 tokens: 1,990 gaps. A mean over a request holds the prompts that came between."""
    assert step_of(run(20.0, gaps=Stat(p50=15.0, n=1990))) == (15.0, PER_GAP)
    assert step_of(run(20.0, gaps=Stat(p50=60.0, n=500))) == (20.0, PER_REQUEST), "chunks of four tokens"
    assert step_of(run(20.0, gaps=Stat(p50=0.0, n=1990))) == (20.0, PER_REQUEST), "a gap of 0 is none"
    assert step_of(run(None)) is None


@pytest.mark.parametrize(("record", "reason"), [
    (run(20.0, concurrency=None, completed=None), "how many requests were in flight is not known"),
    (run(20.0, prompt=None), "the prompts' length is not known"), (run(None), "no time per token is known")])
def test_what_is_not_known_of_a_load_is_said_and_gives_no_step(record, reason):
    assert measured_steps([record], LLAMA, CARD) == ((), (reason,))


def test_without_a_bandwidth_there_is_no_floor_and_the_reason_names_the_device():
    steps, why = measured_steps([run(20.0)], LLAMA, Device("P800", None, None, ""))
    assert steps == ()
    assert why == ("the memory bandwidth of P800 is not known",)
    with pytest.raises(UnknownFloorError, match="P800"):
        floor_of(LLAMA, Device("P800", None, None, ""), Load(1, 1))


def test_a_table_s_peak_counts_for_sixteen_bits_and_a_typed_one_for_what_it_was_typed_for():
    eight = replace(LLAMA, arithmetic="fp8")
    table = replace(CARD, how="spec")
    assert floor_of(eight, table, Load(1, 1)).arithmetic_ms is None
    assert prefill_floor_ms(eight, table, 100) is None
    assert floor_of(eight, CARD, Load(1, 1)).arithmetic_ms is not None
    # 2 × 6.476e9 × 1,000, the head for the last token, and pairs × 32 layers × 4 × 4,096
    assert prefill_floor_ms(LLAMA, table, 1000) == pytest.approx(
        (2 * 6_476_005_376 * 1000 + 2 * 131_072_000 + 1000 * 1001 / 2 * 32 * 4 * 4096) / 100e9, rel=1e-6)


def test_two_devices_read_half_each():
    one, two = floor_of(LLAMA, CARD, Load(4, 1100)), floor_of(LLAMA, CARD, Load(4, 1100, 2))
    assert two.memory_ms == pytest.approx(one.memory_ms / 2)


def test_requests_in_flight_are_measured_where_they_were_not_set():
    """4 requests of 5 s in a run of 10 s: 2 at a time."""
    requests = Requests(np.full(4, 50.0), np.full(4, 5000.0), np.full(4, 25.0), np.full(4, 1000.0), np.full(4, 200.0),
                        np.array([0.0, 0.0, 5.0, 5.0]))
    (step,), _ = measured_steps([record_of(requests, None, request_rate=0.4, duration_s=10.0)], LLAMA, CARD)
    assert step.batch == pytest.approx(2.0)
