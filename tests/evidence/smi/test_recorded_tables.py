"""Tables that others printed on real devices: the values that a person reads off them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from smi_tables import MIB, PRINTS, facts, last, names
from xpu_triage.samples import Samples

H100 = {"power_limit": 700, "memory_total": 81559 * MIB}
L40S = {"power_limit": 350, "memory_total": 46068 * MIB}
P800 = {"power_limit": 400, "memory_total": 98304 * MIB, "utilization": 0, "L3-Usage": 0, "L3-Usage total": 96}
MLU = {"power": 107, "power_limit": 250, "memory_used": 0, "memory_total": 20638 * MIB, "utilization": 0}
EXPECTED: dict[str, tuple[str, dict[str, dict[str, float | None]]]] = {
    "nvidia-h100-80gb-hbm3-idle-table.txt": ("nvidia_table", {
        "0": H100 | {"temperature": 41, "power": 69, "memory_used": 0, "utilization": 0}}),
    "nvidia-h100-80gb-hbm3-load-table.txt": ("nvidia_table", {
        "0": H100 | {"temperature": 59, "power": 629, "memory_used": 19818 * MIB, "utilization": 1}}),
    "nvidia-l40s-idle-table.txt": ("nvidia_table", {
        "0": L40S | {"temperature": 64, "power": 242, "memory_used": 0, "utilization": 1}}),
    "nvidia-l40s-load-table.txt": ("nvidia_table", {
        "0": L40S | {"temperature": 54, "power": 110, "memory_used": 1235 * MIB, "utilization": 0.09}}),
    "kunlun-xpu-smi-table-p800-idle-mem-held.txt": ("kunlun_table", {
        "0": P800 | {"temperature": 39, "power": 91, "memory_used": 31058 * MIB},
        "1": P800 | {"temperature": 38, "power": 94, "memory_used": 0},
        "2": P800 | {"temperature": 44, "power": 93, "memory_used": 0},
        "3": P800 | {"temperature": 44, "power": 94, "memory_used": 0}}),
    "cambricon-cnmon-mlu370x8-idle.txt": ("cambricon", {
        "0": MLU | {"temperature": 28, "Fan": 0}, "1": MLU | {"temperature": 32, "Fan": 0}}),
    "gaudi-hl-smi-hl205-15pct.txt": ("gaudi", {
        "0": {"temperature": 33, "power": 104, "power_limit": 350, "memory_used": 512 * MIB,
              "memory_total": 32768 * MIB, "utilization": 0.15}}),
    "npu-smi-info-910b2-busy-9pct.txt": ("ascend_table", {
        "3": {"power": 119.9, "temperature": 45, "utilization": 0.09, "memory_used": 61125, "memory_total": 65536}}),
    "npu-smi-info-910b3-serving-0pct-hbm-94.txt": ("ascend_table", {
        "3": {"power": 93.7, "temperature": 33, "utilization": 0, "memory_used": 61596, "memory_total": 65536},
        "4": {"power": 96.2, "temperature": 40, "utilization": 0, "memory_used": 61756, "memory_total": 65536},
        "5": {"power": 92.6, "temperature": 37, "utilization": 0, "memory_used": 61620, "memory_total": 65536},
        "6": {"power": 95.3, "temperature": 38, "utilization": 0, "memory_used": 61621, "memory_total": 65536}}),
    "npu-smi-info-910c-a3-24.1.rc3.7-two-chips-idle.txt": ("ascend_table", {
        "0/0": {"power": 178.8, "temperature": 36, "utilization": 0, "memory_used": 3397, "memory_total": 65536},
        "0/1": {"power": None, "temperature": 36, "utilization": 0, "memory_used": 3186, "memory_total": 65536}}),
    "rocm-smi-concise-mi300x-idle.txt": ("rocm_table", {
        "0": {"temperature": 43, "power": 142, "core_clock": 133, "memory_clock": 900, "power_limit": 750,
              "memory_used_fraction": 0, "utilization": 0},
        "1": {"temperature": 37, "power": 137, "core_clock": 134, "memory_clock": 900, "power_limit": 750,
              "memory_used_fraction": 0, "utilization": 0}}),
    "rocm-smi-concise-rdna4-GPU100-while-idle-31W.txt": ("rocm_table", {
        "0": {"temperature": 45, "power": 31, "core_clock": 2324, "memory_clock": 96, "power_limit": 210,
              "memory_used_fraction": 0.76, "utilization": 1}}),
}
NAMES = {"nvidia-h100": "NVIDIA H100 80GB HBM3", "nvidia-l40s": "NVIDIA L40S", "kunlun": "P800 OAM",
         "cambricon": "MLU370-X8", "gaudi": "HL-205", "npu-smi-info-910b2": "910B2", "npu-smi-info-910b3": "910B3",
         "npu-smi-info-910c": "Ascend910"}
PROCESSES = {
    "nvidia-h100-80gb-hbm3-load-table.txt": {
        "11327": ("memhog", 2566), "11328": ("memhog", 1542), "11345": ("gpu_burn", 15690)},
    "nvidia-l40s-load-table.txt": {"20037": ("ffmpeg", 538), "20038": ("ffmpeg", 681)},
}


@pytest.fixture
def prints(shared: Path) -> Path:
    folder = shared / "samples" / "smi"
    if not folder.is_dir():
        pytest.skip("no ../shared/samples/smi: output recorded by others is not part of the repository")
    return folder


def read(path: Path) -> tuple[str, Samples]:
    head = path.read_bytes()[:1 << 18].decode("utf-8", "replace")
    (reader,) = [name for name in PRINTS if import_module(f"xpu_triage.evidence.smi.{name}").matches(head)]
    return reader, import_module(f"xpu_triage.evidence.smi.{reader}").read(path)


@pytest.mark.parametrize("name", EXPECTED)
def test_values_are_those_a_person_reads(name: str, prints: Path) -> None:
    reader, samples = read(prints / name)
    expected_reader, devices = EXPECTED[name]
    assert (reader, samples.skipped) == (expected_reader, 0)
    assert names(samples) == list(devices)
    for of, expected in devices.items():
        found = last(samples, of)
        assert {key: found[key] for key in expected} == {
            key: value if value is None else pytest.approx(value) for key, value in expected.items()}
        wanted = next((product for start, product in NAMES.items() if name.startswith(start)), None)
        assert facts(samples, of).get("name") == wanted


@pytest.mark.parametrize("name", PROCESSES)
def test_processes_are_those_a_person_reads(name: str, prints: Path) -> None:
    _, samples = read(prints / name)
    found = {pid: (facts(samples, pid, "process")["name"], last(samples, pid, "process")["device_memory"])
             for pid in names(samples, "process")}
    assert found == {pid: (program, pytest.approx(mib * MIB)) for pid, (program, mib) in PROCESSES[name].items()}


def test_no_other_recording_is_claimed(prints: Path) -> None:
    for path in sorted(prints.parent.rglob("*")):
        if path.is_file() and path.name not in EXPECTED:
            head = path.read_bytes()[:1 << 18].decode("utf-8", "replace")
            assert not [name for name in PRINTS
                        if import_module(f"xpu_triage.evidence.smi.{name}").matches(head)], path.name
