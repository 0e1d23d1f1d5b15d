"""What the readers of benchmark results share: units, numbers as tools write them, and the rules that make a record.

A figure comes from a file by a row of its reader's unit map, and by nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any

import numpy as np

from ...baseline.doubted import paused, units_doubted
from ...baseline.records import BenchRecord, Environment, Floats, Requests, Stat, stat_of
from ...errors import UnusableInput
from ...text import clean, shorten

SECONDS = {"s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0,
           "ms": 1e-3, "msec": 1e-3, "milliseconds": 1e-3, "us": 1e-6, "µs": 1e-6, "microseconds": 1e-6,
           "ns": 1e-9, "nanoseconds": 1e-9, "min": 60.0, "minutes": 60.0}
"""Seconds in a unit of time, by the names that tools write."""

STATISTICS = ("mean", "p50", "p90", "p99", "max")

UNITS_DIFFER = (0.97, 1.03)
"""Of a thousand: a factor between two figures of one quantity that is no difference but a unit."""

LARGEST = 1e15
"""No figure of a benchmark is larger; one that is was not measured."""


@dataclass(frozen=True)
class Quantity:
    """A row of a unit map: what a key of the file means."""

    field: str
    """A latency of `records.LATENCIES`, or a field of BenchRecord or Requests."""
    unit: str
    """In the file."""
    definition: str = ""
    """Where the key does not say it, or says something else."""


class Refused(Exception):
    """This run cannot be used; the message says why. The others of the file can."""

    def __init__(self, why: str, todo: str = "Give a run with completed requests") -> None:
        super().__init__(why)
        self.todo = todo


AS_WRITTEN = "Give the file as its tool wrote it"
"""What to do about units that cannot be."""


def number(raw: Any) -> float | None:
    """A finite number; None for anything else (null, Infinity, text, a bool)."""
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return None
    value = float(raw) if abs(raw) < LARGEST else math.inf
    return value if math.isfinite(value) else None


def positive(raw: Any) -> float | None:
    """A number above 0: no latency, length or rate is 0, and tools write 0 for what they did not measure."""
    value = number(raw)
    return value if value is not None and value > 0 else None


def count(raw: Any) -> int | None:
    """A whole number of things, 0 included."""
    value = number(raw)
    return round(value) if value is not None and value >= 0 else None


def in_unit(value: float | None, given: str, wanted: str) -> float | None:
    """A time in another unit. Raises KeyError where `given` is no unit of time."""
    return None if value is None else value * (SECONDS[given] / SECONDS[wanted])


def name(raw: Any) -> str:
    """A name out of a file: harmless, short, empty where there is none."""
    return clean(shorten(str(raw).strip(), 200)) if isinstance(raw, str | int | float) else ""


def at(document: Any, *path: str) -> Any:
    """What lies at this path of objects in objects; None where there is nothing."""
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def column(raw: Any, size: int, factor: float = 1.0) -> Floats:
    """A list of numbers as `size` floats; NaN for what is missing or no number."""
    values = np.full(size, np.nan)
    listed = raw[:size] if isinstance(raw, list) else []
    if set(map(type, listed)) == {float}:
        values[:len(listed)] = listed
        values[~(np.abs(values) < LARGEST)] = np.nan
        return values * factor
    for i, one in enumerate(listed):
        value = number(one)
        values[i] = np.nan if value is None else value * factor
    return values


def told(figures: Mapping[str, Any], unit: str, keys: Mapping[str, Iterable[str]]) -> Stat:
    """A statistic as a summary gives it, in ms. `keys`: what each of STATISTICS may be called; the first that is
    there counts. 0 is unknown."""
    def of(statistic: str) -> float | None:
        found = (positive(figures[key]) for key in keys.get(statistic, ()) if figures.get(key) is not None)
        return in_unit(next(found, None), unit, "ms")

    return Stat(of("mean"), of("p50"), of("p90"), of("p99"), None, of("max"))


def known(stat: Stat) -> bool:
    return any(getattr(stat, statistic) is not None for statistic in STATISTICS)


@dataclass
class Run:
    """One run as its reader found it, before the rules that hold for every tool."""

    tool: str
    environment: Environment
    concurrency: float | None = None
    request_rate: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    told: dict[str, Stat] = field(default_factory=dict)
    """By latency, as the tool's summary says, in ms."""
    ttft_least: float | None = None
    """The smallest TTFT that the summary knows of; 0 or less: invalid ones are in its figures."""
    ttft_zero_at: str = ""
    """The largest statistic of TTFT that the summary gives as 0 (`p50`): so many are invalid."""
    duration_s: float | None = None
    completed: int | None = None
    failed: int | None = None
    output_tokens_per_s: float | None = None
    requests_per_s: float | None = None
    prompt_tokens_per_s: float | None = None
    requests: Requests | None = None
    """Completed ones, with TTFTs as the file has them."""
    sampled: bool = False
    """`requests` are only some of the completed ones: medians stay those of the summary."""
    definitions: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    extra: dict[str, float] = field(default_factory=dict)

    def record(self, source: str) -> BenchRecord:
        """Raises Refused where no request was completed, or where units contradict each other: those of the summary and
        of its requests, or the times of the run among themselves."""
        requests, invalid = _without_invalid(self.requests)
        if self.completed is None and requests is not None:
            self.completed = len(requests)
        if self.completed == 0:
            raise Refused(f"all {self.failed:,} requests failed" if self.failed else "no request was completed")
        latencies = self._latencies(requests, invalid)
        prompt_tokens, output_tokens = self.prompt_tokens, self.output_tokens
        if requests is not None and not self.sampled:
            prompt_tokens = stat_of(requests.prompt_tokens).p50 or prompt_tokens
            output_tokens = stat_of(requests.output_tokens).p50 or output_tokens
        made = BenchRecord(
            source=source, tool=self.tool, environment=self.environment, concurrency=self.concurrency,
            request_rate=self.request_rate, prompt_tokens=prompt_tokens, output_tokens=output_tokens,
            latencies=latencies, duration_s=self.duration_s, completed=self.completed, failed=self.failed,
            output_tokens_per_s=self.output_tokens_per_s, requests_per_s=self.requests_per_s,
            prompt_tokens_per_s=self.prompt_tokens_per_s, invalid_ttft=invalid, requests=requests,
            definitions=tuple(dict.fromkeys(self.definitions)), notes=tuple(dict.fromkeys(self.notes)),
            extra=dict(self.extra))
        if why := units_doubted(made):
            raise Refused(why, AS_WRITTEN)
        said = paused(made)
        return replace(made, notes=(*made.notes, said)) if said else made

    def _latencies(self, requests: Requests | None, invalid: int) -> dict[str, Stat]:
        """Computed from the requests where all of them are there, else as the summary says."""
        latencies = {latency: stat for latency, stat in self.told.items() if known(stat)}
        for latency in ("ttft", "e2e"):         # one a request; of the others the summary alone can say how many
            if latency in latencies and latencies[latency].n is None:
                latencies[latency] = replace(latencies[latency], n=self.completed)
        if requests is not None and invalid:
            self.notes.append(f"{invalid:,} of {len(requests):,} requests have a TTFT of 0 or less: an empty first "
                              "chunk, not a fast one; left out of TTFT")
            self._without_ttft(latencies)
        elif requests is None or self.sampled:
            self._without_zeros(latencies)
        if requests is not None:
            computed = _computed(requests)
            _same_units(computed, latencies)
            if not self.sampled:
                latencies |= {latency: stat for latency, stat in computed.items() if stat.n}
        return latencies

    def _without_zeros(self, latencies: dict[str, Stat]) -> None:
        """A summary with zeros among its TTFTs, which cannot be taken out again."""
        if self.ttft_zero_at:
            self.notes.append(f"the {self.ttft_zero_at} of TTFT is 0 or less, which no request takes: TTFT is unknown")
            self._without_ttft(latencies)
        elif self.ttft_least is not None and self.ttft_least <= 0 and "ttft" in latencies:
            self.notes.append("the smallest TTFT is 0 or less, an empty first chunk: the mean of TTFT is left out")
            ttft = replace(latencies["ttft"], mean=None)
            self._without_ttft(latencies)
            latencies["ttft"] = ttft

    def _without_ttft(self, latencies: dict[str, Stat]) -> None:
        """The summary's TTFT has invalid values in it, and so has what is counted from it."""
        latencies.pop("ttft", None)
        if latencies.pop("tpot", None):
            self.definitions.append("tpot: counts from the request's start where the TTFT is invalid: left out")


def _without_invalid(requests: Requests | None) -> tuple[Requests | None, int]:
    """Requests with invalid TTFTs unknown, and how many those are. What counts from them is unknown too."""
    if requests is None or not len(requests):
        return None, 0
    bad = requests.ttft_ms <= 0
    return replace(
        requests, ttft_ms=np.where(bad, np.nan, requests.ttft_ms),
        tpot_ms=np.where(bad | ~(requests.tpot_ms > 0), np.nan, requests.tpot_ms),
        e2e_ms=np.where(requests.e2e_ms > 0, requests.e2e_ms, np.nan),
        prompt_tokens=np.where(requests.prompt_tokens > 0, requests.prompt_tokens, np.nan),
        output_tokens=np.where(requests.output_tokens > 0, requests.output_tokens, np.nan)), int(bad.sum())


def _computed(requests: Requests) -> dict[str, Stat]:
    gaps = np.concatenate(requests.itl_ms) if requests.itl_ms else np.empty(0)
    return {"ttft": stat_of(requests.ttft_ms), "tpot": stat_of(requests.tpot_ms), "itl": stat_of(gaps[gaps >= 0]),
            "e2e": stat_of(requests.e2e_ms)}


def _same_units(computed: Mapping[str, Stat], summary: Mapping[str, Stat]) -> None:
    """Refuse requests and summary that differ by a unit: nobody can say which of the two is right."""
    for latency, stat in summary.items():
        for statistic in ("p50", "mean"):
            one, other = getattr(stat, statistic), getattr(computed[latency], statistic)
            for factor in (1e3, 1e6, 1e-3, 1e-6) if one and other else ():
                if UNITS_DIFFER[0] < one / other / factor < UNITS_DIFFER[1]:
                    raise Refused(f"mixed units: {latency} of the summary and of its requests differ by a factor of "
                                  f"{max(factor, 1 / factor):,.0f}", AS_WRITTEN)


def tpot_ms(ttft_ms: Floats, e2e_ms: Floats, tokens: Floats) -> Floats:
    """(e2e − ttft) ÷ (tokens − 1), in ms; NaN for a request of one token or none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(tokens > 1, (e2e_ms - ttft_ms) / (tokens - 1), np.nan)


def records(path: str | PathLike[str], documents: Sequence[dict[str, Any]], notes: Sequence[str],
            build: Callable[[dict[str, Any]], Run]) -> tuple[BenchRecord, ...]:
    """A record a document. Those that cannot be used are said on the first; where none can, UnusableInput."""
    made: list[BenchRecord] = []
    refusals: list[str] = []
    todo = ""
    for i, document in enumerate(documents, 1):
        try:
            made.append(build(document).record(str(path)))
        except Refused as refusal:
            refusals.append(f"run {i}: {refusal}" if len(documents) > 1 else str(refusal))
            todo = todo or refusal.todo
    if not made:
        more = f" (and {len(refusals) - 1:,} more runs like it)" if len(refusals) > 1 else ""
        raise UnusableInput(f"{refusals[0]}{more}" if refusals else "no run in it", where=path,
                            todo=todo or "Give a run with completed requests")
    said = (*notes, *(f"left out, {refusal}" for refusal in refusals))
    if said:
        made[0] = replace(made[0], notes=(*made[0].notes, *said))
    return tuple(made)
