"""Tables of vendors that print like nvidia-smi, and what each has of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from smi_tables import (
    AMD,
    CNMON,
    GAUDI,
    INTEL,
    IXSMI,
    KUNLUN,
    METAX,
    METAX_BOARDS,
    MIB,
    MTHREADS,
    facts,
    last,
    names,
    readings,
    written,
)
from xpu_triage.evidence.smi import (
    amd_table,
    cambricon,
    gaudi,
    iluvatar,
    intel_table,
    kunlun_table,
    metax,
    mthreads,
    nvidia_table,
)


def test_kunlun_memory_is_not_its_l3(tmp_path: Path) -> None:
    samples = kunlun_table.read(written(tmp_path, KUNLUN))
    assert samples.tool == "xpu-smi (Kunlun)"
    assert last(samples, "0") == {
        "temperature": 39, "power": 91, "power_limit": 400, "memory_used": pytest.approx(31058 * MIB),
        "memory_total": pytest.approx(98304 * MIB), "utilization": 0.07, "L3-Usage": 12, "L3-Usage total": 96}
    assert {series.unit for series in samples.series if series.quantity.startswith("L3")} == {"MiB"}
    assert facts(samples, "0")["name"] == "P800 OAM"
    assert samples.series[0].times.tolist() == [1787606340]       # 2026-08-24 21:19:00


def test_two_tools_named_xpu_smi_are_told_apart(tmp_path: Path) -> None:
    assert [module.matches(KUNLUN) for module in (kunlun_table, intel_table, nvidia_table)] == [True, False, False]
    assert [module.matches(INTEL) for module in (kunlun_table, intel_table, nvidia_table)] == [False, True, False]
    both = written(tmp_path, KUNLUN + INTEL)
    assert last(kunlun_table.read(both), "0")["power"] == 91
    assert last(intel_table.read(both), "0")["power"] == 45


def test_a_kunlun_table_whose_title_is_cut_off(tmp_path: Path) -> None:
    cut = KUNLUN.split("\n", 4)[4]
    assert kunlun_table.matches(cut)
    assert last(kunlun_table.read(written(tmp_path, cut)), "0")["memory_used"] == pytest.approx(31058 * MIB)


def test_intel_names_that_take_two_lines(tmp_path: Path) -> None:
    samples = intel_table.read(written(tmp_path, INTEL))
    assert samples.tool == "xpu-smi (Intel)"
    assert last(samples, "0") == {
        "temperature": None, "power": 45, "power_limit": 190, "memory_used": pytest.approx(3642 * MIB),
        "memory_total": pytest.approx(16288 * MIB), "utilization": None}
    assert facts(samples, "0")["name"] == "Intel(R) Arc(TM) A770"
    assert last(samples, "2874292", "process") == {"device_memory": pytest.approx(206 * MIB)}


def test_gaudi_memory_share_under_compute_mode_is_no_utilization(tmp_path: Path) -> None:
    samples = gaudi.read(written(tmp_path, GAUDI))
    assert names(samples) == ["0", "7"]
    assert last(samples, "0") == {
        "temperature": 22, "power": 100, "power_limit": 600, "memory_used": pytest.approx(96565 * MIB),
        "memory_total": pytest.approx(98304 * MIB), "utilization": 0.03, "Compute M.": 98}
    assert last(samples, "7")["memory_total"] == pytest.approx(131072 * MIB)
    assert last(samples, "7")["utilization"] == 0
    assert facts(samples, "7")["name"] == "HL-325"
    assert names(samples, "process") == ["107684"]
    assert last(samples, "107684", "process") == {"device_memory": pytest.approx(16770 * MIB)}
    assert samples.clock == ""


def test_cambricon_cards_without_virtual_functions(tmp_path: Path) -> None:
    samples = cambricon.read(written(tmp_path, CNMON))
    assert last(samples, "0") == {
        "utilization": 0.12, "Fan": 0, "temperature": 32, "power": 30, "power_limit": 150,
        "memory_used": pytest.approx(5 * MIB), "memory_total": pytest.approx(23308 * MIB),
        "vMemory-Usage": 10240, "vMemory-Usage total": 1048576}
    assert facts(samples, "0") == {
        "name": "MLU370-X4", "Firmware": "v1.1.6", "Inited": "On", "Driver": "v4.20.11"}
    assert samples.series[0].times.tolist() == [1665228142]       # 2022-10-08 11:22:22


def test_cambricon_newer_columns(tmp_path: Path) -> None:
    newer = (CNMON.replace("| Inited        Driver |", "|               Bus-Id |")
             .replace("| On          v4.20.11 |", "|         0000:13:00.0 |")
             .replace("|         vMemory-Usage |", "| Mode     Compute-Mode |")
             .replace("| 10240 MiB/1048576 MiB |", "| FULL          Default |"))
    samples = cambricon.read(written(tmp_path, newer))
    assert last(samples, "0")["utilization"] == 0.12
    assert facts(samples, "0") == {"name": "MLU370-X4", "Firmware": "v1.1.6", "Mode": "FULL", "Compute-Mode": "Default"}


def test_arguments_of_a_command_line_are_not_kept(tmp_path: Path) -> None:
    samples = cambricon.read(written(tmp_path, CNMON))
    assert facts(samples, "811", "process") == {"name": "python3", "device": "0"}
    assert "sk-12" not in repr(samples.facts)
    assert "someone" not in repr(samples.facts)
    assert last(samples, "811", "process") == {"device_memory": pytest.approx(1024 * MIB)}


def test_iluvatar_clocks_and_the_prefix_of_a_log(tmp_path: Path) -> None:
    samples = iluvatar.read(written(tmp_path, IXSMI))
    assert last(samples, "1") == {
        "core_clock": 500, "memory_clock": 1200, "temperature": 30, "power": None, "power_limit": None,
        "memory_used": pytest.approx(513 * MIB), "memory_total": pytest.approx(32768 * MIB), "utilization": 0.41}
    assert last(samples, "0")["power"] == 54
    assert last(samples, "77", "process") == {"device_memory": pytest.approx(448 * MIB)}    # unit of the header
    assert samples.series[0].times.tolist() == [1684051467]       # 2023-05-14 08:04:27


def test_metax_pairs_share_their_unit(tmp_path: Path) -> None:
    samples = metax.read(written(tmp_path, METAX))
    assert last(samples, "0") == {
        "utilization": 0.37, "temperature": 29, "power": 53, "power_limit": 450,
        "memory_used": pytest.approx(858 * MIB), "memory_total": pytest.approx(65536 * MIB)}
    assert facts(samples, "0") == {"name": "MetaX C550", "GPU-State": "Available"}


def test_metax_devices_are_gpus_not_boards(tmp_path: Path) -> None:
    samples = metax.read(written(tmp_path, METAX_BOARDS))
    assert names(samples) == ["3"]
    assert last(samples, "3")["power_limit"] == 350
    assert facts(samples, "3")["name"] == "Mars X201"


def test_moore_threads_lines_have_bars_between_columns_only(tmp_path: Path) -> None:
    samples = mthreads.read(written(tmp_path, MTHREADS))
    assert last(samples, "0") == {
        "utilization": 0.07, "memory_used": pytest.approx(662 * MIB), "memory_total": pytest.approx(16384 * MIB),
        "temperature": 41}
    assert facts(samples, "0") == {
        "name": "MTT S80", "Device Type": "Physical", "Pcie Lane Width": "16x(16x)", "MPC Capable": "YES"}
    assert facts(samples, "1123", "process") == {"name": "Xorg", "device": "0"}
    assert samples.series[0].times.tolist() == [1766115338]       # 2025-12-19 03:35:38


def test_moore_threads_in_a_loop(tmp_path: Path) -> None:
    second = MTHREADS.replace("03:35:38", "03:35:39").replace("|7%    662MiB", "|93%   700MiB")
    assert readings(mthreads.read(written(tmp_path, MTHREADS + second)), "0")["utilization"] == [0.07, 0.93]


def test_amd_index_stands_in_the_second_line(tmp_path: Path) -> None:
    samples = amd_table.read(written(tmp_path, AMD))
    assert last(samples, "0") == {
        "memory_activity": 0.01, "temperature": 79, "power": 103, "power_limit": 300, "utilization": 1.0, "Fan": 40,
        "memory_used": 29777, "memory_total": 32624}
    assert last(samples, "1") == {
        "memory_activity": None, "temperature": None, "power": None, "power_limit": 750, "utilization": None,
        "memory_used": 149820, "memory_total": 196592}
    assert facts(samples, "1")["name"] == "...Instinct MI300X OAM"
    assert last(samples, "213534", "process")["device_memory"] == 29100     # VRAM, not GTT


def test_amd_prints_sizes_of_one_column_in_several_units_and_they_are_kept_in_one(tmp_path: Path) -> None:
    """MEM_USAGE holds `172.0 GB` beside `900.0 MB`."""
    start = AMD.index("| Processes:")
    head, rule = AMD[start:].splitlines()[1:3]
    rows = [f"| {gpu:>4} {pid:>10}  python3                2.0 MB   {vram:>8}   {used:>8}   50.0 % |"
            for gpu, pid, vram, used in ((0, 11, "170.0 GB", "172.0 GB"), (1, 12, "800.0 MB", "900.0 MB"))]
    table = "\n".join([AMD[:start] + "| Processes:" + " " * 67 + "|", head, rule, *rows, AMD.splitlines()[-1], ""])
    samples = amd_table.read(written(tmp_path, table))
    assert last(samples, "11", "process") == {"device_memory": 170_000, "GTT_MEM": 2, "MEM_USAGE": 172_000, "CU %": 50}
    assert last(samples, "12", "process")["MEM_USAGE"] == 900
    assert {series.unit for series in samples.series if series.quantity == "MEM_USAGE"} == {"MB"}
