"""A `Run` to a `Trace`: rows in order of time, each device row with its launch, and what the run cannot show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UnusableInput
from ...text import clean, counted
from ...trace import NOT_LINKED, Counts, Ints, Kind, Trace
from .. import linking
from ..kineto import STRAY_NS
from ..times import since_1970
from .about import About, Copies
from .launches import Launches
from .run import DeviceRows, HostRows, Run, at, device_rows
from .words import BLOCKING_COPY, GRAPH, READ_BACK, Place, copy_name, direction_in, is_runtime_level

_KIND = {Place.OPERATOR: Kind.HOST_OP, Place.PYTHON: Kind.PYTHON, Place.ANNOTATION: Kind.ANNOTATION,
         Place.ENQUEUE: Kind.RUNTIME, Place.DEQUEUE: Kind.RUNTIME, Place.CALL: Kind.RUNTIME}


def trace(path: Path, run: Run, about: About) -> Trace:
    """The trace of `run`. Raises UnusableInput where it has no rows."""
    _drop_strays(run)
    if not len(run.host) and not len(run.device):
        raise UnusableInput(_nothing(run), where=path)
    _drop_repeated_calls(run)
    _add_steps(run)
    order = np.argsort(run.host.start, kind="stable")
    run.host = run.host.at(order)
    launches = Launches(run.host, run.device)
    kind = _host_kinds(run, launches)
    _tell_directions(run, launches)
    silent = _silent_copies(run)
    waited = _waited_for(run, launches, silent)
    blocking, placed = _add_blocking_copies(run, launches)
    copies = Copies(blocking, placed, len(silent), waited)
    return _joined(path, run, launches, kind, about.finished(run, copies))


def _nothing(run: Run) -> str:
    if not run.events:
        return "an Ascend profile without events"
    left = f": {', '.join(map(clean, run.unknown[:4]))}" if run.unknown else ""
    return f"none of its {run.events:,} events is work of the host or of a device{left}"


def _drop_strays(run: Run) -> None:
    """Rows at time 0, where all others are far from it, carry no time of this capture."""
    host, device = run.host, run.device
    starts = np.concatenate((host.start, device.start))
    others = starts[starts > 0]
    if not len(others) or others.min() <= STRAY_NS or len(others) == len(starts):
        return
    run.unreadable += len(starts) - len(others)
    run.host, run.device = host.at(host.start > 0), at(device, device.start > 0)


def _drop_repeated_calls(run: Run) -> None:
    """Level2 draws in every call the calls of the runtime below it: the same call once more, at a lower level."""
    launches = Launches(run.host, at(run.device, np.zeros(0, np.int64)))
    calls = launches.nested(np.flatnonzero(run.host.place == Place.CALL))
    lower = np.array([is_runtime_level(name) for name in run.names], bool)
    calls = calls[lower[run.host.name[calls]]]
    if not len(calls):
        return
    keep = np.ones(len(run.host), bool)
    keep[calls] = False
    run.repeated += len(calls)
    run.repeated_calls = len(calls)
    run.host = run.host.at(np.flatnonzero(keep))


def _add_steps(run: Run) -> None:
    """Steps of a table, for a file whose rows have no marks."""
    host = run.host
    if not run.steps or not len(host) or (host.place == Place.ANNOTATION).any():
        return
    operators = host.thread[np.isin(host.place, (Place.OPERATOR, Place.PYTHON))]
    thread = int(np.bincount(operators).argmax()) if len(operators) else int(np.bincount(host.thread).argmax())
    for name, start, end in run.steps:
        more = (start, max(end - start, 0), run.names[clean(name)], int(Place.ANNOTATION), thread, -1)
        for column, value in zip(vars(host), more, strict=True):
            setattr(host, column, np.append(getattr(host, column), np.asarray(value, getattr(host, column).dtype)))


def _host_kinds(run: Run, launches: Launches) -> NDArray[np.int8]:
    """Kinds of the host rows.

    The walk knows one launch of each piece of work. Where that is the `Enqueue`, or where one call launched several
    kernels (`aclnnAddmm`), the other calls below the `Dequeue` are host work: no launches whose work was lost, and no
    graphs that are replayed. Without calls of CANN (Level0) the queue's rows say nothing of what the host waits for."""
    host = run.host
    kind = np.array([_KIND[Place(place)] for place in range(len(Place))], np.int8)[host.place]
    if not (host.place == Place.CALL).any():
        kind[kind == Kind.RUNTIME] = Kind.HOST_OP
        return kind
    launched = np.bincount(launches.row[launches.row >= 0], minlength=len(host))
    has_work = np.zeros(len(host), bool)
    has_work[launches.taken[launches.taken >= 0]] = True
    calls = np.flatnonzero(np.isin(host.place, (Place.CALL, Place.DEQUEUE)))
    inside = launches.around_dequeue(calls)
    known = (inside >= 0) & has_work[inside] & (launches.enqueue[inside] >= 0)
    syncs = np.array([bool(linking.SYNC_CALL.search(name)) for name in run.names], bool)[host.name[calls]]
    kind[calls[known & ~syncs & (launched[calls] == 0)]] = Kind.HOST_OP
    graph = np.array([bool(GRAPH.search(name)) for name in run.names], bool)[host.name]
    kind[(launched > 1) & ~graph & (kind == Kind.RUNTIME)] = Kind.HOST_OP
    return kind


def _tell_directions(run: Run, launches: Launches) -> None:
    """Copies whose own row is silent go where the operator that asked for them, or its call, says."""
    device, host = run.device, run.host
    names = list(run.names)
    told = [bool(direction_in(name)) for name in names]
    for row in np.flatnonzero(device.kind == Kind.COPY).tolist():
        if told[device.name[row]]:
            continue
        for source in (launches.operator[row], launches.taken[row], launches.call[row]):
            if source >= 0 and (direction := direction_in(names[host.name[source]])):
                device.name[row] = run.names[copy_name(names[device.name[row]], direction)]
                break


def _silent_copies(run: Run) -> Ints:
    """Device rows of copies of which nothing says where they go."""
    told = np.array([bool(direction_in(name)) for name in run.names], bool)
    device = run.device
    return np.flatnonzero((device.kind == Kind.COPY) & ~told[device.name]) if len(device) else np.zeros(0, np.int64)


def _waited_for(run: Run, launches: Launches, silent: Ints) -> int:
    """How many of the silent copies the host waits for before it launches anything else. Data that an operator of the
    host takes has to be there: the others bring none."""
    host = run.host
    copies = np.unique(host.start[launches.row[silent[launches.row[silent] >= 0]]])
    sync = np.array([bool(linking.SYNC_CALL.search(name)) for name in run.names], bool)
    waits = np.sort(host.start[np.flatnonzero((host.place == Place.CALL) & sync[host.name])]) if len(host) else copies
    work = np.unique(host.start[launches.row[launches.row >= 0]])
    last = np.int64(np.iinfo(np.int64).max)
    wait = np.append(waits, last)[np.searchsorted(waits, copies, "right")]
    after = np.append(work, last)[np.searchsorted(work, copies, "right")]
    return int((wait < after).sum())


def _add_blocking_copies(run: Run, launches: Launches) -> tuple[int, int]:
    """Copies that the host waits for (`aclrtMemcpy`) leave no row on the device. Those of read-backs are put at the
    end of their call, without length: that they happened and which way is known, how long they took is not.

    Returns how many others there are, of unknown direction, and how many were placed."""
    host, device = run.host, run.device
    blocking = np.array([bool(BLOCKING_COPY.search(name)) for name in run.names], bool)
    calls = launches.outermost(np.flatnonzero((host.place == Place.CALL) & blocking[host.name]))
    calls = np.setdiff1d(calls, launches.row)
    if not len(calls) or not len(device):
        return len(calls), 0
    reads = np.array([bool(READ_BACK.match(name)) for name in run.names], bool)
    rows = np.flatnonzero((host.place == Place.OPERATOR) & reads[host.name])
    down = calls[launches.enclosed(rows, calls)]
    if not len(down):
        return len(calls), 0
    lead = int(np.bincount(device.device).argmax())
    run.streams = (*run.streams, f"{run.devices[lead]}/host copies")
    count = len(down)
    name = [run.names[copy_name(clean(call), "device to host")] for call in _names_of(run, down)]
    more = device_rows(host.end[down], np.zeros(count, np.int64), name, np.full(count, Kind.COPY),
                       np.full(count, lead), np.full(count, len(run.streams) - 1), host.connection[down])
    run.device = DeviceRows(**{key: np.concatenate((column, getattr(more, key)))
                               for key, column in vars(device).items()})
    launches.row = np.concatenate((launches.row, down))
    call = clean(_names_of(run, down[:1])[0])
    copies = counted(count, "blocking copy", "blocking copies")
    run.notes.append(f"{copies} to the host ({call}) left no device row: placed at the end of the call, without length")
    return len(calls) - count, count


def _names_of(run: Run, rows: Ints) -> list[str]:
    names = list(run.names)
    return [names[i] for i in run.host.name[rows].tolist()]


def _second_half(host: HostRows, names: list[str], launches: Launches, blocking: NDArray[np.bool_]) -> Ints:
    """Blocking copies right after a synchronization of the same thread: both are one read-back."""
    sync = np.array([bool(linking.SYNC_CALL.search(name)) for name in names], bool)
    copy = np.array([bool(BLOCKING_COPY.search(name)) for name in names], bool)
    calls = launches.outermost(np.flatnonzero((host.place == Place.CALL) | (host.place == Place.ENQUEUE)))
    before = np.concatenate((calls[:1], calls[:-1]))
    pair = copy[host.name[calls]] & sync[host.name[before]] & (host.thread[calls] == host.thread[before])
    return calls[pair & blocking[calls]]


def _joined(path: Path, run: Run, launches: Launches, host_kind: NDArray[np.int8], about: About) -> Trace:
    host, device = run.host, run.device
    count = len(host)
    names = tuple(map(clean, run.names))
    start = np.concatenate((host.start, device.start))
    order = np.argsort(start, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))

    def both(of_host: Any, of_device: Any, dtype: Any) -> Any:
        parts = [np.broadcast_to(np.asarray(part, dtype), (n,)) for part, n in ((of_host, count),
                                                                               (of_device, len(device)))]
        return np.concatenate(parts)[order]

    launch = np.full(len(order), NOT_LINKED, np.int64)
    launch[count:] = np.where(launches.row >= 0, place[np.maximum(launches.row, 0)], launches.row)
    launch = launch[order]
    kind = both(host_kind, device.kind, np.int8)
    dur = both(host.dur, device.dur, np.int64)
    name = both(host.name, device.name, np.int32)
    start = start[order]
    used, name = np.unique(name, return_inverse=True)
    name, names = name.astype(np.int32), tuple(names[code] for code in used.tolist())
    blocking = linking.blocking_calls(kind, start + dur, name, names, launch)
    second = _second_half(host, list(run.names), launches, blocking[place[:count]])
    blocking[place[second]] = False
    # without rows of the host there is none to stand for a step's mark
    listed = () if count else tuple((clean(label), begin - int(start[0]), end - int(start[0]))
                                    for label, begin, end in run.steps)
    counts = Counts(events=run.events, kept=len(order), repeated=run.repeated, unplaced=run.unplaced,
                    unreadable=run.unreadable, unknown_categories=tuple(map(clean, run.unknown)))
    return Trace(
        start=start - start[0], dur=dur, name=name, kind=kind,
        device=both(-1, device.device, np.int32), stream=both(-1, device.stream, np.int32),
        thread=both(host.thread, -1, np.int32),
        correlation=both(np.where(host.place == Place.CALL, host.connection, -1), device.connection, np.int64),
        launch=launch, blocking=blocking, names=names, devices=tuple(map(clean, run.devices)),
        streams=tuple(map(clean, run.streams)), threads=tuple(map(clean, run.threads)), counts=counts,
        notes=tuple(dict.fromkeys(map(clean, [*run.notes, *about.notes]))), incomplete=run.incomplete,
        meta=about.meta, steps=listed, began=since_1970(int(start[0])), source=str(path), format=clean(about.format))

