"""When a dump was taken, as people and programs write it: a line of its own, or a part of the file's name."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

_EARLIEST, _LATEST = 1_262_304_000.0, 4_102_444_800.0
"""2010 to 2100: other figures of ten digits are no times."""

_DATE_TIME = re.compile(
    r"(?<!\d)(20\d\d)-?(\d\d)-?(\d\d)[T_ .-]?(\d\d)[:.-]?(\d\d)[:.-]?(\d\d)(?:[.,](\d{1,9}))?"
    r"\s?(Z|UTC|GMT|[+-]\d\d:?\d\d(?!\d))?(?!\d)", re.IGNORECASE)
_EPOCH = re.compile(r"(?<![\d.])(\d{10})(?:(\d{3})|(\.\d{1,9}))?(?!\d)")
_SPOKEN = re.compile(  # `date`, and the Date header of `curl -i`
    r"(?:[A-Z][a-z]{2},?\s+)?(?:(?P<day>\d{1,2})\s+(?P<month>[A-Z][a-z]{2})|(?P<month2>[A-Z][a-z]{2})\s+"
    r"(?P<day2>\d{1,2}))\s+(?:(?P<year>20\d\d)\s+)?(?P<time>\d\d:\d\d:\d\d)\s*(?P<half>[AP]M\s+)?(?P<zone>[A-Z]{2,5}"
    r"|[+-]\d{4})?(?:\s+(?P<year2>20\d\d))?")
_LINE = re.compile(r"[#=\s*>-]*(?:(?:scraped|date|time|timestamp|taken)\b\s*(?:at\b)?\s*[:=]?\s*)?(.*?)[=\s*<-]*",
                   re.IGNORECASE)


def is_separator(line: str) -> bool:
    """Whether the line says when the dump after it was taken, and nothing else."""
    return of_line(line) is not None


def of_line(line: str) -> float | None:
    """Seconds since the epoch where the line is a time and nothing else (`# scraped 2026-11-30T06:20:31.123Z`, the
    output of `date`, `Date: Mon, 30 Nov 2026 06:20:31 GMT`); a time without a zone is taken as UTC."""
    if len(line) > 100 or (match := _LINE.fullmatch(line)) is None:
        return None
    said = match[1].strip()
    if written := _DATE_TIME.fullmatch(said):
        return _seconds(written)
    if counted := _EPOCH.fullmatch(said):
        return _counted(counted)
    if spoken := _SPOKEN.fullmatch(said):
        return _spoken(spoken)
    return None


def in_name(name: str) -> float | None:
    """Seconds since the epoch where a file's name holds one time, written out or counted; None for none or several."""
    found = {time for match in _DATE_TIME.finditer(name) if (time := _seconds(match)) is not None}
    if not found:
        found = {time for match in _EPOCH.finditer(name) if (time := _counted(match)) is not None}
    return found.pop() if len(found) == 1 else None


def is_plausible(seconds: float) -> bool:
    """Whether this many seconds since the epoch can be when a server was asked."""
    return _EARLIEST <= seconds <= _LATEST


def _seconds(match: re.Match[str]) -> float | None:
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    try:
        moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC)
    except ValueError:
        return None
    fraction = float(f"0.{match[7]}") if match[7] else 0.0
    zone = match[8] or ""
    if zone[:1] in ("+", "-"):
        digits = zone[1:].replace(":", "")
        ahead = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        moment -= ahead if zone[0] == "+" else -ahead
    return _plausible(moment.timestamp() + fraction)


def _counted(match: re.Match[str]) -> float | None:
    seconds = float(match[1])
    if match[2]:
        seconds += int(match[2]) / 1000
    return _plausible(seconds + (float(match[3]) if match[3] else 0.0))


def _spoken(match: re.Match[str]) -> float | None:
    """Other zones than UTC have no agreed abbreviations: the clock is taken as it reads."""
    year = match["year"] or match["year2"]
    if year is None:
        return None
    day, month, clock = match["day"] or match["day2"], match["month"] or match["month2"], match["time"]
    zone = match["zone"] if (match["zone"] or "")[:1] in ("+", "-") else "+0000"
    try:
        moment = parsedate_to_datetime(f"{day} {month} {year} {clock} {zone}")
    except (ValueError, TypeError):
        return None
    half = (match["half"] or "").strip()
    if half and moment.hour % 12 != moment.hour and moment.hour != 12:
        return None
    if half:
        moment += timedelta(hours=(12 if half == "PM" else 0) + moment.hour % 12 - moment.hour)
    return _plausible(moment.timestamp())


def _plausible(seconds: float) -> float | None:
    return seconds if is_plausible(seconds) else None
