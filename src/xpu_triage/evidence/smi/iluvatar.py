"""The table of `ixsmi` (Iluvatar CoreX): its title says IX-ML, its clocks stand in the table."""

from __future__ import annotations

import re
from os import PathLike

from ...samples import Samples
from . import box_reader
from .box_tables import Tool

TOOL = Tool("ixsmi", re.compile(r"\bIX-ML:"), "gpu", {
    "gpu-util": ("utilization",), "clock-sm": ("core_clock",), "clock-mem": ("memory_clock",)})
_TITLE = re.compile(r"(?m)^[^|\n]{0,60}\| *IX-ML: *v?\d")


def matches(head: str) -> bool:
    return _TITLE.search(head) is not None


def read(path: str | PathLike[str]) -> Samples:
    """Every table in the file. Raises UnusableInput where none has a device."""
    return box_reader.read(path, TOOL)
