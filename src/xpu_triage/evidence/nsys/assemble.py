"""Rows of all tables of an export as the columns of a trace: sorted, coded, linked."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...text import clean
from ...trace import FIRST_DEVICE_KIND, NOT_LINKED, Ints, Kind
from .. import linking
from ..sqlite_file import MISSING
from .about import About, pid_of
from .names import Codes
from .ranges import place_ranges, process_of
from .tables import THREAD_BITS, Part, Tables, distinct_rows, groups_of

Bools = NDArray[np.bool_]

FAR_NS = 2 * 86_400 * 10**9
"""A row this far from the middle of the capture carries no time of it, and one this long no duration."""

UNKNOWN_DEVICE = -1

_COLLECTIVE = re.compile(r"p?nccl(All|Reduce|Broadcast|Bcast|Send|Recv|Gather|Scatter|GroupEnd)")
"""NCCL's own NVTX ranges around what launches its kernels. (Setting up and looking up launches none of them.)"""


@dataclass
class Assembled:
    """Columns of a `Trace`, and what became of the rows."""

    start: Ints
    dur: Ints
    name: Codes
    kind: NDArray[np.int8]
    device: Codes
    stream: Codes
    thread: Codes
    correlation: Ints
    launch: Ints
    blocking: Bools
    names: tuple[str, ...]
    devices: tuple[str, ...]
    streams: tuple[str, ...]
    threads: tuple[str, ...]
    gpus: frozenset[int]
    """The GPUs that worked, by their numbers in the file."""
    unreadable: int = 0
    repeated: int = 0
    notes: list[str] = field(default_factory=list)


def assemble(found: Tables, about: About) -> Assembled | None:
    """The rows of a trace; None where no row has a time."""
    ranges, lanes = place_ranges(found)
    parts = [part for part in (*found.parts, *ranges) if len(part)]
    found.parts, found.ranges = [], []                      # freed while the columns are put together
    if not parts:
        return None
    rows = Part.joined(parts)
    del parts, ranges
    timed = _timed(rows)
    unreadable = len(rows) - int(timed.sum())
    keep = np.flatnonzero(timed)
    keep = keep[np.argsort(rows.start[keep], kind="stable")]
    if not len(keep):
        return None
    rows = rows.taken(keep)
    inside = _inside_calls(rows)
    repeated = int(inside.sum())
    if repeated:
        rows = rows.taken(~inside)
    made = _coded(rows, found.names.all, about, lanes)
    made.unreadable, made.repeated = unreadable, repeated
    return made


def _timed(rows: Part) -> Bools:
    """Rows with a start and an end of this capture. CUPTI writes 0 for both where it got none from the device."""
    timed = (rows.start != MISSING) & (rows.end != MISSING) & (rows.end >= rows.start)
    timed &= ~((rows.kind >= FIRST_DEVICE_KIND) & (rows.start == 0) & (rows.end == 0))
    if timed.any():
        middle = int(np.sort(rows.start[timed])[int(timed.sum()) // 2])
        low, high = middle - FAR_NS, middle + FAR_NS
        timed &= (rows.start > low) & (rows.start < high) & (rows.end < high)
    return timed


def _inside_calls(rows: Part) -> Bools:
    """Calls of the operating system from inside a CUDA call or an operator: they are how that works, or waits."""
    outer = np.flatnonzero((rows.kind == Kind.RUNTIME) | (rows.kind == Kind.HOST_OP))
    return (rows.kind == Kind.PYTHON) & _within(rows, outer)


def _within(rows: Part, outer: Ints) -> Bools:
    """Rows that start inside one of the rows `outer` of their thread, those themselves included."""
    if not len(outer):
        return np.zeros(len(rows), np.bool_)
    first = int(rows.start.min())
    shift = int(rows.end.max()) - first + 1
    _, thread = np.unique(rows.thread, return_inverse=True)
    at = rows.start - first + thread * shift
    order = np.argsort(at[outer], kind="stable")
    begin = at[outer][order]
    reach = np.maximum.accumulate((rows.end - first + thread * shift)[outer][order])
    place = np.searchsorted(begin, at, "right") - 1
    return (place >= 0) & (reach[np.maximum(place, 0)] > at)


def _coded(rows: Part, names: tuple[str, ...], about: About, lanes: dict[int, tuple[int, int]]) -> Assembled:
    on_device = rows.kind >= FIRST_DEVICE_KIND
    process = np.where(on_device, rows.thread, process_of(rows.thread))
    gpu = _gpus(rows, on_device, about)
    device, devices = _codes(gpu[on_device], on_device,
                             lambda g: "unknown device" if g == UNKNOWN_DEVICE else about.gpu_label(g))
    stream, streams = _streams(rows, gpu, on_device)
    thread, threads = _codes(rows.thread[~on_device], ~on_device, lambda t: _thread_label(t, about, lanes))
    correlation = np.where(rows.correlation == MISSING, -1, rows.correlation)
    launch = _launches(rows, process, on_device, correlation)
    name, used = _used(rows.name, names)
    made = Assembled(
        start=rows.start - rows.start[0], dur=rows.end - rows.start, name=name, kind=rows.kind, device=device,
        stream=stream, thread=thread, correlation=correlation, launch=launch,
        blocking=linking.blocking_calls(rows.kind, rows.end, name, used, launch),
        names=used, devices=devices, streams=streams, threads=threads,
        gpus=frozenset(np.unique(gpu[on_device]).tolist()),
        notes=_shared_devices(process[on_device], gpu[on_device], about))
    _mark_collectives(made, rows)
    return made


def _gpus(rows: Part, on_device: Bools, about: About) -> Ints:
    """int64, the GPU of each device row; its processes may number it differently."""
    gpu = np.full(len(rows), UNKNOWN_DEVICE, np.int64)
    chosen = np.flatnonzero(on_device & (rows.device != MISSING))
    pairs, which = distinct_rows(rows.thread[chosen], rows.device[chosen])
    gpu[chosen] = np.array([about.gpu(process, number) for process, number in pairs], np.int64)[which]
    return gpu


def _streams(rows: Part, gpu: Ints, on_device: Bools) -> tuple[Codes, tuple[str, ...]]:
    """Streams are numbered within a process. `0/7`: device and stream; the process where several use the device."""
    chosen = np.flatnonzero(on_device)
    distinct, which = distinct_rows(gpu[chosen], rows.stream[chosen], rows.thread[chosen])
    codes = np.full(len(rows), -1, np.int32)
    codes[chosen] = which
    processes: dict[int, set[int]] = {}
    for device, _, process in distinct:
        processes.setdefault(device, set()).add(process)
    labels = []
    for device, stream, process in distinct:
        label = f"{'?' if device == UNKNOWN_DEVICE else device}/{'?' if stream == MISSING else stream}"
        labels.append(label if len(processes[device]) == 1 else f"{label} of process {pid_of(process)}")
    return codes, tuple(labels)


def _codes(values: Ints, mask: Bools, label: Callable[[int], str]) -> tuple[Codes, tuple[str, ...]]:
    """Codes of the values, which are those of the rows in `mask`, -1 elsewhere; and the labels of the codes."""
    distinct, which = np.unique(values, return_inverse=True)
    codes = np.full(len(mask), -1, np.int32)
    codes[mask] = which
    return codes, tuple(label(value) for value in distinct.tolist())


def _thread_label(thread: int, about: About, lanes: dict[int, tuple[int, int]]) -> str:
    """`4515/4520 pt_autograd_0`: process, thread, and the thread's name, else the process's."""
    if thread == MISSING:
        return "unknown thread"
    if thread in lanes:
        process, lane = lanes[thread]
        owner = "unknown process" if process == MISSING else str(pid_of(process))
        return f"{owner} ranges" if lane == 0 else f"{owner} ranges {lane + 1}"
    tid = thread & ((1 << THREAD_BITS) - 1)
    name = about.threads.get(thread) or about.processes.get(thread >> THREAD_BITS << THREAD_BITS, "")
    return clean(f"{pid_of(thread)}/{tid} {name}".strip())


def _launches(rows: Part, process: Ints, on_device: Bools, correlation: Ints) -> Ints:
    """`Trace.launch`. Ids count within a process: each is joined by itself, where every row names its own.

    The ids of operators, by which the shared rules join what no call launched, are none of this format's.
    """
    call = rows.kind == Kind.RUNTIME
    whole = bool((process[on_device | call] == MISSING).any())
    joined = np.flatnonzero(on_device | call)
    groups = [joined] if whole else [joined[places] for _, places in groups_of(process[joined])]
    launch = np.full(len(rows), NOT_LINKED, np.int64)
    _, code = np.unique(process, return_inverse=True)
    for mine in groups:
        device = np.where(on_device[mine], rows.device[mine], -1).astype(np.int32)
        owner = np.where(on_device[mine], -1, code[mine]).astype(np.int32)
        found = linking.launches(rows.kind[mine], rows.start[mine], device, owner, correlation[mine],
                                 np.full(len(mine), -1, np.int64))
        launch[mine] = np.where(found >= 0, mine[found], found)
    return launch


def _used(name: Codes, names: tuple[str, ...]) -> tuple[Codes, tuple[str, ...]]:
    """Only names that a row bears."""
    used, codes = np.unique(name, return_inverse=True)
    return codes.astype(np.int32), tuple(names[i] for i in used.tolist())


def _shared_devices(process: Ints, gpu: Ints, about: About) -> list[str]:
    """Devices that several processes give one number, where the file does not say that it is the same GPU."""
    notes = []
    for device, places in groups_of(gpu):
        processes = [pid_of(p) for p in np.unique(process[places]).tolist()]
        if len(processes) > 1 and not about.mapped.issuperset(processes):
            named = ", ".join(map(str, processes[:6]))
            notes.append(f"{len(processes)} processes ({named}) work on a device that each calls {device}, and the "
                         "export does not say that it is one GPU: taken as one")
    return notes


def _mark_collectives(made: Assembled, rows: Part) -> None:
    """Kernels that NCCL launched, whatever they are called, where its ranges are recorded."""
    codes = np.array([bool(_COLLECTIVE.match(name)) for name in made.names], np.bool_)
    ranges = np.flatnonzero((made.kind == Kind.ANNOTATION) & codes[made.name])
    if not len(ranges):
        return
    kernels = np.flatnonzero((made.kind == Kind.KERNEL) & (made.launch >= 0))
    inside = _within(rows, ranges)[made.launch[kernels]]
    memory = np.array([name.startswith("Memset") for name in made.names], np.bool_)[made.name[kernels]]
    made.kind[kernels[inside & ~memory]] = Kind.COMM
