"""What the rules of idle ask of a trace, whichever device and gap they look at: made once, since a capture may hold
many devices."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..trace import NOT_LINKED, Ints, Kind
from .host import Indices
from .intervals import Bools, covered_between, union_of
from .patterns import ASKS_FOR_WORK, COMPILE, COPY_CALL, EVENT_LOOP, FIRST_USE, LAUNCH_CALL, QUEUED, is_wait

if TYPE_CHECKING:
    from .scene import Scene

FIRST_USE_NS = 1_000_000
"""A launch, load or allocation call of this length on a dry device loads a module or maps memory."""

FEWEST_ASKED = 3
"""So often, within one gap, an engine's loop has asked for work for the time between to be empty passes. A loop that
runs a batch asks once between two launches."""

_PROGRAM = (Kind.HOST_OP, Kind.PYTHON, Kind.ANNOTATION)


class GapFacts:
    """Masks over host rows carry one False more at their end, so that -1 (no row) can index them."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    # -- masks in forest order
    @cached_property
    def blocking(self) -> Bools:
        """In a blocking call."""
        return np.append(self._scene.blocked_in >= 0, False)

    @cached_property
    def compiling(self) -> Bools:
        return self._inside(self._scene.host_rows(COMPILE, *_PROGRAM, Kind.RUNTIME))

    @cached_property
    def operating(self) -> Bools:
        """In an operator that is no exchange."""
        return self._inside(self._scene.host_kind == Kind.HOST_OP) & ~self.exchanging

    @cached_property
    def exchanging(self) -> Bools:
        """In an exchange between ranks."""
        return self._inside(self._scene.exchanges)

    @cached_property
    def waiting(self) -> Bools:
        """In a wait for someone else to hand over work, or an event loop's own time."""
        waits = self._inside(self._scene.host_rows(is_wait, Kind.PYTHON))
        waits[:-1] |= self._scene.host_rows(EVENT_LOOP, Kind.PYTHON)
        return waits

    @cached_property
    def silent_in(self) -> Ints:
        """int64, forest index of the outermost operator, call or frame around each host row that neither hands work to
        a device nor waits for one; -1 for none, and at the end for -1."""
        scene = self._scene
        busy = scene.host_rows(LAUNCH_CALL, Kind.RUNTIME, Kind.HOST_OP) | scene.host_rows(QUEUED, Kind.RUNTIME)
        busy |= scene.trace.blocking[scene.host.row]
        busy |= scene.launched_below
        silent = (scene.host.below(busy.astype(np.int64)) == 0) & self.works[scene.host.row]
        return np.append(scene.host.around(silent), -1)

    def _inside(self, rows: Bools) -> Bools:
        return np.append(self._scene.host.around(rows) >= 0, False)

    # -- masks over rows of the trace, with the same False at their end
    @cached_property
    def copy_calls(self) -> Bools:
        return np.append(self._scene.names.rows(COPY_CALL, Kind.RUNTIME), False)

    @cached_property
    def blocks(self) -> Bools:
        return np.append(self._scene.trace.blocking, False)

    @cached_property
    def works(self) -> Bools:
        """Operators, runtime calls and frames: rows that hold the host for their own sake."""
        return np.append(np.isin(self._scene.trace.kind, (Kind.HOST_OP, Kind.RUNTIME, Kind.PYTHON)), False)

    # -- rows and intervals
    @cached_property
    def slow_calls(self) -> Ints:
        """int64, rows of the trace: calls that are quick except the first time, and were not."""
        trace = self._scene.trace
        slow = self._scene.names.rows(FIRST_USE, Kind.RUNTIME) & (trace.dur >= FIRST_USE_NS)
        return np.flatnonzero(slow)

    @cached_property
    def overhead(self) -> tuple[Ints, Ints]:
        """Disjoint intervals of the profiler's own rows."""
        trace = self._scene.trace
        rows = np.flatnonzero(trace.kind == Kind.OVERHEAD)
        return union_of(trace.start[rows], self._scene.end[rows])

    @cached_property
    def lost_starts(self) -> dict[int, Ints]:
        """Starts, in order, of each thread's launches that left no device rows."""
        trace, lost = self._scene.trace, self._scene.lost_launches
        return {thread: trace.start[rows] for thread, rows in _by_group(trace.thread[lost], lost)}

    @cached_property
    def device_work(self) -> dict[int, tuple[Ints, Ints]]:
        """What each thread launched, on all devices together, as disjoint intervals."""
        trace = self._scene.trace
        rows = np.flatnonzero(trace.on_device & (trace.launch > NOT_LINKED))
        grouped = _by_group(trace.thread[trace.launch[rows]], rows)
        return {thread: union_of(trace.start[mine], self._scene.end[mine]) for thread, mine in grouped}

    def worked_elsewhere(self, thread: Indices | Ints, left: Ints, right: Ints) -> Ints:
        """ns of each gap in which another device works on what the same thread launched. The gap's own device does
        nothing in it, so the work of all devices there is that of the others."""
        out = np.zeros(len(left), np.int64)
        for one in np.unique(thread).tolist():
            if one in self.device_work:
                mine = thread == one
                out[mine] = covered_between(*self.device_work[one], left[mine], right[mine])
        return out

    # -- an engine without requests
    @cached_property
    def _asked(self) -> tuple[Ints, ...]:
        """Of each function that asks for work: its starts, in order, on the forest's shifted clock."""
        host = self._scene.host
        rows = host.outermost(np.flatnonzero(self._scene.host_rows(ASKS_FOR_WORK, Kind.PYTHON)))
        return tuple(host.start[mine] for _, mine in _by_group(self._scene.host_name[rows], rows))

    def empty_passes(self, thread: Indices | Ints, left: Ints, right: Ints) -> Ints:
        """ns of each interval of its thread from the first to the last time that one function asked for work, where it
        asked at least `FEWEST_ASKED` times."""
        out = np.zeros(len(left), np.int64)
        for start in self._asked:
            low = np.searchsorted(start, left + thread * self._scene.host.shift, "left")
            high = np.searchsorted(start, right + thread * self._scene.host.shift, "right")
            often = high - low >= FEWEST_ASKED
            out[often] = np.maximum(out[often], start[high[often] - 1] - start[low[often]])
        return out


def _by_group(code: Ints | Indices, rows: Ints) -> list[tuple[int, Ints]]:
    """`rows` (sorted) by their code, each group in order."""
    if not len(rows):
        return []
    order = np.argsort(code, kind="stable")
    ordered = code[order]
    cuts = np.flatnonzero(np.diff(ordered)) + 1
    return [(int(code[part[0]]), rows[part]) for part in np.split(order, cuts)]
