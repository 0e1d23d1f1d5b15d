"""Peaks by product name, as vendor tools and traces print it, and from a memory's clock and width."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xpu_triage.errors import TriageError
from xpu_triage.roofline import devices
from xpu_triage.samples import Fact, Samples


@pytest.mark.parametrize(("name", "gbps", "tflops"), [
    ("NVIDIA H100 80GB HBM3", 3350, 989), ("nvidia h100 80gb hbm3", 3350, 989), ("H100 SXM", 3350, 989),
    ("NVIDIA A100-SXM4-80GB", 2039, 312), ("A100-SXM4-80GB", 2039, 312), ("NVIDIA H200", 4917, 989),
    ("NVIDIA B200", 8000, 2250), ("NVIDIA  L40S ", 864, 362), ("AMD Instinct MI300X", 5300, 1300)])
def test_a_product_has_its_peaks(name: str, gbps: float, tflops: float) -> None:
    device, why = devices.from_names([name])
    assert device is not None, why
    assert (device.gbps, device.tflops, why) == (gbps, tflops, "")
    assert device.source


@pytest.mark.parametrize("name", [
    "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H100 80GB HBM3 MIG 3g.40gb", "NVIDIA H100 80GB HBM2e",
    "NVIDIA A100-SXM4-40GB", "NVIDIA A100 80GB PCIe", "NVIDIA A100-SXM...", "NVIDIA H200 NVL", "NVIDIA L40", "H100",
    "AMD Instinct MI300A", "AMD Instinct MI210", "Ascend910B2", "910B2", "Ascend910", "P800 OAM", "\x1b[31m"])
def test_variants_and_devices_without_a_source_are_unknown(name: str) -> None:
    device, why = devices.from_names([name])
    assert device is None
    assert why.startswith("no peak is known for")
    assert "\x1b" not in why


def test_several_kinds_or_none_are_unknown() -> None:
    assert devices.from_names([])[1] == "the evidence does not name the device"
    assert devices.from_names([""])[1] == "the evidence does not name the device"
    assert "several kinds" in devices.from_names(["NVIDIA L40S", "NVIDIA H200"])[1]
    assert devices.from_names(["NVIDIA L40S"] * 8)[0] is not None


def test_a_vendor_tool_names_the_device_and_processes_do_not() -> None:
    samples = Samples("nvidia-smi", "s.csv", (), (
        Fact("device", "0", "name", "NVIDIA L40S"), Fact("process", "7", "name", "ffmpeg")))
    found, _ = devices.from_samples([samples])
    assert found is not None
    assert found.name == "L40S"


@pytest.mark.parametrize(("clock_mhz", "bus_bits", "gbps"), [
    (2619, 5120, 3352), (3201, 6144, 4917), (9001, 384, 864), (1593, 5120, 2039)])
def test_two_transfers_a_clock_over_the_bus(clock_mhz: float, bus_bits: float, gbps: float) -> None:
    # H100: 2 × 2.619e9 × 5,120 ÷ 8 = 3,352.3e9; H200, L40S, A100 80 GB alike
    assert devices.computed_gbps(clock_mhz, bus_bits) == pytest.approx(gbps, abs=0.6)


def test_other_vendors_print_other_clocks() -> None:
    # MI100: 1,200 MHz × 2 × 4,096 ÷ 8 = 1,228.8; MI300X: 1,300 × 4 × 8,192 ÷ 8 = 5,324.8 (5.3 TB/s); RX 7900 XTX:
    # 1,249 × 16 × 384 ÷ 8 = 959.2
    for memory, clock, bus, gbps in (("HBM2", 1200, 4096, 1228.8), ("HBM3", 1300, 8192, 5324.8),
                                     ("GDDR6", 1249, 384, 959.232)):
        transfers = devices.transfers_per_clock("AMD", memory)
        assert devices.computed_gbps(clock, bus, transfers or 0) == pytest.approx(gbps)
    assert devices.transfers_per_clock("NVIDIA", "HBM3") == devices.transfers_per_clock("NVIDIA") == 2
    assert devices.transfers_per_clock("AMD") is None
    assert devices.transfers_per_clock("Ascend", "HBM2") is None


@given(st.floats(), st.floats())
def test_figures_that_no_memory_has_give_none(clock: float, bus: float) -> None:
    found = devices.computed_gbps(clock, bus)
    assert found is None or 1 <= found <= 1e6


def test_a_trace_names_the_device_or_gives_its_bandwidth() -> None:
    by_name, _ = devices.from_trace({"deviceProperties": [{"id": 0, "name": "NVIDIA B200"}] * 8})
    assert by_name is not None
    assert (by_name.gbps, by_name.how) == (8000, "spec")
    # an RTX 3080 as Nsight Systems exports it: 760.08 GB/s
    read, _ = devices.from_trace({"deviceProperties": [{"name": "NVIDIA GeForce RTX 3080",
                                                        "memoryBandwidth": 760_080_000_000}]})
    assert read is not None
    assert (read.gbps, read.tflops, read.how) == (760.08, None, "trace")
    clocked, _ = devices.from_trace({"deviceProperties": [
        {"name": "NVIDIA H100 80GB HBM3", "memoryClockRate": 2_619_000, "memoryBusWidth": 5120}]})
    assert clocked is not None
    assert (round(clocked.gbps or 0), clocked.tflops) == (3352, 989)


def test_traces_and_tools_together_name_one_device_or_none() -> None:
    h200 = {"deviceProperties": [{"name": "NVIDIA H200"}]}
    tool = Samples("nvidia-smi", "s", (), (Fact("device", "0", "name", "NVIDIA H200"),))
    other = Samples("nvidia-smi", "s", (), (Fact("device", "0", "name", "NVIDIA L40S"),))
    strange = Samples("npu-smi info", "s", (), (Fact("device", "0", "name", "910B2"),))
    assert devices.from_evidence([h200, {}], [tool])[0] is devices.by_name("H200")
    assert devices.from_evidence([{}], [tool])[0] is devices.by_name("H200")
    assert "different devices" in devices.from_evidence([h200], [other])[1]
    assert "910B2" in devices.from_evidence([{}], [strange])[1]
    assert devices.from_evidence([], []) == (None, "the evidence does not name the device")


@pytest.mark.parametrize("meta", [
    {}, {"deviceProperties": None}, {"deviceProperties": []}, {"deviceProperties": [7, None]},
    {"deviceProperties": [{"name": ""}]}, {"deviceProperties": [{"name": 3}]},
    {"deviceProperties": [{"name": "ARTEMIS", "memoryBandwidth": -1}]},
    {"deviceProperties": [{"name": "AMD Instinct MI210", "memoryClockRate": 1_600_000, "memoryBusWidth": 4096}]},
    {"deviceProperties": [{"name": "x", "memoryBandwidth": float("nan")}, {"name": "y", "memoryBandwidth": True}]}])
def test_a_trace_without_either_leaves_it_unknown(meta: dict[str, object]) -> None:
    device, why = devices.from_trace(meta)
    assert device is None
    assert why


def test_every_peak_has_a_source_and_a_sane_size() -> None:
    for name, device in devices.table().items():
        assert device.source, name
        assert 100 <= (device.gbps or 100) <= 20_000
        assert 10 <= (device.tflops or 10) <= 20_000
        assert np.isfinite((device.tflops or 1) * (device.gbps or 1))


@pytest.mark.parametrize("text", [
    "schema: 1", "devices: {X: {names: [x], gbps: -1, bf16_tflops: 1, source: s}}",
    "devices: {X: {names: [x], gbps: 1, bf16_tflops: fast, source: s}}", "devices: [", "devices: {X: 3}",
    "devices: {X: {names: [x], gbps: 1, bf16_tflops: 1, source: ''}}"])
def test_a_table_with_a_mistake_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "peaks.yaml").write_text(text)
    with pytest.raises(TriageError, match="table of device peaks") as refusal:
        devices.table(tmp_path / "peaks.yaml")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("name", "meant"), [
    ("H100", ("H100 SXM",)), ("nvidia h100", ("H100 SXM",)), ("A100", ("A100 80 GB SXM",)), ("MI300", ("MI300X",)),
    ("H100 SMX", ("H100 SXM",)),
    ("H100 PCIe", ()),  # another product, with two thirds of the bandwidth
    ("H20", ()), ("Ascend910B2", ()), ("x", ()), ("", ()),
])
def test_a_name_that_is_not_whole_is_asked_about_and_another_number_is_another_product(name, meant):
    assert devices.near(name) == meant
    assert devices.by_name(name) is None
