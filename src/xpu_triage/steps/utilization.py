"""Step 1, utilization: how much of the window each device is busy, with what, and where it is idle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..trace import FIRST_DEVICE_KIND, Ints, Kind, Trace
from .intervals import covered_between, new_part, union, union_of
from .results import Steps

PART_KINDS = {"compute": Kind.KERNEL, "comm": Kind.COMM, "copy": Kind.COPY}
"""The parts of busy, in the order in which an overlap is given away: compute, then communication, then copies
alone."""


MOST_DEVICES = 256
"""Devices that are looked at. A node has 16, or some ten more where each is cut into parts; thousands are a capture
that numbers something else as devices."""


@dataclass(frozen=True, eq=False)
class DeviceTime:
    """One device's rows and how its busy time divides.

    rows                   int64, rows of the trace on this device, sorted by start
    part                   int64 ns, one entry a row of `rows`: what it adds to its part of busy in the window;
                           the entries of one kind add up to `parts` of that kind exactly
    busy, parts[...]       int64 ns, one entry a step
    busy_start, busy_end   the union over streams, as disjoint intervals, not clipped
    first_row, last_row    rows of the trace that start and end each of these intervals
    """

    device: int
    rows: Ints
    part: Ints
    busy: Ints
    parts: dict[str, Ints]
    busy_start: Ints
    busy_end: Ints
    first_row: Ints
    last_row: Ints


@dataclass(frozen=True, eq=False)
class IdleSpans:
    """The complement of busy inside the window: starts and ends, and the device rows at their sides (-1 at
    the edge)."""

    start: Ints
    end: Ints
    before: Ints
    after: Ints


def devices_of(trace: Trace, steps: Steps) -> list[DeviceTime]:
    """The devices that have rows, the busiest within the window first; at most `MOST_DEVICES`, those with most work."""
    on_device = np.flatnonzero(trace.kind >= FIRST_DEVICE_KIND)
    device = trace.device[on_device]
    order = np.argsort(device, kind="stable")
    groups = np.split(on_device[order], np.flatnonzero(np.diff(device[order])) + 1) if len(order) else []
    if len(groups) > MOST_DEVICES:
        inside = np.minimum(trace.end[on_device], steps.end) - np.maximum(trace.start[on_device], steps.start)
        work = np.bincount(device, np.maximum(inside, 0))
        most = np.argsort([-work[trace.device[rows[0]]] for rows in groups], kind="stable")
        groups = [groups[i] for i in most[:MOST_DEVICES].tolist()]
    times = [device_time(trace, steps, rows, int(trace.device[rows[0]])) for rows in groups]
    return sorted(times, key=lambda t: (-int(t.busy.sum()), t.device))


def device_time(trace: Trace, steps: Steps, rows: Ints, device: int) -> DeviceTime:
    """Busy time of one device by step and part. `rows`: its rows, sorted by start."""
    left = np.array([s.start for s in steps.steps], np.int64)
    right = np.array([s.end for s in steps.steps], np.int64)
    start, end = trace.start[rows], trace.end[rows]
    busy_start, busy_end, first = union(start, end)
    part = np.zeros(len(rows), np.int64)
    parts: dict[str, Ints] = {}
    taken_start = taken_end = np.zeros(0, np.int64)
    for name, kind in PART_KINDS.items():
        mine = np.flatnonzero(trace.kind[rows] == kind)
        before = covered_between(taken_start, taken_end, left, right)
        new_start, new_end = new_part(start[mine], end[mine])
        new_start, new_end = np.maximum(new_start, steps.start), np.minimum(new_end, steps.end)
        new_end = np.maximum(new_end, new_start)
        part[mine] = new_end - new_start - covered_between(taken_start, taken_end, new_start, new_end)
        taken_start, taken_end = union_of(
            np.concatenate((taken_start, start[mine])), np.concatenate((taken_end, end[mine])))
        parts[name] = covered_between(taken_start, taken_end, left, right) - before
    return DeviceTime(device, rows, part, covered_between(busy_start, busy_end, left, right), parts,
                      busy_start, busy_end, rows[first], _last_rows(rows, end, busy_end))


def _last_rows(rows: Ints, end: Ints, busy_end: Ints) -> Ints:
    """For each end of a busy interval a row that ends there."""
    order = np.argsort(end, kind="stable")
    return rows[order][np.searchsorted(end[order], busy_end, "right") - 1]


def idle_spans(time: DeviceTime, left: int, right: int) -> IdleSpans:
    """The device's idle intervals within [left, right]."""
    start = np.concatenate(([left], time.busy_end))
    end = np.concatenate((time.busy_start, [right]))
    after = np.concatenate((time.first_row, [-1]))
    before = np.concatenate(([-1], time.last_row))
    inside = (end > start) & (start < right) & (end > left)
    start, end = np.maximum(start[inside], left), np.minimum(end[inside], right)
    return IdleSpans(start, end, before[inside], after[inside])
