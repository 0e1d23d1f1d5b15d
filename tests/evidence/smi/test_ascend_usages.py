"""`npu-smi info -t …`: pairs of names and values, of one chip or several, one run or many."""

from __future__ import annotations

from pathlib import Path

import pytest

from smi_columns import facts, text_of, times, values
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence.smi import ascend_usages
from xpu_triage.samples import Samples


def read(folder: Path, text: str) -> Samples:
    assert ascend_usages.matches(text)
    (path := folder / "any.name").write_text(text)
    return ascend_usages.read(path)


def usages(npu: int, chips: dict[int, tuple[int, int]]) -> str:
    text = f"\tNPU ID                         : {npu}\n\tChip Count                     : {len(chips)}\n\n"
    for chip, (share, hbm) in chips.items():
        text += (f"\tDDR Capacity(MB)               : 13553\n\tDDR Usage Rate(%)              : 6\n"
                 f"\tHBM Capacity(MB)               : 65536\n\tHBM Usage Rate(%)              : {hbm}\n"
                 f"\tAicore Usage Rate(%)           : {share}\n\tAicpu Usage Rate(%)            : 1\n"
                 f"\tDDR Bandwidth Usage Rate(%)    : 2\n\tHBM Bandwidth Usage Rate(%)    : 40\n"
                 f"\tChip ID                        : {chip}\n\n")
    return text


def test_usages_of_a_card_with_one_chip(tmp_path: Path) -> None:
    samples = read(tmp_path, usages(3, {0: (0, 94)}))
    assert (samples.tool, samples.clock, samples.skipped) == ("npu-smi info -t usages", "", 0)
    said = values(samples)
    assert said["3", "utilization"] == [0]
    assert said["3", "memory_used_fraction"] == [0.94]  # of HBM, not of DDR
    assert said["3", "memory_total"] == [65536]
    assert said["3", "memory_activity"] == [0.4]
    assert said["3", "DDR Usage Rate"] == [6]
    assert said["3", "Aicpu Usage Rate"] == [1]


def test_chips_are_named_after_their_pairs(tmp_path: Path) -> None:
    said = values(read(tmp_path, usages(0, {0: (10, 50), 1: (20, 60)})))
    assert said["0/0", "utilization"] == [0.1]
    assert said["0/1", "utilization"] == [0.2]
    assert said["0/1", "memory_used_fraction"] == [0.6]


def test_several_cards_and_runs_make_series(tmp_path: Path) -> None:
    text = "".join(f"2025-03-01 10:00:0{second}\n" + usages(0, {0: (share, 1)}) + usages(1, {0: (9, 1)})
                   for second, share in ((0, 10), (5, 30)))
    samples = read(tmp_path, text)
    assert values(samples)["0", "utilization"] == [0.1, 0.3]
    assert values(samples)["1", "utilization"] == [0.09, 0.09]
    assert times(samples, "0", "utilization") == [1740823200, 1740823205]


def test_the_newer_utilization_of_the_whole_npu_comes_first(tmp_path: Path) -> None:
    said = values(read(tmp_path, "\tNPU ID : 4\n\tAicore Usage Rate(%) : 83\n\tNPU Utilization(%) : 96\n"))
    assert said == {("4", "utilization"): [0.96], ("4", "Aicore Usage Rate"): [83]}


@pytest.mark.parametrize("unknown", ["N/A", "-", "NA"])
def test_where_the_newer_one_is_unknown_the_older_one_is_taken(tmp_path: Path, unknown: str) -> None:
    said = values(read(tmp_path, f"NPU ID : 4\nAicore Usage Rate(%) : 83\nNPU Utilization(%) : {unknown}\n"))
    assert said == {("4", "utilization"): [0.83], ("4", "NPU Utilization"): [None]}


COMMON = """\
        NPU ID                         : 7
        Chip Count                     : 1

        Chip ID                        : 0
        Memory Usage Rate(%)           : 3
        HBM Usage Rate(%)              : 82
        Aicore Usage Rate(%)           : 70
        Aicore Freq(MHZ)               : 1800
        Aicore curFreq(MHZ)            : 1650
        Aicore Count                   : 20
        Temperature(C)                 : 66
        NPU Real-time Power(W)         : 331.1

        Chip Name                      : mcu
        Temperature(C)                 : 41
        NPU Real-time Power(W)         : 13.4
"""


def test_common_has_clock_power_and_heat(tmp_path: Path) -> None:
    samples = read(tmp_path, COMMON)
    assert samples.tool == "npu-smi info -t common"
    said = values(samples)
    assert said["7", "utilization"] == [0.7]
    assert said["7", "memory_used_fraction"] == [0.82]
    assert said["7", "core_clock"] == [1650]
    assert said["7", "core_clock_max"] == [1800]
    assert said["7", "power"] == [331.1]
    assert said["7", "temperature"] == [66]


def test_the_controller_of_the_card_is_not_its_chip(tmp_path: Path) -> None:
    said = values(read(tmp_path, COMMON))
    assert said["7", "mcu NPU Real-time Power"] == [13.4]
    assert said["7", "mcu Temperature"] == [41]


def test_without_hbm_the_memory_is_ddr(tmp_path: Path) -> None:
    said = values(read(tmp_path, "NPU ID : 1\nDDR Capacity(MB) : 21527\nDDR Usage Rate(%) : 6\nHBM Capacity(MB) : 0\n"
                                 "HBM Usage Rate(%) : 0\nAicore Usage Rate(%) : 5\nChip ID : 0\n"))
    assert said["1", "memory_total"] == [21527]
    assert said["1", "memory_used_fraction"] == [0.06]
    assert said["1", "HBM Usage Rate"] == [None]


@pytest.mark.parametrize(("text", "quantity", "value", "tool"), [
    ("NPU ID : 2\nChip Count : 1\nNPU Real-time Power(W) : 93.4\nChip ID : 0\n", "power", 93.4, "power"),
    ("NPU ID : 2\nHBM Capacity(MB) : 65536\nHBM Clock Speed(MHz) : 1600\n", "memory_clock", 1600, "memory"),
    ("NPU ID : 2\nNPU Temperature (C) : 45\nChip ID : 0\n", "temperature", 45, "")])
def test_the_sisters_of_usages(tmp_path: Path, text: str, quantity: str, value: float, tool: str) -> None:
    samples = read(tmp_path, text)
    assert values(samples)["2", quantity] == [value]
    assert samples.tool == f"npu-smi info -t {tool}".strip()


def test_names_are_facts_and_serial_numbers_are_not_kept(tmp_path: Path) -> None:
    samples = read(tmp_path, "NPU ID : 0\nProduct Name : Atlas\nSerial Number : 2102\nAicore Usage Rate(%) : 5\n")
    assert facts(samples, "name") == {"0": ["Atlas"]}
    assert "2102" not in text_of(samples)


def test_impossible_rates_are_unknown_and_counted(tmp_path: Path) -> None:
    samples = read(tmp_path, "NPU ID : 0\nAicore Usage Rate(%) : 4294967295\nHBM Usage Rate(%) : 9\nnonsense\n")
    assert values(samples)["0", "utilization"] == [None]
    assert samples.skipped == 2


def test_pairs_without_a_reading_are_refused(tmp_path: Path) -> None:
    (path := tmp_path / "empty").write_text("NPU ID : 0\nChip Count : 1\n")
    with pytest.raises(UnusableInput, match="without a reading"):
        ascend_usages.read(path)


@pytest.mark.parametrize("text", ["HBM Usage Rate: high\n", "NPU ID : 0\n", '{"HBM Usage Rate(%)": 3}'])
def test_other_text_is_not_taken(text: str) -> None:
    assert not ascend_usages.matches(text)
