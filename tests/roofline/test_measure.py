"""Signals of the roofline, and what the rules make of them."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_configs import DEEPSEEK_V3, GEMMA_3_27B, LLAMA_2_7B, QWEN_3_30B_A3B, Config
from sheets import typed
from xpu_triage import fingerprints
from xpu_triage.contradictions import contradictions
from xpu_triage.diagnosis import diagnose
from xpu_triage.roofline import Device, Given, measure, shape_of
from xpu_triage.roofline.devices import by_name
from xpu_triage.signals import Signal, Signals
from xpu_triage.telemetry.measured import Measured
from xpu_triage.verdict import Level, judge

H100 = by_name("NVIDIA H100 80GB HBM3")
SHEET: dict[str, object] = {"serving.running": 1, "serving.prompt_tokens": 4096, "comm.layout": "TP1",
                            "step.wall_ms": 20}


def measured(sheet: dict[str, object], config: Config = GEMMA_3_27B, device: Device | None = H100,
             given: Given | None = None, why: str = "") -> Measured:
    return measure(shape_of(config, "config.json"), typed(sheet), device, given=given, why_no_device=why)


def values(found: Measured) -> dict[str, Any]:
    return {signal.name.removeprefix("roofline."): signal.value for signal in found.signals}


def together(sheet: dict[str, object], found: Measured) -> Signals:
    return Signals((*found.signals, *typed(sheet).values()))


# -- what is given
def test_a_step_of_gemma_27b_on_an_h100() -> None:
    # 54.788 GB (see test_floors); ÷ 20 ms = 2,739 GB/s of 3,350 = 0.8177. Arithmetic: 2 × 27,007,991,808 + attention
    # (10 × 4,096 + 52 × 1,024) × 2·32·256 = 55.56 GFLOP ÷ 20 ms = 2.778 of 989 TFLOP/s = 0.00281
    found = measured(SHEET)
    got = values(found)
    assert got["read_gb"] == pytest.approx(54.7877, abs=1e-3)
    assert got["peak_gbps"] == 3350
    assert got["bandwidth_fraction"] == pytest.approx(0.8177, abs=1e-3)
    assert got["compute_fraction"] == pytest.approx(0.00281, abs=1e-5)
    assert not found.unknown
    by = {signal.name: signal for signal in found.signals}
    assert [by[f"roofline.{name}"].how for name in ("read_gb", "peak_gbps", "bandwidth_fraction")] == [
        "config", "spec", "typed"]
    assert "54 GB of weights and 0.772 GB of KV" in by["roofline.read_gb"].window
    assert any("contexts are taken as the prompts' median length" in note for note in found.notes)


def test_each_device_reads_its_part() -> None:
    one = values(measured({**SHEET, "step.wall_ms": 30}))
    four = values(measured({**SHEET, "step.wall_ms": 30, "comm.layout": "TP4"}))
    assert four["read_gb"] == pytest.approx(one["read_gb"] / 4)
    assert four["bandwidth_fraction"] == pytest.approx(one["bandwidth_fraction"] / 4)
    assert four["compute_fraction"] == pytest.approx(one["compute_fraction"] / 4)


def test_a_probe_goes_before_the_brochure_and_typed_figures_stay() -> None:
    probed = {**SHEET, "roofline.probe_gbps": 3000}
    found = measured(probed)
    assert values(found)["bandwidth_fraction"] == pytest.approx(54.7877 / 20 * 1000 / 3000, abs=1e-3)
    assert not contradictions(together(probed, found))
    known = {**SHEET, "roofline.peak_gbps": 4000, "roofline.read_gb": 40, "roofline.compute_fraction": 0.5}
    assert values(measured(known)) == {"bandwidth_fraction": pytest.approx(0.5)}


def test_what_a_person_says_goes_before_the_signals() -> None:
    given = Given(batch=256, context=4096, devices=2, kv_bits=8, step_ms=60, tflops=500)
    got = values(measured({}, given=given))
    # weights 54.016 GB and 256 × 771.75 MB of KV in half the bits, over 2
    assert got["read_gb"] == pytest.approx((54.015984 + 256 * 0.771752 / 2) / 2, abs=1e-3)
    assert got["bandwidth_fraction"] == pytest.approx(got["read_gb"] / 60 * 1000 / 3350)


def test_one_request_in_flight_is_one_in_the_batch() -> None:
    sheet = {**SHEET, "serving.running": None, "serving.concurrency": 1}
    assert values(measured(sheet))["read_gb"] == pytest.approx(54.7877, abs=1e-3)


def test_a_trace_without_collectives_is_of_one_device() -> None:
    sheet = typed({**SHEET, "comm.layout": None})
    seen = Signals((*sheet.values(), Signal("comm.calls_per_step", 0.0, "trace")))
    found = measure(shape_of(GEMMA_3_27B, "c"), seen, H100)
    assert values(found)["read_gb"] == pytest.approx(54.7877, abs=1e-3)
    said = Signals((*sheet.values(), Signal("comm.calls_per_step", 0.0, "typed")))
    assert "comm.layout" in measure(shape_of(GEMMA_3_27B, "c"), said, H100).unknown["roofline.read_gb"]


@pytest.mark.parametrize(("layout", "devices"), [
    ("TP8", 8), ("tp 2", 2), ("TP=4", 4), ("TP4 PP1 DP1", 4), ("TP8, EP8", 8), ("one device", 1), ("none", 1)])
def test_layouts_that_split_tensors(layout: str, devices: int) -> None:
    # each of 20 ms × devices: weights alone are 54.016 ÷ devices
    got = values(measured({**SHEET, "comm.layout": layout, "serving.prompt_tokens": 1}))
    assert got["read_gb"] == pytest.approx(54.016 / devices, rel=1e-3)


@pytest.mark.parametrize("layout", [
    "TP4 DP4", "PP4", "TP2 PP2", "layer split", "TP8 EP16", "DP8", "TP0", "TP8 and more"])
def test_other_layouts_are_unknown(layout: str) -> None:
    found = measured({**SHEET, "comm.layout": layout})
    assert "roofline.bandwidth_fraction" not in {signal.name for signal in found.signals}
    assert "is not computed here" in found.unknown["roofline.bandwidth_fraction"]


# -- unknown
@pytest.mark.parametrize(("missing", "why"), [
    ("serving.running", "serving.running"), ("serving.prompt_tokens", "serving.prompt_tokens"),
    ("comm.layout", "comm.layout"), ("step.wall_ms", "no step time")])
def test_what_is_missing_makes_the_share_unknown(missing: str, why: str) -> None:
    found = measured({**SHEET, missing: None})
    assert "bandwidth_fraction" not in values(found)
    assert why in found.unknown["roofline.bandwidth_fraction"]
    assert why in found.unknown["roofline.compute_fraction"]


def test_an_unknown_peak_makes_the_share_unknown_and_the_bytes_stay() -> None:
    found = measured(SHEET, device=None, why="no peak is known for Ascend910B2")
    assert set(values(found)) == {"read_gb"}
    assert set(found.unknown) == {"roofline.peak_gbps", "roofline.bandwidth_fraction", "roofline.compute_fraction"}
    assert set(found.unknown.values()) == {"no peak is known for Ascend910B2"}


def test_an_idle_engine_has_no_step() -> None:
    assert "no requests run" in measured({**SHEET, "serving.running": 0}).unknown["roofline.bandwidth_fraction"]


def test_products_in_eight_bits_have_no_peak_in_the_table() -> None:
    sheet = {**SHEET, "comm.layout": "TP8", "serving.running": 64, "step.wall_ms": 40}
    found = measured(sheet, DEEPSEEK_V3)
    assert "products run in fp8" in found.unknown["roofline.compute_fraction"]
    assert "bandwidth_fraction" in values(found)
    assert "compute_fraction" in values(measured(sheet, DEEPSEEK_V3, given=Given(tflops=1979)))


def test_experts_are_counted_as_even_routing_would_and_that_is_said() -> None:
    assert any("even routing" in note for note in measured(SHEET, QWEN_3_30B_A3B).notes)


def test_a_model_that_is_not_understood_gives_the_peak_and_the_reason() -> None:
    config = {**copy.deepcopy(LLAMA_2_7B), "mamba_d_state": 128}
    found = measured(SHEET, config)
    assert set(values(found)) == {"peak_gbps"}
    assert "mamba_d_state" in found.unknown["roofline.read_gb"]


# -- contradictions
def test_a_floor_longer_than_the_step_is_said_and_no_share_above_one_is_given() -> None:
    sheet = {**SHEET, "step.wall_ms": 10}     # 54.8 GB at 3,350 GB/s take 16.4 ms
    found = measured(sheet)
    assert "bandwidth_fraction" not in values(found)
    assert "takes 16.4 ms, longer than the measured step of 10 ms" in found.unknown["roofline.bandwidth_fraction"]
    assert found.unknown["roofline.bandwidth_fraction"] in found.notes
    assert any("more than there is" in each.text for each in contradictions(together(sheet, found)))


def test_arithmetic_beyond_the_peak_is_said() -> None:
    sheet = {**SHEET, "serving.running": 512, "serving.prompt_tokens": 1}    # 27.7 TFLOP, 28 ms at 989
    found = measured({**sheet, "step.wall_ms": 20})
    assert "longer than the measured step" in found.unknown["roofline.compute_fraction"]


@given(batch=st.floats(1, 2000), context=st.floats(1, 1e6), tp=st.sampled_from([1, 2, 4, 8]),
       step=st.floats(1e-3, 1e6), gbps=st.floats(1, 1e5))
def test_shares_are_shares(batch: float, context: float, tp: int, step: float, gbps: float) -> None:
    given = Given(batch, context, tp, step_ms=step)
    assert H100 is not None
    got = values(measured({}, given=given, device=replace(H100, gbps=gbps)))
    for name in ("bandwidth_fraction", "compute_fraction"):
        assert 0 < got.get(name, 0.5) <= 1


# -- what the rules make of it
def verdict(sheet: dict[str, object], **keywords: Any) -> tuple[str | None, Level]:
    signals = together(sheet, measured(sheet, **keywords))
    found = judge(signals, fingerprints.load(), contradictions(signals))
    return found.id, found.level


BUSY: dict[str, object] = {**SHEET, "device.busy_fraction": 0.95}


def test_near_the_floor_it_is_the_bandwidth() -> None:
    assert verdict(BUSY) == ("bandwidth-bound", Level.CONFIRMED)                      # 0.82


def test_busy_and_far_from_the_floor_it_is_a_kernel() -> None:
    sheet = {**BUSY, "step.wall_ms": 80, "device.compute_fraction": 0.93, "device.comm_fraction": 0.0,
             "device.copy_fraction": 0.02, "idle.launching_fraction": 0.02}
    assert verdict(sheet)[0] == "kernel-bound"                                        # 0.20
    signals = together(sheet, measured(sheet))
    ruled_out = judge(signals, fingerprints.load()).ruled_out
    assert "bandwidth-bound" in {each.id for each in ruled_out}


def test_a_host_span_timed_without_a_drain_beside_a_step_at_its_floor_is_no_fault_of_the_host() -> None:
    # the timers alone are a probable artefact of measuring; the step at 0.82 of the road says what it really waits for,
    # and speaks for the artefact too
    sheet = {**SHEET, "host.timer_drained": False, "host.top_op": "sampler", "host.top_op_fraction": 0.85}
    without, found = judge(typed(sheet), fingerprints.load()), judge(together(sheet, measured(sheet)),
                                                                     fingerprints.load())
    assert (without.id, found.id) == ("no-fault", "bandwidth-bound")
    before, after = ({each.id: each.score for each in verdict.hypotheses} for verdict in (without, found))
    assert after["no-fault"] == before["no-fault"] + 2


def test_without_a_peak_the_roofline_rules_nothing_in_or_out() -> None:
    with_it, without = (judge(together(BUSY, found), fingerprints.load()) for found in (
        Measured(), measured(BUSY, device=None)))
    assert [(h.id, h.score) for h in with_it.hypotheses] == [(h.id, h.score) for h in without.hypotheses]


def test_diagnose_on_a_sheet_with_these_figures(tmp_path: Path) -> None:
    found = measured(BUSY)
    lines = ["schema: 1", "title: decode is stuck", "signals:"]
    lines += [f"  {name}: {value}" for name, value in BUSY.items()]
    lines += [f"  {signal.name}: {signal.value}" for signal in found.signals]
    (tmp_path / "sheet.yaml").write_text("\n".join(lines))
    diagnosis = diagnose(tmp_path / "sheet.yaml")
    assert (diagnosis.verdict.id, diagnosis.verdict.level) == ("bandwidth-bound", Level.CONFIRMED)
