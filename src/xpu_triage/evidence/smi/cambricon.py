"""The table of `cnmon` (Cambricon)."""

from __future__ import annotations

import re
from os import PathLike

from ...samples import Samples
from . import box_reader
from .box_tables import Tool

TOOL = Tool("cnmon", re.compile(r"\bCNMON\b"), "card", {"util": ("utilization",)})
_HEADER = re.compile(r"(?m)^[^|\n]{0,60}\|(?: *CNMON +v?\d| *Card +VF +Name\b)")


def matches(head: str) -> bool:
    return _HEADER.search(head) is not None


def read(path: str | PathLike[str]) -> Samples:
    """Every table in the file. Raises UnusableInput where none has a device."""
    return box_reader.read(path, TOOL)
