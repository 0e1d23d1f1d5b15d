"""The table that Intel's `xpu-smi` prints by default from version 2 on (before, it had none)."""

from __future__ import annotations

import re
from os import PathLike

from ...samples import Samples
from . import box_reader
from .box_tables import Tool

TOOL = Tool("xpu-smi (Intel)", re.compile(r"\bIntel XPU-SMI\b"), "gpu", {"gpu-util": ("utilization",)})
_TITLE = re.compile(r"(?m)^[^|\n]{0,60}\| *Intel XPU-SMI +v?\d")


def matches(head: str) -> bool:
    return _TITLE.search(head) is not None


def read(path: str | PathLike[str]) -> Samples:
    """Every table in the file. Raises UnusableInput where none has a device."""
    return box_reader.read(path, TOOL)
