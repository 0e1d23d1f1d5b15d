"""Times as SMI tools print them in columns, and as `date` prints them between two readings.

A tool writes local time and does not say which zone; it is taken as such, so that differences hold.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from .printed import time_in

_CLOCK = r"(\d{1,2}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?"
_DATED = re.compile(r"(\d{4})[-/]?(\d{2})[-/]?(\d{2})[T ]\s*" + _CLOCK + r"\s*(Z|UTC|[+-]\d{2}:?\d{2})?")
_DAY = re.compile(_CLOCK)
_EPOCH = re.compile(r"(\d{10})(\.\d+)?|(\d{13})")

HALF_A_DAY = 43_200.0


def stamp(text: str) -> tuple[float, str] | None:
    """Seconds and what they count from: `epoch`, or `day` for a time without a date. None where it is no time."""
    text = text.strip()
    if match := _EPOCH.fullmatch(text):
        return (float(text) if match[3] is None else float(text) / 1000), "epoch"
    if match := _DATED.fullmatch(text):
        year, month, day, hour, minute, second, part, zone = match.groups()
        try:
            moment = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), tzinfo=UTC)
        except ValueError:
            return None
        return moment.timestamp() + _fraction(part) - _offset(zone), "epoch"
    if match := _DAY.fullmatch(text):
        hour, minute, second = int(match[1]), int(match[2]), int(match[3])
        if hour < 24 and minute < 60 and second < 61:
            return hour * 3600 + minute * 60 + second + _fraction(match[4]), "day"
        return None
    seconds = time_in(text)
    return None if seconds is None else (seconds, "epoch")


class Clock:
    """The times of one file: all count from the same, and a time of day goes on over midnight."""

    def __init__(self) -> None:
        self.counts_from = ""
        self._last = -1.0
        self._midnights = 0.0

    def at(self, text: str) -> float | None:
        """Seconds; None where it is no time, or not one like the first of the file."""
        if (read := stamp(text)) is None or (self.counts_from and read[1] != self.counts_from):
            return None
        seconds, self.counts_from = read
        if self.counts_from == "day":
            if seconds < self._last - HALF_A_DAY:
                self._midnights += 2 * HALF_A_DAY
            self._last = seconds
            seconds += self._midnights
        return seconds

    def since_start(self, text: str) -> float | None:
        """A count of seconds that the file itself starts."""
        try:
            seconds = float(text)
        except ValueError:
            return None
        if self.counts_from not in ("", "start") or not abs(seconds) < 1e12:
            return None
        self.counts_from = "start"
        return seconds


def _offset(zone: str | None) -> float:
    if not zone or zone in ("Z", "UTC"):
        return 0.0
    seconds = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
    return -float(seconds) if zone[0] == "-" else float(seconds)


def _fraction(digits: str | None) -> float:
    return float(f"0.{digits}") if digits else 0.0
