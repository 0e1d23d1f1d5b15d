"""Tables without bars: rocm-smi's concise one, hy-smi, amd-smi monitor."""

from __future__ import annotations

from pathlib import Path

import pytest

from smi_tables import (
    AMD_MONITOR,
    AMD_MONITOR_XCP,
    DCU,
    HY,
    ROCM,
    ROCM_OLD,
    ROCM_SENSOR,
    facts,
    last,
    readings,
    written,
)
from xpu_triage.evidence.smi import rocm_table


def test_the_layout_with_two_header_lines(tmp_path: Path) -> None:
    samples = rocm_table.read(written(tmp_path, ROCM))
    assert samples.tool == "rocm-smi"
    assert last(samples, "0") == {
        "temperature": 43, "power": 142, "core_clock": 133, "memory_clock": 900, "Fan": 0, "power_limit": 750,
        "memory_used_fraction": 0.76, "utilization": 1.0}
    assert last(samples, "1")["temperature"] is None
    assert last(samples, "1")["Fan"] == 29.8
    assert facts(samples, "0") == {"Node": "2", "Partitions": "NPS1,SPX,0", "Perf": "auto"}


def test_ids_are_not_kept(tmp_path: Path) -> None:
    assert "28851" not in repr(rocm_table.read(written(tmp_path, ROCM)).facts)


def test_older_layouts(tmp_path: Path) -> None:
    assert last(rocm_table.read(written(tmp_path, ROCM_OLD)), "0") == {
        "temperature": 23, "power": 30.203, "core_clock": 300, "memory_clock": 300, "Fan": 42.75, "power_limit": 150,
        "memory_used_fraction": None, "utilization": 0}
    assert last(rocm_table.read(written(tmp_path, ROCM_SENSOR)), "0") == {
        "temperature": 46, "power": 25, "core_clock": 1600, "memory_clock": 945, "Fan": 0, "power_limit": 200,
        "memory_used_fraction": 0.01, "utilization": 0.07}


def test_columns_in_another_order(tmp_path: Path) -> None:
    text = "GPU  GPU%  VRAM%  PwrCap  AvgPwr  Temp   New%\n3    88%   12%    150.0W  99.5W   51.0c  3%\n"
    assert last(rocm_table.read(written(tmp_path, text)), "3") == {
        "utilization": 0.88, "memory_used_fraction": 0.12, "power_limit": 150, "power": 99.5, "temperature": 51,
        "New%": 3}


@pytest.mark.parametrize("text", [HY, DCU])
def test_hygon_says_dcu_or_hcu(text: str) -> None:
    assert rocm_table.matches(text)


def test_hygon(tmp_path: Path) -> None:
    samples = rocm_table.read(written(tmp_path, HY))
    assert samples.tool == "hy-smi"
    assert last(samples, "0") == {
        "temperature": 62, "power": 111, "power_limit": 400, "memory_used_fraction": 0.94, "utilization": 0.045,
        "Dec%": 0, "Enc%": 0}
    assert facts(samples, "0") == {"Perf": "auto", "Mode": "Normal"}
    assert last(rocm_table.read(written(tmp_path, DCU)), "0")["core_clock"] == 1250


def test_a_container_that_may_not_ask_gets_unknown_not_zero(tmp_path: Path) -> None:
    assert last(rocm_table.read(written(tmp_path, HY)), "1")["utilization"] is None


def test_amd_smi_monitor_stamps_its_rows(tmp_path: Path) -> None:
    samples = rocm_table.read(written(tmp_path, AMD_MONITOR))
    assert samples.tool == "amd-smi monitor"
    assert samples.clock == "epoch"
    assert readings(samples, "0") == {
        "power": [750, 751], "temperature": [69, 69], "MEM_T": [50, 50], "core_clock": [1278, 1278],
        "utilization": [1.0, 0.99], "memory_activity": [0.01, 0.01], "ENC%": [None, None], "DEC%": [0, 0],
        "memory_used": [2500, 2500], "memory_total": [192000, 192000]}
    assert next(samples.of("power")).times.tolist() == [1753969973, 1753969978]


def test_amd_partitions_and_monitor_columns_by_choice(tmp_path: Path) -> None:
    samples = rocm_table.read(written(tmp_path, AMD_MONITOR_XCP))
    assert set(last(samples, "0").values()) == {None}
    assert last(samples, "0/XCP 1") == {
        "power": 251, "power_limit": 1000, "temperature": 55, "MEM_T": 43, "core_clock": 144, "utilization": 0.02,
        "memory_activity": 0.01, "memory_clock": 1900}


def test_a_date_above_each_table_is_its_time(tmp_path: Path) -> None:
    text = f"Fri Jul  3 08:33:38 UTC 2026\n{ROCM_OLD}\nFri Jul  3 08:33:48 UTC 2026\n{ROCM_OLD}"
    assert next(rocm_table.read(written(tmp_path, text)).of("power")).times.tolist() == [1783067618, 1783067628]


def test_a_row_that_was_cut_keeps_what_is_whole(tmp_path: Path) -> None:
    cut = "\n".join(line[:101] for line in ROCM.split("\n"))
    found = last(rocm_table.read(written(tmp_path, cut)), "0")
    assert (found["temperature"], found["core_clock"]) == (43, 133)
    assert found.get("utilization") is None


def test_percent_beyond_100_is_unknown_and_counted(tmp_path: Path) -> None:
    samples = rocm_table.read(written(tmp_path, ROCM_OLD.replace("N/A    0%", "N/A    65535%")))
    assert last(samples, "0")["utilization"] is None
    assert samples.skipped == 1
