"""`npu-smi info`: two lines a chip, two chips on some cards, three meanings of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from smi_tables import NPU, NPU_310P, NPU_910A, NPU_950, facts, last, names, readings, written
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence.smi import ascend_table


def without_header(text: str) -> str:
    lines = text.split("\n")
    return "\n".join(lines[next(at for at, line in enumerate(lines) if line.startswith("+=")):])


def test_two_chips_of_a_card_and_a_power_that_only_the_first_has(tmp_path: Path) -> None:
    samples = ascend_table.read(written(tmp_path, NPU))
    assert samples.tool == "npu-smi info"
    assert names(samples) == ["0/0", "0/1"]
    first, second = last(samples, "0/0"), last(samples, "0/1")
    assert (first["power"], first["temperature"], first["utilization"]) == (178.8, 36, 0.09)
    assert (second["power"], second["temperature"], second["utilization"]) == (None, 36, 0)
    assert facts(samples, "0/1") == {"name": "Ascend910", "Health": "Warning", "Phy-ID": "1"}


def test_memory_is_that_of_the_hbm(tmp_path: Path) -> None:
    samples = ascend_table.read(written(tmp_path, NPU))
    assert (last(samples, "0/1")["memory_used"], last(samples, "0/1")["memory_total"]) == (61125, 65536)
    assert last(samples, "0/1")["Memory-Usage"] == 0
    older = last(ascend_table.read(written(tmp_path, NPU_910A)), "7")
    assert (older["memory_used"], older["memory_total"], older["Memory-Usage"]) == (30, 32768, 2100)


def test_a_chip_without_hbm_has_the_other_memory(tmp_path: Path) -> None:
    samples = ascend_table.read(written(tmp_path, NPU_310P))
    assert names(samples) == ["32768"]
    found = last(samples, "32768")
    assert (found["memory_used"], found["memory_total"], found["power"]) == (19562, 21527, None)
    empty = NPU_910A.replace("30   / 32768", "0    / 0    ")
    found = last(ascend_table.read(written(tmp_path, empty)), "7")
    assert (found["memory_used"], found["memory_total"]) == (2100, 15171)


def test_a_column_that_may_be_cut_off_is_not_guessed(tmp_path: Path) -> None:
    cut = "\n".join(line[:74] for line in NPU_910A.split("\n"))
    assert last(ascend_table.read(written(tmp_path, cut)), "7").get("memory_used") is None
    with pytest.raises(UnusableInput):  # neither header nor ends of lines: 310P and two-chip cards look alike
        ascend_table.read(written(tmp_path, "\n".join(line[:74] for line in without_header(NPU).split("\n")[:8])))


def test_processes_name_the_chip(tmp_path: Path) -> None:
    samples = ascend_table.read(written(tmp_path, NPU))
    assert last(samples, "2759218", "process") == {"device_memory": 56293}
    assert facts(samples, "2759218", "process") == {"name": "VLLMWorker_DP", "device": "0/1"}
    assert facts(samples, "29570", "process") == {"device": "0/0"}


def test_chips_numbered_by_npu_id_alone(tmp_path: Path) -> None:
    samples = ascend_table.read(written(tmp_path, NPU_950))
    found = last(samples, "6")
    assert (found["utilization"], found["memory_used"], found["power"]) == (0.05, 66466, 381.1)
    assert facts(samples, "3621066", "process") == {"name": "worker.py", "device": "6"}


@pytest.mark.parametrize("text", [NPU, NPU_310P, NPU_910A])
def test_a_table_without_its_header_is_told_by_its_form(text: str, tmp_path: Path) -> None:
    cut = without_header(text)
    assert ascend_table.matches(cut)
    part, whole = (ascend_table.read(written(tmp_path, printed)) for printed in (cut, text))
    assert [readings(part, of) for of in names(part)] == [readings(whole, of) for of in names(whole)]
    assert part.notes == ("the header is cut off: columns told by their place and form",)


@pytest.mark.parametrize("text", [
    "| 1   a | b | 3 4 5 |\n| 0 | 2 |\n", "| 3     910B3               | OK            | 93.7        33\n",
    "| 0     x  | OK  | 1  2  0 / 0 |\n| 0  | no bus  | 0  0 / 0  1 / 2 |\n"])
def test_other_tables_do_not_have_that_form(text: str) -> None:
    assert not ascend_table.matches(text)


def test_a_watch_of_it_is_a_series(tmp_path: Path) -> None:
    first = "Mon Jul 28 10:00:00 UTC 2025\n" + NPU
    second = "Mon Jul 28 10:00:05 UTC 2025\n" + NPU.replace("| 9           0    / 0", "| 44          0    / 0")
    samples = ascend_table.read(written(tmp_path, first + second))
    assert readings(samples, "0/0")["utilization"] == [0.09, 0.44]
    assert next(samples.of("utilization")).times.tolist() == [1753696800, 1753696805]
    assert samples.clock == "epoch"
