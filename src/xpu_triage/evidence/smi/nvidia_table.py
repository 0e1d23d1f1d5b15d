"""The table that `nvidia-smi` prints by default: three lines a device since MIG, two before; MIG devices; processes."""

from __future__ import annotations

import re
from os import PathLike

from ...samples import Recorder, Samples
from . import box_reader
from .box_tables import Table, Tool
from .boxes import pieces
from .printed import in_unit_of, values

TOOL = Tool("nvidia-smi", re.compile(r"\bNVIDIA-SMI\b"), "gpu", {"gpu-util": ("utilization",)})

_TITLE = re.compile(r"(?m)^[^|\n]{0,60}\| *NVIDIA-SMI +(?:version *:? *)?\d")
_HEADER = re.compile(r"(?m)^[^|\n]{0,60}\| *Fan +Temp +Perf +Pwr:Usage/Cap *\| *Memory-Usage *\| *GPU-Util\b")
_OTHERS = re.compile(r"\b(?:XPU-SMI|IX-ML|HL-SMI)\b")


def matches(head: str) -> bool:
    return bool(_HEADER.search(head) and (_TITLE.search(head) or not _OTHERS.search(head)))


def read(path: str | PathLike[str]) -> Samples:
    """Every table in the file. Raises UnusableInput where none has a device.

    A utilization of `N/A` (MIG on, old boards) is unknown. MIG devices are `0/MIG 2`, and have memory only: the `SM`
    of their table is how many they own, not how busy they are.
    """
    return box_reader.read(path, TOOL, slices=_slices)


def _slices(table: Table, into: Recorder) -> tuple[dict[tuple[str, ...], str], int]:
    """Two lines a MIG device: GPU, GI, CI and number, then memory, then the parts it owns."""
    named: dict[tuple[str, ...], str] = {}
    lost = table.torn
    memory = next((position for position, cell in enumerate(table.header[0])
                   if any(label.key.endswith("memory-usage") for label in cell)), 1)
    for group in table.groups:
        for line in group:
            words = line.cells[0].text.split()
            if not words:
                continue  # the line of the BAR1 memory
            if len(words) != 4 or not all(word.isdecimal() for word in words) or len(line.cells) <= memory:
                lost += 1
                continue
            gpu, instance, compute, index = words
            of = named[gpu, instance, compute] = f"{gpu}/MIG {index}"
            found = [values(piece.text) for piece in pieces(line.cells[memory]) if piece.certain]
            pair = found[0] if len(found) == 1 and found[0] is not None else ()
            for position, quantity in enumerate(("memory_used", "memory_total")):
                number, right = in_unit_of(quantity, pair[position]) if position < len(pair) else (None, bool(pair))
                into.add(of, quantity, number, time=table.time)
                lost += not right
            into.say(of, "GI, CI", f"{instance}, {compute}", time=table.time)
    return named, lost
