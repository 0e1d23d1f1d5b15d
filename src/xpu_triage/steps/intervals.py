"""Arithmetic on time intervals, in integer nanoseconds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..trace import Ints

Bools = NDArray[np.bool_]
Weights = NDArray[np.float64]


def union(start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Merge intervals that touch or overlap; `start` must be sorted.

    Returns starts, ends, and the index of the first member of each merged interval.
    """
    if not len(start):
        return start, end, np.zeros(0, np.int64)
    reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    last = np.concatenate((first[1:] - 1, [len(start) - 1]))
    return start[first], reach[last], first


def union_of(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """As `union`, of intervals in any order."""
    order = np.argsort(start, kind="stable")
    merged_start, merged_end, _ = union(start[order], end[order])
    return merged_start, merged_end


def covered(start: Ints, end: Ints, at: Ints) -> Ints:
    """ns that the disjoint, sorted intervals cover before each time of `at`."""
    if not len(start):
        return np.zeros(len(at), np.int64)
    i = np.searchsorted(start, at, "right")
    before = np.concatenate(([0], np.cumsum(end - start)))
    return before[i] - np.where(i > 0, np.maximum(end[i - 1] - at, 0), 0)


def covered_between(start: Ints, end: Ints, left: Ints, right: Ints) -> Ints:
    """ns that the disjoint, sorted intervals cover within each [left, right]."""
    return covered(start, end, right) - covered(start, end, left)


def total_within(start: Ints, end: Ints, left: int, right: int) -> int:
    """ns that the union of intervals (in any order) covers within one window."""
    merged_start, merged_end = union_of(start, end)
    edges = np.array([left, right], np.int64)
    return int(np.diff(covered(merged_start, merged_end, edges))[0])


def uncovered(start: Ints, end: Ints, cover_start: Ints, cover_end: Ints) -> tuple[Ints, Ints, Ints]:
    """The pieces of each interval that the cover (disjoint, sorted) leaves open, as starts, ends, and the number of the
    interval that each is a piece of."""
    edge_left = min(int(start.min(initial=0)), int(cover_start.min(initial=0)))
    edge_right = max(int(end.max(initial=0)), int(cover_end.max(initial=0)))
    free_start, free_end = np.append(edge_left, cover_end), np.append(cover_start, edge_right)
    first = np.searchsorted(free_end, start, "right")
    count = np.maximum(np.searchsorted(free_start, end, "left") - first, 0)
    which = np.repeat(np.arange(len(start)), count)
    free = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count) + first[which]
    left, right = np.maximum(start[which], free_start[free]), np.minimum(end[which], free_end[free])
    real = right > left
    return left[real], right[real], which[real]


def new_part(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The part of each interval (`start` sorted) that none before it covers, as [from, to]; `to` may lie
    before `from`.

    The lengths of the parts, negative ones taken as 0, add up to the union.
    """
    if not len(start):
        return start, end
    reach = np.concatenate(([start[0]], np.maximum.accumulate(end)[:-1]))
    return np.maximum(start, reach), end
