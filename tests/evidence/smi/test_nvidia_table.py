"""The default table of nvidia-smi: layouts since 2013, MIG, processes, series."""

from __future__ import annotations

from pathlib import Path

import pytest

from smi_tables import MIB, NVIDIA, NVIDIA_2013, NVIDIA_MIG, NVIDIA_OLD, facts, last, names, readings, written
from xpu_triage.evidence.smi import nvidia_table


def test_a_device_s_three_lines(tmp_path: Path) -> None:
    samples = nvidia_table.read(written(tmp_path, NVIDIA))
    assert samples.tool == "nvidia-smi"
    assert last(samples, "0") == {
        "temperature": 59, "power": 629, "power_limit": 700, "memory_used": pytest.approx(19818 * MIB),
        "memory_total": pytest.approx(81559 * MIB), "utilization": 1.0}
    assert facts(samples, "0") == {
        "name": "NVIDIA H100 80GB HBM3", "Persistence-M": "On", "Disp.A": "Off", "Volatile Uncorr. ECC": "0",
        "Perf": "P0", "Compute M.": "Default", "MIG M.": "Disabled"}


def test_err_is_unknown_and_said(tmp_path: Path) -> None:
    samples = nvidia_table.read(written(tmp_path, NVIDIA))
    assert last(samples, "1") == {
        "temperature": None, "power": None, "power_limit": None, "memory_used": pytest.approx(MIB),
        "memory_total": pytest.approx(81559 * MIB), "utilization": None}
    said = facts(samples, "1")
    assert (said["GPU-Util"], said["Temp"], said["Volatile Uncorr. ECC"]) == ("ERR!", "ERR!", "ERR!")


def test_a_process_has_its_memory_over_all_devices_and_no_path(tmp_path: Path) -> None:
    samples = nvidia_table.read(written(tmp_path, NVIDIA))
    assert readings(samples, "11327", "process") == {"device_memory": [pytest.approx(2566 * MIB)]}
    assert readings(samples, "11345", "process") == {"device_memory": [pytest.approx(15691 * MIB)]}
    assert facts(samples, "11327", "process") == {"name": "memhog", "Type": "C", "device": "0"}
    assert facts(samples, "11345", "process") == {"name": "VLLM::Worker_TP0", "Type": "C", "device": "0, 1"}
    assert readings(samples, "20000", "process") == {"device_memory": [None]}
    assert facts(samples, "20000", "process") == {"name": "tool.exe", "Type": "C+G", "device": "0"}


def test_addresses_are_not_kept(tmp_path: Path) -> None:
    said = repr(nvidia_table.read(written(tmp_path, NVIDIA)).facts)
    assert "00:09.0" not in said
    assert "/root" not in said


def test_two_line_layout_of_older_drivers(tmp_path: Path) -> None:
    samples = nvidia_table.read(written(tmp_path, NVIDIA_OLD))
    assert names(samples) == ["0", "1"]
    assert last(samples, "0") == {
        "temperature": 71, "power": 91, "power_limit": 125, "memory_used": pytest.approx(2320 * MIB),
        "memory_total": pytest.approx(4095 * MIB), "utilization": 1.0}
    assert last(samples, "1") == {
        "Fan": 35, "temperature": 59, "power": None, "power_limit": None, "utilization": None,
        "memory_used": pytest.approx(321 * MIB), "memory_total": pytest.approx(511 * MIB)}
    assert facts(samples, "1")["name"] == "GeForce 9800 GT..."
    assert last(samples, "1516", "process") == {"device_memory": pytest.approx(2303 * MIB)}
    assert names(samples, "process") == ["1516"]
    assert samples.series[0].times.tolist() == [1512280103]      # 2017-12-03 05:48:23


def test_a_share_before_the_memory_is_no_memory(tmp_path: Path) -> None:
    found = last(nvidia_table.read(written(tmp_path, NVIDIA_2013)), "0")
    assert (found["memory_used"], found["memory_total"], found["utilization"]) == (69, 5375, 0.99)


def test_mig_leaves_utilization_unknown_and_its_sm_count_is_none(tmp_path: Path) -> None:
    samples = nvidia_table.read(written(tmp_path, NVIDIA_MIG))
    assert names(samples) == ["0", "0/MIG 0", "0/MIG 1"]
    assert last(samples, "0")["utilization"] is None
    assert last(samples, "0/MIG 0") == {
        "memory_used": pytest.approx(25 * MIB), "memory_total": pytest.approx(11968 * MIB)}
    assert last(samples, "0/MIG 1") == {"memory_used": None, "memory_total": None}
    assert facts(samples, "0")["MIG M."] == "Enabled"
    assert facts(samples, "4711", "process")["device"] == "0/MIG 1"


def test_a_loop_is_a_series_with_the_time_above_each_table(tmp_path: Path) -> None:
    second = NVIDIA.replace("08:12:38", "08:12:43").replace("100%      Default", "  0%      Default")
    samples = nvidia_table.read(written(tmp_path, NVIDIA + second))
    used = next(samples.of("utilization"))
    assert samples.clock == "epoch"
    assert used.times.tolist() == [1784016758, 1784016763]        # 2026-07-14 08:12:38, :43
    assert used.values.tolist() == [1.0, 0.0]
    assert len(next(samples.of("device_memory", "process")).values) == 2
    assert len([fact for fact in samples.facts if fact.of == "0" and fact.name == "name"]) == 1


def test_a_table_without_a_date_takes_none_from_the_table_before(tmp_path: Path) -> None:
    samples = nvidia_table.read(written(tmp_path, NVIDIA + NVIDIA.partition("\n")[2]))
    times = next(samples.of("power")).times.tolist()
    assert times[0] == 1784016758
    assert times[1] != times[1]


def test_tables_of_other_tools_in_the_same_log_are_left_out(tmp_path: Path) -> None:
    from smi_tables import IXSMI, KUNLUN, METAX
    samples = nvidia_table.read(written(tmp_path, IXSMI.replace("# [fin] >> ", "") + NVIDIA + KUNLUN + METAX))
    assert names(samples) == ["0", "1"]
    assert facts(samples, "0")["name"] == "NVIDIA H100 80GB HBM3"


def test_prose_and_other_tables_around_it_are_no_devices(tmp_path: Path) -> None:
    around = "before\n| a | b | c |\n" + NVIDIA + "\nafter\n\n| 5 | x | 7 |\n| 6 | y | 8 |\n"
    samples = nvidia_table.read(written(tmp_path, around))
    assert names(samples) == ["0", "1"]
    assert samples.skipped == 0


def test_colours_windows_line_ends_and_utf16(tmp_path: Path) -> None:
    path = tmp_path / "x"
    coloured = NVIDIA.replace("100%", "\x1b[31m100%\x1b[0m").replace("\n", "\r\n")
    path.write_bytes(coloured.encode("utf-16"))
    assert last(nvidia_table.read(path), "0")["utilization"] == 1.0


def test_hostile_names_are_made_harmless_and_shortened(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\u202e" + "A" * 300
    text = NVIDIA.replace("VLLM::Worker_TP0 ", evil).replace("NVIDIA H100 80GB HBM3", "N\u202eVIDIA <b>H100</b>    ")
    samples = nvidia_table.read(written(tmp_path, text))
    assert all("\u202e" not in fact.value and len(fact.value) <= 160 for fact in samples.facts)
    assert last(samples, "0")["utilization"] == 1.0


def test_a_bar_in_a_name_costs_that_line_only(tmp_path: Path) -> None:
    samples = nvidia_table.read(written(tmp_path, NVIDIA.replace("/home/tools/memhog", "/home/tools/mem|og")))
    assert samples.skipped == 1
    assert "11327" not in names(samples, "process")
    assert last(samples, "0")["utilization"] == 1.0


def test_huge_numbers_are_unknown_not_infinite(tmp_path: Path) -> None:
    text = NVIDIA.replace("19818MiB /", "9" * 400 + "MiB /")
    assert last(nvidia_table.read(written(tmp_path, text)), "0")["memory_used"] is None


def test_a_value_under_the_wrong_word_is_unknown_and_counted(tmp_path: Path) -> None:
    samples = nvidia_table.read(written(tmp_path, NVIDIA.replace("100%      Default", "100C      Default")))
    assert last(samples, "0")["utilization"] is None
    assert samples.skipped == 1
