"""The lists of `rocm-smi --show…` and Hygon's `hy-smi --show…`: one line a device and value.

    ================================ Power Consumption =================================
    GPU[0]          : Current Socket Graphics Package Power (W): 133.0
    GPU[0]          : sclk clock level: 1: (132Mhz)

The names are those of the JSON output (`rocm_smi.py` prints both from one function), but for clocks, which print level
and speed in one line. Lists of supported frequencies give the highest clock.
"""

from __future__ import annotations

import re
from os import PathLike

from ...samples import Samples
from ..lines import lines
from .amd_names import ROCM, rocm_header
from .columns import Column, Header, Readings
from .stamps import stamp

_LINE = re.compile(r"^\s*(?P<kind>GPU|DCU|HCU)\[(?P<of>\d{1,4})\]\s*:(?P<said>.*)$")
_VALUE = re.compile(r"(?P<name>[A-Za-z%][^:]{1,100}?)\s*:\s*(?P<value>.*)")
_CLOCK = re.compile(r"(?P<name>\w+ clock) level:?\s*\S{1,4}?:?\s*(?P<speed>\([\d.]+ ?[MG]hz\))\s*", re.IGNORECASE)
_CLOCK_ONLY = re.compile(r"(?P<name>\w+ clock) level:\s*\S{1,4}\s*")
_LEVELS = re.compile(r"Supported (?P<clock>\w+) frequencies\b")
_LEVEL = re.compile(r"\d{1,2}: (?P<mhz>\d{1,6})Mhz(?: \*)?\s*")
_KNOWN = re.compile(r"\b(?:GPU|DCU|HCU) (?:use|memory use)|\bMemory Allocated\b|\bPackage Power\b|\bVRAM Total\b|"
                    r"\bTemperature \(Sensor|\b[sm]clk clock level|\bPower \(W\)")
_OTHER_LEVEL = re.compile(r"\S{1,2}: ")
"""Of a bus, or the one that a sleeping device is at."""
_HIGHEST = {"sclk": Header("sclk highest level", "sclk highest level", "Mhz"),
            "mclk": Header("mclk highest level", "mclk highest level", "Mhz")}
_TABLE = (*ROCM, Column("core_clock_max", ("sclk highest level",), "MHz"),
          Column("memory_clock_max", ("mclk highest level",), "MHz"))
_SKIPPED = re.compile(r"not supported|unsupported|^\d+\. |exists but EMPTY|^\s*$|^[\w ]+, ", re.IGNORECASE)
_RANK = re.compile(r"=+.*System Management Interface")


def matches(head: str) -> bool:
    """Whether a file that begins so has such a line with a figure that is known."""
    return any((match := _LINE.match(row)) is not None and _KNOWN.search(match["said"]) is not None
               for row in head.splitlines() if len(row) < 400 and "[" in row)


def read(path: str | PathLike[str]) -> Samples:
    """Every reading; a list that names a value of a device again is the next reading. Raises UnusableInput where there
    is none."""
    notes: list[str] = []
    lists = _Lists()
    for line in lines(path, notes):
        lists.take(line)
        if lists.readings.recorder.full:
            break
    lists.end()
    return lists.readings.samples(lists.tool, path, notes=notes)


class _Lists:
    """The values of each device, until one of them comes again."""

    def __init__(self) -> None:
        self.readings = Readings()
        self.tool = "rocm-smi"
        self._time: float | None = None
        self._values: dict[str, dict[str, tuple[Header, str]]] = {}
        self._clock = ""
        """Whose levels are being listed."""

    def take(self, line: str) -> None:
        match = _LINE.match(line) if len(line) < 1000 else None
        if match is None:
            if _RANK.match(line.strip()):
                self.end()
            elif stamp(line) is not None:
                self.end()
                self._time = self.readings.clock.at(line)
            return
        self.tool = self.tool if match["kind"] == "GPU" else "hy-smi"
        of, said = str(int(match["of"])), match["said"].strip()
        if levels := _LEVELS.match(said):
            self._clock = levels["clock"]
        elif level := _LEVEL.fullmatch(said):
            self._level(of, float(level["mhz"]))
        elif clock := _CLOCK.fullmatch(said):
            self._put(of, rocm_header(f"{clock['name']} speed"), clock["speed"])
        elif not said:
            self._clock = ""
        elif self._clock and _OTHER_LEVEL.match(said):
            return
        elif not _CLOCK_ONLY.fullmatch(said) and not _SKIPPED.search(said):
            self._pair(of, said)

    def _pair(self, of: str, said: str) -> None:
        value = _VALUE.fullmatch(said)
        if value is None:
            self.readings.skipped += 1
        else:
            self._put(of, rocm_header(value["name"]), value["value"].strip())

    def _level(self, of: str, mhz: float) -> None:
        head = _HIGHEST.get(self._clock)
        if head is None:
            return
        known = self._values.setdefault(of, {}).get(head.key)
        if known is None or float(known[1]) < mhz:
            self._values[of][head.key] = head, f"{mhz:g}"

    def _put(self, of: str, head: Header, value: str) -> None:
        if head.key in self._values.get(of, {}):
            self.end()
        self._values.setdefault(of, {})[head.key] = head, value

    def end(self) -> None:
        """What is held is one reading of each device."""
        for of, values in self._values.items():
            self.readings.pairs([head for head, _ in values.values()], [text for _, text in values.values()], _TABLE,
                                of=of, time=self._time)
        self._values = {}
