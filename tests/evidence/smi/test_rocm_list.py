"""`rocm-smi --show…`: one line a device and value, in sections, as the tool and its successors print them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smi_columns import facts, text_of, values
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence import telemetry_readers
from xpu_triage.evidence.smi import rocm_list
from xpu_triage.samples import Samples

USE = """\
============================ ROCm System Management Interface ============================
=================================== % time GPU is busy ===================================
GPU[0]\t\t: GPU use (%): 97
GPU[0]\t\t: GFX Activity: 205784176
GPU[1]\t\t: GPU use (%): 0
==========================================================================================
=================================== Current Memory Use ===================================
GPU[0]\t\t: GPU Memory Allocated (VRAM%): 89
GPU[0]\t\t: GPU Memory Read/Write Activity (%): 30
GPU[0]\t\t: Memory Activity: N/A
GPU[0]\t\t: VRAM Total Memory (B): 206141652992
GPU[0]\t\t: VRAM Total Used Memory (B): 190000000000
================================== End of ROCm SMI Log ===================================
"""
CLOCKS = """\
GPU[0]          : Card Series:          AMD Instinct MI300X
GPU[0]          : Unique ID: 0x1234abcd
GPU[0]          : sclk clock level: 1: (132Mhz)
GPU[0]          : mclk clock level: 0 (900Mhz)
GPU[0]          : socclk clock level: 2
GPU[0]          : get_power_cap, Not supported on the given system
GPU[0]          : Max Graphics Package Power Unsupported
GPU[0]          : Average Graphics Package Power (W): N/A
GPU[0]          : Supported sclk frequencies on GPU0
GPU[0]          : S: 30Mhz *
GPU[0]          : 0: 500Mhz
GPU[0]          : 1: 2100Mhz
GPU[0]          : 2: 800Mhz
GPU[0]          :
GPU[0]          : Supported PCIe frequencies on GPU0
GPU[0]          : 0: 16.0GT/s x16 *
GPU[0]          :
"""


def read(folder: Path, text: str) -> Samples:
    assert rocm_list.matches(text)
    (path := folder / "any.name").write_text(text)
    return rocm_list.read(path)


def test_each_line_is_a_value_of_its_device(tmp_path: Path) -> None:
    samples = read(tmp_path, USE)
    assert (samples.tool, samples.skipped) == ("rocm-smi", 0)
    said = values(samples)
    assert said["0", "utilization"] == [0.97]
    assert said["1", "utilization"] == [0.0]
    assert said["0", "memory_used_fraction"] == [0.89]
    assert said["0", "memory_activity"] == [0.3]
    assert said["0", "memory_used"] == [190_000.0]                        # bytes in MB
    assert said["0", "memory_total"] == [206_141.652992]
    assert said["0", "Memory Activity"] == [None]
    assert said["0", "GFX Activity"] == [205_784_176]                     # a counter, under the tool's own name


def test_clocks_have_level_and_speed_in_one_line_and_their_list_gives_the_highest(tmp_path: Path) -> None:
    samples = read(tmp_path, CLOCKS)
    said = values(samples)
    assert said["0", "core_clock"] == [132]
    assert said["0", "memory_clock"] == [900]
    assert said["0", "core_clock_max"] == [2100]                          # of 500, 2100 and 800; S is asleep
    assert said["0", "power"] == [None]                                   # N/A is not 0
    assert ("0", "power_limit") not in said
    assert samples.skipped == 0
    assert facts(samples, "name") == {"0": ["AMD Instinct MI300X"]}
    assert "1234abcd" not in text_of(samples)


def test_a_list_that_starts_again_is_the_next_reading(tmp_path: Path) -> None:
    again = USE.replace("use (%): 97", "use (%): 50")
    dated = f"Mon Nov 30 10:00:00 UTC 2026\n{USE}Mon Nov 30 10:00:05 UTC 2026\n{again}"
    for text, clock in ((USE + again, ""), (dated, "epoch")):
        samples = read(tmp_path, text)
        assert samples.clock == clock
        assert values(samples)["0", "utilization"] == [0.97, 0.5]
    series = next(one for one in samples.series if (one.of, one.quantity) == ("0", "utilization"))
    assert series.times[1] - series.times[0] == 5


def test_hygons_tool_prints_the_same_for_its_own_devices(tmp_path: Path) -> None:
    samples = read(tmp_path, "HCU[3] : HCU use (%): 81.7\nHCU[3] : Average Graphics Package Power (W): 254.0\n")
    assert samples.tool == "hy-smi"
    assert values(samples) == {("3", "utilization"): [0.817], ("3", "power"): [254]}


@pytest.mark.parametrize("text", [
    "a log about GPU[0] : GPU use (%): 97 in a sentence", "GPU[0] : something else: 3",
    "GPU[99999] : GPU use (%): 3",
    "Device  Node  Temp  Power  SCLK  MCLK  GPU%\n0  2  43.0C  142.0W  133Mhz  900Mhz  0%"])
def test_other_text_is_none(text: str) -> None:
    assert not rocm_list.matches(text)


def test_a_file_without_a_reading_is_refused(tmp_path: Path) -> None:
    (path := tmp_path / "x").write_text("GPU[0] : \nGPU[0] : Unique ID: 0x1\n")
    with pytest.raises(UnusableInput, match="without a reading"):
        rocm_list.read(path)


def test_what_cannot_be_a_value_is_counted_and_unknown(tmp_path: Path) -> None:
    samples = read(tmp_path, "GPU[0] : GPU use (%): 970\nGPU[0] : Average Graphics Package Power (W): -3\n")
    assert values(samples) == {("0", "utilization"): [None], ("0", "power"): [None]}
    assert samples.skipped == 2


@given(st.lists(st.sampled_from([*USE.splitlines(), *CLOCKS.splitlines(), "\x1b[31mGPU[0] : <b>: 1", "GPU[", ""])))
def test_any_mixture_of_lines_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, rows: list[str]) -> None:
    (path := tmp_path_factory.mktemp("any") / "x").write_text("\n".join(rows))
    try:
        samples = rocm_list.read(path)
    except UnusableInput:
        return
    assert all(0 <= value <= 1 for series in samples.of("utilization") for value in series.known)


def test_no_other_reader_takes_it() -> None:
    others = [one.module for one in telemetry_readers.READERS if one.module != "smi.rocm_list" and one.matches(USE)]
    assert others == []
