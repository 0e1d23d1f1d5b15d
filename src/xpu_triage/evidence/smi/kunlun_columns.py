"""Kunlun `xpu-smi -m`: machine-readable lines, one a device, without any header.

What the fields are is known of these only (counted from 0; three programs that read them agree): 1 the device, 4 the
temperature in C, 8 the power in W, 17 and 18 the memory in use and in all in MB, 19 the utilization in %. Intel's
`xpu-smi`, of the same name, prints a header and commas.
"""

from __future__ import annotations

import re
import shlex
from os import PathLike

from ...samples import Samples
from ..lines import lines
from .columns import Place, Readings, is_unknown, number
from .stamps import stamp

DEVICE, TEMPERATURE, POWER, USED, TOTAL, UTILIZATION = 1, 4, 8, 17, 18, 19
FEWEST = 20
"""Fields of a line."""

_PLACES = {
    TEMPERATURE: Place("temperature", "C", "temperature"),
    POWER: Place("power", "W", "power"),
    USED: Place("used", "MB", "memory_used"),
    TOTAL: Place("total", "MB", "memory_total"),
    UTILIZATION: Place("utilization", "%", "utilization"),
}


def matches(head: str) -> bool:
    """Whether a file that begins so is one of these: most lines, and all long ones, have the same number of fields,
    and those that are known hold what they must."""
    whole = head.splitlines()
    if len(whole) > 1 and not head.endswith("\n"):
        whole.pop()                                 # it may be cut off
    filled = [line for line in whole[:64] if line.strip() and stamp(line) is None]
    rows = [_fields(line) for line in filled if not line.lstrip().startswith(("#", "|", "+", "{", "[", "<"))]
    long = [row for row in rows if len(row) >= FEWEST]
    return (len(long) > 2 * (len(filled) - len(long)) and len({len(row) for row in long}) == 1
            and all(map(_fits, long)))


def read(path: str | PathLike[str]) -> Samples:
    """All readings. A file may hold several runs, and lines of `date` between them. Raises UnusableInput where the file
    cannot be read or holds none."""
    notes: list[str] = []
    readings = Readings()
    time = None
    for line in lines(path, notes):
        if not line.strip():
            continue
        if stamp(line) is not None:
            time = readings.clock.at(line)
            continue
        fields = _fields(line)
        if not _fits(fields):
            readings.skipped += 1
            continue
        for at, place in _PLACES.items():
            readings.cell(place, fields[at], of=fields[DEVICE], time=time)
    readings.note("the other fields have no names and are left out")
    return readings.samples("xpu-smi -m (Kunlun)", path, notes=notes)


def _fields(line: str) -> list[str]:
    if '"' not in line and "'" not in line:
        return line.split()
    try:
        return shlex.split(line)
    except ValueError:
        return []


def _fits(fields: list[str]) -> bool:
    if len(fields) < FEWEST or not re.fullmatch(r"\d{1,4}", fields[DEVICE]):
        return False
    values = {at: number(fields[at]) for at in _PLACES}
    if any(value is None and not is_unknown(fields[at]) for at, value in values.items()):
        return False
    used, total, share = values[USED], values[TOTAL], values[UTILIZATION]
    return (total is not None and total[0] > 0 and (used is None or 0 <= used[0] <= total[0])
            and (share is None or 0 <= share[0] <= 100))
