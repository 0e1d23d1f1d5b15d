"""Where NVTX start/end ranges belong: they are a process's, and may cross the ranges of any thread."""

from __future__ import annotations

import numpy as np

from ...trace import Ints, Kind
from ..sqlite_file import MISSING
from .tables import THREAD_BITS, Part, Tables, groups_of

LANES = 256
"""Lanes for ranges of one process that nest in no thread; what runs beside so many others shares the last one."""

FIRST_LANE = MISSING + 1
"""Thread numbers from here on are lanes and not threads: no globalTid of a machine lies there."""


def process_of(thread: Ints) -> Ints:
    """globalPid of each globalTid; MISSING stays MISSING."""
    return np.where(thread == MISSING, MISSING, thread >> THREAD_BITS << THREAD_BITS)


def place_ranges(found: Tables) -> tuple[list[Part], dict[int, tuple[int, int]]]:
    """The start/end ranges: on their thread where they nest with its other ranges, else on lanes of their process.

    A stack of calls that a range crosses would otherwise be cut at its edges. Returns the parts, with their threads
    set, and for each lane its process and number.
    """
    if not found.ranges:
        return [], {}
    part = Part.joined(found.ranges)
    away = np.concatenate(found.between_threads) | (part.thread == MISSING)
    own = np.flatnonzero(~away)
    beside = _ranges_of(found.parts, np.unique(part.thread[own]))
    of_thread = dict(groups_of(beside.thread))
    for thread, places in groups_of(part.thread[own]):
        mine, others = own[places], of_thread.get(thread, places[:0])
        away[mine[_crossing(np.concatenate((part.start[mine], beside.start[others])),
                            np.concatenate((part.end[mine], beside.end[others])), len(mine))]] = True
    lanes: dict[int, tuple[int, int]] = {}
    gone = np.flatnonzero(away)
    for number, (process, places) in enumerate(groups_of(process_of(part.thread[gone]))):
        rows = gone[places]
        rows = rows[np.argsort(part.start[rows], kind="stable")]
        lane = _lanes(part.start[rows].tolist(), part.end[rows].tolist())
        part.thread[rows] = FIRST_LANE + number * LANES + np.array(lane, np.int64)
        lanes.update((FIRST_LANE + number * LANES + i, (process, i)) for i in sorted(set(lane)))
    return [part], lanes


def _ranges_of(parts: list[Part], threads: Ints) -> Part:
    """The ranges and operators of some threads."""
    chosen = []
    for part in parts:
        mine = (part.kind == Kind.HOST_OP) | (part.kind == Kind.ANNOTATION)
        mine &= np.isin(part.thread, threads)
        chosen.append(part.taken(mine))
    return Part.joined(chosen)


def _crossing(start: Ints, end: Ints, count: int) -> list[int]:
    """Which of the first `count` intervals cross another, so that what is left nests. The others stay as they are."""
    starts, ends, crossing = start.tolist(), end.tolist(), []
    stack: list[int] = []
    for row in np.lexsort((-end, start)).tolist():
        while stack and ends[stack[-1]] <= starts[row]:
            stack.pop()
        while stack and ends[stack[-1]] < ends[row]:        # the one on top ends inside this one
            if row < count:
                crossing.append(row)
                break
            if stack[-1] >= count:                          # two others: their thread's own affair
                break
            crossing.append(stack.pop())
        else:
            stack.append(row)
    return crossing


def _lanes(starts: list[int], ends: list[int]) -> list[int]:
    """A lane for each interval, sorted by start, so that those of one lane do not overlap."""
    free: list[int] = []
    out = []
    for start, end in zip(starts, ends, strict=True):
        lane = next((i for i, until in enumerate(free) if until <= start), len(free))
        lane = min(lane, LANES - 1)
        if lane == len(free):
            free.append(end)
        else:
            free[lane] = max(free[lane], end)
        out.append(lane)
    return out
