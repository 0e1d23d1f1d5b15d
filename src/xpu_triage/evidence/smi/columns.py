"""What tools print in columns, lists and pairs: values and headers with units, and the quantity that each belongs to.

A module for one tool says in a table of `Column`s which of its headers are which quantity. All else is kept under the
tool's own name, save what names a machine or a board.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike, fspath

from ...errors import UnusableInput
from ...samples import QUANTITIES, Recorder, Samples
from ...text import clean, shorten
from .stamps import Clock

_MI = 1.048576
_UNITS: dict[str, dict[str, float]] = {
    "fraction": {"%": 0.01, "percent": 0.01, "pct": 0.01, "vram%": 0.01},
    "MB": {"b": 1e-6, "bytes": 1e-6, "kb": 1e-3, "kib": _MI / 1024, "mb": 1.0, "mib": _MI, "gb": 1e3, "gib": _MI * 1024,
           "tb": 1e6, "tib": _MI * 1024 * 1024},
    "W": {"w": 1.0, "watts": 1.0, "mw": 1e-3, "uw": 1e-6, "kw": 1e3},
    "MHz": {"mhz": 1.0, "ghz": 1e3, "khz": 1e-3, "hz": 1e-6},
    "C": {"c": 1.0, "°c": 1.0, "celsius": 1.0, "celsius degree": 1.0, "degree c": 1.0},
    "J": {"j": 1.0, "mj": 1e-3, "uj": 1e-6, "kj": 1e3},
}
"""By the unit of a quantity: the units that tools print, in lower case, and what they are in it."""

TOO_FULL = 1.05
"""A share above this is not rounding but a value that cannot be."""

MAX_NOTES = 20

LOOKED_AT = 256
"""Rows that are read before it is decided which of several columns holds a quantity."""

_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z%°µμ/()]{1,12})?")
_UNIT = re.compile(r"(.*\S)\s*[\[(]((?i:celsius degree)|[^\[\]()\s\d]{1,12})[\])]")
_UNKNOWN = frozenset(("", "-", "--", "n/a", "na", "nan", "null", "unknown", "unknown error", "err!", "error",
                      "not supported", "not available", "unsupported", "gpu is lost", "insufficient permissions"))
_IDENTITY = re.compile(
    r"uuid|serial|guid|cliqueid|host ?name|\bbdf\b|\b(unique|board|host|bus|gpu virtual) id\b|\bpci(e)? bus\b"
    r"|\bpci (pci )?(bus|device|domain|sub|base)|chassis|tray|\bslot\b")
_OWN = re.compile(r"\buuid\b|\bserial\b|\bunique id\b")
"""Of these, what one board alone has. (Two hosts built alike have the same bus addresses.)"""
_SALT = secrets.token_bytes(16)
"""Drawn anew for every run: what is kept of an identity tells devices apart within the run and nothing after it."""
_TEXT = re.compile(r"version|driver|firmware|vbios|inforom|compute_cap|\bdate\b|part number")


@dataclass(frozen=True)
class Column:
    """One quantity, and the headers under which a tool prints it."""

    quantity: str
    """A name of `QUANTITIES`, or `name` or `limit_reason` for a fact."""
    names: tuple[str, ...]
    """Keys as `key` makes them, without units; the first that has values wins, the others keep their own name."""
    unit: str = ""
    """Where neither header nor value says one."""


@dataclass(frozen=True)
class Header:
    name: str
    """As the tool prints it, without its unit."""
    key: str
    unit: str = ""


@dataclass(frozen=True)
class Place:
    """Where the cells under one header go."""

    name: str
    unit: str
    quantity: str = ""
    """Empty: kept under `name`."""
    dropped: bool = False
    """It names a machine or a board."""
    own: bool = False
    """It is dropped, and no other board has the same."""
    is_text: bool = False


def key(name: str) -> str:
    """A header for looking it up: without case, surplus space and a trailing colon.

    >>> key("Average  Graphics Package Power:")
    'average graphics package power'
    """
    return " ".join(name.lower().split()).rstrip(": ")


def header(text: str, unit: str = "") -> Header:
    """A header in one text, its unit in brackets or round ones: `clocks.sm [MHz]`, `HBM Capacity(MB)`."""
    name = text.strip()
    if match := _UNIT.fullmatch(name):
        name, unit = match[1], match[2]
    return Header(clean(shorten(name, 120)), key(name), clean(unit.strip()))


def opaque(identity: str) -> str:
    """A word that is equal for equal identities within one run of the program, and says nothing else."""
    return hashlib.blake2b(identity.strip().lower().encode("utf-8", "replace"), digest_size=8, key=_SALT).hexdigest()


@lru_cache(maxsize=4096)
def is_unknown(text: str) -> bool:
    """Whether the tool says that it does not know: N/A, `-`, ERR!, and anything that it sets in brackets."""
    text = text.strip()
    return text.lower() in _UNKNOWN or (text.startswith("[") and text.endswith("]"))


@lru_cache(maxsize=4096)  # monitors print the same few texts over and over
def number(text: str) -> tuple[float, str] | None:
    """A finite number and its unit, empty where it has none: `27.22 W`, `(300Mhz)`. None for any other text."""
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    match = _NUMBER.fullmatch(text)
    if match is None or not math.isfinite(value := float(match[1])):
        return None
    return value, match[2] or ""


@lru_cache(maxsize=4096)
def converted(quantity: str, value: float, unit: str) -> float | None:
    """`value` in the unit of `quantity`. None for a unit of another kind, and for what no device can read: a share
    below 0 or far above 1, a negative power or size."""
    wanted = QUANTITIES[quantity]
    factor = _UNITS.get(wanted, {}).get(unit.lower().replace("µ", "u").replace("μ", "u"))
    if factor is None or not math.isfinite(value := value * factor):
        return None
    if wanted == "fraction":
        return min(value, 1.0) if 0 <= value <= TOO_FULL else None
    return value if value >= 0 or wanted == "C" else None


def places(headers: Sequence[Header], table: Iterable[Column], rows: Sequence[Sequence[str]] = ()) -> list[Place]:
    """Where each column goes. Of several that hold one quantity: the first that has a value in `rows`, else the
    first."""
    by_key: dict[str, list[int]] = {}
    for at, head in enumerate(headers):
        by_key.setdefault(head.key, []).append(at)
    chosen: dict[int, Column] = {}
    for column in table:
        found = [at for name in column.names for at in by_key.get(name, ())]
        alive = [at for at in found if any(at < len(row) and not is_unknown(row[at]) for row in rows)]
        if found:
            chosen[(alive or found)[0]] = column
    return [_place(head, chosen.get(at)) for at, head in enumerate(headers)]


def _place(head: Header, column: Column | None) -> Place:
    if column is not None:
        return Place(head.name, head.unit or column.unit, column.quantity)
    words = re.sub(r"[ ._/-]+", " ", head.name.lower())
    return Place(head.name, head.unit, dropped=_IDENTITY.search(words) is not None, own=_OWN.search(words) is not None,
                 is_text=_TEXT.search(head.name.lower()) is not None)


class Readings:
    """The cells of one file on their way into `Samples`."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.clock = Clock()
        self.skipped = 0
        self._notes: dict[str, None] = {}
        self._said: dict[tuple[str, str, str], str] = {}
        self._identities: dict[str, str] = {}

    def note(self, text: str) -> None:
        """For the reader of the report; the same one once, and not more than a page of them."""
        if len(self._notes) < MAX_NOTES:
            self._notes[text] = None

    def cell(self, place: Place, text: str, *, of: str, time: float | None = None, kind: str = "device") -> None:
        """One cell. What cannot be a value of its quantity is unknown, and counted."""
        if place.dropped:
            if place.own and kind == "device" and not is_unknown(text):
                self._identities.setdefault(of, opaque(text))
            return
        name = place.quantity or place.name
        if place.quantity and place.quantity not in QUANTITIES:
            if not is_unknown(text):
                self.say(of, name, text, time=time, kind=kind)
            return
        if is_unknown(text):
            self.recorder.add(of, name, None, time=time, kind=kind, unit=place.unit)
            return
        read = None if place.is_text else number(text)
        if place.quantity:
            value = None if read is None else converted(place.quantity, read[0], read[1] or place.unit)
            self.skipped += value is None
            self.recorder.add(of, name, value, time=time, kind=kind)
        elif read is None:
            self.say(of, name, text, time=time, kind=kind)
        else:
            self.recorder.add(of, name, read[0], time=time, kind=kind, unit=read[1] or place.unit)

    def row(self, columns: Sequence[Place], cells: Sequence[str], *, of: str, time: float | None = None,
            kind: str = "device") -> None:
        for place, text in zip(columns, cells, strict=False):
            self.cell(place, text, of=of, time=time, kind=kind)

    def pairs(self, headers: Sequence[Header], cells: Sequence[str], table: Iterable[Column], *, of: str,
              time: float | None = None, kind: str = "device") -> None:
        """One record that brings its own names."""
        self.row(places(headers, table, [cells]), cells, of=of, time=time, kind=kind)

    def say(self, of: str, name: str, value: str, *, time: float | None = None, kind: str = "device") -> None:
        """One fact; the same one again is not kept twice."""
        value = clean(shorten(value.strip(), 200))
        if self._said.get((kind, of, name)) != value:
            self._said[kind, of, name] = value
            self.recorder.say(of, name, value, time=time, kind=kind)

    def samples(self, tool: str, path: str | PathLike[str], *, notes: Iterable[str] = (),
                interval_s: float | None = None) -> Samples:
        """All of it. Raises UnusableInput where there is nothing."""
        if not len(self.recorder):
            raise UnusableInput(f"{tool} output without a reading", where=path, todo="Give the whole output")
        for of, identity in self._identities.items():
            self.recorder.say(of, "identity", identity)
        return self.recorder.samples(tool, fspath(path), clock=self.clock.counts_from, interval_s=interval_s,
                                     skipped=self.skipped, notes=dict.fromkeys((*notes, *self._notes)))
