"""Databases of the Ascend profilers: `ascend_pytorch_profiler_<rank>.db` of torch_npu, `msprof_<time>.db` of msprof.

Times are ns since 1970; names are numbers of STRING_IDS. Of the program's own rows (PYTORCH_API) msprof's file has
none, and times are text in some versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import UnusableInput
from ...text import clean, shorten
from ...trace import Ints, Kind
from ..sqlite_file import MISSING, Damaged, Database
from .run import NONE, Codes, DeviceRows, Run, device_rows, host_rows
from .words import (
    REPEATED,
    UNPLACED,
    Place,
    call_name,
    collective_name,
    copy_name,
    core_of,
    direction_in,
    kernel_name,
    program_place,
    task_kind,
)

_LEVELS = {5000: "runtime", 5500: "hccl", 10000: "node", 15000: "model", 20000: "acl", 50001: "op", 50002: "queue",
           50003: "trace", 50004: "mstx"}
"""ENUM_API_TYPE of a file that lacks it."""

_CATEGORY = {"op": "cpu_op", "trace": "python_function", "mstx": "mstx"}
_NO_MODEL = 4294967295
LAST_NS = 1 << 62

TABLES = ("STRING_IDS", "ENUM_API_TYPE", "ENUM_MEMCPY_OPERATION", "PYTORCH_API", "CONNECTION_IDS", "CANN_API", "API",
          "MSTX_EVENTS", "STEP_TIME", "NPU_INFO", "TASK", "COMPUTE_TASK_INFO", "MEMCPY_INFO", "COMMUNICATION_OP",
          "COMMUNICATION_TASK_INFO", "COMMUNICATION_SCHEDULE_TASK_INFO")
"""The tables that are read."""

_NAMED = 6
"""Tables that a sentence names."""

_WIDTH = 64
"""Characters of a word that a sentence quotes."""


_TODO = "Give ascend_pytorch_profiler_<rank>.db or msprof_<time>.db"


def is_profile(path: Path) -> bool:
    """Whether a file is a database with the tables of an Ascend profiler. Raises OSError where it cannot be opened."""
    try:
        with Database(path) as database:
            return _is_profile(database)
    except Damaged:
        return False


def _is_profile(database: Database) -> bool:
    has = database.columns.keys()
    return "STRING_IDS" in has and not has.isdisjoint(("TASK", "CANN_API", "API", "PYTORCH_API"))


def read(path: Path) -> Run:
    """The rows of a database, as far as its tables go where it is damaged.

    Raises UnusableInput where it is none of an Ascend profiler's, OSError where it cannot be opened."""
    try:
        with Database(path) as database:
            if not _is_profile(database):
                raise UnusableInput("a database without the tables of an Ascend profiler (STRING_IDS; TASK, CANN_API "
                                    "or PYTORCH_API)", where=path, todo=_TODO)
            reader = _Reader(database)
            if database.damage and not reader.names_known:
                raise Damaged(f"its names are lost: {database.damage[-1]}")
            run = reader.run()
            _tell_damage(run, database)
            return run
    except Damaged as error:
        raise UnusableInput(f"the database cannot be read ({clean(str(error))})", where=path,
                            todo="It is damaged, or still being written: export it again") from None


def _tell_damage(run: Run, database: Database) -> None:
    if database.damage:
        run.incomplete = True
        run.notes.append("the database is damaged or cut: rows are missing from anywhere in the capture, and idle time "
                         "has no cause that could be named. Copy or export it again")
        run.notes += [clean(damage) for damage in database.damage[:_NAMED]]
    if database.wal:
        run.notes.append("a -wal file lies beside the database: what it holds is not read")
    run.notes += [f"{name} is no plain table of the database: not read"
                  for name in TABLES if name in database.not_plain]


class _Reader:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._strings = {number: clean(text) for number, text in self._texts("STRING_IDS", "value")}
        self._types = {**_LEVELS, **database.enumeration("ENUM_API_TYPE")}
        self._names, self._threads = Codes(), Codes()
        self._events = self._unreadable = self._repeated = 0
        self._unknown: set[str] = set()
        self._unplaced = 0
        self._notes: list[str] = []

    def run(self) -> Run:
        program, linked = self._program()
        calls = self._calls()
        host = np.concatenate((program, calls, self._marks()))
        device, devices, streams, told = self._device()
        self._find_operators(device, linked)
        rows = host_rows(host)
        if self._unreadable:
            self._notes.append(f"{self._unreadable:,} rows have no usable time: left out")
        return Run(host=rows, device=device, names=self._names, threads=tuple(self._threads), devices=devices,
                   streams=streams, cores_known=told, events=self._events, repeated=self._repeated,
                   unplaced=self._unplaced, unreadable=self._unreadable, unknown=tuple(sorted(self._unknown)),
                   steps=self._steps(), notes=self._notes)

    def _integers(self, table: str, *columns: str) -> NDArray[np.int64]:
        """int64, one row a row of the table; NONE where there is no whole number."""
        found = np.stack(self._database.integers(table, *columns), axis=1)
        found[found == MISSING] = NONE
        return found

    def _texts(self, table: str, column: str) -> Iterator[tuple[int, str]]:
        """Texts of a table by their `id`."""
        for (number,), texts in self._database.batches(table, ("id",), column):
            yield from zip(number.tolist(), texts, strict=True)

    @property
    def names_known(self) -> bool:
        return bool(self._strings)

    def _text(self, number: int) -> str:
        """The text of a number, empty where the file has none."""
        return self._strings.get(number, "")

    def _name(self, number: int) -> str:
        return self._strings.get(number) or ("(unnamed)" if number < 0 else f"(name {number} is not in the file)")

    def _usable(self, table: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows with a start and an end (columns 0 and 1), the end made a duration."""
        self._events += len(table)
        good = (table[:, 0] >= 0) & (table[:, 1] >= 0) & (table[:, 1] < LAST_NS) & (table[:, 0] < LAST_NS)
        self._unreadable += int((~good).sum())
        table = table[good]
        table[:, 1] = np.maximum(table[:, 1] - table[:, 0], 0)
        return table

    def _coded(self, values: Ints, codes: Codes, word: object) -> Ints:
        """Codes of `word(value)` for each value; each value is worded once."""
        unique, of = np.unique(values, return_inverse=True)
        return np.array([codes[word(value)] for value in unique.tolist()], np.int64)[of]  # type: ignore[operator]

    def _thread(self, number: int) -> str:
        return f"{number >> 32}/{number & 0xffffffff}" if number >= 0 else "?"

    # -- the host
    def _program(self) -> tuple[NDArray[np.int64], tuple[Ints, Ints, Ints]]:
        """Rows of the framework, and of those that lead to device work (connection, thread code, start)."""
        found = self._usable(self._integers("PYTORCH_API", "startNs", "endNs", "type", "globalTid",
                                            "connectionId", "name"))
        pairs, of = np.unique(found[:, [2, 5]], axis=0, return_inverse=True)
        what = np.array([self._place(*pair) for pair in pairs.tolist()], np.int64).reshape(-1, 2)[of.reshape(-1)]
        keep = what[:, 0] >= 0
        self._unplaced += int((~keep).sum())
        found, what = found[keep], what[keep]
        thread = self._coded(found[:, 3], self._threads, self._thread)
        ids = self._integers("CONNECTION_IDS", "id", "connectionId")
        ids = ids[np.argsort(ids[:, 0], kind="stable")]
        first = np.searchsorted(ids[:, 0], found[:, 4])
        known = (found[:, 4] >= 0) & (first < len(ids))
        known[known] = ids[first[known], 0] == found[known, 4]
        link = np.full(len(found), NONE, np.int64)
        queue = np.isin(what[:, 0], (Place.ENQUEUE, Place.DEQUEUE)) & known
        link[queue] = ids[first[queue], 1]
        asks = np.flatnonzero((what[:, 0] == Place.OPERATOR) & known)
        count = np.searchsorted(ids[:, 0], found[asks, 4], "right") - first[asks]
        row = np.repeat(asks, count)
        each = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first[asks], count)
        rows = np.stack([found[:, 0], found[:, 1], what[:, 1], what[:, 0], thread, link], axis=1)
        return rows, (ids[each, 1], thread[row], found[row, 0])

    def _place(self, kind: int, name: int) -> tuple[int, int]:
        """`Place` (or UNPLACED) and name code of a row of the framework."""
        word, text = self._types.get(kind, ""), self._text(name)
        if word == "queue":
            place: int = Place.DEQUEUE if text.startswith("Dequeue") else Place.ENQUEUE
        else:
            place = program_place(_CATEGORY.get(word, ""), text)
        if place == UNPLACED:
            self._unknown.add(f"PYTORCH_API type {word or kind}")
        return place, self._names[self._name(name)] if place >= 0 else 0

    def _calls(self) -> NDArray[np.int64]:
        table = "CANN_API" if "CANN_API" in self._database.columns else "API"
        found = self._usable(self._integers(table, "startNs", "endNs", "type", "globalTid", "connectionId", "name"))
        pairs, of = np.unique(found[:, [2, 5]], axis=0, return_inverse=True)
        names = np.array([self._names[call_name(self._types.get(kind, "?"), self._name(name))]
                          for kind, name in pairs.tolist()], np.int64)[of.reshape(-1)]
        thread = self._coded(found[:, 3], self._threads, self._thread)
        return np.stack([found[:, 0], found[:, 1], names, np.full(len(found), Place.CALL), thread, found[:, 4]], axis=1)

    def _marks(self) -> NDArray[np.int64]:
        """Ranges that the program marked (mstx)."""
        found = self._usable(self._integers("MSTX_EVENTS", "startNs", "endNs", "globalTid", "message"))
        found = found[found[:, 1] > 0]
        names = self._coded(found[:, 3], self._names, self._name)
        thread = self._coded(found[:, 2], self._threads, self._thread)
        return np.stack([found[:, 0], found[:, 1], names, np.full(len(found), Place.ANNOTATION), thread,
                         np.full(len(found), NONE)], axis=1)

    def _steps(self) -> tuple[tuple[str, int, int], ...]:
        found = self._integers("STEP_TIME", "id", "startNs", "endNs")
        found = found[(found[:, 1] >= 0) & (found[:, 2] > found[:, 1]) & (found[:, 2] < LAST_NS)]
        return tuple((f"ProfilerStep#{number}", start, end) for number, start, end in found.tolist())

    # -- the device
    def _device(self) -> tuple[DeviceRows, tuple[str, ...], tuple[str, ...], bool]:
        devices, streams = Codes(), Codes()
        labels = {number: clean(text) for number, text in self._texts("NPU_INFO", "name")}

        def device(number: int) -> str:
            return f"NPU {number} {labels.get(number, '')}".strip() if number >= 0 else "NPU"

        found = self._usable(self._integers("TASK", "startNs", "endNs", "deviceId", "connectionId",
                                            "globalTaskId", "taskType", "streamId", "modelId"))
        kind, name, told = self._tasks(found)
        whole = self._usable(self._integers("COMMUNICATION_OP", "startNs", "endNs", "deviceId",
                                            "connectionId", "opName", "groupName"))
        inside = np.isin(found[:, 3], whole[:, 3][whole[:, 3] >= 0])
        parts = self._integers("COMMUNICATION_TASK_INFO", "globalTaskId")[:, 0]
        plans = self._integers("COMMUNICATION_SCHEDULE_TASK_INFO", "globalTaskId")[:, 0]
        inside |= (found[:, 4] >= 0) & np.isin(found[:, 4], np.concatenate((parts, plans)))
        inside &= bool(len(whole)) | np.isin(found[:, 4], plans)
        keep = (kind >= 0) & ~inside
        self._repeated += int((~keep).sum())
        found, kind, name = found[keep], kind[keep], name[keep]
        lead = int(np.bincount(found[:, 2][found[:, 2] >= 0]).argmax()) if (found[:, 2] >= 0).any() else -1
        whole[:, 2] = np.where(whole[:, 2] >= 0, whole[:, 2], lead)
        lanes = np.stack([np.concatenate((found[:, 2], whole[:, 2])), np.concatenate((found[:, 6], whole[:, 5])),
                          np.repeat([0, 1], (len(found), len(whole)))], axis=1)
        pairs, of = np.unique(lanes, axis=0, return_inverse=True)
        groups = Codes()
        code = np.array([(devices[device(d)], streams[f"{device(d)}/Group {groups[s]}" if comm else f"{device(d)}/{s}"])
                         for d, s, comm in pairs.tolist()], np.int64).reshape(-1, 2)[of.reshape(-1)]
        comm_name = self._coded(whole[:, 4], self._names, lambda n: collective_name(self._name(n)))
        model = np.concatenate(((found[:, 7] >= 0) & (found[:, 7] != _NO_MODEL), np.zeros(len(whole), bool)))
        rows = device_rows(
            np.concatenate((found[:, 0], whole[:, 0])), np.concatenate((found[:, 1], whole[:, 1])),
            np.concatenate((name, comm_name)), np.concatenate((kind, np.full(len(whole), Kind.COMM))), code[:, 0],
            code[:, 1], np.concatenate((found[:, 3], whole[:, 3])), model)
        return rows, tuple(devices), tuple(streams), told

    def _tasks(self, found: NDArray[np.int64]) -> tuple[Ints, Ints, bool]:
        """`Kind` (or REPEATED) and name code of each task, and whether kinds of core are told."""
        info = self._integers("COMPUTE_TASK_INFO", "globalTaskId", "name", "taskType", "opType")
        copies = self._integers("MEMCPY_INFO", "globalTaskId", "memcpyOperation")
        ways = {number: direction_in(text)
                for number, text in self._database.enumeration("ENUM_MEMCPY_OPERATION").items()}
        extra = np.full((len(found), 5), NONE, np.int64)
        extra[:, 0] = found[:, 5]
        extra[:, 1:4] = _by_id(found[:, 4], info)
        extra[:, 4:] = _by_id(found[:, 4], copies)
        unique, of = np.unique(extra, axis=0, return_inverse=True)
        of = of.reshape(-1)
        what = np.array([self._task(task, name, core, op_type, ways.get(way, ""))
                         for task, name, core, op_type, way in unique.tolist()], np.int64).reshape(-1, 2)
        kind, code = what[of, 0], what[of, 1]
        # a task of several cores has a row for the whole too, of the same connection and without a name of its own
        named = extra[:, 1] >= 0
        whole = (kind == Kind.KERNEL) & ~named & np.isin(found[:, 3], found[named & (found[:, 3] >= 0), 3])
        kind[whole] = REPEATED
        told = any(core_of(self._text(core)) for core in np.unique(info[:, 2]).tolist())
        return kind, code, told

    def _task(self, task: int, name: int, core: int, op_type: int, direction: str) -> tuple[int, int]:
        word, shown = self._text(task), self._name(name)
        if name >= 0:
            collective = task_kind("", shown, self._text(op_type))[0] == Kind.COMM
            if collective:
                return Kind.COMM, self._names[collective_name(shown, self._text(op_type))]
            return Kind.KERNEL, self._names[kernel_name(shown, self._text(op_type), core_of(self._text(core)))]
        kind, known = task_kind(word, word)
        if not known:
            self._notes.append(f"task types that this reader does not know were taken for device work: they lie on a "
                               f"device's stream ({shorten(word, _WIDTH)})")
        if kind == Kind.COPY:
            return kind, self._names[copy_name(word, direction)]
        cpu = core_of(word)
        return kind, self._names[f"{word} (AI_CPU)" if cpu == "AI_CPU" else word or self._name(task)]

    def _find_operators(self, device: DeviceRows, linked: tuple[Ints, Ints, Ints]) -> None:
        """The operator that asked for each device row: of those of its connection the last that began before it."""
        connection, thread, start = linked
        order = np.lexsort((start, connection))
        connection, thread, start = connection[order], thread[order], start[order]
        if not len(order):
            return
        first = np.searchsorted(connection, device.connection)
        last = np.searchsorted(connection, device.connection, "right") - 1
        row = np.flatnonzero((last >= first) & (device.connection >= 0))
        chosen = last[row]
        device.op_thread[row], device.op_at[row] = thread[chosen], start[chosen]


def _by_id(ids: Ints, table: NDArray[np.int64]) -> NDArray[np.int64]:
    """The other columns of `table` for each id of its first; NONE where it has no such row."""
    out = np.full((len(ids), table.shape[1] - 1), NONE, np.int64)
    if len(table):
        table = table[np.argsort(table[:, 0], kind="stable")]
        i = np.minimum(np.searchsorted(table[:, 0], ids), len(table) - 1)
        hit = (table[i, 0] == ids) & (ids >= 0)
        out[hit] = table[i[hit], 1:]
    return out

