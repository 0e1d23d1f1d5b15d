"""Which call launched a piece of device work, and which calls wait for the device."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..trace import BEFORE_CAPTURE, FIRST_DEVICE_KIND, NOT_LINKED, Ints, Kind

Codes = NDArray[np.int32]
Kinds = NDArray[np.int8]

SYNC_CALL = re.compile(r"synchroni[sz]e|urEventWait|urQueueFinish|HostSync|^cudaMemcpy$|^cuMemcpyDtoH(_v2)?$"
                       r"|^hipMemcpy(DtoH|WithStream)?$", re.I)
"""Runtime calls that by their name return only when the device is done."""

COPY_CALL = re.compile(r"mem(ory)?_?co?py", re.I)

RETURN_TOLERANCE_NS = 1000
"""A copy call that returns at most this long before its copy ends has waited for it (files of whole µs)."""

GROWING_FRACTION = 0.9
"""Share of calls, in order of time, with a larger id than the call before, from which ids count as growing
with time. CUPTI and roctracer number in order of the calls (0.999 and more, several threads included)."""


def launches(kind: Kinds, start: Ints, device: Codes, process: Codes, correlation: Ints,
             external: Ints, owner: dict[int, int] | None = None) -> Ints:
    """Row of the call that launched each device row: int64, NOT_LINKED, BEFORE_CAPTURE, and -1 on host rows.

    Rows are sorted by start; `device` is -1 on host rows and `process` on device rows. A device row belongs
    to the runtime call of the same correlation id, else to the operator of the same external id. Where ids
    grow with time, work whose id lies below all captured ones was launched before the capture. `owner`: the
    process that drives each device, where the file tells.
    """
    launch = np.full(len(kind), NOT_LINKED, np.int64)
    work = np.flatnonzero(kind >= FIRST_DEVICE_KIND)
    calls = np.flatnonzero((kind == Kind.RUNTIME) & (correlation > 0))
    ids = _Ids(correlation, calls, work[correlation[work] > 0], start, device, process, owner)
    ids.join(launch)
    ops = np.flatnonzero((kind == Kind.HOST_OP) & (external > 0))
    # some versions repeat the correlation id as external id where there is no operator
    rest = work[(launch[work] == NOT_LINKED) & (external[work] > 0) & (external[work] != correlation[work])]
    _Ids(external, ops, rest, start, device, process, ids.owner).join(launch)
    linked = rest[launch[rest] >= 0]
    launch[linked[start[launch[linked]] > start[linked]]] = NOT_LINKED      # another operator of that number
    ids.mark_earlier(launch)
    return launch


class _Ids:
    """Ids that join device rows (`work`) to host rows (`source`), each within its process where ids
    collide."""

    def __init__(self, ids: Ints, source: Ints, work: Ints, start: Ints, device: Codes, process: Codes,
                 owner: dict[int, int] | None = None) -> None:
        self._ids, self._start = ids, start
        self._parts = [(work, source)]
        self.owner = owner or self._owners(source, work, device, process)
        if self.owner:
            self._parts = [(work[device[work] == d], source[process[source] == p])
                           for d, p in self.owner.items()]

    def join(self, launch: Ints) -> None:
        """Write to `launch` the first source row that has the id of each device row."""
        for work, source in self._parts:
            self._join(launch, work, source)

    def _join(self, launch: Ints, work: Ints, source: Ints) -> None:
        if not len(work) or not len(source):
            return
        source = source[np.argsort(self._ids[source], kind="stable")]
        at = np.minimum(np.searchsorted(self._ids[source], self._ids[work]), len(source) - 1)
        hit = self._ids[source[at]] == self._ids[work]
        launch[work[hit]] = source[at[hit]]

    def _owners(self, source: Ints, work: Ints, device: Codes, process: Codes) -> dict[int, int] | None:
        """The process that drives each device, where several processes use the same ids; else None.

        Captures of several ranks laid into one file each count from 1. A device's process is the one with
        most rows of the right id before the device's work; of several such the one whose rows come closest
        before.
        """
        processes = np.unique(process[source])
        if len(processes) < 2 or not _shared(self._ids[source], process[source]):
            return None
        owner: dict[int, int] = {}
        for d in np.unique(device[work]).tolist():
            rows, best = work[device[work] == d], (-1, 0.0)
            for p in processes.tolist():
                launch = np.full(len(self._start), NOT_LINKED, np.int64)
                self._join(launch, rows, source[process[source] == p])
                linked = rows[launch[rows] >= 0]
                delay = self._start[linked] - self._start[launch[linked]]
                ahead = delay[delay >= 0]
                score = (len(ahead), -float(np.median(ahead)) if len(ahead) else 0.0)
                if score > best:
                    best, owner[d] = score, p
        return owner

    def mark_earlier(self, launch: Ints) -> None:
        for work, source in self._parts:
            ids = self._ids[source]
            if not len(ids) or (len(ids) > 1 and (np.diff(ids) > 0).mean() < GROWING_FRACTION):
                continue
            unlinked = work[launch[work] == NOT_LINKED]
            launch[unlinked[self._ids[unlinked] < ids.min()]] = BEFORE_CAPTURE


def _shared(ids: Ints, process: Codes) -> bool:
    """Whether any id occurs in more than one process."""
    order = np.lexsort((process, ids))
    ids, process = ids[order], process[order]
    return bool(((ids[1:] == ids[:-1]) & (process[1:] != process[:-1])).any())


def blocking_calls(kind: Kinds, end: Ints, name: Codes, names: Sequence[str],
                   launch: Ints) -> NDArray[np.bool_]:
    """Runtime calls in which the host waits for the device: those named so, and copies that return only after
    the copy ran (through pageable memory an asynchronous copy is one)."""
    runtime = kind == Kind.RUNTIME
    sync: NDArray[np.bool_] = runtime & np.array([bool(SYNC_CALL.search(n)) for n in names], bool)[name]
    copy_call = np.array([bool(COPY_CALL.search(n)) for n in names], bool)[name]
    copies = np.flatnonzero((kind == Kind.COPY) & (launch >= 0))
    calls = launch[copies]
    waited = runtime[calls] & copy_call[calls] & (end[calls] >= end[copies] - RETURN_TOLERANCE_NS)
    sync[calls[waited]] = True
    return sync
