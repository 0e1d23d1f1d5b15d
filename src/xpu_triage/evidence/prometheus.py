"""Dumps of a Prometheus endpoint (`curl …/metrics`), as text exposition or OpenMetrics, one or several in a file.

Specification: https://prometheus.io/docs/instrumenting/exposition_formats/ and the OpenMetrics 1.0 text format. Read by
hand and not by `prometheus_client.parser`: that one ends at the first line that is no sample (an error page, the
progress of curl, a date between two dumps), runs several dumps of a file into one, and takes 58 ms to import.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from os import PathLike, fspath
from pathlib import Path

from ..errors import UnusableInput
from ..samples import Scrape
from ..text import clean, shorten
from . import scrape_times
from .lines import lines

MAX_SAMPLES = 1_000_000
"""Samples of one file that are kept; what follows is left out, and a note says so."""

_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|inf(?:inity)?|nan)"
_LABEL = r'[a-zA-Z_]\w*\s*=\s*"(?:[^"\\]|\\.)*"'
_SAMPLE = re.compile(
    rf"([a-zA-Z_](?:[\w:]*\w)?)(?:\s*\{{\s*((?:{_LABEL}\s*(?:,\s*)?)*)\}}\s*|\s+)({_NUMBER})(?:\s+({_NUMBER}))?"
    r"\s*(?:\#\s*\{.*)?", re.IGNORECASE | re.ASCII)
"""Name, labels, value, time; an exemplar is let go. No name ends in a colon: that is YAML."""
_PAIR = re.compile(r'([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"', re.ASCII)
_ANNOUNCED = re.compile(r"#\s*(HELP|TYPE|UNIT)\s+([a-zA-Z_:][\w:]*)(?:\s+(.*))?", re.ASCII)
_TYPES = ("counter", "gauge", "histogram", "gaugehistogram", "summary", "untyped", "unknown", "info", "stateset")
_END = re.compile(r"#\s*EOF")
_ESCAPED = re.compile(r"\\(.)")
_SUFFIX = re.compile(r"_(?:total|bucket|sum|count|created|info|gcount|gsum)$")
_PAGE = re.compile(r"<(?:!doctype|html|head|body)\b", re.IGNORECASE)

Series = tuple[str, tuple[tuple[str, str], ...]]


def matches(head: str) -> bool:
    """Whether a text that begins like this is such a dump: most of its lines are samples, HELP or TYPE, and at least
    one of them is so in a way that no other format shares."""
    good = other = 0
    certain = False
    for line in head.splitlines():
        line = line.strip()
        if not line:
            continue
        announced = _ANNOUNCED.fullmatch(line)
        if announced:
            certain = certain or _is_announcement(announced)
        elif sample := _SAMPLE.fullmatch(line):
            certain = certain or sample[2] is not None or ":" in sample[1]
        elif not (_END.fullmatch(line) or scrape_times.is_separator(line)):
            other += 1
            continue
        good += 1
    return certain and good >= other


def _is_announcement(announced: re.Match[str]) -> bool:
    kind, name, rest = announced.groups()
    if kind == "TYPE":
        return (rest or "").strip().lower() in _TYPES
    return "_" in name or ":" in name  # `# HELP wanted` is a heading


def read(path: str | PathLike[str]) -> tuple[Scrape, ...]:
    """Every dump in the file, in its order.

    A dump begins at a line that says when it was taken, where a family is announced that the dump began with, and at a
    sample that the dump already has. Its time (seconds since the epoch) is that line's, else the latest time beside a
    sample, else the time in the file's name; never the file's own date.

    Raises UnusableInput where the file cannot be read or holds neither a sample nor an announcement.
    """
    notes: list[str] = []
    dumps = _Dumps()
    for line in lines(path, notes):
        if dumps.samples >= MAX_SAMPLES:
            notes.append(f"more than {MAX_SAMPLES:,} samples: left out from there on")
            break
        dumps.add(line.strip())
    found = dumps.finished()
    if not found:
        raise UnusableInput("holds no line of a /metrics dump", where=path, todo="Save the endpoint's text: "
                            "curl -s http://HOST:PORT/metrics > before.prom")
    named = scrape_times.in_name(Path(path).name) if len(found) == 1 else None
    return tuple(dump.scrape(fspath(path), named, notes) for dump in found)


class _Dumps:
    """Cuts the lines of a file into dumps."""

    def __init__(self) -> None:
        self._done: list[_Dump] = []
        self._dump = _Dump()
        self._announcing = False
        self.samples = 0

    def add(self, line: str) -> None:
        if not line:
            return
        if (sample := _SAMPLE.fullmatch(line)) is not None:
            self._sample(sample)
        elif (announced := _ANNOUNCED.fullmatch(line)) is not None:
            self._announcement(announced[2])
        elif scrape_times.is_separator(line):
            self._cut()
            self._dump.time = scrape_times.of_line(line)
        elif _END.fullmatch(line):
            self._dump.ended = True
        elif line.startswith("#"):
            return
        else:
            self._dump.skip(line)

    def finished(self) -> list[_Dump]:
        self._cut()
        return self._done

    def _sample(self, sample: re.Match[str]) -> None:
        name, value = sample[1], _number(sample[3])
        labels = tuple((key, clean(_unescaped(text))) for key, text in _PAIR.findall(sample[2] or ""))
        series = name, tuple(sorted(labels))
        dump = self._dump
        if series in dump.values:
            if self._is_twice(dump, series, value):
                dump.skipped += 1
                return
            self._cut()
        elif dump.ended:
            self._cut()
        self._dump.put(series, dict(labels), value, sample[4])
        self.samples += 1

    def _is_twice(self, dump: _Dump, series: Series, value: float) -> bool:
        """The same sample again beside itself: an exporter's slip. Elsewhere, or with another value, the next dump."""
        known = dump.values[series][1]
        same = known == value or (math.isnan(known) and math.isnan(value))
        return same and dump.last_family == _family(series[0]) and bool(dump.announced)

    def _announcement(self, family: str) -> None:
        dump = self._dump
        if dump.ended or (dump.values and family == next(iter(dump.announced), None) and family != dump.latest):
            self._cut()
        self._dump.announced[family] = None
        self._dump.latest = family

    def _cut(self) -> None:
        """What was read so far is one dump; without a sample or an announcement it is the noise before the next."""
        dump = self._dump
        if dump.values or dump.announced:
            self._done.append(dump)
            self._dump = _Dump()
        elif self._done and not dump.time:
            self._done[-1].skipped += dump.skipped
            self._dump = _Dump()


class _Dump:
    """One dump while it is read."""

    def __init__(self) -> None:
        self.time: float | None = None
        self.values: dict[Series, tuple[dict[str, str], float]] = {}
        self.announced: dict[str, None] = {}
        self.latest = ""
        self.last_family = ""
        self.ended = False
        self.skipped = 0
        self._stamp: float | None = None
        self._noise = ""
        self._page = False

    def put(self, series: Series, labels: dict[str, str], value: float, stamp: str | None) -> None:
        self.values[series] = labels, value
        self.last_family = self.latest = _family(series[0])
        if stamp is not None:
            seconds = _number(stamp)
            seconds = seconds / 1000 if seconds >= 1e11 else seconds  # milliseconds; OpenMetrics has seconds
            if scrape_times.is_plausible(seconds):
                self._stamp = max(self._stamp or 0.0, seconds)

    def skip(self, line: str) -> None:
        self.skipped += 1
        self._noise = self._noise or line
        self._page = self._page or _PAGE.match(line) is not None

    def scrape(self, source: str, named: float | None, notes: list[str]) -> Scrape:
        values: dict[str, list[tuple[dict[str, str], float]]] = {}
        for (name, _), (labels, value) in self.values.items():
            values.setdefault(name, []).append((labels, value))
        with_samples = {part for name in values for part in _names(name)}
        time = next((time for time in (self.time, self._stamp, named) if time is not None), None)
        return Scrape(
            source=source,
            time=time,
            values={name: tuple(samples) for name, samples in values.items()},
            empty=tuple(family for family in self.announced if not with_samples.intersection(_names(family))),
            skipped=self.skipped,
            notes=(*notes, *self._said()),
        )

    def _said(self) -> Iterator[str]:
        if self._page:
            yield "an HTML page among the samples: the server answered with an error"
        elif self._noise:
            yield f"{self.skipped:,} lines are no samples, the first: {clean(shorten(self._noise, 60))}"


def _names(name: str) -> tuple[str, str]:
    """A sample and its announcement may differ by a suffix (`x_total` is announced as `x`, or as itself)."""
    return name, _family(name)


def _family(name: str) -> str:
    return _SUFFIX.sub("", name)


def _number(text: str) -> float:
    return float(text.lower())


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], text) if "\\" in text else text
