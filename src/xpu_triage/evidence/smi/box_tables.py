"""Finds the tables of one tool in a text: whose they are, their headers, the date printed above them, their lines.

A vendor's module says what is its own: the title that names the tool, the header word of the device's index, and what
header words mean beyond those that all these tools share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from .boxes import Label, Line, is_rule, labels, line_of, pieces
from .printed import time_in

INDEX, CHIP, NAME, DROPPED = ("index",), ("chip",), ("name",), ("dropped",)
"""What a header word can mean beside quantities. Dropped are addresses and serial numbers: they say which machine it
is, not how it does."""

_SHARED: dict[str, tuple[str, ...]] = {
    "name": NAME,
    "gpu-name": NAME,
    "bus-id": DROPPED,
    "bdf": DROPPED,
    "temp": ("temperature",),
    "power": ("power",),
    "pwr:usage/cap": ("power", "power_limit"),
    "memory-usage": ("memory_used", "memory_total"),
}

_TITLE = re.compile(r"(?:^|\s)(?:[A-Za-z]{1,9}-SMI|npu-smi|CNMON|IX-ML:?|mthreads-gmi:?) *v?(?:\d|Version|Driver)")
"""The title line of any tool: what follows belongs to that one."""

_CAPTION = re.compile(r"\s*[A-Z][A-Za-z ]{2,40}:\s*")
"""`MIG devices:`, `Processes:`: the table before has ended."""

MAX_LINES = 8192
"""Lines of one table; what follows is taken as a new one under the same header."""


@dataclass(frozen=True)
class Tool:
    """What one vendor's table has of its own."""

    name: str
    """As a person names it: `hl-smi`."""
    title: re.Pattern[str]
    index: str
    """Header word (lower case) of the device's index."""
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What header words mean, beyond and before the shared ones: one quantity, two that share a column, or one of
    the words above."""
    closed: bool = True
    """Lines begin and end with a bar; else bars stand only between columns."""
    shapes: tuple[tuple[str, ...], ...] = ()
    """Headers, most common first, for tables whose own is cut off: the first that fits a block is used."""

    def meaning(self, label: Label) -> tuple[str, ...]:
        if label.key == self.index:
            return INDEX
        return self.columns.get(label.key) or _SHARED.get(label.key) or ()


Header = tuple[tuple[tuple[Label, ...], ...], ...]
"""Lines, their cells, their labels."""


@dataclass
class Table:
    kind: str
    """`device`, `slice` (MIG) or `process`."""
    header: Header
    time: float | None
    """Seconds since the epoch; None where none is printed above it."""
    groups: list[list[Line]] = field(default_factory=list)
    """Lines between two rules."""
    torn: int = 0
    """Ends of lines that a narrow terminal broke off."""
    by_shape: bool = False
    cut: bool = False
    """The header's lines end early: there may be columns that it does not show."""


def tables(lines: Iterable[str], tool: Tool) -> Iterator[Table]:
    """Every table of `tool`, in the order they were printed."""
    finder = _Finder(tool)
    for raw in lines:
        yield from finder.take(raw)
    yield from finder.end()


class _Finder:
    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self._shapes = [header_of([line for raw in shape if (line := line_of(raw))]) for shape in tool.shapes]
        self._ours = True
        self._table: Table | None = None
        self._group: list[Line] = []
        self._size = 0
        self._date: float | None = None
        """Printed and not yet used."""
        self._time: float | None = None
        """Of the print that is being read."""

    def take(self, raw: str) -> Iterator[Table]:
        rule = is_rule(raw)
        date = None if rule else time_in(raw)
        if not self.tool.closed and not rule and raw.strip() and date is None:
            raw = f"|{raw}|"
        line = None if rule or date is not None else line_of(raw)
        indent = self._group[0].indent if self._group else line.indent if line else 0
        if line is not None and line.indent == indent:
            self._group.append(line)
            self._size += 1
            if self._size > MAX_LINES:
                yield from self._close_group()
                yield from self._renew()
            return
        if self._group and not rule and raw.rstrip().endswith("|"):
            if self._table is not None:
                self._table.torn += 1
            return
        yield from self._close_group()
        if rule:
            if not self.tool.closed and "+" not in raw and self._table is not None and self._table.groups:
                yield from self._close_table()  # a rule without corners is the table's last line
            return
        if date is not None:
            self._date = date
        if raw.strip() or not self.tool.closed:
            yield from self._close_table()

    def end(self) -> Iterator[Table]:
        yield from self._close_group()
        yield from self._close_table()

    def _close_group(self) -> Iterator[Table]:
        group, self._group = self._group, []
        if not group:
            return
        if any(_TITLE.search(line.text) for line in group[:2]):
            yield from self._close_table()
            self._ours = any(self.tool.title.search(line.text) for line in group[:2])
        elif self._ours and (kind := self._kind(group)):
            yield from self._close_table()
            lead = list(_lead(group)) if kind == "device" else group
            if kind == "device":
                self._time, self._date = self._date, None
            self._table = Table(kind, header_of(lead), self._time,
                                cut=not all(line.cells[-1].closed for line in lead))
            if rest := group[len(lead):]:
                self._table.groups.append(rest)
        elif _CAPTION.fullmatch(group[0].text):
            yield from self._close_table()
        elif self._ours and self._table is not None:
            self._table.groups.append(group)
        elif self._ours and (shape := self._shape(group)):
            self._time, self._date = self._date, None
            self._table = Table("device", shape, self._time, [group], by_shape=True)

    def _kind(self, group: list[Line]) -> str:
        found = [label for line in group[:4] for cell in line.cells for label in labels(cell)]
        words = {label.key for label in found}
        if words & PIDS:
            return "process"
        if {"gi", "ci", "mig"} <= words:
            return "slice"
        meanings = {self.tool.meaning(label) for label in found}
        return "device" if {INDEX, NAME} <= meanings else ""

    def _shape(self, group: list[Line]) -> Header | None:
        return next((header for header in self._shapes if _fits(header, group, self.tool)), None)

    def _close_table(self) -> Iterator[Table]:
        if self._table is not None:
            yield self._table
        self._table, self._size = None, 0

    def _renew(self) -> Iterator[Table]:
        table = self._table
        yield from self._close_table()
        if table is not None:
            self._table = Table(table.kind, table.header, table.time, cut=table.cut)


PIDS = frozenset({"pid", "process id"})


def header_of(lines: Iterable[Line]) -> Header:
    return tuple(tuple(labels(cell) for cell in line.cells) for line in lines)


def _lead(group: list[Line]) -> Iterator[Line]:
    """The lines of a header, where no rule parts it from the devices."""
    for line in group:
        first = line.cells[0].text.split()
        if first and first[0].isdecimal():
            return
        yield line


def _fits(header: Header, group: list[Line], tool: Tool) -> bool:
    if len(group) < len(header):
        return False
    for row, line in zip(header, group, strict=False):
        if len(row) != len(line.cells) or not line.cells[-1].closed:
            return False
        for names, cell in zip(row, line.cells, strict=True):
            found = pieces(cell)
            if len(found) != len(names):
                return False
            for label, piece in zip(names, found, strict=True):
                meaning = tool.meaning(label)
                if (meaning in (INDEX, CHIP) and not piece.text.isdecimal()) or (
                        label.key == "bus-id" and not re.fullmatch(r"[0-9A-Fa-f:]+\.[0-9A-Fa-f]|N/?A", piece.text)):
                    return False
    return True
