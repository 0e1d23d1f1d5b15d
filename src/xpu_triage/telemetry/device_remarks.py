"""What misleads in a device's readings, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..text import clean

if TYPE_CHECKING:
    from .devices import Device

FULL = 0.9
"""Utilization that reads as busy all the time."""
LOW_POWER = 0.35
"""Power ÷ limit below which a device that computes is not seen: a hung one at 0.17, an idle one at 0.1. Judgement."""
STILL = 0.02
"""Share up to which something reads as not used at all."""
HIGH_POWER = 0.4
"""Power ÷ limit from which on a device is not idle, whatever its utilization reads. Judgement."""
HIGH_POWER_W = 200.0
"""The same where the limit is not known: accelerators idle below 150 W."""
MEMORY_HELD = 0.3
MEMORY_FREE = 0.1
"""Memory in use ÷ present up to which no weights and no cache are on a device."""
DISAGREE = 0.2
"""Difference between two tools that is worth a word."""


PACE = 0.8
"""Clock of one device ÷ that of its fastest peer, both at work, from which the difference is said. Judgement."""
AT_WORK = 0.3
"""Utilization from which on a device's clock is that of its work."""


def remarks(device: Device, devices: Sequence[Device]) -> Iterator[str]:
    """Of the measured device, and of those whose utilization is not known."""
    used, active, power, limit = (device.mean("utilization"), device.mean("memory_activity"), device.mean("power"),
                                  device.limit)
    share = power / limit if power is not None and limit else None
    name = f"device {clean(device.name)}"
    if used is not None and used >= FULL and share is not None and share <= LOW_POWER:
        if active is not None and active <= STILL:
            yield (f"{name} reads {used:.0%} busy at {share:.0%} of its power with {active:.0%} memory activity: a "
                   "kernel that spins or hangs, or a collective that waits for a peer, reads as full")
        else:
            yield (f"{name} reads {used:.0%} busy at {share:.0%} of its power: a waiting kernel reads as full, and "
                   "some tools read 100 % on an idle device. Power and memory activity tell")
    elif used is not None and used >= FULL and share is None and active is not None and active <= STILL:
        yield (f"{name} reads {used:.0%} busy with {active:.0%} memory activity: a kernel that spins or hangs reads as "
               "full. Its power would tell")
    if used is not None and used <= STILL and (device.memory or 0.0) >= MEMORY_HELD:
        yield (f"{name} reads {used:.0%} busy and holds {device.memory or 0.0:.0%} of its memory: held says what is "
               "allocated, not that anything runs")
    if device.loaded and device.memory is not None and device.memory <= MEMORY_FREE:
        yield (f"{name} holds {device.memory:.0%} of its memory while requests run: the model is not on it, or the "
               "requests run on another device than this one")
    yield from _unknown_use(devices)
    yield from _pace(devices)


def _pace(devices: Sequence[Device]) -> Iterator[str]:
    """Devices that work together go at the pace of the slowest, and the busiest one does not show it."""
    clocks = {device: clock for device in devices if (device.mean("utilization") or 0.0) >= AT_WORK
              and (clock := device.mean("core_clock"))}
    if len(clocks) < 2:
        return
    fastest = max(clocks.values())
    slow = [device for device, clock in clocks.items() if clock < PACE * fastest]
    if slow and len(slow) < len(clocks):
        read = ", ".join(f"{clean(device.name)} at {clocks[device]:,.0f} MHz" for device in slow[:8])
        yield (f"of {len(clocks)} devices at work device{'s' * (len(slow) > 1)} {read}, the fastest at "
               f"{fastest:,.0f}: where they share one model the slowest sets the pace of all. Its own figures, alone, "
               "tell what holds it")


def _unknown_use(devices: Sequence[Device]) -> Iterator[str]:
    silent = [device for device in devices if device.mean("utilization") is None]
    if any("MIG" in device.name.upper() for device in silent):
        yield ("a MIG instance has no utilization of its own; DCGM's GR_ENGINE_ACTIVE and DRAM_ACTIVE are per "
               "instance")
    busy = [device for device in silent if _draws_much(device)]
    if busy:
        watts = sorted(device.mean("power") or 0.0 for device in busy)
        names = ", ".join(clean(device.name) for device in busy[:8]) + ("…" if len(busy) > 8 else "")
        drawn = f"{watts[0]:,.0f} W" if len(busy) == 1 else f"{watts[0]:,.0f} to {watts[-1]:,.0f} W"
        yield (f"device{'s' * (len(busy) > 1)} {names} draw{'s' * (len(busy) == 1)} {drawn}, and the tool knows no "
               "utilization: not known is not idle")


def _draws_much(device: Device) -> bool:
    power, limit = device.mean("power"), device.limit
    return power is not None and (power / limit >= HIGH_POWER if limit else power >= HIGH_POWER_W)
