"""Intel `xpu-smi dump`: header and unit driven, a device without utilization is unknown and not idle."""

from __future__ import annotations

from pathlib import Path

import pytest

from smi_columns import facts, times, values
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence.smi import intel, kunlun_columns
from xpu_triage.samples import Samples

DUMP = """\
Timestamp, DeviceId, GPU Utilization (%), GPU Power (W), GPU Frequency (MHz), GPU Core Temperature (Celsius Degree), \
GPU Memory Temperature (Celsius Degree), GPU Memory Utilization (%), GPU EU Array Active (%), \
GPU Memory Bandwidth Utilization (%)
23:59:59.500,    0,  N/A, 281.13, 1600.00, 35.50, 31.50, 80.00, 12.50, 3.00
23:59:59.501,    1, 99.50, 120.00, 1700, 49.00, 31.50,  N/A, 12.50, 4.00
00:00:00.500,    0,  N/A, 293.78, 1600.00, 36.50, 32.00, 20.50, 13.50, 5.00
"""


def read(folder: Path, text: str) -> Samples:
    assert intel.matches(text)
    (path := folder / "any.name").write_text(text)
    return intel.read(path)


def test_each_column_is_what_its_header_says(tmp_path: Path) -> None:
    samples = read(tmp_path, DUMP)
    assert (samples.tool, samples.clock, samples.skipped) == ("xpu-smi dump (Intel)", "day", 0)
    said = values(samples)
    assert said["1", "utilization"] == [0.995]
    assert said["0", "power"] == [281.13, 293.78]
    assert said["1", "core_clock"] == [1700]
    assert said["0", "temperature"] == [35.5, 36.5]
    assert said["0", "memory_used_fraction"] == [0.8, 0.205]  # memory in use, not its activity
    assert said["0", "memory_activity"] == [0.03, 0.05]
    assert said["0", "GPU EU Array Active"] == [12.5, 13.5]
    assert said["0", "GPU Memory Temperature"] == [31.5, 32]


def test_no_utilization_at_280_w_is_unknown_and_not_idle(tmp_path: Path) -> None:
    assert values(read(tmp_path, DUMP))["0", "utilization"] == [None, None]


def test_times_go_on_over_midnight(tmp_path: Path) -> None:
    assert times(read(tmp_path, DUMP), "0", "power") == [86399.5, 86400.5]


def test_tiles_are_parts_of_their_device(tmp_path: Path) -> None:
    samples = read(tmp_path, "Timestamp, DeviceId, TileId, GPU Utilization (%), GPU Memory Used (MiB)\n"
                             "06:00:00.000, 2, 0, 10.00, 1000\n06:00:00.000, 2, 1, 20.00, N/A\n")
    assert values(samples) == {("2/0", "utilization"): [0.1], ("2/0", "memory_used"): [1048.576],
                               ("2/1", "utilization"): [0.2], ("2/1", "memory_used"): [None]}


@pytest.mark.parametrize("temperature", ["(C)", "(°C)", "(Celsius Degree)", ""])
def test_units_across_versions(tmp_path: Path, temperature: str) -> None:
    samples = read(tmp_path, f"Timestamp, DeviceId, GPU Core Temperature {temperature}, GPU Power\n"
                             "06:00:00, 0, 40, 9\n")
    assert values(samples) == {("0", "temperature"): [40], ("0", "power"): [9]}


def test_a_limit_is_a_fact(tmp_path: Path) -> None:
    samples = read(tmp_path, "Timestamp, DeviceId, GPU Power (W), Throttle reason\n06:00:00, 0, 9, Not Throttled\n"
                             "06:00:01, 0, 9, Thermal\n")
    assert facts(samples, "limit_reason") == {"0": ["none", "Thermal"]}


def test_damaged_lines_are_counted(tmp_path: Path) -> None:
    samples = read(tmp_path, "$ xpu-smi dump -d 0 -m 0\n" + DUMP + "00:00:01.500,    0,  N/A, 2")
    assert samples.skipped == 2
    assert values(samples)["0", "power"] == [281.13, 293.78]


def test_a_header_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="without a reading"):
        read(tmp_path, DUMP.splitlines()[0] + "\n")


def test_of_two_programs_of_one_name_each_reader_takes_its_own() -> None:
    kunlun = "0 0 - - 41 - - - 88 - - - - - - - - 1000 98304 7\n"
    assert intel.matches(DUMP)
    assert not kunlun_columns.matches(DUMP)
    assert kunlun_columns.matches(kunlun)
    assert not intel.matches(kunlun)


def test_older_and_newer_versions_name_utilization_by_what_it_averages(tmp_path: Path) -> None:
    samples = read(tmp_path, "Timestamp, DeviceId, Average % utilization of all GPU Engines, GPU Power (W), "
                             "Throttle reason\n06:14:46.000, 0, 55.25, 88.50, \"power cap, thermal\"\n"
                             "06:14:47.000, 0, 0.00, 14.59, Not Throttled\n")
    assert values(samples)["0", "utilization"] == [0.5525, 0]
    assert facts(samples, "limit_reason") == {"0": ["power cap, thermal", "none"]}
    assert samples.skipped == 0
