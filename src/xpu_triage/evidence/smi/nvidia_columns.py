"""`nvidia-smi --query-gpu` and `--query-compute-apps` as CSV, `dmon` and `pmon`; and CSV of the same column names.

Columns are told by their header and unit alone. A query without `index` is told apart into devices by uuid or bus id,
else by its times: one burst of rows an interval.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from os import PathLike
from typing import NamedTuple

from ...errors import UnusableInput
from ...samples import Samples
from ..lines import lines
from . import nvidia_names as names
from .columns import LOOKED_AT, Header, Place, Readings, header, is_unknown, number, places
from .stamps import stamp

MOST_DEVICES = 16
"""Devices of one host, as far as rows without an index are told apart."""

BURST_S = 0.1
"""Between two devices of one reading, at most; and at least three times as long between two readings."""

_FIRST = 20
"""Lines that may stand before the output: a prompt, the command, a warning."""

_NAME = re.compile(r"[A-Za-z][\w.]*(?:\s*\[[^\[\]\d]{1,12}\])?")
_TELLING = re.compile(r"(?:utilization|memory|power|clocks|temperature|clocks_(?:event|throttle)_reasons|enforced|fan)"
                      r"\.[\w.]+|used_(?:gpu_)?memory")
_MONITOR = re.compile(r"#\s*(?:Date[\s,]+)?(?:Time[\s,]+)?gpu[\s,]+\S")
_COMMAND = re.compile(r"nvidia-smi\b.*--query-(gpu|compute-apps)[= ]['\"]?([\w.,]+)")
_NO_NAMES = re.compile(r"(?:.*, )?(?:\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}|[\d.]+ (?:%|MiB|W|MHz))(?:, .*)?")
_INTERVAL = re.compile(r"\bnvidia-smi\s+[dp]mon\b(.*)")


def matches(head: str) -> bool:
    """Whether a file that begins so is one of these."""
    return _kind(head.splitlines()) is not None


def read(path: str | PathLike[str]) -> Samples:
    """All readings. Times are seconds since the epoch, since midnight (`dmon -o T`), or since the start (a column
    `time_s`). Raises UnusableInput where the file cannot be read or holds none."""
    notes: list[str] = []
    text = lines(path, notes)
    start = list(islice(text, 4 * _FIRST))
    kind = _kind(start)
    if kind is None:
        raise UnusableInput("no columns of nvidia-smi", where=path, todo="Give its output from the header on")
    return kind(chain(start, text), path, notes)


def _kind(start: Sequence[str]) -> Callable[[Iterable[str], str | PathLike[str], list[str]], Samples] | None:
    filled = [line.strip() for line in start[:4 * _FIRST] if line.strip()][:_FIRST]
    for at, line in enumerate(filled):
        if _MONITOR.match(line):
            return _monitor
        if _query_header(line) or ((command := _COMMAND.search(line)) and any(
                row.count(",") == command[2].count(",") for row in filled[at + 1:at + 2])):
            return _query
    if filled and len(filled[0].split(", ")) > 1 and all(
            _NO_NAMES.fullmatch(line) and line.count(", ") == filled[0].count(", ") for line in filled[:-1] or filled):
        return _query
    return None


# --- queries


class _Row(NamedTuple):
    cells: list[str]
    time: float | None


class _Columns(NamedTuple):
    headers: list[Header]
    kind: str
    time: int | None
    own: tuple[int, ...]
    """Columns that say which device or process a row is about: index, pid, else uuid and bus ids."""
    limits: dict[int, str]


def _query_header(line: str) -> bool:
    cells = [cell.strip() for cell in line.split(",")]
    return len(cells) < 1000 and all(_NAME.fullmatch(cell) for cell in cells) and any(
        _TELLING.fullmatch(cell.split("[")[0].strip()) for cell in cells)


def _query(text: Iterable[str], path: str | PathLike[str], notes: list[str]) -> Samples:
    readings, tool = Readings(), ""
    for columns, rows in _sections(text, readings):
        tool = tool or _tool(columns, rows)
        _keep(columns, rows, readings)
    return readings.samples(tool or "nvidia-smi --query-gpu", path, notes=notes)


def _tool(columns: _Columns, rows: _Rows) -> str:
    if any(header.key.endswith(".aip") for header in columns.headers):
        return "hl-smi -Q"
    if columns.kind == "process":
        return "nvidia-smi --query-compute-apps"
    return "device readings (CSV)" if _is_ours(columns, rows) else "nvidia-smi --query-gpu"


def _is_ours(columns: _Columns, rows: _Rows) -> bool:
    if columns.time is None:
        return False
    return columns.headers[columns.time].key == "time_s" or any(
        re.match(r"\d{4}-\d\d-\d\dT", row[columns.time]) for row in rows.head[:1])


class _Rows:
    """Rows of one header; the first of them can be looked at before any is taken."""

    def __init__(self, rows: Iterator[list[str]]) -> None:
        self.head = list(islice(rows, LOOKED_AT))
        self._rest = rows

    def __iter__(self) -> Iterator[list[str]]:
        return chain(self.head, self._rest)


def _sections(text: Iterable[str], readings: Readings) -> Iterator[tuple[_Columns, _Rows]]:
    """Each header with its rows. A header may stand in the command alone, and may come again."""
    waiting: list[str] = []
    queue = iter(text)
    columns: _Columns | None = None

    def rows(width: int) -> Iterator[list[str]]:
        for line in queue:
            if not line.strip():
                continue
            if _query_header(line.strip()):
                waiting.append(line)
                return
            cells = _split(line)
            if len(cells) == width:
                yield cells
            else:
                readings.skipped += 1

    for line in queue:
        line = line.strip()
        if _query_header(line):
            columns = _columns([header(cell) for cell in line.split(",")])
        elif match := _COMMAND.search(line):
            columns = _columns([header(name) for name in match[2].split(",")])
            if "noheader" not in line:
                columns = None
            continue
        elif line and columns is None and _NO_NAMES.fullmatch(line):
            columns = _columns(_unnamed(_split(line)))
            readings.note("no header: nothing says what the columns are, so they are kept as they stand. "
                                  "Run the query without noheader")
            queue = chain([line], queue)
        elif line and columns is not None:
            queue = chain([line], queue)
        else:
            readings.skipped += bool(line)
            continue
        while columns is not None:
            yield columns, _Rows(rows(len(columns.headers)))
            columns = _columns([header(cell) for cell in waiting.pop().split(",")]) if waiting else None


def _split(line: str) -> list[str]:
    if '"' not in line:
        return [cell.strip() for cell in line.split(",")]
    try:
        return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True))]
    except (csv.Error, StopIteration):
        return []


def _unnamed(cells: Sequence[str]) -> list[Header]:
    found: list[Header] = []
    for at, cell in enumerate(cells, start=1):
        read = number(cell)
        name = "timestamp" if stamp(cell) and not any(head.key == "timestamp" for head in found) else f"column {at}"
        found.append(header(name, read[1] if read else ""))
    return found


def _columns(headers: list[Header]) -> _Columns:
    at = {head.key: index for index, head in reversed(list(enumerate(headers)))}
    process = "pid" in at and not at.keys() & {"index", "utilization.gpu"}
    first = "pid" if process else "index"
    own = (at[first],) if first in at else tuple(
        at[name] for name in ("uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "serial", "gpu_serial") if name in at)
    time = at.get("timestamp", at.get("time_s"))
    limits = {index: limit for index, head in enumerate(headers) if (limit := names.reason(head.name))}
    return _Columns(headers, "process" if process else "device", time, own[:1], limits)


def _keep(columns: _Columns, rows: _Rows, readings: Readings) -> None:
    table = names.APPS if columns.kind == "process" else names.QUERY
    where = places(columns.headers, table, rows.head)
    hidden = {*columns.limits, *(columns.own or ()), *(() if columns.time is None else (columns.time,))}
    where = [Place("", "", dropped=True) if at in hidden or head.key in ("count", "process_name") else place
             for at, (head, place) in enumerate(zip(columns.headers, where, strict=True))]
    time_of = _time_reader(columns, readings)
    seen: dict[str, str] = {}
    at_once = 1 if columns.own else _devices(columns, rows.head, readings)
    for number_of, cells in enumerate(rows):
        of = _of(columns, cells, seen, number_of % at_once)
        if of is None:
            readings.skipped += 1
            continue
        time = time_of(cells)
        readings.row(where, cells, of=of, time=time, kind=columns.kind)
        if columns.kind == "process":
            _process_name(columns, cells, readings, of, time)
        if columns.limits:
            said = names.limits({limit: cells[at] for at, limit in columns.limits.items()})
            if said is not None:
                readings.say(of, "limit_reason", said, time=time)


def _time_reader(columns: _Columns, readings: Readings) -> Callable[[Sequence[str]], float | None]:
    at = columns.time
    if at is None:
        return lambda cells: None
    since_start = columns.headers[at].key == "time_s"

    def read_time(cells: Sequence[str]) -> float | None:
        time = readings.clock.since_start(cells[at]) if since_start else readings.clock.at(cells[at])
        readings.skipped += time is None and not is_unknown(cells[at])
        return time

    return read_time


def _of(columns: _Columns, cells: Sequence[str], seen: dict[str, str], turn: int) -> str | None:
    """The device's index or the pid; None where the cell is neither."""
    if not columns.own:
        return str(turn)
    cell = cells[columns.own[0]]
    if columns.headers[columns.own[0]].key in ("index", "pid"):
        return cell if re.fullmatch(r"\d{1,10}", cell) else None
    return seen.setdefault(cell, str(len(seen)))


def _process_name(columns: _Columns, cells: Sequence[str], readings: Readings, of: str, time: float | None) -> None:
    for head, cell in zip(columns.headers, cells, strict=True):
        if head.key in ("process_name", "name") and not is_unknown(cell):
            readings.say(of, "name", re.split(r"[\\/]", cell.split(" ")[0])[-1] or cell, time=time, kind="process")


def _devices(columns: _Columns, head: Sequence[Sequence[str]], readings: Readings) -> int:
    """How many devices rows without an index take turns. Where nothing tells, a few rows are as many devices: one
    reading of each is then no mean, which is the safe side."""
    if len(head) < 2:
        return 1
    times: list[float] = []
    if columns.time is not None:
        for cells in head:
            cell = cells[columns.time]
            read = stamp(cell)
            times.append(read[0] if read else float(cell) if number(cell) else float("nan"))
    gaps = [later - sooner for sooner, later in pairwise(times)]
    for count in range(2, min(MOST_DEVICES, len(gaps)) + 1):
        between = [gap for at, gap in enumerate(gaps, start=1) if at % count == 0]
        within = [gap for at, gap in enumerate(gaps, start=1) if at % count]
        if all(0 <= gap <= BURST_S for gap in within) and min(between) > 3 * max(within) and min(between) > 0:
            readings.note(f"no index column: by its times, rows are {count} devices in turn")
            return count
    if len(head) <= MOST_DEVICES and all(0 <= gap < BURST_S / 2 for gap in gaps):
        readings.note(f"no index column and no times that tell: {len(head)} rows are taken for as many "
                      "devices. Query index and timestamp")
        return len(head)
    return 1


# --- dmon and pmon


def _monitor(text: Iterable[str], path: str | PathLike[str], notes: list[str]) -> Samples:
    readings = Readings()
    columns: list[str] = []
    where: list[Place] = []
    interval_s: float | None = None
    idle: dict[str, int] = {}
    devices: dict[str, str] = {}
    is_process = False
    for line in text:
        line = line.strip()
        if match := _INTERVAL.search(line):
            interval_s = _delay(match[1])
        elif _MONITOR.match(line):
            columns, where = _monitor_tokens(line), []
            is_process = "pid" in columns
        elif line.startswith("#"):
            units = _monitor_tokens(line)
            if columns and len(units) == len(columns):
                where = _monitor_places(columns, units, is_process)
        elif line and columns:
            where = where or _monitor_places(columns, [""] * len(columns), is_process)
            cells = _monitor_cells(line, columns)
            if cells is None:
                readings.skipped += 1
            elif not is_process:
                readings.row(where, list(cells.values()), of=cells["gpu"], time=_monitor_time(cells, readings))
            elif is_unknown(cells["pid"]):
                idle[cells["gpu"]] = idle.get(cells["gpu"], 0) + 1
            else:
                time, pid, device = _monitor_time(cells, readings), cells["pid"], cells["gpu"]
                readings.row(where, list(cells.values()), of=pid, time=time, kind="process")
                readings.say(pid, "device", device, time=time, kind="process")
                if devices.setdefault(pid, device) != device:
                    readings.note(f"process {pid} is on several devices; its readings are not told apart")
        else:
            readings.skipped += bool(line)
    for device, count in idle.items():
        if device not in devices.values():
            readings.say(device, "processes", "none")
            readings.note(f"no process on device {device} in {count} rows")
    timed = readings.clock.counts_from != ""
    return readings.samples(f"nvidia-smi {'pmon' if is_process else 'dmon'}", path, notes=notes,
                            interval_s=None if timed else interval_s)


def _delay(options: str) -> float:
    """Of `-d N` or `--delay N`, in seconds; both monitors print once a second where none is given."""
    match = re.search(r"(?:-d|--delay)[ =]?(\d+)", options)
    return float(match[1]) if match else 1.0


def _monitor_tokens(line: str) -> list[str]:
    return [token for token in re.split(r"[\s,]+", line.lstrip("#")) if token]


def _monitor_places(columns: Sequence[str], units: Sequence[str], is_process: bool) -> list[Place]:
    bare = ["" if unit.lower() in ("#", "idx", "name", "c/g", "-") else unit for unit in units]
    heads = [header(name, unit) for name, unit in zip(columns, bare, strict=True)]
    hidden = ("gpu", "date", "time", "pid")
    return [Place("", "", dropped=True) if head.key in hidden else place
            for head, place in zip(heads, places(heads, names.PROCESSES if is_process else names.MONITOR), strict=True)]


def _monitor_cells(line: str, columns: Sequence[str]) -> dict[str, str] | None:
    """A cell a column; None where there are more or fewer. A command may hold spaces, and is the last."""
    cut = len(columns) - 1 if columns[-1] == "command" else 0
    cells = re.split(r",\s*" if "," in line.split("  ")[0] else r"\s+", line, maxsplit=cut)
    cells = [cell.strip() for cell in cells]
    named = dict(zip((column.lower() for column in columns), cells, strict=False))
    if len(cells) != len(columns) or not re.fullmatch(r"\d{1,6}", named.get("gpu", "")):
        return None
    if "pid" in named and not (is_unknown(named["pid"]) or re.fullmatch(r"\d{1,10}", named["pid"])):
        return None
    return named


def _monitor_time(cells: dict[str, str], readings: Readings) -> float | None:
    if "time" not in cells:
        return None
    time = readings.clock.at(" ".join(filter(None, (cells.get("date"), cells["time"]))))
    readings.skipped += time is None
    return time
