"""Tables without bars: the concise table of `rocm-smi` and Hygon's `hy-smi`, and `amd-smi monitor`.

    Device  Node  IDs              Temp        Power     Partitions          SCLK    MCLK    PwrCap  VRAM%  GPU%
                  (DID,     GUID)  (Junction)  (Socket)  (Mem, Compute, ID)
    ============================================================================================================
    0       2     0x74a1,   28851  43.0°C      142.0W    NPS1, SPX, 0        133Mhz  900Mhz  750.0W  0%     0%

Which columns there are, and in which order, changes with the version and the vendor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from os import PathLike, fspath

from ...errors import UnusableInput
from ...samples import Recorder, Samples
from ...text import clean, counted, shorten
from ..lines import lines
from .box_devices import MAX_WORD
from .boxes import Cell, Label, Piece, is_rule, labels, pieces, placed
from .printed import in_unit_of, is_unknown, time_in, values

_DROPPED = ("dropped",)
_MEMORY = ("memory_used", "memory_total")
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    # rocm-smi, hy-smi
    "temp": ("temperature",), "avgpwr": ("power",), "power": ("power",), "pwrcap": ("power_limit",),
    "sclk": ("core_clock",), "mclk": ("memory_clock",), "vram%": ("memory_used_fraction",),
    "gpu%": ("utilization",), "dcu%": ("utilization",), "hcu%": ("utilization",), "ids": _DROPPED,
    # amd-smi monitor
    "pwr_cap": ("power_limit",), "gpu_t": ("temperature",), "gpu_temp": ("temperature",),
    "gfx_clk": ("core_clock",), "gfx_clock": ("core_clock",), "mem_clock": ("memory_clock",),
    "gfx%": ("utilization",), "gfx_util": ("utilization",), "mem%": ("memory_activity",),
    "mem_util": ("memory_activity",), "vram_usage": _MEMORY, "vram_used": ("memory_used",),
    "vram_total": ("memory_total",), "vram_percent": ("memory_used_fraction",),
}
_INDEX = frozenset({"gpu", "device", "dcu", "hcu"})
_MONITOR = re.compile(r"[\s#>]*(?:TIMESTAMP +)?GPU [A-Z0-9_%/ ]+")
_MONITORED = frozenset({"POWER", *(key.upper() for key in _COLUMNS if key.startswith(("gfx", "vram_", "gpu_t")))})
_LISTED = re.compile(r",\s+")
_JOINED = "\0"
"""Stands for the spaces of `NPS1, SPX, 0`, which is one value."""
_MAX_LINE = 400


def matches(head: str) -> bool:
    return any(_header(line) for line in head.splitlines() if len(line) <= _MAX_LINE)


def _header(line: str) -> str:
    """The tool whose header this is; empty for any other line."""
    words = [word.lower() for word in line.lstrip("#> \t").split()]
    if words and words[0] in _INDEX and "temp" in words and len(_COLUMNS.keys() & set(words)) > 2:
        return "hy-smi" if words[0] in ("dcu", "hcu") or {"dcu%", "hcu%"}.intersection(words) else "rocm-smi"
    if _MONITOR.fullmatch(line) and _MONITORED.intersection(line.split()):
        return "amd-smi monitor"
    return ""


def read(path: str | PathLike[str]) -> Samples:
    """Every table in the file. Raises UnusableInput where none has a device.

    A time is that of the row's TIMESTAMP column (epoch), else of a date printed above the table.
    """
    notes: list[str] = []
    rows = _Rows()
    for line in lines(path, notes):
        rows.take(line)
        if rows.record.full:
            break
    if not rows.seen:
        raise UnusableInput("output of rocm-smi, hy-smi or amd-smi monitor without a device that can be read",
                            where=path, todo="Give all of what it prints, neither cut nor wrapped")
    if rows.skipped:
        lost = counted(rows.skipped, "line or value", "lines or values")
        notes.append(f"{lost} of the tables could not be read: unknown")
    return rows.record.samples(rows.tool, fspath(path), clock="epoch" if rows.timed else "", skipped=rows.skipped,
                               notes=notes)


class _Rows:
    """The header in force, and the date above it."""

    def __init__(self) -> None:
        self.record = Recorder()
        self.tool = ""
        self.seen = self.skipped = 0
        self.timed = False
        self._names: tuple[Label, ...] = ()
        self._date: float | None = None
        self._time: float | None = None

    def take(self, line: str) -> None:
        if prefix := re.match(r"[\s#>]+", line):
            line = " " * prefix.end() + line[prefix.end():]  # spans of header and rows stay comparable
        if len(line) > _MAX_LINE or not line.strip() or is_rule(line):
            self.skipped += len(line) > _MAX_LINE and bool(self._names)
        elif tool := _header(line):
            self.tool = self.tool or tool
            self._names = _labels(line, tool)
            self._time, self._date = self._date, None
        elif self._names and re.match(r" *\d", line) and time_in(line) is None:
            self._row(line)
        elif (date := time_in(line)) is not None:
            self._date, self._names = date, ()
        elif not line.lstrip().startswith("("):  # the second line of a header
            self._names = ()

    def _row(self, line: str) -> None:
        found = pieces(Cell(_LISTED.sub(lambda listed: "," + _JOINED * (len(listed[0]) - 1), line)))
        if len(found) < len(self._names) and found and not values(found[-1].text, ""):
            found = found[:-1]  # a row that was cut: its last word may be half of one
        read = placed(self._names, found)
        of, time, lost = "", self._time, 0
        for position, label in enumerate(self._names):
            text = read.get(position, [Piece("", 0, 0)])[0].text
            if label.key in _INDEX and not of:
                of = text if text.isascii() and text.isdecimal() and len(text) < 10 else ""
            elif label.key == "xcp" and text.isdecimal() and int(text):
                of = f"{of}/XCP {text}" if of else ""
            elif label.key == "timestamp" and re.fullmatch(r"\d{9,11}(?:\.\d+)?", text):
                time = float(text)
        if not of or len(found) < 2:
            self.skipped += 1
            return
        self.seen += 1
        self.timed = self.timed or time is not None
        for position, label in enumerate(self._names):
            lost += self._keep(label, read.get(position, []), of, time)
        self.skipped += lost

    def _keep(self, label: Label, found: Sequence[Piece], of: str, time: float | None) -> int:
        meaning = _COLUMNS.get(label.key, ())
        if meaning == _DROPPED or label.key in (*_INDEX, "xcp", "timestamp"):
            return 0
        text = found[0].text.replace(_JOINED, "") if len(found) == 1 else ""
        parsed = values(text) if len(found) == 1 else None  # a number that lost its % may have lost digits
        if not meaning:
            unit = parsed[0].unit if parsed else ""
            if parsed and (unit or (parsed[0].number is None and label.text.endswith("%"))):
                self.record.add(of, clean(label.text), parsed[0].number, time=time, unit=unit or "%")
            elif not is_unknown(text) and (parsed is None or text.isdecimal()):
                self.record.say(of, clean(label.text), clean(shorten(text, MAX_WORD)), time=time)
            return 0
        right = parsed is not None and len(parsed) <= len(meaning)
        for position, quantity in enumerate(meaning):
            number = None
            if right and parsed is not None and position < len(parsed):
                number, fits = in_unit_of(quantity, parsed[position])
                right = right and fits
            self.record.add(of, quantity, number, time=time)
        return int(not right)


def _labels(line: str, tool: str) -> tuple[Label, ...]:
    """The header's words. Some versions of rocm-smi name the sensor after one (`Temp (DieEdge)`): left out."""
    if tool == "amd-smi monitor":
        return tuple(Label(word[0], "", word.start(), word.end()) for word in re.finditer(r"\S+", line))
    return labels(Cell(line))
