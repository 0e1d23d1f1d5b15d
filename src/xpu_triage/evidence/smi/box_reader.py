"""A file of bar-drawn tables, printed once or many times, as `Samples`."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike, fspath

from ...errors import UnusableInput
from ...samples import Recorder, Samples
from ..lines import lines
from . import box_devices, box_processes
from .box_tables import Table, Tool, tables

Slices = Callable[[Table, Recorder], tuple[dict[tuple[str, ...], str], int]]
"""Records a table of slices (MIG); returns their names by GPU, GI and CI, and how many lines could not be read."""


def read(path: str | PathLike[str], tool: Tool, *, choose: box_devices.Choice = box_devices.as_read,
         slices: Slices | None = None) -> Samples:
    """Every table of `tool` in the file, in the order printed.

    Raises UnusableInput where no device and no process can be read.
    """
    notes: list[str] = []
    record = Recorder()
    devices: dict[tuple[str, ...], str] = {}
    seen = skipped = 0
    timed = by_shape = False
    for table in tables(lines(path, notes), tool):
        if table.kind == "device":
            found, lost = box_devices.record(table, tool, record, choose)
            devices = dict(found) | {(index,): name for (index, _), name in found.items()}
            seen += len(found)
        elif table.kind == "slice":
            named, lost = slices(table, record) if slices else ({}, 0)
            devices |= named
        else:
            count, lost = box_processes.record(table, devices, record)
            seen += count
        skipped += lost
        timed = timed or table.time is not None
        by_shape = by_shape or table.by_shape
        if record.full:
            break
    if not seen:
        raise UnusableInput(f"output of {tool.name} without a device that can be read", where=path,
                            todo="Give all of what it prints, neither cut nor wrapped")
    if by_shape:
        notes.append("the header is cut off: columns told by their place and form")
    if skipped:
        notes.append(f"{skipped:,} lines or values of the tables could not be read (cut, wrapped, or in another form or"
                     " unit than the header says): unknown")
    return record.samples(tool.name, fspath(path), clock="epoch" if timed else "", skipped=skipped, notes=notes)
