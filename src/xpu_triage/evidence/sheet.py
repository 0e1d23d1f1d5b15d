"""Evidence sheets: the figures that a person can type, by signal name and unit, as a small YAML file.

    schema: 1
    title: what is felt, not what it is
    platform: {device: …, framework: …, version: "…"}
    signals:
      step.wall_ms: 41
      latency.e2e_ms: {value: 21.5, unit: s}

What is left out, or `null`, is unknown. Names and units are those of the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from .. import plain_yaml, units
from ..catalogue import CATALOGUE
from ..errors import UnusableInput
from ..signals import Signal
from ..text import clean, shorten
from .chunks import small_file

MAX_BYTES = 1_000_000
KEYS = ("schema", "title", "platform", "signals")
PLATFORM_KEYS = 20


@dataclass(frozen=True)
class SheetEvidence:
    title: str
    platform: dict[str, str]
    """For the reader; no rule looks at it."""
    signals: tuple[Signal, ...]
    notes: tuple[str, ...]


def read(path: str | PathLike[str]) -> SheetEvidence:
    """Read one sheet. Raises `UnusableInput`, one line, naming the file and the field."""
    path = Path(path)
    raw = small_file(path, MAX_BYTES, "an evidence sheet")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnusableInput(f"not UTF-8 text (byte {error.start:,})", where=path) from None
    return parse(text, fspath(path))


def parse(text: str, source: str) -> SheetEvidence:
    """The sheet in `text`; `source` names it in signals and messages."""
    try:
        sheet = plain_yaml.load(text)
    except plain_yaml.BadYaml as error:
        raise UnusableInput(str(error), where=source) from None
    if not isinstance(sheet, dict):
        raise UnusableInput("not an evidence sheet: a mapping with schema and signals is wanted",
                            where=source)
    if sheet.get("schema") != 1 or isinstance(sheet.get("schema"), bool):
        found = f"schema {_shown(sheet['schema'])} is not known" if "schema" in sheet else "schema is missing"
        raise UnusableInput(found, where=source, todo="Write schema: 1")
    if unexpected := [key for key in sheet if key not in KEYS]:
        raise UnusableInput(f"{_shown(unexpected[0])} is not a part of a sheet", where=source,
                            todo=f"Its parts are {', '.join(KEYS)}")
    title = sheet.get("title") or ""
    if not isinstance(title, str):
        raise UnusableInput("title is not text", where=source, todo="Put it in quotes")
    figures = sheet.get("signals")
    if not isinstance(figures, dict):
        raise UnusableInput("signals is not a mapping of names to values", where=source)
    signals = tuple(_signal(name, raw, source) for name, raw in figures.items()
                    if not _unknown(name, raw, source))
    if not signals:
        raise UnusableInput("holds no figure", where=source, todo="Every signal in it is unknown")
    left_out = len(figures) - len(signals)
    notes = (f"{left_out} typed as unknown (null)",) if left_out else ()
    return SheetEvidence(clean(title.strip()), _platform(sheet.get("platform"), source), signals, notes)


def _unknown(name: str, raw: Any, source: str) -> bool:
    """Whether the value is left open; a name that does not exist is an error even then."""
    if name not in CATALOGUE:
        near = units.nearest(name)
        raise UnusableInput(f"signals: {_shown(name)} is not a signal", where=source,
                            todo=f"Did you mean {near}?" if near else "Names are those of the catalogue")
    return raw is None


def _signal(name: str, raw: Any, source: str) -> Signal:
    try:
        value = units.value_of(CATALOGUE[name], raw)
    except ValueError as error:
        raise UnusableInput(f"signals: {name}: {error}", where=source) from None
    return Signal(name, value, how="typed", source=source)


def _platform(raw: Any, source: str) -> dict[str, str]:
    if raw is None:
        return {}
    if not isinstance(raw, dict) or any(isinstance(value, dict | list) for value in raw.values()):
        raise UnusableInput("platform is not a mapping of plain values", where=source)
    if len(raw) > PLATFORM_KEYS:
        raise UnusableInput(f"platform has more than {PLATFORM_KEYS} entries", where=source)
    return {clean(key): clean(shorten(str(value), 200)) for key, value in raw.items() if value is not None}


def _shown(raw: Any) -> str:
    return clean(shorten(repr(raw), 60))
