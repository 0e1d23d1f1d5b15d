"""Intel `xpu-smi stats`: two columns for each device, a value for the device or for each tile."""

from __future__ import annotations

from pathlib import Path

import pytest

from smi_columns import values
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence import telemetry_readers
from xpu_triage.evidence.smi import intel_stats
from xpu_triage.samples import Samples

BORDER = "+-----------------------------+---------------------------------+\n"


def table(*rows: tuple[str, str]) -> str:
    return BORDER + "".join(f"| {name:<27} | {value:<31} |\n" for name, value in rows) + BORDER


ONE = table(("Device ID", "0"), ("GPU Utilization (%)", "87"), ("EU Array Active (%)", ""),
            ("Compute Engine Util (%)", "0; Engine 0: 0, Engine 1: 9"), ("Reset", "Tile 0: 0, total: 0"),
            ("GPU Power (W)", "Tile 0: 119.6"), ("GPU Memory Used (MiB)", "Tile 0: 9834"),
            ("GPU Memory Bandwidth (%)", ""), ("GPU Memory Util (%)", "61"), ("GPU Frequency (MHz)", "2050"))
TILES = table(("Device ID", "1"), ("Average % utilization of", "Tile 0: 12, Tile 1: 40.5"), ("all GPU Engines", ""),
              ("GPU Power (W)", "300"), ("GPU Core Temperature (C)", "41"))


def read(folder: Path, text: str) -> Samples:
    assert intel_stats.matches(text)
    (path := folder / "any.name").write_text(text)
    return intel_stats.read(path)


def test_each_row_is_a_value_and_an_empty_one_is_unknown(tmp_path: Path) -> None:
    said = values(read(tmp_path, ONE))
    assert said["0", "utilization"] == [0.87]
    assert said["0", "power"] == [119.6]                                  # of the only tile it has
    assert said["0", "memory_used"] == [10311.696384]                     # 9834 MiB
    assert said["0", "memory_used_fraction"] == [0.61]
    assert said["0", "memory_activity"] == [None]
    assert said["0", "core_clock"] == [2050]
    assert not [name for name in said if "Reset" in name[1] or "Engine" in name[1]]


def test_a_wrapped_name_is_one_and_tiles_are_told_apart(tmp_path: Path) -> None:
    said = values(read(tmp_path, TILES))
    assert said["1/0", "utilization"] == [0.12]
    assert said["1/1", "utilization"] == [0.405]
    assert said["1", "power"] == [300]


def test_several_tables_are_devices_or_readings(tmp_path: Path) -> None:
    said = values(read(tmp_path, ONE + TILES + ONE.replace(" 87 ", " 13 ")))
    assert said["0", "utilization"] == [0.87, 0.13]
    assert said["1", "power"] == [300]


@pytest.mark.parametrize("text", [
    table(("Device ID", "0"), ("Device Name", "Intel(R) Data Center GPU Flex 170")),
    "| Device ID | GPU Utilization (%) |\n| --- | --- |\n| 0 | 87 |\n", ONE.replace("Device ID", "Device")])
def test_other_tables_are_none(text: str) -> None:
    assert not intel_stats.matches(text)


def test_a_table_without_figures_is_refused(tmp_path: Path) -> None:
    (path := tmp_path / "x").write_text(table(("Device ID", "0"), ("Reset", "0")))
    with pytest.raises(UnusableInput, match="without a reading"):
        intel_stats.read(path)


def test_a_cut_table_is_read_to_the_cut(tmp_path: Path) -> None:
    said = values(read(tmp_path, ONE[:ONE.index("| GPU Memory Util")] + "| GPU Mem"))
    assert said["0", "utilization"] == [0.87]
    assert ("0", "core_clock") not in said


@pytest.mark.parametrize("text", [ONE, TILES])
def test_no_other_reader_takes_it(text: str) -> None:
    readers = telemetry_readers.READERS
    assert not [one.module for one in readers if one.module != "smi.intel_stats" and one.matches(text)]
