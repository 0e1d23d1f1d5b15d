"""Tables drawn with bars, as vendor tools print them: a header of one to three lines of cells says, by place and word,
what each line of a device's block holds.

    | GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
    | Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
    |===============================+======================+======================|
    |   0  Tesla T4             Off | 00000000:00:1E.0 Off |                    0 |
    | N/A   35C    P8     9W /  70W |      0MiB / 15360MiB |      0%      Default |

Only geometry lives here: lines into cells, headers into labels, cells into pieces, pieces to labels.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .printed import PAIR, VALUE, in_unit_of, values

_RULE = re.compile(r"[^|+]{0,60}?[|+]?[-=]{3}[-=+|\s]*")
_BUS_ID = r"(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f](?![\w:])"
_PIECE = re.compile(rf"{_BUS_ID}|{PAIR}(?=\s|$)|{VALUE}(?=\s|$)|\S+(?: (?!{PAIR}(?:\s|$))\S+)*")
_LABEL = re.compile(r"\S+(?: \S+)*")
_UNIT = re.compile(r"\s*\(([^()]*)\)?$")
_WITH_UNIT = re.compile(r"\d ?(?:[KMGT]i?[Bb]|%|W|C)$")

MAX_WIDTH = 1000
MAX_CELLS = 12
MAX_INDENT = 60
"""Characters and cells of a line, and characters before its first bar; a line with more is none of these tables'."""


@dataclass(frozen=True)
class Piece:
    """Text in a cell, and where it stands there: characters `start` to `end`."""

    text: str
    start: int
    end: int
    certain: bool = True
    """False where the line was cut and the text may go on."""


@dataclass(frozen=True)
class Label:
    text: str
    """As printed, without its unit: `HBM-Usage`."""
    unit: str
    """What the header says in parentheses, or the `%` of its name."""
    start: int
    end: int

    @property
    def key(self) -> str:
        """For comparing: lower case."""
        return self.text.lower()


def is_rule(line: str) -> bool:
    return len(line) <= MAX_WIDTH and _RULE.fullmatch(line) is not None


@dataclass(frozen=True)
class Cell:
    text: str
    closed: bool = True
    """Ends with a bar; else the line was cut, and the last word may have been."""


@dataclass(frozen=True)
class Line:
    cells: tuple[Cell, ...]
    indent: int
    """Characters before the first bar: an indent, or the prefix of a log."""

    @property
    def text(self) -> str:
        return " ".join(cell.text for cell in self.cells)


def line_of(raw: str) -> Line | None:
    """A bar-drawn line; None for any other."""
    before, bar, inside = raw.partition("|")
    if not bar or len(before) > MAX_INDENT or len(raw) > MAX_WIDTH:
        return None
    parts = inside.split("|")
    tail = parts.pop()
    found = [Cell(part) for part in parts]
    if tail.strip():
        found.append(Cell(tail, closed=False))
    return Line(tuple(found), len(before)) if 0 < len(found) <= MAX_CELLS else None


def labels(cell: Cell) -> tuple[Label, ...]:
    """The words of a header's cell: two spaces part them, one does not (`Volatile Uncorr. ECC`)."""
    found = []
    for match in _LABEL.finditer(cell.text):
        text = match[0]
        unit = ""
        if parts := _UNIT.search(text):
            unit, text = parts[1].strip(), text[:parts.start()]
        elif text.startswith("%") or text.endswith("%"):
            unit = "%"
        if text and (cell.closed or cell.text[match.end():].startswith("  ")):
            found.append(Label(text, unit, match.start(), match.end()))
    return tuple(found)


def pieces(cell: Cell) -> tuple[Piece, ...]:
    """The values and texts of a cell, from left to right. In a cell that was cut the last one is certain only if its
    unit shows that it is whole."""
    found = []
    for match in _PIECE.finditer(cell.text):
        text = match[0]
        whole = cell.closed or cell.text[match.end():].startswith("  ") or _WITH_UNIT.search(text) is not None
        found.append(Piece(text, match.start(), match.end(), whole))
    return tuple(found)


def placed(names: Sequence[Label], found: Sequence[Piece]) -> dict[int, list[Piece]]:
    """Which pieces belong to which label (by its position): in order where there are as many of each, else each to the
    label above it, else to the nearest."""
    if len(names) == len(found):
        return {position: [piece] for position, piece in enumerate(found)}
    by_label: dict[int, list[Piece]] = {}
    if names:
        for piece in found:
            nearest = min(range(len(names)), key=lambda position: _apart(names[position], piece))
            by_label.setdefault(nearest, []).append(piece)
    return by_label


def _apart(label: Label, piece: Piece) -> tuple[int, int]:
    overlap = min(label.end, piece.end) - max(label.start, piece.start)
    centres = abs((label.start + label.end) - (piece.start + piece.end))
    return (-overlap, centres) if overlap > 0 else (-overlap + 1, centres)


def fitting(found: Sequence[Piece], quantity: str, unit: str) -> Piece | None:
    """The one of several pieces under a label that can be a `quantity`; None where that is not exactly one
    (`1%   69MB / 5375MB` of old tables: the memory is the second)."""
    known = [piece for piece in found if (parsed := values(piece.text, unit)) and in_unit_of(quantity, parsed[-1])[1]]
    return known[0] if len(known) == 1 else None
