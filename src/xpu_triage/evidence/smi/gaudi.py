"""The table of `hl-smi` (Intel Gaudi): as `nvidia-smi` prints, with an AIP for a GPU."""

from __future__ import annotations

import re
from os import PathLike

from ...samples import Samples
from . import box_reader
from .box_tables import Tool

TOOL = Tool("hl-smi", re.compile(r"\bHL-SMI Version\b"), "aip", {"aip-util": ("utilization",)})
_HEADER = re.compile(r"(?m)^[^|\n]{0,60}\|(?: *HL-SMI Version:|[^|\n]*\|[^|\n]*\| *AIP-Util\b)")


def matches(head: str) -> bool:
    return _HEADER.search(head) is not None


def read(path: str | PathLike[str]) -> Samples:
    """Every table in the file. Raises UnusableInput where none has a device.

    Under `Compute M.` newer versions print a share of memory; it stays under that name and is no utilization.
    """
    return box_reader.read(path, TOOL)
