"""The table of `mx-smi` (MetaX; `ht-smi` in other brandings): `858/65536 MiB`, one unit for both."""

from __future__ import annotations

import re
from os import PathLike

from ...samples import Samples
from . import box_reader
from .box_tables import DROPPED, Tool

TOOL = Tool("mx-smi", re.compile(r"\b(?:MX|HT)-SMI\b"), "gpu", {"gpu-util": ("utilization",), "board": DROPPED})
_TITLE = re.compile(r"(?m)^[^|\n]{0,60}\| *(?:MX|HT)-SMI +v?\d[^|\n]*Kernel Mode Driver Version")


def matches(head: str) -> bool:
    return _TITLE.search(head) is not None


def read(path: str | PathLike[str]) -> Samples:
    """Every table in the file. Raises UnusableInput where none has a device."""
    return box_reader.read(path, TOOL)
