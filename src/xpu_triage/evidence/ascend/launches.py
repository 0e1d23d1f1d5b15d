"""Which host row launched each piece of device work, where a queue lies between the operator and the device.

torch_npu's operators hand their work to a queue (`Enqueue`); another thread takes it out (`Dequeue@…`) and calls CANN.
Two rows could thus be called the launch. It is the one that the device had to wait for: where the queue was empty the
operator sets the pace, and the launch is its `Enqueue`; where the queue's thread was still busy with earlier work, or
takes long over this, the launch is the call that it makes. Where the device did not wait at all it is the `Enqueue`: it
lies inside the operator.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...trace import BEFORE_CAPTURE, NOT_LINKED, Ints
from .run import DeviceRows, HostRows
from .words import Place

Bools = NDArray[np.bool_]

QUEUE_NS = 200_000
"""A queue that is empty passes work on in 10 to 60 µs: longer, and it is the queue's thread that works (it compiles,
or moves memory). The walk takes a stall of this length, if it is most of a gap, for work that was not recorded."""

SKEW_NS = 1_000_000
"""The clocks of host and device are fitted to each other: work is seen to start up to 15 µs before its call."""

GROWING_FRACTION = 0.9
"""Share of calls, in order of time, with a larger id than the call before, from which ids grow with time."""


class Launches:
    """Rows of the host (indices) that launched device rows. `host` is sorted by start."""

    def __init__(self, host: HostRows, device: DeviceRows) -> None:
        self._host, self._device = host, device
        self._shift = np.int64(host.end.max() - host.start.min() + 1) if len(host) else np.int64(1)
        self._base = host.start.min() if len(host) else np.int64(0)
        self.call = self._calls()
        """int64, one entry a device row: the call of CANN that launched it, -1 where not recorded."""
        self.taken = self._around(self._rows(Place.DEQUEUE), device.call_thread, device.call_at)
        """int64, one entry a device row: the `Dequeue` that it was called from, -1 for none."""
        self.operator = self._operators()
        """int64, one entry a device row: the operator that asked for it, -1 where not recorded."""
        self.enqueue = self._enqueues()
        """int64, one entry a host row: the `Enqueue` of a `Dequeue`, else -1."""
        self.row = self._decide()
        """int64, one entry a device row: the row that launched it."""

    def _rows(self, *places: Place) -> Ints:
        return np.flatnonzero(np.isin(self._host.place, places))

    def _key(self, thread: Ints | NDArray[np.int32], at: Ints) -> Ints:
        """Time on a line on which threads follow one another."""
        return np.asarray(thread, np.int64) * self._shift + np.clip(at - self._base, 0, self._shift - 1)

    def _around(self, rows: Ints, thread: NDArray[np.int32], at: Ints) -> Ints:
        """The outermost of `rows` in which each moment lies, -1 for none."""
        out = np.full(len(at), -1, np.int64)
        rows = self.outermost(rows)
        if not len(rows):
            return out
        host = self._host
        key = self._key(host.thread[rows], host.start[rows])
        i = np.searchsorted(key, self._key(thread, at), "right") - 1
        found = rows[np.maximum(i, 0)]
        inside = (i >= 0) & (thread >= 0) & (host.thread[found] == thread) & (at <= host.end[found])
        out[inside] = found[inside]
        return out

    def around_dequeue(self, rows: Ints) -> Ints:
        """The `Dequeue` that each host row lies in, -1 for none."""
        host = self._host
        return self._around(self._rows(Place.DEQUEUE), host.thread[rows], host.start[rows])

    def enclosed(self, outer: Ints, rows: Ints) -> Bools:
        """Which of the host's `rows` begin inside one of `outer`."""
        host = self._host
        return np.asarray(self._around(outer, host.thread[rows], host.start[rows]) >= 0)

    def outermost(self, rows: Ints) -> Ints:
        """Those of `rows` that lie in no other of them, by thread and start."""
        rows, reach = self._with_reach(rows)
        return rows[self._key(self._host.thread[rows], self._host.start[rows]) >= reach]

    def nested(self, rows: Ints) -> Ints:
        """Those of `rows` that lie in another of them."""
        rows, reach = self._with_reach(rows)
        return rows[self._key(self._host.thread[rows], self._host.start[rows]) < reach]

    def _with_reach(self, rows: Ints) -> tuple[Ints, Ints]:
        """`rows` by thread and start, outer ones first, and how far those before each of them reach."""
        host = self._host
        rows = rows[np.lexsort((-host.dur[rows], host.start[rows], host.thread[rows]))]
        end = self._key(host.thread[rows], host.start[rows]) + host.dur[rows]
        reach = np.concatenate(([-1], np.maximum.accumulate(end)[:-1])) if len(rows) else end
        return rows, reach

    def _calls(self) -> Ints:
        """The call of the same connection; else the one that begins at the launch; else the outermost one around it."""
        host, device = self._host, self._device
        calls = self._rows(Place.CALL)
        out = np.full(len(device), -1, np.int64)
        if not len(calls):
            return out
        by_id = calls[np.argsort(host.connection[calls], kind="stable")]
        i = np.minimum(np.searchsorted(host.connection[by_id], device.connection), len(by_id) - 1)
        same = (host.connection[by_id[i]] == device.connection) & (device.connection >= 0)
        same &= (device.call_thread < 0) | (device.call_thread == host.thread[by_id[i]])
        out[same] = by_id[i[same]]
        device.call_thread[same], device.call_at[same] = host.thread[out[same]], host.start[out[same]]
        for other in (self._starting(calls, device.call_thread, device.call_at),
                      self._around(calls, device.call_thread, device.call_at)):
            out = np.where(out >= 0, out, other)
        return out

    def _starting(self, rows: Ints, thread: NDArray[np.int32], at: Ints) -> Ints:
        """The innermost of `rows` that starts at each moment on its thread, -1 for none."""
        out = np.full(len(at), -1, np.int64)
        if not len(rows):
            return out
        host = self._host
        rows = rows[np.lexsort((-host.dur[rows], host.start[rows], host.thread[rows]))]
        key = self._key(host.thread[rows], host.start[rows])
        i = np.searchsorted(key, self._key(thread, at), "right") - 1
        found = rows[np.maximum(i, 0)]
        hit = (i >= 0) & (thread >= 0) & (host.start[found] == at) & (host.thread[found] == thread)
        out[hit] = found[hit]
        return out

    def _operators(self) -> Ints:
        device = self._device
        return self._starting(self._rows(Place.OPERATOR), device.op_thread, device.op_at)

    def _enqueues(self) -> Ints:
        host = self._host
        out = np.full(len(host), -1, np.int64)
        given, taken = self._rows(Place.ENQUEUE), self._rows(Place.DEQUEUE)
        if len(given) and len(taken):
            given = given[np.argsort(host.connection[given], kind="stable")]
            i = np.minimum(np.searchsorted(host.connection[given], host.connection[taken]), len(given) - 1)
            same = (host.connection[given[i]] == host.connection[taken]) & (host.connection[taken] >= 0)
            out[taken[same]] = given[i[same]]
        return out

    def _decide(self) -> Ints:
        host, device = self._host, self._device
        row = np.where(self.call >= 0, self.call, self.taken)
        row = np.where(row >= 0, row, self.operator)
        queued = np.flatnonzero(self.taken >= 0)
        queued = queued[self.enqueue[self.taken[queued]] >= 0]
        if len(queued):
            taken = self.taken[queued]
            given, called = self.enqueue[taken], row[queued]
            idle_from = self._idle_from()[queued]
            waits = device.start[queued] - np.maximum(idle_from, host.end[given])
            gap = device.start[queued] - idle_from
            prompt = ((waits <= QUEUE_NS) | (2 * waits <= gap)) & self._was_free(taken, host.start[given])
            never_dry = (host.end[called] <= idle_from) & (gap <= QUEUE_NS)
            by_operator = prompt | never_dry
            row[queued[by_operator]] = given[by_operator]
        known = np.flatnonzero(row >= 0)
        late = host.start[row[known]] > device.start[known] + device.dur[known] + SKEW_NS
        row[known[late]] = -1                                                       # another row of that number
        return np.where(row >= 0, row, self._unlinked())

    def _idle_from(self) -> Ints:
        """ns, one entry a device row: until when earlier work of its device runs; of its first the host's first row."""
        device = self._device
        out = np.full(len(device), self._base, np.int64)
        for code in np.unique(device.device).tolist():
            rows = np.flatnonzero(device.device == code)
            rows = rows[np.argsort(device.start[rows], kind="stable")]
            out[rows[1:]] = np.maximum.accumulate(device.start[rows] + device.dur[rows])[:-1]
        return out

    def _was_free(self, taken: Ints, given_at: Ints) -> Bools:
        """Whether the queue's thread had nothing to do when the work of each of `taken` was handed to it."""
        host = self._host
        every, reach = self._with_reach(self._rows(Place.DEQUEUE))
        busy_until = np.full(len(host), -1, np.int64)
        busy_until[every] = reach
        return np.asarray(busy_until[taken] <= self._key(host.thread[taken], given_at))

    def _unlinked(self) -> Ints:
        """BEFORE_CAPTURE where the id of the work lies below those of all calls, and ids grow with time."""
        out = np.full(len(self._device), NOT_LINKED, np.int64)
        ids = self._host.connection[self._rows(Place.CALL)]
        ids = ids[ids >= 0]
        if len(ids) > 1 and (np.diff(ids) > 0).mean() >= GROWING_FRACTION:
            out[(self._device.connection >= 0) & (self._device.connection < ids.min())] = BEFORE_CAPTURE
        return out
