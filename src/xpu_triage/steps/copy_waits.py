"""Copies that something waits for, as against copies that run beside a device with nothing else to do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..trace import Ints, Kind
from .host import ROUNDING_NS
from .intervals import Bools, covered_between, union_of
from .patterns import STATUS_CALL
from .scene import Scene
from .utilization import DeviceTime

STARTS_NS = 20_000
"""What waits for a copy starts within this time of its end, and was launched at least as long before: kernels start on
a device that is ready within 20 µs of their launch in complete captures."""

POLLS = 3
"""Questions in a row that make a wait: one or two are asked in passing, as by an allocator that looks which of its
buffers are free."""

ASKS_AGAIN_NS = 2_000_000
"""From one question to the next: loops that wait sleep up to a millisecond in between. Judgement. After a longer time
it was other work."""

GOES_ON_NS = 1_000_000
"""A thread that asked for the end of a copy goes on within this time of the answer. In complete captures the gaps
between launches take up to 0.5 ms, and other host work starts at 1 ms."""

KNOWN_SHARE = 0.5
"""The launch of what follows must be known for at least this share of the time in which only copies run."""


@dataclass(frozen=True, eq=False)
class CopyTime:
    """Times inside the window in which only copies run on one device, as disjoint intervals in order, ns."""

    start: Ints
    end: Ints
    free_start: Ints
    free_end: Ints
    """Those in which nothing waits for the copies to end."""

    @property
    def waited(self) -> int:
        """ns in which something waits for them."""
        return int((self.end - self.start).sum() - self.free)

    @property
    def free(self) -> int:
        return int((self.free_end - self.free_start).sum())


def copy_time(scene: Scene, time: DeviceTime) -> CopyTime | None:
    """When only copies run on one device, and whether something waits for them; None where that cannot be told.

    Two things wait. Work that was launched before a copy's end and starts right at it: from its launch on, its queue
    was held up. And a host thread that feeds the device, in a blocking call, in the call that makes a copy, or while it
    asks again and again until a copy is done: it launches nothing meanwhile. Whatever else runs copies beside it (a
    prefetch, a transfer between servers) waits for something else, and so does the device.
    """
    trace, rows = scene.trace, time.rows
    is_copy = trace.kind[rows] == Kind.COPY
    copies, others = rows[is_copy], rows[~is_copy]
    start, end = _without(*_clipped(scene, *union_of(trace.start[copies], scene.end[copies])),
                          *union_of(trace.start[others], scene.end[others]))
    if not len(start):
        return CopyTime(start, end, start, end)
    held_start, held_end, known = _held_up(scene, others, np.sort(scene.end[copies]), start)
    if (end - start)[known].sum() < KNOWN_SHARE * (end - start).sum():
        return None
    calls = _host_calls(scene, copies)
    polled_start, polled_end = _polled(scene, np.sort(scene.end[copies]))
    waits = union_of(np.concatenate((held_start, trace.start[calls], polled_start)),
                     np.concatenate((held_end, scene.end[calls], polled_end)))
    return CopyTime(start, end, *_without(start, end, *waits))


def _held_up(scene: Scene, others: Ints, copy_end: Ints, alone: Ints) -> tuple[Ints, Ints, Bools]:
    """[launch, start] of work that starts at a copy's end and was launched well before it; and, for each stretch of
    copies alone (by its start), whether the launch of the next work is known. Behind the last work nothing is held."""
    trace = scene.trace
    start, launch = trace.start[others], trace.launch[others]
    launched = np.where(launch >= 0, trace.start[np.maximum(launch, 0)], start)
    at = np.searchsorted(copy_end, start, "right") - 1
    ended = copy_end[np.maximum(at, 0)]
    held = (at >= 0) & (start - ended <= STARTS_NS) & (ended - launched >= STARTS_NS)
    after = np.searchsorted(start, alone, "right")
    known = np.append(launch >= 0, True)[after]
    return launched[held], start[held], known


def _host_calls(scene: Scene, copies: Ints) -> Ints:
    """Trace rows in which a thread that feeds the device waits for it, or makes one of `copies`."""
    trace = scene.trace
    made = trace.launch[copies]
    calls = np.union1d(np.flatnonzero(trace.blocking), made[made >= 0])
    return calls[np.isin(trace.thread[calls], scene.feeding_threads) & (trace.kind[calls] == Kind.RUNTIME)]


def _polled(scene: Scene, copy_end: Ints) -> tuple[Ints, Ints]:
    """[first question, last answer] of runs in which a thread that feeds the device makes no other call than to ask
    whether something is done, until a copy is: its end lies between the last two questions, and the thread goes on. A
    loop that looks after a transfer beside its other work asks once in a while, and does not end with it."""
    trace = scene.trace
    calls = np.flatnonzero((trace.kind == Kind.RUNTIME) & np.isin(trace.thread, scene.feeding_threads))
    asks = scene.names.rows(STATUS_CALL, Kind.RUNTIME, of=calls)
    if not asks.any():
        return calls[:0], calls[:0]
    order = np.lexsort((trace.start[calls], trace.thread[calls]))
    calls, asks = calls[order], asks[order]
    thread = trace.thread[calls]
    pause = trace.start[calls[1:]] - scene.end[calls[:-1]]
    new = np.concatenate(([True], (asks[1:] != asks[:-1]) | (thread[1:] != thread[:-1]) | (pause > ASKS_AGAIN_NS)))
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(calls)) - 1
    runs = asks[first] & (last - first + 1 >= POLLS) & (last + 1 < len(calls))
    first, last = first[runs], last[runs]
    begun, told = trace.start[calls[last - 1]] - ROUNDING_NS, scene.end[calls[last]]
    done = np.searchsorted(copy_end, told, "right") > np.searchsorted(copy_end, begun, "left")
    goes_on = (thread[last + 1] == thread[last]) & (trace.start[calls[last + 1]] - told < GOES_ON_NS)
    found = done & goes_on
    return trace.start[calls[first[found]]], told[found]


def _clipped(scene: Scene, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    start, end = np.maximum(start, scene.left), np.minimum(end, scene.right)
    return start[end > start], end[end > start]


def _without(start: Ints, end: Ints, cut_start: Ints, cut_end: Ints) -> tuple[Ints, Ints]:
    """Disjoint, sorted intervals less others of the same kind."""
    edges = np.concatenate((cut_start, cut_end))
    inside = covered_between(start, end, edges, edges + 1) > 0
    points = np.unique(np.concatenate((start, end, edges[inside])))
    left, right = points[:-1], points[1:]
    middle = (covered_between(start, end, left, right) > 0) & (covered_between(cut_start, cut_end, left, right) == 0)
    return left[middle], right[middle]
