"""rocm-smi (and hy-smi, which is made from it) and amd-smi: JSON here, CSV and columns in
`amd_columns`.

A file may hold several documents, one a reading, warnings before them, and lines of `date` between them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any

from ...errors import UnusableInput
from ...samples import Samples
from ...text import clean
from .. import lines
from . import amd_columns
from . import amd_names as names
from .columns import Header, Place, Readings, is_unknown, places
from .stamps import stamp

MAX_DEPTH = 12
"""Levels of a document; what lies deeper is left out."""

_ROCM = re.compile(r'"card\d+"\s*:\s*\{')
_ROCM_KEY = re.compile(r'"(?:(?:GPU|HCU|DCU) (?:use|memory use|Memory Allocated)|Temperature \(Sensor|VRAM Total|'
                       r'(?:Average|Max|Current Socket) Graphics Package Power|[sm]clk clock speed)')
_AMD = re.compile(r'"(?:gpu_data"\s*:|gpu"\s*:\s*"?\d)')
_AMD_KEY = re.compile(r'"(?:gfx_activity|umc_activity|socket_power|power_usage|hotspot_temperature|total_vram|'
                      r'vram_used|gfx_clk|gfx|process_list)"\s*:')


def matches(head: str) -> bool:
    """Whether a file that begins so is one of these."""
    if '"traceEvents"' in head or '"ph":' in head:
        return False
    is_json = re.search(r"^\s*[{\[]", head, re.MULTILINE) is not None
    if is_json and _ROCM.search(head) and _ROCM_KEY.search(head):
        return True
    if is_json and _AMD.search(head) and _AMD_KEY.search(head):
        return True
    return amd_columns.matches(head)


def read(path: str | PathLike[str]) -> Samples:
    """All readings. Raises UnusableInput where the file cannot be read or holds none."""
    notes: list[str] = []
    text = lines.text(path, notes)
    readings = Readings()
    tool = amd_columns.keep(text, readings) if amd_columns.matches(text) else _documents(text, path, readings)
    return readings.samples(tool, path, notes=notes)


# --- JSON


def _documents(text: str, path: str | PathLike[str], readings: Readings) -> str:
    tool, time = "", None
    for document, between in _decoded(text, path, readings):
        for line in between.splitlines():
            if stamp(line) is not None:
                time = readings.clock.at(line)
        for one in document if isinstance(document, list) else [document]:
            if not isinstance(one, dict):
                continue
            if any(re.fullmatch(r"card\d+", name) for name in one):
                tool = tool or _rocm_tool(one)
                _rocm(one, time, readings)
            else:
                of_kind = one.get("gpu_data", [one])
                for gpu in of_kind if isinstance(of_kind, list) else []:
                    if isinstance(gpu, dict):
                        tool = tool or _amd_tool(gpu)
                        _amd(gpu, time, readings)
    return tool or "amd-smi"


def _decoded(text: str, path: str | PathLike[str], readings: Readings) -> Iterator[tuple[Any, str]]:
    """Every document of the file, and the text before it."""
    decoder = json.JSONDecoder(parse_constant=lambda name: None, parse_int=_plain_int)
    starts = re.compile(r"^\s*(?=[{\[])", re.MULTILINE)
    at = 0
    while match := starts.search(text, at):
        try:
            document, end = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError) as error:
            readings.skipped += 1
            readings.note(f"JSON that is cut off or damaged at character {match.end():,}")
            if isinstance(error, RecursionError):
                raise UnusableInput("JSON with too many levels", where=path) from None
            at = text.find("\n", match.end())
            if at < 0:
                return
            continue
        yield document, text[at:match.end()]
        at = end


def _plain_int(digits: str) -> float:
    return float(digits) if len(digits) > 15 else int(digits)


def _rocm_tool(document: Mapping[str, Any]) -> str:
    keys = {str(name) for card in document.values() if isinstance(card, dict) for name in card}
    return "hy-smi" if any(name.startswith(("HCU", "DCU")) for name in keys) else "rocm-smi"


def _rocm(document: Mapping[str, Any], time: float | None, readings: Readings) -> None:
    for owner, card in document.items():
        if not isinstance(card, dict):
            continue
        match = re.fullmatch(r"card(\d+)", owner)
        said = {str(name): _text(value) for name, value in card.items() if not isinstance(value, dict | list)}
        named = {name: value for name, value in said.items() if not name.isdigit()}
        if len(named) < len(said):
            readings.note("levels of clocks stand under bare numbers and are left out")
        for name in [name for name in named if re.fullmatch(r"PID\d+", name)]:
            _rocm_process(name, named.pop(name), time, readings)
        readings.pairs([names.rocm_header(name) for name in named], list(named.values()), names.ROCM,
                       of=match[1] if match else "", time=time, kind="device" if match else "host")


def _rocm_process(name: str, said: str, time: float | None, readings: Readings) -> None:
    """`PID4242` : name, devices, bytes of VRAM, …"""
    parts = [part.strip() for part in said.split(",")]
    pid = name.removeprefix("PID")
    if len(parts) < 3 or len(pid) > 10:
        readings.skipped += 1
        return
    readings.say(pid, "name", parts[0], time=time, kind="process")
    readings.cell(Place("vram", "B", "device_memory"), parts[2], of=pid, time=time, kind="process")


def _amd_tool(gpu: Mapping[str, Any]) -> str:
    if "process_list" in gpu:
        return "amd-smi process"
    return "amd-smi monitor" if names.is_monitor(gpu) else "amd-smi static" if "asic" in gpu else "amd-smi metric"


def _amd(gpu: Mapping[str, Any], time: float | None, readings: Readings) -> None:
    index = _text(gpu.get("gpu"))
    if not re.fullmatch(r"\d{1,6}", index):
        readings.skipped += 1
        return
    of = names.partition(index, _text(gpu.get("xcp")))
    if "timestamp" in gpu:
        time = readings.clock.at(_text(gpu["timestamp"]))
    heads: list[Header] = []
    cells: list[str] = []
    for path, value, unit in _leaves({name: value for name, value in gpu.items()
                                      if name not in ("gpu", "xcp", "timestamp", "process_list")}):
        own = "/".join(path)
        heads.append(Header(clean(own[:120]), own.lower(), clean(unit[:12])))
        cells.append(value)
    table = names.MONITOR if names.is_monitor(gpu) else names.METRIC
    for place, cell in zip(places(heads, table, [cells]), cells, strict=True):
        readings.cell(place, names.state(place, cell), of=of, time=time)
    for entry in gpu.get("process_list") or ():
        if isinstance(entry, dict) and isinstance(info := entry.get("process_info"), dict):
            _amd_process(info, index, time, readings)


def _amd_process(info: Mapping[str, Any], device: str, time: float | None, readings: Readings) -> None:
    pid = _text(info.get("pid"))
    if not re.fullmatch(r"\d{1,10}", pid):
        readings.skipped += 1
        return
    readings.say(pid, "device", device, time=time, kind="process")
    if not is_unknown(name := _text(info.get("name"))):
        readings.say(pid, "name", re.split(r"[\\/]", name.split(" ")[0])[-1] or name, time=time, kind="process")
    for path, value, unit in _leaves(info):
        if path[-1] in ("vram_mem", "mem_usage", "mem"):
            readings.cell(Place("mem_usage", unit or "B", "device_memory"), value, of=pid, time=time, kind="process")
            return


def _leaves(found: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Path, text and unit of every value; `{"value": …, "unit": …}` is one."""
    if isinstance(found, dict) and "value" in found and found.keys() <= {"value", "unit"}:
        if not isinstance(found["value"], dict | list):
            yield path, _text(found["value"]), _text(found.get("unit")) if "unit" in found else ""
    elif isinstance(found, dict | list) and len(path) < MAX_DEPTH:
        inner = found.items() if isinstance(found, dict) else enumerate(found)
        for name, value in inner:
            yield from _leaves(value, (*path, str(name)))
    elif path and not isinstance(found, dict | list):
        yield path, _text(found), ""


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()
