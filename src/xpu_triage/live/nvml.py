"""NVIDIA devices by NVML, written as `nvidia-smi --query-gpu=… --format=csv` writes them, times in UTC.

A cell that NVML cannot give reads as nvidia-smi writes it (`[N/A]`, `[GPU is lost]`) and ends nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime
from typing import Any

from ..text import clean
from .probe import Trouble

FILE = "device/nvidia-smi.csv"

REASONS = {
    "gpu_idle": 0x1, "applications_clocks_setting": 0x2, "sw_power_cap": 0x4, "hw_slowdown": 0x8,
    "hw_thermal_slowdown": 0x40, "hw_power_brake_slowdown": 0x80, "sw_thermal_slowdown": 0x20, "sync_boost": 0x10,
}
"""Bits of nvml.h, `nvmlClocksEventReason…`, by the name that nvidia-smi gives them."""

_MIB = 1 << 20
_UNKNOWN = {"GpuIsLost": "[GPU is lost]", "NotSupported": "[N/A]", "FunctionNotFound": "[N/A]",
            "NoPermission": "[Insufficient Permissions]"}

Ask = Callable[[Any, Any], str]
"""(nvml, handle) to a cell."""


def _memory(nvml: Any, device: Any) -> Any:
    """Without what the driver keeps for itself, as nvidia-smi counts; older drivers know the old call alone."""
    version = getattr(nvml, "nvmlMemory_v2", None)
    try:
        if version is not None:
            return nvml.nvmlDeviceGetMemoryInfo(device, version=version)
    except nvml.NVMLError:
        pass
    return nvml.nvmlDeviceGetMemoryInfo(device)


def _reasons(nvml: Any, device: Any) -> int:
    ask = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    return int((ask or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(device))


def _text(value: Any) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return clean(text).replace(",", ";")


ONCE: dict[str, Ask] = {
    "name": lambda n, d: _text(n.nvmlDeviceGetName(d)),
    "power.default_limit [W]": lambda n, d: _watt(n.nvmlDeviceGetPowerManagementDefaultLimit(d)),
    "clocks.max.sm [MHz]": lambda n, d: f"{n.nvmlDeviceGetMaxClockInfo(d, n.NVML_CLOCK_SM)} MHz",
    "clocks.max.memory [MHz]": lambda n, d: f"{n.nvmlDeviceGetMaxClockInfo(d, n.NVML_CLOCK_MEM)} MHz",
}
"""What does not change."""

EACH: dict[str, Ask] = {
    "utilization.gpu [%]": lambda n, d: f"{n.nvmlDeviceGetUtilizationRates(d).gpu} %",
    "utilization.memory [%]": lambda n, d: f"{n.nvmlDeviceGetUtilizationRates(d).memory} %",
    "memory.used [MiB]": lambda n, d: f"{_memory(n, d).used // _MIB} MiB",
    "memory.total [MiB]": lambda n, d: f"{_memory(n, d).total // _MIB} MiB",
    "power.draw [W]": lambda n, d: _watt(n.nvmlDeviceGetPowerUsage(d)),
    "enforced.power.limit [W]": lambda n, d: _watt(n.nvmlDeviceGetEnforcedPowerLimit(d)),
    "clocks.current.sm [MHz]": lambda n, d: f"{n.nvmlDeviceGetClockInfo(d, n.NVML_CLOCK_SM)} MHz",
    "clocks.current.memory [MHz]": lambda n, d: f"{n.nvmlDeviceGetClockInfo(d, n.NVML_CLOCK_MEM)} MHz",
    "temperature.gpu": lambda n, d: f"{n.nvmlDeviceGetTemperature(d, n.NVML_TEMPERATURE_GPU)}",
    "pstate": lambda n, d: f"P{n.nvmlDeviceGetPerformanceState(d)}",
    "clocks_event_reasons.active": lambda n, d: f"0x{_reasons(n, d):016X}",
}

HEADER = ", ".join(("timestamp", "index", *ONCE, *EACH, *(f"clocks_event_reasons.{name}" for name in REASONS)))


def _watt(milliwatt: int) -> str:
    return f"{milliwatt / 1000:.2f} W"


class Nvml:
    """The devices that NVML sees. Raises `Trouble` where it sees none."""

    interval_s = 1.0

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self.trouble: list[str] = []
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise Trouble(f"NVML: {_name(error)}", final=True) from None
        try:
            self.count = int(nvml.nvmlDeviceGetCount())
        except nvml.NVMLError as error:
            self.close()
            raise Trouble(f"NVML: {_name(error)}", final=True) from None
        if not self.count:
            self.close()
            raise Trouble("NVML sees no device", final=True)
        self._once: dict[int, dict[str, str]] = {}
        self.label = f"NVML, {self.count} NVIDIA device{'s' if self.count > 1 else ''}"

    def rows(self, moment: datetime) -> list[str]:
        """One line a device, in the order of HEADER."""
        stamp = f"{moment:%Y/%m/%d %H:%M:%S}.{moment.microsecond // 1000:03d}"
        return [", ".join((stamp, str(index), *self._cells(index))) for index in range(self.count)]

    def sample(self, moment: datetime) -> dict[str, tuple[str, str]]:
        """File to (header, lines)."""
        return {FILE: (f"{HEADER}\n", "".join(f"{row}\n" for row in self.rows(moment)))}

    def close(self) -> None:
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _cells(self, index: int) -> list[str]:
        nvml = self._nvml
        try:
            device = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            return [self._unknown(index, error)] * (len(ONCE) + len(EACH) + len(REASONS))
        if index not in self._once:
            self._once[index] = {name: self._cell(index, device, ask) for name, ask in ONCE.items()}
        cells = [*self._once[index].values(), *(self._cell(index, device, ask) for ask in EACH.values())]
        active = cells[-1]
        if not active.startswith("0x"):
            return [*cells, *(active for _ in REASONS)]
        return [*cells, *("Active" if int(active, 16) & bit else "Not Active" for bit in REASONS.values())]

    def _cell(self, index: int, device: Any, ask: Ask) -> str:
        try:
            return ask(self._nvml, device)
        except self._nvml.NVMLError as error:
            return self._unknown(index, error)
        except (AttributeError, TypeError, ValueError):  # a call that this binding lacks
            return "[N/A]"

    def _unknown(self, index: int, error: Exception) -> str:
        name = _name(error)
        if name not in ("NotSupported", "FunctionNotFound") and len(self.trouble) < 20:
            line = f"device {index}: {name}"
            if line not in self.trouble:
                self.trouble.append(line)
        return _UNKNOWN.get(name, "[Unknown Error]")


def _name(error: Exception) -> str:
    """`GpuIsLost` of `NVMLError_GpuIsLost`."""
    return type(error).__name__.removeprefix("NVMLError_") or "error"
