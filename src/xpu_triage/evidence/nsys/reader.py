"""An Nsight Systems export as a `Trace`: the rows of all its tables on one clock, linked, with what is known of them.

The correlation ids of CUDA count within a process, and every row names its process: device work is joined to the calls
of its own process and never to another's of the same number.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from ...errors import UnusableInput
from ...text import clean
from ...trace import FIRST_DEVICE_KIND, Counts, Kind, Trace
from ..chunks import Progress, is_gzip
from ..sqlite_file import MAGIC, Damaged, Database
from ..unshown import FALLBACKS, LAUNCHES, SYNCS, WAITS
from .about import About, read_about
from .assemble import Assembled, assemble
from .tables import KNOWN, Tables, read_tables

TODO = "Give what `nsys export --type sqlite` writes"

_NAMED = 6
"""Tables or processes that a sentence names."""


def is_export(path: str | PathLike[str]) -> bool:
    """Whether an SQLite file has the tables of an Nsight Systems export. Raises OSError where it cannot be opened."""
    try:
        with Database(Path(path)) as database:
            return _is_export(database)
    except Damaged:
        return False


def _is_export(database: Database) -> bool:
    return bool(database.columns.keys() & set(KNOWN)) and not database.columns.keys() & {"StringTable", "rocpd_string"}


def read(path: str | PathLike[str], *, progress: Progress | None = None) -> Trace:
    """The trace in the export at `path`. `progress` is called with the bytes read of the file, about, and all it has.

    Raises UnusableInput where there is nothing to work with: no such file, no SQLite database, one with other tables,
    or no row of a known kind. A database that breaks off is read as far as its tables go.
    """
    path = Path(path)
    try:
        if path.stat().st_size == 0:
            raise UnusableInput("empty", where=path, todo=TODO)
        with Database(path) as database:
            if not _is_export(database):
                raise UnusableInput(_other_tables(database), where=path, todo=TODO)
            return _read(path, database, progress)
    except FileNotFoundError:
        raise UnusableInput("no such file", where=path, todo="Check the path") from None
    except IsADirectoryError:
        raise UnusableInput("a folder, not an export", where=path, todo="Name a file in it") from None
    except PermissionError:
        raise UnusableInput("no permission to read it", where=path, todo="Check its owner and mode") from None
    except Damaged as error:
        raise UnusableInput(_not_readable(path, error), where=path, todo=TODO) from None
    except OSError as error:
        raise UnusableInput(f"cannot be read ({error.strerror or error})", where=path) from None


def _read(path: Path, database: Database, progress: Progress | None) -> Trace:
    about = read_about(database)
    found = read_tables(database, _Reporting(database, progress))
    made = assemble(found, about)
    counts = Counts(events=found.events, kept=0 if made is None else len(made.kind),
                    repeated=found.repeated + (made.repeated if made else 0),
                    unplaced=sum(found.unknown.values()), unreadable=made.unreadable if made else 0,
                    unmatched=found.unmatched, unknown_categories=tuple(map(clean, found.unknown)))
    if made is None or not counts.kept:
        what = f"none of its {counts.events:,} events has a place and a time" if counts.events else "it has no events"
        raise UnusableInput("; ".join([what, *database.damage, *about.notes]), where=path,
                            todo="Record with nsys profile --trace=cuda,nvtx,osrt")
    return Trace(
        start=made.start, dur=made.dur, name=made.name, kind=made.kind, device=made.device, stream=made.stream,
        thread=made.thread, correlation=made.correlation, launch=made.launch, blocking=made.blocking,
        names=made.names, devices=made.devices, streams=made.streams, threads=made.threads, counts=counts,
        notes=tuple(_notes(database, about, found, made, counts)), incomplete=bool(database.damage),
        meta={**about.meta(made.gpus), **_cannot(found, made)}, source=str(path),
        format=f"nsys {about.exporter}".strip())


def _notes(database: Database, about: About, found: Tables, made: Assembled, counts: Counts) -> list[str]:
    notes = []
    if database.damage:
        notes.append("the database is damaged or cut: rows are missing from anywhere in the capture, and idle time has "
                     "no cause that could be named. Copy or export it again")
        notes += [clean(damage) for damage in database.damage[:_NAMED]]
    if database.wal:
        notes.append("a -wal file lies beside the database: what it holds is not read")
    notes += about.notes
    if counts.unreadable:
        notes.append(f"{counts.unreadable:,} rows have no start or no end that could be of this capture: left out")
    if counts.unmatched:
        notes.append(f"{counts.unmatched:,} NVTX ranges have no end in the capture: left out")
    if found.unknown:
        tables = ", ".join(counts.unknown_categories[:_NAMED])
        notes.append(f"{counts.unplaced:,} rows of tables that this reader does not know: left out ({tables})")
    if found.strings_missing:
        notes.append("the export has no StringIds: calls and kernels have no names")
    if found.whole_graphs:
        notes.append(f"{found.whole_graphs:,} graph replays are recorded as one piece each: all their time counts as "
                     "busy, as one kernel; what runs inside is not told apart. nsys profile --cuda-graph-trace=node "
                     "records it, at a cost")
    return notes + made.notes + _not_recorded(about, made)


_PIECES = "graph replays are recorded as one piece each: nsys profile --cuda-graph-trace=node shows their kernels"
_NO_CALLS = ("no CUDA calls in the export: work of the host cannot be told from waiting for the device. Record with "
             "nsys profile --trace=cuda,nvtx,osrt")
_NO_NAMES = ("the export has no StringIds: calls have no names, so that those that wait are not known. Export it again "
             "from the report")


def _cannot(found: Tables, made: Assembled) -> dict[str, dict[str, str]]:
    """`Trace.cannot`, as a capture's own words."""
    kinds = set(made.kind.tolist())
    cannot: dict[str, str] = {}
    if found.whole_graphs:
        cannot |= dict.fromkeys(("kernel.per_step", "kernel.median_us", "kernel.graph_fraction"), _PIECES)
    if found.strings_missing:
        cannot |= dict.fromkeys((*SYNCS, *WAITS), _NO_NAMES)
    if Kind.RUNTIME not in kinds and max(kinds) >= FIRST_DEVICE_KIND:
        cannot |= dict.fromkeys((*SYNCS, *WAITS, *LAUNCHES, *FALLBACKS), _NO_CALLS)
    return {"cannot": cannot} if cannot else {}


def _not_recorded(about: About, made: Assembled) -> list[str]:
    """Kinds of rows that the export lacks. Tables are written only when there is something in them."""
    kinds = set(made.kind.tolist())
    notes = []
    if Kind.KERNEL not in kinds and Kind.COMM not in kinds:
        asked = not about.traced or any("cuda" in word.lower() for word in about.traced)
        notes.append("no kernels in the export: none ran, or the profiler lost them" if asked else
                     "no kernels in the export: the profiler was not asked for CUDA (nsys profile --trace=cuda,nvtx)")
    elif Kind.RUNTIME not in kinds:
        notes.append("no CUDA calls in the export: what launched the device's work cannot be seen")
    return notes


def _other_tables(database: Database) -> str:
    if "StringTable" in database.columns:
        return "an nvprof profile, which is not read. Record it with nsys"
    names = ", ".join(clean(name) for name in sorted(database.columns)[:_NAMED])
    return f"an SQLite database without the tables of Nsight Systems (it has {names or 'none'})"


def _not_readable(path: Path, error: Damaged) -> str:
    with path.open("rb") as file:
        head = file.read(len(MAGIC))
    if is_gzip(head):
        return "packed with gzip, and a database has to lie open. Unpack it"
    if head != MAGIC:
        return "no SQLite database, so no export of Nsight Systems"
    return f"an SQLite database that cannot be read ({clean(str(error))})"


class _Reporting:
    """Turns rows read into bytes of the file, about."""

    def __init__(self, database: Database, progress: Progress | None) -> None:
        self._size, self._progress, self._done = database.size, progress, 0
        self._rows = sum(map(database.last_row, KNOWN)) if progress else 0

    def __call__(self, rows: int) -> None:
        self._done += rows
        if self._progress:
            self._progress(self._size * min(self._done, self._rows) // max(self._rows, 1), self._size)
