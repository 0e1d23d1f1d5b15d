"""The readers of columns, pairs, CSV and JSON against real output: per kind, the values a person reads off it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from smi_columns import READERS, facts, text_of, times, values

MODULES = {name: importlib.import_module(f"xpu_triage.evidence.smi.{name}") for name in READERS}
MIB = 1.048576

H100_QUERY = {"power_limit": [700], "power_rated": [700], "core_clock_max": [1980], "memory_clock_max": [2619],
              "memory_clock": [2619], "memory_total": [round(81559 * MIB, 6)]}
L40S_QUERY = {"power_limit": [350], "power_rated": [350], "core_clock_max": [2520], "memory_clock_max": [9001],
              "core_clock": [2520], "memory_clock": [9001], "memory_total": [round(46068 * MIB, 6)]}
MI100 = {"utilization": [0], "memory_activity": [0], "power_limit": [290], "core_clock": [300], "memory_clock": [1200],
         "memory_total": [34342.961152], "memory_used": [6.750208]}

EXPECTED: dict[str, tuple[str, str, dict[str, dict[str, list[float | None]]]]] = {
    "nvidia-h100-80gb-hbm3-idle-query-gpu-full.csv": ("nvidia_columns", "nvidia-smi --query-gpu", {"0": {
        **H100_QUERY, "utilization": [0], "memory_activity": [0], "memory_used": [0], "power": [69.85],
        "core_clock": [345], "temperature": [41], "temperature.memory": [48], "module.power.limit": [None]}}),
    "nvidia-h100-80gb-hbm3-load-query-gpu-full.csv": ("nvidia_columns", "nvidia-smi --query-gpu", {"0": {
        **H100_QUERY, "utilization": [1], "memory_activity": [0.11], "memory_used": [round(19818 * MIB, 6)],
        "power": [631.95], "core_clock": [1980], "temperature": [59]}}),
    "nvidia-l40s-idle-query-gpu-full.csv": ("nvidia_columns", "nvidia-smi --query-gpu", {"0": {
        **L40S_QUERY, "utilization": [1], "memory_activity": [0.09], "memory_used": [0], "power": [144.97],
        "temperature": [63], "temperature.memory": [None]}}),
    "nvidia-l40s-load-query-gpu-full.csv": ("nvidia_columns", "nvidia-smi --query-gpu", {"0": {
        **L40S_QUERY, "utilization": [0.09], "memory_activity": [0.02], "memory_used": [round(1235 * MIB, 6)],
        "power": [110.23], "temperature": [54]}}),
    "nvidia-smi-query-csv-ts-low.csv": ("nvidia_columns", "nvidia-smi --query-gpu", {"0": {
        "utilization": [1, 0.88, 0, 0.35, 0.35, 0.36, 0.38, 0.33],
        "memory_activity": [0.26, 0.22, 0, 0.19, 0.19, 0.19, 0.2, 0.17]}}),
    "nvidia-h100-80gb-hbm3-idle-dmon.txt": ("nvidia_columns", "nvidia-smi dmon", {"0": {
        "utilization": [0] * 5, "memory_activity": [0] * 5, "power": [69] * 5, "temperature": [41] * 5,
        "mtemp": [47, 47, 47, 48, 47], "core_clock": [345] * 5, "memory_clock": [2619] * 5}}),
    "nvidia-h100-80gb-hbm3-load-dmon.txt": ("nvidia_columns", "nvidia-smi dmon", {"0": {
        "utilization": [1] * 5, "memory_activity": [0.1, 0.1, 0.09, 0.09, 0.09], "power": [631, 634, 633, 634, 636],
        "temperature": [63, 63, 64, 64, 65], "core_clock": [1980] * 5, "memory_clock": [2619] * 5}}),
    "nvidia-l40s-idle-dmon.txt": ("nvidia_columns", "nvidia-smi dmon", {"0": {
        "utilization": [0] * 5, "power": [66, 65, 65, 51, 37], "mtemp": [None] * 5, "core_clock": [210] * 5,
        "memory_clock": [9001, 9001, 9001, 405, 405]}}),
    "nvidia-l40s-load-dmon.txt": ("nvidia_columns", "nvidia-smi dmon", {"0": {
        "utilization": [0.1, 0.09, 0.09, 0.09, 0.1], "memory_activity": [0.02] * 5, "enc": [67, 59, 63, 59, 67],
        "power": [109, 108, 108, 108, 108], "core_clock": [2520] * 5}}),
    "nvidia-smi-dmon-hang-sm100-mem0.txt": ("nvidia_columns", "nvidia-smi dmon", {"0": {
        "utilization": [1], "memory_activity": [0]}}),
    "nvidia-smi-dmon-s-u-low-with-spike.txt": ("nvidia_columns", "nvidia-smi dmon", {"0": {
        "utilization": [0, 0.03, 0, 0.03, 0.04, 1, 0, 0, 0.02, 0.04]}}),
    "nvidia-h100-80gb-hbm3-idle-pmon.txt": ("nvidia_columns", "nvidia-smi pmon", {}),
    "nvidia-l40s-idle-pmon.txt": ("nvidia_columns", "nvidia-smi pmon", {}),
    "nvidia-h100-80gb-hbm3-load-pmon.txt": ("nvidia_columns", "nvidia-smi pmon", {
        "11327": {"utilization": [None] * 5}, "11345": {"utilization": [0.99] * 5, "memory_activity": [0.1] * 5}}),
    "nvidia-l40s-load-pmon.txt": ("nvidia_columns", "nvidia-smi pmon", {
        "20037": {"utilization": [0.02, 0.02, 0.01, 0, 0.02], "enc": [24, 27, 28, 13, 21]},
        "20038": {"utilization": [0.06, 0.05, 0.08, 0.07, 0.05], "enc": [40, 34, 37, 49, 42]}}),
    "intel-xpu-smi-dump-ats-m150-busy.csv": ("intel", "xpu-smi dump (Intel)", {"0": {
        "utilization": [0.9955, 0.9945, 0.9948, 0.9965], "power": [119.61, 119.36, 119.55, 119.24],
        "core_clock": [1800, 1800, 1750, 1700], "temperature": [49, 50, 50.5, 51]}}),
    "intel-xpu-smi-dump-na-utilization-max1550.csv": ("intel", "xpu-smi dump (Intel)", {
        "0": {"utilization": [None, None], "power": [281.13, 293.78], "core_clock": [1600, 1600],
              "temperature": [35.5, 35.5], "memory_used_fraction": [None, 0.2041]},
        "2": {"memory_used_fraction": [None, 0.0131], "GPU Memory Temperature": [31.5, 32]},
        "5": {"utilization": [None], "power": [284.67], "temperature": [40.5]}}),
    "npu-smi-usages-910a-idle.txt": ("ascend_usages", "npu-smi info -t usages", {"0": {
        "utilization": [0], "memory_total": [32768], "memory_used_fraction": [0], "memory_activity": [0],
        "DDR Usage Rate": [6]}}),
    "npu-smi-usages-testfixture-npu-util-96.txt": ("ascend_usages", "npu-smi info -t usages", {"4": {
        "utilization": [0.96], "memory_activity": [0.4], "Aicore Usage Rate": [83], "Aivector Usage Rate": [9],
        "Aicube Usage Rate": [46]}}),
    "rocm-smi-showall-json-mi100_rocm602.json": ("amd_json", "rocm-smi", {
        "0": {**MI100, "power": [36], "temperature": [53]}, "1": {**MI100, "power": [44], "temperature": [55]}}),
}


@pytest.fixture
def folder(shared: Path) -> Path:
    if not (found := shared / "samples" / "smi").is_dir():
        pytest.skip("no ../shared/samples/smi: output recorded by others is not part of the repository")
    return found


def read(folder: Path, name: str) -> Any:
    return MODULES[EXPECTED[name][0]].read(folder / name)


@pytest.mark.parametrize("name", EXPECTED)
def test_what_a_person_reads_off_is_what_is_read(folder: Path, name: str) -> None:
    _, tool, expected = EXPECTED[name]
    samples = read(folder, name)
    said = values(samples) | values(samples, "process")
    assert samples.tool == tool
    assert samples.skipped == 0
    for of, quantities in expected.items():
        for quantity, wanted in quantities.items():
            assert said[of, quantity] == pytest.approx(wanted, abs=1e-6), (of, quantity)


def test_each_output_has_one_reader_and_the_output_of_others_has_none_here(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        head = path.read_text(errors="replace")[:1 << 18]
        taken = [name for name, module in MODULES.items() if module.matches(head)]
        assert taken == ([EXPECTED[path.name][0]] if path.name in EXPECTED else []), path.name


def test_no_other_evidence_is_taken_for_output_of_an_smi(shared: Path) -> None:
    others = [path for part in ("samples", "cases") for path in (shared / part).rglob("*")
              if path.is_file() and path.parent.name != "smi"]
    if not others:
        pytest.skip("no ../shared/samples or cases: recorded by others, not part of the repository")
    for path in others:
        head = path.read_text(errors="replace")[:1 << 18]
        assert not [name for name, module in MODULES.items() if module.matches(head)], path.name


@pytest.mark.parametrize(("load", "reasons"), [("idle", {"0": ["gpu_idle"]}), ("load", {"0": ["none"]})])
def test_the_limits_of_a_real_device(folder: Path, load: str, reasons: dict[str, list[str]]) -> None:
    samples = read(folder, f"nvidia-h100-80gb-hbm3-{load}-query-gpu-full.csv")
    assert facts(samples, "limit_reason") == reasons
    assert facts(samples, "name") == {"0": ["NVIDIA H100 80GB HBM3"]}


def test_times_of_real_output(folder: Path) -> None:
    query = read(folder, "nvidia-smi-query-csv-ts-low.csv")
    assert query.clock == "epoch"
    assert times(query, "0", "utilization")[:4] == [1725800611, 1725800612, 1725800613, 1725800614.001]
    dump = read(folder, "intel-xpu-smi-dump-ats-m150-busy.csv")
    assert dump.clock == "day"
    assert times(dump, "0", "power") == [76980, 76981, 76982, 76983]


def test_no_bus_id_or_serial_number_of_real_output_is_kept(folder: Path) -> None:
    for name in EXPECTED:
        kept = text_of(read(folder, name))
        assert not any(word in kept for word in ("GPU-0000", "00000000:", "0x79ccd55167a2124a", "0000:83:00")), name


@pytest.mark.parametrize("name", ["nvidia-h100-80gb-hbm3-load-pmon.txt"])
def test_processes_of_a_real_device(folder: Path, name: str) -> None:
    samples = read(folder, name)
    assert facts(samples, "name", "process") == {"11327": ["memhog"], "11328": ["memhog"], "11345": ["gpu_burn"]}
    assert facts(samples, "device", "process")["11345"] == ["0"]
