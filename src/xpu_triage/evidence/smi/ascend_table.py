"""The table of `npu-smi info` (Ascend): two lines a chip, a card may have two."""

from __future__ import annotations

import re
from dataclasses import replace
from os import PathLike

from ...samples import Samples
from . import box_reader
from .box_devices import Block, Field
from .box_tables import CHIP, INDEX, Tool
from .printed import values

_FIRST = "| NPU   Name  | Health  | Power(W)    Temp(C)    Hugepages-Usage(page)|"
_MEMORY = ("memory_used", "memory_total")
TOOL = Tool("npu-smi info", re.compile(r"\bnpu-smi +v?\d"), "npu", {
    "chip": CHIP, "aicore": ("utilization",), "npu util": ("utilization",), "npu id": INDEX,
    "hbm-usage": _MEMORY}, shapes=(
        (_FIRST, "| Chip         | Bus-Id  | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB) |"),
        (_FIRST, "| Chip  Phy-ID | Bus-Id  | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB) |"),
        (_FIRST, "| Chip  Device | Bus-Id  | AICore(%)   Memory-Usage(MB) |")))

_HEADER = re.compile(r"(?m)^[^|\n]{0,60}\|(?: *npu-smi +v?\d[^|\n]*Version:"
                     r"| *NPU(?: ID)? [^\n]*\| *Health *\| *Power\(W\))")
_SHAPE = re.compile(
    r"(?m)^[^|\n]{0,60}\| *\d+ +\w[\w -]*\| *[A-Za-z]+ *\| *(?:[\d.]+|NA|-) +(?:\d+|NA|-) +\d+ */ *\d+ *\|[^\n]*\n"
    r"[^|\n]{0,60}\| *\d+(?: +\d+)? *\| *(?:[\da-fA-F:]+\.\d|NA) *\| *(?:\d+|NA|-) +\d+ */")
"""The two lines of a chip, for tables whose header is cut off."""


def matches(head: str) -> bool:
    return bool(_HEADER.search(head) or _SHAPE.search(head))


def read(path: str | PathLike[str]) -> Samples:
    """Every table in the file, also without its header where the form of the lines tells it. Raises UnusableInput where
    none has a device.

    The memory is that of the HBM; `Memory-Usage` is another, except on chips without HBM. Megabytes are taken as the
    header names them. The second chip of a card has no power of its own (`-`): unknown.
    """
    return box_reader.read(path, TOOL, choose=_with_its_memory)


def _with_its_memory(block: Block) -> Block:
    """`Memory-Usage` becomes the device's memory where the tool has no column for HBM, or one that says size zero."""
    hbm = next((field for field in block.fields if field.label.key == "hbm-usage"), None)
    without = _is_empty(hbm) if hbm is not None else block.words is not None and "hbm-usage" not in block.words

    def meaning(field: Field) -> tuple[str, ...]:
        if field.label.key == "memory-usage":
            return _MEMORY if without else ()
        return () if field is hbm and without else field.meaning

    return replace(block, fields=tuple(replace(field, meaning=meaning(field)) for field in block.fields))


def _is_empty(field: Field) -> bool:
    parsed = values(field.found[0].text) if len(field.found) == 1 else None
    return parsed is not None and len(parsed) == 2 and parsed[1].number == 0
