"""The trace: one table of complete events, columnar, in integer nanoseconds from its own start."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl

Ints = NDArray[np.int64]

NOT_LINKED = -1
"""`Trace.launch` of a device row whose launching call is not in the capture, for a reason unknown."""

BEFORE_CAPTURE = -2
"""`Trace.launch` of a device row that was launched before the capture began."""


class Kind(IntEnum):
    """What a row is. Host kinds come first; from KERNEL on the row ran on a device."""

    HOST_OP = 0
    RUNTIME = 1
    PYTHON = 2
    ANNOTATION = 3
    OVERHEAD = 4
    KERNEL = 5
    COPY = 6
    COMM = 7


FIRST_DEVICE_KIND = Kind.KERNEL


@dataclass(frozen=True)
class Counts:
    """What became of a file's events. Nothing is dropped without being counted here."""

    events: int = 0
    """Everything in the event array: complete, instant, flow, counter, metadata."""
    kept: int = 0
    """Complete events that became rows."""
    repeated: int = 0
    """Complete events that repeat others (an annotation drawn again on the device's lane, a sync drawn twice)."""
    unplaced: int = 0
    """Complete events of a category that no rule knows."""
    unreadable: int = 0
    """Events that could not be decoded."""
    unmatched: int = 0
    """B without E, or E without B."""
    unknown_categories: tuple[str, ...] = ()


LONGEST_GROUP = 80
"""Of a process group's name, characters kept."""


class Exchange(NamedTuple):
    """What a profiler says of a collective."""

    group: str
    """The process group's name: the same on all its ranks."""
    elements: int
    """That this rank puts in; -1 where it does not say."""
    size: int = 0
    """How many ranks the group has; 0 where it does not say."""
    what: str = ""
    """What it does, which its kernel's name may not tell: `alltoallv` by a kernel that sends and receives."""


@dataclass(frozen=True, eq=False)
class Trace:
    """Rows sorted by start. All arrays have one entry a row; times are ns from the first row's start.

    start, dur       int64, ns
    name             int32, index into `names` (cleaned, safe to print)
    kind             int8, a `Kind`
    device           int32, index into `devices`; -1 on host rows
    stream           int32, index into `streams` (one per device and stream); -1 on host rows
    thread           int32, index into `threads` (one per process and thread); -1 on device rows
    correlation      int64, the profiler's id that joins a call to its device work; -1 where there is none
    launch           int64, row of the call that launched a device row; NOT_LINKED, BEFORE_CAPTURE; -1 on host rows
    blocking         bool, a runtime call that returned only when the device was done (see `evidence.linking`)
    """

    start: Ints
    dur: Ints
    name: NDArray[np.int32]
    kind: NDArray[np.int8]
    device: NDArray[np.int32]
    stream: NDArray[np.int32]
    thread: NDArray[np.int32]
    correlation: Ints
    launch: Ints
    blocking: NDArray[np.bool_]
    names: tuple[str, ...]
    devices: tuple[str, ...]
    streams: tuple[str, ...]
    threads: tuple[str, ...]
    counts: Counts = Counts()
    notes: tuple[str, ...] = ()
    """What a reader of the verdict must know: a cut, a repaired row, an assumption."""
    incomplete: bool = False
    """Rows are missing from anywhere in the capture, not only after its end: the file is cut, and it was not written
    in order of time. Idle time then has no cause that could be named."""
    meta: dict[str, Any] = field(default_factory=dict)
    """The capture's own words about itself (device properties, rank, world size), as found."""
    steps: tuple[tuple[str, int, int], ...] = ()
    """Name, first start and last end (ns) of steps that a table of device work lists, where no row marks them."""
    exchange: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    """Index into `exchanges`, -1 on rows that are no collective or do not tell; empty where no row tells."""
    exchanges: tuple[Exchange, ...] = ()
    began: int | None = None
    """ns since 1970 of the first row, by the clock of the machine that recorded it; None where the file does not tell.
    """
    source: str = ""
    """Where it was read from, as given."""
    format: str = ""
    """Which reader made it, with the dialect."""

    def __len__(self) -> int:
        return len(self.start)

    @property
    def cannot(self) -> dict[str, str]:
        """Signals that this capture cannot give though its rows look as if, each with the reason."""
        told = self.meta.get("cannot")
        return told if isinstance(told, dict) else {}

    @property
    def end(self) -> Ints:
        return self.start + self.dur

    @property
    def span(self) -> int:
        """ns from the first start to the last end."""
        return int(self.end.max()) if len(self) else 0

    @property
    def on_device(self) -> NDArray[np.bool_]:
        return self.kind >= FIRST_DEVICE_KIND

    def name_of(self, row: int) -> str:
        return self.names[self.name[row]]

    def table(self) -> pl.DataFrame:
        """The rows as a Polars table, names and kinds spelled out, for looking around in a notebook."""
        import polars as pl

        def spelled(codes: NDArray[Any], words: tuple[str, ...]) -> list[str | None]:
            return [words[c] if c >= 0 else None for c in codes.tolist()]

        return pl.DataFrame({
            "start_ms": self.start / 1e6,
            "dur_ms": self.dur / 1e6,
            "kind": [Kind(k).name.lower() for k in self.kind.tolist()],
            "name": spelled(self.name, self.names),
            "device": spelled(self.device, self.devices),
            "stream": spelled(self.stream, self.streams),
            "thread": spelled(self.thread, self.threads),
            "launch": self.launch,
            "blocking": self.blocking,
        })
