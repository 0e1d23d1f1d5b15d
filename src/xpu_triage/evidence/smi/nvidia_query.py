"""`nvidia-smi -q` as text and, with `-x`, as XML: one log or several, MIG devices and processes with it.

Both say the same in sections; an entry is looked up by its section and name. XML is parsed by defusedxml, which refuses
entities; the plain DOCTYPE line that the tool writes is harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from os import PathLike
from typing import Any

import defusedxml.ElementTree as safe_xml
from defusedxml.common import DefusedXmlException

from ...errors import UnusableInput
from ...samples import Samples
from ...text import clean, shorten
from .. import lines
from . import nvidia_names as names
from .columns import Column, Header, Readings, is_unknown, places

MAX_DEPTH = 20
"""Levels of sections; what lies deeper is left out."""

_DEVICE = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*")
_LEFT_OUT = re.compile(r"supported_clocks|supported_mem_clock|accounted_processes")
"""What a device could do or did for others: no readings."""
_PROCESS = (
    Column("device_memory", ("used_gpu_memory", "used_memory"), "MiB"),
)


def matches(head: str) -> bool:
    """Whether a file that begins so is one of these."""
    return "<nvidia_smi_log" in head or re.search(r"^=+NVSMI LOG=+\s*$", head, re.MULTILINE) is not None


@dataclass
class _Block:
    """The entries of one device, MIG device or process."""

    kind: str
    """`device`, `mig` or `process`."""
    gpu: str
    """Bus id of the device that it is or is on: tells devices apart, and is not kept."""
    time: str = ""
    entries: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    """Sections and name as printed, and the text of the value."""

    def entry(self, name: str) -> str:
        return next((text for path, text in self.entries if names.snake(path[-1]) == name), "")


def read(path: str | PathLike[str]) -> Samples:
    """All readings; MIG devices are `<gpu>/MIG <index>`. Raises UnusableInput where the file cannot be read, holds no
    reading, or declares entities."""
    notes: list[str] = []
    text = lines.text(path, notes)
    is_xml = "<nvidia_smi_log" in text
    readings = Readings()
    indices: dict[str, str] = {}
    for block in _xml_blocks(text, path, readings) if is_xml else _text_blocks(text):
        _keep(block, indices, readings)
    return readings.samples("nvidia-smi -q -x" if is_xml else "nvidia-smi -q", path, notes=notes)


def _keep(block: _Block, indices: dict[str, str], readings: Readings) -> None:
    of = gpu = indices.setdefault(block.gpu, str(len(indices)))
    time = readings.clock.at(block.time) if block.time else None
    kind = "process" if block.kind == "process" else "device"
    if block.kind == "mig":
        of = f"{gpu}/MIG {clean(block.entry('index') or '?')}"
    elif kind == "process":
        of = block.entry("process_id") or block.entry("pid")
        if not re.fullmatch(r"\d{1,10}", of):
            readings.skipped += not is_unknown(of)
            return
        readings.say(of, "device", gpu, time=time, kind=kind)
        command = block.entry("process_name") or block.entry("name")
        if not is_unknown(command):
            readings.say(of, "name", re.split(r"[\\/]", command.split(" ")[0])[-1] or command, time=time, kind=kind)
        block.entries = [entry for entry in block.entries if names.snake(entry[0][-1]) in ("used_gpu_memory",
                                                                                        "used_memory", "type")]
    _keep_entries(block, of, time, kind, readings)


def _keep_entries(block: _Block, of: str, time: float | None, kind: str, readings: Readings) -> None:
    limits: dict[str, str] = {}
    heads: list[Header] = []
    cells: list[str] = []
    for path, text in block.entries:
        sections = [names.snake(part) for part in path]
        if limit := names.reason("/".join(sections)):
            limits[limit] = text
            continue
        if kind == "device" and block.kind != "mig" and _LEFT_OUT.search("/".join(sections)):
            continue
        lookup = sections[-1] if kind == "process" else "/".join(sections)
        heads.append(Header(clean(shorten(" / ".join(path), 120)), lookup))
        cells.append(text)
    table = _PROCESS if kind == "process" else names.TREE
    readings.row(places(heads, table, [cells]), cells, of=of, time=time, kind=kind)
    if (said := names.limits(limits)) is not None:
        readings.say(of, "limit_reason", said, time=time)


# --- text


def _text_blocks(text: str) -> Iterator[_Block]:
    """Sections are told by indentation; an entry is a name, ` : ` and a value."""
    time, block = "", None
    stack: list[tuple[int, str]] = []
    base: list[int] = []
    for line in text.split("\n"):
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        if match := _DEVICE.match(line.strip()):
            if block is not None:
                yield block
            block, stack, base = _Block("device", match[1].lower(), time), [], []
            continue
        name, colon, value = line.strip().partition(" : ")
        name = name.rstrip(" :")
        if name == "Timestamp" and colon:
            if block is not None and indent == 0:
                yield block
                block = None
            time = value.strip()
        if block is None:
            continue
        base = base or [indent]
        while stack and stack[-1][0] >= indent:
            stack.pop()
        sections = tuple(part for _, part in stack)
        if (started := _started(name, value.strip(), sections, block)) is not None:
            yield block
            block = started
        elif block.kind != "device" and indent <= base[0] and name not in ("MIG Device", "Processes"):
            yield block
            block = _Block("device", block.gpu, time)
        if len(stack) < MAX_DEPTH:
            stack.append((indent, name))
            if colon:
                block.entries.append(((*_own(sections, block), name), value.strip()))
    if block is not None:
        yield block


def _started(name: str, value: str, sections: tuple[str, ...], block: _Block) -> _Block | None:
    """The MIG device or the process that begins at this line."""
    if not sections and name == "MIG Device" and not value:
        return _Block("mig", block.gpu, block.time)
    if "Processes" in sections and name in ("Process ID", "PID"):
        return _Block("process", block.gpu, block.time)
    return None


def _own(sections: tuple[str, ...], block: _Block) -> tuple[str, ...]:
    """Without the section that the block itself is."""
    return sections[1:] if block.kind == "mig" else sections


# --- XML


def _xml_blocks(text: str, path: str | PathLike[str], readings: Readings) -> Iterator[_Block]:
    """Every log of the file, device by device, up to where it is damaged."""
    for part in re.split(r"(?=<\?xml\b)", text):
        start = part.find("<")
        if "<nvidia_smi_log" not in part:
            continue
        end = part.find("</nvidia_smi_log>")
        document = part[start:end + len("</nvidia_smi_log>")] if end >= 0 else part[start:]
        time = ""
        try:
            for _, element in safe_xml.iterparse(BytesIO(_as_utf8(document)), events=("end",)):
                if element.tag == "timestamp":
                    time = (element.text or "").strip()
                elif element.tag == "gpu":
                    yield from _element_blocks(element, time)
                    element.clear()
        except DefusedXmlException:
            raise UnusableInput("XML that declares entities: it is not read", where=path,
                                todo="nvidia-smi -q -x writes none; record it again") from None
        except (SyntaxError, ValueError) as error:
            readings.note(f"XML that is cut off or damaged ({clean(str(error))}): devices before that are read")


def _as_utf8(document: str) -> bytes:
    """The text is decoded; a declaration of another encoding would be wrong."""
    return re.sub(r"^<\?xml[^>]*\?>", "", document).lstrip().encode("utf-8", "replace")


def _element_blocks(gpu: Any, time: str) -> Iterator[_Block]:
    bus = str(gpu.get("id", "")).lower()
    device = _Block("device", bus, time)
    inner: list[_Block] = []

    def walk(element: Any, path: tuple[str, ...], block: _Block) -> None:
        if len(path) > MAX_DEPTH:
            return
        for child in element:
            tag = str(child.tag)
            if tag in ("mig_device", "process_info"):
                inner.append(_Block("mig" if tag == "mig_device" else "process", bus, time))
                walk(child, (), inner[-1])
            elif _LEFT_OUT.fullmatch(tag):
                continue
            elif len(child):
                walk(child, (*path, tag), block)
            elif (said := (child.text or "").strip()):
                block.entries.append(((*path, tag), said))

    walk(gpu, (), device)
    yield device
    yield from inner
