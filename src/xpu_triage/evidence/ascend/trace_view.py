"""`trace_view.json` of the Ascend PyTorch profiler, and msprof's `msprof_*.json`: a list of trace events.

Times are µs since 1970, written as text. What a row is follows from its layer, which the file names in
`process_name` events anywhere in it; so rows are collected first and placed when all have been read.
"""

from __future__ import annotations

import json
import re
import struct
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...errors import UnusableInput
from ...text import clean, counted, shorten
from ...trace import Ints, Kind
from .. import times
from ..chunks import Progress, pieces
from ..events import Dialect, Event, without_bare_words
from ..json_stream import EventStream
from . import cores
from .run import NONE, Codes, DeviceRows, Run, at, device_rows, host_rows
from .words import (
    CALLS,
    COLLECTIVES,
    HARDWARE,
    LAYERS,
    OVERLAP,
    PROGRAM,
    REPEATED,
    UNPLACED,
    Place,
    collective_name,
    copy_name,
    core_in_hardware_log,
    direction_in,
    kernel_name,
    program_place,
    task_kind,
)

TODO = "Give trace_view.json of an Ascend profile, or its folder"

_ROW = np.dtype([("key", "<i4"), ("lane", "<i4"), ("id", "<i8"), ("dur", "<f8")])
_pack = struct.Struct("<iiqd").pack
_FLOW = np.dtype([("lane", "<i4"), ("start", "<i1"), ("id", "<i8")])
_pack_flow = struct.Struct("<ibq").pack
_ID = (1 << 63) - 1
_WIDTH = 64                             # characters of a word that a sentence quotes
_NO_MODEL = frozenset({4294967295, (1 << 64) - 1, -1})
_FLOWS = ("HostToDevice", "async_npu")
_NUMBERED = re.compile(r"labels NPU (\d+)$")


class _Args(msgspec.Struct, gc=False):
    connection: Any = msgspec.field(name="connection_id", default=None)
    correlation: Any = msgspec.field(name="correlation_id", default=None)
    task: Any = msgspec.field(name="Task Type", default="")
    inner: Any = msgspec.field(name="task type", default=None)
    direction: Any = msgspec.field(name="memcpy direction", default="")
    model: Any = msgspec.field(name="Model Id", default=None)
    name: Any = None
    labels: Any = None


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str | None = ""
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: Any = None
    dur: float = times.FLOAT_LIMIT_US
    id: Any = None
    args: _Args | None = None


_decode = msgspec.json.Decoder(list[_Event], strict=False, float_hook=str).decode
_NO_ARGS = _Args()


class _Rows:
    """The sink of the stream: packed columns of rows and flows."""

    def __init__(self) -> None:
        self.keys, self.lanes = Codes(), Codes()    # (category, name, task type, inner, direction, model); (pid, tid)
        self.processes: dict[str, set[str]] = {}
        self.threads: dict[tuple[str, str], str] = {}
        self.events = self.unreadable = self.negative = 0
        self._rows, self._starts = bytearray(), list[Ints]()
        self._usable: list[NDArray[np.bool_]] = []
        self._flows = {name: bytearray() for name in _FLOWS}
        self._flow_at: dict[str, list[Ints]] = {name: [] for name in _FLOWS}

    def take(self, events: list[Event], text: bytes | memoryview, dialect: Dialect) -> Dialect:
        """See `json_stream.Sink`. `text` is decoded here: what matters lies in arguments."""
        try:
            found = _decode(text)
        except (msgspec.DecodeError, RecursionError):
            if not events:
                raise
            found = self._tolerant(bytes(text))
        self._add(found)
        return dialect

    def _tolerant(self, text: bytes) -> list[_Event]:
        """Events that the typed decoder refuses: what can be turned into one is, the others are counted."""
        try:
            raw = json.loads(without_bare_words(text).decode("utf-8", "replace"), strict=False, parse_float=str)
        except (ValueError, RecursionError):
            raw = []
        out: list[_Event] = []
        for one in raw:
            try:
                out.append(msgspec.convert(one, _Event, strict=False))
            except (msgspec.ValidationError, RecursionError):
                self.unreadable += 1
                self.events += 1
        return out

    def _add(self, events: list[_Event]) -> None:
        self.events += len(events)
        written: list[Any] = []
        for e in events:
            if e.ph == "X":
                a = e.args or _NO_ARGS
                key = self.keys[(e.cat or "", e.name, _text(a.task), a.inner is not None, _text(a.direction),
                                 _is_model(a.model))]
                link = a.connection if a.connection is not None else a.correlation
                self._rows += _pack(key, self.lanes[str(e.pid), str(e.tid)], _id(link), e.dur)
                written.append(e.ts)
            elif e.ph in ("s", "f"):
                self._add_flow(e)
            elif e.ph == "M" and e.args is not None:
                self._add_name(e, e.args)
        start, usable = times.from_written(written)
        self._starts.append(start)
        self._usable.append(usable)

    def _add_flow(self, e: _Event) -> None:
        flow = e.cat if e.cat in self._flows else None
        at = times.one(e.ts) if flow else None
        if flow and at is not None:
            self._flows[flow] += _pack_flow(self.lanes[str(e.pid), str(e.tid)], e.ph == "s", _id(e.id))
            self._flow_at[flow].append(np.int64(at))    # type: ignore[arg-type]

    def _add_name(self, e: _Event, a: _Args) -> None:
        if e.name == "thread_name":
            self.threads[str(e.pid), str(e.tid)] = _text(a.name)
        elif e.name == "process_name":
            self.processes.setdefault(str(e.pid), set()).add(_text(a.name))
        elif e.name == "process_labels":
            self.processes.setdefault(str(e.pid), set()).add(f"labels {_text(a.labels)}")

    def table(self) -> tuple[NDArray[Any], Ints]:
        """The complete rows, and their starts in ns."""
        rows = np.frombuffer(self._rows, _ROW)
        start = np.concatenate(self._starts) if self._starts else np.zeros(0, np.int64)
        usable = np.concatenate(self._usable) if self._usable else np.zeros(0, np.bool_)
        usable = usable & (np.abs(rows["dur"]) < times.FLOAT_LIMIT_US)
        self.negative = int((rows["dur"] < 0).sum())
        self.unreadable += int((~usable).sum())
        return rows[usable], start[usable]

    def flows(self, name: str) -> tuple[NDArray[Any], Ints]:
        """Both ends of the flows of one kind, and their times in ns."""
        return np.frombuffer(self._flows[name], _FLOW), np.array(self._flow_at[name], np.int64)


class _Stream(EventStream):
    """Hands over the text of whole events: the sink decodes it."""

    def _decode(self, end: int) -> None:
        with memoryview(self._buffer)[:end] as text:
            self._sink.take([], text, self._dialect)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _id(value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        return NONE
    return number & _ID if number >= 0 else NONE


def _is_model(value: Any) -> bool:
    return isinstance(value, int) and value not in _NO_MODEL


def read(path: str | PathLike[str], progress: Progress | None = None) -> Run:
    """The rows of a trace. Raises UnusableInput where there is no list of events, OSError where it cannot be read."""
    path = Path(path)
    notes: list[str] = []
    rows = _Rows()
    stream = _Stream(rows, notes)
    stream.run(pieces(path, notes, progress))
    if not stream.found:
        raise UnusableInput("; ".join(["JSON without a list of trace events", *notes]), where=path, todo=TODO)
    rows.unreadable += stream.unreadable
    rows.events += stream.unreadable
    run = _Placed(rows).run(notes)
    if stream.cut_at is not None:
        notes.append(f"the file breaks off after byte {stream.cut_at:,} of its text: read up to there")
    damaged = stream.cut_at is not None or any("gzip" in note for note in notes)
    if damaged:
        run.incomplete = True       # layers follow one another in the file: what is missing is missing from anywhere
        notes.append("the file writes layer after layer, not in order of time: rows are missing from anywhere in the "
                     "capture, and idle time has no cause that could be named. Copy or record it again")
    run.notes = notes
    if run.unreadable:
        notes.append(f"{counted(run.unreadable, 'event')} could not be read: left out")
    if rows.negative:
        notes.append(f"{counted(rows.negative, 'event has', 'events have')} a negative duration: taken as 0")
    cores.join(run, path.parent)
    return run


class _Placed:
    """Rows by layer, with what each is."""

    def __init__(self, rows: _Rows) -> None:
        self._rows = rows
        self._table, self._start = rows.table()
        self._keys = list(rows.keys)
        self._lanes = list(rows.lanes)
        self._layer = [self._layer_of(pid) for pid, _ in self._lanes]
        self._unknown_tasks: set[str] = set()

    def _layer_of(self, pid: str) -> str:
        names = self._rows.processes.get(pid, set())
        known = names & {*LAYERS, PROGRAM}
        if known:
            return HARDWARE if HARDWARE in known else sorted(known)[0]
        named = [name for name in names if not name.startswith("labels ")]
        return named[0] if named else ""

    def run(self, notes: list[str]) -> Run:
        side, place = self._sides()
        names, threads, devices, streams = Codes(), Codes(), Codes(), Codes()
        host = host_rows(self._host(side, place, names, threads))
        device, on_lane = self._device(side, place, names, devices, streams)
        self._link(device, on_lane, threads)
        device, inside = self._without_members(device, on_lane)
        if self._unknown_tasks:
            some = ", ".join(sorted(shorten(clean(task), _WIDTH) for task in self._unknown_tasks)[:4])
            notes.append(f"task types that this reader does not know were taken for device work: they lie on a "
                         f"device's stream ({some})")
        left_out = np.flatnonzero(side == UNPLACED)
        pairs = set(zip(self._table["key"][left_out].tolist(), self._table["lane"][left_out].tolist(), strict=True))
        unknown = {self._keys[key][0] or self._layer[lane] or "no category" for key, lane in pairs}
        return Run(
            host=host, device=device, names=names, threads=tuple(self._thread_label(tid) for tid in threads),
            devices=tuple(devices), streams=tuple(streams), cores_known=bool((host.place == Place.CALL).any()),
            events=self._rows.events, repeated=int((side == REPEATED).sum()) + inside, unplaced=len(left_out),
            unreadable=self._rows.unreadable, unknown=tuple(sorted(unknown)))

    def _sides(self) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
        """Of each row: 0 and its `Place`, 1 and its `Kind`, or REPEATED or UNPLACED twice."""
        lanes = len(self._lanes) + 1
        pairs, of = np.unique(self._table["key"].astype(np.int64) * lanes + self._table["lane"], return_inverse=True)
        what = np.array([self._place(*divmod(pair, lanes)) for pair in pairs.tolist()], np.int8).reshape(-1, 2)
        return what[of, 0], what[of, 1]

    def _place(self, key: int, lane: int) -> tuple[int, int]:
        """0 and a `Place`, 1 and a `Kind`; REPEATED or UNPLACED twice."""
        category, name, task, inner, _, _ = self._keys[key]
        layer = self._layer[lane]
        if layer == HARDWARE:
            kind, known = task_kind(task, name)
            if not known:
                self._unknown_tasks.add(task)
            return (1, kind) if kind >= 0 else (REPEATED, REPEATED)
        if layer in COLLECTIVES:
            thread = self._rows.threads.get(self._lanes[lane], "")
            small = inner or thread.startswith("Plane")
            return (REPEATED, REPEATED) if small else (1, Kind.COMM)
        if layer == CALLS:
            return 0, Place.CALL
        if layer == OVERLAP:
            return REPEATED, REPEATED
        place = program_place(category or ("mstx" if "mstx" in layer.lower() else "gc" if "GC" in layer else ""), name)
        return (0, place) if place >= 0 else (UNPLACED, UNPLACED)

    def _durations(self, chosen: NDArray[Any]) -> Ints:
        return np.rint(np.clip(self._table["dur"][chosen], 0, None) * 1000).astype(np.int64)

    def _host(self, side: NDArray[np.int8], place: NDArray[np.int8], names: Codes, threads: Codes) -> NDArray[np.int64]:
        chosen = np.flatnonzero(side == 0)
        rows = self._table[chosen]
        of_key, of_lane = np.zeros(len(self._keys), np.int64), np.zeros(len(self._lanes), np.int64)
        for key in np.unique(rows["key"]).tolist():
            of_key[key] = names[clean(self._keys[key][1])]
        for lane in np.unique(rows["lane"]).tolist():
            of_lane[lane] = threads[self._lanes[lane][1]]
        return np.stack([self._start[chosen], self._durations(chosen), of_key[rows["key"]],
                         place[chosen].astype(np.int64), of_lane[rows["lane"]], rows["id"]], axis=1)

    def _thread_label(self, tid: str) -> str:
        """`4515/4520`: process and thread, the process where the program's layer tells it."""
        pids = sorted({pid for (pid, t), layer in zip(self._lanes, self._layer, strict=True)
                       if layer == PROGRAM and t == tid})
        return clean(f"{pids[0]}/{tid}" if pids else tid)

    def _device(self, side: NDArray[np.int8], place: NDArray[np.int8], names: Codes, devices: Codes,
                streams: Codes) -> tuple[DeviceRows, Ints]:
        """Device rows, and the lane of each."""
        chosen = np.flatnonzero(side == 1)
        rows = self._table[chosen]
        of_key = np.zeros((len(self._keys), 2), np.int64)
        for key in np.unique(rows["key"]).tolist():
            _, name, task, _, direction, model = self._keys[key]
            of_key[key] = names[self._shown(name, task, direction)], model
        of_lane = np.zeros((len(self._lanes), 2), np.int64)
        label = self._device_labels()
        for lane in np.unique(rows["lane"]).tolist():
            of_lane[lane] = devices[label[lane]], streams[f"{label[lane]}/{self._stream(lane)}"]
        out = device_rows(self._start[chosen].copy(), self._durations(chosen), of_key[rows["key"], 0], place[chosen],
                          of_lane[rows["lane"], 0], of_lane[rows["lane"], 1], rows["id"].astype(np.int64),
                          of_key[rows["key"], 1])
        return out, rows["lane"].astype(np.int64)

    def _without_members(self, device: DeviceRows, lane: Ints) -> tuple[DeviceRows, int]:
        """Device rows without the tasks that a collective is made of: it has a row of its own, over all of them."""
        whole = np.array([layer in COLLECTIVES for layer in self._layer] or [False], bool)[lane]
        members = ~whole & np.isin(device.connection, device.connection[whole & (device.connection >= 0)])
        return at(device, ~members), int(members.sum())

    def _shown(self, name: str, task: str, direction: str) -> str:
        kind, _ = task_kind(task, name)
        if kind == Kind.COMM or (not task and name.lower().startswith(("hcom", "hccl"))):
            return clean(collective_name(name))
        if kind == Kind.COPY:
            return clean(copy_name(name, direction_in(direction)))
        return clean(kernel_name(name, "", core_in_hardware_log(task)))

    def _stream(self, lane: int) -> str:
        pid, tid = self._lanes[lane]
        return self._rows.threads.get((pid, tid), tid).removeprefix("Stream ") or tid

    def _device_labels(self) -> list[str]:
        """Of each lane: `NPU`, or `NPU 3` where there are several. The layers of one device are processes of their own:
        joined by the number in their labels, else by their order."""
        number, order, several = {}, dict[str, list[str]](), 0
        for (pid, _), layer in zip(self._lanes, self._layer, strict=True):
            same = order.setdefault(layer, [])
            if pid not in same:
                same.append(pid)
            labels = [found[1] for word in self._rows.processes.get(pid, ()) if (found := _NUMBERED.match(word))]
            if labels:
                number[pid] = f"NPU {labels[0]}"
            several = max(several, len(same) if layer == HARDWARE else 0)
        return [number.get(pid) or ("NPU" if several < 2 else f"NPU {order[layer].index(pid)}")
                for (pid, _), layer in zip(self._lanes, self._layer, strict=True)]

    def _link(self, device: DeviceRows, lane: Ints, threads: Codes) -> None:
        """Launching call and asking operator of each device row, from the flows that end at its start."""
        thread_of = np.array([threads.get(tid, NONE) for _, tid in self._lanes], np.int32)
        for name, thread, time in ((_FLOWS[0], device.call_thread, device.call_at),
                                   (_FLOWS[1], device.op_thread, device.op_at)):
            ends, moment = self._rows.flows(name)
            source, target = np.flatnonzero(ends["start"] == 1), np.flatnonzero(ends["start"] == 0)
            if not len(source) or not len(target) or not len(device):
                continue
            source = source[np.argsort(ends["id"][source], kind="stable")]
            i = np.minimum(np.searchsorted(ends["id"][source], ends["id"][target]), len(source) - 1)
            found = ends["id"][source[i]] == ends["id"][target]
            target, source = target[found], source[i[found]]
            row = _same(lane, device.start, ends["lane"][target].astype(np.int64), moment[target])
            hit = row >= 0
            thread[row[hit]] = thread_of[ends["lane"][source[hit]]]
            time[row[hit]] = moment[source[hit]]


def _same(lanes: Ints, start: Ints, lane: Ints, at: Ints) -> Ints:
    """The row (of `lanes`, `start`) with each (lane, at), -1 for none."""
    if not len(at):
        return np.zeros(0, np.int64)
    order = np.lexsort((start, lanes))
    base = min(int(start.min()), int(at.min()))
    shift = np.int64(max(int(start.max()), int(at.max())) - base + 1)
    key = lanes[order] * shift + (start[order] - base)
    wanted = lane * shift + (at - base)
    i = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    return np.where(key[i] == wanted, order[i], -1)

