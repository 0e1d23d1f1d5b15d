"""What the host's threads do over a span: whole-thread shares by kind of row, and the largest rows as
nested boxes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..steps.results import Step
from ..trace import Ints, Kind, Trace
from .occupancy import Floats, share_of_bins

LEVELS = 4
"""Boxes are nested at most this deep; what lies deeper is left to the shares."""

CHAIN = 0.9
"""A row of which one child covers this much tells nothing that the child does not: it is left out."""

ROUNDING_NS = 2000
"""By how much a child may end after its parent in files of whole microseconds."""

HOST_KINDS = (Kind.HOST_OP, Kind.RUNTIME, Kind.PYTHON, Kind.ANNOTATION)
_OUTER_FIRST = {Kind.ANNOTATION: 0, Kind.HOST_OP: 1, Kind.PYTHON: 1, Kind.RUNTIME: 2}


@dataclass(frozen=True)
class Box:
    """One host row, clipped to the span. `level` 0 is the outermost."""

    start: int
    end: int
    level: int
    name: str
    kind: Kind
    blocking: bool


def busiest_threads(trace: Trace, start: int, end: int, most: int) -> list[int]:
    """Threads worth a lane: first the one that launches most of the device work of the span, then those
    that run operators or calls for at least 2 % of it, longest first. Threads with nothing but Python or
    ranges (most of them wait) have a lane only where there is no other."""
    rows = _rows_in(trace, start, end)
    launched = (trace.launch >= 0) & (trace.start < end) & (trace.end > start)
    launches = Counter(trace.thread[trace.launch[launched]].tolist())
    works = np.isin(trace.kind[rows], (Kind.HOST_OP, Kind.RUNTIME))
    at_work = _time_by_thread(trace, rows[works], start, end)
    chosen = {t: share for t, share in at_work.items() if share >= 0.02 or launches[t]}
    chosen = chosen or _time_by_thread(trace, rows, start, end)
    order = sorted(chosen, key=lambda t: (-launches[t], -chosen[t], t))
    return order[:1] + sorted(order[1:], key=lambda t: (-chosen[t], t))[:most - 1]


def _time_by_thread(trace: Trace, rows: Ints, start: int, end: int) -> dict[int, float]:
    """Share of the span that the rows cover, by thread."""
    edges = np.array([start, end], dtype=np.int64)
    return {t: float(share_of_bins(trace.start[mine], trace.end[mine], edges)[0])
            for t in np.unique(trace.thread[rows]).tolist() if len(mine := rows[trace.thread[rows] == t])}


def doing(trace: Trace, thread: int, edges: Ints) -> Floats:
    """Share of each bin in which the thread is blocked, in another call, in an operator, in anything else
    that is recorded (the keys of `palette.HOST_COLOURS`, in order): shape (bins, 4). Innermost first,
    nothing twice."""
    rows = _rows_in(trace, int(edges[0]), int(edges[-1]))
    rows = rows[trace.thread[rows] == thread]
    kinds, blocking = trace.kind[rows], trace.blocking[rows]
    columns, below = [], np.zeros(len(edges) - 1)
    for chosen in (blocking, blocking | (kinds == Kind.RUNTIME),
                   blocking | (kinds == Kind.RUNTIME) | (kinds == Kind.HOST_OP), np.ones(len(rows), bool)):
        covered = share_of_bins(trace.start[rows[chosen]], trace.end[rows[chosen]], edges)
        columns.append(np.maximum(covered - below, 0.0))
        below = covered
    return np.stack(columns, axis=1)


def boxes(trace: Trace, thread: int, step: Step, least_ns: int, found: str = "") -> list[Box]:
    """The thread's rows of at least `least_ns` inside the step as nested boxes, outer ones first.

    Rows that only wrap another one are left out (`CHAIN`), and so is the mark of the step itself; rows
    named `found` always stay, the outermost of those that lie in each other.
    """
    start, end = np.maximum(trace.start, step.start), np.minimum(trace.end, step.end)
    wanted = (trace.thread == thread) & np.isin(trace.kind, HOST_KINDS) & (end - start >= max(least_ns, 1))
    rows = np.flatnonzero(wanted)
    rows = rows[[trace.name_of(r) != step.name or trace.name_of(r) == found for r in rows.tolist()]]
    rank = np.array([_OUTER_FIRST[Kind(k)] for k in trace.kind[rows].tolist()], dtype=np.int64)
    rows = rows[np.lexsort((rank, -end[rows], start[rows]))]
    start, end = start[rows], end[rows]
    parent, start = _parents(start, end)
    is_found = np.array([trace.name_of(r) == found for r in rows.tolist()], dtype=bool)
    again = is_found & _inside(parent, is_found)  # an operator that calls itself by the same name is one box
    is_found &= ~again
    keep = (~_wraps(parent, end - start) | is_found | (trace.kind[rows] == Kind.ANNOTATION)) & ~again
    level = _levels(parent, keep)
    return [
        Box(
            int(start[i]),
            int(end[i]),
            min(int(level[i]), LEVELS - 1),
            trace.name_of(r),
            Kind(int(trace.kind[r])),
            bool(trace.blocking[r]),
        )
        for i, r in enumerate(rows.tolist())
        if keep[i] and (level[i] < LEVELS or is_found[i])
    ]


def _rows_in(trace: Trace, start: int, end: int) -> Ints:
    return np.flatnonzero(np.isin(trace.kind, HOST_KINDS) & (trace.start < end) & (trace.end > start))


def _parents(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Nearest row that holds each one whole, or -1; rows sorted by (start, -end). A row that outlives the
    one it starts in is no child of it (an annotation starts inside its own `__enter__`): it starts when
    that one ends."""
    parent, begin = np.full(len(start), -1), start.copy()
    stack: list[int] = []
    for i, (s, e) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while stack and (end[stack[-1]] <= s or e > end[stack[-1]] + ROUNDING_NS):
            begin[i] = max(begin[i], min(int(end[stack.pop()]), e))
        if stack:
            parent[i] = stack[-1]
        stack.append(i)
    return parent, begin


def _wraps(parent: Ints, dur: Ints) -> NDArray[np.bool_]:
    """Rows of which one child covers almost everything."""
    largest = np.zeros(len(parent), dtype=np.int64)
    child = parent >= 0
    np.maximum.at(largest, parent[child], dur[child])
    return largest >= CHAIN * np.maximum(dur, 1)


def _inside(parent: Ints, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows lie, at any depth, in a chosen one; parents come before their children."""
    inside = np.zeros(len(parent), dtype=bool)
    for i, p in enumerate(parent.tolist()):
        if p >= 0:
            inside[i] = inside[p] or chosen[p]
    return inside


def _levels(parent: Ints, keep: NDArray[np.bool_]) -> Ints:
    """How many kept rows each one lies in; parents come before their children."""
    level = np.zeros(len(parent), dtype=np.int64)
    for i, p in enumerate(parent.tolist()):
        if p >= 0:
            level[i] = level[p] + int(keep[p])
    return level
