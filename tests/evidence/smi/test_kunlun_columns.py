"""Kunlun `xpu-smi -m`: no header; the fields that are known, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from smi_columns import text_of, times, values
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence.smi import kunlun_columns
from xpu_triage.samples import Samples


def line(device: int, temperature: str, power: str, used: str, total: str, share: str) -> str:
    fields = [f"0000:0{device}:00.0", str(device), '"P800 OAM"', "SN1234", temperature, "a", "b", "c", power,
              *(f"f{at}" for at in range(9, 17)), used, total, share, "x", "y"]
    return " ".join(fields)


TEXT = f"""\
{line(0, "41", "88.5", "1000", "98304", "0")}
{line(1, "65", "310", "90000", "98304", "97")}
"""


def read(folder: Path, text: str) -> Samples:
    assert kunlun_columns.matches(text)
    (path := folder / "any.name").write_text(text)
    return kunlun_columns.read(path)


def test_the_known_fields_are_read_by_their_place(tmp_path: Path) -> None:
    samples = read(tmp_path, TEXT)
    assert (samples.tool, samples.clock, samples.skipped) == ("xpu-smi -m (Kunlun)", "", 0)
    assert values(samples) == {
        ("0", "temperature"): [41], ("0", "power"): [88.5], ("0", "memory_used"): [1000],
        ("0", "memory_total"): [98304], ("0", "utilization"): [0],
        ("1", "temperature"): [65], ("1", "power"): [310], ("1", "memory_used"): [90000],
        ("1", "memory_total"): [98304], ("1", "utilization"): [0.97]}
    assert "SN1234" not in text_of(samples)
    assert "left out" in samples.notes[0]


def test_what_is_not_known_is_unknown(tmp_path: Path) -> None:
    said = values(read(tmp_path, line(3, "N/A", "-", "1000", "98304", "N/A") + "\n"))
    assert said["3", "power"] == said["3", "temperature"] == said["3", "utilization"] == [None]


def test_runs_with_dates_between_them_are_a_series(tmp_path: Path) -> None:
    samples = read(tmp_path, "Sun Sep  8 13:03:31 UTC 2024\n" + TEXT + "Sun Sep  8 13:03:36 UTC 2024\n" + TEXT)
    assert times(samples, "1", "utilization") == [1725800611, 1725800616]
    assert values(samples)["1", "utilization"] == [0.97, 0.97]


@pytest.mark.parametrize("text", [
    "", "1 2 3\n", " ".join(["1"] * 25) + "\nsome words\n", line(0, "41", "88", "99999", "98304", "0"),
    line(0, "41", "88", "5", "98304", "250"), line(0, "hot", "88", "5", "98304", "0")])
def test_other_columns_of_numbers_are_not_taken(text: str) -> None:
    assert not kunlun_columns.matches(text)


def test_a_line_that_does_not_fit_is_counted(tmp_path: Path) -> None:
    (path := tmp_path / "cut").write_text(TEXT + TEXT[:30])
    assert kunlun_columns.read(path).skipped == 1


def test_nothing_that_fits_is_refused(tmp_path: Path) -> None:
    (path := tmp_path / "other").write_text("1 2 3\n")
    with pytest.raises(UnusableInput, match="without a reading"):
        kunlun_columns.read(path)
