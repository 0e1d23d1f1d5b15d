"""rocm-smi and amd-smi as CSV, and the text table of `amd-smi monitor`; the names are in `amd_names`.

Headers may come again, and lines of `date` may stand between two readings.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from . import amd_names as names
from .columns import LOOKED_AT, Header, Readings, header, places
from .stamps import stamp

_ROCM_CSV = re.compile(r"^device,(?=.*[(%])", re.MULTILINE)
_AMD_CSV = re.compile(r"^(?:timestamp,)?gpu,(?:xcp,)?[\w,%]*\b(?:gfx_activity|socket_power|power_usage|gfx|vram_used|"
                      r"hotspot_temperature|used_vram|edge|hotspot)\b[\w,%]*\s*$", re.MULTILINE)
_AMD_TEXT = re.compile(r"^\s*(?:TIMESTAMP\s+)?GPU\s+(?:XCP\s+)?(?:POWER|GPU_T|GPU_TEMP|GFX%|GFX_UTIL|GFX_CLK|GFX_CLOCK|"
                       r"VRAM_USED|VRAM_USAGE)\b", re.MULTILINE)
_UNIT = r"(?:W|°?C|%|MHz|MB|GB|Mb/s|MB/s|GB/s)"
_TEXT_CELL = re.compile(rf"[\d.]+/\s*[\d.]+ ?{_UNIT}|(?:N/A|-?[\d.]+)(?: ?{_UNIT}(?=\s|$))?|\S+")


def matches(head: str) -> bool:
    """Whether a file that begins so is one of these."""
    start = head[:1 << 14]
    return any(pattern.search(start) is not None for pattern in (_ROCM_CSV, _AMD_CSV, _AMD_TEXT))


def keep(text: str, readings: Readings) -> str:
    """Puts all readings of `text` into `readings`; the tool that printed them."""
    start = text[:1 << 14]
    if _ROCM_CSV.search(start):
        return _rocm_csv(text, readings)
    return _amd_csv(text, readings) if _AMD_CSV.search(start) else _monitor_text(text, readings)


def _rocm_csv(text: str, readings: Readings) -> str:
    tool = "rocm-smi"
    for heads, rows in _tables(text.splitlines(), lambda line: line.startswith("device,"), readings):
        tool = "hy-smi" if any(name.startswith(("HCU", "DCU")) for name in heads) else tool
        where = places([names.rocm_header(head) for head in heads], names.ROCM, rows[:LOOKED_AT])
        for *cells, time in rows:
            if match := re.fullmatch(r"(?:card)?(\d{1,4})", cells[0]):
                readings.row(where[1:], cells[1:], of=match[1], time=_at(time, readings))
            elif cells[0] != "system":
                readings.skipped += 1
    return tool


def _amd_csv(text: str, readings: Readings) -> str:
    monitor = False
    for heads, rows in _tables(text.splitlines(), lambda line: _AMD_CSV.match(line) is not None, readings):
        monitor = names.is_monitor(heads)
        _amd_rows([header(head) for head in heads], rows, monitor, readings)
    return "amd-smi monitor" if monitor else "amd-smi metric"


def _monitor_text(text: str, readings: Readings) -> str:
    tables = _tables(text.splitlines(), lambda line: _AMD_TEXT.match(line) is not None, readings,
                     split_header=str.split, split_row=_TEXT_CELL.findall)
    for heads, rows in tables:
        _amd_rows([header(head) for head in heads], rows, True, readings)
    return "amd-smi monitor"


def _amd_rows(heads: Sequence[Header], rows: Sequence[Sequence[str]], monitor: bool, readings: Readings) -> None:
    at = {head.key: index for index, head in enumerate(heads)}
    kept = [index for name, index in at.items() if name not in ("gpu", "xcp", "timestamp", "vram_usage")]
    mine, usage = [heads[index] for index in kept], at.get("vram_usage")
    if usage is not None:
        mine += [Header("VRAM_USED", "vram_used"), Header("VRAM_TOTAL", "vram_total")]

    def cells_of(row: Sequence[str]) -> list[str]:
        return [row[index] for index in kept] + ([] if usage is None else _pair(row[usage]))

    where = places(mine, names.MONITOR if monitor else names.METRIC, [cells_of(row) for row in rows[:LOOKED_AT]])
    for row in rows:
        if not re.fullmatch(r"\d{1,6}", row[at["gpu"]]):
            readings.skipped += 1
            continue
        time = _at(row[at["timestamp"]] if "timestamp" in at else row[-1], readings)
        of = names.partition(row[at["gpu"]], row[at["xcp"]] if "xcp" in at else "")
        for place, cell in zip(where, cells_of(row), strict=True):
            readings.cell(place, names.state(place, cell), of=of, time=time)


def _pair(text: str) -> list[str]:
    """`0.3/192.0 GB` as two cells."""
    match = re.fullmatch(r"([\d.]+)/\s*([\d.]+) ?(\w+)", text)
    return ["N/A", "N/A"] if match is None else [f"{match[1]} {match[3]}", f"{match[2]} {match[3]}"]


def _split(line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line]))] if '"' in line else [
            cell.strip() for cell in line.split(",")]
    except (csv.Error, StopIteration):
        return []


def _tables(text: Iterable[str], is_header: Callable[[str], bool], readings: Readings,
            split_header: Callable[[str], list[str]] = _split,
            split_row: Callable[[str], list[str]] = _split) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Each header with its rows; a row has the time that stood before it as one more cell."""
    heads: list[str] = []
    rows: list[list[str]] = []
    time = ""
    for line in text:
        if is_header(line):
            if heads:
                yield heads, rows
            heads, rows = split_header(line), []
        elif stamp(line) is not None:
            time = line
        elif heads and line.strip():
            cells = split_row(line)
            if len(cells) == len(heads):
                rows.append([*cells, time])
            else:
                readings.skipped += 1
    if heads:
        yield heads, rows


def _at(text: str, readings: Readings) -> float | None:
    return readings.clock.at(text) if text else None
