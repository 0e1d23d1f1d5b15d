"""One run as the profiler's files give it, text or database: the columns that a `Trace` is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...trace import Ints

NONE = -1


class Codes(dict[Any, int]):
    """value → small integer, in order of first sight."""

    def __missing__(self, value: Any) -> int:
        self[value] = code = len(self)
        return code


@dataclass(eq=False)
class HostRows:
    """start, dur int64 ns (since 1970); name, thread int32 codes; place int8, a `words.Place`; connection int64: of a
    call the profiler's connection id, of the queue's rows their correlation id, NONE where there is none."""

    start: Ints
    dur: Ints
    name: NDArray[np.int32]
    place: NDArray[np.int8]
    thread: NDArray[np.int32]
    connection: Ints

    @property
    def end(self) -> Ints:
        return self.start + self.dur

    def __len__(self) -> int:
        return len(self.start)

    def at(self, rows: NDArray[Any]) -> HostRows:
        return HostRows(self.start[rows], self.dur[rows], self.name[rows], self.place[rows], self.thread[rows],
                        self.connection[rows])


@dataclass(eq=False)
class DeviceRows:
    """Device work alone. start, dur int64 ns; name, device, stream int32 codes; kind int8, a `Kind`; connection int64.

    call_thread, call_at   thread code and ns of the call that launched it, NONE where unknown
    op_thread, op_at       thread code and start of the operator that asked for it, NONE where unknown
    model                  bool, replayed as part of a model or captured graph
    """

    start: Ints
    dur: Ints
    name: NDArray[np.int32]
    kind: NDArray[np.int8]
    device: NDArray[np.int32]
    stream: NDArray[np.int32]
    connection: Ints
    call_thread: NDArray[np.int32]
    call_at: Ints
    op_thread: NDArray[np.int32]
    op_at: Ints
    model: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.start)


def at(device: DeviceRows, rows: NDArray[Any]) -> DeviceRows:
    """Those of the rows."""
    return DeviceRows(**{name: column[rows] for name, column in vars(device).items()})


@dataclass(eq=False)
class Run:
    host: HostRows
    device: DeviceRows
    names: Codes
    threads: tuple[str, ...]
    devices: tuple[str, ...]
    streams: tuple[str, ...]
    cores_known: bool = False
    """The kind of core is recorded for kernels, so that work on AI_CPU would be seen."""
    events: int = 0
    repeated: int = 0
    repeated_calls: int = 0
    """Of these, calls of the runtime inside other calls."""
    unplaced: int = 0
    unreadable: int = 0
    unknown: tuple[str, ...] = ()
    incomplete: bool = False
    steps: tuple[tuple[str, int, int], ...] = ()
    """Name, start and end (ns) of steps that a table lists, for files without marks in the program's rows."""
    notes: list[str] = field(default_factory=list)
    format: str = ""


def host_rows(rows: list[tuple[int, int, int, int, int, int]] | NDArray[np.int64]) -> HostRows:
    """From tuples (start, dur, name, place, thread, connection)."""
    table = np.array(rows, np.int64).reshape(-1, 6)
    return HostRows(table[:, 0].copy(), table[:, 1].copy(), table[:, 2].astype(np.int32),
                    table[:, 3].astype(np.int8), table[:, 4].astype(np.int32), table[:, 5].copy())


def device_rows(start: Ints, dur: Ints, name: Any, kind: Any, device: Any, stream: Any, connection: Ints,
                model: Any = None) -> DeviceRows:
    """Device rows whose launches are not known yet."""
    count = len(start)
    none = np.full(count, NONE, np.int64)
    return DeviceRows(
        start, dur, np.asarray(name, np.int32), np.asarray(kind, np.int8), np.asarray(device, np.int32),
        np.asarray(stream, np.int32), connection, none.astype(np.int32), none, none.astype(np.int32), none.copy(),
        np.zeros(count, np.bool_) if model is None else np.asarray(model, np.bool_))
