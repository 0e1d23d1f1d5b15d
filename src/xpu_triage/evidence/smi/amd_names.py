"""The names that AMD's tools give to quantities, across their versions.

rocm-smi (`rocm_smi.py`): `GPU memory use (%)` of releases before ROCm 6 and `GPU Memory Read/Write Activity (%)` since
are the driver's `mem_busy_percent`, activity; `GPU Memory Allocated (VRAM%)` is memory in use; `Max Graphics Package
Power (W)` is the cap in force. amd-smi (`amdsmi_commands.py`): in `metric`, `mem` is the temperature of the memory, in
`monitor` its activity. hy-smi is rocm-smi for Hygon's devices.
"""

from __future__ import annotations

from collections.abc import Iterable

from .columns import Column, Header, Place, header, is_unknown

ROCM = (
    Column("name", ("card series", "device name", "card model")),
    Column("utilization", ("gpu use", "hcu use", "dcu use"), "%"),
    Column("memory_activity", ("gpu memory read/write activity", "gpu memory use"), "%"),
    Column("memory_used_fraction", ("gpu memory allocated", "hcu memory use", "dcu memory use"), "%"),
    Column("memory_used", ("vram total used memory",), "B"),
    Column("memory_total", ("vram total memory",), "B"),
    Column("power", ("current socket graphics package power", "average graphics package power", "power"), "W"),
    Column("power_limit", ("max graphics package power",), "W"),
    Column("core_clock", ("sclk clock speed",), "MHz"),
    Column("memory_clock", ("mclk clock speed",), "MHz"),
    Column("temperature", ("temperature (sensor edge)", "temperature (sensor junction)"), "C"),
    Column("energy", ("accumulated energy",), "uJ"),
)

METRIC = (
    Column("name", ("asic/market_name", "market_name")),
    Column("utilization", ("usage/gfx_activity", "gfx_activity"), "%"),
    Column("memory_activity", ("usage/umc_activity", "umc_activity"), "%"),
    Column("memory_used", ("mem_usage/used_vram", "used_vram"), "MB"),
    Column("memory_total", ("mem_usage/total_vram", "total_vram", "vram/size"), "MB"),
    Column("power", tuple(f"{section}{leaf}" for section in ("power/", "") for leaf in (
        "socket_power", "current_socket_power", "average_socket_power")), "W"),
    Column("power_limit", ("limit/socket_power", "limit/ppt0/socket_power_limit", "power/power_limit"), "W"),
    Column("core_clock", ("clock/gfx_0/clk", "clock/gfx/clk", "clock/gfx_clock", "gfx_0_clk", "gfx_clk"), "MHz"),
    Column("core_clock_max", ("clock/gfx_0/max_clk", "clock/gfx/max_clk", "gfx_0_max_clk", "gfx_max_clk"), "MHz"),
    Column("memory_clock", ("clock/mem_0/clk", "clock/mem/clk", "clock/mem_clock", "mem_0_clk", "mem_clk"), "MHz"),
    Column("memory_clock_max", ("clock/mem_0/max_clk", "clock/mem/max_clk", "mem_0_max_clk", "mem_max_clk"), "MHz"),
    Column("temperature", ("temperature/edge", "edge", "temperature/hotspot", "hotspot"), "C"),
    Column("energy", ("energy/total_energy_consumption", "total_energy_consumption"), "J"),
    Column("limit_reason", ("power/throttle_status", "throttle_status")),
)

MONITOR = (
    Column("utilization", ("gfx", "gfx_util", "gfx%"), "%"),
    Column("memory_activity", ("mem", "mem_util", "mem%"), "%"),
    Column("memory_used", ("vram_used",), "MB"),
    Column("memory_total", ("vram_total",), "MB"),
    Column("memory_used_fraction", ("vram_percent", "vram%"), "%"),
    Column("power", ("power_usage", "power"), "W"),
    Column("power_limit", ("max_power", "power_cap", "pwr_cap"), "W"),
    Column("core_clock", ("gfx_clk", "gfx_clock"), "MHz"),
    Column("memory_clock", ("mem_clock", "mem_clk"), "MHz"),
    Column("temperature", ("hotspot_temperature", "gpu_temp", "gpu_t"), "C"),
    Column("limit_reason", ("throttle_status", "throttle")),
)

FREE = ("unthrottled", "none", "0")
"""What `throttle_status` says when nothing limits."""


def rocm_header(text: str) -> Header:
    """A header of rocm-smi; a clock has its unit with its value, and a colon in its name."""
    head = header(text)
    return Header(head.name.rstrip(": "), head.key, head.unit)


def is_monitor(found: Iterable[str]) -> bool:
    """Whether these names are those of `amd-smi monitor`."""
    return bool(set(found) & {"power_usage", "gfx", "gfx_util", "hotspot_temperature", "gfx_clk", "gfx_clock",
                              "vram_used", "vram_total"})


def partition(gpu: str, xcp: str) -> str:
    """Device, and which of its partitions where it is not the first."""
    return f"{gpu}/{xcp}" if xcp.isdigit() and xcp != "0" else gpu


def state(place: Place, text: str) -> str:
    """A cell as it stands, but for the state of throttling: `none` where nothing limits."""
    if place.quantity != "limit_reason" or is_unknown(text):
        return text
    return "none" if text.lower() in FREE else text.lower()
