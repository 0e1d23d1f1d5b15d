"""Two baselines side by side: the ratio new ÷ old of each latency and of the throughput, load by load, and how sure.

What is called worse is sure after all comparisons have been counted: with two recordings of one server, some figure is
called worse or better in no more than one pair of a hundred (`FALSE_ALARMS`, by a weighted Bonferroni), and it has to
be large enough to matter (`MATTERS`). Without times of single requests a ratio is shown and nothing is claimed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ..errors import UnusableInput
from ..text import counted
from .course import course
from .figures import METRICS, TAILS, THROUGHPUT, Side, client_lag_ms, common_side
from .loads import Pair, Pairs, paired, words
from .records import BenchRecord
from .resampling import Difference, difference, mean_difference
from .stalls import Stalls, stalls
from .store import Baseline, Cell

FALSE_ALARMS = 0.01
"""Share of pairs of recordings of one server in which anything is called worse or better, at most."""

OF_TAILS = 0.1
"""Share of these alarms that is left to the tails: they are noisy, and what they show is large (`TAIL_MATTERS`)."""

MATTERS = 1.05
"""A ratio nearer to 1 is no regression however sure: repeats of one server differ by 1 or 2 % (placement, clocks)."""

SEEN = 1.10
"""A slow-down that a recording should be able to show; where it could not, that is said."""

TAIL_MATTERS, TAIL_SEEN = 1.2, 2.0
"""The same of the slowest tenth: it is of fewer requests, and moves by more from run to run."""

MOST_NOTES = 6
"""Of the recordings themselves that are repeated: of both, and of each of the two."""

POINTWISE = 0.05
"""Of one interval alone. `SAME` rests on it: that all loads are the same takes every one of these intervals, so no
more is needed of each for all together (intersection and union)."""

UNTOLD = "whether it is the same cannot be told"
"""How a note on a part of the environment ends that one of the two does not know."""

MUST_MATCH = ("model", "device")
MAY_DIFFER = ("engine", "engine_version", "client", "client_version")


class State(StrEnum):
    WORSE = "worse"
    BETTER = "better"
    SAME = "same"
    """A slow-down of `SEEN` would have shown."""
    UNCLEAR = "unclear"
    """Neither."""
    CLIENT = "client late"
    """Slower, and the client itself was late by as much: no claim about the server."""
    UNKNOWN = "unknown"
    """No times of single requests: the ratio alone."""


@dataclass(frozen=True)
class Entry:
    """One quantity under one load; latencies in ms, throughput in tokens/s."""

    cell: Cell
    metric: str
    """A name of `METRICS` or of `TAILS`."""
    old: float
    new: float
    basis: str
    """What `old` and `new` are: `typical request`, `p50`, …"""
    n_old: int | None
    n_new: int | None
    state: State
    difference: Difference | None = None
    low: float | None = None
    high: float | None = None
    """Of the ratio: all intervals of a comparison hold the truth at once in 99 of 100. None: unknown."""

    @property
    def ratio(self) -> float:
        """new ÷ old."""
        return self.new / self.old

    @property
    def effect(self) -> float:
        """Logarithm of how many times worse: positive is worse, for a throughput too."""
        return (math.log(self.new) - math.log(self.old)) * _sign(self.metric)

    @property
    def se(self) -> float | None:
        """Standard error of `effect`."""
        return None if self.difference is None else self.difference.se


@dataclass(frozen=True)
class Pooled:
    """A metric over all loads: the mean of the logarithms, each load alike."""

    metric: str
    ratio: float
    low: float
    high: float
    cells: int
    state: State


@dataclass(frozen=True)
class Failures:
    cell: Cell
    old: int
    of_old: int
    new: int
    of_new: int
    more: bool
    """More than chance."""


@dataclass(frozen=True)
class Comparison:
    old: str
    new: str
    """Where they were read."""
    entries: tuple[Entry, ...]
    pooled: tuple[Pooled, ...]
    failures: tuple[Failures, ...]
    """Loads under which requests failed in either."""
    only_old: tuple[Cell, ...]
    only_new: tuple[Cell, ...]
    notes: tuple[str, ...]
    """What differs between the two besides the figures, and what limits the comparison."""
    course: tuple[str, ...] = ()
    """Where in the course of a run its slow requests lie, where that is at its start or its end."""
    stalls: tuple[Stalls, ...] = ()
    """Requests that took many times as long as usual, where there are more of them than before. No claim."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Loads that both have, smallest first."""
        return tuple(dict.fromkeys(entry.cell for entry in self.entries))

    def entry(self, cell: Cell, metric: str) -> Entry | None:
        return next((e for e in self.entries if e.cell == cell and e.metric == metric), None)

    def with_state(self, state: State) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.state is state)


def compare(old: Baseline, new: Baseline, *, anyway: bool = False) -> Comparison:
    """Put `new` beside `old`, load by load.

    Raises `UnusableInput` where they are of two models or devices (unless `anyway`), and where they share no load.
    """
    notes = [*_environments(old, new, anyway=anyway), *_own_notes(old, new)]
    both = paired(old.records, new.records)
    notes += both.unlike
    entries = [entry for pair in both.pairs for entry in _entries(pair)]
    if not entries:
        if both.unlike:
            raise UnusableInput(both.unlike[0], where=new.source, todo="Record the loads of the old one again")
        raise UnusableInput(f"no load was measured in both: {_loads(old.records)} in one, {_loads(new.records)} in "
                            f"the other", where=new.source, todo="Record the loads of the old one again")
    pooled = list(_pooled(entries))
    level, of_tail = _levels(entries, len(pooled))
    lags = {(pair.cell, tail): (client_lag_ms(pair.old, tail), client_lag_ms(pair.new, tail))
            for pair in both.pairs for tail in (False, True)}
    judged = [_judged(entry, of_tail if entry.metric in TAILS else level) for entry in entries]
    late = {(entry.cell, entry.metric) for entry in judged
            if _client_was_late(entry, *lags[entry.cell, entry.metric in TAILS])}
    judged = [_withheld(entry, late) for entry in judged]
    notes += _more_notes(both.pairs, judged)
    return Comparison(old.source, new.source, tuple(judged),
                      tuple(_pooled_judged(metric, difference, cells, level) for metric, difference, cells in pooled),
                      tuple(_failures(both.pairs)), both.only_old, both.only_new, tuple(dict.fromkeys(notes)),
                      tuple(_courses(both)), stalls(both.pairs))


def _entries(pair: Pair) -> Iterator[Entry]:
    for metric in (*METRICS, *TAILS):
        sides = common_side(metric, pair.old, pair.new)
        if sides is None:
            continue
        old, new = sides
        yield Entry(pair.cell, metric, old.value, new.value, old.basis, old.n, new.n, State.UNKNOWN, _between(old, new))


def _between(old: Side, new: Side) -> Difference | None:
    if old.estimate is None or new.estimate is None:
        return None
    return replace(difference(old.estimate, new.estimate), log=math.log(new.value) - math.log(old.value))


def _levels(entries: Sequence[Entry], pooled: int) -> tuple[float, float]:
    """Of one interval, and of one of a tail: all of them together miss in a share `FALSE_ALARMS`."""
    tails = sum(entry.difference is not None and entry.metric in TAILS for entry in entries)
    others = sum(entry.difference is not None for entry in entries) - tails + pooled
    share = OF_TAILS if tails else 0.0
    return FALSE_ALARMS * (1 - share) / max(1, others), FALSE_ALARMS * share / max(1, tails)


def _judged(entry: Entry, level: float) -> Entry:
    if entry.difference is None:
        return entry
    low, high = entry.difference.within(level)
    state = _state(entry.metric, entry.difference, level)
    return replace(entry, low=low, high=high, state=state)


def _state(metric: str, difference: Difference, level: float) -> State:
    worse, half = difference.log * _sign(metric), difference.half(level)
    matters, seen = (TAIL_MATTERS, TAIL_SEEN) if metric in TAILS else (MATTERS, SEEN)
    if worse - half > 0 and worse >= math.log(matters):
        return State.WORSE
    if worse + half < 0 and worse <= -math.log(matters):
        return State.BETTER
    return State.SAME if worse + difference.half(POINTWISE) < math.log(seen) else State.UNCLEAR


def _pooled(entries: Sequence[Entry]) -> Iterator[tuple[str, Difference, int]]:
    """A slow-down that is too small to be sure of in any one load may be sure in all of them. Not so of the tails: what
    delays a few requests is large."""
    for metric in METRICS:
        parts = [entry.difference for entry in entries if entry.metric == metric and entry.difference is not None]
        if len(parts) > 1:
            yield metric, mean_difference(parts), len(parts)


def _pooled_judged(metric: str, difference: Difference, cells: int, level: float) -> Pooled:
    low, high = difference.within(level)
    return Pooled(metric, math.exp(difference.log), low, high, cells, _state(metric, difference, level))


def _client_was_late(entry: Entry, old_ms: float | None, new_ms: float | None) -> bool:
    """Whether half of a slow-down or more is the client's own lag. It delays what the client sees by its mean."""
    if entry.state is not State.WORSE or entry.metric == THROUGHPUT or new_ms is None:
        return False
    return 2 * (new_ms - (old_ms or 0.0)) >= entry.new - entry.old


def _withheld(entry: Entry, late: set[tuple[Cell, str]]) -> Entry:
    """A throughput falls where requests take longer, so it is doubted with them."""
    doubted = entry.metric if entry.metric != THROUGHPUT else "e2e"
    if entry.state is State.WORSE and (entry.cell, doubted) in late:
        return replace(entry, state=State.CLIENT)
    return entry


def _environments(old: Baseline, new: Baseline, *, anyway: bool) -> Iterator[str]:
    """What differs, for the reader. Raises `UnusableInput` where that is another model or device."""
    a, b = old.environment, new.environment
    other = [f"{part} {x} and {y}" for part in MUST_MATCH
             if (x := getattr(a, part)) and (y := getattr(b, part)) and not _one_name(x, y)]
    if other and not anyway:
        raise UnusableInput(f"not of one kind: {'; '.join(other)}", where=new.source,
                            todo="--anyway compares them all the same")
    if other:
        yield f"not of one kind, compared all the same: {'; '.join(other)}"
    for part in MUST_MATCH:
        if not getattr(a, part) or not getattr(b, part):
            which = "both" if not getattr(a, part) and not getattr(b, part) else (
                "the old one" if not getattr(a, part) else "the new one")
            yield f"{part} unknown in {which}: {UNTOLD}"
        elif getattr(a, part) != getattr(b, part) and _one_name(getattr(a, part), getattr(b, part)):
            yield f"{part} taken as one: {getattr(a, part)} and {getattr(b, part)}"
    for part in MAY_DIFFER:
        x, y = getattr(a, part), getattr(b, part)
        if x and y and x != y:
            yield f"{part.replace('_', ' ')}: {x}, now {y}"
    tools = {record.tool for record in old.records}, {record.tool for record in new.records}
    if tools[0] != tools[1]:
        yield (f"measured by {', '.join(sorted(tools[0]))}, now by {', '.join(sorted(tools[1]))}: what two clients "
               f"count as first token and as request differs")


def _one_name(a: str, b: str) -> bool:
    """A model is served under its path or under its name alone."""
    a, b = a.casefold().rstrip("/"), b.casefold().rstrip("/")
    return a == b or (("/" in a or "/" in b) and a.rsplit("/", 1)[-1] == b.rsplit("/", 1)[-1]
                      and not ("/" in a and "/" in b))


def _more_notes(pairs: Sequence[Pair], entries: Sequence[Entry]) -> Iterator[str]:
    if bare := sum(entry.difference is None for entry in entries):
        yield (f"{bare} of {counted(len(entries), 'ratio')} without an interval: times of 12 single requests or more "
               f"are needed in both (vllm bench serve --save-detailed, or xpu-triage baseline record)")
    for pair in pairs:
        for record in (*pair.old, *pair.new):
            if record.invalid_ttft:
                times = counted(record.invalid_ttft, "time")
                yield f"{words(pair.cell)}: {times} to first token of 0 left out"
        if None in (pair.cell.prompt_tokens, pair.cell.output_tokens):
            yield "lengths unknown in both: taken as the same"
    for entry in entries:
        if entry.state is State.CLIENT:
            yield (f"{words(entry.cell)}: the client was late by as much as {entry.metric} grew; give it a core of its "
                   f"own and record again")


def _own_notes(old: Baseline, new: Baseline) -> Iterator[str]:
    """What was said when the recordings were read: what is missing in a file is missing in its figures."""
    a, b = ({note: None for record in kept.records for note in record.notes} for kept in (old, new))
    for which, found in (("both", [note for note in a if note in b]), ("the old one", [n for n in a if n not in b]),
                         ("the new one", [n for n in b if n not in a])):
        yield from (f"{which}: {note}" for note in found[:MOST_NOTES])
        if len(found) > MOST_NOTES:
            yield f"{which}: {counted(len(found) - MOST_NOTES, 'more note')}"


def _courses(both: Pairs) -> Iterator[str]:
    """Of a load whose runs all have a slow start it is the load's: the first requests come all at once."""
    for pair in both.pairs:
        old, new = ([said for record in records if record.requests is not None and (said := course(record.requests))]
                    for records in (pair.old, pair.new))
        if bool(old) != bool(new):
            yield f"{words(pair.cell)}, the {'new' if new else 'old'} one: {(new or old)[0]}"


def _failures(pairs: Sequence[Pair]) -> Iterator[Failures]:
    for pair in pairs:
        old, of_old = _failed(pair.old)
        new, of_new = _failed(pair.new)
        if old or new:
            yield Failures(pair.cell, old, of_old, new, of_new, _more(old, of_old, new, of_new))


def _failed(records: Sequence[BenchRecord]) -> tuple[int, int]:
    known = [(max(0, record.failed), max(0, record.completed)) for record in records
             if record.failed is not None and record.completed is not None]
    return sum(failed for failed, _ in known), sum(failed + completed for failed, completed in known)


def _more(old: int, of_old: int, new: int, of_new: int) -> bool:
    """Two shares, by the usual normal test at 0.001; at least 3 and 1 %, so that a single cut connection is none."""
    if not of_old or not of_new or new < 3 or new / of_new < 0.01:
        return False
    share = (old + new) / (of_old + of_new)
    spread = math.sqrt(share * (1 - share) * (1 / of_old + 1 / of_new))
    return spread == 0 or (new / of_new - old / of_old) / spread > 3.1


def _loads(records: Sequence[BenchRecord]) -> str:
    cells = list(dict.fromkeys(words(Cell(r.concurrency, r.request_rate, r.prompt_tokens, r.output_tokens))
                               for r in records))
    return "; ".join(cells[:2]) + (f" and {len(cells) - 2} more" if len(cells) > 2 else "")


def _sign(metric: str) -> int:
    return -1 if metric == THROUGHPUT else 1
