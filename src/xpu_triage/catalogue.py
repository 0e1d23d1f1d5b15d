"""The signal catalogue: the only place where a signal's name gets its meaning.

A signal is one named measurement or one observed fact, never a conclusion: two people with opposite
diagnoses must be able to type the same value. Names end in their unit (`_ms`, `_fraction`, …); counts,
facts and texts have none. Every row says over which window and what it is not. *Window* = wall time of
whole steps; *load* = the time while requests run; *run* = one benchmark or the interval between two
scrapes; with several devices the busiest, unless the row says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .signal_table import TABLE

EVIDENCE: dict[str, str] = {
    "trace": "a profiler trace of a few steps under load",
    "smi": "the vendor tool or its exporter, over some seconds under load",
    "metrics": "the server's /metrics, scraped twice under load",
    "log": "the engine's or runtime's log",
    "bench": "a load generator's result",
    "stacks": "stack samples of the process that runs the model",
    "timers": "clock readings in the program, the device drained before each",
    "os": "top or pidstat, per process",
    "config": "flags, configuration or code",
    "micro": "an isolated micro-benchmark",
    "spec": "the data sheet",
}
"""Kinds of evidence, and how a person gets at them."""

UNITS: tuple[str, ...] = (
    "fraction", "ratio", "number", "count", "ms", "us", "s", "tokens_per_s", "requests_per_s", "events_per_s",
    "cores", "MB", "GB", "GBps", "bool", "text",
)


@dataclass(frozen=True)
class SignalSpec:
    name: str
    unit: str
    meaning: str
    evidence: tuple[str, ...]
    from_trace: bool
    """Always computed from a trace, and part of the JSON contract."""
    example: float | bool | str

    @property
    def group(self) -> str:
        return self.name.partition(".")[0]


def _rows(table: str) -> Iterator[SignalSpec]:
    head, meaning = "", ""
    for line in (*table.splitlines(), ""):
        if line.startswith("    "):
            meaning += f" {line.strip()}" if meaning else line.strip()
            continue
        if head:
            name, unit, evidence, example = (cell.strip() for cell in head.split("|"))
            yield SignalSpec(
                name.removesuffix(" ●"), unit, meaning, tuple(evidence.split(", ")), name.endswith("●"),
                _example(example, unit))
        head, meaning = line, ""


def _example(text: str, unit: str) -> float | bool | str:
    if unit == "text":
        return text
    return text == "true" if unit == "bool" else float(text)


CATALOGUE: dict[str, SignalSpec] = {spec.name: spec for spec in _rows(TABLE)}
