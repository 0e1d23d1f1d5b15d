"""The tables of an Nsight Systems export, each turned into rows of a trace.

Tables are created lazily, and columns come and go with the version: what is absent is unknown. The layout is that of
the schema reference in the Nsight Systems documentation ("SQLite Schema Reference").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from ...trace import Ints, Kind
from ..categories import device_kind
from ..sqlite_file import MISSING, Database
from .names import Codes, CopyNames, Names, RangeNames, Strings, call_name, os_call_name, range_name

ACTIVITY = "CUPTI_ACTIVITY_KIND_"

THREAD_BITS = 24
"""Low bits of a globalTid that are the thread; above them 24 bits of the process. A globalPid has them at 0."""

_KERNEL, _COPY, _SET, _GRAPH = (ACTIVITY + kind for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
_SYNC, _NVTX = ACTIVITY + "SYNCHRONIZATION", "NVTX_EVENTS"
_OVERHEADS = ("PROFILER_OVERHEAD", ACTIVITY + "OVERHEAD")

_CALLS: dict[str, tuple[Kind, str, Callable[[str], str]]] = {
    ACTIVITY + "RUNTIME": (Kind.RUNTIME, "nameId", call_name),
    ACTIVITY + "DRIVER": (Kind.RUNTIME, "nameId", call_name),
    "CUBLAS_EVENTS": (Kind.HOST_OP, "nameId", str),
    "CUDNN_EVENTS": (Kind.HOST_OP, "nameId", str),
    "OSRT_API": (Kind.PYTHON, "nameId", os_call_name),
    **dict.fromkeys(("MPI_P2P_EVENTS", "MPI_COLLECTIVES_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_OTHER_EVENTS"),
                    (Kind.ANNOTATION, "textId", "mpi:{}".format)),
}
"""Tables of host calls: what they are, the column of their names, and how these are spelled. Calls of the operating
system are filed with the frames: a thread that waits in one waits for work."""

KNOWN = (_KERNEL, _COPY, _SET, _GRAPH, _SYNC, _NVTX, *_OVERHEADS, *_CALLS)

_PUSH_POP = {59: "NvtxPushPopRange", 70: "NvtxtPushPopRange"}
_START_END = {60: "NvtxStartEndRange", 71: "NvtxtStartEndRange"}
_PROGRAMS_OWN = {2: "OVERHEAD_DRIVER_COMPILER", 6: "OVERHEAD_RUNTIME_TRIGGERED_MODULE_LOADING",
                 7: "OVERHEAD_LAZY_FUNCTION_LOADING", 8: "OVERHEAD_COMMAND_BUFFER_FULL"}
"""Overheads that CUDA has without a profiler. They lie inside the call that pays for them, which is a row."""


@dataclass
class Part:
    """Rows of one table. One entry a row; MISSING where the file has none.

    start, end           int64 ns, on the file's own clock
    name                 int32, code in `Tables.names`
    kind                 int8, a `Kind`
    thread               int64, globalTid of host rows; of device rows the globalPid of the process they ran for
    device, stream       int64, as the process numbers them; MISSING on host rows
    correlation          int64, within the process
    """

    start: Ints
    end: Ints
    name: Codes
    kind: NDArray[np.int8]
    thread: Ints
    device: Ints
    stream: Ints
    correlation: Ints

    def __len__(self) -> int:
        return len(self.start)

    def taken(self, rows: Ints | NDArray[np.bool_]) -> Part:
        """Some of the rows, by number or mask."""
        return Part(*(getattr(self, column.name)[rows] for column in fields(Part)))

    @staticmethod
    def joined(parts: Sequence[Part]) -> Part:
        """The rows of all of them, at least one."""
        return Part(*(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(Part)))


@dataclass
class Tables:
    """What was read, in no order of time."""

    names: Names
    parts: list[Part] = field(default_factory=list)
    ranges: list[Part] = field(default_factory=list)
    """NVTX ranges between a start and an end: of a process, so that they need not nest in any thread's."""
    between_threads: list[NDArray[np.bool_]] = field(default_factory=list)
    """Which rows of each part of `ranges` end on another thread than they start on."""
    events: int = 0
    repeated: int = 0
    unmatched: int = 0
    unknown: dict[str, int] = field(default_factory=dict)
    """Tables of device activities that no rule knows, with their rows."""
    whole_graphs: int = 0
    """Graph replays that are recorded as one piece each."""
    strings_missing: bool = False


def read_tables(database: Database, seen: Callable[[int], None] | None = None) -> Tables:
    """Every known table as rows. `seen` is told the rows as they are read.

    A graph that was recorded as one piece is one row, a kernel; where its kernels are recorded too it repeats them.
    """
    found = Tables(Names())
    waiting = [*_device_rows(database, found, seen), *_host_rows(database, found, seen)]
    waiting += _range_rows(database, found, seen)
    strings = Strings(database, np.concatenate([np.zeros(0, np.int64), *(i for w in waiting for i in w.ids)]))
    found.strings_missing = bool(waiting) and not strings.present
    for part in waiting:
        part.settle(found.names, strings)
    found.repeated += database.count(_SYNC)
    found.events += database.count(_SYNC)
    for table in sorted(database.columns):
        if table.startswith(ACTIVITY) and table not in KNOWN and database.has(table, "start", "end", "deviceId"):
            rows = database.count(table)
            found.events += rows
            if rows:
                found.unknown[table] = rows
    return found


@dataclass
class _Waiting:
    """A part whose names are ids still. `ids`: columns of ids, the first that is known counts."""

    part: Part
    ids: tuple[Ints, ...]
    spell: Callable[[str], str] = str
    by_name: Callable[[str], Kind] | None = None
    """The kind, where it follows from the name."""

    def settle(self, names: Names, strings: Strings) -> None:
        open_ = np.flatnonzero(self.part.name < 0)
        if not len(open_):
            return
        ids = strings.first_known(*(column[open_] for column in self.ids))
        self.part.name[open_] = names.codes(ids, lambda i: self.spell(strings(i)))
        if self.by_name is not None:
            kinds = {i: int(self.by_name(strings(i))) for i in np.unique(ids).tolist()}
            distinct, which = np.unique(ids, return_inverse=True)
            self.part.kind[open_] = np.array([kinds[i] for i in distinct.tolist()], np.int8)[which]


def _device_rows(database: Database, found: Tables, seen: Callable[[int], None] | None) -> list[_Waiting]:
    columns = ("start", "end", "globalPid", "deviceId", "streamId", "correlationId")
    waiting = []
    part, ids = _part(database, _KERNEL, columns, ("demangledName", "shortName", "mangledName"), Kind.KERNEL, seen)
    waiting.append(_Waiting(part, tuple(ids), by_name=lambda name: device_kind("kernel", name)))
    spelled = CopyNames(database.enumeration("ENUM_CUDA_MEMCPY_OPER"), database.enumeration("ENUM_CUDA_MEM_KIND"))
    copies, (kind, source, target) = _part(database, _COPY, columns, ("copyKind", "srcKind", "dstKind"), Kind.COPY,
                                           seen)
    copies.name = _combined(found.names, spelled.copy, kind, source, target)
    sets, (memory,) = _part(database, _SET, columns, ("memKind",), Kind.KERNEL, seen)
    sets.name = _combined(found.names, spelled.memset, memory)
    graphs, (graph,) = _part(database, _GRAPH, columns, ("graphId",), Kind.KERNEL, seen)
    graphs.name = found.names.codes(graph, lambda i: "CUDA graph" if i == MISSING else f"CUDA graph {i}")
    found.events += len(part) + len(copies) + len(sets) + len(graphs)
    drawn = _of_same_call(graphs, part)
    found.repeated += int(drawn.sum())
    graphs = graphs.taken(~drawn)
    found.whole_graphs = len(graphs)
    found.parts += [part, copies, sets, graphs]
    return waiting


def _host_rows(database: Database, found: Tables, seen: Callable[[int], None] | None) -> list[_Waiting]:
    waiting = []
    columns = ("start", "end", "globalTid", "", "", "correlationId")
    for table, (kind, name, spell) in _CALLS.items():
        part, ids = _part(database, table, columns, (name,), kind, seen)
        waiting.append(_Waiting(part, tuple(ids), spell))
        found.events += len(part)
        found.parts.append(part)
    numbers = {**_PROGRAMS_OWN, **database.enumeration("ENUM_CUPTI_OVERHEAD_TYPE")}
    own = np.array([number for number, name in numbers.items() if name in _PROGRAMS_OWN.values()], np.int64)
    for table in _OVERHEADS:
        part, (ids_, type_) = _part(database, table, columns, ("nameId", "overheadType"), Kind.OVERHEAD, seen)
        found.events += len(part)
        programs = np.isin(type_, own)
        found.repeated += int(programs.sum())
        part = part.taken(~programs)
        waiting.append(_Waiting(part, (ids_[~programs],)))
        found.parts.append(part)
    return waiting


def _range_rows(database: Database, found: Tables, seen: Callable[[int], None] | None) -> list[_Waiting]:
    """NVTX ranges. Those of PyTorch's operators carry a number of their own, so that hardly two texts are alike: they
    are cut as they are read."""
    wanted = ("start", "end", "globalTid", "endGlobalTid", "eventType", "textId")
    numbers = database.enumeration("ENUM_NSYS_EVENT_TYPE")
    pairs = _numbers(_PUSH_POP, numbers)
    spans = _numbers(_START_END, numbers)
    typed = database.has(_NVTX, "eventType")
    waiting, named_range = [], RangeNames()
    for (start, end, thread, end_thread, type_, text_id), texts in database.batches(_NVTX, wanted, "text", seen):
        found.events += len(start)
        chosen = np.isin(type_, pairs + spans) if typed else end != MISSING
        open_ = chosen & (end < start)              # MISSING, and 0 or -1 where a schema has no NULL
        found.unmatched += int(open_.sum())
        rows = np.flatnonzero(chosen & ~open_)
        named = [named_range(texts[i]) for i in rows.tolist()]
        name = np.array([found.names.code(name) if name else -1 for name, _ in named], np.int32)
        kind = np.array([int(kind) for _, kind in named], np.int8)
        none = np.full(len(rows), MISSING)
        part = Part(start[rows], end[rows], name, kind, thread[rows], none, none, none)
        ids = text_id[rows]
        moves = np.isin(type_[rows], spans)
        crossing = moves & (end_thread[rows] != MISSING) & (end_thread[rows] != thread[rows])
        for mask, target in ((~moves, found.parts), (moves, found.ranges)):
            piece = part.taken(mask)
            waiting.append(_Waiting(piece, (ids[mask],), lambda text: range_name(text)[0],
                                    lambda text: range_name(text)[1]))
            target.append(piece)
        found.between_threads.append(crossing[moves])
    return waiting


def _numbers(known: dict[int, str], spelled_out: dict[int, str]) -> list[int]:
    """Numbers of some event types: the file's own where it names them."""
    named = [number for number, name in spelled_out.items() if name in known.values()]
    return named or list(known)


def _part(database: Database, table: str, columns: tuple[str, ...], more: tuple[str, ...], kind: Kind,
          seen: Callable[[int], None] | None) -> tuple[Part, list[Ints]]:
    """Rows of one table, its names unknown (-1), and the columns `more`."""
    batches = [found for found, _ in database.batches(table, (*columns, *more), seen=seen)]
    empty = np.zeros(0, np.int64)
    found = [np.concatenate(pieces) for pieces in zip(*batches, strict=True)] or [empty] * len((*columns, *more))
    start, end, thread, device, stream, correlation = found[:6]
    count = len(start)
    part = Part(start, end, np.full(count, -1, np.int32), np.full(count, kind, np.int8), thread, device, stream,
                correlation)
    return part, found[6:]


def _combined(names: Names, name_of: Callable[..., str], *columns: Ints) -> Codes:
    """Names told by several small numbers a row."""
    distinct, which = distinct_rows(*columns)
    return np.array([names.code(name_of(*row)) for row in distinct], np.int32)[which]


def distinct_rows(*columns: Ints) -> tuple[list[tuple[int, ...]], Ints]:
    """The rows that occur, sorted, and which of them each row is. (NumPy's own way for several columns is slow.)"""
    which = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, code = np.unique(column, return_inverse=True)
        _, which = np.unique(which * max(len(values), 1) + code, return_inverse=True)
    first = np.zeros(int(which.max(initial=-1)) + 1, np.int64)
    first[which] = np.arange(len(which))
    return list(zip(*(column[first].tolist() for column in columns), strict=True)), which


def groups_of(values: Ints) -> Iterator[tuple[int, Ints]]:
    """Every value that occurs, with its places in order. Takes one sort, however many values there are."""
    order = np.argsort(values, kind="stable")
    distinct, first = np.unique(values[order], return_index=True)
    yield from zip(distinct.tolist(), np.split(order, first[1:]), strict=True) if len(order) else ()


def _of_same_call(graphs: Part, kernels: Part) -> NDArray[np.bool_]:
    """Graph rows whose launch has kernel rows too."""
    drawn = np.zeros(len(graphs), np.bool_)
    of_process = dict(groups_of(kernels.thread)) if len(graphs) else {}
    for process, mine in groups_of(graphs.thread):
        calls = kernels.correlation[of_process.get(process, mine[:0])]
        drawn[mine] = np.isin(graphs.correlation[mine], calls[calls > 0])
    return drawn
