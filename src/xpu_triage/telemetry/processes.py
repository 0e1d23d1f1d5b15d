"""Signals of the service's processes: who uses the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..samples import Floats, Samples, Series
from ..signals import Signal
from ..text import clean
from .measured import Measured
from .roles import role

Spans = Sequence[tuple[float, float]]

WHOLE_MACHINE = ("top", "pidstat")
"""Tools that list all processes of the machine: only those of a known role are of the service."""


SPINNING = ("scheduler", "engine", "worker")
"""Roles of processes that poll."""
FULL = 0.9
"""Cores from which a process of Python can do no more."""
ABOUT_EQUAL = 0.15
"""Cores by which two full processes may differ and stand for one reading. Judgement."""

BUSY_HOST = 0.5
"""Share of the machine's CPU in use from which it is worth a line whose it is."""
SMALL = 0.5
"""Cores of all of the service's processes below which the CPU of a busy machine is others'. The rules that read
`process.host_cpu_fraction` hold the busiest process against the same."""

WHILE_IDLE = " while no request ran in the engine"


@dataclass(frozen=True)
class _Process:
    pid: str
    role: str
    cores: float
    low: float
    high: float
    readings: int
    span_s: float | None
    busiest_thread: float | None
    source: str


def measure(samples: Sequence[Samples], *, busy_spans: Spans | None = None) -> Measured:
    """CPU of the busiest process of the service, its role, its siblings, and the whole machine. `busy_spans`: when
    requests ran in the engine, in seconds since the epoch; readings outside them do not count where their times can be
    compared. Where none ran at all, every reading counts and the window says so: a front end that is full while the
    engine gets nothing is a fault of its own."""
    idle = busy_spans is not None and not busy_spans
    spans = None if idle else busy_spans
    found: list[_Process] = []
    signals: list[Signal] = []
    strangers = 0
    loads: list[tuple[Floats, str]] = []
    for each in samples:
        read = _processes(each, spans)
        of_service = [one for one in read if one.role or not each.tool.startswith(WHOLE_MACHINE)]
        strangers += len(read) - len(of_service)
        found += of_service
        loads += [(values, each.source) for series in each.of("host_cpu", "host")
                  if len(values := _inside(series, each, spans)[1])]
    unknown: dict[str, str] = {}
    notes: list[str] = []
    if found:
        signals += _busiest(found, unknown, WHILE_IDLE if idle else "")
        notes += _full_thread(_top(found))
    elif strangers:
        unknown["process.busiest_cpu_cores"] = (
            f"none of {strangers:,} processes has a title of an inference service: name its pid")
    if loads:
        values, source = max(loads, key=lambda load: (len(load[0]), load[1]))
        signals.append(Signal("process.host_cpu_fraction", float(values.mean()), "os",
                              f"{values.min():.0%}–{values.max():.0%}, {_count(len(values))}"
                              + (WHILE_IDLE if idle else ""), source))
        notes += _others(float(values.mean()), found)
    return Measured(tuple(signals), unknown, tuple(notes))


def _others(host: float, found: Sequence[_Process]) -> list[str]:
    """Where the machine is busy and the service is not: CPU of others is no sign of what the service does."""
    if host < BUSY_HOST or not found or (ours := sum(one.cores for one in found)) >= SMALL:
        return []
    return [f"{host:.0%} of the machine's CPU is in use, {ours:.2f} cores of it by the service's processes: others use "
            "it, which is no sign of what the service does"]


def _order(process: _Process) -> tuple[float, str]:
    return process.cores, process.pid


def _top(found: Sequence[_Process]) -> _Process:
    """The busiest; of about equally full ones that before the engine. The engine's fill a core by looking for work, or
    for the device, whatever they have to do."""
    top = max(found, key=_order)
    if top.role not in SPINNING:
        return top
    before = [one for one in found if one.role and one.role not in SPINNING
              and one.cores >= max(FULL, top.cores - ABOUT_EQUAL)]
    return max(before, key=_order, default=top)


def _busiest(found: Sequence[_Process], unknown: dict[str, str], when: str) -> list[Signal]:
    top = _top(found)
    window = f"pid {clean(top.pid)}, {top.low:.2f}–{top.high:.2f} cores, {_count(top.readings)}"
    if top.span_s:
        window += f" over {top.span_s:,.0f} s"
    window += when
    if top.busiest_thread is not None:
        window += f"; its busiest thread {top.busiest_thread:.2f}"
    signals = [Signal("process.busiest_cpu_cores", top.cores, "os", window, top.source)]
    if not top.role:
        unknown["process.busiest_name"] = f"what pid {clean(top.pid)} is for cannot be told from its title"
        return signals
    signals.append(Signal("process.busiest_name", top.role, "os", f"pid {clean(top.pid)}", top.source))
    siblings = [one.cores for one in found if one.role == top.role and one is not top]
    if siblings:
        signals.append(Signal("process.sibling_cpu_cores", float(np.mean(siblings)), "os",
                              f"mean of {len(siblings)} other processes: {top.role}", top.source))
    return signals


def _full_thread(top: _Process) -> list[str]:
    """One thread that fills a core: work, or spinning for the device. The figure does not tell which."""
    if top.busiest_thread is not None and top.busiest_thread >= 0.9 and top.role in ("worker", "engine", ""):
        return [f"a thread of pid {clean(top.pid)} fills a core: a thread that waits for the device by spinning does "
                "so too, and only its stack tells"]
    return []


def _processes(samples: Samples, spans: Spans | None) -> list[_Process]:
    """Every process of one recording; one whose threads alone were sampled is their sum."""
    whole: dict[str, Series] = {}
    threads: dict[str, list[Series]] = {}
    for series in samples.of("cpu", "process"):
        pid, _, thread = series.of.partition("/")
        if thread:
            threads.setdefault(pid, []).append(series)
        else:
            whole[pid] = series
    roles = {fact.of: fact.value for fact in samples.facts if fact.kind == "process" and fact.name == "role"}
    titles = {fact.of: fact.value for fact in samples.facts if fact.kind == "process" and fact.name == "name"}
    found = []
    for pid in {**whole, **threads}:
        own = [_inside(series, samples, spans)[1] for series in threads.get(pid, ())]
        of_threads = [float(values.mean()) for values in own if len(values)]
        if pid in whole:
            times, values = _inside(whole[pid], samples, spans)
        else:
            times, values = np.array([]), np.array([sum(of_threads)] if of_threads else [])
        if len(values):
            span = float(times.max() - times.min()) if len(times) and not np.isnan(times).any() else None
            found.append(_Process(pid, roles.get(pid, "") or role(titles.get(pid, "")), float(values.mean()),
                                  float(values.min()), float(values.max()), len(values), span,
                                  max(of_threads, default=None), samples.source))
    return found


def _inside(series: Series, samples: Samples, spans: Spans | None) -> tuple[Floats, Floats]:
    """Times and known values while requests ran, or all where that cannot be told."""
    known = ~np.isnan(series.values)
    if spans is not None and samples.clock == "epoch" and not np.isnan(series.times).all():
        ran = np.zeros(len(series.times), bool)
        for start, end in spans:
            ran |= (series.times >= start) & (series.times <= end)
        known &= ran
    return series.times[known], series.values[known]


def _count(readings: int) -> str:
    return f"{readings:,} reading{'s' * (readings != 1)}"
