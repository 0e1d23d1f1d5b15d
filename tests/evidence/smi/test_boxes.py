"""What all bar-drawn tables share: placing values under header words, and saying nothing of what was cut."""

from __future__ import annotations

import math
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smi_tables import NVIDIA, PRINTS, last, written
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence.smi.boxes import Cell, is_rule, labels, line_of, pieces, placed
from xpu_triage.samples import QUANTITIES, Samples

EVERY = [(name, text) for name, texts in PRINTS.items() for text in texts]


def module(name: str) -> ModuleType:
    return import_module(f"xpu_triage.evidence.smi.{name}")


def under(header: str, text: str) -> dict[str, str]:
    names = labels(Cell(header))
    return {names[position].text: " ".join(piece.text for piece in found)
            for position, found in placed(names, pieces(Cell(text))).items()}


def test_values_stand_under_their_words() -> None:
    assert under(" Fan  Temp   Perf          Pwr:Usage/Cap ", " N/A   41C    P0             69W /  700W ") == {
        "Fan": "N/A", "Temp": "41C", "Perf": "P0", "Pwr:Usage/Cap": "69W /  700W"}
    header = " Fan  Temp  Perf  Pwr:Usage/Cap"
    assert under(header, " N/A   30C   N/A 100W /  600W  ")["Pwr:Usage/Cap"] == "100W /  600W"
    assert under(header, " N/A   34C    P0 1000W / 1000W ")["Perf"] == "P0"
    assert under(" Card  VF  Name       Firmware ", " 0     /   MLU370-X8    v1.1.6 ") == {
        "Card": "0", "VF": "/", "Name": "MLU370-X8", "Firmware": "v1.1.6"}
    assert under(" BDF                        GPU-Name ", " 0000:83:00.0 AMD Instinct MI300X VF ") == {
        "BDF": "0000:83:00.0", "GPU-Name": "AMD Instinct MI300X VF"}


def test_a_value_that_is_missing_does_not_move_the_others() -> None:
    header = " Fan  Temp   Perf          Pwr:Usage/Cap "
    assert under(header, "              P0             69W /  700W ") == {
        "Perf": "P0", "Pwr:Usage/Cap": "69W /  700W"}


def test_units_in_the_header_belong_to_the_word() -> None:
    found = labels(Cell(" AICore(%)   Memory-Usage(MB)  Hugepages-Usage(page)"))
    assert [(label.text, label.unit) for label in found] == [
        ("AICore", "%"), ("Memory-Usage", "MB"), ("Hugepages-Usage", "page")]


def test_lines_that_are_rules_and_lines_that_are_not() -> None:
    assert all(map(is_rule, ["+---+", "|===+===|", "    +-----+", "# [fin] >> +-----+", "-----"]))
    assert not any(map(is_rule, ["| a | b |", "", "text", "|  -  |"]))
    assert line_of("no bar") is None
    assert line_of("|" + "x|" * 40) is None
    assert line_of("| " + "x" * 5000 + " |") is None


@pytest.mark.parametrize(("name", "text"), EVERY)
def test_each_print_is_claimed_by_one_reader_alone(name: str, text: str) -> None:
    assert [other for other in PRINTS if module(other).matches(text)] == [name]


@pytest.mark.parametrize("text", [
    "", '{"traceEvents": [{"ph": "X", "name": "| GPU  Name |"}]}', "schema: 1\nsignals:\n  serving.running: 4\n",
    "# gpu   pwr gtemp\n# Idx     W     C\n    0    69    41\n", "timestamp, index, power.draw [W]\n",
    "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 4\n", "| device | name | GB/s |\n|---|---|---|\n| H100 | x | 3,350 |\n",
    "Timestamp, DeviceId, GPU Utilization (%), GPU Power (W)\n06:00:00.000,    0, 1.0, 2.0\n",
    "==============NVSMI LOG==============\n\nTimestamp    : Tue Jul 14 08:12:38 2026\nDriver Version   : 590.48.01\n",
    "GPU " + "A" * 390 + "1\n",
])
def test_other_evidence_is_left_to_others(text: str) -> None:
    assert not [name for name in PRINTS if module(name).matches(text)]


@pytest.mark.parametrize("name", PRINTS)
def test_a_file_without_a_device_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnusableInput) as refusal:
        module(name).read(written(tmp_path, "No devices were found\n"))
    assert "\n" not in str(refusal.value)
    assert "printed.txt" in str(refusal.value)


@pytest.mark.parametrize(("name", "text"), EVERY)
def test_whole_prints_leave_nothing_unread(name: str, text: str, tmp_path: Path) -> None:
    samples = module(name).read(written(tmp_path, text))
    assert (samples.skipped, samples.notes) == (0, ())


def known(samples: Samples) -> dict[tuple[str, str, str], set[float]]:
    return {(series.kind, series.of, series.quantity): {value for value in series.values.tolist() if value == value}
            for series in samples.series}


def agree(name: str, cut: str, text: str, folder: Path) -> None:
    """What is read of `cut` is what the whole says, or unknown."""
    whole = known(module(name).read(written(folder, text)))
    try:
        part = known(module(name).read(written(folder, cut)))
    except UnusableInput:
        return
    for key, found in part.items():
        if key[0] == "process" or key[2] not in QUANTITIES:
            continue  # memory over several devices is a sum of the lines that are left
        of = {other for other in whole if other[2] == key[2] and other[1].split("/")[0] == key[1].split("/")[0]}
        assert found <= set().union(*(whole[other] for other in of)), key


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(EVERY), st.floats(0, 1))
def test_a_print_that_ends_early_says_nothing_wrong(tmp_path: Path, case: tuple[str, str], share: float) -> None:
    name, text = case
    agree(name, text[:math.floor(len(text) * share)], text, tmp_path)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(EVERY), st.integers(5, 110))
def test_lines_cut_at_a_terminal_s_width_say_nothing_wrong(tmp_path: Path, case: tuple[str, str], width: int) -> None:
    name, text = case
    agree(name, "\n".join(line[:width] for line in text.split("\n")), text, tmp_path)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(EVERY), st.integers(30, 110))
def test_lines_wrapped_at_a_terminal_s_width_say_nothing_wrong(tmp_path: Path, case: tuple[str, str],
                                                               width: int) -> None:
    name, text = case
    wrapped = [line[at:at + width] for line in text.split("\n") for at in range(0, max(len(line), 1), width)]
    agree(name, "\n".join(wrapped), text, tmp_path)


def test_a_table_wrapped_at_80_columns_is_read_as_far_as_certain(tmp_path: Path) -> None:
    wrapped = [line[at:at + 80] for line in NVIDIA.split("\n") for at in range(0, max(len(line), 1), 80)]
    samples = module("nvidia_table").read(written(tmp_path, "\n".join(wrapped)))
    found = last(samples, "0")
    assert (found["temperature"], found["power"], found["power_limit"]) == (59, 629, 700)
    assert found["memory_used"] == pytest.approx(19818 * 1.048576)
    assert found.get("utilization") in (None, 1.0)
    assert samples.skipped > 0
    assert "cut, wrapped" in samples.notes[0]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(EVERY),
       st.lists(st.tuples(st.floats(0, 1), st.sampled_from("|+-= \n0%\x1b\x00é/NA")), max_size=12))
def test_damage_ends_in_readings_or_one_line(tmp_path: Path, case: tuple[str, str],
                                             damage: list[tuple[float, str]]) -> None:
    name, text = case
    for share, put in damage:
        at = math.floor(len(text) * share)
        text = text[:at] + put + text[at + 1:]
    module(name).matches(text)
    try:
        samples = module(name).read(written(tmp_path, text))
    except UnusableInput:
        return
    for series in samples.series:
        if series.quantity in ("utilization", "memory_activity", "memory_used_fraction"):
            assert ((series.known >= 0) & (series.known <= 1)).all()
        assert not any(math.isinf(value) for value in series.values.tolist())
