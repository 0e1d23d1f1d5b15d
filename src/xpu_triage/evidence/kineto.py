"""Reader of PyTorch-profiler (Kineto) Chrome-trace JSON, plain or gzip, of every backend and version.

Memory follows the events kept, not the file. Times become integer ns from the first row's start. What could
not be placed is counted, what is damaged is noted with where it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UnusableInput
from ..text import clean, counted, shorten
from ..trace import FIRST_DEVICE_KIND, LONGEST_GROUP, Counts, Exchange, Ints, Kind, Trace
from . import json_stream, linking
from .categories import REPEATED, UNPLACED, device_kind
from .chunks import Progress, pieces
from .json_stream import EventStream
from .rows import COLUMNS, Codes, Rows
from .times import since_1970

TODO = "Give a trace written by torch.profiler (.json or .json.gz)"

STRAY_NS = 3600 * 10**9
"""Rows at time 0 that lie this long before all others carry no time of this capture: a profiler writes 0 for
what began before its clock did."""

_DEVICE_LANE = re.compile(
    r"(gpu|npu|xpu|hpu|mtia|tpu|mlu|gcu|cuda|hip|rocm|device|privateuse\w*|kunlun\w*|klx\w*)[ :]*\d+", re.I)
_ASCEND_LAYERS = {"Ascend Hardware", "CANN", "Overlap Analysis"}


class AscendTraceError(UnusableInput):
    """The file is of Ascend's profiler, whose reader is `evidence.ascend`."""


_Owner = tuple[str, str]                # pid and tid, or pid and nothing


def read(path: str | PathLike[str], *, progress: Progress | None = None) -> Trace:
    """The trace in `path`. `progress` is called with the bytes read of the file and the bytes it has.

    Raises UnusableInput where there is nothing to work with: no such file, no permission, not JSON, no array
    of trace events, no complete event of a known category, or a gzip file beyond the limits of `chunks`.
    """
    path = Path(path)
    notes: list[str] = []
    rows = Rows()
    stream = EventStream(rows, notes)
    try:
        if path.stat().st_size == 0:
            raise UnusableInput("empty", where=path, todo=TODO)
        stream.run(pieces(path, notes, progress))
    except FileNotFoundError:
        raise UnusableInput("no such file", where=path, todo="Check the path") from None
    except IsADirectoryError:
        raise UnusableInput("a folder, not a trace", where=path, todo="Name a file in it") from None
    except PermissionError:
        raise UnusableInput("no permission to read it", where=path, todo="Check its owner and mode") from None
    except OSError as error:
        raise UnusableInput(f"cannot be read ({error.strerror or error})", where=path) from None
    if not stream.found:
        raise UnusableInput("; ".join([_not_a_trace(stream), *notes]), where=path, todo=TODO)
    rows.finish()
    if any(labels & _ASCEND_LAYERS for labels in rows.process_names.values()):
        raise AscendTraceError("an Ascend profiler trace (trace_view.json), which another reader reads", where=path)
    return _trace(path, rows, stream, notes)


def _not_a_trace(stream: EventStream) -> str:
    start = stream.start
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] in (b"{", b"["):
        within = f" in its first {json_stream.LARGEST >> 20} MiB" if stream.given_up else ""
        return f"JSON without a traceEvents list{within}, so no profiler trace"
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "UTF-16 text, where UTF-8 is wanted"
    if b"\0" in start or not start.isascii():
        return "binary data, not a profiler trace"
    return "not JSON, so no profiler trace" if text else "nothing to read in it"


def _trace(path: Path, rows: Rows, stream: EventStream, notes: list[str]) -> Trace:
    """Keep the rows that are placed, in order of time, and count the others."""
    column = {name: rows.column(name) for name in COLUMNS}
    place = np.array(rows.places, np.int8)[column["key"]]
    _claim_device_lanes(place, column, rows)
    stray = _strays(column["start"], place)
    unplaced = column["key"][place == UNPLACED]
    kept = place >= 0
    kept[stray] = False
    counts = Counts(
        events=rows.events + stream.unreadable, kept=int(kept.sum()), repeated=int((place == REPEATED).sum()),
        unplaced=len(unplaced), unreadable=rows.unreadable + stream.unreadable + len(stray),
        unmatched=rows.unmatched,
        unknown_categories=tuple(sorted({clean(category) for category, _ in _entries(rows.keys, unplaced)})))
    if not counts.kept:
        raise UnusableInput(_nothing_kept(counts, notes), where=path, todo=TODO)
    if not kept.all():
        place = place[kept]
        for name in COLUMNS:
            column[name] = column[name][kept]
    incomplete = (stream.cut_at is not None or any("gzip" in note for note in notes)) and _not_in_order(column["start"])
    if incomplete:
        notes.append("the file is not written in order of time: what lay behind the cut is missing from anywhere in "
                     "the capture, and idle time has no cause that could be named. Copy or record it again")
    order = np.argsort(column["start"], kind="stable")
    kind = place[order]
    for name in COLUMNS:
        column[name] = column[name][order]
    del order, place, kept, unplaced
    first = int(column["start"][0])
    column["start"] -= first
    began = since_1970(first, stream.meta.get("baseTimeNanoseconds"))
    return _assemble(path, column, kind, rows, stream, counts, notes, incomplete, began)


MANY_ROWS = 20
"""Fewer rows have no order to speak of."""


def _not_in_order(start: Ints) -> bool:
    """Whether rows, as they stand in the file, come close to the end of the capture long before the last of them."""
    near_the_end = int(np.argmax(start >= start.min() + 0.9 * (start.max() - start.min())))
    return len(start) >= MANY_ROWS and near_the_end < 0.75 * len(start)


def _strays(start: Ints, place: NDArray[np.int8]) -> Ints:
    """Rows at time 0, where all others are far from it."""
    zero = (start == 0) & (place >= 0)
    others = start[~zero & (place >= 0)]
    return np.flatnonzero(zero) if len(others) and others.min() > STRAY_NS else np.zeros(0, np.int64)


def _assemble(path: Path, column: dict[str, Ints], kind: NDArray[np.int8], rows: Rows, stream: EventStream,
              counts: Counts, notes: list[str], incomplete: bool, began: int | None) -> Trace:
    start, dur, lane = column.pop("start"), column.pop("dur"), column.pop("lane")
    name, names = _names(rows, column.pop("key"))
    label = _Labels(rows, stream.meta)
    lanes = [(str(pid), str(tid).removeprefix("stream ")) for pid, tid in rows.lanes]
    pids = [(pid, "") for pid, _ in lanes]
    on_device = kind >= FIRST_DEVICE_KIND
    device, devices = _codes(lane, on_device, pids, label.device)
    stream_of, streams = _codes(lane, on_device, lanes, label.stream)
    thread, threads = _codes(lane, ~on_device, lanes, label.thread)
    process, processes = _codes(lane, ~on_device, pids, label.device)
    process, owner = _by_rank(process, processes, devices)
    del lane, on_device
    correlation = column.pop("correlation")
    launch = linking.launches(kind, start, device, process, correlation, column.pop("external"),
                              owner)
    del process
    exchange, exchanges = _exchanges(rows, column.pop("exchange"))
    end = start + dur
    return Trace(
        start=start, dur=dur, name=name, kind=kind, device=device, stream=stream_of, thread=thread,
        correlation=correlation, launch=launch,
        blocking=linking.blocking_calls(kind, end, name, names, launch),
        names=names, devices=devices, streams=streams, threads=threads, counts=counts,
        notes=tuple(_all_notes(notes, rows, stream, counts, last_start=int(start[-1]))),
        incomplete=incomplete, meta=stream.meta, began=began, exchange=exchange,
        exchanges=exchanges, source=str(path),
        format=f"kineto {_backend(rows, names)}")


def _names(rows: Rows, key: Ints) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Name codes of the rows, and the names, cleaned. Only names that a row bears."""
    codes: dict[str, int] = {}
    used = np.zeros(len(rows.keys), bool)
    used[key] = True
    of_key = np.array([codes.setdefault(clean(name), len(codes)) if use else -1
                       for (_, name), use in zip(rows.keys, used.tolist(), strict=True)], np.int32)
    return of_key[key], tuple(codes)


def _exchanges(rows: Rows, code: Ints) -> tuple[NDArray[np.int32], tuple[Exchange, ...]]:
    """As `Trace` has them."""
    if not len(rows.exchanges):
        return np.zeros(0, np.int32), ()
    return code.astype(np.int32), tuple(
        Exchange(clean(shorten(str(group), LONGEST_GROUP)), elements, size, clean(shorten(what, LONGEST_GROUP)))
        for group, elements, size, what in rows.exchanges)


def _codes(lane: Ints, mask: NDArray[np.bool_], owner: list[_Owner],
           label: Callable[[_Owner], str]) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Codes of the owners (per lane) of the rows in `mask`, -1 elsewhere, and the owners' labels."""
    used = np.zeros(len(owner), bool)
    used[lane[mask]] = True
    owners = sorted({owner[i] for i in np.flatnonzero(used)}, key=_natural)
    code = {o: i for i, o in enumerate(owners)}
    of_lane = np.array([code.get(o, -1) for o in owner], np.int32)
    return np.where(mask, of_lane[lane], np.int32(-1)), tuple(map(label, owners))


_RANK = re.compile(r"\[[^\]]+\]")
"""Which rank's capture a row is of: what a merger of captures writes before the pids (SGLang's: `[TP00] 4515`)."""


def _by_rank(process: NDArray[np.int32], processes: tuple[str, ...],
             devices: tuple[str, ...]) -> tuple[NDArray[np.int32], dict[int, int] | None]:
    """Captures of several ranks merged into one file: the processes of each rank as one, and which of these drives each
    device. The processes as they are, and None, where not all of them and all devices bear a rank's mark."""
    found = [_RANK.match(label) for label in (*processes, *devices)]
    marks = [mark[0] for mark in found if mark]
    if not devices or len(marks) < len(found) or not set(marks[len(processes):]) <= set(marks[:len(processes)]):
        return process, None
    code = {mark: i for i, mark in enumerate(dict.fromkeys(marks))}
    of_process = np.array([code[mark] for mark in marks[:len(processes)]] + [-1], np.int32)
    return of_process[process], {i: code[mark] for i, mark in enumerate(marks[len(processes):])}


def _natural(owner: _Owner) -> list[tuple[int, str]]:
    return [(int(digits[0]) if (digits := re.findall(r"\d{1,18}", part)) else -1, part) for part in owner]


class _Labels:
    """Names for devices, streams and threads as the reader of a report knows them, cleaned."""

    def __init__(self, rows: Rows, meta: dict[str, Any]) -> None:
        self._threads = rows.thread_names
        found = meta.get("deviceProperties")
        self._devices = {str(device.get("id")): str(device["name"])
                         for device in (found if isinstance(found, list) else ())
                         if isinstance(device, dict) and device.get("name")}

    def device(self, owner: _Owner) -> str:
        """`0 NVIDIA H100`, or `0` where the file does not name the device."""
        return clean(f"{owner[0]} {self._devices.get(owner[0], '')}".strip())

    def stream(self, owner: _Owner) -> str:
        """`0/7`: device and stream."""
        return clean("/".join(owner))

    def thread(self, owner: _Owner) -> str:
        """`4515/4520 pt_autograd_0`: process, thread, and the thread's name where the file gives one."""
        name = self._threads.get(owner, "")
        named = re.fullmatch(r"thread \S+ \((.*)\)", name)
        return clean(f"{'/'.join(owner)} {named[1] if named else name}".strip())


def _claim_device_lanes(place: NDArray[np.int8], column: dict[str, Ints], rows: Rows) -> None:
    """Rows of unknown category on a lane that the file names as a device are device rows, if nothing else
    runs there: beside known kernels they would be queues, counters and other drawings of the same work."""
    known = {str(pid) for pid, _ in _entries(rows.lanes, column["lane"][place >= FIRST_DEVICE_KIND])}
    named = {pid for pid, labels in rows.process_names.items()
             if pid.isdigit() and any(map(_DEVICE_LANE.fullmatch, labels))}
    lanes = np.array([str(pid) in named - known for pid, _ in rows.lanes], bool)
    claimed = np.flatnonzero(place == UNPLACED)
    claimed = claimed[lanes[column["lane"][claimed]]]
    for key in np.unique(column["key"][claimed]).tolist():
        category, name = _entries(rows.keys, np.array([key]))[0]
        rows.as_device.add(category)
        place[claimed[column["key"][claimed] == key]] = device_kind(category.lower(), name)


def _entries(codes: Codes, used: Ints) -> list[tuple[Any, Any]]:
    """The values behind the codes that occur."""
    values = list(codes)
    return [values[i] for i in np.unique(used).tolist()]


def _nothing_kept(counts: Counts, notes: list[str]) -> str:
    spans = counts.repeated + counts.unplaced
    if not counts.events:
        what = "the trace has no events"
    elif spans:
        what = f"none of its {spans:,} complete events is of a known category"
        what += f" ({', '.join(counts.unknown_categories[:4])})" if counts.unplaced else ""
    else:
        what = f"none of its {counts.events:,} events is a complete one (ph X, or B with E)"
        what += f"; {counts.unreadable:,} are unreadable" if counts.unreadable else ""
    return "; ".join([what, *notes])


def _all_notes(notes: list[str], rows: Rows, stream: EventStream, counts: Counts,
               last_start: int) -> list[str]:
    """What the stream noted, and what the counts mean for the reader."""
    out = list(notes)
    if stream.cut_at is not None:
        out.append(f"the file breaks off after byte {stream.cut_at:,} of its text: read up to there, the last"
                   f" event starts at {last_start / 1e6:,.3f} ms")
    if counts.unreadable:
        out.append(f"{counted(counts.unreadable, 'event')} could not be read: left out")
    if rows.negative:
        out.append(f"{counted(rows.negative, 'event has', 'events have')} a negative duration: taken as 0")
    if counts.unmatched:
        lone = counted(counts.unmatched, "event begins or ends", "events begin or end")
        out.append(f"{lone} without counterpart: left out")
    out += [f"the unknown category {clean(category)!r} was taken for device work: its rows name a stream and"
            " their launch, or lie on a device's lane" for category in sorted(rows.as_device)]
    if counts.unplaced:
        strange = counted(counts.unplaced, "complete event is", "complete events are")
        out.append(f"{strange} of unknown category: left out"
                   f" ({', '.join(counts.unknown_categories[:6])})")
    return out


def _backend(rows: Rows, names: tuple[str, ...]) -> str:
    """`cuda`, `rocm`, `xpu` …: whose runtime calls the file has; `device only` or `cpu` where it has none."""
    categories = {category.lower() for category, _ in rows.keys}
    found = {category.rpartition("_")[0] for category in categories
             if category.endswith(("_runtime", "_driver"))}
    if "cuda" in found and any(name.startswith("hip") for name in names):
        found = found - {"cuda"} | {"rocm"}
    if not found and "runtime" in categories:
        found = {"cuda, torch 1.9"}
    if not found:
        found = {"device only" if any(place >= Kind.KERNEL for place in rows.places) else "cpu"}
    return clean("+".join(sorted(found)))
