"""rocm-smi and amd-smi, JSON, CSV and columns, under the names of several releases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from smi_columns import facts, text_of, times, values
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence.smi import amd_json
from xpu_triage.samples import Samples


def read(folder: Path, text: str) -> Samples:
    assert amd_json.matches(text)
    (path := folder / "any.name").write_text(text)
    return amd_json.read(path)


OLD = {"card0": {
    "Unique ID": "0x79cc", "Serial Number": "N/A", "PCI Bus": "0000:83:00.0", "Card series": "Instinct MI100",
    "Temperature (Sensor edge) (C)": "53.0", "Temperature (Sensor junction) (C)": "55.0",
    "sclk clock speed:": "(300Mhz)", "mclk clock speed:": "(1200Mhz)", "Max Graphics Package Power (W)": "290.0",
    "Average Graphics Package Power (W)": "36.0", "0": "16.0GT/s x16 *", "1": "495Mhz", "GPU use (%)": "7",
    "GPU memory use (%)": "3", "Memory Activity": "N/A", "VRAM Total Memory (B)": "34342961152",
    "VRAM Total Used Memory (B)": "6750208"},
    "system": {"Driver version": "6.3.6", "PID4242": "python, 1, 1000000, 0, 0"}}
NEW = {"card3": {
    "Card Series": "AMD Instinct MI300X", "GUID": "28851", "Temperature (Sensor edge) (C)": "N/A",
    "Temperature (Sensor junction) (C)": "72.0", "Current Socket Graphics Package Power (W)": "550.0",
    "GPU use (%)": 88, "GPU Memory Allocated (VRAM%)": "50", "GPU Memory Read/Write Activity (%)": "41",
    "sclk clock speed:": "(2100Mhz)"}}


def test_rocm_smi_of_older_releases(tmp_path: Path) -> None:
    samples = read(tmp_path, json.dumps(OLD))
    assert (samples.tool, samples.clock, samples.skipped) == ("rocm-smi", "", 0)
    said = values(samples)
    assert said["0", "utilization"] == [0.07]
    assert said["0", "memory_activity"] == [0.03]  # the driver's mem_busy_percent, not memory in use
    assert ("0", "memory_used_fraction") not in said
    assert said["0", "memory_total"] == [34342.961152]
    assert said["0", "memory_used"] == [6.750208]
    assert said["0", "power"] == [36]
    assert said["0", "power_limit"] == [290]
    assert said["0", "core_clock"] == [300]
    assert said["0", "memory_clock"] == [1200]
    assert said["0", "temperature"] == [53]
    assert said["0", "Temperature (Sensor junction)"] == [55]
    assert facts(samples, "name") == {"0": ["Instinct MI100"]}


def test_rocm_smi_of_newer_releases(tmp_path: Path) -> None:
    said = values(samples := read(tmp_path, "WARNING: AMD GPU device(s) is/are in a low-power state\n\n"
                                  + json.dumps(NEW)))
    assert said["3", "utilization"] == [0.88]
    assert said["3", "memory_activity"] == [0.41]
    assert said["3", "memory_used_fraction"] == [0.5]
    assert said["3", "power"] == [550]
    assert said["3", "temperature"] == [72]  # the edge has no sensor
    assert facts(samples, "name") == {"3": ["AMD Instinct MI300X"]}


def test_processes_and_the_host_are_no_devices(tmp_path: Path) -> None:
    samples = read(tmp_path, json.dumps(OLD))
    assert values(samples, "process") == {("4242", "device_memory"): [1]}
    assert facts(samples, "name", "process") == {"4242": ["python"]}
    assert facts(samples, "Driver version", "host") == {"": ["6.3.6"]}


def test_what_names_a_board_is_not_kept(tmp_path: Path) -> None:
    kept = text_of(read(tmp_path, json.dumps(OLD) + "\n" + json.dumps(NEW)))
    assert not any(word in kept for word in ("0x79cc", "83:00", "28851"))


def test_levels_without_a_name_are_left_out_aloud(tmp_path: Path) -> None:
    samples = read(tmp_path, json.dumps(OLD))
    assert ("0", "1") not in values(samples)
    assert "levels of clocks" in samples.notes[0]


def test_documents_after_each_other_are_a_series(tmp_path: Path) -> None:
    text = "\n".join(f"2025-03-01 10:00:0{second}\n" + json.dumps(
        {"card0": {"GPU use (%)": str(share)}}, indent=4) for second, share in ((0, 5), (5, 95)))
    samples = read(tmp_path, text)
    assert values(samples)["0", "utilization"] == [0.05, 0.95]
    assert times(samples, "0", "utilization") == [1740823200, 1740823205]


def of(value: float, unit: str) -> dict[str, Any]:
    return {"value": value, "unit": unit}


METRIC = {
    "gpu": 1, "usage": {"gfx_activity": of(73, "%"), "umc_activity": of(12, "%"), "vcn_activity": [of(1, "%"), "N/A"]},
    "mem_usage": {"total_vram": of(196592, "MB"), "used_vram": of(49148, "MB")},
    "temperature": {"edge": "N/A", "hotspot": of(61, "C"), "mem": of(58, "C")},
    "power": {"socket_power": of(642, "W"), "throttle_status": "UNTHROTTLED"},
    "clock": {"gfx_0": {"clk": of(2100, "MHz"), "max_clk": of(2200, "MHz")}, "mem_0": {"clk": of(1300, "MHz")}},
    "energy": {"total_energy_consumption": of(1234.5, "J")}}


@pytest.mark.parametrize("wrapped", [METRIC, [METRIC], {"gpu_data": [METRIC]}])
def test_amd_smi_metric_in_each_of_its_wrappings(tmp_path: Path, wrapped: Any) -> None:
    samples = read(tmp_path, json.dumps(wrapped, indent=4))
    assert (samples.tool, samples.skipped) == ("amd-smi metric", 0)
    said = values(samples)
    assert said["1", "utilization"] == [0.73]
    assert said["1", "memory_activity"] == [0.12]
    assert said["1", "memory_total"] == [196592]
    assert said["1", "memory_used"] == [49148]
    assert said["1", "temperature"] == [61]
    assert said["1", "temperature/mem"] == [58]
    assert said["1", "power"] == [642]
    assert said["1", "core_clock"] == [2100]
    assert said["1", "core_clock_max"] == [2200]
    assert said["1", "memory_clock"] == [1300]
    assert said["1", "energy"] == [1234.5]
    assert said["1", "usage/vcn_activity/1"] == [None]
    assert facts(samples, "limit_reason") == {"1": ["none"]}


def test_numbers_without_units_have_those_of_the_tool(tmp_path: Path) -> None:
    said = values(read(tmp_path, json.dumps([{"gpu": 0, "usage": {"gfx_activity": 50}, "power": {
        "average_socket_power": 100}, "mem_usage": {"used_vram": 250}}])))
    assert said == {("0", "utilization"): [0.5], ("0", "power"): [100], ("0", "memory_used"): [250]}


def test_parts_that_are_not_available_are_unknown(tmp_path: Path) -> None:
    said = values(read(tmp_path, json.dumps([{"gpu": 2, "usage": {"gfx_activity": "N/A"}, "mem_usage": "N/A"}])))
    assert said["2", "utilization"] == [None]
    assert ("2", "memory_used") not in said


def test_amd_smi_monitor_as_json(tmp_path: Path) -> None:
    samples = read(tmp_path, json.dumps([
        {"timestamp": 1740823200, "gpu": 0, "xcp": 0, "power_usage": of(140, "W"), "hotspot_temperature": of(50, "C"),
         "gfx": of(9, "%"), "mem": of(4, "%"), "gfx_clk": of(1800, "MHz"), "vram_used": of(283, "MB"),
         "vram_total": of(196300, "MB")},
        {"timestamp": 1740823200, "gpu": 0, "xcp": 3, "gfx": "N/A"}]))
    assert samples.tool == "amd-smi monitor"
    said = values(samples)
    assert said["0", "memory_activity"] == [0.04]  # `mem` is a share here, and a temperature in `metric`
    assert (said["0", "power"], said["0", "utilization"], said["0", "core_clock"]) == ([140], [0.09], [1800])
    assert said["0/3", "utilization"] == [None]
    assert times(samples, "0", "power") == [1740823200]


def test_amd_smi_process_has_the_memory_of_each(tmp_path: Path) -> None:
    samples = read(tmp_path, json.dumps([{"gpu": 0, "process_list": [{"process_info": {
        "name": "/home/me/python3", "pid": 4242, "memory_usage": {"vram_mem": of(2000000, "B")}}}]}]))
    assert values(samples, "process") == {("4242", "device_memory"): [2]}
    assert facts(samples, "name", "process") == {"4242": ["python3"]}


def test_rocm_smi_as_csv(tmp_path: Path) -> None:
    samples = read(tmp_path, "WARNING: something\n\ndevice,GPU use (%),sclk clock speed:,Power (W),"
                             "VRAM Total Memory (B),PCI Bus\ncard0,2,(300Mhz),415.0,2000000,0000:83:00.0\n"
                             "card1,N/A,(310Mhz),140.0,2000000,0000:85:00.0\n")
    assert samples.tool == "rocm-smi"
    assert values(samples) == {
        ("0", "utilization"): [0.02], ("0", "core_clock"): [300], ("0", "power"): [415], ("0", "memory_total"): [2],
        ("1", "utilization"): [None], ("1", "core_clock"): [310], ("1", "power"): [140], ("1", "memory_total"): [2]}


def test_amd_smi_metric_as_csv_with_lists_in_quotes(tmp_path: Path) -> None:
    samples = read(tmp_path, "timestamp,gpu,gfx_activity,umc_activity,vcn_activity,socket_power,throttle_status,"
                             "gfx_0_clk,mem_0_clk,edge,hotspot,mem\n"
                             "1740823200,0,95,80,\"['N/A', 'N/A']\",1180,N/A,2100,2000,N/A,78,60\n"
                             "1740823201,0,96,81,\"['N/A', 'N/A']\",1181,N/A,2100,2000,N/A,79,61\n")
    assert (samples.tool, samples.skipped) == ("amd-smi metric", 0)
    said = values(samples)
    assert said["0", "utilization"] == [0.95, 0.96]
    assert said["0", "memory_activity"] == [0.8, 0.81]
    assert said["0", "temperature"] == [78, 79]
    assert said["0", "mem"] == [60, 61]
    assert times(samples, "0", "power") == [1740823200, 1740823201]


def test_amd_smi_monitor_as_csv(tmp_path: Path) -> None:
    samples = read(tmp_path, "gpu,power_usage,gfx,gfx_clk,mem,vram_used,vram_total\n0,140,N/A,1800,4,283,196300\n")
    assert samples.tool == "amd-smi monitor"
    assert values(samples) == {
        ("0", "power"): [140], ("0", "utilization"): [None], ("0", "core_clock"): [1800],
        ("0", "memory_activity"): [0.04], ("0", "memory_used"): [283], ("0", "memory_total"): [196300]}


def test_amd_smi_monitor_as_columns(tmp_path: Path) -> None:
    samples = read(tmp_path, "GPU  POWER  PWR_CAP   GPU_T   MEM_T   GFX_CLK   GFX%   MEM%  ENC%      VRAM_USAGE\n"
                             "  0  251 W   1000 W   55 °C   43 °C   144 MHz    7 %    3 %   N/A    0.5/  8.0 GB\n")
    assert (samples.tool, samples.skipped) == ("amd-smi monitor", 0)
    said = values(samples)
    assert said["0", "power"] == [251]
    assert said["0", "power_limit"] == [1000]
    assert said["0", "temperature"] == [55]
    assert said["0", "core_clock"] == [144]
    assert said["0", "utilization"] == [0.07]
    assert said["0", "memory_activity"] == [0.03]
    assert said["0", "memory_used"] == [500]
    assert said["0", "memory_total"] == [8000]


def test_hy_smi_is_told_by_its_keys(tmp_path: Path) -> None:
    samples = read(tmp_path, json.dumps({"card0": {"HCU use (%)": "12", "Average Graphics Package Power (W)": "90"}}))
    assert (samples.tool, values(samples)["0", "utilization"]) == ("hy-smi", [0.12])


def test_a_document_that_is_cut_off_is_counted_and_those_before_it_are_read(tmp_path: Path) -> None:
    samples = read(tmp_path, json.dumps(OLD) + "\n" + json.dumps(NEW)[:60])
    assert values(samples)["0", "utilization"] == [0.07]
    assert samples.skipped == 1
    assert any("cut off" in note for note in samples.notes)


@pytest.mark.parametrize("text", [
    '{"traceEvents": [{"ph": "X"}], "card0": {"GPU use (%)": 1}}', '{"card0": {"title": 1}}', "[]", "{}",
    '{"gpu": 1, "usage": {}}', "device,name\ncard0,x\n"])
def test_other_json_and_csv_are_not_taken(text: str) -> None:
    assert not amd_json.matches(text)


@pytest.mark.parametrize("text", [
    '{"card0": {"GPU use (%)": ' + "[" * 100_000, '{"card0": {"GPU use (%)": {"a": 1}}}',
    '{"gpu_data": [{"gpu": "0\\u001b", "gfx_activity": 1}], "usage": {"gfx_activity": 1}}'])
def test_documents_that_say_nothing_are_refused_in_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(UnusableInput) as refused:
        read(tmp_path, text)
    assert "\n" not in str(refused.value)


def test_numbers_of_any_length_are_read_or_unknown(tmp_path: Path) -> None:
    samples = read(tmp_path, '{"card0": {"GPU use (%)": ' + "9" * 5000 + ', "VRAM Total Memory (B)": NaN}}')
    assert values(samples) == {("0", "utilization"): [None], ("0", "memory_total"): [None]}
    assert samples.skipped == 1
