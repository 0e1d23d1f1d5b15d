"""One device table into readings: what stands under each header word, in the unit that it or the header says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...samples import QUANTITIES, Recorder
from ...text import clean, shorten
from .box_tables import CHIP, DROPPED, INDEX, NAME, Table, Tool
from .boxes import Label, Line, Piece, fitting, pieces, placed
from .printed import in_unit_of, is_unknown, values

MAX_WORD = 160
"""Characters of a name or a state that are kept."""


@dataclass(frozen=True)
class Field:
    label: Label
    meaning: tuple[str, ...]
    found: tuple[Piece, ...]
    """What stands under the label; pieces that a cut may have shortened are left out."""


@dataclass(frozen=True)
class Block:
    """One device (or chip) of a table."""

    index: str
    """As printed; empty where it cannot be read, and then nothing of the block can be used."""
    chip: str = ""
    """Its number on the card; empty where the table has none."""
    fields: tuple[Field, ...] = ()
    words: frozenset[str] | None = None
    """All words of the header, lower case, whether or not the block has a value under them; None where the header was
    cut, so that there may be more."""
    lost: int = 0
    """Lines that are missing, cut or of another form than the header."""


Choice = Callable[[Block], Block]
"""A vendor's last word on a block, such as which of two memories is the device's."""


def as_read(block: Block) -> Block:
    return block


def record(table: Table, tool: Tool, into: Recorder,
           choose: Choice = as_read) -> tuple[dict[tuple[str, str], str], int]:
    """Everything that the table says of its devices. Returns the devices by index and chip, and how many lines or
    values could not be read."""
    found = list(_blocks(table, tool))
    many = {block.index for block in found if block.chip.strip("0")}
    devices: dict[tuple[str, str], str] = {}
    lost = table.torn
    for block in map(choose, found):
        lost += block.lost
        if block.index:
            of = f"{block.index}/{block.chip}" if block.index in many and block.chip else block.index
            devices[block.index, block.chip] = of
            lost += sum(_keep(field, of, table.time, into) for field in block.fields)
    return devices, lost


def _blocks(table: Table, tool: Tool) -> Iterator[Block]:
    height = max(len(table.header), 1)
    for group in table.groups:
        if len(group) % height:
            group = [line for line in group if not _carries_on(line)]
        for at in range(0, len(group), height):
            yield _block(group[at:at + height], table, tool)


def _carries_on(line: Line) -> bool:
    """Only the first cell is filled: the rest of a name that was too long for its line."""
    first, *others = line.cells
    return bool(others and first.text.strip() and not any(cell.text.strip() for cell in others))


def _block(lines: list[Line], table: Table, tool: Tool) -> Block:
    fields: list[Field] = []
    index = chip = ""
    lost = len(table.header) - len(lines)
    words = None if table.cut else frozenset(label.key for row in table.header for cell in row for label in cell)
    for row, line in zip(table.header, lines, strict=False):
        if len(line.cells) > len(row):
            lost += 1
            continue
        if len(line.cells) < len(row) or not line.cells[-1].closed:
            lost += 1
        for names, cell in zip(row, line.cells, strict=False):
            for position, found in placed(names, pieces(cell)).items():
                label, whole = names[position], tuple(piece for piece in found if piece.certain)
                meaning = tool.meaning(label)
                if meaning == INDEX and len(whole) == 1 and not index:
                    index = _number(whole[0])
                elif meaning == CHIP and len(whole) == 1:
                    chip = _number(whole[0])
                else:
                    fields.append(Field(label, meaning, whole))
    return Block(index, chip, tuple(fields), words, lost) if index else Block("", lost=len(lines))


def _number(piece: Piece) -> str:
    return piece.text if piece.text.isdecimal() and piece.text.isascii() and len(piece.text) < 10 else ""


def _keep(field: Field, of: str, time: float | None, into: Recorder) -> int:
    """One field into readings; 1 where it cannot be read."""
    if not field.found or field.meaning in (DROPPED, INDEX, CHIP):
        return 0
    text = " ".join(piece.text for piece in field.found)
    if field.meaning == NAME:
        into.say(of, "name", _word(text), time=time)
        return 0
    if text.strip("[]") == "ERR!":
        into.say(of, clean(field.label.text), text, time=time)
    if field.meaning:
        return _quantities(field, of, time, into)
    parsed = values(text, field.label.unit)
    if parsed is None or not parsed[0].unit:
        if not is_unknown(text):
            into.say(of, clean(field.label.text), _word(text), time=time)
        return 0
    for value, name in zip(parsed, (field.label.text, f"{field.label.text} total"), strict=False):
        into.add(of, clean(name), value.number, time=time, unit=value.unit)
    return 0


def _quantities(field: Field, of: str, time: float | None, into: Recorder) -> int:
    found = field.found
    piece = found[0] if len(found) == 1 else fitting(found, field.meaning[0], field.label.unit)
    parsed = None if piece is None else values(piece.text, field.label.unit)
    if parsed is None or len(parsed) > len(field.meaning):
        parsed = ()
    lost = not parsed
    for position, quantity in enumerate(field.meaning):
        assert quantity in QUANTITIES
        number = None
        if position < len(parsed):
            number, right = in_unit_of(quantity, parsed[position])
            lost = lost or not right
        elif parsed:
            continue
        into.add(of, quantity, number, time=time)
    return int(lost)


def _word(text: str) -> str:
    return clean(shorten(text, MAX_WORD))
