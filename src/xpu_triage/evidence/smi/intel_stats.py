"""Intel `xpu-smi stats` (and `xpumcli stats`): a table of two columns for each device.

    | Device ID                   | 0                                                                  |
    +-----------------------------+--------------------------------------------------------------------+
    | Average % utilization of    | Tile 0: 0, Tile 1: 4                                               |
    | all GPU Engines             |                                                                    |

A value is of the device or of each of its tiles; a cell that holds nothing is unknown. `GPU Memory Util (%)` is memory
in use, `GPU Memory Bandwidth (%)` its activity (intel/xpumanager, doc/smi_user_guide.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from os import PathLike

from ...samples import Samples
from ..lines import lines
from .columns import Column, Readings, header, places
from .stamps import stamp

TABLE = (
    Column("utilization", ("gpu utilization", "average % utilization of all gpu engines"), "%"),
    Column("memory_activity", ("gpu memory bandwidth", "gpu memory bandwidth utilization"), "%"),
    Column("memory_used_fraction", ("gpu memory util", "gpu memory utilization"), "%"),
    Column("memory_used", ("gpu memory used",), "MiB"),
    Column("power", ("gpu power",), "W"),
    Column("core_clock", ("gpu frequency",), "MHz"),
    Column("temperature", ("gpu core temperature",), "C"),
    Column("energy", ("energy consumed",), "J"),
)

_ROW = re.compile(r"^\s*\|(?P<name>[^|]*)\|(?P<value>[^|]*)\|\s*$")
_DEVICE = re.compile(r"^\s*\| *Device ID *\| *(?P<of>\d{1,6}) *\|\s*$", re.MULTILINE)
_FIGURE = re.compile(r"^\s*\| *(?:GPU Utilization \(%\)|Average % utilization of|GPU Power \(W\)|EU Array Active \(%\))"
                     r"[^|\n]*\|[^|\n]*\|\s*$", re.MULTILINE)
_TILE = re.compile(r"Tile (?P<tile>\d{1,3}): *(?P<value>[^,;]*?)(?=, *(?:total|Tile)|;|$)")
_LEFT_OUT = re.compile(r"\b(?:time|errors?|reset|engines? util|elapsed|xe link)\b", re.IGNORECASE)
"""Times of the table itself, counters of errors, and lists of single engines."""


def matches(head: str) -> bool:
    """Whether a file that begins so is one of these."""
    start = head[:1 << 14]
    return _DEVICE.search(start) is not None and _FIGURE.search(start) is not None


def read(path: str | PathLike[str]) -> Samples:
    """Every table; the tiles of device 0 are `0/0`, `0/1`. A device with one tile is that tile. Raises UnusableInput
    where there is no figure."""
    notes: list[str] = []
    readings = Readings()
    time: float | None = None
    of = ""
    found: list[tuple[str, str]] = []
    for line in lines(path, notes):
        if row := _ROW.match(line):
            if device := _DEVICE.match(line):
                _keep(of, found, time, readings)
                of, found = device["of"], []
            elif of:
                _add(row["name"].strip(), row["value"].strip(), found)
        elif stamp(line) is not None:
            _keep(of, found, time, readings)
            found = []
            time = readings.clock.at(line)
    _keep(of, found, time, readings)
    return readings.samples("xpu-smi stats (Intel)", path, notes=notes)


def _add(name: str, value: str, found: list[tuple[str, str]]) -> None:
    """A row; where the name goes on in the next row, that row has no value and no unit of its own."""
    last = found[-1][0] if found else ""
    if name and not value and last.startswith("Average % utilization") and last.endswith(" of"):
        found[-1] = f"{last} {name}", found[-1][1]
    elif name:
        found.append((name, value))


def _keep(of: str, found: list[tuple[str, str]], time: float | None, readings: Readings) -> None:
    wanted = [(header(name), value) for name, value in found if not _LEFT_OUT.search(name)]
    if not of or not wanted:
        return
    for place, (_, value) in zip(places([head for head, _ in wanted], TABLE, [[text for _, text in wanted]]), wanted,
                                 strict=True):
        for tile, text in _tiles(value):
            readings.cell(place, text, of=f"{of}/{tile}" if tile else of, time=time)


def _tiles(value: str) -> Iterator[tuple[str, str]]:
    """Tile and value; no tile where the value is the device's, or of the only tile it has."""
    tiles = [(match["tile"], match["value"].strip()) for match in _TILE.finditer(value)]
    if len(tiles) == 1:
        yield "", tiles[0][1]
    elif tiles:
        yield from tiles
    else:
        yield "", value.partition(";")[0].strip()
