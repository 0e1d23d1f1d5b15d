"""Intel `xpu-smi dump`: CSV with a header of names and units, one line a device or tile and interval.

The other program of this name, Kunlun's, prints no such header. `GPU Memory Utilization (%)` is memory in use;
`GPU Memory Bandwidth Utilization (%)` is its activity.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import chain, islice
from os import PathLike

from ...errors import UnusableInput
from ...samples import Samples
from ..lines import lines
from .columns import LOOKED_AT, Column, Header, Place, Readings, header, is_unknown, places

TABLE = (
    Column("utilization", ("gpu utilization", "average % utilization of all gpu engines"), "%"),
    Column("memory_activity", ("gpu memory bandwidth utilization",), "%"),
    Column("memory_used_fraction", ("gpu memory utilization",), "%"),
    Column("memory_used", ("gpu memory used",), "MiB"),
    Column("power", ("gpu power",), "W"),
    Column("core_clock", ("gpu frequency",), "MHz"),
    Column("temperature", ("gpu core temperature",), "C"),
    Column("energy", ("gpu energy consumed",), "J"),
    Column("limit_reason", ("throttle reason", "gpu throttle reason")),
)

_HEADER = re.compile(r"^\s*Timestamp\s*,\s*Device ?Id\b[^\n]*$", re.IGNORECASE | re.MULTILINE)
_WHERE = ("timestamp", "deviceid", "device id", "tileid", "tile id")


def matches(head: str) -> bool:
    """Whether a file that begins so is one of these."""
    return _HEADER.search(head[:1 << 14]) is not None


def read(path: str | PathLike[str]) -> Samples:
    """All readings; tile 1 of device 0 is `0/1`. Raises UnusableInput where the file cannot be read or holds none."""
    notes: list[str] = []
    text = lines(path, notes)
    readings = Readings()
    heads: list[Header] = []
    for line in text:
        if _HEADER.match(line):
            heads = [header(cell) for cell in line.split(",")]
            break
        readings.skipped += bool(line.strip())
    if not heads:
        raise UnusableInput("no header of xpu-smi dump", where=path, todo="Give its output from the header on")
    rows = _rows(text, len(heads), readings)
    looked_at = list(islice(rows, LOOKED_AT))
    where = [Place("", "", dropped=True) if head.key in _WHERE else place
             for head, place in zip(heads, places(heads, TABLE, looked_at), strict=True)]
    at = {head.key.replace(" ", ""): index for index, head in enumerate(heads)}
    for cells in chain(looked_at, rows):
        of = _of(cells, at)
        if of is None:
            readings.skipped += 1
            continue
        time = readings.clock.at(cells[at["timestamp"]])
        readings.skipped += time is None
        for place, cell in zip(where, cells, strict=True):
            is_none = place.quantity == "limit_reason" and cell.lower() in ("not throttled", "none", "0")
            readings.cell(place, "none" if is_none else cell, of=of, time=time)
    return readings.samples("xpu-smi dump (Intel)", path, notes=notes)


def _rows(text: Iterator[str], width: int, readings: Readings) -> Iterator[list[str]]:
    for line in text:
        if not line.strip() or _HEADER.match(line):
            continue
        cells = [cell.strip().strip('"') for cell in _split(line)]
        if len(cells) == width:
            yield cells
        else:
            readings.skipped += 1


def _split(line: str) -> list[str]:
    """Reasons may stand in quotes, with commas between them."""
    try:
        return next(csv.reader([line], skipinitialspace=True)) if '"' in line else line.split(",")
    except (csv.Error, StopIteration):
        return line.split(",")


def _of(cells: list[str], at: dict[str, int]) -> str | None:
    device = cells[at["deviceid"]]
    if not re.fullmatch(r"\d{1,6}", device):
        return None
    tile = cells[at["tileid"]] if "tileid" in at else ""
    return device if is_unknown(tile) or not tile.isdigit() else f"{device}/{tile}"
