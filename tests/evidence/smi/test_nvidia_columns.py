"""nvidia-smi queries as CSV, dmon and pmon: what a person reads off the text is what comes out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from smi_columns import facts, text_of, times, values
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence.smi import nvidia_columns
from xpu_triage.samples import Samples

Reading = Callable[[str], Samples]

QUERY = """\
timestamp, index, name, uuid, pci.bus_id, utilization.gpu [%], utilization.memory [%], memory.used [MiB], \
power.draw [W], enforced.power.limit [W], power.limit [W], power.default_limit [W], power.max_limit [W], \
clocks.current.sm [MHz], clocks.max.sm [MHz], clocks.max.memory [MHz], temperature.gpu, pstate, \
clocks_event_reasons.active
2025/03/01 10:00:00.000, 0, NVIDIA A30, GPU-1, 00000000:01:00.0, 97 %, 41 %, 1000 MiB, 164.10 W, 150.00 W, 165.00 W, \
165.00 W, 170.00 W, 1200 MHz, 1440 MHz, 1215 MHz, 66, P0, 0x0000000000000024
2025/03/01 10:00:00.004, 1, NVIDIA A30, GPU-2, 00000000:02:00.0, [N/A], [N/A], 3 MiB, ERR!, 165.00 W, 165.00 W, \
165.00 W, 170.00 W, 210 MHz, 1440 MHz, 1215 MHz, 31, P8, 0x0000000000000000
2025/03/01 10:00:01.000, 0, NVIDIA A30, GPU-1, 00000000:01:00.0, 95 %, 40 %, 1000 MiB, 160.00 W, 150.00 W, 165.00 W, \
165.00 W, 170.00 W, 1185 MHz, 1440 MHz, 1215 MHz, 67, P0, 0x0000000000000024
"""


@pytest.fixture
def read(tmp_path: Path) -> Reading:
    def reading(text: str) -> Samples:
        assert nvidia_columns.matches(text)
        (path := tmp_path / "any.name").write_text(text)
        return nvidia_columns.read(path)

    return reading


def test_a_query_gives_each_quantity_of_each_device(read: Reading) -> None:
    samples = read(QUERY)
    assert (samples.tool, samples.clock, samples.skipped) == ("nvidia-smi --query-gpu", "epoch", 0)
    assert times(samples, "0", "utilization") == [1740823200.0, 1740823201.0]
    said = values(samples)
    assert said["0", "utilization"] == [0.97, 0.95]
    assert said["1", "utilization"] == said["1", "memory_activity"] == said["1", "power"] == [None]
    assert said["0", "memory_activity"] == [0.41, 0.4]  # of time, not of memory
    assert said["0", "memory_used"] == [1048.576, 1048.576]
    assert said["0", "power"] == [164.1, 160]
    assert said["0", "core_clock"] == [1200, 1185]
    assert (said["0", "core_clock_max"][0], said["0", "memory_clock_max"][0]) == (1440, 1215)
    assert said["0", "temperature"] == [66, 67]


def test_the_enforced_limit_is_in_force_and_the_default_is_the_rating(read: Reading) -> None:
    said = values(read(QUERY))
    assert (said["0", "power_limit"][0], said["0", "power_rated"][0]) == (150, 165)
    assert (said["0", "power.limit"][0], said["0", "power.max_limit"][0]) == (165, 170)


def test_a_mask_names_the_limits_that_are_active(read: Reading) -> None:
    assert facts(read(QUERY), "limit_reason") == {"0": ["sw_power_cap, sw_thermal_slowdown"], "1": ["none"]}


def test_what_names_a_board_is_not_kept_and_the_rest_is(read: Reading) -> None:
    samples = read(QUERY)
    assert "GPU-" not in text_of(samples)
    assert "00000000" not in text_of(samples)
    assert facts(samples, "name") == {"0": ["NVIDIA A30"], "1": ["NVIDIA A30"]}
    assert facts(samples, "pstate") == {"0": ["P0"], "1": ["P8"]}


def test_without_units_the_header_says_them_or_the_tool_is_known_for_them(read: Reading) -> None:
    said = values(read("index, memory.total [MiB], power.draw [W], clocks.sm [MHz]\n0, 1000, 70.5, 300\n"))
    assert said == {("0", "memory_total"): [1048.576], ("0", "power"): [70.5], ("0", "core_clock"): [300]}
    assert values(read("index, memory.used, utilization.gpu\n0, 1000, 7\n")) == {
        ("0", "memory_used"): [1048.576], ("0", "utilization"): [0.07]}


def test_one_column_is_enough(read: Reading) -> None:
    assert values(read("utilization.gpu [%]\n7 %\n")) == {("0", "utilization"): [0.07]}


def test_columns_may_come_in_any_order_and_the_header_again(read: Reading) -> None:
    samples = read("index, utilization.gpu [%]\n0, 1 %\nutilization.gpu [%], index\n2 %, 0\n")
    assert values(samples) == {("0", "utilization"): [0.01, 0.02]}


def test_the_pasted_command_names_the_columns_of_a_query_without_header(read: Reading) -> None:
    samples = read("$ nvidia-smi --query-gpu=index,power.draw --format=csv,noheader,nounits -l 1\n0, 70.5\n0, 71\n")
    assert values(samples) == {("0", "power"): [70.5, 71]}


def test_without_any_header_nothing_is_guessed(read: Reading) -> None:
    samples = read("2025/03/01 10:00:00.000, 97 %, 164.10 W\n2025/03/01 10:00:01.000, 95 %, 160.00 W\n")
    assert values(samples) == {("0", "column 2"): [97, 95], ("0", "column 3"): [164.1, 160]}
    assert times(samples, "0", "column 2") == [1740823200.0, 1740823201.0]
    assert "no header" in samples.notes[0]


def test_bus_ids_tell_devices_apart_where_there_is_no_index(read: Reading) -> None:
    samples = read("pci.bus_id, utilization.gpu [%]\n0:04.0, 1 %\n0:09.0, 2 %\n0:04.0, 3 %\n")
    assert values(samples) == {("0", "utilization"): [0.01, 0.03], ("1", "utilization"): [0.02]}
    assert "0:04" not in text_of(samples)


def test_bursts_of_rows_are_devices_in_turn(read: Reading) -> None:
    rows = "".join(f"2025/03/01 10:00:0{second}.{part}, {share} %\n" for second in (0, 1, 2)
                   for part, share in (("100", 90), ("104", 10)))
    samples = read("timestamp, utilization.gpu [%]\n" + rows)
    assert values(samples) == {("0", "utilization"): [0.9] * 3, ("1", "utilization"): [0.1] * 3}
    assert "2 devices" in samples.notes[0]


def test_a_row_a_second_is_one_device(read: Reading) -> None:
    rows = "".join(f"2025/03/01 10:00:0{second}.00{second % 2}, {second} %\n" for second in range(6))
    samples = read("timestamp, utilization.gpu [%]\n" + rows)
    assert values(samples) == {("0", "utilization"): [0, 0.01, 0.02, 0.03, 0.04, 0.05]}
    assert samples.notes == ()


def test_rows_that_nothing_tells_apart_are_never_taken_for_a_series(read: Reading) -> None:
    samples = read("utilization.gpu [%]\n90 %\n10 %\n")
    assert values(samples) == {("0", "utilization"): [0.9], ("1", "utilization"): [0.1]}
    assert "Query index" in samples.notes[0]


def test_the_reasons_by_name(read: Reading) -> None:
    head = ("index, clocks_throttle_reasons.gpu_idle, clocks_throttle_reasons.sw_power_cap, "
            "clocks_throttle_reasons.hw_slowdown, clocks_throttle_reasons.sw_thermal_slowdown\n")
    rows = ("0, Not Active, Active, Not Active, Not Active\n1, Active, Not Active, Not Active, Not Active\n"
            "2, Not Active, Not Active, Not Active, Not Active\n3, [N/A], [N/A], [N/A], [N/A]\n")
    samples = read(head + rows + "0, Not Active, Not Active, Active, Active\n")
    assert facts(samples, "limit_reason") == {
        "0": ["sw_power_cap", "hw_slowdown, sw_thermal_slowdown"], "1": ["gpu_idle"], "2": ["none"]}


def test_one_inactive_reason_says_nothing_of_the_others(read: Reading) -> None:
    samples = read("index, utilization.gpu [%], clocks_event_reasons.hw_slowdown\n0, 1 %, Not Active\n")
    assert facts(samples, "limit_reason") == {}


def test_a_damaged_row_is_counted_and_the_others_are_read(read: Reading) -> None:
    samples = read("index, utilization.gpu [%]\n0, 1 %\nUnable to determine the device handle\nx, 5 %\n0, 3 %\n0, 99")
    assert values(samples) == {("0", "utilization"): [0.01, 0.03, 0.99]}
    assert samples.skipped == 2


def test_processes_of_a_query_have_the_memory_that_they_hold(read: Reading) -> None:
    samples = read("gpu_uuid, pid, process_name, used_gpu_memory [MiB]\nGPU-1, 42, /home/me/bin/python, 1000 MiB\n")
    assert samples.tool == "nvidia-smi --query-compute-apps"
    assert values(samples, "process") == {("42", "device_memory"): [1048.576]}
    assert facts(samples, "name", "process") == {"42": ["python"]}
    assert "GPU-1" not in text_of(samples)
    assert "home" not in text_of(samples)


@pytest.mark.parametrize(("stamps", "clock", "expected"), [
    (("2025-03-01T10:00:00.500Z", "2025-03-01T10:00:01Z"), "epoch", [1740823200.5, 1740823201]),
    (("0.25", "1.25"), "start", [0.25, 1.25])])
def test_plain_csv_of_the_same_columns_is_read(
        read: Reading, stamps: tuple[str, str], clock: str, expected: list[float]) -> None:
    head = "timestamp" if clock == "epoch" else "time_s"
    samples = read(f"{head},index,utilization.gpu [%],power.draw [W]\n{stamps[0]},0,50,100\n{stamps[1]},0,,101\n")
    assert (samples.tool, samples.clock) == ("device readings (CSV)", clock)
    assert times(samples, "0", "power") == expected
    assert values(samples) == {("0", "utilization"): [0.5, None], ("0", "power"): [100, 101]}


DMON = """\
# gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk  pviol     fb
# Idx      W      C      C      %      %    MHz    MHz      %     MB
    0    130     63      -    100      0   2619   1980      2    500
    1     66     57     47      7      2   9001    210      0     10
# gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk  pviol     fb
# Idx      W      C      C      %      %    MHz    MHz      %     MB
    0    131     63      -    100      0   2619   1980      2    500
"""


def test_dmon_says_each_column_by_its_header(read: Reading) -> None:
    samples = read(DMON)
    assert (samples.tool, samples.clock, samples.interval_s) == ("nvidia-smi dmon", "", None)
    said = values(samples)
    assert said["0", "utilization"] == [1, 1]
    assert said["0", "memory_activity"] == [0, 0]
    assert said["0", "power"] == [130, 131]
    assert said["0", "core_clock"] == [1980, 1980]
    assert said["0", "memory_clock"] == [2619, 2619]
    assert said["0", "memory_used"] == [500, 500]
    assert said["0", "mtemp"] == [None, None]
    assert said["0", "pviol"] == [2, 2]
    assert said["1", "power"] == [66]


def test_a_hung_kernel_reads_busy_with_its_memory_at_rest(read: Reading) -> None:
    said = values(read("# gpu     sm    mem    enc\n    0    100      0      0\n"))  # the line of units cut off
    assert said == {("0", "utilization"): [1], ("0", "memory_activity"): [0], ("0", "enc"): [0]}


@pytest.mark.parametrize(("head", "cells", "clock", "expected"), [
    ("#Date       Time        gpu     sm\n#YYYYMMDD   HH:MM:SS    Idx      %", " 20250301   10:00:00      0      5",
     "epoch", 1740823200),
    ("#Time        gpu     sm\n#HH:MM:SS    Idx      %", " 10:00:00      0      5", "day", 36000)])
def test_dmon_with_time_columns(
        read: Reading, head: str, cells: str, clock: str, expected: float) -> None:
    samples = read(f"{head}\n{cells}\n")
    assert samples.clock == clock
    assert times(samples, "0", "utilization") == [expected]
    assert values(samples) == {("0", "utilization"): [0.05]}


def test_dmon_as_csv(read: Reading) -> None:
    samples = read("#gpu, pwr, sm\n#Idx, W, %\n0, 60, 5\n")
    assert values(samples) == {("0", "power"): [60], ("0", "utilization"): [0.05]}


@pytest.mark.parametrize(("command", "interval_s"), [("dmon -s u -d 5", 5.0), ("dmon -s u", 1.0)])
def test_the_pasted_command_says_the_interval(
        read: Reading, command: str, interval_s: float) -> None:
    assert read(f"$ nvidia-smi {command}\n# gpu     sm\n# Idx      %\n    0      5\n").interval_s == interval_s


PMON = """\
# gpu         pid   type     sm    mem     fb    command
# Idx           #    C/G      %      %     MB    name
    0        4242     C      52     10    900    VLLM::Worker TP0
    1        4243     C       -      -    700    python3
    0        4242     C      53     11    900    VLLM::Worker TP0
"""


def test_pmon_says_what_each_process_uses(read: Reading) -> None:
    samples = read(PMON)
    assert samples.tool == "nvidia-smi pmon"
    assert values(samples) == {}
    said = values(samples, "process")
    assert said["4242", "utilization"] == [0.52, 0.53]
    assert said["4242", "device_memory"] == [900, 900]
    assert said["4243", "utilization"] == [None]
    assert facts(samples, "name", "process") == {"4242": ["VLLM::Worker TP0"], "4243": ["python3"]}
    assert facts(samples, "device", "process") == {"4242": ["0"], "4243": ["1"]}


def test_pmon_without_a_process_says_that_there_was_none(read: Reading) -> None:
    samples = read("# gpu         pid   type     sm    command\n# Idx           #    C/G      %    name\n"
                   "    0          -     -      -    -\n    0          -     -      -    -\n")
    assert facts(samples, "processes") == {"0": ["none"]}
    assert samples.notes == ("no process on device 0 in 2 rows",)
    assert samples.skipped == 0


@pytest.mark.parametrize("text", ["index, utilization.gpu [%]\n", "# gpu     sm\n# Idx      %\n"])
def test_a_header_alone_is_no_reading(tmp_path: Path, text: str) -> None:
    (path := tmp_path / "empty").write_text(text)
    with pytest.raises(UnusableInput, match="without a reading"):
        nvidia_columns.read(path)


def test_utf_16_as_a_shell_of_windows_writes_it_is_read(tmp_path: Path) -> None:
    (path := tmp_path / "ps.txt").write_bytes(DMON.replace("\n", "\r\n").encode("utf-16"))
    assert values(nvidia_columns.read(path))["0", "power"] == [130, 131]


def test_a_script_that_names_the_command_is_no_output() -> None:
    assert not nvidia_columns.matches("#!/bin/sh\nnvidia-smi --query-gpu=index,power.draw --format=csv\nsleep 1\n")
