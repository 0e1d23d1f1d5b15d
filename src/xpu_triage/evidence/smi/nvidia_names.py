"""The names that NVIDIA's tools give to quantities and to the limits of a clock.

`nvidia-smi --help-query-gpu` describes those of the queries, `nvidia-smi dmon -h` those of the monitor. Its
`utilization.memory` is the share of time in which memory was read or written; memory in use is `memory.used`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .columns import Column, is_unknown

QUERY = (
    Column("name", ("name", "gpu_name")),
    Column("utilization", ("utilization.gpu", "utilization.aip"), "%"),  # aip: Gaudi's hl-smi takes the same queries
    Column("memory_activity", ("utilization.memory",), "%"),
    Column("memory_used", ("memory.used",), "MiB"),
    Column("memory_total", ("memory.total",), "MiB"),
    Column("power", ("power.draw", "power.draw.average", "power.draw.instant"), "W"),
    Column("power_limit", ("enforced.power.limit", "power.limit"), "W"),
    Column("power_rated", ("power.default_limit",), "W"),
    Column("core_clock", ("clocks.current.sm", "clocks.sm", "clocks.current.graphics", "clocks.gr"), "MHz"),
    Column("memory_clock", ("clocks.current.memory", "clocks.mem"), "MHz"),
    Column("core_clock_max", ("clocks.max.sm", "clocks.max.graphics", "clocks.max.gr"), "MHz"),
    Column("memory_clock_max", ("clocks.max.memory", "clocks.max.mem"), "MHz"),
    Column("temperature", ("temperature.gpu", "temperature.aip"), "C"),
    Column("energy", ("total_energy_consumption", "energy"), "mJ"),
)

APPS = (
    Column("device_memory", ("used_gpu_memory", "used_memory"), "MiB"),
)

MONITOR = (
    Column("utilization", ("sm",), "%"),
    Column("memory_activity", ("mem",), "%"),
    Column("memory_used", ("fb",), "MB"),
    Column("power", ("pwr",), "W"),
    Column("core_clock", ("pclk",), "MHz"),
    Column("memory_clock", ("mclk",), "MHz"),
    Column("temperature", ("gtemp", "temp"), "C"),
)

PROCESSES = (
    Column("utilization", ("sm",), "%"),
    Column("memory_activity", ("mem",), "%"),
    Column("device_memory", ("fb",), "MB"),
    Column("name", ("command",)),
)

TREE = (
    Column("name", ("product_name",)),
    Column("utilization", ("utilization/gpu", "utilization/gpu_util"), "%"),
    Column("memory_activity", ("utilization/memory", "utilization/memory_util"), "%"),
    Column("memory_used", ("fb_memory_usage/used",), "MiB"),
    Column("memory_total", ("fb_memory_usage/total",), "MiB"),
    Column("power", tuple(f"{section}power_readings/{leaf}" for leaf in (
        "power_draw", "average_power_draw", "instantaneous_power_draw", "instant_power_draw")
        for section in ("gpu_", "")), "W"),
    Column("power_limit", tuple(f"{section}power_readings/{leaf}" for leaf in (
        "current_power_limit", "enforced_power_limit", "power_limit") for section in ("gpu_", "")), "W"),
    Column("power_rated", ("gpu_power_readings/default_power_limit", "power_readings/default_power_limit"), "W"),
    Column("core_clock", ("clocks/sm", "clocks/sm_clock", "clocks/graphics", "clocks/graphics_clock"), "MHz"),
    Column("memory_clock", ("clocks/memory", "clocks/mem_clock"), "MHz"),
    Column("core_clock_max", ("max_clocks/sm", "max_clocks/sm_clock", "max_clocks/graphics",
                              "max_clocks/graphics_clock"), "MHz"),
    Column("memory_clock_max", ("max_clocks/memory", "max_clocks/mem_clock"), "MHz"),
    Column("temperature", ("temperature/gpu_current_temp", "temperature/gpu_temp"), "C"),
)
"""Of `nvidia-smi -q`, as text and as XML: section and entry, in snake case."""

_BITS = ("gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost",
         "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clocks_setting")
"""`nvmlClocksEventReasons*` of nvml.h, from bit 0 up."""

_ALIASES = {"idle": "gpu_idle", "display_clock_setting": "display_clocks_setting", "none": ""}
_REASON = re.compile(r"clocks_(?:event|throttle)_reasons?[_./](?!counters)(.+)")


def snake(name: str) -> str:
    """`HW Thermal Slowdown` as `hw_thermal_slowdown`."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def reason(name: str) -> str:
    """The limit that a header or a path is about (`clocks_event_reasons.sw_power_cap`); empty for another one."""
    match = _REASON.fullmatch(name.lower())
    if match is None:
        return ""
    bare = snake(match[1].rpartition("/")[2])
    bare = re.sub(r"clocks_(?:event|throttle)_reasons?_", "", bare)
    return _ALIASES.get(bare, bare)


def limits(states: Mapping[str, str]) -> str | None:
    """The limits that are active, with commas; `none` where the tool says of those of power and of heat that they are
    not; None where it does not say. `states` has a cell by `reason`, a bit mask under `active`."""
    said = {name: text.strip().lower() for name, text in states.items() if not is_unknown(text)}
    active = [name for name, text in said.items() if text in ("active", "1", "yes") and name not in ("active",)]
    if (mask := _mask(said.get("active", ""))) is not None:
        unnamed = [f"bit {bit}" for bit in range(len(_BITS), mask.bit_length()) if mask >> bit & 1]
        active += [name for bit, name in enumerate(_BITS) if mask >> bit & 1 and name not in active] + unnamed
    if active:
        return ", ".join(active)
    if mask == 0 or ({"sw_power_cap", "sw_thermal_slowdown"} <= said.keys()
                     and ("hw_slowdown" in said or "hw_thermal_slowdown" in said)):
        return "none"
    return None


def _mask(text: str) -> int | None:
    return int(text, 16) if re.fullmatch(r"0x[0-9a-f]{1,16}", text) else None
