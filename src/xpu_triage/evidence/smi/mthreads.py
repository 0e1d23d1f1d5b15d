"""The table of `mthreads-gmi` (Moore Threads): bars between columns only, memory as `2MiB(16384MiB)`."""

from __future__ import annotations

import re
from os import PathLike

from ...samples import Samples
from . import box_reader
from .box_tables import DROPPED, Tool

TOOL = Tool("mthreads-gmi", re.compile(r"\bmthreads-gmi:"), "id", {
    "%gpu": ("utilization",), "mem": ("memory_used", "memory_total"), "pcie": DROPPED}, closed=False)
_TITLE = re.compile(r"(?m)^ *mthreads-gmi: *v?\d[\w.-]* +Driver Version:")


def matches(head: str) -> bool:
    return _TITLE.search(head) is not None


def read(path: str | PathLike[str]) -> Samples:
    """Every table in the file. Raises UnusableInput where none has a device."""
    return box_reader.read(path, TOOL)
