"""Signals of the device from what vendor tools read: utilization, memory, clocks, power.

One device is measured, the same for all signals: the busiest of those that serve. A single reading is not a mean, and
clocks and power count only while the device is known to work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..samples import Fact, Floats, Samples, Series
from ..signals import Signal, Value
from ..text import clean
from . import exporters
from .device_remarks import DISAGREE, remarks
from .hosts import Host, hosts
from .measured import Measured

Spans = Sequence[tuple[float, float]]
"""Intervals, in seconds since the epoch."""

FEWEST = 3
"""Readings that make a mean."""

SHORTEST_S = 1.0
"""Tools average over a sixth of a second to a second: readings within one are one reading."""

LOADED = 0.5
"""Utilization from which on a device is taken to be under load where nothing is known about requests."""

AT_REST = 0.05
"""Utilization up to which a device lowers its clocks for want of work. Judgement."""

HELD = 0.3
"""Memory in use ÷ present from which on a device is taken to serve: weights and cache are most of it."""

WHILE_BUSY = ("utilization", "memory_activity", "power", "core_clock", "memory_clock")
"""Quantities that count only while requests run; memory held and limits do not depend on it."""

SAMPLE = "sample once a second for 30 s while requests run"


@dataclass(frozen=True, eq=False)
class Readings:
    """One quantity of one device as one tool read it, while requests ran where that is known."""

    tool: str
    source: str
    times: Floats
    values: Floats
    interval_s: float | None
    loaded: bool
    """Only readings while requests ran are in here."""
    outside: int = 0
    """Readings left out because no request ran."""

    @property
    def known(self) -> Floats:
        return self.values[~np.isnan(self.values)]

    @property
    def span_s(self) -> float | None:
        """From the first to the last reading; None where no time is known."""
        times = self.times[~np.isnan(self.values)]
        if len(times) and not np.isnan(times).any():
            return float(times.max() - times.min())
        return None if self.interval_s is None else max(len(self.known) - 1, 0) * self.interval_s

    @property
    def is_mean(self) -> bool:
        return len(self.known) >= FEWEST and (self.span_s is None or self.span_s >= SHORTEST_S)

    @property
    def mean(self) -> float:
        return float(self.known.mean())


@dataclass(frozen=True, eq=False)
class Device:
    """One device: the best readings of every quantity, and those of other tools."""

    name: str
    best: dict[str, Readings]
    others: dict[str, list[Readings]]
    facts: tuple[Fact, ...]
    silent: dict[str, str]
    """Quantities that a tool has a column for and no figure (`N/A`, `-`), and the tool."""
    host: str = ""
    """By its first file; empty where all files are of one host."""

    @property
    def title(self) -> str:
        return f"device {clean(self.name)}" + (f" of {self.host}" if self.host else "")

    def mean(self, quantity: str) -> float | None:
        """None where there is no reading."""
        found = self.best.get(quantity)
        return found.mean if found is not None and len(found.known) else None

    @property
    def loaded(self) -> bool:
        """Some readings are known to be from while requests ran."""
        return any(found.loaded and len(found.known) for found in self.best.values())

    @property
    def memory(self) -> float | None:
        """Memory in use ÷ present."""
        used, total = self.mean("memory_used"), self.mean("memory_total")
        if used is not None and total:
            return used / total
        return self.mean("memory_used_fraction")

    @property
    def limit(self) -> float | None:
        """Power limit in force, in watts; the rated one where only that is known."""
        return self.mean("power_limit") or self.mean("power_rated")


def measure(samples: Sequence[Samples], *, busy_spans: Spans | None = None) -> Measured:
    """The device's signals. `busy_spans`: when requests ran, in seconds since the epoch; None where that is not known.
    Readings outside them do not count, where their times can be compared."""
    found = hosts(samples)
    devices = [device for host in found for device in _devices(host, busy_spans) if device.best]
    if not devices:
        return Measured()
    chosen, how = _chosen(devices, found)
    elsewhere = [device for device in devices if device.host != chosen.host]
    devices = [device for device in devices if device.host == chosen.host]
    signals: list[Signal] = []
    unknown: dict[str, str] = {}
    for name, quantity in (("device.utilization_fraction", "utilization"),
                           ("device.memory_active_fraction", "memory_activity")):
        _give_mean(name, quantity, chosen, how, signals, unknown)
    if (memory := chosen.memory) is not None and 0 <= memory <= 1:
        held = chosen.best.get("memory_used") or chosen.best["memory_used_fraction"]
        signals.append(_signal("device.memory_used_fraction", memory, held, how))
    under_load = _is_loaded(chosen)
    _clocks(chosen, how, under_load, signals, unknown)
    _limits(chosen, how, under_load, signals, unknown)
    return Measured(tuple(signals), unknown, (*_of_hosts(chosen, elsewhere), *remarks(chosen, devices),
                                              *_scope(devices, busy_spans)))


def _devices(host: Host, spans: Spans | None) -> list[Device]:
    names = sorted({series.of for each in host.samples for series in each.series if series.kind == "device"},
                   key=_natural)
    return [_device(name, host, spans) for name in names]


def _of_hosts(chosen: Device, elsewhere: Sequence[Device]) -> Iterator[str]:
    """Which host's readings these are, and what the others read."""
    if not elsewhere:
        return
    others = {device.host: device for device in sorted(elsewhere, key=lambda one: one.mean("utilization") or 0.0)}
    read = ", ".join(f"{host} {'?' if (used := device.mean('utilization')) is None else f'{used:.0%}'}"
                     for host, device in sorted(others.items())[:4])
    yield (f"readings of {len(others) + 1} hosts: those of {chosen.host} are used, where the busiest device is; the "
           f"others' busiest: {read}. If another host serves, give its file alone")


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in name.replace(" ", "/").split("/"))


def _device(name: str, host: Host, spans: Spans | None) -> Device:
    samples = host.samples
    by_quantity: dict[str, dict[tuple[str, str], list[tuple[Samples, Series]]]] = {}
    for each in samples:
        for series in each.series:
            if series.kind == "device" and series.of == name and len(series.known):
                tools = by_quantity.setdefault(series.quantity, {})
                tools.setdefault((each.tool, each.clock), []).append((each, series))
    best, others = {}, {}
    for quantity, tools in by_quantity.items():
        read = sorted((_joined(parts, spans if quantity in WHILE_BUSY else None) for parts in tools.values()),
                      key=lambda r: (r.is_mean, len(r.known), r.span_s or 0.0, r.tool), reverse=True)
        best[quantity], others[quantity] = read[0], read[1:]
    facts = tuple(fact for each in samples for fact in each.facts if fact.kind == "device" and fact.of == name
                  and _counts(fact, each.clock, spans))
    silent = {series.quantity: each.tool for each in samples for series in each.series
              if series.kind == "device" and series.of == name and series.quantity not in best}
    return Device(name, best, others, facts, silent, host.label)


def _counts(fact: Fact, clock: str, spans: Spans | None) -> bool:
    return (spans is None or clock != "epoch" or fact.time is None
            or any(start <= fact.time <= end for start, end in spans))


def _joined(parts: Sequence[tuple[Samples, Series]], spans: Spans | None) -> Readings:
    """Several files of one tool make one series."""
    times = np.concatenate([series.times for _, series in parts])
    values = np.concatenate([series.values for _, series in parts])
    intervals = {each.interval_s for each, _ in parts}
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    first = min((each for each, _ in parts), key=lambda each: each.source)
    comparable = spans is not None and first.clock == "epoch" and not np.isnan(times).all()
    inside: NDArray[np.bool_] = np.ones(len(times), bool)
    if comparable and spans is not None:
        inside = np.zeros(len(times), bool)
        for start, end in spans:
            inside |= (times >= start) & (times <= end)
    interval = intervals.pop() if len(intervals) == 1 and len(parts) == 1 else None
    return Readings(first.tool, first.source, times[inside], values[inside], interval, comparable,
                    int((~inside & ~np.isnan(values)).sum()))


def _chosen(devices: Sequence[Device], found: Sequence[Host]) -> tuple[Device, str]:
    """The busiest of the devices that serve, and how that was told."""
    with_process = {(host.label, fact.value) for host in found for each in host.samples for fact in each.facts
                    if fact.kind == "process" and fact.name == "device"}
    serving = [device for device in devices if (device.host, device.name) in with_process]
    how = "with a process on it"
    if not serving:
        serving = [device for device in devices if (device.memory or 0.0) >= HELD]
        how = "with memory in use"
    if not serving or len(serving) == len(devices):
        serving, how = list(devices), ""

    def busy(device: Device) -> tuple[float, float, float]:
        return tuple(-1.0 if value is None else value for value in (
            device.mean("utilization"), device.mean("power"), device.memory))  # type: ignore[return-value]

    chosen = max(serving, key=busy)
    if len(devices) == 1:
        return chosen, ""
    where = f"{chosen.title}, " + ("the busiest" if len(serving) > 1 else "the only one")
    where += f" of {len(serving)}" if len(serving) > 1 else ""
    where += f" {how} (of {len(devices)})" if how else ""
    used = [value for device in serving if device is not chosen and (value := device.mean("utilization")) is not None]
    if used:
        low, high = min(used), max(used)
        where += f"; the others {low:.0%}" + ("" if round(low, 2) == round(high, 2) else f" to {high:.0%}")
    return chosen, where


def _give_mean(name: str, quantity: str, device: Device, how: str, signals: list[Signal],
               unknown: dict[str, str]) -> None:
    found = device.best.get(quantity)
    if found is None:
        if tool := device.silent.get(quantity):
            unknown[name] = f"{tool} says that it does not know it (N/A)"
        elif quantity == "utilization":
            unknown[name] = "the tool gives no utilization"
    elif not found.is_mean:
        unknown[name] = _too_few(found)
    elif not 0 <= found.mean <= 1:
        unknown[name] = f"{found.tool} gives {found.mean:.3g}, which is no share"
    else:
        signals.append(_signal(name, found.mean, found, how))


def _too_few(found: Readings, unit: str = "") -> str:
    """Why these readings are no mean; `unit` of those that are no share."""
    known, form = found.known, ",.0f" if unit else ".0%"
    if not len(known) and found.outside:
        return (f"none of the {found.outside:,} readings was taken while requests ran: {SAMPLE}; or the two clocks are "
                f"of different time zones")
    if len(known) == 1:
        return f"one reading ({known[0]:{form}}{unit}) is not a mean: {SAMPLE}"
    if len(known) < FEWEST:
        both = " and ".join(f"{value:{form}}{unit}" for value in (known.min(), known.max()))
        return f"{len(known)} readings ({both}) are no mean: {SAMPLE}"
    return f"{len(known)} readings within {found.span_s or 0:.1f} s are as good as one: {SAMPLE}"


def _is_loaded(device: Device) -> bool:
    """Whether clock and power readings are of a device that works."""
    return any(found.loaded for found in device.best.values()) or (device.mean("utilization") or 0.0) >= LOADED


def _working(found: Readings, utilization: Readings | None) -> Readings:
    """Readings of a clock without those at which the device reads as idle: it lowers its clocks, whatever requests
    do. Moment by moment where both were read together, else all or none."""
    if utilization is None or not len(utilization.known):
        return found
    idle = utilization.values <= AT_REST
    if len(utilization.times) != len(found.times) or not np.array_equal(utilization.times, found.times, equal_nan=True):
        idle = np.full(len(found.times), utilization.mean <= AT_REST)
    return replace(found, times=found.times[~idle], values=found.values[~idle])


_NOT_LOADED = "whether the device was under load is not known, and an idle one lowers its clocks and power"


def _clocks(device: Device, how: str, under_load: bool, signals: list[Signal], unknown: dict[str, str]) -> None:
    for name, quantity, most, what in (
            ("clock.core_fraction", "core_clock", "core_clock_max", "the device's highest clock"),
            ("clock.memory_fraction", "memory_clock", "memory_clock_max", "the memory's highest clock"),
            ("power.draw_fraction", "power", "", "the power limit")):
        found = device.best.get(quantity)
        if found is None:
            continue
        against = device.mean(most) if most else device.limit
        read = len(found.known)
        if most:
            found = _working(found, device.best.get("utilization"))
        if not under_load:
            unknown[name] = _NOT_LOADED
        elif read and not len(found.known):
            unknown[name] = "the device reads as idle at every reading, and an idle one lowers its clocks"
        elif not found.is_mean:
            unknown[name] = _too_few(found, " MHz" if most else " W")
        elif not against:
            unknown[name] = f"{found.mean:,.0f} {'W' if not most else 'MHz'}, and the tool does not give {what}"
        elif found.mean / against > 1.1:
            unknown[name] = f"{found.mean:,.0f} is more than {what}, {against:,.0f}"
        else:
            signals.append(_signal(name, min(found.mean / against, 1.0), found, how, scale=against))


def _limits(device: Device, how: str, under_load: bool, signals: list[Signal], unknown: dict[str, str]) -> None:
    limit, rated = device.mean("power_limit"), device.mean("power_rated")
    if limit is not None and rated:
        found = device.best["power_limit"]
        if limit <= rated * 1.001:
            signals.append(Signal("power.limit_fraction", min(limit / rated, 1.0), _how(found.tool),
                                  f"{limit:,.0f} of {rated:,.0f} W", found.source))
    reasons = {clean(fact.value): None for fact in device.facts if fact.name == "limit_reason" and fact.value}
    if not reasons:
        return
    if not under_load:
        unknown["clock.limit_reason"] = _NOT_LOADED
        return
    said_idle = {reason for reason in reasons if "idle" in reason.casefold()}
    active = [reason for reason in reasons if reason.casefold() != "none" and reason not in said_idle]
    if not active and said_idle == reasons.keys():           # at no moment at work, by the driver's own word
        active = ["idle"]
    said = sum(fact.name == "limit_reason" for fact in device.facts)
    first = next(iter(device.best.values()))
    window = "; ".join(filter(None, (f"said {said:,} time{'s' * (said != 1)}, repeats once", how)))
    signals.append(Signal("clock.limit_reason", ", ".join(active) or "none", _how(first.tool), window,
                          first.source))


def _scope(devices: Sequence[Device], spans: Spans | None) -> Iterator[str]:
    """What the readings can be compared with, and where two tools disagree."""
    every = [found for device in devices for found in device.best.values()]
    if spans is not None and not any(found.loaded for found in every):
        yield ("the device's readings carry no times that can be compared with the server's: whether requests ran "
               "meanwhile is not known")
    for device in devices:
        for quantity in ("utilization", "memory_activity", "memory_used_fraction"):
            best, what = device.best.get(quantity), quantity.replace("_", " ")
            for other in device.others.get(quantity, ()):
                if best is None or not len(best.known) or not len(other.known):
                    continue
                if abs(best.mean - other.mean) > DISAGREE:
                    yield (f"device {clean(device.name)}: {best.tool} reads {best.mean:.0%} {what} and {other.tool} "
                           f"{other.mean:.0%}: power, memory activity and clocks tell which to believe")


def _signal(name: str, value: Value, found: Readings, how: str, scale: float = 1.0) -> Signal:
    count = len(found.known)
    low, high = (float(end) / scale for end in (found.known.min(), found.known.max()))
    spread = f"{low:.0%}–{high:.0%}, " if count > 1 and name != "device.memory_used_fraction" else ""
    window = f"{spread}{count:,} reading{'s' * (count != 1)}"
    if count > 1 and found.span_s:
        window += f" over {found.span_s:,.0f} s"
    if found.loaded:
        window += " while requests ran"
    if _how(found.tool) == "metrics":
        window += f" ({clean(found.tool)})"
    return Signal(name, value, _how(found.tool), "; ".join(filter(None, (window, how))), found.source)


def _how(tool: str) -> str:
    """Whose reading it is: an exporter's stands in `/metrics`."""
    return "metrics" if tool in exporters.TOOLS else "smi"
