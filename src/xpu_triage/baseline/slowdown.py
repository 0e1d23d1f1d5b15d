"""How much slower than a baseline the loads of a comparison are: at least, for sure, and at most, as the noise leaves
it open. Numbers that a rule can weigh; which dimension it is says `dimension`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..text import counted
from .compare import POINTWISE, Comparison, Entry, Pooled, State
from .figures import METRICS, TAILS, THROUGHPUT
from .loads import words
from .store import Cell

LEAST, MOST, TAIL = (f"latency.baseline_{which}_ratio" for which in ("least", "most", "tail"))

_TIMES = tuple(metric for metric in METRICS if metric != THROUGHPUT)


@dataclass(frozen=True)
class Bound:
    """Time now ÷ before (of a throughput before ÷ now); None with the reason in `where`."""

    ratio: float | None
    where: str
    """Of which figure and load."""
    cell: Cell | None = None
    """None where it is of all loads together, or of no one load."""


@dataclass(frozen=True)
class Slowdown:
    least: Bound
    """What is surely exceeded: the lower end of the interval that is farthest above 1, of those called worse; 1 where
    none is."""
    most: Bound
    """What no typical time of any load exceeds: the largest upper end. Each interval is of 95 % by itself, and that is
    enough to say it of all: to say it wrongly, each that is larger would have to look small."""
    tail: Bound
    """The same of the slowest tenth of the requests, or how many times as long the longest one is, where more stall
    than before: the larger."""

    @property
    def sure(self) -> bool:
        """Whether something is surely slower."""
        return self.least.ratio is not None and self.least.ratio > 1


def slowdown(comparison: Comparison) -> Slowdown:
    """The bounds of a comparison."""
    return Slowdown(_least(comparison), _most(comparison), _tail(comparison))


def _least(comparison: Comparison) -> Bound:
    sure = list(_sure(comparison))
    if sure:
        return max(sure, key=lambda bound: bound.ratio or 0.0)
    if why := _no_claim(comparison):
        return Bound(None, why)
    return Bound(1.0, f"nothing is surely slower in {_loads(comparison)}")


def _sure(comparison: Comparison) -> Iterator[Bound]:
    for entry in comparison.with_state(State.WORSE):
        if (ratio := _lower(entry)) is not None:
            yield Bound(ratio, f"{entry.metric} at {words(entry.cell)}", entry.cell)
    for pooled in comparison.pooled:
        if pooled.state is State.WORSE and (ratio := _lower(pooled)) is not None:
            yield Bound(ratio, f"{pooled.metric} over all {pooled.cells} loads together")


def _lower(of: Entry | Pooled) -> float | None:
    """Lower end of how many times slower."""
    if of.low is None or of.high is None:
        return None
    return 1 / of.high if of.metric == THROUGHPUT else of.low


def _no_claim(comparison: Comparison) -> str:
    if late := comparison.with_state(State.CLIENT):
        return f"the client itself was late by as much at {words(late[0].cell)}"
    if all(entry.difference is None for entry in comparison.entries):
        return "no load has times of 12 single requests or more in both"
    return ""


def _most(comparison: Comparison) -> Bound:
    if why := _no_claim(comparison):
        return Bound(None, why)
    if failed := next((one for one in comparison.failures if one.more), None):
        return Bound(None, f"more requests fail than before at {words(failed.cell)}, and these have no time")
    entries = [entry for entry in comparison.entries if entry.metric in _TIMES]
    bare = next((entry for entry in entries if entry.difference is None), None)
    if not entries or bare is not None:
        return Bound(None, "no time of a request was measured in both" if bare is None else
                     f"{bare.metric} at {words(bare.cell)} has no interval")
    most = max(entries, key=_upper)
    return Bound(math.exp(min(_upper(most), 700.0)), f"{most.metric} at {words(most.cell)}, the largest of "
                 f"{counted(len(entries), 'figure')} in {_loads(comparison)}", most.cell)


def _tail(comparison: Comparison) -> Bound:
    if why := _no_claim(comparison):
        return Bound(None, why)
    tails = [entry for entry in comparison.entries if entry.metric in TAILS and entry.difference is not None]
    found = [Bound(math.exp(min(_upper(entry), 700.0)), f"{entry.metric} at {words(entry.cell)}, as far as the noise "
                   "leaves it open", entry.cell) for entry in tails]
    found += [Bound(one.ratio, one.text, one.cell) for one in comparison.stalls]
    if not found:
        return Bound(None, "no load has times of 50 single requests or more in both")
    return max(found, key=lambda bound: bound.ratio or 0.0)


def _upper(entry: Entry) -> float:
    """Upper end of how many times slower, on logarithms."""
    return math.inf if entry.difference is None else entry.effect + entry.difference.half(POINTWISE)


def _loads(comparison: Comparison) -> str:
    return counted(len(comparison.cells), "load")
