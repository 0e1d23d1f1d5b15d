"""The device by NVML (a mocked one, with a lost GPU among them) or by a vendor's tool (scripts on a PATH of ours)."""

from __future__ import annotations

import csv
import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from xpu_triage.evidence import detect
from xpu_triage.live import command, device, nvml, smi
from xpu_triage.live.clock import Clock
from xpu_triage.live.folder import Folder
from xpu_triage.live.probe import Trouble
from xpu_triage.live.smi import without_processes

MOMENT = datetime(2026, 11, 30, 6, 20, 31, 123_000, UTC)


class NVMLError(Exception):
    pass


class NVMLError_GpuIsLost(NVMLError):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLError_LibraryNotFound(NVMLError):
    pass


class FakeNvml:
    """Two devices of which the second is lost; the first has no memory clock to tell."""

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    closed = False

    def nvmlInit(self):
        pass

    def nvmlShutdown(self):
        self.closed = True

    def nvmlDeviceGetCount(self):
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):
        if index == 1:
            raise NVMLError_GpuIsLost
        return index

    def nvmlDeviceGetName(self, _):
        return b"NVIDIA L40S, \x1b[31mred"

    def nvmlDeviceGetUtilizationRates(self, _):
        return SimpleNamespace(gpu=97, memory=31)

    def nvmlDeviceGetMemoryInfo(self, _):
        return SimpleNamespace(used=1235 << 20, total=46068 << 20)

    def nvmlDeviceGetPowerUsage(self, _):
        return 71_204

    def nvmlDeviceGetEnforcedPowerLimit(self, _):
        return 350_000

    def nvmlDeviceGetPowerManagementDefaultLimit(self, _):
        return 350_000

    def nvmlDeviceGetClockInfo(self, _, kind):
        if kind == self.NVML_CLOCK_MEM:
            raise NVMLError_NotSupported
        return 2_250

    def nvmlDeviceGetMaxClockInfo(self, _, kind):
        return {1: 2_520, 2: 9_001}[kind]

    def nvmlDeviceGetTemperature(self, _, kind):
        return 61

    def nvmlDeviceGetPerformanceState(self, _):
        return 0

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _):  # the older name
        return 0x44


def cells(fake: FakeNvml) -> list[dict[str, str]]:
    rows = nvml.Nvml(fake).rows(MOMENT)
    return list(csv.DictReader([nvml.HEADER, *rows], skipinitialspace=True))


def test_nvml_is_written_as_nvidia_smi_writes_its_query():
    first = cells(FakeNvml())[0]
    assert first["timestamp"] == "2026/11/30 06:20:31.123"
    assert first["name"] == r"NVIDIA L40S; \x1b[31mred"
    assert first["utilization.gpu [%]"] == "97 %"
    assert first["memory.used [MiB]"] == "1235 MiB"
    assert first["power.draw [W]"] == "71.20 W"
    assert first["enforced.power.limit [W]"] == "350.00 W"
    assert first["clocks.current.sm [MHz]"] == "2250 MHz"
    assert first["clocks_event_reasons.active"] == "0x0000000000000044"
    active = {name for name in nvml.REASONS if first[f"clocks_event_reasons.{name}"] == "Active"}
    assert active == {"sw_power_cap", "hw_thermal_slowdown"}


def test_a_lost_gpu_and_a_missing_figure_are_unknown_and_end_nothing():
    first, lost = cells(FakeNvml())
    assert first["clocks.current.memory [MHz]"] == "[N/A]"
    assert lost["index"] == "1"
    assert {value for name, value in lost.items() if name not in ("timestamp", "index")} == {"[GPU is lost]"}


def test_what_nvml_says_comes_back_through_the_reader(tmp_path):
    fake = FakeNvml()
    probe = device.DeviceProbe(lambda: nvml.Nvml(fake), Folder(tmp_path), Clock())
    for _ in range(3):
        probe.sample()
    probe.close()
    assert fake.closed
    assert probe.notes == ["NVML, 2 NVIDIA devices", "device 1: GpuIsLost"]
    (piece,) = detect.find(tmp_path / nvml.FILE)
    samples = piece.reader.read(piece.path)
    by_device = {series.of: series.values for series in samples.of("utilization")}
    assert by_device["0"].tolist() == [0.97, 0.97, 0.97]
    assert np.isnan(by_device["1"]).all()
    assert samples.clock == "epoch"


def tool(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def found(folder: Path) -> device.Source:
    def no_nvml():
        raise Trouble("nvidia-ml-py is not installed")

    return device.found(lambda argv: command.run(argv, timeout_s=60.0, env=command.environment(())), nvml=no_nvml,
                        path=str(folder))


KUNLUN = """cat <<'E'
Mon Aug 24 21:19:00 2026
+-----------------------------------------------------------------------------+
| XPU-SMI               Driver Version: 515.58       XPU-RT Version: N/A      |
|-------------------------------+----------------------+----------------------+
| XPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | XPU-Util  Compute M. |
|===============================+======================+======================|
|   0  P800 OAM           N/A   | 00000000:03:00.0 N/A |                    0 |
| N/A   39C  N/A     91W / 400W |  31058MiB / 98304MiB |     17%      Default |
+-------------------------------+----------------------+----------------------+
| Processes:                                                                  |
|    0   N/A  N/A     77      C   python serve.py --api-key hunter2   300MiB  |
+-----------------------------------------------------------------------------+
E"""
INTEL = """if [ "$1" != dump ]; then echo "Intel XPU System Management Interface -- v1.2"; exit 0; fi
echo "Timestamp, DeviceId, GPU Utilization (%), GPU Power (W)"
echo "21:23:00.000,    0, 99.55, 119.61"
"""
AMD = """echo '{"card0": {"GPU use (%)": "12"}}'"""


def test_the_two_programs_named_xpu_smi_are_told_apart_by_what_they_print(tmp_path):
    for name, script in (("kunlun", KUNLUN), ("intel", INTEL)):
        (tmp_path / name).mkdir()
        tool(tmp_path / name, "xpu-smi", script)
    path = os.environ["PATH"]
    assert found(Path(f"{tmp_path / 'kunlun'}:{path}")).label == "xpu-smi (Kunlun)"
    assert found(Path(f"{tmp_path / 'intel'}:{path}")).label == "xpu-smi (Intel)"


def test_a_tool_s_output_is_kept_as_it_is_with_times_and_without_its_list_of_processes(tmp_path):
    tool(tmp_path, "xpu-smi", KUNLUN.replace("cat", "/bin/cat"))
    probe = device.DeviceProbe(lambda: found(tmp_path), Folder(tmp_path / "out"), Clock())
    probe.sample()
    probe.sample()
    text = (tmp_path / "out/device/xpu-smi-kunlun.txt").read_text()
    assert "hunter2" not in text
    assert text.count("XPU-RT Version") == 2
    assert text.startswith("# 20")
    (piece,) = detect.find(tmp_path / "out/device/xpu-smi-kunlun.txt")
    (series,) = piece.reader.read(piece.path).of("utilization")
    assert series.values.tolist() == [0.17, 0.17]


def test_lines_with_times_follow_one_header(tmp_path):
    tool(tmp_path, "xpu-smi", INTEL)
    probe = device.DeviceProbe(lambda: found(tmp_path), Folder(tmp_path / "out"), Clock())
    probe.sample()
    probe.sample()
    lines = (tmp_path / "out/device/xpu-smi-intel.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["Timestamp", "21:23:00.000", "21:23:00.000"]


def test_every_card_is_asked_for_its_usages_where_npu_smi_lists_them(tmp_path):
    tool(tmp_path, "npu-smi", r"""case "$*" in
info) echo "| npu-smi 24.1 |"; echo "| Chip | AICore(%) |"; echo "| 0 | 9 |"; echo "| NPU | Process id |"; echo "|77|";;
"info -l") echo "NPU ID : 0"; echo "NPU ID : 3";;
"info -t usages -i "*) echo "NPU ID : $5"; echo "Aicore Usage Rate(%) : 4$5";;
esac""")
    probe = device.DeviceProbe(lambda: found(tmp_path), Folder(tmp_path / "out"), Clock())
    probe.sample()
    assert "Process" not in (tmp_path / "out/device/npu-smi-info.txt").read_text()
    usages = (tmp_path / "out/device/npu-smi-usages.txt").read_text().splitlines()
    assert usages[1:] == ["NPU ID : 0", "Aicore Usage Rate(%) : 40", "NPU ID : 3", "Aicore Usage Rate(%) : 43"]


def test_a_tool_that_hangs_or_fails_gives_way_to_the_next_and_is_named_where_there_is_none(tmp_path):
    tool(tmp_path, "npu-smi", "echo 'dcmi module initialize failed' >&2; exit 255")
    with pytest.raises(Trouble) as trouble:
        found(tmp_path)
    assert str(trouble.value).startswith(
        "none found: nvidia-ml-py is not installed, and no vendor's tool answers: npu-smi does not answer as npu-smi "
        "(Ascend) does (exit 255): dcmi module initialize failed. Run it where the device is")
    tool(tmp_path, "rocm-smi", AMD)
    assert found(tmp_path).label == "rocm-smi"


def test_no_device_at_all_is_one_final_line(tmp_path):
    def missing():
        fake = FakeNvml()

        def fail():
            raise NVMLError_LibraryNotFound

        fake.nvmlInit = fail
        return fake

    with pytest.raises(Trouble) as trouble:
        device.found(lambda argv: None, nvml=missing, path=str(tmp_path))
    assert str(trouble.value) == (
        "none found: no NVIDIA driver here (NVML: LibraryNotFound), and no vendor's tool on PATH. Run it where the "
        "device is, or paste what its tool prints into the folder")
    assert trouble.value.final


class Waits(Clock):
    def __init__(self) -> None:
        super().__init__()
        self.at = 0.0

    def now(self):
        return self.at

    def wait(self, seconds, stop):
        self.at += seconds
        return False


@pytest.mark.parametrize(("answers", "said", "waited"), [
    ([None, None, True], "its figures are in the server's /metrics (none found: no driver)", 0.5),
    ([None, False], "none found: no driver. Run it where the device is, or paste what its tool prints into the folder",
     0.25),
    ([None] * 100, "none found: no driver. Run it where the device is, or paste what its tool prints into the folder",
     device.WAIT_S)])
def test_where_the_server_tells_of_its_device_a_missing_tool_is_no_alarm(tmp_path, answers, said, waited):
    def none():
        raise Trouble(f"none found: no driver{device._TODO}", final=True)

    clock, left = Waits(), iter(answers)
    probe = device.DeviceProbe(none, Folder(tmp_path), clock, elsewhere=lambda: next(left))
    with pytest.raises(Trouble) as trouble:
        probe.sample()
    assert (str(trouble.value), trouble.value.final, clock.at) == (said, True, waited)


def test_a_tool_that_costs_much_is_asked_less_often_but_often_enough(tmp_path):
    heavy = SimpleNamespace(label="slow", interval_s=2.0, trouble=[], needed_interval_s=20.0, sample=lambda _: {},
                            close=lambda: None)
    probe = device.DeviceProbe(lambda: heavy, Folder(tmp_path), Clock(), seconds=30.0)
    probe.sample()
    assert probe.interval_s == 6.0


def test_a_table_without_processes_stays_whole():
    table = "+---+\n| 0 910B |\n+---+\n"
    assert without_processes(table) == table


def test_each_tool_has_a_file_of_its_own():
    assert len({one.file for one in smi.TOOLS}) == len(smi.TOOLS)
