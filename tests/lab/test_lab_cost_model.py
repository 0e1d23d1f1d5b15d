"""The arithmetic of the configured devices, worked by hand."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from xpu_triage.lab.cost_model import H100_LIKE, MODELS, P800_LIKE, DeviceModel

SIMPLE = replace(H100_LIKE, memory_gbps=1000, tflops=100, kernel_floor_us=2, link_gbps=10, link_us=3)


def test_a_kernel_that_moves_data_takes_bytes_over_bandwidth_and_a_floor():
    assert SIMPLE.kernel_ns("aten::add", 1e9, 0) == 1_002_000  # 1 GB at 1,000 GB/s is 1 ms


def test_a_kernel_that_computes_takes_the_longer_of_both():
    assert SIMPLE.kernel_ns("aten::mm", 1e6, 1e12) == 10_002_000  # 10¹² operations at 100 TFLOP/s are 10 ms


def test_an_operation_of_several_passes_moves_its_bytes_several_times():
    assert SIMPLE.kernel_ns("aten::sort", 1e9, 0) == 12_002_000


def test_a_copy_takes_its_latency_and_bytes_over_the_link():
    assert SIMPLE.copy_ns(10_000_000) == 1_003_000  # 10 MB at 10 GB/s is 1 ms


def test_the_incident_costs_what_it_reported():
    """256 × 152,000 draws on the host: 4.89 s a step, of which about 0.05 s are the device's."""
    assert P800_LIKE.cpu_ns("aten::exponential_", 256 * 152_000) / 1e9 == pytest.approx(4.84, abs=0.06)


def test_slow_motion_keeps_every_ratio_of_the_device():
    slow = SIMPLE.slowed(4)
    for name, moved, operations in (("aten::add", 3e8, 0), ("aten::mm", 1e6, 1e12)):
        assert slow.kernel_ns(name, moved, operations) == pytest.approx(
            4 * SIMPLE.kernel_ns(name, moved, operations)
        )
    assert slow.copy_ns(1 << 20) == pytest.approx(4 * SIMPLE.copy_ns(1 << 20), abs=4)
    assert slow.cpu_ns("aten::add", 1000) == SIMPLE.cpu_ns(
        "aten::add", 1000
    )  # the host's CPU stays what it is


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_every_figure_is_told_with_its_source_or_as_assumed(model: DeviceModel):
    lines = model.described()
    assert len(lines) == len(fields(model)) - 2  # all but the name and the sources themselves
    assert all(line.endswith(")") for line in lines)
    known = {f.name for f in fields(model)}
    assert set(model.sources) <= known  # no source for a figure that is not there
