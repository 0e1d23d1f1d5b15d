"""The table of processes that stands under a device table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...samples import Recorder
from ...text import clean, shorten
from .box_tables import PIDS, Header, Table
from .boxes import Label, Line, is_rule
from .printed import VALUE, Printed, in_unit_of, is_unknown, values

_NONE = re.compile(r"\bno\b.*\bprocess|not supported", re.IGNORECASE)
_WHOLE = re.compile(r"\d ?[KMGT]i?[Bb]\s*$")
"""A line without its last bar is whole where it ends with a memory and its unit."""
_NAMES = frozenset({"process name", "name", "command line", "command"})

Devices = Mapping[tuple[str, ...], str]
"""What the tables before call a device: by card, by card and chip, or by GPU, GI and CI."""


@dataclass
class _Process:
    devices: list[str] = field(default_factory=list)
    megabytes: list[float | None] = field(default_factory=list)
    others: dict[str, list[Printed]] = field(default_factory=dict)
    """Values of other columns, under the tool's own word."""
    facts: dict[str, str] = field(default_factory=dict)


def record(table: Table, devices: Devices, into: Recorder) -> tuple[int, int]:
    """Each process's memory (over all its devices: one process may stand in several lines), its name without path and
    arguments, its type and its devices. Returns how many processes, and how many lines could not be read."""
    row, unit = _columns(table.header)
    found: dict[str, _Process] = {}
    lost = table.torn
    for line in (line for group in table.groups for line in group):
        if not line.text.strip() or is_rule(line.text) or _NONE.search(line.text):
            continue
        read = _read(line, row)
        if read is None:
            lost += 1
            continue
        pid = next((read[key] for key in PIDS if key in read), "")
        if is_unknown(pid):
            continue
        if not (pid.isascii() and pid.isdecimal() and len(pid) < 11):
            lost += 1
            continue
        lost += _take(found.setdefault(pid, _Process()), read, row, unit, devices)
    for pid, process in found.items():
        known = [part for part in process.megabytes if part is not None]
        total = sum(known) if len(known) == len(process.megabytes) and known else None
        into.add(pid, "device_memory", total, time=table.time, kind="process")
        for name, others in process.others.items():
            if len(others) == 1 and others[0].unit:
                number, unit = _one_unit(others[0])
                into.add(pid, name, number, time=table.time, kind="process", unit=unit)
        if process.devices:
            process.facts["device"] = ", ".join(process.devices)
        for name, value in process.facts.items():
            into.say(pid, name, value, time=table.time, kind="process")
    return len(found), lost


def _one_unit(value: Printed) -> tuple[float | None, str]:
    """Bytes of every unit as MB: a table prints `2.0 MB` and `172.0 GB` in one column, as the size has it."""
    megabytes, is_size = in_unit_of("device_memory", value)
    return (megabytes, "MB") if is_size and value.unit.lower().endswith("b") else (value.number, value.unit)


def _columns(header: Header) -> tuple[Sequence[Sequence[Label]], str]:
    """The header line with the pid in it, and the unit of memory where the header has one."""
    every = [label for row in header for cell in row for label in cell]
    unit = next((label.unit for label in every if label.unit.lower().endswith("b")), "")
    return next(row for row in header if any(label.key in PIDS for cell in row for label in cell)), unit


def _read(line: Line, row: Sequence[Sequence[Label]]) -> dict[str, str] | None:
    """Text by header word (lower case); None where the line has another form than the header."""
    if len(line.cells) != len(row) or not (line.cells[-1].closed or _WHOLE.search(line.text)):
        return None
    read: dict[str, str] = {}
    for cell, names in zip(line.cells, row, strict=True):
        if len(names) == 1 and len(row) > 1:
            read[names[0].key] = cell.text.strip()
        elif names:
            match = _pattern(names).fullmatch(cell.text)
            if match is None:
                return None
            read |= {label.key: match[position + 1].strip() for position, label in enumerate(names)}
    return read


def _pattern(names: Sequence[Label]) -> re.Pattern[str]:
    """One word for each column, but any text for the name, and a value with its unit for what is right of it."""
    parts = []
    after = False
    for label in names:
        if label.key in _NAMES:
            parts.append("(.*?)")
            after = True
        else:
            parts.append(f"({VALUE})" if after else r"(\S+)")
    return re.compile(r"\s*" + r"\s+".join(parts) + r"\s*")


def _take(process: _Process, read: Mapping[str, str], row: Sequence[Sequence[Label]], unit: str,
          devices: Devices) -> int:
    names = [label for cell in row for label in cell]
    keys = [label.key for label in names]
    place = tuple(read[key] for key in keys[:3] if key not in PIDS and key in read)
    card = place[0] if place else ""
    device = next((devices[place[:size]] for size in (3, 2, 1) if place[:size] in devices), card)
    if device and device not in process.devices:
        process.devices.append(clean(device))
    name = next((read[key] for key in keys if key in _NAMES), "")
    if not is_unknown(name):
        process.facts["name"] = base_name(name)
    if not is_unknown(kind := read.get("type", "")):
        process.facts["Type"] = clean(shorten(kind, 20))
    after = [label for label in names[_after(keys):] if label.key not in PIDS]
    memory = next((label for label in after if "vram" in label.key),
                  next((label for label in after if "mem" in label.key or "usage" in label.key), None))
    for label in after:
        if label is not memory and (other := values(read[label.key], label.unit)):
            process.others.setdefault(clean(label.text), []).append(other[0])
    if memory is None:
        return 0
    parsed = values(read[memory.key], memory.unit or unit)
    number, right = in_unit_of("device_memory", parsed[0]) if parsed else (None, False)
    process.megabytes.append(number)
    return int(not right)


def _after(keys: Sequence[str]) -> int:
    return next((position + 1 for position, key in enumerate(keys) if key in _NAMES), 0)


def base_name(command: str) -> str:
    """The program's own name: no path, which names people, and no arguments, which may hold secrets."""
    command = command.strip()
    if "\\" in command:
        command = command.rpartition("\\")[2]
    else:
        command = command.split()[0].rpartition("/")[2] if command.split() else ""
    return clean(shorten(command, 80))
