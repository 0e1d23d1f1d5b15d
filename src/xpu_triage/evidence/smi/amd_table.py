"""The table that `amd-smi` prints by default from ROCm 7 on: the device's index stands in its second line."""

from __future__ import annotations

import re
from os import PathLike

from ...samples import Samples
from . import box_reader
from .box_tables import Tool

TOOL = Tool("amd-smi", re.compile(r"\bAMD-SMI\b"), "gpu", {
    "gfx-uti": ("utilization",), "mem-uti": ("memory_activity",), "power-usage": ("power", "power_limit"),
    "mem-usage": ("memory_used", "memory_total")})
_HEADER = re.compile(r"(?m)^[^|\n]{0,60}\|(?: *AMD-SMI +v?\d|[^|\n]*GPU-Name *\| *Mem-Uti\b)")


def matches(head: str) -> bool:
    return _HEADER.search(head) is not None


def read(path: str | PathLike[str]) -> Samples:
    """Every table in the file. Raises UnusableInput where none has a device."""
    return box_reader.read(path, TOOL)
