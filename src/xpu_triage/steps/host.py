"""The host's rows as one forest: who ran inside whom, on which thread, and who held the host at each
moment."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..trace import Ints, Kind, Trace
from .intervals import Bools

ROUNDING_NS = 2000
"""A child may seem to end this much after its parent where a file holds whole microseconds."""

Indices = NDArray[np.int32]
Matches = re.Pattern[str] | Callable[[str], object]

_OUTSIDE_FIRST = np.array([1, 2, 1, 0], np.int8)
"""Which of two rows with the same times is the outer one: annotation, operator or frame, runtime call."""


class NameTable:
    """Which rows carry a name that matches. Every name is tested once, and only among the kinds where it
    occurs."""

    def __init__(self, trace: Trace) -> None:
        self.names = trace.names
        self._n = max(len(trace.names), 1)
        self._code = trace.kind.astype(np.int32) * np.int32(self._n) + trace.name
        self._present = np.bincount(self._code, minlength=len(Kind) * self._n) > 0

    def rows(self, matches: Matches, *kinds: Kind, of: Ints | None = None) -> Bools:
        """bool, one entry a row of the trace (of `of`, where given): of one of `kinds`, with a name that
        matches."""
        code = self._code if of is None else self._code[of]
        found: Bools = self._codes(matches, *kinds)[code]
        return found

    def _codes(self, matches: Matches, *kinds: Kind) -> Bools:
        test = matches.search if isinstance(matches, re.Pattern) else matches
        table = np.zeros(len(Kind) * self._n, np.bool_)
        for kind in kinds:
            base = int(kind) * self._n
            for i in np.flatnonzero(self._present[base:base + self._n]).tolist():
                table[base + i] = bool(test(self.names[i]))
        return table


class Host:
    """Host rows as one forest. Every thread is shifted by its own offset, so that all share one sorted time
    line.

    row      int64, row of the trace; forest order is by thread, start, outer first
    start, end   int64 ns, shifted; children are cut to their parents
    parent   int64, forest index of the enclosing row, -1 for none
    last     int64, one past the last descendant: those of i are i+1 … last[i]-1
    """

    def __init__(self, trace: Trace) -> None:
        self.shift = np.int64(trace.span + 1)
        row = np.flatnonzero(trace.kind <= Kind.ANNOTATION)
        start = trace.start[row] + trace.thread[row] * self.shift
        end = start + trace.dur[row]
        order = _outer_first(start, end, trace.kind[row])
        row, start, end = row[order], start[order], end[order]
        parent = _parents(start, end)
        if _untangle(start, end, parent):
            order = _outer_first(start, end, trace.kind[row])
            row, start, end = row[order], start[order], end[order]
            parent = _parents(start, end)
        while _cut_to_parents(start, end, parent):
            if not (start[parent >= 0] >= end[parent[parent >= 0]]).any():
                break
            parent = _parents(start, end)
        self.row, self.start, self.end, self.parent = row, start, end, parent
        self.last = np.maximum(np.searchsorted(start, end, "left"), np.arange(1, len(row) + 1))
        self._index = np.full(len(trace) + 2, -1, np.int64)  # the two extra ones: NOT_LINKED, BEFORE_CAPTURE
        self._index[row] = np.arange(len(row))
        at, own = _time_line(start, end, parent)
        self._at = np.concatenate(([-1], at, [np.iinfo(np.int64).max]))  # with its ends, so that every time has a place
        self._own = np.concatenate(([-1], own, [-1]))

    def __len__(self) -> int:
        return len(self.row)

    def index(self, rows: Ints) -> Ints:
        """Forest index of rows of the trace; -1 for device rows, overhead, and for -1 and -2."""
        return self._index[rows]

    def below(self, per_row: NDArray[np.floating] | Ints) -> NDArray[np.float64]:
        """Inclusive sums: every row's own entry and those of all its descendants."""
        sums = np.concatenate(([0.0], np.cumsum(per_row, dtype=np.float64)))
        return sums[self.last] - sums[:-1]

    def around(self, mask: Bools) -> Ints:
        """The outermost masked row that each row is, or lies in; -1 for none. `mask` and result in forest
        order."""
        outermost = self.outermost(np.flatnonzero(mask))
        owner = np.full(len(self), -1, np.int64)
        if len(outermost):
            width = self.last[outermost] - outermost
            inside = np.repeat(outermost - np.cumsum(width) + width, width) + np.arange(int(width.sum()))
            owner[inside] = np.repeat(outermost, width)
        return owner

    def outermost(self, rows: Ints) -> Ints:
        """Those of `rows` (forest indices, sorted) that lie in no other of them."""
        if not len(rows):
            return rows
        reach = np.concatenate(([0], np.maximum.accumulate(self.last[rows])[:-1]))
        return rows[rows >= reach]

    def nearest(self, rows: Ints, mask: Bools) -> Ints:
        """The innermost masked row that each of `rows` (forest indices) is, or lies in; -1 for none."""
        found = rows.copy()
        todo = np.flatnonzero(found >= 0)
        while len(todo):
            todo = todo[~mask[found[todo]]]
            found[todo] = self.parent[found[todo]]
            todo = todo[found[todo] >= 0]
        return found

    def path(self, i: int) -> list[int]:
        """Forest indices from the root down to i."""
        out: list[int] = []
        while i >= 0:
            out.append(i)
            i = int(self.parent[i])
        return out[::-1]

    def innermost(self, thread: Ints, at: Ints) -> Ints:
        """Innermost row that runs on `thread` at each time, or -1."""
        innermost: Ints = self._own[np.searchsorted(self._at, at + thread * self.shift, "right") - 1]
        return innermost

    def pieces(self, thread: Ints, left: Ints, right: Ints) -> tuple[Indices, Indices, Ints]:
        """Who held the host: every interval [left, right] of its thread cut by the innermost row that runs.

        Returns, one entry a piece: the interval's number, the forest index of the innermost row (-1: no row),
        its ns. The first two are int32: there are several pieces a gap, and they are many.
        """
        begin, stop = left + thread * self.shift, right + thread * self.shift
        at, own = self._at, self._own
        low = np.searchsorted(at, begin, "right") - 1
        count = np.where(stop > begin, np.searchsorted(at, stop, "left") - low, 0)
        which = np.repeat(np.arange(len(left), dtype=np.int32), count)
        i = np.arange(len(which)) - np.repeat(np.cumsum(count) - count - low, count)
        owner = own[i].astype(np.int32)
        ns = np.minimum(at[i + 1], stop[which])
        ns -= np.maximum(at[i], begin[which])
        return which, owner, ns


def _outer_first(start: Ints, end: Ints, kind: NDArray[np.int8]) -> Ints:
    """Order by start; of rows that start together the longer first, then by what encloses what."""
    order = np.argsort(start, kind="stable")
    ordered = start[order]
    same = np.concatenate(([False], ordered[1:] == ordered[:-1]))
    tied = np.flatnonzero(same | np.concatenate((same[1:], [False])))
    rows = order[tied]
    order[tied] = rows[np.lexsort((_OUTSIDE_FIRST[kind[rows]], -end[rows], start[rows]))]
    return order


def _parents(start: Ints, end: Ints) -> Ints:
    """Nearest earlier interval that is still open at each start.

    Pointer jumping: an interval that closed before a row's start closed before all rows that follow, so that
    chains of closed ones are skipped in few rounds, not walked.
    """
    parent = np.arange(-1, len(start) - 1)
    todo = np.arange(len(start))
    while len(todo):
        up = parent[todo]
        todo = todo[(up >= 0) & (end[up] <= start[todo])]
        parent[todo] = parent[parent[todo]]
    return parent


def _untangle(start: Ints, end: Ints, parent: Ints) -> bool:
    """Move, in place, rows that end long after the row they start in: they are no children of it.

    An annotation starts inside the frame of its own `__enter__` and ends long after it; cut there it would
    lose all that runs in it. It starts, instead, when the last of the rows that it outlives ends. True where
    any was moved.
    """
    far = np.flatnonzero((parent >= 0) & (end > end[parent] + ROUNDING_NS))
    if not len(far):
        return False
    up = parent[far]
    while len(far):
        start[far] = end[up]
        up = parent[up]
        more = (up >= 0) & (end[far] > end[up])
        far, up = far[more], up[more]
    return True


def _cut_to_parents(start: Ints, end: Ints, parent: Ints) -> bool:
    """End children, in place, no later than their parents (and no earlier than they start). True where any
    was cut."""
    any_cut = False
    while True:
        over = np.flatnonzero((parent >= 0) & (end > end[parent]))
        over = over[end[over] > start[over]]
        if not len(over):
            return any_cut
        end[over] = np.maximum(start[over], end[parent[over]])
        any_cut = True


def _time_line(start: Ints, end: Ints, parent: Ints) -> tuple[Ints, Ints]:
    """Times at which the innermost row changes, and the innermost row from then on: a row from its start, its
    parent from its end."""
    rows = np.flatnonzero(end > start)
    edge = np.concatenate((end[rows][::-1] * 2, start[rows] * 2 + 1))  # at one moment ends come before starts
    order = np.argsort(edge, kind="stable")
    edge = edge[order]
    edge >>= 1
    last_of_moment = np.concatenate((edge[1:] > edge[:-1], [True])) if len(edge) else np.zeros(0, np.bool_)
    at, order = edge[last_of_moment], order[last_of_moment]
    del edge
    own = np.concatenate((parent[rows][::-1], rows))
    return at, own[order]
