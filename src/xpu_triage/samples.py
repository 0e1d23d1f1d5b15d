"""Telemetry as it was read: readings over time, scrapes of `/metrics`, stacks, iterations. No judgement in here.

A reader of `evidence/` turns one file into one of these; the pure functions of `telemetry/` make signals of them.
Unknown is NaN or None, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .baseline.records import BenchRecord

Floats = NDArray[np.float64]

MAX_READINGS = 5_000_000
"""Readings of one file that are kept; a reader that meets more stops there, that of logs keeps the end, and says so in
`notes`."""

QUANTITIES: dict[str, str] = {
    # device
    "utilization": "fraction",  # the tool's own share of time in which the device was in use
    "memory_activity": "fraction",  # the tool's own share of time in which the memory was read or written
    "memory_used": "MB",
    "memory_total": "MB",
    "memory_used_fraction": "fraction",  # only where the tool gives no absolute figures
    "power": "W",
    "power_limit": "W",  # the limit in force
    "power_rated": "W",  # the limit the device was sold with
    "core_clock": "MHz",
    "core_clock_max": "MHz",
    "memory_clock": "MHz",
    "memory_clock_max": "MHz",
    "temperature": "C",
    "energy": "J",  # a counter
    # process
    "cpu": "cores",  # CPU time per time: 1.0 is one core full
    "device_memory": "MB",  # held by one process on the device
    # host
    "host_cpu": "fraction",  # of all its cores
}
"""The quantities that `telemetry/` understands, and their units (MB = 10⁶ bytes). Anything else a tool prints is kept
under the tool's own name for it."""


@dataclass(frozen=True, eq=False)
class Series:
    """One quantity of one thing over time."""

    kind: str
    """`device`, `process` or `host`."""
    of: str
    """Which one: the device's index as the tool prints it (`0`; `0/1` for chip 1 of card 0; `0/MIG 2`), a pid
    (`4242`) or a thread (`4242/4250`); empty for the host."""
    quantity: str
    """A name of `QUANTITIES`, in its unit; or the tool's own column name, in the tool's own unit."""
    times: Floats
    """Seconds; NaN where the tool gives no time. See `Samples.clock`."""
    values: Floats
    """NaN where the tool says that it does not know (`N/A`, `-`)."""
    unit: str = ""
    """As the tool prints it, for a quantity that is not in `QUANTITIES`."""

    @property
    def known(self) -> Floats:
        """The values that are known."""
        return self.values[~np.isnan(self.values)]


@dataclass(frozen=True)
class Fact:
    """One observation that is text: a device's name, a process's role, a limit reason."""

    kind: str
    of: str
    name: str
    """`name`, `limit_reason` (`none` where the tool reports all limits inactive), `role`, `device` (of a process: the
    device it is on), or the tool's own column name."""
    value: str
    time: float | None = None


@dataclass(frozen=True, eq=False)
class Samples:
    """What one sampling tool said."""

    tool: str
    """As a person names it: `nvidia-smi dmon`, `npu-smi info`, `xpu-smi (Kunlun)`."""
    source: str
    """The piece of evidence."""
    series: tuple[Series, ...]
    facts: tuple[Fact, ...] = ()
    clock: str = ""
    """What `times` count from: `epoch` (UTC, or local time taken as such), `day` (midnight), `start`; empty where
    there are no times."""
    interval_s: float | None = None
    """Of tools that print no times but one row an interval, where it is known."""
    skipped: int = 0
    """Lines or fields that could not be read."""
    notes: tuple[str, ...] = ()

    def of(self, quantity: str, kind: str = "device") -> Iterator[Series]:
        """All series of this quantity."""
        return (series for series in self.series if series.quantity == quantity and series.kind == kind)

    @property
    def readings(self) -> int:
        """How often the tool looked: the most values of one quantity of one thing, however many columns and devices
        it prints; 1 where it gave texts alone."""
        return max((len(series.values) for series in self.series), default=min(len(self.facts), 1))


class Recorder:
    """Collects readings in the order they come; `samples()` makes the columns."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str, str, str], tuple[list[float], list[float]]] = {}
        self._facts: list[Fact] = []
        self._count = 0

    @property
    def full(self) -> bool:
        return self._count >= MAX_READINGS

    def __len__(self) -> int:
        return self._count

    def add(self, of: str, quantity: str, value: float | None, *, time: float | None = None, kind: str = "device",
            unit: str = "") -> None:
        """One reading; None for a value that the tool does not know. Nothing is kept once `full`."""
        if self.full:
            return
        self._count += 1
        unit = QUANTITIES.get(quantity, unit)
        times, values = self._values.setdefault((kind, of, quantity, unit), ([], []))
        times.append(np.nan if time is None else time)
        values.append(np.nan if value is None else value)

    def say(self, of: str, name: str, value: str, *, time: float | None = None, kind: str = "device") -> None:
        """One observation that is text; repeated ones are kept once in a row."""
        if self.full:
            return
        fact = Fact(kind, of, name, value, time)
        for last in reversed(self._facts):
            if (last.kind, last.of, last.name) == (kind, of, name):
                if last.value == value:
                    return
                break
        self._count += 1
        self._facts.append(fact)

    def samples(self, tool: str, source: str, *, clock: str = "", interval_s: float | None = None, skipped: int = 0,
                notes: Iterable[str] = ()) -> Samples:
        series = tuple(Series(kind, of, quantity, np.array(times), np.array(values), unit)
                       for (kind, of, quantity, unit), (times, values) in self._values.items())
        notes = tuple(notes)
        if self.full:
            notes += (f"more than {MAX_READINGS:,} readings: left out from there on",)
        return Samples(tool, source, series, tuple(self._facts), clock, interval_s, skipped, notes)


@dataclass(frozen=True, eq=False)
class Scrape:
    """One dump of a Prometheus endpoint."""

    source: str
    time: float | None
    """Seconds since the epoch; None where neither the dump nor its name says when it was taken."""
    values: Mapping[str, tuple[tuple[Mapping[str, str], float], ...]]
    """By sample name as written (`vllm:prompt_tokens_total`, `…_bucket`, `…_sum`, `…_count`): labels and value of
    each. NaN where the exporter wrote NaN."""
    empty: tuple[str, ...] = ()
    """Families that are announced (HELP, TYPE) and have no sample: unknown, not zero."""
    skipped: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Frame:
    function: str
    file: str = ""
    line: int | None = None

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line is not None else self.file
        return f"{self.function} ({where})" if where else self.function


@dataclass(frozen=True)
class Stack:
    """One thread at one moment, or one folded stack of a recording."""

    process: str
    """Pid and title as the tool gives them (`28257 VLLM::Worker`); empty where it gives none."""
    thread: str
    """Name, else id; empty where the tool gives none."""
    active: bool | None
    """The tool's word. A thread that spins or waits in native code may be called active."""
    holds_gil: bool | None
    frames: tuple[Frame, ...]
    """Innermost first."""
    samples: int = 1


@dataclass(frozen=True, eq=False)
class Stacks:
    source: str
    tool: str
    """`py-spy dump`, `py-spy record (raw)`, `speedscope`."""
    stacks: tuple[Stack, ...]
    time: float | None = None
    skipped: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class EngineLog:
    """Lines of an engine's log that carry figures or name a fact."""

    source: str
    engine: str
    """`vllm`, `sglang`, …; empty where unknown."""
    iterations: Mapping[str, Floats] = field(default_factory=dict)
    """One row an iteration line. Columns, NaN where the line lacks it: `time` (s), `engine` (its index or rank),
    `index`, `elapsed_ms`, `context_requests`, `context_tokens`, `generation_requests`, `generation_tokens`,
    `kv_usage_fraction`, `profiled` (1 while the engine's profiler was on)."""
    stats: Mapping[str, Floats] = field(default_factory=dict)
    """One row a periodic line. Columns: `time`, `engine`, `running`, `waiting`, `swapped`, `kv_usage_fraction`,
    `prefill_tokens_per_s`, `decode_tokens_per_s`, `prefix_hit_fraction`, `is_prefill` (1 or 0), `graph` (1 or 0),
    `new_requests`, `new_tokens`, `cached_tokens`, `tokens`, `accept_length`, `preempted`."""
    facts: tuple[Fact, ...] = ()
    """kind `log`; `name` is a signal's name (`log.fallback_op`, `log.backend`, …) or a part of one (`kv.preempted`,
    `serving.answered`, `placement.model_buffer`, …), `value` what the line says."""
    lines: int = 0
    skipped: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Telemetry:
    """Everything of these kinds that one diagnosis has, in the order it was read."""

    samples: tuple[Samples, ...] = ()
    scrapes: tuple[Scrape, ...] = ()
    stacks: tuple[Stacks, ...] = ()
    logs: tuple[EngineLog, ...] = ()
    benches: tuple[BenchRecord, ...] = ()
    """Results of load generators."""

    def __bool__(self) -> bool:
        return bool(self.samples or self.scrapes or self.stacks or self.logs or self.benches)
