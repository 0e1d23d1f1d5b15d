"""`npu-smi info -t usages` and its sisters `common`, `power`, `temp` and `memory`: names and values in pairs.

A card begins with `NPU ID`; a chip's `Chip ID` stands before its pairs (`common`) or after them (`usages`). Rates are
in the unit that their name holds. Cards without HBM (310P) have DDR in its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike

from ...samples import Samples
from ..lines import lines
from .columns import Column, Header, Readings, header, is_unknown
from .stamps import stamp

TABLE = (
    Column("name", ("product name", "chip name")),
    Column("utilization", ("npu utilization", "aicore usage rate"), "%"),
    Column("memory_activity", ("hbm bandwidth usage rate", "ddr bandwidth usage rate"), "%"),
    Column("memory_used_fraction", ("hbm usage rate", "ddr usage rate", "memory usage rate"), "%"),
    Column("memory_total", ("hbm capacity", "ddr capacity"), "MB"),
    Column("memory_clock", ("hbm clock speed",), "MHz"),
    Column("power", ("npu real-time power", "power dissipation"), "W"),
    Column("temperature", ("npu temperature", "temperature"), "C"),
    Column("core_clock", ("aicore curfreq",), "MHz"),
    Column("core_clock_max", ("aicore freq",), "MHz"),
)

_PAIR = re.compile(r"([A-Za-z][^:]{0,60}?)\s*:\s*(.*)")
_TELLING = re.compile(
    r"^\s*(NPU Utilization|Aicore Usage Rate|HBM (Bandwidth )?Usage Rate|HBM Capacity|DDR Capacity"
    r"|NPU Real-time Power|Power Dissipation|NPU Temperature)\s*\([^)\n]{1,4}\)\s*:", re.IGNORECASE | re.MULTILINE)
_KINDS = {"common": {"aicore usage rate", "temperature"}, "usages": {"aicore usage rate"},
          "power": {"npu real-time power"}, "memory": {"hbm capacity"}}
"""Which of the outputs it is, by pairs that it has."""
_IDS = ("npu id", "chip count", "chip id", "chip logic id", "device id")
_HBM = ("hbm capacity", "hbm usage rate", "hbm bandwidth usage rate")


def matches(head: str) -> bool:
    """Whether a file that begins so is one of these."""
    return not head.startswith(("{", "[")) and _TELLING.search(head) is not None


@dataclass
class _Chip:
    time: float | None
    chip: str = ""
    names: list[Header] = field(default_factory=list)
    values: list[str] = field(default_factory=list)

    def has(self, name: str) -> bool:
        return any(head.key == name for head in self.names)


@dataclass
class _Card:
    """One run of the tool: a card's pairs, by chip."""

    npu: str = ""
    count: str = ""
    leading: bool | None = None
    """`Chip ID` comes before the pairs of its chip."""
    chips: list[_Chip] = field(default_factory=list)


def read(path: str | PathLike[str]) -> Samples:
    """All readings, of as many cards and runs as the file holds. A card of one chip is `3`, chip 1 of two is `3/1`.
    Raises UnusableInput where the file cannot be read or holds none."""
    notes: list[str] = []
    readings = Readings()
    seen: set[str] = set()
    for card in _cards(lines(path, notes), readings):
        several = len({chip.chip for chip in card.chips if chip.chip.isdigit()}) > 1 or (
            card.count.isdigit() and int(card.count) > 1)
        for chip in card.chips:
            seen.update(head.key for head in chip.names)
            of = f"{card.npu or '0'}/{chip.chip}" if several and chip.chip else card.npu or "0"
            _keep(chip, of, readings)
    kind = next((kind for kind, keys in _KINDS.items() if keys <= seen), "")
    return readings.samples(f"npu-smi info -t {kind}".strip(), path, notes=notes)


def _cards(text: Iterator[str], readings: Readings) -> Iterator[_Card]:
    card, time = _Card(), None
    for line in text:
        match = _PAIR.fullmatch(line.strip())
        if (when := stamp(line)) is not None:
            time = readings.clock.at(line) if when[1] in ("epoch", readings.clock.counts_from) else None
            continue
        if match is None:
            readings.skipped += bool(line.strip())
            continue
        head, value = header(match[1]), match[2].strip()
        if head.key == "npu id":
            if card.chips:
                yield card
            card = _Card(npu=value if value.isdigit() else "")
        elif head.key == "chip count":
            card.count = value
        elif head.key == "chip id" or (head.key == "chip name" and (card.leading or value.lower() == "mcu")):
            _chip_begins(card, head, value, time)
        elif head.key not in _IDS:
            if not card.chips or (card.chips[-1].chip and not card.leading) or card.chips[-1].has(head.key):
                card.chips.append(_Chip(time, chip=card.chips[-1].chip if card.chips and card.leading else ""))
            card.chips[-1].names.append(head)
            card.chips[-1].values.append(value)
    if card.chips:
        yield card


def _chip_begins(card: _Card, head: Header, value: str, time: float | None) -> None:
    """A chip is named: before its pairs where none came yet, else after them."""
    if card.leading is None:
        card.leading = not card.chips
    if card.leading:
        if head.key == "chip name" and card.chips and not card.chips[-1].names:
            card.chips[-1].names.append(head)
            card.chips[-1].values.append(value)
            return
        card.chips.append(_Chip(time, value))
    elif card.chips:
        card.chips[-1].chip = value


def _keep(chip: _Chip, of: str, readings: Readings) -> None:
    if chip.chip and not chip.chip.isdigit():  # the management controller: its power and heat are not the chip's
        names = [Header(f"{chip.chip} {head.name}", f"{chip.chip} {head.key}", head.unit) for head in chip.names]
        readings.pairs(names, chip.values, (), of=of.partition("/")[0], time=chip.time)
        return
    values = _without_none(chip.names, chip.values)
    readings.pairs(chip.names, values, _table(chip.names, values), of=of, time=chip.time)


def _table(names: Sequence[Header], values: Sequence[str]) -> tuple[Column, ...]:
    """With HBM, DDR is another memory: it is never taken for the device's."""
    has_hbm = any(head.key in _HBM and not is_unknown(value) for head, value in zip(names, values, strict=True))
    if not has_hbm:
        return TABLE
    return tuple(Column(column.quantity, column.names[:1], column.unit)
                 if column.names[0] in _HBM else column for column in TABLE)


def _without_none(names: Sequence[Header], values: Sequence[str]) -> list[str]:
    """A capacity of 0 says that there is no such memory, so that its rates are of nothing."""
    absent = {head.key.partition(" ")[0] for head, value in zip(names, values, strict=True)
              if head.key.endswith(" capacity") and value == "0"}
    return ["N/A" if head.key.partition(" ")[0] in absent else value
            for head, value in zip(names, values, strict=True)]
