"""How a device's time divides over bins of a time line: exact interval arithmetic, no drawing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..steps.intervals import covered, union_of
from ..steps.results import CAUSES, DeviceUse
from ..trace import Ints, Kind, Trace

Floats = NDArray[np.float64]


def edges_of(start: int, end: int, bins: int) -> Ints:
    """The `bins + 1` edges of equal bins over [start, end], to the whole nanosecond. ns."""
    return np.rint(np.linspace(start, end, bins + 1)).astype(np.int64)


def share_of_bins(start: Ints, end: Ints, edges: Ints) -> Floats:
    """Share of each bin that the intervals cover, overlaps counted once: shape (bins,), 0 to 1."""
    inside: Ints = np.diff(covered(*union_of(start, end), edges))
    return inside / np.maximum(np.diff(edges), 1)


def occupancy(trace: Trace, use: DeviceUse, edges: Ints) -> Floats:
    """Share of each bin in each of `palette.PARTS`: shape (bins, 13). Compute, then communication, then
    copy, each without what the ones before it cover, then idle by cause. A row adds up to 1 inside the
    window."""
    mine = trace.device == trace.devices.index(use.device)
    kinds = trace.kind[mine]
    start, end = trace.start[mine], trace.end[mine]
    columns, below = [], np.zeros(len(edges) - 1)
    for so_far in ((Kind.KERNEL,), (Kind.KERNEL, Kind.COMM), (Kind.KERNEL, Kind.COMM, Kind.COPY)):
        chosen = np.isin(kinds, so_far)
        covered = share_of_bins(start[chosen], end[chosen], edges)
        columns.append(np.maximum(covered - below, 0.0))
        below = covered
    gaps = use.gaps
    for code in range(len(CAUSES)):
        chosen = gaps.cause == code
        columns.append(share_of_bins(gaps.start[chosen], gaps.end[chosen], edges))
    return np.stack(columns, axis=1)


def readings(trace: Trace, use: DeviceUse, start: int, end: int, period_ns: int) -> Floats:
    """What a vendor's tool would read over [start, end): for each whole sample period the share of it in
    which at least one kernel runs (collectives included, copies not), 0 to 1, rounded to whole percents as
    such tools do.

    Source: NVML, `nvmlUtilization_t.gpu`: "percent of time over the past sample period during which one or
    more kernels was executing"; the period is between 1/6 s and 1 s. Other vendors count differently.
    Empty where not one period fits.
    """
    periods = (end - start) // period_ns
    edges = start + np.arange(periods + 1, dtype=np.int64) * period_ns
    if periods < 1:
        return np.zeros(0)
    mine = (trace.device == trace.devices.index(use.device)) & (trace.kind != Kind.COPY)
    return np.round(share_of_bins(trace.start[mine], trace.end[mine], edges), 2)
