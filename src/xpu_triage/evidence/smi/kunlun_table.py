"""The table of Kunlun's `xpu-smi`, which is not Intel's tool of that name: its title has an `XPU-RT Version`."""

from __future__ import annotations

import re
from os import PathLike

from ...samples import Samples
from . import box_reader
from .box_tables import Tool

_TITLE = r"\| *XPU-SMI\b[^|\n]*\bXPU-RT Version\b"
TOOL = Tool("xpu-smi (Kunlun)", re.compile(r"\bXPU-SMI\b.*\bXPU-RT Version\b"), "xpu", {"xpu-util": ("utilization",)})
_HEADER = re.compile(rf"(?m)^[^|\n]{{0,60}}(?:{_TITLE}|\|[^|\n]*\|[^|\n]*\| *XPU-Util\b)")


def matches(head: str) -> bool:
    return _HEADER.search(head) is not None


def read(path: str | PathLike[str]) -> Samples:
    """Every table in the file. Raises UnusableInput where none has a device.

    `L3-Usage` is another memory than the device's and stays under its own name.
    """
    return box_reader.read(path, TOOL)
