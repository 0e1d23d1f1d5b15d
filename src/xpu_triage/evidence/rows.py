"""Trace events to columns: one packed row for each complete event, everything else counted."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from ..trace import Ints, Kind
from . import times
from .categories import UNPLACED, device_kind, place
from .events import GROUP, Args, Dialect, Event

COLUMNS = ("start", "dur", "key", "lane", "correlation", "external", "exchange")
_SHORT = ("key", "lane", "exchange")

_FLOAT_ROW, _INT_ROW = (np.dtype([("key", "<i4"), ("lane", "<i4"), ("ts", ts), ("dur", "<f8"),
                                  ("correlation", "<i8"), ("external", "<i8")]) for ts in ("<f8", "<i8"))
_PAIR = np.dtype([(name, "<i8") for name in COLUMNS])
_GROUPED = f'"{GROUP}"'.encode()
_pack_float, _pack_int, _pack_pair = (struct.Struct(form).pack for form in ("<iiddqq", "<iiqdqq", "<qqqqqqq"))
_PENDING_BATCHES = 64                   # of rows that are collected before they become columns
_NO_ARGS = Args()
_NONE = np.zeros(0, np.int32)
_NEAR = 64                              # begins that are looked at for the name of an end
_ID = (1 << 63) - 1                     # ids are compared for equality only: larger ones are folded
_OLD_CATEGORIES = {"Operator", "Runtime", "Kernel", "Memcpy", "Memset"}
_BY_ARGUMENTS = {"hpu_op"}              # host rows from some backends, device rows from others
_PROBES = 64                            # unknown categories that are looked into
_OTHERS = frozenset("BEM")


class Codes(dict[Any, int]):
    """value → small integer, in order of first sight; `fresh` are those not yet looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.fresh: list[Any] = []

    def __missing__(self, value: Any) -> int:
        self[value] = code = len(self)
        self.fresh.append(value)
        return code


class _Probe(msgspec.Struct, gc=False):
    """What is asked of few events only."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    args: Any = None


class Rows:
    """The sink of an `EventStream`. `column` gives what was collected, in the file's order."""

    def __init__(self) -> None:
        self.keys, self.lanes = Codes(), Codes()        # (category, name); (pid, tid)
        self.exchanges = Codes()                        # (process group, elements, size, what it does)
        self.places: list[int] = []                     # a Kind, REPEATED or UNPLACED for each key
        self.as_device: set[str] = set()                # unknown categories that are device rows
        self.process_names: dict[str, set[str]] = {}
        self.thread_names: dict[tuple[str, str], str] = {}
        self.events = self.unreadable = self.unmatched = self.negative = 0
        self._parts: dict[str, list[Ints]] = {name: [] for name in COLUMNS}
        self._pending: list[bytes] = []
        self._pending_exchange: list[Any] = []
        self._pending_type = _FLOAT_ROW
        self._as_written = False                        # exact times are not all integers
        self._open: dict[tuple[Any, Any], list[Event]] = {}
        self._pairs = bytearray()
        self._probed: set[str] = set()
        self._collectives = False                       # seen on a device: to look for their groups costs a little

    def take(self, events: list[Event], text: bytes | memoryview, dialect: Dialect) -> Dialect:
        """See `json_stream.Sink`."""
        packed = self._packed(events, dialect)
        fresh = self.keys.fresh
        if fresh and not dialect.old and any(category in _OLD_CATEGORIES for category, _ in fresh):
            return dialect._replace(old=True, grouped=False)
        if not dialect.exact:
            us = np.frombuffer(packed, _FLOAT_ROW)["ts"]
            if (np.abs(us) >= times.FLOAT_LIMIT_US).any():
                return dialect._replace(exact=True)
        if fresh:
            self._place(text)
        if self._collectives and not dialect.grouped and not dialect.old and _GROUPED in bytes(text):
            return dialect._replace(grouped=True)
        self.events += len(events)
        self._collect(packed, dialect, events)
        if len(packed) < _FLOAT_ROW.itemsize * len(events):
            others = [event for event in events if event.ph in _OTHERS]
            self._pair(others)
            if any(event.ph == "M" for event in others):
                self._read_names(text)
        return dialect

    def _packed(self, events: list[Event], dialect: Dialect) -> bytes:
        try:
            return b"".join(self._rows(events, dialect))
        except struct.error:                            # times with decimals, or ids beyond int64
            self._as_written = dialect.exact
            for event in events:
                if event.args:
                    event.args.correlation &= _ID
                    event.args.external &= _ID
            return b"".join(self._rows(events, dialect))

    def _rows(self, events: list[Event], dialect: Dialect) -> list[bytes]:
        """One expression a case: this is where the time goes."""
        keys, lanes = self.keys, self.lanes
        if not dialect.exact:
            return [_pack_float(keys[e.cat, e.name], lanes[e.pid, e.tid], e.ts, e.dur,
                                (a := e.args or _NO_ARGS).correlation, a.external)
                    for e in events if e.ph == "X"]
        if not self._as_written:
            return [_pack_int(keys[e.cat, e.name], lanes[e.pid, e.tid], e.ts, e.dur,
                              (a := e.args or _NO_ARGS).correlation, a.external)
                    for e in events if e.ph == "X"]
        return [_pack_int(keys[e.cat, e.name], lanes[e.pid, e.tid], 0, e.dur,
                          (a := e.args or _NO_ARGS).correlation, a.external)
                for e in events if e.ph == "X"]

    def _collect(self, packed: bytes, dialect: Dialect, events: list[Event]) -> None:
        row = _INT_ROW if dialect.exact else _FLOAT_ROW
        if row != self._pending_type or self._as_written or len(self._pending) >= _PENDING_BATCHES:
            self._flush()
        if self._as_written:
            start, usable = times.from_written([event.ts for event in events if event.ph == "X"])
            self._add(np.frombuffer(packed, row), start, usable, self._exchange(events, dialect, len(start)))
        else:
            self._pending.append(packed)
            self._pending_exchange.append(self._exchange(events, dialect, len(packed) // row.itemsize))
            self._pending_type = row

    def _exchange(self, events: list[Event], dialect: Dialect, count: int) -> Any:
        """int32, codes of `exchanges` of the complete events, of which there are `count`; -1 where one tells of none.
        """
        if not dialect.grouped:
            return np.full(count, -1, np.int32)
        codes = self.exchanges
        return np.array([codes[a.group, a.elements, a.size, a.what] if (a := e.args) and a.group != "" else -1
                         for e in events if e.ph == "X"], np.int32)

    def _flush(self) -> None:
        rows = np.frombuffer(b"".join(self._pending), self._pending_type)
        exchange = np.concatenate([_NONE, *self._pending_exchange])
        self._pending.clear()
        self._pending_exchange.clear()
        to_ns = times.from_floats if self._pending_type == _FLOAT_ROW else times.from_integers
        self._add(rows, *to_ns(rows["ts"]), exchange)

    def _add(self, rows: Any, start: Ints, usable: Any, exchange: Any) -> None:
        dur = rows["dur"]
        self.negative += int((dur < 0).sum())
        usable = usable & (dur < times.FLOAT_LIMIT_US)      # False for NaN
        self.unreadable += int((~usable).sum())
        dur = np.rint(np.clip(dur, 0, times.FLOAT_LIMIT_US) * 1000)
        for name in COLUMNS:
            column = {"start": start, "dur": dur, "exchange": exchange}.get(name)
            column = rows[name] if column is None else column
            self._parts[name].append(column[usable].astype(np.int32 if name in _SHORT else np.int64))

    def _pair(self, events: Iterable[Event]) -> None:
        """Begins and ends make a row together."""
        for event in events:
            lane = event.pid, event.tid
            if event.ph == "B":
                self._open.setdefault(lane, []).append(event)
            elif event.ph == "E":
                begin = self._begun(lane, event.name)
                if begin is None:
                    self.unmatched += 1
                    continue
                start, end = times.one(begin.ts), times.one(event.ts)
                if start is None or end is None:
                    self.unreadable += 1
                    continue
                self.negative += end < start
                args = begin.args or event.args or _NO_ARGS
                self._pairs += _pack_pair(start, max(end - start, 0), self.keys[begin.cat, begin.name],
                                          self.lanes[lane], args.correlation & _ID, args.external & _ID, -1)

    def _begun(self, lane: tuple[Any, Any], name: str) -> Event | None:
        """The innermost open begin that an end closes: of its name, where it has one. At one moment a sibling may begin
        in the file before the one before it ends."""
        stack = self._open.get(lane, [])
        for i in range(len(stack) - 1, max(len(stack) - _NEAR, 0) - 1, -1):
            if not name or stack[i].name == name:
                return stack.pop(i)
        return None

    def finish(self) -> None:
        """No more events will come. Pairs come after all other rows."""
        self._flush()
        self._place(b"[]")
        pairs = np.frombuffer(self._pairs, _PAIR)
        for name in COLUMNS:
            self._parts[name].append(pairs[name].astype(np.int32 if name in _SHORT else np.int64))
        self.unmatched += sum(len(stack) for stack in self._open.values())

    def column(self, name: str) -> Ints:
        """One column of all rows. What it was collected in is freed: each can be asked for once."""
        return np.concatenate(self._parts.pop(name))

    def _read_names(self, text: bytes | memoryview) -> None:
        for event in _decoded(text):
            if event.ph == "M" and isinstance(event.args, dict):
                if event.name == "thread_name":
                    self.thread_names[str(event.pid), str(event.tid)] = str(event.args.get("name", ""))
                elif event.name in ("process_name", "process_labels"):
                    label = event.args.get("name", event.args.get("labels", ""))
                    self.process_names.setdefault(str(event.pid), set()).add(str(label))

    def _place(self, text: bytes | memoryview) -> None:
        """Say what each new key is. A category that no rule knows is judged by its rows' arguments in
        `text`."""
        fresh, self.keys.fresh = self.keys.fresh, []
        places = [place(category, name) for category, name in fresh]
        unsure = {category for (category, _), p in zip(fresh, places, strict=True)
                  if p == UNPLACED or category.lower() in _BY_ARGUMENTS} - self._probed
        if unsure and len(self._probed) < _PROBES:
            self._probed |= unsure
            self.as_device |= unsure & _with_device_arguments(text)
        found = [int(device_kind(category.lower(), name)) if category in self.as_device else p
                 for (category, name), p in zip(fresh, places, strict=True)]
        self._collectives |= Kind.COMM in found
        self.places += found


def _with_device_arguments(text: bytes | memoryview) -> set[str]:
    """Categories most of whose rows say on which stream or queue of a device they ran, and who launched
    them: a call, or (of a stream or queue alone: operators name devices too) the operator of an external id."""
    votes: dict[str, int] = {}
    for event in _decoded(text):
        words = " ".join(event.args).lower() if isinstance(event.args, dict) else ""
        lane = "stream" in words or "queue" in words
        fits = ("correlation" in words and (lane or "device" in words)) or ("external id" in words and lane)
        votes[event.cat] = votes.get(event.cat, 0) + (1 if fits else -1)
    return {category for category, vote in votes.items() if vote > 0}


def _decoded(text: bytes | memoryview) -> list[_Probe]:
    try:
        return msgspec.json.decode(text, type=list[_Probe], strict=False)
    except (msgspec.DecodeError, RecursionError):
        return []
