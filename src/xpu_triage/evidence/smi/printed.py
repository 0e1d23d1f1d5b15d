"""Values as vendor tools print them for people: numbers with units, pairs, dates, words for "not known"."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from ...samples import QUANTITIES

NOT_KNOWN = frozenset({
    "", "-", "--", "/", "n/a", "na", "none", "err!", "error", "unknown", "unknown error", "not supported",
    "unsupported", "not available", "not found", "gpu is lost", "insufficient permissions"})
"""What tools print, in brackets or not, where they have no value. Never zero."""

_UNKNOWN = r"(?:\[?N/A\]?|NA(?![\w-])|ERR!|--?(?=[\s/]|$))"
_UNIT = r"(?:%|[°º\ufffdÂ]*[Cc]|m?W|[KkMGTP]i?[Bb]|[KkMGT]?[Hh]z|RPM|mV)"
_NUMBER = r"-?\d[\d.]*"
VALUE = rf"(?:{_UNKNOWN}|{_NUMBER}(?:[ ]?{_UNIT}(?![\w%]))?)"
"""One value; a space at most before its unit."""
PAIR = rf"(?:{VALUE}[ ]*/[ ]*{VALUE}|{VALUE}\({VALUE}\))(?![\w/(])"
"""Two values of one column: `69W /  700W`, `858/65536 MiB`, `N/A/750 W`, `0MiB(81920MiB)`."""

_ONE = re.compile(rf"({_UNKNOWN})|({_NUMBER})[ ]?({_UNIT})?")
_TWO = re.compile(rf"({VALUE})[ ]*[/(][ ]*({VALUE})\)?")
_PAIR = re.compile(PAIR)

_TO_MB = {"kb": 1e-3, "mb": 1.0, "gb": 1e3, "tb": 1e6, "kib": 1.024e-3, "mib": 1.048576, "gib": 1073.741824,
          "tib": 1099511.627776}
_FACTORS: dict[str, dict[str, float]] = {
    "fraction": {"%": 0.01},
    "MB": _TO_MB,
    "W": {"w": 1.0, "mw": 1e-3},
    "MHz": {"hz": 1e-6, "khz": 1e-3, "mhz": 1.0, "ghz": 1e3},
    "C": {"c": 1.0},
}


@dataclass(frozen=True)
class Printed:
    """One value as it stands in a table."""

    number: float | None
    """None where the tool says that it does not know."""
    unit: str
    """As printed (`MiB`, `%`); empty where nothing says it."""


def is_unknown(text: str) -> bool:
    return text.strip().strip("[]").strip().lower() in NOT_KNOWN


def values(text: str, unit: str = "") -> tuple[Printed, ...] | None:
    """The value or the two values that `text` consists of; None where it is something else. `unit` is what the header
    says; the unit of one of a pair counts for the other (`858/65536 MiB`)."""
    text = text.strip()
    if is_unknown(text):
        return (Printed(None, unit),)
    if _PAIR.fullmatch(text) and (parts := _TWO.fullmatch(text)):
        both = (_one(parts[1]), _one(parts[2]))
        shared = both[0].unit or both[1].unit or unit
        return tuple(Printed(value.number, value.unit or shared) for value in both)
    if re.fullmatch(VALUE, text):
        one = _one(text)
        return (Printed(one.number, one.unit or unit),)
    return None


def _one(text: str) -> Printed:
    match = _ONE.fullmatch(text)
    if match is None or match[1]:
        return Printed(None, "")
    try:
        number = float(match[2])
    except ValueError:  # 1.2.3 is a version
        return Printed(None, "")
    unit = (match[3] or "").lstrip("°º\ufffdÂ")
    return Printed(number if math.isfinite(number) else None, unit)


def in_unit_of(quantity: str, value: Printed) -> tuple[float | None, bool]:
    """`value` in the unit of `quantity`, and whether it can be read as one at all: a number of another kind of unit,
    without any unit, or a fraction outside 0–1 cannot."""
    if value.number is None:
        return None, True
    kind = QUANTITIES[quantity]
    factor = _FACTORS.get(kind, {}).get(value.unit.lower())
    if factor is None:
        return None, False
    number = value.number / 100 if kind == "fraction" else value.number * factor  # 0.94, not 0.9400000000000001
    if not math.isfinite(number) or (kind == "fraction" and not 0 <= number <= 1) or (kind != "C" and number < 0):
        return None, False
    return number, True


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = "|".join(_MONTHS)
_CLOCK = r"(\d{1,2}):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?: ([AP]M))?"
_DATES = (
    # Wed Nov  8 16:16:45 2023, with or without a zone
    re.compile(rf"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\w* (?P<month>{_MONTH})\w* +(?P<day>\d{{1,2}}) +(?P<clock>{_CLOCK})"
               rf"(?: +[A-Z]{{2,5}}| +[+-]\d\d(?::?\d\d)?)? +(?P<year>\d{{4}})\b"),
    # Wed 08 Nov 2023 04:16:45 PM UTC
    re.compile(rf"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\w*,? +(?P<day>\d{{1,2}}) (?P<month>{_MONTH})\w* (?P<year>\d{{4}})"
               rf",? +(?P<clock>{_CLOCK})"),
    # 2023-11-08 16:16:45 and 2023/11/08T16:16:45.250, alone on the line but for a zone
    re.compile(rf"^\W*(?P<year>\d{{4}})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ](?P<clock>{_CLOCK})"
               r" ?(?:Z|UTC|[+-]\d\d:?\d\d)?\W*$"),
    # 2023年 11月 08日 星期三 16:16:45 CST
    re.compile(rf"(?P<year>\d{{4}})年 ?(?P<month>\d{{1,2}})月 ?(?P<day>\d{{1,2}})日 ?\S* +(?P<clock>{_CLOCK})"),
)


def time_in(line: str) -> float | None:
    """Seconds since the epoch of the date that `line` shows, taken as UTC; None where it shows none."""
    if ":" not in line or len(line) > 400:
        return None
    for date in _DATES:
        if match := date.search(line):
            clock = re.fullmatch(_CLOCK, match["clock"])
            assert clock is not None
            hour = int(clock[1])
            if clock[5]:
                hour = hour % 12 + (12 if clock[5] == "PM" else 0)
            month = match["month"]
            number = _MONTHS.index(month) + 1 if month in _MONTHS else int(month)
            part = float(f"0.{clock[4]}") if clock[4] else 0.0
            try:
                whole = datetime(int(match["year"]), number, int(match["day"]), hour, int(clock[2]), int(clock[3]),
                                 tzinfo=UTC)
            except ValueError:
                return None
            return whole.timestamp() + part
    return None
